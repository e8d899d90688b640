// constant.c: warns of a model that is no better than the best constant prediction.
// Cross entropy: the frequencies of the labels; mean squared error: the mean of each element of a
// sample. Both are computed from the samples that are evaluated, so no constant has a lower
// loss.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST = 1 << 24,
	LEAST = 20,
	EACH = 5
}; // maximum elements read; minimum samples in all, and per label

struct tally {
	const struct amos_slot *slot;
	const void *bytes;
	int64_t per;     // elements per sample
	int64_t cells;   // labels, or elements per sample
	double *sum;     // per cell: count of labels; sum of targets
	double *squares; // sum of squared targets
	int64_t samples; // labels not ignored; samples of targets
};

static bool is_label(const struct tally *t)
{
	return amos_types[t->slot->type].class != 'f';
}

static int count_samples(struct tally *t, struct amos *m, const struct amos_data *data)
{
	int64_t all = amos_data_eval_samples(data), batch = data->batch;
	for (int64_t done = 0; done < all && done * t->per < MOST; done += batch) {
		int64_t n = all - done < batch ? all - done : batch;
		int status = amos_data_eval(data, m, done, n);
		if (status)
			return status;
		for (int64_t i = 0; i < n * t->per; i++) {
			double x = amos_number(t->bytes, t->slot->type, i);
			int64_t cell = is_label(t) ? (int64_t)x : i % t->per;
			if (cell < 0 || cell >= t->cells)
				continue; // an ignored label
			t->sum[cell] += is_label(t) ? 1 : x;
			t->squares[cell] += x * x;
			t->samples += is_label(t) || !cell;
		}
	}
	return AMOS_DONE;
}

static struct amos_constant of_labels(const struct tally *t)
{
	struct amos_constant c = {0, 0, NAN};
	int64_t seen = 0;
	for (int64_t k = 0; k < t->cells; k++) {
		double part = t->sum[k] / (double)t->samples;
		seen += part > 0;
		c.loss -= part > 0 ? part * log(part) : 0;
		c.accuracy = fmax(c.accuracy, part);
	}
	bool enough = t->samples >= LEAST && t->samples >= EACH * seen;
	return enough ? c : (struct amos_constant){NAN, NAN, NAN};
}

static struct amos_constant of_targets(const struct tally *t)
{
	double loss = 0, n = (double)t->samples;
	for (int64_t k = 0; k < t->cells; k++)
		loss += t->squares[k] / n - t->sum[k] / n * (t->sum[k] / n);
	return (struct amos_constant){n < LEAST ? NAN : loss / (double)t->cells, NAN, NAN};
}

int amos_constant(struct amos *m, const struct amos_data *data, struct amos_constant *to)
{
	const struct amos_model *model = m->model;
	int64_t at = model->labels ? amos_find_slot(model, model->labels) : -1;
	*to = (struct amos_constant){NAN, NAN, NAN};
	if (at < 0)
		return AMOS_DONE;
	const struct amos_slot *slot = &model->slots[at];
	int64_t count = amos_elements((int)slot->rank, slot->dim);
	struct tally t = {
	    .slot = slot, .bytes = amos_slot_bytes(m, at), .per = count / data->batch};
	t.cells = is_label(&t) ? slot->limit : t.per;
	if (t.cells <= 0 || count % data->batch)
		return AMOS_DONE;
	t.sum = calloc((size_t)t.cells, sizeof *t.sum);
	t.squares = calloc((size_t)t.cells, sizeof *t.squares);
	int status = t.sum && t.squares ? count_samples(&t, m, data)
	                                : amos_fail(AMOS_MACHINE, "out of memory");
	if (!status)
		*to = is_label(&t) ? of_labels(&t) : of_targets(&t);
	free(t.sum);
	free(t.squares);
	return status;
}

bool amos_training_warning(char *to, size_t room, const struct amos_result *r)
{
	const struct amos_constant *c = &r->constant;
	char accuracy[64] = "";
	if (r->zero)
		snprintf(to, room,
		         "the loss was 0 in every step; check that --loss compares the model with "
		         "its targets");
	if (r->zero || !isfinite(c->loss))
		return r->zero;
	if (isfinite(c->accuracy))
		snprintf(accuracy, sizeof accuracy, " (accuracy %.4g)", c->accuracy);
	snprintf(to, room,
	         "the model is no better than a constant prediction; expected a loss below %.4g%s, "
	         "found %.4g",
	         c->loss, accuracy, c->model);
	return true;
}
