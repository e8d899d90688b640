// models.c: compares the output of `amosc grad` (or `run`) on models with their goldens.json.
// models AMOSC f32|f64 DIRECTORY PATTERN...: the models whose name in goldens.json matches a
// pattern, computed in that precision, one process per model; `amosc run` if nothing has a
// gradient. Prints one line per model; status 1 if one differs or there are none.
#include "runtime.h"
#include "files.h"
#include "golden.h"
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 };

typedef struct Case { // one model
	Arena *arena;
	const char *amosc, *path, *key, *folder; // folder: directory for its arrays
	bool wide;                               // computed in f64
	Limit limit;
	const json_t *expected;
	json_t *inspected;
	int64_t n;
	struct amos_array *found;
} Case;

static Elem type_in(const Case *c, const char *list, const char *name)
{
	size_t i;
	json_t *one;
	json_array_foreach (json_object_get(c->inspected, list), i, one)
		if (!strcmp(json_string_value(json_object_get(one, "name")), name))
			return (Elem)FIND(json_string_value(json_object_get(one, "type")), elems);
	fail(c->key, "'%s' is not among the %s that inspect tells", name, list);
}

static Shape shape_from(const json_t *list)
{
	Shape s = {.rank = (int)json_array_size(list)};
	for (int i = 0; i < s.rank; i++)
		s.dim[i] = json_integer_value(json_array_get(list, (size_t)i));
	return s;
}

static struct amos_array array_of(const Case *c, const char *name, Elem type, const Shape *shape,
                                  const Array *x)
{
	struct amos_array a = {.name = name, .type = type, .rank = shape->rank};
	memcpy(a.dim, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
	void *bytes = take(c->arena, (size_t)count_of(shape) * 8 + 8);
	array_to(x, bytes);
	a.bytes = bytes;
	return a;
}

static void write_arrays(const Case *c, const char *name, int n, const struct amos_array *list)
{
	if (amos_npz_write(format(c->arena, "%s/%s.npz", c->folder, name), n, list))
		fail(c->key, "%s", amos_error());
}

// Writes inputs, floats in double, as in the goldens. `shift`: relative change of every second
// value.
static void write_inputs(const Case *c, double shift)
{
	struct amos_array list[MOST];
	int count = 0;
	const char *name;
	json_t *dims;
	json_object_foreach ((json_t *)json_object_get(c->expected, "inputs"), name, dims) {
		Elem type = type_in(c, "inputs", name);
		bool floating = is_float(type);
		Array x = {.type = floating ? E_f64 : type, .shape = shape_from(dims)};
		x.f = take(c->arena, (size_t)count_of(&x.shape) * 8 + 8);
		for (int64_t i = 0; i < count_of(&x.shape); i++) {
			double number = golden_input(name, type, &x.shape, i);
			if (floating)
				x.f[i] = i % 2 ? number : number * (1 + shift);
			else
				x.i[i] = (int64_t)number;
		}
		list[count++] = array_of(c, name, x.type, &x.shape, &x);
	}
	write_arrays(c, "in", count, list);
}

static void write_cotangents(const Case *c)
{
	struct amos_array list[MOST];
	int count = 0;
	size_t i;
	json_t *out;
	json_array_foreach (json_object_get(c->expected, "outputs"), i, out) {
		const char *name = json_string_value(json_array_get(out, 0));
		if (!is_float(type_in(c, "outputs", name)))
			continue;
		Array x = {.type = E_f64, .shape = shape_from(json_array_get(out, 1))};
		int64_t n = count_of(&x.shape);
		x.f = take(c->arena, (size_t)n * 8 + 8);
		for (int64_t k = 0; k < n; k++)
			x.f[k] = golden_cotangent(count, k, n);
		list[count++] = array_of(c, name, E_f64, &x.shape, &x);
	}
	write_arrays(c, "cotangent", count, list);
}

static bool fetch(void *context, const char *name, Result *result)
{
	Case *c = context;
	for (int64_t i = 0; i < c->n; i++) {
		const struct amos_array *a = &c->found[i];
		if (strcmp(a->name, name))
			continue;
		Shape shape = shape_of(a->rank, a->dim);
		Array x = array_from(c->arena, (Elem)a->type, &shape, a->bytes);
		double *at = NEWS(c->arena, double, count_of(&shape) + 1);
		for (int64_t k = 0; k < count_of(&shape); k++)
			at[k] = element_at(&x, k);
		*result = (Result){count_of(&shape), at};
		return true;
	}
	return false;
}

static void inspect(Case *c)
{
	FILE *from = popen(format(c->arena, "%s inspect --json '%s' 2>&1", c->amosc, c->path), "r");
	json_error_t error;
	c->inspected = from ? json_loadf(from, 0, &error) : NULL;
	if (!from || pclose(from) || !c->inspected)
		fail(c->key, "amosc inspect failed");
}

static void run_grad(const Case *c, const char *out, int64_t *n, struct amos_array **found)
{
	const char *at = c->folder, *path = format(c->arena, "%s/%s", at, out), *verb = "run";
	if (json_object_get(c->expected, "grads"))
		verb = format(c->arena, "grad --cotangent %s/cotangent.npz", at);
	const char *line = format(c->arena, "%s %s '%s' --precision %s --data %s/in.npz -o %s%s",
	                          c->amosc, verb, c->path, c->wide ? "f64" : "f32", at, path,
	                          strstr(c->key, "@bn_train") ? " --bn train" : "");
	if (system(line))
		fail(c->key, "amosc %s failed", verb);
	if (amos_npz_read(path, n, found))
		fail(c->key, "%s", amos_error());
}

static Verdict judge(Case *c)
{
	inspect(c);
	write_inputs(c, 0);
	write_cotangents(c);
	run_grad(c, "out.npz", &c->n, &c->found);
	return golden_judge(c->key, c->expected, c->limit.tolerance, fetch, c);
}

// Returns the largest difference of two arrays, relative to the largest element of the first.
static double apart(Case *c, const struct amos_array *a, const struct amos_array *b)
{
	Result x, y;
	struct amos_array *mine = c->found;
	fetch(c, a->name, &x);
	c->found = (struct amos_array *)b;
	double largest = 0, most = 0;
	if (!fetch(c, a->name, &y))
		fail(c->key, "%s is not there again", a->name);
	c->found = mine;
	for (int64_t i = 0; i < x.count; i++) {
		largest = fmax(largest, fabs(x.at[i]));
		most = fmax(most, fabs(x.at[i] - y.at[i]));
	}
	return most / fmax(largest, 1e-30);
}

// Returns how much results change if inputs change by less than f32 resolves: no computation in f32
// can be closer to the golden.
static double sensitivity(Case *c)
{
	int64_t n;
	struct amos_array *moved;
	double most = 0;
	write_inputs(c, 0x1p-23);
	run_grad(c, "moved.npz", &n, &moved);
	for (int64_t i = 0; i < c->n && n == c->n; i++)
		most = fmax(most, apart(c, &c->found[i], moved));
	amos_npz_free(n, moved);
	return most;
}

static bool good(Case *c)
{
	Catch caught;
	if (TRY(caught)) {
		printf("BAD  %s\n", caught.message);
		free(caught.message);
		return false;
	}
	Verdict v = judge(c);
	double worst = v.worst * c->limit.tolerance,
	       moves = v.wrong && c->limit.unstable ? sensitivity(c) : 0;
	catch_end(&caught);
	bool fine = (!v.wrong || worst <= 2 * moves) && v.outputs &&
	            (v.gradients || !json_object_get(c->expected, "grads"));
	printf("%s %s: %d outputs, %d gradients, %d constants, worst %.2g\n",
	       fine ? "ok  " : "BAD ", c->key, v.outputs, v.gradients, v.constants, worst);
	if (c->limit.why)
		printf("  (not to all digits: %s)\n", c->limit.why);
	if (moves > 0)
		printf("  (it moves by %.2g with the rounding of its inputs)\n", moves);
	amos_npz_free(c->n, c->found);
	return fine;
}

static bool has_golden(const json_t *goldens, const char *file)
{
	const char *key;
	json_t *expected;
	json_object_foreach ((json_t *)goldens, key, expected)
		if (!strncmp(key, file, strcspn(key, "@")) && !file[strcspn(key, "@")])
			return true;
	return false;
}

// Prints files without a golden and the reason; returns how many have no reason.
static int count_unheld(const char *folder, const json_t *goldens)
{
	static const char *const depth[] = {"*.onnx", "*/*.onnx"};
	Arena *arena = arena_new();
	glob_t all;
	int unheld = 0;
	for (int i = 0; i < COUNT(depth); i++)
		glob(format(arena, "%s/%s", folder, depth[i]), i ? GLOB_APPEND : 0, NULL, &all);
	for (size_t i = 0; i < all.gl_pathc; i++) {
		const char *file = all.gl_pathv[i] + strlen(folder) + 1;
		const char *nested =
		    format(arena, "%s/%.*s/goldens.json", folder, (int)strcspn(file, "/"), file);
		if (has_golden(goldens, file) || !access(nested, R_OK))
			continue;
		const char *why = golden_missing(file);
		printf("%s %s: no golden: %s\n", why ? "none" : "BAD ", file, why ? why : "why?");
		unheld += !why;
	}
	globfree(&all);
	arena_free(arena);
	return unheld;
}

int main(int argc, char **argv)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/goldens.json", argc > 4 ? argv[3] : ".");
	json_t *goldens = golden_load(path), *expected;
	if (!goldens) {
		printf("models: %s cannot be read\n", path);
		return 1;
	}
	const char *folder = own_folder();
	int fine = 0, all = 0;
	const char *key;
	json_object_foreach (goldens, key, expected) {
		if (key[0] == '_' || !golden_selected(key, argc - 4, argv + 4))
			continue;
		Case c = {.arena = arena_new(),
		          .amosc = argv[1],
		          .key = key,
		          .folder = folder,
		          .expected = expected,
		          .wide = !strcmp(argv[2], "f64")};
		c.limit = golden_limit(key, c.wide);
		c.path = format(c.arena, "%s/%.*s", argv[3], (int)strcspn(key, "@"), key);
		fine += good(&c);
		all++;
		json_decref(c.inspected);
		arena_free(c.arena);
		fflush(stdout);
	}
	int unheld = count_unheld(argv[3], goldens);
	json_decref(goldens);
	printf("%d of %d models agree\n", fine, all);
	return fine != all || !all || unheld;
}
