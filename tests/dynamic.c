// dynamic.c: checks results and gradients of operators with dynamic dimensions.
// dynamic FILE: one line per model: its dynamic inputs, each with its axis, `|`, and a model as in
// variants.txt. Checks results, and gradients as gradients.c does. Status 1 if something differs.
#include "trial.h"
#include "variants.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLOAT = 1, MOST = 8 };

typedef struct DynamicInput { // an input with some valid entries along an axis
	char name;
	int axis;
	int64_t n, kept, at[64]; // entries; the valid ones
} DynamicInput;

typedef struct Case {
	const char *line, *model;
	DynamicInput operand[MOST];
	int count;
	const Graph *trimmed, *dynamic; // on the valid elements only; on dynamic inputs
	Array *given, *value;           // values of `dynamic`
} Case;

static int gradients;

// ---- models ---------------------------------------------------------------------------

// Returns the source of the condition: positive if entry i is valid.
static double keeps(int64_t i)
{
	return i % 3 == 1 ? -1 : 1;
}

static DynamicInput *operand_named(Case *c, const char *name)
{
	for (int k = 0; k < c->count; k++)
		if (c->operand[k].name == name[0])
			return &c->operand[k];
	return NULL;
}

static void read_operands(Case *c)
{
	const char *at = c->line;
	for (; *at && *at != '|'; at++)
		if (isalpha((unsigned char)*at) && c->count < MOST)
			c->operand[c->count++] = (DynamicInput){.name = *at, .axis = at[1] - '0'};
	if (!*at)
		fail(c->line, "wants operands, '|' and a model");
	c->model = at + 1 + strspn(at + 1, " ");
}

// Returns the model's line, with dynamic axes as long as their valid entries.
static const char *short_line(Case *c)
{
	Text text = {.arena = arena};
	for (char *word = strtok(copy_string(arena, c->model), " \n"); word;
	     word = strtok(NULL, " \n")) {
		DynamicInput *operand = word[1] == ':' ? operand_named(c, word) : NULL;
		if (!operand) {
			say(&text, "%s ", word);
			continue;
		}
		char *at = word + 2;
		say(&text, "%c:", *word);
		for (int a = 0; *at; a++, at += *at == ',') {
			int64_t d = strtol(at, &at, 10);
			operand->n = a == operand->axis ? d : operand->n;
			operand->kept = 0;
			for (int64_t i = 0; i < operand->n && i < 64; i++)
				if (keeps(i) > 0)
					operand->at[operand->kept++] = i;
			say(&text, "%lld%s", (long long)(a == operand->axis ? operand->kept : d),
			    *at ? "," : "");
		}
		say(&text, " ");
	}
	return text.at;
}

// Passes each dynamic input through Compress, with the same condition for equal lengths.
static const Graph *dynamic_graph(Case *c)
{
	static const int64_t none;
	const char *op;
	Build *b = variant(c->model, &op);
	NodeProto *node_of = b->nodes.at[0];
	b->nodes.count = 0;
	PUSH(arena, b->tensors, raw(tensor("nought", FLOAT, 0, &none), "\0\0\0", 4));
	for (int k = 0; k < c->count; k++) {
		DynamicInput *o = &c->operand[k];
		char name[2] = {o->name};
		const char *keep = format(arena, "keep%lld", (long long)o->n);
		bool known = false;
		for (int i = 0; i < b->inputs.count; i++)
			known |= !strcmp(b->inputs.at[i]->name, keep);
		if (!known) {
			PUSH(arena, b->inputs,
			     value(keep, FLOAT, format(arena, "%lld", (long long)o->n)));
			add_to(b, node("Greater", format(arena, "%s,nought", keep),
			               format(arena, "%s.true", keep)));
		}
		NodeProto *n = add_to(b, node("Compress", format(arena, "%s,%s.true", name, keep),
		                              format(arena, "%s.kept", name)));
		attribute(n, "axis")->i = o->axis;
		for (size_t i = 0; i < node_of->n_input; i++)
			if (!strcmp(node_of->input[i], name))
				node_of->input[i] = format(arena, "%s.kept", name);
	}
	add_to(b, node_of);
	return read_packed(b, &(ReadOptions){0})->graph;
}

// ---- values ---------------------------------------------------------------------------

static int64_t index_in(const Shape *from, const Shape *to, int64_t i, const DynamicInput *o)
{
	int64_t stride[RANK], wide[RANK], index = 0;
	row_strides(from, stride);
	row_strides(to, wide);
	for (int a = 0; a < from->rank; a++) {
		int64_t at = i / stride[a] % from->dim[a];
		index += wide[a] * (o && a == o->axis ? o->at[at] : at);
	}
	return index;
}

static Array part_values(void *context, const Slot *s)
{
	Array a = variant_values(context, s);
	for (int64_t i = 0; starts_with(s->name, "keep") && i < count_of(&s->shape); i++)
		a.f[i] = keeps(i);
	return a;
}

// Returns the valid elements of the dynamic graph's values.
static Array trimmed_values(void *context, const Slot *s)
{
	Case *c = context;
	DynamicInput *o = operand_named(c, s->name);
	Array a = variant_values(NULL, s);
	if (s->kind != S_input || !o)
		return a;
	const Array *all = &c->given[find_slot(c->dynamic, s->name)];
	for (int64_t i = 0; i < count_of(&s->shape); i++)
		a.f[i] = all->f[index_in(&s->shape, &all->shape, i, o)];
	return a;
}

// True if output `name` has the expected length and valid elements.
static bool same_out(const Case *c, const char *name, const Array *expected)
{
	const Array *all = &c->value[find_output(c->dynamic, name)];
	Ref shape = find_output(c->dynamic, format(arena, SHAPE_OF "%s", name));
	for (int a = 0; a < expected->shape.rank; a++) {
		int64_t d = shape ? c->value[shape].i[a] : all->shape.dim[a];
		if (d != expected->shape.dim[a]) {
			printf("%s: %s is %lld long along axis %d, wanted %lld\n", c->line, name,
			       (long long)d, a, (long long)expected->shape.dim[a]);
			return false;
		}
	}
	for (int64_t i = 0; i < count_of(&expected->shape); i++) {
		double x = element_at(all, index_in(&expected->shape, &all->shape, i, NULL));
		if (fabs(x - element_at(expected, i)) <=
		    2e-7 * (1 + fabs(x))) // a mean's 1/n is f32
			continue;
		printf("%s: %s [%lld] is %g, wanted %g\n", c->line, name, (long long)i, x,
		       element_at(expected, i));
		return false;
	}
	return true;
}

// Are the valid elements of the results the same as those of the graph without the others?
static bool same_values(Case *c)
{
	c->value = eval_graph(arena, c->dynamic, c->given);
	Array *slot = NEWS(arena, Array, c->trimmed->slots.count + 1);
	for (int s = 0; s < c->trimmed->slots.count; s++)
		slot[s] = trimmed_values(c, &c->trimmed->slots.at[s]);
	const Array *expected = eval_graph(arena, c->trimmed, slot);
	for (int k = 0; k < c->trimmed->outs.count; k++)
		if (is_own_out(c->trimmed->outs.at[k].name) &&
		    !same_out(c, c->trimmed->outs.at[k].name,
		              &expected[c->trimmed->outs.at[k].val]))
			return false;
	return true;
}

static bool check(char *const *line)
{
	Case c = {.line = *line};
	const char *op;
	read_operands(&c);
	c.trimmed = read_packed(variant(short_line(&c), &op), &(ReadOptions){0})->graph;
	c.dynamic = dynamic_graph(&c);
	Trial *t = trial_new(arena, *line, c.dynamic, part_values, NULL);
	c.given = t->slot;
	if (!same_values(&c))
		return false;
	gradients += t->with != NULL;
	return !t->with || (trial_differences(t) && trial_compiled(t));
}

// ---- every operand and axis of models -----------------------------------------------------

static int tried, refused;

static const Graph *whole_graph(Case *c)
{
	const char *op;
	return read_packed(variant(short_line(c), &op), &(ReadOptions){0})->graph;
}

// The graph, or NULL where it is refused.
static const Graph *try_graph(const Graph *make(Case *), Case *c)
{
	Catch caught;
	if (TRY(caught)) {
		free(caught.message);
		return NULL;
	}
	const Graph *g = make(c);
	catch_end(&caught);
	return g;
}

static bool check_axis(const char *model, char name, int axis)
{
	Case c = {.line = format(arena, "%c%d | %s", name, axis, model)};
	read_operands(&c);
	c.trimmed = try_graph(whole_graph, &c);
	c.dynamic = c.trimmed ? try_graph(dynamic_graph, &c) : NULL;
	tried++;
	refused += !c.dynamic;
	if (!c.dynamic)
		return true;
	c.given = NEWS(arena, Array, c.dynamic->slots.count + 1);
	for (int s = 0; s < c.dynamic->slots.count; s++)
		c.given[s] = part_values(NULL, &c.dynamic->slots.at[s]);
	return same_values(&c);
}

static bool check_axes(char *const *line)
{
	bool good = true;
	for (const char *at = *line; isalpha((unsigned char)**line) && *at; at++) {
		if (at[0] != ' ' || !isalpha((unsigned char)at[1]) || at[2] != ':')
			continue;
		char name = at[1], *end = (char *)at + 3;
		for (int axis = 0; isdigit((unsigned char)*end); axis++, end += *end == ',')
			if (strtol(end, &end, 10) > 2)
				good &= check_axis(*line, name, axis);
	}
	return good;
}

int main(int argc, char **argv)
{
	bool every = argc > 2 && !strcmp(argv[1], "--every");
	if (argc < 2)
		fail("dynamic", "wants a file of models");
	int off = try_variants(argv[argc - 1], 1, every ? check_axes : check);
	if (every)
		printf("dynamic: %d axes, %d are refused\n", tried, refused);
	else
		printf("dynamic: gradients of %d models\n", gradients);
	return off > 0;
}
