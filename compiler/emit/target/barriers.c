// barriers.c: removes barriers that no access to memory needs.
// A barrier is needed if an access before it and one after it, with no other barrier between them,
// may be to the same memory, and one of them writes; that of a warp, after which one of its threads
// stores for all, if others read before. Operands of a kernel that are not at the same address do
// not overlap (plan.h), nor do arrays in shared memory.
#include "target.h"
#include <string.h>

typedef struct Access {
	Value memory; // an array in shared memory or an entry of the table; NULL: not known
	bool writes;
} Access;

typedef struct Accesses {
	Arena *arena;
	VEC(Access) list;
	Table *seen; // blocks
	bool team;   // barriers of warps end it, too
} Accesses;

static const char *called(Value instruction)
{
	size_t length;
	if (!LLVMIsACallInst(instruction))
		return NULL;
	return LLVMGetValueName2(LLVMGetCalledValue(instruction), &length);
}

// True for a barrier of all threads; team: for one of a warp.
static bool is_barrier(Value instruction, bool team)
{
	static const char *const all[] = {GPU_BARRIER, CUDA_BARRIER, EMULATED_BARRIER},
	                         *const of_warp[] = {CUDA_WARP, EMULATED_WARP};
	const char *name = called(instruction);
	return name && (team ? FIND(name, of_warp) : FIND(name, all)) >= 0;
}

static bool ends(const Accesses *a, Value instruction)
{
	return is_barrier(instruction, false) || (a->team && is_barrier(instruction, true));
}

static Value memory_of(Value pointer)
{
	for (;;) {
		const char *name = called(pointer);
		if (name && !strcmp(name, EMULATED_SHARED))
			return LLVMGetOperand(pointer, 0);
		if (LLVMIsALoadInst(pointer) || LLVMIsAGlobalVariable(pointer))
			return pointer;
		bool gep = LLVMIsAGetElementPtrInst(pointer) ||
		           (LLVMIsAConstantExpr(pointer) &&
		            LLVMGetConstOpcode(pointer) == LLVMGetElementPtr);
		if (!gep)
			return NULL;
		pointer = LLVMGetOperand(pointer, 0);
	}
}

static void add(Accesses *a, Value memory, bool writes)
{
	for (int k = 0; k < a->list.count; k++)
		if (a->list.at[k].memory == memory && a->list.at[k].writes == writes)
			return;
	PUSH(a->arena, a->list, ((Access){memory, writes}));
}

// Memory that others may write, too: not the table of addresses, nor constants.
static bool is_common(Value pointer)
{
	return LLVMGetPointerAddressSpace(LLVMTypeOf(pointer)) != 0;
}

static void add_instruction(Accesses *a, Value v)
{
	const char *name = called(v);
	if (LLVMIsALoadInst(v) && is_common(LLVMGetOperand(v, 0)))
		add(a, memory_of(LLVMGetOperand(v, 0)), false);
	else if (LLVMIsAStoreInst(v) && is_common(LLVMGetOperand(v, 1)))
		add(a, memory_of(LLVMGetOperand(v, 1)), true);
	else if (LLVMIsACallInst(v) && LLVMIsAInlineAsm(LLVMGetCalledValue(v)))
		add(a, NULL, true);
	else if (name && !strcmp(name, EMULATED_SUMS_WAIT))
		add(a, NULL, false); // products read memory until they are waited for
	else if (name && (!strcmp(name, GPU_FENCE) || !strcmp(name, EMULATED_FENCE)))
		add(a, NULL, true); // from here on, others use what the threads have written
	else if (name && strcmp(name, EMULATED_SHARED) && strcmp(name, EMULATED_ADDRESS))
		for (unsigned k = 0; k < LLVMGetNumArgOperands(v); k++) {
			Value x = LLVMGetOperand(v, k);
			if (LLVMGetTypeKind(LLVMTypeOf(x)) == LLVMPointerTypeKind) {
				add(a, memory_of(x), false);
				add(a, memory_of(x), true);
			}
		}
}

// Adds the accesses from an instruction on (NULL: none), and from the blocks on to which that
// leads, up to the next barriers.
static void add_after(Accesses *a, LLVMBasicBlockRef block, Value v)
{
	for (; v; v = LLVMGetNextInstruction(v)) {
		if (ends(a, v))
			return;
		add_instruction(a, v);
	}
	Value end = LLVMGetBasicBlockTerminator(block);
	for (unsigned k = 0; k < LLVMGetNumSuccessors(end); k++) {
		LLVMBasicBlockRef to = LLVMGetSuccessor(end, k);
		uint64_t *seen = table_cell(a->seen, &to, sizeof to);
		if (!(*seen)++)
			add_after(a, to, LLVMGetFirstInstruction(to));
	}
}

// The same backward.
static void add_before(Accesses *a, LLVMBasicBlockRef block, Value v)
{
	for (; v; v = LLVMGetPreviousInstruction(v)) {
		if (ends(a, v))
			return;
		add_instruction(a, v);
	}
	Value own = LLVMBasicBlockAsValue(block);
	for (LLVMUseRef use = LLVMGetFirstUse(own); use; use = LLVMGetNextUse(use)) {
		LLVMBasicBlockRef from = LLVMGetInstructionParent(LLVMGetUser(use));
		uint64_t *seen = table_cell(a->seen, &from, sizeof from);
		if (!(*seen)++)
			add_before(a, from, LLVMGetLastInstruction(from));
	}
}

static bool is_needed(Value barrier)
{
	Arena *arena = arena_new();
	bool team = is_barrier(barrier, true);
	Accesses before = {.arena = arena, .seen = table_new(arena), .team = team};
	Accesses after = {.arena = arena, .seen = table_new(arena), .team = team};
	LLVMBasicBlockRef block = LLVMGetInstructionParent(barrier);
	add_before(&before, block, LLVMGetPreviousInstruction(barrier));
	add_after(&after, block, LLVMGetNextInstruction(barrier));
	bool needed = false;
	for (int i = 0; i < before.list.count; i++)
		for (int k = 0; k < after.list.count; k++) {
			const Access *x = &before.list.at[i], *y = &after.list.at[k];
			bool same = !x->memory || !y->memory || x->memory == y->memory;
			needed |= same && (team ? !x->writes && y->writes : x->writes || y->writes);
		}
	arena_free(arena);
	return needed;
}

void remove_barriers(LLVMModuleRef module)
{
	for (Value f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
		for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b;
		     b = LLVMGetNextBasicBlock(b))
			for (Value v = LLVMGetFirstInstruction(b), next; v; v = next) {
				next = LLVMGetNextInstruction(v);
				bool is = is_barrier(v, false) || is_barrier(v, true);
				if (is && !is_needed(v))
					LLVMInstructionEraseFromParent(v);
			}
}
