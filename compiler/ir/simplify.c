// simplify.c: simplifies by structure, without the book.
// Moves without effect, moves of moves, casts of casts, reductions of reductions, and broadcasts
// that maps make unnecessary; equations are in the book. Output: a simpler value of the same type
// and shape, or 0.
#include "plan.h"
#include "type.h"

static bool keeps_shape(const Case *q)
{
	return same_shape(q->shape, &operand(q, 0)->shape);
}

// True for a move or reduction without effect: the result is operand 0.
static bool is_unchanged(const Case *q)
{
	Class cls = prims[q->op].cls;
	bool other = q->op == O_permute || q->op == O_argmax || q->op == O_cumsum;
	if ((cls != C_move && cls != C_reduce) || other || !keeps_shape(q))
		return false;
	for (int a = 0; q->op == O_slice && a < q->shape->rank; a++)
		if (slice_axes(q->attr)[a].step != 1 && q->shape->dim[a] > 1)
			return false;
	return true;
}

static Ref reshape(const Case *q)
{
	const Val *x = operand(q, 0);
	if (x->op == O_reshape)
		return put_reshape(q->g, x->in[0], *q->shape);
	if (x->op != O_iota)
		return 0;
	// Counting along an axis is unaffected by other axes of size 1.
	int a = 0, b = 0, counted = -1;
	for (;; a++, b++) {
		while (a < x->shape.rank && x->shape.dim[a] == 1 && a != x->attr->i[0])
			a++;
		while (b < q->shape->rank && q->shape->dim[b] == 1)
			b++;
		if (a == x->shape.rank || b == q->shape->rank)
			break;
		if (x->shape.dim[a] != q->shape->dim[b])
			return 0;
		if (a == x->attr->i[0])
			counted = b;
	}
	bool same = a == x->shape.rank && b == q->shape->rank;
	return same && counted >= 0 ? put_iota(q->g, *q->shape, counted) : 0;
}

static Ref permute(const Case *q)
{
	const Val *x = operand(q, 0);
	bool ordered = true;
	int64_t last = -1, perm[RANK];
	for (int a = 0; a < q->attr->n; a++) {
		if (x->shape.dim[q->attr->i[a]] == 1)
			continue;
		ordered &= q->attr->i[a] > last;
		last = q->attr->i[a];
	}
	if (ordered)
		return put_reshape(q->g, q->in[0], *q->shape);
	if (x->op != O_permute)
		return 0;
	for (int a = 0; a < q->attr->n; a++)
		perm[a] = x->attr->i[q->attr->i[a]];
	return put_permute(q->g, x->in[0], perm);
}

// A slice of one operand of a concat.
static Ref slice_of_operand(const Case *q, const Val *x)
{
	Graph *g = q->g;
	Attr attr = attr_copy(&(Val){.attr = q->attr});
	SliceAxis *s = (SliceAxis *)attr.i + x->attr->i[0];
	int64_t first = s->start, last = first + (s->count - 1) * s->step;
	// Where each operand begins is cached, because each may be sliced out again.
	if (!g->starts)
		g->starts = table_new(g->arena);
	uint64_t *cell = table_cell(g->starts, &q->in[0], sizeof q->in[0]);
	int64_t *starts = (int64_t *)(uintptr_t)*cell;
	if (!starts) {
		starts = NEWS(g->arena, int64_t, x->nin + 1);
		for (int k = 0; k < x->nin; k++)
			starts[k + 1] = starts[k] + val(g, x->in[k])->shape.dim[x->attr->i[0]];
		*cell = (uint64_t)(uintptr_t)starts;
	}
	int k = 0; // the last operand that begins at or before the slice
	for (int end = x->nin; end - k > 1;) {
		int middle = (k + end) / 2;
		*(starts[middle] <= MIN(first, last) ? &k : &end) = middle;
	}
	if (MAX(first, last) >= starts[k + 1])
		return 0;
	s->start = first - starts[k];
	return put(g, O_slice, 1, &x->in[k], &attr);
}

static Ref slice(const Case *q)
{
	const Val *x = operand(q, 0);
	if (x->op == O_concat)
		return slice_of_operand(q, x);
	if (x->op != O_slice)
		return 0;
	Attr attr = attr_copy(&(Val){.attr = q->attr});
	for (int a = 0; a < x->shape.rank; a++) {
		const SliceAxis *inner = &slice_axes(x->attr)[a];
		SliceAxis *s = (SliceAxis *)attr.i + a;
		s->start = inner->start + s->start * inner->step;
		s->step *= inner->step;
	}
	return put(q->g, O_slice, 1, &x->in[0], &attr);
}

static Ref expand(const Case *q)
{
	const Val *x = operand(q, 0);
	if (x->op == O_expand)
		return put_expand(q->g, x->in[0], *q->shape);
	if (x->op == O_iota && x->shape.dim[x->attr->i[0]] == q->shape->dim[x->attr->i[0]])
		return put_iota(q->g, *q->shape, (int)x->attr->i[0]);
	return 0;
}

// Windows of one element at its own index are the operand with more axes of size 1.
static Ref window(const Case *q)
{
	WindowAxes windows = window_axes(q->attr);
	for (int k = 0; k < windows.n; k++) {
		const WindowAxis *w = &windows.at[k];
		bool own =
		    w->out == operand(q, 0)->shape.dim[w->axis] && w->size == 1 && !w->before;
		if (!own || w->stride != w->up)
			return 0;
	}
	return put_reshape(q->g, q->in[0], *q->shape);
}

static Ref filled(const Case *q, Elem type, double x)
{
	return put_broadcast(q->g, put_num(q->g, type, x), *q->shape);
}

// Returns a sum of attend_db over leading axes with these added up by the kernel of attention: an
// element is the sum of one of its workers, of which there are enough. What is left of the longest
// axis is a sum of a few parts, so that there are more workers.
static Ref sum_of_slopes(const Case *q, const Val *x)
{
	enum { MANY = 32, TERMS = 4 }; // workers of a CPU; the fewest terms of a part
	const Machine *machine = q->g->machine;
	bool gpu = machine && machine->threads > 1;
	int64_t several = gpu ? 1 : ATTENTION_WORKERS;
	int64_t many = gpu ? wave_of(machine) / attend_head_tiles(q->g, x, machine) : MANY;
	const Shape *all = &val(q->g, x->in[4])->shape; // the statistics'
	Attr attr = attr_copy(x);
	int64_t *length = attr.i + 2, axes[RANK], workers = 1, parts = 1;
	int longest = -1, n = 0;
	for (int a = 0; a < x->shape.rank - 2; a++) {
		bool summed = has_axis(q->attr, a);
		if (summed && length[a] < all->dim[a])
			return 0;
		if (summed && length[a] > 1 && (longest < 0 || length[a] > length[longest]))
			longest = a;
		workers *= summed ? 1 : length[a];
	}
	if (longest < 0)
		return 0;
	for (int64_t p = 2; workers * parts < many && p * TERMS <= length[longest]; p++)
		parts = length[longest] % p ? parts : p;
	if (workers * parts < several)
		return 0;
	for (int a = 0; a < x->shape.rank - 2; a++)
		length[a] = a == longest ? parts : has_axis(q->attr, a) ? 1 : length[a];
	Ref r = put(q->g, O_attend_db, x->nin, x->in, &attr);
	for (int a = 0; a < x->shape.rank; a++)
		if (has_axis(q->attr, a) && val(q->g, r)->shape.dim[a] > 1)
			axes[n++] = a;
	return n ? put_reduce(q->g, O_sum, r, n, axes) : r;
}

// The same of a sum of several, as layers that share a bias leave.
static Ref sum_of_all_slopes(const Case *q, Ref r, int *visits)
{
	enum { MOST = 256 };
	const Val *v = val(q->g, r);
	if (v->op == O_attend_db)
		return sum_of_slopes(q, v);
	if (v->op != O_add || ++*visits > MOST)
		return 0;
	Ref x = v->in[0], y = v->in[1];
	if (!same_shape(&val(q->g, x)->shape, &val(q->g, y)->shape))
		return 0;
	x = sum_of_all_slopes(q, x, visits);
	y = x ? sum_of_all_slopes(q, y, visits) : 0;
	return y ? put2(q->g, O_add, x, y) : 0;
}

static Ref reduce(const Case *q)
{
	const Val *x = operand(q, 0);
	int visits = 0;
	if (!count_of(&x->shape)) // no kernel has an empty space
		return filled(q, x->type, reducers[q->op].start);
	if (q->op == O_sum && (x->op == O_attend_db || x->op == O_add))
		return sum_of_all_slopes(q, q->in[0], &visits);
	if (x->op != q->op)
		return 0;
	int64_t axes[RANK];
	int n = 0;
	for (int a = 0; a < x->shape.rank; a++)
		if (has_axis(x->attr, a) || has_axis(q->attr, a))
			axes[n++] = a;
	return put_reduce(q->g, q->op, x->in[0], n, axes);
}

// The maximum along an axis of size 1 has index 0.
static Ref argmax(const Case *q)
{
	return keeps_shape(q) ? filled(q, E_i64, 0) : 0;
}

// A product over no elements is 0.
static Ref dot(const Case *q)
{
	return count_of(&operand(q, 0)->shape) ? 0 : filled(q, operand(q, 0)->type, 0);
}

// A factor of 1, and then a mask that hides nothing, is dropped.
static Ref attend(const Case *q)
{
	double x;
	bool none = q->nin > 4 && const_num(q->g, q->in[q->nin - 1], &x) && x == 1;
	return none ? put(q->g, O_attend, q->nin - 1, q->in, q->attr) : 0;
}

// Drops empty operands, and inlines a concat along the same axis if it has few operands: nested
// concats of one value would double in size at each level.
static Ref concat(const Case *q)
{
	enum { FEW = 16 };
	int64_t axis = q->attr->i[0];
	VEC(Ref) full = {0};
	bool flat = true;
	for (int k = 0; k < q->nin; k++) {
		const Val *v = operand(q, k);
		bool joined =
		    v->op == O_concat && v->attr->i[0] == axis && full.count + v->nin <= FEW;
		flat &= !joined;
		for (int j = 0; joined && j < v->nin; j++)
			PUSH(q->g->arena, full, v->in[j]);
		if (!joined && v->shape.dim[axis] > 0)
			PUSH(q->g->arena, full, q->in[k]);
	}
	if (full.count == 1)
		return full.at[0];
	bool same = flat && full.count == q->nin;
	return full.count && !same ? put_concat(q->g, (int)axis, full.count, full.at) : 0;
}

static bool is_zero(const Graph *g, Ref r)
{
	double number;
	while (val(g, r)->op == O_expand)
		r = val(g, r)->in[0];
	return const_num(g, r, &number) && number == 0;
}

// Adds a summand that is zero but for some rows, as gradients of tables are, to these rows alone.
static Ref add_rows(const Case *q)
{
	enum { ADD = 1 };
	for (int k = 0; k < 2; k++) {
		const Val *v = operand(q, k);
		if (v->op == O_scatter && v->attr->i[1] == ADD && is_zero(q->g, v->in[0]) &&
		    same_shape(&v->shape, &operand(q, 1 - k)->shape))
			return put(q->g, O_scatter, 3, (Ref[]){q->in[1 - k], v->in[1], v->in[2]},
			           v->attr);
	}
	return 0;
}

// Concatenates summands that are padded to adjacent ranges, as gradients of slices are.
static Ref add(const Case *q)
{
	const Val *x = operand(q, 0), *y = operand(q, 1);
	if (x->op == O_scatter || y->op == O_scatter)
		return add_rows(q);
	if (x->op != O_pad || y->op != O_pad || x->attr->x != 0 || y->attr->x != 0 ||
	    !same_shape(&x->shape, &y->shape))
		return 0;
	int axis = -1; // the only one along which their ranges differ
	for (int i = 0; i < x->attr->n; i++) {
		if (x->attr->i[i] == y->attr->i[i])
			continue;
		if (axis >= 0 && axis != i / 2)
			return 0;
		axis = i / 2;
	}
	for (int swap = 0; axis >= 0 && swap < 2; swap++) {
		const Val *low = swap ? y : x, *high = swap ? x : y;
		Attr padding = attr_copy(low);
		int64_t *around = padding.i + 2 * axis; // before, after
		if (low->shape.dim[axis] - around[1] != high->attr->i[2 * axis])
			continue;
		around[1] = high->attr->i[2 * axis + 1];
		Ref both = put_concat(q->g, axis, 2, (Ref[]){low->in[0], high->in[0]});
		return put(q->g, O_pad, 1, &both, &padding);
	}
	return 0;
}

// True if `r`, under a limited number of moves, is a decomposed lse: the logarithm of a sum plus
// the maximum. Returns these two with the moves applied.
static bool decomposed_lse(Graph *g, Ref r, int moves, Ref *log, Ref *largest)
{
	const Val *v = val(g, r);
	if (prims[v->op].cls == C_move && v->nin == 1 && moves > 0 &&
	    decomposed_lse(g, v->in[0], moves - 1, log, largest)) {
		*log = put_as(g, v, log);
		*largest = put_as(g, v, largest);
		return true;
	}
	for (int k = 0; k < 2 && v->op == O_add; k++) {
		*log = v->in[k];
		*largest = v->in[1 - k];
		const Val *most = val(g, *largest); // or a selection of it if it is finite
		if (most->op == O_select)
			most = val(g, most->in[2]);
		if (val(g, *log)->op == O_log1p && most->op == O_amax)
			return true;
	}
	return false;
}

// Subtracts the maximum before the logarithm, which it would round.
static Ref subtract(const Case *q)
{
	enum { MOVES = 8 };
	Graph *g = q->g;
	Ref log, largest, x = q->in[0], y = q->in[1];
	if (decomposed_lse(g, y, MOVES, &log, &largest))
		return put2(g, O_sub, put2(g, O_sub, x, largest), log);
	if (decomposed_lse(g, x, MOVES, &log, &largest))
		return put2(g, O_sub, log, put2(g, O_sub, y, largest));
	return 0;
}

// Drops a cast to a type that holds every number of the one before.
static Ref cast(const Case *q)
{
	const Val *x = operand(q, 0);
	if (x->op != O_cast)
		return 0;
	const ElemInfo *a = &elems[val(q->g, x->in[0])->type], *b = &elems[x->type];
	bool wider = b->bytes > a->bytes, holds = a->cls == 'b';
	if (a->cls == 'f')
		holds = b->cls == 'f' && wider;
	else if (b->cls == 'f')
		holds |= 2 * a->bytes <= b->bytes && x->type != E_bf16;
	else if (a->cls == b->cls)
		holds |= b->bytes >= a->bytes;
	else
		holds |= b->cls == 'i' && wider;
	return holds ? put_cast(q->g, x->in[0], (Elem)q->attr->i[0]) : 0;
}

// Elements at constant, evenly spaced indices are a slice. Each of them may be repeated, as in
// nearest-neighbor upsampling.
static Ref gather(const Case *q)
{
	const Val *x = operand(q, 0);
	int axis = (int)q->attr->i[0], n = (int)MIN(count_of(&operand(q, 1)->shape), FOLD_LIMIT);
	int64_t *at = NEWS(q->g->arena, int64_t, n + 1), start[RANK] = {0}, step[RANK];
	if (!is_const(q->g, q->in[1]) || !const_ints(q->g, q->in[1], at, &n))
		return 0;
	int times = 1;
	while (times < n && at[times] == at[0])
		times++;
	int64_t apart = times < n ? at[times] - at[0] : 1;
	bool fits = n % times == 0 && (times == 1 || x->shape.rank < RANK);
	for (int i = 0; i < n && fits; i++)
		fits =
		    at[i] >= 0 && at[i] < x->shape.dim[axis] && at[i] - at[0] == i / times * apart;
	if (!fits)
		return 0;
	Shape few = x->shape;
	for (int a = 0; a < few.rank; a++)
		step[a] = 1;
	few.dim[axis] = n / times;
	start[axis] = at[0];
	step[axis] = apart;
	Ref r = put_slice(q->g, q->in[0], start, few.dim, step);
	if (times > 1) {
		for (int a = few.rank++; a > axis + 1; a--)
			few.dim[a] = few.dim[a - 1];
		few.dim[axis + 1] = 1;
		r = put_reshape(q->g, r, few);
		few.dim[axis + 1] = times;
		r = put_expand(q->g, r, few);
	}
	return put_reshape(q->g, r, *q->shape);
}

// A scatter of nothing leaves all elements as they are.
static Ref scatter(const Case *q)
{
	return count_of(&operand(q, 2)->shape) ? 0 : q->in[0];
}

// Drops a broadcast of an operand that the map makes unnecessary.
static Ref map(const Case *q)
{
	for (int k = 0; k < q->nin; k++) {
		const Val *v = operand(q, k);
		Ref in[3], r;
		double number;
		if (v->op == O_expand)
			r = v->in[0];
		else if (v->shape.rank > 0 && count_of(&v->shape) < FOLD_LIMIT &&
		         const_num(q->g, q->in[k], &number))
			r = put_const(q->g, v->type, (Shape){0}, v->data);
		else
			continue;
		for (int j = 0; j < q->nin; j++)
			in[j] = j == k ? r : q->in[j];
		Elem elem;
		Shape shape;
		type_of(q->g, q->op, q->nin, in, q->attr, &elem, &shape);
		if (same_shape(&shape, q->shape))
			return put(q->g, q->op, q->nin, in, q->attr);
	}
	return 0;
}

// Splits the axes of `x` and `y`, shapes of as many elements, into those that both are made of: y
// as (2, 6) and x as (4, 3) are (2, 2, 3). Writes which axis of x each is part of. Returns false
// if there are none, as of (2, 3) and (3, 2).
static bool common_axes(const Shape *x, const Shape *y, Shape *common, int *part_of)
{
	int64_t left = 1, right = 1; // of axis a - 1 of x and of axis b - 1 of y
	int a = 0, b = 0;
	*common = (Shape){0};
	for (;;) {
		while (left == 1 && a < x->rank)
			left = x->dim[a++];
		while (right == 1 && b < y->rank)
			right = y->dim[b++];
		int64_t size = MIN(left, right);
		if (size == 1)
			return left == right;
		if (common->rank == RANK || left % size || right % size)
			return false;
		part_of[common->rank] = a - 1;
		common->dim[common->rank++] = size;
		left /= size;
		right /= size;
	}
}

// A norm over an axis that was merged is one over the axes it was merged of, as exporters write
// groups of channels: layouts pass through it.
static Ref norm(const Case *q)
{
	const Val *x = operand(q, 0), *y = x->op == O_reshape ? val(q->g, x->in[0]) : x;
	Shape split;
	int part_of[RANK], merged = 0;
	if (x == y || !count_of(q->shape) || !common_axes(q->shape, &y->shape, &split, part_of))
		return 0;
	Attr attr = {.n = 1, .i[0] = q->attr->i[0], .x = q->attr->x};
	for (int a = 0; a < split.rank; a++) {
		bool normed = false;
		for (int k = 1; k < q->attr->n; k++)
			normed |= q->attr->i[k] == part_of[a];
		if (!normed)
			continue;
		merged += a > 0 && part_of[a] == part_of[a - 1];
		attr.i[attr.n++] = a;
	}
	if (!merged)
		return 0;
	Ref r = put_reshape(q->g, x->in[0], split);
	return put_reshape(q->g, put(q->g, O_norm, 1, &r, &attr), *q->shape);
}

static Ref (*const rule[OPS])(const Case *) = {
    [O_reshape] = reshape, [O_permute] = permute, [O_slice] = slice,     [O_expand] = expand,
    [O_window] = window,   [O_concat] = concat,   [O_cast] = cast,       [O_gather] = gather,
    [O_sum] = reduce,      [O_prod] = reduce,     [O_amax] = reduce,     [O_amin] = reduce,
    [O_argmax] = argmax,   [O_dot] = dot,         [O_attend] = attend,   [O_add] = add,
    [O_sub] = subtract,    [O_norm] = norm,       [O_scatter] = scatter,
};

Ref identity(Graph *g, Op op, int nin, const Ref *in, const Attr *attr, const Shape *shape)
{
	Case q = {g, op, nin, in, attr, shape};
	if (is_unchanged(&q))
		return in[0];
	Ref r = rule[op] ? rule[op](&q) : 0;
	return r || prims[op].cls != C_map || nin < 2 ? r : map(&q);
}
