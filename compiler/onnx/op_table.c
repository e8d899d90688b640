// op_table.c: reads ops.def as a table, for lowering by name and for `amosc ops`.
#include "lower.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OP(name, domain, since, types, differentiable, gradient, lower, variant, note) Lower lower;
#include "ops.def"
#undef OP

static const OpRow rows[] = {
#define OP(name, domain, since, types, differentiable, gradient, lower, variant, note)             \
	{{#name, domain, since, types, differentiable, gradient, note, false}, lower, variant},
#include "ops.def"
#undef OP
};

void unsupported(Call *c)
{
	const char *note = find_row(plain_domain(c->node->domain), c->node->op_type)->info.note,
	           *help = strstr(note, "; ");
	if (!help)
		bug("ops.def: the note of %s has no help", c->node->op_type);
	unsupported_node(c, help + 2, "not supported: %.*s", (int)(help - note), note);
}

static const OpRow *by_name[COUNT(rows)]; // rows in order

static int compare_rows(const void *a, const void *b)
{
	const OpInfo *left = &(*(const OpRow *const *)a)->info,
	             *right = &(*(const OpRow *const *)b)->info;
	int order = strcmp(left->name, right->name);
	return order ? order : strcmp(left->domain, right->domain);
}

static void sort_rows(void)
{
	for (int i = 0; i < COUNT(rows); i++)
		by_name[i] = &rows[i];
	qsort(by_name, COUNT(rows), sizeof *by_name, compare_rows);
}

const OpRow *find_row(const char *domain, const char *op)
{
	static pthread_once_t sorted = PTHREAD_ONCE_INIT;
	pthread_once(&sorted, sort_rows);
	const OpRow *wanted = &(OpRow){.info = {.name = op, .domain = domain}};
	const OpRow *const *found =
	    bsearch(&wanted, by_name, COUNT(rows), sizeof *by_name, compare_rows);
	return found ? *found : NULL;
}

const OpInfo *op_table(int *count)
{
	static OpInfo infos[COUNT(rows)];
	for (int i = 0; i < COUNT(rows); i++) {
		infos[i] = rows[i].info;
		infos[i].forward = rows[i].lower != unsupported;
	}
	*count = COUNT(rows);
	return infos;
}

static void say_gradients(Text *t, const char *differentiable, const char *what)
{
	int all = 0, full = 0, partial = 0;
	for (int i = 0; i < COUNT(rows); i++) {
		const OpInfo *info = &rows[i].info;
		if (strcmp(info->differentiable, differentiable))
			continue;
		all++;
		full += !strcmp(info->gradient, "full");
		partial += !strcmp(info->gradient, "partial");
	}
	say(t, "Of the %d operators %s, amosc differentiates %d", all, what, full + partial);
	if (partial)
		say(t, " (%d of them in part)", partial);
	say(t, ".\n");
}

// The other systems' counts: gradients registered in ONNX Runtime's training code, and operators
// that onnxsim knows the derivative of.
const char *gradient_totals(Arena *arena)
{
	Text t = {.arena = arena};
	say_gradients(&t, "tagged", "whose schema (onnx 1.22) tags an input as differentiable");
	say(&t, "ONNX Runtime Training differentiates about 62 of them, onnxsim 38.\n");
	say_gradients(&t, "also", "that are differentiable in practice though not tagged");
	return t.at;
}
