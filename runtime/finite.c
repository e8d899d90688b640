// finite.c: names what is not finite when a training's loss is not before its first update.
// A step makes all parameters NaN once the loss is, so they are looked through before it.
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

struct amos_flaw amos_weight_flaw(const struct amos *m)
{
	struct amos_flaw flaw = {-1, -1, 0};
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

static void describe_weight(char *to, size_t room, const struct amos *m,
                            const struct amos_flaw *flaw)
{
	const struct amos_slot *s = &m->model->slots[flaw->slot];
	snprintf(to, room, "element %lld of %s '%s' is %g; the loss is", (long long)flaw->at,
	         s->kind == AMOS_SLOT_PARAMETER ? "parameter" : "weight", s->name, flaw->number);
}

// Describes the first element of a batch of training that is not finite. False: none. An infinite
// constant may be a mask.
static bool describe_sample(char *to, size_t room, const struct amos *m,
                            const struct amos_data *data, int64_t run)
{
	for (int f = 0; f < data->nfeeds; f++) {
		const struct amos_feed *feed = &data->feeds[f];
		int type = feed->to->type;
		bool varies = feed->from && !feed->constant && amos_types[type].class == 'f';
		const char *at = amos_slot_bytes(m, feed->slot);
		int64_t n = feed->to->bytes / amos_types[type].bytes,
		        flaw = varies ? find_flaw(at, type, n, false) : -1;
		if (flaw < 0)
			continue;
		snprintf(to, room, "--data %s=%s: an element of %s %lld is %g; the loss is",
		         feed->source->name, data->files[feed->source->file].text,
		         feed->stream ? "the window at token" : "sample",
		         (long long)amos_data_row(data, run, flaw / feed->per),
		         amos_number(at, type, flaw));
		return true;
	}
	return false;
}

const char *amos_explain_loss(char *problem, size_t room, const struct amos *m,
                              const struct amos_data *data, int64_t run,
                              const struct amos_flaw *flaw)
{
	snprintf(problem, room, "the loss is");
	if (flaw->slot >= 0) {
		describe_weight(problem, room, m, flaw);
		return "export the model again, from finite weights";
	}
	if (describe_sample(problem, room, m, data, run))
		return "correct the data, or leave the sample out";
	return "no update was made yet: look for very large values in the data, log(0) and 0/0 in "
	       "the model, bce of numbers outside 0 to 1 and, in f16, values above 65504";
}
