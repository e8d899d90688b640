// abi.h: abi.def as C. All that a compiled model and the runtime know of each other.
#ifndef AMOS_ABI_H
#define AMOS_ABI_H
#include <stdint.h>

#define AMOS_ABI 6 // raised with every change of abi.def, types.def or features.def

typedef int64_t int64_t_10[10];

#define STRUCT(name)                          struct name {
#define F(owner, ctype, kind, field, meaning) ctype field;
#define END(name)                                                                                  \
	}                                                                                          \
	;
#include "abi.def"
#undef STRUCT
#undef F
#undef END

// A kernel: worker i of a launch. `buf` holds the addresses it reads and writes, `pad` is private
// to the calling thread (amos_model.local bytes, 64-byte aligned). Workers of one launch are
// independent: any order, any thread, the same bits.
typedef void amos_worker(char *const *buf, int64_t i, char *pad);

// What an entry is given. All blocks are 64-byte aligned.
struct amos_run {
	char *params, *state, *scratch;
	char *const *inputs;  // by number
	char *const *outputs; // by number
	// Runs workers 0..n-1 of a kernel and returns when all are done: 0, or a status that stops
	// the entry. `kernel` is the launch's number in amos_entry.kernels.
	int (*launch)(const struct amos_run *, amos_worker *, char *const *buf, int64_t n,
	              int64_t kernel);
	void *own; // the runtime's
};

typedef int amos_program(const struct amos_run *);

extern const struct amos_model amos_model; // the one symbol

#endif
