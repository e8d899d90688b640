// dropout.c: finds dropout in any form; samples it in training, else removes it, and can insert it.
// In training, every dropout becomes the book's Dropout, with a random site of its own. Insertion
// restores dropout that an exporter removed. Random numbers used for anything else are unchanged.
// Before differentiation, dropout of attention weights becomes a factor inside attention's kernels.
#include "passes.h"
#include <math.h>
#include <string.h>

// ---- finding dropout -------------------------------------------------------------------

// A value that is base * factor where `gate` (Booleans, true with probability `chance`) is true,
// and 0 elsewhere. Base 0: the factor where the gate is true.
typedef struct Product {
	Ref base;
	double factor;
	Ref gate;
	double chance; // 0: no gate
} Product;

typedef struct Draws {
	const Graph *from;
	Ref *now;
	Product *product;
	bool draw; // false: remove dropout
} Draws;

static bool is_draw(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	return v->op == O_rand || (v->op == O_cast && val(g, v->in[0])->op == O_rand);
}

typedef struct Threshold { // a uniform random number compared with a constant
	Ref draw;          // 0: no such comparison
	double level;      // in (0, 1)
	bool below;        // true if the random number is below the level; else if it is not
} Threshold;

// Matches scale * draw + shift, the draw uniform in [0, 1), and returns the draw, or 0.
static Ref scaled_draw(const Graph *g, Ref r, double *scale, double *shift)
{
	const Val *v = val(g, r);
	double c;
	*scale = 1, *shift = 0;
	if (is_draw(g, r))
		return r;
	for (int k = 0; k < v->nin && (v->op == O_mul || v->op == O_add); k++) {
		Ref draw =
		    const_num(g, v->in[1 - k], &c) ? scaled_draw(g, v->in[k], scale, shift) : 0;
		if (!draw)
			continue;
		*scale *= v->op == O_mul ? c : 1;
		*shift = v->op == O_mul ? *shift * c : *shift + c;
		return draw;
	}
	return 0;
}

static Threshold threshold_of(const Graph *g, const Val *v)
{
	double c, scale, shift;
	if (v->op == O_floor) { // floor(draw + c), as exporters write stochastic depth
		Ref draw = scaled_draw(g, v->in[0], &scale, &c);
		if (draw && scale == 1 && c > 0 && c < 1)
			return (Threshold){draw, 1 - c, false};
	}
	for (int k = 0; k < 2 && (v->op == O_lt || v->op == O_le); k++) {
		Ref draw = scaled_draw(g, v->in[k], &scale, &shift);
		if (!draw || !const_num(g, v->in[1 - k], &c) || scale == 0)
			continue;
		Threshold t = {draw, (c - shift) / scale, (scale < 0) == (k == 1)};
		return t.level > 0 && t.level < 1 ? t : (Threshold){0};
	}
	return (Threshold){0};
}

static Product product_with(Ref self, Product a, Product b)
{
	if ((a.base && b.base) || (a.gate && b.gate))
		return (Product){.base = self, .factor = 1};
	bool gated = a.gate != 0;
	return (Product){a.base ? a.base : b.base, a.factor * b.factor, gated ? a.gate : b.gate,
	                 gated ? a.chance : b.chance};
}

static bool is_gate(const Product *p)
{
	return p->gate && !p->base && p->factor == 1;
}

// Returns 1 where the gate is false.
static Product inverted(Graph *g, const Product *p)
{
	return (Product){0, 1, put1(g, O_not, p->gate), 1 - p->chance};
}

// Returns value r as a product. gate: Booleans equal to r; 0: r compares no random number.
static Product product_of(const Draws *d, Graph *g, Ref r, Ref gate, Threshold t)
{
	const Val *v = val(d->from, r);
	const Product *a = v->nin > 0 ? &d->product[v->in[0]] : NULL,
	              *b = v->nin > 1 ? &d->product[v->in[1]] : NULL;
	double c;
	if (const_num(d->from, r, &c))
		return (Product){.factor = c};
	if (gate)
		return (Product){0, 1, gate, t.below ? t.level : 1 - t.level};
	if (v->op == O_cast && val(d->from, v->in[0])->type == E_b8 && is_gate(a))
		return *a;
	if (v->op == O_mul)
		return product_with(r, *a, *b);
	if (v->op == O_div && const_num(d->from, v->in[1], &c) && c != 0)
		return product_with(r, *a, (Product){.factor = 1 / c});
	if (v->op == O_not && is_gate(a))
		return inverted(g, a);
	if (v->op == O_sub && const_num(d->from, v->in[0], &c) && c == 1 && is_gate(b))
		return inverted(g, b);
	if (v->op == O_select && is_gate(a) && const_num(d->from, v->in[2], &c) && c == 0)
		return product_with(r, *b, *a);
	if (v->op == O_select && is_gate(a) && const_num(d->from, v->in[1], &c) && c == 0)
		return product_with(r, d->product[v->in[2]], inverted(g, a));
	return (Product){.base = r, .factor = 1};
}

static Graph *rewrite_dropout(Arena *, const Graph *, bool draw);

static Ref put_rewritten(void *context, Graph *g, const Val *v, const Ref *in)
{
	Draws *d = context;
	Ref r = ref_of(d->from, v), copy, compared = 0;
	Threshold t = threshold_of(d->from, v);
	if (v->op == O_loop) {
		LoopInfo c = loop_of(v);
		c.body = rewrite_dropout(g->arena, c.body, d->draw);
		copy = put_loop(g, &c, in);
	} else {
		copy = put_as(g, v, in);
	}
	if (t.draw && (t.draw == v->in[0] || t.draw == v->in[v->nin - 1])) {
		compared = copy;
	} else if (t.draw) { // compares the plain random number, so that its probability is seen
		Ref draw = d->now[t.draw], level = put_num(g, val(g, draw)->type, t.level);
		compared = t.below ? put2(g, O_lt, draw, level) : put2(g, O_le, level, draw);
		copy = v->op == O_floor ? copy : compared;
	}
	Product p = product_of(d, g, r, compared, t);
	d->product[r] = p;
	// Dropout drops some elements and scales the others to compensate.
	if (!p.gate || !p.base || !(fabs(p.factor * p.chance - 1) < 1e-3) ||
	    !same_shape(&v->shape, &val(d->from, p.base)->shape))
		return copy;
	d->product[r] = (Product){.base = r, .factor = 1};
	Ref x = d->now[p.base];
	if (!d->draw)
		return x;
	Elem type = val(g, x)->type; // as the book's Dropout writes it
	Ref kept = put2(g, O_mul, x, put_num(g, type, p.factor));
	Ref gate = put_rank(g, p.gate, val(g, x)->shape.rank);
	return put3(g, O_select, gate, kept, put_num(g, type, 0));
}

int drawing_node(const Graph *g)
{
	int found = -1;
	for (Ref r = 1; r < (Ref)g->nval && found < 0; r++) {
		const Val *v = val(g, r);
		if (v->op == O_rand)
			found = v->from;
		else if (v->op == O_loop)
			found = drawing_node(v->data);
	}
	return found;
}

static Graph *rewrite_dropout(Arena *arena, const Graph *from, bool draw)
{
	Graph *g = graph_like(arena, from);
	Draws d = {from, NEWS(arena, Ref, from->nval), NEWS(arena, Product, from->nval), draw};
	copy_graph(g, from, d.now, put_rewritten, &d);
	return graph_live(arena, g);
}

// ---- inserting dropout -----------------------------------------------------------------

// In a sum x + f(x), where f contains attention or an activation and ends in a product with a
// weight, with or without a bias, f(x) is the result of an attention block or an MLP: dropout is
// inserted before the sum. Several blocks of one x may be added at once. Attention weights get
// dropout unless they have it.

static bool of_weights(const Graph *g, Ref r, int depth)
{
	enum { DEEPEST = 8 };
	const Val *v = val(g, r);
	if (v->op == O_slot)
		return g->slots.at[v->attr->i[0]].kind != S_input;
	bool all = depth < DEEPEST;
	for (int k = 0; k < v->nin && all; k++)
		all = of_weights(g, v->in[k], depth + 1);
	return all && v->op != O_rand;
}

// True for a product with a weight, also if it is then moved (rolled: its slices concatenated) or a
// bias is added.
static bool ends_in_weight(const Graph *g, Ref r)
{
	for (;;) {
		const Val *v = val(g, r);
		bool sum = v->op == O_add;
		if (v->op == O_dot)
			return of_weights(g, v->in[0], 0) != of_weights(g, v->in[1], 0);
		if (prims[v->op].cls == C_move)
			r = v->in[0];
		else if (sum && of_weights(g, v->in[1], 0))
			r = v->in[0];
		else if (sum && of_weights(g, v->in[0], 0))
			r = v->in[1];
		else
			return false;
	}
}

// Marks the summands of `r` that are blocks of x: computed from it by attention or an activation,
// without a convolution.
static void mark_blocks(Arena *arena, const Graph *g, Ref x, Ref r, bool *site)
{
	enum { COMES = 1, BENT = 2, CONVOLVED = 4 };
	const Val *v = val(g, r);
	if (!ends_in_weight(g, r)) {
		for (int k = 0; k < 2 && v->op == O_add; k++)
			mark_blocks(arena, g, x, v->in[k], site);
		return;
	}
	if (x >= r)
		return;
	uint8_t *how = NEWS(arena, uint8_t, r - x + 1);
	how[0] = COMES;
	for (Ref at = x + 1; at <= r; at++) {
		v = val(g, at);
		for (int k = 0; k < v->nin; k++)
			how[at - x] |= v->in[k] >= x ? how[v->in[k] - x] : 0;
		if (how[at - x] && (v->op == O_act || v->op == O_softmax || v->op == O_attend))
			how[at - x] |= BENT;
		if (how[at - x] && v->op == O_window)
			how[at - x] |= CONVOLVED;
	}
	site[r] |= how[r - x] == (COMES | BENT);
}

static Ref put_drawn(Graph *g, Ref x, double rate, int64_t site)
{
	const Shape *s = &val(g, x)->shape;
	Attr attr = {.n = s->rank + 1, .i = {site}};
	memcpy(attr.i + 1, s->dim, sizeof(int64_t) * (size_t)s->rank);
	Ref seed[2] = {put_state(g, "amos.seed", E_i64, (Shape){0}, NULL),
	               put_state(g, "amos.step", E_i64, (Shape){0}, NULL)};
	Ref in[2] = {x, put(g, O_rand, 2, seed, &attr)};
	AttrArg ratio = {.name = "ratio", .x = rate};
	return book_call1(g, "dropped", 2, in, 1, &ratio);
}

typedef struct Insertion { // dropout that is inserted
	const Graph *from;
	const bool *site; // by Ref
	double rate;
	int64_t next; // site of the next random number
} Insertion;

static Ref put_with_site(void *context, Graph *g, const Val *v, const Ref *in)
{
	Insertion *b = context;
	Ref x;
	if (v->op == O_attend) {
		g->plain = DECOMPOSED_ATTEND;
		x = book_decompose(g, v, in);
		Ref weights = val(g, x)->in[0], values = val(g, x)->in[1];
		x = put2(g, O_dot, put_drawn(g, weights, b->rate, b->next++), values);
		g->plain = DECOMPOSED_NONE;
	} else {
		x = put_as(g, v, in);
	}
	return b->site[ref_of(b->from, v)] ? put_drawn(g, x, b->rate, b->next++) : x;
}

static Graph *insert_dropout(Arena *arena, const Graph *from, double rate, int *count)
{
	Graph *g = graph_like(arena, from);
	bool *site = NEWS(arena, bool, from->nval);
	Insertion b = {.from = from, .site = site, .rate = rate};
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		if (is_draw(from, r))
			b.next = MAX(b.next, v->attr->i[0] + 1);
		for (int k = 0; k < 2 && v->op == O_add; k++) {
			Ref x = v->in[k], other = v->in[1 - k];
			const Val *sum = val(from, x);
			if (ends_in_weight(from, x))
				continue;
			mark_blocks(arena, from, x, other, site);
			for (int i = 0; i < 2 && sum->op == O_add; i++)
				mark_blocks(arena, from, sum->in[i], other, site);
		}
	}
	int64_t first = b.next;
	copy_graph(g, from, NULL, put_with_site, &b);
	*count = (int)(b.next - first);
	return g;
}

Graph *dropout_pass(Arena *arena, Graph *from, bool draw, double rate, int *added)
{
	*added = 0;
	Graph *g = drawing_node(from) >= 0 ? rewrite_dropout(arena, from, draw && rate != 0) : from;
	return draw && rate > 0 ? insert_dropout(arena, g, rate, added) : g;
}

// ---- dropout of the weights of attention -----------------------------------------------

typedef struct Weighing {
	const Graph *from;
	const int *uses;
	const Machine *machine;
} Weighing;

// Returns attention whose weights are dropped, and perhaps reshaped after that, if the product
// without dropout is attention.
static Ref put_weighing(void *context, Graph *g, const Val *v, const Ref *in)
{
	const Weighing *w = context;
	if (v->op != O_dot || w->uses[v->in[0]] > 1)
		return put_as(g, v, in);
	const Shape shape = val(g, in[0])->shape;
	const Val *drop = val(g, in[0]);
	if (drop->op == O_reshape && w->uses[val(w->from, v->in[0])->in[0]] == 1)
		drop = val(g, drop->in[0]);
	const Val *scaled = drop->op == O_select ? val(g, drop->in[1]) : NULL;
	double zero, c;
	if (!scaled || scaled->op != O_mul || !const_num(g, scaled->in[1], &c) ||
	    !const_num(g, drop->in[2], &zero) || zero != 0)
		return put_as(g, v, in);
	Ref gate = drop->in[0];
	Ref whole = put2(g, O_dot, put_reshape(g, scaled->in[0], shape), in[1]);
	const Val *found = val(g, whole);
	int bias = attention_bias(O_attend), factor = attention_factor(O_attend);
	if (found->op != O_attend || found->nin > factor ||
	    !attend_fits(g, found, w->machine, true))
		return put_as(g, v, in);
	Ref with[factor + 1];
	with[bias] = put_rank(g, put_num(g, found->type, 0), shape.rank);
	with[bias + 1] = put_rank(g, put_num(g, E_b8, 1), shape.rank);
	memcpy(with, found->in, sizeof *with * (size_t)found->nin);
	Ref kept = put_num(g, found->type, c), none = put_num(g, found->type, 0);
	with[factor] = put_reshape(g, put3(g, O_select, gate, kept, none), shape);
	return put(g, O_attend, factor + 1, with, found->attr);
}

const Graph *attention_dropout_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	if (!machine || from->plain || drawing_node(from) < 0)
		return from;
	Graph *g = graph_like(arena, from);
	Weighing w = {from, graph_uses(arena, from), machine};
	copy_graph(g, from, NULL, put_weighing, &w);
	return graph_live(arena, g);
}
