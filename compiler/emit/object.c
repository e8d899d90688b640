// object.c: loads objects (JIT), writes object files.
#include "emit.h"
#include <errno.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
static void no_error(Jit *j, LLVMErrorRef error, const char *what)
{
	if (!error)
		return;
	note_cause(j, error);
	if (strstr(j->cause, strerror(ENOMEM)))
		no_place();
	bug("%s: %s", what, j->cause);
}

Jit *jit_load(const Object *object)
{
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
	for (int k = 0; k < object->parts; k++) {
		LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
		    object->part[k].bytes, object->part[k].count, "amos");
		no_error(j, LLVMOrcLLJITAddObjectFile(j->jit, main, buffer), "object");
	}
	return j;
}

const struct amos_model *jit_model(Jit *j)
{
	LLVMOrcExecutorAddress address = 0;
	errno = 0;
	no_error(j, LLVMOrcLLJITLookup(j->jit, &address, "amos_model"), "amos_model");
	if (errno == ENOMEM || errno == EACCES) // LLVM does not check that code became executable
		no_place();
	return (const struct amos_model *)(uintptr_t)address;
}

void jit_free(Jit *j)
{
	no_error(j, LLVMOrcDisposeLLJIT(j->jit), "jit");
	free(j);
}

// ---- on disk --------------------------------------------------------------------------

static int write_part(const Part *part, struct amos_temp_file *file, const char *path)
{
	int status = amos_file_open(file, path);
	if (status)
		return status;
	fwrite(part->bytes, 1, part->count, file->to);
	return fflush(file->to) || ferror(file->to) ? amos_fail_errno("write", path) : AMOS_DONE;
}

// Returns a file as an argument of cc, for which a leading @ or - has another meaning.
static char *file_word(Arena *arena, const struct amos_temp_file *file)
{
	return format(arena, "%s%s", *file->temporary == '/' ? "" : "./", file->temporary);
}

// Links the parts of an object to the file `path` by cc, with more arguments; `what` names the
// step.
static void link_parts(const Object *object, int n, const char *const *more, const char *path,
                       const char *what)
{
	Arena *arena = arena_new();
	struct amos_temp_file *part = NEWS(arena, struct amos_temp_file, object->parts), out;
	VEC(char *) argument = {0};
	int failed = amos_file_open(&out, path), written = 0, status;
	char *cc = copy_string(arena, getenv("CC") ? getenv("CC") : "cc"), *rest;
	for (cc = strtok_r(cc, " ", &rest); cc; cc = strtok_r(NULL, " ", &rest))
		PUSH(arena, argument, cc);
	for (; written < object->parts && !failed; written++)
		failed = write_part(&object->part[written], &part[written], path);
	PUSH(arena, argument, "-o");
	for (int k = 0; k <= written && !failed; k++)
		PUSH(arena, argument, file_word(arena, k ? &part[k - 1] : &out));
	for (int k = 0; k < n; k++)
		PUSH(arena, argument, copy_string(arena, more[k]));
	PUSH(arena, argument, NULL);
	pid_t child = failed ? -1 : fork();
	if (child == 0) {
		execvp(argument.at[0], argument.at);
		_exit(127);
	}
	bool done = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	            WEXITSTATUS(status) == 0;
	for (int k = 0; k < written; k++)
		amos_file_drop(&part[k]);
	arena_free(arena);
	if (done)
		out.to = freopen(out.temporary, "rb", out.to); // cc may have replaced it
	if (!done || !out.to) {
		amos_file_drop(&out);
		need_done(failed);
		fail_status(STATUS_MACHINE, path,
		            "%s failed" HELP "set $CC to a C compiler for the target", what);
	}
	need_done(amos_file_keep(&out));
}

void write_object(const Object *object, const char *path)
{
	static const char *const more[] = {"-r", "-nostdlib"};
	struct amos_temp_file file;
	if (object->parts > 1) {
		link_parts(object, COUNT(more), more, path, "joining the parts of the object");
		return;
	}
	int status = write_part(&object->part[0], &file, path);
	if (status)
		amos_file_drop(&file);
	need_done(status ? status : amos_file_keep(&file));
}

void write_executable(Arena *arena, const Object *object, const char *path,
                      const char *runtime_archive)
{
	// Next to lib.a are lib_main.a, where a program starts, and lib.link, the libraries it
	// needs.
	int stem = (int)strlen(runtime_archive) - (ends_with(runtime_archive, ".a") ? 2 : 0);
	const char *more[] = {format(arena, "%.*s_main.a", stem, runtime_archive), runtime_archive,
	                      format(arena, "@%.*s.link", stem, runtime_archive)};
	link_parts(object, COUNT(more), more, path, "linking the program");
}
