// rule.c: reads and applies the rules of the book.
// A value that matches the left side of a rule is replaced by its right side. A rule is stored once
// per combination of its forms' cases, by the primitive of its left side.
#include "ir.h"
#include <math.h>
#include <string.h>

enum { VARS = 24 }; // most variables of a rule

// ---- substitution ---------------------------------------------------------------------

typedef struct Substitution { // of a name, or of this very expression
	const char *name;
	const Expr *expr;
	Expr *by;
} Substitution;
typedef VEC(Substitution) Substitutions;

static Expr *copy_node(Arena *arena, const Expr *e)
{
	Expr *copy = take_copy(arena, e, sizeof *e);
	if (e->nin)
		copy->in = take_copy(arena, e->in, sizeof *e->in * (size_t)e->nin);
	if (e->nattr)
		copy->attr = take_copy(arena, e->attr, sizeof *e->attr * (size_t)e->nattr);
	return copy;
}

// Returns `e` with all substitutions at once; of those of one name, the last holds. Parts in which
// nothing changes are shared with `e`.
static Expr *substitute(Arena *arena, Expr *e, const Substitutions *all)
{
	for (int i = all->count - 1; i >= 0; i--) {
		const Substitution *s = &all->at[i];
		if (e == s->expr || (s->name && e->kind == X_name && !strcmp(e->name, s->name)))
			return s->by;
	}
	Expr *copy = e;
	for (int k = 0; k < e->nin + e->nattr; k++) {
		bool attr = k >= e->nin;
		Expr *old = attr ? e->attr[k - e->nin] : e->in[k],
		     *now = substitute(arena, old, all);
		if (now == old)
			continue;
		if (copy == e)
			copy = copy_node(arena, e);
		*(attr ? &copy->attr[k - e->nin] : &copy->in[k]) = now;
	}
	return copy;
}

static Expr *copy_expr(Arena *arena, const Expr *e)
{
	Expr *copy = copy_node(arena, e);
	for (int k = 0; k < e->nin; k++)
		copy->in[k] = copy_expr(arena, e->in[k]);
	for (int k = 0; k < e->nattr; k++)
		copy->attr[k] = copy_expr(arena, e->attr[k]);
	return copy;
}

// ---- reading --------------------------------------------------------------------------

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
	Arena *arena = book->arena;
	Substitutions s = {0};
	for (int k = 0; k < d->nvar; k++) {
		int attr = k - d->nin, local = attr - d->nattr;
		Expr *by =
		    attr < 0 ? e->in[k]
		    : local < 0
		        ? e->attr[attr]
		        : inline_defs(book,
		                      substitute(arena, copy_expr(arena, d->local[local]), &s));
		PUSH(arena, s, ((Substitution){.name = d->names[k], .by = by}));
	}
	return inline_defs(book, substitute(arena, copy_expr(arena, d->result[0]), &s));
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

// Reads "left SIGN right [if test, ..]", each up to the end of its lines.
static Rule *read_rule(Book *book, Lexer *l, const char *sign)
{
	Rule *r = NEW(book->arena, Rule);
	VEC(Expr *) test = {0};
	r->place = lexer_place(l);
	r->left = inline_defs(book, parse_expr(l));
	while (l->kind == T_indent)
		lexer_next(l);
	lexer_expect(l, sign);
	r->right = inline_defs(book, parse_expr(l));
	while (l->kind == T_indent)
		lexer_next(l);
	if (lexer_take(l, "if"))
		do
			PUSH(book->arena, test, parse_expr(l));
		while (lexer_take(l, ","));
	if (l->kind != T_line && l->kind != T_end)
		fail(lexer_place(l), "found '%s' after a rule", l->word);
	r->ntest = test.count;
	r->test = test.at;
	return r;
}

static Rule *append_rule(Rule *list, Rule *r)
{
	Rule **end = &list;
	while (*end)
		end = &(*end)->next;
	*end = r;
	return list;
}

static void read_form(Book *book, Lexer *l)
{
	Rule *form = read_rule(book, l, "=");
	if (form->left->kind != X_call || form->left->op < OPS)
		fail(form->place, "expected a form and its operands");
	uint64_t *cell = table_cell_s(book->forms, form->left->name);
	*cell = (uint64_t)(uintptr_t)append_rule((Rule *)(uintptr_t)*cell, form);
}

// ---- forms ----------------------------------------------------------------------------

// Returns an innermost call of a form; NULL if there is none.
static const Expr *find_form(const Book *book, const Expr *e)
{
	for (int k = 0; k < e->nin; k++) {
		const Expr *inner = find_form(book, e->in[k]);
		if (inner)
			return inner;
	}
	bool form = e->kind == X_call && e->op == OPS && table_find_s(book->forms, e->name);
	return form ? e : NULL;
}

// Replaces `call` by one case of its form. A name in the case's left side becomes the call's
// argument; else the argument, a name of the rule, becomes the expression there. The case's tests
// come first, because the rule's tests may depend on them.
static Rule apply_case(Arena *arena, const Rule *r, const Expr *call, const Rule *form)
{
	Substitutions given = {0}, found = {0};
	const Expr *head = form->left;
	if (call->nin != head->nin)
		fail(r->place, "%s: found %d %s, expected %d", call->name, call->nin,
		     PLURAL(call->nin, "operand", "operands"), head->nin);
	for (int k = 0; k < head->nin; k++)
		if (head->in[k]->kind == X_name)
			PUSH(arena, given,
			     ((Substitution){.name = head->in[k]->name, .by = call->in[k]}));
	Expr *body = substitute(arena, form->right, &given);
	PUSH(arena, found, ((Substitution){.expr = call, .by = body}));
	for (int k = 0; k < head->nin; k++) {
		if (head->in[k]->kind == X_name)
			continue;
		if (call->in[k]->kind != X_name)
			fail(r->place, "%s: expected a name as operand %d", call->name, k);
		Expr *by = substitute(arena, head->in[k], &given);
		PUSH(arena, found, ((Substitution){.name = call->in[k]->name, .by = by}));
	}
	Rule result = {.place = r->place,
	               .left = substitute(arena, r->left, &found),
	               .right = substitute(arena, r->right, &found),
	               .test = NEWS(arena, Expr *, form->ntest + r->ntest)};
	for (int i = 0; i < form->ntest; i++)
		result.test[result.ntest++] = substitute(arena, form->test[i], &given);
	for (int i = 0; i < r->ntest; i++)
		result.test[result.ntest++] = substitute(arena, r->test[i], &found);
	return result;
}

// ---- rules ----------------------------------------------------------------------------

// Names are numbered in place, so each rule needs its own copy.
static Expr *own_copy(Book *book, const Expr *e, Names *names, const char *place, bool add)
{
	Expr *own = copy_expr(book->arena, e);
	number_names(place, book->arena, own, names, add);
	return own;
}

// Adds a rule for every combination of cases; arena: for rules with forms left.
static void expand_forms(Book *book, Arena *arena, const Rule *r)
{
	const Expr *call = find_form(book, r->left);
	if (!call) {
		Names names = {0};
		Rule *own = take_copy(book->arena, r, sizeof *r);
		if (r->left->kind != X_call || r->left->op == OPS)
			fail(r->place, "expected a primitive on the left side of a rule");
		own->left = own_copy(book, r->left, &names, r->place, true);
		own->right = own_copy(book, r->right, &names, r->place, false);
		own->test = NEWS(book->arena, Expr *, r->ntest + 1);
		for (int i = 0; i < r->ntest; i++)
			own->test[i] = own_copy(book, r->test[i], &names, r->place, false);
		if (names.count > VARS)
			fail(r->place, "more than %d variables", VARS);
		mark_numbers(own->left);
		mark_numbers(own->right);
		own->names = names.at;
		own->nvar = names.count;
		own->rests = rests_in(own->right);
		Rule **list = &book->rules[own->left->op];
		*list = append_rule(*list, own);
		return;
	}
	const Rule *form = table_pointer_s(book->forms, call->name);
	for (; form; form = form->next) {
		Rule result = apply_case(arena, r, call, form);
		expand_forms(book, arena, &result);
	}
}

void rule_read(Book *book, Arena *arena, Lexer *l)
{
	if (lexer_take(l, "form"))
		read_form(book, l);
	else
		expand_forms(book, arena, read_rule(book, l, "=>"));
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
	bool reciprocal; // its reciprocal must
} Goal;

// How far a number may be from another, relative to it, because both were rounded in the precision
// of the graph.
static double rounding_of(const Graph *g)
{
	return g->wide ? 0x1p-50 : 0x1p-21;
}

static bool same_item(const Graph *g, const Item *expected, const Item *found)
{
	if (expected->kind != found->kind)
		return false;
	if (expected->kind == I_list)
		return same_list(expected, found);
	if (expected->kind == I_ref)
		return expected->ref == found->ref;
	// A number with an exact f32 form must be equal. Others may differ by rounding.
	double x = expected->x;
	return (double)(float)x == x || isnan(x) ? found->x == x
	                                         : fabs(found->x - x) <= rounding_of(g) * fabs(x);
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

static bool attrs_match(Match *m, const Expr *e, const Val *v)
{
	Item item[ATTRIBUTES];
	int n = attr_split(v->op, v->attr, item);
	for (int k = 0; k < n && k < e->nattr; k++)
		if (!bind(m, e->attr[k], &item[k]))
			return false;
	return n == e->nattr;
}

static bool solve(Match *m, const Goal *goal);

static bool is_product(Op op)
{
	return op == O_mul || op == O_div;
}

// True for x * n and a value x / c, and for x / n and x * c. They round differently, but so does
// the composite that the rule makes.
static bool is_reciprocal(const Match *m, const Expr *e, const Val *v)
{
	return is_product(e->op) && is_product(v->op) && e->op != v->op && m->rule->rests &&
	       e->in[1]->number && val(m->scope.g, v->in[1])->op == O_const;
}

// True unless the primitives of operands, swapped or not, show that they cannot match: most rules
// are ruled out by them.
static bool heads_fit(const Graph *g, const Expr *e, const Val *v, int swap)
{
	for (int k = 0; k < v->nin; k++) {
		const Expr *expected = e->in[k];
		const Val *found = val(g, v->in[k ^ swap]);
		if (expected->number ? found->op != O_const || found->shape.rank > 0
		                     : expected->kind == X_call && expected->op != found->op &&
		                           !(is_product(found->op) && is_product(expected->op)))
			return false;
	}
	return true;
}

static bool solve_call(Match *m, const Expr *e, const Val *v, const Goal *next)
{
	Goal goal[5];
	if (is_reciprocal(m, e, v)) {
		goal[1] = (Goal){e->in[1], v->in[1], next, true};
		return solve(m, &(Goal){.e = e->in[0], .ref = v->in[0], .next = &goal[1]});
	}
	if (e->op != v->op || e->nin != v->nin || e->nin > COUNT(goal))
		return false;
	bool both = v->nin == 2 && v->in[0] != v->in[1] && commutes(v->op);
	bool fit[2] = {heads_fit(m->scope.g, e, v, 0), both && heads_fit(m->scope.g, e, v, 1)};
	if ((!fit[0] && !fit[1]) || !attrs_match(m, e, v))
		return false;
	uint32_t bound = m->bound;
	for (int swap = 0; swap <= both; swap++) {
		if (!fit[swap])
			continue;
		for (int k = 0; k < v->nin; k++)
			goal[k] = (Goal){.e = e->in[k],
			                 .ref = v->in[k ^ swap],
			                 .next = k + 1 < v->nin ? &goal[k + 1] : next};
		m->bound = bound;
		if (solve(m, v->nin ? goal : next))
			return true;
	}
	return false;
}

static bool solve(Match *m, const Goal *goal)
{
	for (int i = 0; !goal && i < m->rule->ntest; i++)
		if (eval_item(&m->scope, m->rule->test[i]).x == 0)
			return false;
	if (!goal)
		return true;
	const Expr *e = goal->e;
	const Val *v = val(m->scope.g, goal->ref);
	if (e->kind == X_call && !e->number)
		return solve_call(m, e, v, goal->next);
	if (e->number && (v->op != O_const || v->shape.rank > 0))
		return false;
	Item item;
	item.kind = e->number ? I_num : I_ref;
	item.ref = goal->ref;
	item.x = e->number ? const_at(v, 0) : 0;
	if (goal->reciprocal) { // of a rounded number: 100, not 1 / 0.01f
		item.x = 1 / item.x;
		double near = (double)(float)item.x;
		if (fabs(item.x - near) <= rounding_of(m->scope.g) * fabs(near))
			item.x = near;
	}
	return bind(m, e, &item) && solve(m, goal->next);
}

Ref book_rewrite(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	Item var[VARS];
	Val v = {.op = op, .nin = nin, .in = in, .attr = attr};
	for (const Rule *r = g->book->rules[op]; r; r = r->next) {
		Match m = {{.g = g, .book = g->book, .where = r->place, .var = var}, r, 0};
		if ((r->rests && g->plain >= r->rests) || !solve_call(&m, r->left, &v, NULL))
			continue;
		// The right side gets the type and shape of the left side, if they fit.
		Elem type;
		Shape shape;
		type_of(g, op, nin, in, attr, &type, &shape);
		Item item = eval_item(&m.scope, r->right);
		Ref put = item_ref(&m.scope, &item, type);
		const Val *right = val(g, put);
		if (right->type == type && right->shape.rank <= shape.rank)
			return same_shape(&right->shape, &shape) ? put
			                                         : put_broadcast(g, put, shape);
	}
	return 0;
}
