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

// ---- random numbers -------------------------------------------------------------------

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
		if (is_float(type))
			a.f[i] = (float)(4 * uniform() - 2);
		else
			a.i[i] = elems[type].cls == 'b' ? below(2) : below(7) - 3;
	}
	return a;
}

// ---- rules: both sides ----------------------------------------------------------------

enum { VARS = 24, TRIES = 20000, FLOATS = 19000, WANTED = 12 };

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

static void set_kind(const Expr *e, char *kind, char to)
{
	if (e->kind == X_name && e->var >= 0 && !kind[e->var])
		kind[e->var] = to;
}

// What stands where in the left side: for each variable the layout letter of its attribute, 'v' a
// value, 'p' truth values, 'w' and 'P' these beside something reshaped, 'n' a number, 't' a type,
// 'R' the dimensions of a reshape.
static void kinds_of(const Expr *e, char *kind)
{
	set_kind(e, kind, e->number ? 'n' : 'v');
	for (int k = 0; k < e->nattr && e->op < OPS; k++)
		set_kind(e->attr[k], kind,
		         e->op == O_cast      ? 't'
		         : e->op == O_reshape ? 'R'
		                              : attr_layout(prims[e->op].attr)[k]);
	if (e->op == O_select && e->in[2]->op == O_reshape)
		kind[e->in[0]->var] = 'P';
	else if (e->op == O_select && !e->in[0]->number)
		set_kind(e->in[0], kind, 'p');
	if (e->op == O_add && e->in[0]->op == O_reshape)
		set_kind(e->in[1], kind, 'w');
	for (int k = 0; k < e->nin; k++)
		kinds_of(e->in[k], kind);
}

// 'm': a mask, where a test asks for one; 'M': the truth values it is made of.
static void known_kinds(const Rule *r, char *kind)
{
	for (int i = 0; i < r->ntest; i++)
		if (r->test[i]->kind == X_call && !strcmp(r->test[i]->name, "causal")) {
			const Expr *mask = r->test[i]->in[0];
			bool made = mask->kind == X_call;
			kind[made ? mask->in[0]->var : mask->var] = made ? 'M' : 'm';
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

// The shape's dimensions, behind one of 1 or not.
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

// Of the scores of a square of queries and keys: keys behind their query are hidden, or marked.
static Ref put_mask(Graph *g, const Shape *s, Elem type, bool mark)
{
	int64_t n = s->dim[s->rank - 1];
	double mask[16] = {0};
	uint8_t marks[16];
	for (int64_t i = 0; i < n * n; i++) {
		bool behind = i % n > i / n;
		mask[i] = behind ? -INFINITY : 0;
		marks[i] = behind == mark;
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

// Values of one shape, or stretched along some axes; of f64, or where the trial's number says, i64
// or b8.
static void draw(Arena *arena, Graph *g, const Rule *r, const char *kind, int number, Trial *t)
{
	static const Elem types[] = {E_f64, E_b8, E_i64};
	int rank = 3 - below(4) % 3;
	Shape full = {.rank = rank};
	for (int a = 0; a < rank; a++)
		full.dim[a] = 2 + below(3);
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

// Largest difference, relative to 1 or the number. NaN equals NaN.
static double difference(const Array *left, const Array *right)
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

// The two outs of g become one value when they are put through the door.
static bool same_through_door(Arena *arena, const Graph *g, const char *where)
{
	Graph *with = parse_graph(arena, where, graph_text(arena, g), book_builtin());
	return with->outs.at[0].val == with->outs.at[1].val;
}

// One trial: 1 when the sides were compared, 0 when the drawing does not fit the rule (types,
// tests).
static int try_rule(const Rule *r, int number, bool *reached)
{
	Arena *arena = arena_new();
	Graph *g = graph_new(arena, r->place, NULL);
	Trial trial = {.nslot = 0};
	char kind[VARS] = "";
	Catch c;
	int done = 0;
	kinds_of(r->left, kind);
	known_kinds(r, kind);
	if (!TRY(c)) {
		draw(arena, g, r, kind, number, &trial);
		Scope s = {.g = g, .book = book_builtin(), .where = r->place, .var = trial.var};
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
			Array *all = eval_graph(arena, g, trial.slot);
			double d = difference(&all[left.ref], &all[ref]);
			CHECK(d < 1e-6, "%s: sides differ by %g", r->place, d);
			if (d > 1e-6)
				printf("%s\n", graph_text(arena, g));
			*reached |= same_through_door(arena, g, r->place);
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
			for (int i = 0; i < FLOATS && done < WANTED; i++)
				done += try_rule(r, i, &reached);
			for (int i = FLOATS; i < TRIES && done < 2 * WANTED; i++)
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

// ---- gradients and wholes -------------------------------------------------------------

// Slots, then an expression over them. By its first letter a slot holds: i indices below 3, p truth
// values, q positive numbers, o numbers of which some are zero; others any numbers. "plain": no
// wholes are made.
static const char *const cases[] = {
    "x:3,4 = -x",
    "x:3,4 = abs(x)",
    "x:3,4 = x * floor(x * 3) + x * ceil(x * 3) - x * round(x * 3) + x * sign(x)",
    "x:3,4 = narrow(x; 50, -100)",
    "x:3,4 = exp(x)",
    "q:3,4 = log(q)",
    "q:3,4 = sqrt(q)",
    "q:3,4 = rsqrt(q)",
    "x:3,4 = sin(x) * cos(x)",
    "x:3,4 = atan(x)",
    "x:3,4 = erf(x)",
    "plain x:3,4 = tanh(x)",
    "x:3,4 = select(not(isnan(x)), x * x, x)",
    "x:3,4 p:3,4 i:4 = x * cast(p; f64) + cast(cast(x; f32); f64) * cast(i; f64)",
    "x:3,4 y:4 = x + y",
    "x:3,4 y:3,1 = x - y * 2",
    "x:3,4 y:1,4 z: = x * y * z",
    "x:3,4 q:1 = x / q",
    "x:3,1 q:1,4 = x / q - q / (x * x + 1)",
    "q:3,4 y:3,4 = pow(q, y)",
    "x:3,4 = pow(x, 3) + pow(x, 5)",
    "x:3,4 y:1,4 = max(x, y) + 2 * min(x, y)",
    "x:3,4 q:1 = mod(x, q)",
    "x:3,4 y:3,4 p:3,4 = select(xor(or(and(x < y, p), x <= y), x == y), x * 3, y * x)",
    "x:3,4 y:1,4 p:3,1 = select(p, x * 1.5, y)",
    "x:3,4 y:3,4 = x * x + x * y + y",
    "x:3,4,2 = sum(x * x; [0,2])",
    "x:3,4 = x - mean(x; 1)",
    "x:3,4 = prod(x; 1)",
    "o:5,4 = prod(o; 0)",
    "o:5,4 = prod(o; [0,1])",
    "x:3,4 = amax(x; 1) * 2",
    "x:3,4 = amin(x; 0) * x",
    "x:3,4 = x * cast(argmax(x; 1); f64)",
    "x:3,4 = cumsum(x; 1, 0, 0)",
    "x:3,4 = cumsum(x; 0, 1, 1)",
    "x:3,4 = cumsum(x; 0, 1, 0) * cumsum(x; 1, 0, 1)",
    "x:3,4 = reshape(x * x; [2,6])",
    "x:2,3,4 = permute(x; [2,0,1])",
    "x:3,1,2 = expand(x * x; [3,4,2])",
    "x:3,4 = pad(x; [1,0], [2,3], 0.5)",
    "x:7,5 = slice(x; [1,0], [3,5], [2,1])",
    "x:7,5 = slice(x; [6,3], [3,2], [-2,-3])",
    "x:7,5 = slice(x; [2,1], [1,3], [9,1])",
    "x:2,7 = window(x; [1,5,3,1,1,0,1], 0)",
    "x:2,7 = window(x; [1,7,3,1,1,1,1], 0.5)",
    "x:2,7 = window(x; [1,3,3,2,1,0,1], 0)",
    "x:2,8 = window(x; [1,4,2,2,1,0,1], 0)",
    "x:2,9 = window(x; [1,3,3,3,1,1,1], 0)",
    "x:2,9 = window(x; [1,2,4,2,2,1,1], 0)",
    "x:2,4 = window(x; [1,9,3,1,1,2,2], 0)",
    "x:2,5 = window(x; [1,6,3,1,-1,-1,1], 0)",
    "x:2,5 = window(x; [1,6,4,2,-1,-1,3], 0)",
    "x:2,6,7 = window(x; [1,3,2,2,1,0,1,2,4,3,2,1,1,1], 0)",
    "x:2,6,7 = window(x; [2,3,2,2,1,0,1,1,4,3,2,1,1,1], 0)",
    "x:2,3 y:2,1 z:2,2 = concat(x * 2, y, z * z; 1)",
    "x:2,3 = concat(x, x * x; 0)",
    "x:2,3,4 y:2,4,5 = dot(x, y)",
    "x:2,3,4 y:1,4,5 = dot(x, y)",
    "x:1,3,4 y:2,4,5 = dot(x, y)",
    "x:2,3,3,4 y:1,3,4,5 = dot(x, y)",
    "x:2,1,3,4 y:1,3,4,5 = dot(x, y)",
    "x:3,4,2 y:3,5,4 = permute(dot(permute(x; [0,2,1]), permute(y; [0,2,1])); [0,2,1])",
    "x:2,3,5,5 y:27,4 = dot(reshape(permute(window(reshape(x; [2,1,3,5,5]);"
    " [3,5,3,1,1,1,1,4,5,3,1,1,1,1], 0); [0,1,3,4,2,5,6]); [50,27]), y)",
    "x:2,3,5,5 y:27,4 = dot(reshape(permute(window(reshape(x; [2,1,3,5,5]);"
    " [3,3,3,2,1,1,1,4,4,3,1,1,0,1], 0); [0,1,3,4,2,5,6]); [24,27]), y)",
    "x:2,4,5 y:1,2,6,3 = dot(reshape(permute(window(reshape(x; [2,2,2,5]);"
    " [3,3,3,1,2,1,1], 0); [0,1,3,2,4]); [2,2,3,6]), y)",
    "x:2,3,4,4 y:3,4 = dot(reshape(permute(window(reshape(x; [2,1,3,4,4]);"
    " [3,4,1,1,1,0,1,4,4,1,1,1,0,1], 0); [0,1,3,4,2,5,6]); [32,3]), y)",
    "x:1,2,3 y:8,3 = dot(reshape(permute(window(reshape(x; [1,1,2,3]);"
    " [3,7,4,1,-1,-1,2], 0); [0,1,3,2,4]); [7,8]), y)",
    "x:2,9 = concat(slice(x; [0,0], [2,3], [1,1]), slice(x; [0,6], [2,3], [1,1]) * 2,"
    " slice(x; [0,3], [2,3], [1,1]) * 3; 1)",
    "x:5,4 = gather(x, iota(; 0, [3]); 0) + gather(x, 2 * iota(; 0, [3]); 0)",
    "x:5,4 = gather(x, 3 - iota(; 0, [2,2]); 1)",
    "x:3,4 i:5 = gather(x, i; 0)",
    "x:2,3,2 i:2,2 = gather(x, i; 1)",
    "x:4,2 i:2 u:2,2 = scatter(x, iota(; 0, [2]), u; 0, 0)",
    "x:4,2 i:6 u:6,2 = scatter(x, i, u; 0, 1)",
    "x:2,4 i:3 u:2,3 = scatter(x, i, u; 1, 1)",
    "q:4,2 u:3,2 = scatter(q, iota(; 0, [3]), u; 0, 2)",
    "q:4,2 i:6 o:6,2 = scatter(q, i, o; 0, 2)",
    "x:4,2 i:6 u:6,2 = scatter(x, i, u; 0, 3)",
    "x:4,2 i:6 u:6,2 = scatter(x, i, u; 0, 4)",
    "x:3,4 = softmax(x; 1)",
    "x:3,4,2 = softmax(x; [0,2])",
    "x:3,4 = lse(x; 1)",
    "x:3,4 = norm(x; 1, 1, 0.01)",
    "x:3,4,2 = norm(x; [0,2], 1, 0.01)",
    "x:3,4 = norm(x; 1, 0, 0.01)",
    "x:3,4 = act(x; relu)",
    "x:3,4 = act(x; gelu)",
    "x:3,4 = act(x; gelu_tanh)",
    "x:3,4 = act(x; gelu_quick)",
    "x:3,4 = act(x; silu)",
    "x:3,4 = act(x; tanh)",
    "x:3,4 = act(x; sigmoid)",
    "x:3,4 = act(x * 3; hardswish)",
    "x:3,4 = act(x * 3; hardsigmoid)",
    "x:3,4 = act(x; softplus)",
    "x:3,4 = act(x; mish)",
    "x:2,3,4 y:2,5,4 z:2,5,6 = attend(x, y, z; 0.5, 0, 0)",
    "x:2,3,4 y:2,5,4 z:2,5,6 = attend(x, y, z; 0.5, 1, 1)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:1,3,5 = attend(x, y, z, w; 0.5, 0, 1)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:2,3,5 = attend(x, y, z, w; 0.5, 1, 0)",
};

// Graph with the slots of a case and its expression times random numbers, summed, as "loss".
static Graph *case_graph(Arena *arena, const char *line, Array *slot)
{
	Graph *g = graph_new(arena, line, book_builtin());
	char *text = copy_string(arena, line), *equals = strstr(text, " = ");
	*equals = 0;
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
		if (!strcmp(word, "plain")) {
			g->plain = PLAIN_ALL;
			continue;
		}
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

static Graph *case_loss(Arena *arena, const char *line, Array *slot)
{
	Graph *g = case_graph(arena, line, slot);
	Ref out = book_eval(g, line, strstr(line, " = ") + 3, look_slot, g);
	Shape shape = val(g, out)->shape;
	double *random = NEWS(arena, double, count_of(&shape) + 1);
	for (int64_t i = 0; i < count_of(&shape); i++)
		random[i] = 2 * uniform() - 1;
	Ref product = put2(g, O_mul, out, put_const(g, E_f64, shape, random));
	int64_t axes[RANK];
	for (int a = 0; a < shape.rank; a++)
		axes[a] = a;
	add_out(g, "out", out);
	add_out(g, "loss", put_fold(g, O_sum, product, shape.rank, axes));
	return g;
}

static Array out_named(Arena *arena, const Graph *g, const Array *slot, const char *name)
{
	Array *all = eval_graph(arena, g, slot);
	for (int i = 0; i < g->outs.count; i++)
		if (!strcmp(g->outs.at[i].name, name))
			return all[g->outs.at[i].val];
	bug("no out %s", name);
}

static double loss_with(const Graph *g, const Array *slot, double *place, double value)
{
	Arena *arena = arena_new();
	double keep = *place;
	*place = value;
	double loss = out_named(arena, g, slot, "loss").f[0];
	*place = keep;
	arena_free(arena);
	return loss;
}

static void check_gradient(Arena *arena, const char *line, const Graph *g, const Graph *with,
                           Array *slot)
{
	const double h = 1e-5;
	for (int s = 0; s < g->slots.count; s++) {
		if (slot[s].type != E_f64)
			continue;
		Array found =
		    out_named(arena, with, slot, format(arena, "grad:%s", g->slots.at[s].name));
		CHECK(same_shape(&found.shape, &slot[s].shape), "%s: shape of %s's gradient", line,
		      g->slots.at[s].name);
		for (int64_t i = 0; i < count_of(&slot[s].shape); i++) {
			double *x = &slot[s].f[i];
			double wanted =
			    (loss_with(g, slot, x, *x + h) - loss_with(g, slot, x, *x - h)) /
			    (2 * h);
			CHECK(fabs(found.f[i] - wanted) < 1e-6 * (1 + fabs(wanted)),
			      "%s: gradient of %s[%d] is %.9g, by differences %.9g", line,
			      g->slots.at[s].name, (int)i, found.f[i], wanted);
		}
	}
}

static void check_same(Arena *arena, const char *what, const char *line, const Graph *a,
                       const Graph *b, const Array *slot, double within)
{
	Array *left = eval_graph(arena, a, slot), *right = eval_graph(arena, b, slot);
	CHECK(a->outs.count == b->outs.count, "%s: %s: outs", line, what);
	for (int i = 0; i < a->outs.count; i++) {
		double d = difference(&left[a->outs.at[i].val], &right[b->outs.at[i].val]);
		CHECK(d <= within, "%s: %s differs by %g in %s", line, what, d, a->outs.at[i].name);
	}
}

static void check_text(Arena *arena, const char *line, const Graph *g, const Array *slot)
{
	char *text = graph_text(arena, g);
	Graph *back = parse_graph(arena, line, text, book_builtin());
	CHECK(!strcmp(text, graph_text(arena, back)), "%s: prints as\n%s, and read back as\n%s",
	      line, text, graph_text(arena, back));
	check_same(arena, "graph read back", line, g, back, slot, 0);
}

static bool is_about(const Def *d, const Val *v)
{
	Item attr[3];
	attr_split(v->op, v->attr, attr);
	bool fits = d->nin == v->nin;
	for (int k = 0; k < d->nattr; k++)
		fits &= d->attr[k]->kind != X_num || d->attr[k]->x == attr[k].x;
	return fits;
}

// Marks the first line about each value of g.
static void mark_lines(Def *const *table, const Graph *g, Table *seen)
{
	for (int r = 1; r < g->nval; r++)
		for (const Def *d = table[g->val[r].op]; d; d = d->next)
			if (is_about(d, &g->val[r])) {
				*table_cell_s(seen, d->place) = 1;
				break;
			}
}

static void check_seen(const Table *seen, Def *const *table)
{
	for (int op = 0; op < OPS; op++)
		for (const Def *d = table[op]; d; d = d->next)
			CHECK(table_find_s(seen, d->place), "%s: no case uses the line about %s",
			      d->place, prims[op].name);
}

static void test_gradients(void)
{
	Arena *always = arena_new();
	Table *seen = table_new(always);
	const Book *book = book_builtin();
	for (int i = 0; i < COUNT(cases); i++) {
		Arena *arena = arena_new();
		Array slot[4];
		bool want[4] = {false};
		Graph *g = case_loss(arena, cases[i], slot);
		for (int s = 0; s < g->slots.count; s++)
			want[s] = slot[s].type == E_f64;
		Graph *with = grad_pass(arena, g, want);
		check_gradient(arena, cases[i], g, with, slot);
		check_same(arena, "opened graph", cases[i], with, open_pass(arena, with), slot,
		           1e-9);
		check_text(arena, cases[i], with, slot);
		mark_lines(book->grads, g, seen);
		mark_lines(book->wholes, g, seen);
		arena_free(arena);
	}
	check_seen(seen, book->grads);
	check_seen(seen, book->wholes);
	for (int op = 0; op < OPS; op++) {
		bool own = op == O_concat || op == O_attend || prims[op].cls == C_leaf ||
		           prims[op].cls == C_loop; // loop.c
		CHECK(own || book->grads[op], "no gradient of %s", prims[op].name);
		CHECK(prims[op].cls != C_whole || book->wholes[op], "no definition of %s",
		      prims[op].name);
	}
	for (int act = 0; act < ACTS; act++) {
		Val v = {.op = O_act, .nin = 1, .attr = &(Attr){.n = 1, .i = {act}}};
		bool found = false;
		for (const Def *d = book->grads[O_act]; d; d = d->next)
			found |= is_about(d, &v);
		CHECK(found, "no gradient of act %s", act_names[act]);
	}
	arena_free(always);
	printf("%d cases: gradients by finite differences, wholes opened, text read back\n",
	       COUNT(cases));
}

// ---- attention ------------------------------------------------------------------------

// What exporters write: slots, an expression, and what the door makes of it: how many operands
// attend has, and its attributes; "": no attend.
static const struct {
	const char *line, *want;
} sites[] = {
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(dot(q, swap(k)); -1), v)", "3; 1, 0, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) * 0.5; -1), v)", "3; 0.5, 0, 0"},
    {"q:2,3,4 k:2,4,5 v:2,5,6 = dot(softmax(dot(q, k) / 4; -1), v)", "3; 0.25, 0, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q * 0.5, swap(k * 0.5)); -1), v)", "3; 0.25, 0, 0"},
    {"q:2,3,2,4 k:2,5,2,4 v:2,5,2,6 = dot(softmax(dot(permute(q; [0,2,1,3]) * 0.5,"
     " permute(k; [0,2,3,1]) * 0.5); -1), permute(v; [0,2,1,3]))",
     "3; 0.25, 0, 0"},
    {"q:2,4,3,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(dot(q, swap(reshape(expand(reshape(k;"
     " [2,2,1,5,4]); [2,2,2,5,4]); [2,4,5,4]))) * 0.5; -1),"
     " reshape(expand(reshape(v; [2,2,1,5,6]); [2,2,2,5,6]); [2,4,5,6]))",
     "3; 0.5, 0, 0"},
    // biases
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:1,2,3,5 = dot(softmax(dot(q, swap(k)) + y; -1), v)",
     "4; 1, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:2,1,1,5 = dot(softmax(y + dot(q, swap(k)) * 0.5; -1), v)",
     "4; 0.5, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:1,2,3,5 p:2,1,1,5 = dot(softmax((dot(q, swap(k)) + y)"
     " + hidden(q, or(p, iota(; 3, [1,1,1,5]) == 0), 0, -1e9); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:2,1,3,5 = dot(softmax(reshape(reshape(dot(q, swap(k));"
     " [2,2,3,5]) + y; [4,3,5]); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,2,3,4 k:4,2,5,4 v:4,2,5,6 y:1,2,3,5 z:1,2,1,3,5 = dot(softmax(reshape("
     "reshape(dot(q, swap(k)) * 0.5 + y; [2,2,2,3,5]) + z; [4,2,3,5]); -1), v)",
     "4; 0.5, 0, 0"},
    // hidden scores
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,1,5 = dot(softmax(select(or(p, iota(; 3, [1,1,1,5])"
     " == 0), dot(q, swap(k)) * 0.5, -inf); -1), v)",
     "4; 0.5, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,3,5 y:2,2,1,5 = dot(softmax(select(and(p,"
     " iota(; 3, [1,1,1,5]) > 0), -3e38, dot(q, swap(k)) + y); -1), v)",
     "4; 1, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,1,5 = dot(zeroed(softmax(select(or(p,"
     " iota(; 3, [1,1,1,5]) == 0), dot(q, swap(k)), -inf); -1)), v)",
     "4; 1, 0, 1"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(zeroed(softmax(dot(q * 0.5, swap(k) * 0.5); -1)), v)",
     "3; 0.25, 0, 1"},
    // split and joined
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:2,1,3,5 p:2,1,3,5 = dot(softmax(reshape((reshape(dot(q,"
     " swap(k)); [2,2,3,5]) + y) + hidden(q, p, 0, -1e9); [4,3,5]); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:4,1,5 p:2,1,3,5 = dot(reshape(softmax(select(and(p,"
     " iota(; 3, [1,1,1,5]) > 0), -3e38, reshape(dot(q, swap(k)) * 0.5 + y; [2,2,3,5])); -1);"
     " [4,3,5]), v)",
     "4; 0.5, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:4,3,5 p:2,1,3,5 = dot(reshape(select(p, 0, softmax(select(p,"
     " -3e38, reshape(dot(q, swap(k)) + y; [2,2,3,5])); -1)); [4,3,5]), v)",
     "4; 1, 0, 1"},
    {"q:4,5,4 k:4,5,4 v:2,2,5,6 y:2,1,1,5 = dot(softmax(select(iota(; 3, [1,1,1,5])"
     " <= iota(; 2, [1,1,5,1]), reshape(dot(q, swap(k)) * 0.5; [2,2,5,5]), -3e38) + y; -1), v)",
     "4; 0.5, 0, 0"},
    // causal masks
    {"q:2,2,5,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(select(iota(; 3, [1,1,1,5])"
     " <= iota(; 2, [1,1,5,1]), dot(q, swap(k)), -inf); -1), v)",
     "3; 1, 1, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) + hidden(q, iota(; 2, [1,1,5])"
     " > iota(; 1, [1,3,1]) + 2, -3e38, 0); -1), v)",
     "3; 1, 1, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) + hidden(q, iota(; 2, [1,1,5])"
     " > iota(; 1, [1,3,1]), -inf, 0); -1), v)",
     "4; 1, 0, 0"},
    // what only looks like it
    {"q:2,3,4 k:2,3,4 v:2,3,6 = dot(softmax(dot(q, swap(k)); 1), v)", ""},
    {"q:2,3,4 k:2,3,4 v:2,3,6 = dot(softmax(dot(q, swap(k)); [1,2]), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 y:1,1,5 = dot(softmax(dot(q, swap(k)) * y; -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,3,6 = dot(swap(softmax(dot(q, swap(k)); -1)), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,6,3 = dot(v, softmax(dot(q, swap(k)); -1))", ""},
    {"q:3,4 k:5,4 v:5,6 = dot(softmax(dot(q, swap(k)); -1), v)", ""},
    {"q:1,3,4 k:1,5,4 v:1,5,6 y:2,3,5 = dot(softmax(dot(q, swap(k)) + y; -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 p:2,1,5 = dot(softmax(select(p, dot(q, swap(k)), -1e4); -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 y:2,3,5 = dot(softmax(act(dot(q, swap(k)) + y; tanh); -1), v)", ""},
};

static const char *attend_in(Arena *arena, const Graph *g)
{
	const bool *live = graph_marks(arena, g);
	const char *found = "";
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (live[r] && v->op == O_attend)
			found = format(arena, "%d; %g, %d, %d", v->nin, v->attr->x,
			               (int)v->attr->i[0], (int)v->attr->i[1]);
	}
	return found;
}

static void test_attention(void)
{
	for (int i = 0; i < COUNT(sites); i++) {
		Arena *arena = arena_new();
		Array slot[5];
		uint64_t keep = seed;
		Graph *g = case_loss(arena, sites[i].line, slot);
		seed = keep;
		Graph *apart = case_loss(arena, format(arena, "plain %s", sites[i].line), slot);
		const char *found = attend_in(arena, g);
		CHECK(!strcmp(found, sites[i].want), "%s: wanted attend '%s', found '%s'",
		      sites[i].line, sites[i].want, found);
		check_same(arena, "attend", sites[i].line, apart, g, slot, 1e-9);
		arena_free(arena);
	}
	printf("%d sites of attention\n", COUNT(sites));
}

int main(void)
{
	test_rules();
	test_gradients();
	test_attention();
	printf("%d checks, %d failed\n", checks, failures);
	return failures > 0;
}
