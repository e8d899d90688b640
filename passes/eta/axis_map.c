// axis_map.c: maps axes through views and slices.
// Input: views (moves and maps). Output: the shape of v and b, and the parts of a parameter whose
// outputs have demands of their own. Invariant: nothing is guessed: if a view cannot be followed,
// slots are not reduced and outputs not split.
#include "analysis.h"
#include <string.h>

// Of an axis: index = (index along `axis` of the root / stride) % extent.
typedef struct Part {
	int axis;
	int64_t extent, stride;
} Part;
typedef struct AxisMap { // each axis of a view as parts of the root's axes, slowest first
	int n[RANK];
	Part part[RANK][RANK];
} AxisMap;

static AxisMap whole(const Shape *shape)
{
	AxisMap out = {0};
	for (int a = 0; a < shape->rank; a++) {
		out.n[a] = 1;
		out.part[a][0] = (Part){a, shape->dim[a], 1};
	}
	return out;
}

// Splits the parts of `in`, which a reshape regroups, so that each axis of `to` consists of
// complete parts.
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

static void permuted(const AxisMap *in, const Val *v, AxisMap *out)
{
	for (int a = 0; a < v->shape.rank; a++) {
		out->n[a] = in->n[v->attr->i[a]];
		memcpy(out->part[a], in->part[v->attr->i[a]], sizeof out->part[a]);
	}
}

// Axes of one part that are cut by a slice: fewer entries of the same part.
static bool sliced(const Val *v, const Shape *from, AxisMap *out)
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
	bool *on; // by Ref - root: computed from it
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

static bool layout_on(const ScaleAnalysis *s, Ref r, const Path *path, int steps, AxisMap *out)
{
	enum { STEPS = 256 };
	const Val *v = val(s->g, r);
	int k = toward(path, v);
	AxisMap in;
	if (r == path->root) {
		*out = whole(&v->shape);
		return true;
	}
	if (k < 0 || steps == STEPS || !layout_on(s, v->in[k], path, steps + 1, &in))
		return false;
	const Shape *from = &val(s->g, v->in[k])->shape;
	*out = in;
	switch (v->op) {
	case O_reshape:
		*out = (AxisMap){0};
		return regroup(&in, from->rank, &v->shape, out);
	case O_permute:
		permuted(&in, v, out);
		return true;
	case O_slice:
		return sliced(v, from, out);
	case O_expand:
		return true;
	default:
		return prims[v->op].cls == C_map && v->shape.rank == from->rank;
	}
}

static bool layout_of(const ScaleAnalysis *s, Ref r, Ref root, AxisMap *out)
{
	Path path = path_of(s, root, r);
	return layout_on(s, r, &path, 0, out);
}

// The layout of the variable that a signal meets, over the axes of the parameter.
static bool operand_layout(const ScaleAnalysis *s, const Inferred *share, int slot, AxisMap *out)
{
	Ref root = slot_ref(s->g, slot);
	return root && root <= share->operand && layout_of(s, share->operand, root, out);
}

// ---- slots ----------------------------------------------------------------------------

static void mark_axes(const AxisMap *layout, int axis, bool *mark)
{
	for (int k = 0; k < layout->n[axis]; k++)
		mark[layout->part[axis][k].axis] = true;
}

// True if this axis of the operand is summed over.
static bool sums_over(const ScaleAnalysis *s, const Inferred *share, int axis)
{
	const Val *at = val(s->g, share->at);
	if (at->op == O_sum)
		return has_axis(at->attr, axis);
	return axis == at->shape.rank - (at->in[0] == share->operand ? 1 : 2);
}

Shape usual_slot(const Shape *whole, bool rows)
{
	Shape slot = *whole;
	for (int a = 0; a < slot.rank; a++)
		slot.dim[a] = rows && a + 1 < slot.rank ? slot.dim[a] : 1;
	return slot;
}

bool fans_of(const ScaleAnalysis *s, const Inferred *share, int slot, bool *in, bool *out)
{
	AxisMap layout;
	bool kernel =
	    share->role && share->contracted && (!strcmp(share->role, "kernel") || share->rows);
	if (!kernel || !operand_layout(s, share, slot, &layout))
		return false;
	for (int a = 0; a < val(s->g, share->operand)->shape.rank; a++)
		mark_axes(&layout, a, sums_over(s, share, a) ? in : out);
	return true;
}

// A kernel reduces its contracted axes, a table keeps its rows, and all else is one number.
Shape slots_of(const ScaleAnalysis *s, const Inferred *share, int slot)
{
	const Shape *shape = &s->g->slots.at[slot].shape;
	Shape kept = *shape;
	bool in[RANK] = {false}, out[RANK] = {false};
	if (!fans_of(s, share, slot, in, out))
		return usual_slot(shape, share->rows);
	for (int a = 0; a < shape->rank; a++)
		kept.dim[a] = in[a] && !out[a] ? 1 : shape->dim[a];
	return kept;
}

// ---- parts of a kernel's output -------------------------------------------------------

// Returns the kernel's output that `r` is a view of, with or without a bias; 0 if there is none.
static Ref output_behind(const ScaleAnalysis *s, Ref r)
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

// Finds the part of the output's last axis that a slice takes; false if it takes anything else.
static bool find_cut(const ScaleAnalysis *s, Ref slice, Ref dot, OutputSlice *cut)
{
	const Val *v = val(s->g, slice), *x = val(s->g, v->in[0]);
	AxisMap layout;
	int axis = cut_axis(v, &x->shape);
	if (axis < 0 || !layout_of(s, v->in[0], dot, &layout))
		return false;
	const Part *part = &layout.part[axis][0];
	*cut = (OutputSlice){slice, part->stride, part->extent, v->attr->i[3 * axis],
	                     v->shape.dim[axis]};
	return layout.n[axis] == 1 && part->axis == val(s->g, dot)->shape.rank - 1;
}

// True if the demands of two parts differ.
static bool differ(const ScaleAnalysis *s, const OutputSlices *cuts)
{
	Ref first = cuts->cut.at[0].part;
	for (int k = 1; k < cuts->cut.count; k++)
		if (!surd_same(asked(s, cuts->cut.at[k].part), asked(s, first)))
			return true;
	return false;
}

// Marks the cut's elements as those of its part; false if one belongs to another part.
static bool own(const OutputSlice *cut, int64_t entries, Ref *owner)
{
	for (int64_t block = 0; block < entries; block += cut->stride * cut->extent) {
		int64_t first = block + cut->start * cut->stride,
		        end = first + cut->count * cut->stride;
		for (int64_t e = first; e < MIN(end, entries); e++) {
			if (owner[e])
				return false;
			owner[e] = cut->part;
		}
	}
	return true;
}

// True if no element belongs to two parts. Finds the part of each.
static bool disjoint(const ScaleAnalysis *s, OutputSlices *cuts)
{
	const Shape *shape = &val(s->g, cuts->dot)->shape;
	int64_t entries = shape->dim[shape->rank - 1];
	bool apart = true;
	cuts->owner = NEWS(s->arena, Ref, entries + 1);
	for (int k = 0; k < cuts->cut.count && apart; k++)
		apart = own(&cuts->cut.at[k], entries, cuts->owner);
	return apart;
}

// Records the slices at a kernel's output and at all values between.
static void spread(ScaleAnalysis *s, OutputSlices *cuts)
{
	for (int k = 0; k < cuts->cut.count; k++)
		for (Ref r = cuts->cut.at[k].part; s->cuts[r] != cuts;) {
			const Val *v = val(s->g, r);
			s->cuts[r] = cuts;
			if (r != cuts->dot)
				r = v->in[v->nin > 1 && !is(s, v->in[0], SIGNAL)];
		}
}

void find_cuts(ScaleAnalysis *s)
{
	OutputSlices **of = NEWS(s->arena, OutputSlices *, s->g->nval);
	bool *bad = NEWS(s->arena, bool, s->g->nval);
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		bool part = known(s, F_parts) && v->op == O_slice && s->live[r] && is(s, r, SIGNAL);
		Ref dot = part ? output_behind(s, v->in[0]) : 0;
		OutputSlice cut;
		if (!dot)
			continue;
		if (!of[dot]) {
			of[dot] = NEW(s->arena, OutputSlices);
			of[dot]->dot = dot;
		}
		if (find_cut(s, r, dot, &cut))
			PUSH(s->arena, of[dot]->cut, cut);
		else
			bad[dot] = true;
	}
	for (Ref r = 1; r < (Ref)s->g->nval; r++)
		if (of[r] && !bad[r] && differ(s, of[r]) && disjoint(s, of[r]))
			spread(s, of[r]);
}

// ---- parts of a parameter -------------------------------------------------------------

// Returns the parameter's axis that is the output's last one, complete and in order; -1 if none is.
static int output_axis(const ScaleAnalysis *s, const Inferred *share, int slot)
{
	const Val *operand = val(s->g, share->operand);
	const Shape *shape = &s->g->slots.at[slot].shape;
	AxisMap layout;
	int last = operand->shape.rank - 1;
	if (last < 0 || !operand_layout(s, share, slot, &layout) || layout.n[last] != 1)
		return -1;
	const Part *part = &layout.part[last][0];
	bool full = part->stride == 1 && part->extent == shape->dim[part->axis];
	const Shape *out = &val(s->g, share->cuts->dot)->shape;
	return full && part->extent == out->dim[out->rank - 1] ? part->axis : -1;
}

int parts_of(const ScaleAnalysis *s, const Inferred *share, int slot, int *axis, int64_t **counts,
             Ref **parts)
{
	if (!share->cuts || (*axis = output_axis(s, share, slot)) < 0)
		return 0;
	int64_t n = s->g->slots.at[slot].shape.dim[*axis];
	*counts = NEWS(s->arena, int64_t, n);
	*parts = NEWS(s->arena, Ref, n);
	int count = 0;
	for (int64_t e = 0; e < n; e++) {
		Ref part = share->cuts->owner[e];
		Ref last = count ? (*parts)[count - 1] : 0;
		if (!count || !surd_same(asked(s, part), asked(s, last)))
			(*parts)[count++] = part;
		(*counts)[count - 1]++;
	}
	return count > 1 ? count : 0;
}
