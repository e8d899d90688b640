// tile.c: emits the register tile of a matrix product, the loop where a trainer spends most time.
// Output: a function that computes one tile. Invariant: rows * vectors accumulators, `vectors` of b
// and one broadcast of a are all in registers; additions are in the order of k, for any tile.
#include "gen.h"
#include <llvm-c/DebugInfo.h>

enum { ACCUMULATORS = 64 };

typedef struct Steps { // the values that go round the loop over k
	LLVMValueRef a, b, soon, rows, stream[STREAMS], sum[ACCUMULATORS];
} Steps;

typedef struct Body {
	const Tile *tile;
	LLVMBuilderRef at;
	LLVMValueRef function;
	LLVMTypeRef vector, i64;
} Body;

static LLVMValueRef along(Body *e, LLVMValueRef base, int64_t elements)
{
	LLVMValueRef i = LLVMConstInt(e->i64, (uint64_t)elements, 1);
	return elements ? LLVMBuildInBoundsGEP2(e->at, e->tile->elem, base, &i, 1, "") : base;
}

static LLVMValueRef load_vector(Body *e, LLVMValueRef base, int64_t elements)
{
	LLVMValueRef v = LLVMBuildLoad2(e->at, e->vector, along(e, base, elements), "");
	LLVMSetAlignment(v, (unsigned)e->tile->bytes);
	return v;
}

static LLVMValueRef broadcast(Body *e, LLVMValueRef scalar)
{
	LLVMContextRef c = LLVMGetTypeContext(e->vector);
	LLVMTypeRef i32 = LLVMInt32TypeInContext(c);
	LLVMValueRef any = LLVMGetPoison(e->vector);
	LLVMValueRef one = LLVMBuildInsertElement(e->at, any, scalar, LLVMConstInt(i32, 0, 0), "");
	LLVMValueRef first = LLVMConstNull(LLVMVectorType(i32, (unsigned)e->tile->lanes));
	return LLVMBuildShuffleVector(e->at, one, any, first, "");
}

// x y + z in one rounding where the machine can: a product and a sum that may be contracted,
// because llvm.fma would become a library call where it cannot.
static LLVMValueRef multiply_add(Body *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z)
{
	LLVMValueRef product = LLVMBuildFMul(e->at, x, y, "");
	LLVMValueRef sum = LLVMBuildFAdd(e->at, z, product, "");
	LLVMSetFastMathFlags(product, LLVMFastMathAllowContract);
	LLVMSetFastMathFlags(sum, LLVMFastMathAllowContract);
	return sum;
}

static void prefetch(Body *e, LLVMValueRef at, int64_t elements, bool write)
{
	LLVMTypeRef i32 = LLVMInt32TypeInContext(LLVMGetTypeContext(e->vector)),
	            pointer = LLVMTypeOf(at);
	unsigned id = LLVMLookupIntrinsicID("llvm.prefetch", 13);
	LLVMValueRef f =
	    LLVMGetIntrinsicDeclaration(LLVMGetGlobalParent(e->function), id, &pointer, 1);
	LLVMValueRef in[] = {along(e, at, elements), LLVMConstInt(i32, write, 0),
	                     LLVMConstInt(i32, 3, 0), LLVMConstInt(i32, 1, 0)};
	LLVMBuildCall2(e->at, LLVMGlobalGetValueType(f), f, in, COUNT(in), "");
}

// Prefetches, a part per iteration, rows of a that a later strip reads, and a row of what the maps
// after the tile touch: all at once would delay the loads of the sum.
static void prefetch_part(Body *e, Steps *s, int count)
{
	const Tile *t = e->tile;
	for (int r = 0; r < t->soon; r++)
		prefetch(e, s->soon, r * t->soon_row, false);
	s->soon = along(e, s->soon, count);
	LLVMValueRef none = LLVMConstInt(e->i64, 0, 0), one = LLVMConstInt(e->i64, 1, 0);
	LLVMTypeRef byte = LLVMInt8TypeInContext(LLVMGetTypeContext(e->vector));
	if (!t->streams)
		return;
	s->rows = LLVMBuildSub(e->at, s->rows, one, "");
	LLVMValueRef more = LLVMBuildICmp(e->at, LLVMIntSGT, s->rows, none, "");
	for (int i = 0; i < t->streams; i++) {
		for (int at = 0; at < t->vectors * t->lanes; at += 64 / t->bytes)
			prefetch(e, s->stream[i], at, t->stream[i].write);
		LLVMValueRef row = LLVMConstInt(e->i64, (uint64_t)t->stream[i].row, 0);
		row = LLVMBuildSelect(e->at, more, row, none, "");
		s->stream[i] = LLVMBuildGEP2(e->at, byte, s->stream[i], &row, 1, "");
	}
}

// `count` steps of k, each rows * vectors products.
static void take_steps(Body *e, Steps *s, int count)
{
	const Tile *t = e->tile;
	if (count > 1)
		prefetch_part(e, s, count);
	for (int k = 0; k < count; k++) {
		LLVMValueRef b[ACCUMULATORS];
		if (k) // the scheduler must not load ahead: there is no register left
			LLVMBuildFence(e->at, LLVMAtomicOrderingAcquireRelease, 1, "");
		for (int v = 0; v < t->vectors; v++)
			b[v] = load_vector(e, s->b, k * t->b_step + v * t->lanes);
		for (int at = 0; t->b_ahead && at < t->vectors * t->lanes; at += 64 / t->bytes)
			prefetch(e, s->b, (k + t->b_ahead) * t->b_step + at, false);
		for (int r = 0; r < t->rows; r++) {
			LLVMValueRef p = along(e, s->a, r * t->a_row + k * t->a_step);
			LLVMValueRef a = broadcast(e, LLVMBuildLoad2(e->at, t->elem, p, ""));
			for (int v = 0; v < t->vectors; v++) {
				LLVMValueRef *sum = &s->sum[r * t->vectors + v];
				*sum = multiply_add(e, a, b[v], *sum);
			}
		}
	}
	s->a = along(e, s->a, count * t->a_step);
	s->b = along(e, s->b, count * t->b_step);
}

static LLVMValueRef phi(Body *e, LLVMValueRef first, LLVMBasicBlockRef from)
{
	LLVMValueRef p = LLVMBuildPhi(e->at, LLVMTypeOf(first), "");
	LLVMAddIncoming(p, &first, &from, 1);
	return p;
}

static LLVMValueRef *step_values(Steps *s)
{
	return (LLVMValueRef *)s;
}

// Runs `count` steps `trips` times, perhaps never. Values of the loop and after it are phis.
static void step_loop(Body *e, Steps *s, LLVMValueRef trips, int count)
{
	LLVMContextRef c = LLVMGetTypeContext(e->vector);
	LLVMBasicBlockRef before = LLVMGetInsertBlock(e->at);
	LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(c, e->function, "k");
	LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(c, e->function, "");
	LLVMValueRef zero = LLVMConstInt(e->i64, 0, 0);
	LLVMBuildCondBr(e->at, LLVMBuildICmp(e->at, LLVMIntSGT, trips, zero, ""), loop, after);

	LLVMPositionBuilderAtEnd(e->at, loop);
	LLVMValueRef left = phi(e, trips, before);
	Steps top = {0}, end, out = {0};
	int values = sizeof(Steps) / sizeof(LLVMValueRef);
	for (int i = 0; i < values; i++)
		if (step_values(s)[i])
			step_values(&top)[i] = phi(e, step_values(s)[i], before);
	end = top;
	take_steps(e, &end, count);
	LLVMValueRef next = LLVMBuildSub(e->at, left, LLVMConstInt(e->i64, 1, 0), "");
	LLVMAddIncoming(left, &next, &loop, 1);
	LLVMValueRef more = LLVMBuildICmp(e->at, LLVMIntNE, next, zero, "");
	LLVMValueRef branch = LLVMBuildCondBr(e->at, more, loop, after);
	// The loop is unrolled already: LLVM must not unroll it again.
	LLVMMetadataRef off = LLVMMDStringInContext2(c, "llvm.loop.unroll.disable", 24);
	LLVMMetadataRef self = LLVMTemporaryMDNode(c, NULL, 0);
	LLVMMetadataRef part[2] = {self, LLVMMDNodeInContext2(c, &off, 1)};
	LLVMMetadataRef node = LLVMMDNodeInContext2(c, part, 2);
	LLVMMetadataReplaceAllUsesWith(self, node);
	LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(c, "llvm.loop", 9),
	                LLVMMetadataAsValue(c, node));

	LLVMPositionBuilderAtEnd(e->at, after);
	for (int i = 0; i < values; i++)
		if (step_values(s)[i]) {
			LLVMAddIncoming(step_values(&top)[i], &step_values(&end)[i], &loop, 1);
			step_values(&out)[i] = phi(e, step_values(s)[i], before);
			LLVMAddIncoming(step_values(&out)[i], &step_values(&end)[i], &loop, 1);
		}
	*s = out;
}

static void write_tile(Body *e, const Steps *s, LLVMValueRef c, bool add)
{
	const Tile *t = e->tile;
	for (int i = 0; i < t->rows * t->vectors; i++) {
		int64_t place = i / t->vectors * t->c_row + i % t->vectors * t->lanes;
		LLVMValueRef sum = s->sum[i];
		if (add)
			sum = LLVMBuildFAdd(e->at, load_vector(e, c, place), sum, "");
		LLVMValueRef store = LLVMBuildStore(e->at, sum, along(e, c, place));
		LLVMSetAlignment(store, (unsigned)t->bytes);
	}
	LLVMBuildRetVoid(e->at);
}

LLVMValueRef tile_function(LLVMModuleRef module, const Tile *t)
{
	if (t->rows * t->vectors > ACCUMULATORS)
		bug("a tile of %d x %d vectors", t->rows, t->vectors);
	LLVMContextRef c = LLVMGetModuleContext(module);
	LLVMTypeRef p = LLVMPointerTypeInContext(c, 0), i64 = LLVMInt64TypeInContext(c);
	LLVMTypeRef in[6 + STREAMS] = {i64, p, p, p, LLVMInt1TypeInContext(c), p, p, p, p, p};
	unsigned count = (unsigned)(6 + t->streams);
	LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(c), in, count, 0);
	LLVMValueRef f = LLVMAddFunction(module, "tile", type);
	LLVMSetLinkage(f, LLVMInternalLinkage);
	Body e = {t, LLVMCreateBuilderInContext(c), f, LLVMVectorType(t->elem, (unsigned)t->lanes),
	          i64};
	LLVMPositionBuilderAtEnd(e.at, LLVMAppendBasicBlockInContext(c, f, ""));
	Steps s = {.a = LLVMGetParam(f, 1),
	           .b = LLVMGetParam(f, 2),
	           .soon = LLVMGetParam(f, 5),
	           .rows = LLVMConstInt(i64, (uint64_t)t->rows, 0)};
	for (int i = 0; i < t->streams; i++)
		s.stream[i] = LLVMGetParam(f, (unsigned)(6 + i));
	for (int i = 0; i < t->rows * t->vectors; i++)
		s.sum[i] = LLVMConstNull(e.vector);
	LLVMValueRef k = LLVMGetParam(f, 0);
	LLVMValueRef unroll = LLVMConstInt(i64, (uint64_t)t->unroll, 0);
	step_loop(&e, &s, LLVMBuildUDiv(e.at, k, unroll, ""), t->unroll);
	if (t->rest)
		step_loop(&e, &s, LLVMBuildURem(e.at, k, unroll, ""), 1);

	LLVMBasicBlockRef sum = LLVMAppendBasicBlockInContext(c, f, "add");
	LLVMBasicBlockRef set = LLVMAppendBasicBlockInContext(c, f, "set");
	LLVMBuildCondBr(e.at, LLVMGetParam(f, 4), sum, set);
	LLVMPositionBuilderAtEnd(e.at, sum);
	write_tile(&e, &s, LLVMGetParam(f, 3), true);
	LLVMPositionBuilderAtEnd(e.at, set);
	write_tile(&e, &s, LLVMGetParam(f, 3), false);
	LLVMDisposeBuilder(e.at);
	return f;
}
