// bare.c: trains the compiled model MODEL on a Cortex-M without a system, as foreign.c does.
// Prints the losses by semihosting. All memory is one array; of the runtime, it has program.c
// alone.
#include "foreign.h"

enum { STEPS = 20, LINE = 64, ROOM = 1 << 17, SLOTS = 64 };

extern const struct amos_model MODEL;
extern char bss_start[], bss_end[], stack_end[];

static _Alignas(LINE) char memory[ROOM];
static int64_t used;

enum { WRITE0 = 4, EXIT = 0x18, ERROR = 0x20023, DONE = 0x20026 }; // of semihosting

// ---- the machine ----------------------------------------------------------------------

static int semihost(int call, const void *argument)
{
	register int r0 __asm__("r0") = call;
	register const void *r1 __asm__("r1") = argument;
	__asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
	return r0;
}

static _Noreturn void stop(const char *text)
{
	if (text)
		semihost(WRITE0, text);
	semihost(EXIT, (const void *)(text ? ERROR : DONE));
	for (;;)
		;
}

static void fault(void)
{
	stop("fault\n");
}

// Called by the division of the compiler's runtime for Linux.
int raise(int number)
{
	(void)number;
	stop("division by zero\n");
}

void *memcpy(void *to, const void *from, size_t n)
{
	char *a = to;
	for (const char *b = from; n; n--)
		*a++ = *b++;
	return to;
}

void *memset(void *to, int byte, size_t n)
{
	for (char *a = to; n; n--)
		*a++ = (char)byte;
	return to;
}

void *memmove(void *to, const void *from, size_t n)
{
	char *a = to;
	const char *b = from;
	if (a < b)
		return memcpy(to, from, n);
	while (n--)
		a[n] = b[n];
	return to;
}

// ---- the model ------------------------------------------------------------------------

static char *take(int64_t bytes)
{
	char *at = memory + used;
	used += (bytes + LINE - 1) / LINE * LINE;
	if (used > ROOM)
		stop("out of memory\n");
	return at;
}

static int launch(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	for (int64_t i = 0; i < k->workers; i++)
		k->code(buf, i, run->own);
	return 0;
}

static bool is(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

// Prints a loss from 2^-8 to 10. In integers: gcc's runtime for Linux computes with the doubles of
// the FPU.
static void print(const char *at)
{
	char text[] = "0.000000000\n";
	uint32_t bits;
	memcpy(&bits, at, sizeof bits);
	uint64_t n = ((bits & 0x7FFFFF) | 0x800000) * UINT64_C(1000000000) >> (150 - (bits >> 23));
	for (int k = 10; k >= 0; k -= 1 + (k == 2), n /= 10)
		text[k] = (char)('0' + n % 10);
	semihost(WRITE0, text);
}

static void train(const struct amos_model *m)
{
	char *inputs[SLOTS], *outputs[SLOTS];
	struct amos_run run = {.params = take(m->params),
	                       .state = take(m->state),
	                       .inputs = inputs,
	                       .outputs = outputs,
	                       .launch = launch,
	                       .own = take(m->local)};
	for (int64_t k = 0; k < m->nslots; k++) {
		const struct amos_slot *s = &m->slots[k];
		if (s->kind == AMOS_SLOT_INPUT)
			fill_input(m, k, inputs[s->offset] = take(s->bytes));
		else if (s->init)
			memcpy((s->kind == AMOS_SLOT_STATE ? run.state : run.params) + s->offset,
			       s->init, (size_t)s->bytes);
	}
	const struct amos_entry *entry = m->entries;
	while (!is(entry->name, "train"))
		entry++;
	int64_t loss = 0;
	for (int64_t k = 0; k < entry->nouts; k++) {
		outputs[k] = take(entry->outs[k].bytes);
		if (is(entry->outs[k].name, "loss"))
			loss = k;
	}
	run.scratch = take(entry->scratch);
	for (int step = 0; step < STEPS; step++) {
		if (amos_run_entry(&run, entry))
			stop("the model failed\n");
		print(outputs[loss]);
	}
}

void start(void)
{
	volatile uint32_t *coprocessors = (volatile uint32_t *)0xE000ED88;
	*coprocessors |= 0xF << 20; // the FPU
	__asm__ volatile("dsb\n\tisb");
	for (char *at = bss_start; at < bss_end; at++)
		*at = 0;
	train(&MODEL);
	stop(NULL);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_end, start, fault, fault, fault, fault, fault};
