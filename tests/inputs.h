// inputs.h: declares what the tests of data share: a model that reads inputs and computes nothing.
#ifndef INPUTS_H
#define INPUTS_H
#include "fixtures.h"

extern struct amos_slot slots[2]; // the inputs
extern struct amos_entry entry;   // reads them
extern struct amos_model model;
extern struct amos *m;
extern struct amos_data *data;
extern int64_t decoded; // bytes of images that are decoded at the start

// Declares input i, the last one; limit: as in a slot.
void declare(int i, const char *name, Elem type, int64_t limit, int rank, ...);
void close_all(void);
// Opens and attaches data; returns the first status that is not AMOS_DONE.
int attach(int exact, const struct amos_options *);
int fit_source(int exact, const char *source); // of x

#endif
