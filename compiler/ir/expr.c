// expr.c: evaluates expressions of the notation to values of a graph, or attributes.
// Operands of maps are aligned by NumPy's rule. A number among values becomes a constant of their
// type. Maps of numbers and lists alone are arithmetic in double.
#include "eval.h"
#include <math.h>
#include <string.h>

enum { DEPTH = 1000 }; // definitions inside one another

const char *scope_where(const Scope *s)
{
	return s->depth && s->g && s->g->from ? graph_where(s->g) : s->where;
}

static Item num_item(double x)
{
	return (Item){.kind = I_num, .x = x};
}

static Item ref_item(Ref r)
{
	return (Item){.kind = I_ref, .ref = r};
}

Item several_items(Arena *arena, int n, const Item *item)
{
	const Item *all = take_copy(arena, item, (size_t)n * sizeof *item);
	return (Item){.kind = I_several, .n = n, .all = all};
}

// ---- arithmetic on attributes ---------------------------------------------------------

static double compute(Scope *s, Op op, double x, double y)
{
	switch (op) {
	case O_not:
		return x == 0;
	case O_and:
		return x != 0 && y != 0;
	case O_or:
		return x != 0 || y != 0;
	case O_xor:
	case O_select:
	case O_narrow:
		fail(scope_where(s), "%s needs a value, found only numbers", prims[op].name);
	default:
		return float_map(op, x, y);
	}
}

bool same_list(const Item *x, const Item *y)
{
	return x->n == y->n && !memcmp(x->i, y->i, (size_t)x->n * sizeof *x->i);
}

static Item compute_items(Scope *s, Op op, int nin, const Item *in)
{
	Item out = num_item(0);
	int n = -1;
	double x[3] = {0};
	if (op == O_eq && in[0].kind == I_list && in[1].kind == I_list)
		return num_item(same_list(&in[0], &in[1]));
	if (op == O_eq && (in[0].kind == I_text || in[1].kind == I_text))
		return num_item(in[0].kind == in[1].kind && !strcmp(in[0].text, in[1].text));
	for (int k = 0; k < nin; k++) {
		if (in[k].kind == I_list && n >= 0 && in[k].n != n)
			fail(scope_where(s), "%s of lists of %d and %d entries", prims[op].name, n,
			     in[k].n);
		if (in[k].kind == I_list)
			n = in[k].n;
	}
	if (n >= 0) {
		out.kind = I_list;
		out.n = n;
	}
	for (int i = 0; i < MAX(n, 1); i++) {
		for (int k = 0; k < nin; k++)
			x[k] = in[k].kind == I_list ? (double)in[k].i[i] : in[k].x;
		if (n < 0)
			out.x = compute(s, op, x[0], x[1]);
		else if (i < n)
			out.i[i] = (int64_t)compute(s, op, x[0], x[1]);
	}
	return out;
}

// ---- primitives -----------------------------------------------------------------------

Ref item_ref(Scope *s, const Item *item, Elem type)
{
	if (item->kind == I_ref)
		return item->ref;
	if (item->kind == I_list && item->n == 1)
		return put_num(s->g, type, (double)item->i[0]);
	if (item->kind != I_num)
		fail(scope_where(s), "expected a value, found a list");
	if (!is_float(type) && !(fabs(item->x) < 1e18 && item->x == floor(item->x)))
		fail(scope_where(s), "the number %g among values of type %s", item->x,
		     elems[type].name);
	return put_num(s->g, type, item->x);
}

static Item axes_item(int rank)
{
	Item out = {.kind = I_list, .n = rank};
	for (int i = 0; i < rank; i++)
		out.i[i] = i;
	return out;
}

static Item put_prim(Scope *s, const Expr *e, Item *in)
{
	Op op = e->op;
	Class cls = prims[op].cls;
	Item item[3];
	int nattr = e->nattr, rank = 0;
	if (nattr > COUNT(item))
		fail(scope_where(s), "%s: %d attributes", prims[op].name, nattr);
	for (int k = 0; k < nattr; k++)
		item[k] = eval_item(s, e->attr[k]);
	// A number takes the type of the last value that is not a condition or index.
	Elem type = E_f32;
	for (int k = 0; k < e->nin; k++)
		if (in[k].kind == I_ref && !is_condition(op, k) && !(cls == C_index && k == 1))
			type = val(s->g, in[k].ref)->type;
	Ref ref[3], *refs = e->nin <= COUNT(ref) ? ref : NEWS(s->g->arena, Ref, e->nin);
	for (int k = 0; k < e->nin; k++) {
		bool index = cls == C_index && k == 1;
		refs[k] = item_ref(s, &in[k], index ? E_i64 : is_condition(op, k) ? E_b8 : type);
		rank = MAX(rank, val(s->g, refs[k])->shape.rank);
	}
	for (int k = 0; (cls == C_map || op == O_dot) && k < e->nin; k++)
		if (val(s->g, refs[k])->shape.rank > 0)
			refs[k] = put_rank(s->g, refs[k], rank);
	const Shape *first = e->nin ? &val(s->g, refs[0])->shape : &(Shape){0};
	if (!nattr && cls == C_reduce && op != O_cumsum) // of all axes
		item[nattr++] = axes_item(first->rank);
	if (op == O_reshape && nattr == 1 && item[0].kind == I_list) {
		int64_t rest = 1, *open = NULL; // a dimension of -1 is what the others leave
		for (int i = 0; i < item[0].n; i++)
			if (item[0].i[i] == -1)
				open = &item[0].i[i];
			else
				rest *= item[0].i[i];
		if (open)
			*open = rest ? count_of(first) / rest : 0;
	}
	Attr attr = attr_join(scope_where(s), op, first->rank, nattr, item);
	return ref_item(put(s->g, op, e->nin, refs, &attr));
}

static Item eval_prim_call(Scope *s, const Expr *e)
{
	const Prim *prim = &prims[e->op];
	if ((prim->arity >= 0 && e->nin != prim->arity) || (prim->arity < 0 && e->nin == 0))
		fail(scope_where(s), "%s: expected %d operands, found %d", prim->name,
		     MAX(prim->arity, 1), e->nin);
	Item small[3], *in = e->nin <= COUNT(small) ? small : NEWS(s->g->arena, Item, e->nin);
	bool value = (prim->cls != C_map && prim->cls != C_reduce) || e->op == O_cast;
	for (int k = 0; k < e->nin; k++) {
		in[k] = eval_item(s, e->in[k]);
		// The second operand of and, or is not evaluated if a number as the first decides.
		if (k == 0 && in[0].kind == I_num &&
		    ((e->op == O_and && in[0].x == 0) || (e->op == O_or && in[0].x != 0)))
			return num_item(e->op == O_or);
		if (in[k].kind == I_none && e->op != O_eq)
			fail(scope_where(s), "%s of nothing", prim->name);
		value |= in[k].kind == I_ref;
	}
	if (value && !s->g)
		fail(scope_where(s), "%s needs a value, found only numbers", prim->name);
	if (value)
		return put_prim(s, e, in);
	if (prim->cls == C_map)
		return compute_items(s, e->op, e->nin, in);
	static const struct {
		double start;
		Op step;
	} folds[OPS] = {[O_sum] = {0, O_add},
	                [O_prod] = {1, O_mul},
	                [O_amax] = {-INFINITY, O_max},
	                [O_amin] = {INFINITY, O_min}};
	double x = folds[e->op].start;
	if (in->kind != I_list || !folds[e->op].step)
		fail(scope_where(s), "%s needs a value or a list", prim->name);
	for (int i = 0; i < in->n; i++)
		x = compute(s, folds[e->op].step, x, (double)in->i[i]);
	return num_item(x);
}

// ---- functions on shapes and lists ----------------------------------------------------

static Item eval_arg(Scope *s, const Expr *e, int k)
{
	if (k >= e->nin)
		fail(scope_where(s), "%s: expected more than %d operands", e->name, e->nin);
	return eval_item(s, e->in[k]);
}

// Evaluates operand k, once: it may draw random numbers or store.
static Ref ref_arg(Scope *s, const Expr *e, int k)
{
	Item item = eval_arg(s, e, k);
	if (item.kind != I_ref)
		fail(scope_where(s), "%s of something that is no value", e->name);
	return item.ref;
}

static const Val *value_arg(Scope *s, const Expr *e, int k)
{
	return val(s->g, ref_arg(s, e, k));
}

static double number_arg(Scope *s, const Expr *e, int k)
{
	Item item = eval_arg(s, e, k);
	double x = item.kind == I_list && item.n == 1 ? (double)item.i[0] : item.x;
	if (item.kind == I_ref ? !const_num(s->g, item.ref, &x)
	                       : item.kind == I_list && item.n != 1)
		fail(scope_where(s), "%s: expected a number", e->name);
	return x;
}

static Item fn_shape(Scope *s, const Expr *e)
{
	const Val *v = value_arg(s, e, 0);
	Item out = {.kind = I_list, .n = v->shape.rank};
	memcpy(out.i, v->shape.dim, (size_t)out.n * sizeof *out.i);
	return out;
}

// A number is a list of one.
static Item as_list(Item item)
{
	if (item.kind == I_num) {
		item.kind = I_list;
		item.n = 1;
		item.i[0] = (int64_t)item.x;
	}
	return item;
}

// axis(x, a): a counted from the first axis of x.
static Item fn_axis(Scope *s, const Expr *e)
{
	int rank = value_arg(s, e, 0)->shape.rank;
	return num_item((double)wrap_axis(scope_where(s), (int64_t)number_arg(s, e, 1), rank));
}

// The axes that attribute 0 names, all without one.
static Item axes_arg(Scope *s, const Expr *e, int rank)
{
	Item axes = e->nattr ? as_list(eval_item(s, e->attr[0])) : axes_item(rank);
	for (int i = 0; i < axes.n; i++)
		axes.i[i] = wrap_axis(scope_where(s), axes.i[i], rank);
	return axes;
}

// axes(x): all axes of x; axes(x; k): the axes k, counted from the first.
static Item fn_axes(Scope *s, const Expr *e)
{
	int rank = value_arg(s, e, 0)->shape.rank;
	bool seen[RANK] = {0};
	Item axes = axes_arg(s, e, rank);
	for (int i = 0; i < axes.n; i++) {
		if (seen[axes.i[i]])
			fail(scope_where(s), "axis %lld is given twice", (long long)axes.i[i]);
		seen[axes.i[i]] = true;
	}
	return axes;
}

// count(x; k): elements along the axes k.
static Item fn_count(Scope *s, const Expr *e)
{
	const Shape shape = value_arg(s, e, 0)->shape;
	Item axes = axes_arg(s, e, shape.rank);
	double count = 1;
	for (int i = 0; i < axes.n; i++)
		count *= (double)shape.dim[axes.i[i]];
	return num_item(count);
}

// size(x; k): valid elements along the axes k, at least 1 where the data decide.
static Item fn_size(Scope *s, const Expr *e)
{
	Ref x = ref_arg(s, e, 0);
	if (!is_dynamic(s->g, x))
		return fn_count(s, e);
	Item axes = axes_arg(s, e, val(s->g, x)->shape.rank);
	Ref one = put_num(s->g, E_i64, 1), size = one;
	for (int i = 0; i < axes.n; i++)
		size = put2(s->g, O_mul, size, put_length(s->g, x, (int)axes.i[i]));
	return ref_item(put_cast(s->g, put2(s->g, O_max, size, one), val(s->g, x)->type));
}

// sized(y, x): y, along axes where it is as long as x as dynamic as x.
static Item fn_sized(Scope *s, const Expr *e)
{
	Ref y = ref_arg(s, e, 0), x = ref_arg(s, e, 1);
	Shape own = val(s->g, y)->shape, like = val(s->g, x)->shape;
	Lengths l = *lengths_of(s->g, x);
	for (int a = 0; a < own.rank; a++)
		l.of[a] = a < like.rank && own.dim[a] == like.dim[a] ? l.of[a] : 0;
	return ref_item(put_lengths(s->g, y, &l));
}

// dynamic(x; k): 1 if the data decide the size of one of the axes k.
static Item fn_dynamic(Scope *s, const Expr *e)
{
	Ref x = ref_arg(s, e, 0);
	Item axes = axes_arg(s, e, val(s->g, x)->shape.rank);
	bool dynamic = false;
	for (int i = 0; i < axes.n; i++)
		dynamic |= lengths_of(s->g, x)->of[axes.i[i]] != 0;
	return num_item(dynamic);
}

// extent(x; a): how many elements of axis a are valid, as a value.
static Item fn_extent(Scope *s, const Expr *e)
{
	Ref x = ref_arg(s, e, 0);
	return ref_item(put_length(s->g, x, (int)axes_arg(s, e, val(s->g, x)->shape.rank).i[0]));
}

// with_extent(x, n; a): x, of which the first n elements of axis a are valid.
static Item fn_with_extent(Scope *s, const Expr *e)
{
	Ref x = ref_arg(s, e, 0), n = ref_arg(s, e, 1);
	return ref_item(put_valid(s->g, x, (int)axes_arg(s, e, val(s->g, x)->shape.rank).i[0], n));
}

// filled(x; k, c): x, whose padding along the axes k is the number c.
static Item fn_filled(Scope *s, const Expr *e)
{
	Ref x = ref_arg(s, e, 0);
	Item axes = axes_arg(s, e, val(s->g, x)->shape.rank), with = eval_item(s, e->attr[1]);
	for (int i = 0; i < axes.n; i++)
		x = put_filled(s->g, x, (int)axes.i[i], with.x);
	return ref_item(x);
}

// inv(p): the permutation that undoes p.
static Item fn_inv(Scope *s, const Expr *e)
{
	Item p = eval_arg(s, e, 0), out = {.kind = I_list, .n = p.n};
	for (int i = 0; i < p.n; i++)
		if (p.i[i] >= 0 && p.i[i] < p.n)
			out.i[p.i[i]] = i;
	return out;
}

// list(n, x): n times x.
static Item fn_list(Scope *s, const Expr *e)
{
	Item out = {.kind = I_list, .n = (int)number_arg(s, e, 0)};
	if (out.n < 0 || out.n > NUMS)
		fail(scope_where(s), "a list of %d entries", out.n);
	for (int i = 0; i < out.n; i++)
		out.i[i] = (int64_t)number_arg(s, e, 1);
	return out;
}

// A list, and behind it the number of one of its entries, which may count from the end.
static int entry_arg(Scope *s, const Expr *e, Item *list)
{
	*list = eval_arg(s, e, 0);
	int i = (int)number_arg(s, e, 1);
	i = i < 0 ? i + list->n : i;
	if (list->kind != I_list || i < 0 || i >= list->n)
		fail(scope_where(s), "entry %d of a list of %d", i, list->n);
	return i;
}

// several(a, b, ..): more than one item, for at().
static Item fn_several(Scope *s, const Expr *e)
{
	Item *item = NEWS(s->g->arena, Item, e->nin + 1);
	for (int k = 0; k < e->nin; k++)
		item[k] = eval_item(s, e->in[k]);
	return several_items(s->g->arena, e->nin, item);
}

// at(list, i), list[i]: an entry of a list, of several items or of a constant; nothing behind the
// end of the latter two.
static Item fn_at(Scope *s, const Expr *e)
{
	Item list = eval_arg(s, e, 0);
	if (list.kind == I_several) {
		int i = (int)number_arg(s, e, 1);
		return i >= 0 && i < list.n ? list.all[i] : (Item){.kind = I_none};
	}
	if (list.kind == I_ref || list.kind == I_none) {
		int i = (int)number_arg(s, e, 1);
		bool found = list.kind == I_ref && is_const(s->g, list.ref) &&
		             i < count_of(&val(s->g, list.ref)->shape);
		return found ? num_item(const_at(val(s->g, list.ref), i)) : (Item){.kind = I_none};
	}
	int i = entry_arg(s, e, &list);
	return num_item((double)list.i[i]);
}

// with(list, i, x): the list with x as entry i.
static Item fn_with(Scope *s, const Expr *e)
{
	Item list;
	int i = entry_arg(s, e, &list);
	list.i[i] = (int64_t)number_arg(s, e, 2);
	return list;
}

// zip(a, b, ..): lists of one length as one list: the first entry of each, the second of each, ..
static Item fn_zip(Scope *s, const Expr *e)
{
	Item out = {.kind = I_list};
	for (int k = 0; k < e->nin; k++) {
		Item list = eval_item(s, e->in[k]);
		if (list.kind != I_list || list.n * e->nin > NUMS ||
		    (k && list.n * e->nin != out.n))
			fail(scope_where(s), "zip of lists that differ in length, or are too long");
		out.n = list.n * e->nin;
		for (int i = 0; i < list.n; i++)
			out.i[i * e->nin + k] = list.i[i];
	}
	return out;
}

// list[from:to]: some of its entries; both ends may count from the end.
static Item fn_cut(Scope *s, const Expr *e)
{
	Item list = eval_arg(s, e, 0), out = {.kind = I_list};
	double from = number_arg(s, e, 1), to = number_arg(s, e, 2);
	from += from < 0 ? list.n : 0;
	to += to < 0 ? list.n : 0;
	if (list.kind != I_list || !(from >= 0 && from <= list.n))
		fail(scope_where(s), "entry %g of a list of %d", from, list.n);
	for (int i = (int)from; i < list.n && i < to; i++)
		out.i[out.n++] = list.i[i];
	return out;
}

// range(a, b): a, a + 1, .. b - 1.
static Item fn_range(Scope *s, const Expr *e)
{
	Item out = {.kind = I_list};
	double from = number_arg(s, e, 0), to = number_arg(s, e, 1);
	for (double x = from; x < to && out.n < NUMS; x++)
		out.i[out.n++] = (int64_t)x;
	return out;
}

// without(list, k): the list without its entries k.
static Item fn_without(Scope *s, const Expr *e)
{
	Item list = eval_arg(s, e, 0), gone = as_list(eval_arg(s, e, 1)), out = {.kind = I_list};
	for (int i = 0; i < list.n; i++) {
		bool kept = true;
		for (int k = 0; k < gone.n; k++)
			kept &= gone.i[k] != i;
		if (kept)
			out.i[out.n++] = list.i[i];
	}
	return out;
}

// is(x, n): 1 if every element of x is known to be the number n.
static Item fn_is(Scope *s, const Expr *e)
{
	double x;
	return num_item(const_num(s->g, ref_arg(s, e, 0), &x) && x == number_arg(s, e, 1));
}

char *text_of_items(Scope *s, int n, Expr *const *e)
{
	Text t = {.arena = s->g->arena};
	for (int k = 0; k < n; k++) {
		Item item = eval_item(s, e[k]);
		const Val *v = item.kind == I_ref ? val(s->g, item.ref) : NULL;
		if (v)
			say(&t, "%s", shape_text(t.arena, v->type, &v->shape));
		else if (item.kind == I_num)
			say(&t, "%.15g", item.x);
		else if (item.kind == I_text)
			say(&t, "%s", item.text);
		for (int i = 0; item.kind == I_list && i < item.n; i++)
			say(&t, i ? ", %lld" : "%lld", (long long)item.i[i]);
	}
	return t.at;
}

// need(c, ..; text, x, ..): fails with the text, and what x is, unless all conditions hold.
static Item fn_need(Scope *s, const Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		if (number_arg(s, e, k) == 0)
			fail(scope_where(s), "%s", text_of_items(s, e->nattr, e->attr));
	return (Item){.kind = I_none};
}

// when(c, a, d, b, .. z): a where the number c is not 0, else b where d is not, .. else z; the
// others are not made.
static Item fn_when(Scope *s, const Expr *e)
{
	int k = 0;
	if (e->nin % 2 == 0)
		fail(scope_where(s), "when: expected an odd number of operands, found %d", e->nin);
	while (k + 1 < e->nin && number_arg(s, e, k) == 0)
		k += 2;
	return eval_item(s, e->in[k + 1 < e->nin ? k + 1 : k]);
}

static Item list_attr(Scope *s, const Expr *e, int k)
{
	Item item = {.kind = I_none};
	if (k < e->nattr)
		item = eval_item(s, e->attr[k]);
	if (item.kind != I_list)
		fail(scope_where(s), "%s: attribute %d is no list", e->name, k);
	return item;
}

static void want_fit(Scope *s, const Expr *e, bool fits)
{
	if (!fits)
		fail(scope_where(s), "%s: the operands and attributes do not fit each other",
		     e->name);
}

// unslice(g, x; start, step), unwindow(g, x; w): gradients of moves of x. rows(r, y): see put_rows.
static Item fn_unslice(Scope *s, const Expr *e)
{
	Item start = list_attr(s, e, 0), step = list_attr(s, e, 1);
	Shape own = value_arg(s, e, 0)->shape, to = value_arg(s, e, 1)->shape;
	want_fit(s, e, own.rank == to.rank && start.n == to.rank && step.n == to.rank);
	return ref_item(put_unslice(s->g, ref_arg(s, e, 0), &to, start.i, step.i));
}

static Item fn_unwindow(Scope *s, const Expr *e)
{
	Item window = list_attr(s, e, 0);
	Shape own = value_arg(s, e, 0)->shape, to = value_arg(s, e, 1)->shape;
	const int64_t(*row)[7] = (const int64_t(*)[7])window.i;
	int n = window.n / 7;
	want_fit(s, e, window.n == 7 * n && own.rank == to.rank + n);
	for (int j = 0; j < n; j++)
		want_fit(s, e, row[j][0] >= 0 && row[j][0] < to.rank && row[j][3] >= 1);
	return ref_item(put_unwindow(s->g, ref_arg(s, e, 0), &to, n, row));
}

static Item fn_rows(Scope *s, const Expr *e)
{
	Shape own = value_arg(s, e, 0)->shape, other = value_arg(s, e, 1)->shape;
	want_fit(s, e, own.rank == other.rank && own.rank >= 2);
	return ref_item(put_rows(s->g, ref_arg(s, e, 0), &other));
}

// Functions whose result is a number or a value that one call finds.
#define FUNCTION(name, result)                                                                     \
	static Item fn_##name(Scope *s, const Expr *e)                                             \
	{                                                                                          \
		return result;                                                                     \
	}
FUNCTION(rank, num_item(value_arg(s, e, 0)->shape.rank))
FUNCTION(type, num_item(value_arg(s, e, 0)->type))
FUNCTION(float, num_item(is_float(value_arg(s, e, 0)->type)))
FUNCTION(length, num_item(eval_arg(s, e, 0).n))                    // of a list
FUNCTION(given, num_item(eval_arg(s, e, 0).kind != I_none))        // 0 for what a call leaves out
FUNCTION(causal, num_item(const_causal(s->g, ref_arg(s, e, 0))))   // 1: hides future keys, only
FUNCTION(padded, ref_item(put_all_padded(s->g, ref_arg(s, e, 0)))) // its padding is valid

static const struct {
	const char *name;
	Item (*eval)(Scope *, const Expr *);
} functions[] = {
    {"shape", fn_shape},     {"rank", fn_rank},       {"type", fn_type},
    {"axes", fn_axes},       {"count", fn_count},     {"inv", fn_inv},
    {"list", fn_list},       {"at", fn_at},           {"with", fn_with},
    {"when", fn_when},       {"unslice", fn_unslice}, {"unwindow", fn_unwindow},
    {"rows", fn_rows},       {"float", fn_float},     {"causal", fn_causal},
    {"axis", fn_axis},       {"cut", fn_cut},         {"range", fn_range},
    {"without", fn_without}, {"length", fn_length},   {"given", fn_given},
    {"is", fn_is},           {"need", fn_need},       {"size", fn_size},
    {"sized", fn_sized},     {"dynamic", fn_dynamic}, {"zip", fn_zip},
    {"several", fn_several}, {"extent", fn_extent},   {"with_extent", fn_with_extent},
    {"padded", fn_padded},   {"filled", fn_filled},
};

// ---- calls ----------------------------------------------------------------------------

// Where d's lines are computed.
static Scope inside(const Scope *s, const Def *d, Item *var)
{
	Scope inner = *s;
	inner.where = d->place;
	inner.var = var;
	inner.depth++;
	inner.look = NULL;
	return inner;
}

void run_def(const Scope *s, const Def *d, Item *var, int nout, Item *out)
{
	Scope inner = inside(s, d, var);
	if (inner.depth > DEPTH)
		fail(d->place, "%s: definitions more than %d deep", d->name, DEPTH);
	if (nout > d->nresult)
		fail(d->place, "%s: expected %d results, found %d", d->name, nout, d->nresult);
	int first = d->nvar - d->nlocal;
	for (int k = 0; k < d->nlocal; k++)
		var[first + k] = eval_item(&inner, d->local[k]);
	for (int k = 0; k < nout; k++)
		out[k] = eval_item(&inner, d->result[k]);
}

// An attribute that the call leaves out has its default, or is that of the node being lowered.
static Item call_def(Scope *s, const Def *d, const Expr *e)
{
	Item out, var[d->nvar + 1], *attr = var + d->nin;
	Scope inner = inside(s, d, var);
	if (e->nattr > d->nattr)
		fail(scope_where(s), "%s: expected %d attributes, found %d", d->name, d->nattr,
		     e->nattr);
	for (int k = 0; k < d->nin; k++)
		var[k] = k < e->nin ? eval_item(s, e->in[k]) : (Item){.kind = I_none};
	for (int k = 0; k < d->nattr; k++) {
		const char *name = d->names[d->nin + k];
		if (k < e->nattr)
			attr[k] = eval_item(s, e->attr[k]);
		else if (d->attr[k])
			attr[k] = eval_item(&inner, d->attr[k]);
		else if (s->host && s->host->attr)
			attr[k] = s->host->attr(s->host->context, d->name, name);
		else
			fail(scope_where(s), "%s: attribute %s is missing", d->name, name);
	}
	run_def(s, d, var, 1, &out);
	return out;
}

static Item eval_call(Scope *s, const Expr *e)
{
	for (int i = 0; i < COUNT(functions); i++)
		if (!strcmp(functions[i].name, e->name))
			return functions[i].eval(s, e);
	const Def *d = s->book ? find_def(s->book, e->name, e->nin) : NULL;
	Item out;
	if (d)
		return call_def(s, d, e);
	if (!s->host || !s->host->call(s, e, &out))
		fail(scope_where(s), "nothing is called %s with %d operands", e->name, e->nin);
	return out;
}

bool literal_name(const char *name, double *x)
{
	int number = FIND(name, elems);
	if (number < 0)
		number = FIND(name, acts);
	*x = number;
	return number >= 0;
}

static Item eval_list(Scope *s, const Expr *e)
{
	Item out = {.kind = I_list};
	for (int i = 0; i < e->nin; i++) {
		Item item = eval_item(s, e->in[i]);
		if (item.kind == I_num && item.x == floor(item.x)) {
			item.n = 1;
			item.i[0] = (int64_t)item.x;
		} else if (item.kind != I_list) {
			fail(scope_where(s), "entry %d of a list is no integer", i);
		}
		if (out.n + item.n > NUMS)
			fail(scope_where(s), "a list of more than %d entries", NUMS);
		memcpy(out.i + out.n, item.i, (size_t)item.n * sizeof *item.i);
		out.n += item.n;
	}
	return out;
}

Item eval_item(Scope *s, const Expr *e)
{
	double x;
	switch (e->kind) {
	case X_num:
		return num_item(e->x);
	case X_name:
		if (e->var >= 0)
			return s->var[e->var];
		Ref found = s->look ? s->look(s->context, e->name) : 0;
		if (found)
			return ref_item(found);
		if (literal_name(e->name, &x))
			return num_item(x);
		if (strcmp(e->name, "none"))
			fail(scope_where(s), "nothing is called '%s'", e->name);
		return (Item){.kind = I_none};
	case X_text:
		return (Item){.kind = I_text, .text = e->name};
	case X_list:
		return eval_list(s, e);
	case X_call:
		return e->op < OPS ? eval_prim_call(s, e) : eval_call(s, e);
	}
	never(ExprKind);
}

Ref eval_expr(Graph *g, const char *where, const Expr *e, Lookup *look, void *context)
{
	Scope s = {.g = g, .book = g->book, .where = where, .look = look, .context = context};
	Item item = eval_item(&s, e);
	return item_ref(&s, &item, E_f32);
}

Ref book_eval(Graph *g, const char *where, const char *text, Lookup *look, void *context)
{
	return eval_expr(g, where, parse_text(g->arena, where, text), look, context);
}

double book_number(Arena *arena, const char *where, const char *text)
{
	Scope s = {.where = where};
	Item item = eval_item(&s, parse_text(arena, where, text));
	if (item.kind != I_num)
		fail(where, "'%s' is not a number", text);
	return item.x;
}
