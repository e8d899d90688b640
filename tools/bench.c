// bench.c: amosc bench: where the time of a training step goes, by kernel. On made-up data.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM = 3, STEPS = 20 };

typedef struct Line { // kernels of one name
	const char *name, *kind;
	int launches;
	double seconds, flops, bytes; // a step
} Line;

static void fill_input(const Slot *s, void *bytes)
{
	int64_t count = count_of(&s->shape), limit = s->limit > 0 ? s->limit : 2;
	for (int64_t i = 0; i < count; i++)
		switch (s->type) {
		case E_f32:
			((float *)bytes)[i] = (float)sin(0.7 * (double)i + 0.3);
			break;
		case E_i64:
			((int64_t *)bytes)[i] = i * 7 % limit;
			break;
		case E_i32:
			((int32_t *)bytes)[i] = (int32_t)(i * 7 % limit);
			break;
		default:
			memset((char *)bytes + i * elems[s->type].bytes, i % 2,
			       (size_t)elems[s->type].bytes);
		}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_time(const void *a, const void *b)
{
	double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
	return (x < y) - (x > y);
}

static Line *line_named(Line *line, int *count, const struct amos_kernel *k)
{
	for (int i = 0; i < *count; i++)
		if (!strcmp(line[i].name, k->name))
			return &line[i];
	line[*count] = (Line){.name = k->name, .kind = k->kind};
	return &line[(*count)++];
}

// Launches of one name in one line, longest first.
static int gather_lines(const struct amos_entry *entry, const int64_t *nanoseconds, Line *line)
{
	int count = 0;
	for (int64_t i = 0; i < entry->nkernels; i++) {
		const struct amos_kernel *k = &entry->kernels[i];
		Line *l = line_named(line, &count, k);
		l->launches++;
		l->seconds += 1e-9 * (double)nanoseconds[i] / STEPS;
		l->flops += (double)k->flops;
		l->bytes += (double)k->bytes;
	}
	qsort(line, (size_t)count, sizeof *line, by_time);
	return count;
}

static void print_lines(const Line *line, int count, double step, double flops)
{
	printf("%9s %6s %5s %9s %8s %-5s %s\n", "ms", "share", "times", "GFLOP/s", "GB/s", "kind",
	       "kernel");
	for (int i = 0; i < count; i++) {
		double s = fmax(line[i].seconds, 1e-12);
		printf("%9.3f %5.1f%% %5d %9.1f %8.1f %-5s %s\n", 1e3 * s, 100 * s / step,
		       line[i].launches, 1e-9 * line[i].flops / s, 1e-9 * line[i].bytes / s,
		       line[i].kind, line[i].name);
	}
	printf("a step: %.3f ms, %.1f GFLOP/s\n", 1e3 * step, 1e-9 * flops / step);
}

static json_t *lines_json(const Line *line, int count)
{
	json_t *list = json_array();
	for (int i = 0; i < count; i++)
		json_array_append_new(list,
		                      json_pack("{ss ss si sf sf sf}", "kernel", line[i].name,
		                                "kind", line[i].kind, "launches", line[i].launches,
		                                "seconds", line[i].seconds, "flops", line[i].flops,
		                                "bytes", line[i].bytes));
	return list;
}

static void call(struct amos *open, const struct amos_entry *entry)
{
	int status = amos_call(open, entry, NULL, NULL);
	if (status)
		fail_status(STATUS_MACHINE, NULL, "the model stopped with status %d", status);
}

void verb_bench(Command *command)
{
	Trainer t = compile_trainer(command, NULL, false);
	struct amos *open = open_object(command, t.object, t.graph);
	for (int i = 0; i < t.graph->slots.count; i++)
		if (t.graph->slots.at[i].kind == S_input)
			fill_input(&t.graph->slots.at[i], amos_slot_bytes(open, i));
	const struct amos_entry *entry = amos_find_entry(amos_model_of(open), "train");
	for (int i = 0; i < WARM; i++)
		call(open, entry);
	int64_t *nanoseconds = NEWS(command->arena, int64_t, entry->nkernels + 1);
	amos_time(open, nanoseconds);
	double begin = now();
	for (int i = 0; i < STEPS; i++)
		call(open, entry);
	double step = (now() - begin) / STEPS, flops = 0;
	Line *line = NEWS(command->arena, Line, entry->nkernels + 1);
	int count = gather_lines(entry, nanoseconds, line);
	for (int i = 0; i < count; i++)
		flops += line[i].flops;
	struct amos_memory m = amos_memory(open);
	int64_t bytes = m.params + m.state + m.scratch + m.pads + m.batch;
	if (chosen(command, OPT_json)) {
		print_json(json_pack("{ss sf sf sI so}", "model", command->arguments.at[0], "step",
		                     step, "flops", flops, "bytes", (json_int_t)bytes, "kernels",
		                     lines_json(line, count)));
	} else {
		print_lines(line, count, step, flops);
		printf("memory %s\n", bytes_text(command->arena, (double)bytes));
	}
}
