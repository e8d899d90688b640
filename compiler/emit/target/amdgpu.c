// amdgpu.c: defines the targets of AMD's GPUs, whose kernels are a code object, linked by lld.
// Kernels call functions for what a thread of a GPU knows, as on OpenCL's devices; here they are
// defined and inlined. "hip:host" gives the code of hip:gfx90a for this machine, as "cuda:host"
// does that of NVIDIA's GPUs.
#include "target.h"
#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HSA_KERNEL = 91 }; // a calling convention

// A barrier waits for the thread's own accesses to memory; newer GPUs count its stores separately.
// A fence, for all of the GPU, also forgets what caches hold, as LLVM does for its scope "agent"
// (that the C API cannot name). Of these, +cumode keeps the threads of a block on one compute unit,
// with one cache.
static const struct Gpu {
	const char *name, *machine, *features, *barrier, *fence;
} gpus[] = {
#define WAIT "s_waitcnt vmcnt(0) lgkmcnt(0)\n\t"
#define DONE WAIT "s_waitcnt_vscnt null, 0x0\n\t"
    {"gfx90a", "hip-gfx90a", "", WAIT "s_barrier", WAIT "buffer_wbinvl1_vol"},
    {"gfx942", "hip-gfx942", "", WAIT "s_barrier", "buffer_wbl2 sc1\n\t" WAIT "buffer_inv sc1"},
    {"gfx1100", "hip", "+cumode", DONE "s_barrier", DONE "buffer_gl1_inv\n\tbuffer_gl0_inv"},
};

// ---- functions that kernels call ------------------------------------------------------

// Begins the body of a function, if kernels call it. Returns a builder there, or NULL.
static LLVMBuilderRef begin_body(LLVMModuleRef module, const char *name)
{
	LLVMValueRef f = LLVMGetNamedFunction(module, name);
	LLVMContextRef context = LLVMGetModuleContext(module);
	if (!f)
		return NULL;
	LLVMSetLinkage(f, LLVMInternalLinkage);
	add_attribute(f, "alwaysinline", NULL);
	LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
	LLVMPositionBuilderAtEnd(b, LLVMAppendBasicBlockInContext(context, f, ""));
	return b;
}

static void define_number(LLVMModuleRef module, const char *name, const char *intrinsic)
{
	LLVMBuilderRef b = begin_body(module, name);
	LLVMContextRef context = LLVMGetModuleContext(module);
	if (!b)
		return;
	unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
	Value number =
	    LLVMBuildCall2(b, LLVMIntrinsicGetType(context, id, NULL, 0),
	                   LLVMGetIntrinsicDeclaration(module, id, NULL, 0), NULL, 0, "");
	LLVMBuildRet(b, LLVMBuildZExt(b, number, LLVMInt64TypeInContext(context), ""));
	LLVMDisposeBuilder(b);
}

static void define_assembly(LLVMModuleRef module, const char *name, const char *text)
{
	LLVMBuilderRef b = begin_body(module, name);
	LLVMContextRef context = LLVMGetModuleContext(module);
	if (!b)
		return;
	char memory[] = "~{memory}";
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
	Value code = LLVMGetInlineAsm(type, (char *)text, strlen(text), memory, strlen(memory), 1,
	                              0, LLVMInlineAsmDialectATT, 0);
	Value call = LLVMBuildCall2(b, type, code, NULL, 0, "");
	LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex,
	                         attribute_new(context, "convergent", NULL));
	add_attribute(LLVMGetNamedFunction(module, name), "convergent", NULL);
	LLVMBuildRetVoid(b);
	LLVMDisposeBuilder(b);
}

static void begin_launch(Gen *g, const char *name)
{
	static_assert(THREADS == 256, "as the attribute says");
	static const char *const unused[] = {
	    // what a GPU would give to each thread
	    "amdgpu-no-implicitarg-ptr", "amdgpu-no-dispatch-ptr",   "amdgpu-no-queue-ptr",
	    "amdgpu-no-dispatch-id",     "amdgpu-no-workgroup-id-y", "amdgpu-no-workgroup-id-z",
	    "amdgpu-no-workitem-id-y",   "amdgpu-no-workitem-id-z",  "amdgpu-no-lds-kernel-id"};
	gpu_begin(g, name);
	if (g->target->emulated)
		return;
	LLVMSetFunctionCallConv(g->function, HSA_KERNEL);
	LLVMSetVisibility(g->function, LLVMProtectedVisibility);
	add_attribute(g->function, "amdgpu-flat-work-group-size", "256,256");
	add_attribute(g->function, "uniform-work-group-size", "true");
	for (int k = 0; k < COUNT(unused); k++)
		add_attribute(g->function, unused[k], "");
}

static Part write_module(Arena *arena, const Target *t, LLVMModuleRef module,
                         LLVMTargetMachineRef machine)
{
	remove_barriers(module);
	if (t->emulated) {
		watch_module(module);
		return target_code(arena, t, module, machine, LLVMObjectFile);
	}
	define_number(module, GPU_THREAD, "llvm.amdgcn.workitem.id.x");
	define_number(module, GPU_BLOCK, "llvm.amdgcn.workgroup.id.x");
	for (int k = 0; k < COUNT(gpus); k++)
		if (!strcmp(gpus[k].name, t->cpu)) {
			define_assembly(module, GPU_BARRIER, gpus[k].barrier);
			define_assembly(module, GPU_FENCE, gpus[k].fence);
		}
	// Loops that test last: else the sums of matrix instructions are copied in each iteration.
	run_llvm(module, machine, "always-inline,function(sroa,loop(loop-rotate))");
	return target_code(arena, t, module, machine, LLVMObjectFile);
}

// ---- code objects ---------------------------------------------------------------------

static int memory_file(void)
{
	int file = memfd_create("amosc", 0); // lld inherits it
	if (file < 0)
		need_done(amos_fail_errno("link", "the kernels"));
	return file;
}

static Part read_part(Arena *arena, int file)
{
	struct stat about;
	if (fstat(file, &about))
		need_done(amos_fail_errno("link", "the kernels"));
	Part part = {.count = (size_t)about.st_size};
	char *bytes = take(arena, part.count + 1);
	for (size_t at = 0; at < part.count;) {
		ssize_t n = pread(file, bytes + at, part.count - at, (off_t)at);
		if (n <= 0)
			need_done(amos_fail_errno("link", "the kernels"));
		at += (size_t)n;
	}
	part.bytes = bytes;
	return part;
}

// Links the object of all kernels as the shared object that HIP's loader takes.
static Part link_kernels(Arena *arena, const Part *object, const char *lld)
{
	int in = memory_file(), out = memory_file();
	for (size_t at = 0; at < object->count;) {
		ssize_t n = write(in, object->bytes + at, object->count - at);
		if (n <= 0)
			need_done(amos_fail_errno("link", "the kernels"));
		at += (size_t)n;
	}
	char *words[] = {copy_string(arena, lld),
	                 "-shared",
	                 "--no-undefined",
	                 "-o",
	                 "-",
	                 format(arena, "/proc/self/fd/%d", in),
	                 NULL};
	int status = run_program(words, NULL, out, STDERR_FILENO);
	Part part = {0};
	if (!status)
		part = read_part(arena, out);
	close(in);
	close(out);
	if (status)
		fail_status(STATUS_MACHINE, "--target hip",
		            "%s failed to link the kernels" HELP "install lld 19", lld);
	return part;
}

static const TargetOps hip_ops = {GPU_OPS,
                                  GPU_CALLS,
                                  .begin = begin_launch,
                                  .matrix_kind = &mfma_tile,
                                  .write = write_module,
                                  .link = link_kernels};
// The emulator's kernels are objects of the host.
static const TargetOps emulated_ops = {GPU_OPS, GPU_CALLS, .begin = begin_launch,
                                       .matrix_kind = &mfma_tile, .write = write_module};

Target *hip_target(Arena *arena, const char *name, const Target *host)
{
	Target *t = NEW(arena, Target);
	bool emulated = !strcmp(name, "hip:host");
	const char *gpu = name[3] && !emulated ? name + strlen("hip:") : gpus[0].name;
	int known = FIND(gpu, gpus);
	if (known < 0)
		fail_status(STATUS_USAGE, "--target", "unknown GPU '%s'; expected %s", gpu,
		            NAMES(arena, gpus, ", "));
	*t = emulated ? *host
	              : (Target){.triple = "amdgcn-amd-amdhsa",
	                         .cpu = gpus[known].name,
	                         .features = gpus[known].features,
	                         .device = "hip",
	                         .host = host};
	t->name = copy_string(arena, name);
	t->machine = machine_named(gpus[known].machine);
	t->ops = emulated ? &emulated_ops : &hip_ops;
	t->emulated = emulated;
	return t;
}
