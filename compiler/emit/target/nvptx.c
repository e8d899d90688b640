// nvptx.c: defines GPU targets: a worker is a block of threads, a lane is a thread.
// "cuda:sm_90" gives PTX. "cuda:host" gives the same code for this machine, with calls of an
// emulator, amos_gpu_..., for the instructions that only a GPU has.
#include "target.h"
#include <string.h>

enum { THREADS = 256, WARP = 32, GLOBAL = 1, SHARED = 3, PTX_KERNEL = 71 };

static Value special(Gen *g, const char *name, const char *emulated)
{
	Value v = hardware(g, name, emulated, g->i32, 0, NULL);
	return LLVMBuildZExt(g->b, v, g->i64, "");
}

static Value thread_number(Gen *g)
{
	return special(g, "llvm.nvvm.read.ptx.sreg.tid.x", "amos_gpu_thread");
}

static void barrier(Gen *g)
{
	hardware(g, "llvm.nvvm.barrier0", "amos_gpu_barrier", LLVMVoidTypeInContext(g->context), 0,
	         NULL);
}

// ---- one thread of the worker ---------------------------------------------------------

static void worker_barrier(Gen *g)
{
	if (!g->level->lanes)
		barrier(g);
}

static Loop single_begin(Gen *g)
{
	if (g->level->lanes)
		return (Loop){.outer = NULL};
	barrier(g);
	Loop single = loop_begin(g, thread_number(g), number(g, 1), THREADS);
	g->level->lanes = true;
	return single;
}

// Threads take the elements in turn.
static void thread_loop(Gen *g, Value from, Value to, int64_t count, int unroll, LaneBody *body,
                        void *context)
{
	(void)unroll;
	Value start = LLVMBuildAdd(g->b, from, thread_number(g), "");
	Loop loop = loop_begin(g, start, to, THREADS);
	g->level->lanes = true;
	Index unit = lane_index(g, loop.i, count, 1, NULL);
	body(g, 1, &unit, context);
	loop_end(g, &loop);
}

// ---- reductions across threads --------------------------------------------------------

static LLVMTypeRef bits_of(Gen *g, Elem e)
{
	return LLVMIntTypeInContext(g->context, 8 * (unsigned)elems[e].bytes);
}

static Value to_bits(Gen *g, Elem e, Value v)
{
	if (e == E_b8)
		return LLVMBuildZExt(g->b, v, g->i64, "");
	v = LLVMBuildBitCast(g->b, v, bits_of(g, e), "");
	return elems[e].bytes == 8 ? v : LLVMBuildZExt(g->b, v, g->i64, "");
}

static Value from_bits(Gen *g, Elem e, Value v)
{
	if (e == E_b8)
		return LLVMBuildTrunc(g->b, v, g->i1, "");
	if (elems[e].bytes < 8)
		v = LLVMBuildTrunc(g->b, v, bits_of(g, e), "");
	return LLVMBuildBitCast(g->b, v, elem_type(g, e), "");
}

static Value shuffle32(Gen *g, Value bits, int distance)
{
	Value args[4] = {LLVMConstInt(g->i32, UINT32_MAX, 0), bits,
	                 LLVMConstInt(g->i32, (unsigned)distance, 0),
	                 LLVMConstInt(g->i32, WARP - 1, 0)};
	return hardware(g, "llvm.nvvm.shfl.sync.bfly.i32", "amos_gpu_shuffle", g->i32, 4, args);
}

// Returns the value of the thread at this XOR distance in the warp.
static Value shuffle(Gen *g, Elem e, Value v, int distance)
{
	Value bits = to_bits(g, e, v);
	Value low = shuffle32(g, LLVMBuildTrunc(g->b, bits, g->i32, ""), distance);
	bits = LLVMBuildZExt(g->b, low, g->i64, "");
	if (elems[e].bytes == 8) {
		Value high = LLVMBuildLShr(g->b, to_bits(g, e, v), number(g, 32), "");
		high = shuffle32(g, LLVMBuildTrunc(g->b, high, g->i32, ""), distance);
		high = LLVMBuildShl(g->b, LLVMBuildZExt(g->b, high, g->i64, ""), number(g, 32), "");
		bits = LLVMBuildOr(g->b, bits, high, "");
	}
	return from_bits(g, e, bits);
}

// Returns the address of entry i, one per warp, in memory that the worker's threads share.
static Value shared_entry(Gen *g, Value i)
{
	LLVMTypeRef type = LLVMArrayType2(g->i64, THREADS / WARP);
	Value shared = LLVMGetNamedGlobal(g->module, "amos_warps");
	if (!shared) {
		shared = LLVMAddGlobalInAddressSpace(g->module, type, "amos_warps", SHARED);
		LLVMSetLinkage(shared, LLVMInternalLinkage);
		LLVMSetInitializer(shared,
		                   g->target->emulated ? LLVMConstNull(type) : LLVMGetUndef(type));
	}
	return LLVMBuildGEP2(g->b, g->i64, shared, &i, 1, "");
}

// Reduces within each warp by shuffles; then every thread reduces the warps' results, in one order.
static Value reduce_threads(Gen *g, Op op, Elem e, Value v)
{
	for (int distance = WARP / 2; distance; distance /= 2)
		v = reduce_step(g, op, e, v, shuffle(g, e, v, distance));
	Value warp = LLVMBuildLShr(g->b, thread_number(g), number(g, 5), "");
	barrier(g);
	LLVMBuildStore(g->b, to_bits(g, e, v), shared_entry(g, warp));
	barrier(g);
	for (int w = 0; w < THREADS / WARP; w++) {
		Value bits = LLVMBuildLoad2(g->b, g->i64, shared_entry(g, number(g, w)), "");
		Value other = from_bits(g, e, bits);
		v = w ? reduce_step(g, op, e, v, other) : other;
	}
	return v;
}

// ---- kernels and targets --------------------------------------------------------------

// void kernel(ptr buf): the worker's number is the block's.
static void begin_launch(Gen *g, const char *name)
{
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(g->context), &g->ptr, 1, 0);
	function_begin(g, name, type);
	if (!g->target->emulated)
		LLVMSetFunctionCallConv(g->function, PTX_KERNEL);
	g->buf = LLVMGetParam(g->function, 0);
	g->worker = special(g, "llvm.nvvm.read.ptx.sreg.ctaid.x", "amos_gpu_block");
}

static LLVMTypeRef global_pointer(Gen *g)
{
	return LLVMPointerTypeInContext(g->context, GLOBAL);
}

static void no_prefetch(Gen *g, Value from, Prefetch how)
{
	(void)g, (void)from, (void)how;
}

static const TargetOps thread_ops = {.begin = begin_launch,
                                     .pointer = global_pointer,
                                     .lane_loop = thread_loop,
                                     .reduce_lanes = reduce_threads,
                                     .barrier = worker_barrier,
                                     .single_begin = single_begin,
                                     .prefetch = no_prefetch};

// GPUs with the instructions that kernels use.
static const char *const gpus[] = {"sm_70", "sm_72", "sm_75", "sm_80", "sm_86",
                                   "sm_87", "sm_89", "sm_90", "sm_90a"};

Target *gpu_target(Arena *arena, const char *name, const Target *host)
{
	Target *t = NEW(arena, Target);
	bool emulated = !strcmp(name, "cuda:host");
	*t = emulated ? *host : (Target){.triple = "nvptx64-nvidia-cuda", .features = "+ptx80"};
	const char *gpu = name[4] ? name + strlen("cuda:") : "sm_90";
	int known = FIND(gpu, gpus);
	if (!emulated && known < 0) {
		Text names = {.arena = arena};
		for (int k = 0; k < COUNT(gpus); k++)
			say(&names, "%s%s", k ? ", " : "", gpus[k]);
		fail("--target", "unknown GPU '%s'; expected %s", gpu, names.at);
	}
	if (!emulated)
		t->cpu = gpus[known];
	t->name = copy_string(arena, name);
	t->machine = machine_named("cuda");
	t->ops = &thread_ops;
	t->emulated = emulated;
	t->text = !emulated;
	return t;
}
