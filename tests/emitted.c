// emitted.c: compiles graphs in this process and compares them with the evaluator.
#include "emitted.h"
#include "device.h"
#include "files.h"
#include "threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int scratch_byte = 0xA5;

Graph *read_graph(Arena *arena, const char *path)
{
	return parse_graph(arena, path, read_file(arena, path, NULL), book_builtin());
}

bool mask_applies(Arena *arena, const char *mask)
{
	const char *own =
	    format(arena, "%s,", target_text(arena, target_named(arena, "cpu", NULL)));
	for (const char *name = SANITIZED ? NULL : mask; name; name = strchr(name, ',')) {
		name += name != mask;
		const char *feature =
		    format(arena, "+%.*s,", (int)strcspn(name, ",") - 1, name + 1);
		if (strstr(own, feature))
			return true;
	}
	return !mask;
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

// Returns a random float with as many digits as the type holds.
static double random_float(Elem type, uint64_t random)
{
	return type == E_bf16 ? (double)(random % 256) / 64 - 2
	                      : (double)(random % 4096) / 1024 - 2;
}

Array *random_slots(Arena *arena, const Graph *g, uint64_t seed, int64_t below)
{
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int k = 0; k < g->slots.count; k++) {
		const Slot *s = &g->slots.at[k];
		int64_t n = count_of(&s->shape);
		slot[k] = (Array){.type = s->type, .shape = s->shape};
		slot[k].f = take(arena, sizeof(double) * (size_t)(n + 1));
		for (int64_t i = 0; i < n; i++)
			if (is_float(s->type))
				slot[k].f[i] = random_float(s->type, next_random(&seed));
			else
				slot[k].i[i] = (int64_t)(next_random(&seed) % (uint64_t)below);
	}
	return slot;
}

struct Compiled {
	const Graph *graph;
	Plan *plan;
	Jit *jit;
	struct amos_device *device; // NULL: kernels are code of the CPU
	struct amos_apart apart;    // its memory, which runs take from the start
};

// ---- a run ----------------------------------------------------------------------------

int plain_launch(const struct amos_run *run, const struct amos_kernel *kernel, char *const *buf)
{
	char *const *pad = run->own;
	int64_t gang = MAX(1, kernel->gang);
	if (gang >= kernel->workers) // a thread has a part of it
		gang -= gang / 4;
	for (int64_t i = (kernel->workers - 1) / gang; i >= 0;
	     i--) // in reverse: any order is valid
		kernel->code(buf, i * gang, MIN(kernel->workers, (i + 1) * gang), pad[i % 2]);
	return 0;
}

static int forward_launch(const struct amos_run *run, const struct amos_kernel *kernel,
                          char *const *buf)
{
	char *const *pad = run->own;
	for (int64_t i = 0; i < kernel->workers; i++)
		kernel->code(buf, i, i + 1, pad[i % 2]);
	return 0;
}

int device_launch(const struct amos_run *run, const struct amos_kernel *kernel, char *const *buf)
{
	char *const *own = run->own;
	struct amos_device *device = (struct amos_device *)(void *)own[2];
	const struct amos_entry *entry = (const struct amos_entry *)(void *)own[3];
	int status = amos_device_launch(device, entry, kernel, buf);
	return status ? status : amos_device_wait(device);
}

typedef struct Memory { // a block followed by guard bytes
	char *at;
	int64_t bytes;
	char *pages; // of the process; NULL: it has none
	size_t room;
} Memory;

typedef struct Run {
	struct amos_run run;
	char **inputs, **outputs;
	VEC(Memory) blocks;
	struct amos_block left; // memory of the device; 0 bytes: blocks are in that of the process
} Run;

enum {
	MARKS = 64,
	MARK = 0x7F,
	OUTSIDE = -1
};                                // OUTSIDE: status of a run that overwrites guard bytes
#define ROOM ((int64_t)256 << 20) // of a run on a device

// Maps a block between two pages that fault, so that a kernel which reads far outside it crashes.
static void map_pages(Memory *b)
{
	const int64_t page = sysconf(_SC_PAGESIZE);
	int64_t own = (b->bytes + MARKS + MARKS - 1) / MARKS * MARKS;
	int64_t within = (own + page - 1) / page * page;
	b->room = (size_t)(within + 2 * page);
	b->pages = mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->pages == MAP_FAILED || mprotect(b->pages, (size_t)page, PROT_NONE) ||
	    mprotect(b->pages + page + within, (size_t)page, PROT_NONE))
		bug("no memory for a run");
	b->at = b->pages + page + within - own;
}

static void run_end(Run *r)
{
	for (int k = 0; k < r->blocks.count; k++)
		if (r->blocks.at[k].pages)
			munmap(r->blocks.at[k].pages, r->blocks.at[k].room);
}

static char *new_block(Arena *arena, Run *r, int64_t bytes)
{
	Memory b = {.bytes = bytes};
	if (r->left.bytes) {
		int64_t all = (bytes + MARKS + MARKS - 1) / MARKS * MARKS;
		if (all >= r->left.bytes)
			bug("a run takes more than %lld bytes of the device", (long long)ROOM);
		b.at = r->left.at;
		r->left = (struct amos_block){r->left.at + all, r->left.bytes - all};
		memset(b.at, 0, (size_t)bytes);
	} else {
		map_pages(&b);
	}
	memset(b.at + bytes, MARK, MARKS);
	PUSH(arena, r->blocks, b);
	return b.at;
}

static bool stays_inside(const Run *r, const char *what)
{
	for (int k = 0; k < r->blocks.count; k++)
		for (int64_t i = 0; i < MARKS; i++)
			if (r->blocks.at[k].at[r->blocks.at[k].bytes + i] != MARK) {
				printf("%s: writes behind a block of %lld bytes\n", what,
				       (long long)r->blocks.at[k].bytes);
				return false;
			}
	return true;
}

static char *slot_memory(const Run *r, const Plan *plan, int k)
{
	Location p = plan->slot[k];
	return p.block == B_input ? r->inputs[p.offset]
	                          : (p.block == B_state ? r->run.state : r->run.params) + p.offset;
}

static Run run_start(Arena *arena, const Compiled *c, const struct amos_model *model,
                     const Array *slot, Launcher *launch)
{
	const Plan *plan = c->plan;
	const Graph *g = plan->graph;
	int64_t scratch = model->entries[0].scratch;
	char **pad = NEWS(arena, char *, 4);
	pad[2] = (char *)c->device;
	pad[3] = (char *)model->entries;
	Run r = {.run = {.launch = launch, .own = pad}, .left = c->apart.values};
	r.run.constants = c->device ? amos_device_constants(c->device) : model->constants;
	r.run.params = new_block(arena, &r, plan->param_bytes);
	r.run.state = new_block(arena, &r, plan->state_bytes);
	r.run.scratch = new_block(arena, &r, scratch);
	memset(r.run.scratch, scratch_byte, (size_t)scratch);
	for (int k = 0; k < 2; k++)
		pad[k] = new_block(arena, &r, model->local);
	r.run.inputs = r.inputs = NEWS(arena, char *, g->slots.count);
	r.run.outputs = r.outputs = NEWS(arena, char *, g->outs.count);
	for (int k = 0; k < g->slots.count; k++) {
		int64_t bytes = count_of(&g->slots.at[k].shape) * elems[g->slots.at[k].type].bytes;
		if (plan->slot[k].block == B_input)
			r.inputs[plan->slot[k].offset] = new_block(arena, &r, bytes);
		array_to(&slot[k], slot_memory(&r, plan, k));
	}
	for (int k = 0; k < g->outs.count; k++) {
		int64_t bytes = bytes_of(val(g, g->outs.at[k].val));
		r.outputs[k] = new_block(arena, &r, bytes);
		memset(r.outputs[k], MARK, (size_t)bytes);
	}
	return r;
}

// ---- comparison -----------------------------------------------------------------------

static double distance(double found, double exact, double size)
{
	if (isinf(found) && fabs(exact) > 3.5e38) // beyond f32
		return signbit(found) == signbit(exact) ? 0 : INFINITY;
	if (isnan(exact) || isinf(exact))
		return (isnan(exact) ? isnan(found) : found == exact) ? 0 : INFINITY;
	return isnan(found) ? INFINITY : fabs(found - exact) / size;
}

static double compare(Arena *arena, const Array *expected, const void *memory, double tolerance,
                      double least, const char *what, const char *name)
{
	Array got = array_from(arena, expected->type, &expected->shape, memory);
	int64_t n = count_of(&expected->shape), at = 0;
	bool real = is_float(expected->type);
	double size = fmax(least, 1e-30), worst = 0;
	for (int64_t i = 0; real && i < n; i++)
		if (isfinite(expected->f[i]))
			size = fmax(size, fabs(expected->f[i]));
	for (int64_t i = 0; i < n; i++) {
		if (real && tolerance < 0)
			size = fmax(fabs(expected->f[i]), expected->type == E_f64 ? 1e-300 : 1e-30);
		double far = real ? distance(got.f[i], expected->f[i], size) / fabs(tolerance)
		             : got.i[i] == expected->i[i] ? 0
		                                          : INFINITY;
		if (far > worst)
			worst = far, at = i;
	}
	if (worst > 1)
		printf("%s: %s[%lld] is %.9g, wanted %.9g (%.3g times the tolerance)\n", what, name,
		       (long long)at, element_at(&got, at), element_at(expected, at), worst);
	return worst;
}

Compiled *compile_graph(Arena *arena, const Graph *g, const Target *target, const char *what)
{
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	return compile_plan(arena, g, plan, target, what);
}

Compiled *compile_plan(Arena *arena, const Graph *g, Plan *plan, const Target *target,
                       const char *what)
{
	Compiled *c = NEW(arena, Compiled);
	*c = (Compiled){.graph = g, .plan = plan};
	EmitOptions options = {.threads = 1, .name = what};
	verify_plan(c->plan);
	c->jit = jit_load(emit(arena, 1, 1, &(Variant){target, NULL, &c->plan}, &options));
	const struct amos_model *model = jit_model(c->jit);
	if (!target_device(target))
		return c;
	char *copy;
	need_done(amos_device_open(&model, &c->device));
	c->apart.values.bytes = ROOM;
	if (!amos_device_memory(c->device, &c->apart, &copy))
		bug("no memory for %s", what);
	return c;
}

const Graph *compiled_graph(const Compiled *c)
{
	return c->graph;
}

void free_compiled(Compiled *c)
{
	amos_device_close(c->device);
	jit_free(c->jit);
}

static Run run_once(Arena *arena, const Compiled *c, const Array *slot, Launcher *launch,
                    int *status)
{
	const struct amos_model *model = jit_model(c->jit);
	Run r = run_start(arena, c, model, slot, launch);
	*status = amos_run_entry(&r.run, model->entries);
	if (!stays_inside(&r, c->graph->name))
		*status = OUTSIDE;
	return r;
}

void run_compiled(Arena *arena, const Compiled *c, Array *slot, Launcher *launch)
{
	int status;
	Run r = run_once(arena, c, slot, launch, &status);
	if (status)
		bug("a run of %s ended with %d", c->plan->name, status);
	for (int k = 0; k < c->graph->stores.count; k++) {
		int s = c->graph->stores.at[k].slot;
		slot[s] =
		    array_from(arena, slot[s].type, &slot[s].shape, slot_memory(&r, c->plan, s));
	}
	run_end(&r);
}

Array *outs_launched(Arena *arena, const Compiled *c, const Array *slot, Launcher *launch)
{
	int status;
	const Graph *g = c->graph;
	Run r = run_once(arena, c, slot, launch, &status);
	if (status)
		bug("a run of %s ended with %d", c->plan->name, status);
	Array *value = NEWS(arena, Array, g->nval);
	for (int k = 0; k < g->outs.count; k++) {
		const Val *v = val(g, g->outs.at[k].val);
		value[g->outs.at[k].val] = array_from(arena, v->type, &v->shape, r.outputs[k]);
	}
	run_end(&r);
	return value;
}

Array *outs_compiled(Arena *arena, const Compiled *c, const Array *slot)
{
	return outs_launched(arena, c, slot, plain_launch);
}

Ref end_at(const Graph *g, int k)
{
	int n = g->outs.count;
	return k < n ? g->outs.at[k].val : g->stores.at[k - n].val;
}

static const char *end_name(const Graph *g, int k)
{
	int n = g->outs.count;
	return k < n ? g->outs.at[k].name : g->slots.at[g->stores.at[k - n].slot].name;
}

// Returns the location of output or store k of a run.
static const char *end_memory(const Run *r, const Plan *plan, int k)
{
	int n = plan->graph->outs.count;
	return k < n ? r->outputs[k] : slot_memory(r, plan, plan->graph->stores.at[k - n].slot);
}

// Returns what runs the workers, in one order or another.
static Launcher *launcher(const Compiled *c, bool other)
{
	if (c->device)
		return device_launch;
	gpu_seed = other ? 2 : 1;
	return c->plan->machine->threads > 1 ? gpu_launch : other ? forward_launch : plain_launch;
}

// True if another order of workers gives the same bits.
static bool same_bits(Arena *arena, const Compiled *c, const Array *slot, const Run *run,
                      const char *what)
{
	int status;
	const Graph *g = c->plan->graph;
	Run other = run_once(arena, c, slot, launcher(c, true), &status);
	bool same = !status;
	for (int k = 0; k < g->outs.count + g->stores.count; k++) {
		const Val *v = val(g, end_at(g, k));
		size_t bytes = (size_t)bytes_of(v);
		if (!memcmp(end_memory(run, c->plan, k), end_memory(&other, c->plan, k), bytes))
			continue;
		printf("%s: %s depends on the order of workers\n", what, end_name(g, k));
		same = false;
	}
	run_end(&other);
	return same;
}

double check_compiled(Arena *arena, const Compiled *c, const Array *slot, Launcher *launch,
                      double tolerance, const double *least, const char *what)
{
	const Graph *g = c->graph;
	Array *expected = eval_graph(arena, g, slot);
	int status;
	Run r = run_once(arena, c, slot, launch, &status);
	double worst = status ? INFINITY : 0;
	for (int k = 0; k < g->outs.count + g->stores.count; k++)
		worst =
		    fmax(worst, compare(arena, &expected[end_at(g, k)], end_memory(&r, c->plan, k),
		                        tolerance, least ? least[k] : 0, what, end_name(g, k)));
	run_end(&r);
	return worst;
}

double check_graph(Arena *arena, const Graph *g, const Array *slot, const Target *target,
                   Launcher *launch, double tolerance, const double *least, const char *what)
{
	Compiled *c = compile_graph(arena, g, target, what);
	double worst = check_compiled(arena, c, slot, launch, tolerance, least, what);
	free_compiled(c);
	return worst;
}

// Turns stores that would be narrowed to a slot's type into outputs, after the others.
static Graph *stores_as_outs(Arena *arena, const Graph *from)
{
	Graph *g = graph_live(arena, from);
	for (int k = 0; k < g->stores.count; k++)
		add_out(g, g->slots.at[g->stores.at[k].slot].name, g->stores.at[k].val);
	g->stores.count = 0;
	return g;
}

typedef struct Bodies { // context for rewriting bodies of loops
	Graph *(*changed)(Arena *, const Graph *);
} Bodies;

static Ref put_changed(void *bodies, Graph *g, const Val *v, const Ref *in)
{
	if (v->op != O_loop)
		return put_as(g, v, in);
	LoopInfo c = loop_of(v);
	c.body = ((const Bodies *)bodies)->changed(g->arena, c.body);
	return put_loop(g, &c, in);
}

Graph *gradient_graph(Arena *arena, const char *name, const char *text, const char *loss,
                      bool outputs)
{
	const Graph *g = parse_graph(arena, name, text, book_builtin());
	Graph *all = loss_pass(arena, g, loss);
	bool *want = NEWS(arena, bool, all->slots.count);
	for (int i = 0; i < all->slots.count; i++)
		want[i] = all->slots.at[i].kind == S_param;
	all = grad_pass(arena, all, want, NULL);
	int n = 0;
	for (int i = 0; i < all->outs.count; i++) {
		bool own = false;
		for (int k = 0; k < g->outs.count; k++)
			own |= !strcmp(all->outs.at[i].name, g->outs.at[k].name);
		if (outputs || !own)
			all->outs.at[n++] = all->outs.at[i];
	}
	all->outs.count = n;
	return graph_live(arena, all);
}

Graph *widen_graph(Arena *arena, const Graph *narrow)
{
	const Graph *from = stores_as_outs(arena, narrow);
	Graph *to = graph_like(arena, from);
	to->wide = true;
	to->slots.count = 0;
	for (int s = 0; s < from->slots.count; s++)
		add_slot(to, from->slots.at[s]);
	copy_graph(to, from, NULL, put_changed, &(Bodies){widen_graph});
	return graph_live(arena, to);
}

Array *widen_slots(Arena *arena, const Graph *wide, const Array *slot)
{
	Array *own = NEWS(arena, Array, wide->slots.count + 1);
	for (int k = 0; k < wide->slots.count; k++) {
		own[k] = slot[k];
		own[k].type = wide->slots.at[k].type;
	}
	return own;
}

double check_wide(Arena *arena, const Graph *from, const Array *slot, const Target *target,
                  Launcher *launch, double tolerance, const double *least, const char *what)
{
	const Graph *g = widen_graph(arena, from);
	slot = widen_slots(arena, g, slot);
	return check_graph(arena, g, slot, target, launch, tolerance, least, what);
}

// ---- rounding -------------------------------------------------------------------------

enum { HALF = 2, ALL = 8 }; // sizes of the floats that are rounded

typedef struct Rounding {
	int bytes; // size of floats that are rounded
	double disturbance;
	uint64_t random;
} Rounding;

// Rounds small floats to their type and disturbs them.
static void round_value(void *context, Arena *arena, const Val *v, Array *x)
{
	Rounding *r = context;
	if (!is_float(v->type) || elems[v->type].bytes > r->bytes)
		return;
	void *bytes = take(arena, 8 * (size_t)count_of(&x->shape) + 8);
	array_to(x, bytes);
	*x = array_from(arena, x->type, &x->shape, bytes);
	for (int64_t i = 0; r->disturbance > 0 && i < count_of(&x->shape); i++)
		x->f[i] *=
		    1 + r->disturbance * ((double)(next_random(&r->random) % 2001) / 1000 - 1);
}

static Array *eval_rounded(Arena *arena, const Graph *g, const Array *slot, Rounding r)
{
	return eval_touched(arena, g, slot, round_value, &r);
}

static void add_errors(const Graph *g, const Array *exact, const Array *rounded, double *error)
{
	for (int k = 0; k < g->outs.count + g->stores.count; k++) {
		const Array *a = &exact[end_at(g, k)], *b = &rounded[end_at(g, k)];
		for (int64_t i = 0; i < count_of(&a->shape); i++)
			if (!is_float(a->type))
				error[k] = fmax(error[k], fabs((double)(a->i[i] - b->i[i])));
			else if (isfinite(a->f[i]))
				error[k] = fmax(error[k], distance(b->f[i], a->f[i], 1));
	}
}

// Decomposes composites, also in loop bodies, so that every computed value is rounded.
static Graph *open_bodies(Arena *arena, const Graph *composite)
{
	const Graph *from = decompose_pass(arena, composite, NULL);
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, put_changed, &(Bodies){open_bodies});
	return graph_live(arena, to);
}

double *rounding_errors(Arena *arena, const Graph *from, const Array *slot, double disturbance)
{
	Arena *own = arena_new();
	const Graph *g = open_bodies(own, from);
	const Array *exact = eval_rounded(own, g, slot, (Rounding){.bytes = HALF});
	double *error = NEWS(arena, double, g->outs.count + g->stores.count + 1);
	for (int sample = 0; sample < (disturbance > 0 ? 5 : 1); sample++) {
		Arena *each = arena_new();
		Rounding r = {ALL, sample ? disturbance : 0, (uint64_t)sample};
		add_errors(g, exact, eval_rounded(each, g, slot, r), error);
		arena_free(each);
	}
	arena_free(own);
	return error;
}

static double error_of(Arena *arena, const Array *expected, const void *memory)
{
	Array got = array_from(arena, expected->type, &expected->shape, memory);
	double most = 0;
	for (int64_t i = 0; i < count_of(&expected->shape); i++)
		most = fmax(most, is_float(expected->type)
		                      ? distance(got.f[i], expected->f[i], 1)
		                      : fabs((double)(got.i[i] - expected->i[i])));
	return most;
}

double *graph_errors(Arena *arena, const Graph *g, const Array *slot, const Target *target,
                     const Machine *machine, const char *what)
{
	int status, n = g->outs.count + g->stores.count;
	Arena *own = arena_new();
	Array *expected = eval_rounded(own, g, slot, (Rounding){.bytes = HALF});
	Compiled *c = compile_plan(own, g, plan_graph(own, g, "run", machine), target, what);
	Run r = run_once(own, c, slot, launcher(c, false), &status);
	bool good = !status && same_bits(own, c, slot, &r, what);
	double *error = NEWS(arena, double, n + 1);
	for (int k = 0; k < n; k++)
		error[k] = good ? error_of(own, &expected[end_at(g, k)], end_memory(&r, c->plan, k))
		                : INFINITY;
	run_end(&r);
	free_compiled(c);
	arena_free(own);
	return error;
}
