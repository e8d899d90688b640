// graph.c: implements the graph and its door, put().
// Invariant: values are in SSA order; each is typed, folded, shared, as simple as simplify.c and
// the book make it, and has the node that it comes from.
#include "dynamic.h"
#include <string.h>

static Graph *graph_with(Arena *arena, const char *name, const Book *book, NodeList *nodes)
{
	Graph *g = NEW(arena, Graph);
	g->nodes = nodes;
	g->arena = arena;
	g->name = copy_string(arena, name);
	g->book = book;
	g->named = table_lent(arena);
	ADD(arena, g->vals, 0);
	g->nval = 1;
	return g;
}

Graph *graph_new(Arena *arena, const char *name, const Book *book)
{
	NodeList *nodes = NEW(arena, NodeList);
	nodes->arena = arena;
	Graph *g = graph_with(arena, name, book, nodes);
	add_node(g, "", "");
	return g;
}

Graph *graph_inside(Arena *arena, const Graph *from)
{
	Graph *g = graph_with(arena, from->name, from->book, from->nodes);
	g->plain = from->plain;
	g->wide = from->wide;
	g->products = from->products;
	g->machine = from->machine;
	g->loss_scale = from->loss_scale;
	g->unaliased = from->unaliased;
	return g;
}

// Of slots with one name, find_slot() returns the first.
static void push_slot(Graph *g, Slot slot)
{
	PUSH(g->arena, g->slots, slot);
	PUSH(g->arena, g->reads, 0);
	PUSH(g->arena, g->stored, 0);
	uint64_t *cell = table_cell_s(g->named, slot.name);
	*cell = *cell ? *cell : (uint64_t)g->slots.count;
}

Graph *graph_like(Arena *arena, const Graph *from)
{
	Graph *g = graph_inside(arena, from);
	g->slots.at = NEWS(arena, Slot, from->slots.count);
	g->slots.room = from->slots.count;
	for (int s = 0; s < from->slots.count; s++)
		push_slot(g, from->slots.at[s]);
	return g;
}

// ---- sharing --------------------------------------------------------------------------

// Identifies a value: two puts with equal keys return the same Ref. A slot is one value, however
// far the graph is decomposed.
typedef struct Key {
	uint64_t *at;
	size_t bytes;
	uint64_t few[8 + NUMS];
} Key;

static void key_of(const Graph *g, Key *key, Op op, int nin, const Ref *in, const Attr *attr)
{
	size_t words = 2 + (size_t)(nin + 1) / 2 + (size_t)attr->n;
	key->bytes = 8 * words;
	key->at = words <= COUNT(key->few) ? key->few : take(g->arena, key->bytes);
	uint64_t *at = key->at;
	*at++ = (uint64_t)op | (uint64_t)(op == O_slot ? DECOMPOSED_NONE : g->plain) << 16 |
	        (uint64_t)nin << 32;
	memcpy(at++, &attr->x, 8);
	memset(at, 0, 8 * ((size_t)(nin + 1) / 2));
	if (nin)
		memcpy(at, in, sizeof *in * (size_t)nin);
	at += (nin + 1) / 2;
	memcpy(at, attr->i, 8 * (size_t)attr->n);
}

// Two hashes of 64 bits represent the bytes.
static void const_key(Key *key, Elem elem, const Shape *shape, const void *bytes, size_t count)
{
	uint64_t *at = key->few;
	*at++ = (uint64_t)O_const | (uint64_t)elem << 16 | (uint64_t)shape->rank << 32;
	*at++ = hash_bytes(bytes, count, 1);
	*at++ = hash_bytes(bytes, count, 2);
	memcpy(at, shape->dim, sizeof *shape->dim * (size_t)shape->rank);
	key->at = key->few;
	key->bytes = 8 * (3 + (size_t)shape->rank);
}

// Loops are equal if their bodies have the same text.
static void loop_key(const Graph *g, Key *key, int nin, const Ref *in, const Attr *attr,
                     const Graph *body)
{
	key_of(g, key, O_loop, nin, in, attr);
	const char *text = graph_text(g->arena, body);
	size_t length = strlen(text);
	char *whole = take(g->arena, key->bytes + length);
	memcpy(whole, key->at, key->bytes);
	memcpy(whole + key->bytes, text, length);
	key->at = (uint64_t *)whole;
	key->bytes += length;
}

static const Ref *operands_in(const uint64_t *cell)
{
	return (const Ref *)((const uint64_t *)table_key(cell) + 2);
}

// Returns the cell of the value with a key; 0 in it: none yet. The values of a copied graph are
// entered first.
static uint64_t *cell_of(Graph *g, const Key *wanted)
{
	if (g->interned)
		return table_cell(g->interned, wanted->at, wanted->bytes);
	g->interned = table_new(g->arena);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		Key key;
		if (v->op == O_const)
			const_key(&key, v->type, &v->shape, v->data, (size_t)bytes_of(v));
		else if (v->op == O_loop)
			loop_key(g, &key, v->nin, v->in, v->attr, v->data);
		else
			key_of(g, &key, v->op, v->nin, v->in, v->attr);
		*table_cell(g->interned, key.at, key.bytes) = r;
	}
	return cell_of(g, wanted);
}

// ---- the door -------------------------------------------------------------------------

static const Attr no_attr;

static size_t attr_bytes(const Attr *attr)
{
	return offsetof(Attr, i) + sizeof *attr->i * (size_t)attr->n;
}

Attr attr_copy(const Val *v)
{
	Attr attr = {0};
	memcpy(&attr, v->attr, attr_bytes(v->attr));
	return attr;
}

static Ref append(Graph *g, Val v)
{
	Ref r = (Ref)g->nval;
	*ADD(g->arena, g->vals, r) = v;
	if (v.op == O_slot)
		g->reads.at[v.attr->i[0]] = r;
	g->nval++;
	return r;
}

Ref ref_of(const Graph *g, const Val *v)
{
	uint32_t first = 0, room = 1u << FIRST_BITS;
	for (int k = 0; k < CHUNKS && g->vals[k]; k++, first += room, room *= 2)
		if (v >= g->vals[k] && v < g->vals[k] + room)
			return first + (Ref)(v - g->vals[k]);
	never("a value of another graph");
}

// `in` stays as long as the graph.
static Ref append_new(Graph *g, Op op, int nin, const Ref *in, const Attr *attr, Elem elem,
                      const Shape *shape)
{
	Val v = {.op = op, .type = elem, .shape = *shape, .nin = nin, .in = in, .from = g->from};
	bool bare = attr->n == 0 && attr->x == 0;
	v.attr = bare ? &no_attr : take_copy(g->arena, attr, attr_bytes(attr));
	return append(g, v);
}

// Computes a result of constants alone that is small enough to be written down; else returns 0.
static Ref folded(Graph *g, Op op, int nin, const Ref *in, const Attr *attr, Elem elem,
                  const Shape *shape)
{
	enum { OPERANDS = 1 << 22 }; // most elements of all operands
	int64_t count = 0;
	if (nin == 0 || op == O_rand || prims[op].cls == C_loop || count_of(shape) > FOLD_LIMIT)
		return 0;
	for (int k = 0; k < nin; k++) {
		if (!is_const(g, in[k]))
			return 0;
		count += count_of(&val(g, in[k])->shape);
	}
	if (count > OPERANDS)
		return 0;
	Arena *arena = arena_within(g->arena);
	Array *arrays = NEWS(arena, Array, nin);
	for (int k = 0; k < nin; k++) {
		const Val *v = val(g, in[k]);
		arrays[k] = array_from(arena, v->type, &v->shape, v->data);
	}
	Array result = eval_prim(arena, op, attr, elem, shape, nin, arrays);
	void *bytes = take(arena, (size_t)byte_count(elem, shape));
	array_to(&result, bytes);
	Ref r = put_const(g, elem, *shape, bytes);
	arena_free(arena);
	return r;
}

bool commutes(Op op)
{
	return op == O_add || op == O_mul || op == O_max || op == O_min || op == O_eq ||
	       op == O_and || op == O_or || op == O_xor;
}

// The order of operands that commute: slots first, by their numbers, so that it does not matter
// when they are first read; constants last.
static int64_t operand_order(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->op == O_slot)
		return v->attr->i[0] - INT32_MAX;
	return v->op == O_const ? (int64_t)r + UINT32_MAX : (int64_t)r;
}

static Ref put_ordered(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	Key key;
	Elem elem;
	Shape shape;
	key_of(g, &key, op, nin, in, attr);
	uint64_t *cell = cell_of(g, &key);
	if (*cell)
		return (Ref)*cell;
	in = operands_in(cell);
	type_of(g, op, nin, in, attr, &elem, &shape);
	Ref r = 0;
	if (!count_of(&shape)) // nothing to compute: no kernel has an empty space
		r = put_const(g, elem, shape, "");
	if (!r)
		r = folded(g, op, nin, in, attr, elem, &shape);
	if (!r)
		r = identity(g, op, nin, in, attr, &shape);
	if (!r && g->book)
		r = book_rewrite(g, op, nin, in, attr);
	return (Ref)(*cell = r ? r : append_new(g, op, nin, in, attr, elem, &shape));
}

// The type that the graph has for `elem`.
static Elem working(const Graph *g, Elem elem)
{
	return g->wide && elem == E_f32 ? E_f64 : elem;
}

Ref put(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	if (op == O_const)
		bug("constants enter by put_const");
	for (int k = 0; k < nin; k++)
		if (in[k] == 0 || (int)in[k] >= g->nval)
			bug("%s: operand %d is not a value", prims[op].name, k);
	if (!attr)
		attr = &no_attr;
	spend(g->arena, COST_nodes, 1 + (uint64_t)nin);
	if (op == O_cast && attr->i[0] != working(g, (Elem)attr->i[0]))
		return put_cast(g, in[0], E_f64);
	if (op == O_cast && attr->i[0] == val(g, in[0])->type && !g->unaliased)
		return in[0];
	bool dynamic = false;
	for (int k = 0; g->lengths && k < nin; k++)
		dynamic |= is_dynamic(g, in[k]);
	return dynamic ? put_dynamic(g, op, nin, in, attr) : put_fixed(g, op, nin, in, attr);
}

Ref put_fixed(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	bool swaps = nin == 2 && commutes(op) && operand_order(g, in[0]) > operand_order(g, in[1]);
	Ref r = put_ordered(g, op, nin, swaps ? (Ref[]){in[1], in[0]} : in, attr);
	Elem elem = working(g, val(g, r)->type);
	return elem == val(g, r)->type ? r : put_cast(g, r, elem);
}

Ref put_alias(Graph *g, Ref x)
{
	Val v = *val(g, x);
	Attr attr = {.n = v.shape.rank};
	memcpy(attr.i, v.shape.dim, sizeof *attr.i * (size_t)attr.n);
	return append_new(g, O_reshape, 1, take_copy(g->arena, &x, sizeof x), &attr, v.type,
	                  &v.shape);
}

Ref put_const(Graph *g, Elem elem, Shape shape, const void *bytes)
{
	if (elem != working(g, elem)) {
		Arena *arena = arena_within(g->arena);
		Array wide = array_from(arena, elem, &shape, bytes);
		Ref r = put_const(g, E_f64, shape, wide.f);
		arena_free(arena);
		return r;
	}
	Key key;
	size_t count = (size_t)byte_count(elem, &shape);
	const_key(&key, elem, &shape, bytes, count);
	uint64_t *cell = cell_of(g, &key);
	if (*cell)
		return (Ref)*cell;
	Val v = {.op = O_const, .type = elem, .shape = shape, .attr = &no_attr, .from = g->from};
	v.data = take_copy(g->arena, bytes, count);
	return (Ref)(*cell = append(g, v));
}

Ref put_num(Graph *g, Elem elem, double number)
{
	char bytes[8];
	elem = working(g, elem);
	int64_t integer = is_float(elem) ? 0 : (int64_t)number;
	Array array = {.type = elem};
	if (is_float(elem))
		array.f = &number;
	else
		array.i = &integer;
	array_to(&array, bytes);
	return put_const(g, elem, (Shape){0}, bytes);
}

Ref put_slot(Graph *g, int slot)
{
	return put(g, O_slot, 0, NULL, &(Attr){.n = 1, .i = {slot}});
}

Ref put_loop(Graph *g, const LoopInfo *l, const Ref *in)
{
	Attr attr = {.n = 5, .i = {l->trips, l->carried, l->scanned, l->reverse, l->until}};
	int nin = loop_operands(l);
	check_loop(g, l, in);
	Key key;
	loop_key(g, &key, nin, in, &attr, l->body);
	uint64_t *cell = cell_of(g, &key);
	if (*cell)
		return (Ref)*cell;
	*cell = append_new(g, O_loop, nin, operands_in(cell), &attr, E_i64, &(Shape){0});
	ITEM(g->vals, *cell)->data = l->body;
	return (Ref)*cell;
}

Ref put_as(Graph *g, const Val *v, const Ref *in)
{
	int from = g->from;
	Ref r;
	g->from = v->from;
	if (v->op == O_const) {
		r = put_const(g, v->type, v->shape, v->data);
	} else if (v->op == O_loop) {
		LoopInfo l = loop_of(v);
		r = put_loop(g, &l, in);
	} else {
		r = put(g, v->op, v->nin, in, v->attr);
	}
	g->from = from;
	return r;
}

// ---- slots, outputs, stores, nodes ----------------------------------------------------

int add_slot(Graph *g, Slot slot)
{
	if (slot.kind == S_input)
		slot.type = working(g, slot.type);
	push_slot(g, slot);
	return g->slots.count - 1;
}

int find_slot(const Graph *g, const char *name)
{
	const uint64_t *cell = table_find_s(g->named, name);
	return cell ? (int)*cell - 1 : -1;
}

Ref slot_ref(const Graph *g, int slot)
{
	return g->reads.at[slot];
}

Ref find_output(const Graph *g, const char *name)
{
	int i = amos_index(name, g->outs.at, g->outs.count, sizeof *g->outs.at);
	return i < 0 ? 0 : g->outs.at[i].val;
}

bool is_own_out(const char *name)
{
	return !starts_with(name, SHAPE_OF) && !starts_with(name, COUNT_OF) &&
	       !starts_with(name, CHECK_OF);
}

void add_out(Graph *g, const char *name, Ref r)
{
	Out out = {copy_string(g->arena, name), r};
	PUSH(g->arena, g->outs, out);
}

void add_store(Graph *g, int slot, Ref r)
{
	const Slot *to = &g->slots.at[slot];
	if (to->type != working(g, to->type)) { // a slot may be f32 in a graph of f64
		g->wide = false;
		r = put_cast(g, r, to->type);
		g->wide = true;
	}
	const Val *v = val(g, r);
	if (v->type != to->type || !same_shape(&v->shape, &to->shape))
		bug("store to %s: %s into %s", to->name, shape_text(g->arena, v->type, &v->shape),
		    shape_text(g->arena, to->type, &to->shape));
	int *number = &g->stored.at[slot];
	if (!*number) {
		PUSH(g->arena, g->stores, ((Store){slot, r}));
		*number = g->stores.count;
	}
	g->stores.at[*number - 1].val = r;
}

Ref stored_ref(const Graph *g, int slot)
{
	int number = g->stored.at[slot];
	return number ? g->stores.at[number - 1].val : 0;
}

int add_node(Graph *g, const char *name, const char *op)
{
	NodeList *n = g->nodes;
	PUSH(n->arena, n->list, ((Node){.name = name, .op = op}));
	return n->list.count - 1;
}

// ---- what is needed -------------------------------------------------------------------

int *graph_uses(Arena *arena, const Graph *g)
{
	int *uses = NEWS(arena, int, g->nval);
	for (int k = 0; k < g->outs.count; k++)
		uses[g->outs.at[k].val]++;
	for (int k = 0; k < g->stores.count; k++)
		uses[g->stores.at[k].val]++;
	for (int r = g->nval - 1; r > 0; r--)
		for (int k = 0; uses[r] && k < val(g, r)->nin; k++)
			uses[val(g, r)->in[k]]++;
	return uses;
}

void copy_values(Graph *to, const Graph *from, Ref *now, Rewrite *put, void *context)
{
	const int *live = graph_uses(to->arena, from);
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		if (!live[r])
			continue;
		Ref *in = NEWS(to->arena, Ref, v->nin + 1);
		for (int k = 0; k < v->nin; k++)
			in[k] = now[v->in[k]];
		to->from = v->from;
		now[r] = put(context, to, v, in);
	}
}

void copy_ends(Graph *to, const Graph *from, const Ref *now)
{
	for (int k = 0; k < from->outs.count; k++)
		add_out(to, from->outs.at[k].name, now[from->outs.at[k].val]);
	for (int k = 0; k < from->stores.count; k++)
		add_store(to, from->stores.at[k].slot, now[from->stores.at[k].val]);
}

void copy_graph(Graph *to, const Graph *from, Ref *now, Rewrite *put, void *context)
{
	now = now ? now : NEWS(to->arena, Ref, from->nval);
	copy_values(to, from, now, put, context);
	copy_ends(to, from, now);
}

// Values are in their simplest form already: they are copied, not put again, so nothing dead
// appears.
static Ref copied(Graph *g, const Val *v, const Ref *now, int from)
{
	Val fresh = *v;
	Ref *in = NEWS(g->arena, Ref, v->nin);
	for (int k = 0; k < v->nin; k++)
		in[k] = now[v->in[k]];
	fresh.in = in;
	fresh.from = from;
	if (v->op == O_loop)
		fresh.data = graph_live(g->arena, v->data);
	return append(g, fresh);
}

// Copies a slot or constant where it is first used, with the node of its user.
static void copy_leaf(Graph *g, const Graph *from, Ref r, int node, Ref *now)
{
	if (!now[r])
		now[r] = copied(g, val(from, r), NULL, node);
}

Graph *graph_live(Arena *arena, const Graph *from)
{
	Graph *g = graph_like(arena, from);
	const int *live = graph_uses(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	for (int r = 1; r < from->nval; r++) {
		const Val *v = val(from, r);
		if (!live[r] || v->op == O_slot || v->op == O_const)
			continue;
		// Slots, then constants, right before their first user: a graph that is read from
		// text is the one that was written.
		for (int op = 0; op < 2; op++)
			for (int k = 0; k < v->nin; k++)
				if (val(from, v->in[k])->op == (op ? O_const : O_slot))
					copy_leaf(g, from, v->in[k], v->from, now);
		now[r] = copied(g, v, now, v->from);
	}
	for (int k = 0; k < from->outs.count; k++) {
		Ref r = from->outs.at[k].val;
		copy_leaf(g, from, r, val(from, r)->from, now);
	}
	for (int k = 0; k < from->stores.count; k++) {
		Ref r = from->stores.at[k].val;
		copy_leaf(g, from, r, val(from, r)->from, now);
	}
	copy_ends(g, from, now);
	return g;
}

bool is_same_value(const Graph *g, const Val *v)
{
	return v->op == O_cast && v->type == val(g, v->in[0])->type;
}

void set_pitch(Graph *g, Ref r, int64_t pitch)
{
	((Val *)val(g, r))->pitch = pitch;
}

Graph *graph_unalias(Arena *arena, const Graph *from)
{
	Graph *g = graph_live(arena, from);
	Ref *copy = NEWS(arena, Ref, g->nval); // by Ref of a slot
	int n = g->stores.count;
	g->unaliased = true;
	for (Store *s = g->stores.at; s < g->stores.at + n; s++) {
		Ref slot = s->val;
		Val v = *val(g, slot);
		Attr same = {.n = 1, .i = {v.type}};
		if (v.op != O_slot)
			continue;
		if (!copy[slot])
			copy[slot] = append_new(g, O_cast, 1, take_copy(arena, &slot, sizeof slot),
			                        &same, v.type, &v.shape);
		s->val = copy[slot];
	}
	return g;
}
