// book_case.c: parses cases of the book's tests, draws random numbers, compares results.
#include "book.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int failures, checks;

// ---- random numbers -------------------------------------------------------------------

uint64_t seed = 1;

double uniform(void)
{
	return random_uniform(7, 0, 0, seed++);
}

int below(int n)
{
	return (int)(uniform() * n);
}

Array random_array(Arena *arena, Elem type, Shape shape)
{
	Array a = {.type = type, .shape = shape};
	int64_t count = count_of(&shape);
	a.f = NEWS(arena, double, count + 1);
	for (int64_t i = 0; i < count; i++) {
		if (is_float(type))
			a.f[i] = (float)(4 * uniform() - 2);
		else
			a.i[i] = elems[type].cls == 'b' ? below(2) : below(7) - 3;
	}
	return a;
}

// ---- cases ----------------------------------------------------------------------------

// Returns the case's graph, without a loss.
static Graph *case_graph(Arena *arena, const char *line, Array slot[CASE_SLOTS])
{
	Graph *g = graph_new(arena, line, book_builtin());
	char *text = copy_string(arena, line), *equals = strstr(text, " = ");
	*equals = 0;
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
		if (!strcmp(word, "plain")) {
			g->plain = DECOMPOSED_ALL;
			continue;
		}
		if (g->slots.count == CASE_SLOTS)
			bug("%s: more than %d slots", line, CASE_SLOTS);
		char *colon = strchr(word, ':');
		Slot s = {.type = *word == 'i' ? E_i64 : *word == 'p' ? E_b8 : E_f64};
		s.name = format(arena, "%.*s", (int)(colon - word), word);
		for (char *d = colon + 1; *d; d += *d == ',')
			s.shape.dim[s.shape.rank++] = strtol(d, &d, 10);
		Array a = random_array(arena, s.type, s.shape);
		for (int64_t i = 0; i < count_of(&s.shape); i++) {
			if (*word == 'i')
				a.i[i] = below(3);
			else if (*word == 'q')
				a.f[i] = fabs(a.f[i]) + 0.25;
			else if (*word == 'o' && below(3) == 0)
				a.f[i] = 0;
		}
		slot[add_slot(g, s)] = a;
	}
	return g;
}

static Ref look_slot(void *g, const char *name)
{
	int slot = find_slot(g, name);
	return slot < 0 ? 0 : put_slot(g, slot);
}

void add_loss(Arena *arena, Graph *g, Ref out)
{
	Shape shape = val(g, out)->shape;
	double *random = NEWS(arena, double, count_of(&shape) + 1);
	for (int64_t i = 0; i < count_of(&shape); i++)
		random[i] = 2 * uniform() - 1;
	Ref product = put2(g, O_mul, out, put_const(g, E_f64, shape, random));
	int64_t axes[RANK];
	for (int a = 0; a < shape.rank; a++)
		axes[a] = a;
	add_out(g, "loss", put_reduce(g, O_sum, product, shape.rank, axes));
}

Graph *case_value(Arena *arena, const char *line, Array slot[CASE_SLOTS])
{
	Graph *g = case_graph(arena, line, slot);
	const Expr *e = parse_text(arena, line, strstr(line, " = ") + 3);
	add_out(g, "out", eval_expr(g, line, e, look_slot, g));
	return g;
}

Graph *case_loss(Arena *arena, const char *line, Array slot[CASE_SLOTS])
{
	Graph *g = case_value(arena, line, slot);
	add_loss(arena, g, g->outs.at[0].val);
	return g;
}

// ---- comparisons ----------------------------------------------------------------------

double difference(const Array *left, const Array *right)
{
	double worst = 0;
	int64_t count = count_of(&left->shape);
	if (!same_shape(&left->shape, &right->shape))
		return INFINITY;
	for (int64_t i = 0; i < count; i++) {
		double x = element_at(left, i), y = element_at(right, i);
		if ((isnan(x) && isnan(y)) || x == y)
			continue;
		double d = fabs(x - y) / fmax(1, fabs(x));
		worst = isnan(d) ? INFINITY : fmax(worst, d);
	}
	return worst;
}

void check_same(Arena *arena, const char *what, const char *line, const Graph *a, const Graph *b,
                const Array *slot, double within)
{
	Array *left = eval_graph(arena, a, slot), *right = eval_graph(arena, b, slot);
	CHECK(a->outs.count == b->outs.count, "%s: %s: outs", line, what);
	for (int i = 0; i < a->outs.count; i++) {
		double d = difference(&left[a->outs.at[i].val], &right[b->outs.at[i].val]);
		CHECK(d <= within, "%s: %s differs by %g in %s", line, what, d, a->outs.at[i].name);
	}
}
