// crc.c: computes checksums of 32 bits, reflected: those of zip files and of TensorBoard's records.
#include "core.h"

// Adds `count` bytes bit by bit.
static uint32_t add_bits(uint32_t polynomial, uint32_t crc, const unsigned char *at, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
	}
	return crc;
}

#ifndef AMOS_FREESTANDING // which has no 8 KB for tables

enum { SLICES = 8, LONG = 1 << 13 };

// Long inputs pay for tables of eight bytes' effects (Kounavis and Berry's slicing by 8).
uint32_t amos_crc(uint32_t polynomial, uint32_t crc, const void *bytes, size_t count)
{
	const unsigned char *at = bytes;
	uint32_t table[SLICES][256];
	crc = ~crc;
	if (count >= LONG) {
		for (int i = 0; i < 256; i++)
			table[0][i] = add_bits(polynomial, (uint32_t)i, (unsigned char[]){0}, 1);
		for (int k = 1; k < SLICES; k++)
			for (int i = 0; i < 256; i++)
				table[k][i] =
				    table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
		for (; count >= SLICES; at += SLICES, count -= SLICES) {
			uint32_t word[2];
			memcpy(word, at, sizeof word);
			word[0] ^= crc;
			crc = 0;
			for (int k = 0; k < SLICES; k++)
				crc ^= table[SLICES - 1 - k][word[k / 4] >> k % 4 * 8 & 255];
		}
	}
	return ~add_bits(polynomial, crc, at, count);
}

#else

uint32_t amos_crc(uint32_t polynomial, uint32_t crc, const void *bytes, size_t count)
{
	return ~add_bits(polynomial, ~crc, bytes, count);
}

#endif
