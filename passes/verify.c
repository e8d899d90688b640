// verify.c: verifies that no kernel reads stale memory, by tracking which value owns which bytes.
// Fails if a kernel would read bytes that another value has overwritten, if the outputs of a kernel
// or its work area overlap, if a store or output is missing, if a kernel has no loop shape, or if
// its schedule does not compute it. Plans read from text are verified; tests verify all others.
#include "index.h"
#include "passes.h"

typedef struct Owned {
	Location at;
	int64_t bytes;
	Ref val;
} Owned;

typedef struct Memory {
	const Plan *plan;
	VEC(Owned) owned;
} Memory;

static bool overlap(Location a, int64_t a_bytes, Location b, int64_t b_bytes)
{
	if (a.block != b.block)
		return false;
	if (a.block == B_output || a.block == B_input || a.block == B_const)
		return a.offset == b.offset;
	return a.offset < b.offset + b_bytes && b.offset < a.offset + a_bytes;
}

static void forget_values(Memory *m, Location at, int64_t bytes)
{
	int kept = 0;
	for (int i = 0; i < m->owned.count; i++)
		if (!overlap(m->owned.at[i].at, m->owned.at[i].bytes, at, bytes))
			m->owned.at[kept++] = m->owned.at[i];
	m->owned.count = kept;
}

// A value without elements occupies no bytes.
static void want_value(const Memory *m, Location at, Ref v, const char *who, int k)
{
	if (!bytes_of(val(m->plan->graph, v)))
		return;
	for (int i = 0; i < m->owned.count; i++) {
		const Owned *o = &m->owned.at[i];
		if (o->val == v && o->at.block == at.block && o->at.offset == at.offset)
			return;
	}
	fail(m->plan->name, "%s %d: expected %%%u in its place, found another value", who, k, v);
}

// The outputs of a kernel do not overlap each other. One may overlap a value that the kernel reads
// only if it is the same memory, read at the same index. Its work area overlaps neither.
static void check_places(const Plan *p, int k, const Reads *reads)
{
	const Kern *kern = &p->kerns.at[k];
	const Graph *g = p->graph;
	int64_t work = kern->sched->work;
	if (work && (kern->work.block != B_scratch || kern->work.offset + work > p->scratch_bytes))
		fail(p->name, "kernel %d works outside scratch", k);
	for (int i = 0; i < kern->nout; i++) {
		int64_t bytes = bytes_of(val(g, kern->out[i]));
		if (kern->to[i].block == B_scratch && kern->to[i].offset + bytes > p->scratch_bytes)
			fail(p->name, "%%%u lies outside scratch", kern->out[i]);
		for (int j = 0; j < i; j++)
			if (overlap(kern->to[i], bytes, kern->to[j],
			            bytes_of(val(g, kern->out[j]))))
				fail(p->name, "kernel %d: %%%u and %%%u lie on each other", k,
				     kern->out[j], kern->out[i]);
		for (int j = 0; j < reads->count; j++) {
			Ref u = reads->at[j].val;
			int64_t read = bytes_of(val(g, u));
			bool each = reads->at[j].reach != R_moved && kern->kind != L_scan &&
			            kern->kind != L_attend;
			if (overlap(kern->to[i], bytes, p->place[u], read) &&
			    (!each || p->place[u].offset != kern->to[i].offset || read != bytes))
				fail(p->name, "kernel %d: %%%u overwrites %%%u, which it reads", k,
				     kern->out[i], u);
		}
		if (work && overlap(kern->work, work, kern->to[i], bytes))
			fail(p->name, "kernel %d works where %%%u lies", k, kern->out[i]);
	}
	for (int i = 0; work && i < reads->count; i++) {
		Ref u = reads->at[i].val;
		if (overlap(kern->work, work, p->place[u], bytes_of(val(g, u))))
			fail(p->name, "kernel %d works where %%%u lies, which it reads", k, u);
	}
}

static bool same_launches(const Sched *a, const Sched *b)
{
	return !a->before == !b->before && !a->after == !b->after;
}

// Kernels of one launch run at the same time: none writes what another one reads or writes.
static void check_bundle(const Plan *p, int first, int k, const Reads *reads)
{
	const Graph *g = p->graph;
	for (int other = first; other < k; other++)
		for (int way = 0; way < 2; way++) {
			int a = way ? k : other, b = way ? other : k;
			const Kern *from = &p->kerns.at[a], *to = &p->kerns.at[b];
			for (int i = 0; i < from->nout; i++) {
				int64_t bytes = bytes_of(val(g, from->out[i]));
				bool meets = false;
				for (int j = 0; j < reads[b].count; j++) {
					Ref u = reads[b].at[j].val;
					meets |= overlap(from->to[i], bytes, p->place[u],
					                 bytes_of(val(g, u)));
				}
				for (int j = 0; j < to->nout; j++)
					meets |= overlap(from->to[i], bytes, to->to[j],
					                 bytes_of(val(g, to->out[j])));
				if (meets)
					fail(p->name,
					     "kernel %d: %%%u lies where kernel %d of its launch "
					     "reads or writes",
					     a, from->out[i], b);
			}
		}
}

typedef struct Contents { // of kernel k
	Arena *arena;
	const Plan *plan;
	const int *writer;
	int k;
	int *seen; // by Ref: the kernel that saw it last, + 1
} Contents;

// ---- schedules ------------------------------------------------------------------------

static bool is_computed(const void *contents, Ref r)
{
	const Contents *c = contents;
	return is_inside(c->plan, c->writer, c->k, r);
}

static void check_tile(const Contents *c)
{
	const Plan *p = c->plan;
	int k = c->k;
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	const Machine *m = p->machine;
	if (s->height < 1 || s->vectors < 1 || s->unroll < 1 || s->depth < 1 || s->batches < 1 ||
	    s->strips < 1 || s->panels < 1 || s->group < 1)
		fail(p->name, "kernel %d: a tile, or a part of the product, is empty", k);
	if (s->a == W_patch && (s->run < 1 || s->height % s->run))
		fail(p->name, "kernel %d: a strip is not lines of windows", k);
	Inside inside = {is_computed, c};
	DotSizes z = dot_sizes(c->arena, p->graph, &inside, kern, m);
	if (s->a == W_patch && !z.patch.elements)
		fail(p->name, "kernel %d: its rows are not windows", k);
	bool summed = z.squares.summed;
	if (s->a == W_winograd &&
	    (!z.squares.all || z.bytes != 4 || s->b != W_copy || s->a_shared ||
	     (summed ? s->b_shared || s->height > z.squares.block ||
	                   z.squares.block > s->height * s->strips
	             : z.squares.channels % s->depth || s->parts > 1 ||
	                   (z.blocks > 1 && (s->panels > 1 || s->group < z.strips)))))
		fail(p->name, "kernel %d: no convolution for Winograd's method", k);
	if (s->accumulation == A_f64 && z.bytes < 8)
		fail(p->name, "kernel %d: a tile adds up in the type of its product", k);
	int64_t tile = s->height * s->vectors,
	        registers = ceil_div(z.bytes * z.lanes, 4 * m->lanes);
	int64_t line = s->a == W_patch ? s->run : s->height;
	int64_t joined = joined_lines(z.matrix, line, z.sum_line);
	int64_t rows = ceil_div(s->height / line, joined) * ceil_div(line, MAX(1, z.matrix));
	if (z.matrix && (rows > 2 || rows * s->vectors > 4 || s->unroll != z.matrix))
		fail(p->name, "kernel %d: a tile of other sizes than matrix registers have", k);
	if (!z.matrix && (tile + s->vectors + 1) * registers > m->registers)
		fail(p->name, "kernel %d: a tile of %lld vectors in %d registers", k,
		     (long long)tile, m->registers);
	if (s->b == W_along && (s->a != W_place || z.fold > 1 || z.strips > 1 || z.blocks > 1 ||
	                        z.n % z.width || s->depth % s->unroll || s->unroll % z.lanes))
		fail(p->name, "kernel %d: no rows and columns for lanes along k", k);
	if (z.blocks > 1 && z.held < s->panels)
		fail(p->name, "kernel %d: sums are finished before the last block of k", k);
	if (s->gang > 1 && (z.blocks == 1 || z.batch > 1 || s->parts > 1))
		fail(p->name, "kernel %d: workers of a gang share no blocks of k", k);
	if (s->kept && (s->gang <= 1 || (s->a != W_copy && s->a != W_transpose) || s->a_shared ||
	                s->b_shared || s->group < z.strips))
		fail(p->name, "kernel %d: no gang packs its strips", k);
	if (s->parts > 1 &&
	    (z.batch > 1 || s->reduce.count || z.part_blocks * s->parts < z.blocks ||
	     z.part_blocks * (s->parts - 1) >= z.blocks))
		fail(p->name, "kernel %d: the parts are not the sum", k);
	if (s->workers != ceil_div(z.batch, s->batches) * z.down * z.across * MAX(1, s->parts))
		fail(p->name, "kernel %d: the product is not computed once, by %lld %s", k,
		     (long long)s->workers, PLURAL(s->workers, "worker", "workers"));
	if (s->work < z.partials + s->reduce.count * partial_elements(kern, &z) * PARTIAL ||
	    s->local < z.local)
		fail(p->name, "kernel %d: it works in too few bytes", k);
}

// True for a power of two from `least` on, with at most `most` bytes of sums.
static bool is_side(int64_t n, int64_t least, int64_t bytes, int64_t most)
{
	return n >= least && n * bytes <= most && is_power_of_two(n);
}

// True for a tile that 256 threads have. One side of those of warpgroups may be no power of two, or
// twice as long in a block that is alone.
static bool is_tile(const Sched *s, const BlockSizes *z)
{
	enum { SIDE = 512 };
	int64_t bytes = z->dot.bytes, rows = s->swapped ? s->columns : s->height,
	        columns = s->swapped ? s->height : s->columns;
	if (s->swapped || s->alone || !is_power_of_two(columns))
		return z->groups && rows * bytes == SIDE && columns > GROUP_LINE &&
		       columns % GROUP_UNIT == 0 && columns * bytes <= 2 * SIDE &&
		       s->alone == (columns * bytes > SIDE);
	return is_side(rows, z->matrix ? MATRIX_ROWS : 16, bytes, SIDE) &&
	       is_side(columns, z->matrix ? MATRIX_COLUMNS : 16, bytes, SIDE);
}

// True if the stages, and one after those of products under way, are in the memory of the launch,
// if it gives any, and blocks have so much.
static bool has_stages(const Plan *p, const Sched *s, const BlockSizes *z)
{
	enum { LEAST = 2 };
	int64_t bytes = z->matrix ? elems[z->matrix].bytes : z->dot.bytes;
	int64_t stages = s->stages * z->lines * s->depth * bytes;
	return s->stages >= LEAST + s->alone && s->alone <= z->groups &&
	       (!s->shared || (stages <= s->shared && s->shared * residents(s, MAIN) <=
	                                                  (int64_t)p->machine->shared << 10));
}

static void check_block(const Plan *p, int k)
{
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	if (p->machine->threads != 256 || s->height < 1 || s->columns < 1 || s->depth < 1 ||
	    s->unroll < 1 || s->depth % s->unroll)
		fail(p->name, "kernel %d: a tile, or a part of the product, is empty", k);
	BlockSizes z = block_sizes(p->graph, kern, p->machine);
	if (!has_stages(p, s, &z))
		fail(p->name, "kernel %d: stages that blocks have no memory for", k);
	if (!is_tile(s, &z) || (z.matrix ? s->depth * elems[z.matrix].bytes % MATRIX_LINE ||
	                                       s->depth * elems[z.matrix].bytes > 2 * MATRIX_LINE
	                                 : s->depth != 8 && s->depth != 16))
		fail(p->name, "kernel %d: a tile of other sizes than 256 threads have", k);
	if ((s->a != W_copy && s->a != W_transpose) || (s->b != W_copy && s->b != W_transpose))
		fail(p->name, "kernel %d: threads read along k or not", k);
	if (s->parts > 1 && (s->reduce.count || !s->after))
		fail(p->name, "kernel %d: the parts are not the sum", k);
	if (s->workers != z.dot.batch * z.bands * z.across * MAX(1, s->parts))
		fail(p->name, "kernel %d: the product is not computed once, by %lld %s", k,
		     (long long)s->workers, PLURAL(s->workers, "worker", "workers"));
	if (s->work < z.work)
		fail(p->name, "kernel %d: it works in too few bytes", k);
}

static void check_attend_blocks(const Plan *p, int k)
{
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	AttendSizes z = attend_sizes(p->graph, kern, p->machine);
	AttendBlocks b = attend_blocks(p->graph, val(p->graph, kern->root), p->machine, z.back);
	if (!b.shared || s->height != b.height || s->columns != b.columns)
		fail(p->name, "kernel %d: a tile of %lld x %lld; expected %lld x %lld", k,
		     (long long)s->height, (long long)s->columns, (long long)b.height,
		     (long long)b.columns);
	AttendWorkers w = attend_workers(p->graph, kern, p->machine);
	if (s->shared != (b.launched ? b.shared : 0) || s->alone != (b.groups && w.keys))
		fail(p->name, "kernel %d: blocks have no memory or registers for the tile", k);
	if (s->workers + s->after != w.keys + w.queries + w.tiles ||
	    s->after != (w.keys && !w.together ? w.queries + w.tiles : 0))
		fail(p->name,
		     "kernel %d: the heads are not computed once, by %lld and %lld workers", k,
		     (long long)s->workers, (long long)s->after);
}

static void check_heads(const Plan *p, int k)
{
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	const Machine *m = p->machine;
	if (s->height < 1 || s->vectors < 1 || s->unroll < 1 || s->depth < 1 || s->strips < 1 ||
	    s->key_height < 1)
		fail(p->name, "kernel %d: a tile, or a part of the attention, is empty", k);
	AttendSizes z = attend_sizes(p->graph, kern, m);
	if (z.lower > z.strips)
		fail(p->name, "kernel %d: %lld strips of %lld rows and one less, of %lld", k,
		     (long long)z.strips, (long long)s->height, (long long)z.queries);
	int64_t registers = ceil_div(z.bytes * z.lanes, 4 * m->lanes);
	int64_t tile = MAX(s->height, s->key_height) * s->vectors;
	if (z.matrix ? tile != 4 * z.matrix || s->height != s->key_height
	             : (tile + s->vectors + 1) * registers > m->registers)
		fail(p->name, "kernel %d: a tile of %lld vectors in %d registers", k,
		     (long long)tile, m->registers);
	if (s->key_height > 2 * m->lanes)
		fail(p->name, "kernel %d: a tile of %lld keys; expected at most %d", k,
		     (long long)s->key_height, 2 * m->lanes);
	if (s->batches < 1 || s->workers != ceil_div(z.batch, s->batches) * (z.back ? 1 : z.parts))
		fail(p->name, "kernel %d: the heads are not computed once, by %lld %s", k,
		     (long long)s->workers, PLURAL(s->workers, "worker", "workers"));
	if (count_of(&z.added) > 1 && s->batches != count_of(&z.added))
		fail(p->name, "kernel %d: gradients of a bias are added up by several workers", k);
	if (s->local < z.local_bytes)
		fail(p->name, "kernel %d: it works in too few bytes", k);
}

// Reductions that are loops of a worker: in blocks, and in chains along the lanes.
static void check_sum(const Plan *p, int k, Ref r)
{
	const Sched *s = p->kerns.at[k].sched;
	int64_t chains = s->chains;
	for (int i = 0; i < s->reduce.count; i++)
		if (s->reduce.at[i].val == r)
			chains = s->reduce.at[i].chains;
	if (chains < 1 || chains > p->machine->registers || s->block < 1 || s->lane_block < 1)
		fail(p->name, "kernel %d: %%%u: expected 1 to %d chains, in blocks", k, r,
		     p->machine->registers);
}

// The workers of a launch have all rows, or pieces of all columns, of a map or of reductions.
static void check_loops(const Plan *p, int k)
{
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	Groups groups = kern_groups(kern);
	int64_t columns = 1, all = 1;
	for (int i = 0; i < groups.n; i++)
		if (!groups.reduced[i])
			all *= columns = groups.size[i];
	columns = MAX(1, s->flat ? all : columns);
	if (shares_columns(kern, p->machine) &&
	    (columns % s->columns || p->machine->threads % s->columns))
		fail(p->name, "kernel %d: threads cannot share %lld of %lld columns", k,
		     (long long)s->columns, (long long)columns);
	int64_t rows = kern->kind == L_map || s->partition == P_columns ? all / columns : all;
	int64_t workers =
	    s->partition == P_rows ? ceil_div(rows, s->rows) : rows * ceil_div(columns, s->columns);
	if (s->workers != workers)
		fail(p->name, "kernel %d: the space is not computed once, by %lld %s", k,
		     (long long)s->workers, PLURAL(s->workers, "worker", "workers"));
}

static void check_partials(const Plan *p, int k)
{
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	int64_t columns = 1, sums = s->reduce.count;
	for (int a = 0; a < kern->space.rank; a++)
		columns *= kern->reduce >> a & 1 ? 1 : kern->space.dim[a];
	int64_t blocks = ceil_div(count_of(&kern->space) / MAX(1, columns), s->rows);
	int64_t pieces = ceil_div(columns, s->columns), before = sums ? blocks : 0;
	int64_t workers = s->joined ? blocks * pieces : pieces;
	before = s->joined ? (s->joined == J_all && sums ? workers : 0) : before;
	if (s->before != before || s->workers != workers ||
	    (s->after && (s->joined || s->after != blocks)))
		fail(p->name,
		     "kernel %d: the columns are not computed once, by %lld, %lld and %lld workers",
		     k, (long long)s->before, (long long)s->workers, (long long)s->after);
	if ((s->joined && (s->columns > p->machine->threads || !is_power_of_two(s->columns))) ||
	    s->work < (sums * blocks + s->keep.count) * partial_line(columns) * PARTIAL)
		fail(p->name, "kernel %d: it works in too few bytes", k);
}

// True if a reduction of the kernel, or an output of the full shape, needs another reduction.
static bool needs_sums(const Contents *c)
{
	const Graph *g = c->plan->graph;
	const Kern *kern = &c->plan->kerns.at[c->k];
	bool *known = NEWS(c->arena, bool, g->nval), needs = false;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		known[r] = !is_computed(c, r);
	for (int i = 0; i < kern->sched->reduce.count; i++) {
		needs |= kern->sched->reduce.at[i].depth > 0;
		known[kern->sched->reduce.at[i].val] = true;
	}
	Reads reads = {0};
	Walk walk = walk_new(c->arena, g, known);
	walk_start(&walk, &reads);
	for (int o = 0; o < kern->nout; o++)
		if (!is_reduced_out(g, kern, o))
			walk_root(&walk, kern->out[o], &reads);
	for (int i = 0; i < reads.count; i++)
		needs |= is_computed(c, reads.at[i].val);
	return needs;
}

static void check_schedule(const Contents *c)
{
	const Plan *p = c->plan;
	int k = c->k;
	const Kern *kern = &p->kerns.at[k];
	const Sched *s = kern->sched;
	if (!s)
		fail(p->name, "kernel %d is not scheduled", k);
	if (kern->kind == L_loop)
		return;
	for (int a = 0, before = -1; a < kern->space.rank; a++) {
		if (kern->space.dim[a] == 1)
			continue;
		bool apart = before < 0 || ((kern->reduce >> a ^ kern->reduce >> before) & 1);
		if (apart && s->merged >> a & 1)
			fail(p->name, "kernel %d: a reduced axis and another are one loop", k);
		before = a;
	}
	if (s->workers < 1 || s->before < 0 || s->after < 0 || s->local < 0)
		fail(p->name, "kernel %d: a launch without workers", k);
	Turn turn;
	Inside inside = {is_computed, c};
	if (s->turned && (kern->kind != L_map || s->partition != P_rows || s->units < 1 ||
	                  !find_turn(c->arena, p->graph, &inside, kern->out[0], &turn)))
		fail(p->name, "kernel %d: it is not a copy that turns a value", k);
	if (s->team && (s->partition != P_rows || s->team != p->machine->warp || s->rows < 2 ||
	                kern->kind == L_map))
		fail(p->name, "kernel %d: no threads share a row", k);
	if (s->along && (kern->kind != L_row || s->partition != P_rows || needs_sums(c)))
		fail(p->name, "kernel %d: a single pass over a row cannot compute it", k);
	if (s->partition == P_tiles)
		check_tile(c);
	else if (s->partition == P_heads && p->machine->threads > 1)
		check_attend_blocks(p, k);
	else if (s->partition == P_heads)
		check_heads(p, k);
	else if (s->partition == P_blocks)
		check_block(p, k);
	else if ((s->partition != P_columns && s->rows < 1) ||
	         (s->partition != P_rows && (s->columns < 1 || s->units < 1)))
		fail(p->name, "kernel %d: a worker has nothing to do", k);
	else if (s->joined &&
	         (s->partition != P_partials || p->machine->threads == 1 || !s->reduce.count))
		fail(p->name, "kernel %d: it has no partial results to join", k);
	else if (s->partition == P_partials)
		check_partials(p, k);
	else if (!s->turned && (kern->kind == L_map || kern->kind == L_row || kern->kind == L_col))
		check_loops(p, k);
}

// ---- shapes of kernels ----------------------------------------------------------------

// True for the shape of reductions of a product's columns, or of the rows of one matrix.
static bool is_dot_reduced(const Kern *kern, const Shape *s)
{
	int64_t columns = last_dim(&kern->space), last = last_dim(s), rows = 1;
	if (!reduces_along(kern))
		return last == columns && count_of(s) == last;
	for (int a = 0; a < s->rank; a++)
		rows = MAX(rows, s->dim[a]);
	return last == 1 && count_of(s) == rows && rows * columns == count_of(&kern->space);
}

static bool out_fits(const Kern *kern, const Shape *s)
{
	if (kern->kind == L_loop || kern->kind == L_attend)
		return true;
	if (kern->kind == L_map)
		return count_of(s) == count_of(&kern->space);
	if (kern->kind == L_dot && count_of(s) != count_of(&kern->space))
		return kern->reduce && is_dot_reduced(kern, s);
	if (kern->kind == L_dot)
		return last_dim(s) == last_dim(&kern->space);
	bool reductions = kern->kind == L_row || kern->kind == L_col;
	return same_shape(s, &kern->space) ||
	       (reductions && is_reduced(s, &kern->space, kern->reduce));
}

// Attention, or its gradients, of one list of operands.
static bool attention_fits(const Kern *kern, const Graph *g, Ref r)
{
	Ref out = 0;
	for (int i = 0; i < kern->nout; i++)
		out = attention_of(g, kern->out[i]) == r ? r : out;
	return out && same_attention(val(g, kern->root), val(g, r));
}

static bool inside_fits(const Kern *kern, const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (is_attention(v->op))
		return kern->kind == L_attend && attention_fits(kern, g, r);
	if (r == kern->root)
		return kern->kind == L_dot || kern->kind == L_scatter || kern->kind == L_scan ||
		       kern->kind == L_loop;
	if (kern->kind == L_loop)
		return v->op == O_result || v->op == O_const;
	if (v->op == O_dot || v->op == O_scatter || v->op == O_cumsum ||
	    prims[v->op].cls == C_composite || prims[v->op].cls == C_loop)
		return false;
	if (prims[v->op].cls != C_reduce || reduces_windows(g, v))
		return true;
	const Shape *own = &val(g, v->in[0])->shape;
	if (kern->kind == L_dot)
		return kern->reduce && count_of(own) == count_of(&kern->space) &&
		       is_dot_reduced(kern, &v->shape);
	if ((kern->kind != L_row && kern->kind != L_col) || !same_shape(own, &kern->space))
		return false;
	for (int a = 0; a < kern->space.rank; a++)
		if (kern->space.dim[a] != 1 && has_axis(v->attr, a) != (kern->reduce >> a & 1))
			return false;
	return true;
}

static void check_inside(const Contents *c, Ref r)
{
	const Val *v = val(c->plan->graph, r);
	if (c->seen[r] == c->k + 1 || v->op == O_slot)
		return;
	c->seen[r] = c->k + 1;
	const Kern *kern = &c->plan->kerns.at[c->k];
	bool loop = kern->sched->partition == P_rows || kern->sched->partition == P_columns ||
	            reduces_windows(c->plan->graph, v);
	if (loop && (v->op == O_dot || (prims[v->op].cls == C_reduce && v->op != O_cumsum)))
		check_sum(c->plan, c->k, r);
	if (!inside_fits(kern, c->plan->graph, r))
		fail(c->plan->name, "kernel %d: %%%u (%s) does not belong there", c->k, r,
		     prims[v->op].name);
	for (int i = 0; i < v->nin; i++) {
		int writer = c->writer[v->in[i]];
		if (writer < 0 || writer == c->k)
			check_inside(c, v->in[i]);
	}
}

void verify_plan(const Plan *p)
{
	const Graph *g = p->graph;
	Arena *arena = arena_within(g->arena);
	Memory m = {.plan = p};
	const Reads *reads = plan_reads(arena, p);
	Contents c = {arena, p, plan_writers(arena, p), 0, NEWS(arena, int, g->nval)};
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_slot)
			PUSH(arena, m.owned, ((Owned){p->place[r], bytes_of(val(g, r)), r}));
	for (int t = 0; t < run_count(p); t++) {
		int k = run_kernel(p, t);
		const Kern *kern = &p->kerns.at[k];
		for (int i = 0; i < reads[k].count; i++) {
			Ref r = reads[k].at[i].val;
			want_value(&m, p->place[r], r, "kernel", k);
		}
		if (kern->bundled && !same_launches(kern->sched, p->kerns.at[k - 1].sched))
			fail(p->name, "kernel %d: its launches are not those of kernel %d", k,
			     k - 1);
		if (is_bundled(p, k) && kern->body)
			fail(p->name, "kernel %d: a loop is part of a launch", k);
		check_bundle(p, run_kernel(p, launch_begin(p, t)), k, reads);
		c.k = k;
		check_schedule(&c);
		check_places(p, k, &reads[k]);
		if (kern->sched->work)
			forget_values(&m, kern->work, kern->sched->work);
		if (kern->body)
			verify_plan(kern->body);
		for (int i = 0; i < kern->nout; i++) {
			int64_t bytes = bytes_of(val(g, kern->out[i]));
			forget_values(&m, kern->to[i], bytes);
			PUSH(arena, m.owned, ((Owned){kern->to[i], bytes, kern->out[i]}));
		}
	}
	for (int i = 0; i < g->outs.count; i++)
		want_value(&m, (Location){B_output, i}, g->outs.at[i].val, "output", i);
	for (int i = 0; i < g->stores.count; i++)
		want_value(&m, p->slot[g->stores.at[i].slot], g->stores.at[i].val, "store", i);
	for (c.k = 0; c.k < p->kerns.count; c.k++) {
		const Kern *kern = &p->kerns.at[c.k];
		for (int i = 0; i < kern->nout; i++) {
			if (!out_fits(kern, &val(g, kern->out[i])->shape))
				fail(p->name, "kernel %d: out %%%u does not fit its space", c.k,
				     kern->out[i]);
			if (c.writer[kern->out[i]] == c.k)
				check_inside(&c, kern->out[i]);
		}
	}
	arena_free(arena);
}
