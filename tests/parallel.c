// parallel.c: checks launches on threads, loops, and opening, calling, reading and writing a model.
// Every worker runs once, each thread has its own local memory, and results depend neither on the
// number of threads nor on the caller's floating-point mode.
#include "fixtures.h"
#include <fenv.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 100003, LAUNCHES = 200, GANG = 1000 };
static atomic_int times[WORKERS], largest; // of a worker; gang

static void count(char *const *buf, int64_t first, int64_t end, char *local)
{
	int before = atomic_load(&largest), workers = (int)(end - first);
	while (before < workers && !atomic_compare_exchange_weak(&largest, &before, workers))
		;
	for (int64_t i = first; i < end; i++) {
		// If local memory were shared, another thread would change it meanwhile.
		memcpy(local, &i, sizeof i);
		atomic_fetch_add_explicit(&times[i], 1, memory_order_relaxed);
		int64_t mine;
		memcpy(&mine, local, sizeof mine);
		((int64_t *)buf[0])[i] = mine * mine;
	}
}

static const struct amos_out squares_out[] = {
    {.name = "squares", .type = E_i64, .rank = 1, .dim = {WORKERS}, .bytes = 8 * WORKERS}};
static const struct amos_operand output = {.block = AMOS_BLOCK_OUTPUT};
static const struct amos_kernel kernel[] = {{.name = "squares",
                                             .kind = "map",
                                             .workers = WORKERS,
                                             .flops = WORKERS,
                                             .times = 1,
                                             .code = count,
                                             .operands = &output,
                                             .noperands = 1,
                                             .gang = GANG}};
static const struct amos_entry entry[] = {{.name = "run",
                                           .reads = "",
                                           .outs = squares_out,
                                           .nouts = 1,
                                           .kernels = kernel,
                                           .nkernels = 1}};
static const struct amos_model squares = {
    .abi = AMOS_ABI, .name = "squares", .entries = entry, .nentries = 1, .local = 8, .note = ""};

static void every_worker_once(int threads)
{
	struct amos *m;
	CHECK(!amos_open_slots(&squares, threads, 0, NULL, NULL, &m), "%d threads", threads);
	int64_t nanoseconds = 0, ran = 0;
	struct amos_span span[LAUNCHES * 4];
	struct amos_spans spans = {.room = LAUNCHES * 4, .at = span};
	m->nanoseconds = &nanoseconds;
	m->spans = &spans;
	memset(times, 0, sizeof times);
	largest = 0;
	for (int i = 0; i < LAUNCHES; i++)
		CHECK(!amos_call(m, entry, NULL, NULL), "launch %d", i);
	CHECK(largest == GANG, "a gang of %d workers", largest);
	const int64_t *out = amos_out_bytes(m, entry, 0);
	CHECK((uintptr_t)out % 64 == 0, "outputs at %p", (const void *)out);
	for (int64_t i = 0; i < WORKERS; i++) {
		CHECK(times[i] == LAUNCHES, "worker %d ran %d times", (int)i, times[i]);
		CHECK(out[i] == i * i, "worker %d", (int)i);
	}
	for (int64_t i = 0; i < spans.count; i++) {
		CHECK(span[i].kernel == kernel && span[i].thread < threads, "a span of another");
		ran += span[i].end - span[i].begin;
	}
	CHECK(spans.count >= LAUNCHES, "%d spans", (int)spans.count);
	CHECK(ran > 0 && ran <= nanoseconds * threads, "threads ran %g s in %g s",
	      1e-9 * (double)ran, 1e-9 * (double)nanoseconds);
	amos_close(m);
}

// Of its own workers, a thread claims all at once if the kernel says so, else three quarters.
static void claims(int threads, bool whole)
{
	struct amos_kernel row = kernel[0];
	row.gang = WORKERS;
	row.whole = whole;
	struct amos_entry run = entry[0];
	run.kernels = &row;
	struct amos_model model = squares;
	struct amos *m;
	model.entries = &run;
	CHECK(!amos_open_slots(&model, threads, 0, NULL, NULL, &m), "%d threads", threads);
	largest = 0;
	for (int i = 0; i < LAUNCHES; i++)
		CHECK(!amos_call(m, &run, NULL, NULL), "launch %d", i);
	int own = (WORKERS + threads - 1) / threads;
	CHECK(largest == own - (whole ? 0 : own / 4), "%d of %d workers", largest, own);
	amos_close(m);
}

static void nap(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)buf, (void)end, (void)local;
	if (i == 0)
		nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
}

// Threads that wait for a slow worker leave their cores to others.
static void waiting_sleeps(void)
{
	const struct amos_kernel naps[] = {{.name = "nap",
	                                    .kind = "map",
	                                    .workers = 4,
	                                    .flops = 1 << 20,
	                                    .times = 1,
	                                    .code = nap}};
	const struct amos_entry run = {.name = "run", .reads = "", .kernels = naps, .nkernels = 1};
	struct amos_model model = squares;
	struct amos *m;
	model.entries = &run;
	CHECK(!amos_open_slots(&model, 4, 0, NULL, NULL, &m), "open");
	clock_t before = clock();
	CHECK(!amos_call(m, &run, NULL, NULL), "a launch with a slow worker");
	double used = (double)(clock() - before) / CLOCKS_PER_SEC;
	CHECK(used < 0.05, "threads used %g s of processor time to wait for 0.2 s", used);
	amos_close(m);
}

// Trains the line for 100 steps and closes it; the results are compared bit for bit.
static void train_opened(struct amos *m, float *to)
{
	const struct amos_entry *train = amos_find_entry(&mock_line, "train");
	float x[12] __attribute__((aligned(64))), y[4] __attribute__((aligned(64)));
	for (int step = 0; step < 100; step++) {
		for (int i = 0; i < 12; i++)
			x[i] = (float)((step * 7 + i * 5) % 11) / 11 - 0.5f;
		for (int i = 0; i < 4; i++)
			y[i] = 2 * x[3 * i] - x[3 * i + 1] + 0.5f * x[3 * i + 2] + 0.25f;
		CHECK(!amos_call(m, train, (void *[]){x, y}, NULL), "step %d", step);
	}
	memcpy(to, amos_slot_bytes(m, amos_find_slot(&mock_line, "w")), 12);
	memcpy(to + 3, amos_slot_bytes(m, amos_find_slot(&mock_line, "b")), 4);
	CHECK(*(int64_t *)amos_slot_bytes(m, amos_find_slot(&mock_line, "amos.step")) == 100,
	      "steps");
	CHECK(*(int64_t *)amos_slot_bytes(m, amos_find_slot(&mock_line, "amos.seed")) == 7, "seed");
	CHECK(amos_out_number(m, train, 0) < 0.05, "loss %g", amos_out_number(m, train, 0));
	amos_close(m);
}

static void train_line(int threads, float *to)
{
	struct amos *m;
	CHECK(!amos_open_slots(&mock_line, threads, 7, NULL, NULL, &m), "%d threads", threads);
	train_opened(m, to);
}

// The same in a block of the caller's, of exactly the bytes that it needs.
static void train_in_block(float *to)
{
	struct amos_setup setup = {.size = sizeof setup, .seed = 7};
	struct amos *m;
	int64_t bytes = amos_instance_bytes(&mock_line, &setup);
	char *block = aligned_alloc(AMOS_LINE, (size_t)bytes);
	CHECK(block && !amos_open_in(&mock_line, &setup, block, bytes, &m), "in a block");
	train_opened(m, to);
	free(block);
}

static const void *given(void *context, int64_t slot)
{
	static const float b = 3;
	++*(int *)context;
	return !strcmp(mock_line.slots[slot].name, "b") ? &b : NULL;
}

static void first_contents(void)
{
	struct amos *m;
	int asked = 0;
	CHECK(!amos_open_slots(&mock_line, 1, 0, given, &asked, &m), "open");
	const float *w = amos_slot_bytes(m, 2), *b = amos_slot_bytes(m, 3);
	CHECK(w[0] == 0.5f && w[1] == -0.25f, "w is %g %g", w[0], w[1]);
	CHECK(*b == 3, "b is %g", *b);
	CHECK(asked == 3, "asked %d times: of b and two of the state", asked);
	amos_close(m);
	struct amos_model old = mock_line;
	old.abi = 999;
	CHECK(amos_open_slots(&old, 1, 0, NULL, NULL, &m) == AMOS_INPUT && !m,
	      "another version opens");
	CHECK(strstr(amos_error(), "999"), "says the version");
	struct amos_model large = mock_line;
	large.state = INT64_C(1) << 60;
	CHECK(amos_open_slots(&large, 1, 0, NULL, NULL, &m) == AMOS_MACHINE && !m,
	      "an exabyte opens");
	CHECK(strstr(amos_error(), "out of memory"), "says why");
}

// ---- floating-point mode --------------------------------------------------------------

static void divide(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)end, (void)local;
	volatile float x = 1, y = (float)(i + 3), small = 1e-30f, factor = 1e-10f;
	((float *)buf[0])[i] = x / y;
	((float *)buf[1])[i] = small * factor;
}

static void count_down(void *context, int64_t n,
                       void (*body)(void *task, int64_t i, int64_t thread), void *task)
{
	(void)context;
	while (n--)
		body(task, n, 0);
}

// Quotients are rounded to nearest and a subnormal product is 0, whatever mode the caller is in,
// which is then restored.
static void float_mode(int threads)
{
	enum { N = 50000 }; // enough for a launch on all threads
	static const struct amos_out outs[] = {
	    {.name = "x", .type = E_f32, .rank = 1, .dim = {N}, .bytes = 4 * N},
	    {.name = "small", .type = E_f32, .rank = 1, .dim = {N}, .bytes = 4 * N}};
	static const struct amos_operand operands[] = {{AMOS_BLOCK_OUTPUT, 0},
	                                               {AMOS_BLOCK_OUTPUT, 1}};
	struct amos_kernel row = kernel[0];
	row.workers = N;
	row.gang = 0;
	row.code = divide;
	row.operands = operands;
	row.noperands = 2;
	struct amos_entry divides = entry[0];
	divides.outs = outs;
	divides.nouts = 2;
	divides.kernels = &row;
	struct amos_model model = squares;
	model.entries = &divides;
	struct amos *m;
	struct amos_setup setup = {.size = sizeof setup, .threads = threads ? threads : 1};
	setup.parallel_for = threads ? NULL : count_down;
	CHECK(!amos_open(&model, &setup, &m), "open: %s", amos_error());
	fesetround(FE_UPWARD);
	int status = amos_call(m, &divides, NULL, NULL), after = fegetround();
	volatile float small = 1e-30f, factor = 1e-10f;
	bool kept = small * factor > 0;
	fesetround(FE_TONEAREST);
	CHECK(!status && after == FE_UPWARD && kept, "%d threads: the caller's mode", threads);
	const float *x = amos_out_bytes(m, &divides, 0), *products = amos_out_bytes(m, &divides, 1);
	for (int64_t i = 0; i < N; i++) {
		CHECK(x[i] == 1 / (float)(i + 3), "%d threads: 1 / %d", threads, (int)i + 3);
		CHECK(products[i] == 0, "%d threads: a subnormal product", threads);
	}
	amos_close(m);
}

// ---- loops ----------------------------------------------------------------------------

// An iteration: s += x * f, stacked; another follows while s < 100.
static void iterate(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)i, (void)end, (void)local;
	int64_t s = *(int64_t *)buf[0] + *(int64_t *)buf[1] * *(int64_t *)buf[2];
	*buf[3] = s < 100;
	*(int64_t *)buf[4] = *(int64_t *)buf[5] = s;
}

static int launch_one(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	(void)run;
	k->code(buf, 0, 1, NULL);
	return 0;
}

// Runs the loop over x = 1, .., 5 from s = 7, f = 10; checks s, the iterations and the stack.
static void one_loop(int64_t limit, bool reverse, int64_t s, int64_t iterations,
                     const int64_t stack[5])
{
	enum { IN = AMOS_BLOCK_INPUT, OUT = AMOS_BLOCK_OUTPUT, WORK = AMOS_BLOCK_SCRATCH };
	int64_t start = 7, x[5] = {1, 2, 3, 4, 5}, f = 10, last, found[5] = {0}, made;
	int64_t scratch[2];
	char *inputs[] = {(char *)&limit, (char *)&start, (char *)x, (char *)&f};
	char *outputs[] = {(char *)&last, (char *)found, (char *)&made};
	const int64_t bytes[] = {8, 8, 8, 1, 8, 8};
	const struct amos_loop loop = {1, 5, reverse, 1, 1, 1, 3, 3, 16, bytes};
	const struct amos_operand outer[] = {{IN, 0},  {IN, 1},  {IN, 2},   {IN, 3}, {WORK, 0},
	                                     {OUT, 0}, {OUT, 1}, {WORK, 8}, {OUT, 2}};
	const struct amos_operand inner[] = {{IN, 0},  {IN, 1},  {IN, 2},
	                                     {OUT, 0}, {OUT, 1}, {OUT, 2}};
	const struct amos_kernel rows[] = {
	    {"loop", "loop", 0, 0, 0, 0, NULL, outer, 9, &loop, "", "", NULL, 0, 0, 0},
	    {"body", "map", 1, 0, 0, 1, iterate, inner, 6, NULL, "", "", NULL, 0, 0, 0},
	};
	const struct amos_entry entry = {.kernels = rows, .nkernels = 2};
	const struct amos_run run = {
	    .scratch = (char *)scratch, .inputs = inputs, .outputs = outputs, .launch = launch_one};
	CHECK(!amos_run_entry(&run, &entry), "a loop");
	CHECK(last == s && made == iterations, "limit %d: %d after %d iterations", (int)limit,
	      (int)last, (int)made);
	CHECK(!memcmp(found, stack, sizeof found), "limit %d: the stack", (int)limit);
}

static void loops(void)
{
	one_loop(-1, false, 7, 0, (int64_t[]){0, 0, 0, 0, 0});
	one_loop(2, false, 37, 2, (int64_t[]){17, 37, 0, 0, 0});
	one_loop(2, true, 37, 2, (int64_t[]){37, 27, 0, 0, 0});
	one_loop(3, false, 67, 3, (int64_t[]){17, 37, 67, 0, 0});
	one_loop(9, false, 107, 4, (int64_t[]){17, 37, 67, 107, 0});
	one_loop(9, true, 127, 3, (int64_t[]){0, 0, 127, 97, 57});
}

int main(void)
{
	for (int threads = 1; threads <= 4; threads++)
		every_worker_once(threads);
	waiting_sleeps();
	float one[4], many[4];
	train_line(1, one);
	for (int threads = 2; threads <= 4; threads++) {
		claims(threads, false);
		claims(threads, true);
		train_line(threads, many);
		CHECK(!memcmp(one, many, sizeof one), "%d threads give other bits", threads);
	}
	train_in_block(many);
	CHECK(!memcmp(one, many, sizeof one), "memory of the caller's gives other bits");
	for (int threads = 0; threads <= 4; threads++)
		float_mode(threads);
	first_contents();
	loops();
	printf("parallel: %d workers x %d launches x 1-4 threads, equal bits, floating-point mode, "
	       "first contents, loops\n",
	       WORKERS, LAUNCHES);
}
