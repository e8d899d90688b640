// runtime.h: declares the runtime to the command: instances of models, their entries, options,
// data, checkpoints and the training loop. amos.h is what other programs need of it.
//
// Errors: functions returning int return AMOS_DONE or an error code of common.h; amos_error() then
// describes the error and how to fix it. Nothing here exits, aborts or jumps, except where noted.
// Ownership: unless noted, a returned pointer is owned by the object passed in and valid until that
// object is closed. Strings passed in are not copied.
// Threads: an object is used by one thread at a time; amos_error() is per thread.
// Units: sizes are in bytes unless noted; arrays are row major; types are numbers of types.def.
#ifndef AMOS_RUNTIME_H
#define AMOS_RUNTIME_H
#ifdef __cplusplus
extern "C" {
#define _Noreturn [[noreturn]]
#endif
#include "common.h"
#include "core.h"

// For main(), before it opens any file: opens /dev/null for each closed standard descriptor, in the
// direction that makes any use an error, so that no file gets descriptors 0 to 2.
void amos_standard(void);
// For main(): installs signal handlers. SIGPIPE and SIGXFSZ are ignored, so the write fails with an
// error instead. SIGBUS (a mapped file was truncated) ends the program with a message and status 1;
// SIGINT, SIGTERM and SIGHUP with status 3, except during amos_train(), which stops gracefully.
// Temporary files are removed before the program ends.
void amos_signals(void);
// Ends the program at once: removes temporary files, writes `text` to standard error, exits with
// status 3. Async-signal-safe; allocates no memory.
_Noreturn void amos_interrupt(const char *text);
// For main(), at its end: returns `status`, or if that is 0 and standard output could not be
// written completely, reports that and returns 3.
int amos_end_output(int status);
// For main(), in libamos_main.a: if memory runs out, in any library, the program ends with a
// message that begins with `program` and status 3. Programs that link this get a malloc that never
// returns NULL.
void amos_memory_ends(const char *program);

enum { AMOS_ABSENT = -1, AMOS_LIST = 64 };

// ---- options.c: parses options.def into a struct --------------------------------------

struct amos_list {
	int count;
	const char *at[AMOS_LIST];
};
struct amos_options { // absent options: NULL, count 0, AMOS_ABSENT; flags 0
#define TYPE_text                                         const char *
#define TYPE_list                                         struct amos_list
#define TYPE_count                                        int64_t
#define TYPE_natural                                      int64_t
#define TYPE_number                                       double
#define TYPE_flag                                         int
#define OPTION(name, letter, group, type, argument, help) TYPE_##type name;
#include "options.def"
#undef OPTION
	int argc; // the command line as typed, for command.json; 0: none
	char **argv;
	bool fresh; // the model is as amos_open_slots() made it, so its weights need not be saved
};
struct amos_options amos_options(void); // returns options that are all absent
// Sets *last to true if --keep is "last", to false if it is "best" or absent. Else AMOS_USAGE.
int amos_keeps_last(const struct amos_options *, bool *last);
// Sets the option `name` (as in options.def, or with - for _) to `value`, which is not copied.
// AMOS_USAGE if the name is unknown or the value invalid.
int amos_option(struct amos_options *, const char *name, const char *value);

// Read the value of an option: an integer >= 0, one >= 1, or a number >= 0 that f32 holds.
// AMOS_USAGE if it is something else.
int amos_set_count(const char *name, const char *value, int64_t *to);
int amos_set_natural(const char *name, const char *value, int64_t *to);
int amos_set_number(const char *name, const char *value, double *to);

struct amos_option_row { // a row of options.def
	const char *name;
	int letter;
	unsigned group;
	const char *type, *argument, *help;
};
struct amos_command_line {
	const char *program, *arguments, *about; // as --help prints them
	int least, most;                         // number of arguments
	int rows;
	const struct amos_option_row *row;
	unsigned takes; // groups of options
	void *context;
	// NULL: that of the row. It returns NULL for an option that --help leaves out.
	const char *(*help)(void *context, int row);
	// Take an option or an argument. If the value is invalid, amos_error() says why.
	int (*option)(void *context, int row, const char *value);
	void (*argument)(void *context, const char *value);
};
// Parses the words after argv[0]. Ends the program after --help, and on a usage error with
// AMOS_USAGE.
void amos_parse(const struct amos_command_line *, int argc, char **argv);

// ---- cpu.c, device.c, give_back.c, pool.c: instances in this process; see core.h -----------

// Opens a compiled model: allocates its memory and fills every slot but the inputs from
// amos_slot.init, else from init(context, slot) (row major, of the slot's type; NULL: zeros).
// `init` may be NULL. `seed` is stored in the slot amos.seed. threads 0: all cores this process may
// use. AMOS_MACHINE: out of memory; AMOS_INPUT: compiled for another ABI version or CPU.
int amos_open_slots(const struct amos_model *, int64_t threads, int64_t seed,
                    const void *(*init)(void *context, int64_t slot), void *context,
                    struct amos **);
// Fails if this machine has no such device: AMOS_INPUT, or AMOS_MACHINE with what is missing.
int amos_device_check(const char *device);
// Returns how many threads a model has that is opened with `threads`, if more than one helps.
int64_t amos_threads(int64_t threads);
// After an error: waits for a call that amos_begin() started and amos_end() will not end.
int amos_settle(struct amos *);
void amos_rest(struct amos *); // gives scratch memory back to the system until the next call
// Returns the bytes of memory that the process uses at the moment without the model's blocks: code,
// libraries, data, stacks.
int64_t amos_process_memory(const struct amos *);
void amos_give_back(void); // gives other memory of the process back that is not in use

double amos_now(void); // seconds, of a clock that never goes back

// ---- data.c, source.c, bind.c, attach.c, measure.c, batch.c: batches out of files -----

struct amos_data {     // open data
	int64_t batch; // samples per batch; may be set for the model that is bound or attached next
	char *note;    // the choices made, one per line; "" before amos_data_attach()
	char *read;    // of `note`, what the user of one batch or an evaluation has to know
	char *unused;  // what amos_data_take() found unused, one line per file; may be ""

	// private
	int nsources, nfiles, nfeeds;
	size_t source_room, file_room;
	struct amos_source *sources;
	struct amos_opened *files;
	struct amos_feed *feeds;
	int exact;
	int64_t seed, mask_token;
	double split, mask;
	bool stream;
	int64_t window;  // tokens per sample of a stream; else 1
	int64_t counted; // samples in the first array that is not constant; -1: all are constant
	int64_t length;  // tokens or samples in all
	int64_t train;   // length of the training part, which comes first
	int64_t ahead;   // tokens that a stream is read past each window
	int64_t threads; // that decode images
	int64_t decoded; // bytes of images that are decoded once, at the start
};

struct amos_input { // an input as the model declares it
	const char *name;
	int type; // types.def
	int rank;
	int64_t dim[10];      // -1: open
	const char *axis[10]; // name of an open axis, or NULL; equal names, equal sizes
	bool counts;          // axis 0 counts samples, if it is the batch
};

// Opens the sources of --data. If `exact` (run, grad), the arrays are one batch in the inputs'
// exact shapes. Otherwise axis 0 of an input is the batch; its elements are samples (along axis 0
// of the array) or windows (of a token stream).
int amos_data_open(const struct amos_options *, int exact, struct amos_data **);
void amos_data_close(struct amos_data *);
// Sets open dimensions (-1): the batch from --batch (default: 32, or the number of samples if
// fewer), others from the arrays. Dimensions that no array gives stay -1. AMOS_INPUT: the data do
// not match the declared shapes.
int amos_data_bind(struct amos_data *, int n, struct amos_input *);
// Returns the array of source `k` (from 0), one batch as stored in its file, and sets *input to the
// input it is for. NULL if the source is not a plain array; *input is NULL after the last source.
const struct amos_array *amos_data_array(const struct amos_data *, int k, const char **input);
// Marks the arrays that these inputs of the model use. AMOS_INPUT: the name of an unused array
// equals that of an input without data, except for case and punctuation.
int amos_data_take(struct amos_data *, int n, const char *const *inputs);
// Converts the array of the source for `input` to `type` and writes it to `to`. AMOS_INPUT if the
// type cannot hold a value.
int amos_data_values(const struct amos_data *, const char *input, int type, void *to);
// Attaches sources to the inputs of a compiled model and checks every value: type, shape, [0,
// limit), no NaN (NaN is allowed if the data were opened as exact). Inputs that an entry in
// `entries` (names, NULL-terminated) reads need data; other inputs may lack them.
int amos_data_attach(struct amos_data *, const struct amos_model *, const char *const *entries);

// Returns the number of batches in one epoch of the training part, and of samples (windows) held
// out. Call after amos_data_bind() or amos_data_attach().
int64_t amos_data_batches(const struct amos_data *);
int64_t amos_data_held_out(const struct amos_data *);
// Fails if the training part has less than one batch, or the held-out part less than one sample.
// AMOS_INPUT.
int amos_data_check_size(const struct amos_data *);
// Returns N for xi: the training batches of one epoch, divided by the masked fraction if masked()
// draws the labels.
double amos_data_independent_batches(const struct amos_data *);
// Returns the expected number of labels among `elements` elements of the input `name`: the masked
// fraction under masked(); for an array, the fraction that differs from `ignore` (0: all of them).
double amos_data_labels(const struct amos_data *, const char *name, int64_t elements,
                        int64_t ignore);
// Returns the root mean square of the training data of the float input `name`, over at most 2^20
// elements, sampled evenly. NAN if it has no data.
double amos_data_rms(const struct amos_data *, const char *name);

// Fill the inputs' buffers. Call after amos_data_attach(). Batch `run` of training is a function of
// (seed, run) alone. Evaluation reads the held-out samples in order, or all samples if none are
// held out: `samples` rows, starting at sample `from`.
int amos_data_train(const struct amos_data *, struct amos *, int64_t run);
int amos_data_eval(const struct amos_data *, struct amos *, int64_t from, int64_t samples);
int64_t amos_data_eval_samples(const struct amos_data *);
// Writes the vocabulary of each text source that has one to DIR/NAME.vocab.
int amos_data_write_vocab(const struct amos_data *, const char *dir);

// ---- array.c, npz.c, format.c: arrays in files -----------------------------------------

struct amos_blob { // bytes of a file, mapped, or read if a pipe or compressed
	unsigned char *at;
	size_t count;
	bool mapped; // else allocated
};
struct amos_array {
	const char *name;
	int type, rank; // types.def
	int64_t dim[10];
	const void *bytes;    // row major, little endian
	struct amos_blob own; // private to the runtime
};
// Writes to a temporary file, then renames it. bf16 is stored as f32.
int amos_npz_write(const char *path, int64_t n, const struct amos_array *);
// True unless the name ends as files of another format do.
bool amos_npz_named(const char *path);
int amos_npz_read(const char *path, int64_t *n, struct amos_array **);
void amos_npz_free(int64_t n, struct amos_array *);

// ---- ckpt.c: checkpoints in files; see core.h ------------------------------------------

// Saves a checkpoint: writes a temporary file, syncs and renames it, so a crash leaves the old file
// or the new one. `identity`: lines of amos_identity() about what is trained.
int amos_checkpoint_save(const struct amos *, const char *path, const struct amos_position *,
                         const char *identity);
// The same for a model as amos_open_slots() made it: its weights and state are not written, but the
// disk must have room for them.
int amos_checkpoint_save_start(const struct amos *, const char *path, const struct amos_position *,
                               const char *identity);

struct amos_checkpoint { // an open checkpoint file
	char *path, *identity;
	struct amos_image image; // of the file
	int64_t count;
	struct amos_saved { // a slot; the array's bytes belong to the checkpoint
		struct amos_array array;
		int kind;
	} * slots;
	struct amos_blob file; // private to the runtime
};
// Opens a checkpoint file, or of a run directory best.ckpt (with `last`, or if there is none,
// last.ckpt).
int amos_checkpoint_open(const char *path, bool last, struct amos_checkpoint **);
void amos_checkpoint_close(struct amos_checkpoint *); // NULL is allowed
// Loads it into the model, all or nothing; one of the start leaves the model as amos_open_slots()
// made it. AMOS_INPUT: names the first slot that does not match.
int amos_checkpoint_load(const struct amos_checkpoint *, struct amos *);

// ---- train.c, evaluate.c, constant.c, folder.c, command.c, log.c: the loop, the run directory

struct amos_constant { // a prediction independent of the sample; NAN: unknown
	double loss, accuracy;
	double model; // the model's loss, for comparison
};
struct amos_result {
	int64_t step;
	double loss, accuracy;           // last line of the log; NAN: none
	double eval_loss, eval_accuracy; // last evaluation; NAN: none
	int64_t eval_samples;            // samples evaluated
	struct amos_held best;           // lowest held-out loss
	struct amos_constant constant;   // the best one, if the model is no better; else NAN
	double seconds;
	int stopped;   // 1: stopped by a signal
	int impatient; // 1: ended by --patience
	int zero;      // 1: the loss was 0 in every batch
};
// Trains until --steps or --epochs are done or a signal stops it (still AMOS_DONE), in the
// directory options.out (or options.resume), which gets log.jsonl, TensorBoard events, last.ckpt,
// best.ckpt and command.json. Progress goes to standard error. With options.resume, training
// continues from last.ckpt. AMOS_INPUT: the directory is not empty (with options.overwrite: and not
// a run), the checkpoint is of another model, command, target or data, or a loss is not finite.
int amos_train(struct amos *, struct amos_data *, const struct amos_options *,
               struct amos_result *);
// Fails with AMOS_INPUT if a new run may not use the directory `dir`.
int amos_folder_free(const char *dir, bool overwrite);
// Computes mean loss and accuracy over amos_data_eval_samples() samples in order. Entry eval takes
// a batch, eval:N takes N samples; a remainder too small for any entry is left out. Sets `step` and
// eval_* of the result; all else is none. Fails if the loss is not finite, unless `finite` is
// given: then that becomes false, and amos_error() says why.
int amos_evaluate_data(struct amos *, const struct amos_data *, bool *finite, struct amos_result *);
// Computes the outputs of amos_data_eval_samples() samples in order, a batch at a time, and sets
// to[i] to those of output i, one after another; NULL: it is auxiliary. Fails if an output has no
// row per sample. amos_outputs_free() frees them, of a failure too.
int amos_run_data(struct amos *, const struct amos_data *, const struct amos_entry *, char ***to);
void amos_outputs_free(const struct amos_entry *, char **);
// Returns the command line that started the run in `dir`, for --resume: one block, to be freed by
// the caller.
int amos_command(const char *dir, int *argc, char ***argv);
struct amos_bytes_text {
	char text[24];
};
// Returns a number of bytes as text, such as 3.2 MiB.
struct amos_bytes_text amos_bytes_text(double bytes);
// Writes a warning to `to` if the model is no better than a constant prediction or the loss was
// always 0. Returns false if there is none.
bool amos_training_warning(char *to, size_t room, const struct amos_result *);
// amos_command_writes() records in command.json that the run in `dir` writes its trained model to
// `path`; amos_command_wrote() sets *wrote if it has. The directory part of `path` is ignored.
int amos_command_wrote(const char *dir, const char *path, bool *wrote);
int amos_command_writes(const char *dir, const char *path);

// ---- trained.c: the trained model of a run --------------------------------------------

bool amos_has_better(const struct amos_result *); // the best evaluation was before the last step
char *amos_trained_path(const char *dir); // DIR.onnx, to be freed by the caller; NULL: no memory
// Fails if a file that the run in `dir` did not write is at the path, unless `overwrite`. Sets
// *wrote to whether the run wrote one.
int amos_trained_check(const char *dir, const char *path, bool overwrite, bool *wrote);
// Loads the weights of the trained model after amos_train(): the best, or if `last`, none.
int amos_load_trained(struct amos *, const char *dir, const struct amos_result *, bool last);

#ifdef __cplusplus
#undef _Noreturn
}
#endif
#endif
