// npz.c: makes, shows and compares .npz files, for the file tests.
// npz make OUT.npz NAME:TYPE[D,D...]=WHAT...
//   WHAT: sin or cos (of 0.7 i + 0.3, for element i), mod:K (7 i mod K), or a number
// npz show FILE.npz
//   one line per array: name, type, shape, first values: floats to 4 digits, integers in full
// npz same A.npz B.npz
//   status 1 if a name, type, shape or bit differs
#include "runtime.h"
#include "ir.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static Shape shape_at(const struct amos_array *a)
{
	return shape_of(a->rank, a->dim);
}

static double value_of(const char *what, int64_t i)
{
	if (!strcmp(what, "sin"))
		return sin(0.7 * (double)i + 0.3);
	if (!strcmp(what, "cos"))
		return cos(0.7 * (double)i + 0.3);
	if (starts_with(what, "mod:"))
		return (double)(7 * i % atoll(what + strlen("mod:")));
	char *end;
	double number = strtod(what, &end);
	if (end == what || *end)
		fail_status(STATUS_USAGE, what, "expected sin, cos, mod:K or a number");
	return number;
}

// Makes an array from NAME:TYPE[D,D]=WHAT.
static struct amos_array made(Arena *arena, char *text)
{
	char *colon = strchr(text, ':'), *open = strchr(text, '['), *what = strchr(text, '=');
	if (!colon || !open || !what || open < colon || what < open)
		fail_status(STATUS_USAGE, text, "wants NAME:TYPE[D,D]=WHAT");
	*colon = *open = *what = 0;
	int type = FIND(colon + 1, elems);
	if (type < 0)
		fail_status(STATUS_USAGE, colon + 1, "no such type");
	struct amos_array a = {.name = text, .type = type};
	for (char *at = open + 1; *at && *at != ']'; at += *at == ',')
		a.dim[a.rank++] = strtoll(at, &at, 10);
	Array x = {.type = (Elem)type, .shape = shape_at(&a)};
	int64_t count = count_of(&x.shape);
	x.f = NEWS(arena, double, count + 1);
	for (int64_t i = 0; i < count; i++) {
		double number = value_of(what + 1, i);
		if (is_float(x.type))
			x.f[i] = number;
		else
			x.i[i] = type == E_b8      ? number != 0
			         : number < 0x1p63 ? (int64_t)number
			                           : (int64_t)(uint64_t)number;
	}
	void *bytes = NEWS(arena, double, count + 1);
	array_to(&x, bytes);
	a.bytes = bytes;
	return a;
}

static int make(Arena *arena, const char *path, int count, char **text)
{
	struct amos_array list[MOST];
	if (count > MOST)
		fail_status(STATUS_USAGE, "npz make", "more than %d arrays", MOST);
	for (int i = 0; i < count; i++)
		list[i] = made(arena, text[i]);
	return amos_npz_write(path, count, list);
}

static void print_number(const struct amos_array *a, int64_t k)
{
	Val v = {.type = (Elem)a->type, .data = a->bytes};
	if (is_float(v.type))
		printf(" %.4g", const_at(&v, k));
	else if (v.type == E_u64)
		printf(" %llu", (unsigned long long)const_int_at(&v, k));
	else
		printf(" %lld", (long long)const_int_at(&v, k));
}

static int show(const char *path)
{
	int64_t n;
	struct amos_array *list;
	int status = amos_npz_read(path, &n, &list);
	if (status)
		return status;
	for (int64_t i = 0; i < n; i++) {
		const struct amos_array *a = &list[i];
		const Shape shape = shape_at(a);
		printf("%s %s[", a->name, elems[a->type].name);
		for (int d = 0; d < a->rank; d++)
			printf("%s%lld", d ? "," : "", (long long)a->dim[d]);
		printf("]");
		for (int64_t k = 0; k < MIN(count_of(&shape), 4); k++)
			print_number(a, k);
		printf("\n");
	}
	amos_npz_free(n, list);
	return 0;
}

static bool same_array(const struct amos_array *a, const struct amos_array *b)
{
	const Shape s = shape_at(a), t = shape_at(b);
	return !strcmp(a->name, b->name) && a->type == b->type && same_shape(&s, &t) &&
	       !memcmp(a->bytes, b->bytes, (size_t)(count_of(&s) * elems[a->type].bytes));
}

static int same(const char *first, const char *second)
{
	int64_t n, m;
	struct amos_array *a, *b;
	int status = amos_npz_read(first, &n, &a);
	status = status ? status : amos_npz_read(second, &m, &b);
	if (status)
		return status;
	int differs = n != m;
	for (int64_t i = 0; i < n && !differs; i++)
		if (!same_array(&a[i], &b[i])) {
			printf("%s differs\n", a[i].name);
			differs = 1;
		}
	amos_npz_free(n, a);
	amos_npz_free(m, b);
	return differs;
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	int status;
	if (argc > 3 && !strcmp(argv[1], "make"))
		status = make(arena, argv[2], argc - 3, argv + 3);
	else if (argc == 3 && !strcmp(argv[1], "show"))
		status = show(argv[2]);
	else if (argc == 4 && !strcmp(argv[1], "same"))
		status = same(argv[2], argv[3]);
	else
		fail_status(STATUS_USAGE, "npz",
		            "make OUT NAME:TYPE[D]=WHAT... | show FILE | same A B");
	if (status && *amos_error())
		fprintf(stderr, "npz: %s\n", amos_error());
	arena_free(arena);
	return status;
}
