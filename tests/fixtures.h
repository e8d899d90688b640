// fixtures.h: declares what the runtime's tests share: checks, data files, options.
#ifndef FIXTURES_H
#define FIXTURES_H
#include "runtime.h"
#include "files.h"
#include "ir.h"
#include "mock.h"
#include <stdlib.h>

#define CHECK(what, ...)                                                                           \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #what);                 \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, " [%s]\n", amos_error());                                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

extern Arena *arena; // freed at exit
// Makes and enters a private directory, and makes `arena`. Call it first.
void enter_folder(void);
void hold_same(const char *, const char *); // checks that two files contain the same bytes
// Writes an .npy file with at most 8192 bytes of elements; `descr` and `shape` ("2, 3") in the
// format's syntax.
void write_npy(const char *path, const char *descr, bool fortran, const char *shape, const void *x,
               size_t bytes);
// Writes x.npy f32[n,3] and y.npy f32[n], a line with weights 2, -1, 0.5 and 0.25.
void write_line_data(int n);
// Returns options from name, value, ..., NULL, as typed.
struct amos_options options_of(const char *first, ...);

#endif
