// mma.h: declares matrix instructions of NVIDIA's and AMD's GPUs, of all threads of a warp at once.
#ifndef MMA_H
#define MMA_H
#include <stdbool.h>
#include <stdint.h>

enum { LANES = 32, WAVE_LANES = 64 }; // of NVIDIA's, of AMD's
typedef struct Lane { // operands and results of a thread: pairs of bf16, or f32; sums
	uint32_t a[4], b[2];
	float c[4];
} Lane;
void mma_bf16(Lane *);      // c += a b: mma.m16n8k16
void mma_tf32(Lane *);      // mma.m16n8k8
uint32_t round_tf32(float); // cvt.rna.tf32
// ldmatrix.x4: `line`: by thread, 16 bytes; result: by thread
void mma_load(const void *const *line, bool turned, uint32_t (*result)[4]);
// AMD's, whose operands are of 64 bits of a, or 32, and as many of b
void mfma_bf16(Lane *); // v_mfma_f32_16x16x16bf16_1k
void mfma_f32(Lane *);  // v_mfma_f32_16x16x4f32

#endif
