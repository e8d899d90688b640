// plan_text.c: writes plans as text and reads them, after any pass that makes or changes them.
// What is written reads back, and is then written the same. The graph's lines, then
//   plan NAME for MACHINE: bytes PARAMS STATE SCRATCH
//   slot NAME at param+0
//   kernel KIND [2,/3]                        sizes of the space, reduced axes with a slash
//   	out %3 at scratch+64
//   	root %3
//   	partition rows, workers 8, rows 4         what is not 0 of the schedule
//   	reduce %3/0 by 4                          values with depths, and chains
//   	work at scratch+128
//   	bundled                                   in one launch with the kernel before it
//   body                                      of the last kernel, a loop: a plan, then `end`
//   again 12                                  kernel 12 runs once more; the first is 0
#include "plan.h"
#include <stdlib.h>
#include <string.h>

const char *const kern_kinds[] = {
    [L_map] = "map",       [L_row] = "row",         [L_col] = "col",   [L_dot] = "dot",
    [L_attend] = "attend", [L_scatter] = "scatter", [L_scan] = "scan", [L_loop] = "loop"};
static const char *const blocks[] = {
    [B_none] = "nowhere", [B_param] = "param",   [B_state] = "state", [B_scratch] = "scratch",
    [B_input] = "input",  [B_output] = "output", [B_const] = "const", [B_grad] = "grad"};
static const char *const partitions[] = {
    [P_rows] = "rows",   [P_columns] = "columns", [P_partials] = "partials",
    [P_tiles] = "tiles", [P_heads] = "heads",     [P_blocks] = "blocks"};
static const char *const accumulations[] = {[A_own] = "own", [A_f32] = "f32", [A_f64] = "f64"};
static const char *const orders[] = {[N_strips] = "strips", [N_panels] = "panels"};
static const char *const packings[] = {
    [W_place] = "place",         [W_along] = "along", [W_copy] = "copy",
    [W_transpose] = "transpose", [W_patch] = "patch", [W_winograd] = "winograd"};

static const struct SchedField {
	const char *name;
	size_t offset;
	int words; // that its numbers are written as; 0: numbers
	const char *const *word;
} fields[] = {
#define WORDS_number            0, NULL
#define WORDS_partition         COUNT(partitions), partitions
#define WORDS_packing           COUNT(packings), packings
#define WORDS_accumulation      COUNT(accumulations), accumulations
#define WORDS_order             COUNT(orders), orders
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
             {"ahead", offsetof(Sched, ahead)},
             {"past", offsetof(Sched, past)}};

static ValSteps *list_of(Sched *s, int k)
{
	return (ValSteps *)((char *)s + lists[k].offset);
}

// ---- printing -------------------------------------------------------------------------

typedef struct Printer {
	Text text;
	const Plan *plan;
	const int *number; // by Ref: its number in the text of the graph
} Printer;

static void say_value(Printer *p, const char *before, Ref r)
{
	say(&p->text, "%s", before);
	say_ref(&p->text, p->plan->graph, p->number, r);
}

static void say_location(Text *t, Location at)
{
	say(t, " at %s+%lld", blocks[at.block], (long long)at.offset);
}

static void say_schedule(Printer *p, Sched s)
{
	Text *t = &p->text;
	for (int k = 0; k < COUNT(fields); k++) {
		int64_t n = *field_of(&s, &fields[k]);
		if (!n && k)
			continue;
		say(t, "%s%s ", k ? ", " : "\t", fields[k].name);
		if (fields[k].words)
			say(t, "%s", fields[k].word[n]);
		else
			say(t, "%lld", (long long)n);
	}
	say(t, "\n");
	for (int k = 0; k < COUNT(lists); k++) {
		const ValSteps *steps = list_of(&s, k);
		for (int i = 0; i < steps->count; i++) {
			say(t, i ? ", " : "\t%s ", lists[k].name);
			say_value(p, "", steps->at[i].val);
			say(t, "/%d", steps->at[i].depth);
			if (steps->at[i].chains)
				say(t, " by %d", steps->at[i].chains);
		}
		say(t, steps->count ? "\n" : "");
	}
}

static void say_kern(Printer *p, const Kern *kern, const Reads *reads)
{
	Text *t = &p->text;
	const Graph *g = p->plan->graph;
	say(t, "kernel %s [", kern_kinds[kern->kind]);
	for (int a = 0; a < kern->space.rank; a++)
		say(t, "%s%s%lld", a ? "," : "", kern->reduce >> a & 1 ? "/" : "",
		    (long long)kern->space.dim[a]);
	const Node *node = &g->nodes->list.at[val(g, kern->out[kern->nout - 1])->from];
	say(t, "]%s%s\n", *node->name ? "  # " : "", node->name);
	for (int i = 0; i < kern->nout; i++) {
		const Val *v = val(g, kern->out[i]);
		say_value(p, "\tout ", kern->out[i]);
		if (kern->to)
			say_location(t, kern->to[i]);
		say(t, "  # %s\n", shape_text(t->arena, v->type, &v->shape));
	}
	for (int i = 0; i < reads->count; i++)
		say_value(p, i ? " " : "\t# reads ", reads->at[i].val);
	say(t, reads->count ? "\n" : "");
	if (kern->root) {
		say_value(p, "\troot ", kern->root);
		say(t, "\n");
	}
	if (kern->sched)
		say_schedule(p, *kern->sched);
	if (kern->work.block) {
		say(t, "\twork");
		say_location(t, kern->work);
		say(t, "\n");
	}
	if (kern->bundled)
		say(t, "\tbundled\n");
	if (kern->body)
		say(t, "body\n%send\n", plan_text(t->arena, kern->body));
}

char *plan_text(Arena *arena, const Plan *plan)
{
	const Graph *g = plan->graph;
	Printer p = {{.arena = arena}, plan, number_values(arena, g)};
	Text *t = &p.text;
	const Reads *reads = plan_reads(arena, plan);
	say(t, "%splan %s for \"%s\": bytes %lld %lld %lld\n", graph_text(arena, g),
	    name_text(arena, plan->name), plan->machine->name, (long long)plan->param_bytes,
	    (long long)plan->state_bytes, (long long)plan->scratch_bytes);
	for (int i = 0; plan->slot && i < g->slots.count; i++) {
		if (!plan->slot[i].block)
			continue;
		say(t, "slot %s", name_text(arena, g->slots.at[i].name));
		say_location(t, plan->slot[i]);
		say(t, "\n");
	}
	for (int run = 0, first = 0; run < run_count(plan); run++) {
		int k = run_kernel(plan, run);
		if (k < first)
			say(t, "again %d\n", k);
		else
			say_kern(&p, &plan->kerns.at[first++], &reads[k]);
	}
	return t->at;
}

// ---- reading --------------------------------------------------------------------------

typedef struct Reader {
	Lexer *l;
	Plan *plan;
	Ref *value; // by number in the text
	int values;
} Reader;

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
	Location at = {.block = (Block)lexer_choice(l, COUNT(blocks), blocks)};
	lexer_expect(l, "+");
	at.offset = lexer_count(l);
	return at;
}

static void read_schedule(Reader *r, Kern *kern)
{
	Lexer *l = r->l;
	if (!kern->sched)
		kern->sched = NEW(l->arena, Sched);
	int k = 0;
	while (k < COUNT(lists) && !lexer_take(l, lists[k].name))
		k++;
	while (k == COUNT(lists)) {
		const char *name = lexer_name(l);
		int i = FIND(name, fields);
		if (i < 0)
			fail(lexer_place(l), "a schedule has no '%s'", name);
		const struct SchedField *f = &fields[i];
		*field_of(kern->sched, f) =
		    f->words ? lexer_choice(l, f->words, f->word) : lexer_count(l);
		if (!lexer_take(l, ","))
			return;
	}
	do {
		ValStep step = {.val = read_ref(r)};
		lexer_expect(l, "/");
		step.depth = (int)lexer_count(l);
		if (lexer_take(l, "by"))
			step.chains = (int)lexer_count(l);
		PUSH(l->arena, *list_of(kern->sched, k), step);
	} while (lexer_take(l, ","));
}

static void read_kern(Reader *r)
{
	Lexer *l = r->l;
	VEC(Ref) out = {0};
	VEC(Location) to = {0};
	Kern kern = {.kind = (KernKind)lexer_choice(l, COUNT(kern_kinds), kern_kinds)};
	kern.reduce = lexer_dims(l, &kern.space);
	for (;;) {
		bool indented = l->kind == T_indent;
		lexer_end_line(l);
		if (!indented)
			break;
		if (lexer_take(l, "root")) {
			kern.root = read_ref(r);
		} else if (lexer_take(l, "work")) {
			kern.work = read_location(l);
		} else if (lexer_take(l, "bundled")) {
			kern.bundled = r->plan->kerns.count > 0;
		} else if (lexer_take(l, "out")) {
			Ref ref = read_ref(r);
			PUSH(l->arena, out, ref);
			if (!lexer_is(l, "at"))
				continue;
			PUSH(l->arena, to, read_location(l));
			Location *at = &r->plan->place[ref];
			bool written = at->block && at->block != B_const;
			if (val(r->plan->graph, ref)->op != O_slot && !written)
				*at = to.at[to.count - 1];
		} else {
			read_schedule(r, &kern);
		}
	}
	if (lexer_take(l, "body")) {
		lexer_end_line(l);
		kern.body = lexer_plan(l, r->plan->graph->book);
		lexer_expect(l, "end");
		lexer_end_line(l);
	}
	kern.nout = out.count;
	kern.out = out.at;
	kern.to = to.count == kern.nout ? to.at : NULL;
	PUSH(l->arena, r->plan->order, r->plan->kerns.count);
	PUSH(l->arena, r->plan->kerns, kern);
}

static void read_again(Reader *r)
{
	const char *place = lexer_place(r->l);
	int64_t k = lexer_count(r->l);
	if (k >= r->plan->kerns.count)
		fail(place, "kernel %lld has not run yet", (long long)k);
	PUSH(r->l->arena, r->plan->order, (int)k);
	lexer_end_line(r->l);
}

Plan *lexer_plan(Lexer *l, const Book *book)
{
	Arena *arena = l->arena;
	const Graph *g = graph_live(arena, lexer_graph(l, book));
	Plan *p = NEW(arena, Plan);
	p->graph = g;
	p->place = NEWS(arena, Location, g->nval);
	p->slot = NEWS(arena, Location, g->slots.count);
	Reader r = {l, p, NEWS(arena, Ref, g->nval + 1), 0};
	const int *number = number_values(arena, g);
	for (Ref v = 1; v < (Ref)g->nval; v++)
		if (number[v]) {
			r.value[number[v]] = v;
			r.values = MAX(r.values, number[v]);
		}
	lexer_expect(l, "plan");
	p->name = lexer_name(l);
	lexer_expect(l, "for");
	const char *machine = lexer_name(l);
	p->machine = machine_named(machine);
	if (!p->machine)
		fail(lexer_place(l), "no class of machines is called '%s'", machine);
	lexer_expect(l, ":");
	lexer_expect(l, "bytes");
	p->param_bytes = lexer_count(l);
	p->state_bytes = lexer_count(l);
	p->scratch_bytes = lexer_count(l);
	lexer_end_line(l);
	while (lexer_take(l, "slot")) {
		const char *name = lexer_name(l);
		int slot = find_slot(g, name);
		if (slot < 0)
			fail(lexer_place(l), "no slot is called %s", name);
		p->slot[slot] = read_location(l);
		lexer_end_line(l);
	}
	place_leaves(p);
	for (;;) {
		if (lexer_take(l, "kernel"))
			read_kern(&r);
		else if (lexer_take(l, "again"))
			read_again(&r);
		else
			break;
	}
	return p;
}
