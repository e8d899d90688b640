// memory.c: checks memory plans and their verifier.
#include "passes.h"
#include <stdlib.h>
#include <string.h>

static int failures;

static void hold(bool right, const char *what)
{
	printf("%s%s\n", right ? "" : "FAILED ", what);
	failures += !right;
}

static Ref slot(Graph *g, const char *name, SlotKind kind, int64_t rows, int64_t cols)
{
	const Slot s = {.name = name,
	                .kind = kind,
	                .type = E_f32,
	                .shape = shape_of(2, (int64_t[]){rows, cols})};
	return put_slot(g, add_slot(g, s));
}

static Plan *placed(Arena *arena, const Graph *g)
{
	Plan *p = fuse_pass(arena, graph_live(arena, g), "test", machine_named("x86-64-v4"));
	schedule_pass(arena, p);
	tile_pass(arena, p, 0);
	memory_pass(arena, p);
	return p;
}

// x w1 w2 ...: each product reads one buffer and writes another; the last writes the output.
static Graph *chain(Arena *arena, int products)
{
	Graph *g = graph_new(arena, "chain", NULL);
	Ref x = slot(g, "x", S_input, 32, 32);
	for (int i = 0; i < products; i++)
		x = put2(g, O_dot, x, slot(g, format(arena, "w%d", i), S_param, 32, 32));
	add_out(g, "y", x);
	return g;
}

static void test_chain(Arena *arena)
{
	const Plan *p = placed(arena, chain(arena, 7));
	verify_plan(p);
	hold(p->scratch_bytes == 2 * 32 * 32 * 4, "a chain of products needs two buffers");
	hold(p->param_bytes == 7 * 32 * 32 * 4, "parameters lie side by side");
}

// Values of different sizes that do not live at the same time share memory.
static void test_gaps(Arena *arena)
{
	Graph *g = graph_new(arena, "gaps", NULL);
	Ref big = put2(g, O_dot, slot(g, "a", S_input, 64, 8), slot(g, "b", S_input, 8, 64));
	Ref small = put2(g, O_dot, slot(g, "c", S_input, 16, 64), big);
	Ref again = put2(g, O_dot, small, slot(g, "d", S_input, 64, 32));
	add_out(g, "y", put2(g, O_dot, again, slot(g, "e", S_input, 32, 4)));
	const Plan *p = placed(arena, g);
	verify_plan(p);
	hold(p->scratch_bytes == (64 * 64 + 16 * 64) * 4,
	     "what comes later lies where the big one was");
}

// An element-wise kernel writes its result over its operand.
static void test_in_place(Arena *arena)
{
	Graph *g = graph_new(arena, "in place", NULL);
	Ref x = put2(g, O_dot, slot(g, "a", S_input, 64, 64), slot(g, "b", S_input, 64, 64));
	Ref rest = put2(g, O_sub, x, put_reduce(g, O_amax, x, 1, (int64_t[]){1}));
	rest = put1(g, O_exp, rest);
	add_out(g, "y", put2(g, O_dot, rest, slot(g, "c", S_input, 64, 64)));
	const Plan *p = placed(arena, g);
	verify_plan(p);
	hold(p->scratch_bytes == 64 * 64 * 4, "a row kernel works in place");
}

// A product is added to another where that lies.
static void test_sum_in_place(Arena *arena)
{
	const int64_t n = 1024;
	Graph *g = graph_new(arena, "sum in place", NULL);
	Ref x = put2(g, O_dot, slot(g, "a", S_input, n, 8), slot(g, "b", S_input, 8, n));
	for (int i = 0; i < 3; i++)
		x = put2(g, O_add, x,
		         put2(g, O_dot, slot(g, format(arena, "c%d", i), S_input, n, 8),
		              slot(g, format(arena, "d%d", i), S_input, 8, n)));
	add_out(g, "y", put2(g, O_dot, x, slot(g, "e", S_input, n, 4)));
	const Plan *p = placed(arena, g);
	verify_plan(p);
	hold(p->scratch_bytes < 2 * n * n * 4, "large products are added up in one place");
}

// The gradient of a table's rows is added to another of the table where that lies.
static void test_rows_in_place(Arena *arena)
{
	Graph *g = graph_new(arena, "rows in place", NULL);
	Ref x = put2(g, O_dot, slot(g, "a", S_input, 64, 64), slot(g, "b", S_input, 64, 64));
	const Slot ids = {.name = "ids",
	                  .kind = S_input,
	                  .type = E_i64,
	                  .shape = shape_of(1, (int64_t[]){8}),
	                  .limit = 64};
	Ref none = put_broadcast(g, put_num(g, E_f32, 0), val(g, x)->shape);
	Ref rows =
	    put_scatter(g, none, put_slot(g, add_slot(g, ids)), slot(g, "u", S_input, 8, 64), 0, 1);
	Ref both = put2(g, O_add, x, rows);
	hold(val(g, both)->op == O_scatter, "rows are added to the other summand");
	add_out(g, "y", put2(g, O_dot, both, slot(g, "c", S_input, 64, 64)));
	const Plan *p = placed(arena, g);
	verify_plan(p);
	hold(p->scratch_bytes == 64 * 64 * 4, "they lie where it is");
}

// Two entries with the same slots use the same locations.
static void test_entries(Arena *arena)
{
	Graph *g = chain(arena, 3);
	const Plan *p = placed(arena, g);
	Graph *other = graph_like(arena, g);
	add_out(other, "w", put2(other, O_add, put_slot(other, 2), put_slot(other, 3)));
	const Plan *q = placed(arena, other);
	bool same = p->param_bytes == q->param_bytes && p->state_bytes == q->state_bytes;
	for (int i = 0; i < g->slots.count; i++)
		same = same && p->slot[i].block == q->slot[i].block &&
		       p->slot[i].offset == q->slot[i].offset;
	hold(same, "slots lie where they lie in every entry");
}

// A constant in many slots is written to some of them, and copied from one of these to the others:
// also by a plan that is read from text.
static void test_many_stores(Arena *arena)
{
	Graph *g = graph_new(arena, "many stores", NULL);
	Ref none = put_broadcast(g, put_num(g, E_f32, 0), shape_of(2, (int64_t[]){1, 8}));
	for (int i = 0; i < 20; i++) {
		slot(g, format(arena, "s%d", i), S_state, 1, 8);
		add_store(g, i, none);
	}
	const char *text = plan_text(arena, placed(arena, g));
	const Plan *p = lexer_plan(lexer_open(arena, "text", text), book_builtin());
	verify_plan(p);
	hold(p->kerns.count == 5 && !strcmp(text, plan_text(arena, p)),
	     "a constant is copied to many slots");
}

static bool found_wrong(const Plan *p)
{
	Catch c;
	if (!TRY(c)) {
		verify_plan(p);
		catch_end(&c);
		return false;
	}
	free(c.message);
	return true;
}

static void move_out(Plan *p, int k, int64_t offset)
{
	p->kerns.at[k].to[0].offset = offset;
	p->place[p->kerns.at[k].out[0]].offset = offset;
}

static void test_check(Arena *arena)
{
	Plan *p = placed(arena, chain(arena, 4));
	hold(!found_wrong(p), "a good plan passes");
	move_out(p, 1, p->kerns.at[0].to[0].offset);
	hold(found_wrong(p), "a product on top of its operand is found");
	p = placed(arena, chain(arena, 4));
	move_out(p, 2, p->scratch_bytes);
	hold(found_wrong(p), "a value outside of scratch is found");
	p = placed(arena, chain(arena, 4));
	const Kern first = p->kerns.at[0];
	p->kerns.at[0] = p->kerns.at[1];
	p->kerns.at[1] = first;
	hold(found_wrong(p), "a kernel before its operand is found");
	p = placed(arena, chain(arena, 4));
	p->kerns.at[1].kind = L_map;
	hold(found_wrong(p), "a product in a map kernel is found");
	p = placed(arena, chain(arena, 4));
	p->kerns.count--;
	hold(found_wrong(p), "a missing output is found");
	p = placed(arena, chain(arena, 4));
	p->kerns.at[2].sched->height = 30;
	hold(found_wrong(p), "a tile that the registers do not hold is found");
	p = placed(arena, chain(arena, 4));
	p->kerns.at[1].sched->workers++;
	hold(found_wrong(p), "a part of a product that is computed twice is found");
	p = placed(arena, chain(arena, 4));
	p->kerns.at[1].sched->work = 64;
	p->kerns.at[1].work = p->kerns.at[0].to[0];
	hold(found_wrong(p), "a kernel that works where its operand lies is found");
}

// Layers of a product and a square, and the way back, which reads the squares and the products.
static Graph *there_and_back(Arena *arena, int layers)
{
	Graph *g = graph_new(arena, "there and back", NULL);
	Ref product[8], square[8], x = slot(g, "x", S_input, 256, 64);
	for (int i = 0; i < layers; i++) {
		Ref w = slot(g, format(arena, "w%d", i), S_param, 64, 64);
		product[i] = put2(g, O_dot, x, w);
		x = square[i] = put2(g, O_mul, product[i], product[i]);
	}
	for (int i = layers; i-- > 0;) {
		Ref dx = put2(g, O_mul, put1(g, O_exp, x), product[i]);
		x = put2(g, O_dot, dx, put_slot(g, find_slot(g, format(arena, "w%d", i))));
		x = put2(g, O_add, x, put_reduce(g, O_amax, square[i], 1, (int64_t[]){1}));
	}
	add_out(g, "y", x);
	return g;
}

static Plan *scheduled(Arena *arena, const Graph *g)
{
	Plan *p = fuse_pass(arena, graph_live(arena, g), "test", machine_named("x86-64-v4"));
	schedule_pass(arena, p);
	tile_pass(arena, p, 0);
	return p;
}

static bool reads_back(Arena *arena, const Plan *p)
{
	const char *text = plan_text(arena, p);
	return !strcmp(text, plan_text(arena, lexer_plan(lexer_open(arena, "text", text), NULL)));
}

// Removes the first run of a kernel that ran before.
static void remove_run_again(Plan *p)
{
	int t = 0;
	while (p->order.at[t] == t)
		t++;
	p->order.count--;
	memmove(&p->order.at[t], &p->order.at[t + 1], sizeof(int) * (size_t)(p->order.count - t));
}

// With less scratch, kernels run again; at the least, no more values are kept than a layer has.
static void test_again(Arena *arena)
{
	const Graph *g = there_and_back(arena, 8);
	int64_t all = placed(arena, g)->scratch_bytes, value = 256 * 64 * 4;
	Plan *p = scheduled(arena, g);
	hold(recompute_pass(arena, p, all) == all && !p->order.count,
	     "a plan that fits stays as it is");
	p = scheduled(arena, g);
	int64_t half = recompute_pass(arena, p, all / 2), runs = p->order.count;
	memory_pass(arena, p);
	verify_plan(p);
	hold(half <= all / 2 && p->scratch_bytes == half && runs > p->kerns.count,
	     "half of the memory, and more runs");
	hold(reads_back(arena, p), "a plan with runs again reads back");
	remove_run_again(p);
	hold(found_wrong(p), "a missing run is found");
	p = scheduled(arena, g);
	int64_t least = recompute_pass(arena, p, 0);
	hold(least <= half && least <= 5 * value && least > 0, "the least memory");
	hold(p->order.count > runs, "the least memory takes more runs");
}

// A kernel that overwrites a parameter in place does not run again, nor one that reads its old
// contents once they are gone.
static void test_stored(Arena *arena)
{
	Graph *g = graph_new(arena, "stored", NULL);
	Ref x = slot(g, "x", S_input, 256, 256), w = slot(g, "w", S_param, 256, 256);
	Ref y = put1(g, O_exp, put2(g, O_dot, x, w));
	Ref z = put2(g, O_dot, y, x);
	for (int i = 0; i < 3; i++)
		z = put2(g, O_dot, put1(g, O_sin, z), x);
	add_store(g, find_slot(g, "w"), put2(g, O_add, w, put2(g, O_dot, x, x)));
	add_out(g, "y", put2(g, O_add, put2(g, O_dot, z, y), y));
	Plan *p = scheduled(arena, g);
	recompute_pass(arena, p, 0);
	memory_pass(arena, p);
	verify_plan(p);
	int storing = 0;
	for (int t = 0; t < run_count(p); t++)
		storing += p->kerns.at[run_kernel(p, t)].to[0].block == B_param;
	hold(storing == 1, "a parameter is stored once");
}

int main(void)
{
	Arena *arena = arena_new();
	test_chain(arena);
	test_gaps(arena);
	test_in_place(arena);
	test_sum_in_place(arena);
	test_rows_in_place(arena);
	test_entries(arena);
	test_many_stores(arena);
	test_check(arena);
	test_again(arena);
	test_stored(arena);
	arena_free(arena);
	return failures != 0;
}
