// roofline.c: models a training step on a GPU, without one: amosc bench --model.
// A launch takes as long as its operations or its memory traffic at the GPU's peak, whichever is
// longer, on the multiprocessors that have a block of it, and the time to start it. Blocks of one
// multiprocessor share its part of the peak, which one alone has to itself: how many there are at
// once hides latency. An ideal kernel computes the same on all multiprocessors, starts at once,
// reads every operand once and writes every result once; it keeps scores of attention to itself. Of
// both, what caches, latency and instructions other than those of the formula cost is neglected: a
// model, never a measurement.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Percent of the multiprocessors that have a block in a full wave. A grid of squares seldom has as
// many blocks as there are multiprocessors: 128 for 132 leave 3 % idle, which a launch's time has.
enum { WAVE = 95 };

static const struct Gpu {
	const char *name, *title, *target;
	int multiprocessors;
	double f64, f32, tf32, bf16; // 10^12 a second
	double mma;                  // the share of them that instructions of a warp have
	double bytes;                // 10^12 a second
	double launch;               // seconds
} gpus[] = {
#define GPU(name, ...) {#name, __VA_ARGS__},
#include "gpus.def"
};

typedef struct Line { // launches of one key, in a step
	const char *key, *name, *kind, *shape, *role, *unit;
	int64_t launches, blocks; // blocks: of one of them
	double flops, bytes, seconds, ideal;
} Line;

typedef struct RooflineModel {
	Session *session;
	const struct Gpu *gpu;
	VEC(Line) lines;         // longest first
	int64_t launches, small; // small: under a wave
	double seconds, ideal, small_seconds;
} RooflineModel;

typedef struct Step { // an entry, or the body of a loop in it
	RooflineModel *model;
	const Plan *plan;
	const Reads *reads; // by kernel
	const Work *work;   // by kernel
	Roles roles;
	const bool *scores; // by Ref
	double times;       // that it runs
	const char *role;   // of the loop; NULL: of each kernel
} Step;

// ---- an ideal kernel ------------------------------------------------------------------

// Marks the results of products of a batch that are larger than their operands, such as the scores
// of attention, and what is computed from them element by element and row by row.
static const bool *find_scores(Arena *arena, const Graph *g)
{
	bool *scores = NEWS(arena, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		int64_t operands = 0, batch = 1;
		for (int k = 0; k < v->nin; k++) {
			const Val *u = val(g, v->in[k]);
			operands += count_of(&u->shape);
			scores[r] |= v->op != O_dot && scores[v->in[k]] &&
			             count_of(&u->shape) == count_of(&v->shape);
		}
		for (int a = 0; v->op == O_dot && a + 2 < v->shape.rank; a++)
			batch *= val(g, v->in[1])->shape.dim[a];
		scores[r] |= batch > 1 && count_of(&v->shape) > operands;
	}
	return scores;
}

// Bytes that an ideal kernel k reads and writes.
static double least_bytes(const Step *s, int k)
{
	const Kern *kern = &s->plan->kerns.at[k];
	const Graph *g = s->plan->graph;
	int64_t bytes = 0;
	for (int i = 0; i < s->reads[k].count; i++)
		if (!s->scores[s->reads[k].at[i].val])
			bytes += bytes_of(val(g, s->reads[k].at[i].val));
	for (int o = 0; o < kern->nout; o++)
		if (!s->scores[kern->out[o]])
			bytes += bytes_of(val(g, kern->out[o]));
	return (double)bytes;
}

// ---- launches -------------------------------------------------------------------------

typedef struct ComputeUnit { // that computes a kernel
	const char *name;
	double peak; // operations a second
} ComputeUnit;

// share: of the matrix units' peak.
static ComputeUnit unit_for(const struct Gpu *gpu, Elem matrix, double share, Elem type)
{
	if (is_half(matrix))
		return (ComputeUnit){share < 1         ? matrix == E_f16 ? "f16 mma" : "bf16 mma"
		                     : matrix == E_f16 ? "f16 wgmma"
		                                       : "bf16 wgmma",
		                     1e12 * gpu->bf16 * share};
	if (matrix == E_f32)
		return (ComputeUnit){"tf32 mma", 1e12 * gpu->tf32 * share};
	return type == E_f64 ? (ComputeUnit){"f64", 1e12 * gpu->f64}
	                     : (ComputeUnit){"f32", 1e12 * gpu->f32};
}

// The unit that kernel k runs on or, `ideal`, could: products of the program's precision on the
// matrix units.
static ComputeUnit unit_of(const Step *s, int k, bool ideal)
{
	const Kern *kern = &s->plan->kerns.at[k];
	const Graph *g = s->plan->graph;
	Elem matrix = 0;
	double share = ideal ? 1 : s->model->gpu->mma;
	if (kern->kind == L_dot && !ideal && kern->sched->partition == P_blocks) {
		BlockSizes z = block_sizes(g, kern, s->plan->machine);
		matrix = z.matrix;
		share = z.groups ? 1 : share;
	} else if (kern->kind == L_attend && !ideal) {
		const Val *v = val(g, kern->root);
		AttendBlocks z = attend_blocks(g, v, s->plan->machine, v->op >= O_attend_dq);
		matrix = z.matrix;
		share = z.groups ? 1 : share;
	} else if ((kern->kind == L_dot || kern->kind == L_attend) && ideal)
		matrix = g->products;
	return unit_for(s->model->gpu, matrix, share, val(g, kern->out[0])->type);
}

// Bytes that launches of a kernel leave for each other: parts of sums, for whose type there is
// room.
static double work_bytes(const Step *s, const Sched *sched)
{
	if (!sched->reduce.count)
		return (double)sched->work;
	int64_t columns = count_of(&val(s->plan->graph, sched->reduce.at[0].val)->shape);
	int64_t lines = sched->work / (partial_line(columns) * PARTIAL);
	return (double)(lines * columns * (sched->accumulation == A_f32 ? 4 : PARTIAL));
}

// Outputs of attention that launch `stage` of kernel k computes: gradients of keys and values
// first, if there are others, too. *all: of all launches. Without those of biases unless `biases`.
static int attention_outputs(const Step *s, int k, Stage stage, bool biases, int *all)
{
	const Kern *kern = &s->plan->kerns.at[k];
	int keys = 0, others = 0;
	for (int o = 0; o < kern->nout; o++) {
		const Graph *g = s->plan->graph;
		Op op = val(g, attention_of(g, kern->out[o]))->op;
		bool of_keys = op == O_attend_dk || op == O_attend_dv;
		keys += of_keys;
		others += !of_keys && (biases || op != O_attend_db);
	}
	*all = keys + others;
	return !kern->sched->after ? keys + others : stage == MAIN ? keys : others;
}

// Operations of a launch of kernel k. Blocks of keys and of queries, and tiles of biases, of
// attention's gradients, all compute the scores and the gradients of probabilities, two products.
static double stage_flops(const Step *s, int k, Stage stage)
{
	const Kern *kern = &s->plan->kerns.at[k];
	const Sched *sched = kern->sched;
	double flops = (double)s->work[k].flops;
	if (kern->kind == L_attend) {
		AttendWorkers w = attend_workers(s->plan->graph, kern, s->plan->machine);
		int all, own = attention_outputs(s, k, stage, false, &all);
		bool first = stage == MAIN, last = !first || !sched->after;
		int kinds = (first && w.keys) + (last && w.queries) + (last && w.tiles);
		return flops * (2 * kinds + own) / (2 + all);
	}
	return stage == (sched->partition == P_partials && sched->before ? BEFORE : MAIN) ? flops
	                                                                                  : 0;
}

static bool is_read(const Step *s, int k, Ref r)
{
	for (int i = 0; i < s->reads[k].count; i++)
		if (s->reads[k].at[i].val == r)
			return true;
	return false;
}

// Bytes in memory that r is computed from in kernel k, which has its sums if `summed`, without
// those that are in `seen`.
static double operand_bytes(const Step *s, int k, Ref r, bool summed, bool *seen)
{
	const Val *v = val(s->plan->graph, r);
	if (seen[r])
		return 0;
	seen[r] = true;
	if (is_read(s, k, r))
		return (double)bytes_of(v);
	const ValSteps *sums = &s->plan->kerns.at[k].sched->reduce;
	for (int i = 0; summed && i < sums->count; i++)
		if (sums->at[i].val == r)
			return 0;
	double bytes = 0;
	for (int i = 0; i < v->nin; i++)
		bytes += operand_bytes(s, k, v->in[i], summed, seen);
	return bytes;
}

// Bytes that a launch of kernel k with partial sums reads of its operands: for the sums, or, if it
// is the last, for the outputs of the full shape.
static double partial_bytes(const Step *s, int k, bool last)
{
	const Kern *kern = &s->plan->kerns.at[k];
	Arena *scratch = arena_within(s->model->session->arena);
	bool *seen = NEWS(scratch, bool, s->plan->graph->nval);
	double bytes = 0;
	for (int i = 0; !last && i < kern->sched->reduce.count; i++)
		bytes += operand_bytes(s, k, kern->sched->reduce.at[i].val, false, seen);
	for (int o = 0; last && o < kern->nout; o++)
		if (!is_reduced_out(s->plan->graph, kern, o))
			bytes += operand_bytes(s, k, kern->out[o], true, seen);
	arena_free(scratch);
	return bytes;
}

// Bytes of a launch of kernel k: between its launches, results of parts go through memory.
static double stage_bytes(const Step *s, int k, Stage stage)
{
	const Kern *kern = &s->plan->kerns.at[k];
	const Sched *sched = kern->sched;
	double full = 0, rows = 0; // bytes of outputs of the full shape; of rows
	double work = work_bytes(s, sched);
	for (int o = 0; o < kern->nout; o++)
		*(is_reduced_out(s->plan->graph, kern, o) ? &rows : &full) +=
		    (double)bytes_of(val(s->plan->graph, kern->out[o]));
	double in = (double)s->work[k].bytes - full - rows;
	if (kern->kind == L_attend) {
		int all, own = attention_outputs(s, k, stage, true, &all);
		return in + full * own / all;
	}
	if (!sched->before && !sched->after) // the last worker reads what all have written
		return in + full + rows + 2 * work;
	if (sched->before && stage == MAIN) { // each worker reads the parts of its columns
		Ref r = sched->reduce.at[0].val;
		int64_t columns = count_of(&val(s->plan->graph, r)->shape);
		int64_t blocks = sched->workers / ceil_div(columns, sched->columns);
		return partial_bytes(s, k, true) + full + rows + (double)blocks * work;
	}
	if (sched->before)
		return partial_bytes(s, k, false) + work;
	return stage == MAIN ? in + work : work + rows + full; // which adds up the parts
}

static void add_line(const Step *s, const Line *line)
{
	RooflineModel *m = s->model;
	Arena *arena = m->session->arena;
	int known = amos_index(line->key, m->lines.at, m->lines.count, sizeof *m->lines.at);
	m->launches += line->launches;
	if (100 * line->blocks < WAVE * m->gpu->multiprocessors) {
		m->small += line->launches;
		m->small_seconds += line->seconds;
	}
	m->seconds += line->seconds;
	m->ideal += line->ideal;
	if (known < 0) {
		PUSH(arena, m->lines, *line);
		return;
	}
	Line *all = &m->lines.at[known];
	all->launches += line->launches;
	all->flops += line->flops;
	all->bytes += line->bytes;
	all->seconds += line->seconds;
	all->ideal += line->ideal;
}

// Adds a launch of `count` kernels from k on, all of stage `stage`.
static void add_launch(const Step *s, int k, int count, Stage stage)
{
	const struct Gpu *gpu = s->model->gpu;
	Arena *arena = s->model->session->arena;
	const Kern *kern = &s->plan->kerns.at[k];
	Line c = {.name = kern_name(arena, s->plan, kern, count),
	          .kind = kern_kinds[kern->kind],
	          .shape = kern_shape(arena, s->plan, kern),
	          .role = s->role ? s->role : kern_role(&s->roles, s->plan, kern),
	          .launches = (int64_t)s->times};
	double least = 0, ideal = 0;
	ComputeUnit unit = unit_of(s, k, false);
	for (int i = k; i < k + count; i++) {
		double flops = stage_flops(s, i, stage);
		c.blocks += stage_workers(s->plan->kerns.at[i].sched, stage);
		c.flops += flops;
		c.bytes += stage_bytes(s, i, stage);
		least += stage == MAIN ? least_bytes(s, i) : 0;
		flops = kern->kind != L_attend ? flops
		        : stage == MAIN        ? (double)s->work[i].flops
		                               : 0;
		ideal += flops / unit_of(s, i, true).peak;
	}
	int64_t most = busiest_blocks(c.blocks, gpu->multiprocessors);
	double busy = (double)c.blocks / (double)(most * gpu->multiprocessors);
	double compute = c.flops / unit.peak, traffic = c.bytes / (1e12 * gpu->bytes);
	c.unit = compute > traffic ? unit.name : "memory";
	c.seconds = s->times * (fmax(compute, traffic) / busy + gpu->launch);
	c.ideal = s->times * fmax(ideal, least / (1e12 * gpu->bytes));
	c.flops *= s->times;
	c.bytes *= s->times;
	c.key = format(arena, "%s\t%s\t%s\t%s\t%d\t%lld\t%s", c.kind, c.role, c.shape, c.name,
	               stage, (long long)c.blocks, c.unit);
	add_line(s, &c);
}

static void add_plan(RooflineModel *m, const Plan *plan, double times, const char *role)
{
	Arena *arena = m->session->arena;
	Step s = {.model = m,
	          .plan = plan,
	          .reads = plan_reads(arena, plan),
	          .roles = roles_of(arena, plan->graph),
	          .scores = find_scores(arena, plan->graph),
	          .times = times,
	          .role = role};
	s.work = plan_work(arena, plan, s.reads);
	for (int run = 0; run < run_count(plan); run = launch_end(plan, run)) {
		int k = run_kernel(plan, run);
		const Kern *kern = &plan->kerns.at[k];
		if (kern->body) {
			const char *own = role ? role : kern_role(&s.roles, plan, kern);
			int64_t trips = loop_of(val(plan->graph, kern->root)).trips;
			add_plan(m, kern->body, times * (double)(trips > INT32_MAX ? 1 : trips),
			         own);
			continue;
		}
		for (Stage stage = BEFORE; stage < STAGES; stage++)
			if (stage_workers(kern->sched, stage))
				add_launch(&s, k, launch_end(plan, run) - run, stage);
	}
}

// ---- reports --------------------------------------------------------------------------

static int by_time(const void *a, const void *b)
{
	double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
	return (x < y) - (x > y);
}

static json_t *model_json(const RooflineModel *m)
{
	const struct Gpu *gpu = m->gpu;
	json_t *list = json_array();
	for (int i = 0; i < m->lines.count; i++) {
		const Line *c = &m->lines.at[i];
		json_array_append_new(
		    list, json_pack("{so ss ss ss ss sI sI sf sf sf sf}", "name",
		                    json_text(c->name), "kind", c->kind, "shape", c->shape, "role",
		                    c->role, "bound", c->unit, "launches", (json_int_t)c->launches,
		                    "blocks", (json_int_t)c->blocks, "seconds", c->seconds, "ideal",
		                    c->ideal, "flops", c->flops, "bytes", c->bytes));
	}
	json_t *figures =
	    json_pack("{ss si sf sf sf sf sf sf sf}", "name", gpu->title, "multiprocessors",
	              gpu->multiprocessors, "f64", 1e12 * gpu->f64, "f32", 1e12 * gpu->f32, "tf32",
	              1e12 * gpu->tf32, "bf16", 1e12 * gpu->bf16, "mma", gpu->mma, "bytes",
	              1e12 * gpu->bytes, "launch", gpu->launch);
	return json_pack("{so sb so sf sf sf sI sI sf so}", "model", json_text(m->session->path),
	                 "measured", 0, "gpu", figures, "step", m->seconds, "ideal", m->ideal,
	                 "ratio", m->seconds / m->ideal, "launches", (json_int_t)m->launches,
	                 "under_wave", (json_int_t)m->small, "under_wave_seconds", m->small_seconds,
	                 "kernels", list);
}

static void print_model(const RooflineModel *m)
{
	const struct Gpu *gpu = m->gpu;
	printf("a model, not a measurement: no kernel ran\n");
	printf("%9s %6s %5s %9s %7s %6s %-11s %-7s %-7s %s\n", "ms", "share", "times", "ideal ms",
	       "x ideal", "blocks", "bound by", "kind", "role", "kernel");
	for (int i = 0; i < m->lines.count; i++) {
		const Line *c = &m->lines.at[i];
		const char *ratio = c->ideal > 0 ? format(m->session->arena, "%.1f",
		                                          fmin(c->seconds / c->ideal, 9999))
		                                 : "-";
		printf("%9.4f %5.1f%% %5lld %9.4f %7s %6lld %-11s %-7s %-7s %s %s\n",
		       1e3 * c->seconds, 100 * c->seconds / m->seconds, (long long)c->launches,
		       1e3 * c->ideal, ratio, (long long)c->blocks, c->unit, c->kind, c->role,
		       c->shape, c->name);
	}
	printf(
	    "%s: %d multiprocessors, %.4g TFLOP/s in f32, %.4g in tf32 and %.4g in bf16 on matrix "
	    "units, %.0f%% of that by mma.sync, %.3g TB/s, %.3g us a launch\n",
	    gpu->title, gpu->multiprocessors, gpu->f32, gpu->tf32, gpu->bf16, 100 * gpu->mma,
	    gpu->bytes, 1e6 * gpu->launch);
	printf(
	    "launches: %lld, of which %lld have blocks for less than %d%% of the multiprocessors, "
	    "in %.1f%% of the time; %.3f ms to start all\n",
	    (long long)m->launches, (long long)m->small, WAVE, 100 * m->small_seconds / m->seconds,
	    1e3 * gpu->launch * (double)m->launches);
	printf("a modeled step: %.3f ms, %.2f times that of ideal kernels, %.3f ms\n",
	       1e3 * m->seconds, m->seconds / m->ideal, 1e3 * m->ideal);
}

// ---- the verb -------------------------------------------------------------------------

static const struct Gpu *gpu_named(const Session *session)
{
	const char *name = choice(session, OPT_model, NULL);
	int known = FIND(name, gpus);
	if (known >= 0)
		return &gpus[known];
	Text names = {.arena = session->arena};
	for (int k = 0; k < COUNT(gpus); k++)
		say(&names, "%s%s", k ? " or " : "", gpus[k].name);
	bad_usage(session,
	          format(session->arena, "expected --model %s, found '%s'", names.at, name));
}

void model_step(Session *session)
{
	RooflineModel m = {.session = session, .gpu = gpu_named(session)};
	if (!chosen(session, OPT_target))
		PUSH(session->arena, session->choices, ((Choice){OPT_target, m.gpu->target}));
	const char *device = target_device(target_of(session));
	if (!device || strcmp(device, "cuda"))
		fail("--model",
		     "%s runs no code for --target %s; expected one of cuda" HELP
		     "leave out --target for %s",
		     m.gpu->title, choice(session, OPT_target, NULL), m.gpu->target);
	Program *program = program_new(session, open_given(session));
	program->runs = true;
	if (program->data)
		attach_data(program);
	run_passes(program, PASS_memory);
	add_plan(&m, program->entries.at[0].unit.plan, 1, NULL);
	qsort(m.lines.at, (size_t)m.lines.count, sizeof *m.lines.at, by_time);
	if (chosen(session, OPT_json))
		print_json(model_json(&m));
	else
		print_model(&m);
}
