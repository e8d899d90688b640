// opencl.c: defines the target of OpenCL devices, whose kernels are SPIR-V.
// Threads reduce by memory that they share: sub-groups differ in size from device to device, and
// with them the order of a sum would.
#include "target.h"

static Value call(Gen *g, const char *name, LLVMTypeRef result)
{
	LLVMTypeRef type = LLVMFunctionType(result, NULL, 0, 0);
	Value f = LLVMGetNamedFunction(g->module, name);
	if (!f)
		f = function_new(g, name, type);
	return LLVMBuildCall2(g->b, type, f, NULL, 0, "");
}

static Value thread_number(Gen *g)
{
	return call(g, GPU_THREAD, g->i64);
}

static Value block_number(Gen *g)
{
	return call(g, GPU_BLOCK, g->i64);
}

static void barrier(Gen *g)
{
	call(g, GPU_BARRIER, LLVMVoidTypeInContext(g->context));
}

// ---- reductions across threads --------------------------------------------------------

enum { PARTS = 16, PART = THREADS / PARTS }; // each reduced by one thread; threads of it

static Value load_shared(Gen *g, Elem e, const char *name, int64_t count, Value i)
{
	Value bits = LLVMBuildLoad2(g->b, g->i64, gpu_shared(g, name, count, i), "");
	return gpu_value(g, e, bits);
}

static void store_shared(Gen *g, Elem e, const char *name, int64_t count, Value i, Value v)
{
	LLVMBuildStore(g->b, gpu_bits(g, e, v), gpu_shared(g, name, count, i));
}

// The first threads reduce the values of some threads each, then every thread reduces these
// results, in one order.
static Value reduce_threads(Gen *g, Op op, Elem e, Value v)
{
	static const char values[] = "amos_values", parts[] = "amos_parts";
	Value thread = thread_number(g);
	barrier(g);
	store_shared(g, e, values, THREADS, thread, v);
	barrier(g);
	Loop first = loop_begin(g, thread, number(g, PARTS), THREADS);
	Value from = times(g, first.i, PART), sum = load_shared(g, e, values, THREADS, from);
	for (int k = 1; k < PART; k++) {
		Value i = sum_of(g, from, number(g, k));
		sum = reduce_step(g, op, e, sum, load_shared(g, e, values, THREADS, i));
	}
	store_shared(g, e, parts, PARTS, first.i, sum);
	loop_end(g, &first);
	barrier(g);
	sum = load_shared(g, e, parts, PARTS, number(g, 0));
	for (int k = 1; k < PARTS; k++)
		sum = reduce_step(g, op, e, sum, load_shared(g, e, parts, PARTS, number(g, k)));
	return sum;
}

// ---- the target -----------------------------------------------------------------------

static Part write_module(Arena *arena, const Target *t, LLVMModuleRef module,
                         LLVMTargetMachineRef machine)
{
	(void)t, (void)machine;
	remove_barriers(module);
	return spirv_of(arena, module);
}

static const TargetOps opencl_ops = {GPU_OPS,
                                     .begin = gpu_begin,
                                     .reduce_lanes = reduce_threads,
                                     .thread = thread_number,
                                     .block = block_number,
                                     .all_threads = barrier,
                                     .write = write_module};

// LLVM simplifies the kernels as if for the host, whose pointers are as wide.
Target *opencl_target(Arena *arena, const Target *host)
{
	Target *t = NEW(arena, Target);
	*t = *host;
	t->name = "opencl";
	t->machine = machine_named("opencl");
	t->ops = &opencl_ops;
	t->device = "opencl";
	t->host = host;
	return t;
}
