// code_size.c: checks how much code kernels are, which decides how long they take to compile, and
// that packing reads vectors, and ahead.
// For named classes of machines, so that the code is the same everywhere.
#include "emitted.h"

static const struct Case {
	const char *name, *cpu, *graph;
	size_t most; // bytes of the object
} cases[] = {
    {"blocks of all channels need no masks", "cpu:x86-64-v3",
     "graph blocks\nslot x : input f32[4,14,14,256]\nslot w : input f32[2304,64]\n"
     "%1 = window(x; [1,7,3,2,1,1,1, 2,7,3,2,1,1,1], 0) : f32[4,7,7,256,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[4,7,7,3,3,256]\n"
     "out y = dot(reshape(%2; [196,2304]), w)\n",
     7200},
    {"blocks of all channels need no masks, by Winograd's method", "cpu:x86-64-v3",
     "graph blocks\nslot x : input f32[4,14,14,256]\nslot w : input f32[2304,64]\n"
     "%1 = window(x; [1,14,3,1,1,1,1, 2,14,3,1,1,1,1], 0) : f32[4,14,14,256,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[4,14,14,3,3,256]\n"
     "out y = dot(reshape(%2; [784,2304]), w)\n",
     19000},
    {"the gradient of a kernel, by Winograd's method", "cpu:x86-64-v3",
     "graph blocks\nslot x : input f32[4,16,16,256]\nslot g : input f32[1024,64]\n"
     "%1 = window(x; [1,16,3,1,1,1,1, 2,16,3,1,1,1,1], 0) : f32[4,16,16,256,3,3]\n"
     "%2 = permute(%1; [0,1,2,4,5,3]) : f32[4,16,16,3,3,256]\n"
     "out y = dot(permute(reshape(%2; [1024,2304]); [1,0]), g)\n",
     21000},
    {"keys are packed by a loop", "cpu:x86-64-v3",
     "graph attention\nslot q : input f32[8,128,64]\nslot k : input f32[8,128,64]\n"
     "slot v : input f32[8,128,64]\nout y = attend(q, k, v; 0.125, 0, 0)\n",
     12500},
    {"squares are transposed by a function that packs for all products", "cpu:sapphirerapids",
     "graph squares\nslot x : input f32[1024,512]\nslot g : input f32[1024,512]\n"
     "slot w : input f32[512,512]\nout a = dot(permute(x; [1,0]), g)\n"
     "out b = dot(permute(g; [1,0]), x * 2)\nout c = dot(x, permute(w; [1,0]))\n"
     "out d = dot(g, permute(w * 2; [1,0]))\n",
     31000},
};

static const struct Case odd = {
    "rows of an odd number of bf16, by columns that are rounded", "cpu:x86-64-v3",
    "graph odd\nslot x : input bf16[64,4097]\nslot w : input f32[4097,64]\n"
    "%1 = cast(w; bf16) : bf16[4097,64]\n%2 = dot(x, %1) : f32[64,64]\nout y = %2\n",
    9000};

static const struct Case rows = {
    "rows of less than two vectors", "cpu:x86-64-v4",
    "graph soft\nslot x : input f32[4096,24]\n%1 = exp(x - amax(x; [1])) : f32[4096,24]\n"
    "out y = %1 / sum(%1; [1])\n",
    9000};

static const Object *code_of(Arena *arena, const struct Case *c)
{
	const Graph *g = parse_graph(arena, c->name, c->graph, book_builtin());
	const Target *target = target_named(arena, c->cpu, NULL);
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	EmitOptions options = {.threads = 1, .name = c->name};
	return emit(arena, 1, 1, &(Variant){target, NULL, &plan}, &options);
}

enum { FORM = 3 }; // of an operand: a register

// True if this is vpmovzxwd of 8 elements from memory.
static bool is_wide_load(const uint8_t *at)
{
	return at[0] == 0xC4 && (at[1] & 0x1F) == 2 && at[2] == 0x7D && at[3] == 0x33 &&
	       at[4] >> 6 != FORM;
}

// True if this is prefetcht0.
static bool is_prefetch(const uint8_t *at)
{
	return at[0] == 0x0F && at[1] == 0x18 && (at[2] >> 3 & 7) == 1 && at[2] >> 6 != FORM;
}

// True if this is vmovups of some lanes to memory.
static bool is_masked_store(const uint8_t *at)
{
	return at[0] == 0x62 && (at[1] & 7) == 1 && (at[3] & 7) && at[4] == 0x11 &&
	       at[5] >> 6 != FORM;
}

static int count_of_code(const Object *object, bool (*is)(const uint8_t *))
{
	enum { LONGEST = 6 };
	int count = 0;
	for (int k = 0; k < object->parts; k++) {
		const uint8_t *bytes = (const uint8_t *)object->part[k].bytes;
		for (size_t i = 0; i + LONGEST <= object->part[k].count; i++)
			count += is(bytes + i);
	}
	return count;
}

// True if rows of an odd length are packed by vectors, and rows of what is rounded are prefetched.
static bool reads_ahead(void)
{
	enum { FEWEST = 5 }; // of rows of x, and of vectors of w
	Arena *arena = arena_new();
	const Object *object = code_of(arena, &odd);
	int loads = count_of_code(object, is_wide_load);
	int prefetches = count_of_code(object, is_prefetch);
	bool right = loads > 0 && prefetches >= FEWEST && object->count <= odd.most;
	printf("%s%s: %zu bytes, %d loads, %d prefetches\n", right ? "" : "FAILED ", odd.name,
	       object->count, loads, prefetches);
	arena_free(arena);
	return right;
}

// True if short rows are stored in pieces, and stay in registers meanwhile.
static bool stores_pieces(void)
{
	Arena *arena = arena_new();
	const Object *object = code_of(arena, &rows);
	int masked = count_of_code(object, is_masked_store);
	bool right = !masked && object->count <= rows.most;
	printf("%s%s: %zu bytes, %d masked stores\n", right ? "" : "FAILED ", rows.name,
	       object->count, masked);
	arena_free(arena);
	return right;
}

int main(void)
{
	int failures = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		const struct Case *c = &cases[i];
		Arena *arena = arena_new();
		size_t count = code_of(arena, c)->count;
		bool right = count <= c->most;
		printf("%s%s: %zu bytes\n", right ? "" : "FAILED ", c->name, count);
		failures += !right;
		arena_free(arena);
	}
	failures += !reads_ahead() + !stores_pieces();
	return failures != 0;
}
