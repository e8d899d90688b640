// describe.c: describes kernels for profiles: name, shape, and role in a training step.
#include "gen.h"
#include <string.h>

enum { MANY = -1 }; // parameters

// Returns the slot of the parameter that the kernel writes, or -1.
static int updated_slot(const Plan *plan, const Kern *k)
{
	const Graph *graph = plan->graph;
	for (int o = k->nout - 1; o >= 0 && !k->root; o--)
		for (int i = 0; i < graph->slots.count; i++)
			if (graph->slots.at[i].kind == S_param && k->to[o].block == B_param &&
			    plan->slot[i].offset == k->to[o].offset)
				return i;
	return -1;
}

static const char *first_name(Arena *arena, const Plan *plan, const Kern *k)
{
	const Graph *graph = plan->graph;
	int updated = updated_slot(plan, k);
	if (updated >= 0)
		return format(arena, "update %s", graph->slots.at[updated].name);
	Ref r = k->root ? k->root : k->out[k->nout - 1];
	for (int o = k->nout - 1; o >= 0 && !val(graph, r)->from; o--)
		r = k->out[o];
	const Val *v = val(graph, r);
	if (v->from && v->from < graph->nodes->list.count)
		return format(arena, "%s %s", prims[v->op].name,
		              graph->nodes->list.at[v->from].name);
	return prims[v->op].name;
}

const char *kern_name(Arena *arena, const Plan *plan, const Kern *k, int count)
{
	const char *name = first_name(arena, plan, k);
	return count > 1 ? format(arena, "%s and %d more", name, count - 1) : name;
}

// ---- shape ----------------------------------------------------------------------------

// True if the last axis of an operand of a product is another axis of what is stored.
static bool is_transposed(const Plan *plan, Ref r)
{
	const Val *v = val(plan->graph, r);
	int axis = v->shape.rank - 1;
	while (v->nin && plan->place[r].block == B_none) {
		if (v->op == O_permute)
			axis = (int)v->attr->i[axis];
		r = v->in[0];
		if (val(plan->graph, r)->shape.rank != v->shape.rank)
			break;
		v = val(plan->graph, r);
	}
	return axis != v->shape.rank - 1;
}

static const char *product_shape(Arena *arena, const Plan *plan, const Val *v)
{
	DotSizes p = matrix_sizes(plan->graph, v);
	return format(arena, "%s%lldx%lldx%lld %c%c",
	              p.batch > 1 ? format(arena, "%lld*", (long long)p.batch) : "", (long long)p.m,
	              (long long)p.n, (long long)p.k, is_transposed(plan, v->in[0]) ? 't' : 'n',
	              is_transposed(plan, v->in[1]) ? 't' : 'n');
}

// Heads * queries x keys x columns of a query.
static const char *attention_shape(Arena *arena, const Plan *plan, const Val *v)
{
	const Shape *q = &val(plan->graph, v->in[0])->shape,
	            *k = &val(plan->graph, v->in[1])->shape;
	int64_t queries = q->dim[q->rank - 2], columns = q->dim[q->rank - 1];
	return format(arena, "%lld*%lldx%lldx%lld%s",
	              (long long)(count_of(q) / (queries * columns)), (long long)queries,
	              (long long)k->dim[k->rank - 2], (long long)columns,
	              v->attr->i[0] ? " causal" : "");
}

const char *kern_shape(Arena *arena, const Plan *plan, const Kern *k)
{
	const Shape *s = &k->space;
	if (k->kind == L_dot)
		return product_shape(arena, plan, val(plan->graph, k->root));
	if (k->kind == L_attend)
		return attention_shape(arena, plan, val(plan->graph, k->root));
	Text text = {.arena = arena};
	for (int a = 0; a < s->rank; a++)
		say(&text, "%s%lld", a ? "x" : "", (long long)s->dim[a]);
	return s->rank ? text.at : "1";
}

// ---- role -----------------------------------------------------------------------------

// Marks the values that are computed for the outputs and buffers of the model, not its gradients.
static void mark_forward(const Graph *g, Roles *roles)
{
	for (int k = 0; k < g->outs.count; k++)
		roles->forward[g->outs.at[k].val] = true;
	for (int k = 0; k < g->stores.count; k++)
		if (g->slots.at[g->stores.at[k].slot].kind == S_buffer)
			roles->forward[g->stores.at[k].val] = true;
	for (Ref r = (Ref)g->nval - 1; r > 0; r--)
		for (int k = 0; k < val(g, r)->nin; k++)
			roles->forward[val(g, r)->in[k]] |= roles->forward[r];
}

// Finds the parameters that are updated by each value: 1 + slot, MANY, or 0 for none. A value of
// one element is not a gradient, but a norm or a rate that all updates share.
static void find_updated(const Graph *g, Roles *roles)
{
	for (int k = 0; k < g->stores.count; k++)
		if (g->slots.at[g->stores.at[k].slot].kind == S_param)
			roles->updates[g->stores.at[k].val] = 1 + g->stores.at[k].slot;
	for (Ref r = (Ref)g->nval - 1; r > 0; r--)
		for (int k = 0; k < val(g, r)->nin && roles->updates[r]; k++) {
			Ref x = val(g, r)->in[k];
			int *own = &roles->updates[x];
			if (count_of(&val(g, x)->shape) > 1)
				*own =
				    !*own || *own == roles->updates[r] ? roles->updates[r] : MANY;
		}
}

Roles roles_of(Arena *arena, const Graph *g)
{
	Roles roles = {NEWS(arena, bool, g->nval), NEWS(arena, int, g->nval)};
	mark_forward(g, &roles);
	find_updated(g, &roles);
	return roles;
}

// True if the value is a parameter, whatever its axes' order.
static bool is_parameter(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	while (v->nin == 1)
		v = val(g, v->in[0]);
	return v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_param;
}

// True if what an operand is computed from is for the same parameter alone as the product.
static bool is_own(const Roles *roles, const Plan *plan, const Val *product, int operand)
{
	Ref r = product->in[operand];
	while (plan->place[r].block == B_none && val(plan->graph, r)->nin)
		r = val(plan->graph, r)->in[0];
	return roles->updates[r] == roles->updates[ref_of(plan->graph, product)];
}

const char *kern_role(const Roles *roles, const Plan *plan, const Kern *k)
{
	const Graph *g = plan->graph;
	bool forward = true, one = true;
	if (updated_slot(plan, k) >= 0)
		return "update";
	if (k->kind == L_attend) // gradients alone read its statistics
		return val(g, k->root)->op <= O_attend_stats ? "forward" : "data";
	for (int o = 0; o < k->nout; o++) {
		forward &= roles->forward[k->out[o]];
		one &= roles->updates[k->out[o]] > 0;
	}
	if (forward)
		return "forward";
	const Val *root = k->kind == L_dot ? val(g, k->root) : NULL;
	if (root) // not of what is stored of it, such as its running mean
		one = roles->updates[k->root] > 0;
	// Of a product for one parameter alone, so are its operands: Muon's.
	if (root && one && is_own(roles, plan, root, 0) && is_own(roles, plan, root, 1))
		return "update";
	if (root && (is_parameter(g, root->in[0]) || is_parameter(g, root->in[1])))
		return "data";
	return one ? "weight" : "data";
}
