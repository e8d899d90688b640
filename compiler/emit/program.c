// program.c: emits a function per entry, which runs its launches in order.
// Output: int (const amos_run *). Launches are tables that one function reads, so that an entry of
// thousands takes a few instructions. Between them are loops, whose bodies run like entries, with
// their own amos_run: its inputs and outputs are, for each iteration, where the loop's values lie.
#include "gen.h"

enum { // struct amos_run: all pointers, in this order
	RUN_params,
	RUN_state,
	RUN_scratch,
	RUN_inputs,
	RUN_outputs,
	RUN_launch,
	RUN_own,
	RUN_FIELDS
};

typedef struct EntryWriter { // of one entry's function
	Gen *g;
	Value runner;
	int64_t next; // number of the next launch in the entry
} EntryWriter;

// ---- programs -------------------------------------------------------------------------

// A program is a table of launches (worker, calls, first operand, operands) over a table of
// operands (block, offset): an address is the block's plus the offset, or entry `offset` of a block
// of addresses.
enum { LAUNCH_FIELDS = 4, BLOCKS = B_const + 1 };

static const int run_fields[BLOCKS] = {[B_param] = RUN_params,
                                       [B_state] = RUN_state,
                                       [B_scratch] = RUN_scratch,
                                       [B_input] = RUN_inputs,
                                       [B_output] = RUN_outputs};

static LLVMTypeRef launch_type(Gen *g)
{
	LLVMTypeRef field[LAUNCH_FIELDS] = {g->ptr, g->i64, g->i64, g->i64};
	return LLVMStructTypeInContext(g->context, field, LAUNCH_FIELDS, 0);
}

static LLVMTypeRef operand_type(Gen *g)
{
	LLVMTypeRef field[2] = {g->i64, g->i64};
	return LLVMStructTypeInContext(g->context, field, 2, 0);
}

// A constant in memory is entry `number` of the constants of its program.
static int64_t const_number(Gen *g, const Plan *plan, Table *numbers, Values *consts, Ref r)
{
	const Val *v = val(plan->graph, r);
	uint64_t *cell = table_cell(numbers, &r, sizeof r);
	if (!*cell) {
		PUSH(g->arena, *consts, literal_bytes(g, v->data, (size_t)bytes_of(v)));
		*cell = (uint64_t)consts->count;
	}
	return (int64_t)*cell - 1;
}

typedef struct Program {
	Value launches, operands, consts;
} Program;

static Program program_tables(Gen *g, const Entry *entry)
{
	Values operands = {0}, consts = {0};
	Table *numbers = table_new(g->arena);
	Value *launch = NEWS(g->arena, Value, entry->n);
	LLVMTypeRef arg[3] = {g->ptr, g->i64, g->ptr};
	LLVMTypeRef worker = LLVMFunctionType(LLVMVoidTypeInContext(g->context), arg, 3, 0);
	int n = 0;
	for (int k = 0; k < entry->n; k++) {
		const Launch *l = &entry->launch[k];
		if (l->body)
			continue;
		const char *name = kernel_name(g->arena, l->kernel, l->number);
		Value code = LLVMGetNamedFunction(g->module, name);
		Value f[LAUNCH_FIELDS] = {code ? code : LLVMAddFunction(g->module, name, worker),
		                          number(g, l->workers), number(g, operands.count),
		                          number(g, l->nlocation)};
		launch[n++] = struct_of(g, LAUNCH_FIELDS, f);
		for (int i = 0; i < l->nlocation; i++) {
			Location p = l->place[i];
			if (p.block == B_const)
				p.offset =
				    const_number(g, entry->plan, numbers, &consts, (Ref)p.offset);
			Value o[2] = {number(g, p.block), number(g, p.offset)};
			PUSH(g->arena, operands, struct_of(g, 2, o));
		}
	}
	return (Program){literal_array(g, launch_type(g), launch, n),
	                 literal_array(g, operand_type(g), operands.at, operands.count),
	                 literal_array(g, g->ptr, consts.at, consts.count)};
}

// ---- the interpreter of launch tables: one function for all programs ------------------

static Value at_index(Gen *g, LLVMTypeRef type, Value from, Value i)
{
	return LLVMBuildGEP2(g->b, type, from, &i, 1, "");
}

static Value load_field(Gen *g, LLVMTypeRef type, Value from, unsigned field, LLVMTypeRef of)
{
	return LLVMBuildLoad2(g->b, of, LLVMBuildStructGEP2(g->b, type, from, field, ""), "");
}

static Value run_field(Gen *g, Value run, int field)
{
	return LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, run, number(g, field)), "");
}

static void set_entry(Gen *g, Value list, int64_t entry, Value address)
{
	LLVMBuildStore(g->b, address, at_index(g, g->ptr, list, number(g, entry)));
}

static void return_if(Gen *g, Value status)
{
	LLVMBasicBlockRef stop = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	LLVMBasicBlockRef go = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	Value failed = LLVMBuildICmp(g->b, LLVMIntNE, status, LLVMConstInt(g->i32, 0, 0), "");
	LLVMBuildCondBr(g->b, failed, stop, go);
	LLVMPositionBuilderAtEnd(g->b, stop);
	LLVMBuildRet(g->b, status);
	LLVMPositionBuilderAtEnd(g->b, go);
}

// int (run, launches, n, operands, consts, number of the first)
static Value write_runner(Gen *g, int widest)
{
	LLVMTypeRef arg[6] = {g->ptr, g->ptr, g->i64, g->ptr, g->ptr, g->i64};
	function_begin(g, "amos_launches", LLVMFunctionType(g->i32, arg, 6, 0));
	LLVMSetLinkage(g->function, LLVMPrivateLinkage);
	Value run = LLVMGetParam(g->function, 0);
	Value base = variable(g, LLVMArrayType2(g->ptr, BLOCKS), NULL);
	for (Block k = B_param; k <= B_output; k++)
		set_entry(g, base, k, run_field(g, run, run_fields[k]));
	set_entry(g, base, B_const, LLVMGetParam(g->function, 4));
	Value launch = run_field(g, run, RUN_launch);
	Value buffer = variable(g, LLVMArrayType2(g->ptr, (uint64_t)widest), NULL);
	LLVMTypeRef call[5] = {g->ptr, g->ptr, g->ptr, g->i64, g->i64};
	Loop loop = loop_begin(g, number(g, 0), LLVMGetParam(g->function, 2), 1);
	Value record = at_index(g, launch_type(g), LLVMGetParam(g->function, 1), loop.i);
	Value worker = load_field(g, launch_type(g), record, 0, g->ptr);
	Value calls = load_field(g, launch_type(g), record, 1, g->i64);
	Value first = load_field(g, launch_type(g), record, 2, g->i64);
	Value count = load_field(g, launch_type(g), record, 3, g->i64);
	Loop each = loop_begin(g, number(g, 0), count, 1); // operand, whose address goes to buffer
	Value i = LLVMBuildAdd(g->b, first, each.i, "");
	Value o = at_index(g, operand_type(g), LLVMGetParam(g->function, 3), i);
	Value block = load_field(g, operand_type(g), o, 0, g->i64);
	Value offset = load_field(g, operand_type(g), o, 1, g->i64);
	Value start = LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, base, block), "");
	Value listed = LLVMBuildICmp(g->b, LLVMIntUGE, block, number(g, B_input), "");
	Value entry = LLVMBuildSelect(g->b, listed, at_index(g, g->ptr, start, offset), base, "");
	Value found = LLVMBuildLoad2(g->b, g->ptr, entry, "");
	Value address = LLVMBuildSelect(g->b, listed, found, at_index(g, g->i8, start, offset), "");
	LLVMBuildStore(g->b, address, at_index(g, g->ptr, buffer, each.i));
	loop_end(g, &each);
	Value kernel = LLVMBuildAdd(g->b, LLVMGetParam(g->function, 5), loop.i, "");
	Value args[5] = {run, worker, buffer, calls, kernel};
	return_if(g,
	          LLVMBuildCall2(g->b, LLVMFunctionType(g->i32, call, 5, 0), launch, args, 5, ""));
	loop_end(g, &loop);
	LLVMBuildRet(g->b, LLVMConstInt(g->i32, 0, 0));
	function_end(g);
	return g->function;
}

// ---- loops ----------------------------------------------------------------------------

static void write_launches(EntryWriter *, const Entry *, Value run);

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

static Value location_pointer(Gen *g, const Plan *plan, Value run, Location p)
{
	if (p.block == B_none)
		never("an operand of a loop that is not in memory");
	if (p.block == B_const) {
		const Val *v = val(plan->graph, (Ref)p.offset);
		return literal_bytes(g, v->data, (size_t)bytes_of(v));
	}
	if (p.block < B_input)
		return in_block(g, run, run_fields[p.block], p.offset);
	Value list = run_field(g, run, run_fields[p.block]);
	return LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, list, number(g, p.offset)), "");
}

static Value operand_pointer(const Trips *t, int k)
{
	return location_pointer(t->writer->g, t->plan, t->run, value_location(t->plan, t->in[k]));
}

static Value new_list(Gen *g, int n)
{
	return variable(g, LLVMArrayType2(g->ptr, (uint64_t)MAX(1, n)), NULL);
}

// Sets up the body's amos_run: that of the loop, except scratch, inputs and outputs. Results that
// no output of the kernel holds lie in its work, and the body's scratch begins after them.
static void open_body(Trips *t)
{
	Gen *g = t->writer->g;
	const LoopInfo *c = &t->cycle;
	int n = loop_results(c);
	t->inner = new_list(g, RUN_FIELDS);
	t->inputs = new_list(g, c->body->slots.count);
	t->outputs = new_list(g, c->body->outs.count);
	for (int field = 0; field < RUN_FIELDS; field++)
		set_entry(g, t->inner, field, run_field(g, t->run, field));
	t->place[0] = NEWS(g->arena, Value, n + 1);
	t->place[1] = NEWS(g->arena, Value, n + 1);
	int64_t next = t->kern->work.offset;
	t->on = in_block(g, t->run, RUN_scratch, next);
	next += full_lines(1);
	for (int k = 0; k < n; k++) {
		int out = result_out(t->plan, t->kern, k);
		if (out >= 0)
			t->place[0][k] = location_pointer(g, t->plan, t->run, t->kern->to[out]);
		for (int which = out >= 0; which <= (k < c->carried); which++) {
			t->place[which][k] = in_block(g, t->run, RUN_scratch, next);
			next += full_lines(result_bytes(c, k));
		}
	}
	set_entry(g, t->inner, RUN_scratch, in_block(g, t->run, RUN_scratch, next));
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

// True if the iteration with `left` more to come writes the other place.
static Value is_other(Gen *g, Value left)
{
	return LLVMBuildTrunc(g->b, left, g->i1, "");
}

static Value entry_pointer(Gen *g, Value base, Value t, int64_t bytes)
{
	return at_index(g, g->i8, base, LLVMBuildMul(g->b, t, number(g, bytes), ""));
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

static void write_loop(EntryWriter *w, const Entry *e, const Launch *l, Value run)
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
	Value most = number(g, t.cycle.trips), zero = number(g, 0);
	if (is_const(t.plan->graph, t.in[0])) {
		int64_t limit = const_int_at(val(t.plan->graph, t.in[0]), 0);
		t.limit = number(g, MAX(0, MIN(t.cycle.trips, limit)));
	} else {
		t.limit = LLVMBuildLoad2(g->b, g->i64, operand_pointer(&t, 0), "");
		Value above = LLVMBuildICmp(g->b, LLVMIntSGT, t.limit, most, "");
		t.limit = LLVMBuildSelect(g->b, above, most, t.limit, "");
		Value below = LLVMBuildICmp(g->b, LLVMIntSLT, t.limit, zero, "");
		t.limit = LLVMBuildSelect(g->b, below, zero, t.limit, "");
	}
	write_trips(&t, l->body);
	Value made = t.cycle.until ? read_variable(g, g->i64, t.made) : t.limit;
	bool certain = LLVMIsConstant(t.limit) && LLVMConstIntGetSExtValue(t.limit) > 0;
	if (t.cycle.until || !certain) {
		// Without iterations the results are the operands; if the loop ended early, the
		// last iteration may have written the other place.
		Value left = LLVMBuildSub(g->b, t.limit, made, "");
		Value none = LLVMBuildICmp(g->b, LLVMIntEQ, made, zero, "");
		for (int k = 0; k < t.cycle.carried; k++) {
			if (result_out(t.plan, t.kern, k) < 0)
				continue;
			Value last = LLVMBuildSelect(g->b, is_other(g, left), t.place[1][k],
			                             t.place[0][k], "");
			last = LLVMBuildSelect(g->b, none, t.start[k], last, "");
			LLVMBuildMemMove(g->b, t.place[0][k], 1, last, 1,
			                 number(g, result_bytes(&t.cycle, k)));
		}
	}
	for (int i = 0; i < l->kern->nout; i++)
		if (l->kern->out[i] == l->kern->root)
			LLVMBuildStore(g->b, made,
			               location_pointer(g, e->plan, run, l->kern->to[i]));
}

// ---- entries --------------------------------------------------------------------------

static void call_runner(EntryWriter *w, const Program *p, Value run, int64_t first, int64_t count)
{
	Gen *g = w->g;
	if (!count)
		return;
	Value args[6] = {run,
	                 at_index(g, launch_type(g), p->launches, number(g, first)),
	                 number(g, count),
	                 p->operands,
	                 p->consts,
	                 number(g, w->next)};
	w->next += count;
	return_if(g,
	          LLVMBuildCall2(g->b, LLVMGlobalGetValueType(w->runner), w->runner, args, 6, ""));
}

static void write_launches(EntryWriter *w, const Entry *e, Value run)
{
	Program p = program_tables(w->g, e);
	int64_t first = 0, count = 0;
	for (int k = 0; k < e->n; k++) {
		if (!e->launch[k].body) {
			count++;
			continue;
		}
		call_runner(w, &p, run, first, count);
		first += count;
		count = 0;
		write_loop(w, e, &e->launch[k], run);
	}
	call_runner(w, &p, run, first, count);
}

static int most_operands(const Entry *e)
{
	int most = 1;
	for (int k = 0; k < e->n; k++)
		most = MAX(most, e->launch[k].body ? most_operands(e->launch[k].body)
		                                   : e->launch[k].nlocation);
	return most;
}

void write_programs(Gen *g, int n, const Entry *entry, Value *function)
{
	int widest = 1;
	for (int i = 0; i < n; i++)
		widest = MAX(widest, most_operands(&entry[i]));
	Value runner = write_runner(g, widest);
	LLVMTypeRef type = LLVMFunctionType(g->i32, &g->ptr, 1, 0);
	for (int i = 0; i < n; i++) {
		function_begin(g, format(g->arena, "amos_%s", entry[i].plan->name), type);
		LLVMSetLinkage(g->function, LLVMPrivateLinkage);
		EntryWriter w = {g, runner, 0};
		write_launches(&w, &entry[i], LLVMGetParam(g->function, 0));
		LLVMBuildRet(g->b, LLVMConstInt(g->i32, 0, 0));
		function_end(g);
		function[i] = g->function;
	}
}
