// data.c: sources tied to the inputs of a model: shapes for the compiler, then a check of every
// value. Takes source.c, convert.c. Gives struct amos_data, from which batch.c draws. Keeps: every
// value is checked before the first step, so that no label leads a kernel outside its memory.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_KIND = 0, DEFAULT_BATCH = 32 };

// ---- open and close -------------------------------------------------------------------

int amos_data_open(const struct amos_options *options, int exact, struct amos_data **to)
{
	*to = NULL;
	struct amos_data *data = calloc(1, sizeof *data);
	if (!data)
		return amos_fail(AMOS_MACHINE, "--data: out of memory");
	data->exact = exact;
	data->batch = options->batch;
	data->seed = options->seed < 0 ? 0 : options->seed;
	data->split = options->split < 0 ? 1 : options->split;
	data->mask = options->mask;
	data->mask_token = options->mask_token;
	data->window = 1;
	int status =
	    data->split > 1 || data->split == 0
	        ? amos_fail(AMOS_USAGE, "--split: found %g, wanted a part of 1, such as 0.9",
	                    data->split)
	    : data->mask >= 1
	        ? amos_fail(AMOS_USAGE, "--mask: found %g, wanted a part of 1, such as 0.15",
	                    data->mask)
	    : data->batch == 0 ? amos_fail(AMOS_USAGE, "--batch: found 0, wanted a sample at least")
	                       : amos_sources_open(&data->sources, &options->data);
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
	amos_sources_close(&data->sources);
	free(data->feeds);
	free(data->note);
	free(data);
}

static const struct amos_array *array_of(const struct amos_data *data,
                                         const struct amos_source *source)
{
	return source && source->fill == AMOS_ABSENT ? &data->sources.files[source->file].array
	                                             : NULL;
}

const struct amos_array *amos_data_array(const struct amos_data *data, int k, const char **input)
{
	bool there = data->exact && k < data->sources.count;
	const struct amos_source *source = there ? &data->sources.at[k] : NULL;
	*input = source ? source->name : NULL;
	return source && !source->shift && !source->masked ? array_of(data, source) : NULL;
}

// ---- how much there is ----------------------------------------------------------------

static int64_t units(const struct amos_data *data, int64_t length)
{
	return length > data->ahead ? (length - data->ahead) / data->window : 0;
}

int64_t amos_data_batches(const struct amos_data *data)
{
	return data->batch > 0 ? units(data, data->train) / data->batch : 0;
}

int64_t amos_data_held(const struct amos_data *data)
{
	return data->batch > 0 ? units(data, data->length - data->train) / data->batch : 0;
}

int64_t amos_data_eval_batches(const struct amos_data *data)
{
	return data->train < data->length ? amos_data_held(data) : amos_data_batches(data);
}

// Counts in one more input: `length` tokens or samples, `window` elements a sample.
static int count_in(struct amos_data *data, const struct amos_source *source, bool first,
                    bool stream, int64_t length, int64_t window)
{
	if (!first && (stream != data->stream || length != data->length ||
	               (stream && window != data->window)))
		return amos_fail(
		    AMOS_INPUT,
		    "--data %s: %lld %s beside %lld %s of another input: they must go together",
		    source->name, (long long)length, stream ? "tokens" : "samples",
		    (long long)data->length, data->stream ? "tokens" : "samples");
	data->stream = stream;
	data->length = length;
	data->window = stream ? window : 1;
	data->train = data->split < 1 ? (int64_t)((double)length * data->split) : length;
	if (stream && source->shift > data->ahead)
		data->ahead = source->shift;
	if (!stream && source->shift)
		return amos_fail(
		    AMOS_INPUT,
		    "--data %s: shift() is for a stream of tokens; this is an array of samples",
		    source->name);
	return AMOS_DONE;
}

static int enough(const struct amos_data *data)
{
	const char *what = data->stream ? "windows" : "samples";
	if (!amos_data_batches(data))
		return amos_fail(AMOS_INPUT,
		                 "--data: %lld %s to train on make no batch of %lld: wanted more "
		                 "data or a smaller --batch",
		                 (long long)units(data, data->train), what, (long long)data->batch);
	if (data->train < data->length && !amos_data_held(data))
		return amos_fail(AMOS_INPUT,
		                 "--split %g: the %lld %s held out make no batch of %lld: wanted a "
		                 "smaller --split or --batch",
		                 data->split, (long long)units(data, data->length - data->train),
		                 what, (long long)data->batch);
	return AMOS_DONE;
}

// ---- bind: numbers for free dimensions ------------------------------------------------

static int misfit(const struct amos_source *source, const struct amos_input *input,
                  const struct amos_array *array)
{
	char found[256], wanted[256];
	return amos_fail(
	    AMOS_INPUT, "--data %s: found %s, wanted %s", source->name,
	    amos_shape_text(found, sizeof found, array->type, array->rank, array->dim),
	    amos_shape_text(wanted, sizeof wanted, input->type, input->rank, input->dim));
}

// All axes, or all but the first, from an array of the same rank.
static int bind_axes(const struct amos_source *source, struct amos_input *input,
                     const struct amos_array *array, int from)
{
	if (array->rank != input->rank)
		return from ? AMOS_DONE : misfit(source, input, array);
	for (int a = from; a < input->rank; a++) {
		if (!from && input->dim[a] >= 0 && input->dim[a] != array->dim[a])
			return misfit(source, input, array);
		if (input->dim[a] < 0)
			input->dim[a] = array->dim[a];
	}
	return AMOS_DONE;
}

// The batch: a fixed first axis, else --batch, else the default.
static int bind_batch(struct amos_data *data, int n, const struct amos_input *inputs)
{
	int64_t fixed = -1, samples = INT64_MAX;
	const char *by = NULL;
	for (int i = 0; i < n; i++) {
		const struct amos_array *array =
		    array_of(data, amos_source_of(&data->sources, inputs[i].name));
		if (!array || !inputs[i].rank)
			continue;
		if (inputs[i].dim[0] >= 0 && fixed < 0) {
			fixed = inputs[i].dim[0];
			by = inputs[i].name;
		}
		if (array->rank && (array->rank > 1 || inputs[i].rank == 1) &&
		    array->dim[0] < samples)
			samples = (int64_t)((double)array->dim[0] * data->split);
	}
	if (fixed >= 0 && data->batch >= 0 && data->batch != fixed)
		return amos_fail(
		    AMOS_INPUT,
		    "--batch %lld: the first axis of input %s is fixed at %lld in the model",
		    (long long)data->batch, by, (long long)fixed);
	if (fixed >= 0)
		data->batch = fixed;
	if (data->batch < 0)
		data->batch = samples < DEFAULT_BATCH ? samples : DEFAULT_BATCH;
	return data->batch ? AMOS_DONE : amos_fail(AMOS_INPUT, "--data: there are no samples");
}

// Free axes of a name that has a size somewhere get it.
static void bind_names(int n, struct amos_input *inputs)
{
	for (int i = 0; i < n; i++)
		for (int a = 0; a < inputs[i].rank; a++) {
			if (inputs[i].dim[a] < 0 || !inputs[i].axis[a] || !*inputs[i].axis[a])
				continue;
			for (int j = 0; j < n; j++)
				for (int b = 0; b < inputs[j].rank; b++)
					if (inputs[j].dim[b] < 0 && inputs[j].axis[b] &&
					    !strcmp(inputs[j].axis[b], inputs[i].axis[a]))
						inputs[j].dim[b] = inputs[i].dim[a];
		}
}

static int bind_samples(struct amos_data *data, int n, struct amos_input *inputs)
{
	int status = bind_batch(data, n, inputs);
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(&data->sources, inputs[i].name);
		const struct amos_array *array = array_of(data, source);
		if (source && inputs[i].rank && inputs[i].dim[0] < 0)
			inputs[i].dim[0] = data->batch;
		if (array && inputs[i].rank)
			status = bind_axes(source, &inputs[i], array, 1);
	}
	if (!status)
		bind_names(n, inputs);
	return status;
}

// What amos_data_batches answers before there is a compiled model.
static int count_bound(struct amos_data *data, int n, const struct amos_input *inputs)
{
	bool first = true;
	int status = AMOS_DONE;
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(&data->sources, inputs[i].name);
		const struct amos_array *array = array_of(data, source);
		int64_t elements = amos_count(inputs[i].rank, inputs[i].dim),
		        per = elements / data->batch;
		if (!array || !array->rank || !inputs[i].rank || elements < 0)
			continue;
		status =
		    count_in(data, source, first, array->rank == 1 && per > 1, array->dim[0], per);
		first = false;
	}
	return status || first ? status : enough(data);
}

// Data that speak of no input at all: of another model, or arrays without names.
static int check_any(const struct amos_data *data, int n, const struct amos_input *inputs)
{
	char brought[512] = "", wanted[512] = "";
	for (int i = 0, at = 0; i < n; i++) {
		if (amos_source_of(&data->sources, inputs[i].name))
			return AMOS_DONE;
		if (at < (int)sizeof wanted)
			at += snprintf(wanted + at, sizeof wanted - (size_t)at, "%s%s",
			               i ? ", " : "", inputs[i].name);
	}
	for (int i = 0, at = 0; i < data->sources.count && at < (int)sizeof brought; i++)
		at += snprintf(brought + at, sizeof brought - (size_t)at, "%s%s", i ? ", " : "",
		               data->sources.at[i].name);
	return n && *brought ? amos_fail(AMOS_INPUT,
	                                 "--data: found data of %s, wanted of the model's inputs, "
	                                 "which are %s",
	                                 brought, wanted)
	                     : AMOS_DONE;
}

int amos_data_bind(struct amos_data *data, int n, struct amos_input *inputs)
{
	int status = check_any(data, n, inputs);
	if (status)
		return status;
	if (!data->exact) {
		status = bind_samples(data, n, inputs);
		return status ? status : count_bound(data, n, inputs);
	}
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(&data->sources, inputs[i].name);
		const struct amos_array *array = array_of(data, source);
		if (array)
			status = bind_axes(source, &inputs[i], array, 0);
	}
	if (!status)
		bind_names(n, inputs);
	return status;
}

// ---- fit: sources tied to the inputs of a compiled model ------------------------------

static bool is_read(const struct amos_model *model, int64_t input, const char *const *entries)
{
	for (; *entries; entries++) {
		const struct amos_entry *entry = amos_find_entry(model, *entries);
		if (entry && (!entry->reads || entry->reads[input] == '1'))
			return true;
	}
	return false;
}

// Shapes without axes of 1 are equal, or one of them is flat.
static bool regroups(int rank, const int64_t *a, int rank_b, const int64_t *b)
{
	int64_t x[10], y[10];
	int n = 0, m = 0;
	for (int i = 0; i < rank; i++)
		if (a[i] != 1)
			x[n++] = a[i];
	for (int i = 0; i < rank_b; i++)
		if (b[i] != 1)
			y[m++] = b[i];
	if (amos_count(n, x) != amos_count(m, y))
		return false;
	return n <= 1 || m <= 1 || (n == m && !memcmp(x, y, sizeof(int64_t) * (size_t)n));
}

static int fit_shape(struct amos_data *data, struct amos_feed *feed, bool *first)
{
	const struct amos_slot *to = feed->to;
	const struct amos_array *from = feed->from;
	int64_t count = amos_count((int)to->rank, to->dim);
	struct amos_input as = {.name = to->name, .type = to->type, .rank = (int)to->rank};
	memcpy(as.dim, to->dim, sizeof as.dim);
	feed->constant = data->exact || (!to->rank && amos_count(from->rank, from->dim) == 1);
	feed->per = feed->constant ? count : count / data->batch;
	if (data->exact)
		return from->rank == to->rank &&
		               !memcmp(from->dim, to->dim, sizeof(int64_t) * (size_t)to->rank)
		           ? AMOS_DONE
		           : misfit(feed->source, &as, from);
	if (feed->constant)
		return AMOS_DONE;
	if (!from->rank || count % data->batch)
		return misfit(feed->source, &as, from);
	feed->stream = from->rank == 1 && feed->per > 1;
	int64_t flat[] = {feed->per};
	bool rows = to->dim[0] == data->batch;
	if (!feed->stream && !regroups(from->rank - 1, from->dim + 1, rows ? (int)to->rank - 1 : 1,
	                               rows ? to->dim + 1 : flat))
		return misfit(feed->source, &as, from);
	int status = count_in(data, feed->source, *first, feed->stream, from->dim[0], feed->per);
	*first = false;
	return status;
}

static int bad_value(const struct amos_data *data, const struct amos_feed *feed, int64_t at)
{
	double found = amos_number(feed->from->bytes, feed->from->type, at);
	char wanted[128];
	if (feed->to->limit)
		snprintf(wanted, sizeof wanted, "whole numbers from 0 to %lld",
		         (long long)feed->to->limit - 1);
	else
		snprintf(wanted, sizeof wanted, "what %s can hold, and no NaN",
		         amos_types[feed->to->type].name);
	int64_t per = feed->stream || feed->constant ? 1 : feed->per;
	const struct amos_opened *file = &data->sources.files[feed->source->file];
	return amos_fail(AMOS_INPUT, "--data %s=%s: %s %lld is %.17g, wanted %s%s",
	                 feed->source->name, file->text,
	                 per > 1        ? "an element of sample"
	                 : feed->stream ? "token"
	                                : "element",
	                 (long long)(at / per), found, wanted,
	                 file->token && !file->vocabulary.count
	                     ? "; text:PATH:auto numbers only the bytes that occur"
	                     : "");
}

static int check_values(const struct amos_data *data, const struct amos_feed *feed)
{
	enum { CHUNK = 4096 };
	char converted[CHUNK * 8] __attribute__((aligned(8)));
	const struct amos_array *from = feed->from;
	int64_t count = amos_count(from->rank, from->dim);
	bool whole = amos_types[feed->to->type].class != 'f';
	if (amos_fits(feed->to->type, from->type, whole ? feed->to->limit : 0) ||
	    (data->exact && !whole)) // one batch may hold what is no number
		return AMOS_DONE;
	for (int64_t at = 0; at < count; at += CHUNK) {
		int64_t n = count - at < CHUNK ? count - at : CHUNK;
		const char *bytes = (const char *)from->bytes + at * amos_types[from->type].bytes;
		int64_t bad =
		    amos_convert(converted, feed->to->type, bytes, from->type, n, feed->divide);
		if (bad < 0 && feed->to->limit && whole)
			bad = amos_outside(converted, feed->to->type, n, feed->to->limit,
			                   feed->to->ignore);
		if (bad >= 0)
			return bad_value(data, feed, at + bad);
	}
	return AMOS_DONE;
}

// Bytes are brightness where a float input gets them, unless they are tokens or raw().
static double divisor(const struct amos_data *data, const struct amos_source *source, char class)
{
	const struct amos_opened *file = &data->sources.files[source->file];
	return class == 'f' && file->array.type == AMOS_u8 && !file->token && !source->raw ? 255
	                                                                                   : 1;
}

static int fit_one(struct amos_data *data, struct amos_feed *feed, bool *first)
{
	feed->from = array_of(data, feed->source);
	feed->divide = 1;
	if (!feed->from)
		return AMOS_DONE;
	feed->divide = divisor(data, feed->source, amos_types[feed->to->type].class);
	int status = fit_shape(data, feed, first);
	return status ? status : check_values(data, feed);
}

// masked() hides tokens from the other input that reads the same source.
static int fit_masks(struct amos_data *data)
{
	bool masked = false;
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_source *labels = data->feeds[i].source;
		if (!labels->masked)
			continue;
		bool found = false;
		masked = true;
		for (int j = 0; j < data->nfeeds; j++) {
			const struct amos_source *tokens = data->feeds[j].source;
			if (!tokens->masked && tokens->fill == AMOS_ABSENT &&
			    tokens->file == labels->file)
				found = data->feeds[j].hidden = true;
		}
		if (!found)
			return amos_fail(AMOS_INPUT,
			                 "--data %s: no other input reads what masked() wraps, so "
			                 "nothing would be hidden",
			                 labels->name);
	}
	if (data->mask >= 0 && !masked)
		return amos_fail(AMOS_INPUT, "--mask: which input has the labels? Wanted --data "
		                             "LABELS='masked(SOURCE)' beside --data TOKENS=SOURCE");
	if (masked && data->mask_token < 0)
		return amos_fail(
		    AMOS_INPUT,
		    "masked(): wanted --mask-token ID, the token that stands for a hidden one");
	if (data->mask < 0)
		data->mask = 0.15;
	return AMOS_DONE;
}

static int check_mask_token(const struct amos_data *data)
{
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_slot *to = data->feeds[i].to;
		if (data->feeds[i].hidden && to->limit && data->mask_token >= to->limit)
			return amos_fail(
			    AMOS_INPUT, "--mask-token %lld: input %s takes tokens from 0 to %lld",
			    (long long)data->mask_token, to->name, (long long)to->limit - 1);
	}
	return AMOS_DONE;
}

// An input fed by no source; every --data NAME for no input.
static int check_names(const struct amos_data *data, const struct amos_model *model,
                       const char *const *entries)
{
	char names[1024] = "";
	for (int64_t i = 0, at = 0; i < model->nslots; i++)
		if (model->slots[i].kind == INPUT_KIND && at < (int64_t)sizeof names)
			at += snprintf(names + at, sizeof names - (size_t)at, "%s%s",
			               at ? ", " : "", model->slots[i].name);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (slot->kind != INPUT_KIND || amos_source_of(&data->sources, slot->name))
			continue;
		if (is_read(model, slot->offset, entries))
			return amos_fail(AMOS_INPUT,
			                 "input %s has no data: wanted --data %s=SOURCE (ones and "
			                 "zeros are sources too); "
			                 "the inputs are %s",
			                 slot->name, slot->name, names);
	}
	for (int i = 0; i < data->sources.count; i++) {
		const struct amos_source *source = &data->sources.at[i];
		int64_t slot = amos_find_slot(model, source->name);
		if (!source->by_name && (slot < 0 || model->slots[slot].kind != INPUT_KIND))
			return amos_fail(
			    AMOS_INPUT, "--data %s: the model has no such input; the inputs are %s",
			    source->name, names);
	}
	return AMOS_DONE;
}

static int take_feeds(struct amos_data *data, const struct amos_model *model)
{
	free(data->feeds);
	data->nfeeds = 0;
	data->feeds = calloc((size_t)model->nslots + 1, sizeof *data->feeds);
	if (!data->feeds)
		return amos_fail(AMOS_MACHINE, "--data: out of memory");
	int64_t batch = -1;
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		const struct amos_source *source =
		    slot->kind == INPUT_KIND ? amos_source_of(&data->sources, slot->name) : NULL;
		if (!source)
			continue;
		data->feeds[data->nfeeds++] =
		    (struct amos_feed){.slot = i, .to = slot, .source = source};
		if (batch < 0 && slot->rank && array_of(data, source))
			batch = slot->dim[0];
	}
	if (!data->exact && data->batch >= 0 && batch >= 0 && batch != data->batch)
		return amos_fail(AMOS_INPUT,
		                 "--batch %lld: the model was compiled for batches of %lld",
		                 (long long)data->batch, (long long)batch);
	data->batch = batch > 0 && !data->exact ? batch : 1;
	return AMOS_DONE;
}

static int write_note(struct amos_data *data)
{
	size_t size;
	free(data->note);
	data->note = NULL;
	FILE *to = open_memstream(&data->note, &size);
	if (!to)
		return amos_fail(AMOS_MACHINE, "--data: out of memory");
	if (data->stream)
		fprintf(to, "data: %lld tokens in windows of %lld, ", (long long)data->length,
		        (long long)data->window);
	else
		fprintf(to, "data: %lld samples, ", (long long)data->length);
	fprintf(to, "%lld a batch: %lld batches to train on, %lld held out\n",
	        (long long)data->batch, (long long)amos_data_batches(data),
	        (long long)amos_data_held(data));
	int64_t left = units(data, data->length - data->train) % data->batch;
	if (data->train < data->length && left)
		fprintf(to, "data: the last %lld %s held out fill no batch and are left out\n",
		        (long long)left, data->stream ? "windows" : "samples");
	for (int i = 0; i < data->nfeeds; i++)
		if (data->feeds[i].divide != 1)
			fprintf(to,
			        "data: %s: bytes are divided by 255 (raw(SOURCE) leaves them)\n",
			        data->feeds[i].source->name);
	return fclose(to) ? amos_fail(AMOS_MACHINE, "--data: out of memory") : AMOS_DONE;
}

int amos_data_fit(struct amos_data *data, const struct amos_model *model,
                  const char *const *entries)
{
	bool first = true;
	int status = check_names(data, model, entries);
	if (!status)
		status = take_feeds(data, model);
	data->ahead = 0;
	for (int i = 0; !status && i < data->nfeeds; i++)
		status = fit_one(data, &data->feeds[i], &first);
	if (!status)
		status = fit_masks(data);
	if (!status)
		status = check_mask_token(data);
	if (status || data->exact)
		return status;
	if (first)
		return amos_fail(AMOS_INPUT, "--data: wanted data of one input at least");
	status = enough(data);
	return status ? status : write_note(data);
}

static double part_masked(const struct amos_data *data)
{
	return data->mask < 0 ? 0.15 : data->mask;
}

static double square(double x, double unused)
{
	(void)unused;
	return x * x;
}

static double differs(double x, double from)
{
	return x != from;
}

// Mean of term(x, c) over the part of an array to train on: over all of it, or over MANY drawn
// evenly.
static double mean_over(const struct amos_data *data, const struct amos_array *array,
                        double (*term)(double, double), double c)
{
	enum { MANY = 1 << 20 };
	int64_t count = amos_count(array->rank, array->dim);
	if (!data->exact && array->rank)
		count = (int64_t)((double)count * data->split);
	double sum = 0;
	int64_t taken = count < MANY ? count : MANY;
	for (int64_t i = 0; i < taken; i++) {
		int64_t at = count > MANY ? (int64_t)(amos_mix((uint64_t)i) % (uint64_t)count) : i;
		sum += term(amos_number(array->bytes, array->type, at), c);
	}
	return taken ? sum / (double)taken : 0;
}

double amos_data_labels(const struct amos_data *data, const char *name, int64_t elements,
                        int64_t ignore)
{
	const struct amos_source *source = amos_source_of(&data->sources, name);
	const struct amos_array *array = array_of(data, source);
	double part = 1;
	if (source && source->masked)
		part = part_masked(data);
	else if (array && ignore)
		part = mean_over(data, array, differs, (double)ignore);
	return part * (double)elements;
}

double amos_data_independent(const struct amos_data *data)
{
	double part = 1;
	for (int i = 0; i < data->sources.count; i++)
		if (data->sources.at[i].masked)
			part = part_masked(data);
	return (double)amos_data_batches(data) / part;
}

double amos_data_rms(const struct amos_data *data, const char *name)
{
	const struct amos_source *source = amos_source_of(&data->sources, name);
	const struct amos_array *array = array_of(data, source);
	if (!source)
		return NAN;
	if (!array)
		return source->fill;
	return sqrt(mean_over(data, array, square, 0)) / divisor(data, source, 'f');
}

const char *amos_data_note(const struct amos_data *data)
{
	return data->note ? data->note : "";
}

// ---- asked and kept -------------------------------------------------------------------

int64_t amos_data_samples(const struct amos_data *data)
{
	return data->batch;
}

int64_t amos_data_tokens(const struct amos_data *data)
{
	return data->stream ? data->batch * data->window : 0;
}

int amos_data_keep(const struct amos_data *data, const char *dir)
{
	for (int i = 0; i < data->sources.count; i++) {
		const struct amos_source *source = &data->sources.at[i];
		const struct amos_vocabulary *vocabulary =
		    source->fill == AMOS_ABSENT ? &data->sources.files[source->file].vocabulary
		                                : NULL;
		char *path;
		if (!vocabulary || !vocabulary->count)
			continue;
		if (asprintf(&path, "%s/%s.vocab", dir, source->name) < 0)
			return amos_fail(AMOS_MACHINE, "--data: out of memory");
		int status = amos_vocabulary_write(vocabulary, path);
		free(path);
		if (status)
			return status;
	}
	return AMOS_DONE;
}
