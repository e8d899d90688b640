// gather.c: lowers GatherElements, GatherND and the scatters, and checks indices.
// Indices lie in their axis: constants are checked when the file is read, inputs before they are
// used, and indices computed from data are clamped, and the run fails afterward.
#include "ops.h"
#include <string.h>

// ---- indices --------------------------------------------------------------------------

// True if a known value of an input is negative.
static bool known_negative(const Reader *r, const char *input)
{
	const Known *known = find_known(r, input);
	if (!known || is_float(known->type))
		return false;
	Val v = {.type = known->type, .data = known->bytes};
	for (int64_t i = 0; i < count_of(&known->shape); i++)
		if (const_at(&v, i) < 0)
			return true;
	return false;
}

// Returns the input whose integers, all of them, the value has; NULL if it is computed, or a part
// of an input, whose other parts may index something longer.
static Slot *integer_input(const Reader *r, Ref x)
{
	Graph *g = r->g;
	const Val *v = val(g, x);
	while (v->op == O_cast || v->op == O_reshape || v->op == O_permute)
		v = val(g, v->in[0]);
	Slot *slot = v->op == O_slot && !r->nest ? &g->slots.at[v->attr->i[0]] : NULL;
	return slot && slot->kind == S_input && !is_float(slot->type) ? slot : NULL;
}

// Marks the input that `index` is as indices below n, for which data are checked. False if it is
// none.
static bool limit_input(const Reader *r, Ref index, int64_t n)
{
	Slot *slot = integer_input(r, index);
	if (!slot || known_negative(r, slot->name))
		return false;
	slot->limit = slot->limit ? MIN(slot->limit, n) : n;
	slot->ignore = 0;
	return true;
}

// Returns the largest element of x if it is above 0, else the least; of rank 0.
static Ref farthest(Graph *g, Ref x)
{
	int rank = val(g, x)->shape.rank;
	int64_t axes[RANK];
	for (int a = 0; a < rank; a++)
		axes[a] = a;
	Ref most = drop_axes(g, put_reduce(g, O_amax, x, rank, axes), rank, axes),
	    least = drop_axes(g, put_reduce(g, O_amin, x, rank, axes), rank, axes);
	return put3(g, O_select, put2(g, O_lt, put_num(g, E_i64, 0), most), most, least);
}

void add_check(Reader *r, const char *text, Ref found)
{
	Graph *g = r->g;
	double number;
	found = farthest(g, found);
	if (const_num(g, found, &number) && !number)
		return;
	if (r->active)
		found = put3(g, O_select, r->active, found, put_num(g, E_i64, 0));
	Checks *checks = r->nest ? &r->nest->checks : &r->checks;
	if (!checks->by_text)
		checks->by_text = table_new(r->arena);
	uint64_t *cell = table_cell_s(checks->by_text, text);
	if (*cell) {
		Check *check = &checks->at[*cell - 1];
		Ref both[2] = {put_rank(g, check->index, 1), put_rank(g, found, 1)};
		check->index = farthest(g, put_concat(g, 0, 2, both));
		return;
	}
	PUSH(r->arena, *checks, ((Check){text, found}));
	*cell = (uint64_t)checks->count;
}

// A run fails if one of the indices is `out`.
static void check_out(Call *c, Ref index, Ref out, const char *expected)
{
	Graph *g = c->g;
	Ref found = put_all_filled(g, put3(g, O_select, out, index, put_num(g, E_i64, 0)), 0);
	add_check(c->r,
	          format(c->r->arena, CHECK_OF "%s: index out of range; expected %s",
	                 node_where(c->r->arena, c->node), expected),
	          found);
}

static Ref outside(Graph *g, Ref index, Ref low, Ref high)
{
	return put2(g, O_or, put2(g, O_lt, index, low), put2(g, O_lt, high, index));
}

// A run fails if an index is out of [low, high], but for `ignore`, unless that is proven not to be.
static void check_indices(Call *c, Ref index, int64_t low, int64_t high, const int64_t *ignore)
{
	Graph *g = c->g;
	Interval is = interval_of(g, index);
	if ((is.low >= (double)low && is.high <= (double)high) || low > high)
		return;
	Ref out =
	    outside(g, index, put_num(g, E_i64, (double)low), put_num(g, E_i64, (double)high));
	if (ignore) {
		Ref counts = put2(g, O_eq, index, put_num(g, E_i64, (double)*ignore));
		out = put2(g, O_and, out, put1(g, O_not, counts));
	}
	check_out(c, index, out,
	          format(c->r->arena, "%lld to %lld", (long long)low, (long long)high));
}

// labels_below(y; n, ignore): y, whose labels are to be below n, or the one to ignore.
Item fn_labels_below(Call *c, Scope *s, const Expr *e)
{
	Graph *g = c->g;
	Item labels = call_arg(s, e, 0), ignored = call_attr(s, e, 1);
	int64_t classes = call_integer(s, e, 0), ignore = (int64_t)ignored.x;
	bool ignores = ignored.kind == I_num;
	Slot *slot = integer_input(c->r, labels.ref);
	if (!slot) {
		check_indices(c, put_cast(g, labels.ref, E_i64), 0, classes - 1,
		              ignores ? &ignore : NULL);
		return labels;
	}
	if (!slot->limit)
		slot->ignore = ignores ? ignore : 0;
	slot->limit = slot->limit ? MIN(slot->limit, classes) : classes;
	return labels;
}

// Returns an index into x along the axis, negative ones counted from the end.
static Ref wrap_index(Call *c, Ref x, Ref index, int axis)
{
	Graph *g = c->g;
	int64_t n = val(g, x)->shape.dim[axis];
	index = put_cast(g, index, E_i64);
	const Val *v = val(g, index);
	if (v->op == O_iota)
		return index;
	Ref length = put_length(g, x, axis);
	if (!is_const(g, length)) {
		Ref zero = put_i64(g, 0), one = put_i64(g, 1);
		Ref out = outside(g, index, put2(g, O_sub, zero, length),
		                  put2(g, O_sub, length, one)),
		    none = put2(g, O_eq, index, zero); // out if there is no entry at all
		check_out(c, put3(g, O_select, none, put_i64(g, INT64_MIN), index), out,
		          "one of the entries that the data leave");
		index = larger_of(g, from_end(g, index, length), zero);
		return smaller_of(g, index, put_i64(g, n - 1));
	}
	if (limit_input(c->r, index, n))
		return index;
	if (v->op != O_const) {
		check_indices(c, index, -n, n - 1, NULL);
		Ref zero = put_num(g, E_i64, 0), end = put_num(g, E_i64, (double)(n - 1));
		index = from_end(g, index, put_num(g, E_i64, (double)n));
		return smaller_of(g, larger_of(g, index, zero), end);
	}
	int64_t count = count_of(&v->shape);
	int64_t *wrapped = NEWS(c->r->arena, int64_t, count + 1);
	for (int64_t i = 0; i < count; i++) {
		int64_t at = const_int_at(v, i);
		if (at < -n || at >= n)
			invalid_node(c, "index %lld, but the axis has %lld %s", (long long)at,
			             (long long)n, PLURAL(n, "entry", "entries"));
		wrapped[i] = at < 0 ? at + n : at;
	}
	return put_const(g, E_i64, v->shape, wrapped);
}

// index(x, i; axis): i as gather takes it: checked, and counted from the first element.
Item fn_index(Call *c, Scope *s, const Expr *e)
{
	Ref x = call_value(s, e, 0), index = call_value(s, e, 1);
	int64_t axis = axis_of(c, call_integer(s, e, 0), val(c->g, x)->shape.rank);
	return ref_item(wrap_index(c, x, index, (int)axis));
}

// inside(i; n): indices kept in [0, n); those of an input are checked.
Item fn_inside(Call *c, Scope *s, const Expr *e)
{
	Graph *g = c->g;
	Ref given = call_value(s, e, 0), index = put_cast(g, given, E_i64);
	int64_t n = call_integer(s, e, 0);
	if (!is_const(g, index) && limit_input(c->r, index, n))
		return ref_item(index);
	for (int k = 0; k < c->nin; k++)
		if (c->in[k] == given)
			check_indices(c, index, 0, n - 1, NULL);
	index = larger_of(g, index, put_i64(g, 0));
	return ref_item(smaller_of(g, index, put_i64(g, n - 1)));
}

// Returns the positions, in the flattened input 0, of the elements that input 1 names: its indices
// replace the coordinate along one axis.
static Ref meant_elements(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, at = in_val(c, 1)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank);
	if (at.rank != s.rank)
		invalid_node(c, "the indices have rank %d, the input %d", at.rank, s.rank);
	for (int a = 0; a < s.rank; a++)
		if (a != axis && at.dim[a] > s.dim[a])
			invalid_node(c, "along axis %d, the indices have size %lld, the input %lld",
			             a, (long long)at.dim[a], (long long)s.dim[a]);
	Ref index = wrap_index(c, c->in[0], c->in[1], axis);
	int64_t stride[RANK], step[RANK], count = count_of(&at);
	row_strides(&s, stride);
	row_strides(&at, step);
	if (is_const(g, index)) {
		int64_t *position = NEWS(g->arena, int64_t, count + 1);
		for (int64_t i = 0; i < count; i++) {
			position[i] = const_int_at(val(g, index), i) * stride[axis];
			for (int a = 0; a < at.rank; a++)
				position[i] += a == axis ? 0 : i / step[a] % at.dim[a] * stride[a];
		}
		return put_const(g, E_i64, at, position);
	}
	Ref sum = put2(g, O_mul, index, put_i64(g, stride[axis]));
	for (int a = 0; a < s.rank; a++)
		if (a != axis && at.dim[a] != 1) {
			Ref own = put2(g, O_mul, put_iota(g, at, a), put_i64(g, stride[a]));
			sum = put2(g, O_add, sum, own);
		}
	return sum;
}

// ---- gather and scatter ---------------------------------------------------------------

void lower_gather_elements(Call *c)
{
	Ref at = meant_elements(c);
	c->out[0] = put_gather(c->g, flat(c->g, put_all_padded(c->g, c->in[0])), at, 0);
}

// min and max depend on the order of integers.
enum { SCATTER_MIN = 3 };

static int scatter_mode(const Call *c)
{
	static const char *const modes[] = {"none", "add", "mul", "min", "max"};
	const char *mode = attr_string(c, "reduction", "none");
	int found = FIND(mode, modes);
	if (found < 0)
		invalid_node(c, "reduction '%s'", mode);
	return found;
}

// True for 0, 1, .. n - 1.
static bool counts_all(const Graph *g, Ref index, int64_t n)
{
	const Val *v = val(g, index);
	if (v->op == O_iota)
		return v->shape.rank == 1 && v->shape.dim[0] == n;
	if (v->op != O_const || count_of(&v->shape) != n)
		return false;
	for (int64_t i = 0; i < n; i++)
		if (const_int_at(v, i) != i)
			return false;
	return true;
}

// Scatters the rows `new` to the positions `at` of `rows`.
static Ref scatter_signed(Call *c, Ref rows, Ref at, Ref new)
{
	Graph *g = c->g;
	Shape s = val(g, rows)->shape;
	int mode = scatter_mode(c);
	if (!is_dynamic(g, at) && !is_dynamic(g, new)) {
		at = flat(g, at);
		s.dim[0] = val(g, at)->shape.dim[0];
		new = put_reshape(g, new, s);
		if (mode == 0 && counts_all(g, at, val(g, rows)->shape.dim[0]))
			return new;
	}
	return put_scatter(g, rows, at, new, 0, mode);
}

// The same for rows of the type of input 0.
static Ref scatter_rows(Call *c, Ref rows, Ref at, Ref new)
{
	if (scatter_mode(c) < SCATTER_MIN)
		return scatter_signed(c, rows, at, new);
	rows = scatter_signed(c, signed_order(c, 0, rows), at, signed_order(c, 0, new));
	return signed_order(c, 0, rows);
}

// Warns if PyTorch's newer exporter wrote a mean as no reduction: ONNX has none.
static void doubt_mean(const Call *c)
{
	const char *reduction = argument_of(c->node, "aten.scatter_reduce.two]", 4);
	if (reduction && starts_with(reduction, " mean") && !is_const(c->g, c->in[2]))
		doubt(c->r,
		      format(c->r->arena,
		             "%s: the mean of scatter_reduce did not reach the file, and the last "
		             "element at an index stays; divide a sum by counts, and export again",
		             node_where(c->r->arena, c->node)));
}

// Warns if PyTorch's older exporter may have meant a sum: it writes index_add, as a scatter of
// which the program adds the result, into zeros without a reduction.
static void doubt_sum(const Call *c)
{
	const Reader *r = c->r;
	double zero;
	if (c->space->depth || call_of(c->node) || scatter_mode(c) || is_const(c->g, c->in[1]) ||
	    !starts_with(r->proto->producer_name, "pytorch") || !const_num(c->g, c->in[0], &zero) ||
	    zero)
		return;
	const Reading *read = find_name(r->file, c->node->output[0])->first;
	if (read && !read->next && !strcmp(read->node->op_type, "Add"))
		doubt(
		    c->r,
		    format(c->r->arena,
		           "%s: where indices repeat, the last element stays; if the program calls "
		           "index_add, which this exporter writes so, export it with dynamo=True",
		           node_where(c->r->arena, c->node)));
}

void lower_scatter_elements(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 2);
	Ref at = meant_elements(c);
	const Val *v = val(g, at);
	doubt_mean(c);
	doubt_sum(c);
	int64_t count = v->op == O_const && !scatter_mode(c) ? count_of(&v->shape) : 0;
	bool *seen = count ? NEWS(c->r->arena, bool, count_of(&s)) : NULL;
	for (int64_t i = 0; i < count; i++) {
		int64_t place = const_int_at(v, i);
		if (seen[place]) // older exporters write scatter_add and index_add without a sum
			note(c->r,
			     "%s writes some places twice without adding (exporters lose the sum "
			     "of scatter_add and index_add below opset 16): the last one stays",
			     node_where(c->r->arena, c->node));
		seen[place] = true;
	}
	Ref x = scatter_rows(c, flat(g, put_all_padded(g, c->in[0])), at, c->in[2]);
	c->out[0] = put_lengths(g, put_reshape(g, x, s), lengths_of(g, c->in[0]));
}

// Index tuples (the last axis of `index`) as positions along the first `k` axes of s, taken as one.
static Ref tuple_positions(Call *c, const Shape *s, int first, Ref index)
{
	Graph *g = c->g;
	int last = val(g, index)->shape.rank - 1;
	int k = (int)val(g, index)->shape.dim[last];
	if (first + k > s->rank)
		invalid_node(c, "index tuples of %d into %d %s", k, s->rank,
		             PLURAL(s->rank, "dimension", "dimensions"));
	Shape at = val(g, index)->shape;
	at.rank--;
	Ref sum = put_broadcast(g, put_num(g, E_i64, 0), at);
	for (int j = 0; j < k; j++) {
		Ref part = put_reshape(g, take_range(g, index, last, j, 1), at);
		part = wrap_index(c, c->in[0], part, first + j);
		sum = put2(g, O_mul, sum, put_num(g, E_i64, (double)s->dim[first + j]));
		sum = put2(g, O_add, sum, part);
	}
	return sum;
}

// Returns x with its first axes as one.
static Ref rows_of(Graph *g, Ref x, int axes)
{
	for (int a = 0; a < axes; a++)
		x = put_padded(g, x, a);
	return merge_axes(g, x, 0, axes);
}

// A run fails if there are not as many tuples as updates.
static void check_updates(Call *c, Ref tuples, Ref updates)
{
	Graph *g = c->g;
	Ref zero = put_i64(g, 0), same = put2(g, O_eq, tuples, updates), found = tuples;
	found = put3(g, O_select, put2(g, O_eq, found, zero), put_i64(g, INT64_MIN), found);
	long long n = is_const(g, updates) ? const_int_at(val(g, updates), 0) : 0;
	const char *expected = is_const(g, updates)
	                           ? format(c->r->arena, "%lld index tuples, one", n)
	                           : "one index tuple";
	add_check(c->r,
	          format(c->r->arena, CHECK_OF "%s: expected %s for each update",
	                 node_where(c->r->arena, c->node), expected),
	          put3(g, O_select, same, zero, found));
}

// Returns the updates, as many rows as tuples, where the data decide the number of either.
static Ref match_updates(Call *c, Ref at, Ref new)
{
	Graph *g = c->g;
	const Val *v = val(g, new);
	if (val(g, at)->shape.rank != 1 || !v->shape.rank ||
	    !(is_dynamic(g, at) || lengths_of(g, new)->of[0]))
		return new;
	int64_t n = val(g, at)->shape.dim[0], rows = v->shape.dim[0];
	check_updates(c, put_length(g, at, 0), put_length(g, new, 0));
	if (n < rows)
		return take_range(g, put_padded(g, new, 0), 0, 0, n);
	return n == rows ? new : put_extended(g, put_padded(g, new, 0), 0, n);
}

void lower_scatter_nd(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 2);
	Ref index = put_cast(g, (in_val(c, 1), c->in[1]), E_i64);
	if (!val(g, index)->shape.rank)
		invalid_node(c, "expected tuples of indices, found a scalar");
	int k = (int)val(g, index)->shape.dim[val(g, index)->shape.rank - 1];
	Ref at = tuple_positions(c, &s, 0, index), new = match_updates(c, at, c->in[2]);
	Ref x = scatter_rows(c, rows_of(g, put_all_padded(g, c->in[0]), k), at, new);
	c->out[0] = put_lengths(g, put_reshape(g, x, s), lengths_of(g, c->in[0]));
}

void lower_gather_nd(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	int batch = (int)attr_int(c, "batch_dims", 0);
	Ref index = put_cast(g, c->in[1], E_i64);
	Shape is = val(g, index)->shape;
	if (batch < 0 || batch >= is.rank || batch > s.rank)
		invalid_node(c, "batch_dims %d", batch);
	for (int a = 0; a < batch; a++)
		if (is.dim[a] != s.dim[a])
			invalid_node(c, "along axis %d, the indices have size %lld, the input %lld",
			             a, (long long)is.dim[a], (long long)s.dim[a]);
	int k = (int)is.dim[is.rank - 1];
	Ref at = tuple_positions(c, &s, batch, index);
	int64_t inner = 1;
	for (int a = batch; a < batch + k; a++)
		inner *= s.dim[a];
	for (int a = batch - 1; a >= 0; inner *= s.dim[a--]) {
		Ref row = put_iota(g, val(g, at)->shape, a);
		at = put2(g, O_add, at, put2(g, O_mul, row, put_num(g, E_i64, (double)inner)));
	}
	c->out[0] = put_gather(g, rows_of(g, c->in[0], batch + k), at, 0);
}
