// cpu.c: targets of one thread a worker: this machine and other CPUs; and the fold across lanes.
// Takes gen.h. A target is known by its features, for a CPU's name may be hidden by a hypervisor.
#include "gen.h"
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <pthread.h>
#include <string.h>

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

static bool belongs(Arena *arena, const Target *t, const char *mask, const Machine *m)
{
	if (!starts_with(t->triple, m->arch))
		return false;
	for (const char *at = m->features; *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");
		if (!offers(t, mask, format(arena, "%.*s", (int)n, at)))
			return false;
		at += n;
	}
	return true;
}

// A CPU that fuses products and sums must not where its class does not.
static void classify(Arena *arena, Target *t, const char *mask)
{
	for (int i = 0; i < machine_count && !t->machine; i++)
		if (belongs(arena, t, mask, &machines[i]))
			t->machine = &machines[i];
	if (has(t->features, "fma") && !strstr(t->machine->features, "fma"))
		t->features = format(arena, "%s,-fma", t->features);
	t->scalef = strstr(t->machine->features, "avx512f");
}

static Target *cpu_known(Arena *arena, const char *name, const char *triple, const char *cpu,
                         const char *features, const char *mask)
{
	Target *t = NEW(arena, Target);
	t->name = copy_string(arena, name);
	t->triple = copy_string(arena, triple);
	t->cpu = copy_string(arena, cpu);
	t->features = masked(arena, features, mask);
	classify(arena, t, mask);
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
Value reduce_lanes(Gen *g, Op op, Elem e, Value v)
{
	if (g->target->gpu)
		return reduce_threads(g, op, e, v);
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

// What CPUs of LLVM's names have, of features.def, for those that are not this machine.
#define V2 "+sse3,+ssse3,+cx16,+sse4.1,+sse4.2,+popcnt"
#define V3 V2 ",+fma,+movbe,+avx,+f16c,+bmi,+avx2,+bmi2,+lzcnt"
#define V4 V3 ",+avx512f,+avx512dq,+avx512cd,+avx512bw,+avx512vl"
#define ICELAKE                                                                                    \
	V4 ",+adx,+avx512ifma,+avx512vbmi,+avx512vbmi2,+gfni,+vaes,+vpclmulqdq,+avx512vnni,"       \
	   "+avx512bitalg,+avx512vpopcntdq"
static const struct {
	const char *cpu, *features;
} cpus[] = {
    {"x86-64", ""},
    {"x86-64-v2", V2},
    {"x86-64-v3", V3},
    {"haswell", V3},
    {"znver2", V3 ",+adx,+sse4a"},
    {"znver3", V3 ",+adx,+sse4a,+vaes,+vpclmulqdq"},
    {"x86-64-v4", V4},
    {"skylake-avx512", V4 ",+adx"},
    {"icelake-server", ICELAKE},
    {"znver4", ICELAKE ",+sse4a,+avx512bf16"},
    {"znver5", ICELAKE ",+sse4a,+avx512bf16,+avxvnni,+avx512vp2intersect"},
    {"sapphirerapids", ICELAKE ",+avx512bf16,+avx512fp16,+avxvnni,+amx-tile,+amx-int8,+amx-bf16"},
};

static const char *cpu_names(Arena *arena)
{
	Text names = {.arena = arena};
	for (int k = 0; k < COUNT(cpus); k++)
		say(&names, "%s%s", k ? ", " : "", cpus[k].cpu);
	return names.at;
}

// NULL: no CPU is called so.
static Target *cpu_named(Arena *arena, const char *name, const char *cpu, const char *mask)
{
	for (int k = 0; k < COUNT(cpus); k++)
		if (!strcmp(cpus[k].cpu, cpu))
			return cpu_known(arena, name, "x86_64-unknown-linux-gnu", cpu,
			                 cpus[k].features, mask);
	return NULL;
}

// Kernels want little-endian memory and addresses of 64 bits.
static bool is_triple(const char *name)
{
	LLVMTargetRef known;
	char *message = NULL;
	bool arch = starts_with(name, "x86_64-") || starts_with(name, "aarch64-");
	if (!arch || strstr(name, "x32") || strstr(name, "ilp32"))
		return false;
	bool is = !LLVMGetTargetFromTriple(name, &known, &message);
	LLVMDisposeMessage(message);
	return is;
}

const Target *target_named(Arena *arena, const char *name, const char *mask)
{
	target_start();
	if (!name || !strcmp(name, "cpu"))
		return cpu_host(arena, mask);
	if (!strcmp(name, "cuda") || starts_with(name, "cuda:"))
		return gpu_target(arena, name, cpu_host(arena, mask));
	const char *cpu = name + (starts_with(name, "cpu:") ? strlen("cpu:") : 0);
	Target *t = cpu_named(arena, name, cpu, mask);
	if (t)
		return t;
	if (cpu != name)
		fail("--target", "unknown CPU '%s'; expected %s", cpu, cpu_names(arena));
	if (is_triple(name))
		return cpu_known(arena, name, name, "generic", "", mask);
	fail("--target",
	     "unsupported target '%s'; expected cpu, cuda:sm_90, a triple of x86_64 or aarch64, or "
	     "a CPU: %s",
	     name, cpu_names(arena));
}

bool target_links_here(const Target *t)
{
	Arena *arena = arena_new();
	const Target *host = cpu_host(arena, NULL);
	bool links = !t->gpu && !strncmp(t->triple, host->triple, strcspn(host->triple, "-"));
	arena_free(arena);
	return links;
}

bool target_runs_here(const Target *t)
{
	Arena *arena = arena_new();
	const Target *host = cpu_host(arena, NULL);
	bool runs = target_links_here(t);
	for (const char *at = t->features; runs && *at;) {
		size_t n = strcspn(at, ",");
		runs = *at != '+' || has(host->features, format(arena, "%.*s", (int)n - 1, at + 1));
		at += n + (at[n] == ',');
	}
	arena_free(arena);
	return runs;
}

static bool is_on(const char *features, const char *name)
{
	bool on = false;
	size_t n = strlen(name);
	for (const char *at = features; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at + 1, name, n) && (at[n + 1] == ',' || !at[n + 1]))
			on = *at == '+';
	return on;
}

const char *target_needs(Arena *arena, const Target *t)
{
	static const char *const known[] = {
#define X86(name, ...) name,
#define ARM(name, ...) name,
#include "features.def"
#undef X86
#undef ARM
	};
	Text needs = {.arena = arena};
	say(&needs, "%s", "");
	for (int k = 0; k < COUNT(known); k++)
		if (is_on(t->features, known[k]))
			say(&needs, "%s%s", needs.count ? "," : "", known[k]);
	return needs.at;
}

const char *target_kind(Arena *arena, const Target *t)
{
	return format(arena, "%s %s", t->triple, t->gpu ? t->cpu : t->machine->name);
}

const char *target_text(Arena *arena, const Target *t)
{
	return format(arena, "%s, %s, %s", target_kind(arena, t), t->cpu, t->features);
}

void kernel_begin(Gen *g, const char *name)
{
	g->workers = 1;
	g->local_bytes = 0;
	if (g->target->gpu) {
		gpu_kernel_begin(g, name);
		return;
	}
	LLVMTypeRef arg[3] = {g->ptr, g->i64, g->ptr};
	function_begin(g, name, LLVMFunctionType(LLVMVoidTypeInContext(g->context), arg, 3, 0));
	g->buf = LLVMGetParam(g->function, 0);
	g->worker = LLVMGetParam(g->function, 1);
	g->local = LLVMGetParam(g->function, 2);
}
