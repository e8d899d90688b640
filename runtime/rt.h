// rt.h: declares what the runtime's files share, private to the runtime.
#ifndef RT_H
#define RT_H
#include "number.h"
#include "runtime.h"
#include <stdbool.h>
#include <stddef.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define HELP         AMOS_HELP

// ---- convert.c: conversions between element types; see number.h ------------------------

// Converts n elements; results that are floats are divided by `divide`. Returns -1, or the index of
// the first value that `to_type` cannot hold: out of range, or, for an integer type, a fraction or
// NaN. All floats are written, but integers only up to that index.
int64_t amos_convert(void *to, int to_type, const void *from, int from_type, int64_t n,
                     double divide);
// True if every value of `from_type` is valid for `to_type` and, if `limit` is not 0, in [0,
// limit).
bool amos_attachable(int to_type, int from_type, int64_t limit);

// ---- array.c, inflate.c: bytes of files, arrays ----------------------------------------

// Makes room for `count` items of `item` bytes, or twice as many, at *at; false: out of memory.
bool amos_grow(void **at, size_t *room, size_t count, size_t item);

int amos_blob_open(const char *path, bool compressed, struct amos_blob *);
// The same for an open file, which it closes; -1: see errno.
int amos_blob_take(int file, const char *path, bool compressed, struct amos_blob *);
// Reads all of a compressed file and closes it; the caller frees the blob.
int amos_gunzip(int file, const char *path, struct amos_blob *);
// Decompresses the `count` bytes at `from`, of a zip file, to exactly the bytes of the blob.
int amos_inflate(struct amos_blob *, const void *from, uint64_t count, const char *where);
void amos_blob_free(struct amos_blob *);

// Moves the blob into the array, whose type, rank and dim are set; its elements begin at `offset`
// (copied if unaligned). If the array is longer than the blob, the caller still owns the blob.
// `where` names the file in messages.
int amos_array_take(struct amos_array *, const char *where, struct amos_blob *, size_t offset);
// The same, of elements that end where the blob does.
int amos_array_take_all(struct amos_array *, const char *where, struct amos_blob *, size_t offset);
void amos_array_free(struct amos_array *);
// Returns a copy of `text` as amos_visible() writes it; NULL: out of memory.
char *amos_escaped(const char *text, bool exact);
// Copies the elements, with their bytes reversed if `swap`, from column-major order if `fortran`.
int amos_array_reorder(struct amos_array *, const char *where, bool swap, bool fortran);

// ---- npy.c, npz.c, table.c, jsonl.c, safetensors.c: file formats; format.c: selects one -

struct amos_format { // a row of formats.def
	const char *npy, *safetensors;
	int idx;
};
extern const struct amos_format amos_formats[AMOS_TYPES];

struct amos_arrays {
	int64_t n;
	size_t room;
	struct amos_array *at;
	bool counting; // csv: the first line, read as numbers, is 0,1,2, ..., perhaps names
};
// array.c: appends an array without elements. Its name, `length` bytes at `name` (NULL: none), is
// escaped as in models. NULL: out of memory; amos_error() names `path`.
struct amos_array *amos_arrays_add(struct amos_arrays *, const char *path, const char *name,
                                   size_t length);
// Reads the arrays of a source (all but wrappers and text:): one, or all in FILE.npz or
// FILE.safetensors.
int amos_arrays_open(const char *source, struct amos_arrays *);
// The formats. They read the array `key`, or all if NULL; on failure, the caller frees the arrays
// that are there.
int amos_arrays_npz(const char *path, const char *key, struct amos_arrays *);
int amos_arrays_safetensors(const char *path, const char *key, struct amos_arrays *);
int amos_arrays_csv(const char *path, const char *columns, struct amos_arrays *);
int amos_arrays_jsonl(const char *path, const char *field, struct amos_arrays *);
// Reads an .npy file in memory.
int amos_array_npy(struct amos_array *, const char *where, struct amos_blob *);

// ---- walk.c, listing.c: files of a directory ------------------------------------------

typedef int amos_visit(void *context, const char *path);
// Calls visit() for the entries of a directory, in byte order of names, until it fails.
int amos_entries(const char *folder, amos_visit *visit, void *context);
// The same for a file, or for the files beneath a directory, that are not empty.
int amos_walk(const char *path, amos_visit *visit, void *context);
bool amos_is_folder(const char *path);
// True if a file beneath `root`, or a directory between them, is hidden. macOS stores attributes of
// a.png in ._a.png, which is no image; .git has no text.
bool amos_is_hidden(const char *root, const char *path);

struct amos_found { // a file
	char *path;
	int64_t label, rank; // its class, and its index among the files of that class
};
struct amos_listing { // the files beneath a directory whose names have one of some endings
	const char *root, *what;    // of the caller; what: the endings, in messages
	const char *const *endings; // NULL-terminated
	struct amos_found *at;
	size_t n, room;
	int64_t *sizes; // of the classes
	size_t classes, class_room;
	char *names;    // of the classes
	char *empty;    // a directory that would be a class, but has no such file; NULL: none
	int64_t others; // files with other endings
};
// Lists them. The classes are the directories directly beneath the root that have any, in order of
// name; a file without a class has the label -1. Hidden files are left out.
int amos_list(struct amos_listing *);
void amos_listing_free(struct amos_listing *);

// ---- wav.c, windows.c: recordings, and windows of them ---------------------------------

struct amos_recording {
	int64_t rows;  // of the array, along axis 0
	int64_t label; // index of its class; -1: none
};
struct amos_recordings { // the parts of an array that windows do not cross
	int64_t n;       // 0: the array is one part
	size_t room;
	struct amos_recording *at;
	int64_t rate, seconds; // samples per second; total length
	int64_t left_out;      // recordings shorter than a window
	char *classes;         // names, in order of their indices
};
// Reads PATH[:RATE], a WAV file or those of a directory, as samples.
int amos_wav_open(const char *source, struct amos_array *, struct amos_recordings *);
void amos_recordings_free(struct amos_recordings *);

// ---- images.c, resize.c, bitmap.c: images ----------------------------------------------

struct amos_bitmap { // a decoded image
	int64_t width, height;
	int channels;      // 1 to 4: gray or RGB, then alpha if it has any
	unsigned char *at; // [height, width, channels]; freed by the caller
};
// Decodes the PNG or JPEG file in the blob; if `header`, only its size. On failure, the caller
// frees the pixels, too.
int amos_bitmap_read(const char *path, const struct amos_blob *, bool header, struct amos_bitmap *);
// Fails; the linker puts it in the place of amos_bitmap_read() in trainers that get no images.
int amos_bitmap_refuse(const char *path, const struct amos_blob *, bool header,
                       struct amos_bitmap *);

struct amos_pixels {                     // of an image as an input takes it
	int64_t channels, height, width; // channels: 1 gray, 3 RGB, 4 RGBA
	bool last; // [height, width, channels]; else [channels, height, width]
};
// Writes the image in that form to `to`. May replace the pixels of the bitmap.
int amos_bitmap_fit(const char *path, struct amos_bitmap *, const struct amos_pixels *,
                    unsigned char *to);

struct amos_images; // the files of a source, open
struct amos_opened;
struct amos_source;
struct amos_feed;
// Lists PATH[:HEIGHTxWIDTH], an image or those of a directory. They are decoded by `threads`
// threads.
int amos_images_open(const char *source, int64_t threads, struct amos_opened *);
void amos_images_free(struct amos_images *); // NULL is allowed
// Fails unless each image has a class, and each directory that would be a class has images.
int amos_images_check_classes(const struct amos_images *);
// Makes the array of the source, of bytes in the shape of the input but for axis 0, which counts
// images. It has no elements if these are more than data->decoded bytes. Does nothing if it is made
// already.
int amos_images_fit(struct amos_data *, struct amos_source *, const struct amos_input *);
// Decodes `n` images of a feed whose array has no elements, those with the indices in `rows`, into
// the type of the input.
int amos_images_fill(const struct amos_data *, const struct amos_feed *, int64_t n,
                     const int64_t *rows, void *to);
// Adds what identifies these images to a hash: their names, sizes, and of 4096 the first 16 KiB.
uint64_t amos_images_hash(const struct amos_images *, uint64_t hash);
// Appends what was read, in lines that begin with "data: NAME: ".
void amos_images_describe(const struct amos_data *, const struct amos_source *, char **text);

// ---- text.c: bytes as tokens ----------------------------------------------------------

struct amos_vocabulary {
	int count;               // 0: none, a byte is its own token
	unsigned char byte[256]; // by token
};
// Reads a file, or the files of a directory in order of name, as tokens. `vocabulary`: a file,
// "auto" (the distinct bytes in order), or NULL.
int amos_text_open(const char *path, const char *vocabulary, struct amos_array *,
                   struct amos_vocabulary *);
int amos_vocabulary_write(const struct amos_vocabulary *, const char *path);

// ---- pool.c: threads -------------------------------------------------------------------

int64_t amos_nanoseconds(void);

struct amos_pool;
// Creates a pool of `threads` threads including the caller's, or as many as the system starts.
// Thread i uses the `bytes` bytes at local + i * bytes as local memory. NULL: out of memory.
struct amos_pool *amos_pool_open(int64_t threads, char *local, int64_t bytes);
void amos_pool_close(struct amos_pool *); // NULL is allowed
int64_t amos_pool_threads(const struct amos_pool *);
struct amos_part { // of a launch: when a thread ran workers, in nanoseconds
	int64_t begin, end;
};
// Runs the kernel's workers, with the local memory of the thread. Allocates nothing. Sets parts[i]
// if thread i ran any; `parts` may be NULL.
void amos_pool_launch(struct amos_pool *, const struct amos_kernel *, char *const *buf,
                      struct amos_part *parts);

// ---- events.c, log.c: logs in the run directory ---------------------------------------

#define AMOS_EVENTS "events.out.tfevents."
// Creates the event file of a run, or if `resumed`, opens the existing one and cuts off events
// after `step`. NULL: see errno.
FILE *amos_events_open(const char *dir, bool resumed, int64_t step);
// Opens a log. An existing one of a `resumed` run is cut off after its records up to `step`;
// next_step() reads a record and returns its step, or -1 at the end or a torn record. NULL: see
// errno.
FILE *amos_log_file(const char *path, bool resumed, int64_t step, int64_t next_step(FILE *));
void amos_event(FILE *, const char *tag, int64_t step, double number);

struct amos_log {
	char *path;
	FILE *lines, *events;
	double start, flushed, reported;
	int pending; // lines in the buffer
	bool quiet, terminal, progress;
	bool shown; // an unfinished progress line is on the terminal
};
struct amos_figure {
	const char *name;
	double value; // not finite: omitted
};
int amos_log_open(struct amos_log *, const char *dir, int64_t step, const struct amos_options *);
int amos_log_line(struct amos_log *, int64_t step, int n, const struct amos_figure *);
int amos_log_sync(struct amos_log *);              // also syncs to the disk
int amos_log_close(struct amos_log *, int status); // returns `status`, or that of the last flush
void amos_progress(struct amos_log *, int64_t step, int64_t steps, double loss, double rate,
                   const char *unit, double left, bool last);
void amos_say(struct amos_log *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- command.c: command.json, the command line of a run --------------------------------

int amos_command_found(const char *dir, bool *found); // sets *found if the directory has one
int amos_command_keep(const char *dir, const struct amos_model *, const struct amos_options *);

// ---- evaluate.c, train.c, signals.c, constant.c: the training loop ---------------------

// Adds the output of that name of the entry, itself a mean whose weight is the output "count:NAME",
// else `samples`; does nothing if there is none.
void amos_mean_add(struct amos_mean *, const struct amos *, const struct amos_entry *,
                   const char *out, int64_t samples);
double amos_mean(const struct amos_mean *); // NAN: no samples, or a value was NaN

// train.c. As amos_train(); if `training` is not NULL, as amos_fit(): continues from the instance's
// step, catches no signals, and without options.out or options.resume has no run directory.
int amos_train_as(struct amos *, struct amos_data *, const struct amos_options *,
                  const struct amos_training *training, struct amos_result *);

// signals.c: between these two calls, the first signal asks all trainings to stop. Several threads
// may train at once.
void amos_catch_interrupts(void);
void amos_release_interrupts(void);
bool amos_stopping(void); // true if a signal requested a stop
// constant.c: computes the best constant prediction for the evaluated samples: the labels'
// frequencies, or the targets' means. All NAN if the model does not name its labels or there are
// too few.
int amos_constant(struct amos *, const struct amos_data *, struct amos_constant *);

// ---- finite.c: why the first loss is not finite ----------------------------------------

struct amos_flaw {
	int64_t slot, at; // and element; -1: none
	double number;
};
extern const struct amos_flaw amos_no_flaw;
// Returns the first element of a parameter that is not finite, or of another weight that is NaN:
// masks may be infinite.
struct amos_flaw amos_weight_flaw(const struct amos *);
struct amos_batch; // batch.c
struct amos_problem {
	char text[1024]; // up to the words "the loss is"
	const char *help;
};
// Explains why the loss of the batch that lies in the inputs is not finite: by the flaw or by a
// sample, else without a cause and with the help that is given.
struct amos_problem amos_explain_loss(const struct amos *, const struct amos_data *,
                                      const struct amos_batch *, const struct amos_flaw *,
                                      const char *help);
#define AMOS_LOSS_HELP                                                                             \
	"look for very large values in the data, log(0) and 0/0 in the model, bce of numbers "     \
	"outside 0 to 1 and, in f16, values above 65504"

// ---- identity.c, folder.c: identity and directory of a run ----------------------------

// Returns the identity of a run, to be freed by the caller; NULL: out of memory. Call after
// amos_data_attach().
char *amos_identity(const struct amos *, const struct amos_data *);
// Fails if two identities differ, naming the first difference; the message begins with `run`.
int amos_identity_check(const char *run, const char *expected, const char *found);
// Fails if a file of the run is a pipe or another that is not regular: it would be waited for.
int amos_folder_check(const char *dir);
// Opens the run directory: creates it, removes another run from it (--overwrite), or keeps it
// (--resume). The directory is locked while the descriptor *folder is open; it may be open (not -1)
// even if the call fails.
int amos_folder_open(const char *dir, const struct amos_options *, int *folder);

// ---- source.c, windows.c: sources of --data --------------------------------------------

struct amos_opened { // one array of a file
	char *text;  // as typed
	struct amos_array array;
	struct amos_vocabulary vocabulary;
	struct amos_recordings recordings;
	struct amos_images *images; // NULL: none; then `array` has only their number
	bool token;                 // text: bytes are tokens, not divided by 255
	bool wave;                  // wav: may be padded with silence
	bool cut;                   // by windows()
	bool counting;              // as of struct amos_arrays
};
// Cuts the array of `from` into windows of `size` elements along axis 0, one every `step`.
int amos_windows_cut(const struct amos_opened *from, int64_t size, int64_t step,
                     struct amos_opened *to);
// Makes the array of the class of each element of `from` along axis 0.
int amos_classes(const struct amos_opened *from, struct amos_opened *to);
struct amos_source {
	char *name;   // input name
	int file;     // index into amos_data.files
	int shift;    // number of tokens ahead
	int fill;     // 0 or 1: a constant array; AMOS_ABSENT: a file
	bool masked;  // labels of a masked language model
	bool raw;     // u8 is not divided by 255 for float inputs
	bool by_name; // from FILE.npz: may be unused
	bool taken;   // the model has that input
	bool counts;  // axis 0 of the input counts samples, if it is the batch
	// Of images:
	struct amos_array array; // without elements if they are decoded batch by batch
	struct amos_pixels pixels;
	double mean_square; // of a sample of the training data, if the array has no elements
};
// Opens the sources of --data in `data`.
int amos_sources_open(struct amos_data *, const struct amos_list *);
void amos_sources_close(struct amos_data *);
// Returns the source for an input; NULL: none.
const struct amos_source *amos_source_of(const struct amos_data *, const char *input);

uint64_t amos_mix(uint64_t); // batch.c: splitmix64's increment and finalizer

// ---- data.c, bind.c, attach.c, measure.c, batch.c, evaluate.c -------------------------

struct amos_feed { // an input of the compiled model and its source
	int64_t slot;
	const struct amos_slot *to;
	const struct amos_source *source;
	const struct amos_array *from; // NULL: constant source->fill
	int64_t per;                   // elements per sample
	bool stream;                   // windows of a stream of tokens
	bool constant;                 // the same in every batch
	bool hidden;                   // tokens, some of them masked
	double divide;
};

// Returns the array of a source; NULL if it is not a file.
const struct amos_array *amos_source_array(const struct amos_data *, const struct amos_source *);
// Sets open dimensions (-1) of the inputs, chooses the batch and counts samples: all of
// amos_data_bind() if the data are not exact. Fixed dimensions stay.
int amos_data_lay_out(struct amos_data *, int n, struct amos_input *);
struct amos_batch {
	bool train;
	int64_t number;  // evaluation: index of its first sample
	int64_t samples; // in it
};
// Returns the sample, or the first token, that a row of a batch comes from.
int64_t amos_data_row(const struct amos_data *, const struct amos_batch *, int64_t row);
// True if an array of its input's exact shape is the same in every batch (masks, edges), so that
// its axis 0 does not count samples; if all arrays have their input's shape, they form one batch.
bool amos_is_constant(const struct amos_data *, const struct amos_source *, int rank,
                      const int64_t *dim, const struct amos_array *);
// Returns what follows a number of samples: "sample", "samples", or of a stream, "window",
// "windows".
const char *amos_unit(const struct amos_data *, int64_t n);
// Returns the number of samples that evaluation omits: those after the last batch, too few for any
// entry.
int64_t amos_data_left(const struct amos_data *, const struct amos_model *);
// Appends formatted text to *text, which is allocated. If memory runs out, *text is freed and NULL
// from then on: an open_memstream() would lose a part of the text without an error.
void amos_append(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void amos_list_name(char *list, size_t room, const char *name); // appends to "a, b"
int amos_shape_mismatch(const struct amos_source *, const struct amos_input *,
                        const struct amos_array *, const char *help);
// Returns the divisor of a source's values for an input of type class `class`: 255 for the bytes of
// a float input, unless they are tokens or raw(); else 1.
double amos_divisor(const struct amos_data *, const struct amos_source *, char class);

#endif
