// mma.h: declares matrix instructions of NVIDIA's and AMD's GPUs, of all threads of a warp at once,
// or of the 128 of a warpgroup.
#ifndef MMA_H
#define MMA_H
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 32, WAVE_LANES = 64 }; // of NVIDIA's, of AMD's
typedef struct Lane { // operands and results of a thread: pairs of bf16, or f32; sums
	uint32_t a[4], b[2];
	float c[4];
} Lane;
void mma_f16(Lane *), mma_bf16(Lane *); // c += a b: mma.m16n8k16
void mma_tf32(Lane *);                  // mma.m16n8k8
uint32_t round_tf32(float);             // cvt.rna.tf32
// ldmatrix.x4: `line`: by thread, 16 bytes; result: by thread
void mma_load(const void *const *line, bool turned, uint32_t (*result)[4]);
// AMD's, whose operands are of 64 bits of a, or 32, and as many of b
void mfma_f16(Lane *), mfma_bf16(Lane *); // v_mfma_f32_16x16x16f16, bf16_1k
void mfma_f32(Lane *);                    // v_mfma_f32_16x16x4f32

// wgmma.mma_async.m64nNk16 of bf16, or of f16. A descriptor says where an operand lies in shared
// memory; turned: not along k. Returns the numbers of the pieces of 16 bytes that an operand of so
// many rows or columns has, and how many; -1: a descriptor that the instruction does not take.
enum { GROUP = 4 * LANES, GROUP_ROWS = 64, GROUP_COLUMNS = 256, GROUP_STEPS = 16 };
enum { GROUP_PIECES = GROUP_COLUMNS * GROUP_STEPS / 8 };
int wgmma_pieces(uint64_t descriptor, int extent, bool turned, int *piece);
// held: a is in registers as of mma.m16n8k16, by thread of the warpgroup; NULL: in shared memory.
// sum: by thread
void wgmma(const char *shared, const uint64_t *descriptor, const Lane *held, int columns,
           const bool *turned, bool f16, float (*sum)[GROUP_COLUMNS / 2]);

#endif
