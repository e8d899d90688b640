// variants.c: builds models of one node from text.
#include "variants.h"
#include "files.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int numbers(const char *text, double *x)
{
	int n = 0;
	for (char *end; *text && *text != '/'; text = end + (*end == ',' || *end == ']')) {
		x[n] = strtod(text, &end);
		if (end == text)
			fail("variants", "'%s' is no number", text);
		n++;
	}
	return n;
}

static const struct Kind { // constants by prefix character; types as in onnx.proto
	char sign;
	int type, bytes;
} kinds[] = {{'%', 1, 4}, {'!', 11, 8}, {'@', 7, 8}, {'#', 6, 4}, {'&', 2, 1}};

static const struct Kind *kind_of(char sign)
{
	for (int i = 0; i < COUNT(kinds); i++)
		if (kinds[i].sign == sign)
			return &kinds[i];
	fail("variants", "a constant begins with one of %%!@#&, not with '%c'", sign);
}

// Adds an initializer from @1,2/2,1 or %0.5.
static void add_constant(Build *b, const char *name, const char *text)
{
	const struct Kind *kind = kind_of(*text);
	double x[64], d[8];
	int n = numbers(text + 1, x), rank = 1;
	const char *slash = strchr(text, '/');
	int64_t dims[8] = {n};
	uint8_t bytes[64 * 8];
	if (slash)
		rank = numbers(slash + 1, d);
	for (int a = 0; slash && a < rank; a++)
		dims[a] = (int64_t)d[a];
	for (int i = 0; i < n; i++) {
		float real = (float)x[i];
		int64_t integer = (int64_t)x[i];
		const void *from = kind->type == 1    ? (void *)&real
		                   : kind->type == 11 ? (void *)&x[i]
		                                      : (void *)&integer;
		memcpy(bytes + i * kind->bytes, from, (size_t)kind->bytes);
	}
	PUSH(arena, b->tensors,
	     raw(tensor(name, kind->type, rank, dims), bytes, (size_t)(n * kind->bytes)));
}

// Sets an attribute; values are floats if one has a decimal point.
static void set_attribute(NodeProto *n, const char *name, char *text)
{
	double x[16];
	AttributeProto *a = attribute(n, name);
	char *end;
	double number = strtod(text, &end);
	bool real = strchr(text, '.');
	if (*text == '[') {
		size_t count = (size_t)numbers(text + 1, x);
		a->n_ints = real ? 0 : count;
		a->n_floats = real ? count : 0;
		a->ints = NEWS(arena, int64_t, count);
		a->floats = NEWS(arena, float, count);
		for (size_t i = 0; i < count; i++) {
			a->ints[i] = (int64_t)x[i];
			a->floats[i] = (float)x[i];
		}
	} else if (*end) {
		a->s = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
	} else if (real) {
		a->f = (float)number;
	} else {
		a->i = (int64_t)number;
	}
}

// Adds the outputs of the only node, which are the model's.
static void add_outputs(Build *b, NodeProto *node, const char *outs)
{
	node->output = names(outs, &node->n_output);
	b->outputs.count = 0;
	for (size_t i = 0; i < node->n_output; i++) {
		bool plain = !node->output[i][0] || isalpha((unsigned char)node->output[i][0]);
		int type = plain ? 1 : kind_of(node->output[i][0])->type;
		node->output[i] += !plain;
		if (node->output[i][0])
			PUSH(arena, b->outputs, value(node->output[i], type, "?"));
	}
}

Build *variant(const char *line, const char **op)
{
	char *text = copy_string(arena, line), *word = strtok(text, " \n"),
	     *set = strtok(NULL, " \n");
	char *dot = strrchr(word, '.'), *domain = dot ? word : NULL;
	Build *b = build(domain ? 17 : strtol(set, NULL, 10));
	VEC(const char *) operands = {0};
	if (domain) {
		*dot = 0;
		word = dot + 1;
	}
	NodeProto *n = add_to(b, node(word, "", ""));
	add_outputs(b, n, !strcmp(word, "Split") ? "y,z" : !strcmp(word, "TopK") ? "y,@i" : "y");
	if (domain)
		n->domain = domain;
	*op = word;
	while ((word = strtok(NULL, " \n"))) {
		char *equals = strchr(word, '='), *colon = strchr(word, ':');
		const char *name = format(arena, "c%d", operands.count);
		if (*word == '>') {
			add_outputs(b, n, word + 1);
			continue;
		}
		if (isalpha((unsigned char)*word) && equals) {
			*equals = 0;
			set_attribute(n, word, equals + 1);
			continue;
		}
		if (colon) {
			*colon = 0;
			name = word;
			PUSH(arena, b->inputs, value(name, 1, colon + 1));
		} else if (*word == '-') {
			name = "";
		} else {
			add_constant(b, name, word);
		}
		PUSH(arena, operands, name);
	}
	n->input = (char **)operands.at;
	n->n_input = (size_t)operands.count;
	return b;
}

static GraphProto *body(const char *op, const char *operands, const char *out)
{
	Build *b = build(17);
	add_outputs(b, add_to(b, node(op, operands, "")), out);
	uint8_t *bytes;
	pack(b, &bytes);
	return &b->graph;
}

Build *branch_variant(void)
{
	Build *b = build(17);
	PUSH(arena, b->inputs, value("x", 1, "3,4"));
	PUSH(arena, b->inputs, value("a", 1, "1"));
	PUSH(arena, b->inputs, value("b", 1, "1"));
	add_to(b, node("Less", "a,b", "less"));
	NodeProto *n = add_to(b, node("If", "less", ""));
	add_outputs(b, n, "y");
	attribute(n, "then_branch")->g = body("Mul", "x,x", "yes");
	attribute(n, "else_branch")->g = body("Exp", "x", "no");
	return b;
}

static bool try_variant(TryVariant *try, char *const *line)
{
	Catch caught;
	if (TRY(caught)) {
		printf("refused: %s: %s\n", *line, caught.message);
		free(caught.message);
		return false;
	}
	bool good = try(line);
	catch_end(&caught);
	return good;
}

int try_variants(const char *path, int lines, TryVariant *try)
{
	Arena *own = arena_new();
	Lines all = read_lines(own, path);
	int models = all.count / lines, off = 0;
	if (all.count % lines)
		fail(path, "its last model wants %d lines", lines);
	for (int i = 0; i < models; i++) {
		arena = arena_new();
		off += !try_variant(try, all.at + i * lines);
		arena_free(arena);
	}
	printf("%s: %d models, %d are off\n", path, models, off);
	arena_free(own);
	return models ? off : 1;
}

Array variant_values(void *context, const Slot *s)
{
	(void)context;
	if (s->kind != S_input && s->init)
		return array_from(arena, s->type, &s->shape, s->init);
	int64_t n = count_of(&s->shape);
	Array a = {.type = s->type, .shape = s->shape, .f = NEWS(arena, double, n + 1)};
	for (int64_t i = 0; i < n && s->kind == S_input; i++) {
		double x = 2 * sin(12.9898 * (double)i + s->name[0]);
		a.f[i] = (float)(s->name[0] == 'q' ? fabs(x) + 0.25 : x);
	}
	return a;
}
