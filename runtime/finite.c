// finite.c: names what is not finite in the weights or the data when a loss is not.
// A step makes all parameters NaN once the loss is, so they are looked through before the first.
#include "rt.h"
#include <math.h>
#include <string.h>

// True if one of the elements, all f32, is infinite or NaN.
static bool has_flaw(const float *x, int64_t n)
{
	const uint32_t exponent = 0x7F800000;
	uint32_t flaw = 0, bits;
	for (int64_t i = 0; i < n; i++) {
		memcpy(&bits, &x[i], sizeof bits);
		flaw |= (bits & exponent) == exponent;
	}
	return flaw;
}

// Returns the first element that is NaN, or infinite where that is not allowed; -1: none.
static int64_t find_flaw(const char *at, int type, int64_t n, bool infinite)
{
	enum { CHUNK = 4096 };
	for (int64_t from = 0; from < n; from += CHUNK) {
		int64_t end = n - from < CHUNK ? n : from + CHUNK;
		if (type == AMOS_f32 && !has_flaw((const float *)at + from, end - from))
			continue;
		for (int64_t i = from; i < end; i++) {
			double x = amos_number(at, type, i);
			if (isnan(x) || (isinf(x) && !infinite))
				return i;
		}
	}
	return -1;
}

const struct amos_flaw amos_no_flaw = {-1, -1, 0};

struct amos_flaw amos_weight_flaw(const struct amos *m)
{
	struct amos_flaw flaw = amos_no_flaw;
	for (int64_t i = 0; flaw.slot < 0 && i < m->model->nslots; i++) {
		const struct amos_slot *s = &m->model->slots[i];
		bool trained = s->kind == AMOS_SLOT_PARAMETER,
		     fixed = s->kind == AMOS_SLOT_FROZEN || s->kind == AMOS_SLOT_BUFFER;
		if (amos_types[s->type].class != 'f' || (!trained && !fixed))
			continue;
		const char *at = amos_slot_bytes(m, i);
		flaw.at = find_flaw(at, s->type, s->bytes / amos_types[s->type].bytes, fixed);
		if (flaw.at < 0)
			continue;
		flaw.slot = i;
		flaw.number = amos_number(at, s->type, flaw.at);
	}
	return flaw;
}

static void describe_weight(struct amos_problem *to, const struct amos *m,
                            const struct amos_flaw *flaw)
{
	const struct amos_slot *s = &m->model->slots[flaw->slot];
	snprintf(to->text, sizeof to->text, "element %lld of %s '%s' is %g; the loss is",
	         (long long)flaw->at, s->kind == AMOS_SLOT_PARAMETER ? "parameter" : "weight",
	         s->name, flaw->number);
	to->help = "export the model again, from finite weights";
}

// Describes the first element of a batch that is not finite, if there is one. An infinite constant
// may be a mask.
static void describe_sample(struct amos_problem *to, const struct amos *m,
                            const struct amos_data *data, const struct amos_batch *batch)
{
	for (int f = 0; f < data->nfeeds; f++) {
		const struct amos_feed *feed = &data->feeds[f];
		int type = feed->to->type;
		bool varies = feed->from && !feed->constant && amos_types[type].class == 'f';
		const char *at = amos_slot_bytes(m, feed->slot);
		int64_t flaw = varies ? find_flaw(at, type, batch->samples * feed->per, false) : -1;
		if (flaw < 0)
			continue;
		snprintf(to->text, sizeof to->text,
		         "--data %s=%s: an element of %s %lld is %g; the loss is",
		         feed->source->name, data->files[feed->source->file].text,
		         feed->stream ? "the window at token" : "sample",
		         (long long)amos_data_row(data, batch, flaw / feed->per),
		         amos_number(at, type, flaw));
		to->help = "correct the data, or leave the sample out";
		return;
	}
}

struct amos_problem amos_explain_loss(const struct amos *m, const struct amos_data *data,
                                      const struct amos_batch *batch, const struct amos_flaw *flaw,
                                      const char *help)
{
	struct amos_problem problem = {"the loss is", help};
	if (flaw->slot >= 0)
		describe_weight(&problem, m, flaw);
	else
		describe_sample(&problem, m, data, batch);
	return problem;
}
