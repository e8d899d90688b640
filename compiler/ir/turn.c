// turn.c: finds copies that turn a value: the axes that are contiguous in it are not those that are
// contiguous in the copy. The copy may also round it to f16 or bf16.
// Such a copy goes by squares: vectors along axes of the operand are loaded, and stored along axes
// of the result. Of pairs of bf16 or f16, as matrix registers load them, vectors of pairs are.
#include "index.h"

// Adds axes before the last whose strides continue from 1, until they fill a square.
static void take_across(Turn *t, const Shape *space, int rank, const int64_t *stride, bool *taken)
{
	int last = rank - 1;
	while (last > 0 && space->dim[last] == 1)
		last--;
	t->count = 1;
	for (bool more = true; more && t->count < SQUARE;) {
		more = false;
		for (int a = 0; a < last && !more; a++)
			if (!taken[a] && space->dim[a] > 1 && stride[a] == t->count) {
				t->across[t->nacross++] = a;
				t->count *= space->dim[a];
				taken[a] = more = true;
			}
	}
}

bool locate_copied(Vars *w, const Graph *g, const Inside *inside, Ref *r, Index *idx, Index *place)
{
	Elem type = val(g, *r)->type;
	while (!locate(w, g, inside, r, idx, place)) {
		const Val *v = val(g, *r);
		if (v->op != O_cast || !is_half(type) || !inside->holds(inside->context, *r) ||
		    !(v->type == type || is_half(val(g, v->in[0])->type)))
			return false;
		for (int a = 0; a < v->shape.rank; a++)
			if (!index_fits(w, &idx[a], v->shape.dim[a]))
				return false;
		*r = v->in[0];
	}
	return true;
}

// Returns the kind of pairs that the last axis has, whose vectors are complete. If pairs move as
// one, strides become those of pairs.
static int find_pairs(const Turn *t, const Graph *g, Ref out, int64_t *stride)
{
	const Val *v = val(g, out);
	int last = v->shape.rank - 1;
	if (last < 2 || v->shape.dim[last] != 2 || !is_half(v->type) ||
	    val(g, t->from)->type != v->type || v->shape.dim[last - 1] % SQUARE)
		return T_single;
	if (stride[last] != 1)
		return stride[last - 1] == 1 ? T_lines : T_single;
	for (int a = 0; a < last; a++)
		if (stride[a] % 2)
			return T_single;
	for (int a = 0; a < last; a++)
		stride[a] /= 2;
	return T_neighbors;
}

// The rows of two lines are the axes before the last three.
static bool take_lines(Turn *t, const Shape *space)
{
	int last = space->rank - 1;
	t->count = space->dim[last - 1];
	t->columns = 2 * space->dim[last - 2];
	t->rows = count_of(space) / (t->count * t->columns);
	return true;
}

bool find_turn(Arena *arena, const Graph *g, const Inside *inside, Ref out, Turn *t)
{
	Vars *w = vars_new(arena);
	const Shape *space = &val(g, out)->shape;
	Index axis[RANK], idx[RANK], place;
	int64_t stride[RANK];
	bool taken[RANK] = {false};
	*t = (Turn){.from = out, .columns = 1, .rows = 1};
	for (int a = 0; a < space->rank; a++)
		axis[a] = idx[a] = some_index(w, space->dim[a]);
	if (!inside->holds(inside->context, out) ||
	    !locate_copied(w, g, inside, &t->from, idx, &place))
		return false;
	for (int a = 0; a < space->rank; a++) {
		stride[a] = stride_along(w, &place, &axis[a]);
		if (stride[a] == IRREGULAR)
			return false;
	}
	t->pairs = find_pairs(t, g, out, stride);
	if (t->pairs == T_lines)
		return take_lines(t, space);
	int rank = space->rank - (t->pairs == T_neighbors), a = rank - 1;
	take_across(t, space, rank, stride, taken);
	for (; a >= 0 && !taken[a] && t->columns < SQUARE; a--)
		t->columns *= space->dim[a];
	t->lanes = a + 1;
	for (; a >= 0; a--)
		t->rows *= taken[a] ? 1 : space->dim[a];
	if (t->pairs)
		return t->nacross == 1 && t->count % SQUARE == 0 && t->columns % SQUARE == 0;
	return t->count >= SQUARE / 4 &&
	       t->columns >= (t->count < SQUARE ? SQUARE / 2 : SQUARE / 4);
}
