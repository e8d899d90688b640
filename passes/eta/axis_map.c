// axis_map.c: maps axes through views and slices.
// Input: views (moves and maps). Output: the shape of v and b, and the slices of a parameter whose
// outputs have different demands. Invariant: if a view cannot be followed, slots are not reduced
// and outputs not split.
#include "analysis.h"
#include "index.h"
#include <string.h>

typedef struct AxisMap { // element `axis` of a view is element `at` of its root
	Vars *vars;
	int rank; // of the root
	Index axis[RANK], at[RANK];
} AxisMap;

// Returns the steps along an axis of the root per step along an axis of the view: 0 if it does not
// depend on that, IRREGULAR if they vary.
static int64_t steps_along(const AxisMap *map, int root_axis, int axis)
{
	return stride_along(map->vars, &map->at[root_axis], &map->axis[axis]);
}

// Returns the values on a shortest path from root up to r, without r; none if there is no path.
static Refs path_between(const ScaleAnalysis *s, Arena *scratch, Ref r, Ref root)
{
	Refs found = {0}, path = {0};
	PUSH(scratch, found, r);
	for (int i = 0; i < found.count; i++) {
		const Val *v = val(s->g, found.at[i]);
		for (int k = 0; k < v->nin; k++)
			if (v->in[k] >= root && !s->reader[v->in[k]]) {
				s->reader[v->in[k]] = found.at[i];
				PUSH(scratch, found, v->in[k]);
			}
	}
	for (Ref x = root; s->reader[x]; x = s->reader[x])
		PUSH(scratch, path, x);
	for (int i = 0; i < found.count; i++)
		s->reader[found.at[i]] = 0;
	return path;
}

// Maps the axes of r to those of `root`; false if the values between are no views.
static bool axis_map_of(const ScaleAnalysis *s, Ref r, Ref root, AxisMap *map)
{
	const Shape *shape = &val(s->g, r)->shape;
	Arena *scratch = arena_new();
	Refs path = path_between(s, scratch, r, root);
	bool views = r == root || path.count;
	*map = (AxisMap){.vars = vars_new(s->arena), .rank = val(s->g, root)->shape.rank};
	for (int a = 0; a < shape->rank; a++)
		map->at[a] = map->axis[a] = some_index(map->vars, shape->dim[a]);
	for (int i = path.count - 1; i >= 0 && views; i--) {
		const Val *v = val(s->g, r);
		int k = 0;
		while (v->in[k] != path.at[i])
			k++;
		r = path.at[i];
		if (v->op == O_reshape || v->op == O_permute || v->op == O_slice ||
		    v->op == O_expand) {
			Index in[RANK];
			operand_index(map->vars, s->g, v, k, map->at, in, NULL);
			memcpy(map->at, in, sizeof in);
		} else {
			views =
			    prims[v->op].cls == C_map && v->shape.rank == val(s->g, r)->shape.rank;
		}
	}
	arena_free(scratch);
	return views;
}

// Maps the axes of the variable that a signal meets to those of the parameter.
static bool operand_map(const ScaleAnalysis *s, const Inferred *inferred, int slot, AxisMap *out)
{
	Ref root = slot_ref(s->g, slot);
	return root && root <= inferred->operand && axis_map_of(s, inferred->operand, root, out);
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

bool fans_of(const ScaleAnalysis *s, const Inferred *inferred, int slot, bool *in, bool *out)
{
	AxisMap map;
	bool kernel = inferred->role && inferred->contracted &&
	              (!strcmp(inferred->role, "kernel") || inferred->rows);
	if (!kernel || !operand_map(s, inferred, slot, &map))
		return false;
	const Val *at = val(s->g, inferred->at);
	int summed = at->shape.rank - (at->in[0] == inferred->operand ? 1 : 2); // by a dot
	for (int a = 0; a < val(s->g, inferred->operand)->shape.rank; a++) {
		bool sums = at->op == O_sum ? has_axis(at->attr, a) : a == summed;
		for (int b = 0; b < map.rank; b++)
			(sums ? in : out)[b] |= steps_along(&map, b, a) != 0;
	}
	return true;
}

// A kernel reduces its contracted axes, a table keeps its rows, anything else has one element.
Shape slots_of(const ScaleAnalysis *s, const Inferred *inferred, int slot)
{
	const Shape *shape = &s->g->slots.at[slot].shape;
	Shape kept = *shape;
	bool in[RANK] = {false}, out[RANK] = {false};
	if (!fans_of(s, inferred, slot, in, out))
		return default_slot(shape, inferred->rows);
	for (int a = 0; a < shape->rank; a++)
		kept.dim[a] = in[a] && !out[a] ? 1 : shape->dim[a];
	return kept;
}

// ---- slices of a kernel's output --------------------------------------------------------

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
		r = bias && !is(s, v->in[0], SIGNAL) ? v->in[1] : v->in[0];
	}
}

// Finds the elements of the output's last axis that a slice takes; false if it takes others.
static bool find_slice(const ScaleAnalysis *s, Ref r, Ref dot, OutputSlice *slice)
{
	const Val *v = val(s->g, r), *x = val(s->g, v->in[0]);
	AxisMap map;
	int axis = sliced_axis(v, &x->shape);
	if (axis < 0 || !axis_map_of(s, v->in[0], dot, &map))
		return false;
	int last = map.rank - 1;
	int64_t stride = steps_along(&map, last, axis);
	*slice =
	    (OutputSlice){r, stride, x->shape.dim[axis], v->attr->i[3 * axis], v->shape.dim[axis]};
	return stride > 0 && is_along(&map, axis, last);
}

// True if the demands on two slices differ and no element belongs to two. Finds the slice of each.
static bool own_demands(const ScaleAnalysis *s, OutputSlices *slices)
{
	int64_t size = last_dim(&val(s->g, slices->dot)->shape);
	bool differ = false;
	slices->owner = NEWS(s->arena, Ref, size + 1);
	for (int k = 0; k < slices->list.count; k++) {
		const OutputSlice *slice = &slices->list.at[k];
		differ |= !surd_same(demand_or_one(s, slice->value),
		                     demand_or_one(s, slices->list.at[0].value));
		int64_t run = slice->count * slice->stride,
		        gap = slice->extent * slice->stride - run, n = 0;
		for (int64_t e = slice->start * slice->stride; run && e < size; e++) {
			if (slices->owner[e])
				return false;
			slices->owner[e] = slice->value;
			e += ++n % run ? 0 : gap;
		}
	}
	return differ;
}

void find_cuts(ScaleAnalysis *s)
{
	OutputSlices **of = NEWS(s->arena, OutputSlices *, s->g->nval);
	bool *bad = NEWS(s->arena, bool, s->g->nval);
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		bool part =
		    known(s, F_output_slices) && v->op == O_slice && s->live[r] && is(s, r, SIGNAL);
		Ref dot = part ? output_under(s, v->in[0]) : 0;
		OutputSlice slice;
		if (!dot)
			continue;
		if (!of[dot]) {
			of[dot] = NEW(s->arena, OutputSlices);
			of[dot]->dot = dot;
		}
		if (find_slice(s, r, dot, &slice))
			PUSH(s->arena, of[dot]->list, slice);
		else
			bad[dot] = true;
	}
	for (Ref dot = 1; dot < (Ref)s->g->nval; dot++) {
		OutputSlices *slices = of[dot];
		if (!slices || bad[dot] || !own_demands(s, slices))
			continue;
		s->output_slices[dot] = slices;
		for (int k = 0; k < slices->list.count; k++) // and at all values between
			for (Ref r = slices->list.at[k].value; s->output_slices[r] != slices;) {
				const Val *v = val(s->g, r);
				s->output_slices[r] = slices;
				r = v->in[v->nin > 1 && !is(s, v->in[0], SIGNAL)];
			}
	}
}

// ---- slices of a parameter --------------------------------------------------------------

ParamSlices *output_slices_of(const ScaleAnalysis *s, const Inferred *inferred, int slot)
{
	const OutputSlices *output = inferred->output_slices;
	const Shape *shape = &s->g->slots.at[slot].shape;
	AxisMap map;
	if (!output)
		return NULL;
	// The parameter's axis must be the full last axis of the output, in order.
	const Shape *operand = &val(s->g, inferred->operand)->shape;
	int last = operand->rank - 1, axis = 0;
	int64_t size = last_dim(&val(s->g, output->dot)->shape);
	if (last < 0 || operand->dim[last] != size || !operand_map(s, inferred, slot, &map))
		return NULL;
	while (axis < map.rank && steps_along(&map, axis, last) != 1)
		axis++;
	if (axis == map.rank || !is_along(&map, last, axis) || shape->dim[axis] != size)
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
