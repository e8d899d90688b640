// mma.c: emits the products of f16, bf16 and TF32 by NVIDIA's matrix instructions, from sm_80 on.
// Eight warps have two rows and four columns of parts of a tile or, in attention by halves, rows of
// their own; a warp multiplies 16 rows by 8 columns with the steps of k of 32 bytes at once.
// Fragments are those of the PTX ISA (mma.m16n8k16, mma.m16n8k8, ldmatrix). In shared memory a line
// is what memory has side by side, along k or not; ldmatrix turns it if it has to. Its pieces of 16
// bytes change places from line to line, so that the 8 lines that one ldmatrix reads lie in
// different banks. ldmatrix turns no f32: each thread loads its own elements, of lines that are 8
// elements apart in their banks.
#include "mma.h"
#include <string.h>

enum {
	WARP = 32,
	GROUPS = 2, // of rows of a large tile, whose sums are stored one after the other
	ROWS = 16,  // of an instruction
	COLUMNS = 8,
	PIECES = 8,  // of 16 bytes that all banks hold
	APART = 8,   // elements of f32 after a line that is not along k
	FRAGMENT = 4 // registers
};

static int across_of(const ThreadTile *d) // warps
{
	return d->kind->ways / QUAD;
}

static int down_of(const ThreadTile *d)
{
	return THREADS / WARP / across_of(d);
}

static int columns_of(const ThreadTile *d) // instructions of a warp
{
	return (int)d->size[1] / across_of(d) / COLUMNS;
}

static Warp warp_of(ThreadTile *d)
{
	Gen *g = d->g;
	Value warp = LLVMBuildUDiv(g->b, d->thread, number(g, WARP), "");
	Value down = LLVMBuildUDiv(g->b, warp, number(g, across_of(d)), "");
	Value across = LLVMBuildURem(g->b, warp, number(g, across_of(d)), "");
	return (Warp){.lane = LLVMBuildURem(g->b, d->thread, number(g, WARP), ""),
	              .row = times(g, down, d->size[0] / down_of(d)),
	              .column = times(g, across, d->size[1] / across_of(d)),
	              .rows = (int)d->size[0] / down_of(d) / ROWS,
	              .columns = columns_of(d)};
}

// Elements of a piece; an instruction takes steps of k of two.
static int piece_of(const ThreadTile *d)
{
	return WIDE / d->packed_bytes;
}

static bool is_turned(const ThreadTile *d, int o) // by ldmatrix
{
	return !d->share[o].along && is_half(d->p.matrix);
}

static bool is_plain(const ThreadTile *d, int o) // loaded element by element
{
	return !d->share[o].along && d->p.matrix == E_f32;
}

// Returns the elements from line to line.
static int64_t line_length(const ThreadTile *d, int o)
{
	int64_t side = d->size[o];
	return d->share[o].along ? d->s->depth : is_plain(d, o) ? side + APART : side;
}

Value mma_turned(Gen *g, Value line, Value at, int64_t length)
{
	int64_t turns = MIN(PIECES, length / WIDE);
	Value turn = LLVMBuildUDiv(g->b, line, number(g, PIECES / turns), "");
	turn = times(g, LLVMBuildURem(g->b, turn, number(g, turns), ""), WIDE);
	return LLVMBuildXor(g->b, at, turn, "");
}

// Of a tile, the exclusive or is last: ptxas computes a sum or a shift again wherever it adds a
// stage to it. Attention has no registers for that.
static Value place(ThreadTile *d, int o, Value k, Value other)
{
	Gen *g = d->g;
	bool along = d->share[o].along;
	int64_t length = line_length(d, o) * d->packed_bytes;
	Value line = along ? other : k, before = times(g, line, length);
	Value at = times(g, along ? k : other, d->packed_bytes);
	if (is_plain(d, o))
		return sum_of(g, before, at);
	if (g->kern->kind == L_attend)
		return sum_of(g, before, mma_turned(g, line, at, length));
	return mma_turned(g, line, sum_of(g, before, at), length);
}

bool mma_in_line(const Share *s)
{
	(void)s;
	return true;
}

static int64_t share_size(ThreadTile *d, int o)
{
	return line_length(d, o) * (d->share[o].along ? d->size[o] : d->s->depth);
}

// ---- instructions ---------------------------------------------------------------------

// Returns result i of an instruction.
static Value result(Gen *g, Value all, int i, LLVMTypeRef type)
{
	if (g->target->emulated)
		return emulated_result(g, i, type);
	return LLVMBuildExtractValue(g->b, all, (unsigned)i, "");
}

// Loads four matrices of 8 lines of 16 bytes; the lane gives the address of one line. turned: lines
// are columns.
static void load_matrices(Gen *g, Value from, bool turned, Value *to)
{
	LLVMTypeRef shared = LLVMTypeOf(from);
	const char *name = turned ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
	                          : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16";
	Value all, in[] = {from, LLVMConstInt(g->i32, turned, 0)};
	if (g->target->emulated)
		all = hardware(g, NULL, "amos_gpu_ldmatrix", LLVMVoidTypeInContext(g->context), 2,
		               in);
	else
		all = intrinsic(g, name, 1, &shared, 1, in);
	for (int i = 0; i < 4; i++)
		to[i] = result(g, all, i, g->i32);
}

// Rounds to TF32, ties away from zero: the instructions ignore what is below it.
static Value round_tf32(Gen *g, Value bits)
{
	Value x = LLVMBuildBitCast(g->b, bits, g->f32, "");
	return hardware(g, "llvm.nvvm.f2tf32.rna", "amos_gpu_tf32", g->i32, 1, &x);
}

// Of f16, LLVM's operands are pairs of half instead of their bits.
static Value multiply_f16(Gen *g, Value *in)
{
	enum { PAIRS = 6, ALL = 10 };
	LLVMTypeRef pair = LLVMVectorType(LLVMHalfTypeInContext(g->context), 2);
	for (int i = 0; i < PAIRS && !g->target->emulated; i++)
		in[i] = LLVMBuildBitCast(g->b, in[i], pair, "");
	return hardware(g, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "amos_gpu_mma_f16",
	                LLVMVoidTypeInContext(g->context), ALL, in);
}

// sum += a b, of a warp.
static void multiply_matrices(ThreadTile *d, const Value *a, const Value *b, Value *sum)
{
	Gen *g = d->g;
	Value in[10] = {a[0], a[1], a[2], a[3], b[0], b[1]}, all;
	LLVMTypeRef none = LLVMVoidTypeInContext(g->context);
	for (int i = 0; i < 4; i++)
		in[6 + i] = read_variable(g, sum[i]);
	if (d->p.matrix == E_f16)
		all = multiply_f16(g, in);
	else if (d->p.matrix == E_bf16)
		all = hardware(g, "llvm.nvvm.mma.m16n8k16.row.col.bf16", "amos_gpu_mma_bf16", none,
		               COUNT(in), in);
	else
		all = hardware(g, "llvm.nvvm.mma.m16n8k8.row.col.tf32", "amos_gpu_mma_tf32", none,
		               COUNT(in), in);
	for (int i = 0; i < 4; i++)
		set_variable(g, sum[i], result(g, all, i, g->f32));
}

static int steps_of(const ThreadTile *d) // of instructions
{
	return (int)(d->s->depth / piece_of(d) / 2);
}

// Lines 8 further are in the same order, pieces of a line are not, up to as many: there is a base
// for the steps of k of each instruction if lines are along it, from step `first` on, else for each
// 16 rows or columns of BASES.
static void set_bases(ThreadTile *d, Value first)
{
	Gen *g = d->g;
	Warp w = warp_of(d);
	int64_t piece = piece_of(d);
	Value line = LLVMBuildURem(g->b, w.lane, number(g, 8), "");
	Value matrix = LLVMBuildUDiv(g->b, w.lane, number(g, 8), "");
	Value low = LLVMBuildURem(g->b, matrix, number(g, 2), "");
	Value high = LLVMBuildUDiv(g->b, matrix, number(g, 2), "");
	for (int o = 0; o < 2; o++) {
		bool along = d->share[o].along;
		// Of a, the second matrix has further rows and the third further steps; of b,
		// columns are last.
		Value k = times(g, o ? low : high, piece), other = times(g, o ? high : low, 8);
		int bases =
		    along ? MIN(BASES, steps_of(d)) : MIN(BASES, o ? w.columns / 2 : w.rows);
		*(along ? &other : &k) = sum_of(g, along ? other : k, line);
		if (is_plain(d, o)) {
			k = LLVMBuildURem(g->b, w.lane, number(g, 4), "");
			other = LLVMBuildUDiv(g->b, w.lane, number(g, 4), "");
			bases = 1;
		}
		k = sum_of(g, first, k);
		other = sum_of(g, o ? w.column : w.row, other);
		for (int i = 0; i < bases; i++) {
			Value at = along
			               ? place(d, o, sum_of(g, k, number(g, i * piece * 2)), other)
			               : place(d, o, k, sum_of(g, other, number(g, i * 16)));
			d->base[o][i] = share_memory(d, o, at);
		}
	}
}

// A long sum has bases for some of its steps at a time.
static void start(ThreadTile *d)
{
	if (steps_of(d) <= BASES)
		set_bases(d, number(d->g, 0));
}

// Loads the fragments of operand o, of the steps of k of an instruction, 16 rows or columns.
static void load_fragment(ThreadTile *d, int o, int k, int other, Value stage, Value *to)
{
	Gen *g = d->g;
	bool along = d->share[o].along, plain = is_plain(d, o);
	int64_t length = line_length(d, o), piece = piece_of(d);
	Value from = d->base[o][along ? k : plain ? 0 : other % BASES];
	if (!d->share[o].stays)
		from = bytes_after(g, from, stage);
	int64_t lines = along ? other * 16 : k * piece * 2, far = 0;
	if (!along && !plain)
		far = other / BASES * BASES * 16;
	from = place_in(g, d->packed, from, number(g, lines * length + far));
	if (!plain)
		load_matrices(g, from, is_turned(d, o), to);
	for (int i = 0; i < FRAGMENT && plain; i++) { // in the order of the matrices
		int64_t step = (o ? i % 2 : i / 2) * piece, more = (o ? i / 2 : i % 2) * 8;
		Value at = number(g, step * length + other * 16 + more);
		load_side(g, g->i32, d->packed_bytes, place_in(g, d->packed, from, at), 1, &to[i]);
	}
	for (int i = 0; i < FRAGMENT && d->p.matrix == E_f32; i++)
		to[i] = round_tf32(g, to[i]);
}

static void multiply_steps(ThreadTile *d, int steps, Value stage)
{
	Warp w = warp_of(d);
	for (int k = 0; k < steps; k++) {
		Value a[SUMS][FRAGMENT], b[SUMS]; // of b, two for each matrix
		for (int i = 0; i < w.rows; i++)
			if (d->held[0])
				memcpy(a[i], d->held + k * FRAGMENT, sizeof a[i]);
			else
				load_fragment(d, 0, k, i, stage, a[i]);
		for (int j = 0; j < w.columns / 2; j++)
			load_fragment(d, 1, k, j, stage, b + FRAGMENT * j);
		for (int i = 0; i < w.rows; i++)
			for (int j = 0; j < w.columns; j++)
				multiply_matrices(d, a[i], b + 2 * j,
				                  &d->sum[(i * w.columns + j) * 4]);
	}
}

static void multiply(ThreadTile *d, Value stage)
{
	Gen *g = d->g;
	if (steps_of(d) <= BASES) {
		multiply_steps(d, steps_of(d), stage);
		return;
	}
	Loop loop = loop_begin(g, number(g, 0), number(g, d->s->depth), BASES * piece_of(d) * 2);
	set_bases(d, loop.i);
	multiply_steps(d, BASES, stage);
	loop_end_rolled(g, &loop);
}

// ---- sums -----------------------------------------------------------------------------

int mma_line_of(const ThreadTile *d, int o, int i)
{
	int columns = columns_of(d), part = i / 4;
	return o ? part % columns * 2 + i % 2 : part / columns * 2 + i / 2 % 2;
}

Value mma_line_place(ThreadTile *d, int o, int line)
{
	Gen *g = d->g;
	Warp w = warp_of(d);
	int part = line / 2, rest = line % 2;
	if (!o)
		return sum_of(g, sum_of(g, w.row, LLVMBuildUDiv(g->b, w.lane, number(g, 4), "")),
		              number(g, part * ROWS + rest * 8));
	Value own = times(g, LLVMBuildURem(g->b, w.lane, number(g, 4), ""), 2);
	return sum_of(g, sum_of(g, w.column, own), number(g, part * COLUMNS + rest));
}

Value mma_way(ThreadTile *d)
{
	Gen *g = d->g;
	Value warp = LLVMBuildUDiv(g->b, d->thread, number(g, WARP), "");
	Value across = times(g, LLVMBuildURem(g->b, warp, number(g, across_of(d)), ""), QUAD);
	Value lane = LLVMBuildURem(g->b, d->thread, number(g, QUAD), "");
	return sum_of(g, across, lane);
}

// Reduces over the lanes that have sums of a row, if they are of one warp.
Value mma_reduce_row(ThreadTile *d, Op op, Value x)
{
	Gen *g = d->g;
	for (int distance = 1; distance < QUAD; distance *= 2)
		x = reduce_step(g, op, E_f32, x, warp_shuffle(g, E_f32, x, distance));
	return x;
}

Value mma_pack(Gen *g, Elem type, const Value *x)
{
	const char *name = type == E_f16 ? "llvm.nvvm.ff2f16x2.rn" : "llvm.nvvm.ff2bf16x2.rn";
	Value half[2], high_first[] = {x[1], x[0]};
	if (!g->target->emulated)
		return LLVMBuildBitCast(g->b, intrinsic(g, name, 0, NULL, 2, high_first), g->i32,
		                        "");
	for (int e = 0; e < 2; e++)
		half[e] = narrow_float(g, x[e], type);
	return pair_of(g, half);
}

// A lane has the sums of a row that it needs as an operand: 16 columns are an instruction's steps.
void mma_hold(ThreadTile *d, int n, const Value *x)
{
	for (int i = 0; i < n / 2; i++)
		d->held[i] = mma_pack(d->g, d->p.matrix, x + 2 * i);
}

int mma_groups(ThreadTile *d)
{
	int64_t room = MAX(d->s->shared, STATIC_SHARED);
	return !d->s->swapped && d->size[0] * d->line * d->bytes > room ? GROUPS : 1;
}

void mma_store_sums(ThreadTile *d, Value group, const Warp *w)
{
	Gen *g = d->g;
	bool swapped = d->s->swapped;
	int64_t rows = d->size[swapped] / mma_groups(d); // of a group
	Value own = LLVMBuildSub(g->b, w->row, times(g, group, rows), "");
	Value is_own = LLVMBuildICmp(g->b, LLVMIntULT, own, number(g, rows), "");
	Loop some = when_begin(g, is_own);
	Value row = sum_of(g, own, LLVMBuildUDiv(g->b, w->lane, number(g, 4), ""));
	Value column = times(g, LLVMBuildURem(g->b, w->lane, number(g, 4), ""), 2);
	column = sum_of(g, w->column, column);
	int64_t down = swapped ? 1 : d->line, across = swapped ? d->line : 1;
	Value at = sum_of(g, times(g, row, down), times(g, column, across));
	int side = across > 1 ? 1 : 2; // stored together
	for (int i = 0; i < w->rows * w->columns * 4; i += side) {
		int64_t below = i / 4 / w->columns * ROWS + i / 2 % 2 * 8;
		int64_t beside = i / 4 % w->columns * COLUMNS + i % 2;
		Value to = sum_of(g, at, number(g, below * down + beside * across)), x[2];
		for (int e = 0; e < side; e++)
			x[e] = read_variable(g, d->sum[i + e]);
		store_side(g, d->elem, d->bytes, place_in(g, d->elem, d->shared, to), side, x);
	}
	when_end(g, &some);
}

static void store_sums(ThreadTile *d, Value group)
{
	Warp w = warp_of(d);
	mma_store_sums(d, group, &w);
}

// ---- copies ---------------------------------------------------------------------------

Value assembly(Gen *g, LLVMTypeRef result, const char *text, const char *constraints, int n,
               Value *in)
{
	LLVMTypeRef *types = NEWS(g->arena, LLVMTypeRef, n + 1);
	for (int k = 0; k < n; k++)
		types[k] = LLVMTypeOf(in[k]);
	LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)n, 0);
	Value code = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), 1,
	                              0, LLVMInlineAsmDialectATT, 0);
	return LLVMBuildCall2(g->b, type, code, in, (unsigned)n, "");
}

// Returns the bytes of a copy that come from memory; NULL: all do.
static Value copied_bytes(ThreadTile *d, const Copy *c)
{
	Gen *g = d->g;
	Value all = LLVMConstInt(g->i32, (unsigned)(c->n * d->packed_bytes), 0);
	Value none = LLVMConstInt(g->i32, 0, 0);
	if (!c->left)
		return c->inside ? LLVMBuildSelect(g->b, c->inside, all, none, "") : NULL;
	LLVMTypeRef type = LLVMTypeOf(c->left);
	Value most[] = {c->left, LLVMConstInt(type, (unsigned)c->n, 0)};
	Value least[] = {intrinsic(g, "llvm.smin", 1, &type, 2, most), LLVMConstNull(type)};
	Value left = intrinsic(g, "llvm.smax", 1, &type, 2, least);
	left = LLVMBuildIntCast2(g->b, left, g->i32, 1, "");
	return LLVMBuildMul(g->b, left, LLVMConstInt(g->i32, (unsigned)d->packed_bytes, 0), "");
}

// LLVM 19 has no instruction of this kind for addresses of 32 bits.
void mma_copy(ThreadTile *d, const Copy *c)
{
	Gen *g = d->g;
	int bytes = c->n * d->packed_bytes;
	Value all = LLVMConstInt(g->i32, (unsigned)bytes, 0), some = copied_bytes(d, c);
	LLVMTypeRef nothing = LLVMVoidTypeInContext(g->context);
	if (g->target->emulated) {
		Value from = LLVMBuildIntToPtr(g->b, c->from, g->ops->pointer(g), "");
		Value in[] = {bytes_after(g, c->to, number(g, c->to_bytes)),
		              bytes_after(g, from, number(g, c->from_bytes)), all,
		              some ? some : all};
		hardware(g, NULL, "amos_gpu_copy", nothing, 4, in);
		return;
	}
	Value in[] = {LLVMBuildPtrToInt(g->b, c->to, g->i32, ""), c->from, some ? some : all};
	const char *text = format(g->arena, "cp.async.%s.shared.global [$0+%lld], [$1+%lld], %d%s;",
	                          bytes == WIDE ? "cg" : "ca", (long long)c->to_bytes,
	                          (long long)c->from_bytes, bytes, some ? ", $2" : "");
	assembly(g, nothing, text, some ? "r,l,r,~{memory}" : "r,l,~{memory}", some ? 3 : 2, in);
}

void mma_commit(ThreadTile *d)
{
	hardware(d->g, "llvm.nvvm.cp.async.commit.group", "amos_gpu_commit",
	         LLVMVoidTypeInContext(d->g->context), 0, NULL);
}

void mma_wait(ThreadTile *d, int most)
{
	Gen *g = d->g;
	Value site = LLVMConstInt(g->i32, 0, 0); // for the emulator, see watch.c
	Value in[] = {LLVMConstInt(g->i32, (unsigned)most, 0), site};
	hardware(g, "llvm.nvvm.cp.async.wait.group", EMULATED_WAIT,
	         LLVMVoidTypeInContext(g->context), g->target->emulated ? 2 : 1, in);
}

// What both kinds have in common.
#define MMA_TILE                                                                                   \
	.place = place, .in_line = mma_in_line, .line = line_length, .period = PIECES,             \
	.share_size = share_size, .start = start, .multiply = multiply, .line_of = mma_line_of,    \
	.line_place = mma_line_place, .way = mma_way, .asynchronous = true, .copy = mma_copy,      \
	.commit = mma_commit, .wait = mma_wait

const TileKind mma_tile = {MMA_TILE,
                           .ways = SIDE,
                           .groups = mma_groups,
                           .store_sums = store_sums,
                           .sum_pad = 8,
                           .exchange = warp_exchange};

const TileKind mma_rows_tile = {MMA_TILE, .ways = QUAD, .reduce_row = mma_reduce_row,
                                .hold = mma_hold};
