// base.c: checks arenas, strings, patterns, tables, failures and pending errors.
#include "base.h"
#include "expect.h"
#include <stdlib.h>
#include <string.h>

static void arenas(Arena *arena)
{
	for (size_t size = 0; size < 300000; size = size * 3 / 2 + 1) {
		char *at = take(arena, size);
		expect((uintptr_t)at % (size >= 64 ? 64 : size >= 16 ? 16 : 8) == 0, "alignment");
		for (size_t i = 0; i < size; i++)
			if (at[i])
				expect(false, "memory is not zero");
		memset(at, 1, size);
	}
	VEC(int) numbers = {0};
	for (int i = 0; i < 1000; i++)
		PUSH(arena, numbers, i);
	expect(numbers.count == 1000 && numbers.at[0] == 0 && numbers.at[999] == 999,
	       "a growing array");
}

static void append_b(void *text)
{
	strcat(text, "b");
}

static void append_a(void *text)
{
	strcat(text, "a");
}

static void ends(void)
{
	char text[8] = "";
	Arena *outer = arena_new();
	at_end(outer, append_a, text);
	at_end(arena_within(outer), append_b, text);
	at_end(outer, append_b, text);
	arena_free(outer);
	expect(!strcmp(text, "bba"), "what is called when an arena is freed");
}

static void strings(Arena *arena)
{
	Text text = {.arena = arena};
	for (int i = 0; i < 500; i++)
		say(&text, "%d,", i);
	expect(text.count == strlen(text.at) && ends_with(text.at, ",498,499,"), "a growing text");
	expect(strcmp(format(arena, "%s-%d", "a", 7), "a-7") == 0, "format");
	expect(starts_with("layer.0", "layer") && !starts_with("lay", "layer"), "starts_with");
	expect(!ends_with("bias", "a.bias"), "ends_with");
	expect(matches("*.bias", "h.0.bias") && !matches("*.bias", "h.0.biased"), "globs");
	expect(matches("/^h\\.[0-9]+/", "h.12.w") && !matches("/^h\\.[0-9]+$/", "h.12.w"),
	       "expressions");
}

static void tables(Arena *arena)
{
	Table *table = table_new(arena);
	for (uint64_t i = 0; i < 10000; i++)
		*table_cell(table, &i, sizeof i) = i * i;
	bool right = true;
	for (uint64_t i = 0; i < 10000; i++)
		right &= *table_find(table, &i, sizeof i) == i * i;
	expect(right, "a value is lost");
	expect(!table_find_s(table, "absent") && *table_cell_s(table, "new") == 0, "an absent key");
	expect(hash_bytes("abc", 3, 0) != hash_bytes("abd", 3, 0) &&
	           hash_bytes("", 0, 0) != hash_bytes("", 0, 1),
	       "hashes");
	enum { LONG = 2000 };
	char bytes[LONG];
	for (int i = 0; i < LONG; i++)
		bytes[i] = (char)(i * i);
	uint64_t hash = hash_bytes(bytes, LONG, 0);
	bool differs = true;
	for (int i = 0; i < LONG; i++) {
		bytes[i]++;
		differs &= hash_bytes(bytes, LONG, 0) != hash;
		bytes[i]--;
	}
	differs &= hash_bytes(bytes, LONG - 1, 0) != hash && hash_bytes(bytes, LONG, 1) != hash;
	expect(differs && hash_bytes(bytes, LONG, 0) == hash, "hashes of many bytes");
}

static void failing(void (*act)(void), int status, const char *message)
{
	Catch c;
	if (!TRY(c)) {
		act();
		catch_end(&c);
		expect(false, message);
		return;
	}
	expect(c.status == status && strcmp(c.message, message) == 0, c.message);
	free(c.message);
}

static void plain(void)
{
	fail("model.onnx", "node '%s' is odd", "a");
}

static void machine(void)
{
	fail_status(STATUS_MACHINE, "disk", "full");
}

static void nested(void)
{
	failing(machine, STATUS_MACHINE, "disk: full");
	plain();
}

static void bad_pattern(void)
{
	check_pattern("--freeze", "/a|b/");
	check_pattern("--freeze", "/(/");
}

static void failures_in_order(void)
{
	failing(plain, STATUS_INPUT, "model.onnx: node 'a' is odd");
	failing(nested, STATUS_INPUT, "model.onnx: node 'a' is odd");
	failing(bad_pattern, STATUS_USAGE,
	        "--freeze: '/(/' is not a regular expression: Unmatched ( or \\(");
}

int main(void)
{
	Arena *arena = arena_new();
	arenas(arena);
	ends();
	strings(arena);
	tables(arena);
	failures_in_order();
	arena_free(arena);
	return expected();
}
