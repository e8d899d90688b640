/* amos.h: declares the runtime of compiled models: run, evaluate, train, save and load them.
 *
 * A model that `amosc build` compiled is one symbol, ID_model. amos_open() makes an instance of it:
 * parameters, the optimizer's state, and buffers for a batch and its outputs. The shapes of inputs
 * were fixed when the model was compiled; the buffers of its inputs are filled in place.
 *
 *     struct amos *m;
 *     double loss;
 *     if (amos_open(&net_model, NULL, &m))
 *             return fprintf(stderr, "%s\n", amos_error()), 1;
 *     float *x = amos_values(m, AMOS_INPUTS, amos_find(m, AMOS_INPUTS, "x"));
 *     while (next_batch(x))
 *             if (amos_step(m, &loss))
 *                     break;
 *     amos_save(m, "net.ckpt");
 *     amos_close(m);
 *
 * Errors: functions that return int return AMOS_DONE or another amos_status; amos_error() then says
 * what is wrong, for this thread. No function but amos_main() exits, prints, or installs a signal
 * handler. A function that fails changes nothing, unless noted.
 * Memory: pointers that are returned belong to the instance and are valid until amos_close(). Only
 * amos_open() and the functions of files allocate.
 * Freestanding: the runtime of models compiled with --freestanding, amos_core.c, needs no system or
 * libc but memcpy(), memmove() and memset(). It has all functions but those that AMOS_FREESTANDING
 * leaves out here, and one error text for all threads.
 * Threads: an instance is used by one thread at a time; different instances are independent.
 * Results do not depend on the number of threads. Arrays are row major, without gaps; their buffers
 * are aligned to 64 bytes.
 */
#ifndef AMOS_H
#define AMOS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. AMOS_VERSION_NUMBER is for #if: 1.2.3 is 10203. */
#define AMOS_VERSION_MAJOR 0
#define AMOS_VERSION_MINOR 1
#define AMOS_VERSION_PATCH 0
#define AMOS_VERSION       "0.1.0"
#define AMOS_VERSION_NUMBER                                                                        \
	(AMOS_VERSION_MAJOR * 10000 + AMOS_VERSION_MINOR * 100 + AMOS_VERSION_PATCH)

#ifndef AMOS_API
#define AMOS_API /* marks the functions that shared libraries offer */
#endif

struct amos_model; /* a compiled model: extern const struct amos_model ID_model */
struct amos;       /* an instance of a model */

/* AMOS_INPUT: invalid values, checkpoint or name; or compiled for another CPU or version.
 * AMOS_USAGE: the model was compiled without this.
 * AMOS_MACHINE: out of memory, disk full, a device that fails. */
enum amos_status { AMOS_DONE = 0, AMOS_INPUT = 1, AMOS_USAGE = 2, AMOS_MACHINE = 3 };

/* Types of elements. F16 and BF16 are uint16_t, BF16 the upper half of an f32; BOOL is uint8_t, 0
 * or 1; the others have the C type that their name says. */
enum amos_type {
	AMOS_F64,
	AMOS_F32,
	AMOS_F16,
	AMOS_BF16,
	AMOS_I64,
	AMOS_I32,
	AMOS_I16,
	AMOS_I8,
	AMOS_U64,
	AMOS_U32,
	AMOS_U16,
	AMOS_U8,
	AMOS_BOOL
};

/* Kinds of arrays; the arrays of a kind are numbered from 0. */
enum amos_kind {
	AMOS_INPUTS,     /* set before each call */
	AMOS_OUTPUTS,    /* of amos_forward() */
	AMOS_PARAMETERS, /* trained weights */
	AMOS_GRADIENTS,  /* of the parameters, with their numbers and names */
	AMOS_FROZEN,     /* weights that are not trained */
	AMOS_BUFFERS,    /* running statistics */
	AMOS_STATE,      /* the optimizer's */
	AMOS_KINDS
};

/* Returns the text of this thread's last error, one or a few lines; "" if there was none. */
AMOS_API const char *amos_error(void);

/* ---- instances ---------------------------------------------------------------------- */

/* How amos_open() makes an instance. Zeros are the defaults; set `size` first. */
struct amos_setup {
	size_t size;     /* sizeof(struct amos_setup); later versions may add fields at the end */
	int64_t threads; /* at most 1024; 0: as many as cores that this process may use */
	int64_t seed;    /* of dropout and other random numbers */
	/* Returns the first contents of a parameter, frozen weight or buffer, of `bytes` bytes;
	 * NULL: those that were compiled. */
	const void *(*weights)(void *context, const char *name, int64_t bytes);
	/* Calls body(task, i, thread) for each i in [0, n), in any order, on up to `threads`
	 * threads of the caller, and returns when all are done. `thread`, in [0, threads), is that
	 * of one call at a time. NULL: the instance has threads of its own. */
	void (*parallel_for)(void *context, int64_t n,
	                     void (*body)(void *task, int64_t i, int64_t thread), void *task);
	void *context; /* of weights() and parallel_for() */
};

#ifndef AMOS_FREESTANDING
/* Makes an instance of a model. `setup` may be NULL. Fails with AMOS_INPUT if the model was
 * compiled for another CPU or version of the runtime, AMOS_MACHINE if memory runs out; *to is then
 * NULL. */
AMOS_API int amos_open(const struct amos_model *model, const struct amos_setup *setup,
                       struct amos **to);
#endif
/* The same in memory of the caller's, without allocating: `bytes` bytes from `memory`, a multiple
 * of 64, which the instance uses until it is no longer called. amos_instance_bytes() is how many it
 * needs with that setup, or -1 where amos_open_in() would fail. The instance has no threads of its
 * own: `threads` above 1 are those of parallel_for(), and 0 means 1. AMOS_INPUT also if the memory
 * does not suffice or is not aligned. */
AMOS_API int64_t amos_instance_bytes(const struct amos_model *model,
                                     const struct amos_setup *setup);
AMOS_API int amos_open_in(const struct amos_model *model, const struct amos_setup *setup,
                          void *memory, int64_t bytes, struct amos **to);
AMOS_API void amos_close(struct amos *m); /* accepts NULL */

/* ---- arrays ------------------------------------------------------------------------- */

/* Returns the number of arrays of a kind. */
AMOS_API int64_t amos_count(const struct amos *m, enum amos_kind kind);
/* Returns the number of the array of this name; -1: none. */
AMOS_API int64_t amos_find(const struct amos *m, enum amos_kind kind, const char *name);
/* These describe array i in [0, amos_count()). Its name is that in the model file. The sizes of an
 * output whose shape depends on data are upper bounds; amos_output_shape() gives the actual ones.
 * Another i, such as the -1 of amos_find(), has the name NULL, the rank 0 and 0 bytes.
 */
AMOS_API const char *amos_name(const struct amos *m, enum amos_kind kind, int64_t i);
AMOS_API enum amos_type amos_type(const struct amos *m, enum amos_kind kind, int64_t i);
AMOS_API int64_t amos_rank(const struct amos *m, enum amos_kind kind, int64_t i);
AMOS_API const int64_t *amos_shape(const struct amos *m, enum amos_kind kind, int64_t i);
AMOS_API int64_t amos_bytes(const struct amos *m, enum amos_kind kind, int64_t i);
/* Returns the array itself, to read and write. NULL: there is no array i; or it is the gradient of
 * a parameter that the loss does not depend on. */
AMOS_API void *amos_values(const struct amos *m, enum amos_kind kind, int64_t i);
/* Returns all parameters, all gradients or the entire state as one block of *bytes bytes, in which
 * a gradient has the offset of its parameter. Bytes between arrays are 0 and may be overwritten.
 * Returns NULL for other kinds, and for gradients after `amosc build --no-gradients`. */
AMOS_API void *amos_block(const struct amos *m, enum amos_kind kind, int64_t *bytes);
/* Sets where the calls read input i from then on: amos_bytes() bytes of the caller's, aligned to 64
 * bytes, that stay until the call of amos_close() or another setting. NULL: the instance's own
 * array, which amos_values() returns all the while. AMOS_INPUT: it is not aligned, or there is no
 * input i; AMOS_USAGE: a device runs the model. */
AMOS_API int amos_set_input(struct amos *m, int64_t i, const void *values);
/* Writes the shape that output i had in the last call to shape[amos_rank()]; if there is no output
 * i, nothing. */
AMOS_API void amos_output_shape(const struct amos *m, int64_t i, int64_t *shape);

/* ---- calls -------------------------------------------------------------------------- */

/* Each works on the batch in the inputs. AMOS_INPUT: a label or an index is out of range. An index
 * that the model computes is checked only at the end: amos_step() has updated the parameters by
 * then.
 */

/* Sets how many samples amos_forward() and amos_evaluate() take from then on: one of the sizes that
 * the model was compiled for (`amosc build --bind batch=N`, once for each), or 0 for the largest,
 * which is that at first and of training. A smaller batch is the first n samples of the inputs,
 * whose arrays keep their shapes; its outputs are arrays of their own, with n samples. AMOS_USAGE:
 * another n. */
AMOS_API int amos_set_batch(struct amos *m, int64_t n);
/* Computes the outputs, for inference: without dropout, and with running statistics. */
AMOS_API int amos_forward(struct amos *m);
/* Computes the mean loss of the batch, for inference. `loss` may be NULL. */
AMOS_API int amos_evaluate(struct amos *m, double *loss);
/* Trains on the batch: computes gradients and updates the parameters. With
 * `amosc build --accumulate N`, every N-th call updates them. *loss: the mean loss before the
 * update; if it is not finite, as of inputs that are not, the parameters are not finite, either. */
AMOS_API int amos_step(struct amos *m, double *loss);
/* The two halves of a step. Between them, the gradients may be read and changed: summed over
 * processes, clipped, or used to update the parameters in another way. amos_gradient() replaces the
 * gradients. Both ignore --accumulate N, though the optimizer's defaults are for N batches: the
 * program adds up the gradients of N calls, and calls amos_update() once, with their mean. With
 * `amosc build --update-only`, amos_update() is the only call: the program computes the gradients,
 * too. AMOS_USAGE: built with --no-gradients. */
AMOS_API int amos_gradient(struct amos *m, double *loss);
AMOS_API int amos_update(struct amos *m);
/* Returns the number of updates so far, of which checkpoints keep count. */
AMOS_API int64_t amos_steps(const struct amos *m);
/* Sets the factor by which the following updates multiply their step size, --xi or --rate with
 * warm-up: for schedules. It is 1 at first; 0 updates the optimizer's state alone, but Amos's
 * momentum still moves parameters. Checkpoints keep it, as the state "amos.rate". AMOS_INPUT: it is
 * negative or not finite; AMOS_USAGE: the model trains no parameter. */
AMOS_API int amos_set_rate(struct amos *m, double factor);
AMOS_API double amos_rate(const struct amos *m);
/* Sets the number of updates of the run, from the first: needed before the first if the model was
 * built with a `--schedule` that ends, or with AdEMAMix. amos_fit() sets it. Checkpoints keep it,
 * as the state "amos.steps". It may change as long as no update so far depends on it: before the
 * first, and with the trapezoid before its cooldown. AMOS_INPUT: it is less than 1, or changes too
 * late; AMOS_USAGE: the model does not need it. */
AMOS_API int amos_set_steps(struct amos *m, int64_t n);
/* Returns a metric of the last call of amos_evaluate(), amos_step() or amos_gradient(): "loss", or
 * "accuracy" if the loss is a cross entropy. NaN: there is none. */
AMOS_API double amos_metric(const struct amos *m, const char *name);

/* ---- checkpoints -------------------------------------------------------------------- */

#ifndef AMOS_FREESTANDING
/* Saves parameters, frozen weights, buffers and state to a file that appears when it is complete.
 * amosc reads it, too: amosc export writes the weights into the model file. */
AMOS_API int amos_save(const struct amos *m, const char *path);
/* Loads a checkpoint of the same model and optimizer, or the best of a run directory. */
AMOS_API int amos_load(struct amos *m, const char *path);
#endif
/* The same in memory. amos_checkpoint_bytes() is the number of bytes that amos_store() writes. They
 * are those of the file. */
AMOS_API int64_t amos_checkpoint_bytes(const struct amos *m);
AMOS_API int amos_store(const struct amos *m, void *to, int64_t bytes);
AMOS_API int amos_restore(struct amos *m, const void *from, int64_t bytes);

#ifndef AMOS_FREESTANDING
/* ---- trained models ----------------------------------------------------------------- */

/* Writes the model's ONNX file with these weights, which appears when it is complete: the bytes
 * that `amosc export` writes. It is for inference: Dropout and BatchNormalization leave training
 * mode. External data go to a second file, PATH.data, or if that exists PATH.2.data.
 * AMOS_USAGE: compiled without the file, by --no-export or --update-only. AMOS_INPUT: the file
 * cannot hold the weights, such as parameters that differ but are one constant of a function. */
AMOS_API int amos_export_onnx(const struct amos *m, const char *path);
/* The same in memory; external data become part of the model, which has at most 2 GB.
 * amos_onnx_bytes() is the number of bytes that amos_store_onnx() writes; 0: it would fail. */
AMOS_API int64_t amos_onnx_bytes(const struct amos *m);
AMOS_API int amos_store_onnx(const struct amos *m, void *to, int64_t bytes);

/* ---- training on files ---------------------------------------------------------------- */

/* How a training stands. NaN: there is none. */
struct amos_progress {
	size_t size;                     /* of this struct in the runtime, which may have more */
	int64_t step, steps;             /* updates made, and in all */
	double loss, accuracy;           /* of the batches since the last call */
	double eval_loss, eval_accuracy; /* of the last evaluation of held-out data */
	double epochs;                   /* of the training data, so far */
	double samples_per_s;            /* since the last call */
	double seconds;                  /* since the call of amos_fit() */
};

/* What amos_fit() does. Zeros are the defaults; set `size` first. */
struct amos_training {
	size_t size; /* sizeof(struct amos_training); later versions may add fields at the end */
	/* Names and values of the options of `amosc train` that choose data and length, and NULL:
	 * {"data", "train.npz", "split", "0.9", "epochs", "3", NULL}. The value of a flag is "1".
	 */
	const char *const *options;
	/* Is called every log_every updates and at the end, in the thread of the call. It may use
	 * the instance: change the rate, read the parameters, save. Not 0 stops the training. */
	int (*progress)(void *context, const struct amos_progress *now);
	void *context;
};

/* Trains on batches out of files, as the command does: it evaluates and ends as the options say.
 * The weights are those of the last step. It goes on where the instance stands: two calls of 5
 * steps equal one of 10. There is a run directory only with the option "out" or "resume"; a
 * training that progress() stops has saved there. Nothing is printed, such as the note of the
 * command that an array is the same in every batch: one of exactly its input's shape, next to
 * arrays of samples. AMOS_INPUT: data or options do not fit the model, or a loss is not finite; the
 * instance keeps the steps made. */
AMOS_API int amos_fit(struct amos *m, const struct amos_training *training);

/* ---- a command ---------------------------------------------------------------------- */

/* Runs a trainer as a command, which prints and may exit: the verbs train (default), eval, run,
 * export and info, with the options of `amosc train`, which --help lists. Returns the exit
 * status. */
AMOS_API int amos_main(const struct amos_model *model, int argc, char **argv);
#endif

#ifdef __cplusplus
}
#endif
#endif
