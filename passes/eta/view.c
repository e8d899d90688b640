// view.c: finds constants, the origins of views, and the nodes of the file that values come from.
// Input: a graph with the natures of its values.
// Invariant: a view has the same elements as its origin.
#include "analysis.h"
#include <math.h>

// ---- constants --------------------------------------------------------------------------

// Returns the root mean square of a constant's elements, without masked ones (-1e3 and below,
// -inf).
static Surd measure(const Val *v)
{
	double sum = 0;
	int64_t n = count_of(&v->shape), used = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = const_at(v, i);
		if (x > -1e3 && x < 1e30)
			sum += x * x, used++;
	}
	return used ? surd_near(sqrt(sum / (double)used)) : surd_one;
}

bool is_float_const(const ScaleAnalysis *s, Ref r)
{
	return val(s->g, r)->op == O_const && is_float(val(s->g, r)->type);
}

Surd rms_of(ScaleAnalysis *s, Ref r)
{
	if (!is_float_const(s, r))
		return surd_one;
	if (!s->measured[r])
		s->rms[r] = measure(val(s->g, r));
	s->measured[r] = true;
	return s->rms[r];
}

bool is_zero(ScaleAnalysis *s, Ref r)
{
	return rms_of(s, r).value == 0;
}

// ---- views ----------------------------------------------------------------------------

bool is_view(const Val *v)
{
	return v->op == O_cast || (prims[v->op].cls == C_move && v->op != O_concat);
}

void find_origin(ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	bool view = is_view(v), moved = view && v->op != O_cast && v->op != O_window,
	     scaled = v->op == O_mul && (is(s, v->in[0], AUX) || is(s, v->in[1], AUX));
	Origin *origin = &s->origin[r];
	*origin = (Origin){r, r, r, -1};
	if (view)
		origin->views = s->origin[v->in[0]].views;
	if (moved)
		origin->moves = s->origin[v->in[0]].moves;
	if (view || scaled)
		origin->scales = s->origin[v->in[scaled && is(s, v->in[0], AUX)]].scales;
	if (v->op == O_slot)
		origin->slot = (int)v->attr->i[0];
	else if (view || v->op == O_gather)
		origin->slot = s->origin[v->in[0]].slot;
}

Surd gain_of(ScaleAnalysis *s, Ref r)
{
	Surd gain = surd_one;
	for (Ref x = s->origin[r].views, end = s->origin[r].scales; x != end;) {
		const Val *v = val(s->g, x);
		int number = is(s, v->in[0], AUX) ? 0 : 1;
		gain = surd_mul(gain, rms_of(s, v->in[number]));
		x = s->origin[v->in[1 - number]].views;
	}
	return gain;
}

int sliced_axis(const Val *slice, const Shape *full)
{
	int axis = -1;
	for (int a = 0; a < full->rank; a++) {
		if (slice->shape.dim[a] == full->dim[a])
			continue;
		if (axis >= 0 || slice->attr->i[3 * a + 2] != 1)
			return -1;
		axis = a;
	}
	return axis;
}

// ---- names ------------------------------------------------------------------------------

const char *value_label(Arena *arena, const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->op == O_slot)
		return g->slots.at[v->attr->i[0]].name;
	const Node *node = &g->nodes->list.at[v->from];
	if (!node->name || !*node->name)
		return format(arena, "%%%u %s", r, prims[v->op].name);
	return node->module ? format(arena, "%s/%s", node->module, node->name) : node->name;
}

const char *label_of(const ScaleAnalysis *s, Ref r)
{
	return value_label(s->arena, s->g, r);
}
