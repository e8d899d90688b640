// table.c: hash table from bytes to a 64-bit value: open addressing, half full at most.
// Takes base.h. Gives cells; keys are copied. Keeps: no removal, so probing stops at the first free
// place.
#include "base.h"
#include <string.h>

typedef struct Item {
	const char *key; // NULL: free
	size_t bytes;
	uint64_t hash, value;
} Item;

struct Table {
	Arena *arena;
	Item *item;
	size_t room, count; // room is a power of two
};

enum { FIRST_ROOM = 8 };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0xD6E8FEB86659FD93;
	x = (x ^ x >> 29) * 0xD6E8FEB86659FD93;
	return x ^ x >> 32;
}

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed)
{
	const char *at = bytes;
	uint64_t hash = mix(seed + count + 0x9E3779B97F4A7C15), word;
	for (; count >= 8; at += 8, count -= 8) {
		memcpy(&word, at, 8);
		hash = (hash ^ word) * 0x9FB21C651E98DF25;
		hash ^= hash >> 29;
	}
	word = 0;
	if (count)
		memcpy(&word, at, count);
	return mix(hash ^ word);
}

Table *table_new(Arena *arena)
{
	Table *table = NEW(arena, Table);
	table->arena = arena;
	table->room = FIRST_ROOM;
	table->item = NEWS(arena, Item, FIRST_ROOM);
	return table;
}

// The item of the key, or the free place where it belongs.
static Item *probe(const Table *table, const void *key, size_t bytes, uint64_t hash)
{
	for (size_t i = hash & (table->room - 1);; i = (i + 1) & (table->room - 1)) {
		Item *item = &table->item[i];
		if (!item->key)
			return item;
		if (item->hash == hash && item->bytes == bytes &&
		    memcmp(item->key, key, bytes) == 0)
			return item;
	}
}

static void widen(Table *table)
{
	Item *old = table->item;
	size_t count = table->room;
	table->room *= 2;
	table->item = NEWS(table->arena, Item, table->room);
	for (size_t i = 0; i < count; i++)
		if (old[i].key)
			*probe(table, old[i].key, old[i].bytes, old[i].hash) = old[i];
}

uint64_t *table_cell(Table *table, const void *key, size_t bytes)
{
	uint64_t hash = hash_bytes(key, bytes, 0);
	Item *item = probe(table, key, bytes, hash);
	if (item->key)
		return &item->value;
	if (2 * ++table->count > table->room) {
		widen(table);
		item = probe(table, key, bytes, hash);
	}
	*item = (Item){take_copy(table->arena, key, bytes), bytes, hash, 0};
	return &item->value;
}

uint64_t *table_find(const Table *table, const void *key, size_t bytes)
{
	Item *item = probe(table, key, bytes, hash_bytes(key, bytes, 0));
	return item->key ? &item->value : NULL;
}

uint64_t *table_cell_s(Table *table, const char *key)
{
	return table_cell(table, key, strlen(key));
}

uint64_t *table_find_s(const Table *table, const char *key)
{
	return table_find(table, key, strlen(key));
}
