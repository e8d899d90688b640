// target.h: declares what the files of targets share.
#ifndef TARGET_H
#define TARGET_H
#include "gen.h"

// target.c: the code of a module, by LLVM.
Part target_code(Arena *, const Target *, LLVMModuleRef, LLVMTargetMachineRef, LLVMCodeGenFileType);
// Calls an intrinsic of the hardware or, for an emulated target, the function of the
// emulator by the other name.
Value hardware(Gen *, const char *name, const char *emulated, LLVMTypeRef result, int n,
               Value *args);
// Returns result i of the last such function that has several: the emulator keeps them.
Value emulated_result(Gen *, int i, LLVMTypeRef);

// amx.c
void write_matrix_tile(const Gen *, const Tile *);
// Around the calls of the tile's function: its matrix registers, if it has any.
void matrix_begin(Gen *, const Tile *);
void matrix_end(Gen *, const Tile *);
// TargetOps of its parts.
int matrix_groups(const Tile *);
void matrix_begin_sums(Gen *, const Tile *, Value c, Value again);
void matrix_add(Gen *, const Tile *, Value a, Value b, Value group);
void matrix_end_sums(Gen *, const Tile *, Value steps, Value a, Value b, Value c);
Target *amx_emulated(Arena *);

// cpu.c: `mask` turns features off
Target *cpu_host(Arena *, const char *mask);
Target *cpu_named(Arena *, const char *name, const char *cpu, const char *mask); // NULL: unknown
Target *cpu_of_triple(Arena *, const char *triple, const char *mask); // NULL: unsupported
const char *cpu_names(Arena *), *triple_names(Arena *);

// ---- gpu.c: hooks of all GPUs, where a worker is a block of threads, a lane is a thread

enum { THREADS = 256, WIDEST = 16 }; // of a worker; bytes of a load
enum { GLOBAL = 1, SHARED = 3 };     // address spaces
void gpu_begin(Gen *, const char *name);
LLVMTypeRef gpu_pointer(Gen *);
void gpu_barrier(Gen *);
Loop gpu_single_begin(Gen *);
void gpu_lane_loop(Gen *, Value from, Value to, int64_t count, int unroll, LaneBody *, void *);
void gpu_prefetch(Gen *, Value from, Prefetch); // nothing
Value gpu_ticket(Gen *, Value count);
// Returns the address of entry i of `count` i64 in memory that the worker's threads share.
Value gpu_shared(Gen *, const char *name, int64_t count, Value i);

// TargetOps that are the same for all.
#define GPU_OPS                                                                                    \
	.pointer = gpu_pointer, .lane_loop = gpu_lane_loop, .barrier = gpu_barrier,                \
	.single_begin = gpu_single_begin, .prefetch = gpu_prefetch, .shared = gpu_shared,          \
	.ticket = gpu_ticket

// Of targets whose kernels call functions for what a thread knows: i64 of its number in its block,
// and of the block's; a barrier of the block; a fence.
#define GPU_THREAD  "amos_thread"
#define GPU_BLOCK   "amos_block"
#define GPU_BARRIER "amos_barrier"
#define GPU_FENCE   "amos_fence"
// For an emulated target they are functions of the emulator.
Value gpu_thread(Gen *), gpu_block(Gen *);
void gpu_all_threads(Gen *), gpu_fence(Gen *);
Value gpu_reduce(Gen *, Op, Elem, Value);
#define GPU_CALLS                                                                                  \
	.thread = gpu_thread, .block = gpu_block, .all_threads = gpu_all_threads,                  \
	.fence = gpu_fence, .reduce_lanes = gpu_reduce

// ---- barriers.c, watch.c: modules of kernels ------------------------------------------

// Functions that a module calls for barriers: of CUDA, and of the emulator; the emulator's that
// returns a block's own copy of an array.
#define CUDA_BARRIER     "llvm.nvvm.barrier0"
#define CUDA_WARP        "llvm.nvvm.bar.warp.sync"
#define EMULATED_THREAD  "amos_gpu_thread"
#define EMULATED_BLOCK   "amos_gpu_block"
#define EMULATED_BARRIER "amos_gpu_barrier"
#define EMULATED_WARP    "amos_gpu_warp_barrier"
#define EMULATED_FENCE   "amos_gpu_fence"
#define EMULATED_TICKET  "amos_gpu_ticket"
#define EMULATED_SHARED  "amos_gpu_shared"
#define EMULATED_WAIT    "amos_gpu_wait" // for copies to shared memory
// Of warpgroups: for their sums; before them; after writes of what they read.
#define EMULATED_SUMS_WAIT "amos_gpu_sums_wait"
#define EMULATED_SUMS      "amos_gpu_sums_fence"
#define EMULATED_PROXY     "amos_gpu_proxy_fence"
#define EMULATED_ADDRESS   "amos_gpu_address" // in shared memory, of 32 bits
void remove_barriers(LLVMModuleRef);
void watch_module(LLVMModuleRef);

// ---- mma.c, wgmma.c, mfma.c

extern const TileKind mma_tile, mma_rows_tile, wgmma_tile, wgmma_rows_tile, mfma_tile;

// ---- nvptx.c, opencl.c, amdgpu.c. `host`: the target that has the tables, or runs the emulator

Target *cuda_target(Arena *, const char *name, const Target *host);
Target *opencl_target(Arena *, const char *name, const Target *host);
Target *hip_target(Arena *, const char *name, const Target *host);

// ---- spirv.c
Part spirv_of(Arena *, LLVMModuleRef);

#endif
