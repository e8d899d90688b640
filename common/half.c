// half.c: converts between double and the two types of 16-bit floats.
#include "common.h"
#include <math.h>
#include <string.h>

double amos_from_f16(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 1023;
	double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
	                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
	                                  : ldexp(fraction, -24);
	return h & 0x8000 ? -magnitude : magnitude;
}

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

double amos_from_bf16(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
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
