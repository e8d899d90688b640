// gpu.c: emits what all GPUs have in common: a worker is a block of threads, a lane is a thread.
// A kernel has one argument, the table of addresses; the worker's number is the block's.
#include "target.h"

// ---- one thread of the worker ---------------------------------------------------------

// The number of a thread among those that share a row.
static Value own_lane(Gen *g)
{
	Value thread = g->ops->thread(g);
	int64_t team = g->kern->sched->team;
	return team ? LLVMBuildURem(g->b, thread, number(g, team), "") : thread;
}

// What a thread of a team stores replaces only what it has read itself.
void gpu_barrier(Gen *g)
{
	if (!g->level->lanes && !g->kern->sched->team)
		g->ops->all_threads(g);
}

Loop gpu_single_begin(Gen *g)
{
	if (g->level->lanes)
		return (Loop){.outer = NULL};
	gpu_barrier(g);
	if (g->kern->sched->team)
		g->ops->team_threads(g);
	Loop single = loop_begin(g, own_lane(g), number(g, 1), THREADS);
	g->level->lanes = true;
	return single;
}

// Threads take the elements in turn, some at once.
void gpu_lane_loop(Gen *g, Value from, Value to, int64_t count, int unroll, LaneBody *body,
                   void *context)
{
	(void)unroll;
	const Sched *s = g->kern->sched;
	bool pieces = s->partition == P_columns && count % s->columns == 0;
	Range steps = {.from = from,
	               .to = to,
	               .own = own_lane(g),
	               .count = count,
	               .step = s->team ? s->team : THREADS,
	               .together = s->units,
	               .multiple = pieces ? s->columns : 0,
	               .lanes = true};
	range_loop(g, &steps, body, context);
}

// ---- values in memory that the worker's threads share ---------------------------------

static LLVMTypeRef bits_of(Gen *g, Elem e)
{
	return LLVMIntTypeInContext(g->context, 8 * (unsigned)elems[e].bytes);
}

Value gpu_bits(Gen *g, Elem e, Value v)
{
	if (e == E_b8)
		return LLVMBuildZExt(g->b, v, g->i64, "");
	v = LLVMBuildBitCast(g->b, v, bits_of(g, e), "");
	return elems[e].bytes == 8 ? v : LLVMBuildZExt(g->b, v, g->i64, "");
}

Value gpu_value(Gen *g, Elem e, Value v)
{
	if (e == E_b8)
		return LLVMBuildTrunc(g->b, v, g->i1, "");
	if (elems[e].bytes < 8)
		v = LLVMBuildTrunc(g->b, v, bits_of(g, e), "");
	return LLVMBuildBitCast(g->b, v, elem_type(g, e), "");
}

// Returns the address of an array: under emulation, of the block's own copy.
static Value shared_array(Gen *g, Value array, LLVMTypeRef type)
{
	if (!g->target->emulated)
		return array;
	uint64_t *known = table_cell(g->address, &array, sizeof array);
	if (*known)
		return (Value)(uintptr_t)*known;
	Level *was = level_go(g, g->ground);
	LLVMTargetDataRef layout = LLVMGetModuleDataLayout(g->module);
	Value in[] = {array, number(g, (int64_t)LLVMABISizeOfType(layout, type)),
	              number(g, LLVMGetAlignment(array))};
	Value own = hardware(g, NULL, EMULATED_SHARED, LLVMTypeOf(array), COUNT(in), in);
	level_go(g, was);
	*known = (uint64_t)(uintptr_t)own;
	return own;
}

Value gpu_shared(Gen *g, const char *name, int64_t count, Value i)
{
	LLVMTypeRef type = LLVMArrayType2(g->i64, (uint64_t)count);
	Value shared = LLVMGetNamedGlobal(g->module, name);
	if (!shared) {
		shared = LLVMAddGlobalInAddressSpace(g->module, type, name, SHARED);
		LLVMSetLinkage(shared, LLVMInternalLinkage);
		int align = g->target->align;
		LLVMSetAlignment(shared, (unsigned)(align && 8 * count >= align ? align : WIDEST));
		bool host = !g->target->device;
		LLVMSetInitializer(shared, host ? LLVMConstNull(type) : LLVMGetUndef(type));
	}
	return LLVMBuildGEP2(g->b, g->i64, shared_array(g, shared, type), &i, 1, "");
}

// ---- kernels --------------------------------------------------------------------------

void gpu_begin(Gen *g, const char *name)
{
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(g->context), &g->ptr, 1, 0);
	function_begin(g, name, type);
	g->buf = LLVMGetParam(g->function, 0);
	g->worker = g->ops->block(g);
}

LLVMTypeRef gpu_pointer(Gen *g)
{
	return LLVMPointerTypeInContext(g->context, GLOBAL);
}

void gpu_prefetch(Gen *g, Value from, Prefetch how)
{
	(void)g, (void)from, (void)how;
}

// ---- kernels that call functions for what a thread knows -------------------------------

Value gpu_ticket(Gen *g, Value count)
{
	if (g->target->emulated)
		return hardware(g, NULL, EMULATED_TICKET, g->i32, 1, &count);
	return LLVMBuildAtomicRMW(g->b, LLVMAtomicRMWBinOpAdd, count, LLVMConstInt(g->i32, 1, 0),
	                          LLVMAtomicOrderingMonotonic, 0);
}

static Value call(Gen *g, const char *name, LLVMTypeRef result)
{
	LLVMTypeRef type = LLVMFunctionType(result, NULL, 0, 0);
	Value f = LLVMGetNamedFunction(g->module, name);
	if (!f)
		f = function_new(g, name, type);
	return LLVMBuildCall2(g->b, type, f, NULL, 0, "");
}

static Value own_number(Gen *g, const char *name, const char *emulated)
{
	if (!g->target->emulated)
		return call(g, name, g->i64);
	return LLVMBuildZExt(g->b, hardware(g, NULL, emulated, g->i32, 0, NULL), g->i64, "");
}

Value gpu_thread(Gen *g)
{
	return own_number(g, GPU_THREAD, EMULATED_THREAD);
}

Value gpu_block(Gen *g)
{
	return own_number(g, GPU_BLOCK, EMULATED_BLOCK);
}

static void synchronize(Gen *g, const char *name, const char *emulated)
{
	LLVMTypeRef none = LLVMVoidTypeInContext(g->context);
	Value site = LLVMConstInt(g->i32, 0, 0); // for the emulator, see watch.c
	if (g->target->emulated)
		hardware(g, NULL, emulated, none, 1, &site);
	else
		call(g, name, none);
}

void gpu_all_threads(Gen *g)
{
	synchronize(g, GPU_BARRIER, EMULATED_BARRIER);
}

void gpu_fence(Gen *g)
{
	synchronize(g, GPU_FENCE, EMULATED_FENCE);
}

enum { PARTS = 16, PART = THREADS / PARTS }; // each reduced by one thread; threads of it

static Value load_shared(Gen *g, Elem e, const char *name, int64_t count, Value i)
{
	Value bits = LLVMBuildLoad2(g->b, g->i64, gpu_shared(g, name, count, i), "");
	return gpu_value(g, e, bits);
}

static void store_shared(Gen *g, Elem e, const char *name, int64_t count, Value i, Value v)
{
	LLVMBuildStore(g->b, gpu_bits(g, e, v), gpu_shared(g, name, count, i));
}

// By memory that threads share: sub-groups differ in size from device to device, and with them the
// order of a sum would. The first threads reduce the values of some threads each, then every thread
// reduces these results, in one order.
Value gpu_reduce(Gen *g, Op op, Elem e, Value v)
{
	static const char values[] = "amos_values", parts[] = "amos_parts";
	Value thread = gpu_thread(g);
	gpu_all_threads(g);
	store_shared(g, e, values, THREADS, thread, v);
	gpu_all_threads(g);
	Loop first = loop_begin(g, thread, number(g, PARTS), THREADS);
	Value from = times(g, first.i, PART), sum = load_shared(g, e, values, THREADS, from);
	for (int k = 1; k < PART; k++) {
		Value i = sum_of(g, from, number(g, k));
		sum = reduce_step(g, op, e, sum, load_shared(g, e, values, THREADS, i));
	}
	store_shared(g, e, parts, PARTS, first.i, sum);
	loop_end(g, &first);
	gpu_all_threads(g);
	sum = load_shared(g, e, parts, PARTS, number(g, 0));
	for (int k = 1; k < PARTS; k++)
		sum = reduce_step(g, op, e, sum, load_shared(g, e, parts, PARTS, number(g, k)));
	return sum;
}
