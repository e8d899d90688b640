// nvptx.c: GPU targets: a worker is a block of threads, a thread a lane.
// Takes gen.h.
#include "gen.h"

Value thread_number(Gen *g)
{
	(void)g;
	never("threads of a CPU's worker");
}

Branch single_begin(Gen *g)
{
	return (Branch){.outer = g->level};
}

void single_end(Gen *g, Branch *b)
{
	(void)g, (void)b;
}

Value fold_threads(Gen *g, Op op, Elem e, Value v)
{
	(void)g, (void)op, (void)e;
	return v;
}
