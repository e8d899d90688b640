// book.c: reads the book's pages, calls its definitions, decomposes composites, makes gradients.
// Input: pages in the notation, which compiler/book/maps.am explains. The built-in book is opened
// once per process and never freed. Opening it reads rules and lists all other statements by name:
// a model uses few of them, and they are read when that name is first asked for.
#include "ir.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

extern const struct {
	const char *name;
	const char *text;
} book_pages[];
extern const int book_npages;

static const char *const kinds[] = {"def", "composite", "grad"};

typedef struct Statement {
	const char *page, *text;
	int line;
	struct Statement *next; // of the same name, in the order of the pages
} Statement;

typedef struct Statements { // of one name
	BookKind kind;
	Statement *first, **end;
	const Def *_Atomic defs; // NULL: not read yet
} Statements;

// ---- reading --------------------------------------------------------------------------

void number_names(const char *place, Arena *arena, Expr *e, Names *names, bool add)
{
	for (int k = 0; k < e->nin; k++)
		number_names(place, arena, e->in[k], names, add);
	for (int k = 0; k < e->nattr; k++)
		number_names(place, arena, e->attr[k], names, add);
	if (e->kind == X_name && e->quoted)
		e->kind = X_text;
	if (e->kind != X_name)
		return;
	e->var = names->count - 1;
	while (e->var >= 0 && strcmp(names->at[e->var], e->name))
		e->var--;
	if (e->var >= 0 || !strcmp(e->name, "none"))
		return;
	if (literal_name(e->name, &e->x)) {
		e->kind = X_num;
	} else if (add) {
		e->var = names->count;
		PUSH(arena, *names, e->name);
	} else {
		fail(place, "unknown name '%s'", e->name);
	}
}

static Expr *read_expr(Lexer *l, const Def *d, Names *names)
{
	Expr *e = parse_expr(l);
	number_names(d->place, l->arena, e, names, false);
	return e;
}

// Reads "(x, y; k, e = 1) =": operands and attributes, which in a line about a primitive may be
// numbers to match.
static void read_head(Lexer *l, Def *d, Names *names, bool about)
{
	VEC(Expr *) attr = {0};
	lexer_expect(l, "(");
	while (!lexer_is(l, ")") && !lexer_is(l, ";")) {
		if (d->nin++ > 0)
			lexer_expect(l, ",");
		PUSH(l->arena, *names, lexer_name(l));
		if (lexer_take(l, "?"))
			d->optional |= 1u << (d->nin - 1);
	}
	while (lexer_take(l, ";") || lexer_take(l, ",")) {
		const char *name = l->word;
		Expr *given = NULL;
		if (about) {
			given = parse_expr(l);
			if (given->kind == X_name && literal_name(given->name, &given->x))
				given->kind = X_num;
		} else {
			name = lexer_name(l);
			given = lexer_take(l, "=") ? read_expr(l, d, names) : NULL;
		}
		PUSH(l->arena, *names, name);
		PUSH(l->arena, attr, given);
	}
	lexer_expect(l, ")");
	lexer_expect(l, "=");
	d->attr = attr.at;
	d->nattr = attr.count;
}

// True for a line `name = ...`, and then skips up to the expression; or a call without a result.
static bool takes_line(Lexer *l)
{
	Lexer ahead = *l;
	if (l->kind != T_name)
		return false;
	lexer_next(&ahead);
	if (!lexer_take(&ahead, "="))
		return lexer_is(l, "need") || lexer_is(l, "support") || lexer_is(l, "note") ||
		       lexer_is(l, "doubt") || lexer_is(l, "fixed");
	*l = ahead;
	return true;
}

static void read_body(Lexer *l, Def *d, Names *names)
{
	VEC(Expr *) local = {0}, result = {0};
	while (l->kind == T_indent)
		lexer_next(l);
	for (const char *name = l->word; takes_line(l); name = l->word) {
		PUSH(l->arena, local, read_expr(l, d, names));
		PUSH(l->arena, *names, name);
		while (l->kind == T_indent)
			lexer_next(l);
	}
	do
		PUSH(l->arena, result, read_expr(l, d, names));
	while (lexer_take(l, ","));
	if (l->kind != T_line && l->kind != T_end)
		fail(lexer_place(l), "found '%s' after the results of %s", l->word, d->name);
	d->local = local.at;
	d->nlocal = local.count;
	d->result = result.at;
	d->nresult = result.count;
	d->names = names->at;
	d->nvar = names->count;
}

// True if d takes `nin` operands: optional ones at the end may be left out.
static bool accepts(const Def *d, int nin)
{
	if (nin > d->nin)
		return false;
	uint32_t left_out = (1u << d->nin) - (1u << nin);
	return (d->optional & left_out) == left_out;
}

static Def *read_def(const Book *book, Lexer *l)
{
	Names names = {0};
	Def *d = NEW(book->arena, Def);
	const char *place = d->place = lexer_place(l), *name = d->name = lexer_name(l);
	if (lexer_take(l, "=")) { // NAME = OTHER
		const Def *other = book_defs(book, BOOK_def, lexer_name(l));
		if (!other)
			fail(place, "%s: expected the name of another definition", name);
		*d = *other;
		d->place = place;
		d->name = name;
		d->next = NULL;
	} else {
		read_head(l, d, &names, false);
		read_body(l, d, &names);
	}
	return d;
}

// Reads a line about a primitive (composite, grad).
static Def *read_about(const Book *book, Lexer *l, bool grad)
{
	Names names = {0};
	Def *d = NEW(book->arena, Def);
	d->place = lexer_place(l);
	d->name = lexer_name(l);
	read_head(l, d, &names, true);
	if (grad) {
		PUSH(book->arena, names, "out");
		PUSH(book->arena, names, "g");
	}
	read_body(l, d, &names);
	return d;
}

static Lexer *statement_lexer(Arena *arena, const Statement *one)
{
	Lexer *l = lexer_open(arena, one->page, one->text);
	l->line = one->line;
	return l;
}

static void check_once(const Def *all, const Def *d)
{
	for (; all; all = all->next)
		for (int nin = d->nin; nin >= 0 && accepts(d, nin); nin--)
			if (accepts(all, nin))
				fail(d->place, "%s with %d %s is defined twice", d->name, nin,
				     PLURAL(nin, "operand", "operands"));
}

// Those about a primitive stay in the order of the page, because the first that fits is used.
static const Def *read_statements(const Book *book, const Statements *all)
{
	Def *first = NULL, **end = &first;
	for (const Statement *one = all->first; one; one = one->next) {
		Lexer *l = statement_lexer(book->arena, one);
		lexer_next(l);
		Def *d = all->kind == BOOK_def ? read_def(book, l)
		                               : read_about(book, l, all->kind == BOOK_grad);
		if (all->kind == BOOK_def)
			check_once(first, d);
		*end = d;
		end = &d->next;
	}
	return first;
}

const Def *book_defs(const Book *book, BookKind kind, const char *name)
{
	static pthread_mutex_t reading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	Statements *all = table_pointer_s(book->statements[kind], name);
	Catch failure;
	if (!all || all->defs)
		return all ? all->defs : NULL;
	pthread_mutex_lock(&reading);
	if (TRY(failure)) {
		pthread_mutex_unlock(&reading);
		fail_again(&failure);
	}
	if (!all->defs) // no other thread has read them
		all->defs = read_statements(book, all);
	catch_end(&failure);
	pthread_mutex_unlock(&reading);
	return all->defs;
}

const Def *find_def(const Book *book, const char *name, int nin)
{
	for (const Def *d = book_defs(book, BOOK_def, name); d; d = d->next)
		if (accepts(d, nin))
			return d;
	return NULL;
}

// ---- opening --------------------------------------------------------------------------

static void add_statement(Statements *all, Statement *one)
{
	*(all->first ? all->end : &all->first) = one;
	all->end = &one->next;
}

// Adds a statement to the list for its name, or to `rules` if it is a rule or a form.
static void list_statement(Book *book, Statement *one, Statements *rules)
{
	size_t word = strcspn(one->text, " ");
	const char *name = one->text + word + 1;
	for (BookKind kind = 0; kind < BOOK_KINDS; kind++) {
		if (strlen(kinds[kind]) != word || !starts_with(one->text, kinds[kind]))
			continue;
		uint64_t *cell = table_cell(book->statements[kind], name, strcspn(name, "( "));
		if (!*cell)
			*cell = (uintptr_t)NEW(book->arena, Statements);
		Statements *all = (Statements *)(uintptr_t)*cell;
		all->kind = kind;
		add_statement(all, one);
		return;
	}
	add_statement(rules, one);
}

// A statement begins at each line that does not continue one.
static void list_page(Book *book, const char *page, const char *text, Statements *rules)
{
	for (int line = 1; *text; line++) {
		if (!strchr(" \t#\n", *text)) {
			Statement *one = NEW(book->arena, Statement);
			*one = (Statement){.page = page, .text = text, .line = line};
			list_statement(book, one, rules);
		}
		text = strchrnul(text, '\n');
		text += *text == '\n';
	}
}

// acts.def as a page of the book.
static const char acts_page[] =
#define A(name, scale, formula, gradient)                                                          \
	"composite act(x; " #name ") = " formula "\n"                                              \
	"grad act(x; " #name ") = " gradient "\n"
#include "acts.def"
#undef A
    ;

// Threads may read it at once; the first to finish wins.
const Book *book_builtin(void)
{
	static const Book *_Atomic book;
	const Book *other = book;
	if (other)
		return other;
	Arena *arena = arena_new(), *meantime = arena_within(arena);
	Book *fresh = NEW(arena, Book);
	Statements rules = {0};
	*fresh = (Book){.arena = arena, .forms = table_new(arena)};
	for (int kind = 0; kind < BOOK_KINDS; kind++)
		fresh->statements[kind] = table_new(arena);
	for (int i = 0; i < book_npages; i++)
		list_page(fresh, book_pages[i].name, book_pages[i].text, &rules);
	list_page(fresh, "acts.def", acts_page, &rules);
	for (const Statement *one = rules.first; one; one = one->next)
		rule_read(fresh, meantime, statement_lexer(arena, one));
	arena_free(meantime);
	if (atomic_compare_exchange_strong(&book, &other, fresh))
		return fresh;
	arena_free(arena);
	return other;
}

// ---- definitions ----------------------------------------------------------------------

void book_run(Graph *g, const Host *host, const char *def, int nin, const Ref *in, int ngiven,
              const AttrArg *given, int nout, Ref *out)
{
	const Def *d = g->book ? find_def(g->book, def, nin) : NULL;
	if (!d)
		fail(def, "the book defines no %s with %d %s", def, nin,
		     PLURAL(nin, "operand", "operands"));
	Item var[d->nvar + 1], *attr = var + d->nin, result[nout + 1];
	const char **names = d->names + d->nin; // of the attributes
	Scope s = {.g = g, .book = g->book, .where = def, .host = host};
	Scope inner = {.g = g, .book = g->book, .where = d->place, .var = var, .depth = 1};
	for (int k = 0; k < d->nin; k++)
		var[k] = ref_item(k < nin ? in[k] : 0);
	for (int k = 0; k < d->nattr; k++) {
		const AttrArg *found = NULL;
		for (int i = 0; i < ngiven; i++)
			if (!strcmp(names[k], given[i].name))
				found = &given[i];
		if (!found && !d->attr[k])
			fail(def, "%s: expected an attribute %s", d->name, names[k]);
		if (!found) {
			attr[k] = eval_item(&inner, d->attr[k]);
		} else if (found->n == 0 && !found->ints) {
			attr[k] = num_item(found->x);
		} else {
			if (found->n > NUMS)
				fail(found->name, "a list of more than %d entries", NUMS);
			attr[k] = (Item){.kind = I_list, .n = found->n};
			memcpy(attr[k].i, found->ints, (size_t)found->n * sizeof *found->ints);
		}
	}
	run_def(&s, d, var, nout, result);
	for (int k = 0; k < nout; k++)
		out[k] = item_ref(&s, &result[k], nin ? val(g, in[0])->type : E_f32);
}

Ref book_call1(Graph *g, const char *def, int nin, const Ref *in, int ngiven, const AttrArg *given)
{
	Ref out;
	book_run(g, NULL, def, nin, in, ngiven, given, 1, &out);
	return out;
}

// ---- lines about primitives -----------------------------------------------------------

// Evaluates `nout` results of the line about v; `more` (2 or none) come after operands and
// attributes. Returns where the line is.
static const char *run_about(Graph *g, const Val *v, const Ref *in, BookKind kind, const Ref *more,
                             int nout, Item *out)
{
	Item attr[ATTRIBUTES];
	int nattr = attr_split(v->op, v->attr, attr);
	const Def *d = book_defs(g->book, kind, prims[v->op].name);
	for (; d; d = d->next) {
		bool fits = d->nin == v->nin && d->nattr == nattr;
		for (int k = 0; fits && k < nattr; k++) // numbers match
			fits = d->attr[k]->kind != X_num ||
			       (attr[k].kind == I_num && attr[k].x == d->attr[k]->x);
		if (fits)
			break;
	}
	if (!d)
		bug("no line of the book about %s with %d operands", prims[v->op].name, v->nin);
	Item var[d->nvar + 1], *next = var;
	for (int k = 0; k < v->nin; k++)
		*next++ = ref_item(in[k]);
	for (int k = 0; k < nattr; k++)
		*next++ = attr[k];
	for (int k = 0; more && k < 2; k++)
		*next++ = ref_item(more[k]);
	run_def(&(Scope){.g = g, .book = g->book, .where = d->place}, d, var, nout, out);
	return d->place;
}

Ref book_decompose(Graph *g, const Val *v, const Ref *in)
{
	Item out;
	const char *place = run_about(g, v, in, BOOK_composite, NULL, 1, &out);
	return item_ref(&(Scope){.g = g, .where = place}, &out, v->type);
}

bool book_differentiates(const Book *book, Op op)
{
	const Def *d = book_defs(book, BOOK_grad, prims[op].name);
	bool some = !d;
	for (; d && !some; d = d->next)
		for (int k = 0; k < d->nresult; k++)
			some |= d->result[k]->kind != X_name || strcmp(d->result[k]->name, "none");
	return some;
}

void book_grad(Graph *g, const Val *v, Ref out, Ref gradient, const Ref *in, Ref *dx)
{
	Item result[v->nin];
	const char *place = run_about(g, v, in, BOOK_grad, (Ref[]){out, gradient}, v->nin, result);
	Scope s = {.g = g, .where = place};
	for (int k = 0; k < v->nin; k++)
		dx[k] =
		    result[k].kind == I_none ? 0 : item_ref(&s, &result[k], val(g, in[k])->type);
}
