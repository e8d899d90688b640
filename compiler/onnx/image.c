// image.c: ONNX operators on images and signals: convolutions, pools, resizing.
// Takes the node being lowered. Gives its results. Keeps: a convolution is a window and a dot of
// two matrices (one a group); a pool is a window and a fold.
#include "lower.h"
#include <math.h>
#include <string.h>

enum { SPACE = 3 }; // spatial axes at most

typedef struct Frame { // how windows lie over the spatial axes 2, 3, ..
	int n;
	int64_t in[SPACE], out[SPACE], size[SPACE], stride[SPACE], dilation[SPACE];
	int64_t before[SPACE], after[SPACE];
} Frame;

static void fill_ints(Call *c, const char *name, int n, int64_t otherwise, int64_t *to)
{
	int count = 0;
	const int64_t *given = attr_ints(c, name, &count);
	if (given && count != n)
		refuse(c, "%s has %d entries for %d axes", name, count, n);
	for (int a = 0; a < n; a++)
		to[a] = given ? given[a] : otherwise;
}

// Strides, dilations and pads as the node says them; sizes are given.
static Frame read_frame(Call *c, const Shape *x, const int64_t *size)
{
	Frame f = {.n = x->rank - 2};
	if (f.n < 1 || f.n > SPACE)
		refuse(c, "%d spatial axes; 1 to %d are supported", f.n, SPACE);
	int64_t pads[2 * SPACE];
	fill_ints(c, "strides", f.n, 1, f.stride);
	fill_ints(c, "dilations", f.n, 1, f.dilation);
	fill_ints(c, "pads", 2 * f.n, 0, pads);
	for (int a = 0; a < f.n; a++) {
		f.in[a] = x->dim[a + 2];
		f.size[a] = size[a];
		f.before[a] = pads[a];
		f.after[a] = pads[f.n + a];
		if (size[a] < 1 || f.stride[a] < 1 || f.dilation[a] < 1)
			refuse(c, "kernel sizes, strides and dilations must be positive");
	}
	return f;
}

static int64_t reach(const Frame *f, int a) // of one window
{
	return f->dilation[a] * (f->size[a] - 1) + 1;
}

// auto_pad: as many windows as strides fit, the rim shared between both sides.
static void pad_same(Frame *f, bool lower)
{
	for (int a = 0; a < f->n; a++) {
		f->out[a] = (f->in[a] + f->stride[a] - 1) / f->stride[a];
		int64_t rim = MAX((f->out[a] - 1) * f->stride[a] + reach(f, a) - f->in[a], 0);
		f->before[a] = lower ? (rim + 1) / 2 : rim / 2;
		f->after[a] = rim - f->before[a];
	}
}

// A last window may hang over the rim where the node asks for it, but must begin inside.
static int64_t window_count(const Frame *f, int a, bool ceiling)
{
	int64_t room = f->in[a] + f->before[a] + f->after[a] - reach(f, a);
	if (room < 0)
		return 0;
	int64_t n = (ceiling ? room + f->stride[a] - 1 : room) / f->stride[a] + 1;
	if (ceiling && (n - 1) * f->stride[a] >= f->in[a] + f->before[a])
		n--;
	return n;
}

static void place_windows(Call *c, Frame *f)
{
	const char *mode = attr_string(c, "auto_pad", "NOTSET");
	if (!strcmp(mode, "SAME_UPPER") || !strcmp(mode, "SAME_LOWER")) {
		pad_same(f, !strcmp(mode, "SAME_LOWER"));
		return;
	}
	for (int a = 0; a < f->n; a++) {
		if (!strcmp(mode, "VALID"))
			f->before[a] = f->after[a] = 0;
		f->out[a] = window_count(f, a, attr_int(c, "ceil_mode", 0));
		if (f->out[a] < 1)
			refuse(c, "axis %d of size %lld is smaller than its kernel of %lld", a + 2,
			       (long long)f->in[a], (long long)reach(f, a));
	}
}

// Windows over axes first, first+1, ..; new last axes hold their entries. `up` > 1: the operand is
// spread out.
static Ref put_windows(Graph *g, Ref x, int first, const Frame *f, const int64_t *up, double fill)
{
	Attr attr = {.n = 7 * f->n, .x = fill};
	for (int a = 0; a < f->n; a++) {
		int64_t row[7] = {first + a,
		                  f->out[a],
		                  f->size[a],
		                  up ? 1 : f->stride[a],
		                  up ? -f->dilation[a] : f->dilation[a],
		                  up ? -f->before[a] : f->before[a],
		                  up ? up[a] : 1};
		memcpy(attr.i + 7 * a, row, sizeof row);
	}
	return put(g, O_window, 1, &x, &attr);
}

// ---- convolution
// ------------------------------------------------------------------------------------------

// Windows [N, G, C, out.., size..] times kernel [G, C * size, O] is [N, G * O, out..].
static Ref convolve(Call *c, Ref windows, Ref kernel, const Frame *f)
{
	Graph *g = c->g;
	Shape w = val(g, windows)->shape;
	int64_t groups = w.dim[1], fan = val(g, kernel)->shape.dim[1],
	        each = val(g, kernel)->shape.dim[2];
	int64_t perm[RANK] = {0, 1};
	for (int a = 0; a < f->n; a++) {
		perm[2 + a] = 3 + a;
		perm[3 + f->n + a] = 3 + f->n + a;
	}
	perm[2 + f->n] = 2;
	Ref x = put_permute(g, windows, perm);
	int64_t places = 1;
	for (int a = 0; a < f->n; a++)
		places *= f->out[a];
	Ref y;
	if (groups == 1) { // one matrix product over all places of all samples
		x = put_reshape(g, x, shape_of(2, (int64_t[]){w.dim[0] * places, fan}));
		y = put2(g, O_dot, x, put_reshape(g, kernel, shape_of(2, (int64_t[]){fan, each})));
		y = put_reshape(g, y, shape_of(3, (int64_t[]){w.dim[0], places, each}));
		y = put_permute(g, y, (int64_t[]){0, 2, 1});
	} else {
		x = put_reshape(g, x, shape_of(4, (int64_t[]){w.dim[0], groups, places, fan}));
		y = put2(g, O_dot, x, put_rank(g, kernel, 4));
		y = put_permute(g, y, (int64_t[]){0, 1, 3, 2});
	}
	int64_t out[2 + SPACE] = {w.dim[0], groups * each};
	memcpy(out + 2, f->out, sizeof(int64_t) * (size_t)f->n);
	return put_reshape(g, y, shape_of(2 + f->n, out));
}

static Ref add_bias(Call *c, Ref y)
{
	Shape s = val(c->g, y)->shape;
	Ref bias = c->nin > 2 && c->in[2] ? c->in[2] : missing_bias(c, s.dim[1]);
	if (!bias)
		return y;
	int64_t dims[RANK] = {1, s.dim[1]};
	for (int a = 2; a < s.rank; a++)
		dims[a] = 1;
	return put2(c->g, O_add, y, put_reshape(c->g, bias, shape_of(s.rank, dims)));
}

// [N, C, ..] as [N, groups, C / groups, ..]
static Ref group_channels(Graph *g, Ref x, int64_t groups)
{
	Shape s = val(g, x)->shape,
	      out = {.rank = s.rank + 1, .dim = {s.dim[0], groups, s.dim[1] / groups}};
	memcpy(out.dim + 3, s.dim + 2, sizeof(int64_t) * (size_t)(s.rank - 2));
	return put_reshape(g, x, out);
}

void lower_conv(Call *c)
{
	Graph *g = c->g;
	Shape x = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	int64_t groups = attr_int(c, "group", 1);
	if (w.rank != x.rank || x.rank < 3 || groups < 1 || w.dim[0] % groups ||
	    x.dim[1] != w.dim[1] * groups)
		refuse(c, "a kernel %s for %lld channels in %lld groups",
		       shape_text(c->r->arena, E_f32, &w), (long long)x.dim[1], (long long)groups);
	note_weight(c, 1);
	Frame f = read_frame(c, &x, w.dim + 2);
	place_windows(c, &f);
	Ref windows = put_windows(g, group_channels(g, c->in[0], groups), 3, &f, NULL, 0);
	int64_t fan = count_of(&w) / MAX(w.dim[0], 1);
	int64_t dims[] = {groups, w.dim[0] / groups, fan};
	Ref kernel =
	    put_permute(g, put_reshape(g, c->in[1], shape_of(3, dims)), (int64_t[]){0, 2, 1});
	c->out[0] = add_bias(c, convolve(c, windows, kernel, &f));
}

// The size of the result and its rim: output o takes input i with kernel entry k where o = i *
// stride - before + k * dilation.
static void place_spread(Call *c, Frame *f)
{
	int64_t extra[SPACE], wanted[SPACE];
	fill_ints(c, "output_padding", f->n, 0, extra);
	fill_ints(c, "output_shape", f->n, 0, wanted);
	const char *mode = attr_string(c, "auto_pad", "NOTSET");
	bool lower = !strcmp(mode, "SAME_LOWER"), same = lower || !strcmp(mode, "SAME_UPPER");
	for (int a = 0; a < f->n; a++) {
		int64_t full = (f->in[a] - 1) * f->stride[a] + extra[a] + reach(f, a);
		if (same && !wanted[a])
			wanted[a] = f->in[a] * f->stride[a];
		if (wanted[a]) {
			int64_t rim = full - wanted[a];
			f->before[a] = lower || !same ? (rim + 1) / 2 : rim / 2;
			f->after[a] = rim - f->before[a];
			if (!lower)
				f->before[a] = rim / 2;
		}
		f->out[a] = wanted[a] ? wanted[a] : full - f->before[a] - f->after[a];
		if (f->out[a] < 1)
			refuse(c, "nothing of axis %d remains", a + 2);
	}
}

void lower_conv_transpose(Call *c)
{
	Graph *g = c->g;
	Shape x = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	int64_t groups = attr_int(c, "group", 1);
	if (w.rank != x.rank || x.rank < 3 || groups < 1 || x.dim[1] != w.dim[0] ||
	    x.dim[1] % groups)
		refuse(c, "a kernel %s for %lld channels in %lld groups",
		       shape_text(c->r->arena, E_f32, &w), (long long)x.dim[1], (long long)groups);
	Frame f = read_frame(c, &x, w.dim + 2);
	place_spread(c, &f);
	Ref windows = put_windows(g, group_channels(g, c->in[0], groups), 3, &f, f.stride, 0);
	int64_t size = count_of(&w) / MAX(w.dim[0] * w.dim[1], 1);
	int64_t dims[] = {groups, w.dim[0] / groups, w.dim[1], size};
	Ref kernel = put_reshape(g, c->in[1], shape_of(4, dims));
	kernel = put_permute(g, kernel, (int64_t[]){0, 1, 3, 2});
	kernel = put_reshape(g, kernel, shape_of(3, (int64_t[]){groups, dims[1] * size, w.dim[1]}));
	c->out[0] = add_bias(c, convolve(c, windows, kernel, &f));
}

// ---- pools
// --------------------------------------------------------------------------------------------------

static Ref fold_windows(Graph *g, Op op, Ref windows, const Frame *f)
{
	int64_t axes[SPACE];
	for (int a = 0; a < f->n; a++)
		axes[a] = 2 + f->n + a;
	return drop_axes(g, put_fold(g, op, windows, f->n, axes), f->n, axes);
}

static Frame pool_frame(Call *c)
{
	Shape x = in_val(c, 0)->shape;
	int64_t size[SPACE];
	if (x.rank - 2 < 1 || x.rank - 2 > SPACE)
		refuse(c, "%d spatial axes; 1 to %d are supported", x.rank - 2, SPACE);
	fill_ints(c, "kernel_shape", x.rank - 2, 1, size);
	Frame f = read_frame(c, &x, size);
	place_windows(c, &f);
	return f;
}

void lower_max_pool(Call *c)
{
	Frame f = pool_frame(c);
	double lowest = elems[in_val(c, 0)->type].cls == 'f' ? -INFINITY : -128;
	c->out[0] =
	    fold_windows(c->g, O_amax, put_windows(c->g, c->in[0], 2, &f, NULL, lowest), &f);
}

// How many entries of window o along axis a count: those inside, or inside the rim too.
static int64_t entries_inside(const Frame *f, int a, int64_t o, bool rim)
{
	int64_t n = 0;
	for (int64_t k = 0; k < f->size[a]; k++) {
		int64_t at = o * f->stride[a] + k * f->dilation[a] - f->before[a];
		n += rim ? at < f->in[a] + f->after[a] : at >= 0 && at < f->in[a];
	}
	return n;
}

void lower_average_pool(Call *c)
{
	Graph *g = c->g;
	Frame f = pool_frame(c);
	bool rim = attr_int(c, "count_include_pad", 0);
	Ref y = fold_windows(g, O_sum, put_windows(g, c->in[0], 2, &f, NULL, 0), &f);
	Ref count = put_num(g, E_f32, 1);
	for (int a = 0; a < f.n; a++) {
		float *n = NEWS(c->r->arena, float, f.out[a]);
		for (int64_t o = 0; o < f.out[a]; o++)
			n[o] = (float)entries_inside(&f, a, o, rim);
		int64_t dims[2 + SPACE] = {1, 1, 1, 1, 1};
		dims[2 + a] = f.out[a];
		count = put2(g, O_mul, count, put_const(g, E_f32, shape_of(2 + f.n, dims), n));
	}
	c->out[0] = put2(g, O_div, y, count);
}

void lower_lp_pool(Call *c)
{
	Graph *g = c->g;
	Frame f = pool_frame(c);
	Ref p = put_num(g, E_f32, (double)attr_int(c, "p", 2));
	Ref x = put2(g, O_pow, put1(g, O_abs, c->in[0]), p);
	x = fold_windows(g, O_sum, put_windows(g, x, 2, &f, NULL, 0), &f);
	c->out[0] = put2(g, O_pow, x, put2(g, O_div, put_num(g, E_f32, 1), p));
}

// x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta
void lower_lrn(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t size = attr_int(c, "size", 1);
	if (size < 1 || s.rank < 2)
		refuse(c, "size %lld", (long long)size);
	Ref x = c->in[0], squares = put2(g, O_mul, x, x);
	Attr attr = {.n = 7, .i = {1, s.dim[1], size, 1, 1, (size - 1) / 2, 1}};
	Ref sum = put(g, O_window, 1, &squares, &attr);
	int64_t axis = s.rank;
	sum = drop_axes(g, put_fold(g, O_sum, sum, 1, &axis), 1, &axis);
	sum = put2(g, O_mul, sum, put_num(g, E_f32, attr_float(c, "alpha", 1e-4) / (double)size));
	sum = put2(g, O_add, sum, put_num(g, E_f32, attr_float(c, "bias", 1)));
	c->out[0] =
	    put2(g, O_div, x, put2(g, O_pow, sum, put_num(g, E_f32, attr_float(c, "beta", 0.75))));
}

// ---- resizing
// -------------------------------------------------------------------------------------------------

typedef struct Zoom { // one axis of a resize
	int64_t in, out;
	double scale, start, end; // start, end: of the region, for tf_crop_and_resize
} Zoom;

static double source_place(Call *c, const char *mode, const Zoom *z, int64_t o)
{
	double x = (double)o, in = (double)z->in, out = (double)z->out;
	if (!strcmp(mode, "asymmetric"))
		return x / z->scale;
	if (!strcmp(mode, "align_corners"))
		return z->scale * in != 1 ? x * (in - 1) / (z->scale * in - 1) : 0;
	if (!strcmp(mode, "pytorch_half_pixel") && z->out == 1)
		return 0;
	if (!strcmp(mode, "half_pixel_symmetric")) {
		double adjustment = out / (z->scale * in), centre = in / 2;
		return centre * (1 - adjustment) + (x + 0.5) / z->scale - 0.5;
	}
	if (strcmp(mode, "half_pixel") && strcmp(mode, "pytorch_half_pixel"))
		refuse(c, "coordinate_transformation_mode '%s'", mode);
	return (x + 0.5) / z->scale - 0.5;
}

static int64_t nearest_of(const char *mode, double x)
{
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

// Weights of a cubic through four neighbours, the second of which is `t` to the left (Keys).
static void cubic_weights(double a, double t, double *w)
{
	for (int k = 0; k < 4; k++) {
		double d = fabs(t - (k - 1));
		w[k] = d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
		       : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
		               : 0;
	}
}

// The matrix [in, out] that takes one axis to its new size.
static Ref zoom_matrix(Call *c, const Zoom *z, const char *coordinates, const char *mode,
                       const char *nearest)
{
	float *m = NEWS(c->r->arena, float, z->in * z->out);
	double cubic = attr_float(c, "cubic_coeff_a", -0.75);
	bool exclude = attr_int(c, "exclude_outside", 0);
	for (int64_t o = 0; o < z->out; o++) {
		double x = source_place(c, coordinates, z, o), w[4];
		int64_t low = (int64_t)floor(x);
		if (mode[0] == 'n') {
			m[inside(nearest_of(nearest, x), z->in) * z->out + o] = 1;
		} else if (mode[0] == 'c') {
			cubic_weights(cubic, x - (double)low, w);
			double sum = 0;
			for (int k = 0; k < 4; k++) {
				if (exclude && inside(low - 1 + k, z->in) != low - 1 + k)
					w[k] = 0;
				sum += w[k];
			}
			for (int k = 0; k < 4; k++)
				m[inside(low - 1 + k, z->in) * z->out + o] += (float)(w[k] / sum);
		} else {
			double t = x - (double)low;
			m[inside(low, z->in) * z->out + o] += (float)(1 - t);
			m[inside(low + 1, z->in) * z->out + o] += (float)t;
		}
	}
	return put_const(c->g, E_f32, shape_of(2, (int64_t[]){z->in, z->out}), m);
}

static Ref zoom_nearest(Call *c, Ref x, int axis, const Zoom *z, const char *coordinates,
                        const char *nearest)
{
	int64_t *from = NEWS(c->r->arena, int64_t, z->out);
	for (int64_t o = 0; o < z->out; o++)
		from[o] = inside(nearest_of(nearest, source_place(c, coordinates, z, o)), z->in);
	return put_gather(c->g, x, put_ints(c->g, (int)z->out, from), axis);
}

static Ref zoom_axis(Call *c, Ref x, int axis, const Zoom *z, const char *mode)
{
	Graph *g = c->g;
	const char *nearest =
	    attr_string(c, "nearest_mode", c->opset < 11 ? "floor" : "round_prefer_floor");
	const char *coordinates = attr_string(c, "coordinate_transformation_mode",
	                                      c->opset < 11 ? "asymmetric" : "half_pixel");
	if (mode[0] == 'n')
		return zoom_nearest(c, x, axis, z, coordinates, nearest);
	int rank = val(g, x)->shape.rank;
	int64_t perm[RANK];
	for (int a = 0; a < rank; a++)
		perm[a] = a;
	perm[axis] = rank - 1;
	perm[rank - 1] = axis;
	return put_permute(
	    g, matmul(g, put_permute(g, x, perm), zoom_matrix(c, z, coordinates, mode, nearest)),
	    perm);
}

void lower_resize(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	bool old = c->opset < 11;
	int nscale = 0, nsize = 0, naxes = 0;
	const double *scales = operand_numbers(c, old ? 1 : 2, &nscale);
	const int64_t *sizes = old ? NULL : operand_ints(c, 3, &nsize);
	const int64_t *axes = attr_ints(c, "axes", &naxes);
	const AttributeProto *a = find_attr(c, "scales");
	if (!nscale && a && old) {
		double *from = NEWS(c->r->arena, double, a->n_floats + 1);
		for (size_t i = 0; i < a->n_floats; i++)
			from[i] = (double)a->floats[i];
		scales = from;
		nscale = (int)a->n_floats;
	}
	int n = axes ? naxes : s.rank;
	if ((nsize ? nsize : nscale) != n)
		refuse(c, "%d scales and %d sizes for %d axes", nscale, nsize, n);
	const char *mode = attr_string(c, "mode", "nearest");
	if (attr_int(c, "antialias", 0) ||
	    strcmp(attr_string(c, "keep_aspect_ratio_policy", "stretch"), "stretch"))
		refuse(c, "antialias and keep_aspect_ratio_policy are not supported");
	c->out[0] = c->in[0];
	for (int i = 0; i < n; i++) {
		int axis = (int)axis_of(c, axes ? axes[i] : i, s.rank);
		Zoom z = {.in = s.dim[axis]};
		z.out = nsize ? sizes[i] : (int64_t)floor((double)z.in * scales[i]);
		z.scale = nsize ? (double)z.out / (double)z.in : scales[i];
		if (z.out < 1 || z.out > 1 << 20)
			refuse(c, "axis %d would get %lld entries", axis, (long long)z.out);
		if (z.out != z.in || z.scale != 1)
			c->out[0] = zoom_axis(c, c->out[0], axis, &z, mode);
	}
}
