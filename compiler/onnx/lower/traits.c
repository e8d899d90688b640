// traits.c: finds what the elements of a weight have in common: masks, sines, grids, filters and
// other tables that no parameter is initialized with.
// Invariant: ordinary weights, of any size, are left after a few elements.
#include "lower.h"
#include <math.h>

typedef struct Lines {   // of a table along one axis
	int64_t n, step; // entries of a line; from one to the next
	int64_t count;   // of lines
} Lines;

static Lines lines_along(const Weight *w, int axis)
{
	Lines l = {.n = w->shape.dim[axis], .step = 1};
	for (int a = axis + 1; a < w->shape.rank; a++)
		l.step *= w->shape.dim[a];
	l.count = l.n ? count_of(&w->shape) / l.n : 0;
	return l;
}

// Returns the first element of line i.
static int64_t line_start(const Lines *l, int64_t i)
{
	return i / l->step * l->step * l->n + i % l->step;
}

static bool along_any(Reader *r, Weight *w, bool (*is)(Reader *, Weight *, int axis))
{
	for (int a = 0; a < w->shape.rank; a++)
		if (is(r, w, a))
			return true;
	return false;
}

typedef struct Circles { // where cosines and sines lie in a line
	int64_t first;   // line
	int64_t apart;   // entries from a cosine to its sine
	int64_t block;   // entries of half cosines, half sines
	bool unit;       // the circles have radius 1
} Circles;

typedef struct Point {
	double x, y;
} Point;

// True if pairs of elements along an axis, cosine and sine, lie on circles of radius 1. Else each
// line has its own, and angles vary: a Fourier transform under a window.
static bool on_circles(Reader *r, Weight *w, int axis, Circles c)
{
	const Lines l = lines_along(w, axis);
	int64_t least = c.unit ? 2 : 4, count = l.count - c.first;
	bool varies = c.unit;
	if (c.apart < 1 || l.n % c.block || c.block % 2 || l.n < least || count < least)
		return false;
	for (int64_t i = 0; i < count; i++) {
		int64_t line =
		    line_start(&l, c.first + (i + count / 2) % count); // windows end in zeros
		double first = weight_number(r, w, line);
		double radius =
		    c.unit ? 1 : hypot(first, weight_number(r, w, line + c.apart * l.step));
		double slack = c.unit ? 5e-4 : 1e-3 * radius + 1e-6;
		if (!i && !(radius > 0))
			return false;
		for (int64_t k = 0; k < l.n / 2; k++) {
			int64_t half = c.block / 2,
			        at = line + (k / half * c.block + k % half) * l.step;
			double x = weight_number(r, w, at),
			       y = weight_number(r, w, at + c.apart * l.step);
			if (fabs(hypot(x, y) - radius) > slack)
				return false;
			varies |= fabs(fabs(x) - fabs(first)) > 1e-2 * radius;
		}
	}
	return varies;
}

// Returns the pair k of line i as a point: the sum of its squares over its sum.
static Point pair_at(Reader *r, Weight *w, const Lines *l, Circles c, int64_t i, int64_t k)
{
	int64_t half = c.block / 2,
	        at = line_start(l, c.first + i) + (k / half * c.block + k % half) * l->step;
	double x = weight_number(r, w, at), y = weight_number(r, w, at + c.apart * l->step);
	return (Point){x + y, x * x + y * y};
}

// True if pairs of elements along the last axis lie on one circle around a point (m, m), as sines
// and cosines do that are scaled and from which their mean is subtracted. Then the sum of the
// squares of a pair is a linear function of its sum. Two values always are such a function.
static bool on_one_circle(Reader *r, Weight *w, Circles c)
{
	enum { LEAST = 6, FIRST = 16 }; // pairs in all; lines that determine the circle
	const Lines l = lines_along(w, w->shape.rank - 1);
	int64_t pairs = l.n / 2, count = l.count - c.first;
	if (c.apart < 1 || l.n % c.block || c.block % 2 || count < 2 || count * pairs < LEAST)
		return false;
	Point low = {INFINITY, 0}, high = {-INFINITY, 0};
	for (int64_t i = 0; i < MIN(count, FIRST); i++)
		for (int64_t k = 0; k < MIN(pairs, FIRST); k++) {
			Point p = pair_at(r, w, &l, c, i, k);
			low = p.x < low.x ? p : low;
			high = p.x > high.x ? p : high;
		}
	double slope = (high.y - low.y) / (high.x - low.x), at_0 = low.y - slope * low.x,
	       square = at_0 + slope * slope / 2; // of the radius
	if (!(square > 1e-12 && isfinite(square)))
		return false;
	for (int64_t i = 0; i < count; i++)
		for (int64_t k = 0; k < pairs; k++) {
			Point p = pair_at(r, w, &l, c, i, k);
			if (!(fabs(at_0 + slope * p.x - p.y) <= 1e-3 * square))
				return false;
		}
	return !has_few_values(r, w, 4);
}

// True if line i is 0: of the class token, which has no position.
static bool is_zero_line(Reader *r, Weight *w, const Lines *l, int64_t i)
{
	for (int64_t k = 0; k < l->n; k++)
		if (weight_number(r, w, line_start(l, i) + k * l->step) != 0)
			return false;
	return true;
}

// True for sines and cosines of positions along the last axis, also shifted and scaled: in halves,
// in pairs or, of two coordinates, in quarters. The first line may be 0.
static bool is_sinusoid(Reader *r, Weight *w)
{
	int last = w->shape.rank - 1;
	if (last < 1)
		return false;
	const Lines l = lines_along(w, last);
	int64_t first = l.count && is_zero_line(r, w, &l, 0), n = l.n;
	const Circles orders[] = {
	    {first, n / 2, n, true}, {first, 1, 2, true}, {first, n / 4, n / 2, true}};
	for (int i = 0; i < COUNT(orders); i++)
		if (on_circles(r, w, last, orders[i]) || on_one_circle(r, w, orders[i]))
			return true;
	return false;
}

static bool is_fourier(Reader *r, Weight *w)
{
	int last = w->shape.rank - 1;
	const int64_t rows = w->shape.dim[0], n = last > 0 ? w->shape.dim[last] : 0;
	return last > 0 && (on_circles(r, w, 0, (Circles){0, rows / 2, rows, false}) ||
	                    on_circles(r, w, last, (Circles){0, n / 2, n, false}));
}

// True if it may be filters, an interpolation or a graph's edges: no negative element, and not all
// equal.
static bool is_filter_bank(Reader *r, Weight *w)
{
	enum { LEAST = 16, LOOK = 4096 };
	int64_t n = count_of(&w->shape);
	double first = n ? weight_number(r, w, 0) : 0;
	bool differ = false;
	for (int64_t i = 0; i < n; i++) {
		double x = weight_number(r, w, i);
		differ |= x != first;
		if (x < 0 || !isfinite(x) || (i == LOOK && !differ))
			return false;
	}
	return n >= LEAST && differ;
}

// True for a vector whose elements rise or fall: a schedule.
static bool is_schedule(Reader *r, Weight *w)
{
	enum { SHORTEST = 8 };
	int64_t n = count_of(&w->shape);
	bool rises = true, falls = true;
	for (int64_t i = 1; i < n; i++) {
		double step = weight_number(r, w, i) - weight_number(r, w, i - 1);
		rises &= step > 0;
		falls &= step < 0;
	}
	return n >= SHORTEST && w->shape.rank == 1 && (rises || falls);
}

// True for few numbers, such as those of edge filters: initial values of a parameter are
// equal or differ.
static bool is_of_few(Reader *r, Weight *w)
{
	enum { LEAST = 9, FEW = 5 };
	return count_of(&w->shape) >= LEAST && has_few_values(r, w, FEW) &&
	       !has_few_values(r, w, 1);
}

// True if it has a basis of polynomials, of cosines or the like along an axis: its first line is
// constant, and its third a linear function of the squares of its second.
static bool is_basis_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 5, ORDER = 3 };
	int other = 0;
	while (other == axis || w->shape.dim[other] < 2)
		other++;
	const Lines l = lines_along(w, other);
	int64_t next = lines_along(w, axis).step;
	double first = weight_number(r, w, 0), least = INFINITY, most = 0, at_least = 0,
	       at_most = 0;
	if (w->shape.dim[axis] < ORDER || l.n < SHORTEST || first == 0)
		return false;
	for (int64_t i = 0; i < l.n; i++) {
		double x = fabs(weight_number(r, w, next + i * l.step)),
		       y = weight_number(r, w, 2 * next + i * l.step);
		if (weight_number(r, w, i * l.step) != first)
			return false;
		at_least = x < least ? y : at_least;
		at_most = x > most ? y : at_most;
		least = MIN(least, x);
		most = MAX(most, x);
	}
	double slope = (at_most - at_least) / (most * most - least * least), size = 0, worst = 0;
	for (int64_t i = 0; i < l.n; i++) {
		double x = weight_number(r, w, next + i * l.step),
		       y = weight_number(r, w, 2 * next + i * l.step);
		size = MAX(size, fabs(y));
		worst = MAX(worst, fabs(at_least + slope * (x * x - least * least) - y));
	}
	return isfinite(slope) && slope != 0 && worst < 1e-4 * size;
}

static bool is_basis(Reader *r, Weight *w)
{
	for (int a = 0; a < w->shape.rank && wide_axes(&w->shape) == 2; a++)
		if (w->shape.dim[a] > 1 && is_basis_along(r, w, a))
			return true;
	return false;
}

// True if it hides scores: a softmax turns one of its elements into zero.
static bool hides(Reader *r, Weight *w)
{
	enum { HIDDEN = -50 };
	for (int64_t i = 0; i < count_of(&w->shape); i++)
		if (!(weight_number(r, w, i) > HIDDEN))
			return true;
	return false;
}

// True if all elements are one of two values. Of two elements, any are, but a mask has 0 and 1.
static bool two_values(Reader *r, Weight *w)
{
	int64_t n = count_of(&w->shape);
	for (int64_t i = 0; i < n && n <= 2; i++) {
		double x = weight_number(r, w, i);
		if (x != 0 && x != 1)
			return false;
	}
	return has_few_values(r, w, 2);
}

// True if it is a grid or distances: straight lines along an axis, each with at most one bend.
static bool is_regular_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 5 };
	const Lines l = lines_along(w, axis);
	if (l.n < SHORTEST)
		return false;
	for (int64_t i = 0; i < l.count; i++) {
		int bends = 0;
		for (int64_t k = 1; k < l.n - 1 && bends <= 1; k++) {
			int64_t at = line_start(&l, i) + k * l.step;
			double before = weight_number(r, w, at - l.step),
			       x = weight_number(r, w, at),
			       after = weight_number(r, w, at + l.step);
			bends += fabs(before - 2 * x + after) >
			         1e-4 * (fabs(before) + fabs(x) + fabs(after));
		}
		if (bends > 1)
			return false;
	}
	return true;
}

// True if elements of a line are a geometric series, such as frequencies or slopes.
static bool is_series(Reader *r, Weight *w, const Lines *l, int64_t start)
{
	for (int64_t k = 1; k < l->n - 1; k++) {
		int64_t at = start + k * l->step;
		double before = weight_number(r, w, at - l->step), x = weight_number(r, w, at),
		       after = weight_number(r, w, at + l->step);
		if (!(fabs(before * after - x * x) <= 1e-4 * x * x) || x == 0)
			return false;
	}
	return true;
}

// True if all lines along an axis are straight or geometric series, and none is constant.
static bool is_grid_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 5 };
	const Lines l = lines_along(w, axis);
	if (l.n < SHORTEST)
		return false;
	bool series = true;
	for (int64_t i = 0; i < l.count; i++) {
		int64_t at = line_start(&l, i);
		if (weight_number(r, w, at) == weight_number(r, w, at + l.step))
			return false;
		series = series && is_series(r, w, &l, at);
	}
	return series || is_regular_along(r, w, axis);
}

static bool is_grid(Reader *r, Weight *w)
{
	return along_any(r, w, is_grid_along);
}

static bool is_regular(Reader *r, Weight *w)
{
	return along_any(r, w, is_regular_along);
}

typedef struct Wave { // the line that starts at an element
	bool is;      // it obeys x[k - 1] + x[k + 1] = turn x[k]
	bool varies;  // its elements differ
	double turn;  // 2 cos of the angle between elements
} Wave;

// Sines of large angles, in f32, have errors of up to `slack`.
static Wave wave_at(Reader *r, Weight *w, const Lines *l, int64_t start)
{
	const double slack = 2e-3, least_change = 1e-2;
	double most = 0, low = INFINITY, high = -INFINITY, peak = 0, sum = 0;
	for (int64_t k = 0; k < l->n; k++) {
		double x = weight_number(r, w, start + k * l->step);
		most = MAX(most, fabs(x));
		low = MIN(low, x);
		high = MAX(high, x);
		if (!k || k == l->n - 1 || fabs(x) <= fabs(peak))
			continue;
		peak = x;
		sum = weight_number(r, w, start + (k - 1) * l->step) +
		      weight_number(r, w, start + (k + 1) * l->step);
	}
	Wave wave = {.varies = high - low > least_change * most,
	             .turn = peak != 0 ? sum / peak : 0};
	for (int64_t k = 1; k < l->n - 1; k++) {
		int64_t at = start + k * l->step;
		double error = weight_number(r, w, at - l->step) +
		               weight_number(r, w, at + l->step) -
		               wave.turn * weight_number(r, w, at);
		if (!(fabs(error) <= slack * most))
			return wave;
	}
	wave.is = fabs(wave.turn) <= 2 + slack;
	return wave;
}

// True if all lines along an axis are waves, one of them is no straight line, and a quarter of them
// varies: low frequencies do not.
static bool is_waves_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 5, PART = 4 };
	const double straight = 1.99;
	const Lines l = lines_along(w, axis);
	int64_t vary = 0, turn = 0;
	for (int64_t i = 0; i < l.count && l.n >= SHORTEST; i++) {
		const Wave wave = wave_at(r, w, &l, line_start(&l, i));
		if (!wave.is)
			return false;
		vary += wave.varies;
		turn += wave.varies && wave.turn < straight;
	}
	return turn && vary * PART >= l.count;
}

static bool is_waves(Reader *r, Weight *w)
{
	return along_any(r, w, is_waves_along);
}

// True for zeros and ones: initial values of parameters are one or the other.
static bool is_mask(Reader *r, Weight *w)
{
	bool met[2] = {false};
	for (int64_t i = 0; i < count_of(&w->shape); i++) {
		double x = weight_number(r, w, i);
		if (x != 0 && x != 1)
			return false;
		met[x != 0] = true;
	}
	return met[0] && met[1];
}

typedef struct Mirror { // what element n - k + shift of a line is to element k
	int shift;      // -1, or 0 for a periodic line
	double sign;
} Mirror;

// True if the line that starts at an element is its mirror image, but for what `most`, its largest
// element, rounds off.
static bool is_image(Reader *r, Weight *w, const Lines *l, int64_t start, Mirror m, double most)
{
	for (int64_t k = m.shift + 1; k < l->n; k++) {
		double x = weight_number(r, w, start + k * l->step),
		       y = weight_number(r, w, start + (l->n - k + m.shift) * l->step);
		if (!(fabs(x - m.sign * y) <= 1e-6 * most && isfinite(most)))
			return false;
	}
	return true;
}

// True if every line along an axis that varies mirrors itself, and one does: a window, filters or
// coordinates. A large tensor is none of them.
static bool is_mirrored_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 3, PERIOD = 8, MOST = 1 << 20 };
	static const Mirror mirrors[] = {{-1, 1}, {-1, -1}, {0, 1}};
	const Lines l = lines_along(w, axis);
	bool is[COUNT(mirrors)] = {true, true, l.n >= PERIOD}, varies = false;
	bool any = l.n >= SHORTEST && l.n * l.count <= MOST;
	for (int64_t i = 0; i < l.count && any; i++) {
		int64_t start = line_start(&l, i);
		double low = INFINITY, high = -INFINITY;
		for (int64_t k = 0; k < l.n; k++) {
			double x = weight_number(r, w, start + k * l.step);
			low = MIN(low, x);
			high = MAX(high, x);
		}
		if (low == high)
			continue;
		varies = true;
		any = false;
		for (int m = 0; m < COUNT(mirrors); m++)
			any |= is[m] = is[m] && is_image(r, w, &l, start, mirrors[m],
			                                 MAX(fabs(low), fabs(high)));
	}
	return any && varies;
}

// True for a symmetric matrix that is not diagonal, such as the Laplacian of a graph.
static bool is_symmetric(Reader *r, Weight *w)
{
	enum { SMALLEST = 3, LOOK = 8 }; // rows that are read if all elements are equal
	int64_t n = (int64_t)sqrt((double)count_of(&w->shape));
	bool square = wide_axes(&w->shape) == 2 && n >= SMALLEST, other = false;
	for (int a = 0; a < w->shape.rank; a++)
		square &= w->shape.dim[a] == 1 || w->shape.dim[a] == n;
	double first = square ? weight_number(r, w, 0) : 0;
	bool varies = false;
	for (int64_t i = 0; i < n && square && (varies || i < LOOK); i++)
		for (int64_t k = 0; k < i; k++) {
			double x = weight_number(r, w, i * n + k),
			       y = weight_number(r, w, k * n + i);
			if (!(fabs(x - y) <= 1e-6 * (fabs(x) + fabs(y))))
				return false;
			other |= x != 0;
			varies |= x != first;
		}
	return other && varies;
}

static bool is_mirrored(Reader *r, Weight *w)
{
	return along_any(r, w, is_mirrored_along) || is_symmetric(r, w);
}

// True if all elements differ and are powers of the fourth root of 2, as slopes of few heads are.
static bool is_powers(Reader *r, Weight *w)
{
	enum { LEAST = 2, MOST = 128, ROOT = 4 };
	int64_t n = count_of(&w->shape);
	for (int64_t i = 0; i < n && n <= MOST; i++) {
		double x = weight_number(r, w, i), power = ROOT * log2(x);
		if (!(x > 0 && x < 1 && fabs(power - round(power)) < 1e-5))
			return false;
		for (int64_t k = 0; k < i; k++)
			if (weight_number(r, w, k) == x)
				return false;
	}
	return n >= LEAST && n <= MOST && wide_axes(&w->shape) == 1;
}

bool has_trait(Reader *r, Weight *w, Trait trait)
{
	static bool (*const tests[TRAITS])(Reader *, Weight *) = {
	    [T_hides] = hides,        [T_two] = two_values,       [T_sines] = is_sinusoid,
	    [T_regular] = is_regular, [T_fourier] = is_fourier,   [T_bank] = is_filter_bank,
	    [T_basis] = is_basis,     [T_grid] = is_grid,         [T_waves] = is_waves,
	    [T_mask] = is_mask,       [T_schedule] = is_schedule, [T_few] = is_of_few,
	    [T_mirror] = is_mirrored, [T_powers] = is_powers};
	signed char *found = &w->origin->found[trait];
	if (!*found)
		*found = tests[trait](r, w) ? 1 : -1;
	return *found > 0;
}
