// precision.c: rounds the operands of products, and the values that kernels hand on between
// products, to the type that the graph names (Graph.products).
// A value is rounded where it is made, so that all that is computed from it, forward and backward,
// reads the same number. Arithmetic stays f32: kernels widen what they read, and products add up in
// f32. Sums and what is computed from them alone (statistics of norms, softmax and losses) are not
// rounded; nor are outputs, what loops carry, and whatever does not lie between two products: the
// optimizer's step, except before Muon's last product, and masks, positions and tables, whose
// numbers may be large. TF32 has no type of its own: products round what they read, and no value
// in memory is rounded. In f16, which has no numbers above 65504, values are not rounded that
// constants above it go into, such as masks of scores; and what follows from gradients that are not
// scaled is rounded to bf16, which has the range of f32. Attention on matrix instructions rounds
// operands as products do, and inside of its kernel probabilities and the gradients of scores.
// A loop's body has products that are rounded to bf16, too. What they alone read of its operands is
// rounded before the loop if it stays the same in all iterations, or where it is made if it is
// carried; what the loop stacks for products is rounded in it.
#include "index.h"
#include "passes.h"
#include <math.h>

enum {
	DEPTH = 16,  // least sum of products that is worth rounding
	MANY = 4096, // elements from which a value in memory is rounded
};

typedef struct Precision Precision;
struct Precision {
	const Graph *from;
	int *product;     // by Ref of `from`: so many of its first operands are rounded
	bool *handed;     // it is rounded where it is made
	bool *factor;     // a product reads it, perhaps through moves
	bool *unscaled;   // it depends on gradients that are not scaled
	Ref *rounded;     // its copy in the type of products, of factors
	Precision **body; // of the loop; NULL: it has no products that are rounded
	bool *low;        // by slot of a body: it holds what its products read
	bool *low_result; // by result of a loop with this body: it is rounded
};

// The table: which values may be rounded where they are stored.
static bool may_round(const Graph *g, const Val *v)
{
	switch (prims[v->op].cls) {
	case C_map:
	case C_move:
	case C_dot:
	case C_index:
		return true;
	case C_composite:
		return v->op != O_attend_stats && v->op != O_attend_db;
	case C_reduce:
		return reduces_windows(g, v);
	default:
		return false;
	}
}

// True if v is a sum, or computed from sums alone.
static bool is_statistic(const Graph *g, const Val *v, const bool *statistic)
{
	Class cls = prims[v->op].cls;
	if (cls == C_reduce)
		return !reduces_windows(g, v);
	bool some = false, all = cls == C_map || cls == C_move;
	for (int k = 0; k < v->nin && all; k++) {
		bool full = count_of(&val(g, v->in[k])->shape) == count_of(&v->shape);
		some |= full && statistic[v->in[k]];
		all = !full || statistic[v->in[k]];
	}
	return all && some;
}

// True for a constant, or a weight that is not trained, with numbers that f16 does not hold.
static bool exceeds_f16(const Graph *g, const Val *v)
{
	const double MOST = 65504;
	const Slot *slot = v->op == O_slot ? &g->slots.at[v->attr->i[0]] : NULL;
	const void *data = !slot ? v->data : slot->kind == S_frozen ? slot->init : NULL;
	if (!is_float(v->type) || !data)
		return false;
	const Val known = {.type = v->type, .data = data};
	for (int64_t i = 0, n = count_of(&v->shape); i < n; i++) {
		double x = fabs(const_at(&known, i));
		if (x > MOST && x < INFINITY)
			return true;
	}
	return false;
}

// Finds the values that may lie outside of f16's range because of such numbers.
static bool *find_large(Arena *scratch, const Graph *g)
{
	bool *large = NEWS(scratch, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		bool bounded = v->op == O_exp || v->op == O_tanh || v->type == E_b8;
		bool passes = (prims[v->op].cls == C_map || prims[v->op].cls == C_move) && !bounded;
		large[r] = exceeds_f16(g, v);
		for (int k = 0; k < v->nin && passes; k++)
			large[r] |= large[v->in[k]];
	}
	return large;
}

static void find_unscaled(Precision *p)
{
	const Graph *g = p->from;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		p->unscaled[r] = g->products == E_f16 && is_unscaled(g, val(g, r));
		for (int k = 0; k < val(g, r)->nin; k++)
			p->unscaled[r] |= p->unscaled[val(g, r)->in[k]];
	}
}

// Returns the type that value r is rounded to.
static Elem low_type(const Precision *p, Ref r)
{
	return p->unscaled[r] ? E_bf16 : p->from->products;
}

// Returns how many operands of attention are those of its products, if these read bf16.
static int attention_factors(const Graph *g, const Val *v, const Machine *machine)
{
	if (!is_attention(v->op) || !attend_matrix(g, v, machine))
		return 0;
	return v->op == O_attend_stats ? 2 : v->op == O_attend ? 3 : 4;
}

static Precision *precision_new(Arena *scratch, const Graph *g)
{
	Precision *p = NEW(scratch, Precision);
	*p = (Precision){.from = g,
	                 .product = NEWS(scratch, int, g->nval),
	                 .handed = NEWS(scratch, bool, g->nval),
	                 .factor = NEWS(scratch, bool, g->nval),
	                 .unscaled = NEWS(scratch, bool, g->nval),
	                 .rounded = NEWS(scratch, Ref, g->nval),
	                 .body = NEWS(scratch, Precision *, g->nval),
	                 .low = NEWS(scratch, bool, g->slots.count + 1),
	                 .low_result = NEWS(scratch, bool, g->outs.count + 1)};
	return p;
}

static Precision *look_into(Arena *scratch, const Val *v, const bool *weighed,
                            const Machine *machine);

// Finds the products worth rounding, one operand of which comes from a weight or another product.
// of_slot: which slots do.
static void find_products(Arena *scratch, Precision *p, const bool *of_slot, bool *after,
                          const Machine *machine)
{
	const Graph *g = p->from;
	bool *weighed = NEWS(scratch, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		weighed[r] = v->op == O_slot && of_slot[v->attr->i[0]];
		for (int k = 0; k < v->nin; k++) {
			weighed[r] |= weighed[v->in[k]];
			after[r] |= after[v->in[k]];
		}
		bool rounds = v->op == O_dot && v->type == E_f32 && (weighed[r] || after[r]) &&
		              last_dim(&val(g, v->in[0])->shape) >= DEPTH;
		p->product[r] = rounds ? 2 : attention_factors(g, v, machine);
		if (v->op == O_loop && g->products == E_bf16)
			p->body[r] = look_into(scratch, v, weighed, machine);
		after[r] |= p->product[r] || is_attention(v->op) || p->body[r];
	}
}

// Returns the products of the body of loop v; NULL: there are none to round.
static Precision *look_into(Arena *scratch, const Val *v, const bool *weighed,
                            const Machine *machine)
{
	const Graph *body = loop_of(v).body;
	Precision *p = precision_new(scratch, body);
	bool *after = NEWS(scratch, bool, body->nval), any = false;
	bool *of_slot = NEWS(scratch, bool, body->slots.count + 1);
	for (int k = 0; k < body->slots.count; k++)
		of_slot[k] = weighed[v->in[1 + k]];
	find_products(scratch, p, of_slot, after, machine);
	for (Ref r = 1; r < (Ref)body->nval; r++)
		any |= p->product[r] || p->body[r];
	return any ? p : NULL;
}

// True for what a loop with products stacks.
static bool is_stacked(const Precision *p, const Val *v)
{
	return v->op == O_result && p->body[v->in[0]] &&
	       v->attr->i[0] >= loop_of(val(p->from, v->in[0])).carried;
}

// Finds the values in memory that are rounded: `after` a product.
static void find_handed(Arena *scratch, Precision *p, const bool *after, const Machine *machine)
{
	const Graph *g = p->from;
	bool *statistic = NEWS(scratch, bool, g->nval), *before = NEWS(scratch, bool, g->nval);
	bool *exact = NEWS(scratch, bool, g->nval);
	const bool *large = g->products == E_f16 ? find_large(scratch, g) : NULL;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		statistic[r] = is_statistic(g, val(g, r), statistic);
		exact[r] = large && large[r];
	}
	for (int i = 0; i < g->outs.count; i++)
		exact[g->outs.at[i].val] = true;
	for (int i = 0; i < g->stores.count; i++)
		exact[g->stores.at[i].val] = true;
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		for (int k = 0; k < v->nin; k++) {
			exact[v->in[k]] |=
			    v->op == O_loop || (exact[r] && prims[v->op].cls == C_move);
			before[v->in[k]] |= before[r] || p->product[r] || is_attention(v->op);
		}
	}
	const Plan *plan = fuse_pass(scratch, g, "", machine);
	for (int i = 0; i < plan->kerns.count; i++)
		for (int k = 0; k < plan->kerns.at[i].nout; k++) {
			Ref r = plan->kerns.at[i].out[k];
			const Val *v = val(g, r);
			p->handed[r] = v->type == E_f32 && after[r] && before[r] && !exact[r] &&
			               !statistic[r] && (may_round(g, v) || is_stacked(p, v)) &&
			               count_of(&v->shape) >= MANY;
		}
}

// Moves of what is rounded are moves of fewer bytes.
static bool passes_on(const Precision *p, Ref r)
{
	return prims[val(p->from, r)->op].cls == C_move && !p->handed[r];
}

// True if operand k of r is one of a loop that holds what its products read.
static bool holds_low(const Precision *p, Ref r, int k)
{
	return p->body[r] && k > 0 && p->body[r]->low[k - 1];
}

static void find_factors(Precision *p)
{
	const Graph *g = p->from;
	for (Ref r = (Ref)g->nval - 1; r > 0; r--)
		for (int k = 0; k < val(g, r)->nin; k++)
			p->factor[val(g, r)->in[k]] |= k < p->product[r] || holds_low(p, r, k) ||
			                               (p->factor[r] && passes_on(p, r));
}

// Finds the operands of a loop, fixed or carried, which its products alone read.
static void find_low(Arena *scratch, Precision *p, const LoopInfo *l, const bool *used)
{
	const Graph *g = p->from;
	bool *exact = NEWS(scratch, bool, g->nval);
	for (int i = 0; i < g->outs.count; i++)
		exact[g->outs.at[i].val] |= i < l->until || !p->low_result[i - l->until];
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		bool moves = p->factor[r] && passes_on(p, r) && !exact[r];
		for (int k = 0; k < v->nin; k++)
			exact[v->in[k]] |= k >= p->product[r] && !holds_low(p, r, k) && !moves;
		if (v->op != O_slot)
			continue;
		int64_t slot = v->attr->i[0];
		bool carried = slot < l->carried && !used[slot];
		p->low[slot] =
		    p->factor[r] && !exact[r] && (carried || slot >= l->carried + l->scanned);
	}
	for (int k = 0; k < l->carried; k++)
		p->low_result[k] = p->low[k];
}

// Chooses what is rounded in the bodies of loops, and of loops in them.
static void settle_bodies(Arena *scratch, const Precision *p)
{
	for (Ref r = 1; r < (Ref)p->from->nval; r++) {
		Precision *own = p->body[r];
		if (!own)
			continue;
		LoopInfo l = loop_of(val(p->from, r));
		bool *used = NEWS(scratch, bool, loop_results(&l) + 1);
		for (Ref u = r + 1; u < (Ref)p->from->nval; u++) {
			const Val *v = val(p->from, u);
			if (v->op != O_result || v->in[0] != r)
				continue;
			used[v->attr->i[0]] = true;
			own->low_result[v->attr->i[0]] = p->handed[u];
		}
		settle_bodies(scratch, own);
		find_factors(own);
		find_low(scratch, own, &l, used);
	}
}

static Ref put_tf32_product(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Precision *p = context;
	Ref *low = NEWS(to->arena, Ref, v->nin + 1);
	for (int k = 0; k < v->nin; k++)
		low[k] = k < p->product[ref_of(p->from, v)] ? put_tf32(to, in[k]) : in[k];
	return put_as(to, v, low);
}

static Ref put_rounded(void *context, Graph *to, const Val *v, const Ref *in);

static Ref put_rounded_loop(Precision *p, Graph *to, const Val *v, const Ref *in)
{
	Ref r = ref_of(p->from, v), *operand = take_copy(to->arena, in, sizeof *in * v->nin);
	LoopInfo l = loop_of(v);
	Graph *body = graph_like(to->arena, l.body);
	for (int k = 1; k < v->nin; k++)
		if (holds_low(p, r, k)) {
			operand[k] = p->rounded[v->in[k]];
			body->slots.at[k - 1].type = val(to, operand[k])->type;
		}
	const Precision *own = p->body[r];
	copy_graph(body, l.body, NULL, put_rounded, p->body[r]);
	for (int i = l.until; i < body->outs.count; i++) {
		Ref was = l.body->outs.at[i].val, *out = &body->outs.at[i].val;
		if (own->low_result[i - l.until]) // products of the body may read it
			*out = own->factor[was] ? own->rounded[was] : put_cast(body, *out, E_bf16);
	}
	l.body = body;
	return put_loop(to, &l, operand);
}

static Ref put_rounded(void *context, Graph *to, const Val *v, const Ref *in)
{
	Precision *p = context;
	Ref r = ref_of(p->from, v), *low = NEWS(to->arena, Ref, v->nin + 1);
	if (p->body[r])
		return put_rounded_loop(p, to, v, in);
	bool low_slot = v->op == O_slot && p->low[v->attr->i[0]];
	if (low_slot || (v->op == O_result && p->handed[r])) {
		p->rounded[r] = put_as(to, v, in);
		return put_cast(to, p->rounded[r], E_f32);
	}
	for (int k = 0; k < v->nin; k++) {
		low[k] = p->rounded[v->in[k]];
		if (is_attention(v->op)) // of one type with its operands
			low[k] = k < p->product[r] ? put_cast(to, low[k], E_f32) : in[k];
	}
	Ref x = put_as(to, v, p->product[r] ? low : in);
	if (p->handed[r])
		x = put_cast(to, put_cast(to, x, low_type(p, r)), E_f32);
	if (p->factor[r])
		p->rounded[r] = passes_on(p, r) ? put(to, v->op, v->nin, low, v->attr)
		                                : put_cast(to, x, low_type(p, r));
	return x;
}

Graph *precision_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Arena *scratch = arena_within(arena);
	Precision *p = precision_new(scratch, from);
	bool *after = NEWS(scratch, bool, from->nval);
	bool *weighed = NEWS(scratch, bool, from->slots.count + 1);
	Graph *to = graph_like(arena, from);
	for (int k = 0; k < from->slots.count; k++)
		weighed[k] = from->slots.at[k].kind != S_input;
	find_products(scratch, p, weighed, after, machine);
	if (from->products == E_f32) {
		copy_graph(to, from, NULL, put_tf32_product, p);
		arena_free(scratch);
		return to;
	}
	find_unscaled(p);
	find_handed(scratch, p, after, machine);
	settle_bodies(scratch, p);
	find_factors(p);
	copy_graph(to, from, NULL, put_rounded, p);
	arena_free(scratch);
	return to;
}

void check_precision(const Graph *g, const Machine *machine, const char *target)
{
	if (g->products == E_f32 && (!has_block_matrix(machine) || machine->exact))
		fail_status(STATUS_USAGE, "--precision",
		            "code for %s has no instructions for tf32" HELP
		            "give --target cuda:sm_80 or newer, or --precision f32",
		            target);
}
