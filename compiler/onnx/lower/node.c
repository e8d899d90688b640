// node.c: reads a node's attributes and the inputs that must be constant.
// Fails with the node's name if one is missing or computed.
#include "lower.h"
#include <string.h>

void invalid_node(const Call *c, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(c->r->arena, fmt, args);
	va_end(args);
	fail(node_where(c->r->arena, c->node), "%s", text);
}

void unsupported_node(const Call *c, const char *help, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(c->r->arena, fmt, args);
	va_end(args);
	fail(node_where(c->r->arena, c->node), "%s" HELP "%s", text, help);
}

void check_rank(const Call *c, int rank)
{
	if (rank > RANK)
		unsupported_node(c, fewer_axes, "%d dimensions; at most %d are supported", rank,
		                 RANK);
}

void refuse_computed(const Call *c, Ref x, const char *what)
{
	stand_for(c->r, x);
	unsupported_node(
	    c,
	    "export with fixed sizes, or give the inputs it comes from as initializers or, if they "
	    "are integers, by --bind",
	    "%s is computed from data; expected a constant", what);
}

const char fixed_sizes[] =
    "multiply by the mask instead of selecting elements, or export with fixed sizes";

void expect_fixed_axis(const Call *c, int k, int axis)
{
	Ref length = operand(c, k) ? lengths_of(c->g, c->in[k])->of[axis] : 0;
	if (!length)
		return;
	stand_for(c->r, length);
	unsupported_node(
	    c, fixed_sizes,
	    "input %d ('%s'): the size of axis %d depends on the data (at most %lld); expected a "
	    "fixed size",
	    k, c->node->input[k], axis, (long long)in_val(c, k)->shape.dim[axis]);
}

void expect_fixed(const Call *c, int k)
{
	for (int a = 0; a < RANK; a++)
		expect_fixed_axis(c, k, a);
}

const AttributeProto *resolve_attr(const Call *c, const AttributeProto *a)
{
	if (!a || !a->ref_attr_name[0])
		return a;
	NameScope *s = c->space;
	while (s && !s->function)
		s = s->outer;
	if (!s)
		invalid_node(c, "attribute '%s' refers to '%s' of a function, but is in none",
		             a->name, a->ref_attr_name);
	const AttributeProto *given = find_attr(s->caller, a->ref_attr_name);
	return given ? given
	             : find_attribute(s->function->n_attribute_proto, s->function->attribute_proto,
	                              a->ref_attr_name);
}

const AttributeProto *find_attr(const Call *c, const char *name)
{
	return resolve_attr(c, find_attribute(c->node->n_attribute, c->node->attribute, name));
}

int64_t attr_int(const Call *c, const char *name, int64_t otherwise)
{
	const AttributeProto *a = find_attr(c, name);
	return a ? a->i : otherwise;
}

double attr_float(const Call *c, const char *name, double otherwise)
{
	const AttributeProto *a = find_attr(c, name);
	return a ? (double)a->f : otherwise;
}

const char *attr_string(const Call *c, const char *name, const char *otherwise)
{
	const AttributeProto *a = find_attr(c, name);
	return a ? format(c->r->arena, "%.*s", (int)a->s.len, (const char *)a->s.data) : otherwise;
}

const int64_t *attr_ints(const Call *c, const char *name, int *n)
{
	const AttributeProto *a = find_attr(c, name);
	if (!a)
		return NULL;
	*n = (int)a->n_ints;
	return a->n_ints ? a->ints : NEW(c->r->arena, int64_t);
}

const Val *in_val(const Call *c, int k)
{
	if (k >= c->nin || !c->in[k])
		invalid_node(c, "input %d is missing", k);
	return val(c->g, c->in[k]);
}

Ref operand(const Call *c, int k)
{
	return k < c->nin ? c->in[k] : 0;
}

int own_type(const Value *v)
{
	return v->weight ? v->weight->proto->data_type : v->onnx;
}

// Returns the element type of an operand in the file, or what the file declares; 0: unknown.
static int known_type(const Call *c, int k)
{
	int type = own_type(&c->arg[k]);
	const ValueInfoProto *info =
	    c->space->depth ? NULL : find_name(c->r->file, c->node->input[k])->info;
	const TensorType *declared = info && info->type ? info->type->tensor_type : NULL;
	return !type && declared ? declared->elem_type : type;
}

int operand_type(const Call *c, int k)
{
	const Val *v = in_val(c, k);
	int type = known_type(c, k);
	return type ? type : elems[v->type].onnx;
}

// Returns the type of all float operands; 0 if they differ, or one is unknown.
static int float_type(const Call *c)
{
	int type = 0;
	for (int k = 0; k < c->nin; k++) {
		if (!c->in[k] || !is_float(val(c->g, c->in[k])->type))
			continue;
		int own = known_type(c, k);
		if (!own || (type && own != type))
			return 0;
		type = own;
	}
	return type;
}

int result_type(const Call *c)
{
	int from = !strcmp(c->node->op_type, "Where");
	if (c->onnx || !c->out[0])
		return c->onnx;
	if (is_float(val(c->g, c->out[0])->type))
		return *plain_domain(c->node->domain) || is_one_of(OPS_converts, c->node)
		           ? 0
		           : float_type(c);
	bool moves = is_one_of(OPS_moves, c->node) && from < c->nin && c->in[from];
	return moves ? operand_type(c, from) : 0;
}

Ref constant_operand(Call *c, int k)
{
	Ref x = fixed_operand(c, k);
	if (!is_const(c->g, x))
		refuse_computed(c, x, format(c->r->arena, "input %d ('%s')", k, c->node->input[k]));
	return x;
}

const int64_t *operand_ints(Call *c, int k, int *n)
{
	if (k >= c->nin || c->arg[k].absent)
		return NULL;
	const Val *v = val(c->g, constant_operand(c, k));
	*n = (int)count_of(&v->shape);
	int64_t *out = NEWS(c->r->arena, int64_t, *n + 1);
	for (int i = 0; i < *n; i++)
		out[i] = const_int_at(v, i);
	return out;
}

const int64_t *ints_of(Call *c, int k, const char *name, int *n)
{
	const int64_t *ints = operand_ints(c, k, n);
	return ints ? ints : attr_ints(c, name, n);
}

int64_t axis_of(const Call *c, int64_t axis, int rank)
{
	if (axis < -rank || axis >= MAX(rank, 1))
		invalid_node(c, "axis %lld, but the input has rank %d", (long long)axis, rank);
	return axis < 0 ? axis + rank : axis;
}

const int64_t *axes_of(const Call *c, const int64_t *given, int n, int rank)
{
	int64_t *axes = NEWS(c->r->arena, int64_t, n + 1);
	bool seen[RANK] = {0};
	for (int i = 0; i < n; i++) {
		axes[i] = axis_of(c, given ? given[i] : i, rank);
		if (seen[axes[i]])
			invalid_node(c, "axis %lld is given twice", (long long)axes[i]);
		seen[axes[i]] = true;
	}
	return axes;
}
