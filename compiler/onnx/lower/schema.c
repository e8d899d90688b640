// schema.c: checks a node against its operator's schema before it is lowered.
// It checks the number of inputs and outputs, and the attributes: names, types, values, none twice,
// none missing. Input: schema.def, written from ONNX's own schemas, and values.def.
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Schema { // a row of schema.def
	const char *op, *domain;
	int since;
	const char *in, *out, *attributes;
} Schema;

static const Schema schemas[] = {
#define SCHEMA(op, domain, since, in, out, attributes) {#op, domain, since, in, out, attributes},
#include "schema.def"
#undef SCHEMA
};

typedef struct Allowed { // a row of values.def
	const char *op, *attribute, *words;
	double low, high;
} Allowed;

static const Allowed allowed[] = {
#define VALUES(op, attribute, words)    {op, attribute, words, 0, 0},
#define RANGE(op, attribute, low, high) {op, attribute, NULL, low, high},
#include "values.def"
#undef VALUES
#undef RANGE
};

// ---- attributes that a schema declares ------------------------------------------------

typedef struct Declared { // NAME!:KIND=DEFAULT
	const char *name, *otherwise;
	char kind;
	bool required;
} Declared;

// The next of a schema's attributes; false at the end.
static bool next_declared(Arena *arena, const char **at, Declared *d)
{
	if (!**at)
		return false;
	int length = (int)strcspn(*at, " "), name = (int)strcspn(*at, "!:");
	const char *text = format(arena, "%.*s", length, *at), *equals = strchr(text, '=');
	*at += length + ((*at)[length] == ' ');
	*d = (Declared){.name = format(arena, "%.*s", name, text),
	                .otherwise = equals ? equals + 1 : NULL,
	                .required = text[name] == '!'};
	d->kind = text[name + 1 + d->required];
	return true;
}

static bool find_declared(Arena *arena, const Schema *s, const char *name, Declared *d)
{
	for (const char *at = s->attributes; next_declared(arena, &at, d);)
		if (!strcmp(d->name, name))
			return true;
	return false;
}

typedef struct Versions { // of an operator: its rows of schema.def; n 0: it has none
	int n;
	const Schema *all, *now; // now: that of the opset asked for
} Versions;

static Versions find_versions(const char *domain, const char *op, int64_t opset)
{
	int low = 0;
	for (int high = COUNT(schemas); low < high;) {
		int middle = (low + high) / 2, order = strcmp(domain, schemas[middle].domain);
		if ((order ? order : strcmp(op, schemas[middle].op)) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	Versions v = {.all = &schemas[low], .now = &schemas[low]};
	while (low + v.n < COUNT(schemas) && !strcmp(domain, v.all[v.n].domain) &&
	       !strcmp(op, v.all[v.n].op)) {
		v.now = v.all[v.n].since <= opset ? &v.all[v.n] : v.now;
		v.n++;
	}
	return v;
}

// ---- types ----------------------------------------------------------------------------

typedef struct Kind {
	char letter; // 0: unknown
	const char *name;
} Kind;

static const Kind kinds[] = { // by AttributeProto.AttributeType
    [1] = {'f', "float"},          [2] = {'i', "int"},
    [3] = {'s', "string"},         [4] = {'t', "tensor"},
    [5] = {'g', "graph"},          [6] = {'F', "list of floats"},
    [7] = {'I', "list of ints"},   [8] = {'S', "list of strings"},
    [11] = {'x', "sparse tensor"}, [13] = {'p', "type"}};

char attr_letter(int type)
{
	return type > 0 && type < COUNT(kinds) ? kinds[type].letter : 0;
}

static const char *type_name(int type)
{
	return attr_letter(type) ? kinds[type].name : "value of unknown type";
}

static int onnx_type(char letter)
{
	int type = 1;
	while (kinds[type].letter != letter)
		type++;
	return type;
}

// Returns the type of a value of the attribute other than `type`; 0: it has no such value.
static int other_value(const AttributeProto *a, int type)
{
	const bool holds[] = {[1] = a->f != 0,
	                      [2] = a->i != 0,
	                      [3] = a->s.len > 0,
	                      [4] = a->t,
	                      [5] = a->g,
	                      [6] = a->n_floats > 0,
	                      [7] = a->n_ints > 0,
	                      [8] = a->n_strings > 0,
	                      [11] = a->sparse_tensor};
	for (int other = 1; other < COUNT(holds); other++)
		if (holds[other] && other != type)
			return other;
	return 0;
}

// ---- values ---------------------------------------------------------------------------

bool is_word(const char *words, const char *text)
{
	size_t length = strlen(text);
	for (const char *at = words; at; at = strchr(at, ' '), at = at ? at + 1 : at)
		if (!strncmp(at, text, length) && (at[length] == ' ' || !at[length]))
			return true;
	return false;
}

static void check_word(const Call *c, const char *name, ProtobufCBinaryData s, const char *words)
{
	const char *text = format(c->r->arena, "%.*s", (int)s.len, (const char *)s.data);
	if (strlen(text) != s.len || !is_word(words, text))
		unsupported_node(c, EXPORT_AGAIN, "attribute '%s' is '%s'; expected one of %s",
		                 name, text, words);
}

static void check_number(const Call *c, const char *name, double x, const Allowed *v)
{
	if (!(x >= v->low && x <= v->high))
		unsupported_node(c, EXPORT_AGAIN,
		                 "attribute '%s' is %.15g; expected %.15g to %.15g", name, x,
		                 v->low, v->high);
}

// Fails if an attribute is not of type `type`, or has a value that values.def excludes. Files of
// the first versions omit the type.
static void check_value(const Call *c, const char *name, const AttributeProto *a, int type)
{
	if (a->type && a->type != type)
		unsupported_node(c, EXPORT_AGAIN, "attribute '%s' is of type %s; expected %s", name,
		                 type_name(a->type), type_name(type));
	int other = other_value(a, type);
	if (other)
		unsupported_node(c, EXPORT_AGAIN,
		                 "attribute '%s' holds a value of type %s; expected %s", name,
		                 type_name(other), type_name(type));
	if ((type == onnx_type('t') && !a->t) || (type == onnx_type('g') && !a->g))
		unsupported_node(c, EXPORT_AGAIN, "attribute '%s' holds no %s", name,
		                 type_name(type));
	const Allowed *v = allowed, *end = allowed + COUNT(allowed);
	while (v < end && (strcmp(v->attribute, name) ||
	                   (strcmp(v->op, c->node->op_type) && strcmp(v->op, "*"))))
		v++;
	if (v == end)
		return;
	if (v->words && type == onnx_type('s'))
		check_word(c, name, a->s, v->words);
	for (size_t i = 0; v->words && i < a->n_strings; i++)
		check_word(c, name, a->strings[i], v->words);
	if (!v->words && type == onnx_type('i'))
		check_number(c, name, (double)a->i, v);
	for (size_t i = 0; !v->words && i < a->n_ints; i++)
		check_number(c, name, (double)a->ints[i], v);
}

// ---- attributes of a node -------------------------------------------------------------

// True if the value is the one that the operator has without the attribute, or no value.
static bool is_default(const AttributeProto *a, const Declared *d)
{
	if (!d->otherwise)
		return !other_value(a, 0);
	if (d->kind == 'i')
		return a->i == strtoll(d->otherwise, NULL, 10);
	if (d->kind == 'f')
		return a->f == strtof(d->otherwise, NULL);
	return d->kind == 's' && a->s.len == strlen(d->otherwise) &&
	       !memcmp(a->s.data, d->otherwise, a->s.len);
}

// Accepts an attribute of another version of the operator if it changes nothing.
static void check_foreign(const Call *c, const char *name, const AttributeProto *a,
                          const Versions *v)
{
	// Of the first opsets: every later version does what these ask for.
	static const char leftovers[] = "broadcast consumed_inputs";
	Arena *arena = c->r->arena;
	VEC(const char *) names = {0};
	Declared d;
	for (int i = 0; i < v->n; i++) {
		if (!find_declared(arena, &v->all[i], name, &d))
			continue;
		if (is_word(leftovers, name) || is_default(a, &d))
			return;
		unsupported_node(c, "export with an opset that has it",
		                 "attribute '%s' is of opset %d; the node is of opset %lld", name,
		                 v->all[i].since, (long long)c->opset);
	}
	for (const char *at = v->now->attributes; next_declared(arena, &at, &d);)
		PUSH(arena, names, d.name);
	unsupported_node(c, EXPORT_AGAIN, "unknown attribute '%s'; %s", name,
	                 names.count ? suggest(arena, name, names.count, names.at)
	                             : "expected none");
}

// ---- a node ---------------------------------------------------------------------------

// Returns the number of names, without those left out at the end. Fails if there are too many.
static int check_most(const Call *c, const char *what, size_t n, char *const *name,
                      const char *formals)
{
	int most = (int)strlen(formals);
	while (n && !name[n - 1][0])
		n--;
	if ((int)n > most && !strpbrk(formals, "+*"))
		unsupported_node(c, EXPORT_AGAIN, "%d %s%s; expected at most %d", (int)n, what,
		                 PLURAL(n, "", "s"), most);
	return (int)n;
}

bool has_schema(const NodeProto *node)
{
	return find_versions(plain_domain(node->domain), node->op_type, 0).n > 0;
}

void check_schema(Call *c)
{
	const NodeProto *node = c->node;
	const Versions v = find_versions(plain_domain(node->domain), node->op_type, c->opset);
	if (!v.n)
		return;
	int n = check_most(c, "input", node->n_input, node->input, v.now->in);
	check_most(c, "output", node->n_output, node->output, v.now->out);
	if (!strpbrk(v.now->in, "+*")) // the others are left out
		c->nin = MIN(c->nin, (int)strlen(v.now->in));
	for (int i = 0; v.now->in[i]; i++)
		if (strchr("1+", v.now->in[i]) && (i >= n || !node->input[i][0]))
			unsupported_node(c, EXPORT_AGAIN, "input %d is missing", i);
	Declared d;
	for (size_t i = 0; i < node->n_attribute; i++) {
		const char *name = node->attribute[i]->name;
		uint64_t *last = table_cell_s(c->r->attributes, name);
		if (*last == (uint64_t)c->g->from)
			unsupported_node(c, EXPORT_AGAIN, "attribute '%s' is given twice", name);
		*last = (uint64_t)c->g->from;
		const AttributeProto *a = resolve_attr(c, node->attribute[i]);
		if (!a || starts_with(name, "__")) // private to a runtime
			continue;
		if (find_declared(c->r->arena, v.now, name, &d))
			check_value(c, name, a, onnx_type(d.kind));
		else
			check_foreign(c, name, a, &v);
	}
	for (const char *at = v.now->attributes; next_declared(c->r->arena, &at, &d);)
		if (d.required && !find_attr(c, d.name))
			unsupported_node(c, EXPORT_AGAIN, "attribute '%s' is missing", d.name);
}

char declared_attr(Arena *arena, const char *domain, const char *op, int64_t opset,
                   const char *name, const char **otherwise)
{
	Declared d;
	const Versions v = find_versions(domain, op, opset);
	if (!v.n || !find_declared(arena, v.now, name, &d))
		return 0;
	*otherwise = d.otherwise;
	return d.kind;
}
