// target.c: finds targets by name, and initializes LLVM's.
#include "target.h"
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t started = PTHREAD_ONCE_INIT;

// LLVM aborts after this; the error is in amosc.
static void fatal(const char *reason)
{
	bug("LLVM: %s", reason);
}

// Loops are emitted in their final form: strength reduction takes a quarter of the time and
// improves nothing. Processors reorder instructions themselves: to schedule them once more, after
// registers are allocated, takes a tenth of the time. Addresses of shared memory fit in 32 bits.
static void start(void)
{
	LLVMInstallFatalErrorHandler(fatal);
	static const char *const without[] = {"amosc", "-disable-lsr", "-disable-post-ra",
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
	                               LLVMCodeGenLevelDefault,
	                               t->bare ? LLVMRelocStatic : LLVMRelocPIC,
	                               riscv ? LLVMCodeModelMedium : LLVMCodeModelSmall);
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

const Target *target_named(Arena *arena, const char *name, const char *mask)
{
	target_start();
	if (!name || !strcmp(name, "cpu"))
		return cpu_host(arena, mask);
	if (!strcmp(name, "cuda") || starts_with(name, "cuda:"))
		return cuda_target(arena, name, cpu_host(arena, mask));
	if (!strcmp(name, "hip") || starts_with(name, "hip:"))
		return hip_target(arena, name, cpu_host(arena, mask));
	if (!strcmp(name, "opencl"))
		return opencl_target(arena, cpu_host(arena, mask));
	if (!strcmp(name, "amx:host"))
		return amx_emulated(arena);
	const char *cpu = name + (starts_with(name, "cpu:") ? strlen("cpu:") : 0);
	Target *t = cpu_named(arena, name, cpu, mask);
	if (t)
		return t;
	if (cpu != name)
		fail("--target", "unknown CPU '%s'; expected %s", cpu, cpu_names(arena));
	t = cpu_of_triple(arena, name, mask);
	if (t)
		return t;
	fail("--target",
	     "unsupported target '%s'; expected cpu, opencl, cuda:sm_90, hip:gfx90a, an ELF triple "
	     "(%s), or a "
	     "CPU: %s",
	     name, triple_names(arena), cpu_names(arena));
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
