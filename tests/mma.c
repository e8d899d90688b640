// mma.c: computes matrix instructions. NVIDIA's, from the fragments of the PTX ISA: group = lane /
// 4, pair = lane % 4.
//   a [16, 16]: register r has row group + 8 (r % 2), columns 2 pair + 8 (r / 2) and the next
//   b [16, 8]: register r has rows 2 pair + 8 r and the next, column group
//   c [16, 8]: register r has row group + 8 (r / 2), column 2 pair + r % 2
//   of TF32, a [16, 8]: register r has row group + 8 (r % 2), column pair + 4 (r / 2)
//   b [8, 8]: register r has row pair + 4 r, column group
//   ldmatrix: register r has, of the lines of threads 8 r to 8 r + 7, line group, elements 2 pair
//   and the next; turned: of lines 2 pair and the next, element group
//   of warpgroups, sums [64, N]: register r of warp w has row 16 w + group + 8 (r / 2 % 2), column
//   8 (r / 4) + 2 pair + r % 2; their operands are in shared memory
// AMD's, from its ISA of CDNA:
//   a [16, 16] of halves: A[i][k] is in lane 16 (k / 4) + i, register k / 2 % 2, half k % 2
//   b [16, 16]: B[k][j] is in lane 16 (k / 4) + j, likewise
//   of f32, a [16, 4]: A[i][k] is in lane 16 k + i; b [4, 16]: B[k][j] is in lane 16 k + j
//   c [16, 16]: C[i][j] is in lane 16 (i / 4) + j, register i % 4
#include "mma.h"
#include "freestanding.h"
#include <math.h>
#include <string.h>

typedef double Widen(uint16_t);

static float element(uint32_t pair, int half, Widen *widen)
{
	return (float)widen((uint16_t)(pair >> 16 * half));
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

static void multiply_halves(Lane *lane, Widen *widen)
{
	float a[16][16], b[16][8];
	for (int l = 0; l < LANES; l++)
		for (int e = 0; e < 2; e++) {
			int group = l / 4, at = l % 4 * 2 + e;
			for (int r = 0; r < 4; r++)
				a[group + r % 2 * 8][at + r / 2 * 8] =
				    element(lane[l].a[r], e, widen);
			for (int r = 0; r < 2; r++)
				b[at + r * 8][group] = element(lane[l].b[r], e, widen);
		}
	multiply(16, a, b, lane);
}

void mma_f16(Lane *lane)
{
	multiply_halves(lane, amos_from_f16);
}

void mma_bf16(Lane *lane)
{
	multiply_halves(lane, amos_from_bf16);
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

static void multiply_waves(Lane *lane, Widen *widen)
{
	float a[16][16], b[16][16];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 16; k++) {
			const Lane *from = &lane[16 * (k / 4) + i];
			a[i][k] = element(from->a[k / 2 % 2], k % 2, widen);
			b[k][i] = element(from->b[k / 2 % 2], k % 2, widen);
		}
	add_products(lane, 16, a, b);
}

void mfma_f16(Lane *lane)
{
	multiply_waves(lane, amos_from_f16);
}

void mfma_bf16(Lane *lane)
{
	multiply_waves(lane, amos_from_bf16);
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

// ---- warpgroups -----------------------------------------------------------------------

typedef struct Operand { // what a descriptor says, in bytes
	int start, blocks, groups, line;
} Operand;

static Operand operand_of(uint64_t descriptor)
{
	static const int line[] = {16, 128, 64, 32}; // 16: no swizzle
	return (Operand){.start = (int)(descriptor & 0x3FFF) * 16,
	                 .blocks = (int)(descriptor >> 16 & 0x3FFF) * 16,
	                 .groups = (int)(descriptor >> 32 & 0x3FFF) * 16,
	                 .line = line[descriptor >> 62]};
}

// Returns the byte of an element. Lines of 8 rows, columns or steps are a group; what is not along
// k is in blocks as wide as a line. Bits 4 to 6 of an address that count pieces of a line are XORed
// with those from bit 7 on.
static int byte_of(const Operand *x, bool turned, int other, int k)
{
	int line = turned ? k : other, at = 2 * (turned ? other : k);
	int byte = x->start + line / 8 * x->groups + line % 8 * x->line;
	byte += turned ? at / x->line * x->blocks + at % x->line : at;
	return byte ^ ((byte >> 7 & (x->line / 16 - 1)) << 4);
}

int wgmma_pieces(uint64_t descriptor, int extent, bool turned, int *piece)
{
	Operand x = operand_of(descriptor);
	int n = 0;
	int pattern = 8 * x.line;
	// Bits of no meaning here; lines without swizzle, which lie in another way; groups that do
	// not begin where the swizzle's patterns do.
	if (descriptor & ~UINT64_C(0xC0003FFF3FFF3FFF) || x.line < 32 || x.groups % pattern ||
	    x.start % pattern >= x.line || (turned && x.blocks % pattern))
		return -1;
	for (int other = 0; other < extent; other += turned ? 8 : 1)
		for (int k = 0; k < GROUP_STEPS; k += turned ? 1 : 8)
			piece[n++] = byte_of(&x, turned, other, k) / 16;
	return n;
}

static int row_of(int thread, int r) // of a sum
{
	return thread / LANES * 16 + thread % LANES / 4 + r / 2 % 2 * 8;
}

static int column_of(int thread, int r)
{
	return r / 4 * 8 + thread % 4 * 2 + r % 2;
}

static void read_held(const Lane *held, Widen *widen, float (*a)[GROUP_STEPS])
{
	for (int t = 0; t < GROUP; t++)
		for (int r = 0; r < 4; r++)
			for (int e = 0; e < 2; e++)
				a[row_of(t, 0) + r % 2 * 8][t % 4 * 2 + r / 2 * 8 + e] =
				    element(held[t].a[r], e, widen);
}

void wgmma(const char *shared, const uint64_t *descriptor, const Lane *held, int columns,
           const bool *turned, bool f16, float (*sum)[GROUP_COLUMNS / 2])
{
	static float a[GROUP_ROWS][GROUP_STEPS], b[GROUP_STEPS][GROUP_COLUMNS];
	static float c[GROUP_ROWS][GROUP_COLUMNS];
	Operand x = operand_of(descriptor[0]), y = operand_of(descriptor[1]);
	Widen *widen = f16 ? amos_from_f16 : amos_from_bf16;
	for (int k = 0; k < GROUP_STEPS; k++) {
		uint16_t bits;
		for (int i = 0; i < GROUP_ROWS && !held; i++) {
			memcpy(&bits, shared + byte_of(&x, turned[0], i, k), sizeof bits);
			a[i][k] = (float)widen(bits);
		}
		for (int j = 0; j < columns; j++) {
			memcpy(&bits, shared + byte_of(&y, turned[1], j, k), sizeof bits);
			b[k][j] = (float)widen(bits);
		}
	}
	if (held)
		read_held(held, widen, a);
	for (int t = 0; t < GROUP; t++)
		for (int r = 0; r < columns / 2; r++)
			c[row_of(t, r)][column_of(t, r)] = sum[t][r];
	for (int i = 0; i < GROUP_ROWS; i++)
		for (int k = 0; k < GROUP_STEPS; k++)
			for (int j = 0; j < columns; j++)
				c[i][j] += a[i][k] * b[k][j];
	for (int t = 0; t < GROUP; t++)
		for (int r = 0; r < columns / 2; r++)
			sum[t][r] = c[row_of(t, r)][column_of(t, r)];
}
