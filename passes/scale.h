// scale.h: what the files of eta share: ranges and demands, shares of variables, layouts of views.
// Takes passes.h. Seen by eta.c, scale.c, share.c and layout.c alone.
#ifndef SCALE_H
#define SCALE_H
#include "passes.h"

typedef enum Nature {
	AUX,      // masks, indices, numbers
	VARIABLE, // made of parameters alone
	SIGNAL    // carries data
} Nature;

// A part of a kernel's output that a slice takes: entries e of its last axis where e / stride %
// extent lies in [start, start + count).
typedef struct Cut {
	Ref part;
	int64_t stride, extent, start, count;
} Cut;

typedef struct Cuts { // a kernel's output of whose parts different scales are asked
	Ref dot;
	VEC(Cut) cut;
} Cuts;

// By Ref, but where said.
typedef struct Sweep {
	Arena *arena;
	const Graph *g;
	const bool *live;
	Nature *nature;
	bool *data;    // depends on an input
	bool *fixed;   // made of buffers alone
	bool *divided; // a product with such a value in it
	bool *length;  // a square that is summed for a length
	bool *sum;     // an add of embeddings alone
	bool *lookups; // by slot: its rows are looked up by data
	bool *stream;  // by slot: what is looked up begins a residual stream
	Surd *rms;     // of constants, where measured
	bool *measured;
	Surd *range, *demand;
	Ref *source; // the value that set the range
	Ref *asker;  // the value that set the demand; 0: nobody asks
	Cuts **cuts; // of a kernel's output, and of values on the way to its parts
} Sweep;

static inline bool is(const Sweep *s, Ref r, Nature n)
{
	return s->nature[r] == n;
}

const char *place_of(const Sweep *, Ref); // eta.c: the node that a value stems from, for reasons

// ---- scale.c ----------------------------------------------------------------------------------

void find_natures(Sweep *);
void sweep_up(Sweep *);                // ranges
void sweep_down(Sweep *);              // demands
Surd asked(const Sweep *, Ref);        // the demand, or 1 where nobody asks
Surd rms_of(Sweep *, Ref);             // of a constant; 1 of anything else
bool is_zero(Sweep *, Ref);            // a constant of nothing else
bool is_view(const Val *);             // the same elements: a cast, or a move but for joins
Ref unviewed(const Sweep *, Ref);      // what is behind views
Ref unscaled(const Sweep *, Ref);      // what is behind views and products with numbers
Ref squared_under(const Sweep *, Ref); // x x where r is the length of x; or 0
// Of a summand that is a product of two signals, one of them `x`: the other one; or 0.
Ref partner_of(const Sweep *, Ref sum, Ref x);
Ref table_of(const Sweep *, Ref);       // the variable whose rows are looked up by data; or 0
int view_slot(const Sweep *, Ref);      // the slot a variable is a view of; -1: a composition
int64_t contracted(const Sweep *, Ref); // entries that an entry of a dot or sum sums over
Ref summed_product(const Sweep *, Ref); // signal * variable, where r sums those; or 0
Ref same_as(Sweep *, const Val *);      // what a mean, dropout, rotation is as large as; or 0
Ref pooled(const Sweep *, Ref);         // what r takes the largest of windows of; or 0

// ---- share.c ----------------------------------------------------------------------------------

typedef struct Share {    // what is wanted of a variable
	const char *role; // NULL: nothing is known
	Surd eta;
	Surd range, demand;   // that led to it
	Ref source, asker;    // the values they come from; 0: none
	Ref at, operand;      // where a signal meets it, and as what
	int64_t contracted;   // kernel: m
	bool rows;            // a table: v and b have an entry for each row
	const Cuts *cuts;     // different scales are asked of parts of the output
	const char *question; // NULL: sure
} Share;

void join_embeddings(Sweep *); // demands of tables that are summed with others
Share *share_out(Sweep *);     // by slot

// ---- layout.c ---------------------------------------------------------------------------------

void find_cuts(Sweep *);
Shape slots_of(const Sweep *, const Share *, int slot); // of v and b
// The parts of a parameter whose outputs are asked for at different scales: how many, along which
// of its axes, how many entries each, and the slice each goes to. 0: all the same.
int parts_of(const Sweep *, const Share *, int slot, int *axis, int64_t **counts, Ref **parts);

#endif
