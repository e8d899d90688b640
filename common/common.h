// common.h: what the compiler and the runtime share: failures as values, files read, files written.
// Invariant: nothing here exits, aborts or jumps. Names begin with amos_, for a compiled trainer
// is linked with other people's code.
#ifndef COMMON_H
#define COMMON_H
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

// ---- error.c: failures as values -----------------------------------------------------

enum { // the exit statuses of the command
	AMOS_DONE = 0,
	AMOS_INPUT = 1,  // data, checkpoint or option at fault
	AMOS_USAGE = 2,  // the command line is not well formed
	AMOS_MACHINE = 3 // disk full, out of memory
};
const char *amos_error(void); // the last failure on this thread, one or a few lines; "" when none
// Sets amos_error() and returns `status`.
int amos_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The status for a call that failed with errno: the path that it was given is at fault, or the
// machine.
int amos_errno_status(void);
// amos_fail() by errno.
int amos_fail_errno(const char *doing, const char *path);
int amos_no_memory(const char *where); // amos_fail()
// After the last line of a file: fails if it was an error, by errno, and not the end.
int amos_all_read(FILE *, const char *path);

// ---- visible.c: names and messages as they are shown ----------------------------------

// Writes `text` with everything that is not a visible character of UTF-8 as \xHH, byte by byte, at
// most `room` bytes with the zero; returns the bytes that it takes without the zero. `exact`: a
// backslash that stands before x and two digits is \x5c, so that no two texts become one.
size_t amos_visible(char *to, size_t room, const char *text, bool exact);
void amos_restore(char *text); // in place, from what it becomes where that is exact
// Prints lines that way, `indent` before each but the first, unless it begins with a blank.
void amos_print(FILE *, const char *text, const char *indent);
// The same for what vprintf(3) would print; nothing where memory is out.
void amos_print_args(FILE *, const char *fmt, va_list) __attribute__((format(printf, 2, 0)));
// The same for text of `count` bytes that comes in parts: line feeds and tabs stay, and a character
// whose bytes are not all there waits, unless this is the `last` part. Returns the bytes it took.
size_t amos_print_text(FILE *, const char *text, size_t count, bool last);

// ---- input.c: files that are read -----------------------------------------------------

// open(2) for reading, with more flags; -1: errno says why. A regular file is noted as one that
// this process reads.
int amos_input(const char *path, int flags);
FILE *amos_input_stream(const char *path); // the same as a stream; NULL: errno says why
// The same for `name`, which another file gave, in `folder`. Links are followed if what they lead
// to lies beneath `folder` or beneath `other` (NULL: none); else -1 and EXDEV.
int amos_input_beneath(const char *folder, const char *other, const char *name);
// The folder where an open file lies, whatever links led to it, in memory of its own; NULL: errno.
char *amos_input_folder(int file);
// Fails if an output cannot have this name: it would replace a file that this process reads or that
// takes its standard output, or a folder.
int amos_output_check(const char *path);

// ---- temp_file.c: files that appear under their name only when they are complete -----------

// Until it is kept, a file has a name of its own beside the target, which nobody can guess. A
// device or pipe gets the bytes when the file is kept.
struct amos_temp_file {
	FILE *to;
	char *path, *target;   // as given; what it leads to
	const char *temporary; // where `to` writes
	bool device, fresh;
};
enum amos_name {
	AMOS_NAMED, // by the user: what a link leads to is replaced, a device gets the bytes
	AMOS_OWN,   // by us: a link is replaced itself
	AMOS_FRESH  // by us, for a new file: nothing is replaced
};
int amos_file_begin(struct amos_temp_file *, const char *path, enum amos_name);
int amos_file_open(struct amos_temp_file *, const char *path); // AMOS_NAMED
int amos_file_keep(
    struct amos_temp_file *); // flush, sync, rename, sync the folder; on failure dropped
void amos_file_drop(struct amos_temp_file *);
// Removes all that are neither kept nor dropped; keeps errno; may run in a signal handler.
void amos_file_drop_all(void);
// fopen(3) for a file that is changed in place; a link is not followed (ELOOP).
FILE *amos_file_edit(const char *path, const char *mode);
// A rename is on the disk only when its folder is: syncs an open folder, the one that holds `path`.
bool amos_file_sync(int folder);
bool amos_file_sync_around(const char *path);
// Gives a file a second name, which is replaced. False: the file system has no links.
bool amos_file_link(const char *from, const char *to);
bool amos_file_temporary(const char *name); // True for names that temporary files have.
// Removes from a folder the temporary files of processes that were killed.
void amos_file_clean(const char *folder);

#endif
