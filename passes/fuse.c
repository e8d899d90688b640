// fuse.c: joins values in memory into kernels, Graph -> Plan.
// Every value that materialize.c marked starts as a group, a kernel of its own; groups join while
// one loop can compute both and no third kernel must run between them. A value that no other kernel
// reads is then not stored. Output: kernels in no order, loops without the plans of their bodies.
// Invariant: groups never form a cycle; a group reads the values of another at any index.
#include "passes.h"
#include <stdlib.h>

typedef VEC(Ref) Refs;

typedef struct Group {
	KernKind kind;
	Shape space;
	uint32_t reduce;
	Ref root;
	Refs member; // empty: the group was joined into another
	int depth;   // of its longest chain of expressions
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
	int *place;       // by group: in an order in which what it reads comes first
	int *order;       // by place: the group
	int *late;        // room for groups that move behind others
} Fuse;

static bool reductions(KernKind kind)
{
	return kind == L_row || kind == L_col;
}

// Rows, if the last axis that is not 1 is reduced; axes of 1 after it belong to it.
static Group fold_group(const Graph *g, const Val *v)
{
	Group group = {.kind = L_col, .space = val(g, v->in[0])->shape};
	int last = group.space.rank - 1;
	while (last > 0 && group.space.dim[last] == 1)
		last--;
	for (int i = 0; i < v->attr->n; i++)
		if (group.space.dim[v->attr->i[i]] != 1)
			group.reduce |= 1u << v->attr->i[i];
	if (!(group.reduce >> last & 1) && group.reduce)
		return group;
	group.kind = L_row;
	for (int a = last; a < group.space.rank; a++)
		group.reduce |= 1u << a;
	return group;
}

static Group first_group(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	Group group = {.kind = L_map, .space = v->shape};
	if (v->op == O_cumsum)
		group = (Group){
		    .kind = L_scan, .space = v->shape, .reduce = 1u << v->attr->i[0], .root = r};
	else if (prims[v->op].cls == C_reduce)
		group = fold_group(g, v);
	else if (v->op == O_dot || v->op == O_scatter)
		group = (Group){
		    .kind = v->op == O_dot ? L_dot : L_scatter, .space = v->shape, .root = r};
	else if (v->op == O_loop)
		group = (Group){.kind = L_loop, .root = r};
	else if (prims[v->op].cls == C_composite)
		bug("%s has not been opened", prims[v->op].name);
	return group;
}

// A loop's results are computed with it.
static void add_value(Fuse *f, Ref r, int depth)
{
	const Val *v = val(f->graph, r);
	f->of[r] = v->op == O_result ? f->of[v->in[0]] : f->group.count;
	if (v->op != O_result)
		PUSH(f->arena, f->group, first_group(f->graph, r));
	PUSH(f->arena, f->group.at[f->of[r]].member, r);
	f->group.at[f->of[r]].depth += depth;
}

static Fuse fuse_start(Arena *arena, const Graph *g, const Machine *machine)
{
	int *depth;
	Fuse f = {.arena = arena,
	          .graph = g,
	          .machine = machine,
	          .cut = materialize_pass(arena, g, &depth)};
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
		f.of[r] = -1;
		if (!f.cut[r])
			continue;
		add_value(&f, r, depth[r]);
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

// True if parts of it are reduced like the complete value.
static bool is_plain_reduction(Op op)
{
	return prims[op].cls == C_reduce && op != O_argmax && op != O_cumsum;
}

// All axes that are not 1 but the last.
static uint32_t row_axes(const Shape *s)
{
	uint32_t axes = 0;
	for (int a = 0; a + 1 < s->rank; a++)
		if (s->dim[a] != 1)
			axes |= 1u << a;
	return axes;
}

static bool reduces_operands(const Graph *g, const Group *group, const Shape *shaped)
{
	for (int i = 0; i < group->member.count; i++) {
		const Val *v = val(g, group->member.at[i]);
		if (prims[v->op].cls == C_reduce &&
		    (!is_plain_reduction(v->op) || !same_shape(&val(g, v->in[0])->shape, shaped)))
			return false;
	}
	return true;
}

// A product may reduce its rows as they leave the tile if they are all rows of one matrix, and
// reading them again would cost more than a launch.
static bool reduces_rows(const Fuse *f, const Group *p, const Group *c)
{
	const Graph *g = f->graph;
	if (!f->machine->rows)
		return false;
	const Val *root = val(g, p->root);
	const Shape *a = &val(g, root->in[0])->shape, *b = &val(g, root->in[1])->shape;
	for (int i = 0; i + 2 < b->rank; i++)
		if (b->dim[i] != 1)
			return false;
	for (int i = 0; i < c->member.count; i++)
		if (prims[val(g, c->member.at[i])->op].cls != C_reduce)
			return false;
	return count_of(&c->space) == count_of(&p->space) &&
	       last_dim(&c->space) == last_dim(&p->space) && c->reduce == row_axes(&c->space) &&
	       count_of(&p->space) >= LARGE_SPACE && count_of(a) &&
	       reduces_operands(g, p, &c->space) && reduces_operands(g, c, &c->space);
}

// Finds the group that computes both, p before c. False if one loop cannot.
static bool combine(const Fuse *f, const Group *p, const Group *c, Group *both)
{
	if (p->kind == L_dot && c->kind == L_col) {
		*both = *p;
		both->reduce = row_axes(&p->space);
		return reduces_rows(f, p, c);
	}
	const Group *main = reductions(c->kind) ? c : p, *other = main == c ? p : c;
	*both = *main;
	if (reductions(main->kind) && reductions(other->kind))
		return main->kind == other->kind && main->reduce == other->reduce &&
		       same_shape(&p->space, &c->space);
	if (other->kind != L_map)
		return false;
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

// Marks what it finds between the two.
static bool reaches(Fuse *f, int from, int to, bool direct)
{
	const Group *group = &f->group.at[from];
	f->seen[from] = f->epoch;
	for (int m = 0; m < group->member.count; m++) {
		const Refs *users = &f->users[group->member.at[m]];
		for (int i = 0; i < users->count; i++) {
			int next = f->of[users->at[i]];
			if (next == to && direct)
				return true;
			if (f->place[next] < f->place[to] && f->seen[next] != f->epoch &&
			    reaches(f, next, to, true))
				return true;
		}
	}
	return false;
}

// True if a third group must run between the two, `from` before `to`. Groups far apart count as
// such: the result would not be in the cache either.
static bool detour(Fuse *f, int from, int to)
{
	enum { FAR = 4096 };
	f->epoch++;
	return f->place[to] - f->place[from] > FAR || reaches(f, from, to, false);
}

static void move_to(Fuse *f, int group, int place)
{
	f->order[place] = group;
	f->place[group] = place;
}

// Two groups with no detour between them come to stand side by side: behind both what must follow
// the first, which detour() has marked.
static void bring_together(Fuse *f, int from, int to)
{
	int first = f->place[from], last = f->place[to], next = first, nlate = 0;
	for (int i = first; i <= last; i++) {
		int group = f->order[i];
		if (f->seen[group] == f->epoch)
			f->late[nlate++] = group;
		else
			move_to(f, group, next++);
	}
	for (int i = 0; i < nlate; i++)
		move_to(f, f->late[i], next++);
}

// True if the kernel of both would be too large: compile time grows faster than size, and emitting
// a kernel recurses.
static bool too_large(const Group *p, const Group *c)
{
	enum { MOST = 32, DEEPEST = 800 };
	return p->member.count + c->member.count > MOST || p->depth + c->depth > DEEPEST;
}

static bool join(Fuse *f, int p, int c)
{
	Group both;
	if (p < 0 || p == c || too_large(&f->group.at[p], &f->group.at[c]) ||
	    !combine(f, &f->group.at[p], &f->group.at[c], &both))
		return false;
	int before = f->place[p] < f->place[c] ? p : c, after = before == p ? c : p;
	if (!aligned(f, p, c) || !aligned(f, c, p) || detour(f, before, after))
		return false;
	bring_together(f, before, after);
	Refs from = f->group.at[c].member;
	both.member = f->group.at[p].member;
	both.depth = f->group.at[p].depth + f->group.at[c].depth;
	for (int i = 0; i < from.count; i++) {
		f->of[from.at[i]] = p;
		PUSH(f->arena, both.member, from.at[i]);
	}
	f->group.at[p] = both;
	f->group.at[c].member.count = 0;
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
	return p->kind == L_dot && c->kind == L_col;
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

// Joins groups that read the same large value, so that one loop reads it once.
static void join_siblings(Fuse *f)
{
	for (Ref r = 1; r < (Ref)f->graph->nval; r++) {
		const Refs *users = &f->users[r];
		int64_t count = count_of(&val(f->graph, r)->shape);
		for (int i = 1; i < users->count; i++)
			for (int j = 0; j < i; j++) {
				const Group *a = &f->group.at[f->of[users->at[j]]];
				const Group *b = &f->group.at[f->of[users->at[i]]];
				if (a != b && a->kind == b->kind && a->kind <= L_col &&
				    count_of(&a->space) == count)
					join(f, f->of[users->at[j]], f->of[users->at[i]]);
			}
	}
}

// Joins the computations of scalars, such as the step size, into as few kernels as possible.
static void join_numbers(Fuse *f)
{
	int first = -1;
	for (int i = 0; i < f->group.count; i++) {
		const Group *g = &f->group.at[i];
		if (!g->member.count || g->kind != L_map || g->space.rank)
			continue;
		if (first < 0 || !join(f, first, i))
			first = i;
	}
}

// ---- the plan -------------------------------------------------------------------------

static bool read_elsewhere(const Fuse *f, Ref r)
{
	for (int i = 0; i < f->users[r].count; i++)
		if (f->of[f->users[r].at[i]] != f->of[r])
			return true;
	return false;
}

static int by_ref(const void *a, const void *b)
{
	Ref x = *(const Ref *)a, y = *(const Ref *)b;
	return (x > y) - (x < y);
}

static Kern kern_of(const Fuse *f, const Group *g)
{
	Kern kern = {.kind = g->kind, .space = g->space, .reduce = g->reduce, .root = g->root};
	kern.out = NEWS(f->arena, Ref, g->member.count);
	for (int i = 0; i < g->member.count; i++)
		if (f->kept[g->member.at[i]] || read_elsewhere(f, g->member.at[i]))
			kern.out[kern.nout++] = g->member.at[i];
	qsort(kern.out, (size_t)kern.nout, sizeof *kern.out, by_ref);
	return kern;
}

Plan *fuse_pass(Arena *arena, const Graph *g, const char *name, const Machine *machine)
{
	Fuse f = fuse_start(arena, g, machine);
	join_chains(&f, after_dot);
	join_chains(&f, reduction_after_dot);
	while (join_chains(&f, around_reduction))
		;
	join_chains(&f, map_chain);
	join_siblings(&f);
	join_chains(&f, row_for_all);
	join_numbers(&f);
	Plan *p = NEW(arena, Plan);
	p->graph = g;
	p->name = name;
	p->machine = machine;
	for (int i = 0; i < f.group.count; i++)
		if (f.group.at[i].member.count && count_of(&f.group.at[i].space))
			PUSH(arena, p->kerns, kern_of(&f, &f.group.at[i]));
	return p;
}
