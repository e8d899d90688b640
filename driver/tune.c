// tune.c: measures which schedules of products and attention run best on this CPU (--tune).
// Input: a program after pass `join`. Output: the choices that its later passes follow.
// The whole program is compiled with one tuning for all kernels after the other, and its entries
// run on synthetic data: so kernels are measured where they will run, between the others. Choices
// are kept in the cache, by kernel, CPU and build of amosc. Invariant: a choice changes no result
// (passes/tuning.c), so one that is wrong or old costs time alone.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double better = 0.97; // of the usual time, to be worth a choice

typedef struct Timed { // all kernels of a key
	const char *key;
	const char *usual; // its schedule
	bool known;        // the cache has its choice
	bool changed;      // it has another schedule in this round
	double seconds;    // of this round
	double *least;     // by tuning: seconds of its best round; INFINITY: none, or as usual
	int best;
} Timed;

typedef struct Tuner {
	Program *p;
	Table *choices, *number; // by key: of its tuning; 1 + index of `kernels`
	VEC(Timed) kernels;
} Tuner;

// ---- synthetic data -------------------------------------------------------------------

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

void fill_inputs(const Program *p, struct amos *open)
{
	const Graph *g = program_graph(p);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			fill_input(&g->slots.at[i], amos_slot_bytes(open, i));
}

void call_synthetic(struct amos *open, const struct amos_entry *entry)
{
	int status = amos_call(open, entry, NULL, NULL);
	if (status != AMOS_INPUT) // synthetic data may give indices that are out of range
		need_done(status);
}

// ---- a round --------------------------------------------------------------------------

// Returns the least nanoseconds of each launch of the entry.
static int64_t *least_times(Arena *arena, struct amos *open, const struct amos_entry *entry)
{
	enum { FEWEST = 3, MOST = 50 };
	const double enough = 0.2; // seconds
	int64_t n = entry->nkernels, *own = NEWS(arena, int64_t, n + 1);
	int64_t *least = NEWS(arena, int64_t, n + 1);
	call_synthetic(open, entry);
	open->nanoseconds = own;
	double start = amos_now();
	for (int i = 0; i < FEWEST || (i < MOST && amos_now() - start < enough); i++) {
		memset(own, 0, (size_t)n * sizeof *own);
		call_synthetic(open, entry);
		for (int64_t k = 0; k < n; k++)
			least[k] = i ? MIN(least[k], own[k]) : own[k];
	}
	open->nanoseconds = NULL;
	return least;
}

static Timed *timed(Tuner *t, const char *key)
{
	Arena *arena = t->p->session->arena;
	uint64_t *cell = table_cell_s(t->number, key);
	if (!*cell) {
		double *least = NEWS(arena, double, tuning_count);
		for (int i = 0; i < tuning_count; i++)
			least[i] = INFINITY;
		PUSH(arena, t->kernels, ((Timed){.key = copy_string(arena, key), .least = least}));
		*cell = (uint64_t)t->kernels.count;
	}
	return &t->kernels.at[*cell - 1];
}

// Notes the schedules of the plan's kernels. Returns whether one of them is not the usual one.
static bool note_schedules(Tuner *t, const Plan *p)
{
	Arena *arena = t->p->session->arena;
	bool changed = false;
	for (const Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++) {
		if (k->kind == L_loop)
			changed |= note_schedules(t, k->body);
		if (!k->key)
			continue;
		Timed *own = timed(t, k->key);
		const char *schedule = tuning_key(p->graph->arena, p->graph, k);
		if (!own->usual)
			own->usual = copy_string(arena, schedule);
		own->changed = strcmp(own->usual, schedule) != 0;
		changed |= own->changed;
	}
	return changed;
}

// Adds the times of the plan's launches, in their order, to those of its kernels.
static const int64_t *add_times(Tuner *t, const Plan *p, const int64_t *least)
{
	for (int run = 0; run < run_count(p); run++) {
		const Kern *k = &p->kerns.at[run_kernel(p, run)];
		double seconds = 0;
		if (k->kind == L_loop) {
			least = add_times(t, k->body, least + 1);
			continue;
		}
		for (Stage stage = BEFORE; stage < STAGES; stage++)
			if (stage_workers(k->sched, stage))
				seconds += 1e-9 * (double)*least++;
		if (k->key)
			timed(t, k->key)->seconds += seconds;
	}
	return least;
}

static void set_choices(Tuner *t, int tuning)
{
	for (int i = 0; i < t->kernels.count; i++) {
		const Timed *k = &t->kernels.at[i];
		*table_cell_s(t->choices, k->key) =
		    (uint64_t)(k->known || tuning < 0 ? k->best : tuning);
	}
}

static void note_times(Tuner *t, int tuning)
{
	for (int i = 0; i < t->kernels.count; i++) {
		Timed *k = &t->kernels.at[i];
		int own = tuning < 0 ? k->best : tuning;
		if (k->changed == (own > 0))
			k->least[own] = fmin(k->least[own], k->seconds);
	}
}

typedef enum Round { LOOK, RUN_CHANGED, RUN } Round;

// Compiles the program with a tuning for all kernels (-1: the best of each) and runs it. LOOK:
// notes the kernels alone. RUN_CHANGED: does not run it, and returns false, if all schedules are
// the usual ones.
static bool run_round(Tuner *t, int tuning, Round round)
{
	Session session = *t->p->session;
	session.work = NULL;
	Program p = *t->p;
	p.session = &session;
	p.weights = false;
	memset(&p.entries, 0, sizeof p.entries);
	Arena *arena = work_arena(&session);
	arena_limit(arena, NULL); // the file may cost what one compilation does, which is charged
	for (int i = 0; i < t->p->entries.count; i++)
		PUSH(arena, p.entries, t->p->entries.at[i]);
	set_choices(t, tuning);
	run_passes(&p, PASS_memory);
	bool runs = round == RUN;
	for (int i = 0; i < p.entries.count; i++)
		runs |= note_schedules(t, p.entries.at[i].unit.plan) && round == RUN_CHANGED;
	if (runs) {
		run_passes(&p, PASS_object);
		struct amos *open = open_object(&p, arena);
		fill_inputs(&p, open);
		for (int i = 0; i < t->kernels.count; i++)
			t->kernels.at[i].seconds = 0;
		for (int i = 0; i < p.entries.count; i++) {
			const Unit *unit = &p.entries.at[i].unit;
			const struct amos_entry *entry = amos_find_entry(open->model, unit->name);
			add_times(t, unit->plan, least_times(arena, open, entry));
		}
		note_times(t, tuning);
	}
	free_work(&session);
	return runs;
}

// ---- choices on disk ------------------------------------------------------------------

const char *tuning_host(const Session *session)
{
	return format(session->arena, "L2 %ld, L3 %ld, %lld threads",
	              sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE),
	              (long long)threads_of(session));
}

static Key key_of_choice(const Tuner *t, const char *kernel)
{
	Session *session = t->p->session;
	Key key = {.arena = work_arena(session)};
	const char *compiler = compiler_id(key.arena);
	if (!compiler)
		return key;
	key.at = format(key.arena, "tuning\n%s\n%s\n%s\n%s\n", compiler,
	                target_text(key.arena, target_of(session)), tuning_host(session), kernel);
	key.count = key.room = strlen(key.at);
	return key;
}

static void read_choices(Tuner *t)
{
	for (int i = 0; i < t->kernels.count; i++) {
		Timed *k = &t->kernels.at[i];
		Key key = key_of_choice(t, k->key);
		const Object *found = cache_find(t->p->session, &key);
		if (!found || found->parts != 1)
			continue;
		const Part *part = found->part;
		const char *name =
		    format(key.arena, "%.*s", (int)part->count, (const char *)part->bytes);
		k->best = amos_index(name, tunings, tuning_count, sizeof *tunings);
		k->known = k->best >= 0;
		k->best = MAX(0, k->best);
	}
}

static void keep_choices(const Tuner *t)
{
	for (int i = 0; i < t->kernels.count; i++) {
		const Timed *k = &t->kernels.at[i];
		Key key = key_of_choice(t, k->key);
		const char *name = tunings[k->best].name;
		Part part = {name, strlen(name)};
		if (!k->known)
			cache_keep(t->p->session, &key,
			           &(Object){.parts = 1, .part = &part, .count = part.count});
	}
}

// ---- choosing -------------------------------------------------------------------------

// True if the program with these choices fits into --memory: other schedules may need more work
// memory.
static bool fits(Tuner *t, int tuning)
{
	Catch catch;
	if (!chosen(t->p->session, OPT_memory))
		return true;
	if (!TRY(catch)) {
		run_round(t, tuning, LOOK);
		catch_end(&catch);
		return true;
	}
	if (catch.status != STATUS_INPUT)
		fail_again(&catch);
	free(catch.message);
	return false;
}

static void choose_best(Tuner *t)
{
	for (int i = 0; i < t->kernels.count; i++) {
		Timed *k = &t->kernels.at[i];
		for (int n = 0; n < tuning_count && !k->known; n++)
			if (k->least[n] < better * k->least[0] && k->least[n] < k->least[k->best])
				k->best = n;
	}
}

// Measures every tuning, and then, by turns, the usual ones and all that were chosen: what was
// better only because others used the machine less is not so again.
static void measure_tunings(Tuner *t)
{
	enum { TURNS = 2 };
	run_round(t, 0, RUN);
	for (int tuning = 1; tuning < tuning_count; tuning++)
		if (fits(t, tuning))
			run_round(t, tuning, RUN_CHANGED);
	choose_best(t);
	for (int i = 0; i < t->kernels.count; i++) {
		Timed *k = &t->kernels.at[i];
		k->least[0] = k->least[k->best] = INFINITY;
	}
	int turns = fits(t, -1) ? TURNS : 0;
	for (int turn = 0; turn < turns && run_round(t, -1, RUN_CHANGED); turn++)
		run_round(t, 0, RUN);
	for (int i = 0; i < t->kernels.count; i++) {
		Timed *k = &t->kernels.at[i];
		if (!k->known && !(k->least[k->best] < better * k->least[0]))
			k->best = 0;
	}
}

static void tell_choices(const Tuner *t, double seconds)
{
	const Session *session = t->p->session;
	int others = 0;
	double usual = 0, best = 0;
	for (int i = 0; i < t->kernels.count; i++) {
		const Timed *k = &t->kernels.at[i];
		if (k->known || !k->best)
			continue;
		others++;
		usual += k->least[0];
		best += k->least[k->best];
		if (chosen(session, OPT_verbose))
			tell(session, "note: %s, in %.0f%% of the usual time: kernel %s\n",
			     tunings[k->best].name, 100 * k->least[k->best] / k->least[0], k->key);
	}
	const char *found = "all run best as usual";
	if (others)
		found = format(session->arena, "%d %s %.1f%% of the usual time", others,
		               PLURAL(others, "takes", "take"), 100 * best / usual);
	tell(session, "note: tuned %d %s in %.1f s: %s\n", t->kernels.count,
	     PLURAL(t->kernels.count, "kernel", "kernels"), seconds, found);
}

void tune(Program *p)
{
	Session *session = p->session;
	const Machine *machine = p->entries.at[0].unit.machine;
	if (!machine->rows || p->variants > 1 || !target_runs_here(p->target[0]))
		bad_usage(
		    session,
		    format(session->arena,
		           "--tune: code for '%s' cannot be measured on this machine%s",
		           choice(session, OPT_target, "cpu"),
		           p->variants > 1 ? HELP "give --target cpu, or the name of a CPU" : ""));
	Tuner t = {.p = p, .choices = table_new(session->arena)};
	t.number = table_new(session->arena);
	Machine *tuned = take_copy(session->arena, machine, sizeof *machine);
	tuned->choices = t.choices;
	p->tuned = true;
	for (int i = 0; i < p->entries.count; i++)
		p->entries.at[i].unit.machine = tuned;
	double start = amos_now();
	// choices that were made without a limit may not fit together into it
	bool remembers = !chosen(session, OPT_memory);
	int unknown = 0;
	run_round(&t, 0, LOOK);
	if (remembers)
		read_choices(&t);
	for (int i = 0; i < t.kernels.count; i++)
		unknown += !t.kernels.at[i].known;
	if (unknown) {
		measure_tunings(&t);
		if (remembers)
			keep_choices(&t);
		tell_choices(&t, amos_now() - start);
	} else if (chosen(session, OPT_verbose)) {
		tell(session, "note: the cache has the schedules of all kernels to tune: %d\n",
		     t.kernels.count);
	}
	set_choices(&t, -1);
}
