// program.c: emits a function per entry, which runs its launches in order.
// Output: int (const amos_run *). Launches are tables that one function reads, so that an entry of
// thousands takes a few instructions; between them are the loops (loop_program.c).
#include "program.h"

// ---- programs -------------------------------------------------------------------------

// A program is a table of launches (worker, calls, first operand, operands) over a table of
// operands (block, offset): an address is the block's plus the offset, or entry `offset` of a block
// of addresses.
enum { LAUNCH_FIELDS = 4, BLOCKS = B_const + 1 };

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

static Value kernel_function(Gen *g, const Launch *l)
{
	const char *name = kernel_name(g->arena, l->kernel, l->number);
	LLVMTypeRef arg[3] = {g->ptr, g->i64, g->ptr};
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(g->context), arg, 3, 0);
	Value f = LLVMGetNamedFunction(g->module, name);
	return f ? f : LLVMAddFunction(g->module, name, type);
}

typedef struct Program {
	Value launches, operands, consts;
} Program;

static Program program_tables(Gen *g, const Entry *entry)
{
	Values operands = {0}, consts = {0};
	Table *numbers = table_new(g->arena);
	Value *launch = NEWS(g->arena, Value, entry->n);
	int n = 0;
	for (int k = 0; k < entry->n; k++) {
		const Launch *l = &entry->launch[k];
		if (l->body)
			continue;
		Value f[LAUNCH_FIELDS] = {kernel_function(g, l), number(g, l->workers),
		                          number(g, operands.count), number(g, l->nlocation)};
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

Value at_index(Gen *g, LLVMTypeRef type, Value from, Value i)
{
	return LLVMBuildGEP2(g->b, type, from, &i, 1, "");
}

static Value load_field(Gen *g, LLVMTypeRef type, Value from, unsigned field, LLVMTypeRef of)
{
	return LLVMBuildLoad2(g->b, of, LLVMBuildStructGEP2(g->b, type, from, field, ""), "");
}

Value run_field(Gen *g, Value run, int field)
{
	return LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, run, number(g, field)), "");
}

static Value block_bases(Gen *g)
{
	static const struct {
		Block block;
		int field;
	} from[] = {{B_param, RUN_params},
	            {B_state, RUN_state},
	            {B_scratch, RUN_scratch},
	            {B_input, RUN_inputs},
	            {B_output, RUN_outputs}};
	Value base = variable(g, LLVMArrayType2(g->ptr, BLOCKS), NULL);
	for (int k = 0; k < COUNT(from); k++)
		LLVMBuildStore(g->b, run_field(g, LLVMGetParam(g->function, 0), from[k].field),
		               at_index(g, g->ptr, base, number(g, from[k].block)));
	LLVMBuildStore(g->b, LLVMGetParam(g->function, 4),
	               at_index(g, g->ptr, base, number(g, B_const)));
	return base;
}

static void fill_buffer(Gen *g, Value base, Value buffer, Value first, Value count)
{
	Loop loop = loop_begin(g, number(g, 0), count, 1);
	Value i = LLVMBuildAdd(g->b, first, loop.i, "");
	Value o = at_index(g, operand_type(g), LLVMGetParam(g->function, 3), i);
	Value block = load_field(g, operand_type(g), o, 0, g->i64);
	Value offset = load_field(g, operand_type(g), o, 1, g->i64);
	Value start = LLVMBuildLoad2(g->b, g->ptr, at_index(g, g->ptr, base, block), "");
	Value listed = LLVMBuildICmp(g->b, LLVMIntUGE, block, number(g, B_input), "");
	Value entry = LLVMBuildSelect(g->b, listed, at_index(g, g->ptr, start, offset), base, "");
	Value found = LLVMBuildLoad2(g->b, g->ptr, entry, "");
	Value address = LLVMBuildSelect(g->b, listed, found, at_index(g, g->i8, start, offset), "");
	LLVMBuildStore(g->b, address, at_index(g, g->ptr, buffer, loop.i));
	loop_end(g, &loop);
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
	Value base = block_bases(g),
	      launch = run_field(g, LLVMGetParam(g->function, 0), RUN_launch);
	Value buffer = variable(g, LLVMArrayType2(g->ptr, (uint64_t)widest), NULL);
	LLVMTypeRef call[5] = {g->ptr, g->ptr, g->ptr, g->i64, g->i64};
	Loop loop = loop_begin(g, number(g, 0), LLVMGetParam(g->function, 2), 1);
	Value record = at_index(g, launch_type(g), LLVMGetParam(g->function, 1), loop.i);
	Value worker = load_field(g, launch_type(g), record, 0, g->ptr);
	Value calls = load_field(g, launch_type(g), record, 1, g->i64);
	Value first = load_field(g, launch_type(g), record, 2, g->i64);
	Value count = load_field(g, launch_type(g), record, 3, g->i64);
	fill_buffer(g, base, buffer, first, count);
	Value kernel = LLVMBuildAdd(g->b, LLVMGetParam(g->function, 5), loop.i, "");
	Value args[5] = {LLVMGetParam(g->function, 0), worker, buffer, calls, kernel};
	return_if(g,
	          LLVMBuildCall2(g->b, LLVMFunctionType(g->i32, call, 5, 0), launch, args, 5, ""));
	loop_end(g, &loop);
	LLVMBuildRet(g->b, LLVMConstInt(g->i32, 0, 0));
	function_end(g);
	return g->function;
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

void write_launches(EntryWriter *w, const Entry *e, Value run)
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
