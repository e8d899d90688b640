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

enum { POLICY_SCHEMA = 1 }; // of docs/policy.schema.json

static Stack row_stack(Arena *arena, const json_t *row)
{
	Shape shape = row_shape(row);
	Eta eta = row_eta(arena, row);
	return stack_of(&shape, &eta);
}

// ---- matrices: Muon, Hyperball ----------------------------------------------------------

typedef void AddFactors(json_t *, const Matrix *);

static json_t *matrix_json(const Matrices *all, const Matrix *m, int rank, AddFactors *add)
{
	json_t *ranges = json_array(), *order = json_array();
	for (int i = 0; i < m->nrange; i++)
		json_array_append_new(ranges, json_pack("[II]", (json_int_t)m->range[i].from,
		                                        (json_int_t)m->range[i].to));
	for (int a = 0; a < rank; a++)
		json_array_append_new(order, json_integer(all->order[a]));
	json_t *matrix =
	    json_pack("{ss? si so sI sI sI so}", "use", m->use, "axis", all->axis, "ranges", ranges,
	              "count", (json_int_t)m->count, "rows", (json_int_t)m->rows, "columns",
	              (json_int_t)m->columns, "order", order);
	add(matrix, m);
	return matrix;
}

static json_t *matrix_row(Arena *arena, const json_t *row, const char *group, AddFactors *add)
{
	Shape shape = row_shape(row);
	Eta eta = row_eta(arena, row);
	const Matrices *all = matrices_of(arena, &shape, &eta);
	json_t *list = json_array();
	for (int i = 0; i < all->n; i++)
		json_array_append_new(list, matrix_json(all, &all->at[i], shape.rank, add));
	return json_pack("{ss so ss}", "group", all->n ? group : "adam", "matrices", list, "why",
	                 all->why);
}

// Jordan's factor gives an orthogonal update the same spectral norm per output and input;
// Moonlight's (arXiv 2502.16982) the root mean square of AdamW's updates.
static void add_muon(json_t *matrix, const Matrix *m)
{
	double rows = (double)m->rows, columns = (double)m->columns;
	json_object_set_new(matrix, "factor", number_json(sqrt(fmax(1, rows / columns))));
	json_object_set_new(matrix, "rms_factor", number_json(0.2 * sqrt(fmax(rows, columns))));
}

static json_t *muon_row(Arena *arena, const json_t *row, const json_t *base)
{
	(void)base;
	return matrix_row(arena, row, "muon", add_muon);
}

// The radius is the Frobenius norm that the matrix has at its expected scale.
static void add_radius(json_t *matrix, const Matrix *m)
{
	double n = (double)m->rows * (double)m->columns;
	json_object_set_new(matrix, "radius", number_json(m->eta * sqrt(n)));
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
	return json_pack("{ss ss}", "group", decay_group(role), "why", role);
}

// ---- muP ---------------------------------------------------------------------------------

typedef struct Widths { // ratios to the base model; without one, sizes. 1: not a width
	double in, out, features;
} Widths;

static double ratio(const json_t *row, const json_t *base, const json_t *axes, size_t i)
{
	size_t axis = axes ? (size_t)integer_at(axes, i) : i;
	return (double)integer_at(json_object_get(row, "shape"), axis) /
	       (double)integer_at(json_object_get(base, "shape"), axis);
}

// The axes that differ from the base model's are widths.
static Widths base_widths(const json_t *row, const json_t *base)
{
	Widths w = {1, 1, 1};
	const json_t *in = json_object_get(row, "fan_in"), *out = json_object_get(row, "fan_out");
	if (json_array_size(json_object_get(row, "shape")) !=
	    json_array_size(json_object_get(base, "shape")))
		fail(text_at(row, "name"), "the base model has it in another rank" HELP
		                           "expected the same network in another width");
	for (size_t i = 0; i < json_array_size(in); i++)
		w.in *= ratio(row, base, in, i);
	for (size_t i = 0; i < json_array_size(out); i++)
		if (!has_integer(in, integer_at(out, i)))
			w.out *= ratio(row, base, out, i);
	for (size_t a = 0; a < json_array_size(json_object_get(row, "shape")); a++)
		if (ratio(row, base, NULL, a) != 1)
			w.features = ratio(row, base, NULL, a);
	return w;
}

// Without a base model, the role says which sizes are widths.
static Widths role_widths(Arena *arena, const json_t *row)
{
	const json_t *shape = json_object_get(row, "shape");
	Stack s = row_stack(arena, row);
	bool input = json_is_true(json_object_get(row, "input")),
	     readout = json_is_true(json_object_get(row, "readout")),
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

// Returns the size of a head of a kernel's queries; 0: it makes none.
static double head_size(Arena *arena, const json_t *row)
{
	const json_t *pieces = json_object_get(row, "pieces");
	double heads = (double)json_integer_value(json_object_get(row, "heads"));
	if (heads > 0 && !strcmp(text_at(row, "use"), "query") && has_role(row, "kernel"))
		return (double)product_of(json_object_get(row, "shape")) /
		       (double)row_stack(arena, row).columns / heads;
	for (size_t i = 0; i < json_array_size(pieces) && has_role(row, "kernel"); i++) {
		const json_t *piece = json_array_get(pieces, i);
		double size = (double)(json_integer_value(json_object_get(piece, "to")) -
		                       json_integer_value(json_object_get(piece, "from")));
		heads = (double)json_integer_value(json_object_get(piece, "heads"));
		if (heads > 0 && !strcmp(text_at(piece, "use"), "query"))
			return size / heads;
	}
	return 0;
}

// Table 8 of Tensor Programs V (arXiv 2203.03466), with the readout's multiplier in the forward
// pass, as in microsoft/mup.
static json_t *mup_row(Arena *arena, const json_t *row, const json_t *base)
{
	Widths w = base ? base_widths(row, base) : role_widths(arena, row);
	bool kernel = has_role(row, "kernel"), inside = w.in != 1, outside = w.out != 1;
	// Scores times sqrt(base / h) / sqrt(h): 1/h, as at the base.
	double head = head_size(arena, row), base_head = base ? head_size(arena, base) : 1;
	bool table = has_role(row, "embedding"),
	     tied = table && json_is_true(json_object_get(row, "readout"));
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
	                 head > 0 ? number_json(sqrt(base_head / head)) : json_null());
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
	return NAMES(arena, targets, ", ");
}

bool is_policy(const char *name)
{
	return FIND(name, targets) >= 0;
}

static const json_t *base_row(const Report *base, const char *name)
{
	const json_t *row = row_named(base->json, name);
	if (!row)
		fail(text_at(base->json, "model"),
		     "the base model has no parameter '%s'" HELP
		     "expected the same network in another width",
		     name);
	return row;
}

json_t *make_policy(Session *session, const char *name, const Report *report, const Report *base)
{
	const struct Target *target = &targets[FIND(name, targets)];
	if (base && !target->takes_base)
		bad_usage(session,
		          format(session->arena, "--base does nothing with --for %s", name));
	json_t *params = keep_json(session, json_array()), *row;
	size_t i;
	json_array_foreach (json_object_get(report->json, "params"), i, row) {
		const char *one = text_at(row, "name");
		const json_t *other = base ? base_row(base, one) : NULL;
		check_structure(row);
		if (other)
			check_structure(other);
		json_t *own = target->row(session->arena, row, other); // may fail
		json_t *made =
		    json_pack("{ss sO}", "name", one, "shape", json_object_get(row, "shape"));
		json_object_update(made, own);
		json_decref(own);
		json_array_append_new(params, made);
	}
	return keep_json(session, json_pack("{si ss ss ss? ss sO}", "schema", POLICY_SCHEMA,
	                                    "model", text_at(report->json, "model"), "for", name,
	                                    "base", base ? text_at(base->json, "model") : NULL,
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

static void print_policy_rows(const json_t *policy)
{
	size_t i;
	json_t *row;
	puts("POLICY = {");
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
	puts("}");
}

// Prints the page of a name in a language, with the policy and other pages at its marks.
static void print_policy_page(Arena *arena, const json_t *policy, const char *name,
                              const char *language)
{
	static const char mark[] = "POLICY = {}", include[] = "# include ";
	const char *file = format(arena, "%s.%s.py", name, language), *text = NULL;
	for (int k = 0; k < policy_npages && !text; k++)
		text = strcmp(policy_pages[k].name, file) ? NULL : policy_pages[k].text;
	if (!text)
		bug("no %s", file);
	for (const char *end; *text; text = end + 1) {
		end = strchr(text, '\n');
		const char *line = format(arena, "%.*s", (int)(end - text), text);
		if (!strcmp(line, mark))
			print_policy_rows(policy);
		else if (!strncmp(line, include, strlen(include)))
			print_policy_page(arena, policy, line + strlen(include), language);
		else
			puts(line);
	}
}

static void print_policy_code(Arena *arena, const json_t *policy, const char *language)
{
	printf("# %s: %s, by amosc.\n", text_at(policy, "model"), text_at(policy, "title"));
	if (*text_at(policy, "base"))
		printf("# Relative to %s.\n", text_at(policy, "base"));
	print_policy_page(arena, policy, text_at(policy, "for"), language);
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
