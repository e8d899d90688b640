// unique.c: ONNX Unique: entries that are equal, told once. Takes the node being lowered. Gives as
// many entries as there can be, and their count. Keeps: entries are put in order, so that equal
// ones stand side by side, the first of them first.
#include "ops.h"

typedef struct Kinds { // of n entries: those that are equal are of one kind
	Ref fresh;     // b8[n]: entry i stands first of its kind
	Ref at;        // i64[n]: by kind: where its first entry stands
	Ref number;    // i64[n]: entry i's kind
} Kinds;

static Ref repeated(Graph *g, Ref number, int64_t n)
{
	return put_broadcast(g, number, shape_of(1, &n));
}

// Kinds in the order of their values. there: the entries that are, b8[n], in that order.
static Kinds kinds_of(Graph *g, Ref rows, Ref place, Ref there)
{
	int64_t n = val(g, place)->shape.dim[0];
	Ref zeros = repeated(g, put_i64(g, 0), n);
	rows = put_gather(g, rows, place, 0);
	Ref fresh = repeated(g, put_num(g, E_b8, 1), MIN(n, 1));
	if (n > 1) { // the first row, and each that differs from the one before
		Ref same = put2(g, O_eq, take_range(g, rows, 0, 1, n - 1),
		                take_range(g, rows, 0, 0, n - 1));
		same = reduce_away(g, O_amin, put_cast(g, same, E_i32), 1);
		same = put_cast(g, same, E_b8);
		fresh = put_concat(g, 0, 2, (Ref[]){fresh, put1(g, O_not, same)});
	}
	fresh = put2(g, O_and, fresh, there);
	Ref before = so_far(g, fresh);
	Ref number = put3(g, O_select, fresh, before,
	                  put2(g, O_max, put2(g, O_sub, before, put_i64(g, 1)), zeros));
	Kinds k = {.at = put_in_order(g, fresh, before, place)};
	k.fresh = put_scatter(g, repeated(g, put_num(g, E_b8, 0), n), place, fresh, 0, 0);
	k.number = put_scatter(g, zeros, place, number, 0, 0);
	return k;
}

// Results: the entries at the first places of their kinds, those places, the kind of each entry,
// and how many of each there are.
void lower_unique(Call *c)
{
	Graph *g = c->g;
	Ref x = fixed_operand(c, 0);
	const AttributeProto *given = find_attr(c, "axis");
	int axis = given ? (int)axis_of(c, given->i, val(g, x)->shape.rank) : 0;
	x = given ? x : in_line(c, x);
	Ref length = put_length(g, x, axis);
	Ref rows = put_all_filled(g, put_padded(g, x, axis), 0);
	rows = axis ? move_axis(g, rows, axis, 0) : rows;
	Shape s = val(g, rows)->shape;
	int64_t n = s.dim[0];
	rows = put_reshape(g, rows, shape_of(2, (int64_t[]){n, count_of(&s) / MAX(n, 1)}));
	bool known = is_const(g, x) && is_const(g, length);
	Ref place = order_of(c, insert_axis(g, rows, 0), length);
	place = drop_axes(g, place, 1, &(int64_t){0});
	Ref there = put2(g, O_lt, counting(g, n, known), length);
	Kinds k = kinds_of(g, rows, place, there);
	if (!attr_int(c, "sorted", 1)) { // kinds in the order of their first entries
		Ref before = so_far(g, k.fresh);
		k.number = put_gather(g, before, put_gather(g, k.at, k.number, 0), 0);
		k.at = put_in_order(g, k.fresh, before, counting(g, n, known));
	}
	Ref kinds = reduce_away(g, O_sum, put_cast(g, k.fresh, E_i64), 0);
	Ref zeros = repeated(g, put_i64(g, 0), n);
	Ref times = put_scatter(g, zeros, k.number, put_cast(g, there, E_i64), 0, 1);
	int64_t most = is_const(g, kinds) ? const_int_at(val(g, kinds), 0) : n;
	Ref at = put_valid(g, take_range(g, k.at, 0, 0, most), 0, kinds);
	times = put_valid(g, take_range(g, times, 0, 0, most), 0, kinds);
	Lengths l = {.of = {lengths_of(g, x)->of[axis]}};
	Ref out[4] = {put_gather(g, put_padded(g, x, axis), at, axis), at,
	              put_lengths(g, k.number, &l), times};
	for (int i = 0; i < c->nout && i < 4; i++)
		c->out[i] = out[i];
}
