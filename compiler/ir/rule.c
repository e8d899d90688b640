// rule.c: reads and applies the rules of the book.
// A value that matches the left side of a rule is replaced by its right side. A rule is stored once
// per combination of its forms' cases, by the primitive of its left side.
#include "ir.h"
#include <math.h>
#include <string.h>

enum { VARS = 24, SUBSTITUTIONS = 4 }; // limits: variables of a rule; a form and its operands

// ---- reading --------------------------------------------------------------------------

typedef Expr *Replace(const Expr *,
                      const void *context); // Returns a replacement, or NULL for a copy.

static Expr *copy_expr(Arena *arena, const Expr *e, Replace *replace, const void *context)
{
	Expr *other = replace(e, context);
	if (other)
		return other;
	Expr *copy = take_copy(arena, e, sizeof *e);
	copy->in = NEWS(arena, Expr *, e->nin + 1);
	copy->attr = NEWS(arena, Expr *, e->nattr + 1);
	for (int k = 0; k < e->nin; k++)
		copy->in[k] = copy_expr(arena, e->in[k], replace, context);
	for (int k = 0; k < e->nattr; k++)
		copy->attr[k] = copy_expr(arena, e->attr[k], replace, context);
	return copy;
}

static Expr *variable_by(const Expr *e, const void *context)
{
	Expr *const *var = context;
	return e->kind == X_name && e->var >= 0 ? var[e->var] : NULL;
}

static Expr *copy_with(Arena *arena, const Expr *e, Expr *const *var)
{
	return copy_expr(arena, e, variable_by, var);
}

// Replaces every call of a definition in `e` by its body, because matching sees primitives only.
static Expr *inline_defs(const Book *book, Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		e->in[k] = inline_defs(book, e->in[k]);
	for (int k = 0; k < e->nattr; k++)
		e->attr[k] = inline_defs(book, e->attr[k]);
	const Def *d = e->kind == X_call && e->op == OPS ? find_def(book, e->name, e->nin) : NULL;
	if (!d || d->nin != e->nin || d->nattr != e->nattr)
		return e;
	Expr **var = NEWS(book->arena, Expr *, d->nvar);
	int n = 0;
	for (int k = 0; k < e->nin; k++)
		var[n++] = e->in[k];
	for (int k = 0; k < e->nattr; k++)
		var[n++] = e->attr[k];
	for (int k = 0; k < d->nlocal; k++)
		var[n++] = inline_defs(book, copy_with(book->arena, d->local[k], var));
	return inline_defs(book, copy_with(book->arena, d->result[0], var));
}

// Marks numbers: literals, the names a b c d e n, functions, and arithmetic on these.
static bool mark_numbers(Expr *e)
{
	bool number = e->kind == X_num ||
	              (e->kind == X_name && !e->name[1] && strchr("abcden", *e->name)) ||
	              (e->kind == X_call && e->op == OPS);
	bool all = e->kind == X_call && e->op < OPS && e->nin > 0;
	for (int k = 0; k < e->nin; k++)
		all &= mark_numbers(e->in[k]);
	return e->number = number || all;
}

// Returns the degree of decomposition of a graph from which no rule makes the composites of `e`.
static Decomposed rests_in(const Expr *e)
{
	bool composite = e->kind == X_call && e->op < OPS && prims[e->op].cls == C_composite;
	Decomposed rests = !composite          ? DECOMPOSED_NONE
	                   : e->op == O_attend ? DECOMPOSED_ATTEND
	                                       : DECOMPOSED_ALL;
	for (int k = 0; k < e->nin; k++)
		rests = MAX(rests, rests_in(e->in[k]));
	return rests;
}

// Reads an expression up to the end of its lines, or to a keyword of the statement.
static Expr *read_side(Book *book, Lexer *l)
{
	Expr *e = inline_defs(book, parse_expr(l));
	while (l->kind == T_indent)
		lexer_next(l);
	return e;
}

static Expr **read_tests(Book *book, Lexer *l, int *ntest)
{
	VEC(Expr *) test = {0};
	if (lexer_take(l, "if"))
		do
			PUSH(book->arena, test, inline_defs(book, parse_expr(l)));
		while (lexer_take(l, ","));
	if (l->kind != T_line && l->kind != T_end)
		fail(lexer_place(l), "found '%s' after a rule", l->word);
	*ntest = test.count;
	return test.at;
}

// ---- forms ----------------------------------------------------------------------------

static FormCase *forms_named(const Book *book, const char *name)
{
	const uint64_t *cell = table_find_s(book->forms, name);
	return cell ? (FormCase *)(uintptr_t)*cell : NULL;
}

void form_read(Book *book, Lexer *l)
{
	FormCase *form = NEW(book->arena, FormCase);
	form->place = lexer_place(l);
	form->head = read_side(book, l);
	const Expr *head = form->head;
	if (head->kind != X_call || head->op < OPS || head->nin >= SUBSTITUTIONS)
		fail(form->place, "expected a form with fewer than %d operands", SUBSTITUTIONS);
	lexer_expect(l, "=");
	form->body = read_side(book, l);
	form->test = read_tests(book, l, &form->ntest);
	FormCase *last = forms_named(book, head->name);
	while (last && last->next)
		last = last->next;
	if (last)
		last->next = form;
	else
		*table_cell_s(book->forms, head->name) = (uint64_t)(uintptr_t)form;
}

typedef struct Substitution { // a name or this exact call, and its replacement
	const Expr *from;
	Expr *by;
} Substitution;

typedef struct Substitutions {
	int n;
	Substitution at[SUBSTITUTIONS];
} Substitutions;

static Expr *substitute_expr(const Expr *e, const void *context)
{
	const Substitutions *substitutions = context;
	for (int i = 0; i < substitutions->n; i++) {
		const Expr *from = substitutions->at[i].from;
		bool same =
		    e->kind == X_name && from->kind == X_name && !strcmp(e->name, from->name);
		if (e == from || same)
			return substitutions->at[i].by;
	}
	return NULL;
}

// Returns a copy of `e` with all substitutions at once.
static Expr *substitute(Arena *arena, const Expr *e, const Substitutions *substitutions)
{
	return copy_expr(arena, e, substitute_expr, substitutions);
}

typedef struct Draft { // a rule while its forms are expanded
	const char *place;
	Expr *left, *right;
	VEC(Expr *) test;
} Draft;

static Draft substitute_draft(Arena *arena, const Draft *from, const Substitutions *substitutions)
{
	Draft d = {from->place,
	           substitute(arena, from->left, substitutions),
	           substitute(arena, from->right, substitutions),
	           {0}};
	for (int i = 0; i < from->test.count; i++)
		PUSH(arena, d.test, substitute(arena, from->test.at[i], substitutions));
	return d;
}

// Returns an innermost call of a form; NULL if there is none.
static const Expr *find_form(const Book *book, const Expr *e)
{
	for (int k = 0; k < e->nin; k++) {
		const Expr *inner = find_form(book, e->in[k]);
		if (inner)
			return inner;
	}
	return e->kind == X_call && e->op == OPS && forms_named(book, e->name) ? e : NULL;
}

// Replaces `call` by one case. A name in the case's head becomes the call's argument; else the
// argument, a name of the rule, becomes the head's expression. The case's tests come first, because
// the rule's tests may depend on them.
static Draft apply_case(Arena *arena, const Draft *d, const Expr *call, const FormCase *form)
{
	Substitutions given = {0}, found = {0};
	const Expr *head = form->head;
	if (call->nin != head->nin)
		fail(d->place, "%s: found %d operands, expected %d", call->name, call->nin,
		     head->nin);
	for (int k = 0; k < head->nin; k++)
		if (head->in[k]->kind == X_name)
			given.at[given.n++] = (Substitution){head->in[k], call->in[k]};
	found.at[found.n++] = (Substitution){call, substitute(arena, form->body, &given)};
	for (int k = 0; k < head->nin; k++) {
		if (head->in[k]->kind == X_name)
			continue;
		if (call->in[k]->kind != X_name)
			fail(d->place, "%s: expected a name as operand %d", call->name, k);
		found.at[found.n++] =
		    (Substitution){call->in[k], substitute(arena, head->in[k], &given)};
	}
	Draft rest = substitute_draft(arena, d, &found),
	      result = {rest.place, rest.left, rest.right, {0}};
	for (int i = 0; i < form->ntest; i++)
		PUSH(arena, result.test, substitute(arena, form->test[i], &given));
	for (int i = 0; i < rest.test.count; i++)
		PUSH(arena, result.test, rest.test.at[i]);
	return result;
}

// ---- rules ----------------------------------------------------------------------------

// Names are numbered in place, so each rule needs its own copy.
static Expr *own_copy(Book *book, const Expr *e, Names *names, const char *place, bool add)
{
	Expr *own = substitute(book->arena, e, &(Substitutions){0});
	number_names(place, book->arena, own, names, add);
	return own;
}

static void add_rule(Book *book, const Draft *d)
{
	Names names = {0};
	Rule *r = NEW(book->arena, Rule);
	r->place = d->place;
	if (d->left->kind != X_call || d->left->op == OPS)
		fail(r->place, "expected a primitive on the left side of a rule");
	r->left = own_copy(book, d->left, &names, r->place, true);
	r->right = own_copy(book, d->right, &names, r->place, false);
	r->ntest = d->test.count;
	r->test = NEWS(book->arena, Expr *, r->ntest + 1);
	for (int i = 0; i < r->ntest; i++)
		r->test[i] = own_copy(book, d->test.at[i], &names, r->place, false);
	if (names.count > VARS)
		fail(r->place, "more than %d variables", VARS);
	mark_numbers(r->left);
	mark_numbers(r->right);
	r->names = names.at;
	r->nvar = names.count;
	r->rests = rests_in(r->right);
	Rule **end = &book->rules[r->left->op];
	while (*end)
		end = &(*end)->next;
	*end = r;
}

// Adds a rule for every combination of cases.
static void expand_forms(Book *book, const Draft *d)
{
	const Expr *call = find_form(book, d->left);
	if (!call)
		add_rule(book, d);
	const FormCase *form = call ? forms_named(book, call->name) : NULL;
	for (; form; form = form->next) {
		Draft result = apply_case(book->arena, d, call, form);
		expand_forms(book, &result);
	}
}

void rule_read(Book *book, Lexer *l)
{
	Draft d = {.place = lexer_place(l)};
	int ntest;
	d.left = read_side(book, l);
	lexer_expect(l, "=>");
	d.right = read_side(book, l);
	Expr **test = read_tests(book, l, &ntest);
	for (int i = 0; i < ntest; i++)
		PUSH(book->arena, d.test, test[i]);
	expand_forms(book, &d);
}

// ---- matching -------------------------------------------------------------------------

typedef struct Match {
	Scope scope;
	const Rule *rule;
	uint32_t bound; // bit i: variable i has a value
} Match;

typedef struct Goal { // this part of the left side must match that value
	const Expr *e;
	Ref ref;
	const struct Goal *next;
} Goal;

// A number with an exact f32 form must be equal. Others may differ by rounding, in the precision of
// the graph.
static bool is_near(const Graph *g, double expected, double found)
{
	double rounding = g->wide ? 0x1p-50 : 0x1p-21;
	return (double)(float)expected == expected || isnan(expected)
	           ? found == expected
	           : fabs(found - expected) <= rounding * fabs(expected);
}

static bool same_item(const Graph *g, const Item *expected, const Item *found)
{
	if (expected->kind != found->kind)
		return false;
	if (expected->kind == I_list)
		return same_list(expected, found);
	return expected->kind == I_ref ? expected->ref == found->ref
	                               : is_near(g, expected->x, found->x);
}

static bool bind(Match *m, const Expr *e, const Item *item)
{
	if (e->kind != X_name || e->var < 0) {
		Item expected = eval_item(&m->scope, e);
		return same_item(m->scope.g, &expected, item);
	}
	if (m->bound >> e->var & 1)
		return same_item(m->scope.g, &m->scope.var[e->var], item);
	m->scope.var[e->var] = *item;
	m->bound |= 1u << e->var;
	return true;
}

static bool is_number(const Graph *g, Ref r, Item *item)
{
	const Val *v = val(g, r);
	if (v->op != O_const || v->shape.rank > 0)
		return false;
	item->kind = I_num;
	item->x = const_at(v, 0);
	return true;
}

static bool tests_hold(Match *m)
{
	for (int i = 0; i < m->rule->ntest; i++)
		if (eval_item(&m->scope, m->rule->test[i]).x == 0)
			return false;
	return true;
}

static bool attrs_match(Match *m, const Expr *e, const Val *v)
{
	Item item[3];
	int n = attr_split(v->op, v->attr, item);
	for (int k = 0; k < n && k < e->nattr; k++)
		if (!bind(m, e->attr[k], &item[k]))
			return false;
	return n == e->nattr;
}

static bool solve(Match *m, const Goal *goal);

static bool solve_call(Match *m, const Expr *e, const Val *v, const Goal *next)
{
	Goal goal[5];
	if (e->op != v->op || e->nin != v->nin || e->nin > COUNT(goal) || !attrs_match(m, e, v))
		return false;
	bool both = v->nin == 2 && v->in[0] != v->in[1] && commutes(v->op);
	uint32_t bound = m->bound;
	for (int swap = 0; swap <= both; swap++) {
		for (int k = 0; k < v->nin; k++)
			goal[k] =
			    (Goal){e->in[k], v->in[k ^ swap], k + 1 < v->nin ? &goal[k + 1] : next};
		m->bound = bound;
		if (solve(m, v->nin ? goal : next))
			return true;
	}
	return false;
}

static bool solve(Match *m, const Goal *goal)
{
	Item item;
	if (!goal)
		return tests_hold(m);
	const Expr *e = goal->e;
	if (e->number)
		return is_number(m->scope.g, goal->ref, &item) && bind(m, e, &item) &&
		       solve(m, goal->next);
	if (e->kind == X_call)
		return solve_call(m, e, val(m->scope.g, goal->ref), goal->next);
	item.kind = I_ref;
	item.ref = goal->ref;
	return bind(m, e, &item) && solve(m, goal->next);
}

// Puts the right side, with the type and shape of the left side; 0 if they do not fit.
static Ref put_right(Match *m, const Val *v)
{
	Graph *g = m->scope.g;
	Elem type;
	Shape shape;
	type_of(g, v->op, v->nin, v->in, v->attr, &type, &shape);
	Item item = eval_item(&m->scope, m->rule->right);
	Ref r = item_ref(&m->scope, &item, type);
	const Val *right = val(g, r);
	if (right->type != type || right->shape.rank > shape.rank)
		return 0;
	return same_shape(&right->shape, &shape) ? r : put_broadcast(g, r, shape);
}

Ref book_rewrite(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	Item var[VARS];
	Val v = {.op = op, .nin = nin, .in = in, .attr = attr};
	for (const Rule *r = g->book->rules[op]; r; r = r->next) {
		Match m = {{.g = g, .book = g->book, .where = r->place, .var = var}, r, 0};
		if ((r->rests && g->plain >= r->rests) || !solve_call(&m, r->left, &v, NULL))
			continue;
		Ref right = put_right(&m, &v);
		if (right)
			return right;
	}
	return 0;
}
