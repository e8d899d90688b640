// driver.h: declares the driver, which compiles a model file and options into a program.
// Each pass is a row of passes.def. Uses all layers below.
// Invariant: no state except the Session's; an error unwinds to the caller's catch.
#ifndef DRIVER_H
#define DRIVER_H
#include "amos.h"
#include "emit.h"
#include "onnx.h"
#include "passes.h"
#include <jansson.h>

typedef enum Group { // of options: what a verb takes
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

typedef enum Purpose { // what a model is read for
	FOR_TRAINING,
	FOR_EVALUATION,
	FOR_OUTPUTS,
	FOR_GRADIENTS, // of the file's initializers, not of parameters
	FOR_REPORT,
	FOR_EXPORT,
} Purpose;

typedef struct Session {  // a model file, and the options that it is compiled by
	Arena *arena;     // freed at the end, which closes what the session holds open
	const char *name; // the command, in messages: amosc train
	Purpose purpose;
	const char *path, *other; // the model; a second file
	VEC(Choice) choices;      // in order
	int argc;                 // as typed
	char **argv;
	void (*listen)(void *listener, const char *text); // takes notes, lines; may be NULL
	void *listener;
	Table *told;              // notes that were reported
	struct File *file;        // the model as parsed, once it was read
	const char *loss_trouble; // an error in --loss, next to those of the model; NULL: none
	bool plain;               // the file is read without the loss that it may hold
	bool bound;               // --bind has been checked against the model's dimensions
	bool drawn;               // weights will be drawn, which have no statistics
} Session;

// ---- session.c: options as given ------------------------------------------------------

void tell(const Session *, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // once
_Noreturn void bad_usage(const Session *, const char *what); // fails with STATUS_USAGE
int option_named(const char *name);                          // as in settings.def, or as typed; -1
char *long_name(Arena *, OptionName); // as typed after --: extra-l2 for extra_l2
bool chosen(const Session *, OptionName);
const char *choice(const Session *, OptionName, const char *otherwise); // the last one given
double choice_number(const Session *, OptionName, double otherwise);    // >= 0
double choice_part(const Session *, OptionName, double otherwise);      // in [0, 1)
int64_t choice_count(const Session *, OptionName, int64_t otherwise);   // >= 0

// ---- read.c: the model, with every dimension bound ------------------------------------

// Sets the limits of --limit. Called once, before a file is read.
void limit_cost(Session *);
// Returns the model with every dimension bound: by --bind, then by `data` (NULL: none). `random`:
// as in a training step, by --bn and --dropout. `samples`: size of a batch, which the data keep; 0:
// as chosen, or as the data give it.
Model *read_bound(Session *, struct amos_data *, bool random, int64_t samples);
// Like read_bound, but dimensions of unknown size get sizes that stand for any.
Model *read_standing(Session *, struct amos_data *, bool random);
typedef Model *ReadModel(Session *, const void *context);
// Returns the model that `read` returns. If it is invalid, returns NULL and sets *failure.
Model *attempt_read(Session *, ReadModel *read, const void *context, const char **failure);
Model *list_model(Session *); // inputs, outputs and operators as the file declares them, no graph
// Returns the model for one sample, with its other open dimensions `window` long.
Model *read_window(Session *, int64_t window);

// ---- configure.c: options as pass settings --------------------------------------------

struct amos_options runtime_options(const Session *); // what options.def lists
// Returns the data, open until the session ends; for run and grad they are one batch.
struct amos_data *open_data(Session *);
struct amos_data *open_given(Session *); // NULL without --data
// Reports the arrays of the data that no input of the graph, its loss or the file uses.
void note_unused(Session *, struct amos_data *, const Graph *);
// Returns the graph with its loss if --loss or the model has one, else the graph itself.
Graph *with_loss(Session *, Graph *);
// Returns which slots get gradients, by --wrt; indexed by slot.
bool *wanted(Session *, const Graph *);
// Returns the optimizer; settings that were not given are derived from the size of the data.
Opt optimizer(Session *, const Graph *loss, struct amos_data *);
const Target *target_of(const Session *);
void need_host(const Session *); // fails if --target is another machine

// ---- eta_options.c: --eta, --range, --slots, --convention -----------------------------

// Returns eta, indexed by slot, with these options and the ranges of `data` (NULL: none). Fills
// *scales unless NULL.
Eta *etas(Session *, const Graph *, struct amos_data *, Scales *scales);
// Returns a file that amosc eta --json wrote, which has a list 'params'; kept with the session.
json_t *load_report(Session *, const char *path);

// ---- identity.c: what a run trains -----------------------------------------------------

const char *identity_text(Session *, const Model *);

// ---- json.c -----------------------------------------------------------------------------

json_t *keep_json(Session *, json_t *); // returns it; dropped when the session ends
// A string; if it is not UTF-8, what is not a visible character is written as \xHH (common.h).
json_t *json_text(const char *);
json_t *shape_json(const Shape *);
typedef struct Readers {         // of a slot
	VEC(const char *) names; // of the nodes: more than one where it is tied
	const char *line; // in the author's program, of the first that has one; NULL: none has
} Readers;
Readers *readers_of(Arena *, const Graph *);                // by slot
json_t *others_json(const Readers *);                       // all but the first
const char *text_at(const json_t *object, const char *key); // "" if it has none
json_t *number_json(double);                                // null if it is not finite
json_t *untrained_json(const Model *); // {"percent", "weights": [{"name", "type", "shape", "why"}]}

// ---- report_json.c: the eta report, the contract of amosc eta --json ------------------

typedef struct Report {
	json_t *json;       // as --json prints it
	const Graph *graph; // NULL: the report was read from a file
	Scales scales;      // of the graph's values
} Report;

// Of a model, or of a .json file that --json wrote.
Report make_report(Session *, const char *path);

typedef struct Memory { // an optimizer whose state's size the report gives
	const char *key, *optimizer;
	double momentum;
	bool unreduced;   // slots shaped as the parameters
	const char *with; // after the optimizer's title
} Memory;
enum { MEMORIES = 5 };
extern const Memory memories[MEMORIES];

// ---- program.c: what the passes of passes.def work on ---------------------------------

typedef struct Entry { // a function of a program: amos_entry
	Unit unit;
	int64_t samples; // in a batch, where they are fewer than the program's; else 0
} Entry;

typedef struct Program {
	Session *session;
	struct amos_data *data; // NULL: none
	bool standing;          // dimensions of unknown size get sizes that stand for any
	bool weights;           // the object holds the first contents of its slots
	const Shape *cotangent; // by output, of gradients; NULL: the loss is the user's
	Model *model;           // NULL: the program was read from text
	VEC(Entry) entries;     // all on the slots of the first, from pass `join` on
	Eta *eta;               // by slot, from pass `eta` to `step`
	Opt opt;
	const char *note, *identity, *labels; // of the object
	Object *object;
	Pass next; // the first pass that has not run
} Program;

// The entries: train and eval (also eval:N for what the last batch leaves, gather where several
// runs make an update; with `weights` run and, for other data, eval:1); eval and eval:N; run; or
// grad; by the session's purpose.
Program *program_new(Session *, struct amos_data *);
// A program of one graph, as it is from pass `join` on.
Program *program_of(Session *, const Graph *, const char *entry);
void run_passes(Program *, Pass last);       // from the next to `last`
const Graph *program_graph(const Program *); // the first entry's
// Checks every value of the data, and the inputs that lack some: before anything is compiled.
void attach_data(Program *);
double untrained_percent(const Model *); // of the elements of all weights
const char *percent_text(Arena *, double);
// The object linked in this process, its slots with the first contents that the program has.
struct amos *open_program(Program *);
// The model's file with the weights that the open model has, for inference unless --keep-training.
void write_open(const Program *, struct amos *, const char *path);

// ---- program_text.c: programs in the notation -----------------------------------------

// Returns the program as text after pass `after`: of the session's model, or continued from `text`,
// which `where` names (NULL: the model).
const char *show_program(Session *, const char *where, const char *text, const char *after);

#endif
