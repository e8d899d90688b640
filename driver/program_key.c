// program_key.c: writes all that decides a program's object, as bytes.
// That is the compiler itself, the target, the limit of memory, the number of threads, with --tune
// the host that it is tuned for, and the graphs that stand after pass `join`: the later passes read
// nothing else. Initial contents of slots and texts about the model are no part of it. Invariant:
// equal keys, equal objects.
#include "driver.h"
#include <string.h>

static void add_bytes(Key *key, const void *bytes, size_t count)
{
	if (count > key->room - key->count) {
		size_t room = MAX(2 * key->room, key->count + count + 4096);
		char *at = take(key->arena, room);
		if (key->count)
			memcpy(at, key->at, key->count);
		key->at = at;
		key->room = room;
	}
	if (count)
		memcpy(key->at + key->count, bytes, count);
	key->count += count;
}

// In groups of 7 bits, the sign in the lowest: most numbers take one byte.
static void add_number(Key *key, int64_t x)
{
	unsigned char bytes[10];
	size_t count = 0;
	uint64_t rest = (uint64_t)x << 1 ^ (uint64_t)(x >> 63);
	for (; rest >= 128; rest >>= 7)
		bytes[count++] = (unsigned char)(rest | 128);
	bytes[count++] = (unsigned char)rest;
	add_bytes(key, bytes, count);
}

static void add_text(Key *key, const char *text)
{
	add_number(key, text ? (int64_t)strlen(text) : -1);
	add_bytes(key, text, text ? strlen(text) : 0);
}

static void add_shape(Key *key, const Shape *shape)
{
	add_number(key, shape->rank);
	for (int a = 0; a < shape->rank; a++)
		add_number(key, shape->dim[a]);
}

// ---- graphs ---------------------------------------------------------------------------

static void add_slot_of(Key *key, const Slot *s)
{
	add_text(key, s->name);
	add_text(key, s->file);
	add_number(key, s->kind);
	add_number(key, s->type);
	add_shape(key, &s->shape);
	add_number(key, s->limit);
	add_number(key, s->ignore);
	add_number(key, s->counts);
}

static void add_graph(Key *key, const Graph *g, const NodeList *known);

static void add_val(Key *key, const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	const Lengths *lengths = lengths_of(g, r);
	add_number(key, v->op);
	add_number(key, v->type);
	add_shape(key, &v->shape);
	add_number(key, v->from);
	add_number(key, v->nin);
	for (int k = 0; k < v->nin; k++)
		add_number(key, v->in[k]);
	add_number(key, v->attr->n);
	for (int k = 0; k < v->attr->n; k++)
		add_number(key, v->attr->i[k]);
	add_bytes(key, &v->attr->x, sizeof v->attr->x);
	add_number(key, is_dynamic(g, r));
	for (int a = 0; a < v->shape.rank && is_dynamic(g, r); a++)
		add_number(key, lengths->of[a]);
	if (v->op == O_const)
		add_bytes(key, v->data, (size_t)bytes_of(v));
	if (v->op == O_loop)
		add_graph(key, v->data, g->nodes);
}

// `known`: nodes that the key holds already; NULL: none.
static void add_graph(Key *key, const Graph *g, const NodeList *known)
{
	add_number(key, g->plain);
	add_number(key, g->wide);
	add_number(key, g->products);
	add_bytes(key, &g->loss_scale, sizeof g->loss_scale);
	add_number(key, g->unaliased);
	add_number(key, g->nodes == known ? 0 : g->nodes->list.count);
	for (int i = 0; i < g->nodes->list.count && g->nodes != known; i++)
		add_text(key, g->nodes->list.at[i].name);
	add_number(key, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		add_slot_of(key, &g->slots.at[i]);
	add_number(key, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		add_val(key, g, r);
	add_number(key, g->outs.count);
	for (int i = 0; i < g->outs.count; i++) {
		add_text(key, g->outs.at[i].name);
		add_number(key, g->outs.at[i].val);
	}
	add_number(key, g->stores.count);
	for (int i = 0; i < g->stores.count; i++) {
		add_number(key, g->stores.at[i].slot);
		add_number(key, g->stores.at[i].val);
	}
}

Key program_key(const Program *p)
{
	Arena *arena = work_arena(p->session);
	Key key = {.arena = arena};
	const char *compiler = compiler_id(arena);
	if (!compiler)
		return key;
	add_text(&key, compiler);
	add_text(&key, target_text(arena, target_of(p->session)));
	if (chosen(p->session, OPT_tune))
		add_text(&key, tuning_host(p->session));
	if (chosen(p->session, OPT_memory))
		add_number(&key, choice_count(p->session, OPT_memory, 0));
	add_number(&key, threads_of(p->session));
	add_number(&key, p->entries.count);
	for (int i = 0; i < p->entries.count; i++) {
		add_text(&key, p->entries.at[i].unit.name);
		add_graph(&key, p->entries.at[i].unit.graph, NULL);
	}
	return key;
}
