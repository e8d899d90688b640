// program_text.c: programs as text that can be read back.
//   program after PASS
//   option NAME "VALUE"               as given, for later passes
//   note "TEXT"                       also identity, labels: of the object
//   optimizer NAME SCHEDULE NUMBER=X ..  from pass eta up to pass step
//   eta PARAMETER ROLE slots [..] = X axis K: N of X, ..   shape of the slots; the scale, by axis K
//     matrices axis K order [..]: [..] = X of [FROM,TO] .., ..   if the optimizer takes matrices
//   entry NAME                        and its graph, or its plan
// After the last pass, the size and hash of the object.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	unsigned group;
	Pass first, last; // of the passes that use these options
} uses[] = {{READ | CHOOSE | NORMS | DROPS | SPLIT | MASK | SHAPE | PRECISION | SCALE, PASS_read,
             PASS_read},
            {DATA, PASS_read, PASS_eta},
            {LOSS, PASS_loss, PASS_loss},
            {ETA | STEP, PASS_eta, PASS_eta},
            {TARGET, PASS_decompose, PASS_fuse},
            {MEMORY, PASS_recompute, PASS_recompute}};

// ---- printing -------------------------------------------------------------------------

static void say_quoted(Text *t, const char *word, const char *text)
{
	if (text)
		say(t, "%s %s\n", word, name_text(t->arena, text));
}

// The matrices: their shape, the scale, and their ranges of an axis.
static void say_matrices(Text *t, const Matrices *all, int rank)
{
	say(t, " matrices axis %d order [", all->axis);
	for (int a = 0; a < rank; a++)
		say(t, a ? ",%d" : "%d", all->order[a]);
	say(t, "]:");
	for (int i = 0; i < all->n; i++) {
		const Matrix *m = &all->at[i];
		say(t, "%s [%lld,%lld,%lld] = %.17g of", i ? "," : "", (long long)m->count,
		    (long long)m->rows, (long long)m->columns, m->eta);
		for (int k = 0; k < m->nrange; k++)
			say(t, " [%lld,%lld]", (long long)m->range[k].from,
			    (long long)m->range[k].to);
	}
}

// The optimizer; of each parameter its eta, one number, or one for each element of the axis along
// which it differs.
static void say_etas(Text *t, const Program *p)
{
	const Graph *g = program_graph(p);
	const Opt *opt = &p->opt;
	say(t, "optimizer %s %s accumulate=%lld", opt->name, opt->schedule,
	    (long long)opt->accumulate);
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
		say(t, "eta %s %s slots [", name_text(t->arena, g->slots.at[i].name),
		    name_text(t->arena, eta->role));
		for (int a = 0; a < eta->slot.rank; a++)
			say(t, a ? ",%lld" : "%lld", (long long)eta->slot.dim[a]);
		say(t, "] = %.17g", eta->eta.value);
		for (int k = 0; k < eta->nparts; k++)
			say(t, "%s%lld of %.17g",
			    k ? ", " : format(t->arena, " axis %d: ", eta->axis),
			    (long long)eta->counts[k], eta->parts[k].eta.value);
		if (opt_takes_matrices(opt->name) && eta->matrices->n)
			say_matrices(t, eta->matrices, g->slots.at[i].shape.rank);
		say(t, "\n");
	}
}

static void print_program(FILE *to, Program *p)
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
	say_quoted(&t, "identity", program_identity(p));
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
	p->opt.schedule = lexer_name(l);
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

static void read_dims(Lexer *l, int rank, Shape *shape)
{
	lexer_dims(l, shape);
	if (shape->rank != rank)
		fail(lexer_place(l), "expected %d numbers, found %d", rank, shape->rank);
}

static const Matrices *read_matrices(Arena *arena, Lexer *l)
{
	VEC(Matrix) list = {0};
	Matrices *all = NEW(arena, Matrices);
	Shape shape;
	if (!lexer_take(l, "matrices"))
		return all;
	lexer_expect(l, "axis");
	int64_t axis = lexer_count(l); // may be too large for an int
	all->axis = (int)MIN(axis, RANK);
	lexer_expect(l, "order");
	lexer_dims(l, &shape);
	for (int a = 0; a < shape.rank; a++)
		all->order[a] = (int)MIN(shape.dim[a], RANK);
	lexer_expect(l, ":");
	do {
		VEC(struct MatrixRange) ranges = {0};
		read_dims(l, 3, &shape);
		lexer_expect(l, "=");
		Matrix m = {.count = shape.dim[0],
		            .rows = shape.dim[1],
		            .columns = shape.dim[2],
		            .eta = lexer_number(l)};
		lexer_expect(l, "of");
		while (lexer_is(l, "[")) {
			read_dims(l, 2, &shape);
			PUSH(arena, ranges, ((struct MatrixRange){shape.dim[0], shape.dim[1]}));
		}
		m.range = ranges.at;
		m.nrange = ranges.count;
		PUSH(arena, list, m);
	} while (lexer_take(l, ","));
	all->at = list.at;
	all->n = list.count;
	return all;
}

// True if they are matrices of a parameter of this shape, and cover it.
static bool are_matrices(const Matrices *all, const Shape *full)
{
	bool seen[RANK] = {0}, fit = !all->n || all->axis < full->rank;
	int64_t size = all->n && fit ? full->dim[all->axis] : 0, others, covered = 0;
	for (int a = 0; a < full->rank && all->n && fit; a++) {
		fit = all->order[a] < full->rank && !seen[all->order[a]];
		seen[fit ? all->order[a] : 0] = true;
	}
	for (int i = 0; i < all->n && fit; i++) {
		const Matrix *m = &all->at[i];
		int64_t own = 0;
		for (int k = 0; k < m->nrange && fit; k++) {
			fit = m->range[k].from < m->range[k].to && m->range[k].to <= size;
			own += m->range[k].to - m->range[k].from;
		}
		others = size ? count_of(full) / size : 0;
		fit &= count_of(&(Shape){3, {m->count, m->rows, m->columns}}) == own * others;
		covered += own;
	}
	return fit && covered == size;
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
		PUSH(arena, parts, ((Eta){.eta = surd_number(lexer_number(l))}));
	} while (lexer_take(l, ","));
	eta->nparts = parts.count;
	eta->counts = counts.at;
	eta->parts = parts.at;
}

static Named read_eta(Arena *arena, Lexer *l)
{
	Named named = {.name = lexer_name(l)};
	Eta *eta = &named.eta;
	eta->role = lexer_name(l);
	lexer_expect(l, "slots");
	lexer_dims(l, &eta->slot);
	lexer_expect(l, "=");
	eta->eta = surd_number(lexer_number(l));
	if (lexer_take(l, "axis"))
		read_parts(arena, l, eta);
	eta->matrices = read_matrices(arena, l);
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

// Gives etas of the text to the slots that they name.
static void take_etas(Program *p, const NamedEtas *etas)
{
	const Graph *g = program_graph(p);
	p->eta = NEWS(p->session->arena, Eta, g->slots.count + 1);
	for (int i = 0; i < etas->count; i++) {
		int slot = find_slot(g, etas->at[i].name);
		if (slot < 0)
			fail("eta", "no slot is called %s", etas->at[i].name);
		p->eta[slot] = etas->at[i].eta;
		if (!are_matrices(p->eta[slot].matrices, &g->slots.at[slot].shape))
			fail(etas->at[i].name, "its matrices do not fit its shape");
	}
}

// True if the options of the text have the choice.
static bool is_given(const Session *session, const Choice *c)
{
	for (int i = 0; i < session->choices.count && c->value; i++) {
		const Choice *other = &session->choices.at[i];
		if (other->option == c->option && other->value && !strcmp(other->value, c->value))
			return true;
	}
	return false;
}

// Adds options of the command to those of the text. Fails if no pass after `pass` uses one.
static void add_typed(Session *session, const Session *typed, Pass pass)
{
	for (int i = 0; i < typed->choices.count; i++) {
		const Choice *c = &typed->choices.at[i];
		if (is_given(session, c))
			continue;
		for (int k = 0; k < COUNT(uses) && c->option != OPT_limit; k++)
			if ((options[c->option].group & uses[k].group) && uses[k].last <= pass)
				bad_usage(session,
				          format(session->arena, "--%s does nothing after pass %s",
				                 long_name(session->arena, c->option),
				                 pass_table[pass].name));
		PUSH(session->arena, session->choices, *c);
	}
}

static Program *parse_program(Session *session, const char *where, const char *text)
{
	Lexer *l = lexer_open(session->arena, where, text);
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
	if (p->opt.name)
		take_etas(p, &etas);
	add_typed(session, &typed, pass);
	for (int i = 0; i < p->entries.count; i++)
		p->entries.at[i].unit.machine = target_machine(target_of(session));
	if (p->identity)
		p->identity = identity_renewed(session, p->identity, p->next > PASS_eta);
	return p;
}

// ---- show -----------------------------------------------------------------------------

const char *show_program(Session *session, const char *where, const char *text, const char **after)
{
	Arena *arena = session->arena;
	Program *p = text ? parse_program(session, where, text) : program_new(session, NULL);
	Pass first = p->next ? p->next - 1 : 0;
	if (!*after)
		*after = pass_table[first].name;
	Pass pass = pass_named(*after);
	if (pass == PASSES)
		fail_status(STATUS_USAGE, "--after", "no pass '%s'; %s", *after, pass_names(arena));
	if (pass < first)
		fail_status(STATUS_USAGE, "--after",
		            "pass %s comes before the text, which is after %s", *after,
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
