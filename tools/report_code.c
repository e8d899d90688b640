// report_code.c: prints a report as Python code, for training without amosc.
// Output: for jax, the rules that jestimator's amos_helper reads, from a regular expression to an
// expression; the first that matches the beginning of a name applies. For torch, a dict by name.
// Invariant: each name matches its own rule; layers with equal values share one.
#include "report.h"
#include <ctype.h>
#include <string.h>

// ---- expressions ----------------------------------------------------------------------

// True for formulas such as sqrt(2/3072), 1/2, (1/256)^(1/4) and decimals.
static bool is_python(const char *formula)
{
	for (const char *c = formula; *c; c++)
		if (starts_with(c, "sqrt("))
			c += strlen("sqrt");
		else if (!isdigit((unsigned char)*c) && !strchr("()+-*/^. ", *c))
			return false;
	return *formula;
}

typedef struct Run {      // consecutive elements of an axis with the same eta
	const char *text; // an expression of Python
	double value;
	int64_t count;
} Run;

typedef struct Runs {
	VEC(Run) run;
	int axis;
} Runs;

static Runs runs_of(Arena *arena, const json_t *row)
{
	EtaValues eta;
	eta_values(arena, json_object_get(row, "eta"), &eta);
	Runs runs = {.axis = eta.axis};
	for (int64_t i = 0; i < eta.count; i++) {
		double value = eta.at[i];
		Run *last = runs.run.count ? &runs.run.at[runs.run.count - 1] : NULL;
		if (last && last->value == value) {
			last->count++;
			continue;
		}
		const char *text = eta_formula(arena, "report", row, value),
		           *power = strchr(text, '^');
		if (!is_python(text))
			text = format(arena, "%.9g", value);
		else if (power)
			text = format(arena, "%.*s**%s", (int)(power - text), text, power + 1);
		PUSH(arena, runs.run, ((Run){text, value, 1}));
	}
	return runs;
}

// Returns a tuple of Python, which has a comma after a single element.
static const char *tuple_text(Arena *arena, const json_t *list)
{
	return format(arena, "(%s%s)", list_text(arena, list, ", "),
	              json_array_size(list) == 1 ? "," : "");
}

// ---- jax ------------------------------------------------------------------------------

// Returns arithmetic and calls of numpy by position, which is all that amos_helper evaluates.
static const char *jax_expression(Arena *arena, const json_t *row)
{
	Runs runs = runs_of(arena, row);
	if (runs.run.count == 1)
		return runs.run.at[0].text;
	Text values = {.arena = arena}, counts = {.arena = arena}, shape = {.arena = arena};
	for (int i = 0; i < runs.run.count; i++) {
		say(&values, "%s, ", runs.run.at[i].text);
		say(&counts, "%lld, ", (long long)runs.run.at[i].count);
	}
	for (int a = 0; a < (int)json_array_size(json_object_get(row, "shape")); a++)
		say(&shape, "%s, ", a == runs.axis ? "-1" : "1");
	return format(arena, "reshape(repeat((%s), (%s)), (%s))", values.at, counts.at, shape.at);
}

// Returns a regular expression that matches the name, with . or / between its parts. With `digits`,
// it also matches names with other numbers.
static const char *pattern_of(Arena *arena, const char *name, bool digits)
{
	Text text = {.arena = arena};
	for (const char *c = name; *c; c++) {
		if (*c == '.' || *c == '/')
			say(&text, "[./]");
		else if (digits && isdigit((unsigned char)*c)) {
			say(&text, "\\d+");
			c += strspn(c, "0123456789") - 1;
		} else if (isalnum((unsigned char)*c) || *c == '_' || *c & 0x80)
			say(&text, "%c", *c);
		else
			say(&text, *c < ' ' || *c == '\'' ? "\\x%02x" : "\\%c", *c);
	}
	return text.at ? text.at : "";
}

typedef const char *(*Value)(Arena *, const json_t *row);

static const char *jax_slots(Arena *arena, const json_t *row)
{
	return tuple_text(arena, json_object_get(row, "slots"));
}

typedef struct Family {    // rows whose names differ in their numbers alone
	const char *value; // of all of them; NULL: they differ
	int rows;
	bool written;
} Family;

static void print_rules(Arena *arena, const json_t *params, const char *name, Value value,
                        const char *quote)
{
	Table *families = table_new(arena); // pattern -> Family
	size_t i;
	const json_t *row;
	json_array_foreach (params, i, row) {
		const char *mine = value(arena, row), *one = text_at(row, "name");
		uint64_t *cell = table_cell_s(families, pattern_of(arena, one, true));
		Family *family = (Family *)(uintptr_t)*cell;
		if (!family) {
			family = NEW(arena, Family);
			family->value = mine;
			*cell = (uint64_t)(uintptr_t)family;
		} else if (family->value && strcmp(family->value, mine)) {
			family->value = NULL;
		}
		family->rows++;
	}
	printf("%s = {\n", name);
	json_array_foreach (params, i, row) {
		const char *one = text_at(row, "name"), *all = pattern_of(arena, one, true);
		Family *family = table_pointer_s(families, all);
		const char *question = text_at(row, "question");
		bool together = family->value && family->rows > 1;
		if (family->written)
			continue;
		family->written = together;
		printf("    r'%s$': %s%s%s,%s%s\n", together ? all : pattern_of(arena, one, false),
		       quote, value(arena, row), quote, *question && *quote ? "  # unsure: " : "",
		       *quote ? question : "");
	}
	printf("}\n");
}

// ---- torch ----------------------------------------------------------------------------

// Returns a number, or nested lists that broadcast: [[a]] * 768 + [[b]] * 768.
static const char *torch_expression(Arena *arena, const json_t *row)
{
	Runs runs = runs_of(arena, row);
	Text text = {.arena = arena};
	int rank = (int)json_array_size(json_object_get(row, "shape"));
	if (runs.run.count == 1)
		return runs.run.at[0].text;
	for (int a = 0; a < runs.axis; a++)
		say(&text, "[");
	for (int i = 0; i < runs.run.count; i++) {
		say(&text, "%s", i ? " + " : "");
		for (int a = runs.axis; a < rank; a++)
			say(&text, "[");
		say(&text, "%s", runs.run.at[i].text);
		for (int a = runs.axis; a < rank; a++)
			say(&text, "]");
		say(&text, " * %lld", (long long)runs.run.at[i].count);
	}
	for (int a = 0; a < runs.axis; a++)
		say(&text, "]");
	return text.at;
}

void print_code(Session *session, const Report *report, const char *language)
{
	Arena *arena = session->arena;
	const json_t *params = json_object_get(report->json, "params"), *row;
	const char *model = text_at(report->json, "model");
	bool jax = !strcmp(language, "jax");
	size_t i;
	printf("# Eta and slots of %s, inferred by amosc.\n", model);
	if (jax) {
		printf(
		    "# Patterns are of the names in the file, with '.' or '/' between their parts; "
		    "shapes are in its layout.\n"
		    "# from jestimator.amos_helper import params_fn_from_assign_map\n"
		    "# eta_fn = params_fn_from_assign_map(ETA, eval_str_value=True)\n"
		    "# shape_fn = params_fn_from_assign_map(SLOTS)\n");
		print_rules(arena, params, "ETA", jax_expression, "'");
		print_rules(arena, params, "SLOTS", jax_slots, "");
		return;
	}
	printf("# name: (eta, axes of the parameter that v and b average over)\n"
	       "from math import sqrt\n\nAMOS = {\n");
	json_array_foreach (params, i, row) {
		const json_t *shape = json_object_get(row, "shape"),
		             *slots = json_object_get(row, "slots");
		const char *question = text_at(row, "question");
		json_t *axes = json_array();
		for (size_t a = 0; a < json_array_size(shape); a++)
			if (!json_equal(json_array_get(slots, a), json_array_get(shape, a)))
				json_array_append_new(axes, json_integer((json_int_t)a));
		printf("    "); // Python reads a string of JSON
		json_dumpf(json_object_get(row, "name"), stdout,
		           JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
		printf(": (%s, %s),%s%s\n", torch_expression(arena, row), tuple_text(arena, axes),
		       *question ? "  # unsure: " : "", question);
		json_decref(axes);
	}
	printf("}\n");
}
