// reduce.c: emits reduction loops, and those of dots that have no kernel of their own.
// Long sums are added in blocks, which keeps the rounding errors of f32 small. Those over windows
// take only the steps inside the value under the windows: outside, they would add 0.
#include "gen.h"
#include <string.h>

enum { SHORT = 9 }; // steps that are written one by one

// The steps of a window along an axis: position q of the value under it is step
// (q * by - base) * each.
typedef struct Steps {
	Index base;
	int64_t each, by; // each: 1 or -1
	int64_t extent;   // of the axis; 0: the steps are not known
} Steps;

typedef struct Reduction {
	int n; // reductions, or one at several lanes
	const Ref *reduce;
	const Index *idx;  // n * RANK
	Shape space;       // of the operands; of dots: [.., m, n, k]
	Groups groups;     // of the reduced axes
	Steps steps[RANK]; // by group
	Index at[RANK];    // where the loops are, on reduced axes
	bool lanes;        // the last group runs along the lanes
	int units;         // accumulators per reduction
	Value *acc, *best; // n * units variables; best: positions of argmax
	bool *wide;        // by reduction: a vector
	const Bound *keep; // stored on the way, but not by reductions inside the operands
	bool outs;         // so are the kernel's outputs of the full shape
	bool prefetches;   // what the kernel reads next is prefetched
} Reduction;

static Elem reduce_type(Gen *g, const Reduction *f, int k)
{
	return sum_type(g, f->reduce[k]);
}

static Op reduce_op(Gen *g, const Reduction *f, int k)
{
	return val(g->graph, f->reduce[k])->op;
}

// True if the index differs by lane.
static bool varies(Gen *g, const Index *x)
{
	for (int t = 0; t < x->n; t++) {
		const Var *v = g->vars->list.at[x->term[t].var];
		const struct Code *c = code_of(g, x->term[t].var);
		if (c->lane || c->vector || (!c->ready && varies(g, &v->of)))
			return true;
	}
	return false;
}

// ---- windows --------------------------------------------------------------------------

// Finds how steps along an axis are those of a window. False: they are not, or all are inside.
static bool window_steps(Gen *g, const Val *window, const Index *idx, const Index *step, Steps *own)
{
	const Shape *from = &val(g->graph, window->in[0])->shape;
	WindowAxes windows = window_axes(window->attr);
	for (int k = 0; k < windows.n; k++) {
		const WindowAxis *w = &windows.at[k];
		int64_t extent = from->dim[w->axis], by = w->up;
		Index at = window_position(g->vars, w, &idx[w->axis], &idx[from->rank + k]);
		int64_t each = stride_along(g->vars, &at, step);
		if (each != 1 && each != -1)
			continue;
		*own = (Steps){add_index(g->vars, &at, step, -each), each, by, extent};
		return window->attr->x == 0 && (by > 1 || !index_fits(g->vars, &at, extent));
	}
	return false;
}

// Finds the window outside of which element idx of r is 0. False: there is none.
static bool find_steps(Gen *g, Ref r, const Index *idx, int depth, const Index *step, Steps *steps)
{
	enum { DEEP = 8 }; // values on the way
	const Val *v = val(g->graph, r);
	Index own[RANK], in[RANK], zero[RANK];
	if (!g->inside[r] || depth > DEEP)
		return false;
	index_within(&v->shape, idx, own);
	if (v->op == O_window)
		return window_steps(g, v, own, step, steps);
	if (v->op == O_mul)
		return find_steps(g, v->in[0], own, depth + 1, step, steps) ||
		       find_steps(g, v->in[1], own, depth + 1, step, steps);
	if (v->op == O_cast || v->op == O_neg)
		return find_steps(g, v->in[0], own, depth + 1, step, steps);
	if (prims[v->op].cls != C_move || has_fill(v->op))
		return false;
	operand_index(g->vars, g->graph, v, 0, own, in, zero);
	return find_steps(g, v->in[0], in, depth + 1, step, steps);
}

// Finds the steps of reduction k along an axis, if they depend on no other step and no lane.
static bool steps_along(Gen *g, const Reduction *f, int k, int axis, const Index *step, Steps *own)
{
	Index in[RANK];
	for (int a = 0; a < f->space.rank; a++)
		in[a] = step[a].n ? step[a] : f->idx[k * RANK + a];
	if (reduce_op(g, f, k) != O_sum ||
	    !find_steps(g, val(g->graph, f->reduce[k])->in[0], in, 0, &step[axis], own) ||
	    varies(g, &own->base))
		return false;
	for (int a = 0; a < f->space.rank; a++)
		if (step[a].n && stride_along(g->vars, &own->base, &step[a]))
			return false;
	return true;
}

static bool same_steps(Gen *g, const Steps *a, const Steps *b)
{
	Index apart = add_index(g->vars, &a->base, &b->base, -1);
	return !apart.n && !apart.constant && a->each == b->each && a->by == b->by &&
	       a->extent == b->extent;
}

static void find_windows(Gen *g, Reduction *f)
{
	Index step[RANK] = {0};
	for (int q = 0; q < f->groups.n; q++)
		for (int a = f->groups.first[q]; a <= f->groups.last[q]; a++)
			step[a] = some_index(g->vars, f->space.dim[a]);
	for (int q = 0; q < f->groups.n; q++) {
		Steps *own = &f->steps[q], other;
		int axis = f->groups.first[q];
		bool known = axis == f->groups.last[q] && steps_along(g, f, 0, axis, step, own);
		for (int k = 1; k < f->n && known; k++)
			known =
			    steps_along(g, f, k, axis, step, &other) && same_steps(g, own, &other);
		if (!known)
			own->extent = 0;
	}
}

// Returns x / by, rounded up, of an index that may be negative.
static Value quotient_above(Gen *g, const Index *x, int64_t by)
{
	int64_t low, high;
	index_range(g->vars, x, &low, &high);
	int64_t below = low < 0 ? ceil_div(-low, by) : 0;
	Index all = shift_index(*x, below * by + by - 1);
	Value n = index_i64(g, &all);
	n = by > 1 ? LLVMBuildUDiv(g->b, n, number(g, by), "") : n;
	return sum_of(g, n, number(g, -below));
}

// ---- one step -------------------------------------------------------------------------

// Returns the element to reduce: of the operand, or a product of a dot.
static Value reduce_element(Gen *g, const Reduction *f, int k, Index *in)
{
	const Val *v = val(g->graph, f->reduce[k]);
	Elem own = val(g->graph, v->in[0])->type, sum = reduce_type(g, f, k);
	if (v->op != O_dot)
		return cast_value(g, at(g, v->in[0], in), own, sum);
	int r = v->shape.rank;
	Index a[RANK], b[RANK];
	memcpy(a, in, sizeof *a * (size_t)r);
	memcpy(b, in, sizeof *b * (size_t)r);
	a[r - 1] = b[r - 2] = in[r];
	Value x[2] = {cast_value(g, at(g, v->in[0], a), own, sum),
	              cast_value(g, at(g, v->in[1], b), own, sum)};
	level_out(g, 2, x);
	return LLVMBuildFMul(g->b, x[0], x[1], "");
}

// Returns the type of the positions of argmax.
static Elem place_type(const Reduction *f)
{
	Elem type = E_i32;
	for (int a = 0; a < f->space.rank; a++)
		type = f->space.dim[a] > INT32_MAX ? E_i64 : type;
	return type;
}

static Value equal(Gen *g, Elem e, Value x, Value y)
{
	return is_float(e) ? LLVMBuildFCmp(g->b, LLVMRealOEQ, x, y, "")
	                   : LLVMBuildICmp(g->b, LLVMIntEQ, x, y, "");
}

// Keeps the larger element and its position; of equal elements, the first. `ascending`: i comes
// after all positions so far.
static void step_argmax(Gen *g, Elem e, Value acc, Value place, Value x, Value i, bool ascending)
{
	Value best = read_variable(g, acc), at_best = read_variable(g, place);
	LLVMIntPredicate above = is_signed(e) ? LLVMIntSGT : LLVMIntUGT;
	Value take = is_float(e) ? LLVMBuildFCmp(g->b, LLVMRealOGT, x, best, "")
	                         : LLVMBuildICmp(g->b, above, x, best, "");
	if (!ascending) {
		Value before = LLVMBuildICmp(g->b, LLVMIntSLT, i, at_best, "");
		before = LLVMBuildAnd(g->b, equal(g, e, x, best), before, "");
		take = LLVMBuildOr(g->b, take, before, "");
	}
	set_variable(g, acc, LLVMBuildSelect(g->b, take, x, best, ""));
	set_variable(g, place, LLVMBuildSelect(g->b, take, i, at_best, ""));
}

static Value as_wide(Gen *g, const Reduction *f, int k, Value v)
{
	return f->wide[k] ? splat(g, v) : v;
}

// Reduces one element (or vector) into accumulator `unit` of reduction k.
static void reduce_one(Gen *g, Reduction *f, int k, int unit, Value mask)
{
	const Val *v = val(g->graph, f->reduce[k]);
	Index in[RANK];
	memcpy(in, f->idx + k * RANK, sizeof in);
	for (int q = 0; q < f->groups.n; q++)
		for (int a = f->groups.first[q]; a <= f->groups.last[q]; a++)
			in[a] = f->at[a];
	index_within(&f->space, in, in);
	Elem e = reduce_type(g, f, k);
	if (k == 0)
		store_kept(g, f->keep, in);
	if (k == 0 && f->prefetches)
		prefetch_row(g, in);
	Value x = as_wide(g, f, k, reduce_element(g, f, k, in)), acc = f->acc[k * f->units + unit];
	if (mask)
		x = choose(g, mask, x, reduce_start(g, v->op, e));
	if (v->op == O_argmax) {
		Value i = index_number(g, &in[v->attr->i[0]], place_type(f));
		i = as_wide(g, f, k, i);
		step_argmax(g, e, acc, f->best[k * f->units + unit], x, i, true);
		return;
	}
	Value next = reduce_step(g, v->op, e, read_variable(g, acc), x);
	// A sum that begins with 0 is never -0: where x is chosen or 0, one instruction adds it if
	// it is chosen.
	if (v->op == O_sum && LLVMCanValueUseFastMathFlags(next))
		LLVMSetFastMathFlags(next, LLVMFastMathNoSignedZeros);
	set_variable(g, acc, next);
	if (f->outs && k == f->n - 1) // perhaps over what the reductions read
		store_outs(g, in);
}

// ---- loops ----------------------------------------------------------------------------

static void reduce_loops(Gen *g, Reduction *f, int group);

static void new_accumulators(Gen *g, Reduction *f)
{
	int n = f->n * f->units;
	f->acc = NEWS(g->arena, Value, n);
	f->best = NEWS(g->arena, Value, n);
	for (int i = 0; i < n; i++) {
		int k = i / f->units;
		Value start = reduce_start(g, reduce_op(g, f, k), reduce_type(g, f, k));
		f->acc[i] = variable(g, as_wide(g, f, k, start));
		if (reduce_op(g, f, k) == O_argmax)
			f->best[i] =
			    variable(g, as_wide(g, f, k, constant_value(g, place_type(f), 0, 0)));
	}
}

static void lane_step(Gen *g, int n, const Index *unit, void *context)
{
	Reduction *f = context;
	for (int u = 0; u < n; u++) {
		group_index(g->vars, &f->groups, f->groups.n - 1, &f->space, &unit[u], f->at);
		for (int k = 0; k < f->n; k++)
			reduce_one(g, f, k, u % f->units, index_value(g, &unit[u]).mask);
	}
}

static void one_step(Gen *g, int n, const Index *i, void *context)
{
	Reduction *f = context;
	(void)n;
	group_index(g->vars, &f->groups, f->groups.n - 1, &f->space, i, f->at);
	reduce_loops(g, f, f->groups.n);
}

// True if a loop of a GPU's thread stays one: an assembler that knows how often it runs would
// repeat it, and what is inside, until all loads and sums take more registers than there are.
static bool stays_loop(const Gen *g, const Reduction *f, int group)
{
	enum { LONG = 32, MANY = 8 }; // steps; sums
	int64_t steps = 1;
	for (int k = group; k < f->groups.n; k++)
		steps *= f->groups.size[k];
	return g->target->machine->threads > 1 && (steps > LONG || f->n > MANY);
}

static void one_range(Gen *g, Reduction *f, int group, Value from, Value to)
{
	bool waits = g->target->machine->threads > 1; // a thread, for each of its loads
	int64_t together = waits ? g->kern->sched->together : 1;
	bool known = LLVMIsConstant(from) && LLVMIsConstant(to);
	bool rolled = known && stays_loop(g, f, group);
	if (f->lanes && group == f->groups.n - 1) {
		g->ops->lane_loop(g, from, to, f->groups.size[group], f->units, lane_step, f);
		return;
	}
	if (together > 1 && group == f->groups.n - 1) {
		Range steps = {.from = from,
		               .to = to,
		               .count = f->groups.size[group],
		               .step = 1,
		               .together = together,
		               .rolled = rolled};
		range_loop(g, &steps, one_step, f);
		return;
	}
	Loop loop = loop_begin(g, from, to, 1);
	Index i = uniform_index(g, loop.i, f->groups.size[group], 1);
	group_index(g->vars, &f->groups, group, &f->space, &i, f->at);
	reduce_loops(g, f, group + 1);
	(rolled ? loop_end_rolled : loop_end)(g, &loop);
}

// Takes the steps inside the value under the window.
static void inside_window(Gen *g, Reduction *f, int group)
{
	const Steps *s = &f->steps[group];
	int64_t size = f->groups.size[group];
	Index first = s->each > 0 ? s->base : shift_index(s->base, 1 - size);
	Index last = shift_index(first, size);
	Value from = quotient_above(g, &first, s->by), to = quotient_above(g, &last, s->by);
	Loop loop =
	    loop_begin(g, greatest(g, from, number(g, 0)), least(g, to, number(g, s->extent)), 1);
	Index at = uniform_index(g, loop.i, s->extent, 1), step = constant_index(0);
	step = add_index(g->vars, &step, &at, s->each * s->by);
	f->at[f->groups.first[group]] = add_index(g->vars, &step, &s->base, -s->each);
	reduce_loops(g, f, group + 1);
	loop_end(g, &loop);
}

// Reduces a long axis in blocks, each with accumulators of its own.
static void in_blocks(Gen *g, Reduction *f, int group, int64_t block)
{
	Value *acc = f->acc, *best = f->best;
	int64_t size = f->groups.size[group];
	Loop loop = loop_begin(g, number(g, 0), number(g, size), block);
	Value end = end_after(g, loop.i, block, number(g, size));
	new_accumulators(g, f);
	one_range(g, f, group, loop.i, end);
	for (int i = 0; i < f->n * f->units; i++) {
		Value sum = read_variable(g, acc[i]), part = read_variable(g, f->acc[i]);
		set_variable(g, acc[i], LLVMBuildFAdd(g->b, sum, part, ""));
	}
	f->acc = acc;
	f->best = best;
	loop_end(g, &loop);
}

// True if all are sums of f32 or f64, whose rounding errors add up.
static bool are_inexact(Gen *g, const Reduction *f)
{
	for (int k = 0; k < f->n; k++) {
		Op op = reduce_op(g, f, k);
		Elem e = reduce_type(g, f, k);
		if ((op != O_sum && op != O_dot) || (e != E_f32 && e != E_f64))
			return false;
	}
	return true;
}

// Emits the loop over group `group` and those inside it.
static void reduce_loops(Gen *g, Reduction *f, int group)
{
	if (group == f->groups.n) {
		for (int k = 0; k < f->n; k++)
			reduce_one(g, f, k, 0, NULL);
		return;
	}
	int64_t size = f->groups.size[group];
	bool lanes = f->lanes && group == f->groups.n - 1;
	int64_t block = lanes ? g->kern->sched->lane_block : g->kern->sched->block, count = 1;
	for (int k = 0; k < f->groups.n; k++)
		count *= f->groups.size[k];
	if (f->steps[group].extent)
		inside_window(g, f, group);
	else if (count <= SHORT && !f->lanes)
		for (int64_t i = 0; i < size; i++) {
			Index here = constant_index(i);
			group_index(g->vars, &f->groups, group, &f->space, &here, f->at);
			reduce_loops(g, f, group + 1);
		}
	else if (size >= 4 * block && are_inexact(g, f))
		in_blocks(g, f, group, block);
	else
		one_range(g, f, group, number(g, 0), number(g, size));
}

// ---- the result -----------------------------------------------------------------------

static Value reduce_result(Gen *g, const Reduction *f, int k)
{
	Op op = reduce_op(g, f, k);
	Elem e = reduce_type(g, f, k);
	Value *acc = f->acc + k * f->units, *best = f->best + k * f->units;
	if (op != O_argmax) {
		Value x = read_variable(g, acc[0]);
		for (int u = 1; u < f->units; u++)
			x = reduce_step(g, op, e, x, read_variable(g, acc[u]));
		x = f->lanes ? g->ops->reduce_lanes(g, op, e, x) : x;
		return cast_value(g, x, e, val(g->graph, f->reduce[k])->type);
	}
	for (int u = 1; u < f->units; u++)
		step_argmax(g, e, acc[0], best[0], read_variable(g, acc[u]),
		            read_variable(g, best[u]), false);
	Value most = read_variable(g, acc[0]), i = read_variable(g, best[0]);
	Elem type = place_type(f);
	if (f->lanes) {
		Value top = match(g, g->ops->reduce_lanes(g, O_amax, e, most), most);
		Value other = int_like(i, type == E_i32 ? INT32_MAX : INT64_MAX);
		i = choose(g, equal(g, e, most, top), i, other);
		i = g->ops->reduce_lanes(g, O_amin, type, i);
	}
	return cast_value(g, i, type, E_i64);
}

// ---- one element ----------------------------------------------------------------------

// Returns the position i of a sum of select(i == iota, x, 0) along the axis of iota alone, which is
// the element of x there, or 0 if there is none; 0: it is another sum.
static Ref picked_position(Gen *g, Ref sum, int64_t *axis)
{
	const Val *v = val(g->graph, sum), *from = val(g->graph, v->in[0]);
	const Val *is = from->op == O_select ? val(g->graph, from->in[0]) : from;
	double other;
	if (v->op != O_sum || is->op != O_eq || from->op != O_select || !g->inside[v->in[0]] ||
	    !g->inside[from->in[0]] || !const_num(g->graph, from->in[2], &other) || other != 0)
		return 0;
	for (int k = 0; k < 2; k++) {
		const Val *iota = val(g->graph, is->in[k]);
		*axis = iota->op == O_iota ? iota->attr->i[0] : RANK;
		if (axes_mask(v) == UINT64_C(1) << *axis &&
		    val(g->graph, is->in[1 - k])->shape.dim[*axis] == 1)
			return is->in[1 - k];
	}
	return 0;
}

// Remembers the element that is the sum. False: it is another sum.
static bool pick(Gen *g, Ref sum, const Index *idx)
{
	int64_t axis;
	Ref position = picked_position(g, sum, &axis);
	if (!position)
		return false;
	const Val *v = val(g->graph, sum), *from = val(g->graph, v->in[0]);
	Index in[RANK];
	memcpy(in, idx, sizeof in);
	in[axis] = constant_index(0);
	Value i = at(g, position, in);
	Value exists = LLVMBuildICmp(g->b, LLVMIntULT, i, int_like(i, from->shape.dim[axis]), "");
	in[axis] = data_index(g, position, in, from->shape.dim[axis]);
	Value x = at(g, from->in[1], in);
	remember(g, sum, idx, choose(g, exists, x, constant_value(g, v->type, 0, 0)));
	return true;
}

// ---- the nest -------------------------------------------------------------------------

static int reduce_units(Gen *g, const Reduction *f)
{
	if (!f->lanes)
		return 1;
	int64_t vectors = f->groups.size[f->groups.n - 1] / g->width;
	const ValSteps *own = &g->kern->sched->reduce;
	int chains = (int)g->kern->sched->chains;
	for (int i = 0; i < own->count; i++)
		if (own->at[i].val == f->reduce[0])
			chains = own->at[i].chains;
	return vectors >= chains ? chains : vectors >= 2 ? MIN(2, chains) : 1;
}

static Groups reduce_groups(Gen *g, const Reduction *f)
{
	const Val *first = val(g->graph, f->reduce[0]);
	uint32_t mask = first->op == O_dot ? 1u << (f->space.rank - 1) : axes_mask(first);
	if (first->op == O_dot)
		return groups_of(&f->space, mask, mask, 0);
	Ref *roots = NEWS(g->arena, Ref, f->n);
	for (int k = 0; k < f->n; k++)
		roots[k] = val(g->graph, f->reduce[k])->in[0];
	uint32_t merged =
	    coalesce(g->vars, g->graph, &g->computed, f->n, roots, &f->space, mask, mask, f->idx);
	return groups_of(&f->space, mask, mask, merged);
}

static void reduce_all(Gen *g, Reduction *f)
{
	const Val *first = val(g->graph, f->reduce[0]);
	const Shape *operand = &val(g->graph, first->in[0])->shape;
	f->space = *operand;
	if (first->op == O_dot) { // a reduction over an axis after the last
		f->space = first->shape;
		f->space.dim[f->space.rank++] = last_dim(operand);
	}
	f->groups = reduce_groups(g, f);
	int64_t lane_size = f->groups.n ? f->groups.size[f->groups.n - 1] : 0;
	f->lanes = !g->level->lanes && first->op != O_dot && lane_size >= 4;
	f->units = reduce_units(g, f);
	f->wide = NEWS(g->arena, bool, f->n);
	for (int k = 0; k < f->n; k++) {
		f->wide[k] = f->lanes && g->width > 1;
		for (int a = 0; !f->wide[k] && a < val(g->graph, f->reduce[k])->shape.rank; a++)
			f->wide[k] = varies(g, &f->idx[k * RANK + a]);
	}
	if (!f->lanes && !f->keep && g->target->machine->threads == 1)
		find_windows(g, f);
	new_accumulators(g, f);
	reduce_loops(g, f, 0);
	Value *result = NEWS(g->arena, Value, f->n);
	for (int k = 0; k < f->n; k++)
		result[k] = reduce_result(g, f, k);
	for (int k = 0; k < f->n; k++)
		remember(g, f->reduce[k], f->idx + k * RANK, result[k]);
}

void reduce_values(Gen *g, int n, const Ref *reduce, const Index *idx)
{
	Reduction f = {.keep = g->keep, .outs = g->outs, .prefetches = g->prefetches};
	bool along = f.keep || f.outs; // all elements are passed over
	g->keep = NULL;
	g->outs = g->prefetches = false;
	Ref *sums = NEWS(g->arena, Ref, n);
	Index *at_sums = NEWS(g->arena, Index, n * RANK);
	for (int k = 0; k < n; k++)
		if (along || !pick(g, reduce[k], idx + k * RANK)) {
			memcpy(at_sums + f.n * RANK, idx + k * RANK, sizeof *idx * RANK);
			sums[f.n++] = reduce[k];
		}
	if (f.n) {
		f.reduce = sums;
		f.idx = at_sums;
		reduce_all(g, &f);
	}
}
