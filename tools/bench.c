// bench.c: implements amosc bench: profiles a training step by kernel, on synthetic data.
// Output: each kernel's share of the time, and the fraction of this machine's peak that it reaches.
// All figures are of the fastest step, except those of all updates together, which are of the step
// with the fastest updates.
#include "tool.h"
#include "peak.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, LEAST = 5, MOST = 20 }; // steps
static const double long_enough = 2;     // seconds

typedef struct Line { // kernels of one name, or of one kind
	const char *name, *kind;
	int launches;
	double seconds, flops, bytes; // per step
} Line;

typedef struct Bench {
	Session *session;
	Peak peak;
	double step, flops, bytes; // seconds per step; operations per step; memory
	int lines, kinds;
	Line *line, *kind; // longest first
	// all kernels that write parameters: in the fastest step, in the step with the fastest
	// updates
	Line update, best;
} Bench;

// ---- steps ----------------------------------------------------------------------------

static void fill_input(const Slot *s, void *bytes)
{
	Arena *arena = arena_new();
	int64_t count = count_of(&s->shape), limit = s->limit > 0 ? s->limit : 2;
	Array x = {.type = s->type, .shape = s->shape, .i = NEWS(arena, int64_t, count)};
	for (int64_t i = 0; i < count; i++)
		if (is_float(s->type))
			x.f[i] = sin(0.7 * (double)i + 0.3);
		else
			x.i[i] = i * 7 % limit;
	array_to(&x, bytes);
	arena_free(arena);
}

static void call(struct amos *open, const struct amos_entry *entry)
{
	int status = amos_call(open, entry, NULL, NULL);
	if (status != AMOS_INPUT) // synthetic data may give indices that are out of range
		need_done(status);
}

static bool is_update(const struct amos_kernel *k)
{
	return !strncmp(k->name, "update ", 7);
}

static int64_t update_time(const struct amos_entry *entry, const int64_t *nanoseconds)
{
	int64_t sum = 0;
	for (int64_t i = 0; i < entry->nkernels; i++)
		sum += is_update(&entry->kernels[i]) ? nanoseconds[i] : 0;
	return sum;
}

// Sets the nanoseconds per launch in the fastest step, and in the step with the fastest updates.
// Returns the seconds of the former.
static double fastest_step(Session *session, struct amos *open, const struct amos_entry *entry,
                           int64_t *nanoseconds, int64_t *updates)
{
	size_t size = (size_t)entry->nkernels * sizeof *nanoseconds;
	int64_t *own = take(session->arena, size + 1);
	for (int i = 0; i < WARM; i++)
		call(open, entry);
	open->nanoseconds = own;
	double best = INFINITY, start = amos_now();
	for (int i = 0; i < LEAST || (i < MOST && amos_now() - start < long_enough); i++) {
		memset(own, 0, size);
		double begin = amos_now();
		call(open, entry);
		double took = amos_now() - begin;
		if (took < best)
			memcpy(nanoseconds, own, size);
		if (!i || update_time(entry, own) < update_time(entry, updates))
			memcpy(updates, own, size);
		best = fmin(best, took);
	}
	open->nanoseconds = NULL;
	return best;
}

// ---- lines ----------------------------------------------------------------------------

static int by_time(const void *a, const void *b)
{
	double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
	return (x < y) - (x > y);
}

static void add_launch(Line *l, const struct amos_kernel *k, int64_t nanoseconds)
{
	l->launches += k->times;
	l->seconds += 1e-9 * (double)nanoseconds;
	l->flops += (double)k->flops * (double)k->times;
	l->bytes += (double)k->bytes * (double)k->times;
}

static Line *line_named(Line *line, int *count, const char *name, const char *kind)
{
	int known = amos_index(name, line, *count, sizeof *line);
	if (known >= 0)
		return &line[known];
	line[*count] = (Line){.name = name, .kind = kind};
	return &line[(*count)++];
}

// Adds up the launches by name and by kind; updates are a kind of their own.
static void gather_lines(Bench *b, const struct amos_entry *entry, const int64_t *nanoseconds,
                         const int64_t *updates)
{
	b->line = NEWS(b->session->arena, Line, entry->nkernels + 1);
	b->kind = NEWS(b->session->arena, Line, entry->nkernels + 1);
	b->update.name = b->update.kind = "update";
	b->best = b->update;
	for (int64_t i = 0; i < entry->nkernels; i++) {
		const struct amos_kernel *k = &entry->kernels[i];
		if (k->loop)
			continue;
		Line *kind =
		    is_update(k) ? &b->update : line_named(b->kind, &b->kinds, k->kind, k->kind);
		add_launch(line_named(b->line, &b->lines, k->name, k->kind), k, nanoseconds[i]);
		add_launch(kind, k, nanoseconds[i]);
		if (is_update(k))
			add_launch(&b->best, k, updates[i]);
		b->flops += (double)k->flops * (double)k->times;
	}
	if (b->update.launches)
		b->kind[b->kinds++] = b->update;
	qsort(b->line, (size_t)b->lines, sizeof *b->line, by_time);
	qsort(b->kind, (size_t)b->kinds, sizeof *b->kind, by_time);
}

// Returns the larger of two fractions of what this machine can do in that time: of its operations,
// of its memory traffic.
static double fraction(const Bench *b, const Line *l)
{
	double seconds = fmax(l->seconds, 1e-9);
	return fmax(l->flops / b->peak.flops, l->bytes / b->peak.bytes) / seconds;
}

// ---- reports --------------------------------------------------------------------------

static void print_lines(const Bench *b, const Line *line, int count, const char *title)
{
	printf("%9s %6s %5s %9s %8s %5s %-5s %s\n", "ms", "share", "times", "GFLOP/s", "GB/s",
	       "peak", "kind", title);
	for (int i = 0; i < count; i++) {
		double s = fmax(line[i].seconds, 1e-9);
		printf("%9.3f %5.1f%% %5d %9.1f %8.1f %4.0f%% %-5s %s\n", 1e3 * s,
		       100 * s / b->step, line[i].launches, 1e-9 * line[i].flops / s,
		       1e-9 * line[i].bytes / s, 100 * fraction(b, &line[i]), line[i].kind,
		       line[i].name);
	}
}

static json_t *line_json(const Bench *b, const Line *l, const char *name)
{
	return json_pack("{ss ss si sf sf sf sf}", name, l->name, "kind", l->kind, "launches",
	                 l->launches, "seconds", l->seconds, "flops", l->flops, "bytes", l->bytes,
	                 "fraction", fraction(b, l));
}

static json_t *lines_json(const Bench *b, const Line *line, int count, const char *name)
{
	json_t *list = json_array();
	for (int i = 0; i < count; i++)
		json_array_append_new(list, line_json(b, &line[i], name));
	return list;
}

void verb_bench(Session *session)
{
	Bench b = {.session = session};
	Program *program = program_new(session, NULL);
	program->runs = true;
	struct amos *open = open_program(program);
	const Graph *g = program_graph(program);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			fill_input(&g->slots.at[i], amos_slot_bytes(open, i));
	need_done(measure_peak(choice_count(session, OPT_threads, 0), &b.peak));
	const struct amos_entry *entry = amos_find_entry(open->model, "train");
	int64_t *nanoseconds = NEWS(session->arena, int64_t, entry->nkernels + 1);
	int64_t *updates = NEWS(session->arena, int64_t, entry->nkernels + 1);
	b.step = fastest_step(session, open, entry, nanoseconds, updates);
	gather_lines(&b, entry, nanoseconds, updates);
	b.bytes = (double)open->memory.total;
	if (chosen(session, OPT_json)) {
		json_t *peak = json_pack("{sf sf}", "flops", b.peak.flops, "bytes", b.peak.bytes);
		print_json(json_pack(
		    "{so sf sf sf sI so so so so}", "model", json_text(session->path), "step",
		    b.step, "flops", b.flops, "fraction", b.flops / b.step / b.peak.flops, "bytes",
		    (json_int_t)b.bytes, "peak", peak, "updates", line_json(&b, &b.best, "name"),
		    "kinds", lines_json(&b, b.kind, b.kinds, "name"), "kernels",
		    lines_json(&b, b.line, b.lines, "kernel")));
		return;
	}
	print_lines(&b, b.line, b.lines, "kernel");
	print_lines(&b, b.kind, b.kinds, "all of a kind");
	printf("machine: %.1f GFLOP/s of multiply-adds, %.1f GB/s of memory in place\n",
	       1e-9 * b.peak.flops, 1e-9 * b.peak.bytes);
	if (b.best.launches)
		printf("updates: %.3f ms, %.0f%% of memory in place\n", 1e3 * b.best.seconds,
		       100 * b.best.bytes / b.best.seconds / b.peak.bytes);
	printf("a step: %.3f ms, %.1f GFLOP/s, %.0f%% of peak\n", 1e3 * b.step,
	       1e-9 * b.flops / b.step, 100 * b.flops / b.step / b.peak.flops);
	printf("memory %s\n", bytes_text(session->arena, b.bytes));
}
