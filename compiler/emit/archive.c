// archive.c: writes static libraries: the model's object, then the members of the runtime's
// archive. Format: ar(5) as GNU writes it, with an index of symbols and a table of long names.
// Invariant: dates, owners and modes are fixed, so equal objects give equal libraries.
#include "emit.h"
#include <ar.h>
#include <stdlib.h>
#include <string.h>

typedef struct Member {
	const char *name, *bytes;
	size_t count;
	uint32_t at; // in the archive it comes from
} Member;

typedef struct Archive {
	Arena *arena;
	VEC(Member) members;
	VEC(int) owners; // of each symbol: its member
	Text symbols;    // names, each with a terminator
} Archive;

static uint32_t big_endian(const char *at)
{
	const unsigned char *byte = (const unsigned char *)at;
	return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

static void add_symbol(Archive *a, int member, const char *name)
{
	PUSH(a->arena, a->owners, member);
	say(&a->symbols, "%s%c", name, 0);
}

// ---- reading --------------------------------------------------------------------------

static size_t member_size(const struct ar_hdr *head)
{
	char digits[sizeof head->ar_size + 1] = "";
	return strtoul(memcpy(digits, head->ar_size, sizeof head->ar_size), NULL, 10);
}

// Returns the name of a member: NAME/, or /OFFSET into the table of long names.
static const char *member_name(Arena *arena, const struct ar_hdr *head, const char *long_names)
{
	const char *from = head->ar_name;
	if (*from == '/')
		from = long_names + atoi(from + 1);
	return format(arena, "%.*s", (int)strcspn(from, "/"), from);
}

// Adds the members of an archive of `count` bytes, and its index of symbols.
static void add_members(Archive *a, const char *bytes, size_t count)
{
	const char *index = NULL, *long_names = NULL;
	int first = a->members.count;
	for (size_t at = SARMAG, size; at + sizeof(struct ar_hdr) <= count; at += size + size % 2) {
		const struct ar_hdr *head = (const struct ar_hdr *)(bytes + at);
		const char *body = bytes + at + sizeof *head;
		size = member_size(head);
		if (!strncmp(head->ar_name, "// ", 3))
			long_names = body;
		else if (!strncmp(head->ar_name, "/ ", 2))
			index = body;
		else
			PUSH(a->arena, a->members,
			     ((Member){member_name(a->arena, head, long_names), body, size,
			               (uint32_t)at}));
		at += sizeof *head;
	}
	uint32_t symbols = index ? big_endian(index) : 0;
	const char *name = index + 4 + 4 * (size_t)symbols;
	for (uint32_t i = 0; i < symbols; i++, name += strlen(name) + 1) {
		int k = first;
		while (a->members.at[k].at != big_endian(index + 4 + 4 * i))
			k++;
		add_symbol(a, k, name);
	}
}

// ---- writing --------------------------------------------------------------------------

static void write_head(FILE *to, const char *name, size_t size)
{
	fprintf(to, "%-16s%-12d%-6d%-6d%-8s%-10zu%s", name, 0, 0, 0, "644", size, ARFMAG);
}

static void write_body(FILE *to, const char *bytes, size_t count)
{
	fwrite(bytes, 1, count, to);
	if (count % 2)
		fputc('\n', to);
}

static void write_u32(Text *to, size_t x)
{
	say(to, "%c%c%c%c", (int)(x >> 24 & 255), (int)(x >> 16 & 255), (int)(x >> 8 & 255),
	    (int)(x & 255));
}

static size_t padded(size_t bytes)
{
	return sizeof(struct ar_hdr) + bytes + bytes % 2;
}

static void write_members(const Archive *a, FILE *to)
{
	Text index = {.arena = a->arena}, names = {.arena = a->arena};
	size_t *name = NEWS(a->arena, size_t, a->members.count), index_size;
	size_t *start = NEWS(a->arena, size_t, a->members.count);
	for (int k = 0; k < a->members.count; k++) {
		name[k] = names.count;
		say(&names, "%s/\n", a->members.at[k].name);
	}
	index_size = 4 + 4 * (size_t)a->owners.count + a->symbols.count;
	size_t at = SARMAG + padded(index_size) + padded(names.count);
	for (int k = 0; k < a->members.count; k++) {
		start[k] = at;
		at += padded(a->members.at[k].count);
	}
	write_u32(&index, (size_t)a->owners.count);
	for (int i = 0; i < a->owners.count; i++)
		write_u32(&index, start[a->owners.at[i]]);
	fputs(ARMAG, to);
	write_head(to, "/", index_size);
	fwrite(index.at, 1, index.count, to);
	write_body(to, a->symbols.at, a->symbols.count);
	write_head(to, "//", names.count);
	write_body(to, names.at, names.count);
	for (int k = 0; k < a->members.count; k++) {
		const Member *m = &a->members.at[k];
		write_head(to, format(a->arena, "/%zu", name[k]), m->count);
		write_body(to, m->bytes, m->count);
	}
}

void write_archive(const Part *object, const char *symbol, const char *runtime, size_t count,
                   FILE *to)
{
	Arena *arena = arena_new();
	Archive a = {.arena = arena, .symbols = {.arena = arena}};
	PUSH(arena, a.members,
	     ((Member){format(arena, "%s.o", symbol), object->bytes, object->count, 0}));
	add_symbol(&a, 0, symbol);
	add_members(&a, runtime, count);
	write_members(&a, to);
	arena_free(arena);
}
