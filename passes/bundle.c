// bundle.c: launches small kernels together, on GPUs.
// To start a kernel takes a GPU longer than the update of a bias, which also leaves most of its
// multiprocessors idle. So kernels of one launch that need no other of it are:
//   last     small ones that store, and small ones that only these need
//   waiting  larger ones of the kind, and the products before them, such as gradients of weights,
//            which wait for further ones, in little memory
//   first    those that read only slots, such as the copies of weights in bf16, and what only these
//            compute
//   own      others that can run now and are like the next one, such as the products for queries,
//            keys and values
// A kernel that needs others of its group is in a later launch. Kernels of several launches have
// their first in one launch, their second, and so on. Each worker computes what it would alone.
// Products with the same code fill a GPU together: their sums are split only as far as they do
// not.
#include "memory.h"
#include "passes.h"
#include <string.h>

enum {
	MOST = 128 << 20, // bytes that the first kernels write, or few waiting ones hold
	SHARE = 4,        // of the parameters' bytes, and of a group's for one kernel, at most
	FEWEST = 2,       // products in a group
	MORE = 32,        // a part of scratch, by which it may grow so that kernels wait
	HELD = 8,         // a part of scratch, which those that wait may hold
	NEARBY = 16,      // kernels that may run before their place
};

// T_own: it keeps its place, or is launched with one before it.
typedef enum Turn { T_own, T_first, T_waiting, T_last } Turn;

typedef struct Bundle {
	Arena *arena;
	Plan *plan;
	const Reads *reads; // by kernel
	const int *writer;  // by Ref
	int *store, *also;  // by Ref, by store: 1 + a store of it, another store of the value
	Turn *turn;         // by kernel; done: it is in the new order
	bool *done;
	int *level;           // by kernel: its launch in the group, from 1 on; 0: it is in none
	int *reader, *storer; // by slot: the last launch of the group that reads it, overwrites it
	Ints group;           // kernels
	int groups;           // before it
	int *holder;          // by Ref: 1 + the last group that holds it
	int *last;            // by Ref: the last kernel that reads it
	int64_t held, room;   // bytes of the group, at most
	int64_t first;        // bytes of kernels that run first, at most
	int window;           // kernels that may run before their place
	Kern *kern;           // the new order
	int count;
} Bundle;

static bool is_plain(const Kern *kern)
{
	return kern->kind == L_map || kern->kind == L_row || kern->kind == L_col;
}

// True if the main launch is all of kernel k, some multiprocessors would have none of it, and what
// it reads may stay in memory for so long.
static bool is_small(const Bundle *b, int k)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	const Sched *s = kern->sched;
	bool small = !s->before && !s->after && s->workers < b->plan->machine->workers;
	for (int i = 0; i < b->reads[k].count; i++) {
		const Val *v = val(g, b->reads[k].at[i].val);
		small &= v->op == O_slot || count_of(&v->shape) <= LARGE_SPACE;
	}
	return small && is_plain(kern) && count_of(&kern->space) <= LARGE_SPACE;
}

// Bytes that kernel k keeps in memory if it runs later, or earlier: of what others compute, or of
// its results.
static int64_t bytes_held(const Bundle *b, int k, Turn turn)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	int64_t bytes = 0;
	for (int i = 0; i < b->reads[k].count && turn != T_first; i++)
		if (b->writer[b->reads[k].at[i].val] >= 0)
			bytes += bytes_of(val(g, b->reads[k].at[i].val));
	for (int o = 0; o < kern->nout && turn == T_first; o++)
		bytes += bytes_of(val(g, kern->out[o]));
	return bytes;
}

// Sums of a product's rows are for kernels that do not wait.
static bool is_product(const Kern *kern)
{
	return kern->sched->partition == P_blocks && !kern->sched->reduce.count;
}

static bool may_be(const Bundle *b, int k, Turn turn)
{
	const Kern *kern = &b->plan->kerns.at[k];
	if (turn == T_last)
		return is_small(b, k);
	if (turn == T_waiting && is_product(kern))
		return bytes_held(b, k, turn) <= b->room / FEWEST;
	int64_t room = turn == T_first ? b->first : b->room;
	return is_plain(kern) && bytes_held(b, k, turn) <= room / SHARE;
}

// Marks the kernels that store, and those that only marked ones need, from the last on.
static void find_late(const Bundle *b, Turn turn)
{
	const Plan *p = b->plan;
	int n = p->kerns.count;
	bool *stores = NEWS(b->arena, bool, n), *needed = NEWS(b->arena, bool, n);
	for (int i = 0; i < p->graph->stores.count; i++) {
		int k = b->writer[p->graph->stores.at[i].val];
		if (k >= 0)
			stores[k] = true;
	}
	for (int k = n - 1; k >= 0; k--) {
		if (!b->turn[k] && stores[k] && !needed[k] && may_be(b, k, turn))
			b->turn[k] = turn;
		for (int i = 0; i < b->reads[k].count; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			if (from < 0 || from == k)
				continue;
			stores[from] |= b->turn[k] != T_own;
			needed[from] |= b->turn[k] == T_own;
		}
	}
}

static bool overwrites_slot(const Bundle *b, int k)
{
	const Kern *kern = &b->plan->kerns.at[k];
	bool overwrites = false;
	for (int o = 0; o < kern->nout; o++)
		overwrites |= b->store[kern->out[o]] > 0;
	return overwrites;
}

// Those that overwrite a slot run no earlier than they do: others read it.
static void find_first(const Bundle *b)
{
	for (int k = 0; k < b->plan->kerns.count; k++) {
		bool first = !b->turn[k] && may_be(b, k, T_first);
		for (int i = 0; i < b->reads[k].count && first; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			first = from < 0 || b->turn[from] == T_first;
		}
		b->turn[k] = first && !overwrites_slot(b, k) ? T_first : b->turn[k];
	}
}

// ---- groups ---------------------------------------------------------------------------

static void put_kernel(Bundle *b, int k, bool bundled)
{
	b->kern[b->count] = b->plan->kerns.at[k];
	b->kern[b->count++].bundled = bundled;
	b->done[k] = true;
	b->level[k] = 0;
}

// What a kernel computes, beside what another does.
typedef struct Likeness {
	const Bundle *b;
	int k, other;
	Table *known; // a value of k -> that of the other
} Likeness;

static bool same_values(const Likeness *l, Ref x, Ref y)
{
	const Plan *p = l->b->plan;
	const Val *v = val(p->graph, x), *w = val(p->graph, y);
	uint64_t *known = table_cell(l->known, &x, sizeof x);
	if (*known)
		return *known == (uint64_t)y;
	*known = (uint64_t)y;
	bool inside = is_inside(p, l->b->writer, l->k, x);
	bool same = v->type == w->type && same_shape(&v->shape, &w->shape) &&
	            inside == is_inside(p, l->b->writer, l->other, y);
	if (!same || !inside)
		return same;
	size_t count = sizeof *v->attr->i * (size_t)v->attr->n;
	same = v->op == w->op && v->nin == w->nin && v->attr->n == w->attr->n &&
	       !memcmp(v->attr->i, w->attr->i, count) &&
	       !memcmp(&v->attr->x, &w->attr->x, sizeof v->attr->x) &&
	       (v->op != O_const || !memcmp(v->data, w->data, (size_t)elems[v->type].bytes));
	for (int i = 0; i < v->nin && same; i++)
		same = same_values(l, v->in[i], w->in[i]);
	return same;
}

// True if kernels are launched together if they may be: they have the same kinds of launches, or
// are products with the same code: of others, the compiler would give each loop the registers that
// all need, and the launch the shared memory.
static bool is_alike(const Bundle *b, int k, int other)
{
	const Kern *x = &b->plan->kerns.at[k], *y = &b->plan->kerns.at[other];
	if (!is_product(x) || !is_product(y))
		return is_product(x) == is_product(y) && !x->sched->before == !y->sched->before &&
		       !x->sched->after == !y->sched->after;
	const Val *v = val(b->plan->graph, x->root), *w = val(b->plan->graph, y->root);
	if (x->nout != y->nout || !same_shape(&v->shape, &w->shape))
		return false;
	Likeness l = {b, k, other, table_new(b->arena)};
	bool same = true;
	for (int o = 0; o < x->nout && same; o++)
		same = (x->out[o] == x->root) == (y->out[o] == y->root) &&
		       same_values(&l, x->out[o], y->out[o]);
	return same;
}

// Launches the kernels of a list with this level, those that are alike together.
static void put_level(Bundle *b, const Ints *list, int level)
{
	for (int i = 0; i < list->count; i++) {
		int first = list->at[i];
		if (b->done[first] || b->level[first] != level)
			continue;
		Ints alike = {0};
		for (int j = i; j < list->count; j++) {
			int k = list->at[j];
			if (!b->done[k] && b->level[k] == level && is_alike(b, first, k))
				PUSH(b->arena, alike, k);
		}
		if (alike.count > 1 && is_product(&b->plan->kerns.at[first]))
			tile_together(b->arena, b->plan, &alike);
		for (int j = 0; j < alike.count; j++)
			put_kernel(b, alike.at[j], j > 0);
	}
}

// Launches the group or, if `products`, no more of it than its products need, and begins another.
static void put_levels(Bundle *b, bool products)
{
	int last = 0, slots = b->plan->graph->slots.count;
	for (int i = 0; i < b->group.count; i++) {
		int k = b->group.at[i];
		if (!products || is_product(&b->plan->kerns.at[k]))
			last = MAX(last, b->level[k]);
	}
	for (int level = 1; level <= last; level++)
		put_level(b, &b->group, level);
	memset(b->reader, 0, sizeof *b->reader * (size_t)slots);
	memset(b->storer, 0, sizeof *b->storer * (size_t)slots);
	b->group.count = 0;
	b->groups++;
	b->held = 0;
}

static void put_group(Bundle *b)
{
	put_levels(b, false);
}

// Adds what kernel k reads, and others compute, to the bytes that the group holds: but for what
// other kernels that wait will read.
static void hold(Bundle *b, int k)
{
	for (int i = 0; i < b->reads[k].count; i++) {
		Ref r = b->reads[k].at[i].val;
		int last = b->last[r];
		if (b->writer[r] < 0 || b->holder[r] == b->groups + 1 ||
		    (last > k && b->turn[last] != T_own))
			continue;
		b->holder[r] = b->groups + 1;
		b->held += bytes_of(val(b->plan->graph, r));
	}
}

// Returns the last launch of the group that kernel k has to run after: of those whose results it
// reads, that read a slot that it overwrites, or overwrite one that it reads.
static int level_before(const Bundle *b, int k)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	int before = 0;
	for (int i = 0; i < b->reads[k].count; i++) {
		Ref r = b->reads[k].at[i].val;
		const Val *v = val(g, r);
		int from = b->writer[r];
		if (v->op == O_slot)
			before = MAX(before, b->storer[v->attr->i[0]]);
		else if (from >= 0 && from != k)
			before = MAX(before, b->level[from]);
	}
	for (int o = 0; o < kern->nout; o++)
		for (int s = b->store[kern->out[o]]; s; s = b->also[s - 1])
			before = MAX(before, b->reader[g->stores.at[s - 1].slot]);
	return before;
}

static void join_group(Bundle *b, int k)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	int level = b->level[k] = level_before(b, k) + 1;
	for (int i = 0; i < b->reads[k].count; i++) {
		const Val *v = val(g, b->reads[k].at[i].val);
		if (v->op == O_slot)
			b->reader[v->attr->i[0]] = MAX(b->reader[v->attr->i[0]], level);
	}
	for (int o = 0; o < kern->nout; o++)
		for (int s = b->store[kern->out[o]]; s; s = b->also[s - 1])
			b->storer[g->stores.at[s - 1].slot] = level;
	hold(b, k);
	PUSH(b->arena, b->group, k);
}

// Launches the group's products, whose operands take up most of its room. Kernels that follow them,
// such as the updates of their weights, go on waiting in the next group if they need little.
static void put_products(Bundle *b)
{
	Ints all = {0};
	for (int i = 0; i < b->group.count; i++)
		PUSH(b->arena, all, b->group.at[i]);
	put_levels(b, true);
	for (int i = 0; i < all.count; i++)
		if (!b->done[all.at[i]])
			join_group(b, all.at[i]);
	if (b->held > b->room / MORE)
		put_group(b);
}

// Launches those that run first, from kernel k on, as many as there is room for.
static void put_first(Bundle *b, int k)
{
	Ints list = {0};
	int64_t held = 0;
	int last = 0;
	for (; k < b->plan->kerns.count && held <= b->first; k++) {
		if (b->turn[k] != T_first || b->done[k])
			continue;
		for (int i = 0; i < b->reads[k].count; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			if (from >= 0 && !b->done[from])
				b->level[k] = MAX(b->level[k], b->level[from] + 1);
		}
		last = MAX(last, b->level[k]);
		PUSH(b->arena, list, k);
		held += bytes_held(b, k, T_first);
	}
	for (int level = 0; level <= last; level++)
		put_level(b, &list, level);
}

// True if kernel k, which is like kernel `place`, can run with it: what it reads is computed.
static bool can_join(const Bundle *b, int place, int k)
{
	const Kern *kern = &b->plan->kerns.at[k], *like = &b->plan->kerns.at[place];
	bool can = b->turn[k] == T_own && !b->done[k] && kern->kind == like->kind &&
	           same_shape(&kern->space, &like->space) && is_alike(b, place, k) &&
	           !overwrites_slot(b, k) && bytes_held(b, k, T_first) <= b->room / SHARE;
	for (int i = 0; i < b->reads[k].count && can; i++) {
		int from = b->writer[b->reads[k].at[i].val];
		can = from < 0 || b->done[from];
	}
	return can;
}

static void put_own(Bundle *b, int k)
{
	const Kern *kern = &b->plan->kerns.at[k];
	Ints list = {0};
	PUSH(b->arena, list, k);
	int end = MIN(b->plan->kerns.count, k + 1 + b->window);
	bool joins = (is_plain(kern) || is_product(kern)) && !overwrites_slot(b, k);
	for (int other = k + 1; other < end && joins; other++)
		if (can_join(b, k, other))
			PUSH(b->arena, list, other);
	put_level(b, &list, 0);
}

// Returns the plan with kernels bundled, of which those that run first write at most `first` bytes,
// and those that wait hold `room`.
static Plan bundled(Arena *arena, Plan p, int64_t first, int64_t room, int window)
{
	int n = p.kerns.count, slots = p.graph->slots.count;
	p.kerns.at = take_copy(arena, p.kerns.at, sizeof(Kern) * (size_t)n);
	p.kerns.room = n;
	Bundle b = {.arena = arena,
	            .plan = &p,
	            .reads = plan_reads(arena, &p),
	            .writer = plan_writers(arena, &p),
	            .store = NEWS(arena, int, p.graph->nval),
	            .also = NEWS(arena, int, p.graph->stores.count + 1),
	            .turn = NEWS(arena, Turn, n),
	            .done = NEWS(arena, bool, n),
	            .level = NEWS(arena, int, n),
	            .holder = NEWS(arena, int, p.graph->nval),
	            .last = NEWS(arena, int, p.graph->nval),
	            .reader = NEWS(arena, int, slots + 1),
	            .storer = NEWS(arena, int, slots + 1),
	            .kern = NEWS(arena, Kern, n),
	            .first = first,
	            .room = room,
	            .window = window};
	for (int i = 0; i < p.graph->stores.count; i++) {
		int *store = &b.store[p.graph->stores.at[i].val];
		b.also[i] = *store;
		*store = 1 + i;
	}
	for (int k = 0; k < n; k++)
		for (int i = 0; i < b.reads[k].count; i++)
			b.last[b.reads[k].at[i].val] = k;
	find_late(&b, T_last);
	find_late(&b, T_waiting);
	find_first(&b);
	for (int k = 0; k < n; k++) {
		if (b.turn[k] == T_own && !b.done[k])
			put_own(&b, k);
		else if (b.turn[k] == T_first && !b.done[k])
			put_first(&b, k);
		else if (b.turn[k] == T_waiting)
			join_group(&b, k);
		if (b.held > b.room)
			put_products(&b);
	}
	put_group(&b);
	for (int k = 0; k < n; k++)
		if (b.turn[k] == T_last)
			join_group(&b, k);
	put_group(&b);
	p.kerns.at = b.kern;
	return p;
}

static int64_t scratch_bytes(Arena *arena, Plan *p)
{
	Arena *scratch = arena_within(arena);
	MemoryPlan l = memory_plan(scratch, p, plan_reads(scratch, p), plan_writers(scratch, p));
	int64_t bytes = place_buffers(&l);
	arena_free(scratch);
	return bytes;
}

// The more kernels wait, the fuller are their launches: as many as scratch has room for after the
// gradients that need most of it.
void bundle_pass(Arena *arena, Plan *p, bool limited)
{
	if (p->machine->threads == 1)
		return;
	int64_t parameters = 0;
	for (int i = 0; i < p->graph->slots.count; i++) {
		const Slot *s = &p->graph->slots.at[i];
		parameters += s->kind == S_param ? byte_count(s->type, &s->shape) : 0;
	}
	int64_t few = MIN(parameters / SHARE, MOST);
	const Plan alone = *p, least = bundled(arena, alone, few, few, 0);
	*p = least;
	if (limited)
		return;
	int64_t scratch = scratch_bytes(arena, p), most = scratch + scratch / MORE;
	for (int64_t room = MAX(parameters, scratch / HELD); room > few; room /= 2)
		for (int window = NEARBY; window >= 0; window -= NEARBY) {
			*p = bundled(arena, alone, few, room, window);
			if (scratch_bytes(arena, p) <= most)
				return;
		}
	*p = least;
}
