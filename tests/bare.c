// bare.c: trains the compiled model MODEL, of HEADER, to the checkpoint FILE, on a Cortex-M without
// a system, as foreign.c does. Prints by semihosting: the bytes of an instance, the losses, the
// bytes of stack that steps used, and an error.
#include HEADER
#include <stdbool.h>
#include "foreign.h"

enum { STEPS = 20, ROOM = 1 << 17, UNUSED = 0x55 };

extern char bss_start[], bss_end[], stack_end[];

static _Alignas(64) char memory[ROOM];

enum {
	OPEN = 1,
	CLOSE = 2,
	WRITE0 = 4,
	WRITE = 5,
	EXIT = 0x18,
	ERROR = 0x20023,
	DONE = 0x20026
}; // of semihosting

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

static void expect(bool right, const char *what)
{
	if (right)
		return;
	semihost(WRITE0, what);
	semihost(WRITE0, ": ");
	stop(amos_error());
}

static void print_number(const char *before, uint64_t n, int point)
{
	char text[24] = {[22] = '\n'};
	int k = 22, digits = 0;
	do {
		text[--k] = (char)('0' + n % 10);
		if (++digits == point)
			text[--k] = '.';
		n /= 10;
	} while (n || digits <= point);
	semihost(WRITE0, before);
	semihost(WRITE0, text + k);
}

// Prints a loss from 2^-8 to 10, which is a float. In integers: gcc's runtime for Linux converts to
// integers by the doubles of the FPU.
static void print_loss(double loss)
{
	uint64_t bits;
	memcpy(&bits, &loss, sizeof bits);
	uint64_t fraction = (bits >> 29 & 0x7FFFFF) | 0x800000;
	print_number("", fraction * UINT64_C(1000000000) >> (1046 - (bits >> 52)), 9);
}

// Writes a file of the host, which has the name of the model.
static void write_file(const char *bytes, int64_t count)
{
	static const char name[] = FILE;
	enum { BINARY = 5 }; // the mode "wb"
	uintptr_t file =
	    (uintptr_t)semihost(OPEN, (uintptr_t[]){(uintptr_t)name, BINARY, sizeof name - 1});
	uintptr_t all[] = {file, (uintptr_t)bytes, (uintptr_t)count};
	expect(!semihost(WRITE, all) && !semihost(CLOSE, &file), "writing a file");
}

// Stores a checkpoint in `room`, trains on, and restores it.
static void check_checkpoint(struct amos *m, char *room)
{
	int64_t bytes = amos_checkpoint_bytes(m);
	double loss, again;
	expect(bytes <= memory + ROOM - room && !amos_store(m, room, bytes), "store");
	write_file(room, bytes);
	expect(!amos_step(m, &loss) && !amos_step(m, NULL) && amos_steps(m) == STEPS + 2, "on");
	room[bytes / 2] ^= 1;
	expect(amos_restore(m, room, bytes) == AMOS_INPUT, "corrupt");
	room[bytes / 2] ^= 1;
	expect(!amos_restore(m, room, bytes) && amos_steps(m) == STEPS, "restore");
	expect(!amos_step(m, &again) && loss == again, "the same again");
	for (int64_t i = 0; i < bytes; i++)
		room[i] = UNUSED;
}

// Marks the free stack, and returns how many bytes of it were used since.
static void mark_stack(void)
{
	volatile char *top;
	__asm__ volatile("mov %0, sp" : "=r"(top));
	for (volatile char *at = bss_end; at < top; at++)
		*at = UNUSED;
}

static uint64_t used_stack(void)
{
	const volatile char *at = bss_end;
	while (*at == UNUSED)
		at++;
	return (uint64_t)(stack_end - at);
}

// Not part of start(), which must not use the FPU before it is on.
static __attribute__((noinline)) void train(const struct amos_model *model)
{
	struct amos *m;
	double loss, other;
	int64_t bytes = amos_instance_bytes(model, NULL);
	expect(bytes > 0 && bytes <= ROOM, "bytes");
	print_number("bytes ", (uint64_t)bytes, -1);
	expect(amos_open_in(model, NULL, memory, bytes - 1, &m) == AMOS_INPUT && !m, "too small");
	expect(amos_open_in(model, NULL, memory + 8, ROOM - 8, &m) == AMOS_INPUT && !m,
	       "unaligned");
	for (int64_t i = 0; i < ROOM; i++)
		memory[i] = UNUSED;
	expect(!amos_open_in(model, NULL, memory, bytes, &m), "opens");
	fill(m);
	mark_stack();
	for (int step = 0; step < STEPS; step++) {
		expect(!amos_step(m, &loss), "step");
		print_loss(loss);
	}
	print_number("stack ", used_stack(), -1);
	expect(!amos_evaluate(m, &loss) && !amos_evaluate(m, &other), "evaluate");
	expect(loss == other && amos_steps(m) == STEPS && !amos_forward(m), "forward");
	check_checkpoint(m, memory + bytes);
	expect(!amos_gradient(m, &other) && other < loss && !amos_update(m), "halves");
	((int64_t *)amos_values(m, AMOS_INPUTS, amos_find(m, AMOS_INPUTS, "labels")))[1] = -7;
	expect(amos_step(m, NULL) == AMOS_INPUT, "a label");
	semihost(WRITE0, amos_error());
	for (int64_t i = bytes; i < ROOM; i++)
		expect(memory[i] == UNUSED, "writes behind the block");
	amos_close(m);
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
