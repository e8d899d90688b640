// dynamic.c: propagates dynamic lengths, by one rule per primitive.
// A dimension is an upper bound. If the data decide the size of an axis, the value has a length,
// and elements after it are padding. put() calls this file if operands have lengths: the
// primitive's rule in prims.def may fill the padding with the neutral element, replace the
// operation, or fail. Invariant: padding repeats valid elements, so that it introduces no new
// values (such as NaN); no valid element depends on it.
#include "dynamic.h"
#include <math.h>
#include <string.h>

// ---- lengths of values ----------------------------------------------------------------

static const Lengths none;

const Lengths *lengths_of(const Graph *g, Ref r)
{
	const uint64_t *cell = g->lengths ? table_find(g->lengths, &r, sizeof r) : NULL;
	return cell ? (const Lengths *)(uintptr_t)*cell : &none;
}

bool is_dynamic(const Graph *g, Ref r)
{
	return r && lengths_of(g, r) != &none;
}

// A value with lengths is an alias of one without: a reshape to the same shape, which only this
// file makes. Only aliases have lengths, and only this file sees their operands, so that the door
// simplifies as if there were no lengths.
static Ref unaliased(const Graph *g, Ref x)
{
	return is_dynamic(g, x) ? val(g, x)->in[0] : x;
}

Ref put_lengths(Graph *g, Ref x, const Lengths *l)
{
	struct {
		Ref of;
		Lengths l;
	} key = {unaliased(g, x), *l};
	if (!memcmp(l, &none, sizeof none))
		return key.of;
	if (!g->lengths)
		g->lengths = table_new(g->arena);
	const uint64_t *known = table_find(g->lengths, &key, sizeof key);
	if (known)
		return (Ref)*known;
	Ref alias = put_alias(g, key.of);
	*table_cell(g->lengths, &key, sizeof key) = alias;
	*table_cell(g->lengths, &alias, sizeof alias) =
	    (uint64_t)(uintptr_t)take_copy(g->arena, l, sizeof *l);
	return alias;
}

Ref put_all_padded(Graph *g, Ref x)
{
	return put_lengths(g, x, &none);
}

Ref put_padded(Graph *g, Ref x, int axis)
{
	Lengths l = *lengths_of(g, x);
	l.of[axis] = 0;
	return put_lengths(g, x, &l);
}

Ref put_length(Graph *g, Ref x, int axis)
{
	Ref length = lengths_of(g, x)->of[axis];
	return length ? length : put_num(g, E_i64, (double)val(g, x)->shape.dim[axis]);
}

// ---- padding --------------------------------------------------------------------------

// Returns Booleans along one axis, of size 1 along the others.
static Ref are_valid(Graph *g, Ref x, int axis, Ref length)
{
	return put2(g, O_lt, put_numbers(g, &val(g, x)->shape, axis), length);
}

static Ref part_along(Graph *g, Ref x, int axis, int64_t start, int64_t count)
{
	int64_t starts[RANK] = {0};
	Shape s = val(g, x)->shape;
	starts[axis] = start;
	s.dim[axis] = count;
	return put_slice(g, x, starts, s.dim, NULL);
}

Ref put_filled(Graph *g, Ref x, int axis, double with)
{
	Ref length = lengths_of(g, x)->of[axis];
	if (!length)
		return x;
	x = put_padded(g, x, axis);
	Lengths l = *lengths_of(g, x);
	Elem type = val(g, x)->type;
	Ref fill;
	if (type == E_b8 || is_float(type) || isfinite(with)) {
		fill = put_num(g, type, type == E_b8 ? with > 0 : with);
	} else { // the extreme of an integer type stands for an infinite number
		int64_t most = type == E_i32 ? INT32_MAX : INT64_MAX;
		int64_t extreme = with > 0 ? most : -most - 1;
		fill = put_const(g, type, (Shape){0}, &extreme);
	}
	x = put3(g, O_select, are_valid(g, x, axis, length), x, fill);
	return put_lengths(g, x, &l);
}

Ref put_all_filled(Graph *g, Ref x, double with)
{
	for (int a = 0; a < val(g, x)->shape.rank; a++)
		x = put_filled(g, x, a, with);
	return x;
}

Ref put_valid(Graph *g, Ref x, int axis, Ref length)
{
	int64_t d = val(g, x)->shape.dim[axis];
	x = put_padded(g, x, axis);
	if (!d)
		return x;
	if (is_const(g, length))
		return part_along(g, x, axis, 0, MIN(const_int_at(val(g, length), 0), d));
	Lengths l = *lengths_of(g, x);
	Ref first = part_along(g, x, axis, 0, 1);
	x = put3(g, O_select, are_valid(g, x, axis, length), x, first);
	l.of[axis] = length;
	return put_lengths(g, x, &l);
}

// ---- an operation ---------------------------------------------------------------------

typedef struct Dynamic {
	Graph *g;
	Op op;
	int nin;
	Ref *in;
	const Attr *attr;
	Lengths out;    // of the result
	Ref result;     // 0: the operation on `in`
	unsigned again; // axes along which padding must repeat valid elements again
} Dynamic;

static const Shape *shape_at(const Dynamic *d, int k)
{
	return &val(d->g, d->in[k])->shape;
}

// 1 along axes that the operand does not have, as rank 0 has none.
static int64_t size_at(const Dynamic *d, int k, int axis)
{
	return axis < shape_at(d, k)->rank ? shape_at(d, k)->dim[axis] : 1;
}

static Ref length_at(const Dynamic *d, int k, int axis)
{
	return lengths_of(d->g, d->in[k])->of[axis];
}

static void expect_fixed(const Dynamic *d, int k, int axis)
{
	if (!length_at(d, k, axis))
		return;
	d->g->refused = length_at(d, k, axis);
	fail(graph_where(d->g), "a size depends on the data (at most %lld); expected a fixed size",
	     (long long)shape_at(d, k)->dim[axis]);
}

// Passes the length of operand k's axis on to the result's axis `to`, unless it has one.
static void pass(Dynamic *d, int k, int axis, int to)
{
	if (!d->out.of[to])
		d->out.of[to] = length_at(d, k, axis);
}

// Cuts operand k to at most so many elements along an axis.
static void cut(Dynamic *d, int k, int axis, int64_t most)
{
	Lengths l = *lengths_of(d->g, d->in[k]);
	if (shape_at(d, k)->dim[axis] <= most)
		return;
	Ref x = part_along(d->g, put_all_padded(d->g, d->in[k]), axis, 0, most);
	d->in[k] = put_lengths(d->g, x, &l);
}

// Operands 0..n-1 agree along an axis, or have size 1: all get the least of their bounds.
static void agree(Dynamic *d, int n, int axis)
{
	int64_t most = INT64_MAX, size = 1;
	for (int k = 0; k < n; k++)
		if (size_at(d, k, axis) != 1 || length_at(d, k, axis))
			most = MIN(most, size_at(d, k, axis));
	for (int k = 0; k < n; k++) {
		if (length_at(d, k, axis))
			cut(d, k, axis, most);
		size = MAX(size, size_at(d, k, axis));
	}
	for (int k = 0; k < n; k++) {
		pass(d, k, axis, axis);
		if (d->out.of[axis] && size_at(d, k, axis) < size) // a broadcast of at most one
			expect_fixed(d, k, axis);
	}
}

// ---- rules ----------------------------------------------------------------------------

static void rule_each(Dynamic *d)
{
	int rank = 0;
	for (int k = 0; k < d->nin; k++)
		rank = MAX(rank, shape_at(d, k)->rank);
	for (int a = 0; a < rank; a++)
		agree(d, d->nin, a);
}

static void rule_expanded(Dynamic *d)
{
	d->out = *lengths_of(d->g, d->in[0]);
	for (int a = 0; a < d->attr->n; a++)
		if (d->attr->i[a] != shape_at(d, 0)->dim[a])
			expect_fixed(d, 0, a);
}

static void rule_reduced(Dynamic *d)
{
	for (int i = 0; i < d->attr->n; i++)
		d->in[0] = put_filled(d->g, d->in[0], (int)d->attr->i[i], reducers[d->op].start);
	d->out = *lengths_of(d->g, d->in[0]);
}

static void rule_along(Dynamic *d)
{
	int naxes = d->op == O_cumsum ? 1 : d->attr->n;
	d->out = *lengths_of(d->g, d->in[0]);
	for (int i = 0; i < naxes; i++) {
		int axis = (int)d->attr->i[i];
		d->again |= d->out.of[axis] ? 1 << axis : 0;
		d->in[0] = put_filled(d->g, d->in[0], axis, reducers[d->op].start);
	}
}

static void rule_permuted(Dynamic *d)
{
	for (int a = 0; a < d->attr->n; a++)
		pass(d, 0, (int)d->attr->i[a], a);
}

// Returns the axis in from..end-1 that has a length, if it is the first longer than 1, so that the
// valid elements come first; -1: none has a length; -2: it is not the first.
static int leading_axis(const Shape *s, const Lengths *l, int from, int end)
{
	int first = from, found = -1;
	while (first < end && s->dim[first] == 1 && !l->of[first])
		first++;
	for (int a = from; a < end; a++)
		if (l->of[a])
			found = a == first && found == -1 ? a : -2;
	return found;
}

// Returns the length of an axis of size `to` that holds the elements of one of size `from`; 0 if it
// may not be an integer.
static Ref scaled_length(Graph *g, Ref length, int64_t from, int64_t to)
{
	const Val *v = val(g, length), *by = v->op == O_mul ? val(g, v->in[1]) : NULL;
	int64_t times = by && by->op == O_const ? const_int_at(by, 0) : 1;
	if (from == to)
		return length;
	if (to % from == 0)
		return put2(g, O_mul, length, put_num(g, E_i64, (double)(to / from)));
	return from % to == 0 && times % (from / to) == 0
	           ? put2(g, O_mul, v->in[0], put_num(g, E_i64, (double)(times / (from / to))))
	           : 0;
}

bool reshaped_lengths(Graph *g, Ref x, const Shape *t, Lengths *to)
{
	const Shape s = val(g, x)->shape;
	const Lengths *from = lengths_of(g, x);
	AxisGroup groups[AXIS_GROUPS];
	int n = axis_groups(&s, t, groups);
	for (const AxisGroup *of = groups; of < groups + n; of++) {
		int lead = leading_axis(&s, from, of->x0, of->x1);
		int other = leading_axis(t, to, of->y0, of->y1);
		if (lead == -1 && other == -1)
			continue;
		bool given = other >= 0;
		other = given ? other : of->y0;
		while (!given && other < of->y1 - 1 && t->dim[other] == 1)
			other++;
		if (lead < 0 || other < of->y0 || other >= of->y1)
			return false;
		Ref length = scaled_length(g, from->of[lead], s.dim[lead], t->dim[other]);
		if (!given || length == from->of[lead])
			to->of[other] = length;
		if (!to->of[other])
			return false;
	}
	return n >= 0;
}

static void rule_reshaped(Dynamic *d)
{
	Shape to = {.rank = d->attr->n};
	memcpy(to.dim, d->attr->i, sizeof *to.dim * (size_t)to.rank);
	if (reshaped_lengths(d->g, d->in[0], &to, &d->out))
		return;
	for (int a = 0; a < shape_at(d, 0)->rank; a++)
		expect_fixed(d, 0, a);
}

static void rule_sliced(Dynamic *d)
{
	Graph *g = d->g;
	d->out = *lengths_of(g, d->in[0]);
	for (int a = 0; a < shape_at(d, 0)->rank; a++) {
		SliceAxis s = slice_axes(d->attr)[a];
		if (s.step < 0)
			expect_fixed(d, 0, a);
		Ref length = d->out.of[a];
		bool full = !s.start && s.step == 1 && s.count >= shape_at(d, 0)->dim[a];
		if (!length || full)
			continue;
		if (s.start || s.step > 1) {
			Ref zero = put_num(g, E_i64, 0), step = put_num(g, E_i64, (double)s.step);
			Ref more = put_num(g, E_i64, (double)(s.step - 1 - s.start));
			length = put2(g, O_div, put2(g, O_add, length, more), step);
			length = put2(g, O_max, length, zero);
		}
		d->out.of[a] = put2(g, O_min, length, put_num(g, E_i64, (double)s.count));
	}
}

static void rule_padded(Dynamic *d)
{
	d->out = *lengths_of(d->g, d->in[0]);
	for (int a = 0; a < shape_at(d, 0)->rank; a++)
		if (d->attr->i[2 * a] || d->attr->i[2 * a + 1])
			expect_fixed(d, 0, a);
}

static void rule_windowed(Dynamic *d)
{
	d->out = *lengths_of(d->g, d->in[0]);
	WindowAxes w = window_axes(d->attr);
	for (int k = 0; k < w.n; k++)
		expect_fixed(d, 0, (int)w.at[k].axis);
}

static void rule_joined(Dynamic *d)
{
	Graph *g = d->g;
	int axis = (int)d->attr->i[0];
	bool dynamic = false;
	for (int a = 0; a < shape_at(d, 0)->rank; a++)
		if (a != axis)
			agree(d, d->nin, a);
	for (int k = 0; k < d->nin; k++)
		dynamic |= length_at(d, k, axis) != 0;
	if (!dynamic)
		return;
	Ref x = put_padded(g, d->in[0], axis), length = put_length(g, d->in[0], axis);
	for (int k = 1; k < d->nin; k++) {
		int64_t most = val(g, x)->shape.dim[axis], both = most + shape_at(d, k)->dim[axis];
		x = put_concat(g, axis, 2, (Ref[]){x, put_padded(g, d->in[k], axis)});
		if (!is_const(g, length)) { // skip the padding between them
			Ref gap = put2(g, O_sub, put_num(g, E_i64, (double)most), length);
			Ref at = put_iota(g, shape_of(1, &both), 0);
			at = put3(g, O_select, put2(g, O_lt, at, length), at,
			          put2(g, O_add, at, gap));
			Ref last = put_num(g, E_i64, (double)(both - 1));
			x = put_gather(g, x, put2(g, O_min, at, last), axis);
		}
		length = put2(g, O_add, length, put_length(g, d->in[k], axis));
	}
	d->result = put_valid(g, x, axis, length);
}

// If one factor of a product is 0, the other may have any value.
static void rule_contracted(Dynamic *d)
{
	int m = shape_at(d, 0)->rank - 2, n = m + 1;
	for (int a = 0; a < m; a++)
		agree(d, 2, a);
	bool left = length_at(d, 0, n) != 0, right = length_at(d, 1, m) != 0;
	if (left)
		cut(d, 0, n, shape_at(d, 1)->dim[m]);
	if (right)
		cut(d, 1, m, shape_at(d, 0)->dim[n]);
	if (left)
		d->in[0] = put_filled(d->g, d->in[0], n, 0);
	else if (right)
		d->in[1] = put_filled(d->g, d->in[1], m, 0);
	pass(d, 0, m, m);
	pass(d, 1, n, n);
}

static void rule_gathered(Dynamic *d)
{
	int axis = (int)d->attr->i[0], more = shape_at(d, 1)->rank;
	expect_fixed(d, 0, axis);
	for (int a = 0; a < shape_at(d, 0)->rank; a++)
		if (a != axis)
			pass(d, 0, a, a < axis ? a : a + more - 1);
	for (int a = 0; a < more; a++)
		pass(d, 1, a, axis + a);
}

// Padding of the indices addresses one more element, which is cut off again.
static void rule_scattered(Dynamic *d)
{
	Graph *g = d->g;
	int axis = (int)d->attr->i[0];
	int64_t before[RANK] = {0}, after[RANK] = {0}, size = shape_at(d, 0)->dim[axis];
	d->out = *lengths_of(g, d->in[0]);
	for (int a = 0; a < shape_at(d, 1)->rank; a++)
		cut(d, 2, axis + a, shape_at(d, 1)->dim[a]);
	if (!is_dynamic(g, d->in[1]))
		return;
	after[axis] = 1;
	Ref index = put_all_filled(g, d->in[1], (double)size);
	Ref x = put_pad(g, put_all_padded(g, d->in[0]), before, after, 0);
	x = put_scatter(g, x, index, put_all_padded(g, d->in[2]), axis, (int)d->attr->i[1]);
	d->result = put_lengths(g, part_along(g, x, axis, 0, size), &d->out);
}

// Replaces a composite, whose reduced axis is dynamic, by its definition.
static void decompose(Dynamic *d)
{
	Val v = {.op = d->op, .nin = d->nin, .in = d->in, .attr = d->attr};
	v.type = val(d->g, d->in[0])->type;
	d->result = book_decompose(d->g, &v, d->in);
}

static void rule_normed(Dynamic *d)
{
	d->out = *lengths_of(d->g, d->in[0]);
	for (int i = 1; i < d->attr->n && !d->result; i++)
		if (d->out.of[d->attr->i[i]])
			decompose(d);
}

// With a causal mask, queries and keys are aligned at the end.
static void rule_attended(Dynamic *d)
{
	int rank = shape_at(d, 0)->rank, queries = rank - 2, width = rank - 1;
	bool same = length_at(d, 0, queries) == length_at(d, 1, queries) &&
	            shape_at(d, 0)->dim[queries] == shape_at(d, 1)->dim[queries];
	for (int k = 0; k < 2 && d->attr->i[0] && !same; k++)
		expect_fixed(d, k, queries);
	for (int a = 0; a < queries; a++)
		agree(d, 3, a);
	pass(d, 0, queries, queries);
	pass(d, 2, width, width);
	if (length_at(d, 0, width) || length_at(d, 1, width) || length_at(d, 1, queries) ||
	    length_at(d, 2, queries))
		decompose(d);
}

static void rule_scored(Dynamic *d)
{
	decompose(d);
}

static void rule_unattended(Dynamic *d)
{
	decompose(d);
}

// Values without operands, and loops: the reader sets the lengths of their results.
static void rule_none(Dynamic *d)
{
	(void)d;
}

static void (*const rules[OPS])(Dynamic *) = {
#define P(name, cls, arity, type, attr, weight, rule, text) [O_##name] = rule_##rule,
#include "prims.def"
#undef P
};

Ref put_dynamic(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	Dynamic d = {.g = g, .op = op, .nin = nin, .attr = attr};
	d.in = take_copy(g->arena, in, sizeof *in * (size_t)nin);
	rules[op](&d);
	if (d.result)
		return d.result;
	for (int k = 0; k < nin; k++)
		d.in[k] = unaliased(g, d.in[k]);
	Ref r = put_fixed(g, op, nin, d.in, attr);
	for (int a = 0; d.again >> a; a++)
		if (d.again >> a & 1)
			r = put_valid(g, r, a, d.out.of[a]);
	return put_lengths(g, r, &d.out);
}
