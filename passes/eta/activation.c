// activation.c: measures element-wise functions of one signal on normal data.
// Input: ranges (analysis.c). Output: the root mean square of an activation that is in no table.
// Invariant: the tables take precedence.
#include "analysis.h"
#include <math.h>

// True if `r` is nearly normal: a product, normalization, sum or input.
static bool is_nearly_normal(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	bool map = v->op == O_add || v->op == O_sub || v->op == O_mul;
	for (int k = 0; k < v->nin && map; k++)
		if (is(s, v->in[k], VARIABLE))
			return true;
	return v->op == O_dot || v->op == O_norm || v->op == O_slot;
}

// Limits the cost of measuring one value.
enum { OPERATIONS = 64 };

void find_roots(ScaleAnalysis *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		bool one = prims[v->op].cls == C_map || v->op == O_act; // a function of one signal
		int operations = 1;
		Ref root = 0;
		double number;
		for (int k = 0; k < v->nin && one; k++) {
			Ref x = s->root[v->in[k]];
			if (const_num(s->g, v->in[k], &number))
				continue;
			one = !root || x == root;
			root = x;
			operations += s->operations[v->in[k]];
		}
		one = one && root && is(s, root, SIGNAL) && operations <= OPERATIONS;
		s->root[r] = one ? root : r;
		s->operations[r] = one ? operations : 0;
	}
}

// Copies r into `to`, with x for its root.
static Ref copy_value(const ScaleAnalysis *s, Graph *to, Ref r, Ref root, Ref x)
{
	const Val *v = val(s->g, r);
	double number;
	if (r == root)
		return x;
	if (const_num(s->g, r, &number))
		return put_num(to, v->type, number);
	Ref in[3];
	for (int k = 0; k < v->nin && k < COUNT(in); k++)
		in[k] = copy_value(s, to, v->in[k], root, x);
	return put_as(to, v, in);
}

// Returns the root mean square of r if its root is normal; not finite if it is unknown.
static double measured(const ScaleAnalysis *s, Ref r)
{
	enum { POINTS = 241 };
	Arena *arena = arena_new();
	Ref root = s->root[r];
	Graph *g = graph_new(arena, "", NULL);
	Shape line = shape_of(1, (int64_t[]){POINTS});
	float x[POINTS];
	for (int i = 0; i < POINTS; i++)
		x[i] = (float)(s->range[root].value * (i - POINTS / 2) * 0.05);
	Slot slot = {.name = "x", .kind = S_input, .type = E_f32, .shape = line};
	Ref y = copy_value(s, g, r, root, put_slot(g, add_slot(g, slot)));
	add_out(g, "y", y);
	Array in = array_from(arena, E_f32, &line, x), out = eval_graph(arena, g, &in)[y];
	double sum = 0, all = 0;
	for (int i = 0; i < POINTS && count_of(&out.shape) == POINTS; i++) {
		double weight = exp(-pow((i - POINTS / 2) * 0.05, 2) / 2);
		sum += weight * out.f[i] * out.f[i];
		all += weight;
	}
	arena_free(arena);
	return sqrt(sum / all);
}

void measure_activation(ScaleAnalysis *s, Ref r, const Val *v)
{
	static const double TOLERANCE = 1.05;
	Ref root = s->root[r];
	Surd length;
	double slope;
	if (hard_sigmoid(s, v, &slope))
		return;
	if ((v->op == O_mul || v->op == O_div) &&
	    (by_length(s, v, &length) || weights_of(s, v) || logistic(s, v->in[1])))
		return;
	bool kernel = v->op == O_dot && (is(s, v->in[0], VARIABLE) || is(s, v->in[1], VARIABLE)),
	     own = kernel || v->op == O_norm || v->op == O_softmax || v->op == O_lse ||
	           v->op == O_act || (v->op == O_select && sign_choice(s, v));
	s->guess[r] = 0;
	for (int k = 0; k < v->nin && !own && !s->guess[r]; k++)
		s->guess[r] = is(s, v->in[k], SIGNAL) ? s->guess[v->in[k]] : 0;
	int measure = s->rules->row[v->op].measured;
	bool poor = // estimate by the rule of v's operation
	    measure == M_always ||
	    (measure == M_signals && is(s, v->in[0], SIGNAL) && is(s, v->in[1], SIGNAL));
	if (root == r || s->length[r] || !known(s, F_measured) || !poor ||
	    !is_nearly_normal(s, root))
		return;
	double size = measured(s, r), ratio = size / s->range[r].value;
	if (ratio <= TOLERANCE && ratio >= 1 / TOLERANCE)
		return;
	s->guess[r] = r;
	if (v->op != O_exp && isfinite(size) && size > 0) // exponentials count as around 1
		s->range[r] = surd_near(size);
}
