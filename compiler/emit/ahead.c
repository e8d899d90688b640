// ahead.c: moves the loads of a block before what does not need to precede them.
// A thread of a GPU goes on after a load until a result is needed, and stops there: loads that come
// one after the other wait for memory together. The device's compiler does not move them itself
// where a branch is between, such as that of a division.
#include "gen.h"
#include <string.h>

enum {              // what a table knows of an instruction
	FREE = 1,   // it may move to the start of the block
	WANTED = 2, // a load, or what its address is computed from
	WRITTEN = 4 // of an alloca: the block has stored there
};

static uint64_t *known(Table *all, Value v)
{
	return table_cell(all, &v, sizeof v);
}

// True if what follows may see what it does: a barrier, a store.
static bool has_effect(Value v)
{
	LLVMOpcode op = LLVMGetInstructionOpcode(v);
	if (op == LLVMStore)
		return !LLVMIsAAllocaInst(LLVMGetOperand(v, 1));
	if (op == LLVMLoad)
		return LLVMGetVolatile(v);
	if (op != LLVMCall)
		return LLVMIsATerminatorInst(v);
	static const char *const memory[] = {"bar", "fence", "cp.async", "masked"};
	size_t size;
	const char *name = LLVMGetValueName2(LLVMGetCalledValue(v), &size);
	bool effect = !starts_with(name, "llvm.");
	for (int i = 0; i < COUNT(memory); i++)
		effect |= strstr(name, memory[i]) != NULL;
	return effect;
}

static bool is_free(Table *all, Value v, LLVMBasicBlockRef block)
{
	for (int i = 0; i < LLVMGetNumOperands(v); i++) {
		Value in = LLVMGetOperand(v, (unsigned)i);
		if (LLVMIsAAllocaInst(in)
		        ? *known(all, in) & WRITTEN
		        : LLVMIsAInstruction(in) && LLVMGetInstructionParent(in) == block &&
		              !(*known(all, in) & FREE))
			return false;
	}
	return true;
}

// True if it widens a load: where it is, LLVM makes one instruction of both.
static bool is_widened(Table *all, Value v)
{
	LLVMOpcode op = LLVMGetInstructionOpcode(v);
	if (!(*known(all, v) & FREE) || (op != LLVMZExt && op != LLVMSExt && op != LLVMFPExt))
		return false;
	Value in = LLVMGetOperand(v, 0);
	return LLVMIsALoadInst(in) && *known(all, in) & WANTED;
}

void loads_ahead(Gen *g)
{
	Table *all = table_new(g->arena);
	LLVMBasicBlockRef block = LLVMGetInsertBlock(g->b);
	Value last = NULL;
	for (Value v = LLVMGetFirstInstruction(block); v && !has_effect(v);
	     v = LLVMGetNextInstruction(v)) {
		if (LLVMGetInstructionOpcode(v) == LLVMStore)
			*known(all, LLVMGetOperand(v, 1)) |= WRITTEN;
		else if (is_free(all, v, block))
			*known(all, v) |= FREE;
		last = v;
	}
	for (Value v = last; v; v = LLVMGetPreviousInstruction(v)) {
		uint64_t *own = known(all, v);
		if (LLVMGetInstructionOpcode(v) == LLVMLoad && *own & FREE &&
		    !LLVMIsAAllocaInst(LLVMGetOperand(v, 0)))
			*own |= WANTED;
		for (int i = 0; i < LLVMGetNumOperands(v) && *own & WANTED; i++) {
			Value in = LLVMGetOperand(v, (unsigned)i);
			if (*known(all, in) & FREE)
				*known(all, in) |= WANTED;
		}
	}
	for (Value v = LLVMGetFirstInstruction(block); last && v != last;
	     v = LLVMGetNextInstruction(v))
		if (is_widened(all, v))
			*known(all, v) |= WANTED;
	Value at = LLVMGetFirstInstruction(block);
	while (at && at != last && *known(all, at) & WANTED)
		at = LLVMGetNextInstruction(at);
	for (Value v = at, next, end = last ? LLVMGetNextInstruction(last) : NULL; v && v != end;
	     v = next) {
		next = LLVMGetNextInstruction(v);
		if (v == at || !(*known(all, v) & WANTED)) // it may be the last, and all are wanted
			continue;
		LLVMInstructionRemoveFromParent(v);
		LLVMPositionBuilderBefore(g->b, at);
		LLVMInsertIntoBuilder(g->b, v);
	}
	LLVMPositionBuilderAtEnd(g->b, block);
}
