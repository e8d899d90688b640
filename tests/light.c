// light.c: checks the ONNX project's complete networks with synthetic weights, compiled.
// light AMOSC MODEL...: from backend/test/data/light, each next to NAME_output_0.pb. Element k of n
// of the one input is k / n. Prints what differs. Status 1 if an output differs by more than
// NumPy's allclose at rtol 1e-3 and atol 1e-7.
#include "runtime.h"
#include "case.h"
#include "files.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct amos_array made_input(Arena *arena, const Input *in)
{
	struct amos_array a = {.name = in->name, .type = E_f32, .rank = in->rank};
	int64_t n = 1;
	for (int k = 0; k < in->rank; k++)
		n *= a.dim[k] = MAX(in->dim[k].size, 1);
	float *x = NEWS(arena, float, n);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)((double)i / (double)n);
	a.bytes = x;
	return a;
}

static void compare(const char *model, const struct amos_array *found, const Known *expected)
{
	Shape shape = shape_of(found->rank, found->dim);
	if (!same_shape(&shape, &expected->shape) || found->type != E_f32)
		fail(model, "the output has another shape or type");
	const float *x = found->bytes, *y = expected->bytes;
	for (int64_t i = 0; i < count_of(&shape); i++)
		if (!(fabsf(x[i] - y[i]) <= 1e-3F * fabsf(y[i]) + 1e-7F))
			fail(model, "[%lld] is %.9g, wanted %.9g", (long long)i, (double)x[i],
			     (double)y[i]);
}

static void run_model(Arena *arena, const char *amosc, const char *model, const char *folder)
{
	Model *listed = case_list(arena, model);
	struct amos_array in = made_input(arena, &listed->inputs.at[0]), *out;
	const char *from = format(arena, "%s/in.npz", folder),
	           *to = format(arena, "%s/out.npz", folder);
	int64_t n;
	if (amos_npz_write(from, 1, &in))
		fail(model, "%s", amos_error());
	if (system(format(arena, "%s run %s --data %s -o %s --quiet", amosc, model, from, to)))
		fail(model, "amosc run failed");
	if (amos_npz_read(to, &n, &out) || n != 1)
		fail(model, "one output is wanted");
	int stem = (int)(strlen(model) - strlen(".onnx"));
	KnownList expected = read_value(arena, format(arena, "%.*s_output_0.pb", stem, model),
	                                &listed->outputs.at[0]);
	compare(model, &out[0], &expected.at[0]);
	amos_npz_free(n, out);
}

static bool agrees(const char *amosc, const char *model, const char *folder)
{
	Arena *arena = arena_new();
	Catch caught;
	if (TRY(caught)) {
		printf("%s\n", caught.message);
		free(caught.message);
		arena_free(arena);
		return false;
	}
	run_model(arena, amosc, model, folder);
	catch_end(&caught);
	arena_free(arena);
	return true;
}

int main(int argc, char **argv)
{
	int good = 0;
	if (argc < 3)
		return 2;
	const char *folder = own_folder();
	for (int i = 2; i < argc; i++)
		good += agrees(argv[1], argv[i], folder);
	printf("light: %d of %d networks agree\n", good, argc - 2);
	return good != argc - 2;
}
