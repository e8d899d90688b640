// rnn.c: lowers LSTM, GRU, RNN.
// Takes the node being lowered. Gives all hidden states and the last. Keeps: the inputs' share of
// all steps is one product before the loop; a step is one small product and maps.
#include "ops.h"
#include <string.h>
#include <strings.h>

typedef enum Kind { K_rnn = 1, K_gru = 3, K_lstm = 4 } Kind; // how many gates

typedef struct Function { // an activation: a line of the book with its numbers
	const char *name;
	int count;
	AttrArg number[MOST_NUMBERS];
} Function;

typedef struct Cell { // one direction of a layer
	Call *c;
	Graph *g; // the body, once it is open
	Kind kind;
	bool reverse;
	bool bytes; // weights are of 8 bits, and so is what they are multiplied with
	int64_t steps, batch, hidden;
	Ref pre;             // [steps, batch, gates * hidden]: the inputs' share, with its bias
	Ref recurrent, bias; // [hidden, gates * hidden], [1, gates * hidden] or 0
	Ref peep;            // [1, 3 * hidden] or 0
	Ref length;          // [batch, 1] i64 or 0
	Ref limit;           // how many steps are there, i64
	Ref time;            // where there are lengths: the number of the step, i64
	Function function[3];
	double clip;   // of what goes into activations; 0: none
	Ref h, memory; // [batch, hidden]
} Cell;

// Returns the line of the book for a name in any case; NULL if there is no such activation.
static const char *find_activation(const char *name)
{
	static const char *const known[] = {
	    "Sigmoid",         "Tanh",       "Relu",        "Softplus", "Affine",  "LeakyRelu",
	    "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",      "Softsign"};
	for (int i = 0; i < COUNT(known); i++)
		if (!strcasecmp(known[i], name))
			return known[i];
	return NULL;
}

static Ref activate(Cell *k, int which, Ref x)
{
	const Function *f = &k->function[which];
	if (k->clip > 0) {
		x = put2(k->g, O_max, x, put_num(k->g, E_f32, -k->clip));
		x = put2(k->g, O_min, x, put_num(k->g, E_f32, k->clip));
	}
	return book_call1(k->g, f->name, 1, &x, f->count, f->number);
}

// Operand n's part for direction d, the first axis gone; 0 when the operand is absent.
static Ref of_direction(Call *c, int n, int d)
{
	if (n >= c->nin || !c->in[n])
		return 0;
	return drop_axes(c->g, take_range(c->g, c->in[n], 0, d, 1), 1, (int64_t[]){0});
}

static Ref flat_row(Graph *g, Ref x, int64_t start, int64_t count)
{
	return put_rank(g, take_range(g, x, 0, start, count), 2);
}

// f(x), g(x), h(x): the activations in the lines of the book.
static bool call_activation(Scope *s, const Expr *e, Item *result)
{
	static const char names[] = "fgh";
	const char *which = e->name[1] || e->nin != 1 ? NULL : strchr(names, *e->name);
	if (!which)
		return false;
	Item x = eval_item(s, e->in[0]);
	result->kind = I_ref;
	result->ref = activate(s->host->context, (int)(which - names), item_ref(s, &x, E_f32));
	return true;
}

// One step, from the state h and the memory to those after it.
static void advance(Cell *k, Ref pre)
{
	static const struct {
		const char *line, *attribute;
	} steps[] = {[K_rnn] = {"rnn_step", ""},
	             [K_gru] = {"gru_step", "linear_before_reset"},
	             [K_lstm] = {"lstm_step", "input_forget"}};
	const char *name = steps[k->kind].attribute;
	Ref h = k->bytes ? book_call1(k->g, "rounded_to_bytes", 1, &k->h, 0, NULL) : k->h,
	    in[] = {pre, h, k->memory, k->recurrent, k->bias, k->peep}, out[2];
	AttrArg given = {.name = name, .x = (double)attr_int(k->c, name, 0)};
	book_run(k->g, &(Host){.context = k, .call = call_activation}, steps[k->kind].line,
	         COUNT(in), in, *name != 0, &given, k->kind == K_lstm ? 2 : 1, out);
	k->h = out[0];
	k->memory = k->memory ? out[1] : 0;
}

// The body of the loop over time. What goes on past a sequence's end is what it was, and zero in
// the stacked states.
static void put_step(Cell *k, Ref pre)
{
	Graph *g = k->g;
	Ref h = k->h, memory = k->memory, live = 0;
	advance(k, pre);
	Ref y = k->h;
	if (k->length) {
		live = put2(g, O_lt, k->time, k->length);
		k->h = put3(g, O_select, live, k->h, h);
		y = put3(g, O_select, live, k->h, put_num(g, E_f32, 0));
	}
	add_out(g, "h", k->h);
	if (k->kind == K_lstm)
		add_out(g, "c", live ? put3(g, O_select, live, k->memory, memory) : k->memory);
	if (live)
		add_out(g, "t", put2(g, O_add, k->time, put_num(g, E_i64, k->reverse ? -1 : 1)));
	add_out(g, "y", y);
}

// Gives the states of all steps, the last one, and the last memory.
static void run_cell(Cell k, Ref *all, Ref *last, Ref *memory)
{
	Reader *r = k.c->r;
	Graph *g = k.g;
	LoopScope nest = {0};
	Ref last_step = put2(g, O_sub, k.limit, put_i64(g, 1)), part[4];
	Ref time = k.reverse ? last_step : put_i64(g, 0);
	open_nest(r, &nest);
	LoopInfo cycle = {.body = nest.body, .trips = k.steps, .scanned = 1, .reverse = k.reverse};
	k.g = nest.body;
	k.h = nest_slot(r, &nest, k.h, false);
	k.memory = k.memory ? nest_slot(r, &nest, k.memory, false) : 0;
	k.time = k.length ? nest_slot(r, &nest, time, false) : 0;
	cycle.carried = nest.body->slots.count;
	Ref pre = nest_slot(r, &nest, k.pre, true);
	pre = sized_slot(r, &nest, pre);
	k.h = sized_slot(r, &nest, k.h);
	k.memory = k.memory ? sized_slot(r, &nest, k.memory) : 0;
	Ref *fixed[] = {&k.recurrent, &k.bias, &k.peep, &k.length};
	for (int i = 0; i < COUNT(fixed); i++)
		*fixed[i] = *fixed[i] ? nest_slot(r, &nest, *fixed[i], false) : 0;
	put_step(&k, pre);
	close_nest(r, &nest);
	put_loop_info(r, &cycle, &nest, k.limit, part);
	*last = put_rank(g, part[0], 3);
	*memory = k.memory ? put_rank(g, part[1], 3) : 0;
	*all = put_reshape(g, part[cycle.carried],
	                   shape_of(4, (int64_t[]){k.steps, 1, k.batch, k.hidden}));
	*all = is_const(g, k.limit) ? *all : put_valid(g, *all, 0, k.limit);
}

// Given as [directions, batch, hidden]; with layout 1 the batch comes first.
static Ref initial_state(Cell *k, int operand, int d)
{
	Call *c = k->c;
	Ref given = operand < c->nin ? c->in[operand] : 0;
	int64_t dims[] = {k->batch, k->hidden}, axis = attr_int(c, "layout", 0) != 0;
	if (given && val(k->g, given)->shape.rank != 3)
		invalid_node(c, "wants an initial state of three dimensions");
	return given ? drop_axes(k->g, take_range(k->g, given, (int)axis, d, 1), 1, &axis)
	             : put_broadcast(k->g, put_num(k->g, E_f32, 0), shape_of(2, dims));
}

// The numbers of activations stand in two lists, in the order of those activations that take them.
static void read_numbers(const Graph *g, Function *f, const AttributeProto *const list[2],
                         size_t at[2])
{
	f->count = numbers_of(g, f->name, f->number);
	for (int i = 0; i < f->count; i++) {
		int which = !strcmp(f->number[i].name, "beta");
		if (list[which] && at[which] < list[which]->n_floats)
			f->number[i].x = (double)list[which]->floats[at[which]++];
	}
}

// Of all directions up to this one, which comes last: the lists of numbers have no other order.
static void read_activations(Cell *k, int direction)
{
	static const char *const usual[3] = {"Sigmoid", "Tanh", "Tanh"};
	const AttributeProto *a = find_attr(k->c, "activations");
	const AttributeProto *const list[2] = {find_attr(k->c, "activation_alpha"),
	                                       find_attr(k->c, "activation_beta")};
	int each = k->kind == K_lstm ? 3 : k->kind == K_gru ? 2 : 1;
	size_t at[2] = {0};
	for (int i = 0; i < (direction + 1) * each; i++) {
		const char *name = usual[k->kind == K_rnn ? 1 : i % each];
		Function *f = &k->function[i % each];
		if (a && i < (int)a->n_strings)
			name = format(k->c->r->arena, "%.*s", (int)a->strings[i].len,
			              (const char *)a->strings[i].data);
		f->name = find_activation(name);
		if (!f->name)
			invalid_node(k->c, "activation %s", name);
		read_numbers(k->g, f, list, at);
	}
	k->clip = attr_float(k->c, "clip", 0);
}

// Operand n's weights for direction d as they are multiplied with, [.., gates * hidden]. Those of 8
// bits lie so, and have their scale and zero point in operands `scale` and the one behind.
static Ref weights_of(Call *c, int n, int d, int scale)
{
	int directions = 1 + !strcmp(attr_string(c, "direction", "forward"), "bidirectional");
	Shape s = in_val(c, n)->shape;
	if (s.rank != 3 || s.dim[0] != directions)
		invalid_node(c, "weights %s; expected 3 dimensions, the first %d",
		             shape_text(c->r->arena, val(c->g, c->in[n])->type, &s), directions);
	Ref w = of_direction(c, n, d);
	if (!scale)
		return swap_last(c->g, w);
	Ref part[] = {put_cast(c->g, w, E_f32), of_direction(c, scale, d),
	              of_direction(c, scale + 1, d)};
	if (!part[1])
		invalid_node(c, "input %d is missing", scale);
	part[2] = part[2] ? put_cast(c->g, part[2], E_f32) : put_num(c->g, E_f32, 0);
	for (int i = 1; i < 3; i++)
		part[i] = put_rank(c->g, part[i], val(c->g, part[i])->shape.rank ? 2 : 0);
	return book_call1(c->g, "dequantized", 3, part, 0, NULL);
}

// X is [steps, batch, inputs].
static Cell open_cell(Call *c, Kind kind, Ref x, int d)
{
	Graph *g = c->g;
	Shape s = val(g, x)->shape;
	Cell k = {.c = c, .g = g, .kind = kind, .steps = s.dim[0], .batch = s.dim[1]};
	k.bytes = c->variant;
	Ref w = weights_of(c, 1, d, k.bytes ? 8 : 0), b = of_direction(c, 3, d);
	k.recurrent = weights_of(c, 2, d, k.bytes ? 10 : 0);
	k.hidden = val(g, k.recurrent)->shape.dim[0];
	int64_t gates = kind * k.hidden, hidden = attr_int(c, "hidden_size", k.hidden);
	if (hidden != k.hidden)
		invalid_node(c, "hidden_size is %lld; the weights are of %lld hidden units",
		             (long long)hidden, (long long)k.hidden);
	if (val(g, w)->shape.dim[1] != gates || val(g, k.recurrent)->shape.dim[1] != gates)
		invalid_node(c, "%lld hidden units do not fit weights of %lld rows",
		             (long long)k.hidden, (long long)val(g, w)->shape.dim[1]);
	x = k.bytes ? book_call1(g, "rounded_to_bytes", 1, &x, 0, NULL) : x;
	k.pre = matmul(g, x, w);
	if (b)
		k.pre = put_map2(g, O_add, k.pre, flat_row(g, b, 0, gates));
	k.bias = b ? flat_row(g, b, gates, gates) : 0;
	Ref peep = kind == K_lstm ? of_direction(c, 7, d) : 0;
	k.peep = peep ? put_rank(g, peep, 2) : 0;
	if (c->nin > 4 && c->in[4]) {
		int64_t dims[] = {k.batch, 1};
		k.length = put_reshape(g, put_cast(g, c->in[4], E_i64), shape_of(2, dims));
	}
	k.h = initial_state(&k, 5, d);
	k.memory = kind == K_lstm ? initial_state(&k, 6, d) : 0;
	read_activations(&k, d);
	return k;
}

static void lower_recurrent(Call *c, Kind kind)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	const char *direction = attr_string(c, "direction", "forward");
	bool layout = attr_int(c, "layout", 0), both = !strcmp(direction, "bidirectional");
	Ref x = layout ? put_permute(g, c->in[0], (int64_t[]){1, 0, 2}) : c->in[0];
	int64_t steps = val(g, x)->shape.dim[0];
	if (val(g, x)->shape.rank != 3 || steps < 1)
		invalid_node(c, "wants one step or more, of three dimensions");
	Ref all[2], last[2], memory[2];
	for (int d = 0; d <= both; d++) {
		Cell k = open_cell(c, kind, x, d);
		k.reverse = d || !strcmp(direction, "reverse");
		k.limit = put_length(g, x, 0);
		run_cell(k, &all[d], &last[d], &memory[d]);
	}
	Ref out[3] = {both ? put_concat(g, 1, 2, all) : all[0],
	              both ? put_concat(g, 0, 2, last) : last[0],
	              kind == K_lstm && both ? put_concat(g, 0, 2, memory) : memory[0]};
	for (int i = 0; i < c->nout && i < (kind == K_lstm ? 3 : 2); i++)
		c->out[i] = !layout
		                ? out[i]
		                : put_permute(g, out[i],
		                              i ? (int64_t[]){1, 0, 2} : (int64_t[]){2, 0, 1, 3});
}

void lower_rnn(Call *c)
{
	lower_recurrent(c, K_rnn);
}

void lower_gru(Call *c)
{
	lower_recurrent(c, K_gru);
}

void lower_lstm(Call *c)
{
	lower_recurrent(c, K_lstm);
}
