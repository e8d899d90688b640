// golden.c: reads reference results of models and compares with them.
#include "golden.h"
#include "files.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- exceptions to the usual limit ----------------------------------------------------

Limit golden_limit(const char *key, bool wide)
{
	static const char *const two_samples[] = {
	    "mobilenet_v2_op13_train.onnx",
	    "mobilenet_v3_op20_train_noopt_rnd.onnx@bn_train",
	    "mobilenet_v3_ts_op17_train_rnd.onnx",
	    "resnet18_op18_train_noopt_rnd.onnx@bn_train",
	    "resnet18_ts_op17_train_rnd.onnx",
	    "resnet50_op13_train.onnx",
	};
	Limit limit = {.tolerance = wide ? 1e-7 : 1e-4};
	for (int i = 0; i < COUNT(two_samples) && !wide; i++)
		if (!strcmp(two_samples[i], key))
			limit = (Limit){limit.tolerance, true,
			                "batches of two are normalized layer by layer"};
	if (!strcmp(key, "unet_gn_op16_eval.onnx") && !wide)
		limit = (Limit){limit.tolerance, true,
		                "two elements of a window of its max pooling differ by 3e-7"};
	if (!strcmp(key, "modes/autocast_bf16.onnx"))
		limit = (Limit){.tolerance = 1e-2,
		                .why = "its golden, gradients too, is rounded to the 8 bits of "
		                       "bf16, which amosc computes in f32"};
	return limit;
}

const char *golden_missing(const char *file)
{
	static const struct {
		const char *pattern, *why;
	} missing[] = {{"ops/fn_rand*", "its numbers are random"},
	               {"*_sd_op*", "its paths are dropped at random"},
	               {"*_dropout_op*", "it drops out at random"},
	               {"training*", "what it tells of training has tests of its own"},
	               {"bad/*", "it is wrong, and has a test of its own"},
	               {"cli/*", "it has a test of its own"},
	               {"detect.onnx", "it has a test of its own"},
	               {"padded.onnx", "it has a test of its own"},
	               {"select.onnx", "it has a test of its own"},
	               {"small/*", "it has a test of its own"}};
	for (int i = 0; i < COUNT(missing); i++)
		if (matches(missing[i].pattern, file))
			return missing[i].why;
	return NULL;
}

bool golden_selected(const char *key, int n, char **pattern)
{
	for (int i = 0; i < n; i++)
		if (matches(pattern[i], key))
			return true;
	return n == 0;
}

// ---- reading --------------------------------------------------------------------------

// Python writes NaN, which is not JSON: it is read as null.
json_t *golden_load(const char *path)
{
	if (access(path, R_OK))
		return NULL;
	Arena *arena = arena_new();
	Text json = {.arena = arena};
	const char *from = read_file(arena, path, NULL);
	for (const char *at; (at = strstr(from, "NaN")); from = at + 3)
		say(&json, "%.*snull", (int)(at - from), from);
	say(&json, "%s", from);
	json_error_t error;
	json_t *all = json_loads(json.at, 0, &error);
	if (!all)
		printf("%s:%d: %s\n", path, error.line, error.text);
	arena_free(arena);
	return all;
}

static double number(const json_t *x)
{
	return json_is_number(x) ? json_number_value(x) : NAN;
}

double golden_input(const char *name, Elem type, const Shape *shape, int64_t i)
{
	if (is_float(type))
		return sin(0.7 * (double)i + 0.3);
	int64_t row = shape->rank ? shape->dim[shape->rank - 1] : 1, x = 3 + 7 * i % 90;
	if (strstr(name, "label"))
		x = 5 * i % 90;
	else if (strstr(name, "mask"))
		x = i >= row || i < row - 3;
	else if (strstr(name, "type"))
		x = 0;
	else if (strstr(name, "edge") || strstr(name, "index"))
		x = (5 * i + i / 7) % 10;
	else if (strstr(name, "timestep"))
		x = 1 + 7 * i;
	else if (strstr(name, "offset"))
		x = 3 * i;
	return elems[type].cls == 'b' ? x != 0 : (double)x;
}

double golden_cotangent(int k, int64_t i, int64_t count)
{
	return cos(0.37 * (double)i + 0.1 * k) / (double)count;
}

// ---- comparing ------------------------------------------------------------------------

typedef struct Judge {
	const char *file;
	double tolerance;
	Verdict verdict;
} Judge;

static double largest(const Result *r)
{
	double x = 0;
	for (int64_t i = 0; i < r->count; i++)
		x = fmax(x, fabs(r->at[i]));
	return x;
}

static void differ(Judge *j, const char *name, const char *what, double found, double wanted,
                   double scale)
{
	double allowed = j->tolerance * scale, off = fabs(found - wanted);
	double share = found == wanted ? 0 : allowed > 0 ? off / allowed : INFINITY;
	if (isnan(wanted))
		return;
	if (isnan(share))
		share = INFINITY;
	if (share > j->verdict.worst)
		j->verdict.worst = share;
	if (share <= 1)
		return;
	printf("  %s: %s: %s is %.9g, wanted %.9g (largest entry %.3g)\n", j->file, name, what,
	       found, wanted, scale);
	j->verdict.wrong++;
}

// Compares the values at flat indices floor(k (n - 1) / parts), k a multiple of `step`; older files
// contain only the first few.
static bool compare_samples(Judge *j, const char *name, const Result *r, const json_t *expected,
                            int parts, int step, double scale)
{
	int wrong = j->verdict.wrong;
	int64_t before = -1;
	size_t n = 0;
	for (int k = 0; k <= parts && j->verdict.wrong == wrong; k += step) {
		bool plain = r->count <= parts + 1 || json_array_size(expected) <= 4;
		int64_t at = plain ? k / step : (int64_t)k * (r->count - 1) / parts;
		if (at == before || at >= r->count)
			continue;
		before = at;
		if (n >= json_array_size(expected))
			break;
		char what[64];
		snprintf(what, sizeof what, "entry %lld of %lld", (long long)at,
		         (long long)r->count);
		differ(j, name, what, r->at[at], number(json_array_get(expected, n++)), scale);
	}
	return j->verdict.wrong == wrong;
}

static void judge_output(Judge *j, const json_t *expected, Fetch *fetch, void *ctx)
{
	const char *name = json_string_value(json_array_get(expected, 0));
	Result r;
	if (!fetch(ctx, name, &r)) {
		printf("  %s: no output '%s'\n", j->file, name);
		j->verdict.wrong++;
		return;
	}
	j->verdict.outputs++;
	double sum = 0, squares = 0, scale = largest(&r);
	for (int64_t i = 0; i < r.count; i++) {
		sum += r.at[i];
		squares += r.at[i] * r.at[i];
	}
	json_t *samples = json_array_get(expected, 4);
	if (!compare_samples(j, name, &r, samples, 15, 1, scale))
		return;
	double l2 = number(json_array_get(expected, 3));
	differ(j, name, "L2", sqrt(squares), l2, l2);
	differ(j, name, "sum", sum, number(json_array_get(expected, 2)),
	       scale * sqrt((double)r.count));
}

// True for arrays that are not parameters: constants of an operator, running statistics and initial
// states of a recurrence. The statistics of jax_cnn_nnx have no names.
static bool may_lack(const char *file, const char *name, const json_t *expected)
{
	bool nameless = !strcmp(file, "jax_cnn_nnx.onnx") &&
	                (!strcmp(name, "const_4") || !strcmp(name, "const_5"));
	bool state =
	    starts_with(name, "val_") && (starts_with(file, "lstm_") || starts_with(file, "gru_"));
	return json_array_size(json_array_get(expected, 2)) == 1 || strstr(name, "running_") ||
	       strstr(name, "moving_") || nameless || state;
}

static void judge_gradient(Judge *j, const char *file_name, const json_t *expected, double full,
                           Fetch *fetch, void *ctx)
{
	char name[1024];
	snprintf(name, sizeof name, "grad:%s", file_name);
	Result r;
	if (!fetch(ctx, name, &r)) {
		j->verdict.constants++;
		if (may_lack(j->file, file_name, expected))
			return;
		printf("  %s: no gradient of '%s'\n", j->file, file_name);
		j->verdict.wrong++;
		return;
	}
	j->verdict.gradients++;
	double squares = 0, sum = 0, l2 = number(json_array_get(expected, 0));
	double scale = fmax(largest(&r), l2 / sqrt((double)r.count));
	if (l2 < 1e-5 * full) // cancels to zero
		scale = full;
	for (int64_t i = 0; i < r.count; i++) {
		sum += r.at[i];
		squares += r.at[i] * r.at[i];
	}
	json_t *first = json_array_get(expected, 2), *samples = json_array_get(expected, 4);
	for (size_t i = 0; i < json_array_size(first) && (int64_t)i < r.count; i++) {
		int wrong = j->verdict.wrong;
		char what[64];
		snprintf(what, sizeof what, "entry %zu of %lld", i, (long long)r.count);
		differ(j, name, what, r.at[i], number(json_array_get(first, i)), scale);
		if (j->verdict.wrong > wrong)
			return;
	}
	if (samples && !compare_samples(j, name, &r, samples, 63,
	                                r.count <= 64 || r.count > 4096 ? 1 : 3, scale))
		return;
	differ(j, name, "L2", sqrt(squares), l2, scale * sqrt((double)r.count));
	differ(j, name, "sum", sum, number(json_array_get(expected, 1)),
	       scale * sqrt((double)r.count));
}

// Returns the L2 norm of the full gradient.
static double full_gradient(const json_t *grads)
{
	double squares = 0;
	const char *name;
	json_t *expected;
	json_object_foreach ((json_t *)grads, name, expected) {
		double l2 = number(json_array_get(expected, 0));
		squares += isfinite(l2) ? l2 * l2 : 0;
	}
	return sqrt(squares);
}

static bool listed(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), name))
			return true;
	return false;
}

Verdict golden_judge(const char *file, const json_t *golden, double tolerance, Fetch *fetch,
                     void *ctx)
{
	Judge j = {.file = file, .tolerance = tolerance};
	json_t *outputs = json_object_get(golden, "outputs"),
	       *grads = json_object_get(golden, "grads");
	for (size_t i = 0; i < json_array_size(outputs); i++)
		judge_output(&j, json_array_get(outputs, i), fetch, ctx);
	Result loss;
	if (!grads || !fetch(ctx, "loss", &loss))
		return j.verdict;
	double full = full_gradient(grads);
	const char *name;
	json_t *expected;
	json_object_foreach (grads, name, expected) {
		if (!listed(json_object_get(golden, "nonfinite"), name))
			judge_gradient(&j, name, expected, full, fetch, ctx);
	}
	return j.verdict;
}
