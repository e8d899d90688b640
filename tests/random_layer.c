// random_layer.c: puts layers of networks, as the reader lowers them, on a value of a random graph.
// Images are [N, C, ..] with one to three spatial axes, sequences [N, length, features]. A layer
// that does not fit a value returns it.
#include "random_maker.h"
#include <math.h>
#include <string.h>

enum { MOST_WINDOWS = 600000, MOST_PRODUCTS = 20000000 };

// ---- expressions, whose names are letters -----------------------------------------------

typedef Ref Letters['z' + 1];

static Ref look_letter(void *letters, const char *name)
{
	return name[1] || name[0] > 'z' ? 0 : (*(Letters *)letters)[(int)name[0]];
}

static Ref put_text(Graph *g, const char *text, Letters *letters)
{
	return eval_expr(g, g->name, parse_text(g->arena, g->name, text), look_letter, letters);
}

static Ref put_on(Maker *m, const char *text, Ref x, Ref w, Ref b)
{
	Letters letters = {['x'] = x, ['w'] = w, ['b'] = b};
	return put_text(m->made.g, text, &letters);
}

static const char *with_numbers(Maker *m, const char *form, int64_t a, int64_t b)
{
	return format(m->made.arena, form, (int)a, (int)b);
}

static int64_t one_of(Maker *m, int n, const int64_t *list)
{
	return list[draw(m, (uint64_t)n)];
}
#define ONE_OF(m, ...)                                                                             \
	one_of(m, COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

static int64_t any_width(Maker *m)
{
	return ONE_OF(m, 1, 2, 3, 4, 5, 8, 12, 16, 16, 17, 24, 31, 32, 32, 40, 48, 64, 64, 70, 96);
}

static Ref activated(Maker *m, Ref x)
{
	static const int64_t acts[] = {A_relu, A_relu, A_tanh, A_sigmoid, A_silu};
	if (!draw(m, 3))
		return x;
	int64_t kind = draw(m, 2) ? one_of(m, COUNT(acts), acts) : (int64_t)draw(m, ACTS);
	return enter(m, O_act, 1, &x, &(Attr){.n = 1, .i = {kind}});
}

// x plus one number for each channel, or as it is.
static Ref biased(Maker *m, Ref x)
{
	const Shape *s = shape_at(m, x);
	Ref b = new_weight(m, shape_of(1, s->dim + 1), 4);
	return draw(m, 2) ? x : put_on(m, "x + per_channel(b; rank(x))", x, 0, b);
}

// ---- windows -----------------------------------------------------------------------------

typedef struct Layer {
	int n; // spatial axes
	int64_t places, taps;
	WindowAxis axis[3]; // over the axes from the third on
} Layer;

static WindowAxis any_window(Maker *m, int64_t d, int64_t size)
{
	int64_t stride = ONE_OF(m, 1, 1, 1, 2, 2, 3), dilation = ONE_OF(m, 1, 1, 1, 1, 2);
	int64_t reach = (size - 1) * dilation + 1, before = draw(m, 5) ? reach / 2 : 0;
	int64_t after = draw(m, 5) ? before : (int64_t)draw(m, (uint64_t)size);
	int64_t room = d + before + after - reach;
	return (WindowAxis){0, room < 0 ? 0 : room / stride + 1, size, stride, dilation, before, 1};
}

// Windows of a convolution by which x was made from an image of another size.
static WindowAxis any_transposed(Maker *m, int64_t d, int64_t size)
{
	int64_t step = ONE_OF(m, 1, 2, 2, 2, 3), cut = (int64_t)draw(m, (uint64_t)size);
	int64_t out = (d - 1) * step + size - cut - (int64_t)draw(m, 2);
	return (WindowAxis){0, MAX(0, out), size, 1, -1, -(cut / 2), step};
}

typedef WindowAxis AnyWindow(Maker *, int64_t d, int64_t size);

// Draws windows; false if there are none, or too many.
static bool draw_layer(Maker *m, const Shape *s, AnyWindow *any, Layer *l)
{
	int64_t size = ONE_OF(m, 1, 2, 3, 3, 3, 3, 4, 5, 7);
	*l = (Layer){s->rank - 2, 1, 1, {{0}}};
	for (int a = 0; a < l->n; a++) {
		WindowAxis *w = &l->axis[a];
		int64_t own = draw(m, 6) ? size : ONE_OF(m, 1, 2, 3, 5);
		*w = any(m, s->dim[2 + a], own);
		l->places *= w->out;
		l->taps *= w->size;
	}
	return l->places > 0 && s->dim[0] * s->dim[1] * l->places * l->taps <= MOST_WINDOWS;
}

// Lists the windows over the axes from `first` on.
static const char *rows_of(Maker *m, const Layer *l, int first)
{
	Text text = {.arena = m->made.arena};
	for (int a = 0; a < l->n; a++) {
		const WindowAxis *w = &l->axis[a];
		say(&text, "%s%d,%d,%d,%d,%d,%d,%d", a ? "," : "", first + a, (int)w->out,
		    (int)w->size, (int)w->stride, (int)w->dilation, (int)w->before, (int)w->up);
	}
	return text.at;
}

static Ref put_convolved(Maker *m, Ref x, bool transposed)
{
	Layer l;
	const Shape s = *shape_at(m, x);
	int64_t channels = s.dim[1], groups = ONE_OF(m, 1, 1, 1, 2, 4, channels);
	if (channels % groups || !draw_layer(m, &s, transposed ? any_transposed : any_window, &l))
		return x;
	int64_t each = groups == channels && draw(m, 2) ? 1 : 1 + any_width(m) / groups;
	int64_t fan = l.taps * channels / groups, outs = each * groups;
	if (s.dim[0] * l.places * outs * fan > MOST_PRODUCTS)
		return x;
	Shape w = {s.rank, {transposed ? channels : outs, transposed ? each : channels / groups}};
	for (int a = 0; a < l.n; a++)
		w.dim[2 + a] = l.axis[a].size;
	const char *plain = "convolved(window(by_groups(x; %d); [%s], 0), group_kernel(w; %d))",
	           *turned = "convolved(window(by_groups(x; %d); [%s], 0), reshape(permute(reshape("
	                     "w; [%d, shape(x)[1] / %d, shape(w)[1], -1]); [0,3,1,2]); "
	                     "[%d, -1, shape(w)[1]]))";
	int g = (int)groups;
	const char *text = transposed ? format(m->made.arena, turned, g, rows_of(m, &l, 3), g, g, g)
	                              : format(m->made.arena, plain, g, rows_of(m, &l, 3), g);
	Ref y = biased(m, put_on(m, text, x, new_weight(m, w, fan), 0));
	if (same_shape(shape_at(m, y), &s) && draw(m, 2))
		return activated(m, enter2(m, O_add, activated(m, y), x));
	return draw(m, 2) ? activated(m, y) : y;
}

static Ref put_conv_layer(Maker *m, Ref x)
{
	return put_convolved(m, x, false);
}

static Ref put_transposed_layer(Maker *m, Ref x)
{
	return put_convolved(m, x, true);
}

static Ref put_pool_layer(Maker *m, Ref x)
{
	Layer l;
	const Shape s = *shape_at(m, x);
	if (!draw_layer(m, &s, any_window, &l))
		return x;
	bool most = draw(m, 2);
	const char *rows = rows_of(m, &l, 2), *fill = most ? "-inf" : "0";
	Ref w = put_on(m, format(m->made.arena, "window(x; [%s], %s)", rows, fill), x, 0, 0);
	return put_on(m,
	              most ? "drop(maxpool(x; elements(x)); elements(x))"
	                   : "drop(sum(x; elements(x)); elements(x)) * 0.25",
	              w, 0, 0);
}

// ---- other layers of images --------------------------------------------------------------

static const char *const image_norms[] = {
    "norm(x; [0, axes(x)[2:]], 1, 0.001)",
    "norm(x; axes(x)[2:], 1, 0.001)",
    "norm(x; axes(x)[1:], 1, 0.001)",
    "norm(x; 1, 1, 0.001)",
    "norm(x; 1, 0, 0.001)",
};

static Ref put_norm_layer(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	Ref w = new_weight(m, shape_of(1, s.dim + 1), 4),
	    b = new_weight(m, shape_of(1, s.dim + 1), 4);
	const char *text = image_norms[draw(m, COUNT(image_norms))];
	int64_t groups = ONE_OF(m, 2, 3, 4, 8);
	if (s.dim[1] % groups == 0 && draw(m, 2))
		text = with_numbers(
		    m, "reshape(norm(reshape(x; [%d, %d, -1]); 2, 1, 0.001); shape(x))", s.dim[0],
		    groups);
	Ref y = put_on(m, text, x, 0, 0);
	y = put_on(m, "x * per_channel(w; rank(x)) + per_channel(b; rank(x))", y, w, b);
	return activated(m, y);
}

// Scales channels by a gate, a function of their means.
static Ref put_gate_layer(Maker *m, Ref x)
{
	const Shape *s = shape_at(m, x);
	int64_t n = s->dim[1];
	Ref w = new_weight(m, (Shape){2, {n, n}}, n);
	return put_on(
	    m,
	    "x * reshape(act(dot(reshape(mean(x; axes(x)[2:]); shape(x)[:2]), w); sigmoid); "
	    "[shape(x)[:2], list(rank(x) - 2, 1)])",
	    x, w, 0);
}

static Ref put_channel_move(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	int64_t n = s.dim[1], groups = ONE_OF(m, 2, 3, 4), half = 1 + n / 2;
	const char *shuffled = "reshape(permute(reshape(x; [%d, %d, -1, prod(shape(x)[2:])]); "
	                       "[0,2,1,3]); shape(x))";
	if (n % groups == 0 && draw(m, 2))
		return put_on(m, with_numbers(m, shuffled, s.dim[0], groups), x, 0, 0);
	return put_on(m, with_numbers(m, "concat(act(take(x; 1, 0, %d); tanh), x; 1)", half, 0), x,
	              0, 0);
}

// Repeats elements along the last axis, or cuts a border.
static Ref put_resized(Maker *m, Ref x)
{
	int last = shape_at(m, x)->rank - 1;
	int64_t d = shape_at(m, x)->dim[last];
	if (d > 4 && draw(m, 2))
		return put_on(m, with_numbers(m, "take(x; -1, 1, %d)", d - 2, 0), x, 0, 0);
	return put_on(m,
	              with_numbers(m,
	                           "reshape(expand(reshape(x; [shape(x), 1]); [shape(x), 2]); "
	                           "[shape(x)[:%d], -1])",
	                           last, 0),
	              x, 0, 0);
}

static Step *const on_images[] = {put_conv_layer,   put_conv_layer,      put_conv_layer,
                                  put_conv_layer,   put_norm_layer,      put_norm_layer,
                                  put_pool_layer,   put_gate_layer,      put_resized,
                                  put_channel_move, put_transposed_layer};
static Ref new_image(Maker *m)
{
	enum { MOST = 40000 };
	Shape s = {.rank = 2 + (int)ONE_OF(m, 1, 2, 2, 2, 3), .dim = {ONE_OF(m, 1, 2, 3, 5)}};
	int64_t room = MOST / s.dim[0];
	for (int a = 2; a < s.rank; a++) {
		s.dim[a] = s.rank == 3   ? ONE_OF(m, 33, 64, 100, 250, 500)
		           : s.rank == 4 ? ONE_OF(m, 7, 8, 9, 13, 14, 16, 17, 28, 32)
		                         : ONE_OF(m, 4, 5, 6, 8);
		room /= s.dim[a];
	}
	s.dim[1] = MIN(any_width(m), MAX(1, room));
	return new_slot(m, E_f32, s, random_bytes(m, E_f32, &s, 0));
}

// ---- sequences ---------------------------------------------------------------------------

// x times a matrix of n columns, as one product of all rows, with a bias or without.
static Ref put_linear(Maker *m, Ref x, int64_t n)
{
	Shape s = *shape_at(m, x);
	int64_t fan = s.dim[s.rank - 1];
	bool turned = draw(m, 2);
	Ref w = new_weight(m, (Shape){2, {turned ? n : fan, turned ? fan : n}}, fan);
	Ref b = new_weight(m, (Shape){1, {n}}, 4);
	const char *form = turned ? "dot(reshape(x; [-1, %d]), permute(w; [1,0]))"
	                          : "dot(reshape(x; [-1, %d]), w)";
	Ref y = put_on(m, with_numbers(m, form, fan, 0), x, w, 0);
	if (draw(m, 2))
		y = put_on(m, "x + reshape(b; [1, -1])", y, 0, b);
	s.dim[s.rank - 1] = n;
	return as_shape(m, y, &s);
}

static Ref put_feed_layer(Maker *m, Ref x)
{
	int64_t width = shape_at(m, x)->dim[2];
	Ref y = put_linear(m, x, any_width(m));
	if (draw(m, 2)) { // gated
		int64_t n = shape_at(m, y)->dim[2];
		y = enter2(m, O_mul, activated(m, y), put_linear(m, x, n));
	}
	y = put_linear(m, activated(m, y), draw(m, 3) ? width : any_width(m));
	return same_shape(shape_at(m, y), shape_at(m, x)) ? enter2(m, O_add, x, y) : y;
}

static Ref put_row_norm(Maker *m, Ref x)
{
	Shape last = {1, {shape_at(m, x)->dim[2]}};
	Ref w = new_weight(m, last, 4), b = new_weight(m, last, 4);
	static const char *const forms[] = {
	    "norm(x; 2, 1, 0.001) * reshape(w; [1,1,-1]) + reshape(b; [1,1,-1])",
	    "norm(x; 2, 0, 0.001) * reshape(w; [1,1,-1])"};
	return put_on(m, forms[draw(m, 2)], x, w, b);
}

// [N, T, H D] as [N, H, T, D], each head `times` times.
static Ref heads(Maker *m, Ref x, int64_t n, int64_t times)
{
	Ref y = put_on(
	    m, with_numbers(m, "permute(reshape(x; [shape(x)[:2], %d, -1]); [0,2,1,3])", n, 0), x,
	    0, 0);
	if (times == 1)
		return y;
	Shape s = *shape_at(m, y), wide = {5, {s.dim[0], n, times, s.dim[2], s.dim[3]}}, one = wide;
	one.dim[2] = 1;
	y = put_expand(m->made.g, as_shape(m, y, &one), wide);
	return as_shape(m, y, &(Shape){4, {s.dim[0], n * times, s.dim[2], s.dim[3]}});
}

static Ref put_attention_layer(Maker *m, Ref x)
{
	static const char *const forms[] = {
	    "dot(softmax(dot(q, permute(k; [0,1,3,2])) * 0.3; 3), v)",
	    "dot(softmax(dot(q, permute(k; [0,1,3,2])) * 0.3 + b; 3), v)",
	    "dot(softmax(select(iota(; 2, [1,1,T,T]) < iota(; 3, [1,1,T,T]), -inf, "
	    "dot(q, permute(k; [0,1,3,2])) * 0.3); 3), v)",
	    "dot(softmax(select(iota(; 2, [1,1,T,T]) < iota(; 3, [1,1,T,T]), -inf, "
	    "dot(q, permute(k; [0,1,3,2])) * 0.3 + b); 3), v)",
	    "dot(softmax(select(i, dot(q, permute(k; [0,1,3,2])) * 0.3, -10000); 3), v)",
	};
	Graph *g = m->made.g;
	const Shape s = *shape_at(m, x);
	int64_t shared = ONE_OF(m, 1, 1, 2, 3), keys = ONE_OF(m, 1, 2, 3), n = keys * shared;
	int64_t each = ONE_OF(m, 4, 8, 16, 20, 32);
	if (s.dim[0] * n * s.dim[1] * s.dim[1] > MOST_WINDOWS)
		return x;
	Letters of = {0};
	of['q'] = heads(m, put_linear(m, x, n * each), n, 1);
	of['k'] = heads(m, put_linear(m, x, keys * each), keys, shared);
	of['v'] = heads(m, put_linear(m, x, keys * each), keys, shared);
	Shape scores = {4, {draw(m, 2) ? 1 : s.dim[0], draw(m, 2) ? 1 : n, s.dim[1], s.dim[1]}},
	      mask = {4, {s.dim[0], 1, draw(m, 2) ? 1 : s.dim[1], s.dim[1]}};
	of['b'] = new_weight(m, scores, 4);
	of['i'] = new_slot(m, E_b8, mask, random_bytes(m, E_b8, &mask, 2));
	Text text = {.arena = m->made.arena};
	for (const char *at = forms[draw(m, COUNT(forms))]; *at; at++)
		if (*at == 'T')
			say(&text, "%d", (int)s.dim[1]);
		else
			say(&text, "%c", *at);
	Ref y = put_text(g, text.at, &of);
	y = put_on(m, "reshape(permute(x; [0,2,1,3]); [shape(x)[0], shape(x)[2], -1])", y, 0, 0);
	y = put_linear(m, y, s.dim[2]);
	return draw(m, 2) ? enter2(m, O_add, x, y) : y;
}

// A cell: gates, whether it has a memory, and the lines that compute letters; h and c come next.
typedef struct Cell {
	int gates;
	const char *y, *u, *c, *h;
} Cell;

static const Cell cells[] = {
    {1, "e + dot(h, w) + b", NULL, NULL, "act(y; tanh)"},
    {3, "dot(h, w) + b", "act(gate(e; 0, 3) + gate(y; 0, 3); sigmoid)", NULL,
     "(1 - u) * act(gate(e; 2, 3) + act(gate(e; 1, 3) + gate(y; 1, 3); sigmoid) * gate(y; 2, 3); "
     "tanh)"
     " + u * h"},
    {4, "e + dot(h, w) + b", NULL,
     "act(gate(y; 2, 4); sigmoid) * c + act(gate(y; 0, 4); sigmoid) * act(gate(y; 3, 4); tanh)",
     "act(gate(y; 1, 4); sigmoid) * act(c; tanh)"},
};

static void add_input(Graph *body, Letters *of, char letter, Shape shape)
{
	const char *name = format(body->arena, "%c", letter);
	Slot slot = {.name = name, .kind = S_input, .type = E_f32, .shape = shape};
	(*of)[(int)letter] = put_slot(body, add_slot(body, slot));
}

// The body of a loop: carries h, and c if there is one, reads e, and w and b in every iteration.
static Graph *cell_body(Maker *m, const Cell *cell, int64_t rows, int64_t n)
{
	Graph *g = graph_new(m->made.arena, "cell", book_builtin());
	Letters of = {0};
	int64_t all = cell->gates * n;
	add_input(g, &of, 'h', (Shape){2, {rows, n}});
	if (cell->c)
		add_input(g, &of, 'c', (Shape){2, {rows, n}});
	add_input(g, &of, 'e', (Shape){2, {rows, all}});
	add_input(g, &of, 'w', (Shape){2, {n, all}});
	add_input(g, &of, 'b', (Shape){2, {1, all}});
	of['y'] = put_text(g, cell->y, &of);
	of['u'] = cell->u ? put_text(g, cell->u, &of) : 0;
	of['c'] = cell->c ? put_text(g, cell->c, &of) : 0;
	Ref next = put_text(g, cell->h, &of);
	add_out(g, "h", next);
	if (cell->c)
		add_out(g, "c", of['c']);
	add_out(g, "all", next);
	return g;
}

static Ref put_recurrent_layer(Maker *m, Ref x)
{
	const Cell *cell = &cells[draw(m, COUNT(cells))];
	const Shape s = *shape_at(m, x);
	int64_t n = ONE_OF(m, 8, 16, 20, 24, 32, 48, 64, 100), all = cell->gates * n,
	        rows = s.dim[0];
	Ref e = permuted(m, put_linear(m, x, all), (int64_t[]){1, 0, 2});
	bool turned = draw(m, 2);
	Ref w = new_weight(m, (Shape){2, {turned ? all : n, turned ? n : all}}, n);
	if (turned)
		w = permuted(m, w, (int64_t[]){1, 0});
	Ref h = new_weight(m, (Shape){2, {rows, n}}, 4),
	    c = new_weight(m, (Shape){2, {rows, n}}, 4);
	Ref b = new_weight(m, (Shape){2, {1, all}}, 4);
	Graph *g = m->made.g;
	LoopInfo l = {
	    cell_body(m, cell, rows, n), s.dim[1], 1 + !!cell->c, 1, 2, 1, draw(m, 2), false};
	Ref limit = put_num(g, E_i64, (double)s.dim[1]);
	Ref plain[] = {limit, h, e, w, b}, memory[] = {limit, h, c, e, w, b};
	Ref y = loop_result(g, put_loop(g, &l, cell->c ? memory : plain), 1 + !!cell->c);
	return permuted(m, y, (int64_t[]){1, 0, 2});
}

static Ref put_line_layer(Maker *m, Ref x)
{
	Ref y = put_conv_layer(m, permuted(m, x, (int64_t[]){0, 2, 1}));
	return permuted(m, y, (int64_t[]){0, 2, 1});
}

static Step *const on_sequences[] = {put_feed_layer,      put_feed_layer,      put_row_norm,
                                     put_attention_layer, put_attention_layer, put_recurrent_layer,
                                     put_line_layer};
// Embedded tokens, or numbers.
static Ref new_sequence(Maker *m)
{
	Shape at = {2, {ONE_OF(m, 1, 2, 3, 8, 16, 17), ONE_OF(m, 3, 4, 5, 8, 16, 33, 64)}};
	Shape s = {3, {at.dim[0], at.dim[1], any_width(m)}},
	      table = {2, {ONE_OF(m, 5, 40, 300), s.dim[2]}};
	if (draw(m, 2))
		return new_slot(m, E_f32, s, random_bytes(m, E_f32, &s, 0));
	Ref i = new_slot(m, E_i64, at, random_bytes(m, E_i64, &at, table.dim[0]));
	return enter(m, O_gather, 2, (Ref[]){new_weight(m, table, 1), i},
	             &(Attr){.n = 1, .i = {0}});
}

const Layers image_layers = {new_image, on_images, COUNT(on_images)},
             sequence_layers = {new_sequence, on_sequences, COUNT(on_sequences)};

// ---- the end -----------------------------------------------------------------------------

static const char *const losses[] = {
    "cross_entropy(x, y)",         "cross_entropy(x, y; 1)",
    "cross_entropy(x, y; 1, 0.1)", "cross_entropy(x, y, w; 1, 0.1)",
    "nll(x - lse(x; 1), y; 1)",    "accuracy(x, y; 1)"};

Ref put_classified(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	bool image = draw(m, 2);
	Letters of = {
	    ['x'] =
	        image
	            ? put_on(m, "reshape(mean(x; axes(x)[2:]); shape(x)[:2])", x, 0, 0)
	            : as_shape(m, x,
	                       &(Shape){2, {count_of(&s) / s.dim[s.rank - 1], s.dim[s.rank - 1]}})};
	int64_t classes = ONE_OF(m, 2, 3, 10, 17, 64, 100, 300, 1000);
	if (count_of(shape_at(m, of['x'])) * classes > MOST_PRODUCTS)
		return x;
	of['x'] = put_linear(m, of['x'], classes);
	Shape labels = {1, {shape_at(m, of['x'])->dim[0]}};
	of['y'] = new_slot(m, E_i64, labels, random_bytes(m, E_i64, &labels, classes));
	of['w'] = new_weight(m, labels, 1);
	return put_text(m->made.g, losses[draw(m, COUNT(losses))], &of);
}
