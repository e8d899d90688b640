// mma.h: declares NVIDIA's matrix instructions, of all 32 threads of a warp at once.
#ifndef MMA_H
#define MMA_H
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 32 };
typedef struct Lane { // operands and results of a thread: pairs of bf16, or f32; sums
	uint32_t a[4], b[2];
	float c[4];
} Lane;
void mma_bf16(Lane *);      // c += a b: mma.m16n8k16
void mma_tf32(Lane *);      // mma.m16n8k8
uint32_t round_tf32(float); // cvt.rna.tf32
// ldmatrix.x4: `line`: by thread, 16 bytes; result: by thread
void mma_load(const void *const *line, bool turned, uint32_t (*result)[4]);

#endif
