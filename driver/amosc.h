/* amosc.h: declares the compiler as a C library (-lamosc): ONNX model to trainer.
 *
 * Functions that return int return AMOSC_DONE or an error code below, which is also the exit status
 * of the command amosc; amos_error() then describes the error and how to fix it. No function exits
 * or aborts, unless malloc returns NULL inside LLVM. There is no global state: threads may use
 * different sessions at the same time. A returned string or array is owned by the session and valid
 * until amosc_close().
 *
 *     struct amosc *s;
 *     struct amos *trainer;
 *     struct amos_result result;
 *     if (amosc_open("model.onnx", AMOSC_TRAIN, &s) ||
 *         amosc_option(s, "loss", "cross_entropy(logits, labels)") ||
 *         amosc_option(s, "data", "train.npz") || amosc_option(s, "batch", "32") ||
 *         amosc_option(s, "out", "model.run") || amosc_train(s, &result) ||
 *         amosc_export(s, "trained.onnx"))
 *             fprintf(stderr, "%s\n", amos_error());
 *     amosc_close(s);
 */
#ifndef AMOSC_H
#define AMOSC_H
#include "runtime.h"
#ifdef __cplusplus
extern "C" {
#endif

struct amosc; /* a session: a model file, its options and the compiled program */

enum amosc_purpose {
	AMOSC_TRAIN, /* all calls of amos.h */
	AMOSC_EVAL,  /* amos_evaluate() */
	AMOSC_RUN,   /* amos_forward(): the outputs of one batch */
	AMOSC_GRAD,  /* entry grad: outputs, loss, gradients of one batch */
	AMOSC_REPORT /* nothing is compiled */
};

enum { /* error codes */
       AMOSC_DONE = 0,
       AMOSC_INPUT = 1,   /* invalid model, data or option value */
       AMOSC_USAGE = 2,   /* unknown, malformed or unused option */
       AMOSC_MACHINE = 3, /* system error: disk full, out of memory */
       AMOSC_BUG = 5      /* in the compiler; the session can only be closed */
};

const char *amosc_version(void); /* AMOS_VERSION of the library */

/* Opens a session on the .onnx file `path`, with external data in or below its directory. The file
 * is read later, by the functions below. It stays mapped and must not change until amosc_close().
 * amosc_eta(), and with the option `update-only` amosc_compile() and amosc_write(), also take a
 * report of amosc_eta() as a file NAME.json. */
int amosc_open(const char *path, enum amosc_purpose, struct amosc **);
void amosc_close(struct amosc *); /* accepts NULL */

/* Sets an option of the command: `name` without dashes; `value` NULL for a flag. Repeatable options
 * (data, bind, eta, ...) add a value, others replace it. Must precede compilation. Returns
 * AMOSC_USAGE for an unknown option, for one that sessions of this purpose do not use, and for a
 * value that is not a number where one is expected. The calls below return AMOSC_USAGE for an
 * option that has no effect next to the others. */
int amosc_option(struct amosc *, const char *name, const char *value);

/* Sets the function that receives notes: the lines that the command writes to standard error. The
 * default is NULL, which drops them. */
void amosc_listen(struct amosc *, void (*listen)(void *context, const char *text), void *context);

struct amosc_value {             /* an input or output as declared in the file */
	const char *name, *type; /* "f32", "i64", ... */
	int rank;                /* -1: not declared */
	int64_t dim[10];         /* -1: symbolic */
	const char *symbol[10];  /* name of a symbolic dimension; NULL: none */
};
int amosc_inputs(struct amosc *, int *count, const struct amosc_value **);
int amosc_outputs(struct amosc *, int *count, const struct amosc_value **);

/* Returns the eta report as amosc eta --json prints it: every parameter with shape, role, expected
 * scale and reasons. Dimensions that neither `bind` nor `data` determines get placeholder sizes. */
int amosc_eta(struct amosc *, const char **json);

/* Settings of the optimizer Amos; docs/optimizer.md and compiler/book/optim.am define them. */
struct amosc_amos {
	double xi, beta, momentum, warmup, clip, extra_l2, average; /* NAN: by rule */
	double coef, pace, strength, most, reach, least, mix;       /* results */
};
/* Sets what is NAN by the rules of amosc train, for `batches` independent batches in the data and a
 * loss that is the mean over `labels` per update; 0: unknown. For trainers of other frameworks.
 * `average` is 0 by rule, for those that take gradients at the parameters. */
int amosc_amos_defaults(struct amosc_amos *, double batches, double labels);

/* Compiles for this machine, in memory. The session owns the returned model, which amos.h
 * describes. If the option `data` was given, its values are checked before compilation, and *data
 * (unless `data` is NULL) is attached to the model; the session owns it too. With the option
 * `update-only`, amos_update() is its only call: the program computes the gradients. After
 * amosc_train() the model is the one that it trained, which has no amos_gradient(), amos_update()
 * and amos_forward(). */
int amosc_compile(struct amosc *, struct amos **, struct amos_data **data);

/* Compiles and trains as amosc train does, for `steps` or `epochs`, in the run directory given by
 * `out` or `resume`. The session's purpose must be AMOSC_TRAIN; it trains once. */
int amosc_train(struct amosc *, struct amos_result *);
/* Computes the mean loss over the data. The session's purpose must be AMOSC_EVAL. AMOS_INPUT: the
 * loss is not finite. */
int amosc_eval(struct amosc *, struct amos_result *);

/* Writes a copy of the model file with the weights of the compiled model, for inference unless the
 * option `keep-training` was given. Must follow amosc_train() or amosc_compile(). */
int amosc_export(struct amosc *, const char *path);

/* Compiles for the option `target` ahead of time and writes the object with the model's weights to
 * `path`: NAME.o, NAME.ptx, a library (NAME.a, NAME.so) or else an executable. The session's
 * purpose must be AMOSC_TRAIN. */
int amosc_write(struct amosc *, const char *path);

/* Returns the output of amosc show --after `after`, for the model or, if `from` is not NULL,
 * continued from this earlier output. after: NULL for the first pass, or the one of `from`. */
int amosc_show(struct amosc *, const char *from, const char *after, const char **text);

#ifdef __cplusplus
}
#endif
#endif
