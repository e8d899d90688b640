// book.c: lowers operators that are lines of the book, and defines the functions of such lines.
// Operands come by position; attributes by name, from the node or else from its schema.
#include "ops.h"
#include <stdlib.h>
#include <string.h>

// ---- attributes -----------------------------------------------------------------------

Item ints_item(const Call *c, size_t n, const int64_t *ints)
{
	Item item = {.kind = I_list, .n = (int)n};
	if (n > NUMS)
		unsupported_node(c, fewer_axes, "a list of %zu numbers; at most %d are supported",
		                 n, NUMS);
	for (size_t i = 0; i < n; i++)
		item.i[i] = ints[i];
	return item;
}

// `text`: as schema.def writes it, "1,2" for a list; NULL: there is none.
static Item default_item(char kind, const char *text)
{
	Item item = {.kind = text ? I_text : I_none, .text = text};
	if (text && strchr("if", kind))
		return num_item(strtod(text, NULL));
	if (text && kind == 'I')
		item.kind = I_list;
	for (char *at = (char *)text; item.kind == I_list && *at; at += *at == ',')
		item.i[item.n++] = strtoll(at, &at, 10);
	return item;
}

// The attribute as the node has it, or its schema, or that of the operator `op`, which the node's
// line calls. `opset`, and `outputs`, how many results it has, are attributes of every node.
static Item attr_item(const Call *c, const char *op, const char *name)
{
	const char *otherwise = NULL;
	const AttributeProto *a = find_attr(c, name);
	char kind = declared_attr(c->r->arena, plain_domain(c->node->domain), c->node->op_type,
	                          c->opset, name, &otherwise);
	if (!kind && !strcmp(name, "opset"))
		return num_item((double)c->opset);
	if (!kind && !strcmp(name, "outputs"))
		return num_item(c->nout);
	if (!a && !otherwise && strcmp(op, c->node->op_type))
		kind = declared_attr(c->r->arena, "", op, INT64_MAX, name, &otherwise);
	if (!a)
		return default_item(kind, otherwise);
	switch (kind ? kind : attr_letter(a->type)) {
	case 'f':
		return num_item((double)a->f);
	case 'i':
		return num_item((double)a->i);
	case 's':
		return (Item){.kind = I_text, .text = attr_string(c, name, "")};
	case 't':
		return ref_item(tensor_constant(c->r, a->t));
	case 'F':
		return ref_item(put_const(
		    c->g, E_f32, shape_of(1, (int64_t[]){(int64_t)a->n_floats}), a->floats));
	case 'I':
		return ints_item(c, a->n_ints, a->ints);
	default:
		if (kind)
			bug("%s: attribute %s is for no line of the book", c->node->op_type, name);
		return default_item(kind, otherwise); // of another opset, without a type
	}
}

// ---- lines ----------------------------------------------------------------------------

static bool host_call(Scope *, const Expr *, Item *result);

static Item host_attr(void *context, const char *op, const char *name)
{
	return attr_item(context, op, name);
}

void lower_book(Call *c)
{
	const char *domain = plain_domain(c->node->domain), *op = c->node->op_type;
	const Def *d = NULL;
	if (*domain)
		d = find_def(c->g->book, format(c->r->arena, "%s.%s", domain, op), c->nin);
	d = d ? d : find_def(c->g->book, op, c->nin);
	if (!d && !has_schema(c->node))
		invalid_node(c, "found %d %s; expected another number", c->nin,
		             PLURAL(c->nin, "input", "inputs"));
	if (!d)
		bug("no line of the book is called %s, of %d operands", op, c->nin);
	Item var[d->nvar + 1], result[d->nresult + 1];
	Host host = {c, host_call, host_attr};
	Scope s = {.g = c->g, .book = c->g->book, .where = d->place, .var = var, .host = &host};
	for (int k = 0; k < d->nin; k++) {
		if (!(d->optional >> k & 1))
			in_val(c, k);
		var[k] = ref_item(operand(c, k));
		var[k].input = k + 1;
	}
	// A node without a schema may have the attributes alone that its line names.
	for (size_t i = 0; !has_schema(c->node) && i < c->node->n_attribute; i++) {
		const char *name = c->node->attribute[i]->name;
		bool known = false;
		for (int k = 0; k < d->nattr; k++)
			known |= !strcmp(d->names[d->nin + k], name);
		if (!known)
			invalid_node(c, "unknown attribute '%s'", name);
	}
	for (int k = 0; k < d->nattr; k++) {
		Item *attr = &var[d->nin + k];
		*attr = attr_item(c, op, d->names[d->nin + k]);
		if (attr->kind == I_none && d->attr[k])
			*attr = eval_item(&s, d->attr[k]);
	}
	run_def(&s, d, var, MIN(c->nout, d->nresult), result);
	for (int k = 0; k < c->nout && k < d->nresult; k++)
		if (result[k].kind != I_none)
			c->out[k] = item_ref(&s, &result[k], c->nin ? in_val(c, 0)->type : E_f32);
}

int numbers_of(const Graph *g, const char *op, AttrArg *given)
{
	const Def *d = find_def(g->book, op, 1);
	const char *otherwise = NULL;
	for (int k = 0; d && k < d->nattr; k++) {
		const char *name = d->names[d->nin + k];
		char kind = declared_attr(g->arena, "", op, INT64_MAX, name, &otherwise);
		given[k] = (AttrArg){.name = name, .x = d->attr[k] ? d->attr[k]->x : 0};
		if (kind && otherwise)
			given[k].x = strtod(otherwise, NULL);
	}
	return d ? d->nattr : -1;
}

// A line for each tensor. Inputs: rate, count of steps, all tensors, all their gradients, all their
// slots: `variant` of each tensor. Results: all tensors, all slots.
void lower_steps(Call *c)
{
	int kinds = c->variant, n = (c->nin - 2) / kinds, nout = kinds - 1;
	if (n < 1 || c->nin != 2 + kinds * n || c->nout > nout * n)
		invalid_node(c, "%d %s and %d %s", c->nin, PLURAL(c->nin, "input", "inputs"),
		             c->nout, PLURAL(c->nout, "output", "outputs"));
	for (int i = 0; i < n; i++) {
		Call step = *c;
		Ref in[6] = {c->in[0], c->in[1]}, out[3] = {0};
		step.in = in;
		step.out = out;
		step.nin = 2 + kinds;
		step.nout = nout;
		for (int k = 0; k < kinds; k++)
			in[2 + k] = c->in[2 + k * n + i];
		lower_book(&step);
		for (int k = 0; k < nout && k * n + i < c->nout; k++)
			c->out[k * n + i] = out[k];
	}
}

// ---- functions ------------------------------------------------------------------------

Item call_arg(Scope *s, const Expr *e, int k)
{
	return k < e->nin ? eval_item(s, e->in[k]) : (Item){.kind = I_none};
}

Item call_attr(Scope *s, const Expr *e, int k)
{
	return k < e->nattr ? eval_item(s, e->attr[k]) : (Item){.kind = I_none};
}

Ref call_value(Scope *s, const Expr *e, int k)
{
	Item item = call_arg(s, e, k);
	return item.kind == I_none ? 0 : item_ref(s, &item, E_f32);
}

double number_of_item(Scope *s, const Expr *e, Item item)
{
	return item_number(s, e->name, &item);
}

int64_t call_integer(Scope *s, const Expr *e, int k)
{
	return (int64_t)number_of_item(s, e, call_attr(s, e, k));
}

int call_input(Scope *s, const Expr *e, int k)
{
	Item item = call_arg(s, e, k);
	if (!item.input)
		bug("%s: operand %d is not an input of the node", e->name, k);
	return item.input - 1;
}

// Returns the text of note() or doubt(), after the node's name, or NULL: the number is 0.
static const char *noted(const Call *c, Scope *s, const Expr *e)
{
	return number_of_item(s, e, call_arg(s, e, 0)) == 0
	           ? NULL
	           : format(c->r->arena, "%s%s", node_where(c->r->arena, c->node),
	                    text_of_items(s, e->nattr, e->attr));
}

// note(c; text, ..): notes the text if the number c is not 0.
static Item fn_note(Call *c, Scope *s, const Expr *e)
{
	const char *text = noted(c, s, e);
	if (text)
		note(c->r, "%s", text);
	return (Item){.kind = I_none};
}

// doubt(c; text, ..): the same, and warns of it before training.
static Item fn_doubt(Call *c, Scope *s, const Expr *e)
{
	const char *text = noted(c, s, e);
	if (text)
		doubt(c->r, text);
	return (Item){.kind = I_none};
}

// support(c, ..; text, .., help): fails unless all conditions hold.
static Item fn_support(Call *c, Scope *s, const Expr *e)
{
	bool holds = true;
	for (int k = 0; k < e->nin; k++)
		holds &= number_of_item(s, e, call_arg(s, e, k)) != 0;
	if (!holds)
		unsupported_node(c, text_of_items(s, 1, e->attr + e->nattr - 1), "%s",
		                 text_of_items(s, e->nattr - 1, e->attr));
	return (Item){.kind = I_none};
}

// number(x): an input that is constant, as a number.
static Item fn_number(Call *c, Scope *s, const Expr *e)
{
	int k = call_input(s, e, 0);
	const Val *v = val(c->g, constant_operand(c, k));
	if (!count_of(&v->shape))
		invalid_node(c, "input %d is empty; expected a number", k);
	return num_item(const_at(v, 0));
}

// weight(x): x, which is noted if it is a matrix of constants.
static Item fn_weight(Call *c, Scope *s, const Expr *e)
{
	enum { FEW = 64 };
	Item item = call_arg(s, e, 0);
	const Val *v = item.input ? in_val(c, item.input - 1) : NULL;
	if (v && v->op == O_const && v->shape.rank > 1 && count_of(&v->shape) > FEW &&
	    !c->arg[item.input - 1].weight)
		note(c->r, "%s takes a constant %s that looks like a weight: it is not trained",
		     node_where(c->r->arena, c->node), shape_text(c->r->arena, v->type, &v->shape));
	return item;
}

// bias(b; n): b, or the bias of n elements that the exporter left out.
static Item fn_bias(Call *c, Scope *s, const Expr *e)
{
	Item item = call_arg(s, e, 0);
	return item.kind == I_none ? ref_item(missing_bias(c, call_integer(s, e, 0))) : item;
}

// training(): 1 if the model is read to be trained.
static Item fn_training(Call *c, Scope *s, const Expr *e)
{
	(void)s, (void)e;
	return num_item(c->r->options->training);
}

// computed(type): the type in which values of a type of the file are computed.
static Item fn_computed(Call *c, Scope *s, const Expr *e)
{
	int type = working_type((int)number_of_item(s, e, call_arg(s, e, 0)));
	if (type < 0)
		invalid_node(c, "its type is not numeric");
	return num_item(type);
}

// file_type(x): the type of an input in the file.
static Item fn_file_type(Call *c, Scope *s, const Expr *e)
{
	return num_item(operand_type(c, call_input(s, e, 0)));
}

// activated(x; name, a, b, c): x through the line that is called so, with the numbers given.
static Item fn_activated(Call *c, Scope *s, const Expr *e)
{
	Item name = call_attr(s, e, 0);
	Ref x = call_value(s, e, 0);
	AttrArg given[MOST_NUMBERS];
	if (name.kind == I_none || !*name.text)
		return ref_item(x);
	int n = numbers_of(c->g, name.text, given);
	for (int i = 1; i < e->nattr; i++) {
		Item item = call_attr(s, e, i);
		if (item.kind != I_none && i <= n)
			given[i - 1].x = number_of_item(s, e, item);
		else if (item.kind != I_none)
			n = -1;
	}
	if (n < 0)
		unsupported_node(c, "export before it is fused", "activation %s", name.text);
	return ref_item(book_call1(c->g, name.text, 1, &x, n, given));
}

// constant(x): an input that has to be constant; none if it is absent.
static Item fn_constant(Call *c, Scope *s, const Expr *e)
{
	return call_arg(s, e, 0).kind == I_none
	           ? ref_item(0)
	           : ref_item(constant_operand(c, call_input(s, e, 0)));
}

// ints(x): an input that is constant, as a list.
static Item fn_ints(Call *c, Scope *s, const Expr *e)
{
	int n = 0;
	const int64_t *ints = operand_ints(c, call_input(s, e, 0), &n);
	return ints_item(c, (size_t)n, ints);
}

// in_order(y, x): y of the type of input x, as integers that the door orders as the file does.
static Item fn_in_order(Call *c, Scope *s, const Expr *e)
{
	return ref_item(signed_order(c, call_input(s, e, 1), call_value(s, e, 0)));
}

// smoothing_left_out(): the label smoothing that did not reach the file.
static Item fn_smoothing_left_out(Call *c, Scope *s, const Expr *e)
{
	(void)s, (void)e;
	return num_item(traced_smoothing(c->node));
}

// Slots for those operands that are there: carried and scanned ones first.
static void put_body_slots(Call *c, LoopScope *nest, int n, const Item *in, LoopInfo *info,
                           Item *var)
{
	Reader *r = c->r;
	int carried = info->carried, scanned = info->scanned;
	info->carried = info->scanned = 0;
	for (int k = 0; k < carried + scanned; k++) {
		bool entry = k >= carried;
		if (in[k].kind != I_ref)
			continue;
		var[k] = ref_item(nest_slot(r, nest, in[k].ref, entry));
		*(entry ? &info->scanned : &info->carried) += 1;
		if (entry)
			info->trips = val(nest->around, in[k].ref)->shape.dim[0];
	}
	for (int k = 0; k < n; k++)
		if (in[k].kind == I_ref && k < carried + scanned)
			var[k].ref = sized_slot(r, nest, var[k].ref);
		else if (in[k].kind == I_ref)
			var[k] = ref_item(bring_in(r, in[k].ref, nest->outer));
}

// repeat(limit, x, ..; line, carried, scanned, reverse, until, k, ..): a loop whose body is a line
// of the book, of the operands x and the attributes k. The first operands are carried, the next
// are scanned along their first axes. The line's results are: with `until`, whether another
// iteration follows; the carried values; what is stacked. The last two are what the loop gives.
static Item fn_repeat(Call *c, Scope *s, const Expr *e)
{
	enum { FIXED = 5 };
	Reader *r = c->r;
	int n = e->nin - 1;
	const Def *d = find_def(s->book, call_attr(s, e, 0).text, n);
	Item in[n + 1], var[d->nvar + 1], limit = call_arg(s, e, 0);
	LoopInfo info = {.carried = (int)call_integer(s, e, 1),
	                 .scanned = (int)call_integer(s, e, 2),
	                 .reverse = call_integer(s, e, 3),
	                 .until = call_integer(s, e, 4)};
	Ref most = item_ref(s, &limit, E_i64), part[d->nresult + 1];
	for (int k = 0; k < n; k++)
		var[k] = in[k] = call_arg(s, e, 1 + k);
	for (int k = 0; k < d->nattr; k++)
		var[n + k] = call_attr(s, e, FIXED + k);
	info.trips = info.scanned ? 0 : extent_of(c, most, "how often it repeats").most;
	LoopScope nest;
	open_nest(r, &nest);
	put_body_slots(c, &nest, n, in, &info, var);
	Call body = *c;
	body.g = nest.body;
	Host host = {&body, host_call, host_attr};
	Scope inside = {
	    .g = nest.body, .book = s->book, .where = d->place, .var = var, .host = &host};
	Item result[d->nresult + 1];
	run_def(&inside, d, var, d->nresult, result);
	for (int k = 0; k < d->nresult; k++)
		if (result[k].kind != I_none)
			add_out(nest.body, k < info.until ? "on" : "y",
			        item_ref(&inside, &result[k], E_f32));
	close_nest(r, &nest);
	put_loop_info(r, &info, &nest, most, part);
	Item all = {.kind = I_several, .n = loop_results(&info)}, *list;
	all.all = list = NEWS(r->arena, Item, all.n + 1);
	for (int k = 0; k < all.n; k++)
		list[k] = ref_item(part[k]);
	return all;
}

// initial(x): an input, a constant if an initializer is one.
static Item fn_initial(Call *c, Scope *s, const Expr *e)
{
	return ref_item(fixed_operand(c, call_input(s, e, 0)));
}

// element(x; i): of an input of integers, as a value.
static Item fn_element(Call *c, Scope *s, const Expr *e)
{
	int n = 0;
	const Ref *entry = entries_of(c, call_input(s, e, 0), "", &n);
	int64_t i = call_integer(s, e, 0);
	if (!entry || i >= n)
		invalid_node(c, "%d %s; expected more", n, PLURAL(n, "number", "numbers"));
	return ref_item(entry[i]);
}

// counting(; n, known): 0, 1, .. n - 1; known: as a constant unless it is large.
static Item fn_counting(Call *c, Scope *s, const Expr *e)
{
	int64_t n = call_integer(s, e, 0);
	if (!call_integer(s, e, 1) || n > FOLD_LIMIT)
		return ref_item(put_iota(c->g, shape_of(1, &n), 0));
	int64_t *at = NEWS(c->r->arena, int64_t, n + 1);
	for (int64_t i = 0; i < n; i++)
		at[i] = i;
	return ref_item(put_ints(c->g, (int)n, at));
}

// at_least(x, n): max(x, n) of integers; x or n itself if their limits decide.
static Item fn_at_least(Call *c, Scope *s, const Expr *e)
{
	Item n = call_arg(s, e, 1);
	return ref_item(larger_of(c->g, call_value(s, e, 0), item_ref(s, &n, E_i64)));
}

// in_line(x): the valid elements of x along one axis.
static Item fn_in_line(Call *c, Scope *s, const Expr *e)
{
	BoundedSize all = {-1, 0};
	return ref_item(reshape_to(c, call_value(s, e, 0), 1, &all));
}

// bound(n; what): the most that a size can be; fails if nothing bounds it.
static Item fn_bound(Call *c, Scope *s, const Expr *e)
{
	return num_item((double)extent_of(c, call_value(s, e, 0), call_attr(s, e, 0).text).most);
}

// fixed(x, ..): fails if the data decide the size of an input; fixed(x; axis): along this axis.
static Item fn_fixed(Call *c, Scope *s, const Expr *e)
{
	for (int k = 0; k < e->nin; k++) {
		Item x = call_arg(s, e, k);
		int n = x.kind == I_ref ? val(c->g, x.ref)->shape.rank : 0;
		for (int a = 0; a < n; a++) {
			if (e->nattr && a != wrap_axis(s, call_integer(s, e, 0), n))
				continue;
			if (x.input)
				expect_fixed_axis(c, x.input - 1, a);
			else if (lengths_of(c->g, x.ref)->of[a])
				unsupported_node(c, fixed_sizes,
				                 "the size of axis %d depends on the data", a);
		}
	}
	return ref_item(0);
}

// through(x; name): x through a graph of the node; x if there is none.
static Item fn_through(Call *c, Scope *s, const Expr *e)
{
	const char *name = call_attr(s, e, 0).text;
	const AttributeProto *a = find_attr(c, name);
	Value in = {.ref = call_value(s, e, 0)}, out = {0};
	if (!a || !a->g)
		return ref_item(in.ref);
	lower_body(c, a->g, 1, &in, 1, &out);
	if (!out.ref)
		invalid_node(c, "its graph '%s' returns no tensor", name);
	return ref_item(out.ref);
}

static const struct {
	const char *name;
	Function *call;
} functions[] = {
    {"note", fn_note},
    {"doubt", fn_doubt},
    {"support", fn_support},
    {"number", fn_number},
    {"index", fn_index},
    {"weight", fn_weight},
    {"bias", fn_bias},
    {"training", fn_training},
    {"draw", fn_draw},
    {"computed", fn_computed},
    {"masked_shape", fn_masked_shape},
    {"quantize", fn_quantize},
    {"file_type", fn_file_type},
    {"unpacked", fn_unpacked},
    {"levels", fn_levels},
    {"activated", fn_activated},
    {"inside", fn_inside},
    {"fixed", fn_fixed},
    {"repeat", fn_repeat},
    {"initial", fn_initial},
    {"element", fn_element},
    {"bound", fn_bound},
    {"counting", fn_counting},
    {"at_least", fn_at_least},
    {"in_line", fn_in_line},
    {"activation", fn_activation},
    {"through", fn_through},
    {"wave", fn_wave},
    {"ints", fn_ints},
    {"in_order", fn_in_order},
    {"labels_below", fn_labels_below},
    {"running", fn_running},
    {"stored", fn_stored},
    {"batch_statistics", fn_batch_statistics},
    {"smoothing_left_out", fn_smoothing_left_out},
    {"constant", fn_constant},
    {"scaled_size", fn_scaled_size},
    {"source_places", fn_source_places},
    {"interpolation", fn_interpolation},
};

static bool host_call(Scope *s, const Expr *e, Item *result)
{
	int function = FIND(e->name, functions);
	if (function >= 0)
		*result = functions[function].call(s->host->context, s, e);
	return function >= 0;
}
