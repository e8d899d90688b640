// onnx.c: writes the model's file with the instance's weights, as amosc export does.
#include "rt.h"
#include <limits.h>
#include <string.h>

static const float *values_of(void *m, int64_t slot)
{
	return amos_slot_bytes(m, slot);
}

// Returns the weights for the model's file; .file NULL: compiled without it.
static struct amos_weights weights_of(const struct amos *m)
{
	return (struct amos_weights){m->model->file, values_of, (void *)m};
}

static int no_file(const struct amos *m)
{
	return amos_fail(AMOS_USAGE,
	                 "%s: compiled without the model's file" HELP
	                 "build it without --no-export or --update-only",
	                 m->model->name);
}

static int64_t bytes_of(const struct amos_weights *w)
{
	return amos_template_write(w, AMOS_FILE_MODEL, NULL, NULL, NULL);
}

// Fails if the file cannot be one in memory.
static int check(const struct amos *m, const struct amos_weights *w, int64_t *bytes)
{
	int status = w->file ? amos_template_check(w, m->model->name) : no_file(m);
	*bytes = status ? 0 : bytes_of(w);
	if (*bytes <= INT_MAX)
		return status;
	return amos_fail(AMOS_INPUT,
	                 "%s: with all weights, the model's file has %lld bytes; expected at most "
	                 "%d" HELP "amos_export_onnx() writes the weights to a file of their own",
	                 m->model->name, (long long)*bytes, INT_MAX);
}

int64_t amos_onnx_bytes(const struct amos *m)
{
	const struct amos_weights w = weights_of(m);
	int64_t bytes;
	return check(m, &w, &bytes) ? 0 : bytes;
}

static void put_bytes(void *to, const void *bytes, size_t count)
{
	char **at = to;
	*at = mempcpy(*at, bytes, count);
}

int amos_store_onnx(const struct amos *m, void *to, int64_t bytes)
{
	const struct amos_weights w = weights_of(m);
	int64_t expected;
	int status = check(m, &w, &expected);
	char *at = to;
	if (!status && bytes < expected)
		status = amos_fail(AMOS_INPUT,
		                   "amos_store_onnx: expected room for %lld bytes, found %lld",
		                   (long long)expected, (long long)bytes);
	if (!status)
		amos_template_write(&w, AMOS_FILE_MODEL, NULL, put_bytes, &at);
	return status;
}

int amos_export_onnx(const struct amos *m, const char *path)
{
	const struct amos_weights w = weights_of(m);
	return w.file ? amos_template_file(&w, path) : no_file(m);
}
