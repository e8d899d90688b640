// conv.c: lowers convolutions and pooling.
// Convolutions and pools. Takes the node being lowered. Gives its results. Keeps: a convolution is
// a window and a dot of two matrices (one a group); a pool is a window and a fold.
#include "ops.h"
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
		invalid_node(c, "%s has %d entries for %d axes", name, count, n);
	for (int a = 0; a < n; a++)
		to[a] = given ? given[a] : otherwise;
}

// Strides, dilations and pads as the node says them; sizes are given.
static Frame read_frame(Call *c, const Shape *x, const int64_t *size)
{
	Frame f = {.n = x->rank - 2};
	if (f.n < 1 || f.n > SPACE)
		unsupported_node(c, fewer_axes, "%d spatial axes; 1 to %d are supported", f.n,
		                 SPACE);
	int64_t pads[2 * SPACE], kernel[SPACE];
	fill_ints(c, "kernel_shape", f.n, 0, kernel);
	fill_ints(c, "strides", f.n, 1, f.stride);
	fill_ints(c, "dilations", f.n, 1, f.dilation);
	fill_ints(c, "pads", 2 * f.n, 0, pads);
	for (int a = 0; a < f.n; a++) {
		f.in[a] = x->dim[a + 2];
		f.size[a] = size[a];
		f.before[a] = pads[a];
		f.after[a] = pads[f.n + a];
		if (size[a] < 1 || (kernel[a] && kernel[a] != size[a]))
			invalid_node(
			    c, "a kernel of %lld entries along axis %d, kernel_shape says %lld",
			    (long long)size[a], a + 2, (long long)kernel[a]);
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
			invalid_node(c, "axis %d of size %lld is smaller than its kernel of %lld",
			             a + 2, (long long)f->in[a], (long long)reach(f, a));
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

// ---- convolution ----------------------------------------------------------------------

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

// The kernel w as [groups, C / groups * size, O / groups].
static Ref group_kernel(const Call *c, const Shape *w, int64_t groups)
{
	int64_t dims[] = {groups, w->dim[0] / groups, count_of(w) / MAX(w->dim[0], 1)};
	Ref kernel = put_reshape(c->g, c->in[1], shape_of(3, dims));
	return put_permute(c->g, kernel, (int64_t[]){0, 2, 1});
}

void lower_conv(Call *c)
{
	Graph *g = c->g;
	Shape x = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	int64_t groups = attr_int(c, "group", 1);
	expect_fixed(c, 1);
	if (w.rank != x.rank || x.rank < 3 || w.dim[0] % groups || x.dim[1] != w.dim[1] * groups)
		invalid_node(c, "a kernel %s for %lld channels in %lld groups",
		             shape_text(c->r->arena, E_f32, &w), (long long)x.dim[1],
		             (long long)groups);
	note_weight(c, 1);
	Frame f = read_frame(c, &x, w.dim + 2);
	place_windows(c, &f);
	Ref windows = put_windows(g, group_channels(g, c->in[0], groups), 3, &f, NULL, 0);
	c->out[0] = add_bias(c, convolve(c, windows, group_kernel(c, &w, groups), &f));
}

// What the result's sizes are to be, 0 where they follow from the rest. Some files name all axes,
// the batch and the channels too.
static void wanted_sizes(Call *c, int n, int64_t *to)
{
	int count = 0;
	const int64_t *given = attr_ints(c, "output_shape", &count);
	if (given && count == n + 2)
		memcpy(to, given + 2, sizeof *to * (size_t)n);
	else
		fill_ints(c, "output_shape", n, 0, to);
}

// The size of the result and its rim: output o takes input i with kernel entry k where o = i *
// stride - before + k * dilation.
static void place_spread(Call *c, Frame *f)
{
	int64_t extra[SPACE], wanted[SPACE];
	fill_ints(c, "output_padding", f->n, 0, extra);
	wanted_sizes(c, f->n, wanted);
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
			invalid_node(c, "nothing of axis %d remains", a + 2);
	}
}

void lower_conv_transpose(Call *c)
{
	Graph *g = c->g;
	Shape x = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	int64_t groups = attr_int(c, "group", 1);
	expect_fixed(c, 1);
	if (w.rank != x.rank || x.rank < 3 || x.dim[1] != w.dim[0] || x.dim[1] % groups)
		invalid_node(c, "a kernel %s for %lld channels in %lld groups",
		             shape_text(c->r->arena, E_f32, &w), (long long)x.dim[1],
		             (long long)groups);
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

// Columns [N, C * block, places] summed where they overlap: the gradient of windows.
void lower_col2im(Call *c)
{
	expect_all_fixed(c);
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n = 0, nblock = 0;
	const int64_t *image = operand_ints(c, 1, &n), *block = operand_ints(c, 2, &nblock);
	if (!image || !block || n != nblock || n < 1 || n > SPACE || s.rank != 3)
		invalid_node(c, "wants columns, and a size and a block for 1 to %d axes", SPACE);
	Shape to = {.rank = 2 + n, .dim = {s.dim[0]}};
	int64_t fan = 1, row[SPACE][7], perm[RANK] = {0, 1};
	for (int a = 0; a < n; a++) {
		to.dim[2 + a] = image[a];
		fan *= block[a];
	}
	to.dim[1] = s.dim[1] / MAX(fan, 1);
	Frame f = read_frame(c, &to, block);
	Shape wide = {.rank = 2 + 2 * n, .dim = {s.dim[0], to.dim[1]}};
	for (int a = 0; a < n; a++) {
		f.out[a] = window_count(&f, a, false);
		wide.dim[2 + a] = f.size[a];
		wide.dim[2 + n + a] = f.out[a];
		perm[2 + a] = 2 + n + a;
		perm[2 + n + a] = 2 + a;
		const int64_t of[7] = {2 + a,         f.out[a],    f.size[a], f.stride[a],
		                       f.dilation[a], f.before[a], 1};
		memcpy(row[a], of, sizeof of);
	}
	if (count_of(&wide) != count_of(&s))
		invalid_node(c, "%s are not the columns of such an image",
		             shape_text(c->r->arena, E_f32, &s));
	Ref x = put_permute(g, put_reshape(g, c->in[0], wide), perm);
	c->out[0] = put_unwindow(g, x, &to, n, (const int64_t(*)[7])row);
}

// ---- deformed windows -----------------------------------------------------------------

// Coordinate `a` of each point: where the window's entry would lie, and the offset: [N * groups,
// entries * places] of offsets [N * groups, entries, 2, places].
static Ref deformed_places(Call *c, const Frame *f, Ref offset, int a)
{
	Graph *g = c->g;
	Shape s = val(g, offset)->shape;
	int64_t axis = 2, entries = s.dim[1], places = s.dim[3];
	float *base = NEWS(c->r->arena, float, entries *places + 1);
	for (int64_t k = 0; k < entries; k++) {
		for (int64_t o = 0; o < places; o++) {
			int64_t entry = a ? k % f->size[1] : k / f->size[1];
			int64_t at = a ? o % f->out[1] : o / f->out[1];
			base[k * places + o] =
			    (float)(at * f->stride[a] + entry * f->dilation[a] - f->before[a]);
		}
	}
	int64_t dims[] = {1, entries, places};
	Ref x = drop_axes(g, take_range(g, offset, 2, a, 1), 1, &axis);
	x = put2(g, O_add, x, put_const(g, E_f32, shape_of(3, dims), base));
	return merge_axes(g, x, 1, 3);
}

// The windows of an image at offset places: [N, groups, C / groups, out.., size..].
static Ref deformed_windows(Call *c, const Frame *f, int64_t groups)
{
	Graph *g = c->g;
	Shape s = val(g, c->in[0])->shape;
	int64_t parts = attr_int(c, "offset_group", 1), entries = f->size[0] * f->size[1],
	        places = f->out[0] * f->out[1], each = s.dim[1] / MAX(parts, 1),
	        n = s.dim[0] * parts;
	int64_t split[] = {n, each, s.dim[2], s.dim[3]}, pairs[] = {n, entries, 2, places};
	Shape wanted = shape_of(4, pairs);
	if (parts < 1 || s.dim[1] % parts ||
	    count_of(&val(g, c->in[2])->shape) != count_of(&wanted))
		invalid_node(c, "offsets %s do not fit",
		             shape_text(c->r->arena, E_f32, &val(g, c->in[2])->shape));
	Image image = image_rows(g, put_reshape(g, c->in[0], shape_of(4, split)));
	Ref offset = put_reshape(g, c->in[2], wanted), x[2];
	for (int a = 0; a < 2; a++)
		x[a] = deformed_places(c, f, offset, a);
	Ref y = sample_points(g, &image, x, false, O_add);
	if (c->nin > 4 && c->in[4])
		y = put2(
		    g, O_mul, y,
		    put_reshape(g, c->in[4], shape_of(3, (int64_t[]){n, entries * places, 1})));
	y = put_reshape(g, y, shape_of(4, (int64_t[]){n, entries, places, each}));
	y = put_permute(g, y, (int64_t[]){0, 3, 2, 1});
	int64_t dims[] = {s.dim[0],  groups,     s.dim[1] / groups, f->out[0],
	                  f->out[1], f->size[0], f->size[1]};
	return put_reshape(g, y, shape_of(7, dims));
}

void lower_deform_conv(Call *c)
{
	expect_all_fixed(c);
	Shape x = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	int64_t groups = attr_int(c, "group", 1);
	in_val(c, 2);
	if (x.rank != 4 || w.rank != 4 || w.dim[0] % groups || x.dim[1] != w.dim[1] * groups)
		invalid_node(c, "a kernel %s for %s", shape_text(c->r->arena, E_f32, &w),
		             shape_text(c->r->arena, E_f32, &x));
	Frame f = read_frame(c, &x, w.dim + 2);
	place_windows(c, &f);
	Ref y = convolve(c, deformed_windows(c, &f, groups), group_kernel(c, &w, groups), &f);
	if (c->nin > 3 && c->in[3])
		y = put2(c->g, O_add, y,
		         put_reshape(c->g, c->in[3], shape_of(4, (int64_t[]){1, w.dim[0], 1, 1})));
	c->out[0] = y;
}

// ---- pools ----------------------------------------------------------------------------

static Ref reduce_windows(Graph *g, Op op, Ref windows, const Frame *f)
{
	int64_t axes[SPACE];
	for (int a = 0; a < f->n; a++)
		axes[a] = 2 + f->n + a;
	return drop_axes(g, put_reduce(g, op, windows, f->n, axes), f->n, axes);
}

static Frame pool_frame(Call *c)
{
	Shape x = in_val(c, 0)->shape;
	int64_t size[SPACE];
	if (x.rank - 2 < 1 || x.rank - 2 > SPACE)
		unsupported_node(c, fewer_axes, "%d spatial axes; 1 to %d are supported",
		                 x.rank - 2, SPACE);
	fill_ints(c, "kernel_shape", x.rank - 2, 1, size);
	Frame f = read_frame(c, &x, size);
	place_windows(c, &f);
	return f;
}

// Along one axis, the operand's entry that number `k` of a window's entries stands for.
static Ref entry_on_axis(Graph *g, const Frame *f, int a, Ref k)
{
	int64_t below = 1;
	for (int b = a + 1; b < f->n; b++)
		below *= f->size[b];
	k = put2(g, O_mod, put2(g, O_div, k, put_num(g, E_i64, (double)below)),
	         put_num(g, E_i64, (double)f->size[a]));
	Ref at = put2(g, O_mul, put_iota(g, val(g, k)->shape, 2 + a),
	              put_num(g, E_i64, (double)f->stride[a]));
	k = put2(g, O_mul, k, put_num(g, E_i64, (double)f->dilation[a]));
	return put2(g, O_sub, put2(g, O_add, at, k), put_num(g, E_i64, (double)f->before[a]));
}

// Where in the whole operand each window's largest entry lies, row major, or with the spatial axes
// the other way round.
static Ref largest_places(Call *c, Ref windows, const Frame *f)
{
	Graph *g = c->g;
	Shape s = val(g, windows)->shape;
	bool columns = attr_int(c, "storage_order", 0);
	int64_t last = 2 + f->n;
	Ref k = put_reduce(g, O_argmax, merge_axes(g, windows, (int)last, s.rank), 1, &last);
	k = drop_axes(g, k, 1, &last);
	Shape at = val(g, k)->shape;
	Ref place = put2(g, O_mul, put_iota(g, at, 0), put_num(g, E_i64, (double)at.dim[1]));
	place = put2(g, O_add, place, put_iota(g, at, 1));
	for (int j = 0; j < f->n; j++) {
		int a = columns ? f->n - 1 - j : j;
		place = put2(g, O_mul, place, put_num(g, E_i64, (double)f->in[a]));
		place = put2(g, O_add, place, entry_on_axis(g, f, a, k));
	}
	return place;
}

void lower_max_pool(Call *c)
{
	Frame f = pool_frame(c);
	double lowest = is_float(in_val(c, 0)->type) ? -INFINITY : -128;
	Ref windows = put_windows(c->g, c->in[0], 2, &f, NULL, lowest);
	c->out[0] = reduce_windows(c->g, O_amax, windows, &f);
	if (c->nout > 1)
		c->out[1] = largest_places(c, windows, &f);
}

// Each entry at the place that its index names, zeros between.
void lower_max_unpool(Call *c)
{
	expect_all_fixed(c);
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, out = s;
	int n = s.rank - 2, nwant = 0;
	int64_t size[SPACE], none[RANK] = {0}, more[RANK] = {0};
	in_val(c, 1);
	if (n < 1 || n > SPACE)
		unsupported_node(c, fewer_axes, "%d spatial axes; 1 to %d are supported", n, SPACE);
	fill_ints(c, "kernel_shape", n, 1, size);
	Frame f = read_frame(c, &s, size);
	const int64_t *want = operand_ints(c, 2, &nwant);
	for (int a = 0; a < n; a++)
		out.dim[2 + a] = (f.in[a] - 1) * f.stride[a] + f.size[a] - f.before[a] - f.after[a];
	for (int a = 0; want && a < s.rank && a < nwant; a++)
		more[a] = MAX(want[a] - out.dim[a], 0);
	int64_t all = count_of(&out);
	Ref zero = put_broadcast(g, put_num(g, E_f32, 0), shape_of(1, &all));
	Ref at = merge_axes(g, keep_inside(c, c->in[1], all), 0, s.rank);
	Ref y = put_scatter(g, zero, at, merge_axes(g, c->in[0], 0, s.rank), 0, 0);
	c->out[0] = put_pad(g, put_reshape(g, y, out), none, more, 0);
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
	Ref y = reduce_windows(g, O_sum, put_windows(g, c->in[0], 2, &f, NULL, 0), &f);
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
	Ref p = put_num(g, E_f32, attr_number(c, "p", 2));
	Ref x = put2(g, O_pow, put1(g, O_abs, c->in[0]), p);
	x = reduce_windows(g, O_sum, put_windows(g, x, 2, &f, NULL, 0), &f);
	c->out[0] = put2(g, O_pow, x, put2(g, O_div, put_num(g, E_f32, 1), p));
}
