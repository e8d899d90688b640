// rt.h: what the runtime's files share and nobody else sees.
#ifndef RT_H
#define RT_H
#include "amos.h"
#include <stdbool.h>
#include <stddef.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- numbers.c: element types, random numbers ------------------------------------------

enum { // types.def
#define T(name, ctype, bytes, cls, onnx) AMOS_##name,
#include "types.def"
#undef T
	AMOS_TYPES
};
struct amos_type {
	const char *name;
	int bytes;
	char class; // f i u b
};
extern const struct amos_type amos_types[AMOS_TYPES];

uint64_t amos_mix(uint64_t);                                 // splitmix64's increment and finalizer
uint64_t amos_random(uint64_t seed, uint64_t a, uint64_t b); // a counter function

// ---- convert.c: elements of one type as another ---------------------------------------

// n elements, divided by `divide` on the way to floats. -1, or the first that does not fit: out of
// the type's range, a fraction that should be an integer, a NaN likewise. Floats are written all
// the same, of integers those before it.
int64_t amos_convert(void *to, int to_type, const void *from, int from_type, int64_t n,
                     double divide);
int64_t amos_first_nan(const void *at, int type, int64_t n); // -1: none of n elements is
// Every value of one type is a value of the other and, with a limit, in [0, limit).
bool amos_attachable(int to_type, int from_type, int64_t limit);
// The first of n integers that is neither in [0, limit) nor `ignore` (0: none); -1.
int64_t amos_outside(const void *at, int type, int64_t n, int64_t limit, int64_t ignore);

// ---- array.c: bytes of files, arrays --------------------------------------------------

struct amos_blob { // bytes of a file: mapped, or read where it is a pipe or compressed
	const unsigned char *at;
	size_t count;
	void *base;    // to be freed, or unmapped
	size_t mapped; // bytes mapped; 0: base is from malloc
};
int amos_blob_open(const char *path, bool compressed, struct amos_blob *);
void amos_blob_free(struct amos_blob *);

// Writes f32[2,?] to `to` and answers it; a dimension below 0 is a question mark.
const char *amos_shape_text(char *to, size_t room, int type, int rank, const int64_t *dim);
int64_t amos_count(int rank, const int64_t *dim); // elements; -1: more than memory can address
// The array takes the blob over, its elements beginning at `offset` (copied where they lie
// unaligned). type, rank and dim are set. On failure the blob is still the caller's. `where` names
// the file.
int amos_array_take(struct amos_array *, const char *where, struct amos_blob *, size_t offset);
void amos_array_free(struct amos_array *);
// The name of an array as models have it (visible.c), in the place of `name`, which it may free.
char *amos_array_name(char *name);
// Turns the bytes of each element round, in memory of the array's own.
int amos_array_swap(struct amos_array *, const char *where);

// ---- npy.c, npz.c, table.c, safetensors.c; format.c: one over all ----------------------

// Takes the blob, always.
int amos_array_npy(struct amos_array *, const char *where, struct amos_blob *);
// The arrays of a source of the data table (all but the wrappers and text:): one, or for FILE.npz
// and FILE.safetensors all that it holds.
int amos_arrays_open(const char *source, int64_t *n, struct amos_array **);
int amos_arrays_safetensors(const char *path, const char *key, int64_t *n, struct amos_array **);
int amos_array_csv(const char *path, const char *columns, struct amos_array *);
int amos_array_jsonl(const char *path, const char *field, struct amos_array *);
// key NULL: all.
int amos_npz_open(const char *path, const char *key, int64_t *n, struct amos_array **);

// ---- text.c: bytes as tokens ----------------------------------------------------------

struct amos_vocabulary {
	int count;               // 0: none, a byte is its own token
	unsigned char byte[256]; // by token
};
// PATH is a file, or a folder whose files follow each other by name; VOCABULARY a file, "auto" (the
// distinct bytes in order), or NULL.
int amos_text_open(const char *path, const char *vocabulary, struct amos_array *,
                   struct amos_vocabulary *);
int amos_vocabulary_write(const struct amos_vocabulary *, const char *path);

// ---- features.c ------------------------------------------------------------------------

int amos_check_cpu(const struct amos_model *); // fails where this CPU lacks what the code may use

// ---- pool.c: threads -------------------------------------------------------------------

int64_t amos_nanoseconds(void);

struct amos_pool;
// The caller's thread and others that wait for work, `threads` in all, or as many as the machine
// starts. Thread i has `pad` bytes at pads + i * pad. NULL: out of memory.
struct amos_pool *amos_pool_open(int64_t threads, char *pads, int64_t pad);
void amos_pool_close(struct amos_pool *); // NULL is allowed
int64_t amos_pool_threads(const struct amos_pool *);
// Launches lie between begin and end, in which the threads do not sleep. They take no memory.
void amos_pool_begin(struct amos_pool *);
void amos_pool_end(struct amos_pool *);
void amos_pool_launch(struct amos_pool *, amos_worker *, char *const *buf, int64_t n);

// ---- cpu.c: the blocks of a model -----------------------------------------------------

const void *amos_params(const struct amos *);
const void *amos_state(const struct amos *);

// ---- events.c, log.c: the run folder --------------------------------------------------

#define AMOS_EVENTS "events.out.tfevents."
// A new file, or with `resumed` that of the run without what comes after `step`. NULL: errno tells.
FILE *amos_events_open(const char *dir, bool resumed, int64_t step);
void amos_event(FILE *, const char *tag, int64_t step, double number);

struct amos_log {
	char *path;
	FILE *lines, *events;
	double start, flushed, told;
	bool quiet, terminal, progress;
	bool shown; // an unfinished line of progress stands on the terminal
};
struct amos_figure {
	const char *name;
	double value; // not finite: left out
};
double amos_now(void); // seconds
int amos_log_open(struct amos_log *, const char *dir, int64_t step, const struct amos_options *);
int amos_log_line(struct amos_log *, int64_t step, int n, const struct amos_figure *);
int amos_log_flush(struct amos_log *);             // to the file; else twice a second
int amos_log_sync(struct amos_log *);              // to the disk
int amos_log_close(struct amos_log *, int status); // `status`, or that of writing what is left
void amos_progress(struct amos_log *, int64_t step, int64_t steps, double loss, double rate,
                   const char *unit, double left, bool last);
void amos_say(struct amos_log *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int amos_command_found(const char *dir, bool *found); // Is there a command.json of a run?
int amos_command_keep(const char *dir, const struct amos_model *, const struct amos_options *);

// ---- evaluate.c, train.c --------------------------------------------------------------

// Adds the entry's out of that name, itself a mean over so many; nothing where it has none.
void amos_mean_add(struct amos_mean *, const struct amos *, const struct amos_entry *,
                   const char *out, int64_t samples);
double amos_mean(const struct amos_mean *); // NAN: of none, or of what is no number

bool amos_stopping(void); // an interrupt wishes the training to stop
// Finds the best constant answer to the samples that are evaluated: the labels' frequencies, or
// the targets' means. Nothing where the model does not name its labels, or they are too few.
int amos_constant(struct amos *, const struct amos_data *, struct amos_constant *);

// ---- identity.c, folder.c: what a run is of, and where it lies ------------------------

// Lines "NAME\tVALUE\n", malloc'd; NULL: out of memory. After fit.
char *amos_identity(const struct amos *, const struct amos_data *);
// Fails where they differ, by the first difference. `run` is what the message begins with.
int amos_identity_check(const char *run, const char *expected, const char *found);
// The folder, made, or emptied of another run with --overwrite, or with --resume as it stands; and
// locked, as long as the descriptor is open (-1: it is not), even where the call fails.
int amos_folder_open(const char *dir, const struct amos_options *, int *folder);

// ---- source.c: what --data names ------------------------------------------------------

struct amos_opened { // an array of a file
	char *text;  // as given
	struct amos_array array;
	struct amos_vocabulary vocabulary;
	bool token; // text: bytes are tokens, no brightness
};
struct amos_source {
	char *name;   // of the input
	int file;     // number of the amos_opened
	int shift;    // tokens ahead
	int fill;     // 0, 1: this value everywhere; AMOS_ABSENT: a file
	bool masked;  // labels of a masked language model
	bool raw;     // u8 stays 0..255 in float inputs
	bool by_name; // came with FILE.npz: may be for no input
	bool taken;   // the model has that input
};
struct amos_sources {
	int count, nfiles;
	struct amos_source *at;
	struct amos_opened *files;
};
int amos_sources_open(struct amos_sources *, const struct amos_list *);
void amos_sources_close(struct amos_sources *);
// NULL: none.
const struct amos_source *amos_source_of(const struct amos_sources *, const char *input);

// ---- data.c, bind.c, unused.c, attach.c, measure.c, batch.c, evaluate.c ------------------

struct amos_feed { // an input of the compiled model and where its numbers come from
	int64_t slot;
	const struct amos_slot *to;
	const struct amos_source *source;
	const struct amos_array *from; // NULL: source->fill everywhere
	int64_t per;                   // elements in a sample
	bool stream;                   // windows of a stream of tokens
	bool constant;                 // the same in every batch
	bool hidden;                   // tokens some of which are masked
	double divide;
};

struct amos_data {
	struct amos_sources sources;
	int exact;
	int64_t batch, seed, mask_token;
	double split, mask;
	int nfeeds;
	struct amos_feed *feeds;
	bool stream;
	int64_t window;  // tokens in a sample of a stream; else 1
	int64_t counted; // samples by the first array that is no constant; -1: none is
	int64_t length;  // tokens or samples in all
	int64_t train;   // of those, the first ones are to train on
	int64_t ahead;   // tokens a stream is read beyond a window
	char *note, *unused;
};

// Of a source; NULL: it is no file.
const struct amos_array *amos_source_array(const struct amos_data *, const struct amos_source *);
int64_t amos_data_units(const struct amos_data *, int64_t length); // windows or samples in it
// Counts in one more input: `length` tokens or samples, `window` elements a sample.
int amos_data_count(struct amos_data *, const struct amos_source *, bool first, bool stream,
                    int64_t length, int64_t window);
// Notes one more array and the shape (-1: of any size) of the input that it is for; all are noted
// before any is asked about.
void amos_data_note_array(struct amos_data *, int rank, const int64_t *dim,
                          const struct amos_array *);
// Is an array of just the shape of its input the same in every batch? Its first axis counts no
// samples: masks, edges; or all arrays are one batch as they stand, in their order.
bool amos_is_constant(const struct amos_data *, int rank, const int64_t *dim,
                      const struct amos_array *);
// Samples that evaluation leaves out: behind the last batch, and too few for any entry.
int64_t amos_data_left(const struct amos_data *, const struct amos_model *);
int amos_misfit(const struct amos_source *, const struct amos_input *, const struct amos_array *);
// What a source's numbers are divided by for an input of that class.
double amos_divisor(const struct amos_data *, const struct amos_source *, char class);
int64_t amos_data_tokens(const struct amos_data *); // in a batch; 0: no stream

#endif
