// fixtures.h: what the tests of the runtime share: a check that ends the test, a folder with data
// of the line (mock.h), options as typed. Takes amos.h, files.h.
#ifndef FIXTURES_H
#define FIXTURES_H
#include "amos.h"
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
// Makes a folder of the test's own, and `arena`, and enters it. First of all.
void enter_folder(void);
void hold_same(const char *, const char *); // checks that two files hold the same bytes
// At most 8192 bytes of elements; `descr` and `shape` ("2, 3") as the format has them.
void write_npy(const char *path, const char *descr, bool fortran, const char *shape, const void *x,
               size_t bytes);
// x.npy f32[n,3] and y.npy f32[n] of a line with weights 2, -1, 0.5 and 0.25.
void write_line_data(int n);
// Options as typed: name, value, ..., NULL.
struct amos_options options_of(const char *first, ...);

#endif
