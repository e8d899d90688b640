// book.c: checks every rule of the book against the evaluator.
// Both sides of a rule are equal, the right side weighs less, and the door applies it. Then
// gradients, composites and attention (book.h).
#include "book.h"
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VARS = 24, TRIES = 20000, FLOATS = 19000, WANTED = 12, EACH = 4 * CORNERS };

typedef struct Drawing { // one random choice of a rule's variables
	Corner corner;
	Item var[VARS];
	Array slot[VARS]; // values, indexed by slot
	int nslot;
} Drawing;

static double weight(const Expr *e)
{
	double sum = e->number || e->kind != X_call || e->op == OPS ? 0 : prims[e->op].weight;
	for (int k = 0; k < e->nin; k++)
		sum += weight(e->in[k]);
	return sum;
}

static void set_kind(const Expr *e, char *kind, char to)
{
	if (e->kind == X_name && e->var >= 0 && !kind[e->var])
		kind[e->var] = to;
}

static bool is_split(const Expr *e)
{
	return e->op == O_reshape || (e->op == O_add && is_split(e->in[0]));
}

// Sets the kind of each variable in the left side: the layout letter of its attribute, 'v' a value,
// 'p' Booleans, 'w' and 'P' these next to a reshaped value, 'n' a number, 't' a type, 'R' the
// dimensions of a reshape.
static void kinds_of(const Expr *e, char *kind)
{
	set_kind(e, kind, e->number ? 'n' : 'v');
	for (int k = 0; k < e->nattr && e->op < OPS; k++)
		set_kind(e->attr[k], kind,
		         e->op == O_cast      ? 't'
		         : e->op == O_reshape ? 'R'
		                              : prims[e->op].attr[k]);
	if (e->op == O_select && e->in[0]->kind == X_name && e->in[0]->var >= 0 &&
	    (is_split(e->in[1]) || is_split(e->in[2])))
		kind[e->in[0]->var] = 'P';
	else if (e->op == O_select && !e->in[0]->number)
		set_kind(e->in[0], kind, 'p');
	if (e->op == O_attend && e->nin == 5)
		set_kind(e->in[4], kind, 'p');
	if (e->op == O_add && e->in[0]->op == O_reshape)
		set_kind(e->in[1], kind, 'w');
	for (int k = 0; k < e->nin; k++)
		kinds_of(e->in[k], kind);
}

// 'm': a mask, if a condition asks for one; 'M': the Booleans it is made of.
static void known_kinds(const Rule *r, char *kind)
{
	for (int i = 0; i < r->ntest; i++)
		if (r->test[i]->kind == X_call && !strcmp(r->test[i]->name, "causal")) {
			const Expr *mask = r->test[i]->in[0];
			bool made = mask->kind == X_call;
			while (mask->kind == X_call)
				mask = mask->in[0];
			kind[mask->var] = made ? 'M' : 'm';
		}
}

static Item random_axes(int rank)
{
	Item item = {.kind = I_list};
	bool last = below(4) > 0;
	for (int a = 0; a < rank; a++)
		if ((below(2) && !last) || (item.n == 0 && a == rank - 1))
			item.i[item.n++] = a;
	return item;
}

// Returns the shape's dimensions, sometimes with a leading 1.
static Item random_dims(const Shape *s)
{
	Item item = {.kind = I_list};
	if (below(2))
		item.i[item.n++] = 1;
	for (int a = 0; a < s->rank; a++)
		item.i[item.n++] = s->dim[a];
	return item;
}

static Shape with_axis(Shape s)
{
	Shape shape = {.rank = s.rank + 1, .dim = {1}};
	memcpy(shape.dim + 1, s.dim, sizeof *s.dim * (size_t)s.rank);
	return shape;
}

// Puts a mask of square attention scores: keys after their query are masked, or marked.
static Ref put_mask(Graph *g, const Shape *s, Elem type, bool mark)
{
	int64_t n = s->dim[s->rank - 1];
	double mask[16] = {0};
	uint8_t marks[16];
	for (int64_t i = 0; i < n * n; i++) {
		bool future = i % n > i / n;
		mask[i] = future ? -INFINITY : 0;
		marks[i] = future == mark;
	}
	Shape shape = {.rank = s->rank};
	for (int a = 0; a < s->rank; a++)
		shape.dim[a] = a < s->rank - 2 ? 1 : n;
	return put_const(g, type, shape, type == E_b8 ? (void *)marks : (void *)mask);
}

static double random_number(void)
{
	static const double few[] = {0,    1,  -1,       0.5,       2,     -2,   3,
	                             0.25, 20, INFINITY, -INFINITY, -3e38, -1e31};
	return below(2) ? few[below(COUNT(few))] : (float)(4 * uniform() - 2);
}

// Draws values of one shape, or broadcast along some axes, of f64 or, for some numbers, i64 or b8.
static void draw(Graph *g, const Rule *r, const char *kind, int number, Drawing *t)
{
	static const Elem types[] = {E_f64, E_b8, E_i64};
	int rank = 3 - below(4) % 3;
	Shape full = {.rank = rank};
	for (int a = 0; a < rank; a++)
		full.dim[a] = t->corner == AXES_OF_1 ? 1 + below(2) : 2 + below(3);
	if (rank > 1 && below(4))
		full.dim[rank - 1] = full.dim[rank - 2];
	bool split = strchr(kind, 'R') != NULL;
	for (int i = 0; i < r->nvar; i++) {
		Shape shape = full;
		for (int a = 0; a < rank && number % 2; a++)
			shape.dim[a] = below(2) ? 1 : full.dim[a];
		Elem type = number < FLOATS ? E_f64 : types[below(COUNT(types))];
		t->var[i] = (Item){.kind = I_num, .x = random_number()};
		if (kind[i] == 'A') {
			t->var[i] = random_axes(split && below(2) ? rank + 1 : rank);
		} else if (kind[i] == 'L') { // the last two axes exchanged
			int n = rank + (split && below(2));
			t->var[i] = (Item){.kind = I_list, .n = n};
			for (int a = 0; a < n; a++)
				t->var[i].i[a] = n < 2 || a < n - 2 ? a : 2 * n - 3 - a;
		} else if (kind[i] == 'R') {
			t->var[i] = random_dims(&full);
		} else if ((kind[i] == 'm' || kind[i] == 'M') && rank > 1) {
			Ref mask = put_mask(g, &full, kind[i] == 'm' ? E_f64 : E_b8, below(2));
			t->var[i] = (Item){.kind = I_ref, .ref = mask};
		} else if (kind[i] == 'a' || kind[i] == 'i') {
			t->var[i].x = below(kind[i] == 'a' ? rank : 2);
		} else if (kind[i] == 't') {
			t->var[i].x = types[below(COUNT(types))];
		} else if (strchr("vpwP", kind[i])) {
			if ((kind[i] == 'w' || kind[i] == 'P') && below(2))
				shape = with_axis(shape);
			type = kind[i] == 'p' || kind[i] == 'P' ? E_b8 : type;
			int slot =
			    add_slot(g, (Slot){.name = r->names[i], .type = type, .shape = shape});
			t->var[i] = (Item){.kind = I_ref, .ref = put_slot(g, slot)};
		}
	}
}

static void draw_slots(Arena *arena, const Graph *g, Drawing *t)
{
	for (; t->nslot < g->slots.count; t->nslot++) {
		const Slot *s = &g->slots.at[t->nslot];
		t->slot[t->nslot] = random_array(arena, s->type, s->shape);
		move_to_corner(t->corner, &t->slot[t->nslot]);
	}
}

static bool tests_hold(Scope *s, const Rule *r)
{
	for (int i = 0; i < r->ntest; i++)
		if (eval_item(s, r->test[i]).x == 0)
			return false;
	return true;
}

// True if the two outputs of g become one value at the door.
static bool same_through_door(Arena *arena, const Graph *g, const char *where)
{
	Graph *with = parse_graph(arena, where, graph_text(arena, g), book_builtin());
	return with->outs.at[0].val == with->outs.at[1].val;
}

// Returns the gradients of the slots for `r` weighted by random values.
static Array *slopes(Arena *arena, Graph *g, Ref r, const Drawing *t)
{
	bool active[VARS];
	uint64_t keep = seed;
	g->outs.count = 0;
	add_loss(arena, g, r);
	seed = keep;
	for (int s = 0; s < t->nslot; s++)
		active[s] = t->slot[s].type == E_f64;
	const Graph *with = grad_pass(arena, g, active, NULL);
	Array *all = eval_graph(arena, with, t->slot), *out = NEWS(arena, Array, t->nslot + 1);
	for (int s = 0; s < t->nslot; s++)
		if (active[s])
			out[s] =
			    all[find_output(with, format(arena, "grad:%s", g->slots.at[s].name))];
	return out;
}

static void check_slopes(Arena *arena, const Rule *r, Graph *g, Ref left, Ref right,
                         const Drawing *t)
{
	if (!is_float(val(g, left)->type) || may_differ(r->place, t->corner))
		return;
	Array *by_left = slopes(arena, g, left, t), *by_right = slopes(arena, g, right, t);
	for (int s = 0; s < t->nslot; s++) {
		double d = is_float(t->slot[s].type) ? departure(&by_left[s], &by_right[s]) : 0;
		CHECK(d < 1e-6, "%s: %s: gradients of %s differ by %g in\n%s", r->place,
		      corner_name(t->corner), g->slots.at[s].name, d, graph_text(arena, g));
	}
}

// Tries one random choice. Returns 1 if the sides were compared, 0 if it does not match the rule's
// types and conditions.
static int try_rule(const Rule *r, int number, bool *reached)
{
	Arena *arena = arena_new();
	Book plain = *book_builtin(); // neither side is rewritten
	memset(plain.rules, 0, sizeof plain.rules);
	Graph *g = graph_new(arena, r->place, &plain);
	Drawing drawn = {.corner = (Corner)(number / 2 % CORNERS)};
	char kind[VARS] = "";
	Catch c;
	int done = 0;
	kinds_of(r->left, kind);
	known_kinds(r, kind);
	if (!TRY(c)) {
		draw(g, r, kind, number, &drawn);
		Scope s = {.g = g, .book = book_builtin(), .where = r->place, .var = drawn.var};
		Item left = eval_item(&s, r->left);
		if (left.kind == I_ref && tests_hold(&s, r)) {
			Elem type = val(g, left.ref)->type;
			Shape shape = val(g, left.ref)->shape;
			Item right = eval_item(&s, r->right);
			Ref ref = item_ref(&s, &right, type);
			ref = put_expand(g, put_rank(g, ref, shape.rank), shape);
			add_out(g, "left", left.ref);
			add_out(g, "right", ref);
			CHECK(val(g, ref)->type == type, "%s: types differ", r->place);
			draw_slots(arena, g, &drawn);
			Array *all = eval_graph(arena, g, drawn.slot);
			double d =
			    (drawn.corner ? departure : difference)(&all[left.ref], &all[ref]);
			CHECK(d < 1e-6 || may_differ(r->place, drawn.corner),
			      "%s: %s: sides differ by %g in\n%s", r->place,
			      corner_name(drawn.corner), d, graph_text(arena, g));
			*reached = *reached || same_through_door(arena, g, r->place);
			check_slopes(arena, r, g, left.ref, ref, &drawn);
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
			for (int i = 0; i < FLOATS && done < EACH; i++)
				done += try_rule(r, i, &reached);
			for (int i = FLOATS; i < TRIES && done < EACH + WANTED; i++)
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
	test_gradients();
	test_attention();
	test_lines();
	printf("%d checks, %d failed\n", checks, failures);
	return failures > 0;
}
