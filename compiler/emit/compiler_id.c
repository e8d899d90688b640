// compiler_id.c: identifies the code of the compiler, by the build IDs that its linker wrote.
#include "emit.h"
#include <link.h>
#include <llvm-c/Core.h>
#include <math.h>
#include <string.h>

typedef struct Code {            // a program or library of this process
	uintptr_t inside;        // an address in it
	const unsigned char *id; // a hash of its contents; NULL: none was found
	size_t count;
} Code;

// Finds the note of type NT_GNU_BUILD_ID in a segment of notes.
static void find_id(Code *code, const unsigned char *at, size_t left)
{
	ElfW(Nhdr) note;
	while (left > sizeof note) {
		memcpy(&note, at, sizeof note);
		size_t name = (note.n_namesz + 3) / 4 * 4, id = (note.n_descsz + 3) / 4 * 4;
		if (left - sizeof note < name + id)
			return;
		at += sizeof note;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(at, "GNU", 4)) {
			code->id = at + name;
			code->count = note.n_descsz;
		}
		at += name + id;
		left -= sizeof note + name + id;
	}
}

static int find_code(struct dl_phdr_info *info, size_t size, void *context)
{
	Code *code = context;
	bool inside = false;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		inside |= p->p_type == PT_LOAD &&
		          code->inside - info->dlpi_addr - p->p_vaddr < p->p_memsz;
	}
	for (int i = 0; i < info->dlpi_phnum && inside; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_NOTE)
			find_id(code, (const unsigned char *)(info->dlpi_addr + p->p_vaddr),
			        p->p_memsz);
	}
	return inside;
}

const char *compiler_id(Arena *arena)
{
	// of amosc, of LLVM, and of the library by whose functions LLVM folds constants
	const uintptr_t inside[] = {(uintptr_t)compiler_id, (uintptr_t)LLVMGetVersion,
	                            (uintptr_t)(double (*)(double))exp};
	Text text = {.arena = arena};
	for (int i = 0; i < COUNT(inside); i++) {
		Code code = {.inside = inside[i]};
		dl_iterate_phdr(find_code, &code);
		if (!code.id)
			return NULL;
		for (size_t k = 0; k < code.count; k++)
			say(&text, "%02x", code.id[k]);
	}
	return text.at;
}
