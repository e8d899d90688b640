/* amosc.h: the compiler as a library: an exported ONNX model becomes a trainer, in memory or as a
 * file.
 *
 * Functions that return int return 0, or the exit status that the command amosc would end with (the
 * AMOSC_... below); amos_error() then describes the error and how to fix it. Nothing here exits,
 * aborts or jumps, but where malloc returns NULL inside of LLVM. There is no global state: sessions
 * may be used in several threads at once, each in one at a time. Strings and arrays that a function
 * returns belong to the session, up to amosc_close(). Link with -lamosc.
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
#include "amos.h"
#ifdef __cplusplus
extern "C" {
#endif

struct amosc; /* a session: a model file, the options given, and what was made of them */

enum amosc_purpose {
	AMOSC_TRAIN, /* entries train and eval; with gradient accumulation gather */
	AMOSC_EVAL,  /* entry eval */
	AMOSC_RUN,   /* entry run: the outputs of one batch */
	AMOSC_GRAD,  /* entry grad: outputs, loss, gradients of one batch */
	AMOSC_REPORT /* nothing is compiled */
};

enum { /* what the functions return */
       AMOSC_DONE = 0,
       AMOSC_INPUT = 1,   /* the model, the data or an option's value is at fault */
       AMOSC_USAGE = 2,   /* an option is malformed, unknown or of no use */
       AMOSC_MACHINE = 3, /* disk full, out of memory, a driver */
       AMOSC_BUG = 5      /* of the compiler; the session can only be closed */
};

/* Begins a session. `path`: an .onnx file, its external data beneath its folder; the file stays
 * mapped, and must not change, up to amosc_close(). The file is read by the functions below. */
int amosc_open(const char *path, enum amosc_purpose, struct amosc **);
void amosc_close(struct amosc *); /* NULL is allowed */

/* Gives an option of the command: `name` without the dashes, `value` as typed after it, NULL for a
 * switch. Lists (data, bind, eta, ...) grow; of other options the last one counts. Before the model
 * is compiled. AMOSC_USAGE: no such option. */
int amosc_option(struct amosc *, const char *name, const char *value);

/* From now on notes, the lines that the command writes to standard error, go to `listen`. NULL (the
 * default): they are dropped. */
void amosc_listen(struct amosc *, void (*listen)(void *context, const char *text), void *context);

struct amosc_value {             /* an input or output, as the file declares it */
	const char *name, *type; /* "f32", "i64", ... */
	int rank;                /* -1: not declared */
	int64_t dim[10];         /* -1: symbolic */
	const char *symbol[10];  /* the name of a symbolic dimension; NULL: it has none */
};
int amosc_inputs(struct amosc *, int *count, const struct amosc_value **);
int amosc_outputs(struct amosc *, int *count, const struct amosc_value **);

/* The eta report as JSON, as amosc eta --json prints it: every parameter with shape, role and
 * expected scale, each with reasons. Dimensions that neither --bind nor --data give get sizes that
 * stand for any. */
int amosc_eta(struct amosc *, const char **json);

/* Compiles for this machine, in memory. The open model is the session's; amos.h says how to feed
 * and call it. Where the option `data` was given, its values are checked before anything is
 * compiled, and *data (unless `data` is NULL) are attached to the model: also the session's. */
int amosc_compile(struct amosc *, struct amos **, struct amos_data **data);

/* AMOSC_TRAIN: compiles and trains in the run directory that the option `out` or `resume` names, as
 * amosc train does, up to --steps or --epochs. */
int amosc_train(struct amosc *, struct amos_result *);
/* AMOSC_EVAL: the mean loss over the data. */
int amosc_eval(struct amosc *, struct amos_result *);

/* After amosc_train() or amosc_compile(): writes the model file again with the weights that the
 * open model has, for inference unless the option `keep-training` was given. */
int amosc_export(struct amosc *, const char *path);

/* AMOSC_TRAIN: compiles for --target ahead of time, with the model's weights. `path`: NAME.o or
 * NAME.ptx. */
int amosc_write(struct amosc *, const char *path);

/* What stands after a pass, in the notation (amosc show --after); `from`: the text to continue
 * from, NULL: the model. *text is of as many bytes as strlen() says. */
int amosc_show(struct amosc *, const char *from, const char *after, const char **text);

#ifdef __cplusplus
}
#endif
#endif
