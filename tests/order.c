// order.c: checks Unique, TopK and NonMaxSuppression against loops in C.
// Random integers, many of them equal, evaluated and compiled; and the cost of compiling. Prints
// what differs; then status 1. usage: order SEED ROUNDS
#include "build.h"
#include "emitted.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLOAT = 1, INT64 = 7 };

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state >> 33) % (uint64_t)n);
}

typedef struct Case {
	const char *what;
	Build *model;
	const Graph *g;
	Array *slot, *value;
} Case;

// ---- models ---------------------------------------------------------------------------

// Outputs after number `first` are integers.
static Case case_of(const char *op, const char *operands, const char *outputs, int first)
{
	size_t n;
	Case c = {.what = op, .model = build(18)};
	char **out = names(outputs, &n);
	add_to(c.model, node(op, operands, outputs));
	for (size_t i = 0; i < n; i++)
		PUSH(arena, c.model->outputs, value(out[i], i ? INT64 : first, "?"));
	return c;
}

static void add_number(Case *c, const char *name, int type, double x)
{
	float real = (float)x;
	int64_t integer = (int64_t)x, none = 0;
	PUSH(arena, c->model->tensors,
	     raw(tensor(name, type, type == INT64, type == INT64 ? &(int64_t){1} : &none),
	         type == INT64 ? (void *)&integer : (void *)&real, type == INT64 ? 8 : 4));
}

static void set_int(Case *c, const char *name, int64_t x)
{
	attribute(c->model->nodes.at[0], name)->i = x;
}

static void add_input(Case *c, const char *name, const char *dims)
{
	PUSH(arena, c->model->inputs, value(name, FLOAT, copy_string(arena, dims)));
}

// Reads the model and fills its inputs with integers from 0 to `most`.
static void open_case(Case *c, int64_t most)
{
	Model *m = read_packed(c->model, &(ReadOptions){0});
	c->g = m->graph;
	c->slot = NEWS(arena, Array, c->g->slots.count + 1);
	for (int s = 0; s < c->g->slots.count; s++) {
		const Slot *slot = &c->g->slots.at[s];
		int64_t n = count_of(&slot->shape);
		c->slot[s] = (Array){.type = slot->type, .shape = slot->shape};
		c->slot[s].f = NEWS(arena, double, n + 1);
		for (int64_t i = 0; i < n; i++)
			c->slot[s].f[i] = (double)below(most + 1);
	}
}

static void run_case(Case *c)
{
	c->value = eval_graph(arena, c->g, c->slot);
}

static const Array *input(const Case *c, const char *name)
{
	return &c->slot[find_slot(c->g, name)];
}

static const Array *output(const Case *c, const char *name)
{
	Ref r = find_output(c->g, name);
	return r ? &c->value[r] : NULL;
}

// Returns the number of valid entries of an output along its axis.
static int64_t length(const Case *c, const char *name, int axis)
{
	const Array *sizes = output(c, format(arena, SHAPE_OF "%s", name));
	return sizes ? sizes->i[axis] : output(c, name)->shape.dim[axis];
}

static bool off(const Case *c, const char *what, int64_t at)
{
	printf("%s: %s [%lld] is off\n", c->what, what, (long long)at);
	return false;
}

static bool agrees(const Case *c, const Target *target)
{
	return check_graph(arena, c->g, c->slot, target, plain_launch, 1e-5, NULL, c->what) <= 1;
}

// ---- Unique ---------------------------------------------------------------------------

typedef struct Entries { // along an axis: n entries of m values
	const double *x;
	int64_t n, m, step, jump; // entry i, value k: x[i * step + k * jump]
} Entries;

static int compare(const Entries *e, int64_t i, int64_t j)
{
	for (int64_t k = 0; k < e->m; k++) {
		double a = e->x[i * e->step + k * e->jump], b = e->x[j * e->step + k * e->jump];
		if (a != b)
			return a < b ? -1 : 1;
	}
	return 0;
}

// Finds the first entry of each distinct value, in order.
static int64_t find_kinds(const Entries *e, bool sorted, int64_t *first)
{
	int64_t kinds = 0;
	for (int64_t i = 0; i < e->n; i++) {
		int64_t at = kinds;
		bool known = false;
		for (int64_t k = 0; k < kinds; k++)
			known |= !compare(e, first[k], i);
		if (known)
			continue;
		for (; sorted && at > 0 && compare(e, i, first[at - 1]) < 0; at--)
			first[at] = first[at - 1];
		first[at] = i;
		kinds++;
	}
	return kinds;
}

static bool check_kinds(const Case *c, const Entries *e, bool sorted, int axis)
{
	int64_t *first = NEWS(arena, int64_t, e->n + 1), kinds = find_kinds(e, sorted, first);
	const Array *y = output(c, "y"), *at = output(c, "i"), *number = output(c, "j"),
	            *times = output(c, "t");
	if (length(c, "y", axis) != kinds || length(c, "t", 0) != kinds)
		return off(c, "the count", length(c, "y", axis));
	int64_t step = e->jump == 1 ? e->m : 1, jump = e->jump == 1 ? 1 : y->shape.dim[1];
	for (int64_t k = 0; k < kinds; k++) {
		int64_t n = 0;
		for (int64_t i = 0; i < e->n; i++) {
			bool same = !compare(e, i, first[k]);
			n += same;
			if (same && number->i[i] != k)
				return off(c, "the number", i);
		}
		if (at->i[k] != first[k] || times->i[k] != n)
			return off(c, "the place", k);
		for (int64_t i = 0; i < e->m; i++)
			if (y->f[k * step + i * jump] != e->x[first[k] * e->step + i * e->jump])
				return off(c, "the value", k);
	}
	return true;
}

static bool try_unique(const Target *target, int64_t most)
{
	int64_t n = 1 + below(most), m = 1 + below(3), how = below(3), sorted = below(2);
	Case c = case_of("Unique", "x", "y,i,j,t", FLOAT);
	c.what =
	    format(arena, "Unique of %lld x %lld, %s %lld, sorted %lld", (long long)n, (long long)m,
	           how < 2 ? "axis" : "no axis", (long long)how, (long long)sorted);
	add_input(&c, "x", format(arena, "%lld,%lld", (long long)n, (long long)m));
	if (how < 2)
		set_int(&c, "axis", how);
	set_int(&c, "sorted", sorted);
	open_case(&c, 1 + below(6));
	run_case(&c);
	Entries e = {input(&c, "x")->f, n, m, m, 1};
	if (how == 1)
		e = (Entries){e.x, m, n, 1, m};
	else if (how == 2)
		e = (Entries){e.x, n * m, 1, 1, 1};
	return check_kinds(&c, &e, sorted, how == 1) && agrees(&c, target);
}

// ---- TopK -----------------------------------------------------------------------------

static bool check_top(const Case *c, int64_t rows, int64_t n, int64_t k, bool largest)
{
	const double *x = input(c, "x")->f;
	const Array *y = output(c, "y"), *at = output(c, "i");
	for (int64_t r = 0; r < rows; r++)
		for (int64_t p = 0; p < k; p++) {
			int64_t i = at->i[r * k + p], before = 0;
			for (int64_t j = 0; j < n; j++) {
				double a = x[r * n + i], b = x[r * n + j];
				before += (largest ? b > a : b < a) || (a == b && j < i);
			}
			if (before != p || y->f[r * k + p] != x[r * n + i])
				return off(c, "entry", p);
		}
	return true;
}

static bool try_top(const Target *target, int64_t most)
{
	int64_t rows = 1 + below(3), n = 1 + below(most), k = 1 + below(n), largest = below(2);
	Case c = case_of("TopK", "x,k", "y,i", FLOAT);
	c.what = format(arena, "TopK %lld of %lld x %lld, largest %lld", (long long)k,
	                (long long)rows, (long long)n, (long long)largest);
	add_input(&c, "x", format(arena, "%lld,%lld", (long long)rows, (long long)n));
	add_number(&c, "k", INT64, (double)k);
	set_int(&c, "largest", largest);
	open_case(&c, 1 + below(n));
	run_case(&c);
	return check_top(&c, rows, n, k, largest) && agrees(&c, target);
}

// ---- NonMaxSuppression ----------------------------------------------------------------

typedef struct Scene {
	int64_t images, classes, n, most;
	double overlap, least;
} Scene;

// Returns the intersection over union of two boxes.
static double shared(const double *a, const double *b)
{
	double both = 1, one = 1, other = 1;
	for (int k = 0; k < 2; k++) {
		double low[2] = {fmin(a[k], a[k + 2]), fmin(b[k], b[k + 2])};
		double high[2] = {fmax(a[k], a[k + 2]), fmax(b[k], b[k + 2])};
		both *= fmax(0, fmin(high[0], high[1]) - fmax(low[0], low[1]));
		one *= high[0] - low[0];
		other *= high[1] - low[1];
	}
	double all = one + other - both;
	return all > 0 ? both / all : 0;
}

// Returns the best remaining box of one class, or -1; removes it and the boxes that overlap it.
static int64_t take_best(const Scene *s, const double *boxes, const double *score, bool *gone)
{
	int64_t best = -1;
	for (int64_t i = 0; i < s->n; i++)
		if (!gone[i] && score[i] > s->least && (best < 0 || score[i] > score[best]))
			best = i;
	for (int64_t i = 0; best >= 0 && i < s->n; i++)
		gone[i] |= i == best || shared(boxes + 4 * i, boxes + 4 * best) > s->overlap;
	return best;
}

static bool check_boxes(const Case *c, const Scene *s)
{
	const double *boxes = input(c, "b")->f, *score = input(c, "s")->f;
	const int64_t *y = output(c, "y")->i;
	int64_t found = 0, count = length(c, "y", 0);
	for (int64_t image = 0; image < s->images; image++)
		for (int64_t kind = 0; kind < s->classes; kind++) {
			bool *gone = NEWS(arena, bool, s->n + 1);
			for (int64_t round = 0; round < s->most; round++, found++) {
				int64_t i =
				    take_best(s, boxes + image * s->n * 4,
				              score + (image * s->classes + kind) * s->n, gone);
				if (i < 0)
					break;
				if (found >= count || y[3 * found] != image ||
				    y[3 * found + 1] != kind || y[3 * found + 2] != i)
					return off(c, "box", found);
			}
		}
	return found == count || off(c, "the count", count);
}

static bool try_boxes(const Target *target, int64_t most)
{
	Scene s = {1 + below(2),    1 + below(3),           1 + below(most),
	           below(most) + 1, 0.1 * (double)below(8), (double)below(5)};
	s.overlap = (float)s.overlap;
	Case c = case_of("NonMaxSuppression", "b,s,m,o,l", "y", INT64);
	c.what =
	    format(arena, "NonMaxSuppression of %lld x %lld x %lld, %lld of a class",
	           (long long)s.images, (long long)s.classes, (long long)s.n, (long long)s.most);
	add_input(&c, "b", format(arena, "%lld,%lld,4", (long long)s.images, (long long)s.n));
	add_input(&c, "s",
	          format(arena, "%lld,%lld,%lld", (long long)s.images, (long long)s.classes,
	                 (long long)s.n));
	add_number(&c, "m", INT64, (double)s.most);
	add_number(&c, "o", FLOAT, s.overlap);
	add_number(&c, "l", FLOAT, s.least);
	open_case(&c, 4 + below(20));
	run_case(&c);
	return check_boxes(&c, &s) && agrees(&c, target);
}

// ---- all operators --------------------------------------------------------------------

typedef bool Try(const Target *, int64_t most);

int main(int argc, char **argv)
{
	static const struct {
		Try *try;
		int64_t most, large;
	} tries[] = {{try_unique, 40, 1500}, {try_top, 20, 1500}, {try_boxes, 25, 300}};
	int wrong = 0, rounds = argc > 2 ? atoi(argv[2]) : 12, done = 0;
	state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	for (int i = 0; i < rounds; i++)
		for (int k = 0; k < COUNT(tries); k++, done++) {
			arena = arena_new();
			const Target *target = target_named(arena, "cpu", NULL);
			wrong += !tries[k].try(target, i % 6 == 5 ? tries[k].large : tries[k].most);
			arena_free(arena);
		}
	printf("order: %d cases, %d are off\n", done, wrong);
	return wrong || !done;
}
