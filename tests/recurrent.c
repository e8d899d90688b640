// recurrent.c: checks random variants of LSTM, GRU and RNN against loops in C.
// Variants: directions, layouts, activations with parameters, clip, sequence lengths, initial
// states, peepholes. Gradients are compared with differences. Prints each variant that differs.
#include "build.h"
#include "passes.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4, BATCH = 2, INPUTS = 3, HIDDEN = 2, VARIANTS = 40, MOST_ACTS = 6 };

typedef struct Operand {
	const char *name;
	bool given;
	int rank;
	int64_t dim[3];
	double *x;
} Operand;
enum { X, W, R, B, LENS, H0, C0, P, OPERANDS };

typedef struct Layer {
	int gates, each, directions; // each: activations per direction
	bool reverse, layout, reset_late, forget_by_input;
	double clip; // 0: none
	const char *act[MOST_ACTS];
	double alpha[MOST_ACTS], beta[MOST_ACTS]; // parameters of each activation
	Operand in[OPERANDS];
	double y[STEPS][2][BATCH][HIDDEN], last[2][BATCH][HIDDEN], memory[2][BATCH][HIDDEN];
} Layer;

static uint64_t state;

static int draw(int below)
{
	state += 0x9E3779B97F4A7C15u;
	return (int)(hash_bytes(&state, sizeof state, 3) % (uint64_t)below);
}

// ---- activations ----------------------------------------------------------------------

static const struct {
	const char *name;
	bool alpha, beta;
	double usual_alpha, usual_beta;
} functions[] = {{"Sigmoid", 0, 0, 0, 0},      {"Tanh", 0, 0, 0, 0},
                 {"Relu", 0, 0, 0, 0},         {"Softplus", 0, 0, 0, 0},
                 {"Softsign", 0, 0, 0, 0},     {"Affine", 1, 1, 1, 0},
                 {"LeakyRelu", 1, 0, 0.01, 0}, {"ThresholdedRelu", 1, 0, 1, 0},
                 {"ScaledTanh", 1, 1, 1, 1},   {"HardSigmoid", 1, 1, 0.2, 0.5},
                 {"Elu", 1, 0, 1, 0}};

static double act(const Layer *l, int which, double x)
{
	const char *name = l->act[which];
	double a = l->alpha[which], b = l->beta[which];
	if (l->clip > 0)
		x = fmin(fmax(x, -l->clip), l->clip);
	if (!strcmp(name, "Sigmoid"))
		return 1 / (1 + exp(-x));
	if (!strcmp(name, "Tanh"))
		return tanh(x);
	if (!strcmp(name, "Relu"))
		return fmax(x, 0);
	if (!strcmp(name, "Softplus"))
		return log1p(exp(x));
	if (!strcmp(name, "Softsign"))
		return x / (1 + fabs(x));
	if (!strcmp(name, "Affine"))
		return a * x + b;
	if (!strcmp(name, "LeakyRelu"))
		return x < 0 ? a * x : x;
	if (!strcmp(name, "ThresholdedRelu"))
		return x > a ? x : 0;
	if (!strcmp(name, "ScaledTanh"))
		return a * tanh(b * x);
	if (!strcmp(name, "HardSigmoid"))
		return fmin(fmax(a * x + b, 0), 1);
	return x < 0 ? a * expm1(x) : x;
}

// ---- loops in C -----------------------------------------------------------------------

static double at(const Layer *l, int operand, int64_t i, int64_t j, int64_t k)
{
	const Operand *o = &l->in[operand];
	return o->given ? o->x[(i * o->dim[1] + j) * (o->rank > 2 ? o->dim[2] : 1) + k] : 0;
}

// With layout 1, the batch is axis 0 of X and of the initial states.
static double batch_at(const Layer *l, int operand, int64_t i, int64_t batch, int64_t k)
{
	return l->layout ? at(l, operand, batch, i, k) : at(l, operand, i, batch, k);
}

static double input_part(const Layer *l, int d, int b, int t, int row)
{
	double sum = at(l, B, d, row, 0);
	for (int k = 0; k < INPUTS; k++)
		sum += at(l, W, d, row, k) * batch_at(l, X, t, b, k);
	return sum;
}

static double state_part(const Layer *l, int d, int row, const double *h)
{
	double sum = at(l, B, d, l->gates * HIDDEN + row, 0);
	for (int k = 0; k < HIDDEN; k++)
		sum += at(l, R, d, row, k) * h[k];
	return sum;
}

static void rnn_step(const Layer *l, int d, int b, int t, double *h)
{
	double next[HIDDEN];
	for (int j = 0; j < HIDDEN; j++)
		next[j] = act(l, d * l->each, input_part(l, d, b, t, j) + state_part(l, d, j, h));
	memcpy(h, next, sizeof next);
}

// Rows of gates: z, r, h.
static void gru_step(const Layer *l, int d, int b, int t, double *h)
{
	double z[HIDDEN], r[HIDDEN], damped[HIDDEN], next[HIDDEN];
	for (int j = 0; j < HIDDEN; j++) {
		z[j] = act(l, d * l->each, input_part(l, d, b, t, j) + state_part(l, d, j, h));
		r[j] = act(l, d * l->each,
		           input_part(l, d, b, t, HIDDEN + j) + state_part(l, d, HIDDEN + j, h));
		damped[j] = r[j] * h[j];
	}
	for (int j = 0; j < HIDDEN; j++) {
		int row = 2 * HIDDEN + j;
		double back =
		    l->reset_late ? r[j] * state_part(l, d, row, h) : state_part(l, d, row, damped);
		double fresh = act(l, d * l->each + 1, input_part(l, d, b, t, row) + back);
		next[j] = (1 - z[j]) * fresh + z[j] * h[j];
	}
	memcpy(h, next, sizeof next);
}

// Rows of gates: i, o, f, c; of peepholes: i, o, f.
static void lstm_step(const Layer *l, int d, int b, int t, double *h, double *c)
{
	double next[HIDDEN];
	int first = d * l->each;
	for (int j = 0; j < HIDDEN; j++) {
		double x[4];
		for (int g = 0; g < 4; g++)
			x[g] = input_part(l, d, b, t, g * HIDDEN + j) +
			       state_part(l, d, g * HIDDEN + j, h);
		double i = act(l, first, x[0] + at(l, P, d, j, 0) * c[j]);
		double f = act(l, first, x[2] + at(l, P, d, 2 * HIDDEN + j, 0) * c[j]);
		f = l->forget_by_input ? 1 - i : f;
		c[j] = f * c[j] + i * act(l, first + 1, x[3]);
		double o = act(l, first, x[1] + at(l, P, d, HIDDEN + j, 0) * c[j]);
		next[j] = o * act(l, first + 2, c[j]);
	}
	memcpy(h, next, sizeof next);
}

static void run_direction(Layer *l, int d, int b)
{
	bool reverse = l->reverse || d;
	int length = l->in[LENS].given ? (int)l->in[LENS].x[b] : STEPS;
	double *h = l->last[d][b], *c = l->memory[d][b];
	for (int j = 0; j < HIDDEN; j++) {
		h[j] = batch_at(l, H0, d, b, j);
		c[j] = batch_at(l, C0, d, b, j);
	}
	for (int i = 0; i < length; i++) {
		int t = reverse ? length - 1 - i : i;
		if (l->gates == 1)
			rnn_step(l, d, b, t, h);
		else if (l->gates == 3)
			gru_step(l, d, b, t, h);
		else
			lstm_step(l, d, b, t, h, c);
		memcpy(l->y[t][d][b], h, sizeof l->y[t][d][b]);
	}
}

// ---- a variant ------------------------------------------------------------------------

static void set_operand(Layer *l, int which, bool given, int rank, int64_t a, int64_t b, int64_t c)
{
	static const char *const called[] = {"X", "W", "R", "B", "lens", "h0", "c0", "P"};
	Operand *o = &l->in[which];
	bool transposed = l->layout && (which == X || which == H0 || which == C0);
	*o = (Operand){
	    called[which], given, rank, {transposed ? b : a, transposed ? a : b, c}, NULL};
	int64_t n = a * MAX(b, 1) * MAX(c, 1);
	o->x = NEWS(arena, double, n);
	for (int64_t i = 0; i < n; i++)
		o->x[i] = which == LENS ? 1 + draw(STEPS) : (float)(draw(2000) / 1000.0 - 1);
}

static Layer *random_layer(void)
{
	static const int gates[] = {1, 3, 4};
	Layer *l = NEW(arena, Layer);
	l->gates = gates[draw(3)];
	l->each = l->gates == 4 ? 3 : l->gates == 3 ? 2 : 1;
	l->directions = 1 + draw(2);
	l->reverse = l->directions == 1 && draw(2);
	l->layout = draw(2);
	l->reset_late = draw(2);
	l->forget_by_input = !draw(3);
	l->clip = draw(2) ? 0 : 0.75;
	int64_t d = l->directions, rows = l->gates * HIDDEN;
	set_operand(l, X, true, 3, STEPS, BATCH, INPUTS);
	set_operand(l, W, true, 3, d, rows, INPUTS);
	set_operand(l, R, true, 3, d, rows, HIDDEN);
	set_operand(l, B, draw(2), 2, d, 2 * rows, 0);
	set_operand(l, LENS, draw(2), 1, BATCH, 0, 0);
	set_operand(l, H0, draw(2), 3, d, BATCH, HIDDEN);
	set_operand(l, C0, l->gates == 4 && draw(2), 3, d, BATCH, HIDDEN);
	set_operand(l, P, l->gates == 4 && draw(2), 2, d, 3 * HIDDEN, 0);
	return l;
}

static void set_text(NodeProto *n, const char *name, const char *text)
{
	AttributeProto *a = attribute(n, name);
	a->s = (ProtobufCBinaryData){strlen(text), (uint8_t *)copy_string(arena, text)};
}

// Chooses random activations, or the default ones, with parameters for some.
static void choose_acts(Layer *l, NodeProto *n)
{
	static const int usual[] = {0, 1, 1};
	bool choose = draw(3), numbers = draw(2);
	int count = l->each * l->directions;
	AttributeProto *names = choose ? attribute(n, "activations") : NULL,
	               *alpha = numbers ? attribute(n, "activation_alpha") : NULL,
	               *beta = numbers ? attribute(n, "activation_beta") : NULL;
	ProtobufCBinaryData *text = NEWS(arena, ProtobufCBinaryData, count);
	float *lists[2] = {NEWS(arena, float, count), NEWS(arena, float, count)};
	size_t used[2] = {0};
	for (int i = 0; i < count; i++) {
		int k = choose ? draw(COUNT(functions)) : usual[l->gates == 1 ? 1 : i % l->each];
		l->act[i] = functions[k].name;
		text[i] = (ProtobufCBinaryData){strlen(l->act[i]), (uint8_t *)functions[k].name};
		l->alpha[i] = (float)functions[k].usual_alpha;
		l->beta[i] = (float)functions[k].usual_beta;
		if (numbers && functions[k].alpha)
			l->alpha[i] = lists[0][used[0]++] = (float)(0.25 + 0.125 * draw(4));
		if (numbers && functions[k].beta)
			l->beta[i] = lists[1][used[1]++] = (float)(0.25 + 0.125 * draw(4));
	}
	if (names)
		names->strings = text, names->n_strings = (size_t)count;
	if (numbers) {
		alpha->floats = lists[0], alpha->n_floats = used[0];
		beta->floats = lists[1], beta->n_floats = used[1];
	}
}

static const char *dims_text(const Operand *o)
{
	Text t = {.arena = arena};
	for (int a = 0; a < o->rank; a++)
		say(&t, "%s%lld", a ? "," : "", (long long)o->dim[a]);
	return t.at;
}

static Build *build_layer(Layer *l)
{
	static const char *const op[] = {[1] = "RNN", [3] = "GRU", [4] = "LSTM"};
	Build *b = build(14);
	Text in = {.arena = arena};
	for (int k = 0; k < (l->gates == 4 ? OPERANDS : C0); k++) {
		const Operand *o = &l->in[k];
		say(&in, "%s%s", k ? "," : "", o->given ? o->name : "");
		if (o->given)
			PUSH(arena, b->inputs, value(o->name, k == LENS ? 6 : 1, dims_text(o)));
	}
	NodeProto *n = node(op[l->gates], in.at, l->gates == 4 ? "Y,Yh,Yc" : "Y,Yh");
	add_to(b, n);
	PUSH(arena, b->outputs, value("Y", 1, "?"));
	PUSH(arena, b->outputs, value("Yh", 1, "?"));
	if (l->gates == 4)
		PUSH(arena, b->outputs, value("Yc", 1, "?"));
	attribute(n, "hidden_size")->i = HIDDEN;
	attribute(n, "layout")->i = l->layout;
	set_text(n, "direction",
	         l->directions == 2 ? "bidirectional"
	         : l->reverse       ? "reverse"
	                            : "forward");
	if (l->clip > 0)
		attribute(n, "clip")->f = (float)l->clip;
	if (l->gates == 3)
		attribute(n, "linear_before_reset")->i = l->reset_late;
	if (l->gates == 4)
		attribute(n, "input_forget")->i = l->forget_by_input;
	choose_acts(l, n);
	return b;
}

// ---- comparing ------------------------------------------------------------------------

static Array operand_values(void *context, const Slot *s)
{
	const Layer *l = context;
	for (int k = 0; k < OPERANDS; k++) {
		const Operand *o = &l->in[k];
		int64_t n = count_of(&s->shape);
		if (!o->name || strcmp(o->name, s->name))
			continue;
		Array a = {.type = s->type, .shape = s->shape};
		a.f = take_copy(arena, o->x, sizeof *o->x * (size_t)n);
		for (int64_t i = 0; k == LENS && i < n; i++)
			a.i[i] = (int64_t)o->x[i];
		return a;
	}
	fail(s->name, "no such operand");
}

static bool same(const Array *found, const double *expected, int *wrong)
{
	for (int64_t i = 0; i < count_of(&found->shape); i++)
		*wrong += !(fabs(found->f[i] - expected[i]) < 1e-9);
	return !*wrong;
}

// Compares with the loops' results, in the order of the operator's outputs.
static bool compare(const Layer *l, const Graph *g, const Array *value)
{
	double y[STEPS * 2 * BATCH * HIDDEN], ends[2][2 * BATCH * HIDDEN];
	int d = l->directions, wrong = 0;
	for (int t = 0; t < STEPS; t++)
		for (int k = 0; k < d * BATCH * HIDDEN; k++) {
			int dir = k / (BATCH * HIDDEN), b = k / HIDDEN % BATCH, j = k % HIDDEN;
			int row = l->layout ? (b * STEPS + t) * d + dir : (t * d + dir) * BATCH + b;
			int end = l->layout ? b * d + dir : dir * BATCH + b;
			y[row * HIDDEN + j] = l->y[t][dir][b][j];
			ends[0][end * HIDDEN + j] = l->last[dir][b][j];
			ends[1][end * HIDDEN + j] = l->memory[dir][b][j];
		}
	same(&value[g->outs.at[0].val], y, &wrong);
	for (int k = 1; k < g->outs.count; k++)
		same(&value[g->outs.at[k].val], ends[k - 1], &wrong);
	return !wrong;
}

static const char *describe(const Layer *l)
{
	Text t = {.arena = arena};
	say(&t, "%d gates, %d directions%s%s%s, clip %g,", l->gates, l->directions,
	    l->reverse ? " reverse" : "", l->layout ? " layout 1" : "",
	    l->reset_late ? " reset late" : "", l->clip);
	for (int k = B; k < OPERANDS; k++)
		say(&t, "%s%s", l->in[k].given ? " " : "", l->in[k].given ? l->in[k].name : "");
	for (int i = 0; i < l->each * l->directions; i++)
		say(&t, " %s(%g,%g)", l->act[i], l->alpha[i], l->beta[i]);
	return t.at;
}

static bool try_variant(int number)
{
	state = (uint64_t)number * 1000003;
	Layer *l = random_layer();
	Model *m = read_packed(build_layer(l), &(ReadOptions){0});
	for (int d = 0; d < l->directions; d++)
		for (int b = 0; b < BATCH; b++)
			run_direction(l, d, b);
	const char *name = format(arena, "variant %d", number);
	Trial *t = trial_new(arena, name, m->graph, operand_values, l);
	const Graph *flat = loops_pass(arena, m->graph, STEPS);
	bool good = has_loop(m->graph) && !has_loop(flat) &&
	            compare(l, m->graph, eval_graph(arena, m->graph, t->slot)) &&
	            compare(l, flat, eval_graph(arena, flat, t->slot));
	if (!good)
		printf("%s: differs from the loops\n", name);
	good = good && trial_differences(t) && trial_compiled(t);
	if (!good)
		printf("%s: %s\n", name, describe(l));
	return good;
}

int main(void)
{
	int good = 0;
	for (int i = 1; i <= VARIANTS; i++) {
		arena = arena_new();
		good += try_variant(i);
		arena_free(arena);
	}
	printf("recurrent: %d of %d variants agree with plain loops, and their gradients\n", good,
	       VARIANTS);
	return good < VARIANTS;
}
