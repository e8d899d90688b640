// object.c: loads objects in memory (JIT).
#include "emit.h"
#include <errno.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <stdlib.h>
#include <string.h>

// ---- in memory ------------------------------------------------------------------------

struct Jit {
	LLVMOrcLLJITRef jit;
	char cause[256]; // the first failure that the session reported
};

static void note_cause(void *jit, LLVMErrorRef error)
{
	Jit *j = jit;
	char *message = LLVMGetErrorMessage(error);
	if (!*j->cause)
		snprintf(j->cause, sizeof j->cause, "%s", message);
	LLVMDisposeErrorMessage(message);
}

static _Noreturn void no_place(void)
{
	fail_status(STATUS_MACHINE, "memory", "out of memory: cannot load the compiled code");
}

// LLVM reports system errors by text alone; all others are bugs.
static void no_cause(const Jit *j, const char *what)
{
	if (!*j->cause)
		return;
	if (strstr(j->cause, strerror(ENOMEM)))
		no_place();
	bug("%s: %s", what, j->cause);
}

static void no_error(Jit *j, LLVMErrorRef error, const char *what)
{
	if (!error)
		return;
	note_cause(j, error);
	no_cause(j, what);
}

// Returns the parts as one object. The linker gives each object memory of its own, and code reaches
// no further than 2 GiB.
static LLVMMemoryBufferRef join(const Object *object)
{
	Catch catch;
	LLVMMemoryBufferRef volatile buffer = NULL;
	Arena *arena = arena_new();
	if (!TRY(catch)) {
		Part all = join_parts(arena, object, "amos_model");
		buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(all.bytes, all.count, "amos");
		catch_end(&catch);
	}
	arena_free(arena);
	if (catch.status)
		fail_again(&catch);
	return buffer;
}

Jit *jit_load(const Object *object)
{
	LLVMMemoryBufferRef buffer = join(object);
	Jit *j = calloc(1, sizeof *j);
	if (!j)
		fail_status(STATUS_MACHINE, "memory", "out of memory");
	no_error(j, LLVMOrcCreateLLJIT(&j->jit, NULL), "jit");
	LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(j->jit), note_cause,
	                                        j);
	LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(j->jit);
	LLVMOrcDefinitionGeneratorRef process;
	no_error(j,
	         LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
	             &process, LLVMOrcLLJITGetGlobalPrefix(j->jit), NULL, NULL),
	         "symbols of this process");
	LLVMOrcJITDylibAddGenerator(main, process);
	no_error(j, LLVMOrcLLJITAddObjectFile(j->jit, main, buffer), "object");
	return j;
}

const struct amos_model *jit_model(Jit *j)
{
	LLVMOrcExecutorAddress address = 0;
	errno = 0;
	no_error(j, LLVMOrcLLJITLookup(j->jit, &address, "amos_model"), "amos_model");
	no_cause(j, "amos_model"); // LLVM may report a failed link to the session alone
	if (errno == ENOMEM || errno == EACCES) // LLVM does not check that code became executable
		no_place();
	return (const struct amos_model *)(uintptr_t)address;
}

void jit_free(Jit *j)
{
	no_error(j, LLVMOrcDisposeLLJIT(j->jit), "jit");
	free(j);
}
