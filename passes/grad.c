// grad.c: reverse-mode differentiation: Graph -> Graph that also has an out "grad:NAME" for each
// wanted slot. Takes an out "loss" and the gradients of the book. Gives the same outs and stores,
// and the gradients. Keeps: what is not between a wanted slot and the loss is never differentiated.
#include "grad.h"
#include <string.h>

// attend is differentiated as what it means.
Ref put_ready(Sweep *s, const Val *v, const Ref *in, bool needs)
{
	s->g->from = v->from;
	if (v->op == O_attend)
		return book_open(s->g, v, in);
	if (v->op != O_loop || !needs)
		return put_as(s->g, v, in);
	Cycle c = loop_of(v);
	return put_recorded(s, &c, in);
}

typedef struct Forward { // what is differentiated, and what of it needs gradients
	Sweep *sweep;
	const Graph *from;
	const bool *needs;
} Forward;

static Ref put_one(void *context, Graph *g, const Val *v, const Ref *in)
{
	const Forward *f = context;
	(void)g;
	return put_ready(f->sweep, v, in, f->needs[v - f->from->val]);
}

// The forward graph in the new one.
static void put_forward(Sweep *s, const Graph *from, const bool *needs)
{
	Ref *now = NEWS(s->arena, Ref, from->nval);
	Forward f = {s, from, needs};
	copy_values(s->g, from, now, put_one, &f);
	copy_ends(s->g, from, now);
}

// The last of that name: one of the model's own outputs may be called so.
static Ref find_loss(const Graph *g)
{
	for (int i = g->outs.count - 1; i >= 0; i--)
		if (!strcmp(g->outs.at[i].name, "loss"))
			return g->outs.at[i].val;
	fail(g->name, "there is no loss to differentiate; give one with --loss");
}

bool *mark_needs(Arena *arena, const Graph *g, const bool *want)
{
	bool *mark = NEWS(arena, bool, g->nval);
	for (int r = 1; r < g->nval; r++) {
		const Val *v = &g->val[r];
		bool needs = v->op == O_slot && want[v->attr->i[0]];
		for (int k = 0; k < v->nin; k++)
			needs |= mark[v->in[k]];
		mark[r] = needs && (is_float(v->type) || v->op == O_loop);
	}
	return mark;
}

Ref fit(Graph *g, Ref r, const Val *to)
{
	Shape shape = to->shape;
	int64_t axes[RANK];
	int n = 0;
	r = put_cast(g, r, to->type);
	if (val(g, r)->shape.rank < shape.rank)
		r = put_rank(g, r, shape.rank);
	const Shape *own = &val(g, r)->shape;
	for (int a = 0; a < own->rank; a++)
		if (own->dim[a] > 1 && (shape.rank == 0 || shape.dim[a] == 1))
			axes[n++] = a;
	r = n ? put_fold(g, O_sum, r, n, axes) : r;
	return shape.rank == 0 ? put_reshape(g, r, shape) : put_expand(g, r, shape);
}

void add_gradient(Sweep *s, Ref r, Ref dx)
{
	dx = fit(s->g, dx, &s->g->val[r]);
	s->gradient[r] = s->gradient[r] ? put2(s->g, O_add, s->gradient[r], dx) : dx;
}

static void sweep_concat(Sweep *s, const Val *v, Ref gradient)
{
	int axis = (int)v->attr->i[0];
	int64_t start[RANK] = {0};
	for (int k = 0; k < v->nin; k++) {
		Shape shape = s->g->val[v->in[k]].shape;
		if (s->needs[v->in[k]])
			add_gradient(s, v->in[k],
			             put_slice(s->g, gradient, start, shape.dim, NULL));
		start[axis] += shape.dim[axis];
	}
}

// ---- convolution ----------------------------------------------------------------------
// --------------------------------------------------------------------------------------- The
// reader writes a convolution as dot(reshape(permute(window(x))), kernel): windows [N, G, C, out..,
// size..] of x [N, G, C, in..] as a matrix of C size.. columns, times [C size.., O] in each of G
// groups. By the book its gradient is dot(g, kernel') as large as the windows, and a sum over
// windows of that. Here it is a convolution again, with nothing between: windows of g, [N, G, O,
// in.., size..], as a matrix of O size.. columns, times [O size.., C]. With a stride most entries
// of those windows are zeros, and the windows of x are few: then the book's way is better.

typedef struct Convolution {
	const Val *window;
	Shape from, wide; // of x and of the windows
	int n;            // spatial axes
} Convolution;

static bool is_convolution(const Graph *g, const Val *dot, Convolution *c)
{
	const Val *matrix = val(g, dot->in[0]);
	if (matrix->op != O_reshape || val(g, matrix->in[0])->op != O_permute)
		return false;
	const Val *turned = val(g, matrix->in[0]);
	c->window = val(g, turned->in[0]);
	if (c->window->op != O_window)
		return false;
	c->from = val(g, c->window->in[0])->shape;
	c->wide = c->window->shape;
	c->n = c->window->attr->n / 7;
	bool fits = c->from.rank == 3 + c->n && turned->attr->i[0] == 0 &&
	            turned->attr->i[1] == 1 && turned->attr->i[2 + c->n] == 2;
	int64_t fan = c->from.dim[2];
	for (int a = 0; fits && a < c->n; a++) {
		const int64_t *row = c->window->attr->i + 7 * a;
		fits = row[0] == 3 + a && row[3] == 1 && turned->attr->i[2 + a] == 3 + a &&
		       turned->attr->i[3 + c->n + a] == 3 + c->n + a;
		fan *= row[2];
	}
	const Shape *kernel = &val(g, dot->in[1])->shape;
	bool single = matrix->shape.rank == 2 && c->from.dim[1] == 1;
	bool grouped = matrix->shape.rank == 4 && matrix->shape.dim[0] == c->from.dim[0] &&
	               matrix->shape.dim[1] == c->from.dim[1] && kernel->dim[1] == c->from.dim[1];
	return fits && (single || grouped) && matrix->shape.dim[matrix->shape.rank - 1] == fan;
}

// [N, G, spatial.., C] of that many channels, from a matrix or a batch of them, with the channels
// before the places.
static Ref put_places(Graph *g, Ref r, const Convolution *c, const Shape *like, int64_t channels)
{
	Shape shape = {.rank = 3 + c->n, .dim = {c->from.dim[0], c->from.dim[1]}};
	for (int a = 2; a < 2 + c->n; a++)
		shape.dim[a] = like->dim[1 + a];
	shape.dim[2 + c->n] = channels;
	return move_axis(g, put_reshape(g, r, shape), 2 + c->n, 2);
}

// Windows of the gradient, channels behind the places: entry (i, k) is output i + before - k
// dilation, where window entry (o, k) was input (o + k dilation - before) / up.
static Ref gradient_windows(Graph *g, const Convolution *c, Ref gradient, int64_t channels)
{
	Attr attr = *c->window->attr;
	Ref r = put_places(g, gradient, c, &c->wide, channels);
	attr.x = 0;
	for (int a = 0; a < c->n; a++) {
		int64_t *row = attr.i + 7 * a;
		row[1] = c->from.dim[3 + a];
		row[3] = row[6];
		row[4] = -row[4];
		row[5] = -row[5];
		row[6] = 1;
	}
	return move_axis(g, put(g, O_window, 1, &r, &attr), 2, 2 + c->n);
}

// [.., C size.., O] as [.., O size.., C].
static Ref turned_kernel(Graph *g, const Convolution *c, Ref kernel)
{
	Shape flat = val(g, kernel)->shape, open = {.rank = 2};
	int64_t channels = c->from.dim[2], outputs = flat.dim[flat.rank - 1];
	open.dim[0] = c->from.dim[1];
	open.dim[1] = channels;
	for (int a = 0; a < c->n; a++)
		open.dim[open.rank++] = c->window->attr->i[7 * a + 2];
	open.dim[open.rank++] = outputs;
	Ref r = move_axis(g, put_reshape(g, kernel, open), open.rank - 1, 1);
	flat.dim[flat.rank - 2] = flat.dim[flat.rank - 2] / channels * outputs;
	flat.dim[flat.rank - 1] = channels;
	return put_reshape(g, move_axis(g, r, 2, open.rank - 1), flat);
}

// The gradient of x [N, G, C, in..].
static Ref convolve_back(Graph *g, const Convolution *c, Ref gradient, Ref kernel)
{
	int rank = val(g, kernel)->shape.rank;
	int64_t outputs = val(g, kernel)->shape.dim[rank - 1], places = 1;
	Ref x = gradient_windows(g, c, gradient, outputs);
	kernel = turned_kernel(g, c, kernel);
	for (int a = 0; a < c->n; a++)
		places *= c->from.dim[3 + a];
	Shape matrix = {.rank = rank, .dim = {c->from.dim[0], c->from.dim[1], places}};
	if (rank == 2)
		matrix.dim[0] *= places;
	matrix.dim[rank - 1] = val(g, kernel)->shape.dim[rank - 2];
	Ref y = put2(g, O_dot, put_reshape(g, x, matrix), kernel);
	return put_places(g, y, c, &c->from, c->from.dim[2]);
}

// ---- the sweep ------------------------------------------------------------------------

// Notes what operand k of v gives if it is a fixed value of a body: that is summed up over all
// trips.
static bool note_fixed(Sweep *s, const Val *v, int k, Ref gradient, Ref dx)
{
	const Val *x = val(s->g, v->in[k]);
	if (s->first_fixed < 0 || x->op != O_slot || x->attr->i[0] < s->first_fixed)
		return false;
	bool product = v->op == O_dot;
	Share share = {(int)x->attr->i[0], product ? v->in[1 - k] : 0, k, product ? gradient : dx};
	PUSH(s->arena, s->shares, share);
	return true;
}

// v gives value r.
static void sweep_value(Sweep *s, Ref r, Val v)
{
	Ref dx[4] = {0};
	s->g->from = v.from;
	if (v.op == O_concat) {
		sweep_concat(s, &v, s->gradient[r]);
		return;
	}
	book_grad(s->g, &v, r, s->gradient[r], v.in, dx);
	Convolution c;
	if (v.op == O_dot && s->needs[v.in[0]] && is_convolution(s->g, &v, &c)) {
		add_gradient(s, c.window->in[0], convolve_back(s->g, &c, s->gradient[r], v.in[1]));
		dx[0] = 0;
	}
	for (int k = 0; k < v.nin; k++)
		if (dx[k] && s->needs[v.in[k]] && !note_fixed(s, &v, k, s->gradient[r], dx[k]))
			add_gradient(s, v.in[k], dx[k]);
}

void sweep_back(Sweep *s)
{
	for (Ref r = s->last; r > 0; r--) {
		const Val *v = val(s->g, r);
		const uint64_t *product = table_find(s->products, &r, sizeof r);
		if (v->op == O_loop && s->needs[r])
			unwind_loop(s, r);
		else if (!s->needs[r] || !s->gradient[r])
			continue;
		else if (product)
			sweep_value(s, r, *(const Val *)(uintptr_t)*product);
		else if (prims[v->op].cls != C_leaf && v->op != O_part)
			sweep_value(s, r, *v);
	}
}

Ref zeros(Graph *g, Elem type, Shape shape)
{
	return put_broadcast(g, put_num(g, type, 0), shape);
}

Graph *grad_pass(Arena *arena, const Graph *from, const bool *want)
{
	Graph *g = graph_like(arena, from);
	g->plain = MAX(g->plain, PLAIN_ATTEND);
	Sweep s = {.arena = arena, .g = g, .products = table_new(arena), .first_fixed = -1};
	put_forward(&s, from, mark_needs(arena, from, want));
	Ref loss = find_loss(g);
	if (!is_float(val(g, loss)->type) || count_of(&val(g, loss)->shape) != 1)
		fail(g->name, "the loss is %s, wanted one float",
		     shape_text(arena, val(g, loss)->type, &val(g, loss)->shape));
	Ref *slot = NEWS(arena, Ref, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = want[i] ? put_slot(g, i) : 0;
	s.needs = mark_needs(arena, g, want);
	s.gradient = NEWS(arena, Ref, g->nval);
	s.last = (Ref)g->nval - 1;
	s.gradient[loss] = fit(g, put_num(g, val(g, loss)->type, 1), val(g, loss));
	sweep_back(&s);
	g->from = 0;
	for (int i = 0; i < g->slots.count; i++) {
		if (!want[i])
			continue;
		const Slot *k = &g->slots.at[i];
		Ref gradient =
		    s.gradient[slot[i]] ? s.gradient[slot[i]] : zeros(g, k->type, k->shape);
		add_out(g, format(arena, "grad:%s", k->name), gradient);
	}
	return graph_live(arena, g);
}
