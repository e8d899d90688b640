// rt.h: what the runtime's files share and nobody else sees.
#ifndef RT_H
#define RT_H
#include "amos.h"
#include <stdbool.h>
#include <stddef.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- status.c: errors, files written aside --------------------------------------------

// Sets amos_error() and answers `status`.
int amos_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int amos_fail_errno(const char *doing,
                    const char *path); // AMOS_MACHINE, or AMOS_INPUT where the path is at fault

enum { // types.def
#define T(name, ctype, bytes, cls, onnx) AMOS_##name,
#include "types.def"
#undef T
	AMOS_TYPES
};
struct amos_type {
	const char *name;
	int bytes;
	char class; // f i u b
};
extern const struct amos_type amos_types[AMOS_TYPES];

// A file that appears under its name only when it is whole and on the disk.
struct amos_file {
	FILE *to;
	char *path, *aside;
};
int amos_file_open(struct amos_file *, const char *path);
int amos_file_keep(struct amos_file *); // flush, sync, rename, sync the folder; on failure dropped
void amos_file_drop(struct amos_file *);

// ---- convert.c: elements of one type as another ---------------------------------------

// n elements, divided by `divide` on the way to floats. -1, or the first that does not fit: out of
// the type's range, a fraction that should be an integer, NaN. `to` is then partly written.
int64_t amos_convert(void *to, int to_type, const void *from, int from_type, int64_t n,
                     double divide);
// The first of n integers that is neither in [0, limit) nor `ignore` (0: none); -1.
int64_t amos_outside(const void *at, int type, int64_t n, int64_t limit, int64_t ignore);
double amos_number(const void *at, int type, int64_t i); // element i

uint64_t amos_mix(uint64_t);                                 // splitmix64's increment and finalizer
uint64_t amos_random(uint64_t seed, uint64_t a, uint64_t b); // a counter function

#endif
