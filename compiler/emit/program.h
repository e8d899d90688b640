// program.h: declares what program.c and loop_program.c share: an entry's function being written.
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

typedef struct EntryWriter { // of one entry's function
	Gen *g;
	Value runner;
	int64_t next; // number of the next launch in the entry
} EntryWriter;

Value at_index(Gen *, LLVMTypeRef, Value from, Value i); // the address of element i
Value run_field(Gen *, Value run, int field);
void write_launches(EntryWriter *, const Entry *, Value run);
void write_loop(EntryWriter *, const Entry *, const Launch *, Value run);

#endif
