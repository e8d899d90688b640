// gpu.c: kernels for a GPU, without one: run on emulated threads, in both orders, against the
// evaluator; and as PTX, assembled by ptxas where it is installed. Usage: gpu GRAPH...: files in
// the notation, those of jit.c.
#include "emitted.h"
#include "threads.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool installed(const char *program)
{
	return access(program, X_OK) == 0;
}

static const char *find_ptxas(void)
{
	static const char *const at[] = {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"};
	for (int k = 0; k < COUNT(at); k++)
		if (installed(at[k]))
			return at[k];
	return NULL;
}

static bool assembles(Arena *arena, const Object *object, const char *what)
{
	const char *ptxas = find_ptxas();
	if (!ptxas)
		return true;
	char path[] = "/tmp/amos-ptx-XXXXXX";
	int file = mkstemp(path);
	bool good = file >= 0;
	for (int k = 0; good && k < object->parts; k++) {
		size_t n = object->part[k].count;
		good = write(file, object->part[k].bytes, n) == (ssize_t)n;
	}
	close(file);
	good = good && !system(format(arena, "%s -arch=sm_90 -o /dev/null %s", ptxas, path));
	unlink(path);
	if (!good)
		printf("%s: ptxas does not take it\n", what);
	return good;
}

static bool check_ptx(Arena *arena, const Graph *g, const char *what)
{
	Plan *plan = plan_graph(arena, g, "run");
	EmitOptions options = {
	    .target = target_named(arena, "cuda:sm_90", NULL), .threads = 1, .name = what};
	Object *object = emit(arena, 1, &plan, &options);
	if (object->parts != 1 || !strstr(object->part[0].bytes, ".visible .entry")) {
		printf("%s: no PTX\n", what);
		return false;
	}
	return assembles(arena, object, what);
}

int main(int argc, char **argv)
{
	int failures = 0;
	for (int i = 1; i < argc; i++) {
		Arena *arena = arena_new();
		Graph *g = parse_graph(arena, argv[i], read_text(arena, argv[i]), book_builtin());
		const Target *target = target_named(arena, "cuda:host", NULL);
		Array *slot = random_slots(arena, g, (uint64_t)i, 5);
		double worst = 0;
		for (int backward = 0; backward < 2; backward++) {
			gpu_backward = backward;
			double far = check_graph(arena, g, slot, target, gpu_launch, 1e-5, argv[i]);
			worst = far > worst ? far : worst;
		}
		bool good = worst <= 1 && check_ptx(arena, g, argv[i]);
		printf("%-50s %s %.3f\n", argv[i], good ? "ok" : "BAD", worst);
		failures += !good;
		arena_free(arena);
	}
	printf("%d graphs on emulated threads and as PTX (%s), %d fail\n", argc - 1,
	       find_ptxas() ? "assembled" : "no ptxas here", failures);
	return failures || argc < 2;
}
