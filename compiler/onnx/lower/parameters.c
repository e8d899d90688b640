// parameters.c: separates parameters from constants.
// Each use of a weight becomes a slot or a constant: several slots for one initializer if the
// exporter merged equal parameters, one slot for two if it copied a tied one. Invariant: every such
// decision is in Model.notes.
#include "ops/ops.h"
#include <stdlib.h>
#include <string.h>

static const void *weight_data(Reader *r, Weight *w)
{
	if (!w->data)
		w->data = tensor_data(r->file, r->arena, r->model->path, w->proto, w->type);
	return w->data;
}

double weight_number(Reader *r, Weight *w, int64_t i)
{
	return const_at(&(Val){.type = w->type, .data = weight_data(r, w)}, i);
}

Ref weight_constant(Reader *r, Weight *w)
{
	if (r->nest)
		return put_const(r->g, w->type, w->shape, weight_data(r, w));
	if (!w->ref)
		w->ref = put_const(r->g, w->type, w->shape, weight_data(r, w));
	return w->ref;
}

// ---- facts about a weight -------------------------------------------------------------

int wide_axes(const Shape *s)
{
	int n = 0;
	for (int a = 0; a < s->rank; a++)
		n += s->dim[a] > 1;
	return n;
}

bool has_few_values(Reader *r, Weight *w, int most)
{
	enum { MOST = 5 };
	int64_t n = count_of(&w->shape);
	double met[MOST];
	int count = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = weight_number(r, w, i);
		int k = 0;
		while (k < count && x != met[k])
			k++;
		if (k == MIN(most, MOST))
			return false;
		if (k == count)
			met[count++] = x;
	}
	return true;
}

double copied_number(Reader *r, Weight *w, Copy copy, int64_t i)
{
	const int64_t *dim = w->shape.dim;
	double x =
	    weight_number(r, w, copy == COPY_TRANSPOSED ? i % dim[0] * dim[1] + i / dim[0] : i);
	if (copy != COPY_COMPLEMENT)
		return x;
	return w->type == E_f32 ? (double)(float)(1 - x) : 1 - x;
}

static Shape copied_shape(const Weight *w, Copy copy)
{
	Shape s = w->shape;
	if (copy == COPY_TRANSPOSED)
		s = shape_of(2, (int64_t[]){s.dim[1], s.dim[0]});
	return s;
}

// True if weight `a`, of as many elements, has those of a copy of `b` in the same order.
static bool has_copied(Reader *r, Weight *a, Weight *b, Copy copy)
{
	for (int64_t i = 0; i < count_of(&a->shape); i++)
		if (weight_number(r, a, i) != copied_number(r, b, copy, i))
			return false;
	return true;
}

// True if weight `a` is a copy of `b`.
static bool is_copy(Reader *r, Weight *a, Weight *b, Copy copy)
{
	Shape shape = copied_shape(b, copy);
	return a->type == b->type && (copy != COPY_TRANSPOSED || b->shape.rank == 2) &&
	       same_shape(&a->shape, &shape) && has_copied(r, a, b, copy);
}

// True if all slices along an axis have the same elements.
static bool repeats_along(Reader *r, Weight *w, int axis)
{
	const int64_t *dim = w->shape.dim;
	int64_t inner = 1;
	for (int a = axis + 1; a < w->shape.rank; a++)
		inner *= dim[a];
	for (int64_t i = 0; i < count_of(&w->shape); i++) {
		int64_t first = i - i / inner % dim[axis] * inner;
		if (weight_number(r, w, i) != weight_number(r, w, first))
			return false;
	}
	return true;
}

// Looks for adjacent axes along which slices are repeated. If all elements are equal, or if there
// are such axes apart from each other, they could be others: times is 1.
static void find_repeat(Reader *r, Weight *w)
{
	Repeat *found = &w->repeat;
	int last = -1, rank = w->shape.rank, wide = 0;
	*found = (Repeat){.times = 1, .inner = 1, .shape = w->shape};
	for (int a = 0; a < rank; a++) {
		if (w->shape.dim[a] < 2)
			continue;
		wide++;
		if (!repeats_along(r, w, a))
			continue;
		bool apart = last >= 0 && wide - last > 1;
		last = wide;
		found->times = apart ? 0 : found->times * w->shape.dim[a];
		found->shape.dim[a] = 1;
	}
	for (int a = rank - 1; a >= 0 && found->shape.dim[a] == w->shape.dim[a]; a--)
		found->inner *= w->shape.dim[a];
	if (count_of(&found->shape) == 1 || !count_of(&w->shape))
		found->times = 1;
	found->times = MAX(found->times, 1);
}

bool is_repeated(Reader *r, Weight *w)
{
	if (!w->repeat.times)
		find_repeat(r, w);
	return w->repeat.times > 1;
}

// Returns element i of the slice that a weight repeats.
static double slice_number(Reader *r, Weight *w, int64_t i)
{
	const Repeat *s = &w->repeat;
	return weight_number(r, w, i / s->inner * s->inner * s->times + i % s->inner);
}

static const void *slice_data(Reader *r, Weight *w)
{
	int64_t n = count_of(&w->repeat.shape);
	float *x = NEWS(r->arena, float, n);
	double *d = NEWS(r->arena, double, n);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(d[i] = slice_number(r, w, i));
	return w->type == E_f64 ? (const void *)d : x;
}

// True if the parameter is the slice that the weight repeats.
static bool is_slice(const Use *u)
{
	return u->repeated && !u->r->options->separate;
}

// True if a slot holds the elements of a weight or, if it is repeated, of its slice.
static bool has_elements(const Use *u, const Slot *slot)
{
	int64_t n = count_of(is_slice(u) ? &u->w->repeat.shape : &u->w->shape);
	if (slot->type != u->w->type || !slot->init || count_of(&slot->shape) != n)
		return false;
	const Val own = {.type = slot->type, .data = slot->init};
	for (int64_t i = 0; i < n; i++)
		if (const_at(&own, i) !=
		    (is_slice(u) ? slice_number(u->r, u->w, i) : weight_number(u->r, u->w, i)))
			return false;
	return true;
}

// ---- weights that are copies of others ------------------------------------------------

enum {
	RESHAPED = -1, // a copy with the same elements in the same order
	TURNED = -2,   // a transposed copy of a weight with a name of its own
};

// Returns the weights with slots whose copies have the shape and a few elements of `w`, or, if
// `from` is `copy`, of this copy of `w`. RESHAPED, TURNED: all weights with names of their own.
static WeightList *twins_of(Reader *r, Weight *w, int copy, Copy from)
{
	Shape shape = copy == RESHAPED ? shape_of(1, (int64_t[]){count_of(&w->shape)})
	                               : copied_shape(w, from);
	struct {
		int64_t copy, rank, dim[RANK];
		float number[16];
	} print = {.copy = copy, .rank = shape.rank};
	int64_t n = count_of(&shape);
	memcpy(print.dim, shape.dim, sizeof *print.dim * (size_t)shape.rank);
	for (int k = 0; k < COUNT(print.number) && n; k++)
		print.number[k] =
		    (float)copied_number(r, w, from, k * (n - 1) / (COUNT(print.number) - 1)) +
		    0.0f; // -0 is 0
	uint64_t *cell = table_cell(r->twins, &print, sizeof print);
	if (!*cell)
		*cell = (uintptr_t)NEW(r->arena, WeightList);
	return (WeightList *)(uintptr_t)*cell;
}

// Returns the weight with a slot that this one is a copy of, or NULL.
static Weight *original_of(Reader *r, Weight *w, Copy copy)
{
	const WeightList *twins = twins_of(r, w, copy, COPY_SAME);
	for (int i = 0; i < twins->count; i++)
		if (twins->at[i] != w && is_copy(r, w, twins->at[i], copy))
			return twins->at[i];
	return NULL;
}

// Lists, for find_same and its like, the weights with names of their own that were added since the
// last call.
static void list_named(Reader *r)
{
	for (; r->reshaped < r->weights.count; r->reshaped++) {
		Weight *own = r->weights.at[r->reshaped];
		if (own->inner || !is_float(own->type) || is_opaque(own->name))
			continue;
		PUSH(r->arena, *twins_of(r, own, RESHAPED, COPY_SAME), own);
		if (own->shape.rank == 2)
			PUSH(r->arena, *twins_of(r, own, TURNED, COPY_TRANSPOSED), own);
	}
}

// Returns the one weight with a name of its own that this one is a copy of, or NULL.
static const Weight *find_named(Reader *r, Weight *w, int copy)
{
	enum { LEAST = 4 }; // elements
	const Weight *found = NULL;
	if (count_of(&w->shape) < LEAST || !is_float(w->type) || r->options->separate ||
	    has_few_values(r, w, 2))
		return NULL;
	list_named(r);
	const WeightList *twins = twins_of(r, w, copy, COPY_SAME);
	for (int i = 0; i < twins->count; i++) {
		Weight *own = twins->at[i];
		if (own->type != w->type ||
		    !has_copied(r, w, own, copy == TURNED ? COPY_TRANSPOSED : COPY_SAME))
			continue;
		if (found)
			return NULL;
		found = own;
	}
	return found;
}

const Weight *find_reshaped(Reader *r, Weight *w)
{
	return find_named(r, w, RESHAPED);
}

const Weight *find_transposed(Reader *r, Weight *w)
{
	return w->shape.rank == 2 ? find_named(r, w, TURNED) : NULL;
}

void read_roles(Reader *r)
{
	const GraphProto *g = r->proto->graph;
	read_metadata(r);
	r->twins = table_new(r->arena);
	r->held_floats = table_new(r->arena);
	for (size_t i = 0; i < g->n_node; i++)
		r->training_file |=
		    (!strcmp(g->node[i]->op_type, "BatchNormalization") &&
		     g->node[i]->n_output > 1) ||
		    (!strcmp(g->node[i]->op_type, "Dropout") && g->node[i]->n_input > 2);
}

// ---- slots ----------------------------------------------------------------------------

static Ref put_home(const Use *u, int slot, Copy copy)
{
	Reader *r = u->r;
	Slot *s = &r->g->slots.at[slot];
	View *v = NEW(r->arena, View);
	if (u->w)
		u->w->origin->trained |= s->kind != S_frozen;
	*v = (View){.weight = u->w,
	            .copy = copy,
	            .node = u->node,
	            .operand = u->operand,
	            .alias = u->w ? u->w->alias : NULL,
	            .next = s->view};
	v->first = v->next ? v->next->first : v;
	s->view = v;
	Ref x = put_slot(r->g, slot);
	if (copy == COPY_REPEATED)
		return put_expand(r->g, put_reshape(r->g, x, u->w->repeat.shape), u->w->shape);
	if (copy == COPY_SAME && u->w)
		return put_reshape(r->g, x, u->w->shape);
	if (copy == COPY_COMPLEMENT)
		return put2(r->g, O_sub, num_like(r->g, x, 1), x);
	return copy == COPY_TRANSPOSED ? swap_last(r->g, x) : x;
}

// The first slot of an initializer is the one that copies of it are tied to.
static Ref put_own(const Use *u, int slot)
{
	Weight *w = u->w;
	bool ties = w->slot < 0 && !w->alias && !is_slice(u);
	w->slot = w->slot < 0 ? slot : w->slot;
	if (ties && wide_axes(&w->shape) == 1 && !has_few_values(u->r, w, 1))
		PUSH(u->r->arena, *twins_of(u->r, w, COPY_COMPLEMENT, COPY_COMPLEMENT), w);
	if (ties && w->table && w->shape.rank == 2)
		PUSH(u->r->arena, *twins_of(u->r, w, COPY_TRANSPOSED, COPY_TRANSPOSED), w);
	return put_home(u, slot, is_slice(u) ? COPY_REPEATED : COPY_SAME);
}

// Ties a weight to the slot that it is a copy of; `what`: the relation, for the note.
static Ref put_tie(const Use *u, int slot, Copy copy, const char *what)
{
	note(u->r, "initializer '%s' is %s %s: tied again", u->w->name, what,
	     u->r->g->slots.at[slot].name);
	return put_home(u, slot, copy);
}

static int new_slot(const Use *u, SlotKind kind, const char *name, const char *why)
{
	const Weight *w = u->w;
	const char *fresh = name;
	uint64_t *same = table_cell_s(u->r->same_names, name);
	while (find_slot(u->r->g, fresh) >= 0)
		fresh = format(u->r->arena, "%s#%d", name, (int)++*same + 1);
	if (w->proto->data_type == DOUBLE)
		meet_double(u->r, format(u->r->arena, "initializer '%s'", w->name));
	return add_slot(
	    u->r->g, (Slot){.name = fresh,
	                    .file = w->name,
	                    .kind = kind,
	                    .type = w->type,
	                    .shape = is_slice(u) ? w->repeat.shape : w->shape,
	                    .init = is_slice(u) ? slice_data(u->r, u->w) : weight_data(u->r, u->w),
	                    .why = why});
}

// A copy that a weight may be of a slot's parameter.
typedef struct Tie {
	int slot; // -1: it is no copy
	Copy copy;
	const char *what; // the relation, for the note
} Tie;

// Returns how a weight is a copy of the parameter that has its name.
static Tie copy_of_named(const Use *u, int slot, Weight *owner)
{
	const Slot *named = &u->r->g->slots.at[slot];
	static const char what[] = "a copy of parameter";
	if (named->kind != S_param)
		return (Tie){.slot = -1};
	if (has_elements(u, named))
		return (Tie){slot, is_slice(u) ? COPY_REPEATED : COPY_SAME,
		             is_slice(u) ? "a repeated copy of parameter" : what};
	if (is_copy(u->r, owner, u->w, COPY_SAME))
		return (Tie){slot, COPY_SAME, what};
	bool turned = is_copy(u->r, owner, u->w, COPY_TRANSPOSED);
	return (Tie){turned ? slot : -1, COPY_TRANSPOSED, what};
}

// Returns how a weight under a new name is a copy of a parameter: the last product's weight a
// transposed copy of an embedding, or an unnamed vector 1 minus a parameter that mixes two signals.
static Tie copy_of_other(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	const Weight *from = NULL;
	if (u->node && !is_slice(u) && !strcmp(u->node->op_type, "MatMul") && w->shape.rank == 2)
		from = original_of(r, w, COPY_TRANSPOSED);
	if (from)
		return (Tie){from->slot, COPY_TRANSPOSED, "a transposed copy of the embedding"};
	bool named = r->signature ? is_parameter_name(r, w->name) : !is_opaque(w->name);
	if (!named && wide_axes(&w->shape) == 1)
		from = original_of(r, w, COPY_COMPLEMENT);
	return (Tie){from ? from->slot : -1, COPY_COMPLEMENT, "1 minus parameter"};
}

// A name that another initializer has too is the same parameter if the values agree, else another
// one. `separate` ties nothing, and what would be tied is not asked about.
static Ref param_ref(const Use *u, bool asks)
{
	Reader *r = u->r;
	Weight *w = u->w;
	const char *name = u->name, *ask = asks ? reason_to_ask(u) : NULL;
	int slot = find_slot(r->g, name);
	const View *v = slot >= 0 ? r->g->slots.at[slot].view : NULL;
	Weight *owner = v ? v->first->weight : NULL;
	Tie tie = {.slot = -1};
	if (owner && owner->origin != w->origin) {
		tie = copy_of_named(u, slot, owner);
		slot = w->slot;
		name = w->name;
		ask = asks && !ask && u->leaves.parameters ? computed_from : ask;
	}
	if (tie.slot < 0 && slot >= 0)
		return put_own(u, slot);
	if (tie.slot < 0)
		tie = copy_of_other(u);
	if (tie.slot >= 0 && !r->options->separate)
		return put_tie(u, tie.slot, tie.copy, tie.what);
	if (slot >= 0)
		return put_own(u, slot);
	return put_own(u, new_slot(u, S_param, name, tie.slot < 0 ? ask : NULL));
}

static Ref weight_ref(Reader *r, Weight *w, const Call *c, int k)
{
	if (!is_float(w->type))
		return weight_constant(r, w);
	const Use u = use_of(r, w, c && !c->space->depth ? c : NULL, k);
	const char *why = reason_not_trained(&u);
	int choice = users_choice(r, u.name, w->name);
	if (choice == 1 && why && u.role >= R_value && w->shape.rank == 0)
		choice = -1;
	bool statistic = why && !strcmp(why, running_statistics);
	// A single number that no operator reads as a weight may stand for a size.
	bool weighs = w->shape.rank && (u.role != R_none || count_of(&w->shape) != 1);
	if (r->options->separate && weighs && u.node && u.role < R_value && !statistic)
		why = NULL;
	bool frozen = choice == 0 && (!why || statistic); // a constant stays one
	if (frozen)
		why = "--freeze";
	if ((choice == 1 && !w->inner) || !why)
		return param_ref(&u, choice != 1);
	w->origin->why = why;
	// Running statistics of one name are one buffer. Where the exporter merged them with a
	// parameter, or with others of another name, whose values were equal, they are a buffer of
	// their own.
	if (c && choice != 0 && !w->inner && role_of(c->node, k) == R_statistic) {
		int slot = find_slot(r->g, u.name);
		if (slot < 0 || r->g->slots.at[slot].kind != S_buffer)
			slot = new_slot(&u, S_buffer, u.name, running_statistics);
		return put_home(&u, slot, COPY_SAME);
	}
	if (frozen || u.leaves.parameters || count_of(&w->shape) > FOLD_LIMIT)
		return put_own(&u, w->slot < 0 ? new_slot(&u, S_frozen, u.name, why) : w->slot);
	if (why == computed_table && !w->ref)
		note(r,
		     "initializer '%s' is not trained: the exporter computed it, from a parameter "
		     "(positions, say) or from none; export in training mode without constant "
		     "folding to see",
		     w->name);
	return weight_constant(r, w);
}

Ref use_weight(Reader *r, Weight *w, const Call *c, int k)
{
	LoopScope *inside = leave_nests(r);
	return enter_nests(r, inside, weight_ref(r, w, c, k));
}

// ---- Identity, biases left out --------------------------------------------------------

// Identity of an initializer: the author's own sharing in files of PyTorch's newer exporter, and in
// those exported for training; else a parameter that happened to have equal values when it was
// exported, unless one is an embedding and the other its output matrix.
Value alias_weight(Reader *r, Weight *w, const char *name)
{
	if (!is_float(w->type) || r->signature || (r->training_file && !has_few_values(r, w, 1)) ||
	    (w->table && !has_few_values(r, w, 1)))
		return (Value){.weight = w};
	Weight *other = NEW(r->arena, Weight);
	*other = *w;
	other->origin = w->origin;
	other->alias = name;
	other->slot = -1;
	other->table = false;
	return (Value){.weight = other};
}

// Loops lower a node more than once: it has one weight.
static Weight *weight_in(Call *c, const AttributeProto *a, Shape shape)
{
	Reader *r = c->r;
	uint64_t *cell = table_cell(r->held_floats, &a, sizeof a);
	if (*cell)
		return (Weight *)(uintptr_t)*cell;
	const char *node = *c->node->name ? c->node->name : c->node->output[0];
	TensorProto *t = NEW(r->arena, TensorProto);
	*t = (TensorProto)TENSOR_PROTO__INIT;
	t->name = take_copy(r->arena, "", 1);
	t->data_type = elems[E_f32].onnx;
	t->n_dims = (size_t)shape.rank;
	t->dims = take_copy(r->arena, shape.dim, sizeof *shape.dim * (size_t)shape.rank);
	t->n_float_data = a->n_floats;
	t->float_data = a->floats;
	Weight *w = NEW(r->arena, Weight);
	*w = (Weight){.proto = t,
	              .attribute = a,
	              .name = format(r->arena, "%s.%s", node, a->name),
	              .type = number_type(r->g, t->data_type),
	              .shape = shape,
	              .origin = w,
	              .slot = -1};
	PUSH(r->arena, r->weights, w);
	*cell = (uintptr_t)w;
	return w;
}

Ref attribute_weight(Call *c, const char *name, Shape shape)
{
	const AttributeProto *a = find_attr(c, name);
	int64_t n = count_of(&shape);
	if (!a || (int64_t)a->n_floats != n)
		invalid_node(c, "attribute '%s' has %lld numbers; expected %lld", name,
		             (long long)(a ? a->n_floats : 0), (long long)n);
	return use_weight(c->r, weight_in(c, a, shape), NULL, 0);
}

Ref missing_bias(const Call *c, int64_t n)
{
	Reader *r = c->r;
	const char *name = c->space->depth ? NULL : bias_left_out(r, c->node);
	if (!name || find_slot(r->g, name) >= 0 || users_choice(r, name, name) == 0)
		return 0;
	int slot = add_slot(
	    r->g, (Slot){.name = name, .kind = S_param, .type = E_f32, .shape = shape_of(1, &n)});
	note(r, "%s was zero and left out by the exporter: made again", name);
	return put_home(&(Use){.r = r, .node = c->node, .operand = 2}, slot, COPY_SAME);
}

static int larger_first(const void *a, const void *b)
{
	const Untrained *one = a, *other = b;
	int64_t x = count_of(&one->shape), y = count_of(&other->shape);
	return x == y ? strcmp(one->name, other->name) : x < y ? 1 : -1;
}

void sort_untrained(Model *m)
{
	if (m->untrained.count)
		qsort(m->untrained.at, (size_t)m->untrained.count, sizeof *m->untrained.at,
		      larger_first);
}

void trace_constant(Call *c, Value *result)
{
	Reader *r = c->r;
	bool recurs = is_one_of(OPS_recurrent, c->node);
	int from = recurs ? 1 : 0, to = recurs ? MIN(c->nin, 3) : c->nin;
	if (!strcmp(c->node->op_type, "Constant")) {
		const AttributeProto *a = find_attr(c, "value");
		Held held = {c->node->output[0], a ? a->t : NULL};
		result->held = held.tensor ? take_copy(r->arena, &held, sizeof held) : NULL;
	} else if (c->nin && is_one_of(OPS_views, c->node)) {
		result->held = c->arg[0].held;
	}
	for (int k = from; k < to && (recurs || is_one_of(OPS_contractions, c->node)); k++)
		if (c->arg[k].held)
			PUSH(r->arena, r->held, c->arg[k].held);
}

// Lists a weight that a Constant node holds: only initializers are trained.
static void list_held(Reader *r, Table *seen, const Held *held)
{
	int type = working_type(held->tensor->data_type);
	Shape shape = tensor_shape(r->model->path, held->tensor);
	uint64_t *known = table_cell(seen, &held->tensor, sizeof held->tensor);
	if (*known || type < 0 || !is_float((Elem)type) || wide_axes(&shape) < 2)
		return;
	*known = true;
	r->model->weights += count_of(&shape);
	PUSH(r->arena, r->model->untrained,
	     ((Untrained){held->name,
	                  "a Constant node holds it; export it as an initializer to train it",
	                  (Elem)type, shape}));
}

// Lists a weight whose integers a DequantizeLinear reads.
static void list_quantized(Reader *r, const Weight *w)
{
	const Reading *read = find_name(r->file, w->name)->first;
	if (w->inner || is_float(w->type) || wide_axes(&w->shape) < 1 || !read ||
	    strcmp(read->node->op_type, "DequantizeLinear") ||
	    strcmp(read->node->input[0], w->name))
		return;
	r->model->weights += count_of(&w->shape);
	PUSH(r->arena, r->model->untrained,
	     ((Untrained){w->name, "it is quantized; train the model before it is quantized",
	                  w->type, w->shape}));
}

void list_untrained(Reader *r)
{
	Model *m = r->model;
	Table *seen = table_new(r->arena); // the graph of a loop is lowered more than once
	for (int i = 0; i < r->weights.count; i++) {
		const Weight *w = r->weights.at[i];
		list_quantized(r, w);
		uint64_t *known = table_cell(seen, &w->proto, sizeof w->proto);
		if (*known || !is_float(w->type) || (!w->trained && count_of(&w->shape) < 2))
			continue;
		*known = true;
		m->weights += count_of(&w->shape);
		Untrained one = {w->slot < 0 ? w->name : r->g->slots.at[w->slot].name,
		                 w->why ? w->why : "no operator reads it as a weight", w->type,
		                 w->shape};
		if (!w->trained)
			PUSH(r->arena, m->untrained, one);
	}
	for (int i = 0; i < r->held.count; i++)
		list_held(r, seen, r->held.at[i]);
	sort_untrained(m);
}

// True if the node has a kernel or a factor that a BatchNormalization was folded into: the newer
// exporter of PyTorch says so, its older one and those of TensorFlow rename them.
static bool has_folded_norm(const Reader *r, const NodeProto *n)
{
	static const char *const names[] = {"*/merged_input:0", "*_weights_fused_bn",
	                                    "*/batchnorm/mul:0", "*/batchnorm/Rsqrt:0"};
	bool found = is_fused(n) || (!strcmp(n->op_type, "Conv") && n->n_input > 2 &&
	                             starts_with(n->input[1], "onnx::Conv_") &&
	                             starts_with(n->input[2], "onnx::Conv_"));
	for (size_t k = 0; k < n->n_input && starts_with(r->proto->producer_name, "tf2onnx"); k++)
		for (int i = 0; i < COUNT(names); i++)
			found |= matches(names[i], n->input[k]) &&
			         find_name(r->file, n->input[k])->tensor;
	return found;
}

// Warns of numbers that the exporter made of weights: as far as these weights act through them,
// they are not trained.
static void doubt_numbers(Reader *r)
{
	enum { FEW = 2 };
	Text names = {.arena = r->arena};
	int n = 0;
	for (int s = 0; s < r->g->slots.count; s++) {
		const Slot *slot = &r->g->slots.at[s];
		if (slot->kind == S_frozen && slot->why == made_numbers && n++ < FEW)
			say(&names, "%s'%s' (initializer '%s')", n > 1 ? ", " : "", slot->name,
			    slot->file);
	}
	if (n > FEW)
		say(&names, " and %d more", n - FEW);
	if (n)
		doubt(r, format(r->arena, "%s: %s", names.at, made_numbers));
}

// Returns the name of a trained parameter of an adapter that PEFT puts beside a layer, whose own
// weights are X.base_layer.*; it starts with `module`, X and a dot. NULL: none.
static const char *find_adapter(const Reader *r, const char *module)
{
	for (int s = 0; s < r->g->slots.count; s++) {
		const Slot *slot = &r->g->slots.at[s];
		if (slot->kind == S_param && starts_with(slot->name, module) &&
		    !starts_with(slot->name + strlen(module), "base_layer."))
			return slot->name + strlen(module);
	}
	return NULL;
}

// Warns if weights are trained that PEFT freezes: no exporter records it.
static void doubt_adapters(Reader *r)
{
	for (int s = 0; s < r->g->slots.count; s++) {
		const Slot *slot = &r->g->slots.at[s];
		const char *base =
		    slot->kind == S_param ? strstr(slot->name, ".base_layer.") : NULL;
		const char *module =
		    base ? format(r->arena, "%.*s", (int)(base - slot->name) + 1, slot->name)
		         : NULL;
		const char *adapter = module ? find_adapter(r, module) : NULL;
		if (!adapter)
			continue;
		doubt(r,
		      format(r->arena,
		             "'%s' has an adapter, %s, and is trained too: to train the adapters "
		             "alone, give --freeze '*' --train '*.%.*s*'",
		             slot->name, adapter, (int)strcspn(adapter, "_.") + 1, adapter));
		return;
	}
}

void note_roles(Reader *r)
{
	int fused = 0, renamed = 0;
	for (size_t i = 0; i < r->proto->graph->n_node; i++)
		fused += has_folded_norm(r, r->proto->graph->node[i]);
	if (fused)
		doubt(r, format(r->arena,
		                "BatchNormalization was folded into %d %s by the exporter: the "
		                "network trains without it; export in training mode%s",
		                fused, PLURAL(fused, "operator", "operators"),
		                starts_with(r->proto->producer_name, "pytorch")
		                    ? " with optimize=False (older: do_constant_folding=False)"
		                    : ""));
	if (r->file->training)
		note(r, "%s", r->file->training);
	Table *held = table_new(r->arena); // by initializer: the parameters in it
	for (int s = 0; s < r->g->slots.count; s++) {
		const Slot *slot = &r->g->slots.at[s];
		if (slot->kind == S_frozen && slot->why != made_numbers)
			note(r, "%s is not trained: %s", slot->name, slot->why);
		if (slot->kind != S_param || !slot->file)
			continue;
		renamed += strcmp(slot->name, slot->file) != 0;
		++*table_cell_s(held, slot->file);
	}
	for (int i = 0; i < r->weights.count; i++) {
		const uint64_t *n = table_find_s(held, r->weights.at[i]->name);
		if (n && *n > 1)
			note(r,
			     "initializer '%s' holds %d parameters whose values were equal at "
			     "export: separated",
			     r->weights.at[i]->name, (int)*n);
	}
	doubt_numbers(r);
	doubt_adapters(r);
	note_lost_parameters(r);
	if (renamed)
		note(r, "%d parameter%s in initializers of another name", renamed,
		     renamed == 1 ? " lies" : "s lie");
}
