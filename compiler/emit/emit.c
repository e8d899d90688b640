// emit.c: emits one object for several plans, each for one or several CPUs, in threads.
// Input: plans with equal slot tables. Kernels with equal signatures are written once. Invariant:
// the object depends on the plans and the targets only, because kernels are numbered in the order
// of the plans and compiled in batches by number.
#include "gen.h"
#include <llvm-c/Analysis.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- kernels --------------------------------------------------------------------------

typedef struct Batch { // what a module holds
	const Target *target;
	int variant;
	int first, end; // numbers of kernels, or of tiles
	enum {
		B_kernels,
		B_program, // all kernels of a variant, with their tiles
		B_tiles
	} kind;
	bool tables;
	TileCalls calls; // of tiles in other modules
} Batch;

typedef struct VariantTile {
	int variant;
	Tile tile;
} VariantTile;

typedef struct Emitter {
	Arena *arena;
	const EmitOptions *options;
	int entries, variants;
	VariantCode *code;        // by variant
	VEC(Signature *) kernels; // by number: that of its first use
	VEC(Batch) batches;
	VEC(VariantTile) tiles; // each once, by variant
	// What threads share while they compile; the bytes of a part are its thread's until the
	// end.
	pthread_mutex_t lock;
	pthread_cond_t written;
	Part *part;    // by batch
	int next, end; // of the batches to compile now
	int unwritten; // those of kernels that may still call tiles
	bool failed;
} Emitter;

Gen gen_new(Arena *arena, const Target *t, LLVMModuleRef module)
{
	LLVMContextRef context = LLVMGetModuleContext(module);
	return (Gen){.arena = arena,
	             .target = t,
	             .ops = t->ops,
	             .width = t->machine->lanes,
	             .context = context,
	             .module = module,
	             .b = LLVMCreateBuilderInContext(context),
	             .i1 = LLVMInt1TypeInContext(context),
	             .i8 = LLVMInt8TypeInContext(context),
	             .i16 = LLVMInt16TypeInContext(context),
	             .i32 = LLVMInt32TypeInContext(context),
	             .i64 = LLVMInt64TypeInContext(context),
	             .f32 = LLVMFloatTypeInContext(context),
	             .f64 = LLVMDoubleTypeInContext(context),
	             .ptr = LLVMPointerTypeInContext(context, 0)};
}

Value function_new(const Gen *g, const char *name, LLVMTypeRef type)
{
	Value f = LLVMAddFunction(g->module, name, type);
	add_attribute(f, "nounwind", NULL);
	return f;
}

void function_begin(Gen *g, const char *name, LLVMTypeRef type)
{
	g->function = function_new(g, name, type);
	add_attribute(g->function, "prefer-vector-width", "512");
	g->entry = LLVMAppendBasicBlockInContext(g->context, g->function, "entry");
	LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	g->ground = NEW(g->arena, Level);
	g->ground->first = g->ground->open = start;
	g->level = g->floor = g->ground;
	g->vars = vars_new(g->arena);
	g->address = table_new(g->arena);
	LLVMPositionBuilderAtEnd(g->b, start);
}

// Ends a function where code is written, after its last variable is known.
static void function_end(Gen *g)
{
	LLVMBuildRetVoid(g->b);
	LLVMPositionBuilderAtEnd(g->b, g->entry);
	LLVMBuildBr(g->b, g->ground->first);
}

const char *kernel_name(Arena *arena, int kernel, int launch)
{
	return format(arena, launch ? "amos_kernel_%d_%d" : "amos_kernel_%d", kernel, launch);
}

static bool is_computed(const void *gen, Ref r)
{
	const Gen *g = gen;
	for (const Bound *b = g->bound; b; b = b->next)
		if (b->r == r)
			return false;
	return g->inside[r];
}

// Returns a Gen for a kernel of this signature, in an arena of its own.
static Gen kernel_gen(const Gen *base, const Signature *signature)
{
	Gen g = *base;
	g.arena = arena_new();
	g.plan = signature->plan;
	g.graph = g.plan->graph;
	g.kern = signature->kern;
	g.kernel = number(&g, 0);
	g.kernels = 1;
	g.signature = signature;
	bool *inside = NEWS(g.arena, bool, g.graph->nval);
	for (int i = 0; i < signature->inside.count; i++)
		inside[signature->inside.at[i]] = true;
	g.inside = inside;
	return g;
}

// Writes the body of the launch g->stage after its begin, and ends the function.
static void write_launch(Gen *g, const char *name)
{
	static void (*const emitters[])(Gen *) = {
	    [L_map] = emit_map,      [L_row] = emit_row,         [L_col] = emit_row,
	    [L_dot] = emit_map,      [L_scatter] = emit_scatter, [L_scan] = emit_scatter,
	    [L_attend] = emit_attend};
	g->computed = (Inside){is_computed, g};
	g->local_used = 0;
	if (g->kern->sched->partition == P_tiles)
		emit_dot(g);
	else if (g->kern->sched->partition == P_blocks)
		emit_thread_tile(g);
	else
		emitters[g->kern->kind](g);
	if (g->kern->sched->past.count) // x86 does not order these stores before others
		LLVMBuildFence(g->b, LLVMAtomicOrderingSequentiallyConsistent, 0, "");
	function_end(g);
	if (g->local_used > g->kern->sched->local)
		bug("%s uses %lld bytes of local memory", name, (long long)g->local_used);
}

static void write_kernel(Gen *base, const Signature *signature, int n)
{
	Gen g = kernel_gen(base, signature);
	int launch = 0;
	for (g.stage = BEFORE; g.stage < STAGES; g.stage++) {
		if (!stage_workers(g.kern->sched, g.stage))
			continue;
		const char *name = kernel_name(g.arena, n, launch++);
		g.ops->begin(&g, name);
		write_launch(&g, name);
	}
	arena_free(g.arena);
}

// ---- kernels in one launch ------------------------------------------------------------

// Writes a launch of kernels of the bundle as a function of the table of its addresses, the number
// of its worker and that of its kernel, which is inlined. Returns the function.
static Value write_part(Gen *base, const BundlePart *part, Stage stage, const char *name)
{
	Gen g = kernel_gen(base, part->each);
	LLVMTypeRef in[] = {g.ptr, g.i64, g.i64};
	function_begin(&g, name,
	               LLVMFunctionType(LLVMVoidTypeInContext(g.context), in, COUNT(in), 0));
	g.buf = LLVMGetParam(g.function, 0);
	g.worker = LLVMGetParam(g.function, 1);
	g.kernel = LLVMGetParam(g.function, 2);
	g.kernels = part->count;
	g.part = true;
	add_attribute(g.function, "alwaysinline", NULL);
	LLVMSetLinkage(g.function, LLVMInternalLinkage);
	g.stage = stage;
	write_launch(&g, name);
	arena_free(g.arena);
	return g.function;
}

// A worker finds the part that its number belongs to, and which of its kernels. A compiler that
// loads addresses before it knows the part, as OpenCL's for Intel's CPUs does, loads valid ones:
// the number of the worker in a part stays in its bounds.
static void write_stage(Gen *base, const Signature *bundle, Stage stage, const char *name)
{
	Gen g = kernel_gen(base, bundle);
	g.stage = stage;
	int64_t worker = 0, place = 0;
	g.ops->begin(&g, name);
	Value f = g.function;
	LLVMBasicBlockRef here = LLVMGetInsertBlock(g.b),
	                  end = LLVMAppendBasicBlockInContext(g.context, f, "");
	for (int p = 0; p < bundle->part.count; p++) {
		const BundlePart *part = &bundle->part.at[p];
		int64_t each = stage_workers(part->each->kern->sched, stage);
		Value code = write_part(&g, part, stage, format(g.arena, "%s_part_%d", name, p));
		LLVMPositionBuilderAtEnd(g.b, here);
		Value own = LLVMBuildSub(g.b, g.worker, number(&g, worker), "");
		worker += each * part->count;
		if (p + 1 < bundle->part.count) {
			LLVMBasicBlockRef found = LLVMAppendBasicBlockInContext(g.context, f, "");
			here = LLVMAppendBasicBlockInContext(g.context, f, "");
			Value is = LLVMBuildICmp(g.b, LLVMIntULT, g.worker, number(&g, worker), "");
			LLVMBuildCondBr(g.b, is, found, here);
			LLVMPositionBuilderAtEnd(g.b, found);
		}
		Value kernel = LLVMBuildUDiv(g.b, own, number(&g, each), "");
		Value from =
		    sum_of(&g, times(&g, kernel, part->each->place.count), number(&g, place));
		Value in[] = {LLVMBuildGEP2(g.b, g.ptr, g.buf, &from, 1, ""),
		              LLVMBuildURem(g.b, own, number(&g, each), ""), kernel};
		LLVMBuildCall2(g.b, LLVMGlobalGetValueType(code), code, in, COUNT(in), "");
		LLVMBuildBr(g.b, end);
		place += part->each->place.count * part->count;
	}
	LLVMPositionBuilderAtEnd(g.b, end);
	function_end(&g);
	arena_free(g.arena);
}

// All of them have launches of the same kinds.
static void write_bundle(Gen *g, const Signature *bundle, int n)
{
	int launch = 0;
	for (Stage stage = BEFORE; stage < STAGES; stage++)
		if (stage_workers(bundle->kern->sched, stage))
			write_stage(g, bundle, stage, kernel_name(g->arena, n, launch++));
}

// ---- modules --------------------------------------------------------------------------

static Part compile(Arena *arena, const Target *t, LLVMModuleRef module,
                    LLVMTargetMachineRef machine)
{
	char *message = NULL;
	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) {
		LLVMDumpModule(module);
		bug("the emitted code is not valid: %s", message);
	}
	LLVMDisposeMessage(message);
	bool bundles = t->machine->threads > 1; // their parts are functions
	run_llvm(module, machine,
	         bundles ? "always-inline,function(mem2reg,early-cse)"
	                 : "function(mem2reg,early-cse)");
	return t->ops->write(arena, t, module, machine);
}

// ---- batches --------------------------------------------------------------------------

static int by_variant(const void *a, const void *b)
{
	const VariantTile *x = a, *y = b;
	int order = (x->variant > y->variant) - (x->variant < y->variant);
	return order ? order : memcmp(&x->tile, &y->tile, sizeof x->tile);
}

// Divides the tiles that modules call among modules of their own: most are called by several.
static void divide_tiles(Emitter *e)
{
	enum { SOME = 2 };
	int first = e->batches.count, n = 0;
	if (e->tiles.count)
		qsort(e->tiles.at, (size_t)e->tiles.count, sizeof *e->tiles.at, by_variant);
	for (int k = 0; k < e->tiles.count; k++) {
		const VariantTile *tile = &e->tiles.at[k];
		if (n && !by_variant(&e->tiles.at[n - 1], tile))
			continue;
		Batch *last = &e->batches.at[e->batches.count - 1];
		if (e->batches.count > first && last->variant == tile->variant &&
		    last->end - last->first < SOME)
			last->end++;
		else
			PUSH(e->arena, e->batches,
			     ((Batch){.target = e->code[tile->variant].variant->target,
			              .variant = tile->variant,
			              .first = n,
			              .end = n + 1,
			              .kind = B_tiles}));
		e->tiles.at[n++] = *tile;
	}
	Part *part = NEWS(e->arena, Part, e->batches.count);
	memcpy(part, e->part, (size_t)first * sizeof *part);
	e->part = part;
	e->next = first;
	e->end = e->batches.count;
}

// Notes which tiles a batch calls. After the last one, all tiles are known: threads go on with them
// while others still compile kernels.
static void batch_written(Emitter *e, const Batch *batch)
{
	pthread_mutex_lock(&e->lock);
	for (int k = 0; batch->kind == B_kernels && k < batch->calls.list.count; k++)
		PUSH(e->arena, e->tiles, ((VariantTile){batch->variant, batch->calls.list.at[k]}));
	if (e->unwritten && batch->kind != B_tiles && !--e->unwritten) {
		divide_tiles(e);
		pthread_cond_broadcast(&e->written);
	}
	pthread_mutex_unlock(&e->lock);
}

// Returns the number of a batch that no thread has compiled yet, or -1.
static int next_batch(Emitter *e, Batch **batch)
{
	int number = -1;
	pthread_mutex_lock(&e->lock);
	while (e->next == e->end && e->unwritten && !e->failed)
		pthread_cond_wait(&e->written, &e->lock);
	if (e->next < e->end && !e->failed)
		*batch = &e->batches.at[number = e->next++];
	pthread_mutex_unlock(&e->lock);
	return number;
}

static void give_up(Emitter *e)
{
	pthread_mutex_lock(&e->lock);
	e->failed = true;
	pthread_cond_broadcast(&e->written);
	pthread_mutex_unlock(&e->lock);
}

// ---- threads --------------------------------------------------------------------------

typedef struct Compiler { // of one thread
	Emitter *emitter;
	int home, number; // the caller's processor; this thread's number
	Arena *arena;
	LLVMContextRef context;
	const Target *target; // of `machine`
	LLVMTargetMachineRef machine;
	Catch failure; // status 0: none
} Compiler;

static void write_batch(Gen *g, Emitter *e, Batch *batch)
{
	for (int k = batch->first; k < batch->end; k++)
		if (batch->kind == B_tiles)
			g->ops->tile(g, &e->tiles.at[k].tile);
		else if (e->kernels.at[k]->part.count)
			write_bundle(g, e->kernels.at[k], k);
		else
			write_kernel(g, e->kernels.at[k], k);
	for (int k = 0; batch->kind == B_program && k < batch->calls.list.count; k++)
		g->ops->tile(g, &batch->calls.list.at[k]);
	if (batch->tables)
		write_tables(g, e->entries, e->variants, e->code, e->options);
}

static void compile_batch(Compiler *c, Batch *batch, int number)
{
	Emitter *e = c->emitter;
	const Target *t = batch->target;
	LLVMContextRef context = c->context;
	if (t != c->target) {
		LLVMDisposeTargetMachine(c->machine);
		c->machine = target_generator(t);
		c->target = t;
	}
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext("amos", context);
	LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(c->machine);
	LLVMSetTarget(module, t->triple);
	LLVMSetModuleDataLayout(module, layout);
	LLVMDisposeTargetData(layout);
	Gen g = gen_new(c->arena, t, module);
	batch->calls = (TileCalls){.arena = c->arena, .variant = batch->variant};
	g.tiles = &batch->calls;
	write_batch(&g, e, batch);
	batch_written(e, batch);
	Part part = compile(c->arena, t, module, c->machine);
	pthread_mutex_lock(&e->lock);
	e->part[number] = part;
	pthread_mutex_unlock(&e->lock);
	LLVMDisposeBuilder(g.b);
	LLVMDisposeModule(module);
}

static void *compile_thread(void *context)
{
	Compiler *c = context;
	Batch *batch;
	int number;
	amos_spread(c->home, c->number);
	amos_locale_own();
	if (TRY(c->failure)) {
		give_up(c->emitter);
		return NULL;
	}
	while ((number = next_batch(c->emitter, &batch)) >= 0)
		compile_batch(c, batch, number);
	catch_end(&c->failure);
	return NULL;
}

// Divides the kernels among modules. Batches are small, so that every thread has work, and larger
// in a large program: a module has to set up LLVM's passes. A device gets one module. The tables
// come last: in a module of their own, which other threads need not wait for, if there are several
// batches, or if they hold the code of a device. Returns the number of batches before such tables.
static int divide(Emitter *e)
{
	enum { LEAST = 4, MOST = 16, SHARES = 16 };
	const Target *first = e->code[0].variant->target;
	bool devices = false;
	for (int v = 0; v < e->variants; v++) {
		VariantCode *code = &e->code[v];
		const Target *t = code->variant->target;
		int n = code->end - code->first, some = MAX(LEAST, MIN(MOST, n / SHARES));
		code->module = t->device ? e->batches.count : -1;
		devices |= t->device != NULL;
		if (t->device)
			some = n;
		for (int k = code->first; k < code->end; k += some)
			PUSH(e->arena, e->batches,
			     ((Batch){.target = t,
			              .variant = v,
			              .first = k,
			              .end = MIN(k + some, code->end),
			              .kind = some < n ? B_kernels : B_program}));
	}
	if (devices || e->batches.count != 1)
		PUSH(e->arena, e->batches,
		     ((Batch){.target = first->device ? first->host : first}));
	e->batches.at[e->batches.count - 1].tables = true;
	e->part = NEWS(e->arena, Part, e->batches.count);
	return e->batches.count - devices;
}

// Copies the parts of batches from the compilers' arenas to the caller's.
static void keep_parts(Emitter *e, int from, int end)
{
	for (Part *part = e->part + from; part < e->part + end; part++)
		part->bytes = take_copy(e->arena, part->bytes, part->count + 1);
}

// Compiles some batches, and the tiles that they call, in this thread and others: `threads` in all,
// or as many as the system allows. LLVM needs more stack than `ulimit -s` may give.
static void compile_batches(Emitter *e, int from, int end, int threads)
{
	enum { STACK = 8 << 20 };
	e->next = from;
	e->end = end;
	if (threads <= 0)
		threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
	int most = e->unwritten ? e->kernels.count : end - from; // kernels may call as many tiles
	threads = MAX(1, MIN(threads, most));
	int tiles = e->batches.count;
	Compiler *c = NEWS(e->arena, Compiler, threads);
	pthread_t *thread = NEWS(e->arena, pthread_t, threads);
	for (int i = 0; i < threads; i++)
		c[i] = (Compiler){.emitter = e,
		                  .home = amos_processor(),
		                  .number = i,
		                  .arena = arena_new(),
		                  .context = LLVMContextCreate()};
	int started = 1;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	while (started < threads &&
	       !pthread_create(&thread[started], &attributes, compile_thread, &c[started]))
		started++;
	pthread_attr_destroy(&attributes);
	cpu_set_t all;
	bool known = !sched_getaffinity(0, sizeof all, &all);
	compile_thread(&c[0]);
	if (known)
		sched_setaffinity(0, sizeof all, &all);
	for (int i = 1; i < started; i++)
		pthread_join(thread[i], NULL);
	Catch *failure = NULL;
	for (int i = 0; i < started; i++)
		failure = c[i].failure.status ? &c[i].failure : failure;
	keep_parts(e, from, failure ? from : end);
	keep_parts(e, tiles, failure ? tiles : e->batches.count);
	for (int i = 0; i < threads; i++) {
		LLVMDisposeTargetMachine(c[i].machine);
		LLVMContextDispose(c[i].context);
		arena_free(c[i].arena);
	}
	if (failure)
		fail_again(failure);
}

// ---- launches -------------------------------------------------------------------------

typedef struct Coder { // of the launches of a variant
	Emitter *emitter;
	VariantCode *code;
	Table *known;        // signature -> 1 + number of the kernel
	const Table *before; // the same, of a variant whose code it can have; NULL: there is none
} Coder;

static Entry plan_entry(Coder *c, const Plan *plan);

// Returns the number of the kernel that has the code of a signature: a new one if there is none, in
// this variant or, unless the code is its `own`, in the one before.
static int kernel_number(Coder *c, Signature *s, bool own)
{
	Emitter *e = c->emitter;
	size_t bytes = (size_t)s->bytes.count;
	uint64_t *kernel = table_cell(c->known, s->bytes.at, bytes);
	const uint64_t *before =
	    own || !c->before ? NULL : table_find(c->before, s->bytes.at, bytes);
	if (!*kernel && before) {
		*kernel = *before;
	} else if (!*kernel) {
		PUSH(e->arena, e->kernels, s);
		*kernel = (uint64_t)e->kernels.count;
	}
	return (int)*kernel - 1;
}

// Adds the launches of `count` kernels from k on, one launch if they are several, or of a loop, to
// the entry.
static void add_launches(Coder *c, const int *writer, int k, int count, Entry *entry)
{
	Arena *arena = c->emitter->arena;
	const Kern *kern = &entry->plan->kerns.at[k];
	if (kern->body) {
		Entry body = plan_entry(c, kern->body);
		entry->launch[entry->n++] =
		    (Launch){.kern = kern, .body = take_copy(arena, &body, sizeof body)};
		return;
	}
	Signature *s = count > 1 ? signature_bundle(arena, entry->plan, writer, k, count)
	                         : signature_new(arena, entry->plan, writer, k);
	int kernel = kernel_number(c, s, has_matrix_registers(kern, entry->plan->machine));
	c->code->count += count;
	c->code->local = MAX(c->code->local, kern->sched->local);
	int launches = 0, number = 0;
	for (Stage stage = BEFORE; stage < STAGES; stage++)
		launches += stage_workers(kern->sched, stage) > 0;
	for (Stage stage = BEFORE; stage < STAGES; stage++) {
		int64_t workers = 0, shared = 0;
		for (int i = 0; i < count; i++) {
			workers += stage_workers(kern[i].sched, stage);
			if (stage == MAIN || kern[i].kind == L_attend)
				shared = MAX(shared, kern[i].sched->shared);
		}
		if (workers)
			entry->launch[entry->n++] =
			    (Launch){.kern = kern,
			             .kerns = count,
			             .kernel = kernel,
			             .number = number++,
			             .launches = launches,
			             .workers = workers,
			             .gang = stage == MAIN ? kern->sched->gang : 0,
			             .whole = stage == MAIN && kern->sched->kept,
			             .shared = shared,
			             .signature = s};
	}
}

static Entry plan_entry(Coder *c, const Plan *plan)
{
	Arena *arena = c->emitter->arena;
	int runs = run_count(plan), *writer = plan_writers(arena, plan), kernels = 0;
	int(*of)[2] = take(arena, sizeof *of * (size_t)(plan->kerns.count + 1));
	Entry entry = {.plan = plan, .launch = NEWS(arena, Launch, STAGES * runs)};
	for (int run = 0; run < runs; run++) {
		int k = run_kernel(plan, run);
		if (k == kernels) {
			int count = launch_end(plan, run) - run;
			of[k][0] = entry.n;
			add_launches(c, writer, k, count, &entry);
			of[k][1] = entry.n;
			kernels += count;
			run += count - 1;
			continue;
		}
		for (int i = of[k][0]; i < of[k][1]; i++) {
			entry.launch[entry.n] = entry.launch[i];
			entry.launch[entry.n++].again = true;
		}
	}
	return entry;
}

// True if y can run the code of x for all kernels that do not use matrix registers: their vectors
// are alike, and instructions for bf16, which only y has, do not matter to a program in f32.
static bool has_code_for(const Variant *x, const Variant *y)
{
	const Machine *m = x->target->machine, *of = y->target->machine;
	return !x->target->device && !y->target->device && has_thread_matrix(of) && !m->pairs &&
	       m->lanes == of->lanes && !strcmp(m->arch, of->arch) &&
	       !is_half(y->plan[0]->graph->products);
}

// Numbers the kernels of a variant, after those of the variants before it.
static VariantCode plan_code(Emitter *e, const Variant *variant, Table *known, const Table *before)
{
	VariantCode code = {.variant = variant,
	                    .entry = NEWS(e->arena, Entry, e->entries),
	                    .first = e->kernels.count};
	Coder c = {e, &code, known, before};
	for (int i = 0; i < e->entries; i++)
		code.entry[i] = plan_entry(&c, variant->plan[i]);
	code.end = e->kernels.count;
	return code;
}

static double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Object *emit(Arena *arena, int entries, int variants, const Variant *variant,
             const EmitOptions *options)
{
	double start = seconds_now();
	Emitter e = {.arena = arena,
	             .options = options,
	             .entries = entries,
	             .variants = variants,
	             .code = NEWS(arena, VariantCode, variants)};
	Object *object = NEW(arena, Object);
	target_start();
	Table **known = NEWS(arena, Table *, variants);
	for (int v = 0; v < variants; v++) {
		known[v] = table_new(arena);
		bool shared = v && has_code_for(&variant[v - 1], &variant[v]);
		e.code[v] = plan_code(&e, &variant[v], known[v], shared ? known[v - 1] : NULL);
	}
	int parts = e.unwritten = divide(&e);
	bool tables = parts < e.batches.count;
	pthread_mutex_init(&e.lock, NULL);
	pthread_cond_init(&e.written, NULL);
	compile_batches(&e, 0, parts, options->threads);
	for (int v = 0; v < variants; v++) {
		VariantCode *code = &e.code[v];
		const TargetOps *ops = variant[v].target->ops;
		Part *part = code->module < 0 ? NULL : &e.part[code->module];
		if (part && ops->link)
			*part = ops->link(arena, part, options->lld);
		code->device = part;
	}
	if (tables && !options->device_code)
		compile_batches(&e, parts, parts + 1, 1);
	object->part = NEWS(arena, Part, e.batches.count);
	for (int b = 0; b < e.batches.count; b++)
		if (options->device_code ? b < parts : !e.batches.at[b].target->device)
			object->part[object->parts++] = e.part[b];
	object->kernels = e.code[0].count;
	for (int k = 0; k < object->parts; k++)
		object->count += object->part[k].count;
	object->seconds = seconds_now() - start;
	return object;
}
