// mma.c: computes matrix instructions. NVIDIA's, from the fragments of the PTX ISA: group = lane /
// 4, pair = lane % 4.
//   a [16, 16]: register r has row group + 8 (r % 2), columns 2 pair + 8 (r / 2) and the next
//   b [16, 8]: register r has rows 2 pair + 8 r and the next, column group
//   c [16, 8]: register r has row group + 8 (r / 2), column 2 pair + r % 2
//   of TF32, a [16, 8]: register r has row group + 8 (r % 2), column pair + 4 (r / 2)
//   b [8, 8]: register r has row pair + 4 r, column group
//   ldmatrix: register r has, of the lines of threads 8 r to 8 r + 7, line group, elements 2 pair
//   and the next; turned: of lines 2 pair and the next, element group
// AMD's, from its ISA of CDNA:
//   a [16, 16] of bf16: A[i][k] is in lane 16 (k / 4) + i, register k / 2 % 2, half k % 2
//   b [16, 16]: B[k][j] is in lane 16 (k / 4) + j, likewise
//   of f32, a [16, 4]: A[i][k] is in lane 16 k + i; b [4, 16]: B[k][j] is in lane 16 k + j
//   c [16, 16]: C[i][j] is in lane 16 (i / 4) + j, register i % 4
#include "mma.h"
#include <math.h>
#include <string.h>

static float bf16(uint32_t pair, int half)
{
	uint32_t bits = pair >> 16 * half << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void multiply(int steps, float (*a)[16], float (*b)[8], Lane *lane)
{
	for (int l = 0; l < LANES; l++)
		for (int r = 0; r < 4; r++) {
			int row = l / 4 + r / 2 * 8, column = l % 4 * 2 + r % 2;
			float sum = lane[l].c[r];
			for (int k = 0; k < steps; k++)
				sum += a[row][k] * b[k][column];
			lane[l].c[r] = sum;
		}
}

void mma_bf16(Lane *lane)
{
	float a[16][16], b[16][8];
	for (int l = 0; l < LANES; l++)
		for (int e = 0; e < 2; e++) {
			int group = l / 4, at = l % 4 * 2 + e;
			for (int r = 0; r < 4; r++)
				a[group + r % 2 * 8][at + r / 2 * 8] = bf16(lane[l].a[r], e);
			for (int r = 0; r < 2; r++)
				b[at + r * 8][group] = bf16(lane[l].b[r], e);
		}
	multiply(16, a, b, lane);
}

static float tf32(uint32_t bits) // what the instruction reads of f32
{
	float x;
	bits &= ~UINT32_C(0x1FFF);
	memcpy(&x, &bits, sizeof x);
	return x;
}

void mma_tf32(Lane *lane)
{
	float a[16][16], b[16][8];
	for (int l = 0; l < LANES; l++) {
		int group = l / 4, pair = l % 4;
		for (int r = 0; r < 4; r++)
			a[group + r % 2 * 8][pair + r / 2 * 4] = tf32(lane[l].a[r]);
		for (int r = 0; r < 2; r++)
			b[pair + r * 4][group] = tf32(lane[l].b[r]);
	}
	multiply(8, a, b, lane);
}

uint32_t round_tf32(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return isfinite(x) ? (bits + 0x1000) & ~UINT32_C(0x1FFF) : bits;
}

void mma_load(const void *const *line, bool turned, uint32_t (*result)[4])
{
	for (int l = 0; l < LANES; l++)
		for (int r = 0; r < 4; r++) {
			uint16_t pair[2];
			for (int e = 0; e < 2; e++) {
				int own = l / 4, at = l % 4 * 2 + e;
				const uint16_t *from = line[8 * r + (turned ? at : own)];
				pair[e] = from[turned ? own : at];
			}
			result[l][r] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
		}
}

// ---- AMD's ----------------------------------------------------------------------------

static float f32_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void add_products(Lane *lane, int steps, float (*a)[16], float (*b)[16])
{
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 16; j++) {
			float *sum = &lane[16 * (i / 4) + j].c[i % 4];
			for (int k = 0; k < steps; k++)
				*sum = fmaf(a[i][k], b[k][j], *sum);
		}
}

void mfma_bf16(Lane *lane)
{
	float a[16][16], b[16][16];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 16; k++) {
			const Lane *from = &lane[16 * (k / 4) + i];
			a[i][k] = bf16(from->a[k / 2 % 2], k % 2);
			b[k][i] = bf16(from->b[k / 2 % 2], k % 2);
		}
	add_products(lane, 16, a, b);
}

void mfma_f32(Lane *lane)
{
	float a[16][16], b[16][16];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 4; k++) {
			a[i][k] = f32_of(lane[16 * k + i].a[0]);
			b[k][i] = f32_of(lane[16 * k + i].b[0]);
		}
	add_products(lane, 4, a, b);
}
