// freestanding.h: declares what of common the core of the runtime has, which needs no libc.
#ifndef FREESTANDING_H
#define FREESTANDING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "amos.h"
#if __STDC_HOSTED__
#include <string.h>
#else // the three functions that compilers call, too
void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
#endif
#define AMOS_NAN ((double)__builtin_nanf(""))

// ---- error.c: errors as values; in the core alone, freestanding.c ----------------------

// Separates the text of an error from how to fix it.
#define AMOS_HELP "\nhelp: "
// A noun after its number: 1 sample, 2 samples; or its ending.
#define PLURAL(n, one, many) ((n) == 1 ? (one) : (many))
// The statuses are those of amos.h, and the exit statuses of the command.

// Sets the text that amos_error() returns, and returns `status`. The core formats with %s,
// %.*s, %d, %lld and %g alone.
int amos_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- name.c: finds a name in a table -----------------------------------------------------

bool amos_same(const char *, const char *);
// Returns the index of the first of `count` items, each `size` bytes and beginning with its name;
// -1: none.
int amos_index(const char *name, const void *items, int64_t count, size_t size);

// ---- from_half.c: 16-bit floats ----------------------------------------------------------

double amos_from_f16(uint16_t), amos_from_bf16(uint16_t);

#endif
