// cpu.c: defines CPU targets: a worker is one thread, lanes are those of a vector.
// A CPU is identified by its features, because a hypervisor may hide its name.
#include "target.h"
#include <string.h>

// ---- hooks ----------------------------------------------------------------------------

// void kernel(ptr buf, i64 worker, i64 end_worker, ptr local)
LLVMTypeRef worker_type(Gen *g)
{
	LLVMTypeRef arg[] = {g->ptr, g->i64, g->i64, g->ptr};
	return LLVMFunctionType(LLVMVoidTypeInContext(g->context), arg, COUNT(arg), 0);
}

static void begin_launch(Gen *g, const char *name)
{
	function_begin(g, name, worker_type(g));
	g->buf = LLVMGetParam(g->function, 0);
	g->worker = LLVMGetParam(g->function, 1);
	g->end_worker = LLVMGetParam(g->function, 2);
	g->local = LLVMGetParam(g->function, 3);
}

static LLVMTypeRef pointer(Gen *g)
{
	return g->ptr;
}

// Reduces the halves with each other, always in this order.
static Value reduce_lanes(Gen *g, Op op, Elem e, Value v)
{
	if (!is_vector(v))
		return v;
	for (int half = g->width / 2; half; half /= 2) {
		Value low = lane_numbers(g->i32, half, 0, 1);
		Value high = lane_numbers(g->i32, half, half, 1);
		Value none = LLVMGetPoison(LLVMTypeOf(v));
		v = reduce_step(g, op, e, LLVMBuildShuffleVector(g->b, v, none, low, ""),
		                LLVMBuildShuffleVector(g->b, v, none, high, ""));
	}
	return LLVMBuildExtractElement(g->b, v, LLVMConstInt(g->i32, 0, 0), "");
}

// A worker is one thread.
static void no_barrier(Gen *g)
{
	(void)g;
}

static Loop every_thread(Gen *g)
{
	(void)g;
	return (Loop){.outer = NULL};
}

static Value add_pairs(Gen *g, Value sum, Value a, Value b)
{
	LLVMTypeRef type = LLVMBFloatTypeInContext(g->context);
	LLVMTypeRef pairs = LLVMVectorType(type, 2 * (unsigned)g->width);
	Value in[] = {sum, LLVMBuildBitCast(g->b, a, pairs, ""),
	              LLVMBuildBitCast(g->b, b, pairs, "")};
	return intrinsic(g, "llvm.x86.avx512bf16.dpbf16ps.512", 0, NULL, COUNT(in), in);
}

static void tile(const Gen *g, const Tile *t)
{
	(t->square ? write_square : t->matrix ? write_matrix_tile : write_vector_tile)(g, t);
}

static Part write_object(Arena *arena, const Target *t, LLVMModuleRef module,
                         LLVMTargetMachineRef machine)
{
	return target_code(arena, t, module, machine, LLVMObjectFile);
}

static const TargetOps vector_ops = {.begin = begin_launch,
                                     .pointer = pointer,
                                     .lane_loop = vector_loop,
                                     .reduce_lanes = reduce_lanes,
                                     .barrier = no_barrier,
                                     .single_begin = every_thread,
                                     .prefetch = prefetch_line,
                                     .add_pairs = add_pairs,
                                     .tile = tile,
                                     .tile_begin = matrix_begin,
                                     .tile_end = matrix_end,
                                     .groups = matrix_groups,
                                     .begin_sums = matrix_begin_sums,
                                     .add_products = matrix_add,
                                     .end_sums = matrix_end_sums,
                                     .write = write_object};

// ---- CPUs and triples -----------------------------------------------------------------

static const struct {
	const char *cpu, *triple, *features;
} cpus[] = {
#define CPU(name, triple, features) {name, triple, features},
#define TRIPLE(...)
#define VARIANT(...)
#include "cpus.def"
#undef CPU
#undef TRIPLE
#undef VARIANT
};

static const struct {
	const char *first, *last;
	unsigned pointer;
	const char *cpu, *features;
} triples[] = {
#define CPU(...)
#define TRIPLE(first, last, pointer, cpu, features) {first, last, pointer, cpu, features},
#define VARIANT(...)
#include "cpus.def"
#undef CPU
#undef TRIPLE
#undef VARIANT
};

static const struct {
	const char *first, *cpu, *features;
} variants[] = {
#define CPU(...)
#define TRIPLE(...)
#define VARIANT(first, cpu, features) {first, cpu, features},
#include "cpus.def"
#undef CPU
#undef TRIPLE
#undef VARIANT
};

const char *cpu_names(Arena *arena)
{
	return NAMES(arena, cpus, ", ");
}

const char *triple_names(Arena *arena)
{
	Text names = {.arena = arena};
	for (int k = 0; k < COUNT(triples); k++)
		say(&names, "%s%s*%s", k ? ", " : "", triples[k].first, triples[k].last);
	return names.at;
}

static int triple_row(const char *triple)
{
	for (int k = 0; k < COUNT(triples); k++)
		if (starts_with(triple, triples[k].first) && ends_with(triple, triples[k].last))
			return k;
	return -1;
}

// ---- features -------------------------------------------------------------------------

// Returns the next of features, such as "+avx", which spaces or commas separate; NULL: none is
// left.
static char *next_feature(Arena *arena, const char **at)
{
	*at += strspn(*at, " ,");
	int n = (int)strcspn(*at, " ,");
	*at += n;
	return n ? format(arena, "%.*s", n, *at - n) : NULL;
}

// True if the last of the features by this name turns it on.
static bool is_on(const char *features, const char *name)
{
	bool on = false;
	size_t n = strlen(name);
	for (const char *at = features; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at + 1, name, n) && (at[n + 1] == ',' || !at[n + 1]))
			on = *at == '+';
	return on;
}

// Returns the features followed by the mask, because LLVM lets later ones win, without those that
// need a feature that the mask turns off.
static char *masked(Arena *arena, const char *features, const char *mask)
{
	static const char *const wide[] = {"+avx512", "+avx10", "+evex", "+amx"};
	bool narrow = mask && strstr(mask, "-avx512f");
	Text text = {.arena = arena};
	for (char *one; (one = next_feature(arena, &features));) {
		bool off = false;
		for (int k = 0; narrow && k < COUNT(wide); k++)
			off |= starts_with(one, wide[k]);
		if (!off)
			say(&text, "%s%s", text.count ? "," : "", one);
	}
	if (mask)
		say(&text, "%s%s", text.count ? "," : "", mask);
	return text.at ? text.at : copy_string(arena, "");
}

// True if the target has the features of the class.
static bool belongs(Arena *arena, const Target *t, const Machine *m)
{
	bool has = starts_with(t->triple, m->arch);
	const char *at = m->features;
	for (char *one; has && (one = next_feature(arena, &at));)
		has = *one == '-' ? !is_on(t->features, one + 1) : is_on(t->features, one);
	return has;
}

// Returns the triple with all of its parts: without them, LLVM sees no system in
// armv7-linux-gnueabihf, and no x32 in x86_64-linux-gnux32. The vendor decides nothing.
static char *full_triple(Arena *arena, const char *triple)
{
	char *full = LLVMNormalizeTargetTriple(triple), *vendor = strchr(full, '-');
	const char *system = vendor ? strchr(vendor + 1, '-') : NULL;
	char *copy = system ? format(arena, "%.*s-unknown%s", (int)(vendor - full), full, system)
	                    : copy_string(arena, full);
	LLVMDisposeMessage(full);
	return copy;
}

// True if the full triple names no operating system.
static bool is_bare(const char *triple)
{
	const char *system = triple; // the third part
	for (int k = 0; k < 2; k++)
		system += strcspn(system, "-"), system += *system == '-';
	return !*system || starts_with(system, "unknown") || starts_with(system, "none");
}

static Target *cpu_known(Arena *arena, const char *name, const char *triple, const char *cpu,
                         const char *features, const char *mask)
{
	Target *t = NEW(arena, Target);
	t->ops = &vector_ops;
	t->name = copy_string(arena, name);
	t->triple = full_triple(arena, triple);
	t->cpu = copy_string(arena, cpu);
	t->features = masked(arena, features, mask);
	for (int i = 0; i < machine_count && !t->machine; i++)
		if (belongs(arena, t, &machines[i]))
			t->machine = &machines[i];
	t->bare = is_bare(t->triple);
	return t;
}

const char *target_here(Arena *arena)
{
	char *triple = LLVMGetDefaultTargetTriple(), *copy = full_triple(arena, triple);
	LLVMDisposeMessage(triple);
	return copy;
}

// Where AMX is not permitted, bf16 is multiplied as f32: AMX's CPUs multiply pairs at half the
// rate.
Target *cpu_host(Arena *arena, const char *mask)
{
	const char *triple = target_here(arena);
	char *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures();
	int k = triple_row(triple);
	bool refused = is_on(features, "amx-tile") && !amos_permit_amx();
	const char *all = format(arena, "%s,%s%s", k < 0 ? "" : triples[k].features, features,
	                         refused ? ",-amx-tile,-amx-bf16,-avx512bf16" : "");
	Target *t = cpu_known(arena, "cpu", triple, cpu, all, mask);
	LLVMDisposeMessage(cpu);
	LLVMDisposeMessage(features);
	return t;
}

bool target_runs_here(const Target *t)
{
	Arena *arena = arena_new();
	const Target *host = cpu_host(arena, NULL);
	bool runs =
	    t->ops == host->ops && !strncmp(t->triple, host->triple, strcspn(host->triple, "-"));
	const char *at = t->features;
	for (char *one; runs && (one = next_feature(arena, &at));)
		runs = *one != '+' || is_on(host->features, one + 1);
	arena_free(arena);
	return runs || t->device; // its host is this one
}

const char *target_needs(Arena *arena, const Target *t)
{
	static const char *const known[] = {
#define X86(name, ...)   name,
#define ARM64(name, ...) name,
#define ARM(name, ...)   name,
#define RISCV(name, ...) name,
#include "features.def"
#undef X86
#undef ARM64
#undef ARM
#undef RISCV
	};
	Text needs = {.arena = arena};
	say(&needs, "%s", "");
	for (int k = 0; k < COUNT(known); k++)
		if (is_on(t->features, known[k]))
			say(&needs, "%s%s", needs.count ? "," : "", known[k]);
	const char *at = t->machine->features;
	for (char *one; t->exact && (one = next_feature(arena, &at));)
		if (*one == '-')
			say(&needs, ",%s", one);
	return needs.at;
}

Target *cpu_named(Arena *arena, const char *name, const char *cpu, const char *mask)
{
	int k = FIND(cpu, cpus);
	return k < 0 ? NULL : cpu_known(arena, name, cpus[k].triple, cpu, cpus[k].features, mask);
}

// True if the target's objects are ELF and its pointers have this size in bytes.
static bool is_elf(const Target *t, unsigned pointer)
{
	LLVMTargetMachineRef generator = target_generator(t);
	LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(generator);
	char *text = LLVMCopyStringRepOfTargetData(layout);
	bool is = strstr(text, "-m:e") && LLVMPointerSize(layout) == pointer;
	LLVMDisposeMessage(text);
	LLVMDisposeTargetData(layout);
	LLVMDisposeTargetMachine(generator);
	return is;
}

Target *cpu_of_triple(Arena *arena, const char *triple, const char *mask)
{
	int k = triple_row(triple);
	if (k < 0)
		return NULL;
	Target *t = cpu_known(arena, triple, triple, triples[k].cpu, triples[k].features, mask);
	t->generic = true;
	return is_elf(t, triples[k].pointer) ? t : NULL;
}

int target_variants(Arena *arena, const Target *t, bool narrow, const Target *const **to)
{
	const Target **all = NEWS(arena, const Target *, COUNT(variants) + 1);
	int n = 1;
	all[0] = t;
	for (int k = 0; k < COUNT(variants) && t->generic && !t->bare; k++) {
		if (!starts_with(t->triple, variants[k].first))
			continue;
		Target *v = cpu_known(arena, t->name, t->triple, variants[k].cpu,
		                      variants[k].features, NULL);
		v->exact = true;
		if (narrow || !strcmp(v->machine->name, v->machine->plain))
			all[n++] = v;
	}
	*to = all;
	return n;
}
