// targets.c: compiles for every kind of CPU and reads the objects: targets GRAPH...
// They are ELF of the right machine and ABI, and call nothing but functions that copy memory and
// those of the compiler's runtime, which need no library.
#include "emitted.h"
#include <elf.h>
#include <string.h>

enum { BITS_32 = 1, BITS_64 = 2 };

static const struct Kind {
	const char *target;
	int bits, machine;
	unsigned flags; // of the ELF header
} kinds[] = {
    {"x86-64", BITS_64, EM_X86_64, 0},
    {"aarch64-linux-gnu", BITS_64, EM_AARCH64, 0},
    {"riscv64-linux-gnu", BITS_64, EM_RISCV, EF_RISCV_RVC | EF_RISCV_FLOAT_ABI_DOUBLE},
    {"armv7-linux-gnueabihf", BITS_32, EM_ARM, EF_ARM_EABI_VER5},
    {"cortex-a7", BITS_32, EM_ARM, EF_ARM_EABI_VER5},
    {"cortex-m3", BITS_32, EM_ARM, EF_ARM_EABI_VER5},
    {"cortex-m4", BITS_32, EM_ARM, EF_ARM_EABI_VER5},
    {"cortex-m7", BITS_32, EM_ARM, EF_ARM_EABI_VER5},
};

// ---- objects --------------------------------------------------------------------------

// Calls may name kernels and tiles of other parts of the object. Other names of Arm's runtime would
// have arguments in other registers.
static bool may_call(const char *name, int machine)
{
	return starts_with(name, "amos_kernel_") || starts_with(name, "amos_tile_") ||
	       (machine != EM_ARM && starts_with(name, "__")) || starts_with(name, "__aeabi_") ||
	       !strcmp(name, "__gnu_h2f_ieee") || !strcmp(name, "__gnu_f2h_ieee") ||
	       !strcmp(name, "memcpy") || !strcmp(name, "memmove") || !strcmp(name, "memset");
}

// Checks the header and the undefined symbols of a part.
#define DEFINE_CHECK(bits)                                                                         \
	static bool check_##bits(const char *at, const struct Kind *kind, const char *what)        \
	{                                                                                          \
		const Elf##bits##_Ehdr *head = (const void *)at;                                   \
		const Elf##bits##_Shdr *section = (const void *)(at + head->e_shoff);              \
		bool good = head->e_machine == kind->machine && head->e_flags == kind->flags;      \
		if (!good)                                                                         \
			printf("%s: machine %d, flags %#x\n", what, head->e_machine,               \
			       (unsigned)head->e_flags);                                           \
		for (int s = 0; s < head->e_shnum; s++) {                                          \
			if (section[s].sh_type != SHT_SYMTAB)                                      \
				continue;                                                          \
			const Elf##bits##_Sym *symbol = (const void *)(at + section[s].sh_offset); \
			const char *names = at + section[section[s].sh_link].sh_offset;            \
			for (size_t k = 1; k < section[s].sh_size / sizeof *symbol; k++) {         \
				const char *name = names + symbol[k].st_name;                      \
				if (symbol[k].st_shndx || may_call(name, kind->machine))           \
					continue;                                                  \
				printf("%s: calls %s\n", what, name);                              \
				good = false;                                                      \
			}                                                                          \
		}                                                                                  \
		return good;                                                                       \
	}
DEFINE_CHECK(32)
DEFINE_CHECK(64)

static bool check(Arena *arena, const Graph *g, const struct Kind *kind, const char *what)
{
	const Target *target = target_named(arena, kind->target, NULL);
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	EmitOptions options = {.threads = 1, .name = what};
	Object *object = emit(arena, 1, 1, &(Variant){target, NULL, &plan}, &options);
	bool good = object->parts > 0;
	what = format(arena, "%s for %s", what, kind->target);
	for (int k = 0; k < object->parts; k++) {
		const char *at = object->part[k].bytes;
		bool is = object->part[k].count > sizeof(Elf64_Ehdr) &&
		          !memcmp(at, ELFMAG, SELFMAG) && at[EI_CLASS] == kind->bits &&
		          at[EI_DATA] == ELFDATA2LSB;
		if (!is)
			printf("%s: part %d is not ELF of this kind\n", what, k);
		good &= is && (kind->bits == BITS_32 ? check_32 : check_64)(at, kind, what);
	}
	return good;
}

// ---- graphs ---------------------------------------------------------------------------

// Returns a graph of all maps of operands of a type, if they are computed in it, and all casts.
static Graph *all_maps(Arena *arena, Elem type)
{
	static const struct {
		const char *name;
		Op op;
		const char *classes; // of types
	} maps[] = {
#define MAP(name, ...)     {#name, O_##name, "fiu"},
#define FLOAT(name, ...)   {#name, O_##name, "f"},
#define INTEGER(name, ...) {#name, O_##name, "b"},
#include "maps.def"
	};
	Text text = {.arena = arena};
	say(&text, "graph maps\nslot x : input %s[4]\nslot y : input %s[4]\n", elems[type].name,
	    elems[type].name);
	for (int k = 0; k < COUNT(maps); k++)
		if (strchr(maps[k].classes, elems[type].cls) && arithmetic_type(type) == type)
			say(&text, "out o%d = %s(x%s)\n", k, maps[k].name,
			    prims[maps[k].op].arity > 1 ? ", y" : "");
	for (Elem to = 0; to < ELEMS; to++)
		say(&text, "out to_%s = cast(x; %s)\n", elems[to].name, elems[to].name);
	return parse_graph(arena, "maps", text.at, book_builtin());
}

int main(int argc, char **argv)
{
	static const Elem types[] = {E_f64, E_f32, E_f16, E_bf16, E_i64, E_i32, E_u64, E_b8};
	int failures = 0, graphs = 0;
	for (int k = 0; k < COUNT(kinds); k++) {
		Arena *arena = arena_new();
		for (int t = 0; t < COUNT(types); t++, graphs++)
			failures += !check(arena, all_maps(arena, types[t]), &kinds[k],
			                   format(arena, "maps of %s", elems[types[t]].name));
		for (int i = 1; i < argc; i++, graphs++)
			failures += !check(arena, read_graph(arena, argv[i]), &kinds[k], argv[i]);
		arena_free(arena);
	}
	printf("%d objects, %d are wrong\n", graphs, failures);
	return failures || !graphs;
}
