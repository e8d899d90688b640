// program_text.c: programs as text that can be read back.
//   program after PASS
//   option NAME "VALUE"               as given, for later passes
//   note "TEXT"                       also identity, labels: of the object
//   optimizer NAME NUMBER=X ..        from pass eta up to pass step
//   eta PARAMETER slots [..] = X axis K: N of X, ..     shape of the slots; the scale, by axis K
//   entry NAME                        and its graph, or its plan
// After the last pass, the size and hash of the object.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	unsigned group;
	Pass first, last; // of the passes that use these options
} uses[] = {
    {READ | CHOOSE | NORMS | DROPS | SPLIT | MASK | SHAPE | PRECISION, PASS_read, PASS_read},
    {DATA, PASS_read, PASS_eta},
    {LOSS, PASS_loss, PASS_loss},
    {ETA | STEP, PASS_eta, PASS_eta},
    {TARGET, PASS_fuse, PASS_fuse},
    {MEMORY, PASS_recompute, PASS_recompute}};

// ---- printing -------------------------------------------------------------------------

static void say_quoted(Text *t, const char *word, const char *text)
{
	if (text)
		say(t, "%s %s\n", word, name_text(t->arena, text));
}

// The optimizer; of each parameter its eta, one number, or one for each element of the axis along
// which it differs.
static void say_etas(Text *t, const Program *p)
{
	const Graph *g = program_graph(p);
	const Opt *opt = &p->opt;
	say(t, "optimizer %s accumulate=%lld", opt->name, (long long)opt->accumulate);
#define HYPER(name, ...) say(t, " " #name "=%.17g", opt->name);
#define DERIVED          HYPER
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	say(t, "\n");
	for (int i = 0; i < g->slots.count; i++) {
		const Eta *eta = &p->eta[i];
		if (g->slots.at[i].kind != S_param)
			continue;
		say(t, "eta %s slots [", name_text(t->arena, g->slots.at[i].name));
		for (int a = 0; a < eta->slot.rank; a++)
			say(t, a ? ",%lld" : "%lld", (long long)eta->slot.dim[a]);
		say(t, "] = %.17g", eta->eta.value);
		for (int k = 0; k < eta->nparts; k++)
			say(t, "%s%lld of %.17g",
			    k ? ", " : format(t->arena, " axis %d: ", eta->axis),
			    (long long)eta->counts[k], eta->parts[k].eta.value);
		say(t, "\n");
	}
}

static void print_program(FILE *to, const Program *p)
{
	const Session *session = p->session;
	Text t = {.arena = session->arena};
	fprintf(to, "program after %s\n", pass_table[p->next - 1].name);
	if (p->object) { // a reader has no use for its bytes: their count and hash stand for them
		uint64_t hash = 0;
		for (int k = 0; k < p->object->parts; k++)
			hash = hash_bytes(p->object->part[k].bytes, p->object->part[k].count, hash);
		fprintf(to, "object: %d %s, %zu bytes, hash %016llx\n", p->object->kernels,
		        PLURAL(p->object->kernels, "kernel", "kernels"), p->object->count,
		        (unsigned long long)hash);
		return;
	}
	say(&t, "%s", "");
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		const unsigned printing = SHOW | JSON | COMMON; // not what the program is
		if (!(options[c->option].group & printing))
			say_quoted(&t, format(t.arena, "option %s", options[c->option].name),
			           c->value ? c->value : "given");
	}
	say_quoted(&t, "note", p->note);
	say_quoted(&t, "identity", p->identity);
	say_quoted(&t, "labels", p->labels);
	if (p->eta)
		say_etas(&t, p);
	fputs(t.at, to);
	for (int i = 0; i < p->entries.count; i++) {
		const Unit *unit = &p->entries.at[i].unit;
		Arena *arena = arena_new();
		fprintf(to, "entry %s\n%s", unit->name,
		        unit->plan ? plan_text(arena, unit->plan) : graph_text(arena, unit->graph));
		arena_free(arena);
	}
}

// ---- reading --------------------------------------------------------------------------

static void read_optimizer(Program *p, Lexer *l)
{
	p->opt = opt_named(lexer_name(l));
	while (l->kind == T_name) {
		const char *name = lexer_name(l);
		lexer_expect(l, "=");
		double x = lexer_number(l);
		double *to = opt_attribute(&p->opt, name);
		if (to)
			*to = x;
		else
			p->opt.accumulate = (int64_t)x;
	}
}

typedef struct Named { // an eta before its slot is known
	const char *name;
	Eta eta;
} Named;
typedef VEC(Named) NamedEtas;

static Named read_eta(Arena *arena, Lexer *l)
{
	Named named = {.name = lexer_name(l)};
	VEC(int64_t) counts = {0};
	VEC(Eta) parts = {0};
	Eta *eta = &named.eta;
	lexer_expect(l, "slots");
	lexer_dims(l, &eta->slot);
	lexer_expect(l, "=");
	eta->eta = surd_number(lexer_number(l));
	if (!lexer_take(l, "axis"))
		return named;
	eta->axis = (int)lexer_number(l);
	lexer_expect(l, ":");
	do {
		PUSH(arena, counts, (int64_t)lexer_number(l));
		lexer_expect(l, "of");
		PUSH(arena, parts, ((Eta){.eta = surd_number(lexer_number(l))}));
	} while (lexer_take(l, ","));
	eta->nparts = parts.count;
	eta->counts = counts.at;
	eta->parts = parts.at;
	return named;
}

static void read_entry(Program *p, Lexer *l)
{
	const char *name = lexer_name(l);
	long long samples = 0;
	if (lexer_take(l, ":")) { // eval:N
		samples = (long long)lexer_number(l);
		name = format(l->arena, "%s:%lld", name, samples);
	}
	if (l->kind == T_line)
		lexer_next(l);
	Unit unit = {.name = name};
	if (p->next <= PASS_fuse) {
		unit.graph = graph_live(l->arena, lexer_graph(l, book_builtin()));
	} else {
		unit.plan = lexer_plan(l, book_builtin());
		unit.graph = unit.plan->graph;
		if (p->next > PASS_memory)
			verify_plan(unit.plan);
	}
	PUSH(l->arena, p->entries, ((Entry){.unit = unit, .samples = samples}));
}

static void read_line(Program *p, Lexer *l, NamedEtas *etas)
{
	const char *place = lexer_place(l), *word = lexer_name(l);
	if (!strcmp(word, "option")) {
		const char *at = lexer_place(l), *name = lexer_name(l), *value = lexer_name(l);
		int option = option_named(name);
		if (option < 0)
			fail(at, "no option is called %s", name);
		value = options[option].argument ? value : NULL;
		PUSH(l->arena, p->session->choices, ((Choice){(OptionName)option, value}));
	} else if (!strcmp(word, "note"))
		p->note = lexer_name(l);
	else if (!strcmp(word, "identity"))
		p->identity = lexer_name(l);
	else if (!strcmp(word, "labels"))
		p->labels = lexer_name(l);
	else if (!strcmp(word, "optimizer"))
		read_optimizer(p, l);
	else if (!strcmp(word, "eta"))
		PUSH(l->arena, *etas, read_eta(l->arena, l));
	else if (!strcmp(word, "entry"))
		read_entry(p, l);
	else
		fail(place, "found '%s', expected a line of a program", word);
	if (l->kind == T_line)
		lexer_next(l);
}

static Program *parse_program(Session *session, const char *where, const char *text)
{
	Arena *arena = session->arena;
	Lexer *l = lexer_open(arena, where, text);
	Program *p = program_new(session, NULL);
	const Session typed = *session; // whose options come after those of the text
	NamedEtas etas = {0};
	memset(&session->choices, 0, sizeof session->choices);
	lexer_expect(l, "program");
	lexer_expect(l, "after");
	const char *place = lexer_place(l);
	Pass pass = pass_named(lexer_name(l));
	if (pass >= PASS_object)
		fail(place, "no program goes on from here");
	p->next = pass + 1;
	lexer_next(l);
	while (l->kind != T_end)
		read_line(p, l, &etas);
	if (!p->entries.count)
		fail(where, "a program without an entry");
	const Graph *g = program_graph(p);
	if (p->opt.name)
		p->eta = NEWS(arena, Eta, g->slots.count + 1);
	for (int i = 0; i < etas.count && p->opt.name; i++) {
		int slot = find_slot(g, etas.at[i].name);
		if (slot < 0)
			fail("eta", "no slot is called %s", etas.at[i].name);
		p->eta[slot] = etas.at[i].eta;
	}
	for (int i = 0; i < typed.choices.count; i++) {
		const Choice *c = &typed.choices.at[i];
		bool given = false;
		for (int k = 0; k < session->choices.count && c->value && !given; k++) {
			const Choice *other = &session->choices.at[k];
			given = other->option == c->option && other->value &&
			        !strcmp(other->value, c->value);
		}
		for (int k = 0; k < COUNT(uses) && !given; k++)
			if ((options[c->option].group & uses[k].group) && uses[k].last < p->next &&
			    c->option != OPT_limit)
				bad_usage(session, format(arena, "--%s does nothing after pass %s",
				                          long_name(arena, c->option),
				                          pass_table[pass].name));
		if (!given)
			PUSH(arena, session->choices, *c);
	}
	for (int i = 0; i < p->entries.count; i++)
		p->entries.at[i].unit.machine = target_machine(target_of(session));
	if (p->identity)
		p->identity = identity_renewed(session, p->identity, p->next > PASS_eta);
	return p;
}

// ---- show -----------------------------------------------------------------------------

const char *show_program(Session *session, const char *where, const char *text, const char *after)
{
	Arena *arena = session->arena;
	Program *p = text ? parse_program(session, where, text) : program_new(session, NULL);
	Pass pass = pass_named(after), first = p->next ? p->next - 1 : 0;
	if (pass == PASSES)
		fail_status(STATUS_USAGE, "--after", "no pass '%s'; %s", after, pass_names(arena));
	if (pass < first)
		fail_status(STATUS_USAGE, "--after",
		            "pass %s comes before the text, which is after %s", after,
		            pass_table[first].name);
	for (int i = 0; i < session->choices.count; i++)
		for (int k = 0; k < COUNT(uses); k++) {
			OptionName option = session->choices.at[i].option;
			if ((options[option].group & uses[k].group) && pass < uses[k].first)
				bad_usage(
				    session,
				    format(arena,
				           "--%s does nothing up to pass %s: expected --after "
				           "%s, or a later one",
				           long_name(arena, option), pass_table[pass].name,
				           pass_table[uses[k].first].name));
		}
	if (p->next <= PASS_eta)
		p->data = open_given(session);
	p->standing = !p->data;
	run_passes(p, pass);
	char *shown = NULL;
	size_t size;
	FILE *to = open_memstream(&shown, &size);
	if (to)
		print_program(to, p);
	if (!to || fclose(to))
		fail_status(STATUS_MACHINE, NULL, "out of memory");
	at_end(session->arena, free, shown);
	return shown;
}
