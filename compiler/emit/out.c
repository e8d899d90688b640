// out.c: objects in memory and on disk.
// Takes an Object. Gives the one symbol of it in this process, or a file made aside and renamed.
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
};

static void no_error(LLVMErrorRef error, const char *what)
{
	if (error)
		bug("%s: %s", what, LLVMGetErrorMessage(error));
}

Jit *jit_load(const Object *object)
{
	Jit *j = calloc(1, sizeof *j);
	if (!j)
		fail_status(STATUS_MACHINE, "memory", "out of memory");
	no_error(LLVMOrcCreateLLJIT(&j->jit, NULL), "jit");
	LLVMOrcJITDylibRef main = LLVMOrcLLJITGetMainJITDylib(j->jit);
	LLVMOrcDefinitionGeneratorRef process;
	no_error(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
	             &process, LLVMOrcLLJITGetGlobalPrefix(j->jit), NULL, NULL),
	         "symbols of this process");
	LLVMOrcJITDylibAddGenerator(main, process);
	for (int k = 0; k < object->parts; k++) {
		LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(
		    object->part[k].bytes, object->part[k].count, "amos");
		no_error(LLVMOrcLLJITAddObjectFile(j->jit, main, buffer), "object");
	}
	return j;
}

const struct amos_model *jit_model(const Jit *j)
{
	LLVMOrcExecutorAddress address = 0;
	no_error(LLVMOrcLLJITLookup(j->jit, &address, "amos_model"), "amos_model");
	return (const struct amos_model *)(uintptr_t)address;
}

void jit_free(Jit *j)
{
	no_error(LLVMOrcDisposeLLJIT(j->jit), "jit");
	free(j);
}

// ---- on disk --------------------------------------------------------------------------

static void write_part(const Part *part, const char *aside, const char *path)
{
	FILE *f = fopen(aside, "wb");
	size_t n = f ? fwrite(part->bytes, 1, part->count, f) : 0;
	if (!f || fclose(f) || n != part->count) {
		aside_drop_all();
		fail_write(path);
	}
}

// Runs a program found on PATH; false when it fails or is not there.
static bool run_program(char *const *argument)
{
	pid_t child = fork();
	if (child == 0) {
		execvp(argument[0], argument);
		_exit(127);
	}
	int status;
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

typedef VEC(const char *) Files; // the parts of an object, aside

static Files write_parts(Arena *arena, const Object *object, const char *path)
{
	Files files = {0};
	for (int k = 0; k < object->parts; k++) {
		PUSH(arena, files, aside_name(arena, format(arena, "%s.%d", path, k)));
		write_part(&object->part[k], files.at[k], path);
	}
	return files;
}

// Links the parts by cc with more arguments, to `path`, and removes them.
static void link_parts(Arena *arena, const Files *files, int n, const char *const *more,
                       const char *path, const char *what)
{
	VEC(char *) argument = {0};
	const char *aside = aside_name(arena, path),
	           *cc = getenv("CC") ? getenv("CC") : "cc", *const first[] = {cc, "-o", aside};
	for (int k = 0; k < COUNT(first); k++)
		PUSH(arena, argument, copy_string(arena, first[k]));
	for (int k = 0; k < files->count; k++)
		PUSH(arena, argument, copy_string(arena, files->at[k]));
	for (int k = 0; k < n; k++)
		PUSH(arena, argument, copy_string(arena, more[k]));
	PUSH(arena, argument, NULL);
	bool done = run_program(argument.at);
	if (done)
		aside_keep(aside, path);
	aside_drop_all();
	if (!done)
		fail_status(STATUS_MACHINE, path,
		            "%s failed: is a C compiler installed as `cc` (or $CC)?", what);
}

// Of one part there is nothing to join: an object, or PTX.
static void write_one(Arena *arena, const Part *part, const char *path)
{
	const char *aside = aside_name(arena, path);
	write_part(part, aside, path);
	aside_keep(aside, path);
}

void write_object(const Object *object, const char *path)
{
	static const char *const more[] = {"-r", "-nostdlib"};
	Arena *arena = arena_new();
	if (object->parts == 1) {
		write_one(arena, &object->part[0], path);
	} else {
		Files files = write_parts(arena, object, path);
		link_parts(arena, &files, COUNT(more), more, path,
		           "joining the parts of the object");
	}
	arena_free(arena);
}

void write_executable(Arena *arena, const Object *object, const char *path,
                      const char *runtime_archive)
{
	Files files = write_parts(arena, object, path);
	// Beside lib.a lies lib.link, the libraries it needs.
	int stem = (int)strlen(runtime_archive) - (ends_with(runtime_archive, ".a") ? 2 : 0);
	const char *more[] = {runtime_archive, format(arena, "@%.*s.link", stem, runtime_archive)};
	link_parts(arena, &files, COUNT(more), more, path, "linking the program");
}
