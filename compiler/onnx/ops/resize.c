// resize.c: computes the constants of Resize: coordinates and matrices of weights.
// Used by the lines of compiler/book/resize.am. Matrices may be larger than what the door folds.
#include "ops.h"
#include <math.h>
#include <string.h>

// scaled_size(; n, scale): the size of an axis of n elements that is scaled, computed in f32, as by
// ONNX Runtime: 0.7 times 10 is 7, although the f32 next to 0.7 is smaller.
Item fn_scaled_size(Call *c, Scope *s, const Expr *e)
{
	(void)c;
	float n = (float)call_integer(s, e, 0),
	      scale = (float)number_of_item(s, e, call_attr(s, e, 1));
	return num_item((double)floorf(n * scale));
}

// source_places(; n, count, scale): where the elements of an axis of `count` lie in one of n, which
// was scaled: f64[count].
Item fn_source_places(Call *c, Scope *s, const Expr *e)
{
	const char *mode = attr_string(c, "coordinate_transformation_mode",
	                               c->opset < 11 ? "asymmetric" : "half_pixel");
	int64_t n = call_integer(s, e, 0), count = call_integer(s, e, 1);
	double scale = number_of_item(s, e, call_attr(s, e, 2)), size = scale * (double)n;
	// What rounds a place to an element needs the places that PyTorch and TensorFlow compute.
	bool nearest = !strcmp(attr_string(c, "mode", "nearest"), "nearest");
	float pitch = (float)(1 / scale);
	double *place = NEWS(c->r->arena, double, count);
	for (int64_t i = 0; i < count; i++) {
		double x = (double)i;
		double at = nearest ? (double)((float)i * pitch) : x / scale,
		       half = nearest ? (double)(((float)i + 0.5F) * pitch) : (x + 0.5) / scale;
		if (!strcmp(mode, "asymmetric"))
			place[i] = at;
		else if (!strcmp(mode, "align_corners"))
			place[i] = count > 1 ? x * (double)(n - 1) / (double)(count - 1) : 0;
		else if (!strcmp(mode, "tf_half_pixel_for_nn"))
			place[i] = half;
		else if (!strcmp(mode, "pytorch_half_pixel") && count == 1)
			place[i] = 0;
		else if (!strcmp(mode, "half_pixel_symmetric"))
			place[i] = (double)n / 2 * (1 - (double)count / size) + half - 0.5;
		else if (!strcmp(mode, "half_pixel") || !strcmp(mode, "pytorch_half_pixel"))
			place[i] = half - 0.5;
		else
			invalid_node(c, "coordinate_transformation_mode '%s'", mode);
	}
	return ref_item(put_const(c->g, E_f64, shape_of(1, &count), place));
}

// The weight of an element at distance d: a triangle, or Keys' cubic.
static double weight_at(double d, bool cubic, double a)
{
	if (!cubic)
		return d < 1 ? 1 - d : 0;
	return d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
	       : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
	               : 0;
}

// interpolation(place; n, scale): the matrix f32[n, count] to multiply with; its columns sum to 1.
// Antialiasing widens them if the axis shrinks.
Item fn_interpolation(Call *c, Scope *s, const Expr *e)
{
	const Val *place = val(c->g, call_value(s, e, 0));
	int64_t n = call_integer(s, e, 0), count = place->shape.dim[0];
	double scale = number_of_item(s, e, call_attr(s, e, 1)),
	       a = attr_float(c, "cubic_coeff_a", -0.75);
	bool cubic = attr_string(c, "mode", "")[0] == 'c';
	bool exclude = attr_int(c, "exclude_outside", 0);
	double shrink = attr_int(c, "antialias", 0) ? fmin(scale, 1) : 1;
	double reach = (cubic ? 2 : 1) / shrink;
	float *matrix = NEWS(c->r->arena, float, n *count);
	for (int64_t o = 0; o < count; o++) {
		double x = const_at(place, o), sum = 0;
		for (int pass = 0; pass < 2; pass++)
			for (int64_t i = (int64_t)ceil(x - reach); (double)i <= x + reach; i++) {
				double w = weight_at(fabs(((double)i - x) * shrink), cubic, a);
				int64_t inside = MIN(MAX(i, 0), n - 1);
				if (exclude && inside != i)
					continue;
				if (pass)
					matrix[inside * count + o] += (float)(w / sum);
				else
					sum += w;
			}
	}
	return ref_item(put_const(c->g, E_f32, shape_of(2, (int64_t[]){n, count}), matrix));
}
