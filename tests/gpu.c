// gpu.c: checks GPU kernels without a GPU: on emulated threads, and as PTX.
// gpu FILE...: graphs in the notation (those of jit.c) and models (.onnx), as a training step.
// Threads run in both orders, compared with the evaluator; ptxas assembles the PTX if it is
// installed.
#include "emitted.h"
#include "files.h"
#include "onnx.h"
#include "threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *find_ptxas(void)
{
	static const char *const at[] = {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"};
	for (int k = 0; k < COUNT(at); k++)
		if (!access(at[k], X_OK))
			return at[k];
	return NULL;
}

static const char *folder; // directory for assembled files

// Assembles one part of an object.
static bool assembles(Arena *arena, const Object *object, const char *what)
{
	const char *ptxas = find_ptxas();
	if (!ptxas)
		return true;
	const char *path = format(arena, "%s/kernels.ptx", folder);
	write_file(path, object->part[0].bytes, object->part[0].count);
	if (!system(format(arena, "%s -arch=sm_90 -o /dev/null %s", ptxas, path)))
		return true;
	printf("%s: ptxas does not take it\n", what);
	return false;
}

static bool check_ptx(Arena *arena, const Graph *g, const char *what)
{
	const Target *target = target_named(arena, "cuda:sm_90", NULL);
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	EmitOptions options = {.threads = 1, .name = what};
	Object *object = emit(arena, 1, 1, &(Variant){target, NULL, &plan}, &options);
	if (object->parts != 1 || !strstr(object->part[0].bytes, ".visible .entry")) {
		printf("%s: no PTX\n", what);
		return false;
	}
	return assembles(arena, object, what);
}

// ---- graphs ---------------------------------------------------------------------------

// Returns a training step of a classifier or language model: loss, gradients, Amos.
static Graph *train_graph(Arena *arena, const char *path)
{
	static const Bind bind[] = {{"batch", 1}, {"sequence", 64}};
	ReadOptions options = {.nbind = COUNT(bind), .bind = bind};
	Graph *g = loss_pass(arena, read_model(arena, path, &options)->graph,
	                     "cross_entropy(logits, labels)");
	Ref loss = find_output(g, "loss");
	g->outs.count = 0;
	add_out(g, "loss", loss);
	g = graph_live(arena, g);
	bool *active = NEWS(arena, bool, g->slots.count);
	for (int k = 0; k < g->slots.count; k++)
		active[k] = g->slots.at[k].kind == S_param;
	Eta *eta = eta_pass(arena, g, &(EtaOptions){0}, NULL);
	Opt opt = opt_named("amos");
	opt.labels = (Labels){64, 0.125};
	opt_defaults(arena, &opt);
	return step_pass(arena, grad_pass(arena, g, active, NULL), eta, &opt, STEP_train);
}

// Returns random inputs, and all else as at the start of a training.
static Array *first_slots(Arena *arena, const Graph *g)
{
	Array *slot = random_slots(arena, g, 1, 3);
	for (int k = 0; k < g->slots.count; k++) {
		const Slot *s = &g->slots.at[k];
		if (s->kind != S_input)
			slot[k] = slot_start(arena, s);
	}
	return slot;
}

// `tolerance` is relative to each array's largest element: f32 against the evaluator's double.
static double check_emulated(Arena *arena, const Graph *g, const Array *slot, double tolerance,
                             const char *what)
{
	const Target *target = target_named(arena, "cuda:host", NULL);
	double worst = 0;
	int orders = g->nval < 1000 ? 2 : 1; // large graphs run in one order only
	for (int backward = 0; backward < orders; backward++) {
		gpu_backward = backward;
		worst = fmax(
		    worst, check_graph(arena, g, slot, target, gpu_launch, tolerance, NULL, what));
	}
	return worst;
}

int main(int argc, char **argv)
{
	int failures = 0;
	folder = own_folder();
	for (int i = 1; i < argc; i++) {
		Arena *arena = arena_new();
		bool model = ends_with(argv[i], ".onnx");
		Graph *g = model ? train_graph(arena, argv[i]) : read_graph(arena, argv[i]);
		Array *slot =
		    model ? first_slots(arena, g) : random_slots(arena, g, (uint64_t)i, 5);
		// Rounding accumulates through the layers of a model: the tolerance is that of the
		// goldens.
		double worst = check_emulated(arena, g, slot, model ? 1e-4 : 1e-5, argv[i]);
		bool good = worst <= 1 && check_ptx(arena, g, argv[i]);
		printf("%s %s %.3f\n", good ? "ok " : "BAD", argv[i], worst);
		failures += !good;
		arena_free(arena);
	}
	printf("%d graphs on emulated threads and as PTX (%s), %d fail\n", argc - 1,
	       find_ptxas() ? "assembled" : "no ptxas here", failures);
	return failures || argc < 2;
}
