// nvptx.c: defines the targets of NVIDIA's GPUs.
// "cuda:sm_90" gives PTX. "cuda:host" and "cuda:host-sm_90a" give the code of sm_80 and sm_90a for
// this machine, with calls of an emulator, amos_gpu_..., for the instructions that only a GPU has.
#include "mma.h"
#include <string.h>

enum { WARP = 32, WARPS = THREADS / WARP, PTX_KERNEL = 71 };
enum { SWIZZLE = 1024 }; // bytes after which the order of pieces is the same, see wgmma.c

static Value special(Gen *g, const char *name, const char *emulated)
{
	Value v = hardware(g, name, emulated, g->i32, 0, NULL);
	return LLVMBuildZExt(g->b, v, g->i64, "");
}

static Value thread_number(Gen *g)
{
	return special(g, "llvm.nvvm.read.ptx.sreg.tid.x", EMULATED_THREAD);
}

static Value block_number(Gen *g)
{
	return special(g, "llvm.nvvm.read.ptx.sreg.ctaid.x", EMULATED_BLOCK);
}

static void barrier(Gen *g)
{
	Value site = LLVMConstInt(g->i32, 0, 0); // for the emulator, see watch.c
	hardware(g, CUDA_BARRIER, EMULATED_BARRIER, LLVMVoidTypeInContext(g->context),
	         g->target->emulated, &site);
}

static void warp_barrier(Gen *g)
{
	Value lanes = LLVMConstInt(g->i32, UINT32_MAX, 0); // all; for the emulator: the site
	hardware(g, CUDA_WARP, EMULATED_WARP, LLVMVoidTypeInContext(g->context), 1, &lanes);
}

static void fence(Gen *g)
{
	LLVMTypeRef none = LLVMVoidTypeInContext(g->context);
	if (g->target->emulated)
		gpu_fence(g);
	else
		assembly(g, none, "fence.acq_rel.gpu;", "~{memory}", 0, NULL);
}

// ---- reductions across threads --------------------------------------------------------

Value warp_exchange(Gen *g, Value bits, Value distance)
{
	Value args[4] = {LLVMConstInt(g->i32, UINT32_MAX, 0), bits, distance,
	                 LLVMConstInt(g->i32, WARP - 1, 0)};
	return hardware(g, "llvm.nvvm.shfl.sync.bfly.i32", "amos_gpu_shuffle", g->i32, 4, args);
}

Value warp_shuffle(Gen *g, Elem e, Value v, int distance)
{
	Value bits = gpu_bits(g, e, v), far = LLVMConstInt(g->i32, (unsigned)distance, 0);
	Value low = warp_exchange(g, LLVMBuildTrunc(g->b, bits, g->i32, ""), far);
	bits = LLVMBuildZExt(g->b, low, g->i64, "");
	if (elems[e].bytes == 8) {
		Value high = LLVMBuildLShr(g->b, gpu_bits(g, e, v), number(g, 32), "");
		high = warp_exchange(g, LLVMBuildTrunc(g->b, high, g->i32, ""), far);
		high = LLVMBuildShl(g->b, LLVMBuildZExt(g->b, high, g->i64, ""), number(g, 32), "");
		bits = LLVMBuildOr(g->b, bits, high, "");
	}
	return gpu_value(g, e, bits);
}

// Returns the address of the entry of a warp in memory that the worker's threads share.
static Value warp_entry(Gen *g, Value warp)
{
	return gpu_shared(g, "amos_warps", WARPS, warp);
}

// Reduces within each warp by shuffles; then every thread reduces the warps' results, in one order.
// A warp may have a row of its own.
static Value reduce_threads(Gen *g, Op op, Elem e, Value v)
{
	for (int distance = WARP / 2; distance; distance /= 2)
		v = reduce_step(g, op, e, v, warp_shuffle(g, e, v, distance));
	if (g->kern->sched->team)
		return v;
	Value warp = LLVMBuildLShr(g->b, thread_number(g), number(g, 5), "");
	Value lane = LLVMBuildURem(g->b, thread_number(g), number(g, WARP), "");
	barrier(g);
	Loop first = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, lane, number(g, 0), ""));
	LLVMBuildStore(g->b, gpu_bits(g, e, v), warp_entry(g, warp));
	when_end(g, &first);
	barrier(g);
	for (int w = 0; w < WARPS; w++) {
		Value bits = LLVMBuildLoad2(g->b, g->i64, warp_entry(g, number(g, w)), "");
		Value other = gpu_value(g, e, bits);
		v = w ? reduce_step(g, op, e, v, other) : other;
	}
	return v;
}

// Of f32, its error is 2 ulp, and results below the least normal number are 0.
static Value exp2_of(Gen *g, Value x)
{
	return hardware(g, "llvm.nvvm.ex2.approx.ftz.f", "amos_gpu_exp2", g->f32, 1, &x);
}

// ---- kernels and targets --------------------------------------------------------------

// Notes a property of the kernel in its code.
static void annotate(Gen *g, const char *name, unsigned n)
{
	LLVMMetadataRef part[] = {LLVMValueAsMetadata(g->function),
	                          LLVMMDStringInContext2(g->context, name, strlen(name)),
	                          LLVMValueAsMetadata(LLVMConstInt(g->i32, n, 0))};
	LLVMMetadataRef all = LLVMMDNodeInContext2(g->context, part, COUNT(part));
	LLVMAddNamedMetadataOperand(g->module, "nvvm.annotations",
	                            LLVMMetadataAsValue(g->context, all));
}

// The table is the argument itself, which all threads read at once, if it is not too long.
static void pass_table(Gen *g)
{
	int entries = g->signature->place.count;
	if (entries > AMOS_BY_VALUE)
		return;
	LLVMTypeRef table = LLVMArrayType2(g->i64, (uint64_t)entries);
	unsigned byval = LLVMGetEnumAttributeKindForName("byval", strlen("byval"));
	LLVMAddAttributeAtIndex(g->function, 1, LLVMCreateTypeAttribute(g->context, byval, table));
}

// Returns the blocks of a kernel, or of several in a launch, for which registers are left.
static int64_t blocks_of(const Gen *g)
{
	int64_t blocks = residents(g->kern->sched, g->stage);
	for (int p = 0; p < g->signature->part.count; p++) {
		const Sched *s = g->signature->part.at[p].each->kern->sched;
		blocks = MIN(blocks, residents(s, g->stage));
	}
	return blocks;
}

static void begin_launch(Gen *g, const char *name)
{
	gpu_begin(g, name);
	if (!g->target->emulated) {
		pass_table(g);
		LLVMSetFunctionCallConv(g->function, PTX_KERNEL);
		annotate(g, "maxntidx", THREADS); // which the runtime reads from the code
		annotate(g, "minctasm", (unsigned)blocks_of(g));
	}
}

static Part write_module(Arena *arena, const Target *t, LLVMModuleRef module,
                         LLVMTargetMachineRef machine)
{
	remove_barriers(module);
	if (t->emulated)
		watch_module(module);
	return target_code(arena, t, module, machine,
	                   t->emulated ? LLVMObjectFile : LLVMAssemblyFile);
}

// It begins after the arrays of the code.
static Value launch_memory(Gen *g)
{
	static const char name[] = "amos_launch_memory";
	int64_t bytes = g->kern->sched->shared;
	if (g->target->emulated)
		return gpu_shared(g, format(g->arena, "%s_%lld", name, (long long)bytes),
		                  ceil_div(bytes, 8), number(g, 0));
	Value shared = LLVMGetNamedGlobal(g->module, name);
	if (shared)
		return shared;
	shared = LLVMAddGlobalInAddressSpace(g->module, LLVMArrayType2(g->i64, 0), name, SHARED);
	LLVMSetAlignment(shared, (unsigned)MAX(g->target->align, WIDEST));
	return shared;
}

static const TargetOps cuda_ops = {GPU_OPS,
                                   .launch_memory = launch_memory,
                                   .begin = begin_launch,
                                   .reduce_lanes = reduce_threads,
                                   .thread = thread_number,
                                   .block = block_number,
                                   .all_threads = barrier,
                                   .team_threads = warp_barrier,
                                   .fence = fence,
                                   .exp2 = exp2_of,
                                   .pack = mma_pack,
                                   .matrix_kind = &mma_tile,
                                   .rows_kind = &mma_rows_tile,
                                   .group_kind = &wgmma_tile,
                                   .group_rows_kind = &wgmma_rows_tile,
                                   .write = write_module};

// GPUs with the instructions that kernels use. A GPU runs code for older ones; OLDEST is the oldest
// with a driver that is still maintained.
#define OLDEST "sm_75"
#define MATRIX "sm_80"  // the first with matrix instructions for bf16, and copies to shared memory
#define GROUPS "sm_90a" // alone has those of warpgroups
// Those after MATRIX with less shared memory than it has.
static const char *const small[] = {"sm_86", "sm_89"};
static const char *const gpus[] = {"sm_70", "sm_72", "sm_75", "sm_80", "sm_86",
                                   "sm_87", "sm_89", "sm_90", "sm_90a"};

Target *cuda_target(Arena *arena, const char *name, const Target *host)
{
	Target *t = NEW(arena, Target);
	bool emulated = starts_with(name, "cuda:host");
	*t = emulated ? *host
	              : (Target){.triple = "nvptx64-nvidia-cuda",
	                         .features = "+ptx80",
	                         .device = "cuda",
	                         .host = host};
	const char *gpu = name[4] ? name + strlen("cuda:") : OLDEST;
	gpu = !strcmp(gpu, "host") ? MATRIX : emulated ? gpu + strlen("host-") : gpu;
	int known = FIND(gpu, gpus);
	if (known < 0)
		fail_status(STATUS_USAGE, "--target", "unknown GPU '%s'; expected %s", gpu,
		            NAMES(arena, gpus, ", "));
	if (!emulated)
		t->cpu = gpus[known];
	t->name = copy_string(arena, name);
	t->machine = machine_named(!strcmp(gpu, GROUPS)          ? "cuda-sm_90a"
	                           : FIND(gpu, small) >= 0       ? "cuda-sm_86"
	                           : known >= FIND(MATRIX, gpus) ? "cuda-sm_80"
	                                                         : "cuda");
	t->align = strcmp(gpu, GROUPS) ? 0 : SWIZZLE;
	t->ops = &cuda_ops;
	t->emulated = emulated;
	return t;
}
