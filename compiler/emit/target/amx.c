// amx.c: emits the tile of a product of bf16, or of slices of f32, on the matrix registers of AMX.
// Two registers of a times two of b make four of sums, or one times four: each instruction adds
// 16 x 16 sums of 16 pairs. Packed operands are sequences of what a register loads, 1 KiB each, so
// that all loads of a tile go through memory in order. A worker configures the registers once,
// because that takes as long as a third of a tile. An f32 is the sum of three bf16, its slices, of
// whose nine products the six large ones are added up (Henry, Tang and Heinecke, arXiv 1904.06376).
// "amx:host" is the same code for this machine with calls of an emulator, amos_matrix_..., for its
// instructions.
#include "../tile.h"
#include "target.h"

enum { REGISTERS = 8, SUMS = 0, OF_B = 4, OF_A = 6, PALETTE = 1 };
enum { ALONE = 7 }; // the register of a, if there is one: those before it are of b by turns

typedef struct Rows {                // rows of a tile that are registers of a and of sums
	int64_t first, rows, offset; // offset: elements of a
} Rows;

// Returns how many there are: 16 rows of a line each, or of lines and what is between them.
static int rows_of(const Tile *t, Rows *part)
{
	int n = 0;
	int64_t run = t->run ? t->run : t->rows, lines = t->rows / run;
	int64_t apart = t->run ? t->c_line : run, joined = joined_lines(t->matrix, run, apart);
	for (int64_t i = 0; i < lines; i += joined) {
		int64_t rows = (MIN(joined, lines - i) - 1) * apart + run;
		for (int64_t r = 0; r < rows; r += t->matrix) {
			if (n == REGISTERS - OF_A)
				bug("a tile of %d rows, %d in a line", t->rows, (int)run);
			part[n++] = (Rows){i * apart + r, MIN(t->matrix, rows - r),
			                   i * t->a_line + r * t->a_row};
		}
	}
	return n;
}

// ---- instructions ---------------------------------------------------------------------

static Value matrix_number(Gen *g, int n)
{
	return LLVMConstInt(g->i8, (unsigned)n, 0);
}

static void instruction(Gen *g, const char *name, const char *emulated, int n, Value *in)
{
	hardware(g, name, emulated, LLVMVoidTypeInContext(g->context), n, in);
}

static void load(Gen *g, int to, Value from, int64_t bytes)
{
	Value in[] = {matrix_number(g, to), from, number(g, bytes)};
	instruction(g, "llvm.x86.tileloadd64", "amos_matrix_load", COUNT(in), in);
}

static void store(Gen *g, int from, Value to, int64_t bytes)
{
	Value in[] = {matrix_number(g, from), to, number(g, bytes)};
	instruction(g, "llvm.x86.tilestored64", "amos_matrix_store", COUNT(in), in);
}

// Returns how many registers of b there are.
static int registers_of_b(const Tile *t, int parts)
{
	return MIN(t->vectors, (parts > 1 ? OF_A : ALONE) - OF_B);
}

static int register_of_a(int i, int parts)
{
	return parts > 1 ? OF_A + i : ALONE;
}

// Configures the registers for so many steps of k. This clears all of them.
static void configure(Gen *g, const Tile *t, int steps)
{
	Rows part[REGISTERS];
	int parts = rows_of(t, part);
	struct {
		uint8_t palette, start, zero[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} c = {.palette = PALETTE};
	for (int v = 0; v < registers_of_b(t, parts); v++) {
		c.rows[OF_B + v] = (uint8_t)steps;
		c.bytes[OF_B + v] = (uint16_t)(t->lanes * t->bytes);
	}
	for (int i = 0; i < parts; i++) {
		c.rows[register_of_a(i, parts)] = (uint8_t)part[i].rows;
		c.bytes[register_of_a(i, parts)] = (uint16_t)(steps * t->bytes);
		for (int v = 0; v < t->vectors; v++) {
			c.rows[SUMS + i * t->vectors + v] = (uint8_t)part[i].rows;
			c.bytes[SUMS + i * t->vectors + v] = (uint16_t)(t->lanes * t->bytes);
		}
	}
	Value bytes = LLVMConstStringInContext(g->context, (const char *)&c, sizeof c, 1);
	Value memory = LLVMAddGlobal(g->module, LLVMTypeOf(bytes), "matrix");
	LLVMSetInitializer(memory, bytes);
	LLVMSetGlobalConstant(memory, 1);
	LLVMSetLinkage(memory, LLVMPrivateLinkage);
	LLVMSetAlignment(memory, sizeof c);
	instruction(g, "llvm.x86.ldtilecfg", "amos_matrix_configure", 1, &memory);
}

void matrix_begin(Gen *g, const Tile *t)
{
	if (t->matrix)
		configure(g, t, t->matrix);
}

void matrix_end(Gen *g, const Tile *t)
{
	if (t->matrix)
		instruction(g, "llvm.x86.tilerelease", "amos_matrix_release", 0, NULL);
}

// ---- the tile -------------------------------------------------------------------------

static void each_sum(Gen *g, const Tile *t, Value c,
                     void (*visit)(Gen *, int number, Value at, int64_t bytes))
{
	Rows part[REGISTERS];
	int parts = rows_of(t, part);
	for (int i = 0; i < parts; i++)
		for (int v = 0; v < t->vectors; v++)
			visit(g, SUMS + i * t->vectors + v,
			      along(g, t, c, part[i].first * t->c_row + v * t->lanes),
			      t->c_row * t->bytes);
}

static void clear(Gen *g, int to, Value at, int64_t bytes)
{
	(void)at, (void)bytes;
	Value in[] = {matrix_number(g, to)};
	instruction(g, "llvm.x86.tilezero", "amos_matrix_clear", COUNT(in), in);
}

// The products of slices, of which 0 is the largest, in the order in which they are added up: small
// ones first. Each shares an operand with the one before it, and the last its a with the first. The
// three that are left out are at most 2^-24 of a product together.
static const struct SlicePair {
	int a, b;
} slice_pairs[] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};

// Multiplies the registers of a by those of b, vectors v to end, after loading those that change.
static void multiply(Gen *g, const Tile *t, const Steps *s, int v, int end,
                     const struct SlicePair *pair, bool new_a, bool new_b)
{
	Rows part[REGISTERS];
	int parts = rows_of(t, part);
	int64_t element = t->dense ? t->bytes / 2 : t->bytes;
	for (int u = v; u < end && new_b; u++)
		load(g, OF_B + u - v, along(g, t, s->b, u * t->b_vector + pair->b * t->b_slice),
		     t->b_step * t->bytes);
	for (int i = 0; i < parts; i++) {
		int a = register_of_a(i, parts);
		if (new_a)
			load(g, a, along_a(g, t, s->a, part[i].offset + pair->a * t->a_slice),
			     t->a_row * element);
		for (int u = v; u < end; u++) {
			Value in[] = {matrix_number(g, SUMS + i * t->vectors + u),
			              matrix_number(g, a), matrix_number(g, OF_B + u - v)};
			instruction(g, "llvm.x86.tdpbf16ps", "amos_matrix_multiply", COUNT(in), in);
		}
	}
}

static int first_pair(const Tile *t) // bf16 is a slice of its own
{
	return t->slices > 1 ? 0 : COUNT(slice_pairs) - 1;
}

int matrix_groups(const Tile *t)
{
	Rows part[REGISTERS];
	int held = registers_of_b(t, rows_of(t, part));
	return (int)ceil_div(t->vectors, held) * (COUNT(slice_pairs) - first_pair(t));
}

static void take_group(Gen *g, const Tile *t, const Steps *s, int group)
{
	Rows part[REGISTERS];
	int first = first_pair(t), pairs = COUNT(slice_pairs) - first;
	int held = registers_of_b(t, rows_of(t, part));
	int v = group / pairs * held, i = first + group % pairs;
	const struct SlicePair *own = &slice_pairs[i];
	bool new_a = i > first ? own->a != own[-1].a : v == 0;
	bool new_b = i == first || own->b != own[-1].b;
	multiply(g, t, s, v, MIN(t->vectors, v + held), own, new_a, new_b);
}

static void take_steps(Gen *g, const Tile *t, Steps *s, int count)
{
	for (int i = 0; i < matrix_groups(t); i++)
		take_group(g, t, s, i);
	s->a = along_a(g, t, s->a, count * t->loop[0].a_step);
	s->b = along(g, t, s->b, t->vectors * t->b_vector);
}

// Copies a's last steps, of which a row has `count` halves: what lies after them may be anything,
// NaN too, so the copy has 0 there. Changes the tile to read it.
static void copy_tail(Gen *g, Tile *t, Value a, Value copy, int count)
{
	Rows part[REGISTERS];
	int parts = rows_of(t, part), halves = t->matrix * t->bytes / 2;
	LLVMTypeRef row = LLVMVectorType(g->i16, (unsigned)halves), types[] = {row, g->ptr};
	Value exist[64];
	for (int i = 0; i < halves; i++)
		exist[i] = LLVMConstInt(g->i1, i < count, 0);
	Value mask = LLVMConstVector(exist, (unsigned)halves);
	for (int i = 0; i < parts; i++)
		for (int64_t r = 0; r < part[i].rows; r++) {
			Value in[] = {along_a(g, t, a, part[i].offset + r * t->a_row),
			              LLVMConstInt(g->i32, 2, 0), mask, LLVMConstNull(row)};
			Value x = intrinsic(g, "llvm.masked.load", 2, types, COUNT(in), in);
			LLVMBuildStore(g->b, x, along_a(g, t, copy, (part[i].first + r) * halves));
		}
	t->a_row = halves;
}

// The steps that do not fill the registers, of the last block of k.
static void take_tail(Gen *g, const Tile *t, Steps *s, Value c, Value k, Value copy)
{
	LLVMBasicBlockRef some = LLVMAppendBasicBlockInContext(g->context, g->function, "tail");
	LLVMBasicBlockRef none = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	Value left = LLVMBuildURem(g->b, k, number(g, t->matrix), "");
	left = LLVMBuildICmp(g->b, LLVMIntNE, left, number(g, 0), "");
	LLVMBuildCondBr(g->b, left, some, none);
	LLVMPositionBuilderAtEnd(g->b, some);
	Tile last = *t;
	if (copy) {
		copy_tail(g, &last, s->a, copy, 2 * t->tail - 1);
		s->a = copy;
	}
	configure(g, t, t->tail);
	each_sum(g, t, c, load);
	take_steps(g, &last, s, t->tail);
	each_sum(g, t, c, store);
	configure(g, t, t->matrix);
	LLVMBuildBr(g->b, none);
	LLVMPositionBuilderAtEnd(g->b, none);
}

void matrix_begin_sums(Gen *g, const Tile *t, Value c, Value again)
{
	LLVMBasicBlockRef add = LLVMAppendBasicBlockInContext(g->context, g->function, "add");
	LLVMBasicBlockRef first = LLVMAppendBasicBlockInContext(g->context, g->function, "set");
	LLVMBasicBlockRef both = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	LLVMBuildCondBr(g->b, again, add, first);
	LLVMPositionBuilderAtEnd(g->b, add);
	each_sum(g, t, c, load);
	LLVMBuildBr(g->b, both);
	LLVMPositionBuilderAtEnd(g->b, first);
	each_sum(g, t, c, clear);
	LLVMBuildBr(g->b, both);
	LLVMPositionBuilderAtEnd(g->b, both);
}

void matrix_add(Gen *g, const Tile *t, Value a, Value b, Value group)
{
	Steps s = {.a = a, .b = b};
	int groups = matrix_groups(t);
	LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	Value choice = LLVMBuildSwitch(g->b, group, after, (unsigned)groups);
	for (int i = 0; i < groups; i++) {
		LLVMBasicBlockRef own =
		    LLVMAppendBasicBlockInContext(g->context, g->function, "group");
		LLVMAddCase(choice, number(g, i), own);
		LLVMPositionBuilderAtEnd(g->b, own);
		take_group(g, t, &s, i);
		LLVMBuildBr(g->b, after);
	}
	LLVMPositionBuilderAtEnd(g->b, after);
}

// copy: memory for the tail of a tile that is odd.
static void end_sums(Gen *g, const Tile *t, Steps *s, Value c, Value steps, Value copy)
{
	each_sum(g, t, c, store);
	if (t->tail)
		take_tail(g, t, s, c, steps, copy);
}

void matrix_end_sums(Gen *g, const Tile *t, Value steps, Value a, Value b, Value c)
{
	end_sums(g, t, &(Steps){.a = a, .b = b}, c, steps, NULL);
}

void write_matrix_tile(const Gen *around, const Tile *t)
{
	Gen own, *g = &own;
	if (t->loop[0].a_step * (t->dense ? t->bytes / 2 : t->bytes) != t->bytes &&
	    t->a_row != t->matrix)
		bug("steps of a that matrix registers cannot load");
	tile_start(g, around, t);
	Value f = g->function, c = LLVMGetParam(f, 3), copy = NULL;
	if (t->odd) {
		unsigned registers = (unsigned)(t->rows * t->matrix * t->bytes);
		copy = LLVMBuildAlloca(g->b, LLVMArrayType2(g->i8, registers), "");
		LLVMSetAlignment(copy, 64);
	}
	matrix_begin_sums(g, t, c, LLVMGetParam(f, 4));
	Steps s = {.take = take_steps, .a = LLVMGetParam(f, 1), .b = LLVMGetParam(f, 2)};
	take_all(g, t, &s, LLVMGetParam(f, 0));
	end_sums(g, t, &s, c, LLVMGetParam(f, 0), copy);
	LLVMBuildRetVoid(g->b);
	LLVMDisposeBuilder(g->b);
}

Target *amx_emulated(Arena *arena)
{
	Target *t = cpu_host(arena, "+avx512bf16,+amx-tile,+amx-bf16");
	t->name = "amx:host";
	t->emulated = true;
	return t;
}
