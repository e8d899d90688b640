// plan_text.c: plans as text, after any pass. What prints can be read back, and prints the same
// again. The graph's lines, then
//   plan NAME for MACHINE: bytes PARAMS STATE SCRATCH
//   slot NAME at param+0
//   kernel KIND [2,/3]                        sizes of the space, reduced axes with a slash
//   	out %3 at scratch+64
//   	root %3
//   	partition rows, workers 8, rows 4         what is not 0 of the schedule
//   	reduce %3/0                               values with depths
//   	work at scratch+128
//   body                                      of the last kernel, a loop: a plan, then `end`
#include "plan.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"map", "row", "col", "dot", "scatter", "scan", "loop"};
static const char *const blocks[] = {"nowhere", "param",  "state", "scratch",
                                     "input",   "output", "const"};
static const char *const partitions[] = {"rows", "columns", "partials", "tiles"};
static const char *const packings[] = {"place", "copy", "transpose"};

static const struct SchedField {
	const char *name;
	size_t offset;
	int words; // that its numbers are written as; 0: numbers
	const char *const *word;
} fields[] = {
#define WORDS_number            0, NULL
#define WORDS_partition         COUNT(partitions), partitions
#define WORDS_packing           COUNT(packings), packings
#define S(kind, field, meaning) {#field, offsetof(Sched, field), WORDS_##kind},
#include "sched.def"
#undef S
};

static int64_t *field_of(Sched *s, const struct SchedField *f)
{
	return (int64_t *)((char *)s + f->offset);
}

static const struct {
	const char *name;
	size_t offset;
} lists[] = {{"reduce", offsetof(Sched, reduce)},
             {"keep", offsetof(Sched, keep)},
             {"ahead", offsetof(Sched, ahead)}};

static ValSteps *list_of(Sched *s, int k)
{
	return (ValSteps *)((char *)s + lists[k].offset);
}

// ---- printing -------------------------------------------------------------------------

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
		fputs(name_text(p->arena, g->slots.at[val(g, r)->attr->i[0]].name), p->file);
	else
		fprintf(p->file, "%%%d", p->number[r]);
}

static void print_location(const Printer *p, Location at)
{
	fprintf(p->file, " at %s+%" PRId64, blocks[at.block], at.offset);
}

static void print_steps(const Printer *p, const char *name, const ValSteps *steps)
{
	for (int i = 0; i < steps->count; i++) {
		fprintf(p->file, i ? ", " : "\t%s ", name);
		print_ref(p, steps->at[i].val);
		fprintf(p->file, "/%d", steps->at[i].depth);
	}
	fputs(steps->count ? "\n" : "", p->file);
}

static void print_schedule(const Printer *p, const Kern *kern)
{
	Sched s = *kern->sched;
	for (int k = 0; k < COUNT(fields); k++) {
		int64_t n = *field_of(&s, &fields[k]);
		if (!n && k)
			continue;
		fprintf(p->file, "%s%s ", k ? ", " : "\t", fields[k].name);
		if (fields[k].words)
			fputs(fields[k].word[n], p->file);
		else
			fprintf(p->file, "%" PRId64, n);
	}
	fputc('\n', p->file);
	for (int k = 0; k < COUNT(lists); k++)
		print_steps(p, lists[k].name, list_of(&s, k));
}

static void print_head(const Printer *p, const Kern *kern)
{
	const Graph *g = p->plan->graph;
	fprintf(p->file, "kernel %s [", kinds[kern->kind]);
	for (int a = 0; a < kern->space.rank; a++)
		fprintf(p->file, "%s%s%" PRId64, a ? "," : "", kern->reduce >> a & 1 ? "/" : "",
		        kern->space.dim[a]);
	const Node *node = &g->nodes->list.at[val(g, kern->out[kern->nout - 1])->from];
	fprintf(p->file, "]%s%s\n", *node->name ? "  # " : "", node->name);
}

static void print_outs(const Printer *p, const Kern *kern)
{
	for (int i = 0; i < kern->nout; i++) {
		const Val *v = val(p->plan->graph, kern->out[i]);
		fputs("\tout ", p->file);
		print_ref(p, kern->out[i]);
		if (kern->to)
			print_location(p, kern->to[i]);
		fprintf(p->file, "  # %s\n", shape_text(p->arena, v->type, &v->shape));
	}
}

static void print_body(const Printer *p, const Plan *body)
{
	fputs("body\n", p->file);
	print_plan(p->file, body);
	fputs("end\n", p->file);
}

static void print_kern(const Printer *p, int k)
{
	const Kern *kern = &p->plan->kerns.at[k];
	print_head(p, kern);
	print_outs(p, kern);
	for (int i = 0; i < p->reads[k].count; i++) {
		fputs(i ? " " : "\t# reads ", p->file);
		print_ref(p, p->reads[k].at[i].val);
	}
	fputs(p->reads[k].count ? "\n" : "", p->file);
	if (kern->root) {
		fputs("\troot ", p->file);
		print_ref(p, kern->root);
		fputc('\n', p->file);
	}
	if (kern->sched)
		print_schedule(p, kern);
	if (kern->work.block) {
		fputs("\twork", p->file);
		print_location(p, kern->work);
		fputc('\n', p->file);
	}
	if (kern->body)
		print_body(p, kern->body);
}

void print_plan(FILE *file, const Plan *plan)
{
	Arena *arena = arena_new();
	Printer p = {file, arena, plan, number_values(arena, plan->graph), plan_reads(arena, plan)};
	print_graph(file, plan->graph);
	fprintf(file, "plan %s for \"%s\": bytes %" PRId64 " %" PRId64 " %" PRId64 "\n",
	        name_text(arena, plan->name), plan->machine->name, plan->param_bytes,
	        plan->state_bytes, plan->scratch_bytes);
	for (int i = 0; plan->slot && i < plan->graph->slots.count; i++) {
		if (!plan->slot[i].block)
			continue;
		fprintf(file, "slot %s", name_text(arena, plan->graph->slots.at[i].name));
		print_location(&p, plan->slot[i]);
		fputc('\n', file);
	}
	for (int k = 0; k < plan->kerns.count; k++)
		print_kern(&p, k);
	arena_free(arena);
}

// ---- reading --------------------------------------------------------------------------

typedef struct Reader {
	Lexer *l;
	Plan *plan;
	Ref *value; // by number in the text
	int values;
} Reader;

static int word_among(Lexer *l, int n, const char *const *words)
{
	const char *word = lexer_name(l);
	for (int i = 0; i < n; i++)
		if (!strcmp(words[i], word))
			return i;
	fail(lexer_place(l), "found '%s', expected '%s' or another word of a plan", word, *words);
}

static int64_t read_number(Lexer *l)
{
	if (l->kind != T_num)
		fail(lexer_place(l), "found '%s', expected a number", l->word);
	int64_t n = strtoll(l->word, NULL, 10);
	lexer_next(l);
	return n;
}

// Goes past the end of a line; true if the next one is indented.
static bool next_indented(Lexer *l)
{
	bool indented = l->kind == T_indent;
	if (!indented && l->kind != T_line && l->kind != T_end)
		fail(lexer_place(l), "found '%s', expected the end of the line", l->word);
	if (l->kind != T_end)
		lexer_next(l);
	return indented;
}

static Ref read_ref(Reader *r)
{
	const char *name = lexer_name(r->l);
	int number = *name == '%' ? atoi(name + 1) : 0;
	int slot = number ? -1 : find_slot(r->plan->graph, name);
	Ref ref = 0;
	if (slot >= 0)
		ref = slot_ref(r->plan->graph, slot);
	else if (number > 0 && number <= r->values)
		ref = r->value[number];
	if (!ref)
		fail(lexer_place(r->l), "no value is called %s", name);
	return ref;
}

static Location read_location(Lexer *l)
{
	lexer_expect(l, "at");
	Location at = {.block = (Block)word_among(l, COUNT(blocks), blocks)};
	lexer_expect(l, "+");
	at.offset = read_number(l);
	return at;
}

static void read_space(Lexer *l, Kern *kern)
{
	lexer_expect(l, "[");
	while (!lexer_take(l, "]")) {
		if (kern->space.rank)
			lexer_expect(l, ",");
		if (kern->space.rank == RANK)
			fail(lexer_place(l), "more than %d axes", RANK);
		if (lexer_take(l, "/"))
			kern->reduce |= 1u << kern->space.rank;
		kern->space.dim[kern->space.rank++] = read_number(l);
	}
}

static void read_steps(Reader *r, ValSteps *steps)
{
	do {
		ValStep step = {.val = read_ref(r)};
		lexer_expect(r->l, "/");
		step.depth = (int)read_number(r->l);
		PUSH(r->l->arena, *steps, step);
	} while (lexer_take(r->l, ","));
}

static void read_fields(Lexer *l, Sched *s)
{
	do {
		const char *name = lexer_name(l);
		int k = 0;
		while (k < COUNT(fields) && strcmp(fields[k].name, name))
			k++;
		if (k == COUNT(fields))
			fail(lexer_place(l), "a schedule has no '%s'", name);
		*field_of(s, &fields[k]) = fields[k].words
		                               ? word_among(l, fields[k].words, fields[k].word)
		                               : read_number(l);
	} while (lexer_take(l, ","));
}

typedef struct Outs {
	VEC(Ref) out;
	VEC(Location) to;
} Outs;

static void read_out(Reader *r, Outs *outs)
{
	Ref ref = read_ref(r);
	PUSH(r->l->arena, outs->out, ref);
	if (!lexer_is(r->l, "at"))
		return;
	Location to = read_location(r->l);
	PUSH(r->l->arena, outs->to, to);
	if (val(r->plan->graph, ref)->op != O_slot && !r->plan->place[ref].block)
		r->plan->place[ref] = to;
}

static Sched *schedule_of(Reader *r, Kern *kern)
{
	if (!kern->sched)
		kern->sched = NEW(r->l->arena, Sched);
	return kern->sched;
}

static void read_item(Reader *r, Kern *kern, Outs *outs)
{
	Lexer *l = r->l;
	if (lexer_take(l, "out")) {
		read_out(r, outs);
	} else if (lexer_take(l, "root")) {
		kern->root = read_ref(r);
	} else if (lexer_take(l, "work")) {
		kern->work = read_location(l);
	} else {
		for (int k = 0; k < COUNT(lists); k++)
			if (lexer_take(l, lists[k].name)) {
				read_steps(r, list_of(schedule_of(r, kern), k));
				return;
			}
		read_fields(l, schedule_of(r, kern));
	}
}

static void read_kern(Reader *r)
{
	Lexer *l = r->l;
	Outs outs = {0};
	Kern kern = {.kind = (KernKind)word_among(l, COUNT(kinds), kinds)};
	read_space(l, &kern);
	while (next_indented(l))
		read_item(r, &kern, &outs);
	if (lexer_take(l, "body")) {
		next_indented(l);
		kern.body = lexer_plan(l, r->plan->graph->book);
		lexer_expect(l, "end");
		next_indented(l);
	}
	kern.nout = outs.out.count;
	kern.out = outs.out.at;
	kern.to = outs.to.count == kern.nout ? outs.to.at : NULL;
	PUSH(l->arena, r->plan->kerns, kern);
}

static void read_slot(Reader *r)
{
	const char *name = lexer_name(r->l);
	int slot = find_slot(r->plan->graph, name);
	if (slot < 0)
		fail(lexer_place(r->l), "no slot is called %s", name);
	r->plan->slot[slot] = read_location(r->l);
	next_indented(r->l);
}

static void read_head(Reader *r)
{
	Lexer *l = r->l;
	Plan *p = r->plan;
	lexer_expect(l, "plan");
	p->name = lexer_name(l);
	lexer_expect(l, "for");
	const char *machine = lexer_name(l);
	p->machine = machine_named(machine);
	if (!p->machine)
		fail(lexer_place(l), "no class of machines is called '%s'", machine);
	lexer_expect(l, ":");
	lexer_expect(l, "bytes");
	p->param_bytes = read_number(l);
	p->state_bytes = read_number(l);
	p->scratch_bytes = read_number(l);
	next_indented(l);
}

static Reader reader_of(Lexer *l, const Graph *g)
{
	Reader r = {.l = l, .plan = NEW(l->arena, Plan)};
	const int *number = number_values(l->arena, g);
	r.plan->graph = g;
	r.plan->place = NEWS(l->arena, Location, g->nval);
	r.plan->slot = NEWS(l->arena, Location, g->slots.count);
	r.value = NEWS(l->arena, Ref, g->nval + 1);
	for (Ref v = 1; v < (Ref)g->nval; v++)
		if (number[v]) {
			r.value[number[v]] = v;
			r.values = MAX(r.values, number[v]);
		}
	return r;
}

Plan *lexer_plan(Lexer *l, const Book *book)
{
	Reader r = reader_of(l, graph_live(l->arena, lexer_graph(l, book)));
	read_head(&r);
	while (lexer_take(l, "slot"))
		read_slot(&r);
	while (lexer_take(l, "kernel"))
		read_kern(&r);
	place_leaves(r.plan);
	return r.plan;
}

Plan *parse_plan(Arena *arena, const char *where, const char *text, const Book *book)
{
	Lexer *l = lexer_open(arena, where, text);
	Plan *p = lexer_plan(l, book);
	if (l->kind != T_end)
		fail(lexer_place(l), "found '%s', expected the end of the plan", l->word);
	return p;
}
