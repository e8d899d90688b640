// sort.c: sorts by a bitonic network.
// Takes keys of any type. Gives the places of the entries, first to last, each once. Keeps: a loop
// whose trips each compare every entry with one other (a bitonic network): their number is about
// half the square of the logarithm of how many entries there are, whatever these hold.
#include "ops.h"

// Rows of n entries, each a key of m numbers.
typedef struct Order {
	Graph *g; // the body of the loop
	Ref keys; // [rows * n, m]
	int64_t rows, n, m;
	Ref count;    // i64: entries behind so many come last
	bool largest; // come first
} Order;

// The keys of the entries at `place`, [rows, width]: [rows, width, m].
static Ref keys_at(const Order *o, Ref place)
{
	Graph *g = o->g;
	Ref row =
	    put2(g, O_mul, put_iota(g, shape_of(2, (int64_t[]){o->rows, 1}), 0), put_i64(g, o->n));
	Ref at = put2(g, O_min, place, put_i64(g, o->n - 1));
	return put_gather(g, o->keys, put2(g, O_add, at, row), 0);
}

// Does x come before y by its number? NaN is larger than all.
static Ref is_before(const Order *o, Ref x, Ref y)
{
	Graph *g = o->g;
	Ref small = o->largest ? y : x, large = o->largest ? x : y;
	Ref less = put2(g, O_lt, small, large);
	if (!is_float(val(g, x)->type))
		return less;
	Ref late = put2(g, O_and, put1(g, O_isnan, large), put1(g, O_not, put1(g, O_isnan, small)));
	return put2(g, O_or, less, late);
}

// -1, 0 or 1 where keys x come before, are equal to, or come behind y: [rows, width].
static Ref compared(const Order *o, Ref x, Ref y)
{
	Graph *g = o->g;
	Ref before = put_cast(g, is_before(o, x, y), E_i64),
	    behind = put_cast(g, is_before(o, y, x), E_i64);
	Ref sign = put2(g, O_sub, behind, before);
	int64_t axis = 2, dims[] = {1, 1, o->m};
	if (o->m > 1) {
		Ref first = put_reduce(g, O_argmax, put1(g, O_abs, sign), 1, &axis);
		Ref here = put2(g, O_eq, put_iota(g, shape_of(3, dims), 2), first);
		sign = put_reduce(g, O_sum, put3(g, O_select, here, sign, put_i64(g, 0)), 1, &axis);
	}
	return drop_axes(g, sign, 1, &axis);
}

// One trip: entries `span` apart are exchanged where they stand in the wrong order, which is the
// other way round in every other block. What is there comes first, then keys decide among that,
// then places: each counts more than all that follow.
static Ref exchanged(const Order *o, Ref place, Ref span, Ref block)
{
	Graph *g = o->g;
	int64_t width = val(g, place)->shape.dim[1];
	Ref here = put_iota(g, shape_of(1, &width), 0), zero = put_i64(g, 0);
	Ref other = put_gather(g, place, put2(g, O_xor, here, span), 1);
	Ref sign = compared(o, keys_at(o, other), keys_at(o, place));
	Ref late[2] = {put2(g, O_le, o->count, other), put2(g, O_le, o->count, place)};
	Ref behind = put2(g, O_sub, put_cast(g, late[0], E_i64), put_cast(g, late[1], E_i64));
	sign = put3(g, O_select, late[0], zero, sign);
	Ref tie = put1(g, O_sign, put2(g, O_sub, other, place));
	Ref all = put2(g, O_add, put2(g, O_add, scaled(g, behind, 4), scaled(g, sign, 2)), tie);
	Ref low = put2(g, O_eq, put2(g, O_and, here, span), zero),
	    up = put2(g, O_eq, put2(g, O_and, here, block), zero);
	Ref wants_first = put_rank(g, put2(g, O_eq, low, up), 2),
	    is_first = put2(g, O_lt, all, zero);
	return put3(g, O_select, put2(g, O_eq, is_first, wants_first), other, place);
}

// The trips: how far apart what is compared lies, and how long blocks in order are to become.
static int64_t plan_trips(Graph *g, int64_t width, Ref *span, Ref *block)
{
	enum { MOST = 63 * 64 / 2 };
	int64_t spans[MOST], blocks[MOST], n = 0;
	for (int64_t b = 2; b <= width; b *= 2)
		for (int64_t s = b / 2; s > 0; s /= 2, n++)
			spans[n] = s, blocks[n] = b;
	*span = put_ints(g, (int)n, spans);
	*block = put_ints(g, (int)n, blocks);
	return n;
}

// What comes first before the first trip: the entries as they stand, up to a power of two.
static Ref as_they_stand(Graph *g, const Order *o, bool known)
{
	int64_t dims[] = {o->rows, 1};
	while (dims[1] < o->n)
		dims[1] *= 2;
	return put_broadcast(g, counting(g, dims[1], known), shape_of(2, dims));
}

Ref order_of(Reader *r, Ref keys, bool largest, Ref count)
{
	Graph *g = r->g;
	LoopScope nest, *home = r->nest;
	Shape s = val(g, keys)->shape;
	Order o = {.rows = s.dim[0], .n = s.dim[1], .m = s.dim[2], .largest = largest};
	Ref flat = merge_axes(g, keys, 0, 2), span, block;
	Ref place = as_they_stand(g, &o, is_const(g, keys) && is_const(g, count));
	LoopInfo cycle = {.carried = 1, .scanned = 2};
	cycle.trips = plan_trips(g, val(g, place)->shape.dim[1], &span, &block);
	if (val(g, flat)->type == E_b8)
		flat = put_cast(g, flat, E_i32);
	open_nest(r, &nest);
	o.g = nest.body;
	place = nest_slot(r, &nest, place, false);
	span = nest_slot(r, &nest, span, true);
	block = nest_slot(r, &nest, block, true);
	o.keys = bring_in(r, flat, home);
	o.count = bring_in(r, count, home);
	add_out(nest.body, "place", exchanged(&o, place, span, block));
	close_nest(r, &nest);
	put_loop_info(r, &cycle, &nest, put_i64(g, cycle.trips), &place);
	return take_range(g, place, 1, 0, o.n);
}
