// onnx.c: checks the reader and the writer on models built field by field.
// Storage of tensors, functions, branches, dimensions, shared and omitted parameters, trained
// weights written back, and corrupt files. Status 1 if something differs.
// usage: onnx MODEL...: the corrupt-file test also runs on these files
#include "build.h"
#include "expect.h"
#include "files.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;

// x: f32[2,3] -> y
static Build *usual(int64_t opset)
{
	Build *b = build(opset);
	PUSH(arena, b->inputs, value("x", 1, "2,3"));
	PUSH(arena, b->outputs, value("y", 1, "2,3"));
	return b;
}

static const char *in_folder(const char *name, const void *bytes, size_t count)
{
	const char *path = format(arena, "%s/%s", folder, name);
	write_file(path, bytes, count);
	return path;
}

static const char *file_of(Build *b)
{
	uint8_t *bytes;
	size_t count = pack(b, &bytes);
	return in_folder("model.onnx", bytes, count);
}

// ---- reading them ---------------------------------------------------------------------

static char *message; // message of the last failed read

static Model *try_read(const char *path, const ReadOptions *options)
{
	static const ReadOptions none;
	Catch caught;
	if (!TRY(caught)) {
		Model *m = read_model(arena, path, options ? options : &none);
		catch_end(&caught);
		return m;
	}
	message = copy_string(arena, caught.message);
	free(caught.message);
	return NULL;
}

static Model *read_built(Build *b, const ReadOptions *options)
{
	Model *m = try_read(file_of(b), options);
	if (!m)
		expect(false, message);
	return m;
}

static void rejected(Build *b, const char *words)
{
	Model *m = try_read(file_of(b), NULL);
	expect(!m && strstr(message, words),
	       format(arena, "wanted a message with '%s', got: %s", words, m ? "none" : message));
}

// Returns the first output for x = 1, 2, 3, ...
static Array run(const Model *m)
{
	const Graph *g = m->graph;
	Array *slot = NEWS(arena, Array, g->slots.count + 1);
	for (int s = 0; s < g->slots.count; s++) {
		const Slot *of = &g->slots.at[s];
		int64_t n = count_of(&of->shape);
		slot[s] = (Array){.type = of->type, .shape = of->shape};
		slot[s].f = NEWS(arena, double, n + 1);
		if (of->init)
			slot[s] = array_from(arena, of->type, &of->shape, of->init);
		for (int64_t i = 0; i < n && of->kind == S_input; i++)
			slot[s].f[i] = (double)(i + 1);
	}
	return eval_graph(arena, g, slot)[g->outs.at[0].val];
}

static void gives(Build *b, const char *what, int n, const double *wanted)
{
	Model *m = read_built(b, NULL);
	if (!m)
		return;
	Array y = run(m);
	bool good = count_of(&y.shape) == n;
	for (int i = 0; good && i < n; i++) {
		double found = element_at(&y, i);
		good = found == wanted[i] || fabs(found - wanted[i]) < 1e-5;
	}
	expect(good, what);
}

static void set_ints(NodeProto *n, const char *name, size_t count, const int64_t *x)
{
	AttributeProto *a = attribute(n, name);
	a->ints = take_copy(arena, x, count * sizeof *x);
	a->n_ints = count;
}

// ---- numbers --------------------------------------------------------------------------

static void test_storage(void)
{
	const double wanted[] = {2.5, 1, 6, 5.5, 4, 9};
	const float f32[] = {1.5, -1, 3};
	double f64[] = {1.5, -1, 3};
	const uint16_t f16[] = {0x3e00, 0xbc00, 0x4200}, bf16[] = {0x3fc0, 0xbf80, 0x4040};
	int32_t wide[] = {0x3e00, 0xbc00, 0x4200};
	int64_t n = 3;
	TensorProto *t[] = {floats("w", 3, f32),
	                    tensor("w", 1, 1, &n),
	                    raw(tensor("w", 11, 1, &n), f64, sizeof f64),
	                    tensor("w", 11, 1, &n),
	                    raw(tensor("w", 10, 1, &n), f16, sizeof f16),
	                    tensor("w", 10, 1, &n),
	                    raw(tensor("w", 16, 1, &n), bf16, sizeof bf16)};
	t[1]->float_data = take_copy(arena, f32, sizeof f32);
	t[1]->n_float_data = t[3]->n_double_data = t[5]->n_int32_data = 3;
	t[3]->double_data = f64;
	t[5]->int32_data = wide;
	for (int i = 0; i < COUNT(t); i++) {
		Build *b = usual(13);
		PUSH(arena, b->tensors, t[i]);
		add_to(b, node("Add", "x,w", "y"));
		gives(b, format(arena, "numbers stored in way %d", i), 6, wanted);
	}
}

static void test_constants(void)
{
	const double wanted[] = {2, 3, 4, 5, 6, 7};
	static const char *const forms[] = {"value_float", "value_floats", "value_int",
	                                    "value_ints"};
	float one = 1;
	int64_t integer = 1;
	for (int i = 0; i < COUNT(forms); i++) {
		Build *b = usual(13);
		AttributeProto *a = attribute(add_to(b, node("Constant", "", "c")), forms[i]);
		a->f = i == 0;
		a->n_floats = i == 1;
		a->i = i == 2;
		a->n_ints = i == 3;
		a->floats = &one;
		a->ints = &integer;
		attribute(add_to(b, node("Cast", "c", "k")), "to")->i = 1;
		add_to(b, node("Add", "x,k", "y"));
		gives(b, forms[i], 6, wanted);
	}
}

// ---- structure ------------------------------------------------------------------------

// Checks a product of constants whose result is not a float.
static void exact(const char *op, int type, TensorProto *a, TensorProto *b, int64_t wanted,
                  const char *what)
{
	Build *m = build(13);
	PUSH(arena, m->tensors, a);
	PUSH(arena, m->tensors, b);
	PUSH(arena, m->outputs, value("y", type, "1,1"));
	add_to(m, node(op, "a,b", "y"));
	Model *read = read_built(m, NULL);
	expect(read && run(read).i[0] == wanted, what);
}

static void test_exact(void)
{
	enum { LONG = 300, UINT8 = 2, INT32 = 6, INT64 = 7 };
	const int64_t row[] = {1, LONG}, column[] = {LONG, 1}, x[] = {94906267, 1};
	uint8_t most[LONG];
	memset(most, 255, sizeof most);
	TensorProto *a = raw(tensor("a", UINT8, 2, row), most, LONG);
	most[7] = 254;
	exact("MatMulInteger", INT32, a, raw(tensor("b", UINT8, 2, column), most, LONG),
	      (LONG - 1) * 255 * 255 + 255 * 254, "a product of bytes beyond 2^24");
	const int64_t two[] = {1, 2}, down[] = {2, 1};
	exact("MatMul", INT64, raw(tensor("a", INT64, 2, two), x, sizeof x),
	      raw(tensor("b", INT64, 2, down), x, sizeof x), x[0] * x[0] + 1,
	      "a product of integers beyond 2^53");
}

static void set_word(NodeProto *n, const char *name, const char *word)
{
	attribute(n, name)->s = (ProtobufCBinaryData){strlen(word), (uint8_t *)word};
}

// A region that is the whole axis gives the axis, whether it is a constant or computed, at run time
// too, where the axis is long.
static void test_crop(void)
{
	enum { LONG = 50 };
	const char *const modes[] = {"floor", "ceil"}, *const inputs[] = {"x,all,one", "x,r,one"};
	const float all[] = {0, 1};
	double wanted[LONG];
	for (int i = 0; i < LONG; i++)
		wanted[i] = i + 1;
	for (int k = 0; k < COUNT(modes) * COUNT(inputs); k++) {
		Build *b = build(13);
		PUSH(arena, b->inputs, value("x", 1, "50"));
		PUSH(arena, b->inputs, value("p", 1, "2")); // 1, 2
		PUSH(arena, b->outputs, value("y", 1, "50"));
		PUSH(arena, b->tensors, floats("all", 2, all));
		PUSH(arena, b->tensors, floats("one", 1, all + 1));
		add_to(b, node("Sub", "p,one", "r"));
		NodeProto *n = add_to(b, node("Resize", inputs[k / 2], "y"));
		set_word(n, "coordinate_transformation_mode", "tf_crop_and_resize");
		set_word(n, "mode", "nearest");
		set_word(n, "nearest_mode", modes[k % 2]);
		gives(b, format(arena, "all of an axis: %s %s", inputs[k / 2], modes[k % 2]), LONG,
		      wanted);
	}
}

// The extremes of no elements are the ends of the type.
static void test_no_elements(void)
{
	static const struct {
		const char *op;
		int type; // of ONNX: float, int32, int64
		double wanted;
	} cases[] = {{"ReduceMax", 1, -INFINITY}, {"ReduceMin", 1, INFINITY},
	             {"ReduceMax", 6, INT32_MIN}, {"ReduceMin", 6, INT32_MAX},
	             {"ReduceMax", 7, -0x1p63},   {"ReduceMin", 7, 0x1p63}};
	for (int k = 0; k < COUNT(cases); k++) {
		Build *b = build(13);
		PUSH(arena, b->tensors, tensor("x", cases[k].type, 2, (const int64_t[]){0, 2}));
		PUSH(arena, b->outputs, value("y", cases[k].type, "2"));
		NodeProto *n = add_to(b, node(cases[k].op, "x", "y"));
		attribute(n, "keepdims")->i = 0;
		set_ints(n, "axes", 1, (const int64_t[]){0});
		gives(b, format(arena, "%s of no elements of type %d", cases[k].op, cases[k].type),
		      2, (const double[]){cases[k].wanted, cases[k].wanted});
	}
}

// Steps beyond the end of an axis, up to the ends of the type.
static void test_steps(void)
{
	static const struct {
		int64_t start, end, step;
		double wanted[2];
	} cases[] = {{1, INT64_MAX, INT64_MAX, {2, 5}},
	             {-3, 3, 3, {1, 4}},
	             {INT64_MAX, INT64_MIN, INT64_MIN, {3, 6}},
	             {1, INT64_MIN, -INT64_MAX, {2, 5}}};
	static const char *const name[] = {"start", "end", "axis", "step"};
	const int64_t one[] = {1};
	for (int k = 0; k < COUNT(cases); k++) {
		const int64_t at[] = {cases[k].start, cases[k].end, 1, cases[k].step};
		Build *b = build(13);
		PUSH(arena, b->inputs, value("x", 1, "2,3"));
		PUSH(arena, b->outputs, value("y", 1, "2,1"));
		for (int i = 0; i < COUNT(name); i++)
			PUSH(arena, b->tensors, raw(tensor(name[i], 7, 1, one), &at[i], 8));
		add_to(b, node("Slice", "x,start,end,axis,step", "y"));
		gives(b, format(arena, "a step of %lld", (long long)cases[k].step), 2,
		      cases[k].wanted);
	}
}

// Positions in a sequence of 2; an element may be inserted at its end.
static void test_positions(void)
{
	static const struct {
		const char *op;
		int64_t at;
		bool valid;
	} cases[] = {{"SequenceAt", -2, true},     {"SequenceAt", 2, false},
	             {"SequenceAt", -3, false},    {"SequenceAt", INT64_MIN, false},
	             {"SequenceErase", 1, true},   {"SequenceErase", 2, false},
	             {"SequenceErase", -3, false}, {"SequenceInsert", 2, true},
	             {"SequenceInsert", 3, false}, {"SequenceInsert", -3, false}};
	const double wanted[] = {1, 2, 3, 4, 5, 6};
	const int64_t first = 0;
	for (int k = 0; k < COUNT(cases); k++) {
		Build *b = usual(13);
		bool at = !strcmp(cases[k].op, "SequenceAt"),
		     insert = !strcmp(cases[k].op, "SequenceInsert");
		PUSH(arena, b->tensors, raw(tensor("at", 7, 0, NULL), &cases[k].at, 8));
		PUSH(arena, b->tensors, raw(tensor("first", 7, 0, NULL), &first, 8));
		add_to(b, node("SequenceConstruct", "x,x", "s"));
		add_to(b, node(cases[k].op, insert ? "s,x,at" : "s,at", at ? "y" : "t"));
		if (!at)
			add_to(b, node("SequenceAt", "t,first", "y"));
		if (cases[k].valid)
			gives(b, format(arena, "%s at %lld", cases[k].op, (long long)cases[k].at),
			      6, wanted);
		else
			rejected(b, format(arena, "position %lld in a sequence of 2",
			                   (long long)cases[k].at));
	}
}

// In double, values equal the file's to the last bit: the f32 next to 1/6 is not 1/6, and a third
// is not an f32.
static void test_wide(void)
{
	const float sixth = 1.0f / 6, three = 3;
	const ReadOptions wide = {.precision = PRECISION_F64};
	Build *b = usual(13);
	NodeProto *n = node("HardSigmoid", "x", "h");
	attribute(n, "alpha")->f = sixth;
	add_to(b, n);
	PUSH(arena, b->tensors, floats("three", 1, &three));
	add_to(b, node("Div", "h,three", "y"));
	Model *m = read_built(b, &wide), *plain = read_built(b, NULL);
	if (!m || !plain)
		return;
	Array y = run(m);
	expect(y.type == E_f64 && run(plain).type == E_f32, "the type that is computed in");
	for (int i = 0; i < 6; i++)
		expect(fabs(y.f[i] * 3 - fmin((double)sixth * (i + 1) + 0.5, 1)) < 1e-15,
		       "alpha of HardSigmoid in double");
	bool integer = false;
	for (Ref r = 1; r < (Ref)plain->graph->nval; r++)
		integer |= val(plain->graph, r)->op == O_act;
	expect(integer, "HardSigmoid as an activation");
}

// f(a; k = 2) = a + k, called with k = 3 and without
static void test_function(void)
{
	const double wanted[] = {6, 7, 8, 9, 10, 11};
	Build *b = usual(13);
	FunctionProto *f = NEW(arena, FunctionProto), *functions[] = {f};
	function_proto__init(f);
	f->name = "Plus";
	f->domain = "own";
	f->input = names("a", &f->n_input);
	f->output = names("r", &f->n_output);
	NodeProto *constant = node("Constant", "", "k"),
	          *body[] = {constant, node("Add", "a,k", "r")};
	attribute(constant, "value_float")->ref_attr_name = "k";
	f->node = body;
	f->n_node = 2;
	f->opset_import = b->opsets;
	f->n_opset_import = 1;
	NodeProto hold = *node("", "", "");
	AttributeProto *usual_k = attribute(&hold, "k");
	usual_k->f = 2;
	f->attribute_proto = hold.attribute;
	f->n_attribute_proto = 1;
	b->model.functions = functions;
	b->model.n_functions = 1;
	NodeProto *first = add_to(b, node("Plus", "x", "k")),
	          *second = add_to(b, node("Plus", "k", "y"));
	first->domain = second->domain = "own";
	attribute(first, "k")->f = 3;
	gives(b, "a function with an attribute", 6, wanted);
	second->input = names("k,x", &second->n_input);
	rejected(b, "the function has 1 input and 1 output, the node 2 and 1");
	second->input = names("k,", &second->n_input);
	second->output = names("y,z", &second->n_output);
	rejected(b, "the function has 1 input and 1 output, the node 1 and 2");
}

static GraphProto *branch(const char *op)
{
	GraphProto *g = NEW(arena, GraphProto);
	graph_proto__init(g);
	g->node = NEWS(arena, NodeProto *, 1);
	g->node[0] = node(op, "x", "r");
	g->n_node = 1;
	g->output = NEWS(arena, ValueInfoProto *, 1);
	g->output[0] = value("r", 1, "2,3");
	g->n_output = 1;
	return g;
}

static void test_branch(void)
{
	const double negated[] = {-1, -2, -3, -4, -5, -6}, same[] = {1, 2, 3, 4, 5, 6};
	for (int data = 0; data < 2; data++) {
		Build *b = usual(13);
		if (data)
			attribute(add_to(b, node("ReduceMin", "x", "low")), "keepdims");
		attribute(add_to(b, node("Constant", "", "zero")), "value_float")->f =
		    data ? 0 : -1;
		attribute(add_to(b, node("Constant", "", "minus")), "value_float")->f =
		    data ? 5 : -2;
		add_to(b, node("Less", data ? "low,minus" : "zero,minus", "c"));
		NodeProto *n = add_to(b, node("If", "c", "y"));
		attribute(n, "then_branch")->g = branch("Neg");
		attribute(n, "else_branch")->g = branch("Abs");
		gives(b, data ? "If on data" : "If on a constant", 6, data ? negated : same);
	}
}

// Both branches compute `op` of an outer value.
static void both_branches(NodeProto *n, const char *op, char *reads)
{
	for (int k = 0; k < 2; k++) {
		GraphProto *g = branch(op);
		g->node[0]->input[0] = reads;
		attribute(n, k ? "then_branch" : "else_branch")->g = g;
	}
}

// Tools append nodes: the branch reads m, which the last node computes.
static void test_order(void)
{
	const double wanted[] = {1, 2, 3, 4, 5, 6};
	Build *b = usual(13);
	NodeProto *n = add_to(b, node("If", "c", "y"));
	both_branches(n, "Neg", "m");
	add_to(b, node("Less", "low,low", "c"));
	attribute(add_to(b, node("ReduceMin", "m", "low")), "keepdims");
	add_to(b, node("Neg", "x", "m"));
	gives(b, "nodes out of order", 6, wanted);
	b = usual(13);
	add_to(b, node("Add", "x,b", "a"));
	add_to(b, node("Neg", "a", "b"));
	add_to(b, node("Neg", "b", "y"));
	rejected(b, "is undefined or part of a cycle");
}

static void test_dimensions(void)
{
	Build *b = build(13);
	PUSH(arena, b->inputs, value("x", 1, "batch,3"));
	PUSH(arena, b->outputs, value("y", 1, "batch,3"));
	add_to(b, node("Neg", "x", "y"));
	rejected(b, "--bind batch=N");
	Bind bind = {"batch", 4};
	Model *m = read_built(b, &(ReadOptions){.nbind = 1, .bind = &bind});
	expect(m && run(m).shape.dim[0] == 4, "a bound dimension");
	bind.name = "x:0";
	m = read_built(b, &(ReadOptions){.nbind = 1, .bind = &bind});
	expect(m && run(m).shape.dim[0] == 4, "a dimension bound by its place");
}

// Sizes inferred from elsewhere: channels from a weight, names from a sum.
static void test_inferred(void)
{
	static const float zeros[4 * 3];
	Bind bind[] = {{"past", 2}, {"batch", 1}};
	Build *b = build(13);
	PUSH(arena, b->inputs, value("x", 1, "batch,channels,past + 1,past + 2*(past+1)"));
	PUSH(arena, b->inputs, value("p", 1, "past"));
	PUSH(arena, b->outputs, value("y", 1, "batch,4,a,b"));
	TensorProto *w = floats("w", 12, zeros);
	w->n_dims = 4;
	w->dims = take_copy(arena, (int64_t[]){4, 3, 1, 1}, 4 * sizeof *w->dims);
	PUSH(arena, b->tensors, w);
	attribute(add_to(b, node("Cast", "x", "c")), "to")->i = 1;
	add_to(b, node("Conv", "c,w", "y"));
	Model *m = read_built(b, &(ReadOptions){.nbind = 2, .bind = bind});
	Shape wanted = shape_of(4, (int64_t[]){1, 4, 3, 8});
	expect(m && same_shape(&val(m->graph, m->graph->outs.at[0].val)->shape, &wanted),
	       "sizes that others tell");
	rejected(b, "--bind batch=N,x:2=N,x:3=N,past=N");
}

// Repetitions as a one-hot vector, as PyTorch's older exporter writes repeat_interleave().
static void test_repetitions(void)
{
	Build *b = build(13);
	PUSH(arena, b->inputs, value("x", 1, "2,3"));
	PUSH(arena, b->outputs, value("y", 1, "2,12"));
	static const struct {
		const char *name;
		int64_t n, x[2];
	} given[] = {{"at", 1, {1}}, {"depth", 1, {2}}, {"values", 2, {1, 4}}, {"flat", 1, {-1}}};
	for (int i = 0; i < COUNT(given); i++)
		PUSH(arena, b->tensors,
		     raw(tensor(given[i].name, 7, 1, &given[i].n), given[i].x,
		         sizeof *given[i].x * (size_t)given[i].n));
	add_to(b, node("OneHot", "at,depth,values", "one"));
	add_to(b, node("Reshape", "one,flat", "times"));
	add_to(b, node("Tile", "x,times", "y"));
	Model *m = read_built(b, NULL);
	Shape wanted = shape_of(2, (int64_t[]){2, 12});
	expect(m && same_shape(&val(m->graph, m->graph->outs.at[0].val)->shape, &wanted),
	       "repetitions known by index arithmetic");
}

// ---- parameters -----------------------------------------------------------------------

static int kind_of_slot(const Model *m, const char *name)
{
	int s = m ? find_slot(m->graph, name) : -1;
	return s < 0 ? -1 : (int)m->graph->slots.at[s].kind;
}

// One initializer of zeros for two biases, as exporters write it: Identity names the second one.
static Build *merged(void)
{
	const float zeros[3] = {0};
	Build *b = usual(13);
	PUSH(arena, b->tensors, floats("a.bias", 3, zeros));
	add_to(b, node("Identity", "a.bias", "b.bias"));
	add_to(b, node("Add", "x,a.bias", "h"));
	add_to(b, node("Relu", "h", "r"));
	add_to(b, node("Add", "r,b.bias", "y"));
	return b;
}

static const Model *trained;

static const void *trained_bytes(void *ctx, int slot)
{
	static const float up[3] = {1, 1, 1}, down[3] = {-10, -10, -10};
	(void)ctx;
	return strcmp(trained->graph->slots.at[slot].name, "a.bias") ? up : down;
}

static const void *no_bytes(void *ctx, int slot)
{
	(void)ctx, (void)slot;
	return NULL;
}

static void test_merged(void)
{
	Model *m = read_built(merged(), NULL);
	expect(kind_of_slot(m, "a.bias") == S_param && kind_of_slot(m, "b.bias") == S_param,
	       "merged parameters are parted");
	if (!m)
		return;
	const char *out = format(arena, "%s/out.onnx", folder);
	write_model(m, out, false, no_bytes, NULL);
	expect(same_files(m->path, out), "an untrained model is written back to the bit");
	trained = m;
	write_model(m, out, false, trained_bytes, NULL);
	Model *again = try_read(out, NULL);
	Array y = again ? run(again) : (Array){0};
	expect(again && y.f[0] == 1 && y.f[5] == 1, "parted parameters are written apart");
}

// Branches that read a weight through Identity share the parameter.
static void test_captured(void)
{
	const float some[3] = {1, 2, 3};
	Build *b = usual(13);
	PUSH(arena, b->tensors, floats("bias", 3, some));
	attribute(add_to(b, node("ReduceMin", "x", "low")), "keepdims");
	add_to(b, node("Less", "low,low", "c"));
	NodeProto *n = add_to(b, node("If", "c", "k"));
	both_branches(n, "Identity", "bias");
	add_to(b, node("Add", "x,k", "y"));
	Model *m = read_built(b, NULL);
	expect(kind_of_slot(m, "bias") == S_param && kind_of_slot(m, "r") < 0,
	       "a weight that branches copy is one parameter");
}

// x mix - relu(x) (1 - mix), with the difference computed by the exporter.
static void test_complement(void)
{
	const float mix[] = {0.25, 0.5, 0.75}, rest[] = {0.75, 0.5, 0.25};
	Build *b = usual(13);
	PUSH(arena, b->tensors, floats("mix", 3, mix));
	PUSH(arena, b->tensors, floats("onnx::Mul_7", 3, rest));
	add_to(b, node("Mul", "x,mix", "s"));
	add_to(b, node("Relu", "x", "r"));
	add_to(b, node("Mul", "r,onnx::Mul_7", "t"));
	add_to(b, node("Sub", "s,t", "y"));
	gives(b, "1 - x tied to x", 6, (double[]){-0.5, 0, 1.5, -2, 0, 3});
	Model *m = read_built(b, NULL);
	trained = m;
	if (!m)
		return;
	expect(kind_of_slot(m, "mix") == S_param && kind_of_slot(m, "onnx::Mul_7") < 0,
	       "1 - x is no parameter of its own");
	const char *out = format(arena, "%s/out.onnx", folder);
	write_model(m, out, false, no_bytes, NULL);
	expect(same_files(m->path, out), "a tied 1 - x is written back to the bit");
	write_model(m, out, false, trained_bytes, NULL);
	Model *again = try_read(out, NULL);
	Array y = again ? run(again) : (Array){0};
	expect(again && y.f[0] == 1 && y.f[5] == 6, "1 - x is written with x");
}

// Returns an f32[3] in the file `location`, from byte `offset` on.
static TensorProto *outside(const char *name, const char *location, const char *offset)
{
	int64_t n = 3;
	TensorProto *t = tensor(name, 1, 1, &n);
	const char *const words[][2] = {{"location", location}, {"offset", offset}};
	t->data_location = 1;
	t->n_external_data = COUNT(words);
	t->external_data = NEWS(arena, StringStringEntryProto *, COUNT(words));
	for (int i = 0; i < COUNT(words); i++) {
		StringStringEntryProto *entry = NEW(arena, StringStringEntryProto);
		string_string_entry_proto__init(entry);
		entry->key = copy_string(arena, words[i][0]);
		entry->value = copy_string(arena, words[i][1]);
		t->external_data[i] = entry;
	}
	return t;
}

static bool mentions(const char *path, const char *word)
{
	size_t count;
	const char *bytes = read_file(arena, path, &count);
	return memmem(bytes, count, word, strlen(word));
}

static const float *initial(void *m, int64_t slot)
{
	return ((const Model *)m)->graph->slots.at[slot].init;
}

static void put_bytes(void *file, const void *bytes, size_t count)
{
	fwrite(bytes, 1, count, file);
}

// Writes the model and its external data as one file.
static void write_inside(Model *m, const char *path)
{
	const struct amos_weights w = {model_template(m, arena, false), initial, m};
	FILE *file = fopen(path, "wb");
	int64_t bytes = amos_template_write(&w, AMOS_FILE_MODEL, NULL, put_bytes, file);
	expect(file && bytes == ftell(file) &&
	           bytes == amos_template_write(&w, AMOS_FILE_MODEL, NULL, NULL, NULL),
	       "the size of a file is known before");
	fclose(file);
}

// External data of initializers, attributes and unused tensors all go to one new file.
static void test_external(void)
{
	const float numbers[] = {1, 2, 3, 4, 5, 6};
	const char *data = in_folder("w.bin", numbers, sizeof numbers);
	Build *b = usual(13);
	PUSH(arena, b->tensors, outside("w", "w.bin", "0"));
	PUSH(arena, b->tensors, outside("same", "./w.bin", "0"));
	PUSH(arena, b->tensors, outside("idle", "w.bin", "12"));
	PUSH(arena, b->tensors, outside("lost", "gone.bin", "0"));
	attribute(add_to(b, node("Constant", "", "c")), "value")->t = outside("", "w.bin", "12");
	add_to(b, node("Mul", "x,w", "s"));
	add_to(b, node("Mul", "s,same", "t"));
	add_to(b, node("Add", "t,c", "y"));
	const double wanted[] = {5, 13, 33, 8, 25, 60};
	gives(b, "data in other files", 6, wanted);
	Model *m = read_built(b, NULL);
	if (!m)
		return;
	const char *out = format(arena, "%s/out.onnx", folder);
	write_model(m, out, false, no_bytes, NULL);
	expect(!mentions(out, "w.bin") && mentions(out, "gone.bin"), "the names of data files");
	size_t count;
	read_file(arena, format(arena, "%s.data", out), &count);
	expect(count == 2 * 64 + 12,
	       "bytes that tensors without parameters share are written once");
	const char *inside = format(arena, "%s/inside.onnx", folder);
	write_inside(m, inside);
	write_file(data, "", 0);
	for (int k = 0; k < 2; k++) {
		Model *again = try_read(k ? inside : out, NULL);
		Array y = again ? run(again) : (Array){0};
		for (int i = 0; again && i < 6; i++)
			expect(y.f[i] == wanted[i], "data in one file");
		expect(again != NULL, "a model with data in one file does not read");
	}
}

static void test_roles(void)
{
	const float some[3] = {1, 2, 3};
	Build *b = usual(13);
	PUSH(arena, b->tensors, floats("scale", 3, some));
	PUSH(arena, b->tensors, floats("attn.masked_bias", 3, some));
	add_to(b, node("Mul", "x,scale", "h"));
	add_to(b, node("Add", "h,attn.masked_bias", "y"));
	Model *m = read_built(b, NULL);
	expect(kind_of_slot(m, "scale") == S_param, "a weight is a parameter");
	expect(kind_of_slot(m, "attn.masked_bias") == -1, "a buffer is none");
	Selection select = {"scale", false};
	m = read_built(b, &(ReadOptions){.nselect = 1, .select = &select});
	expect(kind_of_slot(m, "scale") == S_frozen, "--freeze");
	select.pattern = "*";
	m = read_built(b, &(ReadOptions){.nselect = 1, .select = &select});
	expect(kind_of_slot(m, "attn.masked_bias") == -1, "--freeze of a buffer");
	select = (Selection){"*masked*", true};
	m = read_built(b, &(ReadOptions){.nselect = 1, .select = &select});
	expect(kind_of_slot(m, "attn.masked_bias") == S_param, "--train");
	PUSH(arena, b->tensors, floats("a.weight_v", 3, some));
	add_to(b, node("Add", "h,a.weight_v", "z"));
	PUSH(arena, b->outputs, value("z", 1, "2,3"));
	expect(kind_of_slot(read_built(b, NULL), "a.weight_v") == S_param, "weight_norm's v");
	PUSH(arena, b->tensors, floats("a.weight_u", 3, some));
	expect(kind_of_slot(read_built(b, NULL), "a.weight_v") == -1, "spectral_norm's v");
}

static StringStringEntryProto **entry(const char *key, const char *text)
{
	StringStringEntryProto **all = NEWS(arena, StringStringEntryProto *, 1);
	all[0] = NEW(arena, StringStringEntryProto);
	string_string_entry_proto__init(all[0]);
	all[0]->key = copy_string(arena, key);
	all[0]->value = copy_string(arena, text);
	return all;
}

// A value that the exporter computed from sizes is not a parameter, even if its call reads
// parameters, or the sizes are those of a parameter.
static void test_exporter_sizes(void)
{
	static const struct {
		const char *call, *from; // arguments of the call; what the value was folded from
		int count;
	} cases[] = {{"%p_m_weight, %x", "['x', 'val_0']", 3},
	             {"%x, %p_m_weight, %p_n_weight", "['x', 'val_0']", 1},
	             {"%p_m_weight, %x", "['m.weight', 'val_0']", 1},
	             {"%x, %p_m_weight, %p_n_weight", "['m.weight']", 1}};
	const float some[3] = {1, 2, 3}, others[3] = {3, 2, 1}, ones[3] = {1, 1, 1};
	for (int k = 0; k < COUNT(cases); k++) {
		Build *b = usual(18);
		PUSH(arena, b->tensors, floats("m.weight", 3, some));
		PUSH(arena, b->tensors, floats("n.weight", 3, others));
		PUSH(arena, b->tensors, floats("tmp", cases[k].count, ones));
		NodeProto *read[] = {add_to(b, node("Mul", "x,m.weight", "h")),
		                     add_to(b, node("Mul", "h,n.weight", "i")),
		                     add_to(b, node("Mul", "i,tmp", "y"))};
		for (int i = 0; i < COUNT(read); i++) {
			const char *call =
			    format(arena, "target=aten.bag](args = (%s))", cases[k].call);
			read[i]->metadata_props = entry("pkg.torch.onnx.fx_node", call);
			read[i]->n_metadata_props = 1;
		}
		ValueInfoProto *tmp = value("tmp", 1, format(arena, "%d", cases[k].count));
		tmp->metadata_props = entry("pkg.onnxscript.optimizer.folded_from", cases[k].from);
		tmp->n_metadata_props = 1;
		b->graph.value_info = &tmp;
		b->graph.n_value_info = 1;
		b->graph.metadata_props = entry("pkg.torch.export.ExportedProgram.graph_signature",
		                                "p_m_weight: PARAMETER target='m.weight'\n"
		                                "p_n_weight: PARAMETER target='n.weight'\n");
		b->graph.n_metadata_props = 1;
		Model *m = read_built(b, NULL);
		expect(kind_of_slot(m, "m.weight") == S_param, "a parameter of the signature");
		expect(kind_of_slot(m, "n.weight") == S_param, "another parameter");
		expect(m->graph->slots.count == 3,
		       format(arena, "sizes that are no parameter: %d", k));
	}
}

// ---- corrupt files --------------------------------------------------------------------

static Build *with_tensor(TensorProto *t)
{
	Build *b = usual(13);
	PUSH(arena, b->tensors, t);
	add_to(b, node("Add", "x,w", "y"));
	return b;
}

static Build *with_node(NodeProto *n)
{
	Build *b = usual(13);
	add_to(b, n);
	return b;
}

static GraphProto *nested(int depth)
{
	GraphProto *g = branch("If");
	if (depth)
		attribute(g->node[0], "then_branch")->g = nested(depth - 1);
	return g;
}

// An operator that reads indices from `i`.
static Build *with_indices(const char *op, int rank, const int64_t *dims, const int64_t *at)
{
	Build *b = with_node(node(op, strcmp(op, "ScatterND") ? "x,i" : "x,i,x", "y"));
	size_t count = sizeof *at;
	for (int a = 0; a < rank; a++)
		count *= (size_t)dims[a];
	PUSH(arena, b->tensors, raw(tensor("i", 7, rank, dims), at, count));
	return b;
}

static void test_indices(void)
{
	const int64_t wide[] = {2, 4}, five[] = {5}, at[] = {0, 1, 2, 3, 4};
	rejected(with_indices("GatherElements", 2, wide, (int64_t[8]){0}),
	         "along axis 1, the indices have size");
	rejected(with_indices("ScatterND", 0, NULL, at), "tuples");
	rejected(with_indices("Gather", 1, five, at), "index 2");
	const double reversed[] = {4, 5, 6, 1, 2, 3};
	Build *b = usual(13);
	AttributeProto *axes = attribute(add_to(b, node("ReduceMax", "x", "m")), "axes");
	axes->n_ints = 1;
	axes->ints = NEWS(arena, int64_t, 1);
	attribute(b->nodes.at[0], "keepdims")->i = 0;
	attribute(add_to(b, node("Cast", "m", "long")), "to")->i = 7;
	add_to(b, node("ReverseSequence", "x,long", "y"));
	gives(b, "lengths beyond the sequence", 6, reversed);
}

// Omitting more inputs than a line has ends with the line.
static void test_skips(void)
{
	const double found[] = {1};
	Build *b = build(13);
	PUSH(arena, b->inputs, value("x", 1, "3"));
	PUSH(arena, b->outputs, value("y", 1, "1"));
	NodeProto *n = add_to(b, node("TfIdfVectorizer", "x", "y"));
	set_ints(n, "ngram_counts", 2, (int64_t[]){0, 0});
	set_ints(n, "ngram_indexes", 1, (int64_t[]){0});
	set_ints(n, "pool_int64s", 2, (int64_t[]){1, 3});
	attribute(n, "min_gram_length")->i = 1;
	attribute(n, "max_gram_length")->i = 2;
	attribute(n, "max_skip_count")->i = INT64_MAX;
	attribute(n, "mode")->s = (ProtobufCBinaryData){2, (uint8_t *)"TF"};
	gives(b, "words further apart than any line is long", 1, found);
}

// Inputs omitted, of too low rank, or of excessive size; outputs that the operator lacks.
static void test_operands(void)
{
	rejected(with_node(node("Max", "x,,x", "y")), "input 1 is missing");
	NodeProto *n = node("Einsum", "x", "y");
	n->n_input = 0;
	rejected(with_node(n), "input 0 is missing");
	Build *b = with_node(node("DepthToSpace", "image", "y"));
	PUSH(arena, b->inputs, value("image", 1, "1,4,2,2"));
	attribute(b->nodes.at[0], "blocksize")->i = INT32_MAX;
	rejected(b, "divide by the square");
	b->nodes.at[0]->op_type = "SpaceToDepth";
	rejected(b, "divide by its block");
	b = with_node(node("RoiAlign", "image,regions,of", "y"));
	PUSH(arena, b->inputs, value("image", 1, "1,1,4,4"));
	PUSH(arena, b->inputs, value("regions", 1, "1,4"));
	PUSH(arena, b->inputs, value("of", 7, "1"));
	attribute(b->nodes.at[0], "output_height")->i = INT32_MAX;
	rejected(b, "an output of 2147483647");
	b = with_node(node("InstanceNormalization", "row,row,row", "y"));
	PUSH(arena, b->inputs, value("row", 1, "3"));
	rejected(b, "found 1 dimensions");
	b = with_node(node("GRU", "steps,weights,weights", "h,last,y"));
	PUSH(arena, b->inputs, value("steps", 1, "2,1,3"));
	PUSH(arena, b->inputs, value("weights", 1, "1,9,3"));
	attribute(b->nodes.at[0], "hidden_size")->i = 3;
	attribute(b->nodes.at[0], "layout")->i = 1;
	rejected(b, "3 outputs; expected at most 2");
}

// No error is reported for the nodes that read it.
static void test_no_shape(void)
{
	Build *b = with_node(node("Gather", "x,i", "y"));
	ValueInfoProto *i = value("i", 7, "1");
	i->type->tensor_type->shape = NULL;
	PUSH(arena, b->inputs, i);
	rejected(b, "'i' is declared without a shape");
	expect(!strstr(message, "Gather"), message);
}

static void test_lies(void)
{
	const float three[3] = {0};
	int64_t minus = -3, huge[] = {INT64_MAX / 2, 4}, n = 3;
	rejected(with_tensor(tensor("w", 1, 1, &minus)), "dimension");
	rejected(with_tensor(tensor("w", 1, 2, huge)), "2^57 elements");
	rejected(with_tensor(raw(tensor("w", 1, 1, &n), three, 8)), "8 bytes");
	rejected(with_tensor(tensor("w", 99, 1, &n)), "element type 99");
	rejected(with_node(node("Relu", "nothing", "y")), "'nothing'");
	rejected(with_node(node("Relu", "y", "y")), "'y'");
	rejected(with_node(node("Relu", "", "y")), "missing");
	rejected(with_node(node("Reshape", "x,x", "y")), "computed from data");
	Build *b = with_node(node("Foo", "x", "h"));
	add_to(b, node("Bar", "x", "y"));
	rejected(b, "Foo");
	rejected(b, "Bar");
	b = with_node(node("Relu", "x", "y"));
	add_to(b, node("Neg", "x", "y"));
	rejected(b, "two values");
	b = with_node(node("Relu", "x", "y"));
	b->opset.version = 99;
	rejected(b, "opset 99");
	b->opset.version = 13;
	b->model.ir_version = 2;
	rejected(b, "IR version 2");
	b = with_node(node("If", "x", "y"));
	attribute(b->nodes.at[0], "then_branch")->g = nested(200);
	rejected(b, "nested");
	rejected(with_tensor(outside("w", "../secret", "0")), "outside");
	test_operands();
	test_skips();
	test_no_shape();
	test_indices();
}

static uint64_t noise = 1;

static uint64_t random_number(void)
{
	noise = noise * 6364136223846793005u + 1442695040888963407u;
	return noise >> 33;
}

// Every damaged file is read or reported.
static void damage(const char *name, const uint8_t *bytes, size_t count)
{
	enum { TIMES = 400 };
	Arena *outer = arena;
	Bind bind[] = {{"batch", 2}, {"sequence", 4}};
	ReadOptions options = {.nbind = 2, .bind = bind};
	for (int i = 0; i < TIMES; i++) {
		arena = arena_new();
		uint8_t *copy = take_copy(arena, bytes, count);
		size_t length = i % 2 ? count : random_number() % count;
		for (int k = 0; i % 2 && k <= i % 7; k++)
			copy[random_number() % count] = (uint8_t)random_number();
		message = NULL;
		Model *m = try_read(in_folder("damaged.onnx", copy, length), &options);
		expect(m || (message && *message), format(arena, "%s, damage %d", name, i));
		arena_free(arena);
		arena = outer;
	}
}

static void test_damage(int n, char **paths)
{
	uint8_t *bytes;
	size_t count = pack(merged(), &bytes);
	damage("merged", bytes, count);
	for (int i = 0; i < n; i++) {
		bytes = (uint8_t *)read_file(arena, paths[i], &count);
		damage(paths[i], bytes, count);
	}
}

static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int lines = 0, c;
	while (maps && (c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

static void list_once(const char *path)
{
	Arena *own = arena_new();
	Catch c;
	if (!TRY(c)) {
		read_model(own, path, &(ReadOptions){.list = true});
		catch_end(&c);
	} else {
		free(c.message);
	}
	arena_free(own);
}

// A file stays mapped no longer than its model.
static void test_closed(int n, char **models)
{
	int before = mappings();
	for (int i = 0; i < 16 * n; i++)
		list_once(models[i % n]);
	expect(n > 0 && mappings() < before + 16, "models stay mapped");
}

int main(int argc, char **argv)
{
	arena = arena_new();
	folder = own_folder();
	test_storage();
	test_constants();
	test_exact();
	test_crop();
	test_no_elements();
	test_steps();
	test_positions();
	test_wide();
	test_function();
	test_branch();
	test_order();
	test_dimensions();
	test_inferred();
	test_repetitions();
	test_merged();
	test_captured();
	test_complement();
	test_external();
	test_roles();
	test_exporter_sizes();
	test_lies();
	test_closed(argc - 1, argv + 1);
	test_damage(argc - 1, argv + 1);
	arena_free(arena);
	return expected();
}
