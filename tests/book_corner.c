// book_corner.c: provides inputs where equations and gradients may break, and known exceptions.
#include "book.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct {
	const char *name;
	const char *text;
} book_pages[];
extern const int book_npages;

static const char *const names[CORNERS] = {
    [ANYWHERE] = "anywhere",
    [TIES] = "ties",
    [ZEROS] = "zeros",
    [INFINITIES] = "infinities",
    [EMPTY_MASKS] = "empty masks",
    [FULL_MASKS] = "full masks",
    [HIDDEN_ROWS] = "whole rows hidden",
    [AXES_OF_1] = "axes of size 1",
};

const char *corner_name(Corner corner)
{
	return names[corner];
}

static double float_at(Corner corner, double x, int all)
{
	switch (corner) {
	case TIES:
		return floor(x) + 0.5;
	case ZEROS:
		return all || below(2) ? copysign(0, uniform() - 0.5) : x;
	case INFINITIES:
		return below(3) ? x : copysign(INFINITY, x);
	default:
		return x;
	}
}

void move_to_corner(Corner corner, Array *a)
{
	int64_t row = a->shape.rank ? MAX(a->shape.dim[a->shape.rank - 1], 1) : 1;
	int all = !below(3);
	int64_t shown = 0;
	for (int64_t i = 0; i < count_of(&a->shape); i++) {
		shown = i % row ? shown : below(2);
		if (is_float(a->type))
			a->f[i] = float_at(corner, a->f[i], all);
		else if (a->type == E_b8)
			a->i[i] = corner == EMPTY_MASKS   ? 0
			          : corner == FULL_MASKS  ? 1
			          : corner == HIDDEN_ROWS ? shown
			                                  : a->i[i];
	}
}

// ---- what holds there -------------------------------------------------------------------

// Lines of the book whose sides differ at a corner, and why no equation can hold there.
static const struct {
	const char *line; // prefix of the line
	Corner corner;
	const char *why;
} apart[] = {
    {"max(x, -inf)", INFINITIES, "at a tie any share of the gradient is one"},
    {"min(x, inf)", INFINITIES, "at a tie any share of the gradient is one"},
    {"clip(x, 0, 6)", ZEROS, "at a bound clip has slope 1, relu6 slope 0"},
    {"pow(x, 0.5)", INFINITIES, "IEEE 754 has pow(-inf, 1/2) = inf"},
    {"pow(x, -0.5)", ZEROS, "a pole; IEEE 754 has pow(-0, -1/2) = inf"},
    {"pow(x, -0.5)", INFINITIES, "IEEE 754 has pow(-inf, -1/2) = 0"},
    {"1 / sqrt(x)", ZEROS, "a pole has no slope"},
    {"x / sqrt(y)", ZEROS, "a pole has no slope"},
    {"x * (1 / y)", ZEROS, "a pole has no slope"},
    {"lse(x - y; k) + y", INFINITIES, "of a y of inf the left side is NaN, and has no slope"},
    {"(x - y) - lse(x - y; k)", INFINITIES, "of a row with inf either side has NaN"},
    {"exp(x - lse(x; k))", INFINITIES, "of a row with inf either side has NaN"},
    {"exp(x) / sum(exp(x); k)", INFINITIES, "of a row with inf either side has NaN"},
    {"x * (rsqrt(mean(x * x; k) + e) * g)", INFINITIES, "of a row with inf either side has NaN"},
    {"dot(reshape(select(p, 0, softmax(", INFINITIES,
     "a score of -inf lies below finite ones that hide"},
    {"dot(weights(scores(", INFINITIES, "of a row with inf either side has NaN"},
    {"dot(weights(biased(", INFINITIES, "of a row with inf either side has NaN"},
    {"dot(weights(masked(", INFINITIES, "a score of -inf lies below finite ones that hide"},
};

static bool starts(const char *line, const char *with)
{
	return !strncmp(line, with, strlen(with));
}

// Returns the text of the line at `place`, "PAGE:LINE".
static const char *line_at(const char *place)
{
	const char *colon = strchr(place, ':'), *text = "";
	for (int i = 0; i < book_npages; i++)
		if (starts(place, book_pages[i].name))
			text = book_pages[i].text;
	for (int n = atoi(colon + 1); n > 1 && *text; n--)
		text = strchr(text, '\n') + 1;
	return text;
}

bool may_differ(const char *place, Corner corner)
{
	for (int i = 0; i < COUNT(apart); i++)
		if (apart[i].corner == corner && starts(line_at(place), apart[i].line))
			return true;
	return false;
}

double departure(const Array *left, const Array *right)
{
	double worst = 0;
	if (!same_shape(&left->shape, &right->shape))
		return INFINITY;
	for (int64_t i = 0; i < count_of(&left->shape); i++) {
		double x = element_at(left, i), y = element_at(right, i);
		if (isnan(x) || x == y)
			continue;
		double d = fabs(x - y) / fmax(1, fabs(x));
		worst = isnan(d) ? INFINITY : fmax(worst, d);
	}
	return worst;
}
