// attention.c: lowers LinearAttention, as a loop over its steps, and RelativePositionBias.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- linear attention -----------------------------------------------------------------

typedef struct Steps { // what one step reads: all of [batch, heads, length, d], or rows of it
	Ref query, key, value, decay, beta; // 0: not there
} Steps;

static Ref by_heads(Call *c, Ref x, int64_t heads)
{
	return book_call1(c->g, "heads", 1, &x, 1, &(AttrArg){.name = "n", .x = (double)heads});
}

// A slot for each step of [batch, heads, length, d], as a row: [batch, heads, 1, d].
static void scan_rows(Call *c, LoopScope *nest, Ref *x, int64_t length)
{
	if (!*x)
		return;
	if (val(nest->around, *x)->shape.dim[2] != length)
		invalid_node(c, "%lld steps for %lld keys",
		             (long long)val(nest->around, *x)->shape.dim[2], (long long)length);
	Ref steps = move_axis(nest->around, insert_axis(nest->around, *x, 3), 2, 0);
	*x = nest_slot(c->r, nest, steps, true);
}

// All steps, one after the other. Gives what the queries read, [length, batch, heads, 1, d], and
// the last state.
static Ref run_steps(Call *c, Steps s, Ref *state, int64_t heads)
{
	Reader *r = c->r;
	int64_t length = val(c->g, s.key)->shape.dim[2];
	Ref *scanned[] = {&s.query, &s.key, &s.value, &s.decay, &s.beta}, part[2];
	LoopScope nest;
	open_nest(r, &nest);
	Ref now = nest_slot(r, &nest, *state, false);
	for (int i = 0; i < COUNT(scanned); i++)
		scan_rows(c, &nest, scanned[i], length);
	int count = nest.body->slots.count - 1;
	Ref operands[] = {now, s.key, s.value, s.decay, s.beta};
	now = book_call1(nest.body, "next_state", COUNT(operands), operands, 0, NULL);
	AttrArg n = {.name = "n", .x = (double)heads};
	Ref shared = book_call1(nest.body, "shared", 1, &now, 1, &n);
	add_out(nest.body, "state", now);
	add_out(nest.body, "y", put2(nest.body, O_dot, s.query, shared));
	close_nest(r, &nest);
	LoopInfo cycle = {.trips = length, .carried = 1, .scanned = count};
	put_loop_info(r, &cycle, &nest, put_i64(c->g, length), part);
	*state = part[0];
	return part[1];
}

// Operand k (one number a head, or one a key) by heads; 0 where the rule does not use it.
static Ref gate_of(Call *c, int k, int64_t heads, bool used)
{
	if (!used)
		return 0;
	int64_t d = in_val(c, k)->shape.dim[2];
	return by_heads(c, c->in[k], d % heads ? 1 : heads);
}

void lower_linear_attention(Call *c)
{
	expect_all_fixed(c);
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	if (attr_int(c, "state_window", 0))
		unsupported_node(c, "export with state_window 0", "states of several steps");
	int64_t heads = attr_int(c, "q_num_heads", 0), shared = attr_int(c, "kv_num_heads", 0);
	const char *rule = attr_string(c, "update_rule", "gated_delta");
	Steps all = {by_heads(c, c->in[0], heads), by_heads(c, c->in[1], shared),
	             by_heads(c, c->in[2], shared),
	             gate_of(c, 4, shared, starts_with(rule, "gated")),
	             gate_of(c, 5, shared, strstr(rule, "delta"))};
	Shape s = val(g, all.key)->shape;
	int64_t dims[] = {s.dim[0], shared, s.dim[3], val(g, all.value)->shape.dim[3]};
	double scale = attr_float(c, "scale", 0);
	if (s.dim[2] < 1)
		invalid_node(c, "wants one step or more");
	Ref zero = put_broadcast(g, put_num(g, E_f32, 0), shape_of(4, dims));
	Ref state = c->nin > 3 && c->in[3] ? c->in[3] : zero;
	Ref y = run_steps(c, all, &state, heads);
	y = drop_axes(g, move_axis(g, y, 0, 3), 1, &(int64_t){2});
	y = scaled(g, y, scale ? scale : 1 / sqrt((double)s.dim[3]));
	c->out[0] = book_call1(g, "joined", 1, &y, 0, NULL);
	if (c->nout > 1)
		c->out[1] = state;
}

// ---- biases of relative positions -----------------------------------------------------

// T5's: near distances have a bucket each, far ones share buckets that grow by a constant factor.
static int64_t bucket_of(int64_t distance, int64_t buckets, int64_t farthest, bool both)
{
	int64_t base = 0, d = -distance;
	if (both) {
		buckets /= 2;
		base = d < 0 ? buckets : 0;
		d = d < 0 ? -d : d;
	}
	d = MAX(d, 0);
	int64_t near = buckets / 2;
	if (d < near || near < 1 || farthest <= near)
		return base + MIN(d, buckets - 1);
	double far = log((double)d / (double)near) / log((double)farthest / (double)near);
	return base + MIN(near + (int64_t)(far * (double)(buckets - near)), buckets - 1);
}

// Operands: the table [buckets, heads], the number of queries, that of keys. [1, heads, queries,
// keys]
void lower_relative_bias(Call *c)
{
	enum { LONGEST = 1 << 14 };
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n[2] = {0};
	const int64_t *queries = operand_ints(c, 1, &n[0]), *keys = operand_ints(c, 2, &n[1]);
	if (s.rank != 2 || n[0] != 1 || n[1] != 1 || s.dim[0] < 2)
		invalid_node(c, "wants a table [buckets, heads], and two lengths");
	if (*queries < 1 || *keys < 1 || *queries > LONGEST || *keys > LONGEST)
		invalid_node(c, "%lld queries and %lld keys; 1 to %d are supported",
		             (long long)*queries, (long long)*keys, LONGEST);
	int64_t farthest = attr_int(c, "max_distance", 128), dims[] = {*queries, *keys};
	int64_t *bucket = NEWS(c->r->arena, int64_t, *queries * *keys);
	for (int64_t q = 0; q < *queries; q++)
		for (int64_t k = 0; k < *keys; k++)
			bucket[q * *keys + k] = bucket_of(k - q, s.dim[0], farthest,
			                                  attr_int(c, "is_bidirectional", 0));
	Ref rows = put_gather(g, c->in[0], put_const(g, E_i64, shape_of(2, dims), bucket), 0);
	c->out[0] = insert_axis(g, move_axis(g, rows, 2, 0), 0);
}
