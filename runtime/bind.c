// bind.c: sets the open dimensions of a model's inputs from the data, and counts samples.
// Input: open sources, and the inputs as the model declares them.
// Invariant: fixed dimensions stay; data that disagree with them are an error.
#include "rt.h"
#include <string.h>

enum { DEFAULT_BATCH = 32 };

int amos_shape_mismatch(const struct amos_source *source, const struct amos_input *input,
                        const struct amos_array *array, const char *help)
{
	char found[256], expected[256];
	return amos_fail(
	    AMOS_INPUT, "--data %s: expected %s, found %s%s", source->name,
	    amos_shape_text(expected, sizeof expected, input->type, input->rank, input->dim),
	    amos_shape_text(found, sizeof found, array->type, array->rank, array->dim), help);
}

// True if the input has no batch axis: it takes one sample, which has all of its axes.
static bool takes_one_sample(const struct amos_input *input, const struct amos_array *array)
{
	if (!array || !input->rank || array->rank != input->rank + 1)
		return false;
	int64_t batch = input->dim[0] < 0 ? 1 : input->dim[0], known = 1, per = 1;
	bool open = false, same = true;
	for (int a = 0; a < input->rank; a++) {
		open |= a && input->dim[a] < 0;
		same &= input->dim[a] < 0 || input->dim[a] == array->dim[a + 1];
		known *= input->dim[a] < 0 ? 1 : input->dim[a];
		per *= array->dim[a + 1];
	}
	return same && !open && per != known / batch; // else its elements are those of a sample
}

// Sets all open axes, or all but the first, from an array of the same rank.
static int bind_axes(const struct amos_source *source, struct amos_input *input,
                     const struct amos_array *array, int from)
{
	for (int a = 0; from && takes_one_sample(input, array) && a < input->rank; a++)
		input->dim[a] = array->dim[a + 1];
	if (array->rank != input->rank)
		return from ? AMOS_DONE : amos_shape_mismatch(source, input, array, "");
	for (int a = from; a < input->rank; a++) {
		if (!from && input->dim[a] >= 0 && input->dim[a] != array->dim[a])
			return amos_shape_mismatch(source, input, array, "");
		if (input->dim[a] < 0)
			input->dim[a] = array->dim[a];
	}
	return AMOS_DONE;
}

// True if the array has the input's shape, open dimensions aside.
static bool has_input_shape(int rank, const int64_t *dim, const struct amos_array *array)
{
	bool same = rank == array->rank && dim[0] >= 0;
	for (int a = 0; a < rank && same; a++)
		same = dim[a] < 0 || dim[a] == array->dim[a];
	return same;
}

bool amos_is_constant(const struct amos_data *data, const struct amos_source *source, int rank,
                      const int64_t *dim, const struct amos_array *array)
{
	if (!rank)
		return amos_elements(array->rank, array->dim) == 1;
	bool samples = source->counts && dim[0] == data->batch && data->counted >= 0;
	return has_input_shape(rank, dim, array) && !samples && array->dim[0] != data->counted;
}

// Returns the array of an input that takes samples; NULL: none, or it is the same in every batch.
static const struct amos_array *samples_of(const struct amos_data *data,
                                           const struct amos_input *input)
{
	const struct amos_source *source = amos_source_of(data, input->name);
	const struct amos_array *array = amos_source_array(data, source);
	bool constant = array && data->counted >= 0 &&
	                amos_is_constant(data, source, input->rank, input->dim, array);
	return input->rank && !constant ? array : NULL;
}

static int bind_one(struct amos_data *data, const struct amos_input *input)
{
	if (data->batch > 1)
		return amos_fail(
		    AMOS_INPUT,
		    "--batch %lld: input '%s' has no batch axis; expected batches of one "
		    "sample" HELP "--accumulate %lld makes an update from as many samples",
		    (long long)data->batch, input->name, (long long)data->batch);
	data->batch = 1;
	return AMOS_DONE;
}

// Chooses the batch: one sample if an input has no batch axis, a fixed first axis, else --batch,
// else the default.
static int bind_batch(struct amos_data *data, int n, const struct amos_input *inputs)
{
	int64_t fixed = -1, samples = INT64_MAX;
	const char *by = NULL;
	for (int i = 0; i < n; i++) {
		const struct amos_array *array = samples_of(data, &inputs[i]);
		if (!array)
			continue;
		if (takes_one_sample(&inputs[i], array))
			return bind_one(data, &inputs[i]);
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
		    "--batch %lld: expected %lld, the size of the first axis of input '%s' (in the "
		    "model or by --bind)",
		    (long long)data->batch, (long long)fixed, by);
	if (fixed >= 0)
		data->batch = fixed;
	if (data->batch < 0)
		data->batch = samples < DEFAULT_BATCH ? samples : DEFAULT_BATCH;
	return data->batch ? AMOS_DONE : amos_fail(AMOS_INPUT, "--data: no samples");
}

// Gives open axes the size of a known axis of the same name. Fails if another axis of that name has
// another size.
static int bind_name(int n, struct amos_input *inputs, const struct amos_input *known, int axis)
{
	for (int j = 0; j < n; j++)
		for (int b = 0; b < inputs[j].rank; b++) {
			if (!inputs[j].axis[b] || strcmp(inputs[j].axis[b], known->axis[axis]))
				continue;
			if (inputs[j].dim[b] < 0)
				inputs[j].dim[b] = known->dim[axis];
			if (inputs[j].dim[b] != known->dim[axis])
				return amos_fail(AMOS_INPUT,
				                 "--data: dimension '%s' is %lld in input '%s' and "
				                 "%lld in input '%s'; expected one size",
				                 known->axis[axis], (long long)known->dim[axis],
				                 known->name, (long long)inputs[j].dim[b],
				                 inputs[j].name);
		}
	return AMOS_DONE;
}

static int bind_names(int n, struct amos_input *inputs)
{
	int status = AMOS_DONE;
	for (int i = 0; i < n; i++)
		for (int a = 0; !status && a < inputs[i].rank; a++)
			if (inputs[i].dim[a] >= 0 && inputs[i].axis[a] && *inputs[i].axis[a])
				status = bind_name(n, inputs, &inputs[i], a);
	return status;
}

static const char *item(bool stream, int64_t n)
{
	return stream ? PLURAL(n, "token", "tokens") : PLURAL(n, "sample", "samples");
}

// Counts an input of `length` tokens or samples, with `window` elements per sample. Fails if its
// length disagrees with that of the first, NULL if this is the first.
static int count_input(struct amos_data *data, const struct amos_source *source,
                       const struct amos_source *first, bool stream, int64_t length, int64_t window)
{
	if (first && (stream != data->stream || length != data->length ||
	              (stream && window != data->window)))
		return amos_fail(
		    AMOS_INPUT, "--data %s: expected %lld %s, as of '%s'; found %lld %s",
		    source->name, (long long)data->length, item(data->stream, data->length),
		    first->name, (long long)length, item(stream, length));
	if (!stream && source->shift)
		return amos_fail(
		    AMOS_INPUT,
		    "--data %s: shift() applies to a stream of tokens, not to an array of samples",
		    source->name);
	data->stream = stream;
	data->length = length;
	data->window = stream ? window : 1;
	data->train = data->split < 1 ? (int64_t)((double)length * data->split) : length;
	return AMOS_DONE;
}

// Gives images the shapes of their inputs.
static int fit_images(struct amos_data *data, int n, const struct amos_input *inputs)
{
	int status = AMOS_DONE;
	for (int i = 0; !status && i < n; i++) {
		int at = amos_index(inputs[i].name, data->sources, data->nsources,
		                    sizeof *data->sources);
		struct amos_source *source = at < 0 ? NULL : &data->sources[at];
		if (amos_source_array(data, source) && data->files[source->file].images)
			status = amos_images_fit(data, source, &inputs[i]);
	}
	return status;
}

static void mark_counts(struct amos_data *data, int n, const struct amos_input *inputs)
{
	for (int i = 0; i < n; i++) {
		int at = amos_index(inputs[i].name, data->sources, data->nsources,
		                    sizeof *data->sources);
		if (at >= 0)
			data->sources[at].counts = inputs[i].counts;
	}
}

// Sets data->counted: an array of another shape than its input has samples along axis 0.
static void count_samples(struct amos_data *data, int n, const struct amos_input *inputs)
{
	data->counted = -1;
	for (int i = 0; i < n && data->counted < 0; i++) {
		const struct amos_array *array =
		    amos_source_array(data, amos_source_of(data, inputs[i].name));
		if (array && array->rank && inputs[i].rank &&
		    !has_input_shape(inputs[i].rank, inputs[i].dim, array))
			data->counted = array->dim[0];
	}
}

// Returns how many tokens after a window the sources read; also those of inputs that only the loss
// has, which are not among `inputs` while the model is read: how many windows there are depends on
// all of them.
static int tokens_ahead(const struct amos_data *data)
{
	int ahead = 0;
	for (int k = 0; k < data->nsources; k++)
		if (data->sources[k].shift > ahead)
			ahead = data->sources[k].shift;
	return ahead;
}

int amos_data_lay_out(struct amos_data *data, int n, struct amos_input *inputs)
{
	int status = fit_images(data, n, inputs);
	if (status)
		return status;
	mark_counts(data, n, inputs);
	count_samples(data, n, inputs);
	data->ahead = tokens_ahead(data);
	status = data->exact ? AMOS_DONE : bind_batch(data, n, inputs);
	for (int i = 0; !status && i < n; i++) {
		const struct amos_source *source = amos_source_of(data, inputs[i].name);
		const struct amos_array *array = amos_source_array(data, source);
		if (!data->exact && source && inputs[i].rank && inputs[i].dim[0] < 0 &&
		    !takes_one_sample(&inputs[i], array))
			inputs[i].dim[0] = data->batch;
		if (array && (data->exact || inputs[i].rank))
			status = bind_axes(source, &inputs[i], array, !data->exact);
	}
	if (!status)
		status = bind_names(n, inputs);
	const struct amos_source *first = NULL;
	for (int i = 0; !status && !data->exact && i < n; i++) {
		const struct amos_array *array = samples_of(data, &inputs[i]);
		int64_t elements = amos_elements(inputs[i].rank, inputs[i].dim),
		        per = elements / data->batch;
		if (!array || !array->rank || elements < 0)
			continue;
		const struct amos_source *source = amos_source_of(data, inputs[i].name);
		bool single = data->counted < 0; // all arrays form one batch
		bool stream = !single && array->rank == 1 && per > 1;
		if (stream && first && !data->stream) // one number, not one row, per sample
			return amos_shape_mismatch(source, &inputs[i], array, "");
		status = count_input(data, source, first, stream,
		                     single ? data->batch : array->dim[0], per);
		first = first ? first : source;
	}
	return status;
}

void amos_list_name(char *list, size_t room, const char *name)
{
	size_t at = strlen(list);
	snprintf(list + at, room - at, "%s%s", at ? ", " : "", name);
}

int amos_data_bind(struct amos_data *data, int n, struct amos_input *inputs)
{
	char given[512] = "", expected[512] = "";
	bool any = false;
	for (int i = 0; i < n; i++) {
		any |= amos_source_of(data, inputs[i].name) != NULL;
		amos_list_name(expected, sizeof expected, inputs[i].name);
	}
	for (int i = 0; i < data->nsources; i++)
		amos_list_name(given, sizeof given, data->sources[i].name);
	if (!any && n && *given) // data of another model, or arrays without names
		return amos_fail(AMOS_INPUT,
		                 "--data: expected data of the model's inputs, %s; found %s",
		                 expected, given);
	return amos_data_lay_out(data, n, inputs);
}
