// attend_tiling.c: chooses tile and block sizes of attention.
// Like those of products, they are a function of shapes and the machine alone. Forward, the scores
// of a strip of queries and a block of keys stay in the first-level cache; backward, those of a
// block of each stay in the second.
#include "tiling.h"

// Rows of a tile, at most `high`, so that strips of them cover n evenly.
static int64_t even_height(int64_t n, int64_t high)
{
	return ceil_div(n, ceil_div(n, high));
}

// The same, of pairs of rows, where the last strip is computed whole.
static int64_t paired_height(int64_t n, int64_t high)
{
	int64_t best = 2;
	for (int64_t rows = 4; rows <= high; rows += 2) // a strip loads b, and two rows more
		if (ceil_div(n, rows) * (rows + 1) <= ceil_div(n, best) * (best + 1))
			best = rows;
	return best;
}

// Blocks of keys compute the gradients of keys and values; tiles of a bias have blocks of their
// own; blocks of queries compute all other gradients. Each sum belongs to one block and has one
// order, and every block computes the scores that it needs. A block with all keys of a head
// computes all gradients of the head. Two sums of a block of keys take half of the registers that
// are left where warpgroups multiply: small tiles of scores would not keep their instructions busy.
static void tile_attention_block(Scheduler *t)
{
	Sched *s = t->sched;
	AttendSizes p = attend_sizes(t->graph, t->kern, t->machine);
	AttendBlocks z = attend_blocks(t->graph, val(t->graph, t->kern->root), t->machine, p.back);
	s->height = z.height;
	s->columns = z.columns;
	s->shared = z.launched ? z.shared : 0;
	AttendWorkers w = attend_workers(t->graph, t->kern, t->machine);
	bool first = w.keys && !w.together; // the others are another launch
	s->alone = z.groups && w.keys;
	s->workers = w.keys + (first ? 0 : w.queries + w.tiles);
	s->after = first ? w.queries + w.tiles : 0;
}

// Returns how many heads a worker has, at most `most`, so that processors have the same number.
static int64_t even_heads(const AttendSizes *p, int64_t most, int64_t parts, const Machine *machine)
{
	int64_t best = most, least = INT64_MAX;
	for (int64_t heads = most; heads && machine->processors > 2; heads--) {
		int64_t workers = ceil_div(p->batch, heads) * parts;
		int64_t time = ceil_div(workers, machine->processors) * heads;
		best = time < least ? heads : best;
		least = MIN(least, time);
	}
	return best;
}

void tile_attention(Scheduler *t)
{
	enum { KEYS = 512, BACK_KEYS = 128, QUERIES = 512, BACK_QUERIES = 140 };
	enum { MATRIX_BLOCK = 256 }; // of keys and of queries, of matrix registers: gradients
	const Machine *machine = t->machine;
	Sched *s = t->sched;
	s->partition = P_heads;
	if (machine->threads > 1) {
		tile_attention_block(t);
		return;
	}
	AttendSizes p = attend_sizes(t->graph, t->kern, machine);
	s->vectors = machine->vectors * machine->lanes / p.lanes;
	int64_t high = (machine->rows * machine->vectors + machine->vectors) / s->vectors - 1;
	high = MAX(1, high); // wider elements take more registers
	s->height = p.halves ? paired_height(p.queries, high) : even_height(p.queries, high);
	s->unroll = machine->unroll;
	p = attend_sizes(t->graph, t->kern, machine);
	int64_t back_keys = p.matrix ? MATRIX_BLOCK : BACK_KEYS;
	int64_t blocks = ceil_div(p.keys, p.back ? back_keys : KEYS);
	s->depth = ceil_div(ceil_div(p.keys, blocks), p.panel) * p.panel;
	s->key_height = even_height(MIN(s->depth, p.keys), high);
	if (p.matrix) {
		s->height = s->key_height = 2 * p.matrix;
		s->unroll = p.matrix;
	}
	int64_t strips = ceil_div(p.queries, s->height);
	int64_t back_queries = p.matrix ? MATRIX_BLOCK : BACK_QUERIES;
	int64_t most = p.back ? back_queries : QUERIES * t->tuning->cache / 100;
	if (!p.back && p.batch * ceil_div(p.queries, most) < machine->workers)
		most /= 2;
	int64_t parts = ceil_div(p.queries, most);
	s->strips = ceil_div(strips, parts);
	p = attend_sizes(t->graph, t->kern, machine);
	int64_t groups = p.back ? machine->workers : ceil_div(machine->workers, p.parts);
	s->batches = count_of(&p.added);
	if (s->batches == 1)
		s->batches =
		    even_heads(&p, MAX(1, p.batch / groups), p.back ? 1 : p.parts, machine);
	s->workers = ceil_div(p.batch, s->batches) * (p.back ? 1 : p.parts);
	int64_t read = (p.queries + p.keys) * (p.width + p.depth) * (p.halves ? 2 : p.bytes);
	s->ahead_rows =
	    p.batch > 1 && !t->tuning->still && read <= machine->l2 / 4 && (p.back || p.parts == 1);
	s->local = p.local_bytes;
}
