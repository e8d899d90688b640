// wgmma.c: emits the products of f16 and bf16 by the matrix instructions of NVIDIA's warpgroups, of
// sm_90a. Two warpgroups of four warps have parts of a tile, one below the other or, of 64 rows,
// side by side. An instruction multiplies 64 rows by all columns of a part with 16 steps of k,
// reads both operands from shared memory, and goes on while its threads do (PTX ISA,
// wgmma.mma_async): while they copy the next steps or, if a block is alone on its multiprocessor,
// until they have begun those of the next step. A line is what memory has side by side, along k or
// not, of 64 or 128 bytes; lines of 8 rows, columns or steps are a group. Pieces of lines change
// places as the instructions expect it (swizzle); those of mma.c, which copies them, are the same.
// Descriptors say where groups are. Lines that are not along k are blocks of all steps, one for
// each line's length of rows or columns.
#include "mma.h"

enum {
	WARP = 32,
	WARPS = 4, // of a group
	GROUPS = 2,
	ROWS = 64, // of an instruction
	STEPS = 16,
	LINES = 8,       // of a group
	LONGEST = 64,    // elements of a line
	EACH = WIDE / 2, // elements of a piece
	COLUMNS = 8      // of a part of the sums
};

static int columns_of(const ThreadTile *d) // of an instruction
{
	return (int)d->size[1] / (d->size[0] == ROWS ? GROUPS : 1);
}

static int sums_of(const ThreadTile *d)
{
	return columns_of(d) / 2;
}

static LLVMTypeRef nothing(Gen *g)
{
	return LLVMVoidTypeInContext(g->context);
}

static Value group_of(ThreadTile *d)
{
	return LLVMBuildUDiv(d->g->b, d->thread, number(d->g, WARP * WARPS), "");
}

// Returns the first row or column of the thread's part.
static Value first_of(ThreadTile *d, int o)
{
	bool beside = d->size[0] == ROWS;
	int64_t apart = o ? columns_of(d) : ROWS;
	return beside == (o == 1) ? times(d->g, group_of(d), apart) : number(d->g, 0);
}

// ---- shared memory --------------------------------------------------------------------

static int64_t line_length(const ThreadTile *d, int o)
{
	return d->share[o].along ? d->s->depth : MIN(LONGEST, o ? columns_of(d) : ROWS);
}

static Value place(ThreadTile *d, int o, Value k, Value other)
{
	Gen *g = d->g;
	bool along = d->share[o].along;
	int64_t length = line_length(d, o);
	Value line = along ? other : k, at = along ? k : other, block = number(g, 0);
	if (!along) {
		block = LLVMBuildUDiv(g->b, at, number(g, length), "");
		at = LLVMBuildURem(g->b, at, number(g, length), "");
	}
	Value before = sum_of(g, times(g, block, d->s->depth * length), times(g, line, length));
	return sum_of(g, before, mma_turned(g, line, at, length, EACH));
}

static int64_t share_size(ThreadTile *d, int o)
{
	return d->size[o] * d->s->depth;
}

// Returns the number of a byte in shared memory.
static Value shared_address(Gen *g, Value memory)
{
	return g->target->emulated ? hardware(g, NULL, EMULATED_ADDRESS, g->i32, 1, &memory)
	                           : LLVMBuildPtrToInt(g->b, memory, g->i32, "");
}

static Value number32(Gen *g, int64_t n)
{
	return LLVMConstInt(g->i32, (uint64_t)n, 0);
}

// Sets the low halves of the operands' descriptors in the first stage: from bit 0 on where a part
// begins, from 16 on how far blocks are apart, by 16 bytes; 1, if there are none. An emulator has
// the sums of a warpgroup while it multiplies.
static void start(ThreadTile *d)
{
	Gen *g = d->g;
	for (int i = 0; i < sums_of(d) && g->target->emulated; i++) {
		Value in[] = {number32(g, i), read_variable(g, d->sum[i])};
		hardware(g, NULL, "amos_gpu_set_sum", nothing(g), COUNT(in), in);
	}
	for (int o = 0; o < 2; o++) {
		int64_t block = d->share[o].along ? 1 : line_length(d, o) * d->s->depth / EACH;
		Value first = times(g, first_of(d, o), d->s->depth);
		Value at = place_in(g, d->packed, d->shared,
		                    sum_of(g, first, number(g, d->share[o].start)));
		at = LLVMBuildLShr(g->b, shared_address(g, at), number32(g, 4), "");
		d->base[o][0] = LLVMBuildOr(g->b, at, number32(g, block << 16), "");
	}
}

// Returns the descriptor of an operand from step k of the stage on, which begins so many pieces
// after the first: in the high half are how far groups of lines are apart and, from bit 30 on,
// the swizzle.
static Value descriptor(ThreadTile *d, int o, int k, Value stage)
{
	Gen *g = d->g;
	int64_t line = line_length(d, o), swizzle = line == LONGEST ? 1 : 2;
	int64_t steps = k * (d->share[o].along ? 1 : line) / EACH;
	Value low = LLVMBuildAdd(g->b, d->base[o][0], stage, "");
	low = LLVMBuildAdd(g->b, low, number32(g, steps), "");
	int64_t high = swizzle << 30 | LINES * line / EACH;
	return LLVMBuildOr(g->b, LLVMBuildZExt(g->b, low, g->i64, ""),
	                   LLVMConstInt(g->i64, (uint64_t)high << 32, 0), "");
}

// ---- instructions ---------------------------------------------------------------------

static void emulate(Gen *g, const char *name) // its site: see watch.c
{
	Value site = number32(g, 0);
	hardware(g, NULL, name, nothing(g), 1, &site);
}

// Writes code that has all sums in its registers: nothing else uses them meanwhile. `in` follows.
static void with_sums(ThreadTile *d, const char *code, int n, const Value *in)
{
	Gen *g = d->g;
	int sums = sums_of(d);
	Text constraints = {.arena = g->arena};
	LLVMTypeRef *types = NEWS(g->arena, LLVMTypeRef, sums);
	Value *args = NEWS(g->arena, Value, sums + n);
	for (int i = 0; i < sums; i++) {
		say(&constraints, "=f,");
		types[i] = g->f32;
		args[i] = read_variable(g, d->sum[i]);
	}
	for (int i = 0; i < sums; i++)
		say(&constraints, "%d,", i);
	for (int i = 0; i < n; i++) {
		say(&constraints, "l,");
		args[sums + i] = in[i];
	}
	say(&constraints, "~{memory}");
	LLVMTypeRef all = LLVMStructTypeInContext(g->context, types, (unsigned)sums, 0);
	Value out = assembly(g, all, code, constraints.at, sums + n, args);
	for (int i = 0; i < sums; i++)
		set_variable(g, d->sum[i], LLVMBuildExtractValue(g->b, out, (unsigned)i, ""));
}

// Registers are the instructions' from here on.
static void begin_sums(ThreadTile *d)
{
	Gen *g = d->g;
	if (g->target->emulated)
		emulate(g, EMULATED_SUMS);
	else
		with_sums(d, "wgmma.fence.sync.aligned;", 0, NULL);
}

// While products are under way, nothing may move their sums: code that waits for others has none.
static void finish(ThreadTile *d, int most)
{
	Gen *g = d->g;
	Value in[] = {number32(g, most), number32(g, 0)};
	const char *code = format(g->arena, "wgmma.wait_group.sync.aligned %d;", most);
	if (g->target->emulated)
		hardware(g, NULL, EMULATED_SUMS_WAIT, nothing(g), COUNT(in), in);
	else if (most)
		assembly(g, nothing(g), code, "~{memory}", 0, NULL);
	else
		with_sums(d, code, 0, NULL);
}

static void take_sums(ThreadTile *d)
{
	Gen *g = d->g;
	for (int i = 0; i < sums_of(d) && g->target->emulated; i++) {
		Value at = number32(g, i);
		set_variable(g, d->sum[i], hardware(g, NULL, "amos_gpu_sum", g->f32, 1, &at));
	}
}

static void multiply_matrices(ThreadTile *d, Value a, Value b)
{
	Gen *g = d->g;
	int columns = columns_of(d), sums = sums_of(d);
	int turned[] = {!d->share[0].along, !d->share[1].along};
	if (g->target->emulated) {
		Value in[] = {d->shared,
		              a,
		              b,
		              number32(g, columns),
		              number32(g, turned[0] | turned[1] << 1),
		              number32(g, d->p.matrix == E_f16)};
		hardware(g, NULL, "amos_gpu_wgmma", nothing(g), COUNT(in), in);
		return;
	}
	Text code = {.arena = g->arena};
	const char *type = elems[d->p.matrix].name;
	say(&code,
	    "{ .reg .pred p; setp.ne.b32 p, 1, 0; "
	    "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {",
	    columns, type, type);
	for (int i = 0; i < sums; i++)
		say(&code, "%s$%d", i ? ", " : "", i);
	say(&code, "}, $%d, $%d, p, 1, 1, %d, %d; }", 2 * sums, 2 * sums + 1, turned[0], turned[1]);
	with_sums(d, code.at, 2, (Value[]){a, b});
}

static void multiply(ThreadTile *d, Value stage)
{
	Gen *g = d->g;
	stage = LLVMBuildLShr(g->b, stage, number32(g, 4), "");
	begin_sums(d);
	for (int k = 0; k < d->s->depth; k += STEPS)
		multiply_matrices(d, descriptor(d, 0, k, stage), descriptor(d, 1, k, stage));
	if (g->target->emulated)
		hardware(g, NULL, "amos_gpu_commit_sums", nothing(g), 0, NULL);
	else
		assembly(g, nothing(g), "wgmma.commit_group.sync.aligned;", "~{memory}", 0, NULL);
}

// Instructions read shared memory another way than threads write it.
static void publish(ThreadTile *d)
{
	Gen *g = d->g;
	if (g->target->emulated)
		emulate(g, EMULATED_PROXY);
	else
		assembly(g, nothing(g), "fence.proxy.async.shared::cta;", "~{memory}", 0, NULL);
}

// A warp has 16 rows, and a thread those sums of each 8 columns that it has of mma.c's.
static void store_sums(ThreadTile *d, Value group)
{
	Gen *g = d->g;
	Value warp = LLVMBuildUDiv(g->b, d->thread, number(g, WARP), "");
	warp = LLVMBuildURem(g->b, warp, number(g, WARPS), "");
	Warp w = {.lane = LLVMBuildURem(g->b, d->thread, number(g, WARP), ""),
	          .row = sum_of(g, first_of(d, 0), times(g, warp, ROWS / WARPS)),
	          .column = first_of(d, 1),
	          .rows = 1,
	          .columns = columns_of(d) / COLUMNS};
	mma_store_sums(d, group, &w);
}

const TileKind wgmma_tile = {.place = place,
                             .in_line = mma_in_line,
                             .line = line_length,
                             .period = LINES,
                             .share_size = share_size,
                             .start = start,
                             .multiply = multiply,
                             .finish = finish,
                             .take_sums = take_sums,
                             .publish = publish,
                             .groups = mma_groups,
                             .store_sums = store_sums,
                             .sum_pad = 8,
                             .asynchronous = true,
                             .copy = mma_copy,
                             .commit = mma_commit,
                             .wait = mma_wait};
