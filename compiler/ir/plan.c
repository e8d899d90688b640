// plan.c: what kernels read and write, and a Plan as text: its graph, then its kernels, folded axes
// with a slash. Takes plan.h. Gives the walk from a value to the values in memory that its
// expression reads.
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

// How operand k of `v` is read where `v` is computed as `how` says.
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
		for (int i = 0; i < kern->nout; i++)
			memory[kern->out[i]] = true;
	}
	return reads;
}

// ---- text -----------------------------------------------------------------------------

typedef struct Printer {
	FILE *file;
	Arena *arena;
	const Plan *plan;
	const int *number;  // by Ref: its number in the text of the graph
	const Reads *reads; // by kernel
} Printer;

static void print_ref(const Printer *p, Ref r)
{
	const Graph *g = p->plan->graph;
	if (val(g, r)->op == O_slot)
		fputs(g->slots.at[val(g, r)->attr->i[0]].name, p->file);
	else
		fprintf(p->file, "%%%d", p->number[r]);
}

static void print_location(const Printer *p, Location at)
{
	static const char *const blocks[] = {"nowhere", "param",  "state", "scratch",
	                                     "input",   "output", "const"};
	if (at.block == B_output)
		fprintf(p->file, "output %s", p->plan->graph->outs.at[at.offset].name);
	else
		fprintf(p->file, "%s+%lld", blocks[at.block], (long long)at.offset);
}

static void print_head(const Printer *p, int k)
{
	static const char *const kinds[] = {"map", "row", "col", "dot", "scatter", "scan", "loop"};
	const Kern *kern = &p->plan->kerns.at[k];
	const Graph *g = p->plan->graph;
	fprintf(p->file, "kernel %d: %s [", k, kinds[kern->kind]);
	for (int a = 0; a < kern->space.rank; a++)
		fprintf(p->file, "%s%s%lld", a ? "," : "", kern->reduce >> a & 1 ? "/" : "",
		        (long long)kern->space.dim[a]);
	const Node *node = &g->nodes->list.at[val(g, kern->out[kern->nout - 1])->from];
	fprintf(p->file, "]%s%s\n", *node->name ? "  # " : "", node->name);
}

static void print_kern(const Printer *p, int k)
{
	const Kern *kern = &p->plan->kerns.at[k];
	print_head(p, k);
	for (int i = 0; i < kern->nout; i++) {
		const Val *v = val(p->plan->graph, kern->out[i]);
		fputc('\t', p->file);
		print_ref(p, kern->out[i]);
		fprintf(p->file, " : %s", shape_text(p->arena, v->type, &v->shape));
		if (kern->to) {
			fputs(" at ", p->file);
			print_location(p, kern->to[i]);
		}
		fputc('\n', p->file);
	}
	for (int i = 0; i < p->reads[k].count; i++) {
		fputs(i ? " " : "\treads ", p->file);
		print_ref(p, p->reads[k].at[i].val);
	}
	fputs(p->reads[k].count ? "\n" : "", p->file);
}

void print_plan(FILE *file, const Plan *plan)
{
	Arena *arena = arena_new();
	Printer p = {file, arena, plan, number_values(arena, plan->graph), plan_reads(arena, plan)};
	print_graph(file, plan->graph);
	fprintf(file,
	        "plan %s: %d kernels, %lld bytes of parameters, %lld of state, %lld of scratch\n",
	        plan->name, plan->kerns.count, (long long)plan->param_bytes,
	        (long long)plan->state_bytes, (long long)plan->scratch_bytes);
	for (int k = 0; k < plan->kerns.count; k++)
		print_kern(&p, k);
	for (int k = 0; k < plan->kerns.count; k++)
		if (plan->kerns.at[k].body) {
			fprintf(file, "body of kernel %d\n", k);
			print_plan(file, plan->kerns.at[k].body);
		}
	arena_free(arena);
}
