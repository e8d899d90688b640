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
	bool joined; // the root is one of several that make up the view
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
	bool moves = v->op == O_reshape || v->op == O_permute || v->op == O_slice ||
	             v->op == O_expand || v->op == O_concat;
	if (!map || !moves)
		return prims[v->op].cls == C_map && v->shape.rank == shape->rank ? map : NULL;
	AxisMap *under = take_copy(s->arena, map, sizeof *map);
	under->rank = shape->rank;
	under->joined |= v->op == O_concat;
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

enum { SUMMANDS = 4 };
typedef struct Outputs { // the kernels' outputs whose sum a value is a view of
	int n;
	Ref dot[SUMMANDS];
	AxisMap *map[SUMMANDS]; // from the value
} Outputs;

// True if the value that the map is from has all elements of the last axis of output r.
static bool has_features(const ScaleAnalysis *s, const AxisMap *map, Ref r)
{
	int64_t low, high;
	index_range(map->vars, &map->at[map->rank - 1], &low, &high);
	return low == 0 && high + 1 == last_dim(&val(s->g, r)->shape);
}

// Finds the outputs under r, below views, slices along other axes, biases and sums. False if it is
// anything else, or a sum of more.
static bool outputs_under(const ScaleAnalysis *s, Ref r, AxisMap *map, Outputs *outputs)
{
	const Val *v = val(s->g, r);
	if (v->op == O_dot) {
		if (!is(s, v->in[1], VARIABLE) || !is(s, v->in[0], SIGNAL) ||
		    outputs->n == SUMMANDS || !map || !has_features(s, map, r))
			return false;
		outputs->map[outputs->n] = map;
		outputs->dot[outputs->n++] = r;
		return true;
	}
	bool found = v->op == O_reshape || v->op == O_permute || v->op == O_slice ||
	             v->op == O_cast || v->op == O_add || v->op == O_sub;
	for (int k = 0; k < v->nin && found; k++)
		if (is(s, v->in[k], SIGNAL))
			found = outputs_under(s, v->in[k], axis_map_under(s, map, v, k), outputs);
	return found;
}

// Calls itself for all values between r and the outputs under it.
static void set_slices(ScaleAnalysis *s, OutputSlices *of, Ref r, OutputSlices *slices)
{
	const Val *v = val(s->g, r);
	slices = v->op == O_dot ? &of[r] : slices;
	if (s->slices_of[r] || slices->bad)
		return;
	s->slices_of[r] = slices;
	s->output_slices[r] = slices->differ ? slices : NULL;
	for (int k = 0; k < v->nin && v->op != O_dot; k++)
		if (is(s, v->in[k], SIGNAL))
			set_slices(s, of, v->in[k], slices);
}

// Returns the axis along which slice r takes some of the elements of the output's last axis: -1 if
// it takes all, -2 if they are not a slice of an axis. It may also be shorter along other axes.
static int feature_slice(const ScaleAnalysis *s, Ref r, const AxisMap *map)
{
	const Val *v = val(s->g, r);
	const Shape *full = &val(s->g, v->in[0])->shape;
	int axis = -1;
	for (int a = 0; a < full->rank; a++) {
		int64_t step = slice_axes(v->attr)[a].step,
		        stride = steps_along(map, map->rank - 1, a);
		if (v->shape.dim[a] == full->dim[a] || stride == 0)
			continue;
		axis = axis == -1 && step == 1 && stride > 0 && is_along(map, a, map->rank - 1)
		           ? a
		           : -2;
	}
	return axis;
}

// True if slices r and o take the same elements of the axis, with the same demand: those of other
// iterations of a loop.
static bool is_same_slice(const ScaleAnalysis *s, Ref r, Ref o, int axis)
{
	const Val *v = val(s->g, r), *w = val(s->g, o);
	return v->shape.rank == w->shape.rank && v->shape.dim[axis] == w->shape.dim[axis] &&
	       slice_axes(v->attr)[axis].start == slice_axes(w->attr)[axis].start &&
	       surd_same(demand_or_one(s, r), demand_or_one(s, o));
}

// Adds slice r of the output, which has this map, along an axis. False if another slice takes one
// of its elements.
static bool add_slice(const ScaleAnalysis *s, OutputSlices *slices, Ref r, int axis,
                      const AxisMap *map)
{
	const Val *v = val(s->g, r);
	int64_t size = last_dim(&val(s->g, slices->dot)->shape),
	        stride = steps_along(map, map->rank - 1, axis), run = v->shape.dim[axis] * stride,
	        gap = val(s->g, v->in[0])->shape.dim[axis] * stride - run, n = 0;
	if (!slices->owner)
		slices->owner = NEWS(s->arena, Ref, size + 1);
	for (int64_t e = slice_axes(v->attr)[axis].start * stride; run && e < size; e++) {
		if (slices->owner[e] && !is_same_slice(s, r, slices->owner[e], axis))
			return false;
		slices->owner[e] = r;
		e += ++n % run ? 0 : gap;
	}
	return true;
}

void find_output_slices(ScaleAnalysis *s)
{
	OutputSlices *of = NEWS(s->arena, OutputSlices, s->g->nval);
	Ref *cut = NEWS(s->arena, Ref, s->g->nval); // by slice: the first output; 0: none
	for (Ref r = 1; r < (Ref)s->g->nval && known(s, F_output_slices); r++) {
		const Val *v = val(s->g, r);
		Outputs outputs = {0};
		if (v->op != O_slice || !s->live[r] || !is(s, r, SIGNAL) ||
		    !outputs_under(s, v->in[0], axis_map_new(s, v->in[0]), &outputs))
			continue;
		for (int k = 0; k < outputs.n; k++) {
			int axis = feature_slice(s, r, outputs.map[k]);
			if (axis == -1)
				continue;
			OutputSlices *slices = &of[outputs.dot[k]];
			cut[r] = outputs.dot[k];
			slices->first = slices->dot ? slices->first : r;
			slices->dot = outputs.dot[k];
			slices->bad |= axis < 0 || !add_slice(s, slices, r, axis, outputs.map[k]);
			slices->differ |=
			    !surd_same(demand_or_one(s, r), demand_or_one(s, slices->first));
		}
	}
	for (Ref r = 1; r < (Ref)s->g->nval; r++)
		if (cut[r] && !of[cut[r]].bad)
			set_slices(s, of, r, &of[cut[r]]);
}

// ---- slices of a parameter --------------------------------------------------------------

int feature_axis(const ScaleAnalysis *s, const Inferred *inferred, const OutputSlices *output,
                 int slot)
{
	const Shape *shape = &s->g->slots.at[slot].shape;
	const AxisMap *map = inferred->map;
	const Shape *operand = &val(s->g, inferred->operand)->shape;
	int last = operand->rank - 1, axis = 0;
	int64_t size = last_dim(output ? &val(s->g, output->dot)->shape : operand);
	if (!map || map->joined || last < 0 || operand->dim[last] != size)
		return -1;
	while (axis < map->rank && steps_along(map, axis, last) != 1)
		axis++;
	bool full = axis < map->rank && is_along(map, last, axis) && shape->dim[axis] == size;
	return full ? axis : -1;
}

int64_t feature_of(const ScaleAnalysis *s, const Inferred *inferred, int axis, int64_t e)
{
	const AxisMap *map = inferred->map;
	const Shape *operand = &val(s->g, inferred->operand)->shape;
	int64_t low, high;
	if (!map || !operand->rank || steps_along(map, axis, operand->rank - 1) != 1)
		return -1;
	index_range(map->vars, &map->at[axis], &low, &high);
	bool in = e >= low && e <= high && high - low + 1 == last_dim(operand);
	return in ? e - low : -1;
}

void add_group_axes(const Inferred *inferred, int a, bool *axes)
{
	const AxisMap *map = inferred->map;
	for (int b = 0; map && b < map->rank; b++)
		axes[b] |= steps_along(map, b, a) != 0;
}

ParamSlices *output_slices_of(const ScaleAnalysis *s, const Inferred *inferred, int slot)
{
	const OutputSlices *output = inferred->output_slices;
	int axis = output ? feature_axis(s, inferred, output, slot) : -1;
	if (axis < 0)
		return NULL;
	int64_t size = s->g->slots.at[slot].shape.dim[axis];
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
