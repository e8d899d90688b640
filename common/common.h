// common.h: declares what the compiler and the runtime share: errors, input files, output files.
// Invariant: nothing here exits, aborts or jumps. Names begin with amos_, since a compiled trainer
// is linked with other people's code.
#ifndef COMMON_H
#define COMMON_H
#include <stdarg.h>
#include <stdio.h>
#include "freestanding.h"

// ---- error.c: errors as values; see freestanding.h ----------------------------------------

// Returns the status for errno: AMOS_INPUT if the path is invalid, else AMOS_MACHINE.
int amos_errno_status(void);
// Calls amos_fail() with "PATH: cannot DOING: " and the text of errno.
int amos_fail_errno(const char *doing, const char *path);
int amos_no_memory(const char *where); // calls amos_fail()
// Fails by errno if reading the file stopped at an error rather than its end.
int amos_all_read(FILE *, const char *path);

// ---- amx.c: the matrix registers of AMX ------------------------------------------------

// True if the system lets all threads of this process use them from now on. Signal frames are
// larger then: sigaltstack(2) refuses stacks for which they are too large.
bool amos_permit_amx(void);

// ---- spread.c: processors of threads ----------------------------------------------------

int amos_processor(void); // that the calling thread runs on; -1: unknown
// Moves the calling thread to the processor `number` places after `home` among those that it may
// use, cyclically. The system may move it on from there.
void amos_spread(int home, int number);

// ---- locale.c: the locale of the program around a library --------------------------------

// Until amos_locale_host(), the calling thread reads and writes numbers as C does, "0.5", whatever
// locale the program has set. The functions of libraries begin and end so, and give the program its
// locale back for the time of a callback.
void amos_locale_own(void);
void amos_locale_host(void);

// ---- template.c, template_file.c: files of a model with other weights --------------------

struct amos_template; // abi.def
struct amos_piece;
struct amos_view;
struct amos_weights {
	const struct amos_template *file;
	const float *(*values)(void *context, int64_t slot); // of a slot, row major
	void *context;
};
enum amos_file_part { AMOS_FILE_MODEL, AMOS_FILE_DATA };
typedef void amos_put(void *to, const void *bytes, size_t count);
// Fails if the file cannot hold these weights: AMOS_INPUT. `where` begins the message.
int amos_template_check(const struct amos_weights *, const char *where);
// Writes a part of the file, unless `put` is NULL, and returns its bytes. `data`: the name of the
// file of external data; NULL: they become part of the model.
int64_t amos_template_write(const struct amos_weights *, enum amos_file_part, const char *data,
                            amos_put *put, void *to);
// Checks, then writes the file, which appears when it is complete. External data go to PATH.data
// or, if it exists, PATH.2.data and so on; those of the model that the file replaces are removed.
int amos_template_file(const struct amos_weights *, const char *path);
// Writes a number as protobuf's varint: at most 10 bytes. Returns how many.
size_t amos_varint(char *to, uint64_t);
// Writes elements [from, from + n) of a piece of values as the file has them.
void amos_template_elements(const struct amos_piece *, const struct amos_view *,
                            const float *values, int64_t from, int64_t n, char *to);

// ---- half.c: 16-bit floats -------------------------------------------------------------

// Round to nearest, ties to even; bf16 rounds to float first.
uint16_t amos_to_f16(double), amos_to_bf16(double);

// ---- visible.c: escapes names and messages for display --------------------------------

// Writes `text` with every byte that is not part of a printable UTF-8 character as \xHH. Writes at
// most `room` bytes including the terminator; returns the full length without it. If `exact`, a
// backslash before x and two hexadecimal digits is written as \x5c, so different texts stay
// different.
size_t amos_visible(char *to, size_t room, const char *text, bool exact);
void amos_unescape(char *text); // reverses amos_visible(exact) in place
// Prints text that way. `indent` is printed before each line but the first, unless the line begins
// with a blank.
void amos_print(FILE *, const char *text, const char *indent);
// The same for the output of vprintf(3); prints nothing if out of memory.
void amos_print_args(FILE *, const char *fmt, va_list) __attribute__((format(printf, 2, 0)));
// The same for `count` bytes of a stream: line feeds and tabs are kept, and an incomplete character
// at the end is not consumed, unless this is the `last` part. Returns the number of bytes consumed.
size_t amos_print_text(FILE *, const char *text, size_t count, bool last);

// ---- input.c: opens input files -------------------------------------------------------

// Opens a file for reading, with additional open(2) flags. A regular file is recorded as one that
// this process reads. -1: see errno.
int amos_input(const char *path, int flags);
// Returns the path of the k-th recorded file, in the order of opening; NULL: there are no more.
const char *amos_input_path(size_t k);
FILE *amos_input_stream(const char *path); // the same as a stream; NULL: see errno
// The same for `name`, as given in another file, relative to `folder`. Links are followed only to
// files below `folder` or `other` (NULL: none); else -1 and EXDEV.
int amos_input_beneath(const char *folder, const char *other, const char *name);
// Returns the directory of an open file, after following links, to be freed by the caller; NULL:
// see errno.
char *amos_input_folder(int file);
// Returns the path of an output that a command line names: "-" is standard output.
const char *amos_output_name(const char *);
bool amos_is_stream(const char *path); // true for the path of standard output
// Fails if an output cannot have this name: it is a directory, a file that this process reads, the
// file that receives its standard output, or that stream if it is a terminal.
int amos_output_check(const char *path);

// ---- temp_file.c: writes files that appear under their name only when complete --------

// Until it is kept, the file has an unpredictable name next to its target. A device or pipe
// receives the bytes when the file is kept.
struct amos_temp_file {
	FILE *to;
	char *path, *target;   // as given; after following links
	const char *temporary; // where `to` writes
	char *buffer;          // of `to`
	bool device, fresh, cached;
};
enum amos_name {
	AMOS_NAMED, // named by the user: links are followed, a device receives the bytes
	AMOS_OWN,   // a name that the program chose: a link itself is replaced
	AMOS_FRESH, // a name that the program chose: refused if it exists
	AMOS_CACHED // a name that the program chose; private and not synced: it can be made again
};
int amos_file_begin(struct amos_temp_file *, const char *path, enum amos_name);
int amos_file_open(struct amos_temp_file *, const char *path); // AMOS_NAMED
// Flushes, syncs and renames the file, then syncs its directory. On failure the file is dropped.
int amos_file_keep(struct amos_temp_file *);
void amos_file_drop(struct amos_temp_file *);
// Opens the temporary file again, for reading: another program may have replaced it. False: see
// errno.
bool amos_file_reopen(struct amos_temp_file *);
// Removes all temporary files that are neither kept nor dropped. Preserves errno;
// async-signal-safe.
void amos_file_drop_all(void);
// Records the process, the leader of its group, that writes to temporary files: before
// amos_file_drop_all() removes them, it ends it. 0: none.
void amos_file_writer(int process);
// Opens a file that is changed in place, as fopen(3). Links are not followed (ELOOP).
FILE *amos_file_edit(const char *path, const char *mode);
// Sync an open directory, or the one that contains `path`: only then is a rename durable.
bool amos_file_sync(int folder);
bool amos_file_sync_around(const char *path);
// Gives a file a second name, replacing that name. False: the file system has no links.
bool amos_file_link(const char *from, const char *to);
bool amos_file_temporary(const char *name); // true for names of temporary files
// Makes a private directory NAME-XXXXXX, with other letters for the X, in $TMPDIR, or /tmp if that
// is empty or not set. Its path goes to `to`.
int amos_temp_folder(char *to, size_t room, const char *name);
// Removes temporary files of killed processes from a directory.
void amos_file_clean(const char *folder);

#endif
