// abi.c: writes the model's tables, as abi.def lays them out.
// Input: the entries of emit.c. Output: amos_model in the module. The types and field numbers of
// structs are abi.def read again; a field that is not set is a bug.
#include "gen.h"
#include <string.h>

// ---- abi.def as LLVM types ------------------------------------------------------------

#define STRUCT(name)                          enum {
#define F(owner, ctype, kind, field, meaning) owner##_##field,
#define END(name)                                                                                  \
	name##_FIELDS                                                                              \
	}                                                                                          \
	;
#include "abi.def"
#undef STRUCT
#undef F
#undef END

#define STRUCT(name)                          static const char name##_kinds[] = {
#define F(owner, ctype, kind, field, meaning) #kind[0],
#define END(name)                                                                                  \
	}                                                                                          \
	;
#include "abi.def"
#undef STRUCT
#undef F
#undef END

static LLVMTypeRef struct_type(Gen *g, const char *kinds, int n)
{
	LLVMTypeRef field[32];
	for (int k = 0; k < n; k++)
		field[k] = kinds[k] == 'p'   ? g->ptr
		           : kinds[k] == 'l' ? g->i64
		           : kinds[k] == 'i' ? g->i32
		                             : LLVMArrayType2(g->i64, RANK); // L
	return LLVMStructTypeInContext(g->context, field, (unsigned)n, 0);
}

#define TYPE(g, name) struct_type(g, name##_kinds, name##_FIELDS)

static Value struct_of(Gen *g, int n, Value *field)
{
	for (int k = 0; k < n; k++)
		if (!field[k])
			bug("field %d of a struct of abi.def is not set", k);
	return LLVMConstStructInContext(g->context, field, (unsigned)n, 0);
}

typedef VEC(Value) Values;

// ---- constants ------------------------------------------------------------------------

static Value hidden(Gen *g, Value initial, const char *name)
{
	Value v = LLVMAddGlobal(g->module, LLVMTypeOf(initial), name);
	LLVMSetInitializer(v, initial);
	LLVMSetGlobalConstant(v, 1);
	LLVMSetLinkage(v, LLVMPrivateLinkage);
	return v;
}

static Value nothing(Gen *g)
{
	return LLVMConstNull(g->ptr);
}

static Value text(Gen *g, const char *s)
{
	if (!s)
		return nothing(g);
	return hidden(g, LLVMConstStringInContext2(g->context, s, strlen(s), 0), "text");
}

static Value literal_bytes(Gen *g, const void *at, size_t n)
{
	Value v = hidden(g, LLVMConstStringInContext2(g->context, at, n, 1), "bytes");
	LLVMSetAlignment(v, 64);
	return v;
}

static Value literal_array(Gen *g, LLVMTypeRef type, Value *at, int n)
{
	return n ? hidden(g, LLVMConstArray2(type, at, (uint64_t)n), "table") : nothing(g);
}

static Value dims(Gen *g, const Shape *s)
{
	Value at[RANK];
	for (int a = 0; a < RANK; a++)
		at[a] = number(g, a < s->rank ? s->dim[a] : 0);
	return LLVMConstArray2(g->i64, at, RANK);
}

// ---- slots and outputs ----------------------------------------------------------------

static Value slots_table(Gen *g, const Plan *plan, bool weights)
{
	const Graph *graph = plan->graph;
	Value *at = NEWS(g->arena, Value, graph->slots.count);
	for (int k = 0; k < graph->slots.count; k++) {
		const Slot *s = &graph->slots.at[k];
		int64_t size = byte_count(s->type, &s->shape);
		Value f[amos_slot_FIELDS] = {
		    [amos_slot_name] = text(g, s->name),
		    [amos_slot_file] = text(g, s->file),
		    [amos_slot_kind] = LLVMConstInt(g->i32, s->kind, 0),
		    [amos_slot_type] = LLVMConstInt(g->i32, s->type, 0),
		    [amos_slot_rank] = number(g, s->shape.rank),
		    [amos_slot_dim] = dims(g, &s->shape),
		    [amos_slot_bytes] = number(g, size),
		    [amos_slot_offset] = number(g, plan->slot[k].offset),
		    [amos_slot_limit] = number(g, s->limit),
		    [amos_slot_ignore] = number(g, s->ignore),
		    [amos_slot_counts] = number(g, s->counts),
		    [amos_slot_init] =
		        weights && s->init ? literal_bytes(g, s->init, (size_t)size) : nothing(g),
		};
		at[k] = struct_of(g, amos_slot_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_slot), at, graph->slots.count);
}

static Value outs_table(Gen *g, const Plan *plan)
{
	const Graph *graph = plan->graph;
	Value *at = NEWS(g->arena, Value, graph->outs.count);
	Table *position = table_lent(g->arena); // out -> 1 + index
	for (int k = 0; k < graph->outs.count; k++)
		*table_cell_s(position, graph->outs.at[k].name) = (uint64_t)k + 1;
	for (int k = 0; k < graph->outs.count; k++) {
		const Val *v = val(graph, graph->outs.at[k].val);
		const char *name = graph->outs.at[k].name;
		bool checks = starts_with(name, CHECK_OF);
		const uint64_t *shape =
		    table_find_s(position, format(g->arena, SHAPE_OF "%s", name));
		Value f[amos_out_FIELDS] = {
		    [amos_out_name] = text(g, name),
		    [amos_out_type] = number(g, v->type),
		    [amos_out_rank] = number(g, v->shape.rank),
		    [amos_out_dim] = dims(g, &v->shape),
		    [amos_out_bytes] = number(g, bytes_of(v)),
		    [amos_out_shape_output] = number(g, shape ? (int64_t)*shape : 0),
		    [amos_out_check] = checks ? text(g, name + strlen(CHECK_OF)) : nothing(g),
		    [amos_out_auxiliary] = number(g, !is_own_out(name)),
		};
		at[k] = struct_of(g, amos_out_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_out), at, graph->outs.count);
}

// ---- launches and loops ---------------------------------------------------------------

typedef struct Constants { // one block of the object
	Table *offset;     // bytes of a constant -> 1 + where they begin
	VEC(Value) part;
	int64_t bytes;
} Constants;

typedef struct Rows { // of an entry
	Gen *g;
	Constants *constants;
	bool device; // kernels have names, not code
	Values list;
} Rows;

// Returns where a constant begins in the block, a multiple of 64 bytes.
static int64_t constant_offset(Gen *g, Constants *c, const Val *v)
{
	size_t bytes = (size_t)bytes_of(v), room = (size_t)full_lines(bytes_of(v));
	uint64_t *cell = table_cell(c->offset, v->data, bytes);
	if (!*cell) {
		char *line = take(g->arena, room);
		memcpy(line, v->data, bytes);
		PUSH(g->arena, c->part, LLVMConstStringInContext2(g->context, line, room, 1));
		*cell = (uint64_t)c->bytes + 1;
		c->bytes += (int64_t)room;
	}
	return (int64_t)*cell - 1;
}

static Value constants_block(Gen *g, const Constants *c)
{
	if (!c->bytes)
		return nothing(g);
	Value all = LLVMConstStructInContext(g->context, c->part.at, (unsigned)c->part.count, 1);
	Value block = hidden(g, all, "constants");
	LLVMSetAlignment(block, 64);
	return block;
}

static void add_operand(Rows *rows, Values *operands, const Plan *plan, Location p)
{
	Gen *g = rows->g;
	if (p.block == B_none)
		never("an operand that is not in memory");
	if (p.block == B_const)
		p.offset = constant_offset(g, rows->constants, val(plan->graph, (Ref)p.offset));
	Value f[amos_operand_FIELDS] = {
	    [amos_operand_block] = number(g, p.block),
	    [amos_operand_offset] = number(g, p.offset),
	};
	PUSH(g->arena, *operands, struct_of(g, amos_operand_FIELDS, f));
}

static Value loop_table(Rows *rows, const Plan *plan, const Kern *kern, int64_t body,
                        Values *operands)
{
	Gen *g = rows->g;
	const Val *v = val(plan->graph, kern->root);
	LoopInfo c = loop_of(v);
	LoopWork work = loop_work(g->arena, plan, kern);
	int64_t from = kern->work.offset;
	Values bytes = {0};
	for (int k = 0; k < v->nin; k++)
		add_operand(rows, operands, plan, value_location(plan, v->in[k]));
	for (int k = 0; k < c.body->slots.count; k++) {
		const Slot *slot = &c.body->slots.at[k];
		PUSH(g->arena, bytes, number(g, byte_count(slot->type, &slot->shape)));
	}
	if (c.until) {
		add_operand(rows, operands, plan, (Location){B_scratch, from});
		PUSH(g->arena, bytes, number(g, 1));
	}
	for (int k = 0; k < loop_results(&c); k++) {
		int out = result_out(plan, kern, k);
		Location unused = {B_scratch, from + work.unused.at[k]};
		add_operand(rows, operands, plan, out >= 0 ? kern->to[out] : unused);
		PUSH(g->arena, bytes, number(g, bytes_of(result_val(&c, k))));
	}
	for (int k = 0; k < c.carried; k++)
		add_operand(rows, operands, plan, (Location){B_scratch, from + work.second.at[k]});
	for (int o = 0; o < kern->nout; o++)
		if (kern->out[o] == kern->root)
			add_operand(rows, operands, plan, kern->to[o]);
	Value f[amos_loop_FIELDS] = {
	    [amos_loop_rows] = number(g, body),
	    [amos_loop_most] = number(g, c.trips),
	    [amos_loop_reverse] = number(g, c.reverse),
	    [amos_loop_until] = number(g, c.until),
	    [amos_loop_carried] = number(g, c.carried),
	    [amos_loop_scanned] = number(g, c.scanned),
	    [amos_loop_inputs] = number(g, c.body->slots.count),
	    [amos_loop_outputs] = number(g, c.body->outs.count),
	    [amos_loop_scratch] = number(g, from + work.bytes),
	    [amos_loop_bytes] = literal_array(g, g->i64, bytes.at, bytes.count),
	};
	Value table = struct_of(g, amos_loop_FIELDS, f);
	return literal_array(g, TYPE(g, amos_loop), &table, 1);
}

static Value code_of_launch(Gen *g, const Launch *l)
{
	const char *name = kernel_name(g->arena, l->kernel, l->number);
	Value code = LLVMGetNamedFunction(g->module, name);
	return code ? code : LLVMAddFunction(g->module, name, worker_type(g));
}

// Returns the work of all kernels of a launch.
static Work work_of_launch(const Launch *l, const Plan *plan, const Work *work)
{
	Work all = {0};
	for (int i = 0; i < l->kerns; i++) {
		all.flops += work[l->kern - plan->kerns.at + i].flops;
		all.bytes += work[l->kern - plan->kerns.at + i].bytes;
	}
	return all;
}

// A launch has an equal share of its kernel's flops, and of the bytes that the kernel reads and
// writes. `loop_role`: that of the loop which the entry is the body of, or NULL.
static void add_rows(Rows *rows, const Entry *entry, int64_t times, const char *loop_role)
{
	Gen *g = rows->g;
	const Plan *plan = entry->plan;
	Reads *reads = plan_reads(g->arena, plan);
	const Work *work = plan_work(g->arena, plan, reads);
	Roles roles = roles_of(g->arena, plan->graph);
	for (int k = 0; k < entry->n; k++) {
		const Launch *l = &entry->launch[k];
		const Kern *kern = l->kern;
		Work own = work_of_launch(l, plan, work);
		Values operands = {0};
		Value loop = nothing(g), code = nothing(g), function = nothing(g);
		int row = rows->list.count;
		const char *role = loop_role  ? loop_role
		                   : l->again ? "again"
		                              : kern_role(&roles, plan, kern);
		const char *name = kern_name(g->arena, plan, kern, l->kerns);
		PUSH(g->arena, rows->list, NULL);
		if (l->body) {
			int64_t trips = loop_of(val(plan->graph, kern->root)).trips;
			if (trips > INT32_MAX) // unbounded: count one iteration
				trips = 1;
			add_rows(rows, l->body, MIN(times * trips, INT32_MAX), role);
			loop = loop_table(rows, plan, kern, rows->list.count - row - 1, &operands);
		} else {
			if (rows->device)
				function = text(g, kernel_name(g->arena, l->kernel, l->number));
			else
				code = code_of_launch(g, l);
			for (int i = 0; i < l->signature->place.count; i++)
				add_operand(rows, &operands, plan, l->signature->place.at[i]);
		}
		Value f[amos_kernel_FIELDS] = {
		    [amos_kernel_name] = text(g, name),
		    [amos_kernel_shape] = text(g, kern_shape(g->arena, plan, kern)),
		    [amos_kernel_role] = text(g, role),
		    [amos_kernel_kind] = text(g, kern_kinds[kern->kind]),
		    [amos_kernel_workers] = number(g, l->workers),
		    [amos_kernel_gang] = number(g, l->gang),
		    [amos_kernel_whole] = number(g, l->whole),
		    [amos_kernel_flops] = number(g, own.flops / MAX(1, l->launches)),
		    [amos_kernel_bytes] = number(g, own.bytes / MAX(1, l->launches)),
		    [amos_kernel_times] = number(g, l->body ? 0 : times),
		    [amos_kernel_shared] = number(g, l->shared),
		    [amos_kernel_code] = code,
		    [amos_kernel_function] = function,
		    [amos_kernel_operands] =
		        literal_array(g, TYPE(g, amos_operand), operands.at, operands.count),
		    [amos_kernel_noperands] = number(g, operands.count),
		    [amos_kernel_loop] = loop,
		};
		rows->list.at[row] = struct_of(g, amos_kernel_FIELDS, f);
	}
}

// ---- entries --------------------------------------------------------------------------

static Value entries_table(Gen *g, int n, const VariantCode *code, Constants *constants)
{
	const Entry *entry = code->entry;
	Value *at = NEWS(g->arena, Value, n);
	for (int i = 0; i < n; i++) {
		const Plan *plan = entry[i].plan;
		const Graph *graph = plan->graph;
		Rows rows = {g, constants, code->device, {0}};
		add_rows(&rows, &entry[i], 1, NULL);
		char *reads = take(g->arena, (size_t)graph->slots.count + 1);
		for (int k = 0; k < graph->slots.count; k++) // '1' per input that the graph reads
			if (plan->slot[k].block == B_input)
				reads[plan->slot[k].offset] = '0';
		for (Ref r = 1; r < (Ref)graph->nval; r++)
			if (val(graph, r)->op == O_slot && value_location(plan, r).block == B_input)
				reads[value_location(plan, r).offset] = '1';
		Value f[amos_entry_FIELDS] = {
		    [amos_entry_name] = text(g, plan->name),
		    [amos_entry_reads] = text(g, reads),
		    [amos_entry_outs] = outs_table(g, plan),
		    [amos_entry_nouts] = number(g, graph->outs.count),
		    [amos_entry_scratch] = number(g, plan->scratch_bytes),
		    [amos_entry_kernels] =
		        literal_array(g, TYPE(g, amos_kernel), rows.list.at, rows.list.count),
		    [amos_entry_nkernels] = number(g, rows.list.count),
		};
		at[i] = struct_of(g, amos_entry_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_entry), at, n);
}

// ---- the model file -------------------------------------------------------------------

// Returns bytes without alignment; `at` NULL: NULL.
static Value loose_bytes(Gen *g, const void *at, int64_t n)
{
	if (!at)
		return nothing(g);
	Value v = hidden(g, LLVMConstStringInContext2(g->context, at, (size_t)n, 1), "bytes");
	LLVMSetAlignment(v, 1);
	return v;
}

static Value pieces_table(Gen *g, const struct amos_piece *piece, int64_t n)
{
	Value *at = NEWS(g->arena, Value, n + 1);
	for (int64_t i = 0; i < n; i++) {
		const struct amos_piece *p = &piece[i];
		bool values = p->kind == AMOS_PIECE_VALUES || p->kind == AMOS_PIECE_VARINTS;
		int64_t size = values ? elems[p->type].bytes : 1;
		Value f[amos_piece_FIELDS] = {
		    [amos_piece_kind] = number(g, p->kind),
		    [amos_piece_when] = number(g, p->when),
		    [amos_piece_bytes] = loose_bytes(g, p->bytes, p->count * size),
		    [amos_piece_count] = number(g, p->count),
		    [amos_piece_view] = number(g, p->view),
		    [amos_piece_type] = number(g, p->type),
		    [amos_piece_number] = number(g, p->number),
		    [amos_piece_length] = number(g, p->length),
		    [amos_piece_pieces] = number(g, p->pieces),
		};
		at[i] = struct_of(g, amos_piece_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_piece), at, (int)n);
}

static Value views_table(Gen *g, const struct amos_template *t)
{
	Value *at = NEWS(g->arena, Value, t->nviews + 1);
	for (int64_t i = 0; i < t->nviews; i++) {
		const struct amos_view *v = &t->views[i];
		Value f[amos_view_FIELDS] = {
		    [amos_view_slot] = number(g, v->slot),
		    [amos_view_copy] = number(g, v->copy),
		    [amos_view_rows] = number(g, v->rows),
		    [amos_view_columns] = number(g, v->columns),
		};
		at[i] = struct_of(g, amos_view_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_view), at, (int)t->nviews);
}

static Value tests_table(Gen *g, const struct amos_template *t)
{
	Value *at = NEWS(g->arena, Value, t->ntests + 1);
	for (int64_t i = 0; i < t->ntests; i++) {
		const struct amos_test *test = &t->tests[i];
		Value f[amos_test_FIELDS] = {
		    [amos_test_view] = number(g, test->view),
		    [amos_test_other] = number(g, test->other),
		    [amos_test_numbers] =
		        test->numbers ? literal_bytes(g, test->numbers, 4 * (size_t)test->count)
		                      : nothing(g),
		    [amos_test_count] = number(g, test->count),
		    [amos_test_more] = number(g, test->more),
		    [amos_test_error] = text(g, test->error),
		};
		at[i] = struct_of(g, amos_test_FIELDS, f);
	}
	return literal_array(g, TYPE(g, amos_test), at, (int)t->ntests);
}

static Value file_table(Gen *g, const struct amos_template *t)
{
	if (!t)
		return nothing(g);
	Value f[amos_template_FIELDS] = {
	    [amos_template_model] = pieces_table(g, t->model, t->nmodel),
	    [amos_template_nmodel] = number(g, t->nmodel),
	    [amos_template_data] = pieces_table(g, t->data, t->ndata),
	    [amos_template_ndata] = number(g, t->ndata),
	    [amos_template_views] = views_table(g, t),
	    [amos_template_nviews] = number(g, t->nviews),
	    [amos_template_tests] = tests_table(g, t),
	    [amos_template_ntests] = number(g, t->ntests),
	};
	Value table = struct_of(g, amos_template_FIELDS, f);
	return literal_array(g, TYPE(g, amos_template), &table, 1);
}

// ---- the model ------------------------------------------------------------------------

// Returns the size of the gradient block in bytes.
static int64_t gradient_bytes(const Plan *plan)
{
	int64_t bytes = 0;
	for (int i = 0; i < plan->graph->slots.count; i++) {
		const Slot *s = &plan->graph->slots.at[i];
		if (s->kind == S_grad)
			bytes = MAX(bytes, plan->slot[i].offset + byte_count(s->type, &s->shape));
	}
	return bytes;
}

typedef struct Tables { // that variants share
	int entries;
	int64_t batch;
	Value slots, name, note, labels, file, constants;
	int64_t constant_bytes;
} Tables;

// Returns the table of a variant. `better`: that of the next.
static Value write_model(Gen *g, const Tables *all, const VariantCode *code, Value entries,
                         Value better)
{
	const Plan *plan = code->entry[0].plan;
	const Variant *variant = code->variant;
	const Target *t = variant->target;
	const Part *device = code->device;
	int64_t params = 0, state = 0;
	for (int i = 0; i < all->entries; i++) {
		params = MAX(params, code->entry[i].plan->param_bytes);
		state = MAX(state, code->entry[i].plan->state_bytes);
	}
	Value f[amos_model_FIELDS] = {
	    [amos_model_abi] = number(g, AMOS_ABI),
	    [amos_model_name] = all->name,
	    [amos_model_target] = text(g, target_text(g->arena, t)),
	    [amos_model_needs] = text(g, device ? "" : target_needs(g->arena, t)),
	    [amos_model_slots] = all->slots,
	    [amos_model_nslots] = number(g, plan->graph->slots.count),
	    [amos_model_entries] = entries,
	    [amos_model_nentries] = number(g, all->entries),
	    [amos_model_params] = number(g, params),
	    [amos_model_state] = number(g, state),
	    [amos_model_gradients] = number(g, gradient_bytes(plan)),
	    [amos_model_local] = number(g, code->local),
	    [amos_model_note] = all->note,
	    [amos_model_identity] = text(g, variant->identity ? variant->identity : ""),
	    [amos_model_labels] = all->labels,
	    [amos_model_batch] = number(g, all->batch),
	    [amos_model_better] = better,
	    [amos_model_file] = all->file,
	    [amos_model_constants] = all->constants,
	    [amos_model_constant_bytes] = number(g, all->constant_bytes),
	    [amos_model_device] = text(g, t->device),
	    [amos_model_code] =
	        device ? literal_bytes(g, device->bytes, device->count) : nothing(g),
	    [amos_model_code_bytes] = number(g, device ? (int64_t)device->count : 0),
	};
	return struct_of(g, amos_model_FIELDS, f);
}

void write_tables(Gen *g, int entries, int variants, const VariantCode *code,
                  const EmitOptions *options)
{
	const Plan *plan = code[0].entry[0].plan;
	Tables all = {.entries = entries,
	              .batch = options->batch,
	              .slots = slots_table(g, plan, options->weights),
	              .name = text(g, options->name ? options->name : ""),
	              .note = text(g, options->note ? options->note : ""),
	              .labels = text(g, options->labels),
	              .file = file_table(g, options->file)};
	Constants constants = {.offset = table_lent(g->arena)};
	Value better = nothing(g), *table = NEWS(g->arena, Value, variants);
	for (int k = 0; k < variants; k++)
		table[k] = entries_table(g, entries, &code[k], &constants);
	all.constants = constants_block(g, &constants);
	all.constant_bytes = constants.bytes;
	for (int k = variants; k-- > 0;) {
		const Plan *own = code[k].entry[0].plan;
		for (int i = 0; i < plan->graph->slots.count; i++)
			if (own->slot[i].offset != plan->slot[i].offset)
				bug("slot %s differs among variants",
				    plan->graph->slots.at[i].name);
		Value model = write_model(g, &all, &code[k], table[k], better);
		better = hidden(g, model, k ? "variant" : "amos_model");
	}
	LLVMSetLinkage(better, LLVMExternalLinkage); // that of the first
}
