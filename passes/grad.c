// grad.c: differentiates a graph in reverse mode.
// The book has the gradients of primitives. Invariant: only values between a wanted slot and the
// loss are differentiated.
#include "grad.h"

// True if attention has kernels of its own, forward and backward; a factor with a gradient, lengths
// that depend on data, and the body of a loop, which would compute it twice, have none.
static bool stays_whole(const Backprop *s, const Graph *g, const Val *v, const Ref *in)
{
	bool fixed = count_of(&val(g, in[1])->shape) > 0; // it has keys
	for (int k = 0; k < v->nin; k++)
		fixed &= !is_dynamic(g, in[k]);
	int bias = attention_bias(O_attend), factor = attention_factor(O_attend);
	fixed &= v->nin <= factor || !s->from_needs[v->in[factor]];
	if (v->nin > bias && s->from_needs[v->in[bias]])
		fixed &= 2 * (v->shape.rank - 2) + 2 <= RANK; // attend_db splits leading axes
	return fixed && s->first_fixed < 0 &&
	       (!s->machine || attend_fits(s->from, v, s->machine, true));
}

Ref put_differentiable(void *backprop, Graph *g, const Val *v, const Ref *in)
{
	Backprop *s = backprop;
	g->from = v->from;
	if (v->op == O_attend && !stays_whole(s, g, v, in))
		return book_decompose(g, v, in);
	if (v->op != O_loop || !s->from_needs[ref_of(s->from, v)])
		return put_as(g, v, in);
	LoopInfo c = loop_of(v);
	return put_recorded(s, &c, in);
}

bool *mark_needs(Arena *arena, const Graph *g, const bool *want)
{
	bool *mark = NEWS(arena, bool, g->nval);
	for (int r = 1; r < g->nval; r++) {
		const Val *v = val(g, r);
		bool needs = v->op == O_slot && want[v->attr->i[0]];
		for (int k = 0; k < v->nin; k++)
			needs |= mark[v->in[k]];
		mark[r] = needs && book_differentiates(g->book, v->op) &&
		          (is_float(v->type) || v->op == O_loop);
	}
	return mark;
}

Ref match_operand(Graph *g, Ref r, const Val *to)
{
	Shape shape = to->shape;
	int64_t axes[RANK];
	int n = 0;
	r = put_cast(g, r, to->type);
	if (val(g, r)->shape.rank < shape.rank)
		r = put_rank(g, r, shape.rank);
	const Shape *own = &val(g, r)->shape;
	for (int a = 0; a < own->rank; a++)
		if (own->dim[a] > 1 && (shape.rank == 0 || shape.dim[a] == 1))
			axes[n++] = a;
	r = n ? put_reduce(g, O_sum, r, n, axes) : r;
	return shape.rank == 0 ? put_reshape(g, r, shape) : put_expand(g, r, shape);
}

// True for a constant 0 times a gradient, which is finite or skips the step.
static bool is_zero_product(const Graph *g, Ref dx)
{
	const Val *v = val(g, dx);
	return v->op == O_mul && (is_zero_gradient(g, v->in[0]) || is_zero_gradient(g, v->in[1]));
}

static bool is_negation(const Graph *g, Ref r, Ref of)
{
	return val(g, r)->op == O_neg && val(g, r)->in[0] == of;
}

// Gradients that cancel are none, so that unused_params_pass() finds what they leave untrained:
// z + (q - z), which a straight-through estimator becomes in ONNX, passes nothing on to z.
void add_gradient(Backprop *s, Ref r, Ref dx)
{
	Graph *g = s->g;
	if (g->products == E_f16 && is_zero_product(g, dx))
		return;
	dx = match_operand(g, dx, val(g, r));
	Ref before = s->gradient[r];
	if (!before)
		s->gradient[r] = dx;
	else if (is_negation(g, dx, before) || is_negation(g, before, dx))
		s->gradient[r] = 0;
	else
		s->gradient[r] = put2(g, O_add, before, dx);
}

// ---- guards -----------------------------------------------------------------------------
// select, max, clip and slices hide elements: a gradient of 0 arrives there, and what was computed
// may be infinite or NaN. 0 times such a slope is NaN, so a map's rule does not count where the
// gradient is 0. It is added only where both may happen.

enum { SEARCH_LIMIT = 64 }; // number of values after which a search returns true

// True if elements of the gradient `r` may be 0 because they were hidden.
static bool may_hide(const Graph *g, Ref r, int *left)
{
	const Val *v = val(g, r);
	if (--*left < 0)
		return true;
	switch (v->op) {
	case O_pad:
	case O_scatter:
		return true;
	case O_select:
		return is_zero_gradient(g, v->in[1]) || is_zero_gradient(g, v->in[2]) ||
		       may_hide(g, v->in[1], left) || may_hide(g, v->in[2], left);
	case O_add:
	case O_sub:
		return may_hide(g, v->in[0], left) && may_hide(g, v->in[1], left);
	case O_mul:
		return may_hide(g, v->in[0], left) || may_hide(g, v->in[1], left);
	case O_neg:
	case O_div:
	case O_cast:
	case O_sum:
	case O_reshape:
	case O_permute:
	case O_expand:
	case O_slice:
		return may_hide(g, v->in[0], left);
	default:
		return false;
	}
}

// True if elements of `r` may be infinite or NaN though the values it is computed from are finite,
// other than by overflow of sums and products.
static bool may_diverge(const Graph *g, Ref r, int *left)
{
	const Val *v = val(g, r);
	Class cls = prims[v->op].cls;
	if (--*left < 0)
		return true;
	switch (v->op) {
	case O_exp:
	case O_expm1:
	case O_log:
	case O_log1p:
	case O_sqrt:
	case O_rsqrt:
	case O_pow:
	case O_mod:
		return true;
	case O_div:
		if (!is_const(g, unmoved(g, v->in[1])))
			return true;
		break;
	default:
		break;
	}
	bool diverges = false;
	for (int k = 0; cls != C_dot && cls != C_composite && cls != C_loop && k < v->nin; k++)
		diverges |= is_float(val(g, v->in[k])->type) && may_diverge(g, v->in[k], left);
	return diverges;
}

// True if the rule of v multiplies the gradient by what may be infinite or NaN.
static bool multiplies(const Val *v)
{
	switch (v->op) {
	case O_neg:
	case O_abs:
	case O_log:
	case O_log1p: // their rules have guards of their own
	case O_cast:
	case O_narrow:
	case O_add:
	case O_sub:
	case O_max:
	case O_min:
	case O_select:
		return false;
	default:
		return prims[v->op].cls == C_map;
	}
}

// Returns `dx`, or 0 where the gradient of value r, the map v, is 0.
static Ref put_guarded(Graph *g, Ref r, const Val *v, Ref gradient, Ref dx)
{
	if (!multiplies(v) || !may_hide(g, gradient, &(int){SEARCH_LIMIT}) ||
	    !may_diverge(g, r, &(int){SEARCH_LIMIT}))
		return dx;
	Ref zero = put_num(g, val(g, dx)->type, 0);
	Ref none = put2(g, O_eq, gradient, put_num(g, val(g, gradient)->type, 0));
	return put3(g, O_select, none, zero, dx);
}

// ---- values -----------------------------------------------------------------------------

// Returns the operand of v that is not constant, if v is `op` of it and a constant, in *bound; 0:
// it is not.
static Ref bounded(const Graph *g, const Val *v, Op op, Ref *bound)
{
	for (int k = 0; v->op == op && k < 2; k++)
		if (is_const(g, unmoved(g, v->in[1 - k]))) {
			*bound = v->in[1 - k];
			return v->in[k];
		}
	return 0;
}

// Returns the gradient of *x, if v clips it to constant bounds; 0: it does not. The slope at a
// bound is 1, as of clamp, not 1/2, as of max and min: whole bins of rounded values lie there.
static Ref clip_gradient(Graph *g, const Val *v, Ref gradient, Ref *x)
{
	Ref low, high, inner = bounded(g, v, O_min, &high);
	*x = inner ? bounded(g, val(g, inner), O_max, &low) : 0;
	if (!*x) {
		inner = bounded(g, v, O_max, &low);
		*x = inner ? bounded(g, val(g, inner), O_min, &high) : 0;
	}
	if (!*x)
		return 0;
	Ref within = put2(g, O_and, put2(g, O_le, low, *x), put2(g, O_le, *x, high));
	return put3(g, O_select, within, gradient, put_num(g, val(g, gradient)->type, 0));
}

// Adds dx to the gradient of value r; of a fixed value of a body, whose sum over all iterations
// comes later, `term` to the terms.
static void pass_on(Backprop *s, Ref r, Ref dx, Contribution term)
{
	const Val *v = val(s->g, r);
	term.slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	if (s->first_fixed < 0 || term.slot < s->first_fixed)
		add_gradient(s, r, dx);
	else
		PUSH(s->arena, s->terms, term);
}

// v is the operation of value r.
static void backprop_value(Backprop *s, Ref r, const Val *v)
{
	Graph *g = s->g;
	Ref gradient = s->gradient[r], x, dx[5] = {0};
	g->from = v->from;
	if (v->op == O_concat) {
		int64_t start[RANK] = {0}, axis = v->attr->i[0];
		for (int k = 0; k < v->nin; k++) {
			const Shape *shape = &val(g, v->in[k])->shape;
			if (s->needs[v->in[k]])
				add_gradient(s, v->in[k],
				             put_slice(g, gradient, start, shape->dim, NULL));
			start[axis] += shape->dim[axis];
		}
		return;
	}
	Ref clipped = clip_gradient(g, v, gradient, &x);
	if (clipped) {
		pass_on(s, x, clipped, (Contribution){.gradient = clipped});
		return;
	}
	book_grad(g, v, r, gradient, v->in, dx);
	bool product = v->op == O_dot;
	Ref own = product && s->needs[v->in[0]] ? convolution_gradient(g, v, gradient, &x) : 0;
	if (own) {
		add_gradient(s, x, own);
		dx[0] = 0;
	}
	if (v->op == O_sub && v->in[0] == v->in[1]) { // NaN, not 0, if x is infinite
		dx[0] = put2(g, O_add, dx[0], dx[1]);
		dx[1] = 0;
	}
	Ref kernel = product && dx[1] ? convolution_kernel_gradient(g, v, gradient) : 0;
	dx[1] = kernel ? kernel : dx[1];
	for (int k = 0; k < v->nin; k++) {
		if (!dx[k] || !s->needs[v->in[k]])
			continue;
		dx[k] = put_guarded(g, r, v, gradient, dx[k]);
		pass_on(s, v->in[k], dx[k],
		        (Contribution){.other = product ? v->in[1 - k] : 0,
		                       .which = k,
		                       .gradient = product ? gradient : dx[k]});
	}
}

void backprop(Backprop *s)
{
	for (Ref r = s->last; r > 0; r--) {
		const Val *v = val(s->g, r);
		if (!s->needs[r] || !s->gradient[r])
			continue;
		const uint64_t *stored = table_find(s->stored, &r, sizeof r);
		if (stored) {
			backprop_value(s, r, (const Val *)(uintptr_t)*stored);
		} else if (v->op == O_loop) {
			differentiate_loop(s, r);
		} else if (v->op == O_result) {
			Ref loop = v->in[0];
			recorded_loop(s, loop)->gradient[v->attr->i[0]] = s->gradient[r];
			s->gradient[loop] = loop; // a result has one
		} else if (prims[v->op].cls != C_leaf) {
			backprop_value(s, r, v);
		}
	}
}

Ref zeros(Graph *g, Elem type, Shape shape)
{
	return put_broadcast(g, put_num(g, type, 0), shape);
}

Graph *grad_pass(Arena *arena, const Graph *from, const bool *want, const Machine *machine)
{
	from = attention_dropout_pass(arena, from, machine);
	Graph *g = graph_like(arena, from);
	g->plain = MAX(g->plain, DECOMPOSED_ATTEND);
	g->machine = machine;
	Backprop s = {.arena = arena,
	              .g = g,
	              .from = from,
	              .machine = machine,
	              .from_needs = mark_needs(arena, from, want),
	              .recorded = table_new(arena),
	              .stored = table_new(arena),
	              .first_fixed = -1};
	copy_graph(g, from, NULL, put_differentiable, &s);
	Ref loss = find_output(g, "loss");
	if (!loss)
		fail(g->name, "no loss to differentiate; give one with --loss");
	if (!is_float(val(g, loss)->type) || count_of(&val(g, loss)->shape) != 1)
		fail(g->name, "the loss: expected one float, found %s",
		     shape_text(arena, val(g, loss)->type, &val(g, loss)->shape));
	for (int i = 0; i < g->outs.count; i++)
		if (starts_with(g->outs.at[i].name, GRAD_OF))
			rename_output(g, i);
	int slots = g->slots.count; // of `want`
	Ref *slot = NEWS(arena, Ref, slots);
	for (int i = 0; i < slots; i++)
		slot[i] = want[i] ? put_slot(g, i) : 0;
	s.needs = mark_needs(arena, g, want);
	s.gradient = NEWS(arena, Ref, g->nval);
	s.last = (Ref)g->nval - 1;
	Ref scale = loss_scale(g), one = put_num(g, val(g, loss)->type, 1);
	s.gradient[loss] = match_operand(g, scale ? scale : one, val(g, loss));
	backprop(&s);
	g->from = 0;
	for (int i = 0; i < slots; i++) {
		const Slot *k = &g->slots.at[i];
		Ref gradient = s.gradient[slot[i]];
		if (want[i])
			add_out(g, format(arena, GRAD_OF "%s", k->name),
			        gradient ? put_unscaled(g, gradient) : zeros(g, k->type, k->shape));
	}
	return graph_live(arena, g);
}
