// program_text.c: programs as text that can be read back.
//   program after PASS
//   option NAME "VALUE"               as given; later passes use them
//   note "TEXT"                       also identity, labels: of the object
//   optimizer NAME NUMBER=X ..        from pass eta up to pass step
//   eta PARAMETER TYPE[..] = {X} over TYPE[..]     the scale; the shape of the optimizer's slots
//   entry NAME                        and its graph, or its plan
// After the last pass there is the object alone.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Options that decide how a program is printed, not what it is.
static bool is_shown(OptionName o)
{
	return !(options[o].group & (SHOW | JSON | COMMON));
}

static void say_quoted(Text *t, const char *word, const char *text)
{
	if (text)
		say(t, "%s %s\n", word, name_text(t->arena, text));
}

static void say_options(Text *t, const Session *session)
{
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (is_shown(c->option))
			say_quoted(t, format(t->arena, "option %s", options[c->option].name),
			           c->value ? c->value : "given");
	}
}

// ---- eta and optimizer ----------------------------------------------------------------

static void say_optimizer(Text *t, const Opt *opt)
{
	say(t, "optimizer %s accumulate=%lld", opt->name, (long long)opt->accumulate);
#define HYPER(name, ...) say(t, " " #name "=%.17g", opt->name);
#define DERIVED          HYPER
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	say(t, "\n");
}

// One number, or one for each element of the axis along which eta differs.
static void say_eta(Text *t, const Slot *s, const Eta *eta)
{
	say(t, "eta %s slots [", name_text(t->arena, s->name));
	for (int a = 0; a < eta->slot.rank; a++)
		say(t, a ? ",%lld" : "%lld", (long long)eta->slot.dim[a]);
	say(t, "] = %.17g", eta->eta.value);
	for (int part = 0; part < eta->nparts; part++)
		say(t, "%s%lld of %.17g", part ? ", " : format(t->arena, " axis %d: ", eta->axis),
		    (long long)eta->counts[part], eta->parts[part].eta.value);
	say(t, "\n");
}

static void say_etas(Text *t, Program *p)
{
	const Graph *g = program_graph(p);
	if (!p->eta)
		return;
	say_optimizer(t, &p->opt);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_param)
			say_eta(t, &g->slots.at[i], &p->eta[i]);
}

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

static Surd read_surd(Lexer *l)
{
	return surd_number(lexer_number(l));
}

static void read_parts(Arena *arena, Lexer *l, Eta *eta)
{
	VEC(int64_t) counts = {0};
	VEC(Eta) parts = {0};
	eta->axis = (int)lexer_number(l);
	lexer_expect(l, ":");
	do {
		PUSH(arena, counts, (int64_t)lexer_number(l));
		lexer_expect(l, "of");
		PUSH(arena, parts, ((Eta){.eta = read_surd(l)}));
	} while (lexer_take(l, ","));
	eta->nparts = parts.count;
	eta->counts = counts.at;
	eta->parts = parts.at;
}

typedef struct Named { // an eta before its slot is known
	const char *name;
	Eta eta;
} Named;
typedef VEC(Named) NamedEtas;

static void read_eta(Arena *arena, Lexer *l, NamedEtas *etas)
{
	Named named = {.name = lexer_name(l)};
	lexer_expect(l, "slots");
	lexer_dims(l, &named.eta.slot);
	lexer_expect(l, "=");
	named.eta.eta = read_surd(l);
	if (lexer_take(l, "axis"))
		read_parts(arena, l, &named.eta);
	PUSH(arena, *etas, named);
}

static void assign_etas(Program *p, const NamedEtas *etas)
{
	const Graph *g = program_graph(p);
	if (!p->opt.name)
		return;
	p->eta = NEWS(p->session->arena, Eta, g->slots.count + 1);
	for (int i = 0; i < etas->count; i++) {
		int slot = find_slot(g, etas->at[i].name);
		if (slot < 0)
			fail("eta", "no slot is called %s", etas->at[i].name);
		p->eta[slot] = etas->at[i].eta;
	}
}

// ---- programs -------------------------------------------------------------------------

static void print_entry(FILE *to, const Unit *unit)
{
	Arena *arena = arena_new();
	fprintf(to, "entry %s\n%s", unit->name,
	        unit->plan ? plan_text(arena, unit->plan) : graph_text(arena, unit->graph));
	arena_free(arena);
}

// A reader has no use for the object's bytes: their count and hash stand for them.
static void print_object(FILE *to, const Object *object)
{
	uint64_t hash = 0;
	for (int k = 0; k < object->parts; k++)
		hash = hash_bytes(object->part[k].bytes, object->part[k].count, hash);
	fprintf(to, "object: %d kernels, %zu bytes, hash %016llx\n", object->kernels, object->count,
	        (unsigned long long)hash);
}

static void print_program(FILE *to, Program *p)
{
	Text t = {.arena = p->session->arena};
	say(&t, "program after %s\n", pass_table[p->next - 1].name);
	if (!p->object) {
		say_options(&t, p->session);
		say_quoted(&t, "note", p->note);
		say_quoted(&t, "identity", p->identity);
		say_quoted(&t, "labels", p->labels);
		say_etas(&t, p);
	}
	fputs(t.at, to);
	for (int i = 0; i < p->entries.count && !p->object; i++)
		print_entry(to, &p->entries.at[i].unit);
	if (p->object)
		print_object(to, p->object);
}

static void read_option(Session *session, Lexer *l)
{
	const char *place = lexer_place(l), *name = lexer_name(l);
	int option = option_named(name);
	if (option < 0)
		fail(place, "no option is called %s", name);
	const char *value = lexer_name(l);
	PUSH(session->arena, session->choices,
	     ((Choice){(OptionName)option, options[option].argument ? value : NULL}));
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
	Unit unit = {.name = name, .machine = target_machine(target_of(p->session))};
	if (p->next <= PASS_fuse) {
		unit.graph = graph_live(l->arena, lexer_graph(l, book_builtin()));
	} else {
		unit.plan = lexer_plan(l, book_builtin());
		unit.graph = unit.plan->graph;
		if (p->next > PASS_memory)
			verify_plan(unit.plan);
	}
	Entry e = {unit, samples};
	PUSH(l->arena, p->entries, e);
}

static void read_line(Program *p, Lexer *l, NamedEtas *etas)
{
	const char *place = lexer_place(l), *word = lexer_name(l);
	if (!strcmp(word, "option"))
		read_option(p->session, l);
	else if (!strcmp(word, "note"))
		p->note = lexer_name(l);
	else if (!strcmp(word, "identity"))
		p->identity = lexer_name(l);
	else if (!strcmp(word, "labels"))
		p->labels = lexer_name(l);
	else if (!strcmp(word, "optimizer"))
		read_optimizer(p, l);
	else if (!strcmp(word, "eta"))
		read_eta(p->session->arena, l, etas);
	else if (!strcmp(word, "entry"))
		read_entry(p, l);
	else
		fail(place, "found '%s', expected a line of a program", word);
	if (l->kind == T_line)
		lexer_next(l);
}

static bool is_given(const Session *session, const Choice *other)
{
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option == other->option && c->value && other->value &&
		    !strcmp(c->value, other->value))
			return true;
	}
	return false;
}

static Program *parse_program(Session *session, const char *where, const char *text)
{
	Lexer *l = lexer_open(session->arena, where, text);
	Program *p = program_new(session, NULL);
	Session typed = *session; // whose options come after those of the text
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
	assign_etas(p, &etas);
	for (int i = 0; i < typed.choices.count; i++)
		if (!is_given(session, &typed.choices.at[i]))
			PUSH(session->arena, session->choices, typed.choices.at[i]);
	return p;
}

// ---- show -----------------------------------------------------------------------------

// The pass `said`, which is not before `first`.
static Pass last_pass(const Session *session, const char *said, Pass first)
{
	Text names = {.arena = session->arena};
	Pass pass = pass_named(said);
	for (Pass p = 0; p < PASSES; p++)
		say(&names, "%s%s", p + 1 == PASSES ? " or " : p ? ", " : "", pass_table[p].name);
	if (pass == PASSES)
		fail_status(STATUS_USAGE, "--after", "no pass '%s'; %s", said, names.at);
	if (pass < first)
		fail_status(STATUS_USAGE, "--after",
		            "pass %s is behind the text, which is after %s", said,
		            pass_table[first].name);
	return pass;
}

// Options that come in later do nothing.
static void check_pass(const Session *session, Pass pass)
{
	static const struct {
		unsigned group;
		Pass pass; // the first that goes by these options
	} groups[] = {{LOSS, PASS_loss}, {ETA | STEP, PASS_eta}, {TARGET, PASS_object}};
	for (int i = 0; i < session->choices.count; i++)
		for (int k = 0; k < COUNT(groups); k++) {
			OptionName option = session->choices.at[i].option;
			if ((options[option].group & groups[k].group) && pass < groups[k].pass)
				bad_usage(
				    session,
				    format(session->arena,
				           "--%s does nothing up to pass %s: expected --after "
				           "%s, or a later one",
				           long_name(session->arena, option), pass_table[pass].name,
				           pass_table[groups[k].pass].name));
		}
}

void show_program(Session *session, const char *where, const char *text, const char *after,
                  FILE *to)
{
	Program *p = text ? parse_program(session, where, text) : program_new(session, NULL);
	Pass pass = last_pass(session, after, p->next ? p->next - 1 : 0);
	check_pass(session, pass);
	if (p->next <= PASS_eta)
		p->data = open_given(session);
	p->standing = !p->data;
	run_passes(p, pass);
	print_program(to, p);
}
