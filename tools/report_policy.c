// report_policy.c: decides how another optimizer treats each parameter: targets of --for that are
// optimizers.
// Input: reports with the structure of the parameters. Output: a policy, one row per parameter, as
// text, JSON, or Python code for PyTorch or JAX (tools/policies/). Invariant: role and structure
// decide, never a name, and never a size on its own.
#include "report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct {
	const char *name, *text;
} policy_pages[];
extern const int policy_npages;

// ---- a parameter of a report ----------------------------------------------------------

static const json_t *key(const json_t *row, const char *name)
{
	const json_t *value = json_object_get(row, name);
	if (!value)
		fail(text_at(row, "name"),
		     "the report lacks '%s'" HELP "write it again with amosc eta --json", name);
	return value;
}

static int64_t integer_at(const json_t *list, size_t i)
{
	return (int64_t)json_integer_value(json_array_get(list, i));
}

static int64_t product_of(const json_t *list)
{
	int64_t product = 1;
	for (size_t i = 0; i < json_array_size(list); i++)
		product *= integer_at(list, i);
	return product;
}

static bool has_integer(const json_t *list, int64_t x)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (integer_at(list, i) == x)
			return true;
	return false;
}

static bool has_role(const json_t *row, const char *role)
{
	return !strcmp(text_at(row, "role"), role);
}

typedef struct Stack {                // the matrices of a kernel
	int64_t count, rows, columns; // rows: outputs, columns: inputs, of each
	bool split;                   // the groups divide an axis of inputs
} Stack;

static Stack stack_of(const json_t *row)
{
	const json_t *shape = key(row, "shape"), *in = key(row, "fan_in"),
	             *group_axes = key(row, "group_axes");
	Stack s = {.count = (int64_t)json_integer_value(key(row, "groups")), .columns = 1};
	for (size_t i = 0; i < json_array_size(in); i++) {
		s.columns *= integer_at(shape, (size_t)integer_at(in, i));
		s.split |= has_integer(group_axes, integer_at(in, i));
	}
	s.columns = s.split ? s.columns / s.count : s.columns;
	s.rows = product_of(shape) / MAX(s.count * s.columns, 1);
	return s;
}

// ---- matrices: Muon, Hyperball ----------------------------------------------------------

// Returns why a parameter is not trained as matrices; NULL if it is.
static const char *no_matrix(const json_t *row)
{
	Stack s = stack_of(row);
	bool axes = json_array_size(key(row, "fan_in")) && json_array_size(key(row, "fan_out"));
	if (has_role(row, "embedding"))
		return json_is_true(key(row, "readout")) ? "table, tied to the readout" : "table";
	if (!has_role(row, "kernel"))
		return text_at(row, "role");
	if (json_is_true(key(row, "readout")))
		return "readout";
	if (json_is_true(key(row, "input")))
		return "reads an input";
	if (!axes)
		return "a kernel whose axes cannot be followed";
	if (s.split)
		return "groups divide its inputs";
	if (s.rows < 2 || s.columns < 2)
		return s.count > 1 ? "a stack of vectors" : "a vector";
	return NULL;
}

// Returns the axes in the order group, outputs, inputs.
static json_t *matrix_order(const json_t *row)
{
	json_t *order = json_array();
	const json_t *in = key(row, "fan_in"), *groups = key(row, "group_axes");
	int rank = (int)json_array_size(key(row, "shape"));
	for (int part = 0; part < 3; part++)
		for (int a = 0; a < rank; a++)
			if (part == (has_integer(in, a) ? 2 : has_integer(groups, a) ? 0 : 1))
				json_array_append_new(order, json_integer(a));
	return order;
}

typedef void AddFactors(json_t *matrix, const Stack *, double squares); // of eta, summed

// Returns the mean of the squares of the elements' eta, from index `from` to `to` along an axis.
static double mean_square(Arena *arena, const json_t *row, int64_t axis, int64_t from, int64_t to)
{
	EtaValues eta;
	double sum = 0;
	eta_values(arena, json_object_get(row, "eta"), &eta);
	if (eta.count == 1 || eta.axis != axis) {
		from = 0;
		to = eta.count;
	}
	for (int64_t i = from; i < to; i++)
		sum += eta.at[i] * eta.at[i];
	return sum / (double)(to - from);
}

// Adds the matrix of piece i, with all others of the same use that have heads: heads of one matrix
// need not be adjacent.
static void add_matrix(Arena *arena, json_t *list, const json_t *row, size_t i, Stack all,
                       AddFactors *add)
{
	const json_t *pieces = key(row, "pieces"), *first = json_array_get(pieces, i);
	const char *use = text_at(first, "use");
	int64_t axis = (int64_t)json_integer_value(json_object_get(first, "axis")), size = 0;
	json_t *ranges = json_array();
	double squares = 0;
	for (size_t k = 0; k < json_array_size(pieces); k++) {
		const json_t *piece = json_array_get(pieces, k);
		bool joined = json_is_integer(json_object_get(piece, "heads")) && *use &&
		              !strcmp(text_at(piece, "use"), use);
		if (k != i && (!joined || !json_is_integer(json_object_get(first, "heads"))))
			continue;
		if (k < i) { // added with that one
			json_decref(ranges);
			return;
		}
		json_int_t from = json_integer_value(json_object_get(piece, "from")),
		           to = json_integer_value(json_object_get(piece, "to"));
		json_array_append_new(ranges, json_pack("[II]", from, to));
		squares += (double)(to - from) * mean_square(arena, row, axis, from, to);
		size += to - from;
	}
	int64_t full = integer_at(key(row, "shape"), (size_t)axis);
	Stack own = all;
	own.rows = all.rows * size / full;
	json_t *matrix = json_pack("{ss? sI so sI sI sI so}", "use", *use ? use : NULL, "axis",
	                           (json_int_t)axis, "ranges", ranges, "count",
	                           (json_int_t)own.count, "rows", (json_int_t)own.rows, "columns",
	                           (json_int_t)own.columns, "order", matrix_order(row));
	add(matrix, &own, squares / (double)full * (double)product_of(key(row, "shape")));
	json_array_append_new(list, matrix);
}

// Returns the matrices of a kernel: its pieces, or all of it.
static json_t *matrices_of(Arena *arena, const json_t *row, AddFactors *add)
{
	json_t *list = json_array();
	const json_t *pieces = key(row, "pieces"), *out = key(row, "fan_out");
	Stack all = stack_of(row);
	int64_t axis =
	    (int64_t)json_integer_value(json_object_get(json_array_get(pieces, 0), "axis"));
	bool apart =
	    !has_integer(key(row, "fan_in"), axis) && !has_integer(key(row, "group_axes"), axis);
	for (size_t i = 0; i < json_array_size(pieces) && apart; i++)
		add_matrix(arena, list, row, i, all, add);
	if (json_array_size(list))
		return list;
	int64_t first = integer_at(out, 0), size = integer_at(key(row, "shape"), (size_t)first);
	const char *use = text_at(row, "use");
	json_t *matrix = json_pack("{ss? sI s[[iI]] sI sI sI so}", "use", *use ? use : NULL, "axis",
	                           (json_int_t)first, "ranges", 0, (json_int_t)size, "count",
	                           (json_int_t)all.count, "rows", (json_int_t)all.rows, "columns",
	                           (json_int_t)all.columns, "order", matrix_order(row));
	double n = (double)product_of(key(row, "shape"));
	add(matrix, &all, n * mean_square(arena, row, -1, 0, 1));
	json_array_append_new(list, matrix);
	return list;
}

static json_t *matrix_row(Arena *arena, const json_t *row, const char *group, AddFactors *add)
{
	const char *why = no_matrix(row);
	if (why)
		return json_pack("{ss s[] ss}", "group", "adam", "matrices", "why", why);
	return json_pack("{ss so ss}", "group", group, "matrices", matrices_of(arena, row, add),
	                 "why", "hidden");
}

// Jordan's factor gives an orthogonal update the same spectral norm per output and input;
// Moonlight's (arXiv 2502.16982) the root mean square of AdamW's updates.
static void add_muon(json_t *matrix, const Stack *s, double squares)
{
	(void)squares;
	double rows = (double)s->rows, columns = (double)s->columns;
	json_object_set_new(matrix, "factor", number_json(sqrt(fmax(1, rows / columns))));
	json_object_set_new(matrix, "rms_factor", number_json(0.2 * sqrt(fmax(rows, columns))));
}

static json_t *muon_row(Arena *arena, const json_t *row, const json_t *base)
{
	(void)base;
	return matrix_row(arena, row, "muon", add_muon);
}

// The radius is the Frobenius norm that the matrix has at its expected scale.
static void add_radius(json_t *matrix, const Stack *s, double squares)
{
	json_object_set_new(matrix, "radius", number_json(sqrt(squares / (double)s->count)));
}

static json_t *hyperball_row(Arena *arena, const json_t *row, const json_t *base)
{
	(void)base;
	return matrix_row(arena, row, "hyperball", add_radius);
}

// ---- AdamW: decay ------------------------------------------------------------------------

static json_t *adamw_row(Arena *arena, const json_t *row, const json_t *base)
{
	(void)arena, (void)base;
	const char *role = text_at(row, "role");
	const char *group = has_role(row, "kernel")      ? "decay"
	                    : has_role(row, "embedding") ? "table"
	                                                 : "no_decay";
	return json_pack("{ss ss}", "group", group, "why", role);
}

// ---- muP ---------------------------------------------------------------------------------

typedef struct Widths { // ratios to the base model; without one, sizes. 1: not a width
	double in, out, features;
} Widths;

static double ratio(const json_t *row, const json_t *base, const json_t *axes, size_t i)
{
	size_t axis = axes ? (size_t)integer_at(axes, i) : i;
	return (double)integer_at(key(row, "shape"), axis) /
	       (double)integer_at(key(base, "shape"), axis);
}

// The axes that differ from the base model's are widths.
static Widths base_widths(const json_t *row, const json_t *base)
{
	Widths w = {1, 1, 1};
	const json_t *in = key(row, "fan_in"), *out = key(row, "fan_out");
	if (json_array_size(key(row, "shape")) != json_array_size(key(base, "shape")))
		fail(text_at(row, "name"), "the base model has it in another rank" HELP
		                           "expected the same network in another width");
	for (size_t i = 0; i < json_array_size(in); i++)
		w.in *= ratio(row, base, in, i);
	for (size_t i = 0; i < json_array_size(out); i++)
		if (!has_integer(in, integer_at(out, i)))
			w.out *= ratio(row, base, out, i);
	for (size_t a = 0; a < json_array_size(key(row, "shape")); a++)
		if (ratio(row, base, NULL, a) != 1)
			w.features = ratio(row, base, NULL, a);
	return w;
}

// Without a base model, the role says which sizes are widths.
static Widths role_widths(const json_t *row)
{
	const json_t *shape = key(row, "shape");
	Stack s = stack_of(row);
	bool input = json_is_true(key(row, "input")), readout = json_is_true(key(row, "readout")),
	     stack = s.count > 1 && s.rows < 2;
	size_t rank = json_array_size(shape);
	double last = rank ? (double)integer_at(shape, rank - 1) : 1;
	if (!has_role(row, "kernel")) {
		bool table = has_role(row, "embedding");
		return (Widths){table && readout ? last : 1, 1, readout && !table ? 1 : last};
	}
	Widths w = {input || stack ? 1 : (double)s.columns,
	            readout ? 1 : (double)(stack ? s.count : s.rows), 1};
	w.features = w.in > 1 ? w.in : w.out;
	return w;
}

// Returns the factor of attention scores that makes 1/sqrt(h) a multiple of 1/h: 1 if the size of a
// head is that of the base model. NULL if it is no query.
static json_t *scores_json(const json_t *row, const json_t *base)
{
	const json_t *heads = key(row, "heads"), *pieces = key(row, "pieces");
	double size[2] = {0, 1};
	for (int k = 0; k < (base ? 2 : 1); k++) {
		const json_t *one = k ? base : row;
		heads = key(one, "heads");
		pieces = key(one, "pieces");
		const json_t *out = key(one, "fan_out");
		if (json_is_integer(heads) && !strcmp(text_at(one, "use"), "query"))
			size[k] =
			    (double)integer_at(key(one, "shape"), (size_t)integer_at(out, 0)) /
			    (double)json_integer_value(heads);
		for (size_t i = 0; i < json_array_size(pieces); i++) {
			const json_t *piece = json_array_get(pieces, i);
			json_int_t n = json_integer_value(json_object_get(piece, "heads"));
			if (n && !strcmp(text_at(piece, "use"), "query"))
				size[k] =
				    (double)(json_integer_value(json_object_get(piece, "to")) -
				             json_integer_value(json_object_get(piece, "from"))) /
				    (double)n;
		}
	}
	return size[0] > 0 && has_role(row, "kernel") ? number_json(sqrt(size[1] / size[0]))
	                                              : json_null();
}

// Table 8 of Tensor Programs V (arXiv 2203.03466), with the readout's multiplier in the forward
// pass, as in microsoft/mup.
static json_t *mup_row(Arena *arena, const json_t *row, const json_t *base)
{
	(void)arena;
	Widths w = base ? base_widths(row, base) : role_widths(row);
	bool kernel = has_role(row, "kernel"), inside = w.in != 1, outside = w.out != 1;
	bool table = has_role(row, "embedding"), tied = table && json_is_true(key(row, "readout"));
	bool hidden = kernel && inside && outside, output = kernel ? inside && !outside : tied;
	const char *group = hidden              ? "hidden"
	                    : kernel && output  ? "output"
	                    : kernel && outside ? "input"
	                    : w.features == 1   ? "fixed"
	                    : tied              ? "tied"
	                                        : "vector";
	double adam = hidden ? 1 / w.in : 1, sgd = hidden ? w.out / w.in : w.features;
	return json_pack("{ss so so so so so so so so}", "group", group, "width",
	                 number_json(hidden || output ? w.in : w.features), "init",
	                 number_json(hidden ? 1 / sqrt(w.in) : 1), "adam", number_json(adam),
	                 "adam_decay", number_json(1 / adam), "sgd", number_json(sgd), "sgd_decay",
	                 number_json(1 / sgd), "output",
	                 number_json(output ? 1 / (tied ? w.features : w.in) : 1), "scores",
	                 scores_json(row, base));
}

// ---- the targets -------------------------------------------------------------------------

static const struct Target {
	const char *name, *title;
	json_t *(*row)(Arena *, const json_t *row, const json_t *base);
	bool takes_base;
	const char *columns[9]; // of the text, keys of a row
} targets[] = {
    {"muon",
     "Muon for hidden matrices, Adam for the rest",
     muon_row,
     false,
     {"group", "matrices", "factor", "rms_factor", "why"}},
    {"mup",
     "muP: multipliers of initial scale, rate, decay and output",
     mup_row,
     true,
     {"group", "width", "init", "adam", "adam_decay", "sgd", "sgd_decay", "output", "scores"}},
    {"hyperball",
     "Hyperball for hidden matrices, with eta's norm as radius; Adam for the rest",
     hyperball_row,
     false,
     {"group", "matrices", "radius", "why"}},
    {"adamw-groups",
     "weight decay for kernels, and for tables if you like; none for the rest",
     adamw_row,
     false,
     {"group", "why"}},
};

const char *policy_names(Arena *arena)
{
	Text text = {.arena = arena};
	for (int i = 0; i < COUNT(targets); i++)
		say(&text, "%s%s", i ? ", " : "", targets[i].name);
	return text.at;
}

bool is_policy(const char *name)
{
	return FIND(name, targets) >= 0;
}

static const json_t *row_named(const Report *report, const char *name)
{
	size_t i;
	json_t *row;
	json_array_foreach (json_object_get(report->json, "params"), i, row)
		if (!strcmp(text_at(row, "name"), name))
			return row;
	fail(text_at(report->json, "model"),
	     "the base model has no parameter '%s'" HELP
	     "expected the same network in another width",
	     name);
}

json_t *make_policy(Session *session, const char *name, const Report *report, const Report *base)
{
	const struct Target *target = &targets[FIND(name, targets)];
	if (base && !target->takes_base)
		bad_usage(session,
		          format(session->arena, "--base does nothing with --for %s", name));
	json_t *params = json_array(), *row;
	size_t i;
	json_array_foreach (json_object_get(report->json, "params"), i, row) {
		const char *one = text_at(row, "name");
		json_t *made = json_pack("{ss sO}", "name", one, "shape", key(row, "shape"));
		json_t *own = target->row(session->arena, row, base ? row_named(base, one) : NULL);
		json_object_update(made, own);
		json_decref(own);
		json_array_append_new(params, made);
	}
	return keep_json(session,
	                 json_pack("{ss ss ss? ss so}", "model", text_at(report->json, "model"),
	                           "for", name, "base", base ? text_at(base->json, "model") : NULL,
	                           "title", target->title, "params", params));
}

// ---- text ----------------------------------------------------------------------------------

// Returns a cell: 3 of 64x64 for equal matrices, and one number per matrix.
static const char *policy_cell(Arena *arena, const json_t *row, const char *name)
{
	const json_t *value = json_object_get(row, name), *list = json_object_get(row, "matrices");
	Text text = {.arena = arena};
	say(&text, "%s", "");
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_number(value))
		return format(arena, "%.4g", json_number_value(value));
	for (size_t i = 0; i < json_array_size(list) && !json_is_null(value); i++) {
		const json_t *matrix = json_array_get(list, i),
		             *number = json_object_get(matrix, name);
		const char *use = text_at(matrix, "use");
		json_int_t count = json_integer_value(json_object_get(matrix, "count"));
		say(&text, "%s", i ? " " : "");
		if (number) {
			say(&text, "%.4g", json_number_value(number));
			continue;
		}
		if (count > 1)
			say(&text, "%lld of ", (long long)count);
		say(&text, "%s%s%lldx%lld", use, *use ? ":" : "",
		    (long long)json_integer_value(json_object_get(matrix, "rows")),
		    (long long)json_integer_value(json_object_get(matrix, "columns")));
	}
	return text.at;
}

static void print_policy_text(Arena *arena, const json_t *policy)
{
	const char *const *columns = targets[FIND(text_at(policy, "for"), targets)].columns;
	const json_t *params = json_object_get(policy, "params");
	const char *base = text_at(policy, "base");
	int rows = (int)json_array_size(params), n = 1;
	const char *names[COUNT(targets[0].columns) + 1] = {"name"};
	for (int c = 0; c < COUNT(targets[0].columns) && columns[c]; c++)
		names[n++] = columns[c];
	size_t width[COUNT(names)] = {0};
	for (int i = -1; i < rows; i++)
		for (int c = 0; c < n; c++) {
			const json_t *row = json_array_get(params, (size_t)i);
			const char *cell = i < 0 ? names[c] : policy_cell(arena, row, names[c]);
			width[c] = MAX(width[c], strlen(cell));
		}
	printf("%s: %s%s%s\n\n", text_at(policy, "model"), text_at(policy, "title"),
	       *base ? ", relative to " : "", base);
	for (int i = -1; i < rows; i++) {
		Text line = {.arena = arena};
		for (int c = 0; c < n; c++) {
			const json_t *row = json_array_get(params, (size_t)i);
			const char *cell = i < 0 ? names[c] : policy_cell(arena, row, names[c]);
			say(&line, "%s%-*s", c ? "  " : "", (int)width[c], cell);
		}
		while (line.count && line.at[line.count - 1] == ' ')
			line.at[--line.count] = 0;
		puts(line.at);
	}
}

// ---- code ----------------------------------------------------------------------------------

// Prints a value as Python reads it: JSON, but for three constants.
static void print_python(const json_t *value)
{
	size_t i;
	const char *name;
	json_t *one;
	if (json_is_object(value)) {
		const char *between = "{";
		json_object_foreach ((json_t *)value, name, one) {
			printf("%s\"%s\": ", between, name);
			print_python(one);
			between = ", ";
		}
		putchar('}');
	} else if (json_is_array(value)) {
		putchar('[');
		json_array_foreach (value, i, one) {
			fputs(i ? ", " : "", stdout);
			print_python(one);
		}
		putchar(']');
	} else if (json_is_null(value) || json_is_boolean(value)) {
		fputs(json_is_null(value)   ? "None"
		      : json_is_true(value) ? "True"
		                            : "False",
		      stdout);
	} else {
		json_dumpf(value, stdout,
		           JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	}
}

static void print_policy_code(Arena *arena, const json_t *policy, const char *language)
{
	static const char mark[] = "POLICY = {}\n";
	const char *file = format(arena, "%s.%s.py", text_at(policy, "for"), language), *at = NULL;
	const char *text = NULL;
	size_t i;
	json_t *row;
	for (int k = 0; k < policy_npages && !text; k++)
		text = strcmp(policy_pages[k].name, file) ? NULL : policy_pages[k].text;
	at = text ? strstr(text, mark) : NULL;
	if (!at)
		bug("no %s", file);
	printf("# %s: %s, by amosc.\n", text_at(policy, "model"), text_at(policy, "title"));
	if (*text_at(policy, "base"))
		printf("# Relative to %s.\n", text_at(policy, "base"));
	printf("%.*sPOLICY = {\n", (int)(at - text), text);
	json_array_foreach (json_object_get(policy, "params"), i, row) {
		json_t *own = json_copy(row);
		fputs("    ", stdout);
		print_python(json_object_get(row, "name"));
		fputs(": ", stdout);
		json_object_del(own, "name");
		print_python(own);
		puts(",");
		json_decref(own);
	}
	printf("}\n%s", at + strlen(mark));
}

void print_policy(Session *session, const json_t *policy)
{
	const char *format = choice(session, OPT_format, "text");
	if (chosen(session, OPT_json))
		print_json(json_incref((json_t *)policy));
	else if (!strcmp(format, "text"))
		print_policy_text(session->arena, policy);
	else if (!strcmp(format, "torch") || !strcmp(format, "jax"))
		print_policy_code(session->arena, policy, format);
	else
		fail_status(STATUS_USAGE, "--format",
		            "expected text, torch or jax with --for %s, found '%s'",
		            text_at(policy, "for"), format);
}
