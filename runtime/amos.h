// amos.h: the runtime: a compiled model opened, fed, trained, saved. What the command amosc uses on
// what it compiled in memory and a compiled trainer uses on itself. Takes abi.h. Functions that
// answer int answer AMOS_DONE or one of the codes below, and then amos_error() says what was found,
// what was wanted, and the cure. Nothing here exits, aborts or jumps. What a call gives belongs to
// the object it was asked of, until that is closed, unless it says otherwise. Objects are not
// shared between threads.
#ifndef AMOS_H
#define AMOS_H
#include "abi.h"
#include "common.h"

// For a program's main, before it opens a file: standard descriptors that are closed become
// /dev/null, opened so that their use is an error. No file gets their numbers.
void amos_standard(void);
// For a program's main: what the system tells by signals becomes an error of the call (a pipe that
// closed, a file that may not grow), or a message and an end: status 1 (a file that was mapped and
// cut short) or 3 (an interrupt, a hangup; amos_train() takes these as a wish to stop). Before such
// an end temporary files are removed.
void amos_signals(void);
// Such an end at once, with `text` on standard error and status 3. May run in a handler; takes no
// memory.
_Noreturn void amos_interrupt(const char *text);
// For the same: a program that would end with status 0, but whose standard output could not all be
// written, says so and ends with 3.
void amos_check_stdout(void);
// For the same, of libamos_main.a: memory that is not there ends the program so, with a message in
// the name of `program`, whichever library asks for it. Who calls this links a malloc that never
// returns NULL.
void amos_memory_ends(const char *program);

enum { AMOS_ABSENT = -1, AMOS_LIST = 64 };

// ---- options.c: options.def as a struct, as a parser, as help -------------------------

struct amos_list {
	int count;
	const char *at[AMOS_LIST];
};
struct amos_options { // what was not given: NULL, count 0, AMOS_ABSENT; flags 0
#define TYPE_text                                         const char *
#define TYPE_list                                         struct amos_list
#define TYPE_count                                        int64_t
#define TYPE_number                                       double
#define TYPE_flag                                         int
#define OPTION(name, letter, group, type, argument, help) TYPE_##type name;
#include "options.def"
#undef OPTION
	int argc; // the command line as typed, kept in command.json; 0: none
	char **argv;
};
struct amos_options amos_options(void); // nothing given
// --keep: last, or best. AMOS_USAGE.
int amos_keeps_last(const struct amos_options *, bool *last);
// Sets the option `name` (as in options.def, or as typed with -); `value` stays the caller's, and
// is kept. AMOS_USAGE.
int amos_option(struct amos_options *, const char *name, const char *value);

// ---- cpu.c: a model in memory ---------------------------------------------------------

struct amos;

struct amos_memory { // bytes
	int64_t params, state, scratch, pads, batch;
};

// Takes memory and gives every slot its first contents: amos_slot.init, else what `init` answers
// (row major, of the slot's type; NULL: zeros). `init` may be NULL. The seed goes to the slot
// amos.seed. threads 0: all cores this process may use. AMOS_MACHINE: no memory; AMOS_INPUT: made
// for another version of the contract.
int amos_open(const struct amos_model *, int64_t threads, int64_t seed,
              const void *(*init)(void *context, int64_t slot), void *context, struct amos **);
void amos_close(struct amos *); // NULL is allowed
struct amos_memory amos_memory(const struct amos *);
const struct amos_model *amos_model_of(const struct amos *);
int64_t amos_threads(const struct amos *);         // that work: 1 where more would be of no use
int64_t amos_threads_missing(const struct amos *); // that the machine did not start

const struct amos_entry *amos_find_entry(const struct amos_model *, const char *name); // NULL: none
int64_t amos_find_slot(const struct amos_model *, const char *name);                   // -1: none
int64_t amos_find_output(const struct amos_entry *, const char *name);                 // -1: none

// A slot's memory: slots.bytes bytes, row major. An input's is the buffer that calls read by
// default.
void *amos_slot_bytes(const struct amos *, int64_t slot);
// Where an entry leaves its outputs by default, until the next call: row major, in the shape that
// the run gave them.
void *amos_out_bytes(const struct amos *, const struct amos_entry *, int64_t out);
// That shape, into dim[rank].
void amos_out_shape(const struct amos *, const struct amos_entry *, int64_t out, int64_t *dim);
// Is it an output of the model, not one that tells another's shape?
int amos_out_own(const struct amos_entry *, int64_t out);
// Its first element.
double amos_out_number(const struct amos *, const struct amos_entry *, int64_t out);

double amos_number(const void *at, int type, int64_t i); // element i

// Runs an entry once. inputs[i], outputs[i]: addresses aligned to 64 bytes, or NULL for the model's
// own buffers; either array may be NULL. What launch() answered.
int amos_call(struct amos *, const struct amos_entry *, void *const *inputs, void *const *outputs);
// From now on adds the time of each launch to nanoseconds[number of the launch in its entry]; NULL:
// no more.
void amos_profile(struct amos *, int64_t *nanoseconds);

// ---- data.c, bind.c, unused.c, attach.c, measure.c, batch.c: batches out of files --------

struct amos_data;

struct amos_input { // as the model declares it
	const char *name;
	int type; // types.def
	int rank;
	int64_t dim[10];      // -1: free
	const char *axis[10]; // of a free one: its name, or NULL. Equal names are equal sizes
};

// Opens the sources of --data. exact (run, grad): the arrays are one batch, of the inputs' exact
// shapes. Otherwise the first axis of an input is the batch, its elements samples (first axis of
// the array) or windows (of a token stream).
int amos_data_open(const struct amos_options *, int exact, struct amos_data **);
void amos_data_close(struct amos_data *);
// Gives free dimensions their sizes: the batch from --batch (default 32, or all samples where they
// are fewer), others from the arrays. Those that nothing tells stay -1. AMOS_INPUT: data and
// declared shape do not agree.
int amos_data_bind(struct amos_data *, int n, struct amos_input *);
// The array of source `k`, of one batch as it lies in its file, and the input it is for; NULL where
// the source is none. `k` from 0 on; *input is NULL behind the last.
const struct amos_array *amos_data_array(const struct amos_data *, int k, const char **input);
// Notes that the model has these inputs. AMOS_INPUT: an array that none takes has the name of one
// that has no data, but for case and punctuation.
int amos_data_take(struct amos_data *, int n, const char *const *inputs);
// The arrays of files given without NAME= that no input takes, a line per file; may be "". After
// fit, or when all inputs are noted.
const char *amos_data_unused(const struct amos_data *);
// Writes the values that the array of the source for `input` gives an input of that type.
// AMOS_INPUT where the type cannot hold one.
int amos_data_values(const struct amos_data *, const char *input, int type, void *to);
// Ties sources to the inputs of a compiled model and checks every value: type, shape, [0, limit),
// not NaN (but in one batch). Inputs that none of `entries` (names, NULL at the end) reads may lack
// data; the others may not.
int amos_data_attach(struct amos_data *, const struct amos_model *, const char *const *entries);

// Number of batches that one pass over the training part makes, and of samples (windows) held out.
// After bind or fit.
int64_t amos_data_batches(const struct amos_data *);
int64_t amos_data_held_out(const struct amos_data *);
// Is there a batch to train on and, where a part is held out, a sample in it? AMOS_INPUT.
int amos_data_check_size(const struct amos_data *);
// N for xi: the batches, as full of labels as those of training, that the labels to train on make.
// A pass makes as many; more where masked() draws in each pass anew which few tokens are labels.
double amos_data_independent_batches(const struct amos_data *);
// Of `elements` entries of the input `name` in a batch, how many are labels: those that masked()
// picks; of an array, those that are not `ignore` (0: all are).
double amos_data_labels(const struct amos_data *, const char *name, int64_t elements,
                        int64_t ignore);
// Root mean square of the numbers that data bring the float input `name`, from the part to train
// on, or where they are many from 2^20 of them, drawn evenly. NAN: it has no data.
double amos_data_rms(const struct amos_data *, const char *name);
const char *amos_data_note(const struct amos_data *); // what was decided, a line each; may be ""

// Fills the inputs' buffers. After fit. Batch `run` of training is a function of (seed, run) alone.
// Evaluation goes in order through the samples held out, or through all where none are; it takes
// the first `samples` rows for those from number `from` on.
int amos_data_train(const struct amos_data *, struct amos *, int64_t run);
int amos_data_eval(const struct amos_data *, struct amos *, int64_t from, int64_t samples);
int64_t amos_data_eval_samples(const struct amos_data *);
int64_t amos_data_samples(const struct amos_data *); // in a batch
// A batch has so many from now on, for the model that is bound or fitted next.
void amos_data_batch(struct amos_data *, int64_t samples);
// Writes the vocabulary of text sources that have one to DIR/NAME.vocab.
int amos_data_write_vocab(const struct amos_data *, const char *dir);

// ---- array.c, npz.c: arrays in files --------------------------------------------------

struct amos_array {
	const char *name;
	int type, rank; // types.def
	int64_t dim[10];
	const void *bytes; // row major, little endian
	void *own;         // the runtime's
};
// Written aside and renamed. bf16 travels as f32.
int amos_npz_write(const char *path, int64_t n, const struct amos_array *);
int amos_npz_read(const char *path, int64_t *n, struct amos_array **);
void amos_npz_free(int64_t n, struct amos_array *);

// ---- ckpt.c: checkpoints --------------------------------------------------------------

struct amos_mean { // of a measure, each sample counting once
	double sum;
	int64_t samples;
};
struct amos_held { // an evaluation of what is held out
	int64_t step;
	double loss, accuracy; // INFINITY, NAN: there was none
};
struct amos_position {                       // where a training stands
	int64_t step;                        // updates made
	int64_t run;                         // batches used
	int64_t owing;                       // 1: the evaluation of this step was interrupted
	struct amos_held held, best;         // the last evaluation, and that of the least loss
	struct amos_mean losses, accuracies; // since the last line of the log
};
// Whole to a temporary name, synced, renamed: a crash leaves the old file or the new one.
// `identity` is of what is trained, lines of text.
int amos_save(const struct amos *, const char *path, const struct amos_position *,
              const char *identity);

struct amos_checkpoint; // one file
// A file, or a run folder: its best.ckpt, or with `last` its last.ckpt.
int amos_checkpoint_open(const char *path, bool last, struct amos_checkpoint **);
void amos_checkpoint_close(struct amos_checkpoint *);
// Puts it into the model, all or nothing: AMOS_INPUT names the first slot that does not fit.
int amos_checkpoint_load(const struct amos_checkpoint *, struct amos *);
struct amos_position amos_checkpoint_point(const struct amos_checkpoint *);
const char *amos_checkpoint_identity(const struct amos_checkpoint *);
int64_t amos_checkpoint_slots(const struct amos_checkpoint *);
// Slot i as an array; `kind` (may be NULL) as in amos_slot. Its bytes stay the checkpoint's.
struct amos_array amos_checkpoint_slot(const struct amos_checkpoint *, int64_t i, int *kind);

// ---- train.c, evaluate.c: the loop, the run folder -----------------------------------

struct amos_constant { // an answer that does not depend on the sample; NAN: not known
	double loss, accuracy;
	double model; // the loss of the model that is compared with it
};
struct amos_result {
	int64_t step;
	double loss, accuracy;           // of the last line of the log; NAN: none
	double eval_loss, eval_accuracy; // of the last evaluation; NAN: none
	int64_t eval_samples;            // that it went through
	struct amos_held best;           // of the least loss on what is held out
	struct amos_constant constant;   // the best one, where the model is no better; else NAN
	double seconds;
	int stopped; // by an interrupt
};
// Trains until --steps or --epochs are done or an interrupt stops it (which is AMOS_DONE), in the
// folder options.out (or options.resume): log.jsonl, TensorBoard events, last.ckpt, best.ckpt,
// command.json. Progress to stderr. A folder that is not new and not empty is AMOS_INPUT, but with
// options.overwrite that of a run. With options.resume the model goes on from its last.ckpt, which
// must be of this model, command, target and data. A loss that is not a number is AMOS_INPUT.
int amos_train(struct amos *, struct amos_data *, const struct amos_options *,
               struct amos_result *);
// AMOS_INPUT where a new run may not begin in `dir`.
int amos_folder_free(const char *dir, bool overwrite);
// Means of loss and accuracy over amos_data_eval_samples() samples, but those for which no entry is
// small enough: eval takes a batch, eval:N takes N samples.
int amos_evaluate(struct amos *, const struct amos_data *, struct amos_result *);
// The command line that began the run in `dir`, for --resume. malloc'd, one block.
int amos_command(const char *dir, int *argc, char ***argv);
// The comparison, for a warning: writes it to `to` and returns that.
const char *amos_constant_text(char *to, size_t room, const struct amos_constant *);
// Whether the run in `dir` has said, by the second, that it writes its trained model to `path`,
// whose folder does not count.
int amos_command_wrote(const char *dir, const char *path, bool *wrote);
int amos_command_writes(const char *dir, const char *path);
// As JSON, or a line a figure.
void amos_result_print(FILE *, const struct amos_result *, int json);

// ---- main.c: a compiled trainer as a command ------------------------------------------

// Writes what the entry left in the model's own buffers, by name. As amos_npz_write.
int amos_write_outs(const struct amos *, const struct amos_entry *, const char *path);
// train (default), eval, run, grad, export, info. Answers the exit status, once the words are
// understood: --help and words that are not end the program, as argp does.
int amos_main(const struct amos_model *, int argc, char **argv);

#endif
