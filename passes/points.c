// points.c: copies the weights at which a step takes gradients, for the products that read them.
// An optimizer that averages keeps them as two slots, which every step adds. Products read the sum
// from memory. The update reads both slots anyway, so it adds them again in place of reading the
// sum as well; so do sums over the weights. Where products read a rounded copy, that is the copy.
#include "passes.h"

enum {
	LARGE = 1 << 12, // elements from which it matters
	LIGHT = 8,       // largest weight of maps that are computed again
};

typedef struct Use {
	int slots;    // of its shape that it is computed from, by maps of this weight; MANY: other
	int weight;   // values, too
	bool product; // a product reads it, perhaps through moves
	bool again;   // a map or reduction of its shape reads it
} Use;

enum { MANY = 3 };

typedef struct Points {
	Arena *scratch;
	const Graph *from;
	const Machine *machine;
	const Use *use; // by Ref
} Points;

static void count_slots(const Graph *g, Ref r, Use *use)
{
	const Val *v = val(g, r);
	bool map = prims[v->op].cls == C_map;
	use[r].slots = v->op == O_slot ? 1 : map ? 0 : MANY;
	use[r].weight = map ? prims[v->op].weight : 0;
	for (int k = 0; map && k < v->nin; k++)
		if (same_shape(&val(g, v->in[k])->shape, &v->shape)) {
			use[r].slots = MIN(MANY, use[r].slots + use[v->in[k]].slots);
			use[r].weight = MIN(LIGHT + 1, use[r].weight + use[v->in[k]].weight);
		}
}

// True if v is a rounded operand of products that is stored.
static bool is_copy(const Val *v, const Machine *machine)
{
	return is_half(v->type) && has_matrix(machine);
}

// True if it rounds v for products.
static bool rounds(const Val *v)
{
	return is_tf32(v) || (v->op == O_cast && is_half(v->type));
}

// True if v adds the slots of its operand of this shape again.
static bool adds_again(const Graph *g, const Val *v, const Shape *operand, const Machine *machine)
{
	Class cls = prims[v->op].cls;
	bool sums = cls == C_reduce && v->op != O_cumsum && v->op != O_argmax;
	const Shape *read = sums ? &val(g, v->in[0])->shape : &v->shape;
	return (cls == C_map || sums) && same_shape(operand, read) &&
	       (!rounds(v) || is_copy(v, machine));
}

static const Use *find_uses(Arena *arena, const Graph *g, const Machine *machine)
{
	Use *use = NEWS(arena, Use, g->nval);
	const int *live = graph_uses(arena, g);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		count_slots(g, r, use);
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		Class cls = prims[v->op].cls;
		bool through =
		    (cls == C_move && v->op != O_concat) || (rounds(v) && !is_copy(v, machine));
		for (int k = 0; live[r] && k < v->nin; k++) {
			Use *of = &use[v->in[k]];
			of->product |= cls == C_dot || (through && use[r].product);
			of->again |= adds_again(g, v, &val(g, v->in[k])->shape, machine);
		}
	}
	return use;
}

static bool is_point(const Points *p, Ref r)
{
	const Use *use = &p->use[r];
	const Val *v = val(p->from, r);
	return use->slots == 2 && use->weight <= LIGHT && v->op != O_slot && use->product &&
	       use->again && count_of(&v->shape) >= LARGE;
}

static Ref put_copied(void *points, Graph *to, const Val *v, const Ref *in)
{
	const Points *p = points;
	Ref *copied = NEWS(p->scratch, Ref, v->nin + 1);
	for (int k = 0; k < v->nin; k++) {
		const Val *u = val(p->from, v->in[k]);
		bool copy = is_point(p, v->in[k]) && !adds_again(p->from, v, &u->shape, p->machine);
		copied[k] = copy ? put_cast(to, in[k], u->type) : in[k];
	}
	return put_as(to, v, copied);
}

const Graph *points_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Arena *scratch = arena_within(arena);
	Points p = {scratch, from, machine, find_uses(scratch, from, machine)};
	bool any = false;
	for (Ref r = 1; r < (Ref)from->nval; r++)
		any |= is_point(&p, r);
	const Graph *to = from;
	if (any) {
		Graph *copy = graph_like(arena, from);
		copy_graph(copy, from, NULL, put_copied, &p);
		to = graph_live(arena, copy);
	}
	arena_free(scratch);
	return to;
}
