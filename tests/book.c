// book.c: the book against the evaluator. Every rule means the same on both sides, weighs less on
// the right and is reached through the door; every whole equals its definition; every gradient
// equals finite differences; graphs print as they read.
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

#define CHECK(ok, ...)                                                                             \
	do {                                                                                       \
		checks++;                                                                          \
		if (!(ok)) {                                                                       \
			failures++;                                                                \
			printf("FAIL " __VA_ARGS__);                                               \
			printf("\n");                                                              \
		}                                                                                  \
	} while (0)

// ---- random numbers
// ------------------------------------------------------------------------------------

static uint64_t seed = 1;

static double uniform(void)
{
	return random_uniform(7, 0, 0, seed++);
}

static int below(int n)
{
	return (int)(uniform() * n);
}

static Array random_array(Arena *arena, Elem type, Shape shape)
{
	Array a = {.type = type, .shape = shape};
	int64_t count = count_of(&shape);
	a.f = NEWS(arena, double, count + 1);
	for (int64_t i = 0; i < count; i++) {
		if (elems[type].cls == 'f')
			a.f[i] = (float)(4 * uniform() - 2);
		else
			a.i[i] = elems[type].cls == 'b' ? below(2) : below(7) - 3;
	}
	return a;
}

// ---- rules: both sides
// -----------------------------------------------------------------------------------

enum { VARS = 24, TRIES = 400, WANTED = 12 };

typedef struct Trial { // one drawing of a rule's variables
	Item var[VARS];
	Array slot[VARS]; // of the values, by slot
	int nslot;
} Trial;

static double weight(const Expr *e)
{
	double sum = e->number || e->kind != X_call || e->op == OPS ? 0 : prims[e->op].weight;
	for (int k = 0; k < e->nin; k++)
		sum += weight(e->in[k]);
	return sum;
}

// What stands where in the left side: for each variable the layout letter of its attribute, 'v' a
// value, 'n' a number.
static void kinds_of(const Expr *e, char *kind)
{
	if (e->kind == X_name && e->var >= 0 && !kind[e->var])
		kind[e->var] = e->number ? 'n' : 'v';
	for (int k = 0; k < e->nattr; k++)
		if (e->attr[k]->kind == X_name && e->attr[k]->var >= 0 && !kind[e->attr[k]->var])
			kind[e->attr[k]->var] =
			    e->op == O_cast ? 't' : attr_layout(prims[e->op].attr)[k];
	for (int k = 0; k < e->nin; k++)
		kinds_of(e->in[k], kind);
}

static Item random_axes(int rank)
{
	Item item = {.kind = I_list};
	for (int a = 0; a < rank; a++)
		if (below(2) || (item.n == 0 && a == rank - 1))
			item.i[item.n++] = a;
	return item;
}

static double random_number(void)
{
	static const double few[] = {0, 1, -1, 0.5, 2, -2, 3, 0.25, 20, INFINITY};
	return below(2) ? few[below(COUNT(few))] : (float)(4 * uniform() - 2);
}

// Values of one shape, or stretched along some axes; of f64, or where the trial's number says, i64
// or b8.
static void draw(Arena *arena, Graph *g, const Rule *r, const char *kind, int number, Trial *t)
{
	static const Elem types[] = {E_f64, E_b8, E_i64};
	int rank = 1 + below(3);
	Shape full = {.rank = rank};
	for (int a = 0; a < rank; a++)
		full.dim[a] = 2 + below(3);
	for (int i = 0; i < r->nvar; i++) {
		Shape shape = full;
		for (int a = 0; a < rank && number % 2; a++)
			shape.dim[a] = below(2) ? 1 : full.dim[a];
		Elem type = number < TRIES / 2 ? E_f64 : types[below(COUNT(types))];
		t->var[i] = (Item){.kind = I_num, .x = random_number()};
		if (kind[i] == 'A') {
			t->var[i] = random_axes(rank);
		} else if (kind[i] == 'a') {
			t->var[i].x = below(rank);
		} else if (kind[i] == 't') {
			t->var[i].x = types[below(COUNT(types))];
		} else if (kind[i] == 'v') {
			t->slot[t->nslot] = random_array(arena, type, shape);
			int slot =
			    add_slot(g, (Slot){.name = r->names[i], .type = type, .shape = shape});
			t->var[i] = (Item){.kind = I_ref, .ref = put_slot(g, slot)};
			t->nslot++;
		}
	}
}

static bool tests_hold(Scope *s, const Rule *r)
{
	for (int i = 0; i < r->ntest; i++)
		if (eval_item(s, r->test[i]).x == 0)
			return false;
	return true;
}

static double element(const Array *a, int64_t i)
{
	return elems[a->type].cls == 'f' ? a->f[i] : (double)a->i[i];
}

// Largest difference, relative to 1 or the number; where `right` is smaller it is stretched. NaN
// equals NaN.
static double difference(const Array *left, const Array *right)
{
	double worst = 0;
	int64_t stride[RANK];
	row_strides(&right->shape, stride);
	int64_t count = count_of(&left->shape);
	for (int64_t i = 0; i < count; i++) {
		int64_t at = 0, rest = i;
		for (int a = left->shape.rank - 1, b = right->shape.rank - 1; a >= 0; a--, b--) {
			int64_t index = rest % left->shape.dim[a];
			rest /= left->shape.dim[a];
			if (b >= 0 && right->shape.dim[b] > 1)
				at += index * stride[b];
		}
		double x = element(left, i), y = element(right, at);
		if ((isnan(x) && isnan(y)) || x == y)
			continue;
		double d = fabs(x - y) / fmax(1, fabs(x));
		worst = isnan(d) ? INFINITY : fmax(worst, d);
	}
	return worst;
}

static double graph_weight(Arena *arena, const Graph *g)
{
	double sum = 0;
	bool *live = graph_marks(arena, g);
	for (int r = 1; r < g->nval; r++)
		sum += live[r] ? prims[g->val[r].op].weight : 0;
	return sum;
}

// One trial: 1 when the sides were compared, 0 when the drawing does not fit the rule (types,
// tests).
static int try_rule(const Rule *r, int number, bool *reached)
{
	Arena *arena = arena_new();
	Graph *g = graph_new(arena, r->place, NULL), *with = NULL;
	Trial trial = {.nslot = 0};
	char kind[VARS] = "";
	Catch c;
	int done = 0;
	kinds_of(r->left, kind);
	if (!TRY(c)) {
		draw(arena, g, r, kind, number, &trial);
		Scope s = {.g = g, .book = book_builtin(), .where = r->place, .var = trial.var};
		Item left = eval_item(&s, r->left);
		if (left.kind == I_ref && tests_hold(&s, r)) {
			Elem type = val(g, left.ref)->type;
			Item right = eval_item(&s, r->right);
			Ref ref = item_ref(&s, &right, type);
			add_out(g, "left", left.ref);
			add_out(g, "right", ref);
			CHECK(val(g, ref)->type == type, "%s: types differ", r->place);
			Array *all = eval_graph(arena, g, trial.slot);
			double d = difference(&all[left.ref], &all[ref]);
			CHECK(d < 1e-6, "%s: sides differ by %g", r->place, d);
			g->outs.count = 1;
			with = parse_graph(arena, r->place, graph_text(arena, g), book_builtin());
			*reached |= graph_weight(arena, with) < graph_weight(arena, g);
			done = 1;
		}
		catch_end(&c);
	} else {
		free(c.message);
	}
	arena_free(arena);
	return done;
}

static void test_rules(void)
{
	int nrule = 0;
	for (int op = 0; op < OPS; op++) {
		for (Rule *r = book_builtin()->rules[op]; r; r = r->next, nrule++) {
			bool reached = false;
			int done = 0;
			for (int i = 0; i < TRIES && done < WANTED; i++)
				done += try_rule(r, i, &reached);
			for (int i = TRIES / 2; i < TRIES && done < WANTED; i++)
				done += try_rule(r, i, &reached);
			CHECK(done >= WANTED, "%s: applies to %d of %d drawings only", r->place,
			      done, TRIES);
			CHECK(reached, "%s: the door never takes it", r->place);
			CHECK(weight(r->right) < weight(r->left),
			      "%s: weighs %g on the left, %g on the right", r->place,
			      weight(r->left), weight(r->right));
		}
	}
	printf("%d rules: both sides, weight, reached\n", nrule);
}

int main(void)
{
	test_rules();
	printf("%d checks, %d failed\n", checks, failures);
	return failures > 0;
}
