// elf.c: joins the parts of an object into one ELF file that defines a single global symbol.
// The sections of the parts stay separate, as with a section per function, so offsets in them keep
// their values: only sections and symbols get new numbers. References between parts become local.
// Input: relocatable little-endian ELF files of LLVM, of 32 or 64 bits.
#include "emit.h"
#include <elf.h>
#include <string.h>

// ---- records of both sizes ------------------------------------------------------------

typedef struct Field {
	struct {
		unsigned char at, bytes;
	} narrow, wide;
} Field;

#define FIELD(type, name)                                                                          \
	{                                                                                          \
		{offsetof(Elf32_##type, name), sizeof((Elf32_##type *)NULL)->name},                \
		{                                                                                  \
			offsetof(Elf64_##type, name), sizeof((Elf64_##type *)NULL)->name           \
		}                                                                                  \
	}

static const Field e_shoff = FIELD(Ehdr, e_shoff), e_shnum = FIELD(Ehdr, e_shnum),
                   e_shstrndx = FIELD(Ehdr, e_shstrndx), sh_name = FIELD(Shdr, sh_name),
                   sh_type = FIELD(Shdr, sh_type), sh_offset = FIELD(Shdr, sh_offset),
                   sh_size = FIELD(Shdr, sh_size), sh_link = FIELD(Shdr, sh_link),
                   sh_info = FIELD(Shdr, sh_info), sh_addralign = FIELD(Shdr, sh_addralign),
                   sh_entsize = FIELD(Shdr, sh_entsize), st_name = FIELD(Sym, st_name),
                   st_info = FIELD(Sym, st_info), st_shndx = FIELD(Sym, st_shndx),
                   r_info = FIELD(Rela, r_info); // as in Rel

typedef VEC(char *) Records;

typedef struct Joiner {
	Arena *arena;
	bool wide;
	Records sections;        // headers; the first is the null section
	VEC(const char *) bytes; // of each section
	Records locals, globals; // symbols; the first local is the null symbol
	Text names;              // of sections and symbols
	Table *defined, *global; // by name: number in `locals`; 1 + number in `globals`
} Joiner;

typedef struct Source { // a part, and what its sections and symbols become
	const char *bytes;
	int sections, symbols;
	int *section;      // numbers; 0: dropped
	int *symbol;       // of locals; of globals, -1 - the number among them
	const char *table; // of symbols
	const char *names; // of symbols
	const char *section_names;
} Source;

static uint64_t get(const Joiner *j, const char *record, Field f)
{
	uint64_t x = 0;
	memcpy(&x, record + (j->wide ? f.wide.at : f.narrow.at),
	       j->wide ? f.wide.bytes : f.narrow.bytes);
	return x;
}

static void set(const Joiner *j, char *record, Field f, uint64_t x)
{
	memcpy(record + (j->wide ? f.wide.at : f.narrow.at), &x,
	       j->wide ? f.wide.bytes : f.narrow.bytes);
}

static size_t size_of(const Joiner *j, size_t narrow, size_t wide)
{
	return j->wide ? wide : narrow;
}
#define SIZE(j, type) size_of((j), sizeof(Elf32_##type), sizeof(Elf64_##type))

static const char *header(const Joiner *j, const Source *s, uint64_t section)
{
	return s->bytes + get(j, s->bytes, e_shoff) + section * SIZE(j, Shdr);
}

static const char *contents(const Joiner *j, const Source *s, uint64_t section)
{
	return s->bytes + get(j, header(j, s, section), sh_offset);
}

static uint64_t add_name(Joiner *j, const char *name)
{
	uint64_t at = j->names.count;
	say(&j->names, "%s%c", name, 0);
	return *name ? at : 0;
}

enum { SHT_LLVM_ADDRSIG = 0x6FFF4C03 }; // names symbols by number, for linkers that fold code

// ---- sections -------------------------------------------------------------------------

// True for sections whose contents concern a file as a whole.
static bool is_of_file(const char *name)
{
	return !strcmp(name, ".note.GNU-stack") || ends_with(name, ".attributes");
}

static bool is_relocation(uint64_t type)
{
	return type == SHT_RELA || type == SHT_REL;
}

static void add_section(Joiner *j, const char *head, const char *name, const char *bytes)
{
	char *fresh = take_copy(j->arena, head, SIZE(j, Shdr));
	set(j, fresh, sh_name, add_name(j, name));
	PUSH(j->arena, j->sections, fresh);
	PUSH(j->arena, j->bytes, bytes);
}

static void add_sections(Joiner *j, Source *s, bool first)
{
	for (int i = 1; i < s->sections; i++) {
		const char *head = header(j, s, (uint64_t)i);
		const char *name = s->section_names + get(j, head, sh_name);
		uint64_t type = get(j, head, sh_type);
		if (type == SHT_SYMTAB) {
			s->symbols = (int)(get(j, head, sh_size) / SIZE(j, Sym));
			s->table = contents(j, s, (uint64_t)i);
			s->names = contents(j, s, get(j, head, sh_link));
		}
		if (type == SHT_SYMTAB || type == SHT_STRTAB || type == SHT_LLVM_ADDRSIG ||
		    (is_of_file(name) && !first))
			continue;
		s->section[i] = j->sections.count;
		add_section(j, head, name, contents(j, s, (uint64_t)i));
	}
}

// ---- symbols --------------------------------------------------------------------------

static char *copy_symbol(Joiner *j, const Source *s, int i, const char *name, int binding)
{
	char *fresh = take_copy(j->arena, s->table + (size_t)i * SIZE(j, Sym), SIZE(j, Sym));
	uint64_t section = get(j, fresh, st_shndx), type = get(j, fresh, st_info) & 15;
	set(j, fresh, st_name, add_name(j, name));
	set(j, fresh, st_info, (uint64_t)binding << 4 | type);
	if (section && section < SHN_LORESERVE)
		set(j, fresh, st_shndx, (uint64_t)s->section[section]);
	return fresh;
}

static const char *symbol_name(const Joiner *j, const Source *s, int i)
{
	return s->names + get(j, s->table + (size_t)i * SIZE(j, Sym), st_name);
}

// Adds what a part defines, as local symbols but for the model, which gets the name `model`.
static void add_definitions(Joiner *j, Source *s, const char *model)
{
	for (int i = 1; i < s->symbols; i++) {
		const char *symbol = s->table + (size_t)i * SIZE(j, Sym);
		const char *name = symbol_name(j, s, i);
		uint64_t info = get(j, symbol, st_info), section = get(j, symbol, st_shndx);
		if (!section || (info & 15) == STT_FILE)
			continue;
		if (section < SHN_LORESERVE && !s->section[section])
			continue; // of a dropped section
		if (!strcmp(name, "amos_model")) {
			s->symbol[i] = -1 - j->globals.count;
			PUSH(j->arena, j->globals, copy_symbol(j, s, i, model, STB_GLOBAL));
			continue;
		}
		s->symbol[i] = j->locals.count;
		if (info >> 4 != STB_LOCAL)
			*table_cell_s(j->defined, name) = (uint64_t)j->locals.count;
		PUSH(j->arena, j->locals, copy_symbol(j, s, i, name, STB_LOCAL));
	}
}

// Resolves what a part refers to: definitions of other parts, else functions of a library.
static void resolve(Joiner *j, Source *s)
{
	for (int i = 1; i < s->symbols; i++) {
		const char *symbol = s->table + (size_t)i * SIZE(j, Sym);
		const char *name = symbol_name(j, s, i);
		if (get(j, symbol, st_shndx) || !*name)
			continue;
		const uint64_t *local = table_find_s(j->defined, name);
		if (local) {
			s->symbol[i] = (int)*local;
			continue;
		}
		uint64_t *number = table_cell_s(j->global, name);
		if (!*number) {
			PUSH(j->arena, j->globals, copy_symbol(j, s, i, name, STB_GLOBAL));
			*number = (uint64_t)j->globals.count;
		}
		s->symbol[i] = -(int)*number;
	}
}

// Gives the symbols that relocations name, and the sections that headers name, their new numbers.
static void renumber(Joiner *j, const Source *s)
{
	int shift = j->wide ? 32 : 8;
	for (int i = 1; i < s->sections; i++) {
		if (!s->section[i])
			continue;
		char *head = j->sections.at[s->section[i]];
		if (!is_relocation(get(j, head, sh_type))) { // a table of unwinding names its code
			set(j, head, sh_link, (uint64_t)s->section[get(j, head, sh_link)]);
			continue;
		}
		uint64_t size = get(j, head, sh_size), entry = get(j, head, sh_entsize);
		char *bytes = take_copy(j->arena, j->bytes.at[s->section[i]], size);
		for (char *at = bytes; at < bytes + size; at += entry) {
			uint64_t info = get(j, at, r_info),
			         kind = info & (((uint64_t)1 << shift) - 1);
			int symbol = s->symbol[info >> shift];
			int number = symbol < 0 ? j->locals.count - 1 - symbol : symbol;
			set(j, at, r_info, (uint64_t)number << shift | kind);
		}
		j->bytes.at[s->section[i]] = bytes;
		set(j, head, sh_link, 0); // the table of symbols: set when it has a number
		set(j, head, sh_info, (uint64_t)s->section[get(j, head, sh_info)]);
	}
}

// ---- the file -------------------------------------------------------------------------

static void add_table(Joiner *j, const char *name, uint64_t type, const void *bytes, uint64_t size,
                      uint64_t entry)
{
	char *head = take(j->arena, SIZE(j, Shdr));
	set(j, head, sh_type, type);
	set(j, head, sh_size, size);
	set(j, head, sh_entsize, entry);
	set(j, head, sh_addralign, entry ? 8 : 1);
	add_section(j, head, name, bytes);
}

// Adds the tables of symbols and names, to which the headers of relocations refer.
static void add_tables(Joiner *j)
{
	size_t item = SIZE(j, Sym);
	uint64_t locals = (uint64_t)j->locals.count, n = locals + (uint64_t)j->globals.count;
	uint64_t number = (uint64_t)j->sections.count;
	char *symbols = take(j->arena, n * item);
	for (uint64_t i = 0; i < n; i++)
		memcpy(symbols + i * item, i < locals ? j->locals.at[i] : j->globals.at[i - locals],
		       item);
	for (int i = 1; i < j->sections.count; i++)
		if (is_relocation(get(j, j->sections.at[i], sh_type)))
			set(j, j->sections.at[i], sh_link, number);
	add_table(j, ".symtab", SHT_SYMTAB, symbols, n * item, item);
	set(j, j->sections.at[number], sh_link, number + 1);
	set(j, j->sections.at[number], sh_info, locals);
	add_table(j, ".strtab", SHT_STRTAB, NULL, 0, 0);
	j->bytes.at[number + 1] = j->names.at;
	set(j, j->sections.at[number + 1], sh_size, j->names.count);
}

static Part lay_out(Joiner *j, const char *first)
{
	enum { LINE = 64 };
	size_t at = SIZE(j, Ehdr), head = SIZE(j, Shdr);
	for (int i = 1; i < j->sections.count; i++) {
		uint64_t align = MAX(1, get(j, j->sections.at[i], sh_addralign));
		at = (at + align - 1) / align * align;
		set(j, j->sections.at[i], sh_offset, at);
		if (get(j, j->sections.at[i], sh_type) != SHT_NOBITS)
			at += get(j, j->sections.at[i], sh_size);
	}
	at = (at + LINE - 1) / LINE * LINE;
	Part file = {.count = at + head * (size_t)j->sections.count};
	char *bytes = take(j->arena, file.count);
	memcpy(bytes, first, SIZE(j, Ehdr));
	set(j, bytes, e_shoff, at);
	set(j, bytes, e_shnum, (uint64_t)j->sections.count);
	set(j, bytes, e_shstrndx, (uint64_t)j->sections.count - 1);
	for (int i = 1; i < j->sections.count; i++) {
		const char *section = j->sections.at[i];
		memcpy(bytes + at + head * (size_t)i, section, head);
		if (get(j, section, sh_type) != SHT_NOBITS)
			memcpy(bytes + get(j, section, sh_offset), j->bytes.at[i],
			       get(j, section, sh_size));
	}
	file.bytes = bytes;
	return file;
}

static Source open_part(Joiner *j, const Part *part)
{
	Source s = {.bytes = part->bytes, .sections = (int)get(j, part->bytes, e_shnum)};
	s.section_names = contents(j, &s, get(j, part->bytes, e_shstrndx));
	s.section = NEWS(j->arena, int, s.sections);
	return s;
}

Part join_parts(Arena *arena, const Object *object, const char *model)
{
	const char *first = object->part[0].bytes;
	Joiner j = {.arena = arena,
	            .wide = first[EI_CLASS] == ELFCLASS64,
	            .names = {.arena = arena},
	            .defined = table_new(arena),
	            .global = table_new(arena)};
	Source *s = NEWS(arena, Source, object->parts);
	add_name(&j, "");
	PUSH(arena, j.sections, take(arena, SIZE(&j, Shdr)));
	PUSH(arena, j.bytes, NULL);
	PUSH(arena, j.locals, take(arena, SIZE(&j, Sym)));
	for (int k = 0; k < object->parts; k++) {
		s[k] = open_part(&j, &object->part[k]);
		add_sections(&j, &s[k], !k);
		s[k].symbol = NEWS(arena, int, s[k].symbols);
		add_definitions(&j, &s[k], model);
	}
	for (int k = 0; k < object->parts; k++)
		resolve(&j, &s[k]);
	for (int k = 0; k < object->parts; k++)
		renumber(&j, &s[k]);
	if (j.sections.count + 2 >= SHN_LORESERVE)
		bug("an object of %d sections", j.sections.count);
	add_tables(&j);
	return lay_out(&j, first);
}
