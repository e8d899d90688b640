// evaluate.c: computes the mean loss, or the outputs, over the held-out data or all data.
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

// ---- outputs --------------------------------------------------------------------------

// Fails if output i has no row per sample of a batch: another size of axis 0, or one that depends
// on the data.
static int check_rows(const struct amos *m, const struct amos_entry *entry, int64_t i,
                      int64_t batch)
{
	const struct amos_out *out = &entry->outs[i];
	int64_t dim[10] = {0};
	amos_out_shape(m, entry, i, dim);
	if (out->rank && dim[0] == batch && !memcmp(dim, out->dim, sizeof *dim * (size_t)out->rank))
		return AMOS_DONE;
	char shape[256];
	return amos_fail(
	    AMOS_INPUT,
	    "%s: output '%s': expected a row for each sample of a batch of %lld, found %s" HELP
	    "run it on one batch of the inputs' exact shapes",
	    m->model->name, out->name, (long long)batch,
	    amos_shape_text(shape, sizeof shape, (int)out->type, (int)out->rank, dim));
}

// Copies the rows of `samples` samples, of a batch that was run, behind those of `done` samples.
static int take_rows(const struct amos *m, const struct amos_data *data,
                     const struct amos_entry *entry, int64_t done, int64_t samples, char **to)
{
	int status = AMOS_DONE;
	for (int64_t i = 0; !status && i < entry->nouts; i++) {
		size_t row = (size_t)(entry->outs[i].bytes / data->batch);
		if (!to[i])
			continue;
		status = check_rows(m, entry, i, data->batch);
		if (!status)
			memcpy(to[i] + row * (size_t)done, amos_out_bytes(m, entry, i),
			       row * (size_t)samples);
	}
	return status;
}

int amos_run_data(struct amos *m, const struct amos_data *data, const struct amos_entry *entry,
                  char ***to)
{
	int64_t all = amos_data_eval_samples(data), n;
	int status = AMOS_DONE;
	*to = calloc((size_t)entry->nouts + 1, sizeof **to);
	if (!*to)
		return amos_no_memory("run");
	for (int64_t i = 0; !status && i < entry->nouts; i++) {
		const struct amos_out *out = &entry->outs[i];
		if (out->auxiliary)
			continue;
		(*to)[i] = malloc((size_t)(out->bytes / data->batch * all) + 1);
		status = (*to)[i] ? AMOS_DONE : amos_no_memory(out->name);
	}
	// The rows after the last sample are those of the batch before, or zeros.
	for (int64_t done = 0; !status && done < all; done += n) {
		n = all - done < data->batch ? all - done : data->batch;
		status = amos_data_eval(data, m, done, n);
		if (!status)
			status = amos_call(m, entry, NULL, NULL);
		if (!status)
			status = take_rows(m, data, entry, done, n, *to);
	}
	return status;
}

void amos_outputs_free(const struct amos_entry *entry, char **outputs)
{
	for (int64_t i = 0; outputs && i < entry->nouts; i++)
		free(outputs[i]);
	free(outputs);
}
