// resize.c: Resize and Upsample. Takes the node being lowered. Gives its results.
// Keeps: axes are resized one after the other, each by a gather (nearest) or a product with a
// matrix.
#include "ops.h"
#include <math.h>
#include <string.h>

typedef struct Zoom { // one axis of a resize
	int axis;
	int64_t in, out;
	double scale, start, end; // start, end: of the region, for tf_crop_and_resize
	Ref place; // f32[out]: where entries lie, if the data decide the region; 0: as is known
} Zoom;

typedef struct Manner { // how it interpolates
	const char *mode, *nearest, *coordinates;
	double cubic, outside;
	bool exclude, antialias;
} Manner;

static Manner read_manner(const Call *c)
{
	bool old = c->opset < 11;
	return (Manner){
	    .mode = attr_string(c, "mode", "nearest"),
	    .nearest = attr_string(c, "nearest_mode", old ? "simple" : "round_prefer_floor"),
	    .coordinates =
	        attr_string(c, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
	    .cubic = attr_float(c, "cubic_coeff_a", -0.75),
	    .outside = attr_float(c, "extrapolation_value", 0),
	    .exclude = attr_int(c, "exclude_outside", 0),
	    .antialias = attr_int(c, "antialias", 0),
	};
}

static bool crops(const Manner *m)
{
	return !strcmp(m->coordinates, "tf_crop_and_resize");
}

// Where entry o of the result lies in the operand.
static double source_place(Call *c, const Manner *m, const Zoom *z, int64_t o)
{
	const char *mode = m->coordinates;
	double x = (double)o, in = (double)z->in, out = (double)z->out;
	if (crops(m)) {
		double at = z->out > 1 ? x / (out - 1) : 0.5;
		return (z->start + at * (z->end - z->start)) * (in - 1);
	}
	if (!strcmp(mode, "asymmetric"))
		return x / z->scale;
	if (!strcmp(mode, "align_corners"))
		return z->scale * in != 1 ? x * (in - 1) / (z->scale * in - 1) : 0;
	if (!strcmp(mode, "tf_half_pixel_for_nn"))
		return (x + 0.5) / z->scale;
	if (!strcmp(mode, "pytorch_half_pixel") && z->out == 1)
		return 0;
	if (!strcmp(mode, "half_pixel_symmetric")) {
		double adjustment = out / (z->scale * in), centre = in / 2;
		return centre * (1 - adjustment) + (x + 0.5) / z->scale - 0.5;
	}
	if (strcmp(mode, "half_pixel") && strcmp(mode, "pytorch_half_pixel"))
		invalid_node(c, "coordinate_transformation_mode '%s'", mode);
	return (x + 0.5) / z->scale - 0.5;
}

// Before set 11 ("simple") an axis that shrinks takes the next entry, one that grows the last.
static int64_t nearest_of(const char *mode, double x, double scale)
{
	if (!strcmp(mode, "simple"))
		mode = scale < 1 ? "ceil" : "floor";
	if (!strcmp(mode, "floor"))
		return (int64_t)floor(x);
	if (!strcmp(mode, "ceil"))
		return (int64_t)ceil(x);
	return (int64_t)(strcmp(mode, "round_prefer_ceil") ? ceil(x - 0.5) : floor(x + 0.5));
}

static int64_t inside(int64_t x, int64_t n)
{
	return x < 0 ? 0 : x >= n ? n - 1 : x;
}

// The weight of an entry `d` away: a triangle, or Keys' cubic.
static double weight_at(const Manner *m, double d)
{
	double a = m->cubic;
	d = fabs(d);
	if (m->mode[0] != 'c')
		return d < 1 ? 1 - d : 0;
	return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
	       : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
	               : 0;
}

// Column o of the matrix [in, out]: weights of the entries around x, which sum to 1. Antialiasing
// widens them where the axis shrinks.
static void fill_column(const Manner *m, const Zoom *z, double x, float *column)
{
	double shrink = m->antialias ? fmin(z->scale, 1) : 1, sum = 0;
	double reach = (m->mode[0] == 'c' ? 2 : 1) / shrink;
	for (int pass = 0; pass < 2; pass++) {
		for (int64_t i = (int64_t)ceil(x - reach); (double)i <= x + reach; i++) {
			double w = weight_at(m, ((double)i - x) * shrink);
			if (m->exclude && inside(i, z->in) != i)
				continue;
			if (pass)
				column[inside(i, z->in) * z->out] += (float)(w / sum);
			else
				sum += w;
		}
	}
}

// ---- a region that the data decide ----------------------------------------------------

// Where its entries lie; start and end: f32, rank 0.
static Ref places_between(Call *c, const Zoom *z, Ref start, Ref end)
{
	Graph *g = c->g;
	float *share = NEWS(c->r->arena, float, z->out);
	for (int64_t o = 0; o < z->out; o++)
		share[o] = z->out > 1 ? (float)o / (float)(z->out - 1) : 0.5F;
	Ref at = put_const(g, E_f32, shape_of(1, &z->out), share);
	at = put2(g, O_add, start, put2(g, O_mul, at, put2(g, O_sub, end, start)));
	return scaled(g, at, (double)(z->in - 1));
}

static Ref lies_outside(Graph *g, const Zoom *z)
{
	return put2(g, O_or, put2(g, O_lt, z->place, num_like(g, z->place, 0)),
	            put2(g, O_lt, num_like(g, z->place, (double)(z->in - 1)), z->place));
}

static Ref nearest_places(Graph *g, const Zoom *z, const char *mode)
{
	bool up = !strcmp(mode, "ceil") || !strcmp(mode, "round_prefer_floor"),
	     half = starts_with(mode, "round");
	Ref at = z->place;
	if (half)
		at = put2(g, O_add, at, num_like(g, at, up ? -0.5 : 0.5));
	at = put_cast(g, put1(g, up ? O_ceil : O_floor, at), E_i64);
	return smaller_of(g, larger_of(g, at, put_i64(g, 0)), put_i64(g, z->in - 1));
}

// The weight of an entry at places `at`.
static Ref weight_from(Graph *g, const Manner *m, Ref at, Ref entry)
{
	Ref away = put1(g, O_abs, put2(g, O_sub, at, entry));
	AttrArg a = {.name = "a", .x = m->cubic};
	bool cubic = m->mode[0] == 'c';
	return book_call1(g, cubic ? "cubic_weight" : "linear_weight", 1, &away, cubic, &a);
}

// What fill_column gives, [in, out]. What lies beyond an end counts for it, or not at all.
static Ref weights_between(Call *c, const Zoom *z, const Manner *m)
{
	Graph *g = c->g;
	int64_t dims[] = {z->in, 1}, axis = 0, end[] = {0, z->in - 1}, beyond[] = {-1, z->in};
	if (m->antialias)
		unsupported_node(c, "export without antialias, or with a fixed region",
		                 "an antialiased region that the data decide");
	Ref in[] = {put_rank(g, z->place, 2), put_num(g, E_f32, 0),
	            put_num(g, E_f32, (double)end[1])};
	Ref at = book_call1(g, "clip", 3, in, 0, NULL), entry = put_iota(g, shape_of(2, dims), 0);
	Ref sum = weight_from(g, m, at, put_cast(g, entry, E_f32));
	for (int i = 0; i < 2 && !m->exclude; i++) {
		Ref w = weight_from(g, m, at, num_like(g, at, (double)beyond[i]));
		Ref here = put2(g, O_eq, entry, put_i64(g, end[i]));
		sum = put2(g, O_add, sum, put3(g, O_select, here, w, num_like(g, w, 0)));
	}
	return put2(g, O_div, sum, put_reduce(g, O_sum, sum, 1, &axis));
}

// ---- one axis -------------------------------------------------------------------------

static Ref zoom_nearest(Call *c, Ref x, const Zoom *z, const Manner *m)
{
	if (z->place)
		return put_gather(c->g, x, nearest_places(c->g, z, m->nearest), z->axis);
	int64_t *from = NEWS(c->r->arena, int64_t, z->out);
	for (int64_t o = 0; o < z->out; o++)
		from[o] = inside(nearest_of(m->nearest, source_place(c, m, z, o), z->scale), z->in);
	return put_gather(c->g, x, put_ints(c->g, (int)z->out, from), z->axis);
}

static Ref zoom_smooth(Call *c, Ref x, const Zoom *z, const Manner *m)
{
	Graph *g = c->g;
	int rank = val(g, x)->shape.rank;
	float *matrix = NEWS(c->r->arena, float, z->in * z->out);
	for (int64_t o = 0; o < z->out && !z->place; o++)
		fill_column(m, z, source_place(c, m, z, o), matrix + o);
	int64_t perm[RANK], dims[] = {z->in, z->out};
	for (int a = 0; a < rank; a++)
		perm[a] = a;
	perm[z->axis] = rank - 1;
	perm[rank - 1] = z->axis;
	Ref weights =
	    z->place ? weights_between(c, z, m) : put_const(g, E_f32, shape_of(2, dims), matrix);
	return put_permute(g, matmul(g, put_permute(g, x, perm), weights), perm);
}

// A value along axis z of `rank`.
static Ref along_axis(Graph *g, Ref x, int rank, const Zoom *z)
{
	Shape at = {.rank = rank};
	for (int a = 0; a < rank; a++)
		at.dim[a] = a == z->axis ? z->out : 1;
	return put_reshape(g, x, at);
}

// Entries whose place lies outside of the operand get the value that the node says.
static Ref extrapolate(Call *c, Ref y, const Zoom *z, const Manner *m)
{
	Graph *g = c->g;
	uint8_t *known = NEWS(c->r->arena, uint8_t, z->out);
	for (int64_t o = 0; o < z->out && !z->place; o++) {
		double x = source_place(c, m, z, o);
		known[o] = x < 0 || x > (double)(z->in - 1);
	}
	Ref outside =
	    z->place ? lies_outside(g, z) : put_const(g, E_b8, shape_of(1, &z->out), known);
	outside = along_axis(g, outside, val(g, y)->shape.rank, z);
	return put3(g, O_select, outside, num_like(g, y, m->outside), y);
}

// Of the very first sets: of the last two axes.
static const double *height_and_width(Call *c, int *n)
{
	*n = in_val(c, 0)->shape.rank;
	double *scale = NEWS(c->r->arena, double, *n + 2);
	for (int a = 0; a < *n; a++)
		scale[a] = 1;
	scale[MAX(*n - 2, 0)] = attr_float(c, "height_scale", 1);
	scale[MAX(*n - 1, 0)] = attr_float(c, "width_scale", 1);
	return scale;
}

// Scales: operand 1 or 2, or an attribute of the first sets.
static const double *read_scales(Call *c, int *n)
{
	bool old = c->opset < 11;
	const double *scales = operand_numbers(c, old ? 1 : 2, n);
	const AttributeProto *a = find_attr(c, "scales");
	if (find_attr(c, "height_scale"))
		return height_and_width(c, n);
	if (*n || !a || !old)
		return scales;
	double *from = NEWS(c->r->arena, double, a->n_floats + 1);
	for (size_t i = 0; i < a->n_floats; i++)
		from[i] = (double)a->floats[i];
	*n = (int)a->n_floats;
	return from;
}

// The region: starts of the axes, then ends. What of it is known is in the zooms; else their
// places.
static void read_region(Call *c, int n, Zoom *z)
{
	Graph *g = c->g;
	Ref region = flat(g, (in_val(c, 1), fixed_operand(c, 1)));
	if (val(g, region)->shape.dim[0] != 2 * n)
		invalid_node(c, "a region of %lld numbers for %d axes",
		             (long long)val(g, region)->shape.dim[0], n);
	for (int i = 0; i < n; i++) {
		Ref end[2];
		for (int k = 0; k < 2; k++)
			end[k] = put_reshape(g, take_range(g, region, 0, i + k * n, 1), (Shape){0});
		if (is_const(g, end[0]) && is_const(g, end[1])) {
			z[i].start = const_at(val(g, end[0]), 0);
			z[i].end = const_at(val(g, end[1]), 0);
		} else {
			z[i].place = places_between(c, &z[i], end[0], end[1]);
		}
	}
}

// One scale for all axes, so that none gets larger (or smaller) than its size.
static void keep_aspect(int n, const int64_t *sizes, Zoom *z, bool larger)
{
	double scale = 0;
	for (int i = 0; i < n; i++) {
		double each = (double)sizes[i] / (double)z[i].in;
		scale = !i ? each : larger ? fmax(scale, each) : fmin(scale, each);
	}
	for (int i = 0; i < n; i++) {
		z[i].scale = scale;
		z[i].out = (int64_t)floor(scale * (double)z[i].in + 0.5);
	}
}

static int read_zooms(Call *c, const Manner *m, Zoom *z)
{
	Shape s = in_val(c, 0)->shape;
	int nscale = 0, nsize = 0, naxes = 0;
	const double *scales = read_scales(c, &nscale);
	const int64_t *sizes = c->opset < 11 ? NULL : operand_ints(c, 3, &nsize);
	const int64_t *axes = attr_ints(c, "axes", &naxes);
	const char *policy = attr_string(c, "keep_aspect_ratio_policy", "stretch");
	int n = axes ? naxes : s.rank;
	if (n > RANK || (nsize ? nsize : nscale) != n)
		invalid_node(c, "%d scales and %d sizes for %d axes", nscale, nsize, n);
	axes = axes_of(c, axes, n, s.rank);
	for (int i = 0; i < n; i++) {
		int axis = (int)axes[i];
		int64_t in = s.dim[axis];
		int64_t out = nsize ? sizes[i] : (int64_t)floor((double)in * scales[i]);
		double scale = nsize ? (double)out / (double)in : scales[i];
		z[i] = (Zoom){axis, in, out, scale, 0, 1, 0};
	}
	if (nsize && strcmp(policy, "stretch"))
		keep_aspect(n, sizes, z, !strcmp(policy, "not_smaller"));
	for (int i = 0; i < n; i++)
		if (z[i].out < 1 || z[i].out > 1 << 20)
			invalid_node(c, "axis %d would get %lld entries", z[i].axis,
			             (long long)z[i].out);
	if (crops(m))
		read_region(c, n, z);
	return n;
}

void lower_resize(Call *c)
{
	Manner m = read_manner(c);
	Zoom zoom[RANK];
	int n = read_zooms(c, &m, zoom);
	Ref x = c->in[0];
	for (int i = 0; i < n; i++) {
		const Zoom *z = &zoom[i];
		if (z->out == z->in && z->scale == 1 && !crops(&m))
			continue;
		expect_fixed_axis(c, 0, z->axis);
		x = m.mode[0] == 'n' ? zoom_nearest(c, x, z, &m) : zoom_smooth(c, x, z, &m);
		if (crops(&m))
			x = extrapolate(c, x, z, &m);
	}
	c->out[0] = x;
}
