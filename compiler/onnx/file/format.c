// format.c: decodes element types of few bits.
// formats.def lists them: sign, exponent and mantissa, and which bit patterns are special.
#include "file.h"
#include <math.h>
#include <string.h>

static const Format formats[] = {
#define FORMAT(name, onnx, travels, bits, exponent, mantissa, bias, special)                       \
	{#name, onnx, E_##travels, bits, exponent, mantissa, bias, F_##special},
#include "formats.def"
#undef FORMAT
};

const Format *find_format(int onnx)
{
	for (int i = 0; i < COUNT(formats); i++)
		if (formats[i].onnx == onnx)
			return &formats[i];
	return NULL;
}

bool is_integral(const Format *f)
{
	return f->special == F_signed || f->special == F_unsigned;
}

double decode(const Format *f, const uint8_t *bytes, int64_t i)
{
	uint32_t bits = bytes[i * f->bits / 8] >> (i * f->bits % 8) & ((1u << f->bits) - 1);
	bool first_bit = bits >> (f->bits - 1);
	if (is_integral(f))
		return (double)bits - (f->special == F_signed && first_bit ? 1 << f->bits : 0);
	uint32_t ones = (1u << f->mantissa) - 1, fraction = bits & ones;
	int most = (1 << f->exponent) - 1, exponent = (int)(bits >> f->mantissa) & most;
	double sign = first_bit ? -1 : 1;
	bool last = exponent == most;
	if (f->special == F_ieee && last)
		return fraction ? NAN : sign * INFINITY;
	if ((f->special == F_ones && last && fraction == ones) ||
	    (f->special == F_zero && bits == 1u << (f->bits - 1)) ||
	    (f->special == F_power && last))
		return NAN;
	if (f->special == F_power)
		return ldexp(1, exponent - f->bias);
	double whole = fraction + (exponent ? ones + 1.0 : 0);
	return sign * ldexp(whole, MAX(exponent, 1) - f->bias - f->mantissa);
}

double largest_of(const Format *f)
{
	int most = (1 << f->exponent) - 1 - (f->special == F_ieee);
	double steps = 2 - ldexp(f->special == F_ones ? 2 : 1, -f->mantissa);
	return ldexp(steps, most - f->bias);
}
