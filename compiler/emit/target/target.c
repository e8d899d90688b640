// target.c: finds targets by name, and initializes LLVM's.
#include "target.h"
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t started = PTHREAD_ONCE_INIT;

// LLVM aborts after this; the error is in amosc.
static void fatal(const char *reason)
{
	bug("LLVM: %s", reason);
}

// Loops are emitted in their final form: strength reduction takes a quarter of the time and
// improves nothing. Processors reorder instructions themselves: to schedule them once more, after
// registers are allocated, takes a tenth of the time. On x86, masks are in mask registers already
// and kernels have no conditional moves to turn into jumps: to look for more takes a thirtieth.
// Addresses of shared memory fit in 32 bits.
static void start(void)
{
	LLVMInstallFatalErrorHandler(fatal);
	static const char *const without[] = {"amosc",
	                                      "-disable-lsr",
	                                      "-disable-post-ra",
	                                      "-disable-x86-domain-reassignment",
	                                      "-x86-cmov-converter=false",
	                                      "-nvptx-short-ptr"};
	LLVMParseCommandLineOptions(COUNT(without), without, NULL);
	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86Target();
	LLVMInitializeX86TargetMC();
	LLVMInitializeX86AsmPrinter();
	LLVMInitializeX86AsmParser();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	LLVMInitializeARMTargetInfo();
	LLVMInitializeARMTarget();
	LLVMInitializeARMTargetMC();
	LLVMInitializeARMAsmPrinter();
	LLVMInitializeRISCVTargetInfo();
	LLVMInitializeRISCVTarget();
	LLVMInitializeRISCVTargetMC();
	LLVMInitializeRISCVAsmPrinter();
	LLVMInitializeNVPTXTargetInfo();
	LLVMInitializeNVPTXTarget();
	LLVMInitializeNVPTXTargetMC();
	LLVMInitializeNVPTXAsmPrinter();
	LLVMInitializeAMDGPUTargetInfo();
	LLVMInitializeAMDGPUTarget();
	LLVMInitializeAMDGPUTargetMC();
	LLVMInitializeAMDGPUAsmPrinter();
	LLVMInitializeAMDGPUAsmParser();
}

void target_start(void)
{
	pthread_once(&started, start);
}

// Sanitizers see the compiler and not what it emits: with them, code for CPUs is what LLVM emits
// soonest.
#ifdef __SANITIZE_ADDRESS__
enum { CPU_LEVEL = LLVMCodeGenLevelNone };
#else
enum { CPU_LEVEL = LLVMCodeGenLevelDefault };
#endif

// Code of RISC-V may be anywhere, as that of other architectures, in the medium model.
LLVMTargetMachineRef target_generator(const Target *t)
{
	LLVMTargetRef target;
	char *message = NULL;
	if (LLVMGetTargetFromTriple(t->triple, &target, &message))
		fail("--target",
		     "the LLVM of this amosc has no code for %s" HELP
		     "wheels leave out GPUs of AMD: build amosc from its source",
		     t->triple);
	bool riscv = starts_with(t->triple, "riscv");
	return LLVMCreateTargetMachine(target, t->triple, t->cpu, t->features,
	                               target_device(t) ? LLVMCodeGenLevelDefault : CPU_LEVEL,
	                               t->bare ? LLVMRelocStatic : LLVMRelocPIC,
	                               riscv ? LLVMCodeModelMedium : LLVMCodeModelSmall);
}

LLVMAttributeRef attribute_new(LLVMContextRef context, const char *name, const char *value)
{
	unsigned count = (unsigned)strlen(name);
	return value
	           ? LLVMCreateStringAttribute(context, name, count, value, (unsigned)strlen(value))
	           : LLVMCreateEnumAttribute(context, LLVMGetEnumAttributeKindForName(name, count),
	                                     0);
}

void add_attribute(Value function, const char *name, const char *value)
{
	LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(function));
	LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
	                        attribute_new(context, name, value));
}

void run_llvm(LLVMModuleRef module, LLVMTargetMachineRef machine, const char *passes)
{
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef error = LLVMRunPasses(module, passes, machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (error)
		bug("LLVM: %s", LLVMGetErrorMessage(error));
}

Part target_code(Arena *arena, const Target *t, LLVMModuleRef module, LLVMTargetMachineRef machine,
                 LLVMCodeGenFileType kind)
{
	char *message = NULL;
	LLVMMemoryBufferRef buffer;
	if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &message, &buffer))
		bug("LLVM cannot emit for %s: %s", t->triple, message);
	Part part = {.count = LLVMGetBufferSize(buffer)};
	part.bytes = take_copy(arena, LLVMGetBufferStart(buffer), part.count + 1);
	LLVMDisposeMemoryBuffer(buffer);
	return part;
}

static const struct Device {
	const char *name, *models; // models: what is before the name of one; NULL: it has no models
	Target *(*target)(Arena *, const char *name, const Target *host);
} devices[] = {
    // in order of preference, the best last
    {"opencl", NULL, opencl_target},
    {"hip", "hip:", hip_target},
    {"cuda", "cuda:", cuda_target},
};

static const struct Device *device_named(const char *name) // NULL: a CPU's name
{
	for (int k = 0; k < COUNT(devices); k++) {
		const struct Device *d = &devices[k];
		if (!strcmp(name, d->name) || (d->models && starts_with(name, d->models)))
			return d;
	}
	return NULL;
}

static const Target *cpu_target(Arena *arena, const char *name, const char *mask)
{
	if (!strcmp(name, "cpu"))
		return cpu_host(arena, mask);
	if (!strcmp(name, "amx:host"))
		return amx_emulated(arena);
	const char *cpu = name + (starts_with(name, "cpu:") ? strlen("cpu:") : 0);
	Target *t = cpu_named(arena, name, cpu, mask);
	if (t)
		return t;
	if (cpu != name)
		fail_status(STATUS_USAGE, "--target", "unknown CPU '%s'; expected %s", cpu,
		            cpu_names(arena));
	t = cpu_of_triple(arena, name, mask);
	if (t)
		return t;
	fail_status(
	    STATUS_USAGE, "--target",
	    "unsupported target '%s'; expected cpu, opencl, cuda:sm_90, hip:gfx90a, an ELF triple "
	    "(%s), or a "
	    "CPU: %s",
	    name, triple_names(arena), cpu_names(arena));
}

const Target *target_named(Arena *arena, const char *name, const char *mask)
{
	target_start();
	name = name ? name : "cpu";
	const struct Device *device = device_named(name);
	return device ? device->target(arena, name, cpu_host(arena, mask))
	              : cpu_target(arena, name, mask);
}

// ---- lists ----------------------------------------------------------------------------

typedef VEC(const Target *) Targets;

static int by_preference(const void *a, const void *b)
{
	const Target *x = *(const Target *const *)a, *y = *(const Target *const *)b;
	int order = FIND(x->device, devices) - FIND(y->device, devices);
	return order ? order : strcmp(x->cpu, y->cpu);
}

// A GPU's name alone is one of its maker.
static const char *full_name(Arena *arena, const char *name)
{
	return starts_with(name, "sm_")   ? format(arena, "cuda:%s", name)
	       : starts_with(name, "gfx") ? format(arena, "hip:%s", name)
	                                  : name;
}

int target_list(Arena *arena, const char *names, const Target *const **to)
{
	VEC(const char *) words = {0};
	Targets all = {0}; // the CPU, if there is one, then devices
	target_start();
	for (const char *at = names;; at += strcspn(at, ",") + 1) {
		const char *word = format(arena, "%.*s", (int)strcspn(at, ","), at);
		word = words.count ? full_name(arena, word) : word;
		PUSH(arena, words, word);
		if (!at[strcspn(at, ",")])
			break;
	}
	for (int i = 0; i < words.count; i++)
		if (!device_named(words.at[i]))
			PUSH(arena, all, cpu_target(arena, words.at[i], NULL));
	int cpus = all.count;
	if (cpus > 1)
		fail_status(STATUS_USAGE, "--target",
		            "found two CPUs in '%s', expected one" HELP
		            "a triple is for all CPUs that run such programs",
		            names);
	const Target *host = cpus ? all.at[0] : cpu_host(arena, NULL);
	for (int i = 0; i < words.count; i++) {
		const struct Device *device = device_named(words.at[i]);
		if (!device)
			continue;
		const Target *t = device->target(arena, words.at[i], host);
		for (int k = cpus; k < all.count; k++)
			if (!strcmp(target_kind(arena, all.at[k], true),
			            target_kind(arena, t, true)))
				fail_status(STATUS_USAGE, "--target", "'%s' names %s twice", names,
				            words.at[i]);
		PUSH(arena, all, t);
	}
	qsort(all.at + cpus, (size_t)(all.count - cpus), sizeof *all.at, by_preference);
	*to = all.at;
	return all.count;
}

const char *target_device(const Target *t)
{
	return t->device;
}

Value hardware(Gen *g, const char *name, const char *emulated, LLVMTypeRef result, int n,
               Value *args)
{
	if (!g->target->emulated)
		return intrinsic(g, name, 0, NULL, n, args);
	LLVMTypeRef types[10];
	for (int k = 0; k < n; k++)
		types[k] = LLVMTypeOf(args[k]);
	LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)n, 0);
	Value f = LLVMGetNamedFunction(g->module, emulated);
	if (!f)
		f = LLVMAddFunction(g->module, emulated, type);
	return LLVMBuildCall2(g->b, type, f, args, (unsigned)n, "");
}

Value emulated_result(Gen *g, int i, LLVMTypeRef type)
{
	Value at = LLVMConstInt(g->i32, (unsigned)i, 0);
	Value bits = hardware(g, NULL, "amos_gpu_result", g->i32, 1, &at);
	return LLVMBuildBitCast(g->b, bits, type, "");
}

const char *target_system(Arena *arena, const Target *t)
{
	if (t->host)
		return target_system(arena, t->host);
	const char *abi = strrchr(t->triple, '-'), *system = abi;
	while (system > t->triple && system[-1] != '-')
		system--;
	// The runtime is the same for all 32-bit CPUs of Arm.
	bool arm = starts_with(t->triple, "arm");
	int arch = arm ? 3 : (int)strcspn(t->triple, "-");
	return format(arena, "%.*s-%s", arch, t->triple, system);
}

const Machine *target_machine(const Target *t)
{
	return t->machine;
}

const char *target_kind(Arena *arena, const Target *t, bool narrow)
{
	if (t->device)
		return t->name;
	const char *class = narrow ? t->machine->name : t->machine->plain;
	return format(arena, "%s %s", t->triple, class);
}

const char *target_text(Arena *arena, const Target *t)
{
	return format(arena, "%s, %s, %s", target_kind(arena, t, true), t->cpu, t->features);
}
