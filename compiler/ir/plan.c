// plan.c: finds what kernels read, compute and write.
#include "plan.h"

struct Seen {
	int epoch, at; // at: place in the reads
	Reach reach;
};

Walk walk_new(Arena *arena, const Graph *g, const bool *memory)
{
	return (Walk){arena, g, memory, NEWS(arena, struct Seen, g->nval), 0};
}

void walk_start(Walk *w, Reads *reads)
{
	w->epoch++;
	reads->count = 0;
}

// Returns how operand k of `v` is read if `v` is computed as `reach` says.
static Reach operand_reach(const Val *v, int k, Reach reach)
{
	switch (prims[v->op].cls) {
	case C_map:
		return reach;
	case C_reduce:
		return v->op == O_cumsum || reach != R_same ? R_moved : R_same;
	case C_move:
		return v->op == O_expand    ? reach
		       : v->op == O_reshape ? MAX(reach, R_relabel)
		                            : R_moved;
	default:
		return v->op == O_scatter && k == 0 ? reach : R_moved;
	}
}

static void walk_to(Walk *w, Ref r, Reach reach, Reads *reads)
{
	struct Seen *seen = &w->seen[r];
	bool again = seen->epoch == w->epoch;
	if (again && reach <= seen->reach)
		return;
	*seen = (struct Seen){w->epoch, again ? seen->at : -1, reach};
	const Val *v = val(w->graph, r);
	if (v->op != O_slot && !w->memory[r]) {
		for (int k = 0; k < v->nin; k++)
			walk_to(w, v->in[k], operand_reach(v, k, reach), reads);
	} else if (seen->at < 0) {
		seen->at = reads->count;
		PUSH(w->arena, *reads, ((Read){r, reach}));
	} else {
		reads->at[seen->at].reach = reach;
	}
}

void walk_root(Walk *w, Ref r, Reads *reads)
{
	const Val *v = val(w->graph, r);
	if (v->op == O_slot)
		walk_to(w, r, R_same, reads);
	for (int k = 0; k < v->nin; k++)
		walk_to(w, v->in[k], operand_reach(v, k, R_same), reads);
}

int *plan_writers(Arena *arena, const Plan *p)
{
	int *writer = NEWS(arena, int, p->graph->nval);
	for (int r = 0; r < p->graph->nval; r++)
		writer[r] = -1;
	for (int k = p->kerns.count - 1; k >= 0; k--)
		for (int i = 0; i < p->kerns.at[k].nout; i++)
			writer[p->kerns.at[k].out[i]] = k;
	return writer;
}

int64_t stage_workers(const Sched *s, Stage stage)
{
	return stage == BEFORE ? s->before : stage == MAIN ? s->workers : s->after;
}

bool is_inside(const Plan *p, const int *writer, int k, Ref r)
{
	const Val *v = val(p->graph, r);
	double x;
	if (v->op == O_const)
		return const_num(p->graph, r, &x);
	return v->op != O_slot && (writer[r] < 0 || writer[r] == k);
}

bool is_reduced_out(const Graph *g, const Kern *k, int o)
{
	return k->reduce && count_of(&val(g, k->out[o])->shape) != count_of(&k->space);
}

int result_out(const Plan *p, const Kern *loop, int result)
{
	for (int i = 0; i < loop->nout; i++) {
		const Val *v = val(p->graph, loop->out[i]);
		if (v->op == O_result && v->attr->i[0] == result)
			return i;
	}
	return -1;
}

LoopWork loop_work(Arena *arena, const Plan *p, const Kern *loop)
{
	LoopInfo c = loop_of(val(p->graph, loop->root));
	LoopWork work = {.bytes = full_lines(1)};
	for (int k = 0; k < loop_results(&c); k++) {
		Shape shape = result_shape(&c, k);
		int64_t bytes = full_lines(byte_count(result_val(&c, k)->type, &shape));
		PUSH(arena, work.unused, work.bytes);
		work.bytes += result_out(p, loop, k) < 0 ? bytes : 0;
		PUSH(arena, work.second, work.bytes);
		work.bytes += k < c.carried ? bytes : 0;
	}
	return work;
}

// Workers of a joined kernel all read what outputs of the full shape need of the shape of a row,
// while one of them writes outputs of that shape.
static void find_shared_reads(Walk *w, const Kern *kern, Reads *reads)
{
	Reads full = {0};
	walk_start(w, &full);
	for (int i = 0; i < kern->nout; i++)
		if (!is_reduced_out(w->graph, kern, i) && !w->memory[kern->out[i]])
			walk_root(w, kern->out[i], &full);
	for (int i = 0; i < full.count; i++)
		for (int j = 0; j < reads->count; j++)
			if (reads->at[j].val == full.at[i].val &&
			    count_of(&val(w->graph, full.at[i].val)->shape) !=
			        count_of(&kern->space))
				reads->at[j].reach = R_moved;
}

Reads *plan_reads(Arena *arena, const Plan *p)
{
	int *writer = plan_writers(arena, p);
	bool *memory = NEWS(arena, bool, p->graph->nval);
	for (int r = 0; r < p->graph->nval; r++)
		memory[r] = writer[r] >= 0;
	Walk w = walk_new(arena, p->graph, memory);
	Reads *reads = NEWS(arena, Reads, p->kerns.count);
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		for (int i = 0; i < kern->nout; i++)
			memory[kern->out[i]] = writer[kern->out[i]] != k;
		walk_start(&w, &reads[k]);
		for (int i = 0; i < kern->nout; i++) {
			if (memory[kern->out[i]])
				walk_to(&w, kern->out[i], R_same, &reads[k]);
			else
				walk_root(&w, kern->out[i], &reads[k]);
		}
		if (kern->sched && kern->sched->joined == J_all)
			find_shared_reads(&w, kern, &reads[k]);
		for (int i = 0; i < kern->nout; i++)
			memory[kern->out[i]] = true;
	}
	return reads;
}

void place_leaves(Plan *p)
{
	for (Ref r = 1; r < (Ref)p->graph->nval; r++) {
		const Val *v = val(p->graph, r);
		if (v->op == O_slot)
			p->place[r] = p->slot[v->attr->i[0]];
		else if (v->op == O_const && count_of(&v->shape) > 1)
			p->place[r] = (Location){B_const, r};
	}
}

// ---- work -----------------------------------------------------------------------------

typedef struct Worked {
	const Plan *plan;
	int k;     // the kernel
	int *seen; // by Ref: 1 + the kernel that counted or reads it last
} Worked;

// Returns the flops inside a kernel: 2 k per dot product of k terms, one per element of a map, and
// one per element that a reduction reads.
static int64_t flops_of(const Worked *w, Ref r)
{
	const Graph *g = w->plan->graph;
	const Val *v = val(g, r);
	if (w->seen[r] == w->k + 1)
		return 0;
	w->seen[r] = w->k + 1;
	int64_t flops = 0;
	for (int k = 0; k < v->nin; k++)
		flops += flops_of(w, v->in[k]);
	if (v->op == O_dot) {
		const Shape *a = &val(g, v->in[0])->shape;
		return flops + 2 * count_of(&v->shape) * a->dim[a->rank - 1];
	}
	if (is_attention(v->op)) { // the products that each adds to its kernel
		const Shape *q = &val(g, v->in[0])->shape;
		const Shape *k = &val(g, v->in[1])->shape;
		int r = q->rank, products = v->op == O_attend ? 2 : v->op == O_attend_dq ? 3 : 1;
		int64_t pairs = count_of(&v->shape) / (v->shape.dim[r - 1] * v->shape.dim[r - 2]) *
		                q->dim[r - 2] * k->dim[r - 2];
		if (v->op == O_attend_stats || v->op == O_attend_db)
			return flops;
		return flops + 2 * products * pairs * q->dim[r - 1] / (v->attr->i[0] ? 2 : 1);
	}
	if (prims[v->op].cls == C_reduce)
		return flops + count_of(&val(g, v->in[0])->shape);
	return prims[v->op].cls == C_map ? flops + count_of(&v->shape) : flops;
}

Work *plan_work(Arena *arena, const Plan *p, const Reads *reads)
{
	Work *work = NEWS(arena, Work, p->kerns.count);
	Worked w = {.plan = p, .seen = NEWS(arena, int, p->graph->nval)};
	for (w.k = 0; w.k < p->kerns.count; w.k++) {
		const Kern *kern = &p->kerns.at[w.k];
		Work *own = &work[w.k];
		for (int i = 0; i < reads[w.k].count; i++) {
			w.seen[reads[w.k].at[i].val] = w.k + 1;
			own->bytes += bytes_of(val(p->graph, reads[w.k].at[i].val));
		}
		for (int o = 0; o < kern->nout; o++) {
			own->flops += flops_of(&w, kern->out[o]);
			own->bytes += bytes_of(val(p->graph, kern->out[o]));
		}
	}
	return work;
}
