// watch.c: has an emulated GPU see what a kernel does: calls before each access to memory, and a
// number for each barrier, fence and wait.
#include "target.h"
#include <string.h>

typedef struct Watch {
	LLVMContextRef context;
	LLVMBuilderRef b;
	LLVMTargetDataRef layout;
	LLVMTypeRef i32, i64, type;
	Value read, write;
} Watch;

static void watch(Watch *w, Value access, Value function, Value pointer, LLVMTypeRef type)
{
	if (!LLVMGetPointerAddressSpace(LLVMTypeOf(pointer)))
		return;
	LLVMPositionBuilderBefore(w->b, access);
	uint64_t bytes = LLVMStoreSizeOfType(w->layout, type);
	Value in[] = {LLVMBuildPtrToInt(w->b, pointer, w->i64, ""), LLVMConstInt(w->i32, bytes, 0)};
	LLVMBuildCall2(w->b, w->type, function, in, COUNT(in), "");
}

// True for calls whose last argument is their site.
static bool has_site(Value call)
{
	static const char *const names[] = {EMULATED_BARRIER, EMULATED_WARP,      EMULATED_FENCE,
	                                    EMULATED_WAIT,    EMULATED_SUMS_WAIT, EMULATED_SUMS,
	                                    EMULATED_PROXY};
	size_t length;
	Value callee = LLVMIsACallInst(call) ? LLVMGetCalledValue(call) : NULL;
	return callee && FIND(LLVMGetValueName2(callee, &length), names) >= 0;
}

static void watch_function(Watch *w, Value f)
{
	unsigned sites = 0;
	for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
		for (Value v = LLVMGetFirstInstruction(b); v; v = LLVMGetNextInstruction(v)) {
			if (LLVMIsALoadInst(v))
				watch(w, v, w->read, LLVMGetOperand(v, 0), LLVMTypeOf(v));
			else if (LLVMIsAStoreInst(v))
				watch(w, v, w->write, LLVMGetOperand(v, 1),
				      LLVMTypeOf(LLVMGetOperand(v, 0)));
			else if (has_site(v))
				LLVMSetOperand(v, LLVMGetNumArgOperands(v) - 1,
				               LLVMConstInt(w->i32, sites++, 0));
		}
}

void watch_module(LLVMModuleRef module)
{
	LLVMContextRef context = LLVMGetModuleContext(module);
	Watch w = {.b = LLVMCreateBuilderInContext(context),
	           .layout = LLVMGetModuleDataLayout(module),
	           .i32 = LLVMInt32TypeInContext(context),
	           .i64 = LLVMInt64TypeInContext(context)};
	w.type =
	    LLVMFunctionType(LLVMVoidTypeInContext(context), (LLVMTypeRef[]){w.i64, w.i32}, 2, 0);
	w.read = LLVMAddFunction(module, "amos_gpu_read", w.type);
	w.write = LLVMAddFunction(module, "amos_gpu_write", w.type);
	for (Value f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f))
		watch_function(&w, f);
	LLVMDisposeBuilder(w.b);
}
