// mfma.c: emits the products of f16, bf16 and f32 by the matrix instructions of AMD's CDNA GPUs
// (MI200, MI300), which add products of f32 without rounding them. Four waves of 64 threads have a
// quarter of a tile's columns each; an instruction multiplies 16 rows by 16 columns. Fragments are
// those of the ISA (v_mfma_f32_16x16x16f16 and bf16_1k, v_mfma_f32_16x16x4f32): lane l has line l %
// 16 of an operand, in a few steps of k, and of the result column l % 16, in four rows. Operands
// change places, so that those are columns side by side. In shared memory a row or column is a line
// of steps of k, of which a lane loads 16 bytes: the operands of several instructions. Which of
// these has which steps does not matter, as long as both operands agree. Pieces of 16 bytes change
// places from line to line, and after 8 lines, so that lanes that load, and those that store what
// they turned, are in different banks.
#include "../thread_tile.h"
#include "target.h"

enum {
	WAVE = 64,
	WAVES = THREADS / WAVE,
	LINES = 16,      // of an instruction: rows or columns
	GROUPS = 4,      // of lanes, with the same lines
	RESULTS = 4,     // of a lane
	PIECES = 8,      // of 16 bytes, that change places
	SUMMED = 64 * 64 // sums that are stored at once, in half of the bytes that stages have
};

typedef struct Lane {      // of a thread
	Value line, group; // of its wave
	Value column;      // the first of its wave
	int rows, columns; // instructions
} Lane;

static Lane lane_of(ThreadTile *d)
{
	Gen *g = d->g;
	Value lane = LLVMBuildURem(g->b, d->thread, number(g, WAVE), "");
	Value wave = LLVMBuildUDiv(g->b, d->thread, number(g, WAVE), "");
	return (Lane){.line = LLVMBuildURem(g->b, lane, number(g, LINES), ""),
	              .group = LLVMBuildUDiv(g->b, lane, number(g, LINES), ""),
	              .column = times(g, wave, d->size[1] / WAVES),
	              .rows = (int)d->size[0] / LINES,
	              .columns = (int)d->size[1] / WAVES / LINES};
}

static int piece_of(const ThreadTile *d) // elements
{
	return WIDE / d->packed_bytes;
}

// Pieces of a line that change places: a power of two.
static int turns_of(const ThreadTile *d)
{
	return (int)MIN(PIECES, d->s->depth / piece_of(d));
}

// Lines side by side with the same order of pieces.
static int alike(const ThreadTile *d)
{
	return PIECES / turns_of(d);
}

// Returns the number that a piece's is XORed with, less than turns_of().
static Value turn_of(ThreadTile *d, Value line)
{
	Gen *g = d->g;
	int turns = turns_of(d);
	Value near = LLVMBuildUDiv(g->b, line, number(g, alike(d)), "");
	Value far = LLVMBuildUDiv(g->b, line, number(g, PIECES), "");
	return LLVMBuildURem(g->b, LLVMBuildXor(g->b, near, far, ""), number(g, turns), "");
}

static Value place(ThreadTile *d, int o, Value k, Value line)
{
	(void)o;
	Gen *g = d->g;
	int each = piece_of(d);
	Value piece = LLVMBuildUDiv(g->b, k, number(g, each), "");
	piece = times(g, LLVMBuildXor(g->b, piece, turn_of(d, line), ""), each);
	Value at = sum_of(g, piece, LLVMBuildURem(g->b, k, number(g, each), ""));
	return times(g, sum_of(g, times(g, line, d->s->depth), at), d->packed_bytes);
}

static bool in_line(const Share *s)
{
	return s->along;
}

static int64_t line_length(const ThreadTile *d, int o)
{
	return d->share[o].along ? d->s->depth : 1;
}

static int64_t share_size(ThreadTile *d, int o)
{
	return d->size[o] * d->s->depth;
}

// ---- products -------------------------------------------------------------------------

// Fragments of 16 lines more, or of the next MATRIX_LINE bytes of k, have other bits of the turn:
// there is a base for each combination.
static void start(ThreadTile *d)
{
	Gen *g = d->g;
	Lane own = lane_of(d);
	for (int o = 0; o < 2; o++) {
		Value line = o ? sum_of(g, own.column, own.line) : own.line;
		Value turn = LLVMBuildXor(g->b, own.group, turn_of(d, line), "");
		line = sum_of(g, times(g, line, d->s->depth), number(g, d->share[o].start));
		for (int i = 0; i < turns_of(d) / 2; i++) {
			Value piece = LLVMBuildXor(g->b, turn, number(g, 2 * i), "");
			Value at = sum_of(g, line, times(g, piece, piece_of(d)));
			d->base[o][i] = place_in(g, d->packed, d->shared, at);
		}
	}
}

// Loads a lane's piece of 16 lines: i64 of four halves, or f32.
static void load_piece(ThreadTile *d, int o, int k, int lines, Value stage, Value *to)
{
	Gen *g = d->g;
	int bits = turns_of(d) / 2, pieces = GROUPS * k; // before
	Value from = bytes_after(g, d->base[o][(pieces / 2 ^ lines) % bits], stage);
	int64_t at = lines * LINES * d->s->depth + pieces / (2 * bits) * (2 * bits) * piece_of(d);
	from = place_in(g, d->packed, from, number(g, at));
	if (is_half(d->p.matrix))
		load_side(g, g->i64, 8, from, 2, to);
	else
		load_side(g, g->f32, 4, from, 4, to);
}

static const struct Product { // an instruction, and a function of the emulator
	const char *hardware, *emulated;
} products[] = {
    [E_f16] = {"llvm.amdgcn.mfma.f32.16x16x16f16", "amos_gpu_mfma_f16"},
    [E_bf16] = {"llvm.amdgcn.mfma.f32.16x16x16bf16.1k", "amos_gpu_mfma_bf16"},
    [E_f32] = {"llvm.amdgcn.mfma.f32.16x16x4f32", "amos_gpu_mfma_f32"},
};

// Four f16, four bf16 as their bits, or f32.
static Value fragment(ThreadTile *d, Value x)
{
	Gen *g = d->g;
	LLVMTypeRef half = d->p.matrix == E_f16 ? LLVMHalfTypeInContext(g->context) : g->i16;
	return is_half(d->p.matrix) ? LLVMBuildBitCast(g->b, x, LLVMVectorType(half, 4), "") : x;
}

// Adds a b to sums `sum` and after, of a wave.
static void multiply_matrices(ThreadTile *d, Value a, Value b, int sum)
{
	Gen *g = d->g;
	const struct Product *product = &products[d->p.matrix];
	if (g->target->emulated) {
		Value in[2 + RESULTS] = {b, a};
		for (int i = 0; i < RESULTS; i++)
			in[2 + i] = read_sum(d, sum + i);
		hardware(g, NULL, product->emulated, LLVMVoidTypeInContext(g->context), COUNT(in),
		         in);
		for (int i = 0; i < RESULTS; i++)
			set_sum(d, sum + i, emulated_result(g, i, g->f32));
		return;
	}
	Value all = d->sum[sum / RESULTS], none = LLVMConstInt(g->i32, 0, 0);
	Value in[] = {fragment(d, b), fragment(d, a), read_variable(g, all),
	              none,           none,           none}; // no broadcasts
	set_variable(g, all, intrinsic(g, product->hardware, 0, NULL, COUNT(in), in));
}

// Lets LLVM move matrix instructions alone across this point: with all fragments of a step loaded
// at once, it has no registers left to keep sums where they are.
static void hold_loads(Gen *g)
{
	enum { MATRIX_MAY = 8 };
	Value may = LLVMConstInt(g->i32, MATRIX_MAY, 0);
	if (!g->target->emulated)
		intrinsic(g, "llvm.amdgcn.sched.barrier", 0, NULL, 1, &may);
}

static void multiply(ThreadTile *d, Value stage)
{
	Lane own = lane_of(d);
	int n = is_half(d->p.matrix) ? 2 : 4; // instructions for a piece
	for (int k = 0; k < d->s->depth * d->packed_bytes / MATRIX_LINE; k++) {
		Value a[SUMS][4], b[SUMS][4];
		if (k)
			hold_loads(d->g);
		for (int i = 0; i < own.rows; i++)
			load_piece(d, 0, k, i, stage, a[i]);
		for (int j = 0; j < own.columns; j++)
			load_piece(d, 1, k, j, stage, b[j]);
		for (int e = 0; e < n; e++)
			for (int i = 0; i < own.rows; i++)
				for (int j = 0; j < own.columns; j++)
					multiply_matrices(d, a[i][e], b[j][e],
					                  (i * own.columns + j) * RESULTS);
	}
}

// ---- sums -----------------------------------------------------------------------------

static int line_of(const ThreadTile *d, int o, int i)
{
	int columns = (int)d->size[1] / WAVES / LINES, part = i / RESULTS;
	return o ? part % columns * RESULTS + i % RESULTS : part / columns;
}

static Value line_place(ThreadTile *d, int o, int line)
{
	Gen *g = d->g;
	Lane own = lane_of(d);
	if (!o)
		return sum_of(g, own.line, number(g, line * LINES));
	Value first = sum_of(g, own.column, times(g, own.group, RESULTS));
	return sum_of(g, first, number(g, line / RESULTS * LINES + line % RESULTS));
}

static Value way(ThreadTile *d)
{
	Gen *g = d->g;
	return LLVMBuildUDiv(g->b, d->thread, number(g, LINES), "");
}

static int groups(ThreadTile *d)
{
	return (int)MAX(1, d->size[0] * d->size[1] / SUMMED);
}

static void store_sums(ThreadTile *d, Value group)
{
	Gen *g = d->g;
	Lane own = lane_of(d);
	int rows = own.rows / groups(d); // of a group
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < own.columns; j++) {
			Value x[RESULTS];
			for (int e = 0; e < RESULTS; e++)
				for (int k = 0; k < groups(d); k++) {
					int at = (k * rows + i) * own.columns + j;
					Value sum = read_sum(d, at * RESULTS + e);
					Value is =
					    LLVMBuildICmp(g->b, LLVMIntEQ, group, number(g, k), "");
					x[e] = k ? LLVMBuildSelect(g->b, is, sum, x[e], "") : sum;
				}
			Value row = line_place(d, 0, i), column = line_place(d, 1, j * RESULTS);
			Value to = sum_of(g, times(g, row, d->line), column);
			store_side(g, d->elem, d->bytes, place_in(g, d->elem, d->shared, to),
			           RESULTS, x);
		}
}

const TileKind mfma_tile = {.place = place,
                            .in_line = in_line,
                            .line = line_length,
                            .period = PIECES * PIECES,
                            .alike = alike,
                            .share_size = share_size,
                            .start = start,
                            .multiply = multiply,
                            .results = RESULTS,
                            .line_of = line_of,
                            .line_place = line_place,
                            .ways = SIDE,
                            .way = way,
                            .groups = groups,
                            .store_sums = store_sums,
                            .sum_pad = 4};
