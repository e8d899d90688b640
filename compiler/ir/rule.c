// rule.c: rules of the book. A value that equals the left side of a rule is put as its right side.
// Takes the book's rules, by the primitive of their left side. Gives the door a lighter value, or
// 0.
#include "ir.h"
#include <math.h>
#include <string.h>

enum { VARS = 24 }; // most variables of a rule

// ---- reading --------------------------------------------------------------------------

static Expr *copy_with(Arena *arena, const Expr *e, Expr *const *var)
{
	if (e->kind == X_name && e->var >= 0)
		return var[e->var];
	Expr *copy = take_copy(arena, e, sizeof *e);
	copy->in = NEWS(arena, Expr *, e->nin + 1);
	copy->attr = NEWS(arena, Expr *, e->nattr + 1);
	for (int k = 0; k < e->nin; k++)
		copy->in[k] = copy_with(arena, e->in[k], var);
	for (int k = 0; k < e->nattr; k++)
		copy->attr[k] = copy_with(arena, e->attr[k], var);
	return copy;
}

// `e` with every call of a definition replaced by its body: matching sees primitives only.
static Expr *open_defs(const Book *book, Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		e->in[k] = open_defs(book, e->in[k]);
	for (int k = 0; k < e->nattr; k++)
		e->attr[k] = open_defs(book, e->attr[k]);
	const Def *d = e->kind == X_call && e->op == OPS ? find_def(book, e->name, e->nin) : NULL;
	if (!d || d->nattr != e->nattr)
		return e;
	Expr **var = NEWS(book->arena, Expr *, d->nvar);
	int n = 0;
	for (int k = 0; k < e->nin; k++)
		var[n++] = e->in[k];
	for (int k = 0; k < e->nattr; k++)
		var[n++] = e->attr[k];
	for (int k = 0; k < d->nlocal; k++)
		var[n++] = open_defs(book, copy_with(book->arena, d->local[k], var));
	return open_defs(book, copy_with(book->arena, d->result[0], var));
}

// Marks what is a number: literals, the names a b c d e n, functions, and arithmetic on these.
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

static bool makes_whole(const Expr *e)
{
	bool found = e->kind == X_call && e->op < OPS && prims[e->op].cls == C_whole;
	for (int k = 0; k < e->nin; k++)
		found |= makes_whole(e->in[k]);
	return found;
}

void rule_read(Book *book, Lexer *l)
{
	Names names = {0};
	VEC(Expr *) test = {0};
	Rule *r = NEW(book->arena, Rule);
	r->place = lexer_place(l);
	r->left = open_defs(book, parse_expr(l));
	while (l->kind == T_indent)
		lexer_next(l);
	lexer_want(l, "=>");
	r->right = open_defs(book, parse_expr(l));
	while (l->kind == T_indent)
		lexer_next(l);
	if (lexer_take(l, "if"))
		do
			PUSH(book->arena, test, open_defs(book, parse_expr(l)));
		while (lexer_take(l, ","));
	if (l->kind != T_line && l->kind != T_end)
		fail(lexer_place(l), "found '%s' after a rule", l->word);
	if (r->left->kind != X_call || r->left->op == OPS)
		fail(r->place, "the left side of a rule is a primitive");
	number_names(r->place, book->arena, r->left, &names, true);
	number_names(r->place, book->arena, r->right, &names, false);
	for (int i = 0; i < test.count; i++)
		number_names(r->place, book->arena, test.at[i], &names, false);
	if (names.count > VARS)
		fail(r->place, "more than %d variables", VARS);
	mark_numbers(r->left);
	mark_numbers(r->right);
	r->test = test.at;
	r->ntest = test.count;
	r->names = names.at;
	r->nvar = names.count;
	r->whole = makes_whole(r->right);
	Rule **end = &book->rules[r->left->op];
	while (*end)
		end = &(*end)->next;
	*end = r;
}

// ---- matching -------------------------------------------------------------------------

typedef struct Match {
	Scope scope;
	const Rule *rule;
	uint32_t bound; // bit i: variable i has its value
} Match;

typedef struct Goal { // this part of the left side must equal that value
	const Expr *e;
	Ref ref;
	const struct Goal *next;
} Goal;

// A number with an exact f32 form is meant exactly; others stand rounded in files.
static bool near(double wanted, double found)
{
	return (double)(float)wanted == wanted || isnan(wanted)
	           ? found == wanted
	           : fabs(found - wanted) <= 1e-5 * fabs(wanted);
}

static bool same_item(const Item *wanted, const Item *found)
{
	if (wanted->kind != found->kind)
		return false;
	if (wanted->kind == I_list)
		return wanted->n == found->n &&
		       !memcmp(wanted->i, found->i, (size_t)wanted->n * sizeof *wanted->i);
	return wanted->kind == I_ref ? wanted->ref == found->ref : near(wanted->x, found->x);
}

static bool bind(Match *m, const Expr *e, const Item *item)
{
	if (e->kind != X_name || e->var < 0) {
		Item wanted = eval_item(&m->scope, e);
		return same_item(&wanted, item);
	}
	if (m->bound >> e->var & 1)
		return same_item(&m->scope.var[e->var], item);
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
	Goal goal[3];
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

// The right side, with the type and shape that the left side has; 0 when it cannot have them.
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
	return same_shape(&right->shape, &shape) ? r
	                                         : put_expand(g, put_rank(g, r, shape.rank), shape);
}

Ref book_rewrite(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	Item var[VARS];
	Val v = {.op = op, .nin = nin, .in = in, .attr = attr};
	for (const Rule *r = g->book->rules[op]; r; r = r->next) {
		Match m = {{.g = g, .book = g->book, .where = r->place, .var = var}, r, 0};
		if ((r->whole && g->plain) || !solve_call(&m, r->left, &v, NULL))
			continue;
		Ref right = put_right(&m, &v);
		if (right)
			return right;
	}
	return 0;
}
