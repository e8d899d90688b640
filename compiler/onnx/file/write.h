// write.h: declares the pieces of a written file, and what changes in it.
#ifndef WRITE_H
#define WRITE_H
#include "file.h"

enum { // numbers of fields (onnx.proto)
	F_graph_initializer = 5,
	F_node_input = 1,
	F_node_output = 2,
	F_node_attribute = 5,
	F_tensor_dims = 1,
	F_tensor_type = 2,
	F_tensor_float = 4,
	F_tensor_int32 = 5,
	F_tensor_name = 8,
	F_tensor_raw = 9,
	F_tensor_double = 10,
	F_tensor_external = 13,
	F_entry_key = 1,
	F_entry_value = 2
};

// ---- piece_table.c -------------------------------------------------------------------------

// Pieces of the new file in order: of the old file, or new. Adjacent ones are merged.
typedef struct PieceTable {
	Arena *arena;
	VEC(Bytes) list;
	size_t count; // bytes
} PieceTable;

void add_piece(PieceTable *, Bytes);
void add_bytes(PieceTable *, int number, Bytes body); // a field of the protocol buffer
// Begins a field; the pieces added up to end_field with the result are its body. `old`: the field
// that it replaces, whose header stays if the length does not change; NULL: none.
int begin_field(PieceTable *);
void end_field(PieceTable *, int begun, int number, const Field *old);
Bytes text_bytes(const char *);
// Returns n values as elements of `e`; those equal to an element of `old` (or NULL) keep its bytes.
Bytes encode(Arena *, Elem e, const uint8_t *old, const float *x, int64_t n);
// Adds the fields of an initializer with new values; adds a new initializer.
void add_tensor_fields(PieceTable *, const char *where, Bytes old, const TensorProto *,
                       const float *x, int64_t n);
void add_new_tensor(PieceTable *, const char *name, Elem, const Shape *, const float *x);

// ---- patch.c --------------------------------------------------------------------------

typedef struct Extra { // an initializer to be added
	const char *name;
	Elem type;
	Shape shape;
	const float *x;
} Extra;

typedef struct Patch { // new values of a file's initializer
	int slot;
	int64_t n;
	const float *x;
	bool changed;
} Patch;

typedef struct ModelWriter {
	Arena *arena;
	const Model *m;
	const char *path;
	Table *patches; // TensorProto * -> Patch *
	VEC(Extra) extras;
	Table *inputs;         // Operand -> the name of the initializer that it reads instead
	bool keep_training;    // nodes stay in training mode
	Table *names;          // of the extras
	const char *data_name; // of the file of external data, beside the model
	bool external;         // there is such a file
	int graphs;            // main graphs written
	PieceTable data;       // its bytes
	Table *placed;         // bytes of an old file -> their offset in it + 1
} ModelWriter;

typedef struct Operand {
	const NodeProto *node;
	int64_t k;
} Operand;

// Fills the tables of the writer from the slots' values.
void plan_writing(ModelWriter *, const void *(*bytes)(void *, int slot), void *context);

// ---- external.c: external data ---------------------------------------------------------

// Adds the fields of a tensor that lies in another file; `patch`: its new values, or NULL.
void add_outside(ModelWriter *, PieceTable *, Bytes old, const TensorProto *, const Patch *patch);
// Returns a path for the data of the model `path` that no file has: PATH.data, PATH.2.data, ...
const char *free_data_path(Arena *, const char *path);
// Removes such files that `model`, the bytes of the old file at `path`, names, except `kept`.
void remove_old_data(Arena *, const char *path, Bytes model, const char *kept);

#endif
