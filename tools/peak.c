// peak.c: measures multiply-adds and memory traffic at full speed.
// The kernels are written by hand and belong to a model, so the runtime launches them on the same
// threads as any other. Each figure is the best of a few rounds.
#include "peak.h"
#include "runtime.h"
#include <unistd.h>

enum { ITERATIONS = 5000, MULTIPLIERS = 1024, PIECE = 1 << 20, ROUNDS = 6 };
// The array in memory is so many times the last cache that is found, and at least LEAST pieces,
// since a virtual machine may see less of the cache than there is; but at most a quarter of the
// free memory.
enum { CACHES = 8, LEAST = 512, PART = 4 };
static const double usual = 0.5; // seconds; the array is smaller if there are fewer

// ---- kernels --------------------------------------------------------------------------

#define SUMS(F)   F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define START(i)  __typeof__(x) sum##i = x;
#define FINISH(i) __asm__ volatile("" : "+" REGISTER(sum##i));

// Twelve independent sums: more than latency times throughput of any CPU.
#define WORK(lanes, target, bytes, STEP)                                                           \
	typedef float Vector##lanes __attribute__((vector_size(bytes)));                           \
	target static double work_##lanes(void)                                                    \
	{                                                                                          \
		Vector##lanes x = {0};                                                             \
		SUMS(START)                                                                        \
		for (int i = 0; i < ITERATIONS; i++) {                                             \
			SUMS(STEP)                                                                 \
		}                                                                                  \
		SUMS(FINISH)                                                                       \
		return 12.0 * ITERATIONS * 2 * lanes;                                              \
	}                                                                                          \
	static void multiply_##lanes(char *const *buf, int64_t i, int64_t end, char *pad)          \
	{                                                                                          \
		(void)buf, (void)i, (void)end, (void)pad;                                          \
		work_##lanes();                                                                    \
	}                                                                                          \
	target static void pass_##lanes(char *const *buf, int64_t piece, int64_t end, char *pad)   \
	{                                                                                          \
		(void)end, (void)pad;                                                              \
		Vector##lanes *v = (Vector##lanes *)(buf[0] + piece * PIECE);                      \
		for (int i = 0; i < PIECE / bytes; i++)                                            \
			v[i] += 1;                                                                 \
	}

#ifdef __x86_64__
#define REGISTER(v) "v"(v)
#define FUSED(i)    __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sum##i) : "v"(x));
#define SEPARATE(i) __asm__ volatile("mulps %1, %0\n\taddps %1, %0" : "+x"(sum##i) : "x"(x));
WORK(16, __attribute__((target("avx512f"))), 64, FUSED)
WORK(8, __attribute__((target("avx2,fma"))), 32, FUSED)
WORK(4, , 16, SEPARATE)
#define WIDEST(f, most)                                                                            \
	((most) >= 16 && __builtin_cpu_supports("avx512f") ? f##_16                                \
	 : (most) >= 8 && __builtin_cpu_supports("fma")    ? f##_8                                 \
	                                                   : f##_4)
#else
#define REGISTER(v)     "w"(v)
#define FUSED(i)        __asm__ volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(sum##i) : "w"(x));
WORK(4, , 16, FUSED)
#define WIDEST(f, most) ((void)(most), f##_4)
#endif

double peak_work(int lanes)
{
	return WIDEST(work, lanes)();
}

// ---- the model ------------------------------------------------------------------------

static double best_time(struct amos *open, int entry, double seconds)
{
	double best = 1e9, begin = amos_now();
	for (int i = 0; i < 2 || (i <= ROUNDS && amos_now() - begin < seconds); i++) {
		double start = amos_now();
		amos_call(open, &open->model->entries[entry], NULL, NULL);
		double took = amos_now() - start;
		best = i && took < best ? took : best; // the first touches the memory
	}
	return best;
}

static int64_t pieces(double seconds)
{
	int64_t cached = CACHES * sysconf(_SC_LEVEL3_CACHE_SIZE) / PIECE,
	        free = sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / PART / PIECE;
	int64_t wanted = cached > LEAST ? cached : LEAST, most = free > 1 ? free : 1;
	int64_t count = wanted < most ? wanted : most;
	return seconds < usual ? 1 + (int64_t)((double)count * seconds / usual) : count;
}

int measure_peak(int64_t threads, int lanes, double seconds, Peak *peak)
{
	const int64_t count = pieces(seconds), bytes = 2 * count * PIECE;
	const struct amos_operand scratch = {.block = AMOS_BLOCK_SCRATCH};
	const struct amos_kernel kernels[] = {
	    {"multiply", "map", MULTIPLIERS, 1 << 30, 0, 1, .code = WIDEST(multiply, lanes)},
	    {"pass", "map", count, 0, bytes, 1, WIDEST(pass, lanes), &scratch, 1, NULL, "", "",
	     NULL, 0, 0, 0},
	};
	const struct amos_entry entries[] = {
	    {"multiply", "", NULL, 0, 0, &kernels[0], 1},
	    {"pass", "", NULL, 0, bytes / 2, &kernels[1], 1},
	};
	const struct amos_model model = {
	    .abi = AMOS_ABI, .name = "peak", .entries = entries, .nentries = 2};
	struct amos *open;
	int status = amos_open_slots(&model, threads, 0, NULL, NULL, &open);
	if (status)
		return status;
	peak->flops = MULTIPLIERS * peak_work(lanes) / best_time(open, 0, seconds);
	peak->bytes = (double)bytes / best_time(open, 1, seconds);
	amos_close(open);
	return AMOS_DONE;
}
