// program.h: an entry's function being written: what program.c and trips.c share. Takes gen.h.
#ifndef PROGRAM_H
#define PROGRAM_H
#include "gen.h"

// struct amos_run: all pointers, in this order.
enum {
	RUN_params,
	RUN_state,
	RUN_scratch,
	RUN_inputs,
	RUN_outputs,
	RUN_launch,
	RUN_own,
	RUN_FIELDS
};

typedef struct Writer { // of one entry's function
	Gen *g;
	Value runner;
	int64_t next; // number of the next launch in the entry
} Writer;

Value at_index(Gen *, LLVMTypeRef, Value from, Value i); // the address of element i
Value run_field(Gen *, Value run, int field);
void write_launches(Writer *, const Entry *, Value run);
void write_loop(Writer *, const Entry *, const Launch *, Value run);

#endif
