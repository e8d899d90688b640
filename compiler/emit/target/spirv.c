// spirv.c: writes a module of kernels as SPIR-V 1.0 for OpenCL (LLVM 19 of Debian has no such
// target). Input: LLVM IR without allocas, whose vectors are only loaded, stored, and made or read
// element by element: kernels of one argument, the table of addresses; functions of target.h for
// what only a GPU has. Output: the words of a module with one entry point a kernel.
//
// Pointers have types in SPIR-V: one to the type that its last index counts, bytes if it has none,
// and each use casts it. Addresses in memory are integers. Blocks are written in reverse postorder,
// so that each comes after those that dominate it. Without a decoration floats are strict, and
// ContractionOff keeps products and sums apart.
#include "target.h"
#include <string.h>

typedef enum SpirvOp {
#define OP(name, number) Op##name = number,
#include "spirv.def"
} SpirvOp;

enum { // numbers of the specification
	MAGIC = 0x07230203,
	VERSION = 0x00010000,
	PHYSICAL_64 = 2,
	OPENCL = 2,
	KERNEL = 6, // capability and execution model
	ADDRESSES = 4,
	FLOAT_16 = 9,
	FLOAT_64 = 10,
	INT_64 = 11,
	INT_16 = 22,
	INT_8 = 39,
	LOCAL_SIZE = 17, // execution modes
	CONTRACTION_OFF = 31,
	UNIFORM_CONSTANT = 0, // storage classes
	INPUT = 1,
	WORKGROUP = 4,
	CROSS_WORKGROUP = 5,
	BUILT_IN = 11, // decorations
	CONSTANT = 22,
	SATURATED = 28,
	ALIGNMENT = 44,
	WORKGROUP_ID = 26, // built-in variables
	LOCAL_INVOCATION_ID = 27,
	VOLATILE = 1, // of an access to memory
	ALIGNED = 2,
	ACQUIRE_RELEASE = 8,                  // memory semantics
	ALL_MEMORY = ACQUIRE_RELEASE | 0x300, // of the worker, and of the device
	RELAXED = 0,
	SCOPE_DEVICE = 1,
	SCOPE_WORKGROUP = 2,
};

typedef VEC(uint32_t) Words;

typedef struct Writer {
	Arena *arena;
	LLVMContextRef context;
	Words capabilities, entries, modes, decorations, globals, code;
	uint32_t ids;           // numbers given
	uint32_t functions;     // OpenCL.std
	uint32_t thread, block; // variables
	Table *number;          // value or block of LLVM -> its id
	Table *declared;        // words of a type or constant -> its id
	LLVMTypeRef i8, i32, i64;
} Writer;

// ---- words ----------------------------------------------------------------------------

static void write_words(Writer *w, Words *to, SpirvOp op, int n, const uint32_t *word)
{
	PUSH(w->arena, *to, (uint32_t)(n + 1) << 16 | op);
	for (int k = 0; k < n; k++)
		PUSH(w->arena, *to, word[k]);
}
#define LIST(...)                                                                                  \
	COUNT(((uint32_t[]){__VA_ARGS__})), (uint32_t[])                                           \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define WRITE(w, to, op, ...) write_words((w), (to), (op), LIST(__VA_ARGS__))

// Puts an instruction whose operands end with a text.
static void write_text(Writer *w, Words *to, SpirvOp op, int n, const uint32_t *word,
                       const char *text, int after, const uint32_t *rest)
{
	int count = (int)strlen(text) / 4 + 1;
	uint32_t *all = NEWS(w->arena, uint32_t, n + count + after);
	memcpy(all, word, sizeof *all * (size_t)n);
	memcpy(all + n, text, strlen(text));
	memcpy(all + n + count, rest, sizeof *all * (size_t)after);
	write_words(w, to, op, n + count + after, all);
}

// Returns the id of a type (its words), or of a constant (its type and words), written once.
static uint32_t declare(Writer *w, SpirvOp op, bool constant, int n, const uint32_t *word)
{
	uint32_t *all = NEWS(w->arena, uint32_t, n + 2);
	all[0] = op;
	memcpy(all + 1, word, sizeof *all * (size_t)n);
	uint64_t *cell = table_cell(w->declared, all, sizeof *all * (size_t)(n + 1));
	if (*cell)
		return (uint32_t)*cell;
	*cell = ++w->ids;
	int before = constant ? 1 : 0;
	memmove(all, word, sizeof *all * (size_t)before);
	all[before] = (uint32_t)*cell;
	memcpy(all + before + 1, word + before, sizeof *all * (size_t)(n - before));
	write_words(w, &w->globals, op, n + 1, all);
	return (uint32_t)*cell;
}
#define TYPE(w, op, ...)        declare((w), (op), false, LIST(__VA_ARGS__))
#define CONSTANT_OF(w, op, ...) declare((w), (op), true, LIST(__VA_ARGS__))

static void need(Writer *w, uint32_t capability)
{
	for (int k = 1; k < w->capabilities.count; k += 2)
		if (w->capabilities.at[k] == capability)
			return;
	WRITE(w, &w->capabilities, OpCapability, capability);
}

// ---- types and constants --------------------------------------------------------------

static uint32_t id_of(Writer *w, Value v);

static bool is_bool(LLVMTypeRef type)
{
	return LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
}

static uint32_t integer(Writer *w, LLVMTypeRef type, uint64_t x)
{
	return id_of(w, LLVMConstInt(type, x, 0));
}

static uint32_t type_id(Writer *w, LLVMTypeRef type)
{
	uint32_t bits;
	switch (LLVMGetTypeKind(type)) {
	case LLVMVoidTypeKind:
		return declare(w, OpTypeVoid, false, 0, &w->ids);
	case LLVMIntegerTypeKind:
		bits = LLVMGetIntTypeWidth(type);
		if (bits == 1)
			return declare(w, OpTypeBool, false, 0, &w->ids);
		if (bits != 32)
			need(w, bits == 8 ? INT_8 : bits == 16 ? INT_16 : INT_64);
		return TYPE(w, OpTypeInt, bits, 0);
	case LLVMHalfTypeKind:
		need(w, FLOAT_16);
		return TYPE(w, OpTypeFloat, 16);
	case LLVMFloatTypeKind:
		return TYPE(w, OpTypeFloat, 32);
	case LLVMDoubleTypeKind:
		need(w, FLOAT_64);
		return TYPE(w, OpTypeFloat, 64);
	case LLVMVectorTypeKind:
		return TYPE(w, OpTypeVector, type_id(w, LLVMGetElementType(type)),
		            LLVMGetVectorSize(type));
	case LLVMArrayTypeKind:
		return TYPE(w, OpTypeArray, type_id(w, LLVMGetElementType(type)),
		            integer(w, w->i32, LLVMGetArrayLength2(type)));
	default:
		bug("SPIR-V: a type of kind %d", LLVMGetTypeKind(type));
	}
}

static uint32_t pointer_type(Writer *w, uint32_t place, LLVMTypeRef to)
{
	return TYPE(w, OpTypePointer, place, type_id(w, to));
}

// Returns the bits of a float of type `type`.
static uint64_t float_bits(LLVMTypeKind kind, Value v)
{
	LLVMBool lost;
	double x = LLVMConstRealGetDouble(v, &lost);
	float f = (float)x;
	uint64_t bits = 0;
	if (kind == LLVMDoubleTypeKind)
		memcpy(&bits, &x, sizeof x);
	else if (kind == LLVMFloatTypeKind)
		memcpy(&bits, &f, sizeof f);
	else
		bits = amos_to_f16(f);
	return bits;
}

static uint32_t number_of(Writer *w, uint32_t type, int bits, uint64_t x)
{
	if (bits == 64)
		return CONSTANT_OF(w, OpConstant, type, (uint32_t)x, (uint32_t)(x >> 32));
	return CONSTANT_OF(w, OpConstant, type, (uint32_t)x);
}

static uint32_t constant(Writer *w, Value v)
{
	LLVMTypeRef type = LLVMTypeOf(v);
	LLVMTypeKind kind = LLVMGetTypeKind(type);
	uint32_t own = type_id(w, type);
	if (LLVMIsUndef(v) || LLVMIsPoison(v))
		return CONSTANT_OF(w, OpUndef, own);
	if (LLVMIsAConstantInt(v) && is_bool(type))
		return declare(w, LLVMConstIntGetZExtValue(v) ? OpConstantTrue : OpConstantFalse,
		               true, 1, &own);
	if (LLVMIsAConstantInt(v))
		return number_of(w, own, (int)LLVMGetIntTypeWidth(type),
		                 LLVMConstIntGetZExtValue(v));
	if (LLVMIsAConstantFP(v))
		return number_of(w, own, kind == LLVMDoubleTypeKind ? 64 : 32, float_bits(kind, v));
	if (LLVMIsNull(v))
		return declare(w, OpConstantNull, true, 1, &own);
	if (kind != LLVMArrayTypeKind)
		bug("SPIR-V: a constant of kind %d", LLVMGetValueKind(v));
	int n = (int)LLVMGetArrayLength2(type);
	uint32_t *part = NEWS(w->arena, uint32_t, n + 1);
	part[0] = own;
	for (int k = 0; k < n; k++)
		part[k + 1] = id_of(w, LLVMGetAggregateElement(v, (unsigned)k));
	return declare(w, OpConstantComposite, true, n + 1, part);
}

static bool is_gep(Value v)
{
	return (LLVMIsAInstruction(v) && LLVMGetInstructionOpcode(v) == LLVMGetElementPtr) ||
	       (LLVMIsAConstantExpr(v) && LLVMGetConstOpcode(v) == LLVMGetElementPtr);
}

// Returns the storage class of what a pointer points to.
static uint32_t place_of(Value v)
{
	if (is_gep(v))
		return place_of(LLVMGetOperand(v, 0));
	unsigned space = LLVMGetPointerAddressSpace(LLVMTypeOf(v));
	return space == SHARED                               ? WORKGROUP
	       : LLVMIsAGlobalVariable(v) && space != GLOBAL ? UNIFORM_CONSTANT
	                                                     : CROSS_WORKGROUP;
}

static uint32_t global_variable(Writer *w, Value v)
{
	LLVMTypeRef type = LLVMGlobalGetValueType(v);
	uint32_t place = place_of(v), own = pointer_type(w, place, type);
	bool shared = place == WORKGROUP;
	uint32_t first = shared ? 0 : id_of(w, LLVMGetInitializer(v)), id = ++w->ids;
	if (shared) {
		WRITE(w, &w->globals, OpVariable, own, id, place);
		WRITE(w, &w->decorations, OpDecorate, id, ALIGNMENT, LLVMGetAlignment(v));
		return id;
	}
	WRITE(w, &w->globals, OpVariable, own, id, place, first);
	if (place == UNIFORM_CONSTANT)
		WRITE(w, &w->decorations, OpDecorate, id, CONSTANT);
	return id;
}

// Returns the id of a value or block, which may be written later.
static uint32_t id_of(Writer *w, Value v)
{
	uint64_t *cell = table_cell(w->number, &v, sizeof v);
	if (*cell)
		return (uint32_t)*cell;
	uint32_t id = LLVMIsAGlobalVariable(v)                   ? global_variable(w, v)
	              : LLVMIsConstant(v) && !LLVMIsAFunction(v) ? constant(w, v)
	                                                         : ++w->ids;
	*cell = id;
	return id;
}

static uint32_t label(Writer *w, LLVMBasicBlockRef block)
{
	return id_of(w, LLVMBasicBlockAsValue(block));
}

// ---- instructions ---------------------------------------------------------------------

static Value operand(Value instruction, unsigned k)
{
	return LLVMGetOperand(instruction, k);
}

// Puts an instruction with a result and returns its id. `id` 0: a new one.
static uint32_t result(Writer *w, SpirvOp op, uint32_t type, uint32_t id, int n,
                       const uint32_t *word)
{
	uint32_t *all = NEWS(w->arena, uint32_t, n + 2);
	all[0] = type;
	all[1] = id ? id : ++w->ids;
	memcpy(all + 2, word, sizeof *all * (size_t)n);
	write_words(w, &w->code, op, n + 2, all);
	return all[1];
}
#define RESULT(w, op, type, id, ...) result((w), (op), (type), (id), LIST(__VA_ARGS__))

// Returns the type that values of this type have in memory.
static LLVMTypeRef stored(Writer *w, LLVMTypeRef type)
{
	return LLVMGetTypeKind(type) == LLVMPointerTypeKind ? w->i64 : type;
}

static LLVMTypeRef pointee(Writer *w, Value v)
{
	return is_gep(v)                  ? stored(w, LLVMGetGEPSourceElementType(v))
	       : LLVMIsAGlobalVariable(v) ? LLVMGlobalGetValueType(v)
	                                  : w->i8;
}

static uint32_t address(Writer *w, Value gep, uint32_t id);

// Returns the id of a pointer, as one to `type`.
static uint32_t pointer(Writer *w, Value v, LLVMTypeRef type)
{
	uint32_t id = LLVMIsAConstantExpr(v) ? address(w, v, 0) : id_of(w, v);
	if (pointee(w, v) == type)
		return id;
	return RESULT(w, OpBitcast, pointer_type(w, place_of(v), type), 0, id);
}

static uint32_t address(Writer *w, Value gep, uint32_t id)
{
	LLVMTypeRef type = stored(w, LLVMGetGEPSourceElementType(gep));
	if (LLVMGetNumOperands(gep) != 2)
		bug("SPIR-V: an address of several indices");
	uint32_t from = pointer(w, operand(gep, 0), type), by = id_of(w, operand(gep, 1));
	return RESULT(w, OpPtrAccessChain, pointer_type(w, place_of(gep), type), id, from, by);
}

static void load(Writer *w, Value v)
{
	LLVMTypeRef type = LLVMTypeOf(v), own = stored(w, type);
	bool pointers = type != own;
	uint32_t from = pointer(w, operand(v, 0), own), id = id_of(w, v);
	uint32_t how = LLVMGetVolatile(v) ? ALIGNED | VOLATILE : ALIGNED;
	uint32_t x =
	    RESULT(w, OpLoad, type_id(w, own), pointers ? 0 : id, from, how, LLVMGetAlignment(v));
	if (pointers)
		RESULT(w, OpConvertUToPtr, pointer_type(w, CROSS_WORKGROUP, w->i8), id, x);
}

static void store(Writer *w, Value v)
{
	Value x = operand(v, 0);
	uint32_t to = pointer(w, operand(v, 1), LLVMTypeOf(x));
	WRITE(w, &w->code, OpStore, to, id_of(w, x), ALIGNED, LLVMGetAlignment(v));
}

static void phi(Writer *w, Value v, const Table *order)
{
	int n = (int)LLVMCountIncoming(v), count = 0;
	uint32_t *word = NEWS(w->arena, uint32_t, 2 * n);
	for (int k = 0; k < n; k++) {
		LLVMBasicBlockRef from = LLVMGetIncomingBlock(v, (unsigned)k);
		if (!table_find(order, &from, sizeof from))
			continue;
		word[count++] = id_of(w, LLVMGetIncomingValue(v, (unsigned)k));
		word[count++] = label(w, from);
	}
	result(w, OpPhi, type_id(w, LLVMTypeOf(v)), id_of(w, v), count, word);
}

static void branch(Writer *w, Value v)
{
	if (!LLVMIsConditional(v)) {
		WRITE(w, &w->code, OpBranch, label(w, LLVMGetSuccessor(v, 0)));
		return;
	}
	WRITE(w, &w->code, OpBranchConditional, id_of(w, LLVMGetCondition(v)),
	      label(w, LLVMGetSuccessor(v, 0)), label(w, LLVMGetSuccessor(v, 1)));
}

// ---- calls ----------------------------------------------------------------------------

static const struct {
	const char *name;
	uint32_t number;
} functions[] = {
#define FUNCTION(name, number) {name, number},
#include "spirv.def"
};

static uint32_t operate(Writer *w, SpirvOp op, LLVMTypeRef type, uint32_t a, uint32_t b)
{
	return RESULT(w, op, type_id(w, type), 0, a, b);
}

// The upper bits of a b shifted left by c modulo the width. (b >> 1) >> (63 - c) is b >> (64 - c),
// but for c = 0, where it is 0.
static void funnel_shift(Writer *w, Value v)
{
	LLVMTypeRef type = LLVMTypeOf(v);
	uint32_t last = integer(w, type, LLVMGetIntTypeWidth(type) - 1), one = integer(w, type, 1);
	uint32_t by = operate(w, OpBitwiseAnd, type, id_of(w, operand(v, 2)), last);
	uint32_t high = operate(w, OpShiftLeftLogical, type, id_of(w, operand(v, 0)), by);
	uint32_t half = operate(w, OpShiftRightLogical, type, id_of(w, operand(v, 1)), one);
	uint32_t rest = operate(w, OpISub, type, last, by);
	uint32_t low = operate(w, OpShiftRightLogical, type, half, rest);
	RESULT(w, OpBitwiseOr, type_id(w, type), id_of(w, v), high, low);
}

// Component x of a built-in variable.
static void built_in(Writer *w, Value v, uint32_t variable)
{
	uint32_t i64 = type_id(w, w->i64), all = TYPE(w, OpTypeVector, i64, 3);
	RESULT(w, OpCompositeExtract, i64, id_of(w, v), RESULT(w, OpLoad, all, 0, variable), 0);
}

static void call(Writer *w, Value v)
{
	size_t length;
	const char *name = LLVMGetValueName2(LLVMGetCalledValue(v), &length);
	int n = (int)LLVMGetNumArgOperands(v);
	uint32_t word[8] = {w->functions};
	for (int k = 0; k < COUNT(functions); k++) {
		if (!starts_with(name, functions[k].name))
			continue;
		word[1] = functions[k].number;
		for (int i = 0; i < n; i++)
			word[2 + i] = id_of(w, operand(v, (unsigned)i));
		result(w, OpExtInst, type_id(w, LLVMTypeOf(v)), id_of(w, v), 2 + n, word);
		return;
	}
	if (starts_with(name, "llvm.fpto")) { // si.sat, ui.sat
		SpirvOp op = starts_with(name, "llvm.fptosi") ? OpConvertFToS : OpConvertFToU;
		RESULT(w, op, type_id(w, LLVMTypeOf(v)), id_of(w, v), id_of(w, operand(v, 0)));
		WRITE(w, &w->decorations, OpDecorate, id_of(w, v), SATURATED);
	} else if (starts_with(name, "llvm.fshl."))
		funnel_shift(w, v);
	else if (!strcmp(name, GPU_THREAD))
		built_in(w, v, w->thread);
	else if (!strcmp(name, GPU_BLOCK))
		built_in(w, v, w->block);
	else if (!strcmp(name, GPU_FENCE))
		WRITE(w, &w->code, OpMemoryBarrier, integer(w, w->i32, SCOPE_DEVICE),
		      integer(w, w->i32, ALL_MEMORY));
	else if (!strcmp(name, GPU_BARRIER))
		WRITE(w, &w->code, OpControlBarrier, integer(w, w->i32, SCOPE_WORKGROUP),
		      integer(w, w->i32, SCOPE_WORKGROUP), integer(w, w->i32, ALL_MEMORY));
	else
		bug("SPIR-V: a call of %s", name);
}

static void add_atomic(Writer *w, Value v)
{
	uint32_t to = pointer(w, operand(v, 0), w->i32);
	RESULT(w, OpAtomicIAdd, type_id(w, w->i32), id_of(w, v), to,
	       integer(w, w->i32, SCOPE_DEVICE), integer(w, w->i32, RELAXED),
	       id_of(w, operand(v, 1)));
}

// ---- what is one instruction of SPIR-V ------------------------------------------------

// Returns `yes` or `no` of the result's type where the i1 x is true or false.
static uint32_t choice_of(Writer *w, Value v, uint32_t id, Value x, double yes)
{
	LLVMTypeRef type = LLVMTypeOf(v);
	bool whole = LLVMGetTypeKind(type) == LLVMIntegerTypeKind;
	Value one =
	    whole ? LLVMConstInt(type, (uint64_t)(int64_t)yes, 1) : LLVMConstReal(type, yes);
	return RESULT(w, OpSelect, type_id(w, type), id, id_of(w, x), id_of(w, one),
	              id_of(w, LLVMConstNull(type)));
}

// A conversion from or to i1. True if it is one.
static bool convert_bool(Writer *w, Value v, LLVMOpcode op)
{
	Value x = operand(v, 0);
	if (op == LLVMTrunc && is_bool(LLVMTypeOf(v))) {
		LLVMTypeRef type = LLVMTypeOf(x);
		uint32_t bit = operate(w, OpBitwiseAnd, type, id_of(w, x), integer(w, type, 1));
		RESULT(w, OpINotEqual, type_id(w, LLVMTypeOf(v)), id_of(w, v), bit,
		       integer(w, type, 0));
		return true;
	}
	bool is = is_bool(LLVMTypeOf(x)) &&
	          (op == LLVMZExt || op == LLVMSExt || op == LLVMUIToFP || op == LLVMSIToFP);
	if (is)
		choice_of(w, v, id_of(w, v), x, op == LLVMZExt || op == LLVMUIToFP ? 1 : -1);
	return is;
}

static void compare(Writer *w, Value v, SpirvOp op)
{
	uint32_t in[2];
	for (unsigned k = 0; k < 2; k++) {
		Value x = operand(v, k);
		in[k] = id_of(w, x);
		if (is_bool(LLVMTypeOf(x)))
			in[k] = choice_of(w, LLVMConstNull(w->i32), 0, x, 1);
	}
	RESULT(w, op, type_id(w, LLVMTypeOf(v)), id_of(w, v), in[0], in[1]);
}

static void compute(Writer *w, Value v)
{
	static const struct {
		SpirvOp op, of_bool;
	} same[] = {
#define Op0                                0
#define INSTRUCTION(opcode, name, of_bool) [opcode] = {Op##name, Op##of_bool},
#include "spirv.def"
#undef Op0
	};
	LLVMOpcode opcode = LLVMGetInstructionOpcode(v);
	LLVMTypeRef type = LLVMTypeOf(v);
	if (convert_bool(w, v, opcode))
		return;
	SpirvOp op = opcode >= COUNT(same) ? 0
	             : is_bool(type)       ? same[opcode].of_bool
	                                   : same[opcode].op;
	if (!op)
		bug("SPIR-V: instruction %d of LLVM", opcode);
	uint32_t in[3];
	int n = LLVMGetNumOperands(v);
	for (int k = 0; k < n; k++)
		in[k] = id_of(w, operand(v, (unsigned)k));
	result(w, op, type_id(w, type), id_of(w, v), n, in);
}

// Takes an element from a vector, or puts one into it.
static void element(Writer *w, Value v)
{
	bool put = LLVMIsAInsertElementInst(v);
	uint32_t type = type_id(w, LLVMTypeOf(v)), vector = id_of(w, operand(v, 0));
	uint32_t at = (uint32_t)LLVMConstIntGetZExtValue(operand(v, put ? 2 : 1));
	if (put)
		RESULT(w, OpCompositeInsert, type, id_of(w, v), id_of(w, operand(v, 1)), vector,
		       at);
	else
		RESULT(w, OpCompositeExtract, type, id_of(w, v), vector, at);
}

static void instruction(Writer *w, Value v, const Table *order)
{
	static const SpirvOp integers[] = {
#define INTEGERS(predicate, name) [predicate] = Op##name,
#include "spirv.def"
	};
	static const SpirvOp floats[] = {
#define FLOATS(predicate, name) [predicate] = Op##name,
#include "spirv.def"
	};
	switch (LLVMGetInstructionOpcode(v)) {
	case LLVMRet:
		write_words(w, &w->code, OpReturn, 0, NULL);
		break;
	case LLVMBr:
		branch(w, v);
		break;
	case LLVMPHI:
		phi(w, v, order);
		break;
	case LLVMLoad:
		load(w, v);
		break;
	case LLVMStore:
		store(w, v);
		break;
	case LLVMAtomicRMW:
		add_atomic(w, v);
		break;
	case LLVMGetElementPtr:
		address(w, v, id_of(w, v));
		break;
	case LLVMExtractElement:
	case LLVMInsertElement:
		element(w, v);
		break;
	case LLVMCall:
		call(w, v);
		break;
	case LLVMICmp:
		compare(w, v, integers[LLVMGetICmpPredicate(v)]);
		break;
	case LLVMFCmp:
		compare(w, v, floats[LLVMGetFCmpPredicate(v)]);
		break;
	default:
		compute(w, v);
	}
}

// ---- kernels --------------------------------------------------------------------------

typedef VEC(LLVMBasicBlockRef) Blocks;

// Returns the blocks that are reached, in postorder; *order has them as keys.
static Blocks postorder(Writer *w, Value function, Table *order)
{
	Blocks open = {0}, done = {0};
	VEC(unsigned) next = {0}; // successor, of those in `open`
	PUSH(w->arena, open, LLVMGetEntryBasicBlock(function));
	PUSH(w->arena, next, 0);
	*table_cell(order, &open.at[0], sizeof open.at[0]) = 1;
	while (open.count) {
		LLVMBasicBlockRef at = open.at[open.count - 1];
		Value end = LLVMGetBasicBlockTerminator(at);
		unsigned *k = &next.at[next.count - 1];
		if (*k == LLVMGetNumSuccessors(end)) {
			PUSH(w->arena, done, at);
			open.count--;
			next.count--;
			continue;
		}
		LLVMBasicBlockRef to = LLVMGetSuccessor(end, (*k)++);
		uint64_t *seen = table_cell(order, &to, sizeof to);
		if (*seen)
			continue;
		*seen = 1;
		PUSH(w->arena, open, to);
		PUSH(w->arena, next, 0);
	}
	return done;
}

static void kernel(Writer *w, Value function)
{
	size_t length;
	const char *name = LLVMGetValueName2(function, &length);
	uint32_t none = type_id(w, LLVMVoidTypeInContext(w->context));
	uint32_t table = pointer_type(w, CROSS_WORKGROUP, w->i8), id = id_of(w, function);
	write_text(w, &w->entries, OpEntryPoint, LIST(KERNEL, id), name, LIST(w->thread, w->block));
	WRITE(w, &w->modes, OpExecutionMode, id, LOCAL_SIZE, THREADS, 1, 1);
	WRITE(w, &w->modes, OpExecutionMode, id, CONTRACTION_OFF);
	WRITE(w, &w->code, OpFunction, none, id, 0, TYPE(w, OpTypeFunction, none, table));
	WRITE(w, &w->code, OpFunctionParameter, table, id_of(w, LLVMGetParam(function, 0)));
	Table *order = table_new(w->arena);
	Blocks blocks = postorder(w, function, order);
	for (int k = blocks.count; k-- > 0;) {
		WRITE(w, &w->code, OpLabel, label(w, blocks.at[k]));
		for (Value v = LLVMGetFirstInstruction(blocks.at[k]); v;
		     v = LLVMGetNextInstruction(v))
			instruction(w, v, order);
	}
	write_words(w, &w->code, OpFunctionEnd, 0, NULL);
}

static uint32_t built_in_variable(Writer *w, uint32_t number)
{
	uint32_t all = TYPE(w, OpTypeVector, type_id(w, w->i64), 3), id = ++w->ids;
	WRITE(w, &w->globals, OpVariable, TYPE(w, OpTypePointer, INPUT, all), id, INPUT);
	WRITE(w, &w->decorations, OpDecorate, id, BUILT_IN, number);
	WRITE(w, &w->decorations, OpDecorate, id, CONSTANT);
	return id;
}

Part spirv_of(Arena *arena, LLVMModuleRef module)
{
	Arena *work = arena_new();
	LLVMContextRef context = LLVMGetModuleContext(module);
	Writer w = {.arena = work,
	            .context = context,
	            .number = table_new(work),
	            .declared = table_new(work),
	            .i8 = LLVMInt8TypeInContext(context),
	            .i32 = LLVMInt32TypeInContext(context),
	            .i64 = LLVMInt64TypeInContext(context)};
	Words head = {0}, model = {0};
	need(&w, KERNEL);
	need(&w, ADDRESSES);
	w.functions = ++w.ids;
	write_text(&w, &model, OpExtInstImport, LIST(w.functions), "OpenCL.std", 0, &w.ids);
	WRITE(&w, &model, OpMemoryModel, PHYSICAL_64, OPENCL);
	w.thread = built_in_variable(&w, LOCAL_INVOCATION_ID);
	w.block = built_in_variable(&w, WORKGROUP_ID);
	for (Value f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
		if (!LLVMIsDeclaration(f))
			kernel(&w, f);
	for (int k = 0; k < 5; k++)
		PUSH(work, head, ((uint32_t[]){MAGIC, VERSION, 0, w.ids + 1, 0})[k]);
	const Words *all[] = {&head,    &w.capabilities, &model,     &w.entries,
	                      &w.modes, &w.decorations,  &w.globals, &w.code};
	Part part = {0};
	for (int k = 0; k < COUNT(all); k++)
		part.count += sizeof(uint32_t) * (size_t)all[k]->count;
	char *to = take(arena, part.count + 1);
	part.bytes = to;
	for (int k = 0; k < COUNT(all); k++) {
		size_t bytes = sizeof(uint32_t) * (size_t)all[k]->count;
		memcpy(to, all[k]->at, bytes);
		to += bytes;
	}
	arena_free(work);
	return part;
}
