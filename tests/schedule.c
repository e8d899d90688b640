// schedule.c: checks that kernels do what their schedules say, when a schedule is not the chosen
// one.
#include "emitted.h"
#include "index.h"
#include <math.h>
#include <string.h>

static const Target *target;

static Plan *plan_after(Arena *arena, const Graph *g, void (*change)(const Plan *, Kern *))
{
	Unit unit = {.name = "run", .machine = target_machine(target), .graph = g};
	for (Pass pass = PASS_loops; pass <= PASS_memory; pass++) {
		for (int k = 0; pass == PASS_memory && change && k < unit.plan->kerns.count; k++)
			change(unit.plan, &unit.plan->kerns.at[k]);
		run_pass(arena, pass, &unit);
	}
	return unit.plan;
}

// Returns the values of the graph's outputs, by Ref, as the plan computes them.
static const Array *run_plan(Arena *arena, const Graph *g, Plan *p, const Array *slot)
{
	Compiled *c = compile_plan(arena, g, p, target, g->name);
	const Array *value = outs_compiled(arena, c, slot);
	free_compiled(c);
	return value;
}

// Returns how many outputs differ in a bit.
static int count_different(const Graph *g, const Array *x, const Array *y)
{
	int different = 0;
	for (int o = 0; o < g->outs.count; o++) {
		const Array *a = &x[g->outs.at[o].val], *b = &y[g->outs.at[o].val];
		different += memcmp(a->f, b->f, sizeof *a->f * (size_t)count_of(&a->shape)) != 0;
	}
	return different;
}

static const Array *run_after(Arena *arena, const Graph *g, const Array *slot,
                              void (*change)(const Plan *, Kern *))
{
	return &run_plan(arena, g, plan_after(arena, g, change), slot)[g->outs.at[0].val];
}

static bool computes(const void *plan, Ref r)
{
	const Plan *p = plan;
	int *writer = plan_writers(p->graph->arena, p);
	return is_inside(p, writer, writer[p->graph->outs.at[0].val], r);
}

static void by_panels(const Plan *p, Kern *k)
{
	Sched *s = k->sched;
	if (s->partition != P_tiles)
		return;
	s->order = N_panels;
	Inside inside = {computes, p};
	DotSizes z = dot_sizes(p->graph->arena, p->graph, &inside, k, p->machine);
	s->local = z.local;
}

static void in_double(const Plan *p, Kern *k)
{
	(void)p;
	k->sched->accumulation = A_f64;
}

static void one_chain(const Plan *p, Kern *k)
{
	(void)p;
	k->sched->chains = 1;
	k->sched->block = 7;
	k->sched->lane_block = 48;
	for (int i = 0; i < k->sched->reduce.count; i++)
		k->sched->reduce.at[i].chains = 1;
}

// The order of the loops around a tile is not the order of a sum.
static int test_order(Arena *arena, const char *text)
{
	const Graph *g = parse_graph(arena, "order", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	const Array *strips = run_after(arena, g, slot, NULL);
	const Array *panels = run_after(arena, g, slot, by_panels);
	size_t bytes = sizeof *strips->f * (size_t)count_of(&strips->shape);
	if (!memcmp(strips->f, panels->f, bytes))
		return 0;
	printf("FAILED %s: another order of loops gives other bits\n", g->name);
	return 1;
}

// Returns the largest error in units of the last place of the largest element.
static double error_of(const Array *found, const Array *exact)
{
	double worst = 0, size = 0;
	for (int64_t i = 0; i < count_of(&exact->shape); i++) {
		worst = fmax(worst, fabs(found->f[i] - exact->f[i]));
		size = fmax(size, fabs(exact->f[i]));
	}
	return worst / (size * 0x1p-23);
}

// ---- panels ---------------------------------------------------------------------------

// Returns the schedule of the product in the first loop's body.
static const Sched *schedule_in_loop(const Plan *p)
{
	for (const Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++)
		for (int i = 0; k->kind == L_loop && i < k->body->kerns.count; i++)
			if (k->body->kerns.at[i].kind == L_dot)
				return k->body->kerns.at[i].sched;
	bug("no product in a loop");
}

// What every iteration multiplies by is packed before the loop, and comes to L2 panel by panel, for
// the same bits; name: of the graph, perhaps with the type of its products. Columns may leave a
// panel that zeros complete.
static int test_panels(Arena *arena, const char *name, int columns)
{
	const Graph *g =
	    parse_graph(arena, "cell",
	                format(arena,
	                       "graph %s\nslot h : input f32[40,192]\n"
	                       "slot w : param f32[192,%d]\n%%1 = const i64 {7}\n"
	                       "%%2 = loop(%%1, h, w; [7,1,0,0,0]) : i64\n"
	                       "slot x : input f32[40,192]\nslot u : input f32[192,%d]\n"
	                       "%%1 = dot(x, u) : f32[40,%d]\n"
	                       "%%2 = slice(%%1; [0,7], [40,192], [1,9]) : f32[40,192]\n"
	                       "out y = act(%%2; tanh)\nend\n"
	                       "out y = result(%%2; 0)\n",
	                       name, columns, columns, columns),
	                book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	const Array *value[2];
	const Sched *schedule[2];
	for (int skip = 0; skip < 2; skip++) {
		Unit unit = {.name = "run", .machine = target_machine(target), .graph = g};
		for (Pass pass = PASS_loops; pass <= PASS_memory; pass++)
			if (!skip || pass != PASS_panels)
				run_pass(arena, pass, &unit);
		schedule[skip] = schedule_in_loop(unit.plan);
		Compiled *c = compile_plan(arena, g, unit.plan, target, g->name);
		value[skip] = &outs_compiled(arena, c, slot)[g->outs.at[0].val];
		free_compiled(c);
	}
	size_t bytes = sizeof *value[0]->f * (size_t)count_of(&value[0]->shape);
	if (schedule[0]->b == W_place && schedule[0]->order == N_panels &&
	    schedule[1]->b == W_copy && !memcmp(value[0]->f, value[1]->f, bytes))
		return 0;
	printf("FAILED %s of %d columns: packing %d, without panels %d, or other bits\n", g->name,
	       columns, (int)schedule[0]->b, (int)schedule[1]->b);
	return 1;
}

// With matrix registers, the products of a loop read bf16 in place: a weight that was rounded and
// packed before the loop, and what the loop carries and stacks for them.
static int test_rounded_loop(Arena *arena)
{
	const Graph *g =
	    parse_graph(arena, "steps",
	                "graph steps products bf16\nslot h : input f32[16,512]\n"
	                "slot w : param f32[512,512]\n%1 = const i64 {7}\n"
	                "%2 = loop(%1, h, w; [7,1,0,0,0]) : i64\n"
	                "slot x : input f32[16,512]\nslot u : input f32[512,512]\n"
	                "%1 = dot(x, u) : f32[16,512]\n%2 = act(%1; tanh) : f32[16,512]\n"
	                "out y = %2\nout z = %2\nend\n"
	                "%3 = result(%2; 1) : f32[7,16,512]\n"
	                "out y = dot(reshape(%3; [112,512]), w)\n",
	                book_builtin());
	target = target_named(arena, "cpu:sapphirerapids", NULL);
	const Plan *p = plan_after(arena, g, NULL);
	const Sched *s = schedule_in_loop(p);
	for (const Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++)
		if (k->kind == L_loop && k->body->graph->slots.at[0].type == E_bf16 &&
		    k->body->graph->slots.at[1].type == E_bf16 &&
		    val(p->graph, k->out[0])->type == E_bf16 && s->a == W_place &&
		    s->b == W_place && s->height == 16 && s->vectors == 4 && s->workers == 8)
			return 0;
	printf("FAILED %s: operands come by ways %d and %d, or are not rounded\n", g->name,
	       (int)s->a, (int)s->b);
	return 1;
}

// So is what a loop joins for its product and stacks for others: it is rounded and stored once.
// Rows and columns of the weight do not fill registers.
static int test_rounded_concat(Arena *arena)
{
	const Graph *g = parse_graph(arena, "parts",
	                             "graph parts products bf16\nslot h : input f32[64,100]\n"
	                             "slot w : param f32[200,100]\n%1 = const i64 {7}\n"
	                             "%2 = loop(%1, h, w; [7,1,0,0,0]) : i64\n"
	                             "slot x : input f32[64,100]\nslot u : input f32[200,100]\n"
	                             "%1 = concat(act(x; tanh), x * x; 1) : f32[64,200]\n"
	                             "out y = dot(%1, u)\nout z = %1\nend\n"
	                             "%3 = result(%2; 1) : f32[7,64,200]\n"
	                             "out y = dot(reshape(%3; [448,200]), w)\n",
	                             book_builtin());
	target = target_named(arena, "cpu:sapphirerapids", NULL);
	const Sched *s = schedule_in_loop(plan_after(arena, g, NULL));
	if (s->a == W_place && s->b == W_place)
		return 0;
	printf("FAILED %s: operands come by ways %d and %d\n", g->name, (int)s->a, (int)s->b);
	return 1;
}

// Panels of pairs are copied vector by vector: of pairs that lie in rows of the weight, and of
// those of two rows.
static int test_pairs(Arena *arena, const char *text)
{
	const Graph *g = parse_graph(arena, "pairs", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	Plan *p = plan_after(arena, g, NULL);
	Compiled *c = compile_plan(arena, g, p, target, g->name);
	double error = check_compiled(arena, c, slot, plain_launch, 1e-9, NULL, g->name);
	free_compiled(c);
	if (p->kerns.count == 1 && p->kerns.at[0].sched->turned && error == 0)
		return 0;
	printf("FAILED %s: turned %d, error %g\n", text, (int)p->kerns.at[0].sched->turned, error);
	return 1;
}

// ---- outputs --------------------------------------------------------------------------

static void past_caches(const Plan *p, Kern *k)
{
	for (int o = 0; o < k->nout && k->kind != L_loop; o++)
		if (!is_past(k->sched, k->out[o]))
			PUSH(p->graph->arena, k->sched->past, ((ValStep){.val = k->out[o]}));
}

static void in_two_passes(const Plan *p, Kern *k)
{
	(void)p;
	k->sched->along = 0;
}

// Rows that are whole vectors and rows that are not, their sums, rounded copies, and products.
static const char *const outputs[] = {
    "slot a : input f32[70,96]\nslot b : input f32[70,96]\n%1 = add(a, mul(b, 0.3))\n"
    "%2 = sum(mul(%1, %1); [1])\nout y = %1\nout z = %2\nout u = amax(%1; [1])\n",
    "slot a : input f32[33,1003]\nslot b : input f32[33,1003]\n%1 = add(a, mul(b, 0.3))\n"
    "%2 = sum(mul(%1, %1); [1])\nout y = cast(%1; bf16)\nout z = %2\n",
    "slot a : input f32[9,64,50]\n%1 = mul(a, a)\nout y = exp(%1)\nout z = sum(%1; [1,2])\n",
    "slot a : input f32[600,64]\nslot b : input f32[64,160]\nout y = max(dot(a, b), 0)\n",
    "slot a : input f32[90,65]\nout y = add(a, 1)\n",
};

// Where outputs are stored, and when, changes no bit.
static int test_outputs(Arena *arena, const char *text, int *along)
{
	const Graph *g = parse_graph(arena, "outputs", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	Plan *usual = plan_after(arena, g, NULL);
	for (int k = 0; k < usual->kerns.count; k++)
		*along += usual->kerns.at[k].sched->along == 1;
	const Array *value = run_plan(arena, g, usual, slot);
	int different =
	    count_different(g, value, run_plan(arena, g, plan_after(arena, g, past_caches), slot)) +
	    count_different(g, value,
	                    run_plan(arena, g, plan_after(arena, g, in_two_passes), slot));
	if (different)
		printf("FAILED %s: other bits\n%s", g->name, text);
	return different != 0;
}

// ---- tunings --------------------------------------------------------------------------

static void add_keys(Table *choices, const Plan *p, uint64_t tuning)
{
	for (const Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++)
		if (k->kind == L_loop)
			add_keys(choices, k->body, tuning);
		else if (k->key)
			*table_cell_s(choices, k->key) = tuning;
}

// Returns the plan with this tuning for all kernels. Sets *others to how many have another schedule
// for it.
static Plan *tuned_plan(Arena *arena, const Graph *g, uint64_t tuning, int *others)
{
	Machine *own = take_copy(arena, target_machine(target), sizeof *own);
	Table *choices = table_new(arena);
	own->choices = choices;
	Plan *usual = plan_graph(arena, g, "run", own);
	add_keys(choices, usual, tuning);
	Plan *p = plan_graph(arena, g, "run", own);
	*others = 0;
	for (int k = 0; k < p->kerns.count && k < usual->kerns.count; k++) {
		const Kern *a = &p->kerns.at[k], *b = &usual->kerns.at[k];
		*others += a->key && strcmp(tuning_key(arena, p->graph, a),
		                            tuning_key(arena, usual->graph, b));
	}
	return p;
}

static const Array *run_tuned(Arena *arena, const Graph *g, const Array *slot, uint64_t tuning,
                              int *others)
{
	return run_plan(arena, g, tuned_plan(arena, g, tuning, others), slot);
}

// Returns the results of a plan for so many processors. Sets *workers to those of its products.
static const Array *run_shared(Arena *arena, const Graph *g, const Array *slot, int processors,
                               int64_t *workers)
{
	Machine *own = take_copy(arena, target_machine(target), sizeof *own);
	own->processors = processors;
	Plan *p = plan_graph(arena, g, "run", own);
	*workers = 0;
	for (int k = 0; k < p->kerns.count; k++)
		if (p->kerns.at[k].kind == L_dot || p->kerns.at[k].kind == L_attend)
			*workers += p->kerns.at[k].sched->workers;
	return run_plan(arena, g, p, slot);
}

// No number of processors changes a bit, and many get more workers. *more: how often they did.
static int test_processors(Arena *arena, const char *text, int *more)
{
	static const int many[] = {3, 12, 50};
	const Graph *g = parse_graph(arena, "shared", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	int64_t usual, workers;
	int failed = 0;
	const Array *alone = run_shared(arena, g, slot, 0, &usual);
	for (int i = 0; i < COUNT(many); i++) {
		const Array *shared = run_shared(arena, g, slot, many[i], &workers);
		*more += workers > usual;
		if (!count_different(g, alone, shared))
			continue;
		printf("FAILED %s: %d processors give other bits\n%s", g->name, many[i], text);
		failed++;
	}
	return failed;
}

// No tuning changes a bit. used[i]: the number of schedules that tuning i changed.
static int test_tunings(Arena *arena, const char *text, int *used)
{
	const Graph *g = parse_graph(arena, "tuned", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	int others, failed = 0;
	const Array *usual = run_tuned(arena, g, slot, 0, &others);
	for (int i = 1; i < tuning_count; i++) {
		const Array *tuned = run_tuned(arena, g, slot, (uint64_t)i, &others);
		used[i] += others;
		if (!count_different(g, usual, tuned))
			continue;
		printf("FAILED %s: %s gives other bits\n%s", g->name, tunings[i].name, text);
		failed++;
	}
	return failed;
}

static const char *const products[] = {
    "slot a : input f32[7,700]\nslot b : input f32[700,3200]\nout y = dot(a, b)\n",
    "slot a : input f32[150,1100]\nslot b : input f32[1100,600]\nout y = max(dot(a, b), 0)\n",
    "slot a : input f32[150,96]\nslot b : input f32[96,320]\nout y = dot(exp(a), b)\n",
    "slot a : input f32[900,400]\nslot b : input f32[700,400]\n"
    "out y = dot(a, permute(b; [1,0]))\n",
    "slot a : input f32[8,32]\nslot b : input f32[128,32]\nout y = dot(a, permute(b; [1,0]))\n",
    "slot a : input f32[1300,400]\nslot b : input f32[1300,500]\n"
    "%1 = dot(permute(a; [1,0]), b) : f32[400,500]\nout y = %1\nout z = sum(%1; [0])\n",
    "slot a : input f32[6,150,60]\nslot b : input f32[6,60,170]\nout y = dot(a, b)\n",
    "slot a : input f64[70,600]\nslot b : input f64[600,90]\nout y = dot(a, b)\n",
    "slot a : input bf16[200,700]\nslot b : input bf16[700,300]\n"
    "out y = dot(a, b)\n",
    "slot a : input bf16[30,700]\nslot b : input bf16[700,4000]\nout y = dot(a, b)\n",
    "slot x : input f32[4,30,30,32]\nslot w : input f32[288,64]\n"
    "%1 = window(x; [1,30,3,1,1,1,1, 2,30,3,1,1,1,1], 0) : f32[4,30,30,32,3,3]\n"
    "out y = max(dot(reshape(permute(%1; [0,1,2,4,5,3]); [3600,288]), w), 0)\n",
    "slot q : input f32[4,610,16]\nslot k : input f32[4,640,16]\n"
    "slot v : input f32[4,640,16]\nout y = attend(q, k, v; 1, 1, 0)\n",
};

static int test_sums(Arena *arena, const char *text)
{
	const Graph *g = parse_graph(arena, "sums", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	const Array *exact = &eval_graph(arena, g, slot)[g->outs.at[0].val];
	double chosen = error_of(run_after(arena, g, slot, NULL), exact);
	double exactly = error_of(run_after(arena, g, slot, in_double), exact);
	double chain = error_of(run_after(arena, g, slot, one_chain), exact);
	if (exactly <= 0.51 && exactly < chosen && chosen < 20 && chain < 20)
		return 0;
	printf("FAILED %s: errors of %g, in double %g, in one chain %g\n", g->name, chosen, exactly,
	       chain);
	return 1;
}

// Matrix registers of 16 rows have two lines of 7 windows each.
static int test_short_lines(Arena *arena)
{
	const Graph *g =
	    parse_graph(arena, "lines",
	                "graph lines\nslot x : input bf16[8,7,7,64]\nslot w : input bf16[576,64]\n"
	                "%1 = window(x; [1,7,3,1,1,1,1, 2,7,3,1,1,1,1], 0) : bf16[8,7,7,64,3,3]\n"
	                "%2 = reshape(permute(%1; [0,1,2,4,5,3]); [392,576]) : bf16[392,576]\n"
	                "%3 = dot(%2, w) : f32[392,64]\nout y = %3\n",
	                book_builtin());
	const Plan *p = plan_graph(arena, g, "lines", machine_named("x86-64-v4-amx"));
	verify_plan(p);
	const Sched *s = p->kerns.at[0].sched;
	if (p->kerns.count == 1 && s->run == 7 && s->height == 28)
		return 0;
	printf("FAILED lines: a tile of %lld rows\n", (long long)s->height);
	return 1;
}

// Rows of a that meet in one set of L1 are packed, but not where the set holds all of a tile.
static int test_rows_in_place(Arena *arena)
{
	const Graph *g = parse_graph(arena, "rows",
	                             "graph rows\nslot a : input f32[1024,1024]\n"
	                             "slot b : input f32[1024,512]\nout y = dot(a, b)\n",
	                             book_builtin());
	static const struct {
		const char *machine;
		Packing way;
	} cases[] = {{"x86-64-v3", W_place}, {"x86-64-v4", W_transpose}};
	for (int i = 0; i < COUNT(cases); i++) {
		const Plan *p = plan_graph(arena, g, "rows", machine_named(cases[i].machine));
		if (p->kerns.at[0].sched->a == cases[i].way)
			continue;
		printf("FAILED rows: %s packs %d\n", cases[i].machine,
		       (int)p->kerns.at[0].sched->a);
		return 1;
	}
	return 0;
}

// Few rows read a b that comes from memory in order: in place, few steps at a time.
static int test_stream(Arena *arena)
{
	enum { STEPS = 16 };
	static const struct {
		int64_t rows, columns;
		bool streams;
	} cases[] = {{8, 4096, true}, {24, 4096, true}, {8, 256, false}, {64, 4096, false}};
	int failed = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		const char *text = format(arena,
		                          "graph stream\nslot a : input f32[%lld,1024]\n"
		                          "slot b : input f32[1024,%lld]\nout y = dot(a, b)\n",
		                          (long long)cases[i].rows, (long long)cases[i].columns);
		const Graph *g = parse_graph(arena, "stream", text, book_builtin());
		const Plan *p = plan_graph(arena, g, "stream", machine_named("x86-64-v3"));
		const Sched *s = p->kerns.at[0].sched;
		if ((s->depth == STEPS && s->b == W_place && s->parts <= 1) == cases[i].streams)
			continue;
		printf("FAILED stream: %lld rows, %lld steps at a time\n", (long long)cases[i].rows,
		       (long long)s->depth);
		failed++;
	}
	return failed;
}

// Few rows meet columns in place, by lanes along k, unless columns are too few for all workers.
static int test_columns(Arena *arena)
{
	static const struct {
		int64_t rows, depth, columns;
		bool along;
	} cases[] = {{8, 4096, 1024, true},  {1, 64, 32, true},     {9, 4096, 1024, false},
	             {8, 4090, 1024, false}, {8, 65536, 64, false}, {8, 4096, 1020, false}};
	int failed = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		const char *text = format(arena,
		                          "graph columns\nslot a : input f32[%lld,%lld]\n"
		                          "slot b : input f32[%lld,%lld]\n"
		                          "out y = dot(a, permute(b; [1,0]))\n",
		                          (long long)cases[i].rows, (long long)cases[i].depth,
		                          (long long)cases[i].columns, (long long)cases[i].depth);
		const Graph *g = parse_graph(arena, "columns", text, book_builtin());
		const Plan *p = plan_graph(arena, g, "columns", machine_named("x86-64-v3"));
		verify_plan(p);
		if ((p->kerns.at[0].sched->b == W_along) == cases[i].along)
			continue;
		printf("FAILED columns: %lld rows of %lld by %lld\n", (long long)cases[i].rows,
		       (long long)cases[i].depth, (long long)cases[i].columns);
		failed++;
	}
	return failed;
}

// The exponentials of a row that only the second-level cache holds are kept.
static int test_kept(Arena *arena)
{
	const Graph *g = parse_graph(arena, "kept",
	                             "graph kept\nslot x : input f32[64,12000]\n"
	                             "out y = softmax(x; [1])\n",
	                             book_builtin());
	const Plan *p = plan_after(arena, g, NULL);
	int kept = 0;
	for (int k = 0; k < p->kerns.count; k++)
		kept += p->kerns.at[k].sched->keep.count;
	if (kept == 1)
		return 0;
	printf("FAILED %s: %d values\n", g->name, kept);
	return 1;
}

// Only what no cache would keep is stored past them, unless it leaves the graph.
static int test_large(Arena *arena)
{
	const Graph *g = parse_graph(arena, "large",
	                             "graph large\nslot a : input f32[3000,64]\n"
	                             "slot b : input f32[64,4096]\nslot c : input f32[64,100]\n"
	                             "%1 = dot(a, b)\n%2 = amax(%1; [0])\n"
	                             "%3 = sum(exp(sub(%1, %2)); [1])\nout x = %3\n"
	                             "out y = exp(dot(a, c))\nout z = mul(%1, 2)\n",
	                             book_builtin());
	const Plan *p = plan_after(arena, g, NULL);
	int past = 0, large = 0;
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		past += kern->sched->past.count;
		for (int o = 0; o < kern->nout; o++)
			large += kern->to[o].block == B_scratch &&
			         bytes_of(val(p->graph, kern->out[o])) > 32 << 20;
	}
	if (past == large && large)
		return 0;
	printf("FAILED large: %d outputs are large, %d pass the caches\n%s", large, past,
	       plan_text(arena, p));
	return 1;
}

int main(void)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx512f,-avx2,-fma,-avx"};
	int failed = 0, used[64] = {0};
	for (int m = 0; m < COUNT(masks); m++) {
		Arena *arena = arena_new();
		if (!mask_applies(arena, masks[m])) {
			arena_free(arena);
			continue;
		}
		target = target_named(arena, "cpu", masks[m]);
		failed +=
		    test_order(arena, "graph product\nslot a : input f32[61,1100]\n"
		                      "slot b : input f32[77,1100]\nslot c : input f32[61,77]\n"
		                      "out y = max(dot(a, permute(b; [1,0])) + c, 0)\n");
		failed +=
		    test_order(arena, "graph batch\nslot a : input f32[3,150,60]\n"
		                      "slot b : input f32[3,60,450]\nout y = dot(exp(a), b)\n");
		failed += test_sums(arena, "graph rows\nslot a : input f32[3,100000]\n"
		                           "out y = sum(exp(a); [1])\n");
		failed += test_sums(arena, "graph columns\nslot a : input f32[5000,20]\n"
		                           "out y = sum(exp(a); [0])\n");
		failed += test_sums(arena, "graph partials\nslot a : input f32[3000,300]\n"
		                           "out y = sum(exp(a); [0])\n");
		for (int columns = 1920; columns > 1910; columns -= 9) {
			failed += test_panels(arena, "cell", columns);
			if (!target_machine(target)->pairs)
				failed += test_panels(arena, "cell products bf16", columns);
		}
		failed +=
		    test_pairs(arena, "graph pairs_of_rows\nslot w : input bf16[96,64]\n"
		                      "out y = permute(reshape(w; [6,16,2,16,2]); [2,0,3,1,4])\n");
		failed +=
		    test_pairs(arena, "graph pairs_of_two_rows\nslot w : input bf16[96,64]\n"
		                      "out y = permute(reshape(w; [3,16,2,4,16]); [0,3,1,4,2])\n");
		failed += test_short_lines(arena);
		failed += test_kept(arena);
		int more = 0, along = 0;
		for (int i = 0; i < COUNT(outputs); i++)
			failed += test_outputs(
			    arena, format(arena, "graph outputs\n%s", outputs[i]), &along);
		if (!along) {
			printf("FAILED: no row's outputs are stored as it is summed\n");
			failed++;
		}
		for (int i = 0; i < COUNT(products); i++) {
			failed += test_tunings(arena, format(arena, "graph tuned\n%s", products[i]),
			                       used);
			failed += test_processors(
			    arena, format(arena, "graph shared\n%s", products[i]), &more);
		}
		if (more < 3) {
			printf("FAILED: %d products have more workers for more processors\n", more);
			failed++;
		}
		arena_free(arena);
	}
	Arena *arena = arena_new();
	failed += test_rounded_loop(arena);
	failed += test_rounded_concat(arena);
	failed += test_rows_in_place(arena);
	failed += test_stream(arena);
	failed += test_columns(arena);
	failed += test_large(arena);
	arena_free(arena);
	for (int i = 1; i < tuning_count; i++)
		if (!used[i]) {
			printf("FAILED: tuning %s changes no schedule\n", tunings[i].name);
			failed++;
		}
	return failed != 0;
}
