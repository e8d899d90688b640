// book_gradients.c: checks every gradient and composite of the book, and reading graphs back.
// Gradients against finite differences, composites against their definitions, over cases that use
// every line of the book.
#include "book.h"
#include "passes.h"
#include <math.h>
#include <string.h>

static const char *const cases[] = {
    "x:3,4 = -x",
    "x:3,4 = abs(x)",
    "x:3,4 = x * floor(x * 3) + x * ceil(x * 3) - x * round(x * 3) + x * sign(x)",
    "x:3,4 = narrow(x; 50, -100)",
    "x:3,4 = exp(x)",
    "q:3,4 = log(q)",
    "x:3,4 q:3,4 = expm1(x) + log1p(q)",
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
    "x:3,3,3,3,3 = slice(x; list(5, 0), list(5, 2), list(5, 2))",
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
    "x:5,6,7 = window(x; [0,3,2,3,1,2,1,1,3,3,2,2,0,1,2,2,7,4,1,3,1], 0)",
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
    "x:3,4 = maxpool(x; 1) * x",
    "x:3,4 = detach(sign(x)) * x",
    "x:17,18 = maxpool(x; [0,1])",
    "x:2,6,7 = maxpool(window(x; [1,3,3,2,1,1,1,2,4,3,2,1,1,1], -inf); [3,4])",
    "x:2,6,7 = maxpool(window(x; [2,5,3,1,1,0,1,1,2,2,3,2,1,1], -inf); [3,4])",
    "x:7,2 = maxpool(window(x; [0,4,5,2,1,2,1], -inf); 2)",
    "x:2,3,4,5 = maxpool(window(x; [1,2,2,1,1,0,1,2,2,3,3,1,2,1,3,3,3,2,1,1,1], -inf);"
    " [4,5,6])",
    "x:3,4 = norm(x; 1, 1, 0.01)",
    "x:3,4,2 = norm(x; [0,2], 1, 0.01)",
    "x:3,4 = norm(x; 1, 0, 0.01)",
    "x:2,4,3,2 = norm(reshape(x; [2,2,12]); 2, 1, 0.01)",
    "x:2,4,3,2 = norm(reshape(x; [2,2,12]); 2, 0, 0.01)",
    "x:3,4,2 = norm(reshape(x; [6,1,4]); [1,2], 1, 0.01)",
    "x:2,6 = norm(reshape(x; [4,3]); 0, 1, 0.01)",
    "x:2,3,1,4 = norm(reshape(x; [1,6,4]); [0,1], 1, 0.01)",
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
    "x:3,4 = act(x * 4; relu6)",
    "x:3,4 = act(x * 2; hardtanh)",
    "x:2,3,4 y:2,5,4 z:2,5,6 = attend(x, y, z; 0.5, 0, 0)",
    "x:2,3,4 y:2,5,4 z:2,5,6 = attend(x, y, z; 0.5, 1, 1)",
    "x:2,3,4 y:2,0,4 z:2,0,6 = attend(x, y, z; 0.5, 0, 1)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:1,3,5 = attend(x, y, z, w; 0.5, 0, 1)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:2,3,5 = attend(x, y, z, w; 0.5, 1, 0)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:1,3,5 p:2,1,5 = attend(x, y, z, w, p; 0.5, 0, 0)",
    "x:2,3,4 y:2,5,4 z:2,5,6 i:1,3,5 = attend(x, y, z, cast(i; f64); 0.5, 1, 0)",
    "x:2,3,4 y:1,5,4 z:2,5,6 i:1,3,5 p:2,1,5 = attend(x, y, z, cast(i; f64), p; 0.5, 0, 1)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:1,3,5 i:2,3,5 = attend(x, y, z, w, 1, cast(i; f64); 0.5, 1, 1)",
    "x:2,3,4 y:2,5,4 w:1,3,5 p:2,1,5 i:2,3,5 = attend(x, y, y, w, p, cast(i; f64); 0.5, 0, 0)",
    "x:2,3,4 y:2,5,4 z:2,5,6 w:1,3,5 v:2,1,5 = attend(x, y, z, w, 1, v; 0.5, 0, 0)",
    "x:4,3,4 y:4,5,4 z:4,5,6 w:1,3,5 v:4,1,5 = attend(x, y, z, w + v; 0.5, 0, 0)",
};

static Array out_named(Arena *arena, const Graph *g, const Array *slot, const char *name)
{
	Ref r = find_output(g, name);
	if (!r)
		bug("no out %s", name);
	return eval_graph(arena, g, slot)[r];
}

static double loss_with(const Graph *g, const Array *slot, double *element, double value)
{
	Arena *arena = arena_new();
	double keep = *element;
	*element = value;
	double loss = out_named(arena, g, slot, "loss").f[0];
	*element = keep;
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

static void check_text(Arena *arena, const char *line, const Graph *g, const Array *slot)
{
	char *text = graph_text(arena, g);
	Graph *back = parse_graph(arena, line, text, book_builtin());
	CHECK(!strcmp(text, graph_text(arena, back)), "%s: prints as\n%s, and read back as\n%s",
	      line, text, graph_text(arena, back));
	check_same(arena, "graph read back", line, g, back, slot, 0);
}

// Of equal elements the first has the gradient; a NaN leaves none.
static void check_ties(Arena *arena)
{
	static const double x[] = {1, 1, 0, NAN, 2, 2};
	Array slot[CASE_SLOTS];
	Graph *g = case_loss(arena, "x:2,3 = maxpool(x; 1)", slot);
	memcpy(slot[0].f, x, sizeof x);
	Graph *with = grad_pass(arena, g, &(bool){true}, NULL);
	Array found = out_named(arena, with, slot, "grad:x");
	for (int i = 0; i < COUNT(x); i++)
		CHECK((found.f[i] != 0) == (i == 0), "gradient of element %d of ties is %g", i,
		      found.f[i]);
}

static void check_detached(Arena *arena)
{
	Array slot[CASE_SLOTS];
	Graph *g = case_loss(arena, "x:2,3 y:2,3 = detach(x) * y", slot);
	Graph *with = grad_pass(arena, g, (bool[]){true, true}, NULL);
	Array x = out_named(arena, with, slot, "grad:x"),
	      y = out_named(arena, with, slot, "grad:y");
	for (int i = 0; i < 6; i++)
		CHECK(x.f[i] == 0 && y.f[i] != 0,
		      "gradients of element %d of detach(x) * y are %g, %g", i, x.f[i], y.f[i]);
}

// Slopes where a guard hides what is infinite or NaN, and at the bounds of clips.
static void check_slopes(Arena *arena)
{
	static const struct {
		const char *line;
		double x, slope;
	} known[] = {
	    {"x:1 = select(0 < x, log(x), x * 3)", 0, 3},
	    {"x:1 = select(-1 < x, log1p(x), x * 3)", -1, 3},
	    {"x:1 = select(x == 0, x * 3, 1 / x)", 0, 3},
	    {"x:1 = select(x == 0, x * 3, x * x / abs(x))", 0, 3},
	    {"x:1 = select(0 < x, sqrt(x), x * 3)", -1, 3},
	    {"x:1 = select(0 < x, rsqrt(x), x * 3)", 0, 3},
	    {"x:1 = select(0 < x, pow(x, -1.5), x * 3)", 0, 3},
	    {"x:1 = select(0 < x, pow(x, 0.3), x * 3)", -1, 3},
	    {"x:1 = select(x < 1, exp(x * 1000), x * 3)", 1, 3},
	    {"x:1 = select(x < 1, expm1(x * 1000), x * 3)", 1, 3},
	    {"x:1 = select(0 < x, x * log(x), x * 3)", 0, 3},
	    {"x:1 = select(x == 0, x * 3, -(x * 2) * log(abs(x)) + x)", 0, 3},
	    {"x:1 = select(x == 0, x * 3, sin(1 / x) * cos(1 / x) * tanh(1 / x))", 0, 3},
	    {"x:1 = select(x == 0, 1, sin(x) / x)", 0, 0},
	    {"x:1 = select(x == 0, x * 3, mod(x, x))", 0, 3},
	    {"x:1 = select(0 < x, sum(log(expand(x; [4])); 0), x * 3)", 0, 3},
	    {"x:1 = select(x == 0, x * 3, sum(norm(concat(x, x; 0); 0, 0, 0); 0))", 0, 3},
	    {"x:1 = select(x == 0, x * 3, sum(norm(concat(x, x; 0); 0, 1, 0); 0))", 0, 3},
	    {"x:1 = slice(log(concat(x, x + 1; 0)); [1], [1], [1])", 0, 1},
	    {"x:1 = max(log(x), -100)", 0, 0},
	    {"x:1 = min(max(1 / x, -5), 5)", 0, 0},
	    {"x:1 = min(max(x, -2), 2)", 2, 1},
	    {"x:1 = max(min(x, 2), -2)", -2, 1},
	    {"x:1 = min(max(x * 3, -2), 2)", 1, 0},
	    {"x:1 = min(2, max(-2, x)) * x", 2, 4},
	    {"x:1 = max(x, 2)", 2, 0.5},
	    {"x:1 = act(x; relu)", 0, 0},
	    {"x:1 = act(x; relu6)", 0, 0},
	    {"x:1 = act(x; relu6)", 6, 0},
	    {"x:1 = act(x; hardtanh)", 1, 0},
	    {"x:1 = act(x; hardtanh)", -1, 0},
	};
	double weight = 0;
	for (int i = -1; i < COUNT(known); i++) {
		Array slot[CASE_SLOTS];
		seed = 1;
		const char *line = i < 0 ? "x:1 = x" : known[i].line;
		Graph *g = case_loss(arena, line, slot);
		slot[0].f[0] = i < 0 ? 1 : known[i].x;
		const Graph *with = grad_pass(arena, g, &(bool){true}, NULL);
		double found = out_named(arena, with, slot, "grad:x").f[0];
		weight = i < 0 ? found : weight;
		CHECK(i < 0 || fabs(found / weight - known[i].slope) < 1e-9,
		      "%s: slope at %g is %g, expected %g", line, slot[0].f[0], found / weight,
		      i < 0 ? 1 : known[i].slope);
	}
}

static bool is_about(const Def *d, const Val *v)
{
	Item attr[ATTRIBUTES];
	attr_split(v->op, v->attr, attr);
	bool fits = d->nin == v->nin;
	for (int k = 0; k < d->nattr; k++)
		fits &= d->attr[k]->kind != X_num || d->attr[k]->x == attr[k].x;
	return fits;
}

static const Def *lines_about(BookKind kind, int op)
{
	return book_defs(book_builtin(), kind, prims[op].name);
}

// Marks the first line that applies to each value of g.
static void mark_lines(BookKind kind, const Graph *g, Table *seen)
{
	for (int r = 1; r < g->nval; r++)
		for (const Def *d = lines_about(kind, val(g, r)->op); d; d = d->next)
			if (is_about(d, val(g, r))) {
				*table_cell_s(seen, d->place) = 1;
				break;
			}
}

static void check_seen(const Table *seen, BookKind kind)
{
	for (int op = 0; op < OPS; op++)
		for (const Def *d = lines_about(kind, op); d; d = d->next)
			CHECK(table_find_s(seen, d->place), "%s: no case uses the line about %s",
			      d->place, prims[op].name);
}

void test_gradients(void)
{
	Arena *always = arena_new();
	Table *seen = table_new(always);
	seed = 1;
	for (int i = 0; i < COUNT(cases); i++) {
		Arena *arena = arena_new();
		Array slot[CASE_SLOTS];
		bool active[CASE_SLOTS] = {false};
		Graph *g = case_loss(arena, cases[i], slot);
		for (int s = 0; s < g->slots.count; s++)
			active[s] = slot[s].type == E_f64;
		Graph *with = grad_pass(arena, g, active, NULL);
		check_gradient(arena, cases[i], g, with, slot);
		check_same(arena, "opened graph", cases[i], with, decompose_pass(arena, with, NULL),
		           slot, 1e-9);
		check_text(arena, cases[i], with, slot);
		mark_lines(BOOK_grad, g, seen);
		mark_lines(BOOK_composite, g, seen);
		mark_lines(BOOK_composite, with, seen);
		arena_free(arena);
	}
	check_ties(always);
	check_detached(always);
	check_slopes(always);
	check_seen(seen, BOOK_grad);
	check_seen(seen, BOOK_composite);
	for (int op = 0; op < OPS; op++) {
		bool own = op == O_concat || (is_attention(op) && op != O_attend) ||
		           prims[op].cls == C_leaf || prims[op].cls == C_loop; // loop.c
		CHECK(own || lines_about(BOOK_grad, op), "no gradient of %s", prims[op].name);
		CHECK(prims[op].cls != C_composite || lines_about(BOOK_composite, op),
		      "no definition of %s", prims[op].name);
	}
	for (int act = 0; act < ACTS; act++) {
		Val v = {.op = O_act, .nin = 1, .attr = &(Attr){.n = 1, .i = {act}}};
		bool found = false;
		for (const Def *d = lines_about(BOOK_grad, O_act); d; d = d->next)
			found |= is_about(d, &v);
		CHECK(found, "no gradient of act %s", acts[act].name);
	}
	arena_free(always);
	printf("%d cases: gradients by finite differences, wholes opened, text read back\n",
	       COUNT(cases));
}
