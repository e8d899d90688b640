// from_half.c: converts the two types of 16-bit floats to double.
#include "freestanding.h"

double amos_from_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

double amos_from_f16(uint16_t h)
{
	uint32_t exponent = h >> 10 & 31, fraction = h & 1023, bits;
	double magnitude = fraction * 0x1p-24;
	float f;
	if (exponent) {
		bits = exponent < 31 ? (exponent + 112) << 23 | fraction << 13
		                     : 0x7F800000u | (fraction ? 0x400000 : 0);
		memcpy(&f, &bits, sizeof f);
		magnitude = f;
	}
	return h & 0x8000 ? -magnitude : magnitude;
}
