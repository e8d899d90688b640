// loop_program.c: emits the launches of a loop's body, once per iteration.
// The body runs like an entry, with its own amos_run, whose inputs and outputs are, for each
// iteration, where the loop's values lie.
#include "program.h"

// An iteration is a run of the body. A carried value has two places: an iteration reads one and
// writes the other, so that the last of all writes where the result is read. The first reads the
// operand.
typedef struct Trips {
	EntryWriter *writer;
	const Plan *plan; // of the loop
	const Kern *kern;
	LoopInfo cycle;
	const Ref *in;
	Value run, inner; // amos_run of the loop and of its body
	Value inputs, outputs;
	Value limit;
	Value *start;    // by carried value: the operand
	Value *place[2]; // by result: its place; by carried value: the other place
	Value on, made;  // until: whether an iteration follows; how many were made
} Trips;

static int64_t result_bytes(const LoopInfo *c, int k)
{
	Shape shape = result_shape(c, k);
	return byte_count(result_val(c, k)->type, &shape);
}

static Value in_block(Gen *g, Value run, int field, int64_t offset)
{
	return at_index(g, g->i8, run_field(g, run, field), number(g, offset));
}

static Value listed(Gen *g, Value run, int field, int64_t entry)
{
	Value list = run_field(g, run, field);
	return LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, list, number(g, entry)), "");
}

static Value location_pointer(Gen *g, const Plan *plan, Value run, Location p)
{
	const Val *v;
	switch (p.block) {
	case B_param:
		return in_block(g, run, RUN_params, p.offset);
	case B_state:
		return in_block(g, run, RUN_state, p.offset);
	case B_scratch:
		return in_block(g, run, RUN_scratch, p.offset);
	case B_input:
		return listed(g, run, RUN_inputs, p.offset);
	case B_output:
		return listed(g, run, RUN_outputs, p.offset);
	case B_const:
		v = val(plan->graph, (Ref)p.offset);
		return literal_bytes(g, v->data, (size_t)bytes_of(v));
	case B_none:
		break;
	}
	never("an operand of a loop that is not in memory");
}

static Value operand_pointer(const Trips *t, int k)
{
	return location_pointer(t->writer->g, t->plan, t->run, value_location(t->plan, t->in[k]));
}

// Finds where results lie, in the kernel's work where nobody reads them; returns where the body's
// scratch begins.
static Value own_places(Trips *t)
{
	Gen *g = t->writer->g;
	const LoopInfo *c = &t->cycle;
	int n = loop_results(c);
	t->place[0] = NEWS(g->arena, Value, n + 1);
	t->place[1] = NEWS(g->arena, Value, n + 1);
	int64_t next = t->kern->work.offset;
	t->on = in_block(g, t->run, RUN_scratch, next);
	next += full_lines(1);
	for (int k = 0; k < n; k++) {
		int out = result_out(t->plan, t->kern, k);
		for (int which = 0; which <= (k < c->carried); which++)
			if (which || out < 0) {
				t->place[which][k] = in_block(g, t->run, RUN_scratch, next);
				next += full_lines(result_bytes(c, k));
			} else {
				t->place[0][k] =
				    location_pointer(g, t->plan, t->run, t->kern->to[out]);
			}
	}
	return in_block(g, t->run, RUN_scratch, next);
}

static void set_entry(Gen *g, Value list, int64_t entry, Value address)
{
	LLVMBuildStore(g->b, address, at_index(g, g->ptr, list, number(g, entry)));
}

static Value new_list(Gen *g, int n)
{
	return variable(g, LLVMArrayType2(g->ptr, (uint64_t)MAX(1, n)), NULL);
}

// The body's amos_run: that of the loop, but for scratch, inputs and outputs.
static void open_body(Trips *t)
{
	Gen *g = t->writer->g;
	const LoopInfo *c = &t->cycle;
	t->inner = new_list(g, RUN_FIELDS);
	t->inputs = new_list(g, c->body->slots.count);
	t->outputs = new_list(g, c->body->outs.count);
	for (int field = 0; field < RUN_FIELDS; field++)
		set_entry(g, t->inner, field, run_field(g, t->run, field));
	set_entry(g, t->inner, RUN_scratch, own_places(t));
	set_entry(g, t->inner, RUN_inputs, t->inputs);
	set_entry(g, t->inner, RUN_outputs, t->outputs);
	t->start = NEWS(g->arena, Value, c->carried + 1);
	for (int k = 0; k < c->carried; k++)
		t->start[k] = operand_pointer(t, 1 + k);
	for (int k = c->carried + c->scanned; k < c->body->slots.count; k++)
		set_entry(g, t->inputs, k, operand_pointer(t, 1 + k));
	if (c->until)
		set_entry(g, t->outputs, 0, t->on);
}

static Value limit_of(const Trips *t)
{
	Gen *g = t->writer->g;
	if (is_const(t->plan->graph, t->in[0]))
		return number(
		    g, MAX(0, MIN(t->cycle.trips, const_int_at(val(t->plan->graph, t->in[0]), 0))));
	Value limit = LLVMBuildLoad2(g->b, g->i64, operand_pointer(t, 0), "");
	Value above = LLVMBuildICmp(g->b, LLVMIntSGT, limit, number(g, t->cycle.trips), "");
	limit = LLVMBuildSelect(g->b, above, number(g, t->cycle.trips), limit, "");
	Value below = LLVMBuildICmp(g->b, LLVMIntSLT, limit, number(g, 0), "");
	return LLVMBuildSelect(g->b, below, number(g, 0), limit, "");
}

// True if the iteration with `left` more to come writes the other place.
static Value is_other(Gen *g, Value left)
{
	return LLVMBuildTrunc(g->b, left, g->i1, "");
}

static Value entry_pointer(Gen *g, Value base, Value t, int64_t bytes)
{
	return at_index(g, g->i8, base, LLVMBuildMul(g->b, t, number(g, bytes), ""));
}

// Without iterations the results are the operands; if the loop ended early, the last iteration may
// have written the other place.
static void settle_carried(const Trips *t, Value made)
{
	Gen *g = t->writer->g;
	Value left = LLVMBuildSub(g->b, t->limit, made, "");
	Value none = LLVMBuildICmp(g->b, LLVMIntEQ, made, number(g, 0), "");
	for (int k = 0; k < t->cycle.carried; k++) {
		if (result_out(t->plan, t->kern, k) < 0)
			continue;
		Value last =
		    LLVMBuildSelect(g->b, is_other(g, left), t->place[1][k], t->place[0][k], "");
		last = LLVMBuildSelect(g->b, none, t->start[k], last, "");
		LLVMBuildMemMove(g->b, t->place[0][k], 1, last, 1,
		                 number(g, result_bytes(&t->cycle, k)));
	}
}

static void write_trips(Trips *t, const Entry *body)
{
	Gen *g = t->writer->g;
	const LoopInfo *c = &t->cycle;
	Value *scanned = NEWS(g->arena, Value, c->scanned + 1);
	for (int k = 0; k < c->scanned; k++)
		scanned[k] = operand_pointer(t, 1 + c->carried + k);
	t->made = variable(g, g->i64, number(g, 0));
	LLVMBasicBlockRef out = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	Loop loop = loop_begin(g, number(g, 0), t->limit, 1);
	Value left = LLVMBuildSub(g->b, t->limit, number(g, 1), "");
	left = LLVMBuildSub(g->b, left, loop.i, "");
	Value other = is_other(g, left), entry = c->reverse ? left : loop.i;
	Value first = LLVMBuildICmp(g->b, LLVMIntEQ, loop.i, number(g, 0), "");
	for (int k = 0; k < c->carried; k++) {
		Value one = t->place[0][k], two = t->place[1][k];
		Value before = LLVMBuildSelect(g->b, other, one, two, "");
		set_entry(g, t->inputs, k, LLVMBuildSelect(g->b, first, t->start[k], before, ""));
		set_entry(g, t->outputs, c->until + k, LLVMBuildSelect(g->b, other, two, one, ""));
	}
	for (int k = 0; k < c->scanned; k++) {
		const Slot *slot = &c->body->slots.at[c->carried + k];
		int64_t bytes = byte_count(slot->type, &slot->shape);
		set_entry(g, t->inputs, c->carried + k, entry_pointer(g, scanned[k], entry, bytes));
	}
	for (int k = c->carried; k < loop_results(c); k++)
		set_entry(g, t->outputs, c->until + k,
		          entry_pointer(g, t->place[0][k], entry, bytes_of(result_val(c, k))));
	write_launches(t->writer, body, t->inner);
	if (c->until) {
		LLVMBasicBlockRef on = LLVMAppendBasicBlockInContext(g->context, g->function, "");
		set_variable(g, t->made, LLVMBuildAdd(g->b, loop.i, number(g, 1), ""));
		Value more = LLVMBuildLoad2(g->b, g->i8, t->on, "");
		Value done = LLVMBuildICmp(g->b, LLVMIntEQ, more, LLVMConstInt(g->i8, 0, 0), "");
		LLVMBuildCondBr(g->b, done, out, on);
		LLVMPositionBuilderAtEnd(g->b, on);
	}
	loop_end(g, &loop);
	LLVMBuildBr(g->b, out);
	LLVMPositionBuilderAtEnd(g->b, out);
}

void write_loop(EntryWriter *w, const Entry *e, const Launch *l, Value run)
{
	Gen *g = w->g;
	const Val *v = val(e->plan->graph, l->kern->root);
	Trips t = {.writer = w,
	           .plan = e->plan,
	           .kern = l->kern,
	           .cycle = loop_of(v),
	           .in = v->in,
	           .run = run};
	open_body(&t);
	t.limit = limit_of(&t);
	write_trips(&t, l->body);
	Value made = t.cycle.until ? read_variable(g, g->i64, t.made) : t.limit;
	bool certain = LLVMIsConstant(t.limit) && LLVMConstIntGetSExtValue(t.limit) > 0;
	if (t.cycle.until || !certain)
		settle_carried(&t, made);
	for (int i = 0; i < l->kern->nout; i++)
		if (l->kern->out[i] == l->kern->root)
			LLVMBuildStore(g->b, made,
			               location_pointer(g, e->plan, run, l->kern->to[i]));
}
