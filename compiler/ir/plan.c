// plan.c: what kernels read and write, and a Plan as text.
// Takes plan.h. Gives the walk from a value to the values in memory that its expression reads.
#include "plan.h"
#include <string.h>

struct Seen {
	int turn, at; // at: place in the reads
	Reach how;
};

Walk walk_new(Arena *arena, const Graph *g, const bool *memory)
{
	return (Walk){arena, g, memory, NEWS(arena, struct Seen, g->nval), 0};
}

void walk_start(Walk *w, Reads *reads)
{
	w->turn++;
	reads->count = 0;
}

// How operand k of `v` is read where `v` is computed as `how` says.
static Reach operand_reach(const Val *v, int k, Reach how)
{
	switch (prims[v->op].cls) {
	case C_map:
		return how;
	case C_fold:
		return v->op == O_cumsum || how != R_same ? R_moved : R_same;
	case C_move:
		return v->op == O_expand ? how : v->op == O_reshape ? MAX(how, R_relabel) : R_moved;
	default:
		return v->op == O_scatter && k == 0 ? how : R_moved;
	}
}

static void walk_to(Walk *w, Ref r, Reach how, Reads *reads)
{
	struct Seen *seen = &w->seen[r];
	bool again = seen->turn == w->turn;
	if (again && how <= seen->how)
		return;
	*seen = (struct Seen){w->turn, again ? seen->at : -1, how};
	const Val *v = val(w->graph, r);
	if (v->op != O_slot && !w->memory[r]) {
		for (int k = 0; k < v->nin; k++)
			walk_to(w, v->in[k], operand_reach(v, k, how), reads);
	} else if (seen->at < 0) {
		seen->at = reads->count;
		PUSH(w->arena, *reads, ((Read){r, how}));
	} else {
		reads->at[seen->at].how = how;
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

// ---- text
// ----------------------------------------------------------------------------------------------

static void print_place(FILE *file, const Plan *p, Place at)
{
	static const char *const blocks[] = {"nowhere", "param",  "state", "scratch",
	                                     "input",   "output", "const"};
	if (at.block == B_output)
		fprintf(file, "output %s", p->graph->outs.at[at.offset].name);
	else
		fprintf(file, "%s+%lld", blocks[at.block], (long long)at.offset);
}

static void print_kern(FILE *file, Arena *arena, const Plan *p, int k, const Reads *reads)
{
	static const char *const kinds[] = {"map", "row", "col", "dot", "put", "scan"};
	const Kern *kern = &p->kerns.at[k];
	const Graph *g = p->graph;
	fprintf(file, "kernel %d: %s %s", k, kinds[kern->kind],
	        strchr(shape_text(arena, E_f32, &kern->space), '['));
	for (int a = 0, first = 1; a < kern->space.rank; a++)
		if (kern->fold >> a & 1) {
			fprintf(file, "%s%d", first ? " along " : ",", a);
			first = 0;
		}
	const Node *node = &g->nodes.at[val(g, kern->out[kern->nout - 1])->from];
	fprintf(file, "%s%s\n", *node->name ? "  # " : "", node->name);
	for (int i = 0; i < kern->nout; i++) {
		const Val *v = val(g, kern->out[i]);
		fprintf(file, "\t%%%u : %s", kern->out[i], shape_text(arena, v->type, &v->shape));
		if (kern->to) {
			fputs(" at ", file);
			print_place(file, p, kern->to[i]);
		}
		fputc('\n', file);
	}
	fputs(reads->count ? "\treads" : "", file);
	for (int i = 0; i < reads->count; i++)
		fprintf(file, " %%%u", reads->at[i].val);
	fputs(reads->count ? "\n" : "", file);
}

void print_plan(FILE *file, const Plan *p)
{
	fprintf(file,
	        "plan %s: %d kernels, %lld bytes of parameters, %lld of state, %lld of scratch\n",
	        p->name, p->kerns.count, (long long)p->param_bytes, (long long)p->state_bytes,
	        (long long)p->scratch_bytes);
	Arena *arena = arena_new();
	const Reads *reads = plan_reads(arena, p);
	for (int k = 0; k < p->kerns.count; k++)
		print_kern(file, arena, p, k, &reads[k]);
	arena_free(arena);
}
