// loss_mask.c: excludes padding from losses.
// Input: an expression of --loss, and the graph whose outs it names. Output: the expression with
// one more operand per definition of loss.am that adds or averages such outs: which elements are
// valid. Invariant: an invalid element is a copy of a valid one, so it introduces no new values
// (such as NaN).
#include "passes.h"
#include <string.h>

static const char where[] = "--loss";
static const char mark[] = "seen:"; // before an out's name: which of its elements are valid

static Ref size_of(const Graph *g, const char *name)
{
	return find_output(g, format(g->arena, SHAPE_OF "%s", name));
}

static Ref one_entry(Graph *g, Ref x, int axis)
{
	int64_t start[RANK] = {0};
	Shape s = val(g, x)->shape;
	s.dim[axis] = 1;
	return put_slice(g, x, start, s.dim, NULL);
}

// Returns which elements of out `name`, y, are valid along an axis, of size 1 along the others; 0
// if all are.
static Ref seen_along(Graph *g, const char *name, Ref y, int axis)
{
	int64_t at = axis, one = 1;
	Ref size = put_reshape(g, put_slice(g, size_of(g, name), &at, &one, NULL), (Shape){0});
	if (is_const(g, size))
		return 0;
	return put2(g, O_lt, put_numbers(g, &val(g, y)->shape, axis), size);
}

static Ref all_seen(Graph *g, const char *name, Ref y)
{
	Ref all = 0;
	for (int a = 0; a < val(g, y)->shape.rank; a++) {
		Ref seen = seen_along(g, name, y, a);
		all = all && seen ? put2(g, O_and, all, seen) : seen ? seen : all;
	}
	return all;
}

Ref look_out(Graph *g, const char *name)
{
	bool marked = starts_with(name, mark);
	name += marked ? strlen(mark) : 0;
	Ref y = find_output(g, name);
	if (!y || !size_of(g, name))
		return y;
	if (marked)
		return all_seen(g, name, y);
	for (int a = 0; a < val(g, y)->shape.rank; a++) {
		Ref seen = seen_along(g, name, y, a);
		if (seen)
			y = put3(g, O_select, seen, y, one_entry(g, y, a));
	}
	return y;
}

// ---- expressions ----------------------------------------------------------------------

static bool is_sized(Graph *g, const char *name)
{
	Ref y = find_output(g, name);
	return y && size_of(g, name) && all_seen(g, name, y);
}

static bool is_seen(const Expr *e)
{
	bool name = e->kind == X_name && starts_with(e->name, mark);
	return name || (e->kind == X_call && e->op == O_and && is_seen(e->in[0]));
}

// Returns the definition that takes which elements are valid; NULL if none of that name does.
static const Def *telling(const Graph *g, const Expr *e)
{
	const Def *d =
	    e->kind == X_call && e->op == OPS ? find_def(g->book, e->name, e->nin + 1) : NULL;
	return d && !strcmp(d->names[e->nin], "seen") ? d : NULL;
}

// Collects the outs of e of dynamic size, except those that a definition takes care of.
static void add_names(Graph *g, const Expr *e, Names *names)
{
	bool counted = e->kind == X_call && e->nin && is_seen(e->in[e->nin - 1]);
	if (e->kind == X_name && is_sized(g, e->name)) {
		for (int i = 0; i < names->count; i++)
			if (!strcmp(names->at[i], e->name))
				return;
		PUSH(g->arena, *names, e->name);
	}
	for (int k = 0; !counted && k < e->nin; k++)
		add_names(g, e->in[k], names);
}

static Expr *name_expr(Arena *arena, const char *name)
{
	Expr *e = NEW(arena, Expr);
	*e = (Expr){.kind = X_name, .name = name, .var = -1};
	return e;
}

static Expr *both(Arena *arena, Expr *a, Expr *b)
{
	Expr *e = NEW(arena, Expr);
	*e = (Expr){.kind = X_call, .name = "and", .op = O_and, .nin = 2, .var = -1};
	e->in = NEWS(arena, Expr *, 2);
	e->in[0] = a, e->in[1] = b;
	return e;
}

// Returns which elements computed from these outs are valid.
static Expr *seen_of(Arena *arena, const Names *names)
{
	Expr *e = NULL;
	for (int i = 0; i < names->count; i++) {
		Expr *seen = name_expr(arena, format(arena, "%s%s", mark, names->at[i]));
		e = e ? both(arena, e, seen) : seen;
	}
	return e;
}

// True if v does not mix elements along the dynamic axes, so that no valid element depends on an
// invalid one.
static bool keeps_apart(const Val *v, const Shape *seen)
{
	if (prims[v->op].cls == C_map || v->op == O_act)
		return true;
	for (int a = 0; a < seen->rank; a++)
		if (prims[v->op].attr != K_axes || (seen->dim[a] > 1 && has_axis(v->attr, a)))
			return false;
	return true;
}

// True if each element of r is computed only from elements of y at the same dynamic indices.
static bool is_apart(const Graph *g, Ref r, Ref y, const Shape *seen)
{
	bool *from = NEWS(g->arena, bool, g->nval), *mixes = NEWS(g->arena, bool, g->nval);
	from[y] = true;
	for (Ref k = y + 1; k <= r; k++) {
		const Val *v = val(g, k);
		for (int i = 0; i < v->nin; i++) {
			from[k] |= from[v->in[i]];
			mixes[k] |= mixes[v->in[i]];
		}
		mixes[k] |= from[k] && !keeps_apart(v, seen);
	}
	return !mixes[r];
}

static void want_apart(Graph *g, const Expr *call, const Names *names, Lookup *look)
{
	for (int k = 0; k < call->nin; k++) {
		if (call->in[k]->kind == X_num)
			continue;
		Ref r = eval_expr(g, where, call->in[k], look, g);
		for (int i = 0; i < names->count; i++) {
			Ref y = look_out(g, names->at[i]);
			Ref seen = all_seen(g, names->at[i], find_output(g, names->at[i]));
			if (!is_apart(g, r, y, &val(g, seen)->shape))
				fail(where,
				     "operand %d of %s(..) mixes elements of output '%s' along an "
				     "axis of which not all are there; compute it in the model",
				     k, call->name, names->at[i]);
		}
	}
}

static Expr *counted(Graph *g, const Expr *e, Lookup *look)
{
	Expr *own = take_copy(g->arena, e, sizeof *e);
	Names names = {0};
	own->in = NEWS(g->arena, Expr *, e->nin + 1);
	for (int k = 0; k < e->nin; k++)
		own->in[k] = counted(g, e->in[k], look);
	if (!telling(g, e))
		return own;
	add_names(g, own, &names);
	if (!names.count)
		return own;
	want_apart(g, own, &names, look);
	own->in[own->nin++] = seen_of(g->arena, &names);
	return own;
}

const Expr *mask_counted(Graph *g, const Expr *e, Lookup *look)
{
	Names names = {0};
	const Expr *own = counted(g, e, look);
	add_names(g, own, &names);
	if (names.count)
		fail(where,
		     "speaks of output '%s', whose size depends on the data: take it through "
		     "average(..), total(..) or a loss such as mse(..), which count what is there",
		     names.at[0]);
	return own;
}
