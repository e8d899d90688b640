// report.h: declares what prints the eta report, a JSON value, for eta.c and report_*.c.
#ifndef REPORT_H
#define REPORT_H
#include "tool.h"

// ---- report_table.c: columns.def ------------------------------------------------------

enum { T = 1, M = 2, C = 4, H = 8 }; // formats
typedef enum Kind { TEXT, NUMBER } Kind;

typedef struct Column {
	const char *key, *title;
	Kind kind;
	int drop;
	unsigned formats;
	const char *(*cell)(Arena *, const json_t *row, const char *key);
} Column;

enum {
#define COLUMN(name, ...) COLUMN_##name,
#include "columns.def"
#undef COLUMN
	COLUMNS
};
extern const Column columns[COLUMNS];
const char *cell_at(Arena *, const json_t *row, int column); // row NULL: the column's title

const int *unsure_first(Arena *, const Report *); // the rows in the order of reports
const char *title_of(Arena *, const Report *);
const char *input_line(Arena *, const json_t *input);

const char *state_title(Arena *, const Report *);
typedef struct StateRow { // size of an optimizer's state: "1.5 KiB", "12 %" of the parameters
	const char *title, *bytes, *percent;
} StateRow;
int state_rows(Arena *, const Report *, StateRow *); // returns their number, at most MEMORIES

const char *list_text(Arena *, const json_t *list, const char *between);

// ---- report.c -------------------------------------------------------------------------

void print_report(const Report *); // as print_json() prints all of it, a row at a time

// ---- report_text.c, report_files.c ----------------------------------------------------

void print_text(Session *, const Report *);
void print_md(Session *, const Report *);
void print_csv(Session *, const Report *);

// ---- report_page.c --------------------------------------------------------------------

void print_html(Session *, const Report *);

// ---- report_code.c --------------------------------------------------------------------

void print_code(Session *, const Report *, const char *language); // jax or torch

// ---- report_policy.c: targets of --for that are optimizers ---------------------------------

bool is_policy(const char *name);
const char *policy_names(Arena *); // "muon, mup, .."
// Returns how the target treats each parameter, owned by the session. `base`: NULL, or the report
// of the same network in another width.
json_t *make_policy(Session *, const char *name, const Report *, const Report *base);
void print_policy(Session *, const json_t *policy);

// ---- width_check.c: amosc eta --for mup --check ----------------------------------------------

void check_widths(Session *);

// ---- report_diff.c --------------------------------------------------------------------

int print_differences(Session *, const Report *, const Report *); // returns their number

#endif
