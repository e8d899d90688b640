// link.c: writes what amosc build makes: objects, libraries, executables and headers.
// The linker is lld; $CC takes its place if the user sets it. An object and a static library need
// none.
// Input: the directory of a runtime: its archives, the objects that begin and end a program, and
// the files `program`, `program.minimal` and `library`, lld's arguments, and `program.cc`, those
// of $CC. Output: files that all appear, or none does.
#include "emit.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Linker {
	Arena *arena;
	const Output *output;
	struct amos_temp_file file, object; // object: the linker's input
	struct amos_temp_file *texts;
	VEC(char *) words;
} Linker;

static void drop(void *linker)
{
	Linker *l = linker;
	amos_file_drop(&l->file);
	for (int k = 0; k < l->output->texts; k++)
		amos_file_drop(&l->texts[k]);
	amos_file_drop(&l->object);
}

static void write_bytes(struct amos_temp_file *file, const void *bytes, size_t count)
{
	fwrite(bytes, 1, count, file->to);
	if (fflush(file->to) || ferror(file->to))
		need_done(amos_fail_errno("write", file->path));
}

// ---- command lines --------------------------------------------------------------------

static void add(Linker *l, const char *word)
{
	PUSH(l->arena, l->words, (char *)word);
}

static void add_words(Linker *l, const char *text)
{
	char *words = copy_string(l->arena, text), *rest;
	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		add(l, word);
}

// Adds a file by its absolute path, since the linker runs in the runtime's directory.
static void add_file(Linker *l, const struct amos_temp_file *file)
{
	char *path = realpath(file->temporary, NULL);
	if (!path)
		need_done(amos_fail_errno("read", file->path));
	add(l, copy_string(l->arena, path));
	free(path);
}

// Puts the function that refuses images in the place of the one that reads them, whose libraries
// are then left out.
#define NO_IMAGES "--defsym=amos_bitmap_read=amos_bitmap_refuse"

// The files `program` and `library` have all that depends on the system.
static void by_lld(Linker *l)
{
	bool executable = l->output->kind == EXECUTABLE;
	const char *name = strrchr(l->output->path, '/');
	add(l, l->output->lld);
	add(l, !executable ? "@library" : l->output->minimal ? "@program.minimal" : "@program");
	if (!executable)
		add(l, format(l->arena, "-soname=%s", name ? name + 1 : l->output->path));
	else if (!l->output->minimal && !l->output->images)
		add(l, NO_IMAGES);
}

static void by_cc(Linker *l, const char *cc)
{
	add_words(l, cc);
	if (l->output->kind == EXECUTABLE) {
		add(l, "libamos_main.a");
		add(l, l->output->archive);
	} else {
		add_words(l, "-shared -Wl,-Bsymbolic,--version-script=library.map,--whole-archive");
		add(l, l->output->archive);
		add(l, "-Wl,--no-whole-archive");
	}
	if (!l->output->minimal && !l->output->images)
		add(l, "-Wl," NO_IMAGES);
	add_words(l, l->output->minimal ? "-lm -pthread" : "@program.cc -lm -pthread");
}

// ---- linking --------------------------------------------------------------------------

// Begins a program. An interrupt that comes before it is recorded waits until it is.
static pid_t start_program(char *const *words, const char *folder, int output, int errors)
{
	sigset_t every, before;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	pid_t child = fork();
	if (child == 0) {
		setpgid(0, 0);
		sigaddset(&before, SIGXFSZ); // a file that is too large is an error, not a crash
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		if ((!folder || !chdir(folder)) && dup2(output, STDOUT_FILENO) >= 0 &&
		    dup2(errors, STDERR_FILENO) >= 0)
			execvp(words[0], words);
		_exit(127);
	}
	if (child > 0) {
		setpgid(child, child); // whichever of the two comes first
		amos_file_writer(child);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return child;
}

int run_program(char *const *words, const char *folder, int output, int errors)
{
	int status = 0;
	siginfo_t ended;
	pid_t child = start_program(words, folder, output, errors);
	if (child < 0)
		return 127;
	while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	amos_file_writer(0); // while its number is not another's
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}

static void print_errors(int file)
{
	char some[4096];
	ssize_t n;
	lseek(file, 0, SEEK_SET);
	while ((n = read(file, some, sizeof some)) > 0)
		fwrite(some, 1, (size_t)n, stderr);
}

// Fails if the disk has no room for all that may be linked: linkers report that as a crash.
static void check_room(const Linker *l)
{
	const char *archive = format(l->arena, "%s/%s", l->output->runtime, l->output->archive);
	struct stat parts[2];
	if (stat(archive, &parts[0]) || fstat(fileno(l->object.to), &parts[1]))
		return;
	off_t room = parts[0].st_size + parts[1].st_size;
	errno = posix_fallocate(fileno(l->object.to), 0, room);
	if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)
		need_done(amos_fail_errno("write", l->output->path));
}

static void run_linker(Linker *l)
{
	int errors = memfd_create("errors", MFD_CLOEXEC);
	if (errors < 0)
		need_done(amos_fail_errno("link", l->output->path));
	add(l, NULL);
	int status = run_program(l->words.at, l->output->runtime, STDOUT_FILENO, errors);
	if (status)
		check_room(l);
	print_errors(errors);
	close(errors);
	if (status == 127)
		fail_status(
		    STATUS_MACHINE, l->output->path, "%s cannot be run" HELP "%s", l->words.at[0],
		    getenv("CC") ? "set $CC to a C compiler for the target, or unset it"
		                 : "install lld 19, or set $CC to a C compiler for the target");
	if (status)
		fail_status(
		    STATUS_MACHINE, l->output->path, "%s failed to link it%s", l->words.at[0],
		    getenv("CC") ? HELP "set $CC to a C compiler for the target, or unset it" : "");
	if (!amos_file_reopen(&l->file))
		need_done(amos_fail_errno("read", l->output->path));
}

static void link_parts(Linker *l, const Part *object)
{
	const char *cc = getenv("CC");
	need_done(amos_file_open(&l->object, l->output->path));
	write_bytes(&l->object, object->bytes, object->count);
	if (cc && *cc)
		by_cc(l, cc);
	else
		by_lld(l);
	add_file(l, &l->object);
	add(l, "-o");
	add_file(l, &l->file);
	run_linker(l);
	amos_file_drop(&l->object);
}

// Writes the object, then the members of the runtime's archive.
static void archive(Linker *l, const Part *object)
{
	const char *path = format(l->arena, "%s/%s", l->output->runtime, l->output->archive);
	struct stat about;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &about))
		need_done(amos_fail_errno("read", path));
	size_t count = (size_t)about.st_size;
	void *bytes = mmap(NULL, count, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	if (bytes == MAP_FAILED)
		need_done(amos_fail_errno("read", path));
	write_archive(object, l->output->symbol, bytes, count, l->file.to);
	munmap(bytes, count);
	write_bytes(&l->file, "", 0);
}

// ---- outputs --------------------------------------------------------------------------

static void write_files(Linker *l, const Object *object)
{
	const Output *o = l->output;
	bool elf = !memcmp(object->part[0].bytes, ELFMAG, SELFMAG);
	Part part = elf && o->symbol ? join_parts(l->arena, object, o->symbol) : object->part[0];
	need_done(amos_file_open(&l->file, o->path));
	if (o->kind == OBJECT_FILE)
		write_bytes(&l->file, part.bytes, part.count);
	else if (o->kind == STATIC_LIBRARY)
		archive(l, &part);
	else
		link_parts(l, &part);
	for (int k = 0; k < o->texts; k++) {
		need_done(amos_file_open(&l->texts[k], o->text[k].path));
		write_bytes(&l->texts[k], o->text[k].text, strlen(o->text[k].text));
	}
	for (int k = 0; k < o->texts; k++)
		need_done(amos_file_keep(&l->texts[k]));
	need_done(amos_file_keep(&l->file));
}

void write_output(const Object *object, const Output *output)
{
	Catch catch;
	Arena *arena = arena_new();
	Linker *l = NEW(arena, Linker);
	*l = (Linker){.arena = arena,
	              .output = output,
	              .texts = NEWS(arena, struct amos_temp_file, output->texts)};
	at_end(arena, drop, l);
	if (!TRY(catch)) {
		write_files(l, object);
		catch_end(&catch);
	}
	arena_free(arena);
	if (catch.status)
		fail_again(&catch);
}
