// notation.c: reads tokens and expressions, for the book, graphs as text and --loss.
// Output: tokens, Expr trees, and attributes.
#include "ir.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- tokens ---------------------------------------------------------------------------

Lexer *lexer_open(Arena *arena, const char *where, const char *text)
{
	Lexer *l = NEW(arena, Lexer);
	l->arena = arena;
	l->where = where;
	l->at = text;
	l->line = 1;
	lexer_next(l);
	while (l->kind == T_line || l->kind == T_indent)
		lexer_next(l);
	return l;
}

char *lexer_place(const Lexer *l)
{
	bool only = l->line == 1 && !strchr(l->at, '\n');
	return only ? format(l->arena, "%s", l->where)
	            : format(l->arena, "%s:%d", l->where, l->line);
}

static _Noreturn void unexpected(const Lexer *l, const char *expected)
{
	bool line = l->kind == T_line || l->kind == T_indent;
	fail(lexer_place(l), "expected %s, found %s", expected,
	     l->kind == T_end ? "end of input"
	     : line           ? "end of line"
	                      : format(l->arena, "'%s'", l->word));
}

static char *cut(Lexer *l, const char *from, size_t count)
{
	char *word = take(l->arena, count + 1);
	memcpy(word, from, count);
	return word;
}

// Skips spaces, comments and blank lines. Returns T_line or T_indent if a line ended, by how the
// next one begins, T_end at the end of the text, else T_sign.
static TokenKind skip_space(Lexer *l)
{
	bool ended = false;
	const char *begin = l->at;
	l->comment = "";
	for (;; l->at++) {
		if (*l->at == '#') {
			const char *text = l->at + 1;
			text += strspn(text, " ");
			l->at += strcspn(l->at, "\n");
			if (!ended)
				l->comment = cut(l, text, (size_t)(l->at - text));
		}
		if (*l->at == '\n') {
			ended = true;
			l->line++;
			begin = l->at + 1;
		} else if (*l->at == '\0' || !isspace((unsigned char)*l->at)) {
			break;
		}
	}
	if (ended && l->depth == 0)
		return l->at > begin && *l->at ? T_indent : T_line;
	return *l->at ? T_sign : T_end;
}

static void lex_quoted(Lexer *l)
{
	Text text = {.arena = l->arena};
	const char *s = l->at + 1;
	say(&text, "%s", "");
	for (; *s && *s != '"' && *s != '\n'; s++) {
		if (*s == '\\' && s[1] == 'n')
			say(&text, "\n"), s++;
		else if (*s == '\\' && s[1])
			say(&text, "%c", *++s);
		else
			say(&text, "%c", *s);
	}
	if (*s != '"')
		fail(lexer_place(l), "a quoted name does not end on its line");
	l->kind = T_name;
	l->quoted = true;
	l->word = text.at;
	l->at = s + 1;
}

static void lex_number(Lexer *l)
{
	char *end;
	l->kind = T_num;
	l->x = strtod(l->at, &end);
	l->word = cut(l, l->at, (size_t)(end - l->at));
	l->at = end;
}

static void lex_name(Lexer *l)
{
	const char *s = l->at;
	size_t n = 1;
	while (isalnum((unsigned char)s[n]) || s[n] == '_' ||
	       (s[n] == '.' && (isalnum((unsigned char)s[n + 1]) || s[n + 1] == '_')))
		n++;
	l->word = cut(l, l->at, n);
	if (!strcmp(l->word, "inf") || !strcmp(l->word, "nan")) {
		lex_number(l);
		return;
	}
	l->kind = T_name;
	l->at += n;
}

void lexer_next(Lexer *l)
{
	l->quoted = false;
	l->word = "";
	l->kind = skip_space(l);
	if (l->kind != T_sign)
		return;
	unsigned char c = (unsigned char)*l->at;
	static const char *const pairs[] = {"=>", "==", "!=", "<=", ">="};
	size_t n = 1;
	if (c == '"')
		lex_quoted(l);
	else if (isdigit(c) || (c == '.' && isdigit((unsigned char)l->at[1])))
		lex_number(l);
	else if (isalpha(c) || c == '_' || (c == '%' && isdigit((unsigned char)l->at[1])))
		lex_name(l);
	if (l->kind != T_sign)
		return;
	for (int i = 0; i < COUNT(pairs); i++)
		if (starts_with(l->at, pairs[i]))
			n = 2;
	l->word = cut(l, l->at, n);
	l->at += n;
	if (strchr("([{", *l->word))
		l->depth++;
	else if (strchr(")]}", *l->word) && l->depth > 0)
		l->depth--;
}

bool lexer_is(const Lexer *l, const char *word)
{
	bool bare = l->kind == T_sign || (l->kind == T_name && !l->quoted);
	return bare && *l->word == *word && !strcmp(l->word, word);
}

bool lexer_take(Lexer *l, const char *word)
{
	bool found = lexer_is(l, word);
	if (found)
		lexer_next(l);
	return found;
}

void lexer_expect(Lexer *l, const char *word)
{
	if (!lexer_take(l, word))
		unexpected(l, format(l->arena, "'%s'", word));
}

const char *lexer_name(Lexer *l)
{
	if (l->kind != T_name)
		unexpected(l, "a name");
	const char *name = l->word;
	lexer_next(l);
	return name;
}

static const char *digits(Lexer *l, const char *expected)
{
	if (l->kind != T_num)
		unexpected(l, expected);
	const char *word = l->word;
	lexer_next(l);
	return word;
}

int64_t lexer_integer(Lexer *l)
{
	int64_t sign = lexer_take(l, "-") ? -1 : 1;
	return sign * (int64_t)strtoull(digits(l, "an integer"), NULL, 10);
}

int64_t lexer_count(Lexer *l)
{
	return strtoll(digits(l, "a number"), NULL, 10);
}

double lexer_number(Lexer *l)
{
	double sign = lexer_take(l, "-") ? -1 : 1, x = l->x;
	digits(l, "a number");
	return sign * x;
}

int lexer_choice(Lexer *l, int n, const char *const *words)
{
	Text all = {.arena = l->arena};
	for (int i = 0; i < n; i++) {
		if (lexer_take(l, words[i]))
			return i;
		say(&all, "%s%s", i ? ", " : "", words[i]);
	}
	unexpected(l, format(l->arena, "one of %s", all.at));
}

uint32_t lexer_dims(Lexer *l, Shape *shape)
{
	uint32_t marked = 0;
	shape->rank = 0;
	lexer_expect(l, "[");
	while (!lexer_take(l, "]")) {
		if (shape->rank)
			lexer_expect(l, ",");
		if (shape->rank == RANK)
			fail(lexer_place(l), "more than %d axes", RANK);
		if (lexer_take(l, "/"))
			marked |= 1u << shape->rank;
		shape->dim[shape->rank++] = lexer_count(l);
	}
	return marked;
}

void lexer_end_line(Lexer *l)
{
	if (l->kind != T_line && l->kind != T_indent && l->kind != T_end)
		unexpected(l, "the end of the line");
	if (l->kind != T_end)
		lexer_next(l);
}

// ---- expressions ----------------------------------------------------------------------

// Grammar:
//   comparison: sum [(== != < <= > >=) sum]
//   sum: product {(+ -) product}
//   product: unary {(* /) unary}
//   unary: [-] indexed
//   indexed: primary {[comparison] | [[comparison]:[comparison]]}
//   primary: number | name | name(operands; attributes) | [list] | (comparison)

enum { NESTING = 200, DEPTH = 1000 }; // deepest brackets, deepest calls

static void add_depth(Lexer *l, Expr *e)
{
	for (int k = 0; k < e->nin; k++)
		e->depth = MAX(e->depth, e->in[k]->depth + 1);
	for (int k = 0; k < e->nattr; k++)
		e->depth = MAX(e->depth, e->attr[k]->depth + 1);
	if (e->depth > DEPTH)
		fail(lexer_place(l), "more than %d operations inside one another", DEPTH);
}

static Expr *new_expr(Lexer *l, ExprKind kind)
{
	Expr *e = NEW(l->arena, Expr);
	e->kind = kind;
	e->op = OPS;
	e->function = e->var = -1;
	return e;
}

// Returns the call of a primitive, or with OPS of the function `name`.
static Expr *new_call(Lexer *l, Op op, const char *name, int nin, Expr *const *in)
{
	Expr *e = new_expr(l, X_call);
	e->op = op;
	e->name = name;
	e->function = op == OPS ? function_index(name) : -1;
	e->nin = nin;
	e->in = take_copy(l->arena, in, sizeof *in * (size_t)nin);
	add_depth(l, e);
	return e;
}

static Expr *call(Lexer *l, Op op, Expr *x, Expr *y)
{
	return new_call(l, op, prims[op].name, prims[op].arity, (Expr *[]){x, y});
}

static Expr *number(Lexer *l, double x)
{
	Expr *e = new_expr(l, X_num);
	e->x = x;
	return e;
}

static Expr **parse_list(Lexer *l, int *count)
{
	VEC(Expr *) list = {0};
	while (!lexer_is(l, ")") && !lexer_is(l, "]") && !lexer_is(l, ";")) {
		if (list.count > 0)
			lexer_expect(l, ",");
		PUSH(l->arena, list, parse_expr(l));
	}
	*count = list.count;
	return list.at;
}

static Expr *parse_primary(Lexer *l)
{
	while (l->kind == T_indent)
		lexer_next(l);
	if (l->depth > NESTING)
		fail(lexer_place(l), "more than %d brackets inside one another", NESTING);
	if (lexer_take(l, "(")) {
		Expr *inner = parse_expr(l);
		lexer_expect(l, ")");
		return inner;
	}
	if (l->kind == T_num) {
		double x = l->x;
		lexer_next(l);
		return number(l, x);
	}
	Expr *e = new_expr(l, X_name);
	if (lexer_take(l, "[")) {
		e->kind = X_list;
		e->in = parse_list(l, &e->nin);
		lexer_expect(l, "]");
		add_depth(l, e);
		return e;
	}
	if (l->kind != T_name)
		unexpected(l, "an expression");
	e->quoted = l->quoted;
	e->name = lexer_name(l);
	if (e->quoted || !lexer_take(l, "("))
		return e;
	int op = FIND(e->name, prims);
	e->kind = X_call;
	e->op = op < 0 ? OPS : (Op)op;
	e->function = op < 0 ? function_index(e->name) : -1;
	e->in = parse_list(l, &e->nin);
	if (lexer_take(l, ";"))
		e->attr = parse_list(l, &e->nattr);
	lexer_expect(l, ")");
	add_depth(l, e);
	return e;
}

static Expr *parse_unary(Lexer *l)
{
	int minus = 0;
	while (lexer_take(l, "-"))
		minus ^= 1;
	Expr *e = parse_primary(l);
	while (lexer_take(l, "[")) { // an index, or from:to, either of which may be left out
		Expr *in[3] = {e};
		in[1] = lexer_is(l, ":") ? number(l, 0) : parse_expr(l);
		bool range = lexer_take(l, ":");
		if (range)
			in[2] = lexer_is(l, "]") ? number(l, INFINITY) : parse_expr(l);
		e = new_call(l, OPS, range ? "cut" : "at", range ? 3 : 2, in);
		lexer_expect(l, "]");
	}
	if (!minus)
		return e;
	if (e->kind == X_num) {
		e->x = -e->x;
		return e;
	}
	return call(l, O_neg, e, NULL);
}

// Operators of equal rank: * and /, or + and - between products.
static Expr *parse_sum(Lexer *l, bool product)
{
	static const Op ops[] = {O_add, O_sub, O_mul, O_div};
	Expr *e = product ? parse_unary(l) : parse_sum(l, true);
	for (;;) {
		int k = 0;
		if (lexer_take(l, product ? "/" : "-"))
			k = 1;
		else if (!lexer_take(l, product ? "*" : "+"))
			return e;
		e = call(l, ops[2 * product + k], e, product ? parse_unary(l) : parse_sum(l, true));
	}
}

Expr *parse_expr(Lexer *l)
{
	static const struct {
		const char *sign;
		Op op;
		bool swap, not ;
	} signs[] = {{"==", O_eq, false, false}, {"!=", O_eq, false, true},
	             {"<", O_lt, false, false},  {"<=", O_le, false, false},
	             {">", O_lt, true, false},   {">=", O_le, true, false}};
	Expr *x = parse_sum(l, false);
	for (int i = 0; i < COUNT(signs); i++) {
		if (!lexer_take(l, signs[i].sign))
			continue;
		Expr *y = parse_sum(l, false);
		Expr *e = call(l, signs[i].op, signs[i].swap ? y : x, signs[i].swap ? x : y);
		return signs[i].not ? call(l, O_not, e, NULL) : e;
	}
	return x;
}

Expr *parse_text(Arena *arena, const char *where, const char *text)
{
	Lexer *l = lexer_open(arena, where, text);
	Expr *e = parse_expr(l);
	while (l->kind == T_line)
		lexer_next(l);
	if (l->kind != T_end)
		fail(lexer_place(l), "'%s': unexpected '%s' after the expression", text, l->word);
	return e;
}

// ---- attributes -----------------------------------------------------------------------

static int64_t integer_of(const Scope *s, Op op, const Item *item)
{
	double x = item_number(s, prims[op].name, item);
	if (x != floor(x) || fabs(x) > 9e15)
		fail(scope_where(s), "%s: expected an integer as attribute, found %g",
		     prims[op].name, x);
	return (int64_t)x;
}

int64_t wrap_axis(const Scope *s, int64_t axis, int rank)
{
	if (axis < -rank || axis >= MAX(rank, 1))
		fail(scope_where(s), "axis %lld, but the operand has rank %d", (long long)axis,
		     rank);
	return axis < 0 ? axis + rank : axis;
}

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

Attr attr_join(const Scope *s, Op op, int rank, int nitem, const Item *item)
{
	const char *layout = prims[op].attr;
	Item lists[3];
	int nlist = 0;
	Attr attr = {0};
	if (nitem != (int)strlen(layout))
		fail(scope_where(s), "%s: expected %zu %s, found %d", prims[op].name,
		     strlen(layout), PLURAL(strlen(layout), "attribute", "attributes"), nitem);
	for (int k = 0; k < nitem; k++) {
		if (layout[k] == 'x') {
			attr.x = item_number(s, prims[op].name, &item[k]);
		} else if (layout[k] == 'i' || layout[k] == 'a') {
			int64_t i = integer_of(s, op, &item[k]);
			attr.i[attr.n++] = layout[k] == 'a' ? wrap_axis(s, i, rank) : i;
		} else if (item[k].kind == I_list) {
			lists[nlist++] = item[k];
		} else { // a number is a list of one
			lists[nlist].n = 1;
			lists[nlist++].i[0] = integer_of(s, op, &item[k]);
		}
	}
	// The lists, one for each L or A of the layout, are interleaved after the integers.
	int n = nlist ? lists[0].n : 0;
	int64_t *to = attr.i + attr.n;
	if (attr.n + nlist * n > NUMS)
		fail(scope_where(s), "%s: more than %d numbers as attributes", prims[op].name,
		     NUMS);
	for (int k = 0; k < nlist; k++) {
		if (lists[k].n != n)
			fail(scope_where(s), "%s: lists of %d and %d entries", prims[op].name, n,
			     lists[k].n);
		for (int i = 0; i < n; i++)
			to[i * nlist + k] = lists[k].i[i];
		attr.n += n;
	}
	if (strchr(layout, 'A')) {
		for (int i = 0; i < n; i++)
			to[i] = wrap_axis(s, to[i], rank);
		qsort(to, (size_t)n, sizeof *to, ascending);
	}
	return attr;
}

int attr_split(Op op, const Attr *attr, Item *item)
{
	const char *layout = prims[op].attr;
	int nitem = (int)strlen(layout), nint = 0, nlist = 0;
	for (int k = 0; k < nitem; k++) {
		nint += layout[k] == 'i' || layout[k] == 'a';
		nlist += layout[k] == 'L' || layout[k] == 'A';
	}
	const int64_t *ints = attr->i, *lists = attr->i + nint;
	for (int k = 0, list = 0; k < nitem; k++) {
		item[k].kind = I_num;
		item[k].n = 0;
		if (layout[k] == 'x') {
			item[k].x = attr->x;
		} else if (layout[k] == 'i' || layout[k] == 'a') {
			item[k].x = (double)*ints++;
		} else {
			item[k].kind = I_list;
			item[k].n = (attr->n - nint) / nlist;
			for (int i = 0; i < item[k].n; i++)
				item[k].i[i] = lists[i * nlist + list];
			list++;
		}
	}
	return nitem;
}
