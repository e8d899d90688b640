// sample.c: ONNX operators that read images between their pixels: GridSample, AffineGrid, RoiAlign,
// and the points of DeformConv. Takes the node being lowered. Gives its results. Keeps: an image is
// rows of channels, a point is the sum of a few rows gathered and weighted, so gradients reach
// image and coordinates.
#include "ops.h"
#include <math.h>
#include <string.h>

static Ref unary_book(Graph *g, const char *def, Ref x, int n, const AttrArg *given)
{
	return book_call1(g, def, 1, &x, n, given);
}

// [N, C, d..] as rows of channels, [N * prod(d), C]
static Ref channel_rows(Graph *g, Ref x)
{
	Shape s = val(g, x)->shape;
	int64_t perm[RANK] = {0};
	for (int a = 1; a < s.rank; a++)
		perm[a] = a + 1 < s.rank ? a + 1 : 1;
	return merge_axes(g, put_permute(g, x, perm), 0, s.rank - 1);
}

Image image_rows(Graph *g, Ref x)
{
	Shape s = val(g, x)->shape;
	Image image = {.rows = channel_rows(g, x), .n = s.rank - 2, .rim = RIM_ZERO};
	int64_t pixels = 1;
	for (int a = 0; a < image.n; a++)
		pixels *= image.dim[a] = s.dim[2 + a];
	Ref each = put_iota(g, shape_of(2, (int64_t[]){s.dim[0], 1}), 0);
	image.first = put2(g, O_mul, each, put_num(g, E_i64, (double)pixels));
	return image;
}

static Ref reflect(Graph *g, const Image *image, int axis, Ref x)
{
	double low = image->corners ? 0 : -0.5, size = (double)image->dim[axis];
	AttrArg given[] = {{.name = "low", .x = low},
	                   {.name = "span", .x = image->corners ? size - 1 : size}};
	return unary_book(g, "reflected", x, 2, given);
}

static Ref clip_to(Graph *g, Ref x, double low, double high)
{
	return put2(g, O_min, put2(g, O_max, x, num_like(g, x, low)), num_like(g, x, high));
}

static Ref inside_axis(Graph *g, Ref x, int64_t size)
{
	Ref low = put2(g, O_le, num_like(g, x, 0), x);
	return put2(g, O_and, low, put2(g, O_le, x, num_like(g, x, (double)(size - 1))));
}

static Ref as_column(Graph *g, Ref x)
{
	Shape s = val(g, x)->shape;
	s.dim[s.rank++] = 1;
	return put_reshape(g, x, s);
}

// Rows at whole places, one coordinate an axis, [N, P] each: [N, P, C].
static Ref take_rows(Graph *g, const Image *image, const Ref *place)
{
	Ref at = 0, seen = 0;
	for (int a = 0; a < image->n; a++) {
		Ref x = image->rim == RIM_REFLECT ? reflect(g, image, a, place[a]) : place[a];
		if (image->rim == RIM_ZERO) {
			Ref in = inside_axis(g, x, image->dim[a]);
			seen = seen ? put2(g, O_and, seen, in) : in;
		}
		x = put_cast(g, clip_to(g, x, 0, (double)image->dim[a] - 1), E_i64);
		Ref size = put_num(g, E_i64, (double)image->dim[a]);
		at = at ? put2(g, O_add, put2(g, O_mul, at, size), x) : x;
	}
	Ref rows = put_gather(g, image->rows, put2(g, O_add, at, image->first), 0);
	return seen ? put2(g, O_mul, rows, as_column(g, put_cast(g, seen, E_f32))) : rows;
}

// The weights of the places around a coordinate along one axis, the first of which is `first` from
// its floor.
typedef struct Taps {
	int count, first;
	Ref floor, weight[4];
} Taps;

static Taps linear_taps(Graph *g, Ref x)
{
	Taps t = {.count = 2, .floor = put1(g, O_floor, x)};
	t.weight[1] = put2(g, O_sub, x, t.floor);
	t.weight[0] = put2(g, O_sub, num_like(g, x, 1), t.weight[1]);
	return t;
}

static Taps cubic_taps(Graph *g, Ref x)
{
	Taps t = {.count = 4, .first = -1, .floor = put1(g, O_floor, x)};
	Ref rest = put2(g, O_sub, x, t.floor);
	book_call(g, "cubic_weights", 1, &rest, 0, NULL, 4, t.weight);
	return t;
}

Ref sample_points(Graph *g, const Image *image, const Ref *x, bool cubic, Op join)
{
	Taps taps[3];
	int all = 1;
	for (int a = 0; a < image->n; a++) {
		taps[a] = cubic ? cubic_taps(g, x[a]) : linear_taps(g, x[a]);
		all *= taps[a].count;
	}
	Ref sum = 0;
	for (int k = 0; k < all; k++) {
		Ref place[3], weight = 0;
		for (int a = 0, rest = k; a < image->n; a++) {
			int i = rest % taps[a].count;
			rest /= taps[a].count;
			place[a] =
			    put2(g, O_add, taps[a].floor, num_like(g, x[a], taps[a].first + i));
			Ref w = taps[a].weight[i];
			weight = weight ? put2(g, O_mul, weight, w) : w;
		}
		Ref term = put2(g, O_mul, take_rows(g, image, place), as_column(g, weight));
		sum = sum ? put2(g, join, sum, term) : term;
	}
	return sum;
}

// ---- GridSample -----------------------------------------------------------------------

// Component `k` of the last axis, as [N, P].
static Ref component(Graph *g, Ref grid, int k)
{
	Shape s = val(g, grid)->shape;
	Ref one = take_range(g, grid, s.rank - 1, k, 1);
	int64_t n = s.dim[0], all = count_of(&s) / MAX(n * s.dim[s.rank - 1], 1);
	return put_reshape(g, one, shape_of(2, (int64_t[]){n, all}));
}

static Ref place_on_axis(Graph *g, const Image *image, int axis, Ref x, bool nearest)
{
	AttrArg given[] = {{.name = "size", .x = (double)image->dim[axis]},
	                   {.name = "corners", .x = image->corners}};
	x = unary_book(g, "grid_place", x, 2, given);
	if (nearest)
		x = put1(g, O_round, x);
	if (image->rim == RIM_EDGE)
		return clip_to(g, x, 0, (double)image->dim[axis] - 1);
	return image->rim == RIM_REFLECT ? reflect(g, image, axis, x) : x;
}

void lower_grid_sample(Call *c)
{
	expect_all_fixed(c);
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, grid = in_val(c, 1)->shape;
	int n = s.rank - 2;
	if (n < 1 || n > 3 || grid.rank != s.rank || grid.dim[s.rank - 1] != n)
		invalid_node(c, "a grid %s for %s", shape_text(c->r->arena, E_f32, &grid),
		             shape_text(c->r->arena, E_f32, &s));
	const char *mode = attr_string(c, "mode", "linear"),
	           *rim = attr_string(c, "padding_mode", "zeros");
	Image image = image_rows(g, c->in[0]);
	image.corners = attr_int(c, "align_corners", 0);
	image.rim = *rim == 'b' ? RIM_EDGE : *rim == 'r' ? RIM_REFLECT : RIM_ZERO;
	Ref x[3];
	for (int a = 0; a < n; a++)
		x[a] = place_on_axis(g, &image, a, component(g, c->in[1], n - 1 - a), *mode == 'n');
	Ref y = *mode == 'n' ? take_rows(g, &image, x)
	                     : sample_points(g, &image, x, strstr(mode, "cubic"), O_add);
	y = put_permute(g, y, (int64_t[]){0, 2, 1});
	Shape out = {.rank = s.rank, .dim = {s.dim[0], s.dim[1]}};
	memcpy(out.dim + 2, grid.dim + 1, sizeof *out.dim * (size_t)n);
	c->out[0] = put_reshape(g, y, out);
}

// Places of an axis in [-1, 1]: of the pixels' centres, or with the outer ones on the ends.
static float grid_coordinate(int64_t i, int64_t size, bool corners)
{
	if (corners)
		return size > 1 ? (float)(2.0 * (double)i / (double)(size - 1) - 1) : -1;
	return (float)((2.0 * (double)i + 1) / (double)size - 1);
}

// The grid before it is transformed: x, y, (z,) 1 of each place, [P, n + 1].
static Ref plain_grid(Call *c, const Shape *at, bool corners)
{
	int n = at->rank;
	int64_t count = count_of(at), stride[RANK];
	row_strides(at, stride);
	float *grid = NEWS(c->r->arena, float, count *(n + 1));
	for (int64_t p = 0; p < count; p++) {
		for (int k = 0; k < n; k++) {
			int a = n - 1 - k;
			grid[p * (n + 1) + k] =
			    grid_coordinate(p / stride[a] % at->dim[a], at->dim[a], corners);
		}
		grid[p * (n + 1) + n] = 1;
	}
	return put_const(c->g, E_f32, shape_of(2, (int64_t[]){count, n + 1}), grid);
}

void lower_affine_grid(Call *c)
{
	expect_all_fixed(c);
	Graph *g = c->g;
	Shape theta = in_val(c, 0)->shape;
	int count = 0, n = (int)theta.dim[1];
	const int64_t *size = operand_ints(c, 1, &count);
	if (theta.rank != 3 || n < 2 || n > 3 || theta.dim[2] != n + 1 || count != n + 2)
		invalid_node(c, "a transformation %s for %d sizes",
		             shape_text(c->r->arena, E_f32, &theta), count);
	Shape at = shape_of(n, size + 2), out = {.rank = n + 2, .dim = {theta.dim[0]}};
	Ref grid = plain_grid(c, &at, attr_int(c, "align_corners", 0));
	Ref y = put2(g, O_dot, put_rank(g, grid, 3), swap_last(g, c->in[0]));
	memcpy(out.dim + 1, at.dim, sizeof *out.dim * (size_t)n);
	out.dim[n + 1] = n;
	c->out[0] = put_reshape(g, y, out);
}

// ---- RoiAlign -------------------------------------------------------------------------

enum { MOST_BINS = 1 << 12 }; // along an axis, and samples of each

typedef struct Bins { // how regions are cut along one axis
	int64_t count;
	int64_t samples; // of a bin; where each region has a number of its own, the most
	Ref each;        // that number, [R, 1]; 0: it is `samples`
	Ref start, size; // of the regions, [R, 1]: as the file has it, in pixels
	double scale, shift;
} Bins;

static Ref entry_in(Graph *g, int64_t n, int64_t group, bool of_group)
{
	float *x = NEWS(g->arena, float, n + 1);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(of_group ? i / group : i % group);
	return put_const(g, E_f32, shape_of(2, (int64_t[]){1, n}), x);
}

// Where the samples lie along one axis: [R, count * samples].
static Ref bin_places(Graph *g, const Bins *b)
{
	int64_t n = b->count * b->samples;
	Ref one = put_num(g, E_f32, 1), at = entry_in(g, n, n, false),
	    each = put_num(g, E_f32, (double)b->samples);
	if (b->each) {
		each = put2(g, O_max, b->each, one);
		at = put2(g, O_add, put2(g, O_mul, entry_in(g, n, b->samples, true), each),
		          entry_in(g, n, b->samples, false));
	}
	AttrArg given[] = {{.name = "scale", .x = b->scale},
	                   {.name = "shift", .x = b->shift},
	                   {.name = "count", .x = (double)b->count}};
	return book_call1(g, "bin_places", 4, (Ref[]){b->start, b->size, at, each}, 3, given);
}

// One sample a pixel, as many as fit into a bin of each region; at most as many as into one of the
// whole axis, unless the regions are known.
static void adapt_samples(Call *c, Bins *b, int64_t size)
{
	Graph *g = c->g;
	Ref bin = put2(g, O_div, b->size, put_num(g, E_f32, (double)b->count));
	Ref each = put2(g, O_max, put1(g, O_ceil, bin), put_num(g, E_f32, 0));
	b->samples = (size + b->count - 1) / b->count;
	if (is_const(g, each)) {
		b->samples = 1;
		for (int64_t i = 0; i < count_of(&val(g, each)->shape); i++) {
			double n = const_at(val(g, each), i);
			if (!(n <= MOST_BINS))
				unsupported_node(
				    c, "give regions in the image, or a sampling_ratio",
				    "%g samples of a bin; at most %d are supported", n, MOST_BINS);
			b->samples = MAX(b->samples, (int64_t)n);
		}
	} else {
		note(c->r, "%s takes at most %lld samples of a bin: regions lie in the image",
		     node_where(c->r->arena, c->node), (long long)b->samples);
	}
	b->each = put2(g, O_min, each, put_num(g, E_f32, (double)b->samples));
}

static Bins read_bins(Call *c, int axis, int64_t size)
{
	const char *places = attr_string(c, "coordinate_transformation_mode",
	                                 c->opset < 16 ? "output_half_pixel" : "half_pixel");
	bool half = !strcmp(places, "half_pixel");
	Graph *g = c->g;
	Bins b = {.count = attr_int(c, axis ? "output_width" : "output_height", 1),
	          .samples = attr_int(c, "sampling_ratio", 0),
	          .start = take_range(g, c->in[1], 1, 1 - axis, 1),
	          .scale = attr_float(c, "spatial_scale", 1),
	          .shift = half ? 0.5 : 0};
	Ref ends[] = {b.start, take_range(g, c->in[1], 1, 3 - axis, 1)};
	AttrArg given[] = {{.name = "scale", .x = b.scale},
	                   {.name = "shift", .x = b.shift},
	                   {.name = "least", .x = half ? -1e30 : 1}};
	if (b.count < 1 || b.samples < 0 || b.count > MOST_BINS || b.samples > MOST_BINS)
		invalid_node(c, "an output of %lld, a sampling_ratio of %lld", (long long)b.count,
		             (long long)b.samples);
	b.size = book_call1(g, "bin_size", 2, ends, 3, given);
	if (!b.samples)
		adapt_samples(c, &b, size);
	return b;
}

// x [R, n] stretched to [R, rows, columns] and flattened, along the rows or the columns.
static Ref spread(Graph *g, Ref x, bool rows, int64_t across)
{
	Shape s = val(g, x)->shape;
	int64_t n = s.dim[1], thin[] = {s.dim[0], rows ? n : 1, rows ? 1 : n};
	int64_t wide[] = {s.dim[0], rows ? n : across, rows ? across : n};
	x = put_expand(g, put_reshape(g, x, shape_of(3, thin)), shape_of(3, wide));
	return merge_axes(g, x, 1, 3);
}

// Samples [R, P, C] of places outside the image by more than a pixel count nothing.
static Ref hide_outside(Graph *g, const Image *image, Ref y, const Ref *x)
{
	Ref seen = 0;
	for (int a = 0; a < 2; a++) {
		Ref low = put2(g, O_le, num_like(g, x[a], -1), x[a]);
		Ref high = put2(g, O_le, x[a], num_like(g, x[a], (double)image->dim[a]));
		Ref in = put2(g, O_and, low, high);
		seen = seen ? put2(g, O_and, seen, in) : in;
	}
	return put2(g, O_mul, y, as_column(g, put_cast(g, seen, E_f32)));
}

static Ref region_samples(Graph *g, Image *image, const Bins *bins, bool largest)
{
	Ref x[2], inner[2], down = bin_places(g, &bins[0]), across = bin_places(g, &bins[1]);
	x[0] = spread(g, down, true, val(g, across)->shape.dim[1]);
	x[1] = spread(g, across, false, val(g, down)->shape.dim[1]);
	for (int a = 0; a < 2; a++)
		inner[a] = clip_to(g, x[a], 0, (double)image->dim[a] - 1);
	Ref y = sample_points(g, image, inner, false, largest ? O_max : O_add);
	return hide_outside(g, image, y, x);
}

// y [R, P, C] with `none` where a region has fewer samples than another along axis a.
static Ref hide_spare(Graph *g, Ref y, const Bins *bins, int a, double none)
{
	const Bins *b = &bins[a], *other = &bins[1 - a];
	if (!b->each)
		return y;
	Ref kept = put2(g, O_lt, entry_in(g, b->count * b->samples, b->samples, false), b->each);
	kept = as_column(g, spread(g, kept, a == 0, other->count * other->samples));
	return put3(g, O_select, kept, y, num_like(g, y, none));
}

void lower_roi_align(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, r = in_val(c, 1)->shape;
	in_val(c, 2);
	if (s.rank != 4 || r.rank != 2 || r.dim[1] != 4)
		invalid_node(c, "wants an image, and regions of four numbers");
	bool largest = !strcmp(attr_string(c, "mode", "avg"), "max");
	Image image = image_rows(g, c->in[0]);
	image.rim = RIM_EDGE;
	Ref of = put_reshape(g, keep_inside(c, c->in[2], s.dim[0]),
	                     shape_of(2, (int64_t[]){r.dim[0], 1}));
	image.first = put2(g, O_mul, of, put_num(g, E_i64, (double)(s.dim[2] * s.dim[3])));
	Bins bins[2] = {read_bins(c, 0, s.dim[2]), read_bins(c, 1, s.dim[3])};
	Ref y = region_samples(g, &image, bins, largest);
	for (int a = 0; a < 2; a++)
		y = hide_spare(g, y, bins, a, largest ? -INFINITY : 0);
	int64_t dims[] = {r.dim[0],      bins[0].count,   bins[0].samples,
	                  bins[1].count, bins[1].samples, s.dim[1]};
	int64_t axes[] = {2, 4}, each[] = {r.dim[0], 1, 1, 1};
	y = drop_axes(
	    g,
	    put_reduce(g, largest ? O_amax : O_sum, put_reshape(g, y, shape_of(6, dims)), 2, axes),
	    2, axes);
	if (largest)
		y = put3(g, O_select, put2(g, O_eq, y, num_like(g, y, -INFINITY)),
		         num_like(g, y, 0), y);
	for (int a = 0; a < 2 && !largest; a++) {
		Ref n = put_num(g, E_f32, (double)bins[a].samples);
		if (bins[a].each)
			n = put_reshape(g, put2(g, O_max, bins[a].each, num_like(g, n, 1)),
			                shape_of(4, each));
		y = put2(g, O_div, y, n);
	}
	c->out[0] = put_permute(g, y, (int64_t[]){0, 3, 1, 2});
}
