// type.c: applies the type rule of every primitive.
// Returns the type of op(in; attr), or fails with one message; shapes are in type_shape.c.
// Invariant: a value that passes is well formed, so nothing after the door checks again.
#include "type.h"
#include <string.h>

const char *graph_where(const Graph *g)
{
	const Node *node = &g->nodes->list.at[g->from];
	if (!strcmp(node->op, "loss")) // of no file
		return "--loss";
	return *node->name || *node->op
	           ? format(g->arena, "%s: node '%s' (%s)", g->name, node->name, node->op)
	           : g->name;
}

void wrong(const Case *c, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	Arena *arena = c->g->arena;
	const char *what = vformat(arena, fmt, args);
	va_end(args);
	Text text = {.arena = arena};
	for (int k = 0; k < c->nin && k < 8; k++)
		say(&text, "%s%s", k ? ", " : "",
		    shape_text(arena, operand(c, k)->type, &operand(c, k)->shape));
	fail(graph_where(c->g), "%s(%s): %s", prims[c->op].name, text.at ? text.at : "", what);
}

// ---- element types --------------------------------------------------------------------

static void check_class(const Case *c, int k, const char *classes, const char *expected)
{
	if (!strchr(classes, elems[operand(c, k)->type].cls))
		wrong(c, "operand %d: expected %s, found %s", k, expected,
		      elems[operand(c, k)->type].name);
}

// Returns the common type of the operands from `first` on, except for conditions.
static Elem one_type(const Case *c, int first)
{
	Elem type = operand(c, first)->type;
	for (int k = first + 1; k < c->nin; k++)
		if (is_condition(c->op, k))
			check_class(c, k, "b", "a Boolean");
		else if (operand(c, k)->type != type)
			wrong(c, "operand %d is %s and operand %d is %s; expected one type", first,
			      elems[type].name, k, elems[operand(c, k)->type].name);
	return type;
}

static Elem type_same(const Case *c)
{
	if (c->op == O_select) {
		check_class(c, 0, "b", "a Boolean");
		return one_type(c, 1);
	}
	Elem type = one_type(c, 0);
	bool bits = c->op == O_and || c->op == O_or || c->op == O_xor;
	bool order = c->op == O_max || c->op == O_min || c->op == O_amax || c->op == O_amin;
	if (bits)
		check_class(c, 0, "iub", "an integer or Boolean");
	else if (!order && c->op != O_concat) // Booleans have no arithmetic
		check_class(c, 0, "fiu", "a number");
	return type;
}

static Elem type_bool(const Case *c)
{
	one_type(c, 0);
	if (c->op == O_not)
		check_class(c, 0, "b", "a Boolean");
	return E_b8;
}

static Elem type_first(const Case *c)
{
	if (prims[c->op].cls == C_index)
		check_class(c, 1, "iu", "an integer");
	if (c->op == O_scatter && operand(c, 2)->type != operand(c, 0)->type)
		wrong(c, "operand 2: expected the type of operand 0");
	return operand(c, 0)->type;
}

static Elem type_attr(const Case *c)
{
	LoopInfo loop;
	switch (c->op) {
	case O_slot:
		return c->g->slots.at[c->attr->i[0]].type;
	case O_rand:
		check_class(c, 0, "i", "an integer seed");
		check_class(c, 1, "i", "an integer step");
		return E_f32;
	case O_cast:
		if (c->attr->n != 1 || c->attr->i[0] < 0 || c->attr->i[0] >= ELEMS)
			wrong(c, "no such type");
		return (Elem)c->attr->i[0];
	case O_result:
		loop = result_loop(c);
		return result_val(&loop, (int)c->attr->i[0])->type;
	default:
		never("another primitive with a type of its own");
	}
}

static Elem type_float(const Case *c)
{
	check_class(c, 0, "f", "a float");
	return one_type(c, 0);
}

static Elem type_work(const Case *c)
{
	return arithmetic_type(type_float(c));
}

static Elem type_index(const Case *c)
{
	(void)c;
	return E_i64;
}

static Elem (*const rules[OPS])(const Case *) = {
#define P(name, cls, arity, type, attr, weight, rule, text) [O_##name] = type_##type,
#include "prims.def"
#undef P
};

void type_of(Graph *g, Op op, int nin, const Ref *in, const Attr *attr, Elem *elem, Shape *shape)
{
	Case c = {g, op, nin, in, attr, NULL};
	if (prims[op].arity >= 0 && nin != prims[op].arity)
		wrong(&c, "expected %d %s, found %d", prims[op].arity,
		      PLURAL(prims[op].arity, "operand", "operands"), nin);
	if (prims[op].arity < 0 && nin < 1)
		wrong(&c, "expected operands");
	if (op == O_slot && (attr->n != 1 || attr->i[0] < 0 || attr->i[0] >= g->slots.count))
		wrong(&c, "no such slot");
	for (int k = 0; k < attr->n; k++)
		if (attr->i[k] >> SIZE_BITS != 0 && attr->i[k] >> SIZE_BITS != -1)
			wrong(&c, "%lld in the attribute is out of any range",
			      (long long)attr->i[k]);
	*elem = rules[op](&c);
	*shape = shape_rule(&c);
}
