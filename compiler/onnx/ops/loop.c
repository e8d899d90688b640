// loop.c: lowers Loop and Scan, and brings values of the graph around a body into it.
// A loop stays one if it is long, or if its trip count depends on the data. Short loops are
// unrolled, and those whose iterations differ in shape.
#include "ops.h"
#include <string.h>

// ---- nests ----------------------------------------------------------------------------

void open_nest(Reader *r, LoopScope *f)
{
	*f = (LoopScope){.outer = r->nest, .around = r->g, .known = table_new(r->arena)};
	f->active = r->active;
	r->active = 0;
	f->body = graph_inside(r->arena, r->g);
	f->body->from = r->g->from;
	r->g = f->body;
	r->nest = f;
}

void close_nest(Reader *r, LoopScope *f)
{
	r->g = f->around;
	r->nest = f->outer;
	r->active = f->active;
}

Ref nest_slot(Reader *r, LoopScope *f, Ref x, bool entry)
{
	const Val *v = val(f->around, x);
	Slot slot = {.kind = S_input, .type = v->type, .shape = v->shape};
	slot.name = format(r->arena, "x%d", f->operand.count);
	if (entry)
		slot.shape = shape_of(v->shape.rank - 1, v->shape.dim + 1);
	PUSH(r->arena, f->operand, x);
	return put_slot(f->body, add_slot(f->body, slot));
}

static Ref bring_one(Reader *r, LoopScope *f, Ref x);

Ref sized_slot(Reader *r, LoopScope *f, Ref slot)
{
	Ref x = f->operand.at[val(f->body, slot)->attr->i[0]];
	Lengths l = *lengths_of(f->around, x), own = {0};
	int rank = val(f->body, slot)->shape.rank, first = val(f->around, x)->shape.rank - rank;
	for (int a = 0; a < rank; a++)
		own.of[a] = l.of[first + a] ? bring_one(r, f, l.of[first + a]) : 0;
	return put_lengths(f->body, slot, &own);
}

// In nest f, given it is known around it. Constants stay constants: operators ask for them.
static Ref bring_one(Reader *r, LoopScope *f, Ref x)
{
	enum { SMALL = 1024 };
	const Val *v = val(f->around, x);
	const uint64_t *known = table_find(f->known, &x, sizeof x);
	if (known)
		return (Ref)*known;
	Ref inside = v->op == O_const && count_of(&v->shape) <= SMALL
	                 ? put_const(f->body, v->type, v->shape, v->data)
	                 : sized_slot(r, f, nest_slot(r, f, x, false));
	*table_cell(f->known, &x, sizeof x) = inside;
	return inside;
}

static Ref bring_to(Reader *r, Ref x, LoopScope *home, LoopScope *f)
{
	return f == home ? x : bring_one(r, f, bring_to(r, x, home, f->outer));
}

Ref bring_in(Reader *r, Ref x, LoopScope *home)
{
	return x ? bring_to(r, x, home, r->nest) : 0;
}

LoopScope *leave_nests(Reader *r)
{
	LoopScope *inside = r->nest;
	for (LoopScope *f = inside; f; f = f->outer)
		r->g = f->around;
	r->nest = NULL;
	return inside;
}

Ref enter_nests(Reader *r, LoopScope *inside, Ref x)
{
	r->nest = inside;
	r->g = inside ? inside->body : r->g;
	return bring_in(r, x, NULL);
}

// Its body, and the operands after the limit.
static Ref *fill_cycle(Reader *r, LoopInfo *cycle, const LoopScope *f, Ref limit)
{
	VEC(Ref) in = {0};
	PUSH(r->arena, in, limit);
	for (int k = 0; k < f->operand.count; k++)
		PUSH(r->arena, in, put_all_padded(f->around, f->operand.at[k]));
	cycle->body = f->body;
	cycle->fixed = f->body->slots.count - cycle->carried - cycle->scanned;
	cycle->stacked = f->body->outs.count - cycle->until - cycle->carried;
	return in.at;
}

// The length around a closed nest that is `length` in its body; 0: it is computed there.
static Ref length_around(const LoopScope *f, Ref length)
{
	const Val *v = val(f->body, length);
	return v->op == O_slot ? f->operand.at[v->attr->i[0]] : 0;
}

// The operands are padded already, so no lengths are kept while the loop is put; its results get
// those that all iterations agree on.
Ref put_loop_info(Reader *r, LoopInfo *cycle, const LoopScope *f, Ref limit, Ref *part)
{
	const Ref *in = fill_cycle(r, cycle, f, limit);
	Table *lengths = r->g->lengths;
	r->g->lengths = NULL;
	Ref trips = put_trimmed_loop(r->g, cycle, in, NULL, part);
	r->g->lengths = lengths;
	for (int k = 0; k < loop_results(cycle); k++) {
		const Lengths *own = lengths_of(f->body, result_ref(cycle, k));
		Lengths out = {0};
		for (int a = 0; a < RANK - 1; a++) {
			int to = a + (k >= cycle->carried);
			out.of[to] = own->of[a] ? length_around(f, own->of[a]) : 0;
			if (own->of[a] && !out.of[to])
				fail(r->model->path, "a size that each iteration decides");
		}
		if (part[k])
			part[k] = put_lengths(r->g, part[k], &out);
	}
	return trips;
}

Ref put_stack(Call *c, int n, const Ref *x, int axis)
{
	Graph *g = c->g;
	Ref *row = NEWS(c->r->arena, Ref, n);
	for (int i = 0; i < n; i++) {
		Shape s = val(g, x[i])->shape, wide = {.rank = s.rank + 1};
		check_rank(c, wide.rank);
		for (int a = 0; a < wide.rank; a++)
			wide.dim[a] = a == axis ? 1 : s.dim[a - (a > axis)];
		row[i] = put_reshape(g, x[i], wide);
	}
	return n == 1 ? row[0] : put_concat(g, axis, n, row);
}

// ---- bodies of the file ---------------------------------------------------------------

typedef struct LoopLowering { // of a Loop or Scan
	Call *c;
	const GraphProto *body;
	bool loop; // a Loop: its body also takes the iteration and a condition, and returns one
	int carried, scanned, stacked;
	const Value *start; // of carried values
	const Ref *scan;    // along their first axes
	Ref limit;          // i64, rank 0
	int64_t most; // iterations that the limit allows; ENDLESS: it is computed, or there is none
	Value *last;  // carried values after the last iteration
	Ref *all;     // stacked values, along their first axes
	Ref trips;    // how many of their entries are valid, i64; 0: all
	const char *why;  // the reason that it cannot stay a loop
	const char *help; // against what is wrong in its graph
	Ref unknown;      // the condition to go on that keeps it from being unrolled
} LoopLowering;

static const int64_t ENDLESS = INT64_C(1) << 40;

// What a loop carries after the file's values: the iteration, and of the first index that was out
// of range the number of its check, from 1, and the index; 0: none was.
enum { ITERATION, WHICH, FOUND, OWN };

// From the second iteration on, loops run faster than unrolled: weights get their gradient once.
// Those of few nodes are unrolled all the same, because more is constant if the iteration is. If
// iterations differ, at most LONGEST are unrolled.
enum { FEW = 64, LONGEST = 4096 };

// True if carried value k keeps its type and shape; else sets t->why.
static bool fits(LoopLowering *t, const Graph *body, Ref given, Ref made, int k)
{
	const Val *v = val(body, given), *w = val(body, made);
	Arena *arena = t->c->r->arena;
	if (v->type != w->type || !same_shape(&v->shape, &w->shape))
		t->why = format(arena, "carried value %d, %s, becomes %s", k,
		                shape_text(arena, v->type, &v->shape),
		                shape_text(arena, w->type, &w->shape));
	else if (memcmp(lengths_of(body, given), lengths_of(body, made), sizeof(Lengths)))
		t->why = format(arena, "the data decide the size of carried value %d", k);
	return !t->why;
}

static bool all_tensors(LoopLowering *t, int n, const Value *v)
{
	for (int k = 0; k < n; k++)
		if (!is_tensor(v[k]))
			t->why = "a value of its graph is not a tensor";
	return !t->why;
}

// Adds the outputs of the body: whether to go on (unless that is certain), carried values, the
// file's and `own`, and stacked values. Returns true if the first is there.
static bool add_results(LoopLowering *t, LoopScope *f, const Ref *own, const Value *out)
{
	Graph *body = f->body;
	bool until = false;
	for (int k = 0; k < t->loop + t->carried + t->stacked; k++)
		for (int a = 0; a < RANK; a++) {
			Ref length = lengths_of(body, out[k].ref)->of[a];
			if (length && !length_around(f, length))
				t->why = "the data decide the size of a value of its graph";
		}
	if (t->why)
		return false;
	Ref on = t->loop ? as_ref(t->c, out[0]) : 0;
	if (on && !(is_const(body, on) && const_int_at(val(body, on), 0))) {
		add_out(body, "on", put_reshape(body, on, shape_of(0, NULL)));
		until = true;
	}
	for (int k = 0; k < t->carried; k++) {
		Ref x = as_ref(t->c, out[t->loop + k]);
		if (!fits(t, body, sized_slot(t->c->r, f, put_slot(body, k)), x, k))
			return false;
		add_out(body, "carried", x);
	}
	add_out(body, "turn", put2(body, O_add, own[ITERATION], put_i64(body, 1)));
	// The first index of all iterations that was out of range, and its check.
	Ref none = put_i64(body, 0), which = own[WHICH], found = own[FOUND];
	for (int k = 0; k < f->checks.count; k++) {
		Ref index = f->checks.at[k].index,
		    first = put2(body, O_and, put2(body, O_eq, which, none),
		                 put1(body, O_not, put2(body, O_eq, index, none)));
		which = put3(body, O_select, first, put_i64(body, k + 1), which);
		found = put3(body, O_select, first, index, found);
	}
	add_out(body, "which", which);
	add_out(body, "found", found);
	for (int k = 0; k < t->stacked; k++)
		add_out(body, "stacked", as_ref(t->c, out[t->loop + t->carried + k]));
	return until;
}

// The loop cannot stay one because of a problem in its graph.
static void blame_body(LoopLowering *t, const Problem *p)
{
	t->why = p->where ? format(t->c->r->arena, "%s: %s", p->where, p->why) : p->why;
	t->help = p->help;
}

// Lowers the body once, for all iterations. Errors in it are dropped: it may be lowered unrolled.
static LoopInfo body_once(LoopLowering *t, LoopScope *f)
{
	Call *c = t->c;
	Reader *r = c->r;
	int n = 2 * t->loop, results = t->loop + t->carried + t->stacked;
	int problems = r->problems.count;
	Value *in = NEWS(r->arena, Value, n + t->carried + t->scanned + 1),
	      *out = NEWS(r->arena, Value, results + 1);
	Ref first = put_i64(c->g, 0), own[OWN], *start = NEWS(r->arena, Ref, t->carried + 1);
	for (int k = 0; k < t->carried; k++)
		start[k] = as_ref(c, t->start[k]);
	open_nest(r, f);
	for (int k = 0; k < t->carried; k++)
		in[n++] =
		    (Value){.ref = nest_slot(r, f, start[k], false), .onnx = t->start[k].onnx};
	for (int k = 0; k < OWN; k++)
		own[k] = nest_slot(r, f, first, false);
	f->iteration = own[ITERATION];
	for (int k = 0; k < t->scanned; k++)
		in[n++] = (Value){.ref = nest_slot(r, f, t->scan[k], true)};
	for (int k = 2 * t->loop; k < n; k++)
		in[k].ref = sized_slot(r, f, in[k].ref);
	if (t->loop) {
		in[0].ref = own[ITERATION];
		in[1].ref = put_num(f->body, E_b8, 1);
	}
	lower_body(c, t->body, n, in, results, out);
	LoopInfo cycle = {.trips = t->most, .carried = t->carried + OWN, .scanned = t->scanned};
	if (r->problems.count > problems)
		blame_body(t, &r->problems.at[problems]);
	else if (all_tensors(t, results, out))
		cycle.until = add_results(t, f, own, out);
	if (f->body->stores.count)
		t->why = "its graph updates running statistics";
	drop_problems(r, problems);
	close_nest(r, f);
	return cycle;
}

// Drops the condition to go on if a counter alone decides when the loop ends.
static void count_trips(LoopLowering *t, LoopInfo *cycle, LoopScope *f)
{
	enum { MOST = 1 << 16 };
	Graph *g = t->c->g;
	const Ref *in = fill_cycle(t->c->r, cycle, f, t->limit);
	Table *lengths = g->lengths;
	g->lengths = NULL;
	int64_t trips = known_trips(g, cycle, in, MOST);
	g->lengths = lengths;
	if (trips < 0)
		return;
	if (cycle->until)
		memmove(f->body->outs.at, f->body->outs.at + 1,
		        sizeof *f->body->outs.at * (size_t)--f->body->outs.count);
	cycle->until = false;
	cycle->trips = t->most = trips;
	t->limit = put_i64(g, trips);
}

static bool keep_loop(LoopLowering *t)
{
	Call *c = t->c;
	LoopScope f;
	if (!all_tensors(t, t->carried, t->start))
		return false;
	LoopInfo cycle = body_once(t, &f);
	// If all its operands are constants, shapes may depend on its values: it is unrolled.
	bool known = is_const(c->g, t->limit);
	for (int k = 0; k < f.operand.count; k++)
		known &= is_const(c->g, f.operand.at[k]);
	if (t->why || (known && !c->r->options->loops))
		return false;
	if (t->loop)
		count_trips(t, &cycle, &f);
	bool counted = cycle.until || t->most == ENDLESS || !is_const(c->g, t->limit);
	if (t->stacked && counted && t->most == ENDLESS) {
		stand_for(c->r, t->limit);
		t->why = "the trip count depends on the data, and each iteration adds a row to a "
		         "result: give it a constant trip count";
		return false;
	}
	Ref *part = NEWS(c->r->arena, Ref, f.body->outs.count + 1);
	Ref trips = put_loop_info(c->r, &cycle, &f, t->limit, part);
	t->trips = counted ? trips : 0;
	for (int k = 0; k < t->carried; k++)
		t->last[k] = (Value){.ref = part[k]};
	t->all = part + t->carried + OWN;
	for (int k = 0; k < f.checks.count; k++) {
		const Ref *own = part + t->carried;
		Ref is = put2(c->g, O_eq, own[WHICH], put_i64(c->g, k + 1));
		add_check(c->r, f.checks.at[k].text,
		          put3(c->g, O_select, is, own[FOUND], put_i64(c->g, 0)));
	}
	return true;
}

// Lowers the body for each iteration, of which there may be `most`. False if there are more.
static bool unroll(LoopLowering *t, bool on, int64_t most)
{
	Call *c = t->c;
	Reader *r = c->r;
	int first = 2 * t->loop, n = first + t->carried + t->scanned;
	int results = t->loop + t->carried + t->stacked;
	int64_t trip = 0;
	Value *in = NEWS(r->arena, Value, n + 1), *out = NEWS(r->arena, Value, results + 1);
	Value *carried = in + first, *scanned = carried + t->carried;
	Ref **row = NEWS(r->arena, Ref *, t->stacked + 1);
	memcpy(carried, t->start, sizeof *in * (size_t)t->carried);
	for (int s = 0; s < t->stacked; s++)
		row[s] = NEWS(r->arena, Ref, MIN(most, t->most) + 1);
	for (; on && trip < t->most; trip++) {
		if (trip == most)
			return false;
		if (t->loop) {
			in[0] = (Value){.ref = put_i64(c->g, trip)};
			in[1] = (Value){.ref = put_num(c->g, E_b8, 1)};
		}
		for (int s = 0; s < t->scanned; s++) {
			Ref one = take_range(c->g, t->scan[s], 0, trip, 1);
			scanned[s] = (Value){.ref = drop_axes(c->g, one, 1, (int64_t[]){0})};
		}
		lower_body(c, t->body, n, in, results, out);
		t->unknown = t->loop ? as_ref(c, out[0]) : 0;
		if (t->loop && !is_const(c->g, t->unknown))
			return false;
		on = !t->loop || const_int_at(val(c->g, t->unknown), 0);
		memcpy(carried, out + t->loop, sizeof *in * (size_t)t->carried);
		for (int s = 0; s < t->stacked; s++)
			row[s][trip] = as_ref(c, out[t->loop + t->carried + s]);
	}
	memcpy(t->last, carried, sizeof *in * (size_t)t->carried);
	for (int s = 0; trip && s < t->stacked; s++)
		t->all[s] = put_stack(c, (int)trip, row[s], 0);
	return trip || !t->stacked;
}

// on: whether the first iteration is made if the limit allows one; NULL: that is computed.
static void lower_trips(LoopLowering *t, const bool *on)
{
	Call *c = t->c;
	int64_t values = MAX(1, (int64_t)t->body->n_node);
	bool known = on && is_const(c->g, t->limit);
	int64_t least = t->most < ENDLESS ? t->most : 1;
	bool brief = !c->r->options->loops && least <= FEW && least * values <= FEW;
	t->last = NEWS(c->r->arena, Value, t->carried + 1);
	t->all = NEWS(c->r->arena, Ref, t->stacked + 1);
	if (known && brief && unroll(t, *on, FEW / values))
		return;
	if (keep_loop(t) || (known && unroll(t, *on, LONGEST)))
		return;
	if (t->unknown)
		stand_for(c->r, t->unknown);
	stand_for(c->r, t->limit);
	bool fixed = known && (!t->unknown || is_const(c->g, t->unknown));
	const char *text = format(c->r->arena, "cannot compile this loop: %s; its trip count is %s",
	                          t->why ? t->why : "iterations differ",
	                          fixed ? "too large to unroll it" : "computed from data");
	if (t->help)
		unsupported_node(c, t->help, "%s", text);
	invalid_node(c, "%s", text);
}

static void give_all(const LoopLowering *t, Ref placed(Call *, int k, Ref))
{
	Call *c = t->c;
	give_values(c, t->carried, t->last);
	for (int s = 0; s < t->stacked && t->carried + s < c->nout; s++)
		c->out[t->carried + s] = placed ? placed(c, s, t->all[s]) : t->all[s];
}

// ---- Loop -----------------------------------------------------------------------------

static Ref number_in(Call *c, int k)
{
	if (count_of(&in_val(c, k)->shape) != 1)
		invalid_node(c, "input %d is not a scalar", k);
	return put_reshape(c->g, c->in[k], shape_of(0, NULL));
}

void lower_loop(Call *c)
{
	Graph *g = c->g;
	LoopLowering t = {.c = c, .body = body_of(c, "body"), .loop = true, .most = ENDLESS};
	t.carried = c->nin - 2;
	t.stacked = (int)t.body->n_output - 1 - t.carried;
	if (t.carried < 0 || t.stacked < 0)
		invalid_node(c, "its graph has too few outputs");
	bool on = true, known = true;
	t.start = c->arg + 2;
	t.limit = c->arg[0].absent ? put_i64(g, ENDLESS) : put_cast(g, number_in(c, 0), E_i64);
	if (is_const(g, t.limit))
		t.most = MIN(ENDLESS, MAX(0, const_int_at(val(g, t.limit), 0)));
	if (!c->arg[1].absent) {
		Ref first = number_in(c, 1);
		known = is_const(g, first);
		on = known && const_int_at(val(g, first), 0);
		t.limit = put3(g, O_select, first, t.limit, put_i64(g, 0));
	}
	lower_trips(&t, known ? &on : NULL);
	give_all(&t, NULL);
	for (int k = t.carried; k < c->nout && t.trips; k++)
		c->out[k] = put_valid(g, c->out[k], 0, t.trips);
}

// ---- Scan -----------------------------------------------------------------------------

static int64_t nth(const int64_t *list, int n, int i, int64_t otherwise)
{
	return list && i < n ? list[i] : otherwise;
}

static Ref reversed(Graph *g, Ref x)
{
	Shape shape = val(g, x)->shape;
	int64_t start[RANK] = {shape.dim[0] - 1}, step[RANK] = {-1};
	for (int a = 1; a < shape.rank; a++)
		step[a] = 1;
	return shape.dim[0] ? put_slice(g, x, start, shape.dim, step) : x;
}

static Ref given_value(Call *c, int s, Ref x)
{
	int n[2] = {0};
	const int64_t *axes = attr_ints(c, "scan_output_axes", &n[0]);
	const int64_t *back = attr_ints(c, "scan_output_directions", &n[1]);
	int axis = (int)axis_of(c, nth(axes, n[0], s, 0), val(c->g, x)->shape.rank);
	return move_axis(c->g, nth(back, n[1], s, 0) ? reversed(c->g, x) : x, 0, axis);
}

static void scan_all(Call *c)
{
	LoopLowering t = {.c = c, .body = body_of(c, "body"), .start = c->arg};
	t.scanned = (int)attr_int(c, "num_scan_inputs", 0);
	t.carried = c->nin - t.scanned;
	t.stacked = (int)t.body->n_output - t.carried;
	if (t.scanned < 1 || t.carried < 0 || t.stacked < 0)
		invalid_node(c, "its graph has too few inputs or outputs");
	int n[2] = {0};
	const int64_t *axes = attr_ints(c, "scan_input_axes", &n[0]);
	const int64_t *back =
	    attr_ints(c, c->opset < 9 ? "directions" : "scan_input_directions", &n[1]);
	Ref *scan = NEWS(c->r->arena, Ref, t.scanned);
	for (int s = 0; s < t.scanned; s++) {
		int k = t.carried + s;
		int axis = (int)axis_of(c, nth(axes, n[0], s, 0), in_val(c, k)->shape.rank);
		scan[s] = move_axis(c->g, c->in[k], axis, 0);
		if (nth(back, n[1], s, 0))
			scan[s] = reversed(c->g, scan[s]);
		int64_t trips = val(c->g, scan[s])->shape.dim[0];
		if (s && trips != t.most)
			invalid_node(c, "its scanned inputs have %lld and %lld elements",
			             (long long)t.most, (long long)trips);
		t.most = trips;
	}
	t.scan = scan;
	t.limit = put_length(c->g, scan[0], 0);
	lower_trips(&t, &(bool){true});
	for (int k = 0; k < t.stacked && t.trips; k++)
		t.all[k] = put_valid(c->g, t.all[k], 0, t.limit);
	give_all(&t, given_value);
}

// Opset 8 scans each sample of a batch by itself; operand 0 may give the length of each.
void lower_scan(Call *c)
{
	if (c->opset >= 9) {
		scan_all(c);
		return;
	}
	if (c->nin < 2 || !c->arg[0].absent)
		invalid_node(
		    c, "samples of different lengths: pad them, or export with set 9 or later");
	int64_t batch = in_val(c, 1)->shape.dim[0];
	if (batch < 1)
		invalid_node(c, "a batch of no samples");
	Ref **row = NEWS(c->r->arena, Ref *, c->nout + 1);
	for (int o = 0; o < c->nout; o++)
		row[o] = NEWS(c->r->arena, Ref, batch);
	for (int64_t b = 0; b < batch; b++) {
		Call one = *c;
		one.nin = c->nin - 1;
		one.arg = NEWS(c->r->arena, Value, c->nin);
		one.in = NEWS(c->r->arena, Ref, c->nin);
		one.out = NEWS(c->r->arena, Ref, c->nout + 1);
		one.value = NEWS(c->r->arena, Value, c->nout + 1);
		for (int k = 0; k < one.nin; k++) {
			if (!in_val(c, k + 1)->shape.rank)
				invalid_node(c, "input %d has no batch axis", k + 1);
			Ref sample = take_range(c->g, c->in[k + 1], 0, b, 1);
			sample = drop_axes(c->g, sample, 1, (int64_t[]){0});
			one.arg[k].ref = one.in[k] = sample;
		}
		scan_all(&one);
		for (int o = 0; o < c->nout; o++)
			row[o][b] = one.out[o] ? one.out[o] : as_ref(c, one.value[o]);
	}
	for (int o = 0; o < c->nout; o++)
		c->out[o] = put_stack(c, (int)batch, row[o], 0);
}
