// abi.h: declares abi.def as C structs, the contract between compiled models and the runtime.
#ifndef AMOS_ABI_H
#define AMOS_ABI_H
#include <stdint.h>

#define AMOS_ABI 18 // raised with every change of abi.def, types.def or features.def

typedef int64_t int64_t_10[10];

// A kernel: runs workers first..end-1 of a launch, a gang of amos_kernel.gang at most. `buf`:
// addresses it reads and writes; `local`: memory private to the calling thread (amos_model.local
// bytes, 64-byte aligned). Workers of a launch are independent: any order, any thread and any gangs
// give the same bits.
typedef void amos_worker(char *const *buf, int64_t first, int64_t end, char *local);

#define STRUCT(name)                          struct name {
#define F(owner, ctype, kind, field, meaning) ctype field;
#define END(name)                                                                                  \
	}                                                                                          \
	;
#include "abi.def"
#undef STRUCT
#undef F
#undef END

// Addresses that a kernel of NVIDIA's GPUs has as its argument, at most: more are in a table.
enum { AMOS_BY_VALUE = 512 };

enum { // amos_operand.block
	AMOS_BLOCK_PARAMS = 1,
	AMOS_BLOCK_STATE,
	AMOS_BLOCK_SCRATCH,
	AMOS_BLOCK_INPUT,
	AMOS_BLOCK_OUTPUT,
	AMOS_BLOCK_CONSTANTS,
	AMOS_BLOCK_GRADIENTS
};

enum { // amos_slot.kind
	AMOS_SLOT_INPUT,
	AMOS_SLOT_PARAMETER,
	AMOS_SLOT_FROZEN,
	AMOS_SLOT_BUFFER,
	AMOS_SLOT_STATE,
	AMOS_SLOT_GRADIENT
};

enum { // amos_view.copy
	AMOS_COPY_SAME,
	AMOS_COPY_TRANSPOSED,
	AMOS_COPY_COMPLEMENT,
	AMOS_COPY_REPEATED
};

enum { // amos_piece.kind
	AMOS_PIECE_BYTES,
	AMOS_PIECE_FIELD,
	AMOS_PIECE_VALUES,
	AMOS_PIECE_VARINTS,
	AMOS_PIECE_NAME
};

enum { AMOS_WHEN_DATA = 1, AMOS_WHEN_TEST }; // amos_piece.when: of test 0, AMOS_WHEN_TEST

extern const struct amos_model amos_model; // the one symbol of a compiled model

#endif
