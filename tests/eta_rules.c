// eta_rules.c: checks that every rule of eta matters in some graph and is documented.
// eta_rules DOCUMENT GRAPH...: graphs in the notation (tests/eta/*, whose scales test_eta checks).
// Changes one rule at a time (a primitive's range, its demand, a number, a form) and fails if no
// parameter of any graph changes; then looks up each number and form in DOCUMENT.
#include "eta_graph.h"
#include "files.h"
#include "analysis.h"
#include <string.h>

typedef struct Case {
	EtaGraph graph;
	char *scales; // scales by the paper's rules
} Case;

typedef struct Cases {
	Arena *arena;
	int n;
	Case *at;
	int mutants, missed;
} Cases;

// Returns all scales that eta infers, one per line.
static char *scales_of(Arena *arena, const EtaGraph *graph, const Rules *rules)
{
	EtaOptions options = graph->options;
	options.rules = rules;
	const Eta *eta = eta_pass(arena, graph->g, &options, NULL);
	Text text = {.arena = arena};
	for (int i = 0; i < graph->g->slots.count; i++)
		if (graph->g->slots.at[i].kind == S_param)
			say(&text, "%s\n", eta_line(arena, graph->g->slots.at[i].name, &eta[i]));
	return text.at;
}

// True if any scale changes.
static bool noticed(const Cases *cases, const Rules *rules)
{
	bool differs = false;
	for (int i = 0; i < cases->n && !differs; i++) {
		Arena *scratch = arena_new();
		differs =
		    strcmp(cases->at[i].scales, scales_of(scratch, &cases->at[i].graph, rules));
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

// Returns a range that no rule gives.
static Surd odd_range(struct ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
	return surd_root(13, 7);
}

// True for primitives that never carry a signal: Booleans, indices, values made of integers; and
// those that the door always replaces.
static bool is_silent(Op op)
{
	static const Op silent[] = {O_isnan, O_not, O_cast, O_eq,     O_lt,  O_le,
	                            O_and,   O_or,  O_xor,  O_argmax, O_tanh};
	for (int i = 0; i < COUNT(silent); i++)
		if (silent[i] == op)
			return true;
	bool gradient = is_attention(op) && op != O_attend; // of a model that has only its loss yet
	return gradient || prims[op].cls == C_leaf || prims[op].cls == C_loop; // loops are unrolled
}

static void change_rows(Cases *cases)
{
	for (Op op = 0; op < OPS; op++) {
		Rules rules = eta_rules();
		ScaleRule row = rules.row[op];
		if (is_silent(op))
			continue;
		rules.row[op].range = odd_range;
		try_rules(cases, &rules, "range", prims[op].name);
		rules.row[op] = row;
		rules.row[op].demand = row.demand == no_demand ? unit_demand : no_demand;
		try_rules(cases, &rules, "demand", prims[op].name);
	}
}

static const char *const numbers[] = {
#define CONSTANT(name, num, den, meaning) #name,
#include "eta.def"
#undef CONSTANT
};

static void change_constants(Cases *cases)
{
	for (int k = 0; k < CONSTANTS; k++) {
		Rules rules = eta_rules();
		rules.constant[k] = surd_mul(rules.constant[k], surd_root(3, 1));
		try_rules(cases, &rules, "number", numbers[k]);
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

// Returns how many of these names the page does not mention.
static int unexplained(Arena *arena, const char *path, int n, const char *const *name)
{
	const char *page = read_file(arena, path, NULL);
	int missing = 0;
	for (int k = 0; k < n; k++)
		if (!strstr(page, format(arena, "`%s`", name[k]))) {
			printf("%s does not explain `%s`\n", path, name[k]);
			missing++;
		}
	return missing;
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	Cases cases = {.arena = arena, .n = argc - 2, .at = NEWS(arena, Case, argc)};
	for (int i = 0; i < cases.n; i++) {
		cases.at[i].graph = read_eta_graph(arena, argv[i + 2]);
		cases.at[i].scales = scales_of(arena, &cases.at[i].graph, NULL);
	}
	change_rows(&cases);
	change_constants(&cases);
	change_forms(&cases);
	int missing = unexplained(arena, argv[1], FORMS, forms) +
	              unexplained(arena, argv[1], CONSTANTS, numbers);
	printf("eta_rules: %d rules changed, %d not noticed\n", cases.mutants, cases.missed);
	arena_free(arena);
	return cases.missed || missing || cases.n < 1;
}
