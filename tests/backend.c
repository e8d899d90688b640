// backend.c: the ONNX project's own operator tests: each a folder with model.onnx and
// test_data_set_0/input_N.pb, output_N.pb. Takes folders. Prints a line for each that is off, and
// how many agree, differ, and are refused. Status 1 when a result differs; what amosc refuses it
// says itself.
#include "onnx.h"
#include "onnx.pb-c.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Count {
	int good, wrong, refused;
} Count;

static void *from_arena(void *arena, size_t count)
{
	return take(arena, count);
}

static void leave_to_arena(void *arena, void *bytes)
{
	(void)arena, (void)bytes;
}

static TensorProto *load(Arena *arena, const char *path)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return NULL;
	uint8_t *bytes = take(arena, 1 << 22);
	size_t count = fread(bytes, 1, 1 << 22, f);
	fclose(f);
	ProtobufCAllocator allocator = {from_arena, leave_to_arena, arena};
	return tensor_proto__unpack(&allocator, count, bytes);
}

// Values of any stored type as doubles.
static double *numbers(Arena *arena, const TensorProto *t, int64_t *n)
{
	*n = 1;
	for (size_t a = 0; a < t->n_dims; a++)
		*n *= t->dims[a];
	double *x = NEWS(arena, double, *n + 1);
	int type = -1;
	for (int e = 0; e < ELEMS; e++)
		if (elems[e].onnx == t->data_type)
			type = e;
	if (type < 0 || !t->raw_data.len)
		fail("data", "stored in another way");
	Shape s = shape_of((int)t->n_dims, t->dims);
	Array a = array_from(arena, (Elem)type, &s, t->raw_data.data);
	for (int64_t i = 0; i < *n; i++)
		x[i] = elems[type].cls == 'f' ? a.f[i] : (double)a.i[i];
	return x;
}

static Array slot_values(Arena *arena, const Slot *s, const char *folder, int number)
{
	int64_t n = count_of(&s->shape), found = 0;
	Array a = {.type = s->type, .shape = s->shape, .f = NEWS(arena, double, n + 1)};
	if (s->kind != S_input)
		return s->init ? array_from(arena, s->type, &s->shape, s->init) : a;
	TensorProto *t =
	    load(arena, format(arena, "%s/test_data_set_0/input_%d.pb", folder, number));
	double *x = t ? numbers(arena, t, &found) : NULL;
	if (!x || found != n)
		fail(folder, "input %d does not fit", number);
	for (int64_t i = 0; i < n; i++) {
		if (elems[s->type].cls == 'f')
			a.f[i] = x[i];
		else
			a.i[i] = (int64_t)x[i];
	}
	return a;
}

static bool close_enough(double a, double b)
{
	return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-3 * fabs(b) + 1e-5;
}

static bool agrees(Arena *arena, const char *folder, const Model *m, const Array *value)
{
	for (int o = 0; o < m->graph->outs.count; o++) {
		TensorProto *t =
		    load(arena, format(arena, "%s/test_data_set_0/output_%d.pb", folder, o));
		int64_t n = 0;
		double *want = t ? numbers(arena, t, &n) : NULL;
		const Array *y = &value[m->graph->outs.at[o].val];
		if (!want)
			continue;
		if (count_of(&y->shape) != n) {
			printf("%s: output %d has another shape\n", folder, o);
			return false;
		}
		for (int64_t i = 0; i < n; i++) {
			double found = elems[y->type].cls == 'f' ? y->f[i] : (double)y->i[i];
			if (close_enough(found, want[i]))
				continue;
			printf("%s: output %d[%lld] is %.9g, wanted %.9g\n", folder, o,
			       (long long)i, found, want[i]);
			return false;
		}
	}
	return true;
}

// The model with all inputs but the first made initializers: axes and sizes that operators take as
// operands are constants in models that people export.
static const char *settle_inputs(Arena *arena, const char *folder, const char *path)
{
	uint8_t *bytes = take(arena, 1 << 22);
	FILE *f = fopen(path, "rb");
	size_t count = f ? fread(bytes, 1, 1 << 22, f) : 0;
	if (f)
		fclose(f);
	ProtobufCAllocator allocator = {from_arena, leave_to_arena, arena};
	ModelProto *m = model_proto__unpack(&allocator, count, bytes);
	if (!m || !m->graph || m->graph->n_input < 2)
		return path;
	GraphProto *g = m->graph;
	size_t n = g->n_initializer;
	TensorProto **more = NEWS(arena, TensorProto *, n + g->n_input);
	for (size_t i = 0; i < n; i++)
		more[i] = g->initializer[i];
	g->initializer = more;
	for (size_t i = 1; i < g->n_input; i++) {
		TensorProto *t =
		    load(arena, format(arena, "%s/test_data_set_0/input_%zu.pb", folder, i));
		if (!t)
			continue;
		t->name = copy_string(arena, g->input[i]->name);
		g->initializer[g->n_initializer++] = t;
	}
	size_t size = model_proto__pack(m, bytes);
	static char settled[] = "/tmp/amosc-backend.onnx";
	f = fopen(settled, "wb");
	if (!f || fwrite(bytes, 1, size, f) != size || fclose(f))
		fail(settled, "cannot be written");
	return settled;
}

static bool run_file(Arena *arena, const char *folder, const char *path)
{
	ReadOptions options = {0};
	Model *m = read_model(arena, path, &options);
	Array *slot = NEWS(arena, Array, m->graph->slots.count + 1);
	int number = 0;
	for (int s = 0; s < m->graph->slots.count; s++) {
		slot[s] = slot_values(arena, &m->graph->slots.at[s], folder, number);
		number += m->graph->slots.at[s].kind == S_input;
	}
	return agrees(arena, folder, m, eval_graph(arena, m->graph, slot));
}

// As it is, or with its inputs settled.
static void run(const char *folder, Count *count, bool talk)
{
	Arena *arena = arena_new();
	const char *path = format(arena, "%s/model.onnx", folder);
	for (int attempt = 0; attempt < 2; attempt++) {
		Catch caught;
		if (!TRY(caught)) {
			bool good = run_file(arena, folder,
			                     attempt ? settle_inputs(arena, folder, path) : path);
			catch_end(&caught);
			*(good ? &count->good : &count->wrong) += 1;
			break;
		}
		bool again = !attempt && strstr(caught.message, "computed from data");
		if (!again && talk)
			printf("refused: %s: %s\n", folder, caught.message);
		free(caught.message);
		if (again)
			continue;
		count->refused++;
		break;
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Count count = {0};
	warn_quiet(true);
	bool talk = argc > 1 && !strcmp(argv[1], "-v");
	for (int i = 1 + talk; i < argc; i++)
		run(argv[i], &count, talk);
	printf("backend: %d agree, %d differ, %d are refused\n", count.good, count.wrong,
	       count.refused);
	return count.wrong != 0 || !count.good;
}
