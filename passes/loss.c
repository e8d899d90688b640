// loss.c: adds the loss to a model's graph.
#include "passes.h"
#include <string.h>

static const char where[] = "--loss";

// ---- the table ------------------------------------------------------------------------

typedef enum Operand {
	OPERAND_numbers,
	OPERAND_logits,
	OPERAND_probabilities,
	OPERAND_log_probabilities
} Operand;
static const char *const operands[] = {"numbers", "logits", "probabilities", "log-probabilities"};

typedef struct Loss {
	const char *name;
	Operand operand;
	const char *instead;
	enum { LABELS_classes, LABELS_values } labels;
	enum { CONSTANT_none, CONSTANT_frequencies, CONSTANT_mean } constant;
} Loss;

static const Loss losses[] = {
#define LOSS(name, operand, instead, labels, constant, meaning)                                    \
	{#name, OPERAND_##operand, instead, LABELS_##labels, CONSTANT_##constant},
#include "losses.def"
#undef LOSS
};

enum { WEIGHTS = 2 }; // the operand of a loss that holds the weights of its labels

// Returns the loss of losses.def that an expression calls; NULL: none.
static const Loss *loss_called(const Expr *e)
{
	int i = e->kind == X_call && e->op == OPS ? FIND(e->name, losses) : -1;
	return i < 0 ? NULL : &losses[i];
}

const char *loss_names(Arena *arena)
{
	return NAMES(arena, losses, ", ");
}

// ---- names ----------------------------------------------------------------------------

// Returns output `name`, with the lengths that output SHAPE_OF `name` gives, or an input; 0 if
// there is neither.
static Ref look_name(void *context, const char *name)
{
	Graph *g = context;
	Ref y = find_output(g, name), all = find_output(g, format(g->arena, SHAPE_OF "%s", name));
	int slot = find_slot(g, name);
	for (int64_t a = 0, one = 1; y && all && a < val(g, y)->shape.rank; a++) {
		Ref size = put_reshape(g, put_slice(g, all, &a, &one, NULL), (Shape){0});
		y = is_const(g, size) ? y : put_valid(g, y, (int)a, size);
	}
	bool input = !y && slot >= 0 && g->slots.at[slot].kind == S_input;
	return input ? put_slot(g, slot) : y;
}

static const char *outs_text(const Graph *g)
{
	Text text = {.arena = g->arena};
	say(&text, "the model's outputs are");
	for (int i = 0; i < g->outs.count; i++) {
		const Val *v = val(g, g->outs.at[i].val);
		if (is_own_out(g->outs.at[i].name))
			say(&text, "%s %s %s", i ? "," : "",
			    name_text(g->arena, g->outs.at[i].name),
			    shape_text(g->arena, v->type, &v->shape));
	}
	return text.at;
}

// ---- parts of the expression ------------------------------------------------------------

typedef bool Test(void *context, const Expr *);

// Returns the first part of the expression that passes the test; NULL: none.
static const Expr *find_part(const Expr *e, Test *test, void *context)
{
	const Expr *found = test(context, e) ? e : NULL;
	for (int k = 0; k < e->nin && !found; k++)
		found = find_part(e->in[k], test, context);
	return found;
}

static bool is_name(void *name, const Expr *e)
{
	return e->kind == X_name && !strcmp(e->name, name);
}

// Returns the shape of an operand of the expression.
static Shape operand_shape(Graph *g, const Expr *e, int k)
{
	return val(g, eval_expr(g, where, e->in[k], look_name, g))->shape;
}

static bool is_unknown(void *graph, const Expr *e)
{
	double literal;
	return e->kind == X_name && !look_name(graph, e->name) && !literal_name(e->name, &literal);
}

// True for a loss that compares logits with classes.
static bool is_classification(void *none, const Expr *e)
{
	const Loss *loss = loss_called(e);
	(void)none;
	return loss && loss->constant == CONSTANT_frequencies;
}

static bool is_no_function(void *graph, const Expr *e)
{
	const Graph *g = graph;
	return e->kind == X_call && e->op == OPS && e->function < 0 &&
	       !book_defs(g->book, BOOK_def, e->name);
}

// ---- new inputs -----------------------------------------------------------------------

// Returns the operand that gives a new input its shape: of a loss the first, if it is known.
static const Expr *shape_giver(Graph *g, const Expr *call, const Expr *name)
{
	const Expr *other = NULL;
	for (int k = 0; k < call->nin; k++)
		if (call->in[k] != name && !is_unknown(g, call->in[k]) &&
		    !(other && loss_called(call)))
			other = call->in[k];
	if (!other)
		fail(where, "'%s' is unknown, and no other operand gives its shape; %s", name->name,
		     outs_text(g));
	return other;
}

// Returns the label that a loss of class numbers ignores.
static int64_t ignored_label(const Expr *call)
{
	const Expr *e = call->nattr ? call->attr[0] : NULL;
	if (e && e->kind == X_num && e->x != (double)(int64_t)e->x)
		fail(where,
		     "%s: expected an integer, the label to ignore, found %g" HELP
		     "smoothing follows it: %s(..; -100, %g)",
		     call->name, e->x, call->name, e->x);
	return e && e->kind == X_num ? (int64_t)e->x : -100;
}

// Labels of a cross entropy are class numbers, one per row of logits, and weights are numbers in
// the same places; any other input has the type and shape of the operand that it is compared with.
static void add_input(Graph *g, const Expr *call, const Expr *name)
{
	const Loss *loss = loss_called(call);
	if (find_slot(g, name->name) >= 0)
		fail(where, "'%s' is a weight of the model; give the new input another name",
		     name->name);
	const Expr *other = shape_giver(g, call, name);
	if (loss && loss->operand != OPERAND_numbers && call->in[0] == name)
		fail(where,
		     "%s('%s', ..): expected %s of the model, found a new input" HELP
		     "labels are the second argument",
		     call->name, name->name, operands[loss->operand]);
	const Val *like = val(g, eval_expr(g, where, other, look_name, g));
	bool weights = loss && call->nin > WEIGHTS && call->in[WEIGHTS] == name;
	Slot slot = {.name = name->name,
	             .kind = S_input,
	             .type = weights && !is_float(like->type) ? E_f32 : like->type,
	             .shape = like->shape,
	             .counts = true};
	if (loss && loss->labels == LABELS_classes) {
		if (slot.shape.rank == 0)
			fail(where, "%s: expected logits with an axis of classes, found a scalar",
			     call->name);
		int64_t classes = slot.shape.dim[--slot.shape.rank];
		if (!weights) {
			slot.type = E_i64;
			slot.limit = classes;
			slot.ignore = ignored_label(call);
		}
	}
	add_slot(g, slot);
}

static void add_inputs(Graph *g, const Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		if (e->in[k]->kind != X_name)
			add_inputs(g, e->in[k]);
	for (int k = 0; e->kind == X_call && k < e->nin; k++)
		if (is_unknown(g, e->in[k]))
			add_input(g, e, e->in[k]);
}

// Fails if the weights of a loss have another shape than its labels.
static void check_weights(Graph *g, const Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		check_weights(g, e->in[k]);
	const Loss *loss = loss_called(e);
	if (!loss || e->nin <= WEIGHTS)
		return;
	Shape expected = operand_shape(g, e, 0), found = operand_shape(g, e, WEIGHTS);
	expected.rank -= loss->labels == LABELS_classes;
	if (!same_shape(&expected, &found))
		fail(where, "%s: expected weights %s, one per label; found %s", e->name,
		     shape_text(g->arena, E_f32, &expected), shape_text(g->arena, E_f32, &found));
}

// ---- the loss -------------------------------------------------------------------------

// Returns a value of one element as a float of rank 0.
static Ref scalar(Graph *g, Ref r)
{
	if (!is_float(val(g, r)->type))
		r = put_cast(g, r, E_f32);
	return put_reshape(g, r, shape_of(0, NULL));
}

void rename_output(Graph *g, int number)
{
	const char *name = g->outs.at[number].name, *shape = format(g->arena, SHAPE_OF "%s", name);
	for (int i = 0; i < g->outs.count; i++)
		if (!strcmp(g->outs.at[i].name, shape))
			g->outs.at[i].name = format(g->arena, SHAPE_OF OUTPUT_OF "%s", name);
	g->outs.at[number].name = format(g->arena, OUTPUT_OF "%s", name);
}

static void set_loss(Graph *g, Ref loss)
{
	for (int i = 0; i < g->outs.count; i++)
		if (!strcmp(g->outs.at[i].name, "loss"))
			rename_output(g, i);
	add_out(g, "loss", loss);
}

// True for a loss of class numbers, of which some may be ignored.
static bool compares_classes(Graph *g, const Expr *call)
{
	return loss_called(call)->labels == LABELS_classes &&
	       !is_float(val(g, eval_expr(g, where, call->in[1], look_name, g))->type);
}

// Returns the value of function `name` for the first `n` operands of `call` and what it ignores.
static Ref called_instead(Graph *g, const Expr *call, const char *name, int n)
{
	Expr same = *call;
	same.name = name;
	same.nin = MIN(n, call->nin);
	same.nattr = MIN(1, call->nattr);
	return scalar(g, eval_expr(g, where, &same, look_name, g));
}

// Adds the weight of a batch's loss in the mean over several batches: the number of labels that
// count, or the sum of their weights.
static void add_loss_count(Graph *g, const Expr *call)
{
	Expr total = *call;
	total.name = "weight_sum";
	total.in = call->in + WEIGHTS;
	total.nin = 1;
	total.nattr = 0;
	if (compares_classes(g, call))
		add_out(g, COUNT_OF "loss", called_instead(g, call, "counted", call->nin));
	else if (call->nin > WEIGHTS)
		add_out(g, COUNT_OF "loss", scalar(g, eval_expr(g, where, &total, look_name, g)));
}

// Returns the loss whose multiple by a number the expression is, or the expression itself.
static const Expr *without_factor(const Expr *e)
{
	while (e->kind == X_call && e->nin == 2 && (e->op == O_mul || e->op == O_div)) {
		bool after = e->in[1]->kind == X_num;
		if (!after && (e->op == O_div || e->in[0]->kind != X_num))
			break;
		e = e->in[after ? 0 : 1];
	}
	return e;
}

void loss_check(Arena *arena, const char *expr, int noutput, const char *const *output)
{
	const Expr *e = parse_text(arena, where, expr);
	Text text = {.arena = arena};
	for (int i = 0; i < noutput; i++) {
		if (find_part(e, is_name, (char *)output[i]))
			return;
		say(&text, "%s%s", i ? ", " : "", name_text(arena, output[i]));
	}
	fail(where, "'%s' uses no model output: %s", expr, noutput ? text.at : "it has none");
}

static void loss_of(Graph *g, const char *text)
{
	const Expr *e = parse_text(g->arena, where, text);

	// A loss of no float output has no gradient: an integer output may have been meant as a
	// float. Unknown names are reported where they occur.
	const char *integer = NULL;
	bool real = false;
	for (int i = 0; i < g->outs.count && !real; i++) {
		if (!find_part(e, is_name, (char *)g->outs.at[i].name))
			continue;
		real = is_float(val(g, g->outs.at[i].val)->type);
		integer = g->outs.at[i].name;
	}
	if (!real && integer)
		fail(where, "output '%s' is an integer tensor; expected a float output; %s",
		     integer, outs_text(g));
	if (!real && !find_part(e, is_unknown, g))
		fail(where, "'%s' uses no model output; %s", text, outs_text(g));
	const Expr *no_function = find_part(e, is_no_function, g);
	if (no_function)
		fail(where,
		     "unknown function '%s'" HELP
		     "losses are %s; total(..) is a sum, average(..) a mean",
		     no_function->name, loss_names(g->arena));
	add_inputs(g, e);
	check_weights(g, e);
	Ref r = eval_expr(g, where, e, look_name, g);
	const Val *v = val(g, r);
	if (count_of(&v->shape) != 1)
		fail(where, "'%s' is %s; expected a scalar" HELP "wrap it in average(..)", text,
		     shape_text(g->arena, v->type, &v->shape));
	const Expr *call = find_part(e, is_classification, NULL);
	if (call && compares_classes(g, call) && !find_output(g, "accuracy")) {
		add_out(g, "accuracy", called_instead(g, call, "accuracy", WEIGHTS));
		add_out(g, COUNT_OF "accuracy", called_instead(g, call, "counted", WEIGHTS));
	}
	set_loss(g, scalar(g, r));
	const Expr *one = without_factor(e);
	if (loss_called(one))
		add_loss_count(g, one);
}

Graph *loss_pass(Arena *arena, const Graph *from, const char *expr)
{
	Graph *g = graph_live(arena, from);
	g->from = add_node(g, "loss", "loss");
	if (expr) {
		loss_of(g, expr);
		return g;
	}
	Ref named = find_output(g, "loss"), loss = 0; // or the only scalar float out
	int count = 0;
	for (int i = 0; i < g->outs.count && (!named || loss != named); i++) {
		const Val *v = val(g, g->outs.at[i].val);
		if (!is_float(v->type) || count_of(&v->shape) != 1)
			continue;
		loss = g->outs.at[i].val;
		count++;
	}
	if (!loss || (loss != named && count > 1))
		fail(where,
		     "the model has %s scalar float output; %s" HELP
		     "say what to minimize, for example --loss 'cross_entropy(logits, labels)' or "
		     "--loss 'mse(y, target)'",
		     count ? "more than one" : "no", outs_text(g));
	if (find_output(g, "loss") != loss || val(g, loss)->shape.rank)
		set_loss(g, scalar(g, loss));
	return g;
}

// ---- operands of another kind ---------------------------------------------------------

// Returns the value whose elements, in another order or type, are those of `r`.
static Ref same_elements(const Graph *g, Ref r)
{
	r = unmoved(g, r);
	while (val(g, r)->op == O_cast || val(g, r)->op == O_detach)
		r = unmoved(g, val(g, r)->in[0]);
	return r;
}

static bool is_weight(const Graph *g, Ref r)
{
	const Val *v = val(g, same_elements(g, r));
	int kind = v->op == O_slot ? g->slots.at[v->attr->i[0]].kind : S_input;
	return kind == S_param || kind == S_frozen;
}

// Returns what a value certainly is: probabilities of a softmax or sigmoid, or logits, a product
// with a weight and its bias; otherwise numbers.
static Operand operand_of(const Graph *g, Ref r)
{
	const Val *v = val(g, same_elements(g, r));
	if (v->op == O_add && (is_weight(g, v->in[0]) || is_weight(g, v->in[1])))
		v = val(g, same_elements(g, v->in[is_weight(g, v->in[0])]));
	else if (v->op == O_softmax || (v->op == O_act && v->attr->i[0] == A_sigmoid))
		return OPERAND_probabilities;
	bool product = v->op == O_dot && (is_weight(g, v->in[0]) || is_weight(g, v->in[1]));
	return product ? OPERAND_logits : OPERAND_numbers;
}

static bool is_misused(void *graph, const Expr *e)
{
	const Loss *loss = loss_called(e);
	Ref y = loss && e->nin && e->in[0]->kind == X_name ? find_output(graph, e->in[0]->name) : 0;
	Operand found = y ? operand_of(graph, y) : OPERAND_numbers;
	return loss && loss->operand != OPERAND_numbers && found != OPERAND_numbers &&
	       found != loss->operand;
}

// True if elements of operand k, but not the only one, meet several of the other operand.
static bool repeats(Graph *g, const Expr *e, int k)
{
	Shape own = operand_shape(g, e, k), other = operand_shape(g, e, !k), both = {0};
	both.rank = MAX(own.rank, other.rank);
	for (int a = 1; a <= both.rank; a++)
		both.dim[both.rank - a] = MAX(a > own.rank ? 1 : own.dim[own.rank - a],
		                              a > other.rank ? 1 : other.dim[other.rank - a]);
	return count_of(&own) > 1 && count_of(&both) > count_of(&own);
}

typedef enum Uneven { EVEN, FIRST, SECOND, BOTH } Uneven; // operands whose elements are repeated

// Returns which operands a loss repeats, as its data may be meant otherwise, or BOTH of a map whose
// operands repeat those of the other, of another rank: [N, 1] and [N] make [N, N]. A new input has
// the shape of the other operand.
static Uneven uneven_operands(Graph *g, const Expr *e)
{
	const Loss *loss = loss_called(e);
	bool maps =
	    e->kind == X_call && (loss ? e->nin >= 2 && loss->labels == LABELS_values
	                               : e->nin == 2 && e->op < OPS && prims[e->op].cls == C_map);
	if (!maps || find_part(e, is_unknown, g))
		return EVEN;
	Uneven found = (repeats(g, e, 0) ? FIRST : EVEN) | (repeats(g, e, 1) ? SECOND : EVEN);
	bool ranks = operand_shape(g, e, 0).rank != operand_shape(g, e, 1).rank;
	return loss || (found == BOTH && ranks) ? found : EVEN;
}

static bool is_uneven(void *graph, const Expr *e)
{
	return uneven_operands(graph, e) != EVEN;
}

static const char *uneven_doubt(const Graph *model, const Expr *e)
{
	static const char *const what[] = {
	    [FIRST] = "repeats the elements of the first",
	    [SECOND] = "repeats the elements of the second",
	    [BOTH] = "combines every element of one with every element of the other"};
	Graph *g = graph_live(model->arena, model);
	g->from = add_node(g, "loss", "loss");
	const Expr *call = find_part(e, is_uneven, g);
	if (!call)
		return NULL;
	Shape x = operand_shape(g, call, 0), y = operand_shape(g, call, 1);
	return format(
	    g->arena, "--loss: %s of %s and %s %s; a new input would have the shape of the output",
	    call->op < OPS ? prims[call->op].name : call->name, shape_text(g->arena, E_f32, &x),
	    shape_text(g->arena, E_f32, &y), what[uneven_operands(g, call)]);
}

const char *loss_doubt(const Graph *g, const char *expr)
{
	const Expr *e = parse_text(g->arena, where, expr),
	           *call = find_part(e, is_misused, (void *)g);
	if (!call)
		return uneven_doubt(g, e);
	const Loss *loss = loss_called(call);
	const char *name = call->in[0]->name;
	return format(g->arena, "--loss: %s(%s, ...): expected %s, found %s; %s", loss->name,
	              name_text(g->arena, name), operands[loss->operand],
	              operands[operand_of(g, find_output(g, name))], loss->instead);
}

const char *loss_labels(const Graph *loss, const char *expr)
{
	const Expr *e = expr ? parse_text(loss->arena, where, expr) : NULL;
	const Loss *called = e && e->nin == 2 ? loss_called(e) : NULL;
	if (!called || called->constant == CONSTANT_none)
		return NULL;
	bool classes = called->constant == CONSTANT_frequencies;
	for (int k = 2; k-- > classes;) {
		int slot = e->in[k]->kind == X_name ? find_slot(loss, e->in[k]->name) : -1;
		const Slot *s = slot >= 0 ? &loss->slots.at[slot] : NULL;
		if (s && s->kind == S_input && is_float(s->type) != classes &&
		    !find_output(loss, s->name))
			return s->name;
	}
	return NULL;
}

Graph *cotangent_pass(Arena *arena, const Graph *from, const Shape *given)
{
	Graph *g = graph_live(arena, from);
	Ref loss = 0;
	int nout = g->outs.count;
	Elem type = E_f32;
	for (int i = 0; i < nout; i++)
		if (val(g, g->outs.at[i].val)->type == E_f64)
			type = E_f64;
	for (int i = 0; i < nout; i++) {
		Ref y = g->outs.at[i].val;
		const Val *v = val(g, y);
		bool real = is_float(v->type);
		if (given ? given[i].rank < 0 : !real)
			continue;
		y = real ? y : put_cast(g, y, type);
		Slot slot = {.name = format(g->arena, COTANGENT_OF "%s", g->outs.at[i].name),
		             .kind = S_input,
		             .type = val(g, y)->type,
		             .shape = given ? given[i] : v->shape};
		int64_t before[RANK] = {0}, after[RANK] = {0}; // zeros follow the elements given
		for (int a = 0; a < v->shape.rank; a++)
			after[a] = v->shape.dim[a] - slot.shape.dim[a];
		Ref cotangent = put_pad(g, put_slot(g, add_slot(g, slot)), before, after, 0);
		Ref product = put2(g, O_mul, y, cotangent);
		Ref total = scalar(g, book_call1(g, "total", 1, &product, 0, NULL));
		total = put_cast(g, total, type);
		loss = loss ? put2(g, O_add, loss, total) : total;
	}
	set_loss(g, loss ? loss : put_num(g, E_f32, 0));
	return g;
}
