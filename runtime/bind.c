// bind.c: sets the open dimensions of a model's inputs from the data.
// Input: open sources, and the inputs as the model declares them.
// Invariant: fixed dimensions stay; data that disagree with them are an error.
#include "rt.h"
#include <string.h>

enum { DEFAULT_BATCH = 32 };

int amos_shape_mismatch(const struct amos_source *source, const struct amos_input *input,
                        const struct amos_array *array)
{
	char found[256], expected[256];
	return amos_fail(
	    AMOS_INPUT, "--data %s: expected %s, found %s", source->name,
	    amos_shape_text(expected, sizeof expected, input->type, input->rank, input->dim),
	    amos_shape_text(found, sizeof found, array->type, array->rank, array->dim));
}

// Sets all open axes, or all but the first, from an array of the same rank.
static int bind_axes(const struct amos_source *source, struct amos_input *input,
                     const struct amos_array *array, int from)
{
	if (array->rank != input->rank)
		return from ? AMOS_DONE : amos_shape_mismatch(source, input, array);
	for (int a = from; a < input->rank; a++) {
		if (!from && input->dim[a] >= 0 && input->dim[a] != array->dim[a])
			return amos_shape_mismatch(source, input, array);
		if (input->dim[a] < 0)
			input->dim[a] = array->dim[a];
	}
	return AMOS_DONE;
}

static bool has_input_shape(int rank, const int64_t *dim, const struct amos_array *array)
{
	bool same = rank == array->rank && dim[0] >= 0;
	for (int a = 0; a < rank && same; a++)
		same = dim[a] < 0 || dim[a] == array->dim[a];
	return same;
}

void amos_data_note_array(struct amos_data *data, int rank, const int64_t *dim,
                          const struct amos_array *array)
{
	if (rank && array->rank && data->counted < 0 && !has_input_shape(rank, dim, array))
		data->counted = array->dim[0];
}

bool amos_is_constant(const struct amos_data *data, int rank, const int64_t *dim,
                      const struct amos_array *array)
{
	if (!rank)
		return amos_count(array->rank, array->dim) == 1;
	return has_input_shape(rank, dim, array) && array->dim[0] != data->counted;
}

// Returns the array of an input that takes samples; NULL: none, or it is the same in every batch.
static const struct amos_array *samples_of(const struct amos_data *data,
                                           const struct amos_input *input)
{
	const struct amos_array *array =
	    amos_source_array(data, amos_source_of(&data->sources, input->name));
	bool constant =
	    array && data->counted >= 0 && amos_is_constant(data, input->rank, input->dim, array);
	return input->rank && !constant ? array : NULL;
}

// Chooses the batch: a fixed first axis, else --batch, else the default.
static int bind_batch(struct amos_data *data, int n, const struct amos_input *inputs)
{
	int64_t fixed = -1, samples = INT64_MAX;
	const char *by = NULL;
	for (int i = 0; i < n; i++) {
		const struct amos_array *array = samples_of(data, &inputs[i]);
		if (!array)
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
	return data->batch ? AMOS_DONE : amos_fail(AMOS_INPUT, "--data: no samples");
}

// Gives open axes the size of a known axis of the same name.
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
	data->counted = -1;
	for (int i = 0; i < n; i++) {
		const struct amos_array *array =
		    amos_source_array(data, amos_source_of(&data->sources, inputs[i].name));
		if (array)
			amos_data_note_array(data, inputs[i].rank, inputs[i].dim, array);
	}
	int status = bind_batch(data, n, inputs);
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(&data->sources, inputs[i].name);
		const struct amos_array *array = amos_source_array(data, source);
		if (source && inputs[i].rank && inputs[i].dim[0] < 0)
			inputs[i].dim[0] = data->batch;
		if (array && inputs[i].rank)
			status = bind_axes(source, &inputs[i], array, 1);
	}
	if (!status)
		bind_names(n, inputs);
	return status;
}

// Prepares amos_data_batches() before there is a compiled model.
static int count_bound(struct amos_data *data, int n, const struct amos_input *inputs)
{
	bool first = true;
	int status = AMOS_DONE;
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(&data->sources, inputs[i].name);
		const struct amos_array *array = samples_of(data, &inputs[i]);
		int64_t elements = amos_count(inputs[i].rank, inputs[i].dim),
		        per = elements / data->batch;
		if (!array || !array->rank || elements < 0)
			continue;
		if (data->counted < 0) { // all arrays form one batch
			status = amos_data_count(data, source, true, false, data->batch, 1);
			first = false;
			break;
		}
		status = amos_data_count(data, source, first, array->rank == 1 && per > 1,
		                         array->dim[0], per);
		first = false;
	}
	return status;
}

void amos_list_name(char *list, size_t room, const char *name)
{
	size_t at = strlen(list);
	snprintf(list + at, room - at, "%s%s", at ? ", " : "", name);
}

// Fails if no data name an input: they belong to another model, or are arrays without names.
static int check_any(const struct amos_data *data, int n, const struct amos_input *inputs)
{
	char given[512] = "", expected[512] = "";
	for (int i = 0; i < n; i++) {
		if (amos_source_of(&data->sources, inputs[i].name))
			return AMOS_DONE;
		amos_list_name(expected, sizeof expected, inputs[i].name);
	}
	for (int i = 0; i < data->sources.count; i++)
		amos_list_name(given, sizeof given, data->sources.at[i].name);
	return n && *given ? amos_fail(AMOS_INPUT,
	                               "--data: expected data of the model's inputs, %s; found %s",
	                               expected, given)
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
		const struct amos_array *array = amos_source_array(data, source);
		if (array)
			status = bind_axes(source, &inputs[i], array, 0);
	}
	if (!status)
		bind_names(n, inputs);
	return status;
}
