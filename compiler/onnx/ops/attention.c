// attention.c: ONNX operators of attention: with softmax, with graphs of the file's own between,
// linear with a state, a loop over its steps; rotary positions; caches. Takes the node being
// lowered. Gives its results. Keeps: heads are an axis; the book puts softmax attention together
// again.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- attention ------------------------------------------------------------------------

// [batch, length, heads * d] as [batch, heads, length, d]
Ref split_heads(Call *c, Ref x, int64_t heads)
{
	Shape s = val(c->g, x)->shape;
	if (s.rank == 4)
		return x;
	if (s.rank != 3 || heads < 1 || s.dim[2] % heads)
		invalid_node(c, "an operand of %d dimensions, or heads that do not divide it",
		             s.rank);
	int64_t dims[] = {s.dim[0], s.dim[1], heads, s.dim[2] / heads};
	return put_permute(c->g, put_reshape(c->g, x, shape_of(4, dims)), (int64_t[]){0, 2, 1, 3});
}

Ref join_heads(Graph *g, Ref x)
{
	return merge_axes(g, put_permute(g, x, (int64_t[]){0, 2, 1, 3}), 2, 4);
}

// Each head of keys or values serves several heads of queries.
Ref share_heads(Call *c, Ref x, int64_t heads)
{
	Shape s = val(c->g, x)->shape;
	if (s.dim[1] == heads)
		return x;
	if (!s.dim[1] || heads % s.dim[1])
		invalid_node(c, "%lld heads of queries for %lld of keys", (long long)heads,
		             (long long)s.dim[1]);
	int64_t dims[] = {s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]};
	Ref y = put_reshape(c->g, x, shape_of(5, dims));
	dims[2] = heads / s.dim[1];
	return merge_axes(c->g, put_expand(c->g, y, shape_of(5, dims)), 1, 3);
}

// Query i sees key j where j <= i + keys - queries (from set 24 on with a past; else j <= i).
Ref causal_mask(Graph *g, int64_t queries, int64_t keys, int64_t shift)
{
	int64_t dims[] = {1, 1, queries, keys};
	Shape s = shape_of(4, dims);
	Ref row = put2(g, O_add, put_iota(g, s, 2), put_num(g, E_i64, (double)shift));
	return put2(g, O_le, put_iota(g, s, 3), row);
}

Ref hide(Graph *g, Ref scores, Ref seen)
{
	align2(g, &scores, &seen);
	return put3(g, O_select, seen, scores, put_num(g, E_f32, -INFINITY));
}

// The mask fitted to the keys: what it does not speak of is hidden.
static Ref fit_mask(Graph *g, Ref mask, int64_t keys)
{
	int last = val(g, mask)->shape.rank - 1;
	if (val(g, mask)->shape.dim[last] > keys)
		mask = take_range(g, mask, last, 0, keys);
	const Val *v = val(g, mask);
	int64_t none[RANK] = {0}, more[RANK] = {0};
	more[last] = MAX(keys - v->shape.dim[last], 0);
	return put_pad(g, mask, none, more, v->type == E_b8 ? 0 : -INFINITY);
}

// Keys beyond `length`, one number or one a sample, are hidden.
static Ref hide_behind(Graph *g, Ref scores, Ref length)
{
	Shape s = val(g, scores)->shape;
	if (val(g, length)->shape.rank)
		length = put_reshape(g, length, shape_of(4, (int64_t[]){s.dim[0], 1, 1, 1}));
	Ref at = put_iota(g, shape_of(4, (int64_t[]){1, 1, 1, s.dim[3]}), 3);
	return hide(g, scores, put2(g, O_lt, at, put_cast(g, length, E_i64)));
}

// How many keys there are, those of the past too, where the data decide it; else 0.
static Ref attended_keys(const Call *c, int64_t past)
{
	Ref count = count_along(c, 1, in_val(c, 1)->shape.rank - 2);
	return count ? put2(c->g, O_add, count, put_i64(c->g, past)) : 0;
}

void lower_attention(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	Ref q = split_heads(c, c->in[0], attr_int(c, "q_num_heads", 0));
	Ref k = split_heads(c, c->in[1], attr_int(c, "kv_num_heads", 0));
	Ref v = split_heads(c, c->in[2], attr_int(c, "kv_num_heads", 0));
	int64_t past = 0;
	if (c->nin > 5 && c->in[4] && c->in[5]) {
		past = val(g, c->in[4])->shape.dim[2];
		k = put_concat(g, 2, 2, (Ref[]){c->in[4], k});
		v = put_concat(g, 2, 2, (Ref[]){c->in[5], v});
	}
	if (c->nout > 1)
		c->out[1] = k;
	if (c->nout > 2)
		c->out[2] = v;
	Shape s = val(g, q)->shape;
	k = share_heads(c, k, s.dim[1]);
	v = share_heads(c, v, s.dim[1]);
	double scale = attr_float(c, "scale", 1 / sqrt((double)s.dim[3])),
	       cap = attr_float(c, "softcap", 0);
	Ref scores = scaled(g, put2(g, O_dot, q, swap_last(g, k)), scale), stage[4] = {scores};
	if (cap > 0)
		scores = scaled(g, put1(g, O_tanh, scaled(g, scores, 1 / cap)), cap);
	stage[1] = scores;
	Ref mask = c->nin > 3 ? c->in[3] : 0;
	if (mask)
		mask = fit_mask(g, mask, val(g, k)->shape.dim[2]);
	if (mask)
		scores = val(g, mask)->type == E_b8 ? hide(g, scores, mask)
		                                    : put_map2(g, O_add, scores, mask);
	if (attr_int(c, "is_causal", 0))
		scores = hide(g, scores, causal_mask(g, s.dim[2], val(g, k)->shape.dim[2], past));
	if (c->nin > 6 && c->in[6])
		scores = hide_behind(g, scores, c->in[6]);
	Ref keys = attended_keys(c, past);
	if (keys)
		scores = hide_behind(g, scores, keys);
	stage[2] = scores;
	bool hidden = mask || keys || (c->nin > 6 && c->in[6]);
	Ref p = hidden
	            ? book_call1(g, "shares", 1, &scores, 1, &(AttrArg){"k", 1, (int64_t[]){3}, 0})
	            : put(g, O_softmax, 1, &scores, &(Attr){.n = 1, .i = {3}});
	stage[3] = p;
	Ref y = put2(g, O_dot, p, v);
	c->out[0] = val(g, c->in[0])->shape.rank == 3 ? join_heads(g, y) : y;
	if (c->nout > 3)
		c->out[3] = stage[attr_int(c, "qk_matmul_output_mode", 0) & 3];
}

// cos or sin for each position: [batch or 1, 1, length, d / 2]
static Ref angles(Call *c, Ref table, int64_t half)
{
	Graph *g = c->g;
	if (c->nin > 3 && c->in[3])
		table =
		    put_gather(g, table, keep_inside(c, c->in[3], val(g, table)->shape.dim[0]), 0);
	Shape s = val(g, table)->shape;
	if (s.rank != 3 || s.dim[2] != half)
		invalid_node(c, "cos and sin of %lld angles for %lld", (long long)s.dim[s.rank - 1],
		             (long long)half);
	return put_reshape(g, table, shape_of(4, (int64_t[]){s.dim[0], 1, s.dim[1], half}));
}

static Ref rotate_pairs(Graph *g, Ref x, Ref cosine, Ref sine, bool interleaved)
{
	Shape s = val(g, x)->shape;
	int64_t half = s.dim[3] / 2, split[] = {s.dim[0], s.dim[1], s.dim[2], 2, half};
	int64_t paired[] = {s.dim[0], s.dim[1], s.dim[2], half, 2};
	int axis = interleaved ? 4 : 3;
	Ref parts = put_reshape(g, x, shape_of(5, interleaved ? paired : split));
	Ref a = drop_axes(g, take_range(g, parts, axis, 0, 1), 1, (int64_t[]){axis});
	Ref b = drop_axes(g, take_range(g, parts, axis, 1, 1), 1, (int64_t[]){axis});
	Ref turned[2] = {put2(g, O_sub, put2(g, O_mul, a, cosine), put2(g, O_mul, b, sine)),
	                 put2(g, O_add, put2(g, O_mul, a, sine), put2(g, O_mul, b, cosine))};
	if (!interleaved)
		return put_concat(g, 3, 2, turned);
	for (int i = 0; i < 2; i++) {
		Shape wide = val(g, turned[i])->shape;
		wide.dim[wide.rank++] = 1;
		turned[i] = put_reshape(g, turned[i], wide);
	}
	return put_reshape(g, put_concat(g, 4, 2, turned), s);
}

void lower_rotary(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	bool flat = val(g, c->in[0])->shape.rank == 3;
	Ref x = split_heads(c, c->in[0], c->variant ? c->variant : attr_int(c, "num_heads", 0));
	int64_t d = val(g, x)->shape.dim[3], turned = attr_int(c, "rotary_embedding_dim", 0);
	if (!turned) // as many as there are angles for
		turned = MIN(d, 2 * in_val(c, 1)->shape.dim[in_val(c, 1)->shape.rank - 1]);
	if (turned > d || turned % 2)
		invalid_node(c, "rotary_embedding_dim %lld of %lld", (long long)turned,
		             (long long)d);
	Ref cosine = angles(c, c->in[1], turned / 2), sine = angles(c, c->in[2], turned / 2);
	Ref y = rotate_pairs(g, take_range(g, x, 3, 0, turned), cosine, sine,
	                     attr_int(c, "interleaved", attr_int(c, "rotary_interleaved", 0)));
	if (turned < d)
		y = put_concat(g, 3, 2, (Ref[]){y, take_range(g, x, 3, turned, d - turned)});
	c->out[0] = flat ? join_heads(g, y) : y;
}

// The node's graph `name` on one value; the value itself where there is none.
static Ref through_graph(Call *c, const char *name, Ref x)
{
	const AttributeProto *a = find_attr(c, name);
	if (!a || !a->g)
		return x;
	Value in = {.ref = x}, out = {0};
	lower_body(c, a->g, 1, &in, 1, &out);
	if (!out.ref)
		invalid_node(c, "its graph '%s' gives no tensor", name);
	return out.ref;
}

void lower_flex_attention(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	if (s.rank != 4 || in_val(c, 1)->shape.rank != 4 || in_val(c, 2)->shape.rank != 4)
		invalid_node(c, "wants [batch, heads, length, d]");
	Ref k = share_heads(c, c->in[1], s.dim[1]), v = share_heads(c, c->in[2], s.dim[1]);
	double scale = attr_float(c, "scale", 1 / sqrt((double)s.dim[3]));
	Ref scores = scaled(g, put2(g, O_dot, c->in[0], swap_last(g, k)), scale);
	scores = through_graph(c, "score_mod", scores);
	Ref p = put(g, O_softmax, 1, &scores, &(Attr){.n = 1, .i = {3}});
	c->out[0] = put2(g, O_dot, through_graph(c, "prob_mod", p), v);
}

// ---- linear attention -----------------------------------------------------------------

typedef struct Steps { // what one step reads: all of [batch, heads, length, d], or rows of it
	Ref query, key, value, decay, beta; // 0: not there
} Steps;

// The state that a step leaves.
static Ref next_state(Graph *g, const Steps *s, Ref state)
{
	Ref value = s->value;
	if (s->decay)
		state = book_call1(g, "decayed", 2, (Ref[]){state, s->decay}, 0, NULL);
	if (s->beta)
		value =
		    book_call1(g, "corrected", 4, (Ref[]){state, s->key, value, s->beta}, 0, NULL);
	return book_call1(g, "written", 3, (Ref[]){state, s->key, value}, 0, NULL);
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
	Call inside = *c;
	inside.g = nest.body;
	Ref now = nest_slot(r, &nest, *state, false);
	for (int i = 0; i < COUNT(scanned); i++)
		scan_rows(c, &nest, scanned[i], length);
	int count = nest.body->slots.count - 1;
	now = next_state(nest.body, &s, now);
	Ref shared = share_heads(&inside, now, heads);
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
	return split_heads(c, c->in[k], d % heads ? 1 : heads);
}

// What com.microsoft has beside ONNX: states of the last few steps.
static void want_one_state(const Call *c)
{
	if (attr_int(c, "state_window", 0))
		unsupported_node(c, "export with state_window 0", "states of several steps");
}

void lower_linear_attention(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	want_one_state(c);
	int64_t heads = attr_int(c, "q_num_heads", 0), shared = attr_int(c, "kv_num_heads", 0);
	const char *rule = attr_string(c, "update_rule", "gated_delta");
	Steps all = {split_heads(c, c->in[0], heads), split_heads(c, c->in[1], shared),
	             split_heads(c, c->in[2], shared),
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
	c->out[0] = join_heads(g, scaled(g, y, scale ? scale : 1 / sqrt((double)s.dim[3])));
	if (c->nout > 1)
		c->out[1] = state;
}

// A convolution of each channel with what came before it. That of com.microsoft has more
// attributes.
void lower_causal_conv(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, w = in_val(c, 1)->shape;
	const char *act = attr_string(c, "activation", "none");
	if (s.rank != 3 || w.rank != 3 || w.dim[0] != s.dim[1] || w.dim[1] != 1 || w.dim[2] < 1)
		invalid_node(c, "a kernel %s for %s", shape_text(c->r->arena, E_f32, &w),
		             shape_text(c->r->arena, E_f32, &s));
	want_one_state(c);
	if (attr_int(c, "ndim", 1) != 1 || attr_int(c, "channels_last", 0))
		unsupported_node(c, "export it with Conv",
		                 "a convolution over several axes, or channels last");
	int64_t apart = attr_int(c, "dilation", 1);
	if (apart < 1 || apart > INT32_MAX)
		invalid_node(c, "a dilation of %lld", (long long)apart);
	int64_t past = (w.dim[2] - 1) * apart, none[3] = {0}, before[3] = {0, 0, past};
	Ref x = c->nin > 3 && c->in[3] && past ? put_concat(g, 2, 2, (Ref[]){c->in[3], c->in[0]})
	                                       : put_pad(g, c->in[0], before, none, 0);
	Attr window = {.n = 7, .i = {2, s.dim[2], w.dim[2], 1, apart, 0, 1}};
	Ref terms =
	    put2(g, O_mul, put(g, O_window, 1, &x, &window),
	         put_reshape(g, c->in[1], shape_of(4, (int64_t[]){1, w.dim[0], 1, w.dim[2]})));
	int64_t last = 3;
	Ref y = drop_axes(g, put_reduce(g, O_sum, terms, 1, &last), 1, &last);
	if (c->nin > 2 && c->in[2])
		y = put2(g, O_add, y,
		         put_reshape(g, c->in[2], shape_of(3, (int64_t[]){1, w.dim[0], 1})));
	c->out[0] = strcmp(act, "none") ? put(g, O_act, 1, &y, &(Attr){.n = 1, .i = {A_silu}}) : y;
	if (c->nout > 1)
		c->out[1] = take_range(g, x, 2, s.dim[2], past);
}

// ---- caches ---------------------------------------------------------------------------

// Rows [batch * length, ..]: the axis beside the first, and both taken as one.
static Ref rows_along(Graph *g, Ref x, int axis)
{
	return merge_axes(g, move_axis(g, x, axis, 1), 0, 2);
}

Ref write_rows(Graph *g, Ref cache, Ref x, int axis, Ref start, bool around)
{
	Shape s = val(g, cache)->shape, u = val(g, x)->shape;
	int64_t n = s.dim[0], size = s.dim[axis], at[] = {n, u.dim[axis]}, each[] = {n, 1};
	Ref place = put_iota(g, shape_of(2, at), 1), length = put_i64(g, size);
	if (start)
		place = put2(g, O_add, place, put_reshape(g, start, shape_of(2, each)));
	if (around)
		place = put2(g, O_mod, place, length);
	Ref first = put2(g, O_mul, put_iota(g, shape_of(2, at), 0), length);
	place = merge_axes(g, put2(g, O_add, place, first), 0, 2);
	Ref rows = put_scatter(g, rows_along(g, cache, axis), place, rows_along(g, x, axis), 0, 0);
	Shape moved = val(g, move_axis(g, cache, axis, 1))->shape;
	return move_axis(g, put_reshape(g, rows, moved), 1, axis);
}

void lower_tensor_scatter(Call *c)
{
	Shape s = in_val(c, 0)->shape, u = in_val(c, 1)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", -2), s.rank);
	if (!axis || u.rank != s.rank)
		invalid_node(c, "wants an axis behind the first");
	bool around = !strcmp(attr_string(c, "mode", "linear"), "circular");
	Ref start = operand(c, 2) ? put_cast(c->g, c->in[2], E_i64) : 0;
	int64_t room = s.dim[axis] - u.dim[axis];
	if (room < 0)
		invalid_node(c, "%lld entries for %lld", (long long)u.dim[axis],
		             (long long)s.dim[axis]);
	if (start && !around)
		start = keep_inside(c, start, room + 1);
	c->out[0] = write_rows(c->g, c->in[0], c->in[1], axis, start, around);
}
