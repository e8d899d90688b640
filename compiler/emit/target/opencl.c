// opencl.c: defines the target of OpenCL devices, whose kernels are SPIR-V.
#include "target.h"

static Part write_module(Arena *arena, const Target *t, LLVMModuleRef module,
                         LLVMTargetMachineRef machine)
{
	(void)t, (void)machine;
	remove_barriers(module);
	return spirv_of(arena, module);
}

// Intel's compiler for CPUs hoists loads that are the same for all threads of a block.
static const TargetOps opencl_ops = {GPU_OPS, GPU_CALLS, .begin = gpu_begin, .write = write_module,
                                     .hoists = true};

// LLVM simplifies the kernels as if for the host, whose pointers are as wide.
Target *opencl_target(Arena *arena, const char *name, const Target *host)
{
	Target *t = NEW(arena, Target);
	*t = *host;
	t->name = name;
	t->machine = machine_named("opencl");
	t->ops = &opencl_ops;
	t->device = "opencl";
	t->host = host;
	return t;
}
