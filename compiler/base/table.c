// table.c: implements a hash table from byte strings to 64-bit values.
// Open addressing: buckets, at most half of them used, hold indices of items, which are stored in
// order of insertion. Nothing is removed, so probing stops at the first empty bucket. Results do
// not depend on the order of buckets.
#include "base.h"
#include <string.h>
#include <sys/auxv.h>

typedef struct Item {
	const char *key;
	size_t bytes;
	uint64_t value;
} Item;

typedef struct Bucket {
	uint32_t hash, item; // 1 + index of the item; 0: empty
} Bucket;

struct Table {
	Arena *arena;
	uint64_t seed; // per process, so no file can contain keys chosen to collide
	Item *item[CHUNKS];
	uint32_t count;
	Bucket *bucket;
	size_t room; // number of buckets: a power of two, or 0
	bool borrows_keys;
};

enum { FIRST_ROOM = 16 };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0xD6E8FEB86659FD93;
	x = (x ^ x >> 29) * 0xD6E8FEB86659FD93;
	return x ^ x >> 32;
}

// Hashes the largest multiple of 32 bytes, and moves past it. The processor hashes words of
// different stripes at once. Prefetching far enough ahead hides the latency of memory, which takes
// two thirds of the time otherwise.
static uint64_t hash_stripes(const char **at, size_t *count, uint64_t hash)
{
	enum { AHEAD = 2048 }; // bytes; twice or half as many take as long
	uint64_t stripe[4] = {hash, hash + 1, hash + 2, hash + 3}, word;
	for (; *count >= sizeof stripe; *at += sizeof stripe, *count -= sizeof stripe) {
		__builtin_prefetch((const void *)((uintptr_t)*at + AHEAD));
		for (int k = 0; k < COUNT(stripe); k++) {
			memcpy(&word, *at + sizeof word * (size_t)k, sizeof word);
			stripe[k] = (stripe[k] ^ word) * 0x9FB21C651E98DF25;
			stripe[k] ^= stripe[k] >> 29;
		}
	}
	for (int k = 0; k < COUNT(stripe); k++)
		hash = mix(hash ^ stripe[k]);
	return hash;
}

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed)
{
	enum { MANY = 1024 }; // bytes from which stripes pay
	const char *at = bytes;
	uint64_t hash = mix(seed + count + 0x9E3779B97F4A7C15), word;
	if (count >= MANY)
		hash = hash_stripes(&at, &count, hash);
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
	memcpy(&table->seed, (const void *)getauxval(AT_RANDOM), sizeof table->seed);
	return table;
}

Table *table_lent(Arena *arena)
{
	Table *table = table_new(arena);
	table->borrows_keys = true;
	return table;
}

// Keys that differ only in their last byte are adjacent: files number their names, and those of a
// large file are looked up in order, so any other placement would miss the cache each time.
static uint32_t bucket_hash(const Table *table, const char *key, size_t bytes)
{
	return bytes ? (uint32_t)hash_bytes(key, bytes - 1, table->seed) + (uint8_t)key[bytes - 1]
	             : 0;
}

// Returns the bucket of the key, or the empty one where it belongs.
static Bucket *probe(const Table *table, const void *key, size_t bytes, uint32_t hash)
{
	for (size_t i = hash & (table->room - 1);; i = (i + 1) & (table->room - 1)) {
		Bucket *bucket = &table->bucket[i];
		if (!bucket->item)
			return bucket;
		if (bucket->hash != hash)
			continue;
		const Item *item = ITEM(table->item, bucket->item - 1);
		if (item->bytes == bytes && memcmp(item->key, key, bytes) == 0)
			return bucket;
	}
}

static void widen(Table *table)
{
	const Bucket *old = table->bucket;
	size_t count = table->room;
	table->room = count ? 2 * count : FIRST_ROOM;
	table->bucket = NEWS(table->arena, Bucket, table->room);
	for (size_t k = 0; k < count; k++) {
		size_t i = old[k].hash & (table->room - 1);
		while (old[k].item && table->bucket[i].item)
			i = (i + 1) & (table->room - 1);
		if (old[k].item)
			table->bucket[i] = old[k];
	}
}

uint64_t *table_cell(Table *table, const void *key, size_t bytes)
{
	uint32_t hash = bucket_hash(table, key, bytes);
	Bucket *bucket = table->room ? probe(table, key, bytes, hash) : NULL;
	if (bucket && bucket->item)
		return &ITEM(table->item, bucket->item - 1)->value;
	if (2 * ((size_t)table->count + 1) > table->room) {
		widen(table);
		bucket = probe(table, key, bytes, hash);
	}
	Item *item = ADD(table->arena, table->item, table->count);
	*item = (Item){table->borrows_keys ? key : take_copy(table->arena, key, bytes), bytes, 0};
	*bucket = (Bucket){hash, ++table->count};
	return &item->value;
}

uint64_t *table_find(const Table *table, const void *key, size_t bytes)
{
	if (!table->room)
		return NULL;
	const Bucket *bucket = probe(table, key, bytes, bucket_hash(table, key, bytes));
	return bucket->item ? &ITEM(table->item, bucket->item - 1)->value : NULL;
}

const void *table_key(const uint64_t *cell)
{
	return ((const Item *)((const char *)cell - offsetof(Item, value)))->key;
}

uint64_t *table_cell_s(Table *table, const char *key)
{
	return table_cell(table, key, strlen(key));
}

uint64_t *table_find_s(const Table *table, const char *key)
{
	return table_find(table, key, strlen(key));
}

void *table_pointer_s(const Table *table, const char *key)
{
	const uint64_t *cell = table_find_s(table, key);
	return cell ? (void *)(uintptr_t)*cell : NULL;
}
