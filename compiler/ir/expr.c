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

Item num_item(double x)
{
	return (Item){.kind = I_num, .x = x};
}

Item ref_item(Ref r)
{
	return (Item){.kind = r ? I_ref : I_none, .ref = r};
}

double item_number(const Scope *s, const char *name, const Item *item)
{
	double x = item->kind == I_list && item->n == 1 ? (double)item->i[0] : item->x;
	bool number = item->kind == I_num || (item->kind == I_list && item->n == 1) ||
	              (item->kind == I_ref && s->g && const_num(s->g, item->ref, &x));
	if (!number)
		fail(scope_where(s), "%s: expected a number", name);
	return x;
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
	if (!is_float(type) &&
	    !(item->x >= -0x1p63 && item->x < 0x1p63 && item->x == floor(item->x)))
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
	Item item[ATTRIBUTES];
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
		uint64_t rest = 1;
		int64_t *open = NULL; // a dimension of -1 is what the others leave
		for (int i = 0; i < item[0].n; i++)
			if (item[0].i[i] == -1)
				open = &item[0].i[i];
			else
				rest = cost_product(rest, (uint64_t)item[0].i[i]);
		if (open)
			*open = rest ? (int64_t)((uint64_t)count_of(first) / rest) : 0;
	}
	Attr attr = attr_join(s, op, first->rank, nattr, item);
	return ref_item(put(s->g, op, e->nin, refs, &attr));
}

static Item eval_prim_call(Scope *s, const Expr *e)
{
	const Prim *prim = &prims[e->op];
	if ((prim->arity >= 0 && e->nin != prim->arity) || (prim->arity < 0 && e->nin == 0))
		fail(scope_where(s), "%s: expected %d %s, found %d", prim->name,
		     MAX(prim->arity, 1), PLURAL(MAX(prim->arity, 1), "operand", "operands"),
		     e->nin);
	bool value = (prim->cls != C_map && prim->cls != C_reduce) || e->op == O_cast;
	if (value && !s->g)
		fail(scope_where(s), "%s needs a value, found only numbers", prim->name);
	Item small[3], *in = e->nin <= COUNT(small) ? small : NEWS(s->g->arena, Item, e->nin);
	for (int k = 0; k < e->nin; k++) {
		in[k] = eval_item(s, e->in[k]);
		// The second operand of and, or is not evaluated if a number as the first decides.
		if (k == 0 && in[0].kind == I_num &&
		    ((e->op == O_and && in[0].x == 0) || (e->op == O_or && in[0].x != 0)))
			return num_item(e->op == O_or);
		if (in[k].kind == I_none && e->op != O_eq)
			fail(scope_where(s), "%s of none", prim->name);
		value |= in[k].kind == I_ref;
	}
	if (value)
		return put_prim(s, e, in);
	if (prim->cls == C_map)
		return compute_items(s, e->op, e->nin, in);
	const Reducer *reducer = &reducers[e->op];
	double x = reducer->start;
	if (in->kind != I_list || reducer->step == O_const)
		fail(scope_where(s), "%s needs a value or a list", prim->name);
	for (int i = 0; i < in->n; i++)
		x = compute(s, reducer->step, x, (double)in->i[i]);
	return num_item(x);
}

// ---- functions on shapes and lists ----------------------------------------------------
// compiler/book/maps.am lists them, with the meaning of each.

typedef struct Call { // of a function
	Scope *s;
	Graph *g; // of s
	const Expr *e;
	Item *in; // the operands and attributes that its signature lists
} Call;

static const Val *operand(const Call *c, int k)
{
	return val(c->g, c->in[k].ref);
}

static Item fn_shape(const Call *c)
{
	const Shape *shape = &operand(c, 0)->shape;
	Item out = {.kind = I_list, .n = shape->rank};
	memcpy(out.i, shape->dim, (size_t)out.n * sizeof *out.i);
	return out;
}

static Item fn_type(const Call *c)
{
	return num_item(operand(c, 0)->type);
}

static Item fn_float(const Call *c)
{
	return num_item(is_float(operand(c, 0)->type));
}

static Item fn_length(const Call *c)
{
	return num_item(c->in[0].n);
}

static Item fn_given(const Call *c)
{
	return num_item(c->in[0].kind != I_none);
}

static Item fn_causal(const Call *c)
{
	return num_item(const_causal(c->g, c->in[0].ref));
}

static Item fn_padded(const Call *c)
{
	Ref x = c->in[0].ref;
	for (int i = 0; i < c->in[1].n; i++)
		x = put_padded(c->g, x, (int)c->in[1].i[i]);
	return ref_item(x);
}

static Item fn_axes(const Call *c)
{
	bool seen[RANK] = {0};
	const Item *axes = &c->in[1];
	for (int i = 0; i < axes->n; i++) {
		if (seen[axes->i[i]])
			fail(scope_where(c->s), "axis %lld is given twice", (long long)axes->i[i]);
		seen[axes->i[i]] = true;
	}
	return *axes;
}

static Item fn_count(const Call *c)
{
	double count = 1;
	for (int i = 0; i < c->in[1].n; i++)
		count *= (double)operand(c, 0)->shape.dim[c->in[1].i[i]];
	return num_item(count);
}

static Item fn_size(const Call *c)
{
	Graph *g = c->g;
	Ref x = c->in[0].ref;
	if (!is_dynamic(g, x))
		return fn_count(c);
	Ref one = put_num(g, E_i64, 1), size = one;
	for (int i = 0; i < c->in[1].n; i++)
		size = put2(g, O_mul, size, put_length(g, x, (int)c->in[1].i[i]));
	return ref_item(put_cast(g, put2(g, O_max, size, one), val(g, x)->type));
}

static Item fn_sized(const Call *c)
{
	const Shape *own = &operand(c, 0)->shape, *like = &operand(c, 1)->shape;
	Lengths l = *lengths_of(c->g, c->in[1].ref);
	for (int a = 0; a < own->rank; a++)
		l.of[a] = a < like->rank && own->dim[a] == like->dim[a] ? l.of[a] : 0;
	return ref_item(put_lengths(c->g, c->in[0].ref, &l));
}

static Item fn_dynamic(const Call *c)
{
	bool dynamic = false;
	for (int i = 0; i < c->in[1].n; i++)
		dynamic |= lengths_of(c->g, c->in[0].ref)->of[c->in[1].i[i]] != 0;
	return num_item(dynamic);
}

static Item fn_extent(const Call *c)
{
	return ref_item(put_length(c->g, c->in[0].ref, (int)c->in[1].i[0]));
}

static void want_fit(const Call *c, bool fits)
{
	if (!fits)
		fail(scope_where(c->s), "%s: the operands and attributes do not fit each other",
		     c->e->name);
}

static Item fn_with_extent(const Call *c)
{
	const Val *n = operand(c, 1);
	want_fit(c, n->type == E_i64 && n->shape.rank == 0);
	return ref_item(put_valid(c->g, c->in[0].ref, (int)c->in[2].i[0], c->in[1].ref));
}

static Item fn_filled(const Call *c)
{
	Ref x = c->in[0].ref;
	for (int i = 0; i < c->in[1].n; i++)
		x = put_filled(c->g, x, (int)c->in[1].i[i], c->in[2].x);
	return ref_item(x);
}

static Item fn_inv(const Call *c)
{
	const Item *p = &c->in[0];
	Item out = {.kind = I_list, .n = p->n};
	for (int i = 0; i < p->n; i++)
		if (p->i[i] >= 0 && p->i[i] < p->n)
			out.i[p->i[i]] = i;
	return out;
}

static Item fn_several(const Call *c)
{
	const Expr *e = c->e;
	if (!c->g)
		fail(scope_where(c->s), "several needs a value, found only numbers");
	Item *item = NEWS(c->g->arena, Item, e->nin + 1);
	for (int k = 0; k < e->nin; k++)
		item[k] = eval_item(c->s, e->in[k]);
	return (Item){.kind = I_several, .n = e->nin, .all = item};
}

// Returns operand 1 as an entry of a list of operand 0, counted from the first.
static int entry_of_list(const Call *c)
{
	const Item *list = &c->in[0];
	int i = (int)c->in[1].x;
	i = i < 0 ? i + list->n : i;
	if (list->kind != I_list || i < 0 || i >= list->n)
		fail(scope_where(c->s), "entry %d of a list of %d", i, list->n);
	return i;
}

// at(list, i), list[i]: an entry of a list, of several items or of a constant; none after the end
// of the latter two.
static Item fn_at(const Call *c)
{
	const Item *list = &c->in[0];
	int i = (int)c->in[1].x;
	bool found = false;
	if (list->kind == I_several)
		return i >= 0 && i < list->n ? list->all[i] : (Item){.kind = I_none};
	if (list->kind != I_ref && list->kind != I_none)
		return num_item((double)list->i[entry_of_list(c)]);
	if (list->kind == I_ref)
		found = is_const(c->g, list->ref) && i >= 0 && i < count_of(&operand(c, 0)->shape);
	return found ? num_item(const_at(operand(c, 0), i)) : (Item){.kind = I_none};
}

static Item fn_with(const Call *c)
{
	Item list = c->in[0];
	list.i[entry_of_list(c)] = (int64_t)c->in[2].x;
	return list;
}

static Item fn_zip(const Call *c)
{
	Item out = {.kind = I_list};
	int nin = c->e->nin;
	for (int k = 0; k < nin; k++) {
		Item list = eval_item(c->s, c->e->in[k]);
		if (list.kind != I_list || list.n * nin > NUMS || (k && list.n * nin != out.n))
			fail(scope_where(c->s),
			     "zip of lists that differ in length, or are too long");
		out.n = list.n * nin;
		for (int i = 0; i < list.n; i++)
			out.i[i * nin + k] = list.i[i];
	}
	return out;
}

static Item fn_where(const Call *c)
{
	const Item *list = &c->in[0];
	Item out = {.kind = I_list};
	for (int i = 0; i < list->n; i++)
		if (list->i[i] != 0)
			out.i[out.n++] = i;
	return out;
}

static Item fn_cut(const Call *c)
{
	const Item *list = &c->in[0];
	Item out = {.kind = I_list};
	double from = c->in[1].x, to = c->in[2].x;
	from += from < 0 ? list->n : 0;
	to += to < 0 ? list->n : 0;
	if (list->kind != I_list || !(from >= 0 && from <= list->n))
		fail(scope_where(c->s), "entry %g of a list of %d", from, list->n);
	for (int i = (int)from; i < list->n && i < to; i++)
		out.i[out.n++] = list->i[i];
	return out;
}

static Item fn_range(const Call *c)
{
	Item out = {.kind = I_list};
	for (double x = c->in[0].x; x < c->in[1].x; x++) {
		if (out.n == NUMS)
			fail(scope_where(c->s), "a list of more than %d entries", NUMS);
		out.i[out.n++] = (int64_t)x;
	}
	return out;
}

static Item fn_without(const Call *c)
{
	const Item *list = &c->in[0], *gone = &c->in[1];
	Item out = {.kind = I_list};
	for (int i = 0; i < list->n; i++) {
		bool kept = true;
		for (int k = 0; k < gone->n; k++)
			kept &= gone->i[k] != i;
		if (kept)
			out.i[out.n++] = list->i[i];
	}
	return out;
}

static Item fn_is(const Call *c)
{
	double x;
	return num_item(const_num(c->g, c->in[0].ref, &x) && x == c->in[1].x);
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

// Returns operand k, which is evaluated only now; none is 0.
static double number_operand(const Call *c, int k)
{
	Item item = eval_item(c->s, c->e->in[k]);
	return item.kind == I_none ? 0 : item_number(c->s, c->e->name, &item);
}

static Item fn_need(const Call *c)
{
	const Expr *e = c->e;
	if (!c->g)
		fail(scope_where(c->s), "need needs a value, found only numbers");
	for (int k = 0; k < e->nin; k++)
		if (number_operand(c, k) == 0)
			fail(scope_where(c->s), "%s", text_of_items(c->s, e->nattr, e->attr));
	return (Item){.kind = I_none};
}

static Item fn_when(const Call *c)
{
	const Expr *e = c->e;
	int k = 0;
	if (e->nin % 2 == 0)
		fail(scope_where(c->s), "when: expected an odd number of operands, found %d",
		     e->nin);
	while (k + 1 < e->nin && number_operand(c, k) == 0)
		k += 2;
	return eval_item(c->s, e->in[k + 1 < e->nin ? k + 1 : k]);
}

// unslice(g, x; start, step), unwindow(g, x; w): gradients of moves of x.
static Item fn_unslice(const Call *c)
{
	const Item *start = &c->in[2], *step = &c->in[3];
	const Shape *own = &operand(c, 0)->shape, *to = &operand(c, 1)->shape;
	want_fit(c, own->rank == to->rank && start->n == to->rank && step->n == to->rank);
	return ref_item(put_unslice(c->g, c->in[0].ref, to, start->i, step->i));
}

static Item fn_unwindow(const Call *c)
{
	const Item *window = &c->in[2];
	const Shape *own = &operand(c, 0)->shape, *to = &operand(c, 1)->shape;
	const WindowAxis *w = (const WindowAxis *)window->i;
	int n = window->n / WINDOW_NUMS;
	want_fit(c, window->n == n * WINDOW_NUMS && own->rank == to->rank + n);
	for (int j = 0; j < n; j++)
		want_fit(c, w[j].axis >= 0 && w[j].axis < to->rank && w[j].stride >= 1);
	return ref_item(put_unwindow(c->g, c->in[0].ref, to, n, w));
}

// The signature has a letter per operand: v a value, n a number, l a list (a number is a list of
// one), i any item; then per attribute: N a number, L a list, A axes of operand 0, all if left out.
// Functions that take any number of operands, or evaluate only some, have none.
static const struct {
	const char *name, *signature;
	Item (*eval)(const Call *);
} functions[] = {
    {"zip", "", fn_zip},     {"where", "l", fn_where},    {"several", "", fn_several},
    {"need", "", fn_need},   {"padded", "vA", fn_padded}, {"with_extent", "vvA", fn_with_extent},
    {"type", "v", fn_type},  {"shape", "v", fn_shape},    {"dynamic", "vA", fn_dynamic},
    {"axes", "vA", fn_axes}, {"given", "i", fn_given},    {"extent", "vA", fn_extent},
    {"size", "vA", fn_size}, {"range", "nn", fn_range},   {"unslice", "vvLL", fn_unslice},
    {"at", "in", fn_at},     {"sized", "vv", fn_sized},   {"unwindow", "vvL", fn_unwindow},
    {"inv", "l", fn_inv},    {"float", "v", fn_float},    {"length", "i", fn_length},
    {"cut", "inn", fn_cut},  {"count", "vA", fn_count},   {"filled", "vAN", fn_filled},
    {"is", "vn", fn_is},     {"causal", "v", fn_causal},  {"without", "ll", fn_without},
    {"when", "", fn_when},   {"with", "inn", fn_with}};

int function_index(const char *name)
{
	return FIND(name, functions);
}

static void convert_item(const Call *c, char letter, Item *item)
{
	if (letter == 'v' && item->kind != I_ref)
		fail(scope_where(c->s), "%s: expected a value", c->e->name);
	if (letter == 'n' || letter == 'N')
		item->x = item_number(c->s, c->e->name, item);
	if (strchr("lLA", letter) && item->kind == I_num)
		*item = (Item){.kind = I_list, .n = 1, .i = {(int64_t)item->x}};
	int rank = letter == 'A' ? operand(c, 0)->shape.rank : 0;
	if (letter == 'A' && c->e->nattr == 0)
		*item = axes_item(rank);
	if (strchr("lLA", letter) && item->kind != I_list)
		fail(scope_where(c->s), "%s: expected a list", c->e->name);
	if (letter != 'A')
		return;
	for (int i = 0; i < item->n; i++)
		item->i[i] = wrap_axis(c->s, item->i[i], rank);
}

static Item call_function(Scope *s, const Expr *e)
{
	const char *signature = functions[e->function].signature;
	Item in[strlen(signature) + 1];
	Call c = {.s = s, .g = s->g, .e = e, .in = in};
	int nin = 0;
	for (int i = 0; signature[i]; i++) {
		bool attr = strchr("NLA", signature[i]);
		if (!attr && nin >= e->nin)
			fail(scope_where(s), "%s: expected more than %d %s", e->name, e->nin,
			     PLURAL(e->nin, "operand", "operands"));
		if (!attr)
			in[i] = eval_item(s, e->in[nin++]);
		else if (i - nin < e->nattr)
			in[i] = eval_item(s, e->attr[i - nin]);
		else
			in[i] = (Item){.kind = I_none};
		convert_item(&c, signature[i], &in[i]);
	}
	return functions[e->function].eval(&c);
}

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
		fail(d->place, "%s: expected %d %s, found %d", d->name, nout,
		     PLURAL(nout, "result", "results"), d->nresult);
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
		fail(scope_where(s), "%s: expected %d %s, found %d", d->name, d->nattr,
		     PLURAL(d->nattr, "attribute", "attributes"), e->nattr);
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

static _Noreturn void unknown_call(const Scope *s, const Expr *e)
{
	const Def *d = s->book ? book_defs(s->book, BOOK_def, e->name) : NULL;
	if (d && !d->next) {
		int least = d->nin - __builtin_popcount(d->optional);
		bool fewer = e->nin < least;
		int bound = fewer ? least : d->nin;
		const char *how = least == d->nin ? "" : fewer ? "at least " : "at most ";
		fail(scope_where(s), "%s: expected %s%d %s, found %d", e->name, how, bound,
		     PLURAL(bound, "argument", "arguments"), e->nin);
	}
	fail(scope_where(s), "unknown function '%s' of %d %s", e->name, e->nin,
	     PLURAL(e->nin, "argument", "arguments"));
}

static Item eval_call(Scope *s, const Expr *e)
{
	if (e->function >= 0)
		return call_function(s, e);
	const Def *d = s->book ? find_def(s->book, e->name, e->nin) : NULL;
	Item out;
	if (d)
		return call_def(s, d, e);
	if (!s->host || !s->host->call(s, e, &out))
		unknown_call(s, e);
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
			fail(scope_where(s), "entry %d of a list: expected an integer", i);
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
			fail(scope_where(s), "unknown name '%s'", e->name);
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

double book_number(Arena *arena, const char *where, const char *text)
{
	Scope s = {.where = where};
	Item item = eval_item(&s, parse_text(arena, where, text));
	if (item.kind != I_num)
		fail(where, "'%s' is not a number", text);
	return item.x;
}
