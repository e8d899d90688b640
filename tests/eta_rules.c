// eta_rules.c: every rule of eta is held by a row of the tables.
// eta_rules DOCUMENT GRAPH...: graphs in the notation (tests/eta/*, whose scales test_eta checks).
// Changes one rule at a time (a primitive's range, its demand, a number, a form) and fails where no
// parameter of any graph notices; then looks each number and form up in the page that explains
// them.
#include "scale.h"
#include <stdlib.h>
#include <string.h>

typedef struct Case {
	Graph *g;
	Wishes wishes;
	char *answer; // what the paper's rules say
} Case;

typedef struct Cases {
	Arena *arena;
	int n;
	Case *at;
	int mutants, missed;
} Cases;

static char *read_text(Arena *arena, const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		fail(path, "cannot be opened");
	fseek(file, 0, SEEK_END);
	size_t size = (size_t)ftell(file);
	rewind(file);
	char *text = take(arena, size + 1);
	if (fread(text, 1, size, file) != size)
		fail(path, "cannot be read");
	fclose(file);
	return text;
}

// Every scale that eta infers, as text.
static char *answer_of(Arena *arena, const Case *c, const Rules *rules)
{
	Wishes wishes = c->wishes;
	wishes.rules = rules;
	const Eta *eta = eta_pass(arena, c->g, &wishes, NULL);
	Text text = {.arena = arena};
	for (int i = 0; i < c->g->slots.count; i++) {
		if (c->g->slots.at[i].kind != S_param)
			continue;
		say(&text, "%s %s %s %d", c->g->slots.at[i].name, eta[i].role, eta[i].formula,
		    eta[i].sure);
		for (int a = 0; a < eta[i].slot.rank; a++)
			say(&text, " %lld", (long long)eta[i].slot.dim[a]);
		say(&text, "\n");
	}
	return text.at;
}

static Case read_case(Arena *arena, const char *path)
{
	static const char word[] = "# convention ";
	char *text = read_text(arena, path), *at = strstr(text, word);
	Case c = {.g = parse_graph(arena, path, text, book_builtin())};
	if (at)
		c.wishes.convention =
		    format(arena, "%.*s", (int)strcspn(at + strlen(word), "\n"), at + strlen(word));
	c.answer = answer_of(arena, &c, NULL);
	return c;
}

// Does any answer change?
static bool noticed(const Cases *cases, const Rules *rules)
{
	bool differs = false;
	for (int i = 0; i < cases->n && !differs; i++) {
		Arena *scratch = arena_new();
		differs = strcmp(cases->at[i].answer, answer_of(scratch, &cases->at[i], rules));
		arena_free(scratch);
	}
	return differs;
}

static void try_rules(Cases *cases, const Rules *rules, const char *kind, const char *name)
{
	cases->mutants++;
	if (noticed(cases, rules))
		return;
	cases->missed++;
	printf("nothing notices another %s: %s\n", kind, name);
}

// A range that no rule gives.
static Surd odd_range(struct Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
	return surd_root(13, 7);
}

// What never carries a signal: truth values, positions, numbers made of integers; and what the door
// makes another primitive of.
static bool is_silent(Op op)
{
	static const Op silent[] = {O_isnan, O_not, O_cast, O_eq,     O_lt,  O_le,
	                            O_and,   O_or,  O_xor,  O_argmax, O_tanh};
	for (int i = 0; i < COUNT(silent); i++)
		if (silent[i] == op)
			return true;
	return prims[op].cls == C_leaf;
}

static void change_rows(Cases *cases)
{
	for (Op op = 0; op < OPS; op++) {
		Rules rules = eta_rules();
		Row row = rules.row[op];
		if (is_silent(op))
			continue;
		rules.row[op].range = odd_range;
		try_rules(cases, &rules, "range", prims[op].name);
		rules.row[op] = row;
		rules.row[op].demand = row.demand == no_demand ? unit_demand : no_demand;
		try_rules(cases, &rules, "demand", prims[op].name);
	}
}

static void change_constants(Cases *cases)
{
	static const char *const names[] = {
#define CONSTANT(name, num, den, meaning) #name,
#include "eta.def"
#undef CONSTANT
	};
	for (int k = 0; k < CONSTANTS; k++) {
		Rules rules = eta_rules();
		rules.constant[k] = surd_mul(rules.constant[k], surd_root(3, 1));
		try_rules(cases, &rules, "number", names[k]);
	}
}

static const char *const forms[] = {
#define FORM(name, meaning) #name,
#include "eta.def"
#undef FORM
};

static void change_forms(Cases *cases)
{
	for (int k = 0; k < FORMS; k++) {
		Rules rules = eta_rules();
		rules.without[k] = true;
		try_rules(cases, &rules, "form", forms[k]);
	}
}

static int unexplained(Arena *arena, const char *path)
{
	const char *page = read_text(arena, path);
	int missing = 0;
	for (int k = 0; k < FORMS; k++)
		if (!strstr(page, format(arena, "`%s`", forms[k]))) {
			printf("%s does not explain the form `%s`\n", path, forms[k]);
			missing++;
		}
	return missing;
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	Cases cases = {.arena = arena, .n = argc - 2, .at = NEWS(arena, Case, argc)};
	for (int i = 0; i < cases.n; i++)
		cases.at[i] = read_case(arena, argv[i + 2]);
	change_rows(&cases);
	change_constants(&cases);
	change_forms(&cases);
	int missing = unexplained(arena, argv[1]);
	printf("eta_rules: %d rules changed, %d not noticed\n", cases.mutants, cases.missed);
	arena_free(arena);
	return cases.missed || missing || cases.n < 1;
}
