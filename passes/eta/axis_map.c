// axis_map.c: maps axes through views and slices.
// Input: views (moves and maps). Output: the shape of v and b, and the slices of a parameter whose
// outputs have different demands. Invariant: if a view cannot be followed, slots are not reduced
// and outputs not split.
#include "analysis.h"
#include "index.h"
#include <string.h>

struct AxisMap { // element `axis` of a view is element `at` of its root
	Vars *vars;
	int rank; // of the root
	const Index *axis, *at;
};

AxisMap *axis_map_new(const ScaleAnalysis *s, Ref r)
{
	const Shape *shape = &val(s->g, r)->shape;
	AxisMap *map = NEW(s->arena, AxisMap);
	map->vars = vars_new(s->arena);
	map->rank = shape->rank;
	Index *axis = NEWS(s->arena, Index, shape->rank);
	for (int a = 0; a < shape->rank; a++)
		axis[a] = some_index(map->vars, shape->dim[a]);
	map->at = map->axis = axis;
	return map;
}

AxisMap *axis_map_under(const ScaleAnalysis *s, AxisMap *map, const Val *v, int k)
{
	const Shape *shape = &val(s->g, v->in[k])->shape;
	bool moves =
	    v->op == O_reshape || v->op == O_permute || v->op == O_slice || v->op == O_expand;
	if (!map || !moves)
		return prims[v->op].cls == C_map && v->shape.rank == shape->rank ? map : NULL;
	AxisMap *under = take_copy(s->arena, map, sizeof *map);
	under->rank = shape->rank;
	Index *at = NEWS(s->arena, Index, shape->rank);
	operand_index(map->vars, s->g, v, k, map->at, at, NULL);
	under->at = at;
	return under;
}

// Returns the steps along an axis of the root per step along an axis of the view: 0 if it does not
// depend on that, IRREGULAR if they vary.
static int64_t steps_along(const AxisMap *map, int root_axis, int axis)
{
	return stride_along(map->vars, &map->at[root_axis], &map->axis[axis]);
}

// True if only one axis of the root depends on this axis.
static bool is_along(const AxisMap *map, int axis, int root_axis)
{
	for (int a = 0; a < map->rank; a++)
		if (a != root_axis && steps_along(map, a, axis))
			return false;
	return true;
}

// ---- slots ----------------------------------------------------------------------------

Shape default_slot(const Shape *full, bool rows)
{
	Shape slot = *full;
	for (int a = 0; a < slot.rank; a++)
		slot.dim[a] = rows && a + 1 < slot.rank ? slot.dim[a] : 1;
	return slot;
}

bool fans_of(const ScaleAnalysis *s, const Inferred *inferred, bool *in, bool *out)
{
	const AxisMap *map = inferred->map;
	bool kernel = inferred->role && inferred->contracted &&
	              (!strcmp(inferred->role, "kernel") || inferred->rows);
	if (!kernel || !map)
		return false;
	const Val *at = val(s->g, inferred->at);
	int summed = at->shape.rank - (at->in[0] == inferred->operand ? 1 : 2); // by a dot
	for (int a = 0; a < val(s->g, inferred->operand)->shape.rank; a++) {
		bool sums = at->op == O_sum ? has_axis(at->attr, a) : a == summed;
		for (int b = 0; b < map->rank; b++)
			(sums ? in : out)[b] |= steps_along(map, b, a) != 0;
	}
	return true;
}

// ---- slices of a kernel's output --------------------------------------------------------

// Returns the first operand of r that is a signal, of at most two.
static Ref signal_of(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	return v->in[v->nin > 1 && !is(s, v->in[0], SIGNAL)];
}

// Returns the kernel's output that `r` is a view of, with or without a bias; 0 if there is none.
static Ref output_under(const ScaleAnalysis *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		if (v->op == O_dot)
			return is(s, v->in[1], VARIABLE) && is(s, v->in[0], SIGNAL) ? r : 0;
		bool bias = (v->op == O_add || v->op == O_sub) &&
		            is(s, v->in[0], SIGNAL) != is(s, v->in[1], SIGNAL);
		if (!bias && v->op != O_reshape && v->op != O_permute && v->op != O_cast)
			return 0;
		r = signal_of(s, r);
	}
}

// Adds slice r of the output. False if it takes others than elements of the last axis, or one that
// another slice takes.
static bool add_slice(const ScaleAnalysis *s, OutputSlices *slices, Ref r)
{
	const Val *v = val(s->g, r);
	const Shape *full = &val(s->g, v->in[0])->shape;
	int axis = sliced_axis(v, full), last = val(s->g, slices->dot)->shape.rank - 1;
	AxisMap *map = axis < 0 ? NULL : axis_map_new(s, v->in[0]);
	for (Ref x = v->in[0]; x != slices->dot && map; x = signal_of(s, x))
		map = axis_map_under(s, map, val(s->g, x), val(s->g, x)->in[0] != signal_of(s, x));
	if (!map)
		return false;
	int64_t size = last_dim(&val(s->g, slices->dot)->shape),
	        stride = steps_along(map, last, axis), run = v->shape.dim[axis] * stride,
	        gap = full->dim[axis] * stride - run, n = 0;
	if (stride <= 0 || !is_along(map, axis, last))
		return false;
	if (!slices->owner)
		slices->owner = NEWS(s->arena, Ref, size + 1);
	for (int64_t e = v->attr->i[3 * axis] * stride; run && e < size; e++) {
		if (slices->owner[e])
			return false;
		slices->owner[e] = r;
		e += ++n % run ? 0 : gap;
	}
	return true;
}

void find_output_slices(ScaleAnalysis *s)
{
	OutputSlices *of = NEWS(s->arena, OutputSlices, s->g->nval);
	Ref *cut = NEWS(s->arena, Ref, s->g->nval); // by slice: the output; 0: none
	for (Ref r = 1; r < (Ref)s->g->nval && known(s, F_output_slices); r++) {
		const Val *v = val(s->g, r);
		Ref dot = v->op == O_slice && s->live[r] && is(s, r, SIGNAL)
		              ? output_under(s, v->in[0])
		              : 0;
		OutputSlices *slices = &of[dot];
		if (!dot)
			continue;
		cut[r] = dot;
		slices->first = slices->dot ? slices->first : r;
		slices->dot = dot;
		slices->bad |= !add_slice(s, slices, r);
		slices->differ |= !surd_same(demand_or_one(s, r), demand_or_one(s, slices->first));
	}
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		OutputSlices *slices = &of[cut[r]];
		for (Ref x = r; slices->differ && !slices->bad && !s->output_slices[x];) {
			s->output_slices[x] = slices; // and at the values between
			x = x == slices->dot ? x : signal_of(s, x);
		}
	}
}

// ---- slices of a parameter --------------------------------------------------------------

ParamSlices *output_slices_of(const ScaleAnalysis *s, const Inferred *inferred, int slot)
{
	const OutputSlices *output = inferred->output_slices;
	const Shape *shape = &s->g->slots.at[slot].shape;
	const AxisMap *map = inferred->map;
	if (!output || !map)
		return NULL;
	// The parameter's axis must be the full last axis of the output, in order.
	const Shape *operand = &val(s->g, inferred->operand)->shape;
	int last = operand->rank - 1, axis = 0;
	int64_t size = last_dim(&val(s->g, output->dot)->shape);
	if (last < 0 || operand->dim[last] != size)
		return NULL;
	while (axis < map->rank && steps_along(map, axis, last) != 1)
		axis++;
	if (axis == map->rank || !is_along(map, last, axis) || shape->dim[axis] != size)
		return NULL;
	ParamSlices *slices = NEW(s->arena, ParamSlices);
	slices->axis = axis;
	for (int64_t e = 0, n = 0; e < size; e++) {
		Surd demand = demand_or_one(s, output->owner[e]);
		if (!n || !surd_same(demand, slices->list.at[n - 1].inferred.demand)) {
			ParamSlice slice = {e, 0, *inferred}; // the same rule with its own demand
			slice.inferred.demand = demand;
			slice.inferred.demand_by = s->demand_by[output->owner[e]];
			slice.inferred.eta =
			    surd_mul(surd_div(inferred->eta, inferred->demand), demand);
			PUSH(s->arena, slices->list, slice);
			n++;
		}
		slices->list.at[n - 1].count++;
	}
	return slices->list.count > 1 ? slices : NULL;
}
