// fixtures.c: implements what the runtime's tests share.
#include "fixtures.h"
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

Arena *arena;

static void free_arena(void)
{
	arena_free(arena);
}

void enter_folder(void)
{
	arena = arena_new();
	atexit(free_arena);
	CHECK(!chdir(own_folder()), "its own folder");
}

void hold_same(const char *a, const char *b)
{
	CHECK(same_files(a, b), "%s and %s differ", a, b);
}

void write_npy(const char *path, const char *descr, bool fortran, const char *shape, const void *x,
               size_t bytes)
{
	char file[128 + 8192] = "\x93NUMPY\x01\x00\x76\x00";
	int used = snprintf(file + 10, 118, "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }",
	                    descr, fortran ? "True" : "False", shape);
	memset(file + 10 + used, ' ', 118 - (size_t)used);
	CHECK(bytes <= sizeof file - 128, "%zu", bytes);
	memcpy(file + 128, x, bytes);
	write_file(path, file, 128 + bytes);
}

void write_line_data(int n)
{
	float x[300], y[100];
	char shape[32];
	CHECK(n <= 100, "%d", n);
	for (int i = 0; i < 3 * n; i++)
		x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
	for (int i = 0; i < n; i++)
		y[i] = 2 * x[3 * i] - x[3 * i + 1] + 0.5f * x[3 * i + 2] + 0.25f;
	snprintf(shape, sizeof shape, "%d, 3", n);
	write_npy("x.npy", "<f4", false, shape, x, sizeof *x * 3 * (size_t)n);
	snprintf(shape, sizeof shape, "%d,", n);
	write_npy("y.npy", "<f4", false, shape, y, sizeof *y * (size_t)n);
}

struct amos_options options_of(const char *first, ...)
{
	struct amos_options options = amos_options();
	va_list args;
	va_start(args, first);
	for (const char *name = first; name; name = va_arg(args, const char *)) {
		const char *value = va_arg(args, const char *);
		CHECK(!amos_option(&options, name, value), "%s %s", name, value);
	}
	va_end(args);
	return options;
}
