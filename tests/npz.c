// npz.c: a tool of the file tests: makes, shows and compares arrays.
//   npz make OUT.npz NAME:TYPE[D,D...]=WHAT...   WHAT: sin (entry i is sin(0.7 i + 0.3)), mod:K (7
//   i mod K), or a number npz show FILE.npz                            a line an array: name,
//   shape, first numbers to 4 digits npz same A.npz B.npz                         status 1 where a
//   name, shape or bit differs
#include "amos.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int type, bytes;
} types[] = {{"f64", 0, 8}, {"f32", 1, 4}, {"i64", 4, 8}, {"i32", 5, 4}, {"b8", 12, 1}};
enum { TYPES = sizeof types / sizeof *types };

static int die(const char *what, const char *detail)
{
	fprintf(stderr, "npz: %s: %s\n", what, detail);
	exit(2);
}

static int type_index(int type)
{
	for (int i = 0; i < TYPES; i++)
		if (types[i].type == type)
			return i;
	return die("type", "none of f64 f32 i64 i32 b8");
}

static int64_t count_of(const struct amos_array *a)
{
	int64_t count = 1;
	for (int i = 0; i < a->rank; i++)
		count *= a->dim[i];
	return count;
}

static double number_at(const struct amos_array *a, int64_t i)
{
	const char *at = (const char *)a->bytes + i * types[type_index(a->type)].bytes;
	switch (a->type) {
	case 0:
		return *(const double *)at;
	case 1:
		return (double)*(const float *)at;
	case 4:
		return (double)*(const int64_t *)at;
	case 5:
		return *(const int32_t *)at;
	default:
		return *at;
	}
}

static void set_number(struct amos_array *a, char *bytes, int64_t i, double x)
{
	char *at = bytes + i * types[type_index(a->type)].bytes;
	switch (a->type) {
	case 0:
		*(double *)at = x;
		break;
	case 1:
		*(float *)at = (float)x;
		break;
	case 4:
		*(int64_t *)at = (int64_t)x;
		break;
	case 5:
		*(int32_t *)at = (int32_t)x;
		break;
	default:
		*at = x != 0;
	}
}

static double value_of(const char *what, int64_t i)
{
	if (!strcmp(what, "sin"))
		return sin(0.7 * (double)i + 0.3);
	if (!strncmp(what, "mod:", 4))
		return (double)(7 * i % atoll(what + 4));
	return atof(what);
}

// NAME:TYPE[D,D]=WHAT
static struct amos_array made(char *text)
{
	char *colon = strchr(text, ':'), *open = strchr(text, '['), *what = strchr(text, '=');
	if (!colon || !open || !what || open < colon || what < open)
		die("wants NAME:TYPE[D,D]=WHAT", text);
	*colon = *open = *what = 0;
	struct amos_array a = {.name = text};
	int i = 0;
	while (i < TYPES && strcmp(types[i].name, colon + 1))
		i++;
	a.type = i < TYPES ? types[i].type : die("type", colon + 1);
	for (char *at = open + 1; *at && *at != ']'; at += *at == ',')
		a.dim[a.rank++] = strtoll(at, &at, 10);
	int64_t count = count_of(&a);
	char *bytes = malloc((size_t)(count * types[i].bytes + 1));
	for (int64_t k = 0; k < count; k++)
		set_number(&a, bytes, k, value_of(what + 1, k));
	a.bytes = bytes;
	return a;
}

static int make(int argc, char **argv)
{
	struct amos_array list[64] = {0};
	int count = 0;
	for (int i = 3; i < argc && count < 64; i++)
		list[count++] = made(argv[i]);
	int status = amos_npz_write(argv[2], count, list);
	for (int i = 0; i < count; i++)
		free((void *)list[i].bytes);
	return status;
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
		printf("%s %s[", a->name, types[type_index(a->type)].name);
		for (int d = 0; d < a->rank; d++)
			printf("%s%lld", d ? "," : "", (long long)a->dim[d]);
		printf("]");
		for (int64_t k = 0; k < count_of(a) && k < 4; k++)
			printf(" %.4g", number_at(a, k));
		printf("\n");
	}
	amos_npz_free(n, list);
	return 0;
}

static int same_array(const struct amos_array *a, const struct amos_array *b)
{
	size_t bytes = (size_t)(count_of(a) * types[type_index(a->type)].bytes);
	return !strcmp(a->name, b->name) && a->type == b->type && a->rank == b->rank &&
	       !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) &&
	       !memcmp(a->bytes, b->bytes, bytes);
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
	int status = 2;
	if (argc > 3 && !strcmp(argv[1], "make"))
		status = make(argc, argv);
	else if (argc == 3 && !strcmp(argv[1], "show"))
		status = show(argv[2]);
	else if (argc == 4 && !strcmp(argv[1], "same"))
		status = same(argv[2], argv[3]);
	else
		die("usage", "make OUT NAME:TYPE[D]=WHAT... | show FILE | same A B");
	if (status && *amos_error())
		fprintf(stderr, "npz: %s\n", amos_error());
	return status;
}
