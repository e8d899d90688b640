// attend.h: declares what attention by vectors (attend.c) and by blocks of threads
// (thread_attend.c) share.
#ifndef ATTEND_H
#define ATTEND_H
#include "gen.h"

typedef struct Attend {
	Gen *g;
	const Sched *s;
	const Val *v; // the root
	AttendSizes p;
	Elem type;
	LLVMTypeRef elem;
	Ref bias, shown, factor; // 0: none
	bool causal, zeros;
	Value local[AT_PARTS];
	Index batch, next;     // the head, and the one after it
	Value first_key, keys; // of the block: the first, how many
	// Of the strip: its first query, rows, whether it has one row less than others, and how
	// many keys of the block it sees.
	Value first, rows, lower, visible;
} Attend;

enum { GRADIENT = 3, STATS, DELTA }; // operands of gradients
Attend attend_new(Gen *);            // of the kernel that is emitted, without local memory
// Sets the index of element (row, column) of a value with the leading axes of the operands.
void attend_index(const Attend *, const Index *row, const Index *column, Index *idx);
Value at_element(const Attend *, Ref, const Index *row, const Index *column);
// Returns the i-th head. Those that a worker adds up are adjacent along each leading axis.
Value attend_head(const Attend *, Value i);
void emit_thread_attend(Gen *); // thread_attend.c

static inline Value real(const Attend *a, double x) // of the type of scores
{
	return LLVMConstReal(a->elem, x);
}

#endif
