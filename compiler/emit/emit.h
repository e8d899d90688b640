// emit.h: declares how Plans become objects, through LLVM. JIT and ahead of time make the same
// bytes, but for the name of the model, their one global symbol.
#ifndef EMIT_H
#define EMIT_H
#include "plan.h"
#include "abi.h"

typedef struct Target Target;
// "cpu" (this machine), "cpu:NAME" or "NAME", "opencl", "cuda:sm_90", "hip:gfx942", or a triple;
// `mask` switches host features off ("-avx512f,...").
const Target *target_named(Arena *, const char *name, const char *mask);
// Returns how many targets the names, with commas between them, are, and sets *to: first the CPU,
// if there is one, then devices, the one to prefer last. After the first, "sm_90" is "cuda:sm_90".
int target_list(Arena *, const char *names, const Target *const **to);
const char *target_here(Arena *); // the triple of this system
bool target_runs_here(const Target *);
// Returns the device that runs the kernels, as in amos_model.device; NULL: a CPU.
const char *target_device(const Target *);
// Returns the targets that an object for all CPUs of `t` has code for, from the one with the fewest
// features on; `narrow`: it has products of types narrower than f32. One, unless `t` is a triple of
// a system.
int target_variants(Arena *, const Target *t, bool narrow, const Target *const **);
// Returns the target's directory name among runtimes: x86_64-linux-gnu.
const char *target_system(Arena *, const Target *);
const Machine *target_machine(const Target *); // the class that plans are made for
// Features of the CPU, "avx,avx2", and those that it must not have: "-amx-bf16".
const char *target_needs(Arena *, const Target *);
const char *target_text(Arena *, const Target *); // a description for users
// The same without the features of its CPU that do not decide results; narrow: of products of types
// narrower than f32.
const char *target_kind(Arena *, const Target *, bool narrow);

typedef struct Part {
	const char *bytes; // an ELF object, or code of a device: PTX or SPIR-V
	size_t count;
} Part;

typedef struct Object { // parts that refer to each other: one object when linked
	int parts;
	Part *part;
	size_t count; // bytes of all parts
	int kernels;  // in the plans of a variant
	bool cached;  // not compiled: read from a file
	double seconds;
} Object;

typedef struct Variant { // a program's code for one CPU
	const Target *target;
	const char *identity; // the model and the options; amos_model.identity; NULL: none
	Plan *const *plan;    // by entry
} Variant;

typedef struct EmitOptions {
	int threads;                      // compile threads; 0: one per core
	const char *name;                 // of the model
	const char *note;                 // the choices made, one per line, or NULL
	const char *labels;               // amos_model.labels; NULL: unknown
	int64_t batch;                    // amos_model.batch
	const struct amos_template *file; // amos_model.file, by slots of the plans; NULL: none
	bool weights;     // put the slots' initial bytes into the object (ahead of time)
	const char *lld;  // the linker, for targets that need it
	bool device_code; // emit only the code of the device, without the tables of the model
} EmitOptions;

// Emits one object for all variants of a program of `entries` entries, from the CPU with the fewest
// features to that with the most. All plans have equal tables of slots.
Object *emit(Arena *, int entries, int variants, const Variant *, const EmitOptions *);

// Returns a text that differs whenever the compiled code may, for equal plans and targets: of
// amosc, LLVM and the math library; NULL: they do not say. compiler_id.c.
const char *compiler_id(Arena *);

// ---- describe.c: kernels as profiles name them ----------------------------------------------

// "update W", or "dot NODE"; "update W and 2 more" of `count` kernels in one launch.
const char *kern_name(Arena *, const Plan *, const Kern *, int count);
// "2*64x128x32 nt" (batch, rows, columns, terms; t: an operand is stored transposed), or the space.
const char *kern_shape(Arena *, const Plan *, const Kern *);
typedef struct Roles { // of a graph's values
	bool *forward;
	int *updates;
} Roles;
Roles roles_of(Arena *, const Graph *);
const char *kern_role(const Roles *, const Plan *, const Kern *); // as abi.def lists

// ---- object.c: objects in memory ----------------------------------------------------------
typedef struct Jit Jit;
Jit *jit_load(const Object *);             // links the object in memory
const struct amos_model *jit_model(Jit *); // the one symbol
void jit_free(Jit *);

// ---- elf.c, archive.c, link.c: files -------------------------------------------------------

typedef enum OutputKind { OBJECT_FILE, STATIC_LIBRARY, SHARED_LIBRARY, EXECUTABLE } OutputKind;

typedef struct Output {
	OutputKind kind;
	const char *path;
	const char *symbol; // the one global symbol of an object; NULL: the code of a device
	int texts;          // files that are written with it
	const struct OutputText {
		const char *path, *text;
	} * text;
	const char *runtime; // directory of the runtime for the target
	const char *archive; // its archive
	bool minimal;        // which needs libc alone
	bool images;         // of those that are not minimal: reads images
	const char *lld;     // the linker
} Output;

// Runs a program in `folder` (NULL: here), with these files as its standard output and error.
// Returns its exit status; 126 if it is killed, 127 if it does not start.
int run_program(char *const *words, const char *folder, int output, int errors);
// Joins the parts to one ELF object, in which the model has the name `symbol` and all else is
// local.
Part join_parts(Arena *, const Object *, const char *symbol);
// Writes an ar(5) archive of the object and the members of `runtime`, an archive of `count` bytes.
void write_archive(const Part *object, const char *symbol, const char *runtime, size_t count,
                   FILE *to);
void write_output(const Object *, const Output *); // an object file may be code of a device

#endif
