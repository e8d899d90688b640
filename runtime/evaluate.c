// evaluate.c: computes the mean loss over the held-out data, or over all data.
// Every sample counts once; where labels may be ignored, every label that is not.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Returns the entry that takes the most samples, `left` or fewer, and sets *samples; NULL: all take
// more.
static const struct amos_entry *entry_for(const struct amos_model *model, int64_t batch,
                                          int64_t left, int64_t *samples)
{
	const struct amos_entry *found = NULL;
	*samples = 0;
	for (int64_t i = 0; i < model->nentries; i++) {
		const char *name = model->entries[i].name;
		int64_t takes = !strcmp(name, "eval")        ? batch
		                : !strncmp(name, "eval:", 5) ? strtoll(name + 5, NULL, 10)
		                                             : 0;
		if (takes > *samples && takes <= left) {
			found = &model->entries[i];
			*samples = takes;
		}
	}
	return found;
}

int64_t amos_data_left(const struct amos_data *data, const struct amos_model *model)
{
	int64_t left = amos_data_eval_samples(data), samples;
	while (entry_for(model, data->batch, left, &samples))
		left -= samples;
	return left;
}

void amos_mean_add(struct amos_mean *mean, const struct amos *m, const struct amos_entry *entry,
                   const char *out, int64_t samples)
{
	char name[32];
	int64_t at = amos_find_output(entry, out), count;
	if (at < 0)
		return;
	snprintf(name, sizeof name, "count:%s", out);
	count = amos_find_output(entry, name);
	double weight = count < 0 ? (double)samples : amos_out_number(m, entry, count);
	mean->sum += amos_out_number(m, entry, at) * weight;
	mean->weight += weight;
}

double amos_mean(const struct amos_mean *mean)
{
	return mean->weight != 0 && !isnan(mean->sum) ? mean->sum / mean->weight : NAN;
}

// Fails because the mean loss is not finite with the batch that lies in the inputs.
static int not_finite(const struct amos *m, const struct amos_data *data,
                      const struct amos_batch *batch, double loss)
{
	const struct amos_flaw flaw = amos_weight_flaw(m);
	struct amos_problem problem = amos_explain_loss(m, data, batch, &flaw, AMOS_LOSS_HELP);
	return amos_fail(AMOS_INPUT, "%s %g in the batch from %s %lld on" HELP "%s", problem.text,
	                 loss, data->stream ? "token" : "sample",
	                 (long long)amos_data_row(data, batch, 0), problem.help);
}

int amos_evaluate_data(struct amos *m, const struct amos_data *data, bool *finite,
                       struct amos_result *result)
{
	const struct amos_model *model = m->model;
	const struct amos_entry *entry;
	struct amos_mean loss = {0}, accuracy = {0};
	int64_t all = amos_data_eval_samples(data), done = 0, samples;
	if (!amos_find_entry(model, "eval"))
		return amos_fail(AMOS_INPUT, "%s: compiled without evaluation", model->name);
	while (!amos_stopping() && (entry = entry_for(model, data->batch, all - done, &samples))) {
		int status = amos_data_eval(data, m, done, samples);
		if (!status)
			status = amos_call(m, entry, NULL, NULL);
		if (status)
			return status;
		bool was_finite = isfinite(loss.sum);
		amos_mean_add(&loss, m, entry, "loss", samples);
		if (was_finite && !isfinite(loss.sum)) {
			const struct amos_batch batch = {false, done, samples};
			status = not_finite(m, data, &batch, loss.sum);
			if (!finite)
				return status;
			*finite = false;
		}
		amos_mean_add(&accuracy, m, entry, "accuracy", samples);
		done += samples;
	}
	int64_t slot = amos_find_slot(model, "amos.step");
	*result =
	    (struct amos_result){.step = slot < 0 ? 0 : *(const int64_t *)amos_slot_bytes(m, slot),
	                         .loss = NAN,
	                         .accuracy = NAN,
	                         .eval_loss = amos_mean(&loss),
	                         .eval_accuracy = amos_mean(&accuracy),
	                         .eval_samples = done,
	                         .best = {-1, INFINITY, NAN},
	                         .constant = {NAN, NAN, NAN},
	                         .seconds = NAN};
	return AMOS_DONE;
}
