// cpu.c: targets of one thread a worker: this machine and other CPUs; and the fold across lanes.
// Takes gen.h. A target is known by its features, for a CPU's name may be hidden by a hypervisor.
#include "gen.h"
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static bool has(const char *features, const char *feature)
{
	size_t n = strlen(feature);
	for (const char *at = features; (at = strstr(at, feature)); at += n)
		if (at > features && at[-1] == '+' && (at[n] == ',' || !at[n]))
			return true;
	return false;
}

// Turns off what the mask turns off: features of LLVM, later ones win, so the mask goes last. What
// needs a feature that is off goes with it.
static char *masked(Arena *arena, const char *features, const char *mask)
{
	static const char *const wide[] = {"+avx512", "+avx10", "+evex", "+amx"};
	bool narrow = mask && strstr(mask, "-avx512f");
	Text text = {.arena = arena};
	for (const char *at = features; *at;) {
		size_t n = strcspn(at, ",");
		char *one = format(arena, "%.*s", (int)n, at);
		bool off = false;
		for (int k = 0; narrow && k < COUNT(wide); k++)
			off |= starts_with(one, wide[k]);
		if (!off)
			say(&text, "%s%s", text.count ? "," : "", one);
		at += n + (at[n] == ',');
	}
	if (mask)
		say(&text, "%s%s", text.count ? "," : "", mask);
	return text.at ? text.at : copy_string(arena, "");
}

static bool is_off(const char *mask, const char *feature)
{
	const char *at = mask ? strstr(mask, feature) : NULL;
	return at && at > mask && at[-1] == '-';
}

static bool offers(const Target *t, const char *mask, const char *feature)
{
	return has(t->features, feature) && !is_off(mask, feature);
}

static int64_t cache_bytes(int name, int64_t usual)
{
	long n = sysconf(name);
	return n > 0 ? n : usual;
}

// Lanes and registers that the features give.
static void cpu_fill(Target *t, const char *mask)
{
	bool x86 = starts_with(t->triple, "x86_64");
	bool wide = x86 && offers(t, mask, "avx512f") && offers(t, mask, "avx512bw") &&
	            offers(t, mask, "avx512vl") && offers(t, mask, "avx512dq");
	bool middle = x86 && offers(t, mask, "avx2");
	t->width = wide ? 16 : middle ? 8 : 4;
	t->registers = wide || !x86 ? 32 : 16;
	t->block = 1;
	t->scalef = wide;
	t->l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
	t->l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
	t->cores = (int)MAX(1, sysconf(_SC_NPROCESSORS_ONLN));
}

static Target *cpu_known(Arena *arena, const char *name, const char *triple, const char *cpu,
                         const char *features, const char *mask)
{
	Target *t = NEW(arena, Target);
	t->name = copy_string(arena, name);
	t->triple = copy_string(arena, triple);
	t->cpu = copy_string(arena, cpu);
	t->features = masked(arena, features, mask);
	cpu_fill(t, mask);
	return t;
}

static Target *cpu_host(Arena *arena, const char *mask)
{
	char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName();
	char *features = LLVMGetHostCPUFeatures();
	Target *t = cpu_known(arena, "cpu", triple, cpu, features, mask);
	LLVMDisposeMessage(triple);
	LLVMDisposeMessage(cpu);
	LLVMDisposeMessage(features);
	return t;
}

// ---- folds across lanes ---------------------------------------------------------------

// Halves are folded onto each other, always in this order.
Value fold_lanes(Gen *g, Op op, Elem e, Value v)
{
	if (g->target->gpu)
		return fold_threads(g, op, e, v);
	if (!is_vector(v))
		return v;
	for (int half = g->target->width / 2; half; half /= 2) {
		Value low = lane_numbers(g->i32, half, 0, 1);
		Value high = lane_numbers(g->i32, half, half, 1);
		Value none = LLVMGetPoison(LLVMTypeOf(v));
		v = fold_step(g, op, e, LLVMBuildShuffleVector(g->b, v, none, low, ""),
		              LLVMBuildShuffleVector(g->b, v, none, high, ""));
	}
	return LLVMBuildExtractElement(g->b, v, LLVMConstInt(g->i32, 0, 0), "");
}

// ---- targets by name ------------------------------------------------------------------

static pthread_once_t started = PTHREAD_ONCE_INIT;

// LLVM aborts after this: the cause is ours.
static void fatal(const char *reason)
{
	bug("LLVM: %s", reason);
}

// Loops are written as they shall be: strength reduction takes a quarter of the time and gives
// nothing.
static void start(void)
{
	LLVMInstallFatalErrorHandler(fatal);
	LLVMParseCommandLineOptions(2, (const char *const[]){"amosc", "-disable-lsr"}, NULL);
	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86Target();
	LLVMInitializeX86TargetMC();
	LLVMInitializeX86AsmPrinter();
	LLVMInitializeX86AsmParser();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	LLVMInitializeNVPTXTargetInfo();
	LLVMInitializeNVPTXTarget();
	LLVMInitializeNVPTXTargetMC();
	LLVMInitializeNVPTXAsmPrinter();
}

void target_start(void)
{
	pthread_once(&started, start);
}

// What a CPU of LLVM's name surely has, for those that are not this machine.
static const struct {
	const char *cpu, *features;
} cpus[] = {
    {"x86-64-v2", "+sse4.2"},
    {"x86-64-v3", "+avx2,+fma"},
    {"haswell", "+avx2,+fma"},
    {"znver2", "+avx2,+fma"},
    {"znver3", "+avx2,+fma"},
    {"x86-64-v4", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq"},
    {"skylake-avx512", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq"},
    {"icelake-server", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq"},
    {"znver4", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"},
    {"znver5", "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"},
    {"sapphirerapids",
     "+avx2,+fma,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+amx-tile,+amx-bf16"},
};

static Target *cpu_named(Arena *arena, const char *name, const char *mask)
{
	const char *cpu = name + strlen("cpu:");
	const Target *host = cpu_host(arena, NULL);
	for (int k = 0; k < COUNT(cpus); k++)
		if (!strcmp(cpus[k].cpu, cpu))
			return cpu_known(arena, name, host->triple, cpu, cpus[k].features, mask);
	Text known = {.arena = arena};
	for (int k = 0; k < COUNT(cpus); k++)
		say(&known, " %s", cpus[k].cpu);
	fail("--target", "unknown CPU '%s'; known are:%s", cpu, known.at);
}

const Target *target_named(Arena *arena, const char *name, const char *mask)
{
	target_start();
	if (!name || !strcmp(name, "cpu"))
		return cpu_host(arena, mask);
	if (starts_with(name, "cuda:sm_") || !strcmp(name, "cuda:host"))
		return gpu_target(arena, name, cpu_host(arena, mask));
	if (starts_with(name, "cpu:"))
		return cpu_named(arena, name, mask);
	LLVMTargetRef known;
	char *message = NULL;
	if (strchr(name, '-') && !LLVMGetTargetFromTriple(name, &known, &message))
		return cpu_known(arena, name, name, "generic", "", mask);
	LLVMDisposeMessage(message);
	fail("--target",
	     "unknown target '%s'; known are cpu, cpu:NAME, cuda:sm_90 and LLVM triples", name);
}

bool target_runs_here(const Target *t)
{
	Arena *arena = arena_new();
	const Target *host = cpu_host(arena, NULL);
	bool runs = !t->gpu && !strncmp(t->triple, host->triple, strcspn(host->triple, "-"));
	for (const char *at = t->features; runs && *at;) {
		size_t n = strcspn(at, ",");
		runs = *at != '+' || has(host->features, format(arena, "%.*s", (int)n - 1, at + 1));
		at += n + (at[n] == ',');
	}
	arena_free(arena);
	return runs;
}

const char *target_text(Arena *arena, const Target *t)
{
	return format(arena, "%s %s, %d lanes, %s", t->triple, t->cpu, t->width, t->features);
}

void kernel_begin(Gen *g, const char *name)
{
	g->workers = 1;
	g->pad_bytes = 0;
	if (g->target->gpu) {
		gpu_kernel_begin(g, name);
		return;
	}
	LLVMTypeRef arg[3] = {g->ptr, g->i64, g->ptr};
	function_begin(g, name, LLVMFunctionType(LLVMVoidTypeInContext(g->context), arg, 3, 0));
	g->buf = LLVMGetParam(g->function, 0);
	g->worker = LLVMGetParam(g->function, 1);
	g->pad = LLVMGetParam(g->function, 2);
}
