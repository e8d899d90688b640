// eval.c: evaluates graphs, as the reference for all backends.
// Written for reading, not for speed. This file has leaves, loops, composites, the choice by
// primitive, and graphs; eval_map.c, eval_reduce.c and eval_move.c have the rest. Output: arrays of
// double or int64. Invariant: integers wrap to their type, floats stay double.
#include "eval.h"
#include <math.h>

// ---- leaves ---------------------------------------------------------------------------

static uint64_t mix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

static uint32_t mix32(uint32_t h)
{
	h = (h ^ h >> 16) * 0x85EBCA6Bu;
	h = (h ^ h >> 13) * 0xC2B2AE35u;
	return h ^ h >> 16;
}

double random_uniform(uint64_t seed, uint64_t step, uint64_t site, uint64_t position)
{
	uint64_t k = mix64(mix64(mix64(seed) + step) + site);
	uint32_t low = (uint32_t)position * 0x9E3779B1u + (uint32_t)k;
	uint32_t high = (uint32_t)(k >> 32) ^ (uint32_t)(position >> 32) * 0x85EBCA77u;
	return (double)(mix32(mix32(low) ^ high) >> 8) * 0x1p-24;
}

// ---- loops ----------------------------------------------------------------------------

static void copy_elements(Array *to, int64_t first, const Array *from)
{
	for (int64_t i = 0, n = count_of(&from->shape); i < n; i++)
		copy_element(to, first + i, from, i);
}

static Array eval_loop(Arena *arena, const Val *v, const Array *in, Touch *touch, void *context)
{
	LoopInfo l = loop_of(v);
	int results = loop_results(&l);
	Array *slot = take_copy(arena, in + 1, sizeof *in * (size_t)(loop_operands(&l) - 1));
	Array *result = NEWS(arena, Array, results + 1); // carried: before the iteration
	Array *next = NEWS(arena, Array, l.carried + 1); // and after it
	for (int k = 0; k < results; k++) {
		Elem type = result_val(&l, k)->type;
		Shape shape = result_shape(&l, k);
		result[k] = array_new(arena, type, &shape);
		if (k >= l.carried)
			continue;
		next[k] = array_new(arena, type, &shape);
		copy_elements(&result[k], 0, &in[1 + k]);
	}
	int64_t limit = MAX(0, MIN(in[0].i[0], l.trips)), n = 0;
	for (bool more = true; more && n < limit; n++) {
		Arena *own = arena_within(arena);
		int64_t at = l.reverse ? limit - 1 - n : n; // the element of scanned values
		for (int k = 0; k < l.carried; k++)
			slot[k] = result[k];
		for (int k = l.carried; k < l.carried + l.scanned; k++) {
			slot[k].shape = l.body->slots.at[k].shape;
			int64_t first = at * count_of(&slot[k].shape);
			if (is_float(slot[k].type))
				slot[k].f = in[1 + k].f + first;
			else
				slot[k].i = in[1 + k].i + first;
		}
		const Array *value = eval_touched(own, l.body, slot, touch, context);
		for (int k = 0; k < results; k++) {
			const Array *from = &value[result_ref(&l, k)];
			if (k < l.carried)
				copy_elements(&next[k], 0, from);
			else
				copy_elements(&result[k], at * count_of(&from->shape), from);
		}
		for (int k = 0; k < l.carried; k++) {
			Array before = result[k];
			result[k] = next[k];
			next[k] = before;
		}
		more = !l.until || value[l.body->outs.at[0].val].i[0];
		arena_free(own);
	}
	Array out = array_new(arena, E_i64, &(Shape){0});
	out.i[0] = n;
	out.part = result;
	return out;
}

// ---- composites -----------------------------------------------------------------------

// Evaluates the definition in the book, in a graph of doubles. Its cost is that of one primitive,
// so its own arena has no budget.
static void eval_composite(Arena *arena, Op op, const Attr *attr, Array *out, int nin,
                           const Array *in)
{
	Arena *own = arena_within(arena);
	arena_limit(own, NULL);
	Graph *g = graph_new(own, prims[op].name, book_builtin());
	g->plain = DECOMPOSED_ALL;
	Ref *x = NEWS(own, Ref, nin);
	for (int k = 0; k < nin; k++) {
		Elem type = is_float(in[k].type) ? E_f64 : in[k].type;
		Slot slot = {.name = format(own, "x%d", k), .type = type, .shape = in[k].shape};
		x[k] = put_slot(g, add_slot(g, slot));
	}
	Val v = {.op = op, .type = E_f64, .nin = nin, .in = x, .attr = attr};
	add_out(g, "y", book_decompose(g, &v, x));
	copy_elements(out, 0, &eval_graph(own, g, in)[g->outs.at[0].val]);
	arena_free(own);
}

// ---- any primitive, a graph -----------------------------------------------------------

Array eval_prim(Arena *arena, Op op, const Attr *attr, Elem elem, const Shape *shape, int nin,
                const Array *in)
{
	if (op == O_result)
		return in[0].part[attr->i[0]];
	// The cost is the number of elements read or written; for products, of multiplications.
	double count = (double)count_of(shape), most = 0;
	for (int k = 0; k < nin; k++)
		most += (double)count_of(&in[k].shape);
	if (op == O_dot)
		most =
		    sqrt((double)count_of(&in[0].shape) * (double)count_of(&in[1].shape) * count);
	if (is_attention(op))
		most *= (double)in[1].shape.dim[in[1].shape.rank - 2];
	spend(arena, COST_elements, (uint64_t)MAX(count, most));
	Array out = array_new(arena, elem, shape);
	int64_t at[RANK] = {0};
	if (count == 0)
		return out;
	switch (prims[op].cls) {
	case C_leaf:
		for (int64_t i = 0; op == O_rand && i < count; i++)
			out.f[i] = random_uniform((uint64_t)in[0].i[0], (uint64_t)in[1].i[0],
			                          (uint64_t)attr->i[0], (uint64_t)i);
		for (int64_t i = 0; op == O_iota && i < count; next_index(shape, at))
			out.i[i++] = at[attr->i[0]];
		break;
	case C_map:
		eval_map(op, attr, &out, nin, in);
		break;
	case C_reduce:
		eval_reduce(op, attr, &out, in);
		break;
	case C_move:
		eval_move(op, attr, &out, nin, in);
		break;
	case C_dot:
		eval_dot(&out, &in[0], &in[1]);
		break;
	case C_index:
		eval_index(op, attr, &out, in);
		break;
	case C_composite:
		eval_composite(arena, op, attr, &out, nin, in);
		break;
	case C_loop:
		never("a loop without its body");
	}
	return out;
}

Array eval_value(Arena *arena, const Graph *g, Ref r, const Array *slot, const Array *in,
                 Touch *touch, void *context)
{
	const Val *v = val(g, r);
	if (v->op == O_const)
		return array_from(arena, v->type, &v->shape, v->data);
	if (v->op == O_slot)
		return slot[v->attr->i[0]];
	if (v->op == O_loop)
		return eval_loop(arena, v, in, touch, context);
	return eval_prim(arena, v->op, v->attr, v->type, &v->shape, v->nin, in);
}

Array *eval_touched(Arena *arena, const Graph *g, const Array *slot, Touch *touch, void *context)
{
	const int *live = graph_uses(arena, g);
	Array *result = NEWS(arena, Array, g->nval), *in = NULL;
	int room = 0;
	for (int r = 1; r < g->nval; r++) {
		const Val *v = val(g, r);
		if (!live[r])
			continue;
		while (room < v->nin)
			in = grow(arena, in, sizeof *in, &room);
		for (int k = 0; k < v->nin; k++)
			in[k] = result[v->in[k]];
		result[r] = eval_value(arena, g, r, slot, in, touch, context);
		if (touch)
			touch(context, arena, v, &result[r]);
	}
	return result;
}

Array *eval_graph(Arena *arena, const Graph *g, const Array *slot)
{
	return eval_touched(arena, g, slot, NULL, NULL);
}
