// device.h: declares devices that run a model's kernels in place of the CPU, and their drivers.
// A driver is a table of functions over a library that is opened at run time; nothing is linked.
#ifndef AMOS_DEVICE_H
#define AMOS_DEVICE_H
#include "rt.h"

enum amos_sharing {  // of memory, which host and device address alike
	AMOS_SHARED, // used by host and device in turns; migrates between them
	AMOS_HOST,   // in host memory; the host may use parts while the device uses others
	AMOS_DEVICE, // of the device alone: the host copies to and from it
};
enum { AMOS_MARKS = 2 }; // of a device

// Functions that return int return AMOS_DONE, or AMOS_MACHINE with the driver's words. `device`:
// what open() gave. Launches and downloads run in order, after the call returns, and uploads at the
// same time, in their own order. What they use stays allocated until they are done; release() waits
// for them.
struct amos_driver {
	const char *name; // as amos_model.device
	// Opens the best device of this machine. Fails if there is none, and says what is missing.
	int (*open)(void **device);
	void (*close)(void *device);
	const char *(*describe)(void *device); // its name, for users and checkpoints
	// Gets the bytes of AMOS_SHARED and AMOS_DEVICE memory that a device has left, or has if
	// its driver does not say. `room_word` says which.
	int (*room)(void *device, int64_t *bytes);
	const char *room_word;
	// Returns the bytes of the largest block that the device promises, which may give larger
	// ones; NULL: all that it has left. `largest_word` is what the driver calls it.
	int64_t (*largest)(void *device);
	const char *largest_word;
	// NULL: no memory. Aligned to 64 bytes, not zeroed.
	void *(*allocate)(void *device, enum amos_sharing, int64_t bytes);
	void (*release)(void *device, enum amos_sharing, void *memory);
	// Compiles the code of a model (amos_model.code). AMOS_INPUT: it is for another device.
	int (*build)(void *device, const void *code, int64_t bytes);
	// Finds a function of it, and the threads of its blocks. Closed with the device. `shared`:
	// bytes that its launches give a block's threads to share; 0, unless it is of CUDA.
	int (*find)(void *device, const char *function, int64_t shared, void **kernel,
	            int64_t *threads);
	// Runs `blocks` blocks of a kernel. `table`: its `n` operands' addresses, in AMOS_HOST or
	// AMOS_DEVICE memory, which must stay as it is until the launch is done. `at`: the same in
	// the host's.
	int (*launch)(void *device, void *kernel, const uint64_t *table, const uint64_t *at,
	              int64_t n, int64_t blocks, int64_t threads, int64_t shared);
	int (*wait)(void *device); // for all launches and copies
	// Copies, after the launches so far, between AMOS_SHARED or AMOS_DEVICE memory and any of
	// the host's, or within it, and waits for that.
	int (*copy)(void *device, enum amos_way, void *to, const void *from, int64_t bytes);
	// Sets AMOS_SHARED memory to 0, in order with launches.
	int (*clear)(void *device, void *at, int64_t bytes);
	// Moves AMOS_SHARED memory to the device at once, in order with launches; NULL: the driver
	// moves it when it is used.
	int (*prefetch)(void *device, const void *at, int64_t bytes);
	// Copies to AMOS_DEVICE memory from AMOS_HOST memory; download: back.
	int (*upload)(void *device, void *to, const void *from, int64_t bytes);
	int (*download)(void *device, void *to, const void *from, int64_t bytes);
	int (*join)(void *device); // launches that follow run after the uploads so far
	// mark: marks the end of the launches and downloads so far; reach: waits for it. Marks are
	// numbered from 0.
	int (*mark)(void *device, int64_t mark);
	int (*reach)(void *device, int64_t mark);
	// Notes when the launches so far are done; with `nanoseconds`, waits for that, and gives
	// the time since it was last noted without. NULL: the device has no clock.
	int (*clock)(void *device, int64_t *nanoseconds);
	// Records the launches that follow, which do not run, until keep(), which makes a graph of
	// them; graph NULL: drops them.
	int (*record)(void *device);
	int (*keep)(void *device, void **graph);
	// Runs the graph as its launches would run, when the last run of it is done.
	int (*replay)(void *device, void *graph);
	void (*forget)(void *device, void *graph); // when it does not run
	// Returns what a device lacks for that, to users; NULL: nothing.
	const char *(*lacks_graphs)(void *device);
};
extern const struct amos_driver amos_opencl, amos_cuda, amos_hip; // opencl.c, gpu.c

// ---- device.c: a model on a device ----------------------------------------------------

// Opens the device of the best of the model's variants that a device of this machine runs, sets
// *model to it, and builds its code there. NULL: none does, and a CPU may run the model; then
// amos_error() says why none does, unless no variant is for a device.
int amos_device_open(const struct amos_model **model, struct amos_device **);
void amos_device_close(struct amos_device *);               // with its memory; NULL is allowed
int amos_device_room(struct amos_device *, int64_t *bytes); // as of its driver
const char *amos_device_room_word(const struct amos_device *);
// Returns the bytes of the largest block that the device promises, and what its driver calls that;
// INT64_MAX: there is no limit.
int64_t amos_device_largest(const struct amos_device *, const char **word);
// Allocates the blocks that are counted: values shared with the host, scratch of the device alone,
// the batch of the host, and *batch_copy of the device. False: no memory.
bool amos_device_memory(struct amos_device *, struct amos_apart *, char **batch_copy);
// Sets to 0 what the host may read of them: it fills the first `filled` bytes of the values next.
int amos_device_clear(struct amos_device *, const struct amos_apart *, int64_t filled);
// The host has used parameters and state: the next run moves them to the device at once. NULL is
// allowed.
void amos_device_touched(struct amos_device *);
const char *amos_device_constants(const struct amos_device *); // copy of amos_model.constants
// Starts a row of the entry; wait: until all that were started are done.
int amos_device_launch(struct amos_device *, const struct amos_entry *, const struct amos_kernel *,
                       char *const *buf);
int amos_device_wait(struct amos_device *);
// The same, and waits for it: the nanoseconds that it took.
int amos_device_time(struct amos_device *, const struct amos_entry *, const struct amos_kernel *,
                     char *const *buf, int64_t *nanoseconds);
int amos_device_copy(struct amos_device *, enum amos_way, void *to, const void *from,
                     int64_t bytes); // as amos_run.copy
// amos.begin and amos.end: start a run of an entry, with its inputs copied to the device before and
// its small outputs copied back after, and wait for the run of the set of buffers in use.
int amos_device_begin(const struct amos_run *, const struct amos_entry *);
int amos_device_end(struct amos *);
const char *amos_device_name(const struct amos_device *);
const char *amos_device_lacks_graphs(const struct amos_device *); // as of its driver

#endif
