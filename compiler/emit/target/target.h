// target.h: declares what the files of targets share.
#ifndef TARGET_H
#define TARGET_H
#include "gen.h"

// target.c. Calls an intrinsic of the hardware or, for an emulated target, the function of the
// emulator by the other name.
Value hardware(Gen *, const char *name, const char *emulated, LLVMTypeRef result, int n,
               Value *args);

// amx.c
Value matrix_tile(const Gen *, const Tile *);
// Around the calls of the tile's function: its matrix registers, if it has any.
void matrix_begin(Gen *, const Tile *);
void matrix_end(Gen *, const Tile *);
Target *amx_emulated(Arena *);

// cpu.c
// `features`: as LLVM writes them; `mask` turns some off.
Target *cpu_known(Arena *, const char *name, const char *triple, const char *cpu,
                  const char *features, const char *mask);
Target *cpu_host(Arena *, const char *mask);
Target *cpu_named(Arena *, const char *name, const char *cpu, const char *mask); // NULL: unknown
Target *cpu_of_triple(Arena *, const char *triple, const char *mask); // NULL: unsupported
const char *cpu_names(Arena *), *triple_names(Arena *);

// nvptx.c. `host`: the target that runs the emulator.
Target *gpu_target(Arena *, const char *name, const Target *host);

#endif
