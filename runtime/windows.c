// windows.c: cuts arrays along axis 0 into windows, and labels samples with the classes of their
// recordings or images.
// Invariant: a window lies in one recording. What follows its last complete window is left out; a
// recording of samples that is shorter than a window is padded with silence.
#include "rt.h"
#include <stdlib.h>
#include <string.h>

// Copies what `to` has in common with the array that it is made from, but for the counts of rows.
static int inherit(const struct amos_opened *from, struct amos_opened *to)
{
	const struct amos_recordings *r = &from->recordings;
	int64_t n = r->n ? r->n : 1;
	to->recordings = *r;
	to->recordings.classes = strdup(r->classes ? r->classes : "");
	to->recordings.at = calloc((size_t)n, sizeof *r->at);
	if (!to->recordings.classes || !to->recordings.at)
		return amos_no_memory(from->text);
	if (r->n)
		memcpy(to->recordings.at, r->at, (size_t)n * sizeof *r->at);
	else
		*to->recordings.at = (struct amos_recording){from->array.dim[0], -1};
	return AMOS_DONE;
}

// Counts the windows of `rows` elements.
static int64_t windows_of(const struct amos_opened *from, int64_t rows, int64_t size, int64_t step)
{
	return rows >= size ? (rows - size) / step + 1 : rows && from->wave;
}

static int count_windows(const struct amos_opened *from, int64_t size, int64_t step,
                         struct amos_opened *to)
{
	struct amos_recordings *r = &to->recordings;
	struct amos_array *array = &to->array;
	int64_t n = r->n ? r->n : 1, count = 0;
	for (int64_t i = 0; i < n; i++) {
		int64_t windows = windows_of(from, r->at[i].rows, size, step);
		r->left_out += r->at[i].rows && !windows;
		r->at[i].rows = windows;
		count += windows;
	}
	array->type = from->array.type;
	array->rank = from->array.rank + 1;
	array->dim[0] = count;
	array->dim[1] = size;
	memcpy(array->dim + 2, from->array.dim + 1,
	       sizeof *array->dim * (size_t)(from->array.rank - 1));
	return count ? AMOS_DONE
	             : amos_fail(AMOS_INPUT, "windows(): expected at least %lld %s, found %lld%s",
	                         (long long)size, PLURAL(size, "element", "elements"),
	                         (long long)from->array.dim[0],
	                         r->n > 1 ? " in recordings that are all shorter" : "");
}

static void copy_windows(const struct amos_opened *from, int64_t size, int64_t step, int64_t item,
                         struct amos_opened *to, char *at)
{
	const struct amos_recordings *r = &from->recordings, *cut = &to->recordings;
	const char *bytes = from->array.bytes;
	for (int64_t i = 0; i < (r->n ? r->n : 1); i++) {
		int64_t rows = r->n ? r->at[i].rows : from->array.dim[0],
		        copied = rows < size ? rows : size;
		for (int64_t k = 0; k < cut->at[i].rows; k++, at += size * item)
			memcpy(at, bytes + k * step * item, (size_t)(copied * item));
		bytes += rows * item;
	}
}

int amos_windows_cut(const struct amos_opened *from, int64_t size, int64_t step,
                     struct amos_opened *to)
{
	const struct amos_array *source = &from->array;
	if (from->images)
		return amos_fail(AMOS_INPUT, "windows(): expected an array, found %s", from->text);
	if (!source->rank || source->rank == COUNT(source->dim))
		return amos_fail(AMOS_INPUT,
		                 "windows(): expected an array of 1 to %d axes, found %d",
		                 COUNT(source->dim) - 1, source->rank);
	int status = inherit(from, to);
	if (!status)
		status = count_windows(from, size, step, to);
	if (status)
		return status;
	int64_t item = amos_elements(source->rank - 1, source->dim + 1),
	        count = amos_elements(to->array.rank, to->array.dim);
	item *= amos_types[source->type].bytes;
	struct amos_blob blob = {NULL, 0, false};
	if (count >= 0)
		blob.count = (size_t)count * (size_t)amos_types[source->type].bytes;
	blob.at = count < 0 ? NULL : calloc(blob.count + 1, 1);
	if (!blob.at)
		return amos_no_memory(from->text);
	copy_windows(from, size, step, item, to, (char *)blob.at);
	to->token = from->token;
	to->vocabulary = from->vocabulary;
	to->cut = true;
	return amos_array_take(&to->array, from->text, &blob, 0);
}

int amos_classes(const struct amos_opened *from, struct amos_opened *to)
{
	const struct amos_recordings *r = &from->recordings;
	int status = from->images ? amos_images_check_classes(from->images) : AMOS_DONE;
	if (status)
		return status;
	for (int64_t i = 0; i < r->n; i++)
		if (r->at[i].label < 0)
			return amos_fail(
			    AMOS_INPUT,
			    "classes(): a recording lies in no directory of its class" HELP
			    "store the recordings as DIR/CLASS/NAME.wav, for wav:DIR");
	if (!r->n)
		return amos_fail(AMOS_INPUT,
		                 "classes(): expected the recordings of wav:DIR or the images of "
		                 "images:DIR");
	status = inherit(from, to);
	to->array.type = AMOS_i32;
	to->array.rank = 1;
	to->array.dim[0] = from->array.dim[0];
	struct amos_blob blob = {NULL, (size_t)to->array.dim[0] * sizeof(int32_t), false};
	int32_t *at = status ? NULL : malloc(blob.count + 1);
	if (!at)
		return status ? status : amos_no_memory(from->text);
	blob.at = (void *)at;
	for (int64_t i = 0; i < r->n; i++)
		for (int64_t k = 0; k < r->at[i].rows; k++)
			*at++ = (int32_t)r->at[i].label;
	to->cut = from->cut;
	return amos_array_take(&to->array, from->text, &blob, 0);
}
