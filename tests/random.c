// random.c: makes a random graph, and the contents of its slots, from a number.
// Invariant: values are finite and of moderate size; a value from the door equals the evaluator's
// result for the operator, whatever the door made of it.
#include "random_maker.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FEWEST = 5, MOST = 40, FEW = 6 };
static const double largest_kept = 30; // larger values are scaled down

uint64_t draw_below(Random *r, uint64_t below)
{
	r->state += 0x9E3779B97F4A7C15u;
	return hash_bytes(&r->state, sizeof r->state, 1) % below;
}

uint64_t draw(Maker *m, uint64_t below)
{
	return draw_below(&m->made, below);
}

const Val *value(const Maker *m, Ref r)
{
	return val(m->made.g, r);
}

const Shape *shape_at(const Maker *m, Ref r)
{
	return &value(m, r)->shape;
}

char class_at(const Maker *m, Ref r)
{
	return elems[value(m, r)->type].cls;
}

// ---- numbers --------------------------------------------------------------------------

// Evaluates the values added to the graph.
static void catch_up(Maker *m)
{
	const Graph *g = m->made.g;
	Arena *arena = m->made.arena;
	if (!m->values.count)
		PUSH(arena, m->values, (Array){0});
	for (Ref r = (Ref)m->values.count; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		Array *in = NEWS(arena, Array, v->nin + 1);
		for (int k = 0; k < v->nin; k++)
			in[k] = m->values.at[v->in[k]];
		Array a = eval_value(arena, g, r, m->slots.at, in, NULL, NULL);
		PUSH(arena, m->values, a);
	}
}

// Returns the largest element; NAN if one is not finite.
static double size_of(const Array *a)
{
	double size = 0;
	for (int64_t i = 0; is_float(a->type) && i < count_of(&a->shape); i++) {
		if (!isfinite(a->f[i]))
			return NAN;
		size = fmax(size, fabs(a->f[i]));
	}
	return size;
}

static bool equal_arrays(const Array *a, const Array *b, double allowed)
{
	if (a->type != b->type || !same_shape(&a->shape, &b->shape))
		return false;
	allowed *= fmax(size_of(a), 1e-3);
	for (int64_t i = 0; i < count_of(&a->shape); i++)
		if (!is_float(a->type) ? a->i[i] != b->i[i]
		                       : !(fabs(a->f[i] - b->f[i]) <= allowed) &&
		                             isfinite(a->f[i]) && isfinite(b->f[i]))
			return false;
	return true;
}

static bool is_too_large(const Maker *m, const Shape *s)
{
	return count_of(s) > (m->made.large ? 200000 : 20000);
}

static void limit_size(Maker *m, const Shape *s)
{
	if (is_too_large(m, s))
		longjmp(m->too_large, 1);
}

// Limits products, which are slow in the evaluator.
static void limit_work(Maker *m, Op op, const Ref *in, const Shape *s)
{
	const int64_t most = 30000000;
	if (op == O_dot && count_of(s) * shape_at(m, in[0])->dim[s->rank - 1] > most)
		longjmp(m->too_large, 1);
}

// Results and constants that the door computes are rounded to their type.
static double door_error(Elem type)
{
	return type == E_f64 ? 1e-9 : type == E_f32 ? 3e-7 : 1e-2;
}

Ref enter(Maker *m, Op op, int nin, const Ref *in, const Attr *attr)
{
	Graph *g = m->made.g;
	Arena *arena = m->made.arena;
	Elem type;
	Shape shape;
	Attr none = {0};
	type_of(g, op, nin, in, attr ? attr : &none, &type, &shape);
	limit_size(m, &shape);
	limit_work(m, op, in, &shape);
	Ref r = put(g, op, nin, in, attr);
	catch_up(m);
	Array *operand = NEWS(arena, Array, nin + 1);
	for (int k = 0; k < nin; k++)
		operand[k] = m->values.at[in[k]];
	Array wanted = eval_prim(arena, op, attr ? attr : &none, type, &shape, nin, operand);
	if (!equal_arrays(&wanted, &m->values.at[r], door_error(type))) {
		printf("%s: the door makes another value, %%%d, of %s of", g->name, (int)r,
		       prims[op].name);
		for (int k = 0; k < nin; k++)
			printf(" %%%d", (int)in[k]);
		puts("");
		m->made.wrong = true;
	}
	return r;
}

Ref enter1(Maker *m, Op op, Ref x)
{
	return enter(m, op, 1, &x, NULL);
}

Ref enter2(Maker *m, Op op, Ref x, Ref y)
{
	return enter(m, op, 2, (Ref[]){x, y}, NULL);
}

Ref as_type(Maker *m, Ref x, Elem type)
{
	return enter(m, O_cast, 1, &x, &(Attr){.n = 1, .i = {type}});
}

Ref as_shape(Maker *m, Ref x, const Shape *s)
{
	Attr attr = {.n = s->rank};
	memcpy(attr.i, s->dim, sizeof *attr.i * (size_t)s->rank);
	return enter(m, O_reshape, 1, &x, &attr);
}

Ref with_axis(Maker *m, Ref x)
{
	Shape s = *shape_at(m, x);
	return s.rank ? x : as_shape(m, x, &(Shape){.rank = 1, .dim = {1}});
}

// ---- slots, constants -----------------------------------------------------------------

Elem any_type(Maker *m)
{
	return draw(m, 3) ? E_f32 : (Elem)draw(m, ELEMS);
}

static Elem float_type(Maker *m)
{
	static const Elem types[] = {E_f64, E_f16, E_bf16};
	return draw(m, 8) ? E_f32 : types[draw(m, COUNT(types))];
}

void *random_bytes(Maker *m, Elem type, const Shape *shape, int64_t below)
{
	int64_t n = count_of(shape);
	Array a = {.type = type, .shape = *shape, .f = NEWS(m->made.arena, double, n + 1)};
	for (int64_t i = 0; i < n; i++) {
		if (is_float(type))
			a.f[i] = (double)draw(m, 4001) / 1000 - 2 + (double)draw(m, 8) / 65536;
		else if (below)
			a.i[i] = (int64_t)draw(m, (uint64_t)below);
		else
			a.i[i] = (int64_t)draw(m, 9) - (is_signed(type) ? 4 : 0);
		if (type == E_b8)
			a.i[i] &= 1;
	}
	void *bytes = take(m->made.arena, 8 * (size_t)n + 8);
	array_to(&a, bytes);
	return bytes;
}

Ref new_slot(Maker *m, Elem type, Shape shape, const void *bytes)
{
	static const SlotKind kinds[] = {S_input,  S_input,  S_param, S_param,
	                                 S_frozen, S_buffer, S_state};
	bool real = is_float(type);
	Slot slot = {.name = format(m->made.arena, "s%d", m->made.g->slots.count),
	             .kind = kinds[draw(m, real ? COUNT(kinds) : 2)],
	             .type = type,
	             .shape = shape};
	if (type != E_f32 && slot.kind == S_param) // parameters are f32, as in the reader
		slot.kind = S_state;
	Array a = array_from(m->made.arena, type, &shape, bytes);
	PUSH(m->made.arena, m->slots, a);
	return put_slot(m->made.g, add_slot(m->made.g, slot));
}

Ref new_weight(Maker *m, Shape shape, int64_t fan)
{
	limit_size(m, &shape);
	float *w = random_bytes(m, E_f32, &shape, 0);
	for (int64_t i = 0; i < count_of(&shape); i++)
		w[i] *= 1 / sqrtf((float)fan);
	Slot slot = {.name = format(m->made.arena, "s%d", m->made.g->slots.count),
	             .kind = S_param,
	             .type = E_f32,
	             .shape = shape};
	Array a = array_from(m->made.arena, E_f32, &shape, w);
	PUSH(m->made.arena, m->slots, a);
	return put_slot(m->made.g, add_slot(m->made.g, slot));
}

Ref new_leaf(Maker *m, Elem type, Shape shape)
{
	limit_size(m, &shape);
	const void *bytes = random_bytes(m, type, &shape, 0);
	return draw(m, 8) ? new_slot(m, type, shape, bytes)
	                  : put_const(m->made.g, type, shape, bytes);
}

int64_t any_size(Maker *m)
{
	static const int64_t small[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 64},
	                     large[] = {1, 3, 8, 16, 33, 64, 100, 128, 257, 512};
	return m->made.large ? large[draw(m, COUNT(large))] : small[draw(m, COUNT(small))];
}

static Shape any_shape(Maker *m)
{
	Shape s = {.rank = (int)draw(m, MOST_RANK + 1)};
	int64_t room = draw(m, 6) ? 600 : 4000;
	for (int a = 0; a < s.rank; a++) {
		int64_t size = any_size(m);
		s.dim[a] = MIN(size, room);
		room /= s.dim[a];
	}
	return s;
}

// Returns a shape with many rows.
static Shape large_shape(Maker *m)
{
	static const int64_t rows[] = {300, 512, 1025, 2000}, columns[] = {17, 64, 96, 100, 128};
	Shape s = {.rank = 2 + (int)draw(m, 2), .dim = {1, 1, 1}};
	s.dim[draw(m, (uint64_t)s.rank - 1)] = rows[draw(m, COUNT(rows))];
	s.dim[s.rank - 1] = columns[draw(m, COUNT(columns))];
	return s;
}

// ---- operands -------------------------------------------------------------------------

static Ref any_value(Maker *m)
{
	uint64_t late = draw(m, 2) ? (uint64_t)m->pool.count : MIN(3, (uint64_t)m->pool.count);
	return m->pool.at[(uint64_t)m->pool.count - 1 - draw(m, late)];
}

Ref as_float(Maker *m, Ref x)
{
	return class_at(m, x) == 'f' && !draw(m, 3) ? x : as_type(m, x, E_f32);
}

Ref as_integer(Maker *m, Ref x)
{
	return strchr("iu", class_at(m, x)) ? x : as_type(m, x, (Elem)(E_i64 + (Elem)draw(m, 8)));
}

bool broadcasts(const Shape *a, const Shape *b)
{
	bool fits = a->rank == b->rank;
	for (int k = 0; fits && k < a->rank; k++)
		fits = a->dim[k] == b->dim[k] || a->dim[k] == 1 || b->dim[k] == 1;
	return fits || !a->rank || !b->rank;
}

Ref partner(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	Elem type = value(m, x)->type;
	for (int tries = 0; tries < 6; tries++) {
		Ref y = any_value(m);
		if (y != x && broadcasts(shape_at(m, y), &s))
			return as_type(m, y, type);
	}
	Shape part = s;
	for (int a = 0; a < part.rank; a++)
		if (!draw(m, 3))
			part.dim[a] = 1;
	if (!draw(m, 10))
		part.rank = 0;
	return new_leaf(m, type, part);
}

Ref condition(Maker *m, Ref x)
{
	static const Op compare[] = {O_eq, O_lt, O_le};
	Ref y = partner(m, x);
	if (class_at(m, y) == 'b')
		return y;
	return enter2(m, compare[draw(m, COUNT(compare))], x, y);
}

int any_axes(Maker *m, Ref x, int64_t *axes)
{
	int n = 0, rank = shape_at(m, x)->rank;
	for (int a = 0; a < rank; a++)
		if (!draw(m, 3))
			axes[n++] = a;
	if (!n)
		axes[n++] = draw(m, 2) ? rank - 1 : (int64_t)draw(m, (uint64_t)rank);
	return n;
}

// ---- a graph --------------------------------------------------------------------------

static Ref put_step(Maker *m)
{
	Step *step = random_steps[draw(m, (uint64_t)random_step_count)];
	if (setjmp(m->too_large))
		return m->pool.at[0];
	return step(m, any_value(m));
}

static Ref put_layer(Maker *m, Step *layer, Ref x)
{
	if (setjmp(m->too_large))
		return x;
	return layer(m, x);
}

// Keeps a value of moderate size, scaled if necessary. Floats narrower than f32 are only stored:
// graphs do not compute in them.
static void keep_value(Maker *m, Ref r)
{
	const Shape *s = shape_at(m, r);
	if (count_of(s) == 0 || is_too_large(m, s) || s->rank > MOST_RANK)
		return;
	if (value(m, r)->type == E_f16 || value(m, r)->type == E_bf16)
		r = as_type(m, r, E_f32);
	catch_up(m);
	double size = size_of(&m->values.at[r]);
	if (!(size < 1e30)) // results computed from it could overflow f32
		return;
	Ref half = put_num(m->made.g, value(m, r)->type, exp2(-ceil(log2(size / 2))));
	if (size > largest_kept)
		r = enter2(m, O_mul, r, half);
	PUSH(m->made.arena, m->pool, r);
}

static void add_outs(Maker *m)
{
	int outs = 1 + (int)draw(m, 4);
	for (int k = 0; k < outs; k++) {
		Ref r = k ? any_value(m) : m->pool.at[m->pool.count - 1];
		if (class_at(m, r) == 'f')
			r = as_type(m, r, E_f32); // the type of losses
		add_out(m->made.g, format(m->made.arena, "o%d", k), r);
	}
}

// Stores values in buffers and states of their shape.
static void add_stores(Maker *m)
{
	Graph *g = m->made.g;
	for (int k = 0; k < g->slots.count; k++) {
		const Slot *s = &g->slots.at[k];
		if (s->kind != S_buffer && s->kind != S_state)
			continue;
		for (int tries = 0; tries < 10; tries++) {
			Ref r = any_value(m);
			if (!same_shape(shape_at(m, r), &s->shape))
				continue;
			Ref stored = as_type(m, r, g->slots.at[k].type);
			if (value(m, stored)->op == O_slot) // another store may change it
				continue;
			add_store(g, k, stored);
			break;
		}
	}
}

// A network: a few layers, one on the other, and perhaps a loss.
static void put_network(Maker *m)
{
	const Layers *layers = draw(m, 2) ? &image_layers : &sequence_layers;
	Ref x = layers->start(m);
	keep_value(m, x);
	for (int i = 1 + (int)draw(m, 4); i > 0; i--) {
		Step *layer = layers->layer[draw(m, (uint64_t)layers->count)];
		keep_value(m, put_layer(m, layer, m->pool.at[m->pool.count - 1]));
	}
	if (draw(m, 2))
		keep_value(m, put_layer(m, put_classified, m->pool.at[m->pool.count - 1]));
}

static void put_steps(Maker *m)
{
	int count =
	    m->made.large ? 2 + (int)draw(m, FEW) : FEWEST + (int)draw(m, MOST - FEWEST + 1);
	for (int i = 0; i < 2 || !m->pool.count; i++) {
		Shape shape = m->made.large ? large_shape(m) : any_shape(m);
		Elem type = i ? any_type(m) : float_type(m);
		keep_value(m, new_slot(m, type, shape, random_bytes(m, type, &shape, 0)));
	}
	for (int i = 0; i < count; i++)
		keep_value(m, put_step(m));
}

Random random_graph(Arena *arena, const char *name, uint64_t number, uint64_t large)
{
	Maker m = {.made = {.arena = arena,
	                    .g = graph_new(arena, name, book_builtin()),
	                    .state = number * 0xD1342543DE82EF95u}};
	m.made.large = draw(&m, large) == 0;
	if (m.made.large && draw(&m, 2))
		put_network(&m);
	else
		put_steps(&m);
	add_outs(&m);
	add_stores(&m);
	m.made.slot = m.slots.at;
	return m.made;
}
