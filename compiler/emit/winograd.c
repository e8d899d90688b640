// winograd.c: emits convolutions of 3 x 3 windows by Winograd's method F(4 x 4, 3 x 3).
// A square of 4 x 4 outputs is a product of polynomials, computed from its values at 6 x 6 points:
// elements under the square and kernels are transformed, channels are summed at each point by the
// register tile, and the sums are transformed back (Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks, 2015). By axis the points are 0, +-3/4, +-3/2 and infinity: sums
// of f32 lose one bit, where 0, +-1, +-2 lose three.
//
// A worker transforms the squares of some strips, multiplies them by its panels at one point after
// the other, and transforms the products of a square back just before the maps after the dot. If it
// transforms the kernels of a panel as well, it does so for a few channels at a time, which stay in
// L2, and adds up their products.
//
// The gradient of a kernel is the same method with its matrices transposed: the products of
// transformed elements and transformed gradients, a square of 4 x 4 of them, are summed over all
// squares at each point, and the sums are transformed to 3 x 3 taps. A worker has the sums of a
// block of channels and some panels in L2, and adds to them the products of a few squares at a
// time.
#include "dot.h"
#include <string.h>

static const double P = 0.75, Q = 1.5; // the points

static Value scaled_sum(Gen *g, Value a, double factor, Value b) // a factor + b
{
	return mul_add(g, a, splat(g, real_like(a, factor)), b);
}

static Value scaled(Gen *g, Value a, double factor)
{
	return LLVMBuildFMul(g->b, a, splat(g, real_like(a, factor)), "");
}

// The values of x at the points are products with those of other polynomials: along one axis, and
// with one element in a lane.
static void transform_elements(Gen *g, const Value *x, Value *to)
{
	const double p2 = P * P, q2 = Q * Q;
	Value even_p = scaled_sum(g, x[2], -q2, x[4]), odd_p = scaled_sum(g, x[1], -q2, x[3]);
	Value even_q = scaled_sum(g, x[2], -p2, x[4]), odd_q = scaled_sum(g, x[1], -p2, x[3]);
	to[0] = scaled_sum(g, x[0], p2 * q2, scaled_sum(g, x[2], -p2 - q2, x[4]));
	to[1] = scaled_sum(g, odd_p, P, even_p);
	to[2] = scaled_sum(g, odd_p, -P, even_p);
	to[3] = scaled_sum(g, odd_q, Q, even_q);
	to[4] = scaled_sum(g, odd_q, -Q, even_q);
	to[5] = scaled_sum(g, x[1], p2 * q2, scaled_sum(g, x[3], -p2 - q2, x[5]));
}

static void transform_kernel(Gen *g, const Value *w, Value *to)
{
	const double p2 = P * P, q2 = Q * Q, at_p = 2 * p2 * (p2 - q2), at_q = 2 * q2 * (q2 - p2);
	Value even_p = scaled(g, scaled_sum(g, w[2], p2, w[0]), 1 / at_p);
	Value even_q = scaled(g, scaled_sum(g, w[2], q2, w[0]), 1 / at_q);
	to[0] = scaled(g, w[0], 1 / (p2 * q2));
	to[1] = scaled_sum(g, w[1], P / at_p, even_p);
	to[2] = scaled_sum(g, w[1], -P / at_p, even_p);
	to[3] = scaled_sum(g, w[1], Q / at_q, even_q);
	to[4] = scaled_sum(g, w[1], -Q / at_q, even_q);
	to[5] = w[2];
}

static void transform_back(Gen *g, const Value *m, Value *to)
{
	const double p2 = P * P, q2 = Q * Q;
	Value even_p = LLVMBuildFAdd(g->b, m[1], m[2], ""),
	      odd_p = LLVMBuildFSub(g->b, m[1], m[2], "");
	Value even_q = LLVMBuildFAdd(g->b, m[3], m[4], ""),
	      odd_q = LLVMBuildFSub(g->b, m[3], m[4], "");
	to[0] = LLVMBuildFAdd(g->b, m[0], LLVMBuildFAdd(g->b, even_p, even_q, ""), "");
	to[1] = scaled_sum(g, odd_q, Q, scaled(g, odd_p, P));
	to[2] = scaled_sum(g, even_q, q2, scaled(g, even_p, p2));
	to[3] = scaled_sum(g, odd_q, Q * q2, scaled_sum(g, odd_p, P * p2, m[5]));
}

// The transposes of transform_back and transform_kernel.
static void transform_gradient(Gen *g, const Value *y, Value *to)
{
	const double p2 = P * P, q2 = Q * Q;
	Value even_p = scaled_sum(g, y[2], p2, y[0]), odd_p = scaled_sum(g, y[3], p2, y[1]);
	Value even_q = scaled_sum(g, y[2], q2, y[0]), odd_q = scaled_sum(g, y[3], q2, y[1]);
	to[0] = y[0];
	to[1] = scaled_sum(g, odd_p, P, even_p);
	to[2] = scaled_sum(g, odd_p, -P, even_p);
	to[3] = scaled_sum(g, odd_q, Q, even_q);
	to[4] = scaled_sum(g, odd_q, -Q, even_q);
	to[5] = y[3];
}

static void transform_to_taps(Gen *g, const Value *m, Value *to)
{
	const double p2 = P * P, q2 = Q * Q, at_p = 2 * p2 * (p2 - q2), at_q = 2 * q2 * (q2 - p2);
	Value even_p = LLVMBuildFAdd(g->b, m[1], m[2], ""),
	      odd_p = LLVMBuildFSub(g->b, m[1], m[2], "");
	Value even_q = LLVMBuildFAdd(g->b, m[3], m[4], ""),
	      odd_q = LLVMBuildFSub(g->b, m[3], m[4], "");
	to[0] = scaled_sum(g, even_q, 1 / at_q,
	                   scaled_sum(g, even_p, 1 / at_p, scaled(g, m[0], 1 / (p2 * q2))));
	to[1] = scaled_sum(g, odd_q, Q / at_q, scaled(g, odd_p, P / at_p));
	to[2] = scaled_sum(g, even_q, q2 / at_q, scaled_sum(g, even_p, p2 / at_p, m[5]));
}

typedef void Transform(Gen *, const Value *from, Value *to);

// Transforms a square of values along both axes.
static void transform_square(Gen *g, Transform *line, int from, int to, const Value *x, Value *y)
{
	Value half[SPAN * SPAN], column[SPAN], out[SPAN];
	for (int i = 0; i < from; i++)
		line(g, x + i * from, half + i * to);
	for (int j = 0; j < to; j++) {
		for (int i = 0; i < from; i++)
			column[i] = half[i * to + j];
		line(g, column, out);
		for (int i = 0; i < to; i++)
			y[i * to + j] = out[i];
	}
}

// Returns the number of a tap in a window.
static int tap_of(const Squares *s, int line, int column)
{
	line = s->turned[0] ? TAP_EDGE - 1 - line : line;
	column = s->turned[1] ? TAP_EDGE - 1 - column : column;
	return line * TAP_EDGE + column;
}

// ---- packing --------------------------------------------------------------------------

// Transforms the kernels of a step in `lanes` of the columns.
static void transform_step(Dot *d, Value step, const Index *lanes, Value place)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	Value tap[TAP_EDGE * TAP_EDGE], point[POINTS];
	for (int i = 0; i < TAP_EDGE; i++)
		for (int j = 0; j < TAP_EDGE; j++) {
			Value skip = number(g, tap_of(s, i, j) * s->channels);
			Value w = b_at_step(d, sum_of(g, sum_of(g, d->from, step), skip), lanes);
			tap[i * TAP_EDGE + j] = splat(g, w);
		}
	transform_square(g, transform_kernel, TAP_EDGE, SPAN, tap, point);
	for (int e = 0; e < POINTS; e++)
		keep(d, point[e], d->panel,
		     sum_of(g, place, number(g, e * (d->p.panel_size / POINTS))));
}

void transform_panels(Dot *d, Value from, Value to)
{
	Gen *g = d->g;
	int64_t vectors = d->p.width / g->width;
	Loop steps = loop_begin(g, from, to, 1);
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Value column = sum_of(g, d->first_column, times(g, panels.i, d->p.width));
	Value place = sum_of(g, times(g, panels.i, d->p.panel_size), times(g, steps.i, d->p.width));
	for (int64_t u = 0; u < vectors; u++) {
		Value skip = number(g, u * g->width);
		Index lanes = column_lanes(d, sum_of(g, column, skip));
		transform_step(d, steps.i, &lanes, sum_of(g, place, skip));
	}
	loop_end(g, &panels);
	loop_end(g, &steps);
}

typedef struct Square {
	Value row;          // of the product: its first; summed: step of k
	Value line, column; // in the image
} Square;

// Of rows, or steps of k: columns, lines, images.
static const Digit *positions(const Dot *d)
{
	return d->p.squares.summed ? d->p.patch.step.at : d->p.patch.row.at;
}

static Square square_at(Dot *d, Value number_of)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	const Digit *digit = positions(d);
	Value column = LLVMBuildURem(g->b, number_of, number(g, s->columns), "");
	Value rest = LLVMBuildUDiv(g->b, number_of, number(g, s->columns), "");
	Value line = LLVMBuildURem(g->b, rest, number(g, s->lines), "");
	Value image = LLVMBuildUDiv(g->b, rest, number(g, s->lines), "");
	Square q = {.line = times(g, line, EDGE), .column = times(g, column, EDGE)};
	q.row = sum_of(g, times(g, image, digit[1].each * digit[1].extent),
	               sum_of(g, times(g, q.line, digit[1].each), q.column));
	return q;
}

// Returns the square that strip `strip` begins with, so that all of its squares exist.
static Value first_square(Dot *d, Value strip)
{
	Gen *g = d->g;
	return least(g, times(g, strip, d->tile.rows), number(g, d->p.squares.all - d->tile.rows));
}

// Returns a vector of the f32 that x, elements of r, is.
static Value as_f32(Gen *g, Ref r, Value x)
{
	return splat(g, widen_float(g, x, val(g->graph, r)->type));
}

static void transform_channels(Gen *g, int n, const Index *unit, void *context)
{
	const PatchLine *r = context;
	Dot *d = r->d;
	const Squares *s = &d->p.squares;
	Index idx[RANK];
	memcpy(idx, r->idx, sizeof idx);
	for (int u = 0; u < n; u++) {
		Value x[POINTS], point[POINTS];
		idx[r->last] = add_index(g->vars, &r->idx[r->last], &unit[u], 1);
		for (int e = 0; e < POINTS; e++) {
			idx[s->axis[0]] = shift_index(r->idx[s->axis[0]], e / SPAN);
			idx[s->axis[1]] = shift_index(r->idx[s->axis[1]], e % SPAN);
			x[e] = as_f32(g, r->from, at_or_fill(g, r->from, idx, r->fill));
		}
		transform_square(g, transform_elements, SPAN, SPAN, x, point);
		Value place = sum_of(g, r->to, index_value(g, &unit[u]).base);
		for (int e = 0; e < POINTS; e++)
			keep(d, point[e], d->strip,
			     sum_of(g, place, number(g, e * d->p.strip_point)));
	}
}

// Transforms the elements under a square, of `count` channels from `channel` on.
static void transform_under(Dot *d, Value number_of, const Index *channel, int64_t count, Value to)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	Square square = square_at(d, number_of);
	Index place = uniform_index(g, square.row, s->summed ? d->p.k : d->p.m, 1);
	Index none = constant_index(0), idx[RANK] = {0};
	Ref r = d->v->in[0];
	double fill;
	dot_index(g->vars, g->graph, d->v, &d->p, 0, &d->in_batch, s->summed ? &none : &place,
	          s->summed ? &place : &none, idx);
	if (!windows_of(g->vars, g->graph, &g->computed, &r, idx, &fill))
		never("windows");
	for (int a = 0; a < 2; a++)
		if (s->turned[a])
			idx[s->axis[a]] = shift_index(idx[s->axis[a]], 1 - TAP_EDGE);
	idx[s->channel] = add_index(g->vars, &idx[s->channel], channel, 1);
	PatchLine line = {d, r, s->channel, idx, fill, to};
	g->ops->lane_loop(g, number(g, 0), number(g, count), count, 1, transform_channels, &line);
}

void transform_strips(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	int64_t channels = d->p.squares.channels, depth = d->s->depth;
	Index channel = d->p.blocks == 1 ? constant_index(0)
	                                 : uniform_index(g, d->from, channels - depth + 1, depth);
	Loop strips = loop_begin(g, first, end, 1);
	Value own = times(g, LLVMBuildSub(g->b, strips.i, first, ""), d->p.strip_size);
	Value from = first_square(d, strips.i);
	Loop rows = loop_begin(g, number(g, 0), number(g, d->tile.rows), 1);
	transform_under(d, sum_of(g, from, rows.i), &channel, depth,
	                sum_of(g, own, times(g, rows.i, d->p.a_row)));
	loop_end(g, &rows);
	loop_end(g, &strips);
}

// ---- products and outputs -----------------------------------------------------------------

// Multiplies strips first..end by a panel, at one point after the other.
static void multiply_points(Dot *d, Value first, Value end, Value panel, Value again)
{
	Gen *g = d->g;
	Loop points = loop_begin(g, number(g, 0), number(g, POINTS), 1);
	Value a = element(d, d->strip, times(g, points.i, d->p.strip_point));
	Value c = element(d, d->products, times(g, points.i, d->p.sum_point));
	Value b = element(d, panel, times(g, points.i, d->p.panel_size / POINTS));
	Loop strips = loop_begin(g, first, end, 1);
	Value own = LLVMBuildSub(g->b, strips.i, first, "");
	Value strip = element(d, a, times(g, own, d->p.strip_size));
	Value sums = element(d, c, times(g, own, d->tile.rows * d->p.sum_row));
	Value in[] = {d->steps, strip, b, sums, again, strip};
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(d->sum_tile), d->sum_tile, in, COUNT(in), "");
	loop_end(g, &strips);
	loop_end(g, &points);
}

static Value load_lanes_at(Dot *d, Value memory, Value i)
{
	Gen *g = d->g;
	LLVMTypeRef type = elem_type(g, d->tile.type);
	type = g->width > 1 ? LLVMVectorType(type, (unsigned)g->width) : type;
	Value v = LLVMBuildLoad2(g->b, type, element(d, memory, i), "");
	LLVMSetAlignment(v, (unsigned)d->tile.bytes);
	return v;
}

// Sets the sums of a square, line by line, from its products at `place`.
static void sum_square(Dot *d, Value place)
{
	Gen *g = d->g;
	Loop columns = loop_begin(g, number(g, 0), number(g, d->p.width), g->width);
	Value at = sum_of(g, place, columns.i), point[POINTS], sum[SQUARE_ROWS];
	for (int e = 0; e < POINTS; e++)
		point[e] =
		    load_lanes_at(d, d->products, sum_of(g, at, number(g, e * d->p.sum_point)));
	transform_square(g, transform_back, SPAN, EDGE, point, sum);
	for (int i = 0; i < SQUARE_ROWS; i++)
		keep(d, sum[i], d->sums, sum_of(g, columns.i, number(g, i * d->p.sum_row)));
	loop_end(g, &columns);
}

// Computes the outputs for the squares of a strip, whose products are finished.
static void finish_strip(Dot *d, Value strip, Value own)
{
	Gen *g = d->g;
	const Digit *digit = d->p.patch.row.at;
	Value from = first_square(d, strip);
	// Squares that the strip before has as well are finished there.
	Value begin = LLVMBuildSub(g->b, times(g, strip, d->tile.rows), from, "");
	Loop rows = loop_begin(g, begin, number(g, d->tile.rows), 1);
	Square square = square_at(d, sum_of(g, from, rows.i));
	sum_square(d, times(g, sum_of(g, times(g, own, d->tile.rows), rows.i), d->p.sum_row));
	Value columns = number(g, digit[0].extent), lines = number(g, digit[1].extent);
	Value width =
	    LLVMBuildSub(g->b, end_after(g, square.column, EDGE, columns), square.column, "");
	Value height = LLVMBuildSub(g->b, end_after(g, square.line, EDGE, lines), square.line, "");
	Loop line = loop_begin(g, number(g, 0), height, 1);
	Value row = sum_of(g, square.row, times(g, line.i, digit[1].each));
	finish_rows(d, row, row, sum_of(g, row, width),
	            element(d, d->sums, times(g, line.i, EDGE * d->p.sum_row)));
	loop_end(g, &line);
	loop_end(g, &rows);
}

void multiply_squares(Dot *d, Value first, Value end, Value again, Value done)
{
	Gen *g = d->g;
	Value first_column = d->first_column, count = d->count;
	Loop panels = loop_begin(g, number(g, 0), count, 1);
	Value panel = element(d, d->panel, times(g, panels.i, d->p.panel_size));
	multiply_points(d, first, end, panel, again);
	d->first_column = sum_of(g, first_column, times(g, panels.i, d->p.width));
	d->count = number(g, 1);
	Loop strips = loop_begin(g, first, LLVMBuildSelect(g->b, done, end, first, ""), 1);
	finish_strip(d, strips.i, LLVMBuildSub(g->b, strips.i, first, ""));
	loop_end(g, &strips);
	loop_end(g, &panels);
	d->first_column = first_column;
	d->count = count;
}

// ---- the gradient of a kernel -----------------------------------------------------------

// Returns the channel that the worker begins with, so that all of its block exist.
static Value first_channel(Dot *d)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	return least(g, times(g, d->parts.block, s->block), number(g, s->channels - s->block));
}

// Transforms the elements under the squares of the block of k.
static void transform_block(Dot *d)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	Index channel = s->block == s->channels
	                    ? constant_index(0)
	                    : uniform_index(g, first_channel(d), s->channels - s->block + 1,
	                                    common_divisor(s->block, s->channels));
	Loop squares = loop_begin(g, number(g, 0), d->steps, 1);
	transform_under(d, sum_of(g, d->from, squares.i), &channel, s->block,
	                times(g, squares.i, d->p.a_step));
	loop_end(g, &squares);
}

typedef struct Gradients { // of a square
	Index step[SQUARE_ROWS];
	Value inside[SQUARE_ROWS]; // the image; NULL: always
} Gradients;

static Gradients gradients_at(Dot *d, Value number_of)
{
	Gen *g = d->g;
	const Digit *digit = positions(d);
	Square square = square_at(d, number_of);
	Gradients own = {0};
	for (int i = 0; i < SQUARE_ROWS; i++) {
		const int shift[] = {i % EDGE, i / EDGE}; // columns, lines
		const Value at[] = {square.column, square.line};
		Value step = square.row;
		for (int a = 0; a < 2; a++) {
			step = sum_of(g, step, number(g, shift[a] * digit[a].each));
			if (digit[a].extent % EDGE == 0 || !shift[a])
				continue;
			Value place = sum_of(g, at[a], number(g, shift[a]));
			Value in =
			    LLVMBuildICmp(g->b, LLVMIntSLT, place, number(g, digit[a].extent), "");
			own.inside[i] = own.inside[i] ? both(g, own.inside[i], in) : in;
		}
		if (own.inside[i])
			step = LLVMBuildSelect(g->b, own.inside[i], step, square.row, "");
		own.step[i] = uniform_index(g, step, d->p.k, 1);
	}
	return own;
}

// Transforms the gradients of a square in `lanes` of the columns.
static void transform_gradients(Dot *d, const Gradients *own, const Index *lanes, Value place)
{
	Gen *g = d->g;
	Value y[SQUARE_ROWS], point[POINTS];
	Index idx[RANK];
	for (int i = 0; i < SQUARE_ROWS; i++) {
		dot_index(g->vars, g->graph, d->v, &d->p, 1, &d->in_batch, &own->step[i], lanes,
		          idx);
		y[i] = as_f32(g, d->v->in[1], at(g, d->v->in[1], idx));
		if (own->inside[i])
			y[i] = choose(g, own->inside[i], y[i], LLVMConstNull(LLVMTypeOf(y[i])));
	}
	transform_square(g, transform_gradient, EDGE, SPAN, y, point);
	for (int e = 0; e < POINTS; e++)
		keep(d, point[e], d->panel,
		     sum_of(g, place, number(g, e * (d->p.panel_size / POINTS))));
}

// Transforms the gradients of the squares of the block of k, in the worker's panels.
static void transform_columns(Dot *d)
{
	Gen *g = d->g;
	Loop squares = loop_begin(g, number(g, 0), d->steps, 1);
	Gradients own = gradients_at(d, sum_of(g, d->from, squares.i));
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Value column = sum_of(g, d->first_column, times(g, panels.i, d->p.width));
	Value place =
	    sum_of(g, times(g, panels.i, d->p.panel_size), times(g, squares.i, d->p.width));
	for (int64_t at = 0; at < d->p.width; at += g->width) {
		Index lanes = column_lanes(d, sum_of(g, column, number(g, at)));
		transform_gradients(d, &own, &lanes, sum_of(g, place, number(g, at)));
	}
	loop_end(g, &panels);
	loop_end(g, &squares);
}

// Returns where the sums of a strip and panel are, from those of the first on.
static Value sums_at(Dot *d, Value strip, Value panel)
{
	Gen *g = d->g;
	Value tile = sum_of(g, times(g, panel, d->s->strips), strip);
	return times(g, tile, d->tile.rows * d->p.width);
}

static void add_products(Dot *d, Value again)
{
	Gen *g = d->g;
	Loop points = loop_begin(g, number(g, 0), number(g, POINTS), 1);
	Value a = element(d, d->strip, times(g, points.i, d->p.strip_point));
	Value b = element(d, d->panel, times(g, points.i, d->p.panel_size / POINTS));
	Value c = element(d, d->products, times(g, points.i, d->p.sum_point));
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Value panel = element(d, b, times(g, panels.i, d->p.panel_size));
	Loop strips = loop_begin(g, number(g, 0), number(g, d->s->strips), 1);
	Value row = least(g, times(g, strips.i, d->tile.rows),
	                  number(g, d->p.squares.block - d->tile.rows));
	Value strip = element(d, a, row), sums = element(d, c, sums_at(d, strips.i, panels.i));
	Value in[] = {d->steps, strip, panel, sums, again, strip, sums};
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(d->sum_tile), d->sum_tile, in, COUNT(in), "");
	loop_end(g, &strips);
	loop_end(g, &panels);
	loop_end(g, &points);
}

// Transforms sums from `place` on, which are finished, to those of the taps, at most `rows` apart.
static void sum_taps(Dot *d, Value place, Value to, int64_t apart)
{
	Gen *g = d->g;
	Value point[POINTS], tap[WINDOW];
	for (int64_t at = 0; at < d->p.width; at += g->width) {
		for (int e = 0; e < POINTS; e++)
			point[e] = load_lanes_at(
			    d, d->products, sum_of(g, place, number(g, e * d->p.sum_point + at)));
		transform_square(g, transform_to_taps, SPAN, TAP_EDGE, point, tap);
		for (int i = 0; i < WINDOW; i++) {
			int of = tap_of(&d->p.squares, i / TAP_EDGE, i % TAP_EDGE);
			keep(d, tap[i], d->sums, sum_of(g, to, number(g, of * apart + at)));
		}
	}
}

// Computes the outputs for a strip of channels in one panel, or a part of their sums. `first`: the
// worker's first channel; those before `begin` are finished by the block before.
static void finish_channels(Dot *d, Value first, Value begin, Value strip, Value panel)
{
	Gen *g = d->g;
	const Squares *s = &d->p.squares;
	int64_t height = d->tile.rows, width = d->p.width;
	bool parts = d->s->parts > 1;
	Value from = times(g, strip, height), top = least(g, from, number(g, s->block - height));
	Value later = LLVMBuildICmp(g->b, LLVMIntSGT, begin, from, "");
	from = LLVMBuildSub(g->b, LLVMBuildSelect(g->b, later, begin, from, ""), top, "");
	Value channel = sum_of(g, first, top), place = sums_at(d, strip, panel), to = number(g, 0);
	if (parts)
		to = sum_of(g, times(g, channel, d->p.sum_row), times(g, panel, width));
	Loop rows = loop_begin(g, from, number(g, height), 1);
	sum_taps(d, sum_of(g, place, times(g, rows.i, width)),
	         sum_of(g, to, times(g, rows.i, d->p.sum_row)),
	         (parts ? s->channels : height) * d->p.sum_row);
	loop_end(g, &rows);
	if (parts)
		return;
	Loop taps = loop_begin(g, number(g, 0), number(g, WINDOW), 1);
	Value row = sum_of(g, times(g, taps.i, s->channels), channel);
	finish_rows(d, row, sum_of(g, row, from), sum_of(g, row, number(g, height)),
	            element(d, d->sums, times(g, taps.i, height * width)));
	loop_end(g, &taps);
}

static void finish_sums(Dot *d)
{
	Gen *g = d->g;
	Value first = first_channel(d), first_column = d->first_column, count = d->count;
	Value begin = LLVMBuildSub(g->b, times(g, d->parts.block, d->p.squares.block), first, "");
	Loop panels = loop_begin(g, number(g, 0), count, 1);
	d->first_column = sum_of(g, first_column, times(g, panels.i, d->p.width));
	d->count = number(g, 1);
	Loop strips = loop_begin(g, number(g, 0), number(g, d->s->strips), 1);
	finish_channels(d, first, begin, strips.i, panels.i);
	loop_end(g, &strips);
	loop_end(g, &panels);
	d->first_column = first_column;
	d->count = count;
}

void sum_squares(Dot *d, Value again, Value done)
{
	transform_columns(d);
	transform_block(d);
	add_products(d, again);
	Loop last = when_begin(d->g, done);
	finish_sums(d);
	when_end(d->g, &last);
}
