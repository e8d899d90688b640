// thread_section.c: emits what a thread's loads have in common in a section of k, as the operands
// of convolutions have it. Windows with channels last have a section for each place: within it,
// loads advance from step to step by the same, and lie inside or not. Where steps of k are
// positions, each of which lies somewhere else, the lanes of a warp find for each other where the
// warp's steps of a section are.
#include "thread_tile.h"

enum {
	PLACES = 32,  // of a window, at most: each a bit
	LANES = 32,   // that exchange what they find
	COUNTED = 28, // bits of a distance in memory, in loads, below those of what lies inside
};

// ---- places of windows ----------------------------------------------------------------

// Returns how many steps of k a place of the windows has, its channels, if a stage has steps of one
// place alone: then all loads of a stage are as far from their first step, and lie inside or not as
// the place and the row say. Else 0.
int64_t place_channels(ThreadTile *d, int o)
{
	Vars *w = d->g->vars;
	const DotSizes *p = &d->p.dot;
	const Share *s = &d->share[o];
	Index none = constant_index(0), other = some_index(w, o ? p->n : p->m), k;
	Element first, x;
	bool windows = s->along && s->ahead == IRREGULAR &&
	               find_element(d, o, &none, &other, &first) && first.windows;
	int64_t channels = windows ? last_dim(first.windows) : 1;
	if (!windows || channels % d->s->depth || p->k % channels || p->k / channels > PLACES)
		return 0;
	Index place = some_index(w, p->k / channels), channel = some_index(w, channels);
	k = add_index(w, &channel, &place, channels);
	find_element(d, o, &k, &other, &x);
	Index offset = add_index(w, &x.place, &first.place, -1);
	bool regular =
	    stride_along(w, &offset, &channel) == 1 && stride_along(w, &offset, &other) == 0;
	for (int a = 0; a < x.windows->rank; a++)
		if (may_lie_outside(d, &x, a))
			regular &= stride_along(w, &x.idx[a], &channel) == 0;
	bool alone = !d->section || d->section == channels;
	return regular && alone ? channels : 0;
}

// Finds which places of the windows lie inside for load i.
void find_inside(ThreadTile *d, int o, int i)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	s->inside[i] = LLVMConstInt(g->i32, 0, 0);
	for (int64_t place = 0; place < d->p.dot.k / s->channels; place++) {
		Value bit = LLVMConstInt(g->i32, 1u << place, 0);
		Index k = constant_index(place * s->channels);
		Element x;
		find_element(d, o, &k, &s->other[i], &x);
		Value is = lies_inside(d, &x);
		if (is)
			bit = LLVMBuildSelect(g->b, is, bit, LLVMConstInt(g->i32, 0, 0), "");
		s->inside[i] = LLVMBuildOr(g->b, s->inside[i], bit, "");
	}
}

Value at_place(ThreadTile *d, const Share *s, int i)
{
	Gen *g = d->g;
	Value bit = LLVMBuildAnd(g->b, s->inside[i], d->place, "");
	return LLVMBuildICmp(g->b, LLVMIntNE, bit, LLVMConstInt(g->i32, 0, 0), "");
}

// ---- steps that lanes find for each other ---------------------------------------------

static int64_t steps_beside(const ThreadTile *d) // that all threads load at once
{
	return d->g->target->machine->threads / STEP_LANES;
}

// True if columns are as far from any step of k as from the first, and those of a group of `n` lie
// inside together. *beside: and side by side.
static bool are_apart(ThreadTile *d, int o, int64_t n, bool *beside)
{
	Vars *w = d->g->vars;
	int64_t extent = o ? d->p.dot.n : d->p.dot.m;
	Index none = constant_index(0), k = some_index(w, d->p.dot.k);
	Element x, row, column, first;
	find_element(d, o, &k, &none, &x);
	int64_t channels = x.windows ? last_dim(x.windows) : extent;
	if (channels % n || extent % channels)
		return false;
	Index place = channels < extent ? some_index(w, extent / channels) : none;
	Index group = n < channels ? some_index(w, channels / n) : none;
	Index own = some_index(w, n), other = add_index(w, &own, &group, n);
	other = add_index(w, &other, &place, channels);
	find_element(d, o, &k, &other, &x);
	find_element(d, o, &k, &none, &row);
	find_element(d, o, &none, &other, &column);
	find_element(d, o, &none, &none, &first);
	Index far = add_index(w, &row.place, &first.place, -1);
	Index rest = add_index(w, &x.place, &column.place, -1);
	rest = add_index(w, &rest, &far, -1);
	int64_t low, high;
	index_range(w, &far, &low, &high);
	bool forward = low >= 0 && index_align(w, &far) % d->share[o].vec == 0;
	bool apart = forward && !rest.n && !rest.constant;
	for (int a = 0; x.windows && a < x.windows->rank; a++)
		if (may_lie_outside(d, &x, a))
			apart &= stride_along(w, &x.idx[a], &own) == 0;
	*beside = stride_along(w, &column.place, &own) == 1;
	return apart;
}

// True if steps of k lie anywhere in memory, and columns as far from each. Then eight threads have
// a step, and lanes of a warp find where its steps of a section are: as many as there are lanes.
bool finds_steps(ThreadTile *d, int o)
{
	Share *s = &d->share[o];
	const Graph *g = d->g->graph;
	int64_t columns = STEP_LANES * s->vec, section = d->g->target->machine->threads;
	Ref r = share_operand(d, o);
	bool beside, wide = is_copied(d, s) && s->vec * elems[val(g, r)->type].bytes == WIDE;
	bool steps = !s->along && s->ahead == IRREGULAR && d->s->depth % steps_beside(d) == 0;
	s->found = wide && steps && d->kind->exchange && s->side % columns == 0 &&
	           (!d->section || d->section == section) && are_apart(d, o, columns, &beside) &&
	           bytes_of(val(g, r)) < (int64_t)WIDE << COUNTED;
	if (s->found) {
		bool apart = are_apart(d, o, s->side, &beside);
		s->alike = apart && beside;
		d->section = section;
	}
	return s->found;
}

// Returns the bit of a lane's entry that says whether columns `n` of its step lie inside.
static Value inside_bit(Gen *g, int64_t n)
{
	return LLVMConstInt(g->i32, (uint64_t)1 << (31 - n), 0);
}

// Of the section's steps that the warp loads, finds one: how far from the first it is in memory,
// counted in loads, and which groups of columns lie inside there.
static void find_steps(ThreadTile *d, int o, Value section)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	int64_t all = d->p.dot.k, extent = o ? d->p.dot.n : d->p.dot.m, beside = LANES / STEP_LANES;
	int64_t columns = STEP_LANES * s->vec, threads = g->target->machine->threads;
	Value lane = LLVMBuildURem(g->b, d->thread, number(g, LANES), "");
	Value warp = LLVMBuildUDiv(g->b, d->thread, number(g, LANES), "");
	Value at = times(g, LLVMBuildUDiv(g->b, lane, number(g, beside), ""), steps_beside(d));
	at = sum_of(g, at, times(g, warp, beside));
	at = sum_of(g, at, LLVMBuildURem(g->b, lane, number(g, beside), ""));
	at = sum_of(g, at, times(g, section, threads));
	Value before = LLVMBuildICmp(g->b, LLVMIntSLT, at, number(g, all), "");
	Index k = uniform_index(g, least(g, at, number(g, all - 1)), all, 1);
	Index none = constant_index(0);
	Element x, first;
	find_element(d, o, &k, &none, &x);
	find_element(d, o, &none, &none, &first);
	Index far = add_index(g->vars, &x.place, &first.place, -1);
	s->entry = LLVMBuildUDiv(g->b, index_i64(g, &far), number(g, s->vec), "");
	s->entry = LLVMBuildTrunc(g->b, s->entry, g->i32, "");
	for (int64_t n = 0; n < (s->alike ? 1 : s->side / columns) && !s->sure; n++) {
		Value column = sum_of(g, d->first[o], number(g, n * columns));
		if (s->ends)
			column = least(g, column, number(g, extent - columns));
		Index other = uniform_index(g, column, extent, columns);
		find_element(d, o, &k, &other, &x);
		Value is = lies_inside(d, &x);
		is = is ? both(g, is, before) : before;
		Value bit =
		    LLVMBuildSelect(g->b, is, inside_bit(g, n), LLVMConstInt(g->i32, 0, 0), "");
		s->entry = LLVMBuildOr(g->b, s->entry, bit, "");
	}
}

// Sets where columns are at the first step.
void start_steps(ThreadTile *d, int o)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	int64_t down = d->s->depth / steps_beside(d);
	Index none = constant_index(0);
	Element x;
	s->sure = d->p.dot.k % g->target->machine->threads == 0;
	for (int i = 0; i < (s->alike ? 1 : s->count / down); i++) {
		find_element(d, o, &none, &s->other[i * down], &x);
		s->from[i] = element_address(d, &x);
	}
	Index k = some_index(g->vars, d->p.dot.k);
	find_element(d, o, &k, &s->other[0], &x);
	for (int a = 0; x.windows && a < x.windows->rank; a++)
		s->sure &= !may_lie_outside(d, &x, a);
	if (s->alike && !s->sure) // what lies inside has the bit
		s->from[0] = sum_of(g, s->from[0], number(g, INT32_MIN * (int64_t)WIDE));
	Value lane = LLVMBuildURem(g->b, d->thread, number(g, LANES), "");
	Value own = LLVMBuildUDiv(g->b, lane, number(g, STEP_LANES), "");
	s->lane = LLVMBuildTrunc(g->b, LLVMBuildXor(g->b, lane, own, ""), g->i32, "");
}

// Copies the share at a step: the lane that has found it is as far from the section's first as the
// step from the section's.
void copy_found(ThreadTile *d, int o, Value step, Value stage)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	int64_t beside = LANES / STEP_LANES, columns = STEP_LANES * s->vec, rows = steps_beside(d);
	int down = (int)(d->s->depth / rows);
	Value other = LLVMBuildUDiv(g->b, step, step_count(d, rows / beside), ""), x = NULL;
	other = LLVMBuildIntCast2(g->b, other, g->i32, 0, "");
	for (int i = 0; i < s->count; i++) {
		int row = i * down / s->count, n = i % (s->count / down);
		Value own = LLVMBuildXor(g->b, s->lane,
		                         LLVMConstInt(g->i32, (unsigned)(row * beside), 0), "");
		if (n == 0)
			x = d->kind->exchange(g, s->entry, LLVMBuildXor(g->b, own, other, ""));
		Value is = LLVMBuildAnd(g->b, x, inside_bit(g, s->alike ? 0 : n), "");
		Value counted = LLVMConstInt(g->i32, (1u << COUNTED) - 1, 0);
		Value units = s->alike ? x : LLVMBuildAnd(g->b, x, counted, "");
		units = LLVMBuildZExt(g->b, units, g->i64, "");
		Value to = d->kind->place(d, o, number(g, row * rows), number(g, n * columns));
		Copy copy = {.n = s->vec,
		             .to = bytes_after(g, s->to[0], stage),
		             .from = sum_of(g, s->from[s->alike ? 0 : n], times(g, units, WIDE)),
		             .to_bytes = LLVMConstIntGetSExtValue(to),
		             .from_bytes = s->alike ? n * columns * WIDE / s->vec : 0};
		if (!s->sure)
			copy.inside =
			    LLVMBuildICmp(g->b, LLVMIntNE, is, LLVMConstInt(g->i32, 0, 0), "");
		d->kind->copy(d, &copy);
	}
}

// ---- sections --------------------------------------------------------------------------

void enter_section(ThreadTile *d, Value section)
{
	Gen *g = d->g;
	Value place = LLVMBuildTrunc(g->b, section, g->i32, "");
	if (d->share[0].channels || d->share[1].channels)
		d->place = LLVMBuildShl(g->b, LLVMConstInt(g->i32, 1, 0), place, "");
	for (int o = 0; o < 2; o++)
		if (d->share[o].found)
			find_steps(d, o, section);
}

void leave_section(ThreadTile *d, int o, Value section, Value ends)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	if (!s->channels)
		return;
	int64_t channels = s->channels, bytes;
	Index of = uniform_index(g, section, d->p.dot.k / channels, 1), none = constant_index(0);
	Index here = add_index(g->vars, &none, &of, channels);
	Index there = shift_index(here, channels);
	Element x, next;
	find_element(d, o, &here, &s->other[0], &x);
	find_element(d, o, &there, &s->other[0], &next);
	bytes = elems[val(g->graph, x.r)->type].bytes;
	Index apart = add_index(g->vars, &next.place, &x.place, -1);
	apart = shift_index(apart, -channels); // which the steps have advanced
	apart = add_index(g->vars, &none, &apart, bytes);
	advance_bytes(d, o, LLVMBuildSelect(g->b, ends, index_i64(g, &apart), number(g, 0), ""));
}
