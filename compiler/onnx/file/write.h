// write.h: declares the pieces of a written file, and what changes in it.
#ifndef WRITE_H
#define WRITE_H
#include "file.h"
#include "abi.h"

enum { // numbers of fields (onnx.proto)
	F_graph_initializer = 5,
	F_node_input = 1,
	F_node_output = 2,
	F_node_attribute = 5,
	F_attribute_floats = 7,
	F_tensor_dims = 1,
	F_tensor_type = 2,
	F_tensor_float = 4,
	F_tensor_int32 = 5,
	F_tensor_name = 8,
	F_tensor_raw = 9,
	F_tensor_double = 10,
	F_tensor_external = 13,
	F_tensor_location = 14,
	F_entry_key = 1,
	F_entry_value = 2
};

// ---- piece_table.c: pieces of a file ---------------------------------------------------------

// Pieces of a file in order: bytes of the old file or new ones, which are merged if they are
// adjacent, and values. Those added while `when` is not 0 have that amos_piece.when.
typedef struct PieceTable {
	Arena *arena;
	VEC(struct amos_piece) list;
	size_t count; // bytes, if no piece but bytes and values was added
	int64_t when;
	int apart; // pieces up to the end of the last field of varying length
} PieceTable;

void add_piece(PieceTable *, Bytes);
void add_zeros(PieceTable *, size_t count);
void add_name(PieceTable *);                          // of the file of external data
void add_bytes(PieceTable *, int number, Bytes body); // a field of the protocol buffer
// Begins a field; the pieces added up to end_field with the result are its body. `old`: the field
// that it replaces, whose header stays if the length does not change; NULL: none.
int begin_field(PieceTable *);
void end_field(PieceTable *, int begun, int number, const Field *old);
Bytes text_bytes(const char *);

// ---- patch.c --------------------------------------------------------------------------

typedef struct Extra { // an initializer that is added if a test holds
	const char *name;
	Elem type;
	Shape shape;
	int view;
	int64_t when;
} Extra;

typedef struct Patch { // the values of a file's initializer
	int slot, view;
	int64_t n;
} Patch;

typedef struct Renamed { // another initializer that a node reads if a test holds
	const char *name;
	int64_t when;
} Renamed;

typedef struct ModelWriter {
	Arena *arena;
	const Model *m;
	VEC(struct amos_view) views;
	VEC(struct amos_test) tests;
	Table *patches; // TensorProto * or AttributeProto * -> Patch *
	VEC(Extra) extras;
	Table *inputs;      // Operand -> Renamed *
	bool keep_training; // nodes stay in training mode
	Table *names;       // of the extras
	int graphs;         // main graphs written
	PieceTable data;    // the file of external data
	Table *placed;      // bytes of an old file, and their patch -> their offset in it + 1
} ModelWriter;

typedef struct Operand {
	const NodeProto *node;
	int64_t k;
} Operand;

// Fills the tables of the writer from the graph's slots.
void plan_writing(ModelWriter *);

// ---- piece_table.c: the values of initializers -------------------------------------------

// Adds the values of a view, in the file of type `e`; `old`: the elements that are there, or NULL.
void add_values(ModelWriter *, PieceTable *, int view, Elem e, int64_t n, const void *old);
// Adds the fields of an initializer with these values.
void add_tensor_fields(ModelWriter *, PieceTable *, Bytes old, const TensorProto *, const Patch *);
void add_new_tensor(ModelWriter *, PieceTable *, const Extra *);
// Adds the fields of an attribute whose floats are these values.
void add_attribute_fields(ModelWriter *, PieceTable *, Bytes old, const AttributeProto *,
                          const Patch *);

// ---- external.c: external data ---------------------------------------------------------

// Adds the fields of a tensor that lies in another file; `patch`: its values, or NULL.
void add_outside(ModelWriter *, PieceTable *, Bytes old, const TensorProto *, const Patch *patch);

#endif
