// tool.h: the command amosc. Each verb is one file: the wiring of the floors below, on a screen.
// Takes all floors. Gives the command line as data (verbs.def) and what verbs share.
#ifndef TOOL_H
#define TOOL_H
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
#include "verbs.def"
#undef OPTION
	OPTIONS
} OptionName;

typedef struct Choice { // an option as given
	OptionName option;
	const char *value; // NULL for a switch
} Choice;

typedef struct Closer { // of something opened
	void (*close)(void *);
	void *what;
} Closer;

typedef struct Command { // the command line, read
	Arena *arena;
	const struct Verb *verb;
	VEC(Choice) choices; // in order
	VEC(const char *) arguments;
	int argc; // as typed
	char **argv;
	struct Parsed *parsed; // model.c: the file that was read last; NULL: none
	bool plain;            // the file is read without the loss that it may tell of
	bool bound;            // --bind has been held to the model's dimensions
	bool beyond;           // doubles that f32 cannot hold have been reported
	bool drawing;          // a node that draws at random has been reported
	bool drawn;            // weights will be drawn, which have no statistics
	VEC(Closer) opened;    // closed when the verb ends, however it ends, last first
} Command;

typedef struct Verb {
	const char *name, *arguments;
	int least, most;
	unsigned takes;
	const char *summary;
} Verb;

// ---- options.c: the command line ------------------------------------------------------

const Verb *verb_named(const char *); // NULL: none
// argv from the verb on. Exits with STATUS_USAGE, or after --help.
void parse_command(Command *, const Verb *, int argc, char **argv);
void print_help(FILE *);                                     // amosc --help
_Noreturn void bad_usage(const Command *, const char *what); // fails with STATUS_USAGE
char *long_name(Arena *, OptionName);                        // as typed after --
bool chosen(const Command *, OptionName);
const char *choice(const Command *, OptionName, const char *otherwise); // the last one given
double choice_number(const Command *, OptionName, double otherwise);    // >= 0
double choice_part(const Command *, OptionName, double otherwise);      // in [0, 1)
int64_t choice_count(const Command *, OptionName, int64_t otherwise);   // >= 0
// The options that decide what is compiled, as given: lines "--NAME\tVALUE...\n".
const char *compiled_choices(const Command *);
unsigned group_of(OptionName);
const char *option_help(Arena *, OptionName); // with the optimizers that it is for

// ---- unused.c: options that would do nothing ------------------------------------------

// Fails with STATUS_USAGE where an option has no part in what the others ask for.
void check_unused(const Command *);

// ---- model.c: the model, as the command line reads it ---------------------------------

// Limits what files may cost, as --limit says. Once, before any is read.
void limit_cost(Command *);
// The model with every dimension bound: by --bind, then by `data` (NULL: none). `random`: as it is
// in a training step, by --bn and --dropout.
Model *read_bound(Command *, struct amos_data *, bool random);
// The same, as it is evaluated, for batches of `samples`, which the data have from then on.
Model *read_samples(Command *, struct amos_data *, int64_t samples);
// As read_bound, but dimensions that nothing tells get numbers that stand for any.
Model *read_standing(Command *, struct amos_data *, bool random);
Model *list_model(Command *); // inputs, outputs and operators as the file declares them, no graph
// One sample; open dimensions but the batch are `window` long.
Model *read_window(Command *, int64_t window);
// grad speaks of the file's initializers, not of parameters.
bool reads_apart(const Command *);

// ---- configure.c: from the command line to what passes want --------------------------------

void close_later(Command *, void (*close)(void *), void *what);
struct amos_data *open_data(Command *, const struct amos_options *, bool exact);
// Reports the arrays of the data that no input of the graph takes, with its loss, nor of the file.
void note_unused(Command *, struct amos_data *, const Graph *);
void check(int status); // of a call to the runtime: fails with amos_error()
struct amos_options
runtime_options(const Command *); // what options.def lists, as the runtime takes it
// The graph with its loss, where --loss or the model has one; else as it is.
Graph *with_loss(Command *, Graph *);
// --wrt: by slot.
bool *wanted(Command *, const Graph *);
// The optimizer as chosen; what was not is by rule, from the data's size.
Opt optimizer(Command *, const Graph *loss, struct amos_data *);
// The graph with these outs alone ("loss", "accuracy", ...; NULL at the end) and its checks.
Graph *only_outs(Arena *, const Graph *, const char *const *names);

// ---- eta_options.c: what a person says of eta ----------------------------------------------

// As chosen by --eta, --range, --slots, --convention, and measured from `data` (NULL: none).
// `scales`: filled unless NULL.
Eta *etas(Command *, const Graph *, struct amos_data *, Scales *scales);
// A file that amosc eta --json wrote, open until the verb ends. It has a list 'params'.
json_t *load_report(Command *, const char *path);

// ---- identity.c: what a run is of ------------------------------------------------------

const char *identity_text(Command *, const Model *);

// ---- compile.c: from a graph to a program in memory -----------------------------------

typedef struct Trainer {
	Model *model;
	Graph *graph; // of a training step
	Opt opt;
	Object *object;
} Trainer;

Plan *plan_for(const Command *, const Graph *, const char *name); // for --target
void need_host(const Command *); // fails where --target is another machine
// The entries train and eval in one object, gather where several runs make an update, and eval:N
// for what the last batch leaves of what is evaluated; `weights`: with the first contents of its
// slots, and the entries run and, for other data, eval:1.
Trainer compile_trainer(Command *, struct amos_data *, bool weights);
// The entries eval and eval:N; *graph is what the first computes.
Object *compile_evaluation(Command *, struct amos_data *, const Graph **graph);
// The object linked in this process, its slots with the first contents that the graph tells.
struct amos *open_object(Command *, const Object *, const Graph *);
struct amos *open_entry(Command *, const Graph *, const char *name); // compiled: one entry

// ---- eta_check.c: amosc eta --check -------------------------------------------------------

void check_eta(Command *);

// ---- report.c: what people and programs read ------------------------------------------

void print_json(json_t *); // and drops it
// A string; if it is not UTF-8, what is not a visible character is written as \xHH (common.h).
json_t *json_text(const char *);
json_t *shape_json(const Shape *);
typedef struct Readers {         // of a slot
	VEC(const char *) names; // of the nodes: more than one where it is tied
	const char *line; // of the author's program, of the first that tells; NULL: none does
} Readers;
Readers *readers_of(Arena *, const Graph *);                // by slot
json_t *others_json(const Readers *);                       // all but the first
const char *text_at(const json_t *object, const char *key); // "" where there is none
json_t *number_json(double);                                // null where it is not finite
double untrained_percent(const Model *);                    // of the elements of all weights
const char *percent_text(Arena *, double);
json_t *untrained_json(const Model *); // {"percent", "weights": [{"name", "type", "shape", "why"}]}
void say_progress(const Command *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));     // stderr; not when quiet
const char *bytes_text(Arena *, double bytes); // 3.2 MiB

// ---- generate.c -----------------------------------------------------------------------

void generate(Command *); // amosc run --generate

// ---- one file a verb ------------------------------------------------------------------

#define VERB(name, ...) void verb_##name(Command *);
#include "verbs.def"
#undef VERB

#endif
