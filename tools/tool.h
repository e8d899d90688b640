// tool.h: declares the verbs of the command amosc, one file each, and what they share.
#ifndef TOOL_H
#define TOOL_H
#include "driver.h"

typedef struct Verb {
	const char *name, *arguments;
	int least, most;
	Purpose purpose;
	unsigned takes;
	const char *summary, *about, *example;
} Verb;

extern const Verb verbs[]; // the last has no name

// amosc.c: runs the command. Returns the exit status; ends the process where amos_signals() does.
int amosc_command(int argc, char **argv);

// ---- options.c: the command line ------------------------------------------------------

const Verb *verb_named(const char *); // NULL: none
// argv from the verb on. Exits with STATUS_USAGE, or after --help.
void parse_command(Session *, const Verb *, int argc, char **argv);
// Returns the path of -o, for a verb whose output is one stream: "-" is standard output. Fails with
// STATUS_USAGE without -o, or if --json goes to that stream, too.
const char *stream_output(Session *, const char *expected);
// Fails with STATUS_USAGE if the option is "-", for outputs that standard output cannot be.
void need_file(const Session *, OptionName, const char *expected);
void print_help(FILE *);                       // amosc --help
const char *option_brief(Arena *, OptionName); // the first clause of its help
const char *option_help(Arena *, OptionName);  // with the optimizers that it applies to

// ---- depfile.c: amosc build --depfile -----------------------------------------------------

// Writes the rule of --depfile, if it is given: `out` depends on every file read so far.
void write_depfile(const Session *, const char *out);

// ---- peer.c: other frameworks -----------------------------------------------------------

typedef struct Peer { // a step of another framework
	const char *name, *version;
	double step, least, first, loss, bytes; // seconds; first: since the process started
	int steps;
} Peer;
typedef VEC(Peer) Peers;
// Fails with STATUS_USAGE if --peer names another one, or one that cannot train as the options say.
void check_peers(Session *);
// Runs the peers that --peer names on the batch in the inputs of the open model.
Peers run_peers(Session *, const Graph *, const struct amos *);

// ---- roofline.c: amosc bench --model ---------------------------------------------------

void model_step(Session *);

// ---- draw.c: what checks compute on -------------------------------------------------------

typedef struct Draw {
	uint64_t seed, step, site, position;
} Draw;
// Draws normal elements with their eta as standard deviation; factors are equal to their eta.
void draw_parameter(const Slot *, const Eta *, Draw *, float *to);
// Draws normal floats of the input's range (`scales` NULL: 1) and any valid indices; other integers
// are ones, as in masks.
void draw_input(const Graph *, const Scales *, int slot, Draw *, void *to);

// ---- eta_check.c: amosc eta --check ---------------------------------------------------

void check_eta(Session *);

// ---- report.c: JSON and counts of bytes -----------------------------------------------

void print_json(json_t *);                     // releases it
const char *bytes_text(Arena *, double bytes); // 3.2 MiB

// ---- generate.c -----------------------------------------------------------------------

void generate(Session *); // amosc run --generate

// ---- one file per verb ----------------------------------------------------------------

#define VERB(name, ...) void verb_##name(Session *);
#include "verbs.def"
#undef VERB

#endif
