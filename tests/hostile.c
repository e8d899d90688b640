// hostile.c: checks that small files cannot take all time or memory.
// hostile AMOSC [NAME...]: writes each file, or those named, and passes it to the command. Each run
// ends with status 0, 1 or 3 and one message, in less than 20 s of processor time and 4 GiB of
// memory.
#include "files.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 20, MEBIBYTES = 4096 };

// ---- protocol buffers -----------------------------------------------------------------

typedef struct Wire { // bytes of a message, or a part of it
	char *at;
	size_t count;
} Wire;

static Arena *arena; // arena of the current file

static void add(Wire *w, const void *bytes, size_t count)
{
	char *all = take(arena, w->count + count + 1);
	memcpy(all, w->count ? w->at : "", w->count);
	if (count)
		memcpy(all + w->count, bytes, count);
	*w = (Wire){all, w->count + count};
}

static void add_varint(Wire *w, uint64_t x)
{
	uint8_t bytes[10];
	size_t n = 0;
	for (; x > 127; x >>= 7)
		bytes[n++] = (uint8_t)(x | 128);
	bytes[n++] = (uint8_t)x;
	add(w, bytes, n);
}

static void add_number(Wire *w, int field, int64_t x)
{
	add_varint(w, (uint64_t)field << 3);
	add_varint(w, (uint64_t)x);
}

static void add_bytes(Wire *w, int field, const void *bytes, size_t count)
{
	add_varint(w, (uint64_t)field << 3 | 2);
	add_varint(w, count);
	add(w, bytes, count);
}

static void add_text(Wire *w, int field, const char *text)
{
	add_bytes(w, field, text, strlen(text));
}

static void add_message(Wire *w, int field, Wire message)
{
	add_bytes(w, field, message.at, message.count);
}

// ---- parts of a model -----------------------------------------------------------------

// Adds names separated by spaces; "_": an empty one.
static void add_names(Wire *w, int field, const char *names)
{
	for (const char *at = names; *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");
		add_bytes(w, field, at, *at == '_' && n == 1 ? 0 : n);
		at += n;
	}
}

static Wire none(void)
{
	return (Wire){0};
}

static Wire node(const char *op, const char *in, const char *out, Wire attributes)
{
	Wire w = {0};
	add_names(&w, 1, in);
	add_names(&w, 2, out);
	add_text(&w, 4, op);
	add(&w, attributes.at, attributes.count);
	return w;
}

static Wire call(const char *function, const char *in, const char *out)
{
	Wire domain = {0};
	add_text(&domain, 7, "own");
	return node(function, in, out, domain);
}

static Wire both(Wire a, Wire b)
{
	add(&a, b.at, b.count);
	return a;
}

// Returns an attribute with a value of that type.
static Wire attribute(const char *name, Wire value, int type)
{
	Wire a = {0}, w = {0};
	add_text(&a, 1, name);
	a = both(a, value);
	add_number(&a, 20, type);
	add_message(&w, 5, a);
	return w;
}

static Wire int_attribute(const char *name, int64_t x)
{
	Wire value = {0};
	add_number(&value, 3, x);
	return attribute(name, value, 2);
}

static Wire ints_attribute(const char *name, int n, const int64_t *x)
{
	Wire value = {0};
	for (int i = 0; i < n; i++)
		add_number(&value, 8, x[i]);
	return attribute(name, value, 7);
}

static Wire text_attribute(const char *name, const char *text)
{
	Wire value = {0};
	add_text(&value, 4, text);
	return attribute(name, value, 3);
}

static Wire graph_attribute(const char *name, Wire graph)
{
	Wire value = {0};
	add_message(&value, 6, graph);
	return attribute(name, value, 5);
}

enum { FLOAT = 1, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, HALF = 10 };

static Wire tensor(const char *name, int type, int rank, const int64_t *dims, const void *raw,
                   size_t count)
{
	Wire w = {0};
	for (int a = 0; a < rank; a++)
		add_number(&w, 1, dims[a]);
	add_number(&w, 2, type);
	add_text(&w, 8, name);
	if (count)
		add_bytes(&w, 9, raw, count);
	return w;
}

// Returns an initializer of integers.
static Wire numbers(const char *name, int n, const int64_t *x)
{
	Wire w = {0};
	add_message(&w, 5, tensor(name, INT64, 1, &(int64_t){n}, x, 8 * (size_t)n));
	return w;
}

static Wire number(const char *name, int64_t x)
{
	Wire w = {0};
	add_message(&w, 5, tensor(name, INT64, 0, NULL, &x, 8));
	return w;
}

static Wire declared(const char *name, int type, int rank, const int64_t *dims)
{
	Wire shape = {0}, of = {0}, held = {0}, w = {0};
	for (int a = 0; a < rank; a++) {
		Wire dim = {0};
		add_number(&dim, 1, dims[a]);
		add_message(&shape, 1, dim);
	}
	add_number(&of, 1, type);
	if (rank >= 0)
		add_message(&of, 2, shape);
	add_message(&held, 1, of);
	add_text(&w, 1, name);
	add_message(&w, 2, held);
	return w;
}

// Adds the input x, f32[4], and the output y.
static void add_ends(Wire *graph)
{
	int64_t four = 4;
	add_message(graph, 11, declared("x", FLOAT, 1, &four));
	add_message(graph, 12, declared("y", FLOAT, -1, NULL));
}

static Wire opset(void)
{
	Wire set = {0};
	add_text(&set, 1, "");
	add_number(&set, 2, 18);
	return set;
}

static Wire model_with(Wire graph, Wire more)
{
	Wire w = {0};
	add_number(&w, 1, 8);
	add_message(&w, 7, graph);
	add_message(&w, 8, opset());
	return both(w, more);
}

static Wire model_of(Wire graph)
{
	add_ends(&graph);
	return model_with(graph, none());
}

// Adds y, the sum of x and all elements of `name`, so that `name` is needed.
static Wire with_sum(Wire graph, const char *name)
{
	Wire keep = int_attribute("keepdims", 0);
	add_message(&graph, 1, node("Cast", name, "as_float", int_attribute("to", FLOAT)));
	add_message(&graph, 1, node("ReduceSum", "as_float", "total", keep));
	add_message(&graph, 1, node("Add", "x total", "y", none()));
	return model_of(graph);
}

// Adds one node over initializers, whose first output is c.
static Wire one(Wire graph, const char *op, const char *in, Wire attributes)
{
	add_message(&graph, 1, node(op, in, "c", attributes));
	return with_sum(graph, "c");
}

static const char *name_of(const char *letter, int i)
{
	return format(arena, "%s%d", letter, i);
}

// ---- bombs ----------------------------------------------------------------------------

static Wire dims(int rank, const int64_t *size, int type)
{
	Wire g = {0};
	add_message(&g, 5, tensor("w", type, rank, size, NULL, 0));
	return with_sum(g, "w");
}

static Wire dims_58(void)
{
	return dims(1, &(int64_t){INT64_C(1) << 58}, FLOAT);
}

static Wire dims_doubles(void)
{
	return dims(1, &(int64_t){INT64_C(1) << 58}, 11);
}

static Wire dims_product(void)
{
	return dims(4, (int64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, INT8);
}

static Wire dims_empty(void)
{
	return dims(3, (int64_t[]){INT64_MAX, INT64_MAX, 0}, FLOAT);
}

static Wire dims_nibbles(void)
{
	return dims(1, &(int64_t){INT64_C(1) << 61}, 22);
}

static Wire square_input(int64_t size)
{
	Wire g = {0}, w = {0};
	add_message(&g, 11, declared("x", FLOAT, 2, (int64_t[]){size, size}));
	add_message(&g, 12, declared("y", FLOAT, -1, NULL));
	add_message(&g, 1, node("Relu", "x", "y", none()));
	return model_with(g, w);
}

static Wire input_sizes(void)
{
	return square_input(INT64_C(1) << 40);
}

static Wire input_large(void)
{
	return square_input(INT64_C(1) << 20);
}

// Wraps `inner` in these fields, innermost first, `times` times.
static Wire nest(Wire inner, int times, int n, const int *fields)
{
	VEC(char) back = {0}; // reversed
	for (size_t i = inner.count; i-- > 0;)
		PUSH(arena, back, inner.at[i]);
	for (int t = 0; t < times * n; t++) {
		Wire head = {0};
		add_varint(&head, (uint64_t)fields[t % n] << 3 | 2);
		add_varint(&head, (uint64_t)back.count);
		for (size_t i = head.count; i-- > 0;)
			PUSH(arena, back, head.at[i]);
	}
	Wire w = {take(arena, (size_t)back.count + 1), (size_t)back.count};
	for (int i = 0; i < back.count; i++)
		w.at[i] = back.at[back.count - 1 - i];
	return w;
}

static Wire nested_types(const int fields[2], int where)
{
	Wire g = {0}, info = {0};
	Wire type = nest(none(), 20000, 2, fields);
	add_text(&info, 1, "odd");
	add_message(&info, 2, type);
	add_message(&g, where, info);
	add_message(&g, 1, node("Relu", "x", "y", none()));
	return model_of(g);
}

static Wire nested_sequences(void)
{
	return nested_types((int[]){1, 4}, 11);
}

static Wire nested_optionals(void)
{
	return nested_types((int[]){1, 9}, 12);
}

static Wire nested_maps(void)
{
	return nested_types((int[]){2, 5}, 13);
}

static Wire nested_graphs(void)
{
	return model_with(nest(none(), 20000, 3, (int[]){6, 5, 1}), none());
}

static Wire nested_functions(void)
{
	Wire more = {0}, inner = nest(none(), 20000, 3, (int[]){1, 6, 5}), f = {0};
	add_message(&f, 7, inner);
	add_message(&more, 25, f);
	return model_with(none(), more);
}

static Wire nested_training(void)
{
	Wire more = {0}, inner = nest(none(), 20000, 3, (int[]){6, 5, 1}), info = {0};
	add_message(&info, 2, inner);
	add_message(&more, 20, info);
	return model_with(none(), more);
}

// f0 calls f1 twice, f1 calls f2 twice, ...: each on the same value, or on different ones.
static Wire doubling(bool same, const char *leaf)
{
	enum { DEEP = 40 };
	Wire g = {0}, functions = {0};
	for (int i = 0; i <= DEEP; i++) {
		Wire f = {0};
		add_text(&f, 1, name_of("f", i));
		add_text(&f, 4, "a");
		add_text(&f, 5, "b");
		if (i == DEEP) {
			add_message(&f, 7, node(leaf, "a", "b", none()));
		} else {
			add_message(&f, 7, call(name_of("f", i + 1), "a", "t"));
			add_message(&f, 7, call(name_of("f", i + 1), same ? "a" : "t", "u"));
			add_message(&f, 7, node("Add", "t u", "b", none()));
		}
		add_message(&f, 9, opset());
		add_text(&f, 10, "own");
		add_message(&functions, 25, f);
	}
	add_message(&g, 1, call("f0", "x", "y"));
	add_ends(&g);
	return model_with(g, functions);
}

static Wire functions_apart(void)
{
	return doubling(false, "Tanh");
}

static Wire functions_same(void)
{
	return doubling(true, "Tanh");
}

static Wire functions_unknown(void)
{
	return doubling(true, "Nobody");
}

static Wire function_recursive(void)
{
	Wire g = {0}, functions = {0}, f = {0};
	add_text(&f, 1, "f");
	add_text(&f, 4, "a");
	add_text(&f, 5, "b");
	add_message(&f, 7, call("f", "a", "t"));
	add_message(&f, 7, call("f", "t", "b"));
	add_text(&f, 10, "own");
	add_message(&functions, 25, f);
	add_message(&g, 1, call("f", "x", "y"));
	add_ends(&g);
	return model_with(g, functions);
}

static Wire plain_name(const char *name)
{
	Wire w = {0};
	add_text(&w, 1, name);
	return w;
}

// Nested loops of `trips` iterations. Each body's value changes shape, so that none stays a loop,
// if `grows`.
static Wire nested_loops(int deep, int64_t trips, bool grows)
{
	Wire body = {0};
	const char *in = name_of("v", 0);
	add_message(&body, 1, node("Tanh", in, "t0", none()));
	add_message(&body, 1,
	            node(grows ? "Concat" : "Add", "t0 t0", "o0",
	                 grows ? int_attribute("axis", 0) : none()));
	for (int d = 0; d < deep; d++) {
		const char *next = d + 1 < deep ? name_of("v", d + 1) : "x";
		add_message(&body, 11, plain_name(name_of("i", d)));
		add_message(&body, 11, plain_name(name_of("c", d)));
		add_message(&body, 11, plain_name(name_of("v", d)));
		add_message(&body, 1, node("Identity", name_of("c", d), name_of("k", d), none()));
		add_message(&body, 12, plain_name(name_of("k", d)));
		add_message(&body, 12, plain_name(name_of("o", d)));
		Wire outer = {0};
		outer = both(outer, number(name_of("n", d), trips));
		add_message(&outer, 1,
		            node("Loop", format(arena, "n%d _ %s", d, next), name_of("o", d + 1),
		                 graph_attribute("body", body)));
		body = outer;
	}
	add_message(&body, 1, node("Identity", name_of("o", deep), "y", none()));
	return model_of(body);
}

static Wire loops(void)
{
	return nested_loops(8, 60, false);
}

static Wire loops_long(void)
{
	return nested_loops(8, INT64_C(1) << 40, false);
}

static Wire loops_growing(void)
{
	return nested_loops(4, 50, true);
}

// v1 = op(v0, v0), v2 = op(v1, v1), ...
static Wire chain(int n, const char *first, const char *op, Wire attributes, Wire graph)
{
	const char *last = first;
	for (int i = 0; i < n; i++) {
		const char *next = name_of("v", i);
		add_message(&graph, 1,
		            node(op, format(arena, "%s %s", last, last), next, attributes));
		last = next;
	}
	return with_sum(graph, last);
}

static Wire concats(void)
{
	return chain(50, "x", "Concat", int_attribute("axis", 0), none());
}

static Wire concats_constant(void)
{
	return chain(50, "k", "Concat", int_attribute("axis", 0),
	             number("k1", 1).count ? numbers("k", 2, (int64_t[]){1, 2}) : none());
}

static Wire wheres(void)
{
	Wire g = {0};
	const char *last = "x";
	add_message(&g, 1, node("Less", "x x", "less", none()));
	for (int i = 0; i < 60; i++) {
		const char *next = name_of("v", i);
		add_message(
		    &g, 1,
		    node("Where", format(arena, "less %s %s", last, i ? "v0" : "x"), next, none()));
		add_message(&g, 1,
		            node("Greater", format(arena, "%s x", next), name_of("g", i), none()));
		add_message(&g, 1,
		            node("Where", format(arena, "g%d %s %s", i, next, last),
		                 name_of("u", i), none()));
		last = name_of("u", i);
	}
	return with_sum(g, last);
}

static Wire adds(void)
{
	return chain(60, "x", "Add", none(), none());
}

static Wire products(void)
{
	return chain(60, "x", "Mul", none(), none());
}

static Wire powers(void)
{
	return chain(60, "x", "Pow", none(), none());
}

// Index arithmetic over Range, 60 levels of two uses each.
static Wire ranges(void)
{
	Wire g = both(both(number("n", 4), number("zero", 0)), number("one", 1));
	add_message(&g, 1, node("Range", "zero n one", "r", none()));
	add_message(&g, 1, node("Mul", "r r", "v0", none()));
	for (int i = 0; i < 60; i++) {
		add_message(&g, 1,
		            node("Mul", format(arena, "v%d v%d", i, i), name_of("m", i), none()));
		add_message(
		    &g, 1,
		    node("Sub", format(arena, "m%d v%d", i, i), name_of("v", i + 1), none()));
	}
	add_message(&g, 1, node("Mod", "v60 n", "at", none()));
	return one(g, "Gather", "x at", none());
}

static Wire products_of_matrices(void)
{
	Wire g = numbers("size", 2, (int64_t[]){256, 256});
	add_message(&g, 1, node("ConstantOfShape", "size", "v0", none()));
	add_message(&g, 1, node("EyeLike", "v0", "e", int_attribute("k", 1)));
	add_message(&g, 1, node("Add", "v0 e", "m0", none()));
	for (int i = 0; i < 400; i++)
		add_message(&g, 1,
		            node("MatMul", format(arena, "m%d e", i), name_of("m", i + 1), none()));
	return with_sum(g, "m400");
}

static Wire large_constants(void)
{
	Wire g = numbers("size", 1, (int64_t[]){1 << 16});
	add_message(&g, 1, node("ConstantOfShape", "size", "v", none()));
	add_message(&g, 1, node("Cos", "v", "m0", none()));
	for (int i = 0; i < 2000; i++)
		add_message(&g, 1, node("Cos", name_of("m", i), name_of("m", i + 1), none()));
	return with_sum(g, "m2000");
}

static const int64_t vast = INT64_C(1) << 40;

static Wire expand(void)
{
	return one(numbers("s", 2, (int64_t[]){vast, 4}), "Expand", "x s", none());
}

static Wire tile(void)
{
	return one(numbers("s", 1, &vast), "Tile", "x s", none());
}

static Wire constant_of_shape(void)
{
	return one(numbers("s", 1, &vast), "ConstantOfShape", "s", none());
}

static Wire range(void)
{
	Wire g = both(both(number("n", vast), number("zero", 0)), number("one", 1));
	return one(g, "Range", "zero n one", none());
}

static Wire pad(void)
{
	return one(numbers("p", 2, (int64_t[]){vast, vast}), "Pad", "x p", none());
}

static Wire one_hot(void)
{
	Wire g = both(number("n", vast), numbers("v", 2, (int64_t[]){0, 1}));
	add_message(&g, 1, node("Cast", "x", "at", int_attribute("to", INT64)));
	return one(g, "OneHot", "at n v", none());
}

static Wire resize(void)
{
	Wire g = numbers("s", 1, &vast);
	return one(g, "Resize", "x _ _ s", text_attribute("mode", "cubic"));
}

static Wire resize_some(void)
{
	Wire g = numbers("s", 1, (int64_t[]){1 << 17});
	return one(g, "Resize", "x _ _ s",
	           both(text_attribute("mode", "cubic"), int_attribute("antialias", 1)));
}

static Wire split(void)
{
	return one(none(), "Split", "x", int_attribute("num_outputs", vast));
}

static Wire split_to_sequence(void)
{
	Wire g = both(numbers("s", 1, (int64_t[]){1 << 30}), number("one", 1));
	add_message(&g, 1, node("Expand", "x s", "l", none()));
	add_message(&g, 1, node("SplitToSequence", "l one", "q", none()));
	return one(g, "ConcatFromSequence", "q", int_attribute("axis", 0));
}

static Wire einsum(void)
{
	return one(none(), "Einsum", "x x x x x x x x x x x x x x x x",
	           text_attribute("equation", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p->abcdefghij"));
}

static Wire top_k(void)
{
	Wire g = both(numbers("s", 1, (int64_t[]){1 << 22}), numbers("k", 1, (int64_t[]){4}));
	add_message(&g, 1, node("Tile", "x s", "l", none()));
	add_message(&g, 1, node("TopK", "l k", "c d", none()));
	return with_sum(g, "c");
}

static Wire sorted(void)
{
	Wire g = both(numbers("s", 1, (int64_t[]){1 << 22}), numbers("k", 1, (int64_t[]){1 << 24}));
	add_message(&g, 1, node("Tile", "x s", "l", none()));
	add_message(&g, 1, node("TopK", "l k", "c d", none()));
	return with_sum(g, "c");
}

static Wire nonzero(void)
{
	Wire g = numbers("s", 1, (int64_t[]){INT64_C(1) << 30});
	add_message(&g, 1, node("Tile", "x s", "l", none()));
	return one(g, "NonZero", "l", none());
}

static Wire unique(void)
{
	Wire g = numbers("s", 1, (int64_t[]){1 << 20});
	add_message(&g, 1, node("Tile", "x s", "l", none()));
	return one(g, "Unique", "l", none());
}

static Wire cumsum(void)
{
	Wire g = both(numbers("s", 1, (int64_t[]){INT64_C(1) << 36}), number("zero", 0));
	add_message(&g, 1, node("Tile", "x s", "l", none()));
	return one(g, "CumSum", "l zero", none());
}

static Wire window(void)
{
	return one(number("n", vast), "HannWindow", "n", none());
}

static Wire window_some(void)
{
	return one(number("n", 1 << 24), "BlackmanWindow", "n", none());
}

static Wire mel(void)
{
	Wire g =
	    both(both(number("bins", 1 << 12), number("length", 1 << 24)), number("rate", 16000));
	float low = 0, high = 8000;
	add_message(&g, 5, tensor("low", FLOAT, 0, NULL, &low, 4));
	add_message(&g, 5, tensor("high", FLOAT, 0, NULL, &high, 4));
	return one(g, "MelWeightMatrix", "bins length rate low high", none());
}

static Wire random_normal(void)
{
	return one(none(), "RandomNormal", "", ints_attribute("shape", 2, (int64_t[]){vast, 8}));
}

static Wire eye(void)
{
	Wire g = numbers("s", 2, (int64_t[]){1 << 28, 1 << 28});
	add_message(&g, 1, node("ConstantOfShape", "s", "v", none()));
	return one(g, "EyeLike", "v", none());
}

static Wire pool(void)
{
	Wire g = numbers("s", 3, (int64_t[]){1, 1, 4});
	add_message(&g, 1, node("Reshape", "x s", "l", none()));
	return one(g, "AveragePool", "l",
	           both(ints_attribute("kernel_shape", 1, &vast),
	                ints_attribute("pads", 2, (int64_t[]){vast, vast})));
}

static Wire pool_dilated(void)
{
	Wire g = numbers("s", 3, (int64_t[]){1, 1, 4});
	add_message(&g, 1, node("Reshape", "x s", "l", none()));
	return one(
	    g, "MaxPool", "l",
	    both(both(ints_attribute("kernel_shape", 1, (int64_t[]){1 << 16}),
	              ints_attribute("dilations", 1, (int64_t[]){1 << 16})),
	         ints_attribute("pads", 2, (int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31})));
}

static Wire dft_of(int64_t length)
{
	Wire g = both(number("n", length), numbers("s", 3, (int64_t[]){1, 4, 1}));
	add_message(&g, 1, node("Reshape", "x s", "l", none()));
	return one(g, "DFT", "l n", none());
}

static Wire dft(void)
{
	return dft_of(1 << 24);
}

static Wire dft_overflow(void)
{
	return dft_of(INT64_C(1) << 62);
}

static Wire lstm(void)
{
	Wire g = numbers("s", 3, (int64_t[]){1 << 20, 1, 4});
	add_message(&g, 1, node("Expand", "x s", "l", none()));
	add_message(&g, 5, tensor("w", FLOAT, 3, (int64_t[]){1, 4, 4}, (char[64]){0}, 64));
	add_message(&g, 5, tensor("r", FLOAT, 3, (int64_t[]){1, 4, 1}, (char[16]){0}, 16));
	return one(g, "LSTM", "l w r", int_attribute("hidden_size", 1));
}

static Wire scan_growing(void)
{
	Wire body = {0}, g = numbers("s", 2, (int64_t[]){4000, 4});
	add_message(&body, 11, plain_name("c"));
	add_message(&body, 11, plain_name("e"));
	add_message(&body, 1, node("Concat", "c e", "d", int_attribute("axis", 0)));
	add_message(&body, 12, plain_name("d"));
	add_message(&g, 1, node("Expand", "x s", "l", none()));
	return one(g, "Scan", "x l",
	           both(graph_attribute("body", body), int_attribute("num_scan_inputs", 1)));
}

// A counter ends it, after 2^40 iterations, each next to 2^16 elements.
static Wire loop_counted(void)
{
	Wire body = {0}, g = both(number("start", 0), numbers("s", 1, (int64_t[]){1 << 16}));
	add_message(&g, 1, node("ConstantOfShape", "s", "w", none()));
	body = both(number("limit", vast), number("one", 1));
	add_message(&body, 11, plain_name("i"));
	add_message(&body, 11, plain_name("c"));
	add_message(&body, 11, plain_name("v"));
	add_message(&body, 11, plain_name("u"));
	add_message(&body, 1, node("Add", "v one", "v1", none()));
	add_message(&body, 1, node("Cos", "u", "u1", none()));
	add_message(&body, 1, node("ReduceMax", "u1", "most", int_attribute("keepdims", 0)));
	add_message(&body, 1, node("Cast", "most", "whole", int_attribute("to", INT64)));
	add_message(&body, 1, node("Add", "v1 whole", "v2", none()));
	add_message(&body, 1, node("Less", "v2 limit", "go", none()));
	add_message(&body, 12, plain_name("go"));
	add_message(&body, 12, plain_name("v1"));
	add_message(&body, 12, plain_name("u1"));
	add_message(&g, 1, node("Loop", "_ _ start w", "c d", graph_attribute("body", body)));
	return with_sum(g, "c");
}

// If inside If, by a data-dependent condition; both branches call the next function.
static Wire branches(void)
{
	enum { DEEP = 18 };
	Wire g = {0}, functions = {0};
	for (int i = 0; i <= DEEP; i++) {
		Wire f = {0}, branch[2] = {0};
		add_text(&f, 1, name_of("f", i));
		add_text(&f, 4, "a");
		add_text(&f, 5, "b");
		for (int k = 0; k < 2; k++) {
			Wire *w = &branch[k];
			add_message(w, 1, node(k ? "Tanh" : "Sigmoid", "a", "s", none()));
			add_message(w, 1,
			            i == DEEP ? node("Cos", "s", "t", none())
			                      : call(name_of("f", i + 1), "s", "t"));
			add_message(w, 12, plain_name("t"));
		}
		add_message(&f, 7, node("ReduceMax", "a", "most", int_attribute("keepdims", 0)));
		add_message(&f, 7, node("Cast", "most", "c", int_attribute("to", BOOL)));
		add_message(&f, 7,
		            node("If", "c", "b",
		                 both(graph_attribute("then_branch", branch[0]),
		                      graph_attribute("else_branch", branch[1]))));
		add_message(&f, 9, opset());
		add_text(&f, 10, "own");
		add_message(&functions, 25, f);
	}
	add_message(&g, 1, call("f0", "x", "y"));
	add_ends(&g);
	return model_with(g, functions);
}

// Many nodes of one kind, in a file of proportional size.
static Wire many(int n, const char *op, bool distinct)
{
	Wire *part = NEWS(arena, Wire, n);
	size_t total = 0;
	const char *last = "x";
	for (int i = 0; i < n; i++) {
		const char *next = name_of("v", i);
		Wire w = node(distinct ? name_of(op, i) : op, distinct ? "x" : last, next, none());
		add_message(&part[i], 1, w);
		total += part[i].count;
		last = next;
	}
	Wire g = {take(arena, total + 1), 0};
	for (int i = 0; i < n; i++) {
		memcpy(g.at + g.count, part[i].at, part[i].count);
		g.count += part[i].count;
	}
	add_message(&g, 1, node("Relu", distinct ? "x" : last, "y", none()));
	return model_of(g);
}

static Wire unknown_operators(void)
{
	return many(20000, "Nobody", true);
}

static Wire deep_chain(void)
{
	return many(5000, "Cos", false);
}

typedef struct Bomb {
	const char *name;
	Wire (*make)(void);
} Bomb;

#define BOMB(name)                                                                                 \
	{                                                                                          \
#name, name                                                                        \
	}
static const Bomb bombs[] = {
    BOMB(dims_58),
    BOMB(dims_doubles),
    BOMB(dims_product),
    BOMB(dims_empty),
    BOMB(dims_nibbles),
    BOMB(input_sizes),
    BOMB(input_large),
    BOMB(nested_sequences),
    BOMB(nested_optionals),
    BOMB(nested_maps),
    BOMB(nested_graphs),
    BOMB(nested_functions),
    BOMB(nested_training),
    BOMB(functions_apart),
    BOMB(functions_same),
    BOMB(functions_unknown),
    BOMB(function_recursive),
    BOMB(loops),
    BOMB(loops_long),
    BOMB(loops_growing),
    BOMB(concats),
    BOMB(concats_constant),
    BOMB(wheres),
    BOMB(adds),
    BOMB(products),
    BOMB(powers),
    BOMB(ranges),
    BOMB(products_of_matrices),
    BOMB(large_constants),
    BOMB(expand),
    BOMB(tile),
    BOMB(constant_of_shape),
    BOMB(range),
    BOMB(pad),
    BOMB(one_hot),
    BOMB(resize),
    BOMB(resize_some),
    BOMB(split),
    BOMB(split_to_sequence),
    BOMB(einsum),
    BOMB(top_k),
    BOMB(sorted),
    BOMB(nonzero),
    BOMB(unique),
    BOMB(cumsum),
    BOMB(window),
    BOMB(window_some),
    BOMB(mel),
    BOMB(random_normal),
    BOMB(eye),
    BOMB(pool),
    BOMB(pool_dilated),
    BOMB(dft),
    BOMB(dft_overflow),
    BOMB(lstm),
    BOMB(scan_growing),
    BOMB(loop_counted),
    BOMB(branches),
    BOMB(unknown_operators),
    BOMB(deep_chain),
};

// ---- the command ----------------------------------------------------------------------

static void limit(int what, rlim_t most)
{
	setrlimit(what, &(struct rlimit){most, most});
}

static _Noreturn void become(char *const *argv, const char *errors)
{
	dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
	dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
	dup2(open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
	limit(RLIMIT_CPU, SECONDS);
	limit(RLIMIT_CORE, 0);
#ifndef __SANITIZE_ADDRESS__
	limit(RLIMIT_AS, (rlim_t)MEBIBYTES << 20);
#endif
	execv(argv[0], argv);
	_exit(127);
}

static const char *error_in(int status, const struct rusage *usage, const char *message)
{
	if (WIFSIGNALED(status))
		return format(arena, "ends by signal %d", WTERMSIG(status));
	int code = WEXITSTATUS(status);
	if (code != 0 && code != 1 && code != 3)
		return format(arena, "ends with status %d", code);
	if (strstr(message, "bug in amosc") || strstr(message, "runtime error:"))
		return "reports a bug in amosc";
	if (code && !starts_with(message, "amosc: "))
		return "gives no message";
	if (usage->ru_maxrss / 1024 > MEBIBYTES)
		return format(arena, "takes %ld MiB", usage->ru_maxrss / 1024);
	return NULL;
}

static bool run(const char *name, char *const *argv, const char *errors, int *rejected)
{
	pid_t child = fork();
	if (!child)
		become(argv, errors);
	int status;
	struct rusage usage;
	if (child < 0 || wait4(child, &status, 0, &usage) < 0)
		fail(name, "%s", strerror(errno));
	size_t count;
	const char *message = read_file(arena, errors, &count),
	           *bad = error_in(status, &usage, message);
	*rejected = WIFEXITED(status) && WEXITSTATUS(status) == 1;
	double seconds = (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec;
	printf("%-22s %-8s status %d  %5.2f s  %4ld MiB  %.*s\n", name, argv[1],
	       WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), seconds,
	       usage.ru_maxrss / 1024, (int)MIN(strcspn(message, "\n"), 110), message);
	if (bad)
		printf("%s: amosc %s %s\n", name, argv[1], bad);
	return !bad;
}

static int try_bomb(char *amosc, const Bomb *bomb)
{
	const char *folder = own_folder();
	char *model = format(arena, "%s/%s.onnx", folder, bomb->name),
	     *out = format(arena, "%s/out.o", folder), *errors = format(arena, "%s/errors", folder);
	Wire w = bomb->make();
	write_file(model, w.at, w.count);
	char *const verbs[][10] = {
	    {amosc, "inspect", model, NULL},
	    {amosc, "eta", model, NULL},
	    {amosc, "build", model, "--loss", "mean(y)", "--target", "cpu", "-o", out, NULL},
	    {amosc, "show", model, "--loss", "mean(y)", "--after", "memory", NULL},
	};
	int bad = 0, rejected = 0;
	for (int v = 0; v < COUNT(verbs); v++) // eta and show fail where the verb before them did
		if (!rejected || v == 2)
			bad += !run(bomb->name, verbs[v], errors, &rejected);
	unlink(model);
	return bad;
}

static bool named(const char *name, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return !n;
}

int main(int argc, char **argv)
{
	int bad = 0, tried = 0;
	if (argc < 2)
		return 2;
	for (int b = 0; b < COUNT(bombs); b++) {
		if (!named(bombs[b].name, argc - 2, argv + 2))
			continue;
		arena = arena_new();
		bad += try_bomb(argv[1], &bombs[b]);
		arena_free(arena);
		tried++;
		fflush(stdout);
	}
	printf("hostile: %d files, %d failures\n", tried, bad);
	return bad || !tried;
}
