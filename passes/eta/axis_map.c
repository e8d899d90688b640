// axis_map.c: maps axes through views and slices.
// Input: views (moves and maps). Output: the shape of v and b, and the slices of a parameter whose
// outputs have different demands. Invariant: if a view cannot be followed, slots are not reduced
// and outputs not split.
#include "analysis.h"
#include <string.h>

// One axis of the root: index = (index along `axis` / stride) % extent.
typedef struct Part {
	int axis;
	int64_t extent, stride;
} Part;
typedef struct AxisMap { // each axis of a view as parts of the root's axes, outermost first
	int n[RANK];
	Part part[RANK][RANK];
} AxisMap;

static AxisMap identity_map(const Shape *shape)
{
	AxisMap out = {0};
	for (int a = 0; a < shape->rank; a++) {
		out.n[a] = 1;
		out.part[a][0] = (Part){a, shape->dim[a], 1};
	}
	return out;
}

// Splits the parts of `in` so that each axis of `to`, a reshape, consists of complete parts.
static bool regroup(const AxisMap *in, int rank, const Shape *to, AxisMap *out)
{
	Part all[RANK * RANK];
	int count = 0, next = 0;
	for (int a = 0; a < rank; a++)
		for (int k = 0; k < in->n[a]; k++)
			if (in->part[a][k].extent != 1)
				all[count++] = in->part[a][k];
	for (int a = 0; a < to->rank; a++) {
		int64_t left = to->dim[a];
		while (left > 1) {
			if (next == count || out->n[a] == RANK)
				return false;
			Part *p = &all[next];
			bool splits = p->extent > left;
			int64_t outer = splits ? left : p->extent;
			if (!p->extent || (splits ? p->extent % left : left % p->extent))
				return false;
			int64_t inner = p->extent / outer;
			out->part[a][out->n[a]++] = (Part){p->axis, outer, p->stride * inner};
			left /= outer;
			p->extent = inner;
			next += inner == 1;
		}
	}
	return true;
}

static void permute(const AxisMap *in, const Val *v, AxisMap *out)
{
	for (int a = 0; a < v->shape.rank; a++) {
		out->n[a] = in->n[v->attr->i[a]];
		memcpy(out->part[a], in->part[v->attr->i[a]], sizeof out->part[a]);
	}
}

// A slice shortens axes of one part.
static bool shorten(const Val *v, const Shape *from, AxisMap *out)
{
	for (int a = 0; a < v->shape.rank; a++) {
		if (v->shape.dim[a] == from->dim[a])
			continue;
		if (out->n[a] > 1)
			return false;
		out->part[a][0].extent = v->shape.dim[a];
	}
	return true;
}

typedef struct Path {
	Ref root;
	bool *on; // by Ref - root: depends on the root
} Path;

// Returns the operand of v that comes from the path's root; -1 if none does.
static int toward(const Path *p, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		if (v->in[k] >= p->root && p->on[v->in[k] - p->root])
			return k;
	return -1;
}

static Path path_of(const ScaleAnalysis *s, Ref root, Ref top)
{
	Path p = {root, NEWS(s->arena, bool, top - root + 1)};
	p.on[0] = true;
	for (Ref r = root + 1; r <= top; r++)
		p.on[r - root] = toward(&p, val(s->g, r)) >= 0;
	return p;
}

static bool map_on(const ScaleAnalysis *s, Ref r, const Path *path, int steps, AxisMap *out)
{
	enum { STEPS = 256 };
	const Val *v = val(s->g, r);
	int k = toward(path, v);
	AxisMap in;
	if (r == path->root) {
		*out = identity_map(&v->shape);
		return true;
	}
	if (k < 0 || steps == STEPS || !map_on(s, v->in[k], path, steps + 1, &in))
		return false;
	const Shape *from = &val(s->g, v->in[k])->shape;
	*out = in;
	switch (v->op) {
	case O_reshape:
		*out = (AxisMap){0};
		return regroup(&in, from->rank, &v->shape, out);
	case O_permute:
		permute(&in, v, out);
		return true;
	case O_slice:
		return shorten(v, from, out);
	case O_expand:
		return true;
	default:
		return prims[v->op].cls == C_map && v->shape.rank == from->rank;
	}
}

static bool axis_map_of(const ScaleAnalysis *s, Ref r, Ref root, AxisMap *out)
{
	Path path = path_of(s, root, r);
	return map_on(s, r, &path, 0, out);
}

// Maps the axes of the variable that a signal meets to those of the parameter.
static bool operand_map(const ScaleAnalysis *s, const Inferred *inferred, int slot, AxisMap *out)
{
	Ref root = slot_ref(s->g, slot);
	return root && root <= inferred->operand && axis_map_of(s, inferred->operand, root, out);
}

// ---- slots ----------------------------------------------------------------------------

static void mark_axes(const AxisMap *map, int axis, bool *mark)
{
	for (int k = 0; k < map->n[axis]; k++)
		mark[map->part[axis][k].axis] = true;
}

// True if the use reduces this axis of the operand.
static bool sums_over(const ScaleAnalysis *s, const Inferred *inferred, int axis)
{
	const Val *at = val(s->g, inferred->at);
	if (at->op == O_sum)
		return has_axis(at->attr, axis);
	return axis == at->shape.rank - (at->in[0] == inferred->operand ? 1 : 2);
}

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
	for (int a = 0; a < val(s->g, inferred->operand)->shape.rank; a++)
		mark_axes(&map, a, sums_over(s, inferred, a) ? in : out);
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
	const Part *part = &map.part[axis][0];
	*slice =
	    (OutputSlice){r, part->stride, part->extent, v->attr->i[3 * axis], v->shape.dim[axis]};
	return map.n[axis] == 1 && part->axis == val(s->g, dot)->shape.rank - 1;
}

// True if the demands on two slices differ.
static bool differ(const ScaleAnalysis *s, const OutputSlices *slices)
{
	Ref first = slices->list.at[0].value;
	for (int k = 1; k < slices->list.count; k++)
		if (!surd_same(demand_or_one(s, slices->list.at[k].value), demand_or_one(s, first)))
			return true;
	return false;
}

// Marks the elements of a slice as its own; false if one belongs to another slice.
static bool claim(const OutputSlice *slice, int64_t size, Ref *owner)
{
	for (int64_t block = 0; block < size; block += slice->stride * slice->extent) {
		int64_t first = block + slice->start * slice->stride,
		        end = first + slice->count * slice->stride;
		for (int64_t e = first; e < MIN(end, size); e++) {
			if (owner[e])
				return false;
			owner[e] = slice->value;
		}
	}
	return true;
}

// True if no element belongs to two slices. Finds the slice of each.
static bool disjoint(const ScaleAnalysis *s, OutputSlices *slices)
{
	const Shape *shape = &val(s->g, slices->dot)->shape;
	int64_t size = shape->dim[shape->rank - 1];
	bool separate = true;
	slices->owner = NEWS(s->arena, Ref, size + 1);
	for (int k = 0; k < slices->list.count && separate; k++)
		separate = claim(&slices->list.at[k], size, slices->owner);
	return separate;
}

// Records the slices at a kernel's output and at all values between.
static void record(ScaleAnalysis *s, OutputSlices *slices)
{
	for (int k = 0; k < slices->list.count; k++)
		for (Ref r = slices->list.at[k].value; s->output_slices[r] != slices;) {
			const Val *v = val(s->g, r);
			s->output_slices[r] = slices;
			if (r != slices->dot)
				r = v->in[v->nin > 1 && !is(s, v->in[0], SIGNAL)];
		}
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
	for (Ref r = 1; r < (Ref)s->g->nval; r++)
		if (of[r] && !bad[r] && differ(s, of[r]) && disjoint(s, of[r]))
			record(s, of[r]);
}

// ---- slices of a parameter --------------------------------------------------------------

// Returns the parameter's axis that is the full last axis of the output, in order; -1 if none.
static int output_axis(const ScaleAnalysis *s, const Inferred *inferred, int slot)
{
	const Val *operand = val(s->g, inferred->operand);
	const Shape *shape = &s->g->slots.at[slot].shape;
	AxisMap map;
	int last = operand->shape.rank - 1;
	if (last < 0 || !operand_map(s, inferred, slot, &map) || map.n[last] != 1)
		return -1;
	const Part *part = &map.part[last][0];
	bool full = part->stride == 1 && part->extent == shape->dim[part->axis];
	const Shape *out = &val(s->g, inferred->output_slices->dot)->shape;
	return full && part->extent == out->dim[out->rank - 1] ? part->axis : -1;
}

int output_slices_of(const ScaleAnalysis *s, const Inferred *inferred, int slot, int *axis,
                     int64_t **counts, Ref **parts)
{
	if (!inferred->output_slices || (*axis = output_axis(s, inferred, slot)) < 0)
		return 0;
	int64_t n = s->g->slots.at[slot].shape.dim[*axis];
	*counts = NEWS(s->arena, int64_t, n);
	*parts = NEWS(s->arena, Ref, n);
	int count = 0;
	for (int64_t e = 0; e < n; e++) {
		Ref part = inferred->output_slices->owner[e];
		Ref last = count ? (*parts)[count - 1] : 0;
		if (!count || !surd_same(demand_or_one(s, part), demand_or_one(s, last)))
			(*parts)[count++] = part;
		(*counts)[count - 1]++;
	}
	return count > 1 ? count : 0;
}
