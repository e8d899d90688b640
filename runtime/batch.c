// batch.c: chooses the samples or windows of a batch and fills the input buffers.
// Invariant: a batch is a function of (seed, its number) alone, so a resumed run sees the same
// batches. Nothing is allocated but for images that are not in memory.
#include "rt.h"
#include <stdlib.h>

enum { SITE_WINDOW = 1, SITE_ORDER, SITE_MASK, SITE_MASK_EVAL }; // random number streams

uint64_t amos_mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

// Counter-based: a pure function of its arguments.
static uint64_t draw(const struct amos_data *data, int site, uint64_t a, uint64_t b)
{
	uint64_t seed = (uint64_t)data->seed + ((uint64_t)site << 56);
	return amos_mix(amos_mix(amos_mix(seed) + a) + b);
}

// Returns random n / 2^64, by halves: 32-bit CPUs have no product of 128 bits.
static int64_t below(uint64_t random, int64_t n)
{
	uint64_t low = random & UINT32_MAX, high = random >> 32;
	uint64_t least = (uint64_t)n & UINT32_MAX, most = (uint64_t)n >> 32;
	uint64_t across = high * least + (low * least >> 32);
	uint64_t other = low * most + (across & UINT32_MAX);
	return (int64_t)(high * most + (across >> 32) + (other >> 32));
}

// Returns the position of `i` in the epoch's permutation of [0, n): a Feistel network on the next
// power of four, iterated until the result is below n (Black and Rogaway 2002). Allocates nothing.
static int64_t permute(const struct amos_data *data, int64_t epoch, int64_t i, int64_t n)
{
	int half = 1;
	while (half < 31 && INT64_C(1) << 2 * half < n)
		half++;
	uint64_t low = (UINT64_C(1) << half) - 1, x = (uint64_t)i;
	do {
		uint64_t left = x >> half, right = x & low;
		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next =
			    left ^
			    (draw(data, SITE_ORDER, (uint64_t)epoch * 4 + round, right) & low);
			left = right;
			right = next;
		}
		x = left << half | right;
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

int64_t amos_data_row(const struct amos_data *data, const struct amos_batch *batch, int64_t i)
{
	if (!batch->train) {
		int64_t begin = data->train < data->length ? data->train : 0;
		return begin + (batch->number + i) * data->window;
	}
	if (data->stream) {
		int64_t positions = data->train - data->ahead - data->window + 1;
		return below(draw(data, SITE_WINDOW, (uint64_t)batch->number, (uint64_t)i),
		             positions);
	}
	int64_t batches = amos_data_batches(data);
	int64_t at = batch->number % batches * data->batch + i;
	return permute(data, batch->number / batches, at, data->train);
}

static void put_number(const struct amos_feed *feed, char *to, int64_t k, int64_t value)
{
	int type = feed->to->type;
	amos_convert(to + k * amos_types[type].bytes, type, &value, AMOS_i64, 1, 1);
}

// Of the chosen tokens, 80 % become the mask token, 10 % a random token, 10 % stay (BERT). Labels
// are kept at the chosen tokens and ignored elsewhere.
static void mask_row(const struct amos_data *data, const struct amos_feed *feed,
                     const struct amos_batch *batch, int64_t row, char *to)
{
	int site = batch->train ? SITE_MASK : SITE_MASK_EVAL;
	// An evaluated sample gets the same mask in batches of any size.
	uint64_t by = (uint64_t)(batch->train ? batch->number : batch->number + row),
	         first = batch->train ? (uint64_t)(row * feed->per) : 0;
	for (int64_t k = 0; k < feed->per; k++) {
		uint64_t random = draw(data, site, by, first + (uint64_t)k);
		bool chosen = (double)(random >> 11) * 0x1p-53 < data->mask;
		if (feed->source->masked) {
			if (!chosen)
				put_number(feed, to, k, feed->to->ignore ? feed->to->ignore : -100);
			continue;
		}
		int64_t kind = below(amos_mix(random), 10);
		if (chosen && kind < 8)
			put_number(feed, to, k, data->mask_token);
		else if (chosen && kind == 8 && feed->to->limit)
			put_number(feed, to, k, below(amos_mix(random + 1), feed->to->limit));
	}
}

// Decodes the images of a batch.
static int fill_images(const struct amos_data *data, const struct amos_feed *feed,
                       const struct amos_batch *batch, void *to)
{
	int64_t n = feed->constant ? feed->from->dim[0] : batch->samples;
	int64_t *rows = malloc((size_t)n * sizeof *rows);
	if (!rows)
		return amos_no_memory("--data");
	for (int64_t i = 0; i < n; i++)
		rows[i] = feed->constant ? i : amos_data_row(data, batch, i);
	int status = amos_images_fill(data, feed, n, rows, to);
	free(rows);
	return status;
}

static int fill_batch(const struct amos_data *data, struct amos *m, const struct amos_batch *batch)
{
	int status = AMOS_DONE;
	for (int f = 0; !status && f < data->nfeeds; f++) {
		const struct amos_feed *feed = &data->feeds[f];
		const struct amos_array *array = feed->from;
		char *to = amos_slot_bytes(m, feed->slot);
		int64_t item = amos_types[feed->to->type].bytes,
		        rows = feed->constant ? 1 : batch->samples;
		for (int64_t i = 0; !array && i < feed->to->bytes / item; i++)
			put_number(feed, to, i, feed->source->fill);
		if (array && !array->bytes) {
			status = fill_images(data, feed, batch, to);
			continue;
		}
		for (int64_t row = 0; array && row < rows; row++, to += feed->per * item) {
			int64_t at = feed->constant ? 0 : amos_data_row(data, batch, row);
			at = feed->stream ? at + feed->source->shift : at * feed->per;
			const char *from =
			    (const char *)array->bytes + at * amos_types[array->type].bytes;
			amos_convert(to, feed->to->type, from, array->type, feed->per,
			             feed->divide);
			if (feed->hidden || feed->source->masked)
				mask_row(data, feed, batch, row, to);
		}
	}
	return status;
}

int amos_data_train(const struct amos_data *data, struct amos *m, int64_t run)
{
	return fill_batch(data, m, &(struct amos_batch){true, run, data->batch});
}

int amos_data_eval(const struct amos_data *data, struct amos *m, int64_t from, int64_t samples)
{
	int64_t all = amos_data_eval_samples(data);
	if (!data->exact && (samples > data->batch || samples > all - from))
		return amos_fail(AMOS_INPUT,
		                 "--data: %lld %s, fewer than one batch of %lld" HELP
		                 "supply more data, or a smaller --batch",
		                 (long long)(all - from), amos_unit(data, all - from),
		                 (long long)samples);
	return fill_batch(data, m, &(struct amos_batch){false, from, samples});
}
