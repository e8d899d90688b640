// half.c: converts double to f16 and bf16.
#include "common.h"
#include <math.h>
#include <string.h>

// Rounds to nearest, ties to even.
uint16_t amos_to_f16(double x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double magnitude = fabs(x);
	if (isnan(x))
		return sign | 0x7E00;
	if (magnitude >= 65520)
		return sign | 0x7C00;
	if (magnitude < 0x1p-14)
		return sign | (uint16_t)nearbyint(magnitude * 0x1p24);
	int exponent;
	double fraction = frexp(magnitude, &exponent); // in [1/2, 1)
	// A fraction rounded up to 2048 carries into the exponent, as it should.
	return sign | (uint16_t)(((exponent + 13) << 10) + nearbyint(fraction * 2048));
}

uint16_t amos_to_bf16(double x)
{
	float f = (float)x;
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	if (isnan(f))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
