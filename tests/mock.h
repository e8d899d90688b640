// mock.h: a compiled model written by hand: least squares y = x w + b on rows of 3 by gradient
// descent, and a table of counts for tokens. What the emitter makes, as C.
#ifndef MOCK_H
#define MOCK_H
#include "amos.h"
#include <stdlib.h>

extern const struct amos_model
    mock_line; // inputs x f32[4,3], y f32[4]; parameters w, b; entries train, eval, run
extern const struct amos_model
    mock_words; // inputs tokens i64[2,8], labels i64[2,8] < 50; parameter counts f32[50]

#define CHECK(what, ...)                                                                           \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #what);                 \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, " [%s]\n", amos_error());                                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

// ---- fixtures -------------------------------------------------------------------------

// A folder of the test's own, entered; it is removed at exit.
void enter_folder(const char *test);
void write_file(const char *path, const void *bytes, long count);
char *read_file(const char *path, long *count); // malloc'd, a zero after the last byte
void same_files(const char *, const char *);    // checks that they hold the same bytes
// x.npy f32[n,3] and y.npy f32[n] of a line with weights 2, -1, 0.5 and 0.25.
void write_line_data(int n);
// Options as typed: name, value, ..., NULL.
struct amos_options options_of(const char *first, ...);

#endif
