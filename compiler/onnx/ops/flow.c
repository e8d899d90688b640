// flow.c: lowers Constant, If, and operators of sequences and optional values; draws random
// numbers. If a condition depends on the data, both branches are computed. Sequences are lists that
// only the reader sees.
#include "ops.h"
#include <math.h>
#include <string.h>

Ref tensor_constant(Reader *r, const TensorProto *t)
{
	Shape s = tensor_shape(r->model->path, t);
	Elem type = number_type(r->g, t->data_type);
	return put_const(r->g, type, s, tensor_data(r->file, r->arena, r->model->path, t, type));
}

void lower_constant(Call *c)
{
	Graph *g = c->g;
	const AttributeProto *a;
	if (c->node->n_attribute > 1)
		invalid_node(c, "%zu values; expected one", c->node->n_attribute);
	if ((a = find_attr(c, "value")) && a->t) {
		c->out[0] = tensor_constant(c->r, a->t);
		c->onnx = a->t->data_type;
	} else if ((a = find_attr(c, "value_float"))) {
		c->out[0] = put_num(g, E_f32, (double)a->f);
		c->onnx = elems[E_f32].onnx;
	} else if ((a = find_attr(c, "value_int"))) {
		c->out[0] = put_const(g, E_i64, shape_of(0, NULL), &a->i);
	} else if ((a = find_attr(c, "value_ints"))) {
		c->out[0] = put_ints(g, (int)a->n_ints, a->ints);
	} else if ((a = find_attr(c, "value_floats"))) {
		int64_t n = (int64_t)a->n_floats;
		c->out[0] = put_const(g, E_f32, shape_of(1, &n), a->floats);
		c->onnx = elems[E_f32].onnx;
	} else {
		unsupported_node(c, "export it as a dense tensor of numbers",
		                 "a constant that is sparse, text, or without a value");
	}
}

// ---- branches --------------------------------------------------------------------------

const GraphProto *body_of(const Call *c, const char *name)
{
	const AttributeProto *a = find_attr(c, name);
	if (!a || !a->g)
		invalid_node(c, "its graph '%s' is missing", name);
	return a->g;
}

void give_values(Call *c, int n, const Value *v)
{
	for (int i = 0; i < n && i < c->nout; i++)
		c->value[i] = v[i];
}

bool is_tensor(Value v)
{
	return v.ref || v.weight;
}

Ref as_ref(Call *c, Value v)
{
	if (!is_tensor(v))
		invalid_node(c, "a value of its graph is not a tensor");
	return v.ref ? v.ref : use_weight(c->r, v.weight, NULL, 0);
}

// A branch that is taken if `condition` holds.
static void lower_branch(Call *c, const char *name, Ref condition, Value *out)
{
	Reader *r = c->r;
	Ref around = r->active;
	r->active = around ? put2(c->g, O_and, around, condition) : condition;
	lower_body(c, body_of(c, name), 0, NULL, c->nout, out);
	r->active = around;
}

void lower_if(Call *c)
{
	Graph *g = c->g;
	Value *out = NEWS(c->r->arena, Value, c->nout + 1);
	if (count_of(&in_val(c, 0)->shape) != 1)
		invalid_node(c, "its condition is not a scalar");
	if (is_const(g, c->in[0])) {
		bool holds = const_at(val(g, c->in[0]), 0) != 0;
		lower_body(c, body_of(c, holds ? "then_branch" : "else_branch"), 0, NULL, c->nout,
		           out);
		give_values(c, c->nout, out);
		return;
	}
	// The condition depends on the data: both branches are computed, one is chosen.
	Ref condition = put_reshape(g, c->in[0], shape_of(0, NULL));
	Value *other = NEWS(c->r->arena, Value, c->nout + 1);
	lower_branch(c, "then_branch", condition, out);
	lower_branch(c, "else_branch", put1(g, O_not, condition), other);
	for (int i = 0; i < c->nout; i++) {
		if (!is_tensor(out[i]) || !is_tensor(other[i]))
			refuse_computed(c, condition,
			                "its branches give no tensors, and its condition");
		Ref a = as_ref(c, out[i]), b = as_ref(c, other[i]);
		if (is_dynamic(g, a) || is_dynamic(g, b))
			unsupported_node(c, fixed_sizes,
			                 "the size of a value of its graph depends on the data");
		if (!same_shape(&val(g, a)->shape, &val(g, b)->shape))
			refuse_computed(c, condition,
			                "its branches give different shapes, and its condition");
		c->out[i] = put3(g, O_select, condition, a, b);
	}
}

// ---- sequences ------------------------------------------------------------------------

static const List *list_of(const Call *c, int k)
{
	if (k >= c->nin || !c->arg[k].list)
		invalid_node(c, "input %d is not a sequence", k);
	return c->arg[k].list;
}

static void give_list(Call *c, int n, const Ref *at)
{
	List *list = NEW(c->r->arena, List);
	list->count = n;
	list->at = take_copy(c->r->arena, at, sizeof *at * (size_t)n);
	c->value[0] = (Value){.list = list};
}

void lower_sequence_empty(Call *c)
{
	give_list(c, 0, NULL);
}

void lower_sequence_construct(Call *c)
{
	for (int k = 0; k < c->nin; k++)
		in_val(c, k);
	give_list(c, c->nin, c->in);
}

// Returns a position in a sequence of n elements, at most `last`; negative ones count from the end.
static int place_in(Call *c, int k, int n, int last, int otherwise)
{
	int count = 0;
	const int64_t *at = operand_ints(c, k, &count);
	int64_t place = at && count ? at[0] : otherwise;
	if (place < -n || place > last)
		invalid_node(c, "position %lld in a sequence of %d", (long long)place, n);
	return (int)(place < 0 ? place + n : place);
}

void lower_sequence_insert(Call *c)
{
	const List *list = list_of(c, 0);
	in_val(c, 1);
	int at = place_in(c, 2, list->count, list->count, list->count);
	Refs *all = list->all;
	// An element at the end goes after those of the list, which both lists share.
	if (!all || all->count != list->count || at < list->count) {
		all = NEW(c->r->arena, Refs);
		all->room = list->count + 1;
		all->at = NEWS(c->r->arena, Ref, all->room);
		for (; all->count < list->count; all->count++)
			all->at[all->count] = list->at[all->count];
	}
	PUSH(c->r->arena, *all, 0);
	for (int i = list->count; i > at; i--)
		all->at[i] = all->at[i - 1];
	all->at[at] = c->in[1];
	List longer = {all->count, all->at, all};
	c->value[0] = (Value){.list = take_copy(c->r->arena, &longer, sizeof longer)};
}

void lower_sequence_erase(Call *c)
{
	const List *list = list_of(c, 0);
	int at = place_in(c, 1, list->count, list->count - 1, list->count - 1);
	Ref *all = NEWS(c->r->arena, Ref, list->count + 1);
	int n = 0;
	for (int i = 0; i < list->count; i++)
		if (i != at)
			all[n++] = list->at[i];
	give_list(c, n, all);
}

void lower_sequence_at(Call *c)
{
	const List *list = list_of(c, 0);
	c->out[0] = list->at[place_in(c, 1, list->count, list->count - 1, 0)];
}

void lower_sequence_length(Call *c)
{
	c->out[0] = put_num(c->g, E_i64, list_of(c, 0)->count);
}

void lower_concat_from_sequence(Call *c)
{
	const List *list = list_of(c, 0);
	if (!list->count)
		invalid_node(c, "an empty sequence");
	bool fresh = attr_int(c, "new_axis", 0);
	int rank = val(c->g, list->at[0])->shape.rank;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), rank + fresh);
	if (fresh)
		c->out[0] = put_stack(c, list->count, list->at, axis);
	else
		c->out[0] =
		    list->count == 1 ? list->at[0] : put_concat(c->g, axis, list->count, list->at);
}

void lower_split_to_sequence(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank), n = 0;
	bool given = c->nin > 1 && !c->arg[1].absent;
	const int64_t *sizes = operand_ints(c, 1, &n);
	bool single = given && val(c->g, constant_operand(c, 1))->shape.rank == 0;
	int64_t each = single ? sizes[0] : 1;
	if (each < 1)
		invalid_node(c, "parts of %lld", (long long)each);
	expect_fixed_axis(c, 0, axis);
	if (!given || single) {
		sizes = NULL;
		n = (int)((s.dim[axis] + each - 1) / each);
	}
	Ref *all = NEWS(c->r->arena, Ref, n + 1);
	split_axis(c, axis, n, sizes, each, all);
	for (int i = 0; i < n && !given && !attr_int(c, "keepdims", 1); i++)
		all[i] = drop_axes(c->g, all[i], 1, (int64_t[]){axis});
	give_list(c, n, all);
}

// Lowers the body for each element of the first sequence, with those of other sequences, and
// tensors.
void lower_sequence_map(Call *c)
{
	const GraphProto *body = body_of(c, "body");
	int n = list_of(c, 0)->count;
	Value *in = NEWS(c->r->arena, Value, c->nin), *out = NEWS(c->r->arena, Value, c->nout + 1);
	List **list = NEWS(c->r->arena, List *, c->nout + 1);
	for (int o = 0; o < c->nout; o++) {
		list[o] = NEW(c->r->arena, List);
		*list[o] = (List){.count = n, .at = NEWS(c->r->arena, Ref, n + 1)};
	}
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < c->nin; k++) {
			const List *from = c->arg[k].list;
			if (from && from->count != n)
				invalid_node(c, "sequences of %d and %d elements", n, from->count);
			in[k] = from ? (Value){.ref = from->at[i]} : c->arg[k];
		}
		lower_body(c, body, c->nin, in, c->nout, out);
		for (int o = 0; o < c->nout; o++)
			list[o]->at[i] = as_ref(c, out[o]);
	}
	for (int o = 0; o < c->nout; o++)
		c->value[o] = (Value){.list = list[o]};
}

void lower_optional(Call *c)
{
	if (c->nin)
		lower_identity(c);
	else
		c->value[0] = (Value){.absent = true};
}

void lower_optional_has(Call *c)
{
	c->out[0] = put_num(c->g, E_b8, c->nin > 0 && !c->arg[0].absent);
}

// ---- random draws ---------------------------------------------------------------------

static Ref state_number(Reader *r, const char *name)
{
	LoopScope *inside = leave_nests(r);
	return enter_nests(r, inside, put_state(r->g, name, E_i64, (Shape){0}, NULL));
}

// draw(dims): uniform draws in [0, 1). In a loop they differ between iterations.
Item fn_draw(Call *c, Scope *s, const Expr *e)
{
	static const int64_t spread = 6364136223846793005; // Knuth's multiplier, MMIX
	Reader *r = c->r;
	Graph *g = r->g;
	Item dims = call_arg(s, e, 0);
	if (dims.kind != I_list || dims.n > RANK)
		invalid_node(c, "the shape is missing");
	Attr attr = {.n = dims.n + 1, .i = {r->sites++}};
	memcpy(attr.i + 1, dims.i, sizeof *attr.i * (size_t)dims.n);
	Ref seed = state_number(r, "amos.seed");
	for (LoopScope *f = r->nest; f; f = f->outer) {
		if (!f->iteration)
			continue;
		seed = put2(g, O_mul, seed, put_const(g, E_i64, shape_of(0, NULL), &spread));
		seed = put2(g, O_add, seed, bring_in(r, f->iteration, f));
	}
	Ref in[2] = {seed, state_number(r, "amos.step")};
	return ref_item(put(g, O_rand, 2, in, &attr));
}

// The only node that reads `name`; NULL where there are several, or it is an output.
static const NodeProto *only_reader(const GraphProto *g, const char *name)
{
	const NodeProto *found = NULL;
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_input; k++)
			if (!strcmp(g->node[i]->input[k], name)) {
				if (found)
					return NULL;
				found = g->node[i];
			}
	return found;
}

// What a mask made of `name` by single steps multiplies: 0 where it is not clear.
static Ref masked_value(Call *c, const char *name)
{
	enum { STEPS = 8 };
	for (int i = 0; i < STEPS; i++) {
		const NodeProto *node = only_reader(c->r->proto->graph, name);
		if (!node || !node->n_output)
			return 0;
		if (!strcmp(node->op_type, "Mul") && node->n_input == 2) {
			bool second = !strcmp(node->input[1], name);
			Value other = look_up(c->r, c->space, node->input[!second]);
			if (!other.weight)
				return other.ref;
		}
		name = node->output[0];
	}
	return 0;
}

// masked_shape(x): the shape to draw: of x, or of what the mask that is drawn multiplies. Exporters
// give the mask of a dropout in place the shape that the example had: an initializer's. It is as
// large as what it masks, but for the axes that it drops as one.
Item fn_masked_shape(Call *c, Scope *s, const Expr *e)
{
	int k = call_input(s, e, 0);
	Shape own = in_val(c, k)->shape;
	Ref masked = c->arg[k].weight && !c->space->depth ? masked_value(c, c->node->output[0]) : 0;
	const Shape *other = masked ? &val(c->g, masked)->shape : &own;
	for (int a = 0; other->rank == own.rank && a < own.rank; a++)
		if (own.dim[a] != 1)
			own.dim[a] = other->dim[a];
	return ints_item(c, (size_t)own.rank, own.dim);
}
