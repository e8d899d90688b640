// fuse.c: joins values in memory into kernels, Graph -> Plan.
// Every value that materialize.c marks starts as a group, a kernel of its own. Two groups join if
// one loop can compute both and no third kernel must run between them. A value that no other kernel
// reads is not stored. Kernels are in no order; loops have no plans of their bodies yet. Invariant:
// groups never form a cycle.
#include "passes.h"
#include <stdlib.h>

typedef struct Group {
	KernKind kind;
	Shape space;
	uint32_t reduce;
	Ref root;
	Refs member;   // empty: the group was joined into another
	Effort effort; // of all members
} Group;

typedef struct Fuse {
	Arena *arena;
	const Graph *graph;
	const Machine *machine;
	bool *cut, *kept;
	Reads *reads; // by Ref, of cut values
	Refs *users;  // by Ref: cut values that read it
	int *of;      // by Ref: group of a cut value
	VEC(Group) group;
	int *seen, epoch; // by group
	int to, begin; // of the last sweep of detour(): what it starts from, the place it ends at
	int *place;    // by group: in an order in which what it reads comes first
	int *order;    // by place: the group
	int *late;     // scratch: groups that move after others
} Fuse;

static bool reductions(KernKind kind)
{
	return kind == L_row || kind == L_col;
}

static Group first_group(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	Group group = {.kind = L_map, .space = v->shape};
	if (v->op == O_cumsum)
		return (Group){
		    .kind = L_scan, .space = v->shape, .reduce = 1u << v->attr->i[0], .root = r};
	if (v->op == O_dot || v->op == O_scatter)
		return (Group){
		    .kind = v->op == O_dot ? L_dot : L_scatter, .space = v->shape, .root = r};
	if (v->op == O_loop)
		return (Group){.kind = L_loop, .root = r};
	if (is_attention(v->op))
		return (Group){.kind = L_attend, .space = v->shape, .root = r};
	if (prims[v->op].cls == C_composite)
		bug("%s has not been decomposed", prims[v->op].name);
	if (prims[v->op].cls != C_reduce || reduces_windows(g, v))
		return group;
	group.space = val(g, v->in[0])->shape;
	int last = group.space.rank - 1;
	while (last > 0 && group.space.dim[last] == 1)
		last--;
	for (int i = 0; i < v->attr->n; i++)
		if (group.space.dim[v->attr->i[i]] != 1)
			group.reduce |= 1u << v->attr->i[i];
	bool row = !group.reduce || (group.reduce >> last & 1);
	group.kind = row ? L_row : L_col;
	for (int a = last; row && a < group.space.rank; a++) // axes of 1 after it belong to it
		group.reduce |= 1u << a;
	return group;
}

static void add_effort(Effort *sum, Effort more)
{
	sum->depth += more.depth;
	sum->windows |= more.windows;
	sum->turned |= more.turned;
}

static Fuse fuse_start(Arena *arena, const Graph *g, const Machine *machine)
{
	Effort *effort;
	Fuse f = {.arena = arena,
	          .graph = g,
	          .machine = machine,
	          .to = -1,
	          .cut = materialize_pass(arena, g, machine, &effort)};
	f.kept = NEWS(arena, bool, g->nval);
	f.reads = NEWS(arena, Reads, g->nval);
	f.users = NEWS(arena, Refs, g->nval);
	f.of = NEWS(arena, int, g->nval);
	for (int i = 0; i < g->outs.count; i++)
		f.kept[g->outs.at[i].val] = true;
	for (int i = 0; i < g->stores.count; i++)
		f.kept[g->stores.at[i].val] = true;
	Walk w = walk_new(arena, g, f.cut);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		f.of[r] = -1;
		if (!f.cut[r])
			continue;
		bool result = v->op == O_result; // computed with its loop
		f.of[r] = result ? f.of[v->in[0]] : f.group.count;
		if (!result)
			PUSH(arena, f.group, first_group(g, r));
		PUSH(arena, f.group.at[f.of[r]].member, r);
		add_effort(&f.group.at[f.of[r]].effort, effort[r]);
		walk_start(&w, &f.reads[r]);
		walk_root(&w, r, &f.reads[r]);
		for (int i = 0; i < f.reads[r].count; i++)
			PUSH(arena, f.users[f.reads[r].at[i].val], r);
	}
	f.seen = NEWS(arena, int, f.group.count);
	f.place = NEWS(arena, int, f.group.count);
	f.order = NEWS(arena, int, f.group.count);
	f.late = NEWS(arena, int, f.group.count);
	for (int i = 0; i < f.group.count; i++)
		f.place[i] = f.order[i] = i;
	return f;
}

// ---- may two groups join? -------------------------------------------------------------

// Returns all axes but the last, except those of size 1.
static uint32_t row_axes(const Shape *s)
{
	uint32_t axes = 0;
	for (int a = 0; a + 1 < s->rank; a++)
		if (s->dim[a] != 1)
			axes |= 1u << a;
	return axes;
}

// True if the operands of its reductions have this shape, and parts of them can be reduced alone.
static bool reduces_operands(const Graph *g, const Group *group, const Shape *shaped)
{
	for (int i = 0; i < group->member.count; i++) {
		const Val *v = val(g, group->member.at[i]);
		bool parts = v->op != O_argmax && v->op != O_cumsum;
		if (prims[v->op].cls == C_reduce &&
		    (!parts || !same_shape(&val(g, v->in[0])->shape, shaped)))
			return false;
	}
	return true;
}

// True if c reads a reduction of p.
static bool reads_reduction(const Fuse *f, const Group *p, const Group *c)
{
	for (int m = 0; m < c->member.count; m++) {
		const Reads *reads = &f->reads[c->member.at[m]];
		for (int i = 0; i < reads->count; i++) {
			Ref r = reads->at[i].val;
			if (f->of[r] == p - f->group.at &&
			    prims[val(f->graph, r)->op].cls == C_reduce)
				return true;
		}
	}
	return false;
}

// True if r is computed from a reduction of group p, within p and c.
static bool is_after(const Fuse *f, Ref r, int p, int c)
{
	for (int i = 0; i < f->reads[r].count; i++) {
		Ref u = f->reads[r].at[i].val;
		bool reduces = f->of[u] == p && prims[val(f->graph, u)->op].cls == C_reduce;
		bool inside =
		    u != r && (f->of[u] == p || f->of[u] == c); // copies of slots read them
		if (reduces || (inside && is_after(f, u, p, c)))
			return true;
	}
	return false;
}

// True if a reduction of c needs one of p. On a CPU, where the launch that adds up parts is not the
// one that uses the sums, all that reads one counts.
static bool needs_reduction(const Fuse *f, const Group *p, const Group *c)
{
	bool needs = f->machine->threads == 1 && reads_reduction(f, p, c);
	for (int m = 0; m < c->member.count && !needs; m++) {
		Ref r = c->member.at[m];
		needs = prims[val(f->graph, r)->op].cls == C_reduce &&
		        is_after(f, r, (int)(p - f->group.at), (int)(c - f->group.at));
	}
	return needs;
}

// True if each element of its space needs a result of c and nothing that other rows are needed for:
// one kernel may compute both.
static bool is_needed_by_rows(const Fuse *f, const Group *c)
{
	enum { NONE, ROW, ALL }; // needs no result of c; those of its row; of others
	Arena *scratch = arena_within(f->arena);
	int *needs = NEWS(scratch, int, f->graph->nval);
	int64_t elements = count_of(&c->space);
	bool found = false;
	for (Ref r = c->member.at[0]; r < (Ref)f->graph->nval && !found; r++) {
		const Reads *reads = &f->reads[r];
		for (int i = 0; i < reads->count && f->of[r] != c - f->group.at; i++)
			needs[r] = MAX(needs[r], needs[reads->at[i].val]);
		if (f->cut[r] && f->of[r] == c - f->group.at)
			needs[r] = ROW;
		else if (needs[r] == ROW && count_of(&f->group.at[f->of[r]].space) >= elements)
			found = true;
		else if (needs[r] && prims[val(f->graph, r)->op].cls != C_map)
			needs[r] = ALL;
	}
	arena_free(scratch);
	return found;
}

// True if the group reads nothing but values of p.
static bool reads_alone(const Fuse *f, const Group *group, const Group *p)
{
	bool alone = true;
	for (int m = 0; m < group->member.count; m++) {
		const Reads *reads = &f->reads[group->member.at[m]];
		for (int i = 0; i < reads->count; i++)
			alone &= f->of[reads->at[i].val] == p - f->group.at;
	}
	return alone;
}

// True if c reduces each row of a matrix of p, on a CPU, none of its reductions needs another or
// picks an element, and no kernel that reads the rows anyway may do so meanwhile.
static bool reduces_each_row(const Fuse *f, const Group *p, const Group *c)
{
	int last = c->space.rank - 1, others = 0;
	for (int a = 0; a < last; a++)
		others += c->space.dim[a] != 1;
	return f->machine->threads == 1 && c->kind == L_row && c->reduce == 1u << last &&
	       others == 1 && reads_alone(f, c, p) && !is_needed_by_rows(f, c);
}

// A product may reduce its rows or columns as they leave the tile if they are all of one matrix, by
// workers that have complete sums, reading them again would cost more than a launch, and no
// reduction needs another.
static bool reduces_tiles(const Fuse *f, const Group *p, const Group *c)
{
	const Graph *g = f->graph;
	const Val *root = val(g, p->root);
	const Shape *a = &val(g, root->in[0])->shape, *b = &val(g, root->in[1])->shape;
	for (int i = 0; i + 2 < b->rank; i++)
		if (b->dim[i] != 1)
			return false;
	for (int i = 0; i < c->member.count; i++)
		if (prims[val(g, c->member.at[i])->op].cls != C_reduce)
			return false;
	bool tiles =
	    (f->machine->rows || f->machine->threads > 1) && !splits_sums(g, p->root, f->machine);
	return tiles && !reads_reduction(f, p, c) && count_of(&c->space) == count_of(&p->space) &&
	       last_dim(&c->space) == last_dim(&p->space) && count_of(&p->space) >= LARGE_SPACE &&
	       count_of(a) && reduces_operands(g, p, &c->space) &&
	       reduces_operands(g, c, &c->space) &&
	       (c->kind == L_col ? c->reduce == row_axes(&c->space) : reduces_each_row(f, p, c));
}

// True if c computes one value for each column from sums of the tiles of p: the launch of a GPU
// that adds up their parts has a thread for each.
static bool finishes_sums(const Fuse *f, const Group *p, const Group *c)
{
	bool same = false;
	for (int i = 0; i < p->member.count; i++) {
		const Val *v = val(f->graph, p->member.at[i]);
		same |= prims[v->op].cls == C_reduce && same_shape(&v->shape, &c->space);
	}
	return same && f->machine->threads > 1;
}

// True if c rounds a result of attention p to a type of 16 bits, and nothing else reads it: blocks
// of threads store it so.
static bool rounds_attention(const Fuse *f, const Group *p, const Group *c)
{
	Ref r = c->member.at[0], from = val(f->graph, r)->in[0];
	bool rounds =
	    f->machine->threads > 1 || attend_matrix(f->graph, val(f->graph, p->root), f->machine);
	return rounds && c->kind == L_map && c->member.count == 1 &&
	       val(f->graph, r)->op == O_cast && is_half(val(f->graph, r)->type) &&
	       f->of[from] == p - f->group.at && f->users[from].count == 1 && !f->kept[from];
}

// Finds the group that computes both, p before c. False if one loop cannot.
static bool combine(const Fuse *f, const Group *p, const Group *c, Group *both)
{
	if (p->kind == L_dot && reductions(c->kind)) {
		*both = *p;
		both->reduce = c->kind == L_col ? row_axes(&p->space) : 1u << (p->space.rank - 1);
		return (!p->reduce || p->reduce == both->reduce) && reduces_tiles(f, p, c);
	}
	if (p->kind == L_dot && p->reduce && c->kind == L_map &&
	    count_of(&c->space) < count_of(&p->space)) {
		*both = *p;
		return finishes_sums(f, p, c);
	}
	if (p->kind == L_attend && c->kind == L_attend) {
		const Val *a = val(f->graph, p->root), *b = val(f->graph, c->root);
		*both = b->op == O_attend ? *c : *p;
		return same_attention(a, b);
	}
	if (p->kind == L_attend) {
		*both = *p;
		return rounds_attention(f, p, c);
	}
	const Group *main = reductions(c->kind) ? c : p, *other = main == c ? p : c;
	*both = *main;
	// Of a large space, workers own rows, and what sums are needed for takes another launch.
	bool by_rows = main->kind == L_col && main->reduce == row_axes(&main->space) &&
	               count_of(&main->space) >= rows_space(f->machine);
	if (reductions(main->kind) && reductions(other->kind))
		return main->kind == other->kind && main->reduce == other->reduce &&
		       same_shape(&p->space, &c->space) && !(by_rows && needs_reduction(f, p, c));
	if (other->kind != L_map || (reductions(main->kind) && other->effort.windows))
		return false; // the elements of a row are computed for each of its reductions
	if (reductions(main->kind))
		return same_shape(&other->space, &main->space) ||
		       is_reduced(&other->space, &main->space, main->reduce);
	if (p->kind == L_map && c->kind == L_map && !same_shape(&p->space, &c->space)) {
		*both = *c;
		both->kind = L_col;
		both->reduce = row_axes(&c->space);
		return is_reduced(&p->space, &both->space, both->reduce);
	}
	if (main->kind == L_map)
		return same_shape(&other->space, &main->space);
	return main->kind == L_dot && count_of(&c->space) == count_of(&p->space) &&
	       last_dim(&c->space) == last_dim(&p->space);
}

// True if c reads the values of p only at the index that it computes.
static bool aligned(const Fuse *f, int p, int c)
{
	const Group *group = &f->group.at[c];
	for (int m = 0; m < group->member.count; m++) {
		const Reads *reads = &f->reads[group->member.at[m]];
		for (int i = 0; i < reads->count; i++) {
			Read read = reads->at[i];
			if (f->of[read.val] != p || read.reach == R_same)
				continue;
			if (read.reach == R_moved || f->group.at[p].kind != L_dot ||
			    count_of(&val(f->graph, read.val)->shape) != count_of(&group->space))
				return false;
		}
	}
	return true;
}

// True if a third group must run between the two, `from` before `to`. Groups far apart count as
// such: the result would not be in the cache either. One sweep marks what runs before `to`, twice
// as far back as `from`, for the next questions.
static bool detour(Fuse *f, int from, int to)
{
	enum { FAR = 4096 };
	int apart = f->place[to] - f->place[from];
	if (apart > FAR)
		return true;
	if (f->to == to && f->place[from] >= f->begin)
		return f->seen[from] == f->epoch + 1;
	f->to = to;
	f->begin = f->place[to] - 2 * apart;
	f->epoch += 2; // + 1: a third group reads it
	f->seen[to] = f->epoch;
	for (int i = f->place[to]; i >= MAX(f->begin, 0); i--) {
		int reader = f->order[i];
		const Group *group = &f->group.at[reader];
		for (int m = 0; f->seen[reader] >= f->epoch && m < group->member.count; m++) {
			const Reads *reads = &f->reads[group->member.at[m]];
			for (int k = 0; k < reads->count; k++) {
				int read = f->of[reads->at[k].val];
				if (read >= 0 && read != reader)
					f->seen[read] =
					    MAX(f->seen[read], f->epoch + (reader != to));
			}
		}
	}
	return f->seen[from] == f->epoch + 1;
}

// Makes two groups adjacent in the order; groups that must run after the first follow both.
static void move_together(Fuse *f, int before, int after)
{
	int next = f->place[before], last = f->place[after], nlate = 0;
	f->to = -1;
	f->seen[before] = f->epoch += 2;
	for (int i = next; i <= last; i++) {
		int number = f->order[i];
		const Group *group = &f->group.at[number];
		if (number == after || f->seen[number] < f->epoch) {
			f->order[next] = number;
			f->place[number] = next++;
			continue;
		}
		f->late[nlate++] = number;
		for (int m = 0; m < group->member.count; m++) {
			const Refs *users = &f->users[group->member.at[m]];
			for (int k = 0; k < users->count; k++)
				f->seen[f->of[users->at[k]]] = f->epoch;
		}
	}
	for (int i = 0; i < nlate; i++) {
		f->order[next] = f->late[i];
		f->place[f->late[i]] = next++;
	}
}

static bool join(Fuse *f, int p, int c)
{
	enum { MOST = 32, DEEPEST = 200 }; // compile time grows faster than size; emitting recurses
	if (p < 0 || p == c)
		return false;
	Group *first = &f->group.at[p], *second = &f->group.at[c], both;
	if (first->member.count + second->member.count > MOST ||
	    first->effort.depth + second->effort.depth > DEEPEST || first->effort.turned ||
	    second->effort.turned || !combine(f, first, second, &both))
		return false;
	int before = f->place[p] < f->place[c] ? p : c, after = before == p ? c : p;
	if (!aligned(f, p, c) || !aligned(f, c, p) || detour(f, before, after))
		return false;
	move_together(f, before, after);
	both.member = first->member;
	both.effort = first->effort;
	add_effort(&both.effort, second->effort);
	for (int i = 0; i < second->member.count; i++) {
		f->of[second->member.at[i]] = p;
		PUSH(f->arena, both.member, second->member.at[i]);
	}
	*first = both;
	second->member.count = 0;
	return true;
}

// ---- which joins, in which order ------------------------------------------------------

typedef bool Wanted(const Group *p, const Group *c);

static bool after_dot(const Group *p, const Group *c)
{
	return p->kind == L_dot && c->kind == L_map;
}

static bool reduction_after_dot(const Group *p, const Group *c)
{
	return p->kind == L_dot && reductions(c->kind);
}

static bool map_after_sums(const Group *p, const Group *c)
{
	return p->kind == L_dot && p->reduce && c->kind == L_map &&
	       count_of(&c->space) == last_dim(&p->space);
}

static bool around_reduction(const Group *p, const Group *c)
{
	return reductions(p->kind) || reductions(c->kind);
}

static bool map_chain(const Group *p, const Group *c)
{
	return p->kind == L_map && c->kind == L_map && same_shape(&p->space, &c->space);
}

// True if p computes one row, which c uses for all of its rows.
static bool row_for_all(const Group *p, const Group *c)
{
	return p->kind == L_map && c->kind == L_map && p->space.rank > 1 &&
	       last_dim(&p->space) == last_dim(&c->space) &&
	       count_of(&p->space) == last_dim(&p->space) && count_of(&c->space) >= LARGE_SPACE;
}

// Joins groups with the groups they read, the latest first: its result is still in the cache.
static bool join_chains(Fuse *f, Wanted *wanted)
{
	bool any = false;
	for (Ref r = 1; r < (Ref)f->graph->nval; r++) {
		if (!f->cut[r])
			continue;
		for (Ref limit = r, u; limit; limit = u) {
			u = 0;
			for (int i = 0; i < f->reads[r].count; i++)
				if (f->reads[r].at[i].val < limit)
					u = MAX(u, f->reads[r].at[i].val);
			if (u && f->of[u] >= 0 &&
			    wanted(&f->group.at[f->of[u]], &f->group.at[f->of[r]]))
				any |= join(f, f->of[u], f->of[r]);
		}
	}
	return any;
}

static bool after_attention(const Group *p, const Group *c)
{
	return p->kind == L_attend && c->kind == L_map;
}

// Joins the parts of one attention, or of its gradients.
static void join_attention(Fuse *f)
{
	Refs parts = {0};
	for (int i = 0; i < f->group.count; i++)
		if (f->group.at[i].kind == L_attend)
			PUSH(f->arena, parts, f->group.at[i].root);
	for (int i = 1; i < parts.count; i++)
		for (int j = 0; j < i; j++)
			if (same_attention(val(f->graph, parts.at[j]), val(f->graph, parts.at[i])))
				join(f, f->of[parts.at[j]], f->of[parts.at[i]]);
}

// True if the group is a copy of a value, perhaps in f16 or bf16.
static bool is_copy(const Fuse *f, const Group *group)
{
	const Val *v = val(f->graph, group->member.at[0]);
	return group->kind == L_map && group->member.count == 1 && v->op == O_cast &&
	       (is_half(v->type) || is_same_value(f->graph, v));
}

// True if two groups that read the same large value should be one loop: a copy of weights for
// products is made where they are summed.
static bool read_together(const Fuse *f, const Group *a, const Group *b)
{
	bool copies =
	    a->member.count && b->member.count &&
	    ((is_copy(f, a) && reductions(b->kind)) || (is_copy(f, b) && reductions(a->kind)));
	return a->kind == b->kind || copies;
}

// Joins groups that read the same large value, so that one loop reads it once.
static void join_readers(Fuse *f)
{
	Refs like = {0}; // its readers in a loop of its size, or of rows of its size
	for (Ref r = 1; r < (Ref)f->graph->nval; r++) {
		int64_t count = count_of(&val(f->graph, r)->shape);
		like.count = 0;
		for (int i = 0; i < f->users[r].count; i++) {
			const Group *user = &f->group.at[f->of[f->users[r].at[i]]];
			if (user->kind <= L_col &&
			    (count_of(&user->space) == count || last_dim(&user->space) == count))
				PUSH(f->arena, like, f->users[r].at[i]);
		}
		for (int i = 1; i < like.count; i++)
			for (int j = 0; j < i; j++) {
				int a = f->of[like.at[j]], b = f->of[like.at[i]];
				const Group *first = &f->group.at[a];
				if (read_together(f, first, &f->group.at[b]) &&
				    count_of(&first->space) == count)
					join(f, a, b);
			}
	}
}

// The computations of scalars, such as the step size, are as few kernels as possible.
static void join_scalars(Fuse *f)
{
	for (int i = 0, first = -1; i < f->group.count; i++) {
		const Group *group = &f->group.at[i];
		if (group->member.count && group->kind == L_map && !group->space.rank &&
		    !join(f, first, i))
			first = i;
	}
}

// ---- the plan -------------------------------------------------------------------------

static int by_ref(const void *a, const void *b)
{
	Ref x = *(const Ref *)a, y = *(const Ref *)b;
	return (x > y) - (x < y);
}

void sort_refs(int n, Ref *refs)
{
	if (n)
		qsort(refs, (size_t)n, sizeof *refs, by_ref);
}

static Kern kern_of(const Fuse *f, const Group *g, int number)
{
	Kern kern = {.kind = g->kind, .space = g->space, .reduce = g->reduce, .root = g->root};
	kern.out = NEWS(f->arena, Ref, g->member.count);
	for (int i = 0; i < g->member.count; i++) {
		Ref r = g->member.at[i];
		bool stored = f->kept[r];
		for (int j = 0; j < f->users[r].count; j++)
			stored |= f->of[f->users[r].at[j]] != number;
		if (stored)
			kern.out[kern.nout++] = r;
	}
	sort_refs(kern.nout, kern.out);
	return kern;
}

Plan *fuse_pass(Arena *arena, const Graph *g, const char *name, const Machine *machine)
{
	Fuse f = fuse_start(arena, g, machine);
	join_attention(&f);
	join_chains(&f, after_attention);
	join_chains(&f, after_dot);
	join_chains(&f, reduction_after_dot);
	join_chains(&f, map_after_sums);
	while (join_chains(&f, around_reduction))
		;
	join_chains(&f, map_chain);
	join_readers(&f);
	join_chains(&f, row_for_all);
	join_scalars(&f);
	Plan *p = NEW(arena, Plan);
	p->graph = g;
	p->name = name;
	p->machine = machine;
	for (int i = 0; i < f.group.count; i++)
		if (f.group.at[i].member.count && count_of(&f.group.at[i].space))
			PUSH(arena, p->kerns, kern_of(&f, &f.group.at[i], i));
	return p;
}
