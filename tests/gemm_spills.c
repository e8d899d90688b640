// gemm_spills.c: checks in the assembly that no register tile of tiles.def spills its accumulators.
// On every kind of machine. One spill in that loop costs up to half of a training step.
#include "gen.h"
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stdlib.h>
#include <string.h>

static const struct Cpu {
	const char *triple, *name;
	const char *machine;
} cpus[] = {
    {"x86_64-linux-gnu", "skylake-avx512", "x86-64-v4"},
    {"x86_64-linux-gnu", "sapphirerapids", "x86-64-v4"},
    {"x86_64-linux-gnu", "rocketlake", "x86-64-v4"},
    {"x86_64-linux-gnu", "znver4", "x86-64-v4"},
    {"x86_64-linux-gnu", "znver5", "x86-64-v4"},
    {"x86_64-linux-gnu", "haswell", "x86-64-v3"},
    {"x86_64-linux-gnu", "alderlake", "x86-64-v3"},
    {"x86_64-linux-gnu", "znver3", "x86-64-v3"},
    {"x86_64-linux-gnu", "x86-64-v2", "x86-64"},
    {"aarch64-linux-gnu", "neoverse-n1", "aarch64"},
    {"aarch64-linux-gnu", "neoverse-v2", "aarch64"},
    {"aarch64-linux-gnu", "apple-m1", "aarch64"},
};

// Returns the assembly of a tile, to be disposed of by the caller.
static LLVMMemoryBufferRef assembly(const struct Cpu *cpu, const Machine *m, Tile tile)
{
	LLVMTargetRef target;
	char *error = NULL;
	if (LLVMGetTargetFromTriple(cpu->triple, &target, &error))
		bug("%s", error);
	LLVMTargetMachineRef machine =
	    LLVMCreateTargetMachine(target, cpu->triple, cpu->name, "", LLVMCodeGenLevelAggressive,
	                            LLVMRelocPIC, LLVMCodeModelSmall);
	LLVMContextRef context = LLVMContextCreate();
	LLVMModuleRef module = LLVMModuleCreateWithNameInContext("tile", context);
	LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
	LLVMSetModuleDataLayout(module, layout);
	LLVMSetTarget(module, cpu->triple);
	LLVMDisposeTargetData(layout);
	Arena *arena = arena_new();
	Gen g = gen_new(arena, &(Target){.machine = m}, module);
	TileCalls calls = {.arena = arena};
	g.tiles = &calls;
	tile.type = E_f32;
	Value f = tile_function(&g, &tile);
	if (tile_function(&g, &tile) != f || calls.list.count != 1)
		bug("equal tiles of a module are several functions");
	write_vector_tile(&g, &tile);
	LLVMDisposeBuilder(g.b);
	arena_free(arena);
	LLVMMemoryBufferRef text;
	if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMAssemblyFile, &error, &text))
		bug("%s", error);
	LLVMDisposeModule(module);
	LLVMContextDispose(context);
	LLVMDisposeTargetMachine(machine);
	return text;
}

// True if a line moves a full vector register to or from the stack (x86: "%zmm3, -72(%rsp)"; Arm:
// "str q3, [sp, #16]").
static bool spills(const char *line, size_t count)
{
	char s[256];
	snprintf(s, sizeof s, "%.*s", (int)count, line);
	if (strstr(s, "(%rsp") || strstr(s, "(%rbp"))
		return strstr(s, "%xmm") || strstr(s, "%ymm") || strstr(s, "%zmm");
	return strstr(s, "[sp") && strstr(s, "\tq");
}

static int count_spills(LLVMMemoryBufferRef text, int *products)
{
	const char *s = LLVMGetBufferStart(text), *end = s + LLVMGetBufferSize(text);
	int found = 0;
	*products = 0;
	while (s < end) {
		const char *stop = memchr(s, '\n', (size_t)(end - s));
		stop = stop ? stop : end;
		found += spills(s, (size_t)(stop - s));
		*products += memmem(s, (size_t)(stop - s), "fmadd", 5) ||
		             memmem(s, (size_t)(stop - s), "fmla", 4) ||
		             memmem(s, (size_t)(stop - s), "mulps", 5);
		s = stop + 1;
	}
	return found;
}

// Checks every form of kernel: a in place, by rows, by columns; k any size; b packed or in place.
static int check(const struct Cpu *cpu, const Machine *m, int rows, int vectors)
{
	const int64_t a_row[] = {512, 1, 30522, 1040}, a_step[] = {1, rows, 1, 1};
	int failed = 0;
	for (int form = 0; form < COUNT(a_row); form++) {
		Tile tile = {.bytes = 4,
		             .lanes = m->lanes,
		             .rows = rows,
		             .vectors = vectors,
		             .unroll = m->unroll,
		             .rest = form == 3,
		             .a_row = a_row[form],
		             .loops = 1,
		             .loop = {{.a_step = a_step[form]}},
		             .b_step = form == 2 ? 512 : vectors * m->lanes,
		             .c_row = 256};
		int products;
		LLVMMemoryBufferRef text = assembly(cpu, m, tile);
		int found = count_spills(text, &products);
		if (found || products < rows * vectors * m->unroll) {
			printf("FAILED %s, tile %d x %d, form %d: %d spills, %d products\n",
			       cpu->name, rows, vectors, form, found, products);
			failed++;
		}
		LLVMDisposeMemoryBuffer(text);
	}
	return failed;
}

int main(void)
{
	LLVMInitializeX86TargetInfo(), LLVMInitializeX86Target(), LLVMInitializeX86TargetMC();
	LLVMInitializeX86AsmPrinter();
	LLVMInitializeAArch64TargetInfo(), LLVMInitializeAArch64Target(),
	    LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	int failed = 0;
	for (int c = 0; c < COUNT(cpus); c++) {
		const Machine *m = machine_named(cpus[c].machine);
		for (int rows = 1; rows <= m->rows; rows++)
			failed += check(&cpus[c], m, rows, m->vectors);
		failed += check(&cpus[c], m, m->narrow, 1);
	}
	printf("%d CPUs, %d tiles spill\n", COUNT(cpus), failed);
	return failed != 0;
}
