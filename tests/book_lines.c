// book_lines.c: checks the functions of the book on lists and axes, and its definitions, against
// plain expressions; and what calls that fit no definition report.
#include "book.h"
#include <stdlib.h>
#include <string.h>

extern const struct {
	const char *name, *text;
} book_pages[];
extern const int book_npages;

// Slots = expression | the same by primitives.
static const char *const equal[] = {
    "x:2,3,4 = reshape(x; [shape(x)[0], -1]) | reshape(x; [2, 12])",
    "x:2,3,4 = reshape(x; [-1, shape(x)[1:]]) | x",
    "x:2,3,4 = reshape(x; [shape(x)[:-1], 2, 2]) | reshape(x; [2, 3, 2, 2])",
    "x:2,3,4 = reshape(x; [list(2, 1), prod(shape(x))]) | reshape(x; [1, 1, 24])",
    "x:2,3,4 = reshape(x; [range(2, 5)]) | x",
    "x:2,3,4 = reshape(x; without([7, 2, 3, 4], 0)) | x",
    "x:2,3,4 = Transpose(x; [0, -1, 1]) | permute(x; [0, 2, 1])",
    "x:2,3,4 = permute(x; 2 - axes(x)) | permute(x; [2, 1, 0])",
    "x:2,3,4 = sum(x; axes(x; [-1, 0])) | sum(x; [0, 2])",
    "x:2,3,4 = x * sum(shape(x)) + amax(shape(x)) - amin(shape(x)) | x * 9 + 2",
    "x:2,3,4 = x * or(1, [1][5]) + and(0, [1][5]) | x",
    "x:2,3 = when(0, x, 0, x + 1, x + 2) | x + 2",
    "x:2,3 = when(0, x, 1, x + 1, x + 2) | x + 1",
    "x:2,3 = when(is(x, 1), x, is(expand(reshape(1; [1, 1]); [2, 3]), 1), x + 1, x) | x + 1",
    "x:2,3 = x * length(shape(x)) + given(x) + given(none) | x * 2 + 1",
    "x:2,3,4 = reshape(x; zip([2, 1, 4], [1, 3, 1])) | reshape(x; [2, 1, 1, 3, 4, 1])",
    "x:2,3 = several(x, x + 1)[1] * given(several(x)[1]) + several(4, [5])[0] | x * 0 + 4",
    "x:2,3 = with_extent(x, extent(x; 0) - 1; 0) | slice(x; [0, 0], [1, 3], [1, 1])",
    "x:2,3 = x + given(at(cast(3; f32), -1)) | x",
    "x:2,3,4 = merge(x; 1, 3) | reshape(x; [2, 12])",
    "x:2,3,4 = move(x; 0, -1) | permute(x; [1, 2, 0])",
    "x:2,3,4 = move(x; -1, 0) | permute(x; [2, 0, 1])",
    "x:2,3,4 = take(x; -1, 1, 2) | slice(x; [0, 0, 1], [2, 3, 2], [1, 1, 1])",
    "x:2,3,4 = drop(insert(x; 1); 1) | x",
    "x:2,1,4 = drop(x; -2) | reshape(x; [2, 4])",
    "x:1,1 y:2 = y * single(x) | y * reshape(x; [])",
    "x:2,3 = plus(x, none) + plus(none, x) | x * 2",
    "x:2,3 y:3 = affine(x, y) + affine(x, none, y) | x * y + (x + y)",
    "x:4 y:4 = matmul(x, y) | reshape(sum(x * y); [])",
    "x:2,3,4 y:4 = matmul(x, y) | drop(sum(x * y; 2); 2)",
    "x:4 y:2,4,3 = matmul(x, y) | drop(sum(reshape(x; [1, 4, 1]) * y; 1); 1)",
    "x:2,2,3 y:3,4 = matmul(x, y) | dot(x, expand(reshape(y; [1, 3, 4]); [2, 3, 4]))",
    "i:2,3 it:3,2 = product(i, it) | cast(dot(cast(i; f64), cast(it; f64)); i64)",
    "x:2,3 y:1 = (x - single(y)) - lse(x - single(y); 1) | x - lse(x; 1)",
    "x:2,3 y:1 = lse(x - single(y); 1) + single(y) | lse(x; 1)",
    "x:1 y:2,1 = lse(single(x) - y; 1) + y | expand(reshape(x; [1, 1]); [2, 1])",
    "x:1 y:2,1 = (single(x) - y) - lse(single(x) - y; 1) | y * 0",
    "x:3,5 = place(x; 1) | place(-x; 0)",
    "x:3,5 = place(cast(floor(x); f64) * 0; 1) | iota(; 1, [3, 5])",
    "x:2,3,8 = joined(heads(x; 4)) | x",
    "x:2,2,3,4 = shared(x; 4) | reshape(expand(reshape(x; [2, 2, 1, 3, 4]); [2, 2, 2, 3, 4]); [2, "
    "4, 3, 4])",
};

#define MANY                                                                                       \
	"0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, "  \
	"9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"

// An expression; what it reports.
static const char *const refused[][2] = {
    {"x:2,3,7 = heads(x; 2)", "2 heads do not divide f64[2,3,7]"},
    {"x:2,3 = sum(x; axes(x; [0, 0]))", "axis 0 is given twice"},
    {"x:2,3 = drop(x; 4)", "axis 4, but the operand has rank 2"},
    {"x:2,3 = x * [1, 2][2]", "entry 2 of a list of 2"},
    {"x:2,3 = reshape(x; zip([1, 2], [3]))", "zip of lists that differ in length"},
    {"x:2,3 = plus(x, x, x)", "plus: expected at most 2 arguments, found 3"},
    {"x:2,3 = x + none", "add of none"},
    {"x:2 = x * length(inv(several(" MANY ")))", "inv: expected a list"},
    {"x:2 = x * length(without(several(" MANY "), 0))", "without: expected a list"},
    {"x:2 = x * length(without(1, several(" MANY ")))", "without: expected a list"},
    {"x:2 = x * count(x; several(" MANY "))", "count: expected a list"},
    {"x:2 = slice(x; list(34, 0), list(34, 0), list(34, 1))", "more than 34 numbers as attributes"},
    {"x:2 = with_extent(x, cast(slice(x; 0, 0, 1); i64); 0)", "with_extent: the operands and"},
    {"x:2 = reshape(x; [-1, 4611686018427387904, 8])", "reshape(f64[2])"},
};

static void test_equal(const char *line)
{
	Arena *arena = arena_new();
	Array slot[CASE_SLOTS];
	const char *bar = strchr(line, '|');
	const char *left = format(arena, "%.*s", (int)(bar - line), line),
	           *right =
	               format(arena, "%.*s =%s", (int)(strstr(line, " = ") - line), line, bar + 1);
	uint64_t keep = seed;
	const Graph *by_line = case_value(arena, left, slot);
	seed = keep;
	check_same(arena, "line", line, by_line, case_value(arena, right, slot), slot, 1e-12);
	arena_free(arena);
}

static void test_refused(const char *line, const char *expected)
{
	Arena *arena = arena_new();
	Array slot[CASE_SLOTS];
	Catch c;
	if (!TRY(c)) {
		case_value(arena, line, slot);
		catch_end(&c);
		CHECK(false, "%s: is not refused", line);
	} else {
		CHECK(strstr(c.message, expected), "%s: reports '%s'; expected '%s'", line,
		      c.message, expected);
		free(c.message);
	}
	arena_free(arena);
}

// True if the line has a value; else it must be refused.
static bool has_value(const char *line)
{
	Arena *arena = arena_new();
	Array slot[CASE_SLOTS];
	Catch c;
	bool value = !TRY(c);
	if (value) {
		eval_graph(arena, case_value(arena, line, slot), slot);
		catch_end(&c);
	} else {
		CHECK(c.status == STATUS_INPUT, "%s: %s", line, c.message);
		free(c.message);
	}
	arena_free(arena);
	return value;
}

// Calls of each function with operands and attributes of any kind.
static void test_calls(void)
{
	static const char *const names[] = {
	    "is",     "axes",        "padded",  "at",         "size",    "length",   "zip",
	    "list",   "extent",      "inv",     "shape",      "several", "when",     "float",
	    "filled", "need",        "given",   "dynamic",    "rank",    "with",     "without",
	    "type",   "sized",       "unslice", "cut",        "count",   "unwindow", "axis",
	    "range",  "with_extent", "rows",    "causal",     "reshape", "permute",  "slice",
	    "window", "pad",         "concat",  "gather",     "scatter", "sum",      "argmax",
	    "cumsum", "softmax",     "lse",     "norm",       "attend",  "cast",     "act",
	    "iota",   "expand",      "narrow",  "transposed", "take",    "drop",     "merge"};
	static const char *const items[] = {"x",
	                                    "i",
	                                    "y",
	                                    "e",
	                                    "0",
	                                    "1",
	                                    "2",
	                                    "-1",
	                                    "3",
	                                    "0.5",
	                                    "40",
	                                    "-inf",
	                                    "nan",
	                                    "1e30",
	                                    "none",
	                                    "[]",
	                                    "[0]",
	                                    "[1]",
	                                    "[0, 1]",
	                                    "[-1, 0]",
	                                    "[2, 3]",
	                                    "list(34, 1)",
	                                    "range(0, 34)",
	                                    "list(7, 1)",
	                                    "several(" MANY ")",
	                                    "several(x, 1)",
	                                    "cast(3; f32)",
	                                    "x + 1",
	                                    "[1000000000000, 4]",
	                                    "f32",
	                                    "[0, 2, 3, 1, 1, 0, 1]",
	                                    "shape(x)"};
	enum { CALLS = 20000 };
	Arena *arena = arena_new();
	int made = 0;
	for (int n = 0; n < CALLS; n++) {
		Text t = {.arena = arena};
		say(&t, "x:2,3 i:2 y:2,1 e:2,0 = %s(", names[below(COUNT(names))]);
		for (int k = 0, nin = below(4); k < nin; k++)
			say(&t, "%s%s", k ? ", " : "", items[below(k ? COUNT(items) : 8)]);
		for (int k = 0, nattr = below(4); k < nattr; k++)
			say(&t, "%s%s", k ? ", " : "; ", items[below(COUNT(items))]);
		say(&t, ")");
		made += has_value(t.at);
	}
	arena_free(arena);
	CHECK(made > CALLS / 50, "only %d of %d calls have a value", made, CALLS);
	printf("%d of %d calls have a value\n", made, CALLS);
}

// Reads a statement that has a name, "KEYWORD NAME...". Returns 1; 0: it is none.
static int read_named(const char *page, const char *line)
{
	static const char *const keywords[] = {"def ", "composite ", "grad "};
	for (BookKind kind = 0; kind < BOOK_KINDS; kind++) {
		char name[64] = "";
		if (!starts_with(line, keywords[kind]))
			continue;
		sscanf(line + strlen(keywords[kind]), "%63[^( ]", name);
		CHECK(kind == BOOK_def || FIND(name, prims) >= 0, "%s: no primitive is called %s",
		      page, name);
		CHECK(book_defs(book_builtin(), kind, name), "%s: %s defines nothing", page, name);
		return 1;
	}
	return 0;
}

// Reads all statements, also those that no other test asks for.
static void test_pages(void)
{
	int named = 0;
	for (int i = 0; i < book_npages; i++)
		for (const char *at = book_pages[i].text; at; at = strchr(at, '\n')) {
			at += *at == '\n';
			named += read_named(book_pages[i].name, at);
		}
	CHECK(named > 500, "found %d statements that have a name", named);
	printf("%d statements that have a name\n", named);
}

void test_lines(void)
{
	test_pages();
	test_calls();
	for (int i = 0; i < COUNT(equal); i++)
		test_equal(equal[i]);
	for (int i = 0; i < COUNT(refused); i++)
		test_refused(refused[i][0], refused[i][1]);
	printf("%d lines equal what they stand for, %d calls refused\n", COUNT(equal),
	       COUNT(refused));
}
