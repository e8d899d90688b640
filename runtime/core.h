// core.h: declares the core of the runtime: instances of models in memory, and their calls.
// It needs no libc but memcpy(), memmove() and memset(), so it also runs without a system: its
// files make amos_core.c (core.cmake). cpu.c adds memory and threads of a process.
#ifndef AMOS_CORE_H
#define AMOS_CORE_H
#include "abi.h"
#include "freestanding.h"

// ---- instance.c: an instance in memory -----------------------------------------------------

enum {
	AMOS_LINE = 64,      // bytes to which buffers are aligned
	AMOS_THREADS = 1024, // maximum number of threads
	AMOS_SMALL = 128,    // bytes of the largest output that each batch has of its own
};

struct amos_memory { // bytes
	int64_t params, state, scratch, pads, batch, total;
};
struct amos_span { // workers of a launch that one thread ran
	const struct amos_kernel *kernel;
	int64_t thread, begin, end; // nanoseconds of the clock of amos_now()
};
struct amos_spans { // a list with room for some; others are not recorded
	int64_t room, count;
	struct amos_span *at;
};
struct amos_block { // memory that is given out from its start; at NULL: only counted
	char *at;
	int64_t bytes; // given out
};
struct amos_apart {               // what an instance on a device has outside of its own block
	struct amos_block values; // parameters, state, large outputs, gradients
	struct amos_block scratch, batch; // and local memory; the sets of buffers
};
enum amos_way { AMOS_TO_HOST, AMOS_FROM_HOST, AMOS_WITHIN }; // of a copy of a device's memory
struct amos_pool;
struct amos_run;
struct amos { // an open model, to be read only
	const struct amos_model *model;
	struct amos_memory memory;
	int64_t threads;            // in use; 1 if more would not help
	int64_t threads_missing;    // could not be started
	char *device_missing;       // why a CPU runs it, though it has code for devices; else NULL
	const char *graphs_missing; // what its device lacks to start a run at once; else NULL
	// Set by the caller: nanoseconds[number of a launch in its entry], to which each following
	// launch adds its time; NULL: none.
	int64_t *nanoseconds;
	// Set by the caller: where each following launch is recorded; NULL: nowhere.
	struct amos_spans *spans;

	// private
	int64_t bytes; // of the mapping that holds this and all else; 0: the memory is the caller's
	char *params, *state, *gradients, *scratch, *local;
	// The buffers of a batch are its inputs and its small outputs. There are as many sets of
	// them as batches may run at once, each of batch_bytes bytes. A device has copies of them,
	// that launches use: device_batch; NULL: launches use those of the host.
	char *batch, *device_batch;
	int64_t batch_bytes, batches, in_use; // in_use: number of the set of the next calls
	int64_t ninputs;
	char **inputs;                        // indexed by number; of the first set
	void **set_inputs;                    // by amos_set_input(); NULL: the own one
	char **outputs;                       // indexed by entry and number; of the first set
	char **given_inputs, **given_outputs; // of the current call
	int64_t *first_out;                   // indexed by entry: its first index in `outputs`
	const struct amos_entry *entry;       // the entry that is running
	struct amos_pool *pool;
	struct amos_device *device;    // that has the memory and runs launches; NULL: the CPU
	const char *constants;         // the model's, or the device's copy
	int64_t samples;               // of amos_set_batch(); 0: the largest batch
	int64_t more;                  // batches of an update after its first: amos.left at first
	const struct amos_entry *last; // entry whose metrics amos_metric() returns; NULL: none
	int64_t first[AMOS_KINDS + 1]; // by kind: its first array in `slots`
	int64_t *slots;                // by kind and number; -1: a gradient that there is not
	int (*launch)(const struct amos_run *, const struct amos_kernel *, char *const *buf);
	int (*copy)(const struct amos_run *, enum amos_way, void *to, const void *from,
	            int64_t bytes); // as amos_run.copy
	// Start a run, and wait for that of the set in use; NULL: launches are done when they
	// return.
	int (*begin)(const struct amos_run *, const struct amos_entry *);
	int (*end)(struct amos *);
	// Runs launches on the caller's threads; NULL: there are none.
	void (*parallel_for)(void *context, int64_t n,
	                     void (*body)(void *task, int64_t i, int64_t thread), void *task);
	void *context; // of parallel_for()
};

// Copies a setup (NULL: zeros) to *to. AMOS_INPUT: it is invalid; the message names `function`.
int amos_read_setup(const char *function, const struct amos_setup *, struct amos_setup *to);
// Sets *m to an instance without memory: of the variant of the model for this CPU, with
// setup->threads, or one if more would not help. AMOS_INPUT: the model is for another CPU or
// version of the runtime.
int amos_prepare(struct amos *m, const struct amos_model *, const struct amos_setup *);
int64_t amos_round_up(int64_t n, int64_t to);
// Assigns the addresses of all that an instance has in `memory`, which begins with `m` itself and
// its tables, and goes on with the large blocks, aligned to `align`, unless these lie apart. Sets
// the bytes of these, and returns those of `memory`. memory NULL: only counts.
int64_t amos_lay_out(struct amos *m, char *memory, struct amos_apart *, int64_t align);
// Fills in an instance that is laid out in zeros: lists, first weights and state, seed.
void amos_fill(struct amos *m, const struct amos_setup *);
void amos_list_slots(struct amos *); // api.c: lists the slots by kind in amos.slots

// features.c: returns the best variant of a model for this CPU. In the core alone: the model
// itself.
const struct amos_model *amos_best(const struct amos_model *);
// Fails if this CPU lacks a feature that the code uses.
int amos_check_cpu(const struct amos_model *);

// Runs workers first..end-1, in gangs of those that gain from it.
void amos_run_workers(const struct amos_kernel *, char *const *buf, int64_t first, int64_t end,
                      char *local);
bool amos_is_small(const struct amos_kernel *); // true if one thread runs a launch fastest
// Runs a launch on the caller's threads.
int amos_launch(const struct amos_run *, const struct amos_kernel *, char *const *buf);

const struct amos_entry *amos_find_entry(const struct amos_model *, const char *name); // NULL: none
int64_t amos_find_slot(const struct amos_model *, const char *name);                   // -1: none
int64_t amos_find_output(const struct amos_entry *, const char *name);                 // -1: none

// Returns a slot's memory: amos_slot.bytes bytes, row major. For an input, this is the buffer that
// calls read by default, in the set in use.
void *amos_slot_bytes(const struct amos *, int64_t slot);
// Returns the buffer of an output, which holds it until the next call: row major, in the shape that
// amos_out_shape() gives.
void *amos_out_bytes(const struct amos *, const struct amos_entry *, int64_t out);
// Writes the shape that the output had in the last call to dim[rank].
void amos_out_shape(const struct amos *, const struct amos_entry *, int64_t out, int64_t *dim);
// Returns its first element.
double amos_out_number(const struct amos *, const struct amos_entry *, int64_t out);

double amos_number(const void *at, int type, int64_t i); // number.c: returns element i

// Runs an entry once. inputs[i], outputs[i]: addresses aligned to 64 bytes, or NULL for the model's
// own buffers; either array may be NULL. AMOS_INPUT: an index was out of range; AMOS_MACHINE: a
// launch failed.
int amos_call(struct amos *, const struct amos_entry *, void *const *inputs, void *const *outputs);
// The two halves of amos_call(), on the set of buffers in use: until amos_end(), a device may run
// the entry, on the parameters and state as the runs before leave them. Then only other sets may be
// used, and neither parameters nor state.
int amos_begin(struct amos *, const struct amos_entry *, void *const *inputs, void *const *outputs);
int amos_end(struct amos *, const struct amos_entry *, void *const *outputs);
// Selects the set of buffers for batch `number`, which amos_slot_bytes(), amos_out_bytes() and
// calls then use. Sets are reused every amos.batches batches.
void amos_use_batch(struct amos *, int64_t number);

// ---- program.c: entries on memory and threads of the caller ---------------------------

struct amos_run { // blocks are aligned to 64 bytes
	char *params, *state, *gradients, *scratch;
	const char *constants;
	char *const *inputs;  // indexed by number
	char *const *outputs; // indexed by number
	// Runs all workers of a row of amos_entry.kernels and returns when they are done: 0, or a
	// status that ends the entry. `buf`: addresses of the row's operands, until it returns.
	int (*launch)(const struct amos_run *, const struct amos_kernel *, char *const *buf);
	// Copies to or from blocks that the host does not address, after the launches so far, and
	// returns as launch() does, when that is done; it has set the error. NULL: the host
	// addresses them, and launches are done when launch() returns.
	int (*copy)(const struct amos_run *, enum amos_way, void *to, const void *from,
	            int64_t bytes);
	void *own; // of launch() and copy()
};
// Returns 0, or the status of the launch that failed.
int amos_run_entry(const struct amos_run *, const struct amos_entry *);

// ---- store.c: checkpoints in memory -------------------------------------------------------

struct amos_mean { // mean of a metric over samples, or over the labels that count
	double sum;
	double weight; // of all samples or labels
};
struct amos_held { // an evaluation of the held-out data
	int64_t step;
	double loss, accuracy; // INFINITY, NAN: none
};
struct amos_position { // progress of a training
	int64_t step;  // updates made
	int64_t run;   // batches used
	int64_t owing; // 1: the evaluation of this step was interrupted and is still due
	struct amos_held held, best;         // the last evaluation, and the one of lowest loss
	struct amos_mean losses, accuracies; // since the last line of the log
};
struct amos_position amos_start_position(void);             // before the first step
struct amos_position amos_position_of(const struct amos *); // of a program's own training

// Returns the bytes of the header of a checkpoint, after which its blocks begin.
int64_t amos_header_bytes(const struct amos_model *, const char *identity);
// Writes it to `header`, zeros. The blocks of the checkpoint have `params` and `state` bytes, or
// are left out. `identity`: lines of amos_identity() about what is trained.
void amos_write_header(char *header, const struct amos *, const struct amos_position *,
                       const char *identity, int64_t params, int64_t state);

struct amos_image {       // a checkpoint in memory
	const char *name; // in messages
	const unsigned char *at;
	int64_t bytes;

	// set by amos_image_open()
	char version[16]; // of the amosc that wrote it; "": before 0.1.0
	bool start;       // before the first step: it has no blocks
	struct amos_position point;
	int64_t count;                            // slots
	int64_t records, identity, params, state; // where these begin
	int64_t identity_bytes;
};
struct amos_record { // a slot in a checkpoint
	int64_t dim[10];
	int64_t offset;                 // bytes into its block
	int32_t kind, type, rank, name; // name: its length in bytes
};
// Fails unless all of the checkpoint is there and undamaged.
int amos_image_open(struct amos_image *);
// Reads the record at *at, at first image.records, and moves *at to the next; returns its name,
// which no 0 ends.
const char *amos_image_next(const struct amos_image *, int64_t *at, struct amos_record *);
// Returns the contents of a slot; NULL if the checkpoint has no blocks.
const void *amos_image_slot(const struct amos_image *, const struct amos_record *);
// Loads it into the model, all or nothing; one without blocks leaves the model as
// amos_open_slots() made it. AMOS_INPUT: names the first slot that does not match.
int amos_image_load(const struct amos_image *, struct amos *);

// crc.c. Returns the checksum of the bytes after those that have the checksum `crc` (0: none). The
// polynomial, of degree 32, has its highest coefficient in bit 0.
enum { AMOS_CRC32 = (int)0xEDB88320, AMOS_CRC32C = (int)0x82F63B78 };
uint32_t amos_crc(uint32_t polynomial, uint32_t crc, const void *, size_t count);

#endif
