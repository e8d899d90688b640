// resize.c: brings decoded images to the channels and the size of an input.
// The image is scaled until it covers the size, then cropped to its center. Scaling is bilinear; an
// output pixel that covers several pixels is their mean, weighted by a triangle. The arithmetic is
// that of Pillow for 8-bit channels (src/libImaging/Resample.c), rows first, and the sizes are
// those of torchvision's Resize and CenterCrop, so results are the same to the bit.
#include "rt.h"
#include <math.h>
#include <stdlib.h>

// ---- channels -------------------------------------------------------------------------

// Returns the luminance by ITU-R BT.601, in 16 bits of fraction.
static unsigned char luminance(const unsigned char *rgb)
{
	return (unsigned char)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// Gray becomes equal colors, colors their luminance. A missing alpha is 255, an extra one is left
// out.
static void convert_pixel(unsigned char *to, int to_channels, const unsigned char *from,
                          int channels)
{
	if (to_channels == 1)
		*to = channels < 3 ? *from : luminance(from);
	for (int c = 0; to_channels > 1 && c < 3; c++)
		to[c] = from[channels < 3 ? 0 : c];
	if (to_channels == 4)
		to[3] = channels % 2 ? 255 : from[channels - 1];
}

// Converts pixels in place, or in other memory if they get larger.
static int convert_channels(const char *path, struct amos_bitmap *map, int channels)
{
	size_t n = (size_t)map->width * (size_t)map->height, from = (size_t)map->channels,
	       to = (size_t)channels;
	unsigned char *at = to > from ? malloc(n * to) : map->at;
	if (!at)
		return amos_no_memory(path);
	for (size_t i = 0; from != to && i < n; i++)
		convert_pixel(at + i * to, channels, map->at + i * from, map->channels);
	if (at != map->at)
		free(map->at);
	map->at = at;
	map->channels = channels;
	return AMOS_DONE;
}

// ---- alpha ----------------------------------------------------------------------------

// A transparent pixel's color does not count in a mean: as Pillow does, colors are scaled times
// their alpha, and divided by it afterwards (src/libImaging/Convert.c).

static void multiply_alpha(struct amos_bitmap *map)
{
	unsigned char *end = map->at + 4 * map->width * map->height;
	for (unsigned char *at = map->at; at < end; at += 4)
		for (int c = 0; c < 3; c++) {
			unsigned product = (unsigned)at[c] * at[3] + 128;
			at[c] = (unsigned char)((product + (product >> 8)) >> 8);
		}
}

static void divide_alpha(const struct amos_pixels *p, unsigned char *to)
{
	int64_t n = p->height * p->width, next = p->last ? 1 : n; // channel
	for (int64_t i = 0; i < n; i++) {
		unsigned char *at = p->last ? to + 4 * i : to + i;
		unsigned alpha = at[3 * next];
		for (int c = 0; c < 3 && alpha; c++) {
			unsigned color = 255U * at[c * next] / alpha;
			at[c * next] = (unsigned char)(color < 255 ? color : 255);
		}
	}
}

// ---- size -----------------------------------------------------------------------------

enum { BITS = 22 }; // of the fraction of a weight: sums of 8-bit values fit in 32 bits

struct axis {               // how the pixels of one axis become others
	int64_t in, out;    // pixels, before the crop
	int64_t from, size; // pixels that the crop keeps
	int64_t room;       // most weights of a pixel
	int64_t *first;     // per pixel: the first of its inputs
	int64_t *count;     // per pixel: number of its inputs
	int32_t *weight;    // [size, room]
};

// Sets the weights of output pixel `i`.
static void weigh(struct axis *axis, int64_t i, double *weight)
{
	double scale = (double)axis->in / (double)axis->out, wide = scale < 1 ? 1 : scale,
	       center = ((double)(axis->from + i) + 0.5) * scale, narrow = 1 / wide, sum = 0;
	int64_t first = (int64_t)(center - wide + 0.5), last = (int64_t)(center + wide + 0.5);
	first = first < 0 ? 0 : first;
	last = last > axis->in ? axis->in : last;
	for (int64_t k = 0; k < last - first; k++) {
		double distance = fabs(((double)(k + first) - center + 0.5) * narrow);
		weight[k] = distance < 1 ? 1 - distance : 0;
		sum += weight[k];
	}
	axis->first[i] = first;
	axis->count[i] = last - first;
	for (int64_t k = 0; k < last - first; k++)
		axis->weight[i * axis->room + k] = (int32_t)(weight[k] / sum * (1 << BITS) + 0.5);
}

// Returns the index of the first pixel that a crop from `n` to `size` pixels keeps: half the
// difference, rounded to even.
static int64_t crop_start(int64_t n, int64_t size)
{
	int64_t half = (n - size) / 2;
	return half + ((n - size) % 2 && half % 2);
}

static int open_axis(struct axis *axis, const char *path, int64_t in, int64_t out, int64_t size)
{
	double scale = (double)in / (double)out;
	int64_t room = (int64_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
	*axis = (struct axis){
	    .in = in, .out = out, .from = crop_start(out, size), .size = size, .room = room};
	axis->first = malloc((size_t)size * sizeof *axis->first);
	axis->count = malloc((size_t)size * sizeof *axis->count);
	axis->weight = malloc((size_t)(size * room) * sizeof *axis->weight);
	double *weight = malloc((size_t)room * sizeof *weight);
	bool opened = axis->first && axis->count && axis->weight && weight;
	for (int64_t i = 0; opened && i < size; i++)
		weigh(axis, i, weight);
	free(weight);
	return opened ? AMOS_DONE : amos_no_memory(path);
}

static void close_axis(struct axis *axis)
{
	free(axis->first);
	free(axis->count);
	free(axis->weight);
}

// Returns the weighted sum of the inputs of output pixel `i`, which are `step` bytes apart.
static unsigned char sum_pixel(const struct axis *axis, int64_t i, const unsigned char *from,
                               int64_t step)
{
	const int32_t *weight = axis->weight + i * axis->room;
	int32_t sum = 1 << (BITS - 1);
	for (int64_t k = 0; k < axis->count[i]; k++)
		sum += weight[k] * from[k * step];
	sum >>= BITS;
	return (unsigned char)(sum > 255 ? 255 : sum);
}

// Scales the rows of `map` that `y` reads, from `top` on.
static void scale_rows(const struct amos_bitmap *map, const struct axis *x, int64_t top,
                       int64_t rows, unsigned char *to)
{
	int64_t c = map->channels;
	for (int64_t row = top; row < top + rows; row++)
		for (int64_t i = 0; i < x->size; i++) {
			const unsigned char *from = map->at + (row * map->width + x->first[i]) * c;
			for (int k = 0; k < c; k++)
				*to++ = sum_pixel(x, i, from + k, c);
		}
}

static void scale_columns(const struct amos_pixels *p, const struct axis *y, int64_t top,
                          const unsigned char *rows, unsigned char *to)
{
	int64_t c = p->channels, line = p->width * c;
	for (int64_t i = 0; i < p->height; i++) {
		const unsigned char *from = rows + (y->first[i] - top) * line;
		for (int64_t k = 0; k < line; k++) {
			int64_t at =
			    p->last ? i * line + k : (k % c * p->height + i) * p->width + k / c;
			to[at] = sum_pixel(y, i, from + k, line);
		}
	}
}

int amos_bitmap_fit(const char *path, struct amos_bitmap *map, const struct amos_pixels *p,
                    unsigned char *to)
{
	int64_t w = map->width, h = map->height;
	bool wide = w * p->height >= h * p->width; // than the size
	int64_t width = wide ? p->height * w / h : p->width,
	        height = wide ? p->height : p->width * h / w;
	bool alpha = p->channels == 4 && (width != w || height != h);
	struct axis x = {0}, y = {0};
	int status = convert_channels(path, map, p->channels);
	if (!status && alpha)
		multiply_alpha(map);
	if (!status)
		status = open_axis(&x, path, w, width, p->width);
	if (!status)
		status = open_axis(&y, path, h, height, p->height);
	int64_t last = p->height - 1, top = status ? 0 : y.first[0],
	        rows = status ? 0 : y.first[last] + y.count[last] - top;
	unsigned char *scaled = malloc((size_t)(rows * p->width * p->channels) + 1);
	if (!status && !scaled)
		status = amos_no_memory(path);
	if (!status) {
		scale_rows(map, &x, top, rows, scaled);
		scale_columns(p, &y, top, scaled, to);
	}
	if (!status && alpha)
		divide_alpha(p, to);
	free(scaled);
	close_axis(&x);
	close_axis(&y);
	return status;
}
