// data.c: opens the data sources and counts samples.
// struct amos_data is then used by bind.c (shapes), attach.c (checks) and batch.c (batches).
#include "rt.h"
#include <stdlib.h>
#include <string.h>

// ---- open and close -------------------------------------------------------------------

int amos_data_open(const struct amos_options *options, int exact, struct amos_data **to)
{
	*to = NULL;
	struct amos_data *data = calloc(1, sizeof *data);
	if (!data)
		return amos_no_memory("--data");
	data->exact = exact;
	data->batch = options->batch;
	data->seed = options->seed < 0 ? 0 : options->seed;
	data->split = options->split < 0 ? 1 : options->split;
	data->mask = options->mask < 0 ? 0.15 : options->mask;
	data->mask_token = options->mask_token;
	data->window = 1;
	data->threads = amos_threads(options->threads);
	data->decoded = INT64_C(1) << 30;
	data->note = strdup("");
	data->read = strdup("");
	data->unused = strdup("");
	int status =
	    !data->note || !data->read || !data->unused ? amos_no_memory("--data")
	    : options->split >= 1 || options->split == 0
	        ? amos_fail(AMOS_USAGE, "--split: expected a fraction such as 0.9, found %g%s",
	                    options->split,
	                    options->split == 1 ? HELP "without --split, no data are held out" : "")
	    : data->mask >= 1 || data->mask == 0
	        ? amos_fail(AMOS_USAGE, "--mask: expected a fraction such as 0.15, found %g",
	                    data->mask)
	        : amos_sources_open(data, &options->data);
	bool masked = false;
	for (int k = 0; k < data->nsources; k++)
		masked |= data->sources[k].masked;
	if (!status && !masked && (options->mask >= 0 || data->mask_token >= 0))
		status = amos_fail(AMOS_INPUT,
		                   "--mask%s: no input has the labels" HELP
		                   "give --data LABELS='masked(SOURCE)' with --data TOKENS=SOURCE",
		                   options->mask >= 0 ? "" : "-token");
	if (status)
		amos_data_close(data);
	else
		*to = data;
	return status;
}

void amos_data_close(struct amos_data *data)
{
	if (!data)
		return;
	amos_sources_close(data);
	free(data->feeds);
	free(data->note);
	free(data->read);
	free(data->unused);
	free(data);
}

const struct amos_array *amos_source_array(const struct amos_data *data,
                                           const struct amos_source *source)
{
	if (!source || source->fill != AMOS_ABSENT)
		return NULL;
	const struct amos_opened *file = &data->files[source->file];
	return file->images ? &source->array : &file->array;
}

const struct amos_array *amos_data_array(const struct amos_data *data, int k, const char **input)
{
	bool exists = data->exact && k < data->nsources;
	const struct amos_source *source = exists ? &data->sources[k] : NULL;
	*input = source ? source->name : NULL;
	bool plain = source && !source->shift && !source->masked;
	const struct amos_array *array = plain ? amos_source_array(data, source) : NULL;
	return array && array == &source->array ? NULL : array; // images have no shape yet
}

// ---- number of samples ----------------------------------------------------------------

static int64_t units(const struct amos_data *data, int64_t length)
{
	return length > data->ahead ? (length - data->ahead) / data->window : 0;
}

int64_t amos_data_batches(const struct amos_data *data)
{
	return data->batch > 0 ? units(data, data->train) / data->batch : 0;
}

int64_t amos_data_held_out(const struct amos_data *data)
{
	return units(data, data->length - data->train);
}

int64_t amos_data_eval_samples(const struct amos_data *data)
{
	bool held = data->train < data->length;
	return held ? amos_data_held_out(data) : units(data, data->train);
}

const char *amos_unit(const struct amos_data *data, int64_t n)
{
	return data->stream ? PLURAL(n, "window", "windows") : PLURAL(n, "sample", "samples");
}

int amos_data_check_size(const struct amos_data *data)
{
	int64_t train = units(data, data->train);
	if (!amos_data_batches(data))
		return amos_fail(AMOS_INPUT,
		                 "--data: %lld %s to train on, fewer than one batch of %lld" HELP
		                 "supply more data, or a smaller --batch",
		                 (long long)train, amos_unit(data, train), (long long)data->batch);
	if (data->train < data->length && !amos_data_held_out(data))
		return amos_fail(AMOS_INPUT,
		                 "--split %g: the held-out part is less than one %s" HELP
		                 "give a smaller --split",
		                 data->split, amos_unit(data, 1));
	return AMOS_DONE;
}

// ---- texts -----------------------------------------------------------------------------

void amos_append(char **text, const char *fmt, ...)
{
	va_list args;
	char *more = NULL, *all = NULL;
	va_start(args, fmt);
	if (!*text || vasprintf(&more, fmt, args) < 0)
		more = NULL;
	va_end(args);
	if (!more || asprintf(&all, "%s%s", *text, more) < 0)
		all = NULL;
	free(more);
	free(*text);
	*text = all;
}

// ---- queries and the vocabulary -------------------------------------------------------

int amos_data_write_vocab(const struct amos_data *data, const char *dir)
{
	for (int i = 0; i < data->nsources; i++) {
		const struct amos_source *source = &data->sources[i];
		const struct amos_vocabulary *vocabulary =
		    source->fill == AMOS_ABSENT ? &data->files[source->file].vocabulary : NULL;
		char *path;
		if (!vocabulary || !vocabulary->count)
			continue;
		if (asprintf(&path, "%s/%s.vocab", dir, source->name) < 0)
			return amos_no_memory("--data");
		int status = amos_vocabulary_write(vocabulary, path);
		free(path);
		if (status)
			return status;
	}
	return AMOS_DONE;
}
