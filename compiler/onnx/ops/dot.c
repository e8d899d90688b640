// dot.c: lowers Einsum, to products of two operands at a time.
#include "ops.h"
#include <string.h>

typedef struct Term { // an operand with a letter for each axis; upper and lower case differ
	Ref x;
	char label[RANK + 1];
} Term;

enum { ELLIPSIS = 1 }; // labels 1, 2, .. are the axes of an ellipsis, counted from the last

static void spell(Call *c, const char *from, const char *to, int rank, char *label)
{
	int n = 0, letters = 0, dots = 0;
	for (const char *p = from; p < to; p++) {
		letters += *p != '.' && *p != ' ';
		dots += *p == '.';
	}
	if (dots && dots != 3)
		invalid_node(c, "the equation has %d %s in an input; an ellipsis has 3", dots,
		             PLURAL(dots, "dot", "dots"));
	for (const char *p = from; p < to && n < RANK; p++) {
		if (*p == ' ')
			continue;
		if (*p != '.') {
			label[n++] = *p;
			continue;
		}
		for (int k = rank - letters; k > 0 && n < RANK; k--)
			label[n++] = (char)(ELLIPSIS + k - 1);
		while (p + 1 < to && p[1] == '.')
			p++;
	}
	label[n] = 0;
	if (n != rank)
		invalid_node(c, "the equation names %d %s of an input that has %d", n,
		             PLURAL(n, "axis", "axes"), rank);
}

// An index repeated within one operand is a diagonal: with its two axes last and taken as one,
// every (n + 1)th entry.
static void take_diagonals(Call *c, Term *t)
{
	Graph *g = c->g;
	for (int i = 0; t->label[i]; i++) {
		char *again = strchr(t->label + i + 1, t->label[i]);
		if (!again)
			continue;
		int last = val(g, t->x)->shape.rank - 1, j = (int)(again - t->label);
		Ref x = move_axis(g, move_axis(g, t->x, j, last), i, last - 1);
		int64_t n = val(g, x)->shape.dim[last], m = val(g, x)->shape.dim[last - 1];
		if (n != m)
			invalid_node(c, "a diagonal of %lld by %lld entries", (long long)m,
			             (long long)n);
		x = merge_axes(g, x, last - 1, last + 1);
		Shape s = val(g, x)->shape;
		int64_t start[RANK] = {0}, step[RANK];
		for (int a = 0; a < s.rank; a++)
			step[a] = a == last - 1 ? n + 1 : 1;
		s.dim[last - 1] = n;
		t->x = move_axis(g, put_slice(g, x, start, s.dim, step), last - 1, i);
		memmove(again, again + 1, strlen(again));
		i--;
	}
}

// Sums away the axes that appear in neither `a` nor `b`.
static void sum_unneeded(Graph *g, Term *t, const char *a, const char *b)
{
	int64_t axes[RANK];
	int n = 0, kept = 0;
	for (int i = 0; t->label[i]; i++)
		if (!strchr(a, t->label[i]) && !strchr(b, t->label[i]))
			axes[n++] = i;
	if (!n)
		return;
	t->x = drop_axes(g, put_reduce(g, O_sum, t->x, n, axes), n, axes);
	for (int i = 0; t->label[i]; i++)
		if (strchr(a, t->label[i]) || strchr(b, t->label[i]))
			t->label[kept++] = t->label[i];
	t->label[kept] = 0;
}

// Drops axes of size 1 that broadcast to the other term's.
static void drop_broadcast(Graph *g, Term *t, const Term *other)
{
	for (int64_t a = (int64_t)strlen(t->label) - 1; a >= 0; a--) {
		const char *at = strchr(other->label, t->label[a]);
		if (!at || val(g, t->x)->shape.dim[a] != 1 ||
		    val(g, other->x)->shape.dim[at - other->label] == 1)
			continue;
		t->x = drop_axes(g, t->x, 1, &a);
		memmove(t->label + a, t->label + a + 1, strlen(t->label + a));
	}
}

static Ref order_axes(Graph *g, const Term *t, const char *order)
{
	int64_t perm[RANK];
	for (int i = 0; order[i]; i++)
		perm[i] = strchr(t->label, order[i]) - t->label;
	return put_permute(g, t->x, perm);
}

// Returns x with the `rows` axes after the first `batch` as one, and those after them as one.
static Ref as_matrices(Graph *g, Ref x, int batch, int rows)
{
	Shape s = val(g, x)->shape, to = s;
	to.rank = batch + 2;
	to.dim[batch] = to.dim[batch + 1] = 1;
	for (int a = batch; a < s.rank; a++)
		to.dim[batch + (a >= batch + rows)] *= s.dim[a];
	return put_reshape(g, x, to);
}

// The labels of `of` that are (or are not) in `a` and in `b`.
static void choose(char *out, const char *of, const char *a, bool in_a, const char *b, bool in_b)
{
	for (; *of; of++)
		if (!strchr(a, *of) == !in_a && !strchr(b, *of) == !in_b)
			*out++ = *of;
	*out = 0;
}

// Multiplies two terms: shared labels are batch axes if a later term or the result has them, and
// are contracted if not.
static Term contract(Call *c, Term a, Term b, const char *wanted)
{
	Graph *g = c->g;
	char batch[RANK + 1], inner[RANK + 1], left[RANK + 1], right[RANK + 1];
	drop_broadcast(g, &a, &b);
	drop_broadcast(g, &b, &a);
	choose(batch, a.label, b.label, true, wanted, true);
	choose(inner, a.label, b.label, true, wanted, false);
	sum_unneeded(g, &a, wanted, b.label);
	sum_unneeded(g, &b, wanted, a.label);
	choose(left, a.label, b.label, false, wanted, true);
	choose(right, b.label, a.label, false, wanted, true);
	int nb = (int)strlen(batch), ni = (int)strlen(inner), nl = (int)strlen(left),
	    nr = (int)strlen(right);
	check_rank(c, nb + MAX(nl + nr, 2));
	Ref x = order_axes(g, &a, format(c->r->arena, "%s%s%s", batch, left, inner));
	Ref y = order_axes(g, &b, format(c->r->arena, "%s%s%s", batch, inner, right));
	Shape sx = val(g, x)->shape, sy = val(g, y)->shape, out = {.rank = nb + nl + nr};
	memcpy(out.dim, sx.dim, sizeof(int64_t) * (size_t)(nb + nl));
	memcpy(out.dim + nb + nl, sy.dim + nb + ni, sizeof(int64_t) * (size_t)nr);
	x = as_matrices(g, x, nb, nl);
	y = as_matrices(g, y, nb, ni);
	x = book_call1(g, "product", 2, (Ref[]){x, y}, 0, NULL);
	Term t = {.x = put_reshape(g, x, out)};
	strcpy(stpcpy(stpcpy(t.label, batch), left), right); // at most RANK letters, see above
	return t;
}

// The result of an equation without "->": the axes of the ellipsis, then the letters that appear
// once, in alphabetical order.
static void implicit_result(const char *terms, int ellipsis, char *out)
{
	int n = 0;
	for (int k = ellipsis; k > 0 && n < RANK; k--)
		out[n++] = (char)(ELLIPSIS + k - 1);
	for (int ch = 'A'; ch <= 'z'; ch++) {
		const char *first = strchr(terms, ch);
		if (first && !strchr(first + 1, ch) && n < RANK)
			out[n++] = (char)ch;
	}
	out[n] = 0;
}

void lower_einsum(Call *c)
{
	Graph *g = c->g;
	const char *equation = attr_string(c, "equation", ""), *arrow = strstr(equation, "->");
	const char *end = arrow ? arrow : equation + strlen(equation), *p = equation;
	Term *term = NEWS(c->r->arena, Term, c->nin);
	int widest = 0;
	Ref by_index[UINT8_MAX + 1] = {0};
	Lengths l = {0};
	Text rest = {.arena = c->r->arena};
	in_val(c, 0);
	for (int k = 0; k < c->nin; k++) {
		const char *stop = p;
		while (stop < end && *stop != ',')
			stop++;
		term[k].x = (in_val(c, k), c->in[k]);
		spell(c, p, stop, val(g, c->in[k])->shape.rank, term[k].label);
		for (const char *l = term[k].label; *l; l++)
			widest = MAX(widest, *l < 'A' ? *l : 0);
		say(&rest, "%s,", term[k].label);
		take_diagonals(c, &term[k]);
		p = stop + (stop < end);
	}
	char out[RANK + 1];
	int letters = 0;
	for (const char *q = arrow ? arrow + 2 : ""; *q; q++)
		letters += *q != '.' && *q != ' ';
	if (arrow)
		spell(c, arrow + 2, arrow + strlen(arrow),
		      letters + (strchr(arrow, '.') ? widest : 0), out);
	else
		implicit_result(rest.at, widest, out);
	for (int k = 0; k < c->nin; k++) {
		Term *t = &term[k];
		for (int a = 0; t->label[a]; a++) {
			Ref *length = &by_index[(uint8_t)t->label[a]];
			*length = *length ? *length : lengths_of(g, t->x)->of[a];
			if (!strchr(out, t->label[a])) // padding adds nothing to a sum
				t->x = put_filled(g, t->x, a, 0);
		}
		t->x = put_all_padded(g, t->x);
	}
	Term sum = term[0];
	const char *after = strchr(rest.at, ',') + 1;
	for (int k = 1; k < c->nin; k++) {
		after = strchr(after, ',') + 1;
		sum = contract(c, sum, term[k], format(c->r->arena, "%s%s", out, after));
	}
	sum_unneeded(g, &sum, out, out);
	for (int i = 0; out[i]; i++)
		if (!strchr(sum.label, out[i]))
			invalid_node(c, "the result has an index that no input has");
	for (int i = 0; out[i]; i++)
		l.of[i] = by_index[(uint8_t)out[i]];
	c->out[0] = put_lengths(g, order_axes(g, &sum, out), &l);
}
