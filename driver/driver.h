// driver.h: declares the driver, which compiles a model file and options into a program.
// Each pass is a row of passes.def. Uses all layers below.
// Invariant: all state is in the Session; an error unwinds to the caller's catch.
#ifndef DRIVER_H
#define DRIVER_H
#include "runtime.h"
#include "emit.h"
#include "onnx.h"
#include "passes.h"
#include <jansson.h>

typedef enum Group { // groups of options, see options.def; a verb takes some
	COMMON = 1 << 0,
	READ = 1 << 1,
	LOSS = 1 << 2,
	ETA = 1 << 3,
	STEP = 1 << 4,
	DATA = 1 << 5,
	TARGET = 1 << 6,
	LOOP = 1 << 7,
	OUT = 1 << 8,
	SAMPLE = 1 << 9,
	WRT = 1 << 10,
	BUILD = 1 << 11,
	SHOW = 1 << 12,
	JSON = 1 << 13,
	SHAPE = 1 << 14,
	REPORT = 1 << 15,
	CHOOSE = 1 << 16,
	NORMS = 1 << 17,
	DROPS = 1 << 18,
	SPLIT = 1 << 19,
	MASK = 1 << 20,
	WORK = 1 << 21,
	DRAW = 1 << 22,
	KEEP = 1 << 23,
	CACHE = 1 << 24,
	TRACE = 1 << 25,
	PRECISION = 1 << 26,
	TUNE = 1 << 27,
	PEER = 1 << 28,
	MEMORY = 1 << 29,
	ROOFLINE = 1 << 30,
	SCALE = 1u << 31,
} Group;

typedef enum OptionName {
#define OPTION(name, ...) OPT_##name,
#include "settings.def"
#undef OPTION
	OPTIONS,
	OPT_NONE = OPTIONS
} OptionName;

extern const struct amos_option_row options[OPTIONS]; // settings.def

typedef struct Choice { // an option as given
	OptionName option;
	const char *value; // NULL for a switch
} Choice;

typedef enum Purpose { // what a model is read for; the first are enum amosc_purpose
	FOR_TRAINING,
	FOR_EVALUATION,
	FOR_OUTPUTS,
	FOR_GRADIENTS, // of the file's initializers, not of parameters
	FOR_REPORT,
	FOR_EXPORT,
} Purpose;

typedef struct Session {  // a model file, and the options that it is compiled by
	Arena *arena;     // freed at the end, which closes all that the session has opened
	Arena *work;      // of models and programs: graphs, plans, objects
	const char *name; // the command, in messages: amosc train
	Purpose purpose;
	const char *path, *other; // the model; a second file
	VEC(Choice) choices;      // in order
	int argc;                 // as typed
	char **argv;
	void (*listen)(void *listener, const char *text); // receives notes, in lines; may be NULL
	void *listener;
	Table *told;              // notes that were reported
	struct File *file;        // the parsed model; NULL: not read yet
	const char *loss_trouble; // an error in --loss, next to those of the model; NULL: none
	bool drawn;               // weights will be drawn, so running statistics do not fit them
	bool several;         // --bind may give a name several sizes, as batch_sizes() returns them
	bool several_targets; // --target may name several
} Session;

// ---- session.c: options as given ------------------------------------------------------

// Returns the arena of what is read and compiled, which may be freed before the session ends.
Arena *work_arena(Session *);
void free_work(Session *); // all models and programs

// Reports a note, each text only once.
void tell(const Session *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void bad_usage(const Session *, const char *what); // fails with STATUS_USAGE
int option_named(const char *name);                          // as in settings.def, or as typed; -1
char *long_name(Arena *, OptionName); // as typed after --: extra-l2 for extra_l2
bool chosen(const Session *, OptionName);
const char *choice(const Session *, OptionName, const char *otherwise); // the last one given
// Fails with STATUS_USAGE if the value is not of the type that the option has in the table.
void check_value(const Session *, const Choice *);
double choice_number(const Session *, OptionName, double otherwise);  // a number or part
int64_t choice_count(const Session *, OptionName, int64_t otherwise); // a count, natural or bytes
// Fails with STATUS_USAGE if unused.def says that an option has no effect in the verb. `takes`: the
// groups that the session takes; it needs no option of others.
void check_unused(const Session *, const char *verb, unsigned takes);

// ---- read.c: the model, with every dimension bound ------------------------------------

// Sets the limits of --limit. Called once, before a file is read.
void limit_cost(Session *);
typedef VEC(int64_t) Sizes;
// Returns the batch sizes in descending order if --bind gives several, else none.
Sizes batch_sizes(const Session *);
// Returns the model with every dimension bound, by --bind and by `data` (NULL: none). `random`: as
// in a training step, with --bn and --dropout. `samples`: the batch size, set in the data too; 0:
// --batch, or that of the data.
Model *read_bound(Session *, struct amos_data *, bool random, int64_t samples);
// Like read_bound, but dimensions of unknown size get placeholder sizes.
Model *read_standing(Session *, struct amos_data *, bool random);
// True if the file is a report, not a model: its name ends in .json, or it is standard input (-)
// and begins with an object.
bool is_report(const char *path);
typedef Model *ReadModel(Session *, const void *context);
// Returns the model that `read` returns. If it is invalid, returns NULL and sets *failure.
Model *attempt_read(Session *, ReadModel *read, const void *context, const char **failure);
Model *list_model(Session *); // inputs, outputs and operators as declared, without a graph
// Returns the model for one sample, with its other open dimensions `window` long.
Model *read_window(Session *, int64_t window);

// ---- configure.c: options as pass settings --------------------------------------------

struct amos_options runtime_options(const Session *); // the options of options.def
// Returns the data, open until the session ends; those of run and grad are one batch.
struct amos_data *open_data(Session *);
struct amos_data *open_given(Session *); // NULL without --data and --cotangent
// Reports the arrays of the data that no input of the graph, its loss or the file uses.
void note_unused(Session *, struct amos_data *, const Graph *);
// Returns the graph with its loss if --loss or the model has one, else the graph itself.
const Graph *with_loss(Session *, const Graph *);
// Returns the shape of each output's cotangent, of rank -1 if --cotangent has none for it. If the
// size of the output depends on the data, its cotangent has that size.
const Shape *cotangent_shapes(Session *, const struct amos_data *, const Graph *);
// Returns which slots get gradients, by --wrt; indexed by slot.
bool *wanted(Session *, const Graph *);
// Returns the optimizer; settings that were not given are derived from the size of the data and
// from the labels of the loss (NULL: unknown).
Opt optimizer(Session *, const Graph *loss, struct amos_data *);
int targets_of(const Session *, const Target *const **to); // as target_list() returns them
// Returns the first of them. Fails if there are more, unless the session may have several.
const Target *target_of(const Session *);
void refuse_threads(const Session *); // as an option that does nothing on a device
void need_host(const Session *);      // fails if --target is another machine

// ---- eta_options.c: --eta, --range, --slots, --convention -----------------------------

// Returns eta, indexed by slot, with these options and the ranges of `data` (NULL: none). Fills
// *scales unless NULL.
Eta *etas(Session *, const Graph *, struct amos_data *, Scales *scales);
typedef struct EtaValues { // an eta in JSON: a number, or nested lists of length 1 but for one axis
	int axis;
	int64_t count; // 1: one eta for all elements
	double *at;
} EtaValues;
bool eta_values(Arena *, const json_t *eta, EtaValues *); // false: it is something else
// Returns the part of the row's formula whose value is eta; of an eta that was edited, its number.
// `path` names the report in messages.
const char *eta_formula(Arena *, const char *path, const json_t *row, double eta);
// Returns a file that amosc eta --json wrote, with a list 'params', owned by the session.
json_t *load_report(Session *, const char *path);
// Returns eta, indexed by slot, of the graph of a report.
Eta *report_etas(Arena *, const Graph *, const json_t *report, const char *optimizer);

// ---- identity.c: what a run trains, as text --------------------------------------------

typedef struct Hashing Hashing; // of a model's content, in a thread of its own
Hashing *hash_begin(Session *, const Model *);
// Returns the model's content, the target, and the options that decide what is compiled.
const char *identity_of(Session *, Hashing *);
const char *identity_of_report(Session *, const json_t *); // of a program compiled from a report
// Returns the same for another target.
const char *identity_on(Session *, const char *identity, const Target *);
bool is_narrow(const Session *); // --precision names a type narrower than f32
// With the session's options; the model, and the reports if eta was inferred, are those of
// `before`.
const char *identity_renewed(Session *, const char *before, bool inferred);

// ---- json.c -----------------------------------------------------------------------------

enum { JSON_STYLE = JSON_INDENT(1) | JSON_REAL_PRECISION(9) }; // of all that amosc prints
json_t *keep_json(Session *, json_t *); // returns the value, then owned by the session
// Returns a string; if the text is not UTF-8, as amos_visible() writes it.
json_t *json_text(const char *);
json_t *shape_json(const Shape *);
typedef struct Readers {         // of a slot
	VEC(const char *) names; // of the nodes; several if the slot is tied
	const char *line;        // of the source program, for the first node that has one; or NULL
} Readers;
Readers *readers_of(Arena *, const Graph *);                // indexed by slot
json_t *others_json(const Readers *);                       // all but the first
const char *text_at(const json_t *object, const char *key); // "" if it has none
json_t *number_json(double);                                // null if it is not finite
json_t *untrained_json(const Model *); // {"percent", "weights": [{"name", "type", "shape", "why"}]}

// ---- report_json.c: the eta report ----------------------------------------------------

typedef struct Report {
	json_t *json;       // as --json prints it, but for a model's 'params': see full_report()
	int rows;           // number of 'params'
	const Graph *graph; // NULL: the report was read from a file, with its 'params'
	const int *slot;    // of each row
	const Eta *eta;     // indexed by slot, as are the readers
	const Readers *readers;
	Scales scales; // of the graph's values
} Report;

// Returns the report of a model, or one read from a file that --json wrote. Rows of a model are
// made when report_row() asks for them: a row as JSON takes several kilobytes.
Report make_report(Session *, const char *path);
json_t *report_row(const Report *, int row); // a new reference
bool is_sure(const Report *, int row);
Report full_report(Session *, const char *path); // the same, with all 'params' in its `json`

// ---- report_rows.c: parameters of a report ----------------------------------------------

// Fails if a row lacks what the treatment of its parameter follows from: an earlier version wrote
// it.
void check_structure(const json_t *row);
// Returns the row of a parameter in a report, or in a policy made from one; NULL: none.
const json_t *row_named(const json_t *report, const char *name);
Shape row_shape(const json_t *row);
// Returns what a row says about a parameter that decides how it is treated, with its pieces as
// parts.
Eta row_eta(Arena *, const json_t *row);
// Returns a graph of the parameters, in the order of the rows, with an output GRAD_OF NAME for
// each.
Graph *report_graph(Arena *, const char *path, const json_t *report);

typedef struct Memory { // an optimizer whose size of state is in the report
	const char *key, *optimizer;
	double momentum;
	bool unreduced;   // slots shaped as the parameters
	const char *with; // text after the optimizer's title
} Memory;
enum { MEMORIES = 5 };
extern const Memory memories[MEMORIES];

// ---- program_key.c: what decides a program's object, as bytes --------------------------

typedef struct Key {
	Arena *arena;
	char *at;
	size_t count, room;
} Key;
// Of a program after pass `join`. Empty if the compiler cannot be identified.
typedef struct Program Program;
Key program_key(const Program *);

// ---- cache.c: objects on disk, by key ----------------------------------------------------

Object *cache_find(const Session *, const Key *); // NULL: there is none
void cache_keep(const Session *, const Key *, const Object *);

// ---- program.c: what the passes of passes.def work on ---------------------------------

typedef struct Entry { // a function of a program: amos_entry
	Unit unit;
	int64_t samples; // in a batch, if fewer than in the program's; else 0
	bool asked;      // by the user: it is an error if the model does not accept so few samples
} Entry;

typedef struct Program {
	Session *session;
	struct amos_data *data; // NULL: none
	bool standing;          // dimensions of unknown size get placeholder sizes
	bool weights;           // the object holds the initial contents of its slots
	bool device_code;       // the object is the code of a device alone
	bool apart;             // has entries that only compute, and only apply, gradients
	bool update_only;       // has none but the latter: its caller computes the gradients
	bool tuned;             // its entries' machines have choices
	bool runs;    // training runs in this process: entries that it does not call are left out
	Model *model; // NULL: the program was read from text or from a report
	const json_t *report; // that an update is compiled from; NULL: from a model
	VEC(Entry) entries;   // from pass `join` on, all have the slots of the first; by variant
	Eta *eta;             // indexed by slot; from pass `eta` to `step`
	Opt opt;
	const char *note, *identity, *labels; // of the object; see program_identity()
	Hashing *hashing; // of the model that the identity will name; NULL: it names none
	int variants;     // CPUs that it has code for: from pass `join` on, each has all entries
	const Target *const *target; // by variant
	Object *object;
	Pass next; // the first pass that has not run
} Program;

// Returns a program without entries; pass `read` adds them, by the session's purpose:
//   training    train, eval; eval:N for the N samples after the last complete batch; gather if
//               several batches make an update; gradient, update and run, if `apart`; with
//               `weights` also run and eval:1, and eval:N and run:N for further batch sizes; if it
//               `runs` and no data are held out, no eval; if `update_only`, update alone
//   evaluation  eval, eval:N
//   others      run or grad
Program *program_new(Session *, struct amos_data *);
// A program of one graph, as it is from pass `join` on.
Program *program_of(Session *, const Graph *, const char *entry);
void run_passes(Program *, Pass last);       // from the next to `last`
const Graph *program_graph(const Program *); // the first entry's
// Returns the identity, for which it may wait until the model's content is hashed; NULL: none.
const char *program_identity(Program *);
int64_t threads_of(const Session *); // that a program is compiled for
// Checks all values of the data, and that no input lacks data, before anything is compiled.
void attach_data(Program *);
double untrained_percent(const Model *); // of the elements of all weights
const char *percent_text(Arena *, double);
// Compiles the program and loads it into this process, with the initial contents of its slots.
struct amos *open_program(Program *);
// Loads the object of a program that passed all passes, until the arena ends.
struct amos *open_object(Program *, Arena *until);
// Frees all that was read and compiled. The open program stays, and the data attached to it.
void release_program(Program *);
// Returns the template of the model's file, of a program after pass `join`. Fails if the file
// cannot hold the weights that training gives it.
const struct amos_template *trained_file(const Program *, bool keep_training);
// Writes a copy of the model's file with the weights of the open model, for inference unless
// --keep-training is given. Reads the model again if the program was released.
void write_open(Program *, struct amos *, const char *path);

// ---- tune.c: --tune ---------------------------------------------------------------------

// Measures how the kernels of a program run best, which is after pass `join`, and sets its
// machines' choices.
void tune(Program *);
// Returns what of this machine decides how fast kernels are, besides the target. Threads are part
// of it: they divide the caches.
const char *tuning_host(const Session *);
void fill_inputs(const Program *, struct amos *); // with synthetic data
// Calls an entry on such data, which may give indices out of range.
void call_synthetic(struct amos *, const struct amos_entry *);

// ---- program_text.c: programs in the notation -----------------------------------------

// Returns the program as text after pass *after, compiled from the session's model or, if `text` is
// not NULL, continued from it. `where` names the text in messages. *after: NULL for the pass of the
// text, or for the first; it is set to the name.
const char *show_program(Session *, const char *where, const char *text, const char **after);

// ---- output.c: what amosc build writes ----------------------------------------------------

// Fails if `path` cannot be the output: its suffix does not fit the target, no runtime for the
// target is installed, or --name is no identifier. The default target is this system, with any CPU,
// or with --tune this machine.
void check_output(Session *, const char *path);
// Sets which entries and variants the program has for the output.
void prepare_output(Program *, const char *path);
// Writes the object of a program that passed all passes, and the header of a library: NAME.o,
// NAME.a, NAME.so or NAME.ptx, or else an executable. Fails if it is a file that this process
// reads.
void write_program(const Program *, const char *path);
// Returns the path of the file `name` in the directory of installed files, or if this program is
// not installed, `built`.
const char *installed_file(Arena *, const char *name, const char *built);
const char *linker_path(Arena *); // of lld

// ---- header.c -----------------------------------------------------------------------------

// Returns the header of a compiled program whose model is PREFIX_model.
const char *header_text(const Program *, const char *prefix);

typedef struct Binding {           // a language of --bindings
	const char *name, *suffix; // suffix: what follows the name of the output
	const char *needs; // suffix of the output that it loads; NULL: it is linked with any
	const char *text;  // with @FILE@ for the name of the output, and @ID@ for the prefix
	bool letter;       // the prefix must begin with a letter, and have 31 characters at most
	const char *taken; // words that the prefix may not be, each after a space; NULL: any may
} Binding;
// Returns the binding of this name. Fails with STATUS_USAGE if there is none.
const Binding *binding_named(const Session *, const char *name);
// Fails with STATUS_USAGE if the output `path` cannot have the binding, or the prefix is not valid
// there.
void check_binding(const Session *, const char *name, const char *path, const char *prefix);
const char *binding_text(Arena *, const Binding *, const char *stem, const char *prefix);

#endif
