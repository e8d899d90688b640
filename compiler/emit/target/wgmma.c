// wgmma.c: emits the products of f16 and bf16 by the matrix instructions of NVIDIA's warpgroups, of
// sm_90a. Two warpgroups of four warps have parts of a tile, one below the other or, of 64 rows,
// side by side; if it is swapped, they multiply b by a, and its columns are rows here. An
// instruction multiplies 64 rows by all columns of a part with 16 steps of k, reads both operands
// from shared memory, and goes on while its threads do (PTX ISA, wgmma.mma_async): while they copy
// the next steps or, if a block is alone on its multiprocessor, until they have begun those of the
// next step. A line is what memory has side by side, along k or not, of 32 to 128 bytes; lines of 8
// rows, columns or steps are a group. Pieces of lines change places as the instructions expect it
// (swizzle); those of mma.c, which copies them, are the same. Descriptors say where groups are.
// What is longer than a line is in blocks of all lines. In attention, each warp has 16 rows of its
// own, as mma.c's, and an instruction may read probabilities from registers; products are waited
// for at once, and another warpgroup's go on meanwhile.
#include "mma.h"

enum {
	WARP = 32,
	WARPS = 4, // of a group
	GROUPS = 2,
	ROWS = 64, // of an instruction
	STEPS = 16,
	FRAGMENT = 4,    // registers of operand a
	LINES = 8,       // of a group
	EACH = WIDE / 2, // elements of a piece
	COLUMNS = 8      // of a part of the sums
};

// Returns which operand of the product is operand i of an instruction, and the reverse.
static int operand(const ThreadTile *d, int i)
{
	return d->s->swapped ? !i : i;
}

static bool are_beside(const ThreadTile *d) // the warpgroups
{
	return d->size[operand(d, 0)] == ROWS;
}

static int columns_of(const ThreadTile *d) // of an instruction
{
	return (int)d->size[operand(d, 1)] / (are_beside(d) ? GROUPS : 1);
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
static Value first_of(ThreadTile *d, int i)
{
	int64_t apart = i ? columns_of(d) : ROWS;
	return are_beside(d) == (i == 1) ? times(d->g, group_of(d), apart) : number(d->g, 0);
}

// ---- shared memory --------------------------------------------------------------------

static int64_t line_length(const ThreadTile *d, int o)
{
	bool along = d->share[o].along;
	return MIN(GROUP_LINE, along ? d->s->depth : operand(d, o) ? columns_of(d) : ROWS);
}

static bool is_turned(const ThreadTile *d, int i) // by an instruction, whose operand it is
{
	return !d->share[operand(d, i)].along;
}

static int64_t block_size(const ThreadTile *d, int o)
{
	return d->share[o].lines * line_length(d, o);
}

static Value place(ThreadTile *d, int o, Value k, Value other)
{
	Gen *g = d->g;
	bool along = d->share[o].along;
	int64_t length = line_length(d, o);
	Value line = along ? other : k, at = along ? k : other, block = number(g, 0);
	if ((along ? d->s->depth : d->size[o]) > length) {
		block = LLVMBuildUDiv(g->b, at, number(g, length), "");
		at = LLVMBuildURem(g->b, at, number(g, length), "");
	}
	Value before = sum_of(g, times(g, block, block_size(d, o)), times(g, line, length));
	at = times(g, sum_of(g, before, at), d->packed_bytes);
	return mma_turned(g, line, at, length * d->packed_bytes);
}

static int64_t share_size(ThreadTile *d, int o)
{
	int64_t side = d->share[o].side, length = line_length(d, o);
	return (d->share[o].along ? side : ceil_div(side, length) * length) * d->s->depth;
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
// begins, from 16 on how far blocks are apart, by 16 bytes; 1, if lines are along k.
static void set_bases(ThreadTile *d)
{
	Gen *g = d->g;
	for (int i = 0; i < 2; i++) {
		int o = operand(d, i);
		bool along = d->share[o].along, same = d->share[o].side < d->size[o];
		int64_t block = along ? 1 : block_size(d, o) / EACH;
		Value first = times(g, same ? number(g, 0) : first_of(d, i),
		                    along ? line_length(d, o) : d->share[o].lines);
		Value at = place_in(g, d->packed, d->shared,
		                    sum_of(g, first, number(g, d->share[o].start)));
		at = LLVMBuildLShr(g->b, shared_address(g, at), number32(g, 4), "");
		d->base[i][0] = LLVMBuildOr(g->b, at, number32(g, block << 16), "");
	}
}

// Returns the descriptor of an operand from step k of the stage on, which begins so many pieces
// after the first: in the high half are how far groups of lines are apart and, from bit 30 on,
// the swizzle.
static Value descriptor(ThreadTile *d, int i, int k, Value stage)
{
	Gen *g = d->g;
	enum { BYTES_128 = 1, BYTES_64, BYTES_32 };
	int o = operand(d, i);
	int64_t line = line_length(d, o);
	int64_t swizzle = line == GROUP_LINE       ? BYTES_128
	                  : line == GROUP_LINE / 2 ? BYTES_64
	                                           : BYTES_32;
	int64_t steps = k * line;
	if (d->share[o].along)
		steps = k / line * block_size(d, o) + k % line;
	Value low = d->base[i][0];
	if (!d->share[o].stays)
		low = LLVMBuildAdd(g->b, low, stage, "");
	low = LLVMBuildAdd(g->b, low, number32(g, steps / EACH), "");
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

static int held_of(const ThreadTile *d) // registers of operand a
{
	return d->held[0] ? (int)d->s->depth / STEPS * FRAGMENT : 0;
}

// Writes code that has all sums in its registers, and then what is held: nothing else uses them
// meanwhile. `in`, descriptors, are numbered from twice as many on.
static void with_sums(ThreadTile *d, const char *code, int n, const Value *in)
{
	Gen *g = d->g;
	int sums = sums_of(d), own = sums + held_of(d);
	Text constraints = {.arena = g->arena};
	LLVMTypeRef *types = NEWS(g->arena, LLVMTypeRef, own);
	Value *args = NEWS(g->arena, Value, own + n);
	for (int i = 0; i < own; i++) {
		say(&constraints, i < sums ? "=f," : "=r,");
		types[i] = i < sums ? g->f32 : g->i32;
		args[i] = i < sums ? read_variable(g, d->sum[i]) : d->held[i - sums];
	}
	for (int i = 0; i < own; i++)
		say(&constraints, "%d,", i);
	for (int i = 0; i < n; i++) {
		say(&constraints, "l,");
		args[own + i] = in[i];
	}
	say(&constraints, "~{memory}");
	LLVMTypeRef all = LLVMStructTypeInContext(g->context, types, (unsigned)own, 0);
	Value out = assembly(g, all, code, constraints.at, own + n, args);
	for (int i = 0; i < own; i++) {
		Value x = LLVMBuildExtractValue(g->b, out, (unsigned)i, "");
		if (i < sums)
			set_variable(g, d->sum[i], x);
		else
			d->held[i - sums] = x;
	}
}

// The emulator holds the sums of a warpgroup during its products.
static void give_sums(ThreadTile *d)
{
	Gen *g = d->g;
	for (int i = 0; i < sums_of(d) && g->target->emulated; i++) {
		Value in[] = {number32(g, i), read_variable(g, d->sum[i])};
		hardware(g, NULL, "amos_gpu_set_sum", nothing(g), COUNT(in), in);
	}
}

static void start(ThreadTile *d)
{
	give_sums(d);
	set_bases(d);
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

// An emulator gets what is held, or a descriptor, and the descriptor of b.
static void emulate_matrices(ThreadTile *d, int k, const Value *descriptors)
{
	Gen *g = d->g;
	Value in[FRAGMENT + 5] = {d->shared};
	bool held = d->held[0] != NULL;
	int n = 1;
	for (int i = 0; i < FRAGMENT && held; i++)
		in[n++] = d->held[k / STEPS * FRAGMENT + i];
	for (int o = held; o < 2; o++)
		in[n++] = descriptors[o];
	in[n++] = number32(g, columns_of(d));
	in[n++] = number32(g, is_turned(d, 0) + 2 * is_turned(d, 1));
	in[n++] = number32(g, d->p.matrix == E_f16);
	hardware(g, NULL, held ? "amos_gpu_wgmma_held" : "amos_gpu_wgmma", nothing(g), n, in);
}

static void say_registers(Text *code, int from, int n)
{
	for (int i = 0; i < n; i++)
		say(code, "%s$%d", i ? ", " : "{", from + i);
	say(code, "}, ");
}

// Multiplies by the steps of k from step k of the stage on.
static void multiply_matrices(ThreadTile *d, int k, Value stage)
{
	Gen *g = d->g;
	int sums = sums_of(d), held = held_of(d), in = 2 * (sums + held);
	Value descriptors[] = {held ? NULL : descriptor(d, 0, k, stage),
	                       descriptor(d, 1, k, stage)};
	if (g->target->emulated) {
		emulate_matrices(d, k, descriptors);
		return;
	}
	Text code = {.arena = g->arena};
	const char *type = elems[d->p.matrix].name;
	say(&code,
	    "{ .reg .pred p; setp.ne.b32 p, 1, 0; "
	    "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s ",
	    columns_of(d), type, type);
	say_registers(&code, 0, sums);
	if (held)
		say_registers(&code, sums + k / STEPS * FRAGMENT, FRAGMENT);
	else
		say(&code, "$%d, ", in);
	say(&code, "$%d, p, 1, 1", held ? in : in + 1);
	if (!held)
		say(&code, ", %d", is_turned(d, 0));
	say(&code, ", %d; }", is_turned(d, 1));
	with_sums(d, code.at, held ? 1 : 2, descriptors + (held > 0));
}

static void multiply(ThreadTile *d, Value stage)
{
	Gen *g = d->g;
	stage = LLVMBuildLShr(g->b, stage, number32(g, 4), "");
	begin_sums(d);
	for (int k = 0; k < d->s->depth; k += STEPS)
		multiply_matrices(d, k, stage);
	if (g->target->emulated)
		hardware(g, NULL, "amos_gpu_commit_sums", nothing(g), 0, NULL);
	else
		assembly(g, nothing(g), "wgmma.commit_group.sync.aligned;", "~{memory}", 0, NULL);
}

static void multiply_rows(ThreadTile *d, Value stage)
{
	give_sums(d);
	multiply(d, stage);
	finish(d, 0);
	take_sums(d);
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

// What both kinds have in common.
#define WGMMA_TILE                                                                                 \
	.place = place, .in_line = mma_in_line, .line = line_length, .period = LINES,              \
	.share_size = share_size, .publish = publish, .asynchronous = true, .copy = mma_copy,      \
	.commit = mma_commit, .wait = mma_wait

const TileKind wgmma_tile = {
    WGMMA_TILE,           .exchange = warp_exchange, .start = start,
    .multiply = multiply, .finish = finish,          .take_sums = take_sums,
    .groups = mma_groups, .store_sums = store_sums,  .sum_pad = 8};

const TileKind wgmma_rows_tile = {
    WGMMA_TILE,     .start = set_bases,           .multiply = multiply_rows,
    .ways = QUAD,   .line_of = mma_line_of,       .line_place = mma_line_place,
    .way = mma_way, .reduce_row = mma_reduce_row, .hold = mma_hold};
