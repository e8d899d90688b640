// scale.c: checks that large models take time and memory in proportion to their size.
// scale AMOSC [NAME...]: writes each kind of model, or those named, with n and with 4 n parts, and
// passes both to the command. The larger may take 8 times the processor time of the smaller plus a
// little, in the best of a few tries, and at most 10 s: quadratic search would take 16 times. Each
// additional byte of the file may take READING bytes more, REPORTING if eta is inferred from it, or
// COMPILING if it is compiled.
#include "build.h"
#include "files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 10, TRIES = 3, MORE = 4, READING = 160, REPORTING = 100, COMPILING = 640 };
#ifdef __SANITIZE_ADDRESS__
enum { FEWER = 2 }; // a part takes three times as long, so that fewer show the same growth
#else
enum { FEWER = 1 };
#endif

// ---- parts ----------------------------------------------------------------------------

static uint64_t drawn;

static float draw(void)
{
	drawn = drawn * 6364136223846793005u + 1442695040888963407u;
	return (float)(drawn >> 40) / (float)(1 << 24) - 0.5f;
}

static const char *nth(const char *name, int i)
{
	return format(arena, "%s%d", name, i);
}

static const float *weight(Build *b, const char *name, int rank, const int64_t *dims)
{
	int64_t n = 1;
	for (int a = 0; a < rank; a++)
		n *= dims[a];
	float *x = NEWS(arena, float, n);
	for (int64_t i = 0; i < n; i++)
		x[i] = draw();
	PUSH(arena, b->tensors, raw(tensor(name, 1, rank, dims), x, sizeof *x * (size_t)n));
	return x;
}

static void matrix(Build *b, const char *name)
{
	weight(b, name, 2, (int64_t[]){4, 4});
}

static void vector(Build *b, const char *name)
{
	weight(b, name, 1, (int64_t[]){4});
}

static NodeProto *add(Build *b, const char *op, const char *inputs, const char *outputs)
{
	return add_to(b, node(op, inputs, outputs));
}

static void set(NodeProto *n, const char *name, int64_t x)
{
	AttributeProto *a = attribute(n, name);
	a->i = x;
}

static Build *begin(const char *dims)
{
	Build *b = build(18);
	if (dims)
		PUSH(arena, b->inputs, value("x", 1, dims));
	return b;
}

static Build *finish(Build *b, const char *last)
{
	add(b, "Identity", last, "y");
	PUSH(arena, b->outputs, value("y", 1, "?"));
	return b;
}

// NAME0,NAME1,...
static const char *list(const char *name, int n)
{
	Text text = {.arena = arena};
	for (int i = 0; i < n; i++)
		say(&text, "%s%s%d", i ? "," : "", name, i);
	return text.at;
}

// v0 = op(x, w0), v1 = op(v0, w1), ...
static Build *chain(int n, const char *op, const char *name, void (*make)(Build *, const char *))
{
	Build *b = begin("2,4");
	const char *last = "x";
	for (int i = 0; i < n; i++) {
		const char *w = nth(name, i), *next = nth("v", i);
		make(b, w);
		add(b, op, format(arena, "%s,%s", last, w), next);
		last = next;
	}
	return finish(b, last);
}

// ---- kinds of models ------------------------------------------------------------------

static Build *unary(int n, const char *op)
{
	Build *b = begin("4");
	const char *last = "x";
	for (int i = 0; i < n; i++, last = nth("v", i - 1))
		add(b, op, last, nth("v", i));
	return finish(b, last);
}

// Each node is a distinct value.
static Build *cosines(int n)
{
	return unary(n, "Cos");
}

// All nodes are the same two values.
static Build *negations(int n)
{
	return unary(n, "Neg");
}

// Any of them might be 1 minus another.
static Build *complements(int n)
{
	return chain(n, "Mul", "onnx::Mul_", vector);
}

static Build *products(int n)
{
	return chain(n, "MatMul", "layers.", matrix);
}

// Embeddings, and possible transposed copies of them.
static Build *tied(int n)
{
	Build *b = begin(NULL);
	PUSH(arena, b->inputs, value("x", 7, "2"));
	for (int i = 0; i < n; i++) {
		weight(b, nth("table", i), 2, (int64_t[]){3, 4});
		weight(b, nth("onnx::MatMul_", i), 2, (int64_t[]){4, 3});
		add(b, "Gather", format(arena, "table%d,x", i), nth("e", i));
		add(b, "MatMul", format(arena, "e%d,onnx::MatMul_%d", i, i), nth("v", i));
	}
	add(b, "Sum", list("v", n), "all");
	return finish(b, "all");
}

static Build *embeddings(int n)
{
	Build *b = begin(NULL);
	PUSH(arena, b->inputs, value("x", 7, "2"));
	for (int i = 0; i < n; i++) {
		weight(b, nth("table", i), 2, (int64_t[]){3, 4});
		add(b, "Gather", format(arena, "table%d,x", i), nth("v", i));
	}
	add(b, "Sum", list("v", n), "all");
	return finish(b, "all");
}

static Build *sum_of_products(int n)
{
	Build *b = begin("2,4");
	for (int i = 0; i < n; i++) {
		matrix(b, nth("w", i));
		add(b, "MatMul", format(arena, "x,w%d", i), nth("v", i));
	}
	add(b, "Sum", list("v", n), "all");
	return finish(b, "all");
}

static Build *slices_of_weight(int n)
{
	Build *b = begin("2,4");
	const char *last = "x";
	weight(b, "w", 2, (int64_t[]){4, 4 * n});
	NodeProto *split = add(b, "Split", "w", list("w", n));
	set(split, "axis", 1);
	set(split, "num_outputs", n);
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		add(b, "MatMul", format(arena, "%s,w%d", last, i), nth("m", i));
		add(b, "Relu", nth("m", i), nth("v", i));
	}
	return finish(b, last);
}

static Build *slices_of_concat(int n)
{
	Build *b = begin("1");
	for (int i = 0; i < n; i++) {
		weight(b, nth("w", i), 1, (int64_t[]){1});
		add(b, "Mul", format(arena, "x,w%d", i), nth("m", i));
	}
	set(add(b, "Concat", list("m", n), "all"), "axis", 0);
	set(add(b, "Split", "all", list("v", n)), "num_outputs", n);
	add(b, "Sum", list("v", n), "sum");
	return finish(b, "sum");
}

static Build *unused(int n)
{
	Build *b = begin("4");
	for (int i = 0; i < n; i++)
		vector(b, nth("w", i));
	return finish(b, "x");
}

// Inputs whose sizes follow from weights.
static Build *sizes(int n)
{
	Build *b = begin(NULL);
	for (int i = 0; i < n; i++) {
		const char *name = nth("x", i);
		matrix(b, nth("w", i));
		PUSH(arena, b->inputs, value(name, 1, format(arena, "1,n%d", i)));
		add(b, "MatMul", format(arena, "x%d,w%d", i, i), nth("v", i));
	}
	add(b, "Sum", list("v", n), "all");
	return finish(b, "all");
}

// A chain of products with constants.
static Build *numbers(int n)
{
	Build *b = begin("4");
	const char *last = "x";
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		NodeProto *k = add(b, "Constant", "", nth("k", i));
		AttributeProto *a = attribute(k, "value");
		a->t = floats("", 4, (float[]){draw(), draw(), draw(), draw()});
		add(b, "Mul", format(arena, "%s,k%d", last, i), nth("v", i));
	}
	return finish(b, last);
}

// A chain of moves; a constant is subtracted from each result.
static Build *moves(int n)
{
	Build *b = begin("3,4");
	static const int64_t padding[] = {0, 1, 0, 0, 0, 0, 0, 1}, four[] = {4}, two[] = {2};
	for (int i = 0; i < 2; i++)
		PUSH(arena, b->tensors, raw(tensor(nth("p", i), 7, 1, four), padding + 4 * i, 32));
	int64_t zeros[] = {0, 0}, ends[] = {3, 4};
	PUSH(arena, b->tensors, raw(tensor("begin", 7, 1, two), zeros, 16));
	PUSH(arena, b->tensors, raw(tensor("end", 7, 1, two), ends, 16));
	weight(b, "k", 0, NULL);
	const char *last = "x";
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		add(b, "Pad", format(arena, "%s,p%d", last, i % 2), nth("q", i));
		add(b, "Slice", format(arena, "q%d,begin,end", i), nth("v", i));
		add(b, "Sub", format(arena, "v%d,k", i), nth("s", i));
	}
	return finish(b, last);
}

// One weight that every node reads, so that its gradient is a sum of n.
static Build *shared_weight(int n)
{
	Build *b = begin("2,4");
	const char *last = "x";
	matrix(b, "w");
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		add(b, "MatMul", format(arena, "%s,w", last), nth("m", i));
		add(b, "Relu", nth("m", i), nth("v", i));
	}
	return finish(b, last);
}

// A chain of products and of rows, each of which reads x: no two of these may run as one.
static Build *rows(int n)
{
	Build *b = begin("2,4");
	const char *last = "x";
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		const char *w = nth("model.layers.attention.output.weight", i);
		matrix(b, w);
		add(b, "MatMul", format(arena, "%s,%s", last, w), nth("m", i));
		add(b, "Softmax", nth("m", i), nth("s", i));
		add(b, "Mul", format(arena, "s%d,x", i), nth("v", i));
	}
	return finish(b, last);
}

static Build *outputs(int n)
{
	Build *b = begin("4");
	for (int i = 0; i < n; i++) {
		add(b, "Identity", "x", nth("z", i));
		PUSH(arena, b->outputs, value(nth("z", i), 1, "?"));
	}
	return finish(b, "x");
}

// A kernel that is a sum of weights.
static Build *sum_of_weights(int n)
{
	Build *b = begin("2,4");
	for (int i = 0; i < n; i++)
		matrix(b, nth("w", i));
	add(b, "Sum", list("w", n), "all");
	add(b, "MatMul", "x,all", "product");
	return finish(b, "product");
}

// One product whose slices have different demands.
static Build *slices_of_product(int n)
{
	Build *b = begin("2,4");
	weight(b, "w", 2, (int64_t[]){4, 2 * n});
	weight(b, "bias", 1, (int64_t[]){2 * n});
	add(b, "MatMul", "x,w", "product");
	add(b, "Add", "product,bias", "all");
	NodeProto *split = add(b, "Split", "all", list("s", n));
	set(split, "axis", 1);
	set(split, "num_outputs", n);
	for (int i = 0; i < n; i++)
		add(b, i % 2 ? "Relu" : "Identity", nth("s", i), nth("v", i));
	add(b, "Sum", list("v", n), "sum");
	return finish(b, "sum");
}

// A table that is a sum of weights.
static Build *sums_of_tables(int n)
{
	Build *b = begin(NULL);
	PUSH(arena, b->inputs, value("x", 7, "2"));
	for (int i = 0; i < n; i++)
		weight(b, nth("table", i), 2, (int64_t[]){3, 4});
	add(b, "Sum", list("table", n), "all");
	add(b, "Gather", "all,x", "rows");
	return finish(b, "rows");
}

// A weight that is a product of weights.
static Build *product_of_weights(int n)
{
	Build *b = begin("2,4");
	const char *last = "w0";
	for (int i = 0; i < n; i++)
		matrix(b, nth("w", i));
	for (int i = 1; i < n; i++, last = nth("p", i - 1))
		add(b, "Mul", format(arena, "%s,w%d", last, i), nth("p", i));
	add(b, "MatMul", format(arena, "x,%s", last), "y0");
	return finish(b, "y0");
}

// Operator sets, as many as nodes.
static Build *opsets(int n)
{
	Build *b = unary(n, "Neg");
	OperatorSetIdProto **all = NEWS(arena, OperatorSetIdProto *, n + 1);
	for (int i = 0; i < n; i++) {
		all[i] = NEW(arena, OperatorSetIdProto);
		operator_set_id_proto__init(all[i]);
		all[i]->domain = (char *)nth("domain", i);
		all[i]->version = 1;
	}
	all[n] = &b->opset;
	b->model.opset_import = all;
	b->model.n_opset_import = (size_t)n + 1;
	return b;
}

// Notes that a runtime left on a node.
static Build *attributes(int n)
{
	Build *b = begin("4");
	NodeProto *one = add(b, "Neg", "x", "v");
	one->attribute = NEWS(arena, AttributeProto *, n);
	one->n_attribute = (size_t)n;
	for (int i = 0; i < n; i++) {
		one->attribute[i] = NEW(arena, AttributeProto);
		attribute_proto__init(one->attribute[i]);
		one->attribute[i]->name = (char *)nth("__note", i);
	}
	return finish(b, "v");
}

// A sequence, to which elements are appended one by one.
static Build *sequence(int n)
{
	Build *b = begin("4");
	const char *last = "s";
	add(b, "SequenceEmpty", "", last);
	for (int i = 0; i < n; i++, last = nth("s", i - 1))
		add(b, "SequenceInsert", format(arena, "%s,x", last), nth("s", i));
	add(b, "SequenceAt", format(arena, "%s,last", last), "v");
	PUSH(arena, b->tensors, raw(tensor("last", 7, 0, NULL), &(int64_t){-1}, 8));
	return finish(b, "v");
}

// Normalizations whose scale and statistics share one initializer, among others.
static Build *merged(int n)
{
	Build *b = begin("2,4");
	const char *last = "x";
	vector(b, "s");
	for (int i = 0; i < n; i++, last = nth("v", i - 1)) {
		weight(b, nth("unused", i), 1, (int64_t[]){64});
		add(b, "BatchNormalization", format(arena, "%s,s,s,s,s", last), nth("v", i));
	}
	return finish(b, last);
}

static StringStringEntryProto *entry(const char *key, const char *value)
{
	StringStringEntryProto *e = NEW(arena, StringStringEntryProto);
	string_string_entry_proto__init(e);
	e->key = (char *)key;
	e->value = (char *)value;
	return e;
}

// A stack trace without line numbers.
static Build *trace(int n)
{
	Build *b = begin("4");
	Text text = {.arena = arena};
	for (int i = 0; i < n; i++)
		say(&text, "File \"model.py\"\n");
	NodeProto *one = add(b, "Neg", "x", "v");
	one->metadata_props = NEW(arena, StringStringEntryProto *);
	one->metadata_props[one->n_metadata_props++] = entry("pkg.torch.onnx.stack_trace", text.at);
	return finish(b, "v");
}

// Adds to the graph what PyTorch's newer exporter tells of parameters.
static void sign(Build *b, const char *parameters)
{
	GraphProto *g = &b->graph;
	g->metadata_props = NEW(arena, StringStringEntryProto *);
	g->metadata_props[g->n_metadata_props++] =
	    entry("pkg.torch.export.ExportedProgram.graph_signature", parameters);
}

// Parameters that the file lacks, and constants, each in a module of its own.
static Build *lost(int n)
{
	Text parameters = {.arena = arena};
	Build *b = chain(n, "Mul", "w", vector);
	for (int i = 0; i < n; i++)
		say(&parameters, "p%d: PARAMETER target='lost.%d'\n", i, i);
	sign(b, parameters.at);
	return b;
}

// Vectors, each computed from a parameter that the file also has.
static Build *recomputed(int n)
{
	Text parameters = {.arena = arena};
	Build *b = begin("2,4");
	GraphProto *g = &b->graph;
	g->value_info = NEWS(arena, ValueInfoProto *, n);
	for (int i = 0; i < n; i++) {
		const char *last = i ? nth("v", i - 1) : "x";
		ValueInfoProto *info = NEW(arena, ValueInfoProto);
		vector(b, nth("own", i));
		vector(b, nth("expand", i));
		say(&parameters, "p%d: PARAMETER target='own%d'\n", i, i);
		value_info_proto__init(info);
		info->name = (char *)nth("expand", i);
		info->metadata_props = NEW(arena, StringStringEntryProto *);
		info->metadata_props[info->n_metadata_props++] =
		    entry("pkg.onnxscript.optimizer.folded_from", format(arena, "['own%d']", i));
		g->value_info[g->n_value_info++] = info;
		add(b, "Mul", format(arena, "%s,own%d", last, i), nth("m", i));
		add(b, "Add", format(arena, "m%d,expand%d", i, i), nth("v", i));
	}
	sign(b, parameters.at);
	return finish(b, nth("v", n - 1));
}

static const struct Scaled {
	const char *name, *verb; // verb: inspect, eta, show (a training plan) or run
	int n;
	Build *(*make)(int n);
} shapes[] = {
    {"cosines", "inspect", 50000, cosines},
    {"negations", "inspect", 100000, negations},
    {"complements", "inspect", 2000, complements},
    {"products", "eta", 2000, products},
    {"tied", "inspect", 2000, tied},
    {"embeddings", "eta", 5000, embeddings},
    {"sum_of_products", "eta", 1500, sum_of_products},
    {"sum_of_weights", "eta", 4000, sum_of_weights},
    {"slices_of_product", "eta", 5000, slices_of_product},
    {"sums_of_tables", "eta", 2000, sums_of_tables},
    {"product_of_weights", "eta", 2000, product_of_weights},
    {"slices_of_weight", "eta", 5000, slices_of_weight},
    {"slices_of_concat", "inspect", 12000, slices_of_concat},
    {"unused", "inspect", 2000, unused},
    {"sizes", "inspect", 2000, sizes},
    {"numbers", "eta", 2000, numbers},
    {"moves", "inspect", 2000, moves},
    {"shared_weight", "show", 1200, shared_weight},
    {"rows", "show", 300, rows},
    {"outputs", "run", 1500, outputs},
    {"opsets", "inspect", 8000, opsets},
    {"attributes", "inspect", 8000, attributes},
    {"sequence", "inspect", 8000, sequence},
    {"merged", "inspect", 1500, merged},
    {"trace", "inspect", 30000, trace},
    {"lost", "inspect", 1500, lost},
    {"recomputed", "inspect", 4000, recomputed},
};

// ---- the command ----------------------------------------------------------------------

typedef struct Spent {
	bool done;                   // ended in time with status 0
	double seconds, bytes, file; // processor time, peak memory, file size
} Spent;

static Spent run_limited(char *const *argv)
{
	pid_t child = fork();
	if (!child) {
		setenv("ASAN_OPTIONS", "quarantine_size_mb=0", true); // freed memory does not count
		setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execv(argv[0], argv);
		_exit(127);
	}
	int status;
	struct rusage usage;
	if (child < 0 || wait4(child, &status, 0, &usage) < 0)
		fail(argv[0], "%s", strerror(errno));
	return (Spent){WIFEXITED(status) && !WEXITSTATUS(status),
	               (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec,
	               1024.0 * (double)usage.ru_maxrss, 0};
}

static Spent spent_on(char *amosc, const struct Scaled *s, int n)
{
	const char *folder = own_folder();
	char *model = format(arena, "%s/model.onnx", folder), *verb = (char *)s->verb,
	     *out = format(arena, "%s/out.npz", folder);
	char *const plan[] = {amosc, verb, model, "--loss", "mean(y)", "--after", "memory", NULL};
	char *const run[] = {amosc, verb, model, "--data", "x=ones", "-o", out, NULL};
	char *const plain[] = {amosc, verb, model, NULL};
	uint8_t *bytes;
	size_t count = pack(s->make(n), &bytes);
	write_file(model, bytes, count);
	Spent spent = run_limited(!strcmp(verb, "show")  ? plan
	                          : !strcmp(verb, "run") ? run
	                                                 : plain);
	spent.file = (double)count;
	return spent;
}

static bool scales(char *amosc, const struct Scaled *s)
{
	enum { MOST = 2 * MORE };
	int most = !strcmp(s->verb, "inspect") ? READING
	           : !strcmp(s->verb, "eta")   ? REPORTING
	           : !strcmp(s->verb, "show")  ? 2 * COMPILING // train and eval
	                                       : COMPILING;
	int n = s->n / FEWER;
	Spent small, large;
	double memory = 0;
	for (int k = 0; k < TRIES; k++) {
		arena = arena_new();
		small = spent_on(amosc, s, n);
		large = spent_on(amosc, s, MORE * n);
		arena_free(arena);
		memory = (large.bytes - small.bytes) / (large.file - small.file);
		if (small.done && large.done && large.seconds <= MOST * small.seconds + 0.2 &&
		    memory <= most)
			return true;
	}
	printf("%s: amosc %s takes %.2f s of %d parts and %.2f s of %d, %.0f bytes for each more "
	       "of the file%s\n",
	       s->name, s->verb, small.seconds, n, large.seconds, MORE * n, memory,
	       small.done && large.done ? "" : "; it fails");
	return false;
}

static bool named(const char *name, int n, char *const *names)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return n == 0;
}

int main(int argc, char **argv)
{
	int bad = 0;
	if (argc < 2)
		return 2;
	for (int i = 0; i < COUNT(shapes); i++)
		if (named(shapes[i].name, argc - 2, argv + 2))
			bad += !scales(argv[1], &shapes[i]);
	return bad > 0;
}
