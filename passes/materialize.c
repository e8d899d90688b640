// materialize.c: decides which values are stored.
// Marks reductions, dots, scatters, running sums, outputs and stores, and maps that cost more to
// recompute than to keep. A reduction over the few elements of a window counts as a map. A marked
// value is stored only if another kernel reads it.
#include "index.h"
#include "passes.h"

enum {
	AGAIN = 24,     // largest weight of an expression that is recomputed rather than stored
	PANEL = 8,      // the same, if a dot packs it or a map broadcasts it, perhaps repeatedly
	PIECE = 4,      // weight of a pad or concat
	PIECES = 100,   // weight from which a concat is stored: each reader has code for all pieces
	ENOUGH = 1000,  // limit of weights: shared operands count once per path
	SLOW = 4,       // weight of a map that takes several times as long as an addition
	SMALL = 64,     // elements of a window whose reduction is an expression
	PART = 4,       // a gather of at most one in so many elements reads few
	VAST = 1 << 20, // elements from which a product plus another value is stored
	ROUNDED = 1 << 12, // elements from which a copy in f16 or bf16 is stored
	DEEP = 200,        // largest depth of an expression, which is walked recursively
};

typedef struct Want { // how a value is used
	int readers;
	bool kept;       // an output, a store, or read by a loop
	bool broadcast;  // a map or expand repeats its elements
	bool moved;      // read at other indices than its own
	bool panel;      // operand of a dot, scatter or running sum
	bool mapped;     // a map or reduction reads it, at its own index
	bool factor;     // a dot reads it
	bool product;    // a dot reads it, perhaps through moves
	bool rounded;    // products read its copy in f16 or bf16
	bool derivative; // of an activation after a product
	bool whole;    // a dot, or what is not computed at its index, reads more than few elements
	bool summed;   // a reduction over windows reads it, perhaps through maps
	int64_t times; // that such a reduction reads each element, as part of other windows
} Want;

typedef struct Cone { // the expression of a value, down to values in memory
	Effort effort;
	int weight;
	int nbig;
	Ref big[2]; // values in memory of its own size
	bool reads; // it reads values in memory
	bool tail;  // elementwise after a dot, whose tile it can be computed on
	bool slow;  // it divides or takes roots
} Cone;

// True if v is a copy in f16 or bf16 of many elements with more bits.
static bool rounds(const Graph *g, const Val *v)
{
	return v->op == O_cast && is_half(v->type) &&
	       elems[val(g, v->in[0])->type].bytes > elems[v->type].bytes &&
	       count_of(&v->shape) >= ROUNDED;
}

// What a value is computed from: slots and constants by maps and moves, and the elements of at most
// one product by maps.
typedef struct Chain {
	bool other;  // it is computed otherwise
	Ref product; // or 0
	int weight;  // of all maps
} Chain;

static Chain chain_of(const Graph *g, Ref r, const Chain *chain)
{
	const Val *v = val(g, r);
	Class cls = prims[v->op].cls;
	bool map = cls == C_map, leaf = cls == C_leaf && v->op != O_rand;
	if (v->op == O_dot)
		return (Chain){.product = r};
	Chain c = {.other = !map && !leaf && cls != C_move};
	c.weight = map ? prims[v->op].weight : 0;
	for (int k = 0; k < v->nin; k++) {
		const Val *u = val(g, v->in[k]);
		const Chain *in = &chain[v->in[k]];
		bool same =
		    count_of(&u->shape) == count_of(&v->shape) &&
		    (map || (v->op == O_reshape && last_dim(&u->shape) == last_dim(&v->shape)));
		c.other |= in->other || (in->product && !same) ||
		           (in->product && c.product && in->product != c.product);
		c.product = MAX(c.product, in->product);
		c.weight = MIN(ENOUGH, c.weight + in->weight);
	}
	return c;
}

static const Chain *chains(Arena *arena, const Graph *g)
{
	Chain *chain = NEWS(arena, Chain, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		chain[r] = chain_of(g, r, chain);
	return chain;
}

static bool widens(const Graph *g, const Val *v)
{
	return v->op == O_cast && elems[val(g, v->in[0])->type].bytes < elems[v->type].bytes;
}

// Marks the derivatives of activations: costly functions of one product by which the gradient of
// another is multiplied. The kernel of the first has all that they are computed from.
static void find_derivatives(Arena *arena, const Graph *g, const int *live, Want *want)
{
	const Chain *chain = chains(arena, g);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		for (int k = 0; live[r] && v->op == O_mul && chain[r].other && k < v->nin; k++) {
			Ref u = v->in[k];
			const Chain *c = &chain[u];
			if (widens(g, val(g, u)))
				u = val(g, u)->in[0];
			want[u].derivative |= c->product && !c->other && c->weight > AGAIN;
		}
	}
}

// True if maps of windows are computed from r, of their shape.
static bool from_windows(const Graph *g, Ref r, int depth)
{
	const Val *v = val(g, r);
	bool found = v->op == O_window || (v->op == O_permute && val(g, v->in[0])->op == O_window);
	if (prims[v->op].cls != C_map || depth > 6)
		return found;
	for (int k = 0; k < v->nin && !found; k++)
		found = same_shape(&val(g, v->in[k])->shape, &v->shape) &&
		        from_windows(g, v->in[k], depth + 1);
	return found;
}

bool reduces_windows(const Graph *g, const Val *v)
{
	return prims[v->op].cls == C_reduce && v->op != O_cumsum && v->op != O_argmax &&
	       count_of(&val(g, v->in[0])->shape) <= SMALL * count_of(&v->shape) &&
	       from_windows(g, v->in[0], 0);
}

// True if it gathers few elements of u.
static bool gathers_few(const Val *v, const Val *u)
{
	return v->op == O_gather && PART * count_of(&v->shape) <= count_of(&u->shape);
}

// Adds to the uses of u those of v, which only renumbers, picks or widens its elements.
static void want_through(const Val *v, const Val *u, const Want *w, bool widened, Want *of)
{
	of->readers += w->readers;
	of->panel |= w->panel;
	of->broadcast |=
	    w->broadcast || v->op == O_expand || count_of(&v->shape) >= 2 * count_of(&u->shape);
	of->moved |= w->moved || (v->op != O_reshape && !widened);
	of->factor |= is_tf32(v) && w->factor;
	of->whole |= w->whole && !gathers_few(v, u);
	of->times = MAX(of->times, w->times);
	if (v->op == O_window && w->summed)
		of->times = count_of(&v->shape) / MAX(1, count_of(&u->shape));
}

// Adds to the uses of u that v is computed from its elements.
static void want_read(const Graph *g, const Val *v, const Val *u, const Want *w, Want *of)
{
	Class cls = prims[v->op].cls;
	bool own_index = cls == C_map || (cls == C_reduce && v->op != O_cumsum);
	bool smaller = cls == C_map && count_of(&u->shape) < count_of(&v->shape);
	of->mapped |= own_index;
	of->factor |= v->op == O_dot;
	of->rounded |= rounds(g, v) && w->product && w->readers > 1;
	of->broadcast |= smaller;
	if (w->summed && smaller && count_of(&u->shape) > 1)
		of->times = MAX(of->times, count_of(&v->shape) / count_of(&u->shape));
	of->moved |= !own_index;
	of->panel |= !own_index;
	of->whole |= !own_index || (w->product && !is_same_value(g, v));
}

static Want *wants(Arena *arena, const Graph *g, const int *live)
{
	Want *want = NEWS(arena, Want, g->nval);
	Ref *reader = NEWS(arena, Ref, g->nval); // the last one so far
	for (int i = 0; i < g->outs.count; i++)
		want[g->outs.at[i].val].kept = true;
	for (int i = 0; i < g->stores.count; i++)
		want[g->stores.at[i].val].kept = true;
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		const Want *w = &want[r];
		Class cls = prims[v->op].cls;
		for (int k = 0; live[r] && k < v->nin; k++) {
			const Val *u = val(g, v->in[k]);
			Want *of = &want[v->in[k]];
			of->kept |= v->op == O_loop && u->op != O_slot && u->op != O_const;
			if (reader[v->in[k]] == r)
				continue;
			reader[v->in[k]] = r;
			// A cast from fewer bytes is not stored, but its operand; nor is what
			// products round themselves.
			bool wide = widens(g, v) || is_tf32(v);
			bool through = cls == C_move || (v->op == O_gather && k == 0) || wide;
			of->readers += !through || w->kept;
			of->product |= v->op == O_dot || (cls == C_move && w->product);
			of->summed |= reduces_windows(g, v) ||
			              (w->summed && v->op != O_window && (through || cls == C_map));
			if (through)
				want_through(v, u, w, wide, of);
			else
				want_read(g, v, u, w, of);
		}
	}
	return want;
}

static void add_big(Cone *c, Ref r)
{
	for (int i = 0; i < MIN(c->nbig, 2); i++)
		if (c->big[i] == r)
			return;
	if (c->nbig < 2)
		c->big[c->nbig] = r;
	c->nbig++;
}

static Cone cone_of(const Graph *g, Ref r, const Cone *cone, const bool *cut, const Want *want)
{
	const Val *v = val(g, r);
	bool map = prims[v->op].cls == C_map, windows = reduces_windows(g, v);
	Cone c = {.effort = {.depth = 1, .windows = windows}}; // slots and most moves cost nothing
	if (v->op == O_pad || v->op == O_concat) // they select a piece for each element
		c.weight = PIECE + v->nin / 8;
	else if (map || v->op == O_rand || v->op == O_iota)
		c.weight = prims[v->op].weight;
	c.slow = map && c.weight >= SLOW;
	int64_t times = windows ? count_of(&val(g, v->in[0])->shape) / count_of(&v->shape) : 1;
	if (windows)
		c.weight = MIN(ENOUGH, (int)times * prims[v->op].weight);
	for (int k = 0; k < v->nin; k++) {
		const Val *u = val(g, v->in[k]);
		const Cone *from = &cone[v->in[k]];
		bool same = count_of(&u->shape) == count_of(&v->shape);
		bool memory = cut[v->in[k]] || u->op == O_slot;
		// v can be computed on a tile of u.
		bool on_tile = map || (v->op == O_reshape && v->shape.rank && u->shape.rank &&
		                       last_dim(&v->shape) == last_dim(&u->shape));
		c.reads |= memory || from->reads;
		c.tail |= same && on_tile &&
		          (u->op == O_dot ? want[v->in[k]].readers == 1 : !memory && from->tail);
		if (!memory) {
			c.weight = MIN(ENOUGH, c.weight + (int)times * from->weight);
			c.effort.depth = MAX(c.effort.depth, from->effort.depth + 1);
			c.effort.windows |= from->effort.windows;
			c.slow |= from->slow;
		}
		if (memory && same)
			add_big(&c, v->in[k]);
		for (int i = 0; !memory && same && i < MIN(from->nbig, 2); i++)
			add_big(&c, from->big[i]);
	}
	if (v->op == O_gather)
		add_big(&c, r);
	return c;
}

// True if v is the copy in f16 or bf16 that matrix instructions of a GPU read as it is, 16 bytes at
// once.
static bool is_copy(const Graph *g, const Val *v, const Want *w, const Machine *machine)
{
	return rounds(g, v) && w->product && has_block_matrix(machine);
}

// True if v is the padded copy of an image in bf16 that a product reads by lines of windows.
static bool is_image(const Graph *g, const Val *v, const Want *w, const Machine *machine)
{
	if (v->op != O_cast || !is_half(v->type) || !w->product || !has_thread_matrix(machine))
		return false;
	const Val *from = val(g, v->in[0]);
	return from->op == O_reshape && val(g, from->in[0])->op == O_pad;
}

// True if v has zeros around what the sums of many taps read: see depthwise_kernel_gradient().
static bool is_frame(const Val *v, const Want *w, const Machine *machine)
{
	return v->op == O_pad && w->readers >= MANY_TAPS && machine->threads == 1;
}

// True if v is attention in bf16, which a CPU's kernel of products of bf16 stores so.
static bool is_rounded_attention(const Graph *g, const Val *v, const int *live,
                                 const Machine *machine)
{
	return v->op == O_cast && is_half(v->type) && machine->threads == 1 &&
	       is_attention(val(g, v->in[0])->op) && live[v->in[0]] == 1 &&
	       attend_matrix(g, val(g, v->in[0]), machine);
}

// True if v is computed from two slots, as are the weights at which an optimizer takes gradients.
static bool sums_slots(const Graph *g, const Cone *c)
{
	return c->nbig == 2 && val(g, c->big[0])->op == O_slot && val(g, c->big[1])->op == O_slot;
}

// True if v is the sum of two slots and only its rounded copy is stored, for products on matrix
// registers. Other readers add the slots again, which most of them read anyway.
static bool is_point(const Graph *g, const Val *v, const Want *w, const Cone *c,
                     const Machine *machine)
{
	return sums_slots(g, c) && prims[v->op].cls == C_map && w->rounded && !w->kept &&
	       !w->factor && has_matrix(machine) && c->weight <= PANEL;
}

// True for values of columns that many rows of maps would divide for anew.
static bool is_slow_row(const Val *v, const Want *w, const Cone *c, const Machine *machine)
{
	return machine->threads == 1 && w->broadcast && c->slow &&
	       last_dim(&v->shape) >= machine->lanes;
}

static bool is_cut(const Graph *g, const Val *v, const Want *w, const Cone *c, bool windows)
{
	if (c->effort.depth >= DEEP || is_same_value(g, v))
		return true;
	switch (prims[v->op].cls) {
	case C_leaf:
		return w->kept;
	case C_move:
		return w->kept || c->weight >= (v->op == O_concat ? PIECES : ENOUGH) ||
		       (v->op == O_concat && w->panel && w->readers > 1);
	case C_map:
		break;
	default:
		if (v->op != O_gather && !windows)
			return true;
	}
	if (w->kept || c->weight >= ENOUGH)
		return true;
	if (is_tf32(v))
		return false;
	if (!c->reads)
		return w->readers > 1 && c->weight > AGAIN;
	if (w->derivative || (c->tail && (w->readers > 1 || w->moved)))
		return true;
	if (c->tail && v->op == O_add && c->nbig > 1 && count_of(&v->shape) >= VAST)
		return true;
	if ((w->broadcast || w->panel) && c->weight > (v->shape.rank ? PANEL : 2))
		return true;
	bool map = prims[v->op].cls == C_map && !widens(g, v);
	if (map && c->nbig && w->times * c->weight > PANEL)
		return true;
	// Its readers read both slots anyway, or few elements.
	bool slots = sums_slots(g, c) && !w->whole;
	bool large = c->nbig > 1 && !w->broadcast && !slots;
	return w->readers > 1 && (c->weight > AGAIN || large);
}

typedef struct Stored {
	const Graph *g;
	const bool *cut;
} Stored;

static bool is_expression(const void *stored, Ref r)
{
	const Stored *s = stored;
	const Val *v = val(s->g, r);
	return !s->cut[r] && v->op != O_slot && v->op != O_const;
}

// Returns r, or what it reshapes, if that is a large value in memory with its axes in another order
// and to read it where it is used takes an element at a time; else 0. r may be its copy in f16 or
// bf16. A product can pack an operand that is contiguous either way, unless few elements are, as
// the pixels that a channel holds; and what reduces windows reads their elements one by one.
static Ref find_turned(const Graph *g, Ref r, const bool *cut, const Want *want,
                       const Machine *machine)
{
	const Val *v = val(g, r);
	Ref moved = rounds(g, v) ? v->in[0] : r;
	const Want *w = &want[moved];
	// Elements: those of a broadcast are read repeatedly.
	const int64_t MANY = w->broadcast ? 1 << 7 : 1 << 13;
	Stored stored = {g, cut};
	Inside inside = {is_expression, &stored};
	Turn turn;
	bool pixels = machine->threads == 1 && w->product && val(g, moved)->op == O_permute &&
	              val(g, val(g, moved)->in[0])->op != O_window;
	if (prims[val(g, moved)->op].cls != C_move || !(w->mapped || w->factor || pixels) ||
	    count_of(&v->shape) < MANY || (w->summed && from_windows(g, moved, 0)))
		return 0;
	for (; v->op == O_reshape && is_expression(&stored, v->in[0]); v = val(g, r))
		r = v->in[0];
	Arena *scratch = arena_within(g->arena);
	bool turned = find_turn(scratch, g, &inside, r, &turn) && !turn.pairs;
	if (w->factor && turn.nacross == 1 && turn.across[0] == v->shape.rank - 2)
		turned = false;
	if (!w->mapped && !w->factor)
		turned &= MIN(turn.count, turn.columns) < SQUARE / 2;
	arena_free(scratch);
	return turned ? r : 0;
}

bool *materialize_pass(Arena *arena, const Graph *g, const Machine *machine, Effort **effort)
{
	const int *live = graph_uses(arena, g);
	bool *cut = NEWS(arena, bool, g->nval), *point = NEWS(arena, bool, g->nval);
	Want *want = wants(arena, g, live);
	if (has_thread_matrix(machine))
		find_derivatives(arena, g, live, want);
	Cone *cone = NEWS(arena, Cone, g->nval);
	*effort = NEWS(arena, Effort, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		if (!live[r])
			continue;
		cone[r] = cone_of(g, r, cone, cut, want);
		const Val *v = val(g, r);
		point[r] = is_point(g, v, &want[r], &cone[r], machine);
		bool copies = is_copy(g, v, &want[r], machine) ||
		              is_image(g, v, &want[r], machine) || is_frame(v, &want[r], machine) ||
		              (rounds(g, v) && point[v->in[0]]);
		bool slow =
		    prims[v->op].cls == C_map && is_slow_row(v, &want[r], &cone[r], machine);
		cut[r] = (is_cut(g, v, &want[r], &cone[r], reduces_windows(g, v)) && !point[r]) ||
		         (cone[r].reads && (copies || slow)) ||
		         is_rounded_attention(g, v, live, machine);
		(*effort)[r] = cone[r].effort;
		Ref turned = cut[r] ? 0 : find_turned(g, r, cut, want, machine);
		cut[turned] |= turned > 0;
		(*effort)[turned].turned = turned > 0;
	}
	return cut;
}
