// matrix.c: emulates the matrix registers of AMX, which code for the target amx:host calls.
// Numbers are those of Intel's manual: products of even and of odd elements are added up
// separately, then with each other, and denormal numbers are zeros.
#include "matrix.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS = 8, ROWS = 16, BYTES = 64 };

static _Thread_local struct {
	unsigned char rows[REGISTERS];
	uint16_t bytes[REGISTERS];
	unsigned char data[REGISTERS][ROWS][BYTES];
	bool configured;
} state;

static void demand(bool is, const char *what)
{
	if (is)
		return;
	fprintf(stderr, "matrix.c: invalid instruction: %s\n", what);
	abort();
}

static int valid(int8_t i)
{
	demand(state.configured && i >= 0 && i < REGISTERS && state.rows[i] && state.bytes[i],
	       "a register that is not configured");
	return i;
}

void amos_matrix_configure(const void *from)
{
	const unsigned char *byte = from;
	memset(&state, 0, sizeof state);
	demand(byte[0] == 1 && byte[1] == 0, "palette");
	for (int i = 2; i < BYTES; i++)
		demand(!byte[i] || (i >= 16 && i < 16 + 2 * REGISTERS) ||
		           (i >= 48 && i < 48 + REGISTERS),
		       "reserved bytes");
	memcpy(state.bytes, byte + 16, sizeof state.bytes);
	memcpy(state.rows, byte + 48, sizeof state.rows);
	for (int i = 0; i < REGISTERS; i++)
		demand(state.rows[i] <= ROWS && state.bytes[i] <= BYTES &&
		           !state.rows[i] == !state.bytes[i],
		       "sizes");
	state.configured = true;
}

void amos_matrix_release(void)
{
	memset(&state, 0, sizeof state);
}

void amos_matrix_clear(int8_t to)
{
	memset(state.data[valid(to)], 0, sizeof state.data[0]);
}

void amos_matrix_load(int8_t to, const void *from, int64_t stride)
{
	amos_matrix_clear(to);
	for (int r = 0; r < state.rows[to]; r++)
		memcpy(state.data[to][r], (const char *)from + r * stride, state.bytes[to]);
}

void amos_matrix_store(int8_t from, void *to, int64_t stride)
{
	for (int r = 0; r < state.rows[valid(from)]; r++)
		memcpy((char *)to + r * stride, state.data[from][r], state.bytes[from]);
}

static float flushed(float x)
{
	return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float element(int8_t i, int row, int column)
{
	uint16_t half;
	memcpy(&half, state.data[i][row] + 2 * column, sizeof half);
	uint32_t bits = (uint32_t)half << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return flushed(x);
}

void amos_matrix_multiply(int8_t sum, int8_t a, int8_t b)
{
	int pairs = state.bytes[valid(a)] / 4, columns = state.bytes[valid(b)] / 4;
	demand(sum != a && sum != b && a != b, "one register twice");
	demand(state.rows[valid(sum)] == state.rows[a] && state.bytes[sum] == state.bytes[b] &&
	           state.rows[b] == pairs && state.bytes[a] % 4 == 0,
	       "sizes of a product");
	for (int r = 0; r < state.rows[a]; r++)
		for (int c = 0; c < columns; c++) {
			float total, part[2] = {0, 0};
			for (int k = 0; k < pairs; k++)
				for (int odd = 0; odd < 2; odd++)
					part[odd] =
					    flushed(fmaf(element(a, r, 2 * k + odd),
					                 element(b, k, 2 * c + odd), part[odd]));
			memcpy(&total, state.data[sum][r] + 4 * c, sizeof total);
			total = flushed(flushed(total) + flushed(part[0] + part[1]));
			memcpy(state.data[sum][r] + 4 * c, &total, sizeof total);
		}
}
