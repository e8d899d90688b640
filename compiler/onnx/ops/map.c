// map.c: ONNX operators that are element-wise: one primitive, one activation, one line of the book,
// or little more. Takes the node being lowered. Gives its results. Keeps: numpy's broadcasting is
// alignment of ranks; primitives stretch.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- shared ---------------------------------------------------------------------------

Ref num_like(Graph *g, Ref x, double number)
{
	return put_num(g, val(g, x)->type, number);
}

Ref put_ints(Graph *g, int n, const int64_t *ints)
{
	int64_t dim = n;
	return put_const(g, E_i64, shape_of(1, &dim), ints);
}

void align2(Graph *g, Ref *a, Ref *b)
{
	int ra = val(g, *a)->shape.rank, rb = val(g, *b)->shape.rank, rank = MAX(ra, rb);
	if (ra)
		*a = put_rank(g, *a, rank);
	if (rb)
		*b = put_rank(g, *b, rank);
}

Ref put_map2(Graph *g, Op op, Ref a, Ref b)
{
	align2(g, &a, &b);
	return put2(g, op, a, b);
}

static bool is_truth(const Graph *g, Ref x)
{
	return val(g, x)->type == E_b8;
}

// The element type of the operands in the file, which are all of one: what the first that has none
// of its own leaves open the next may tell.
static int common_type(const Call *c)
{
	int type = operand_type(c, 0);
	for (int k = 1; k < c->nin; k++)
		if (type == elems[val(c->g, c->in[k])->type].onnx)
			type = operand_type(c, k);
	return type;
}

static bool is_unsigned(const Call *c, int operand)
{
	return declared_type(operand_type(c, operand)) == E_u64;
}

// Gives operands of uint64 that type, for operators that are not the same in i64, modulo 2^64.
static void use_unsigned(Call *c)
{
	bool any = false;
	for (int k = 0; k < c->nin; k++)
		any |= c->in[k] && is_unsigned(c, k);
	for (int k = 0; any && k < c->nin; k++)
		c->in[k] = c->in[k] ? put_cast(c->g, c->in[k], E_u64) : 0;
}

Ref signed_order(const Call *c, int operand, Ref x)
{
	int64_t half = INT64_MIN;
	if (!is_unsigned(c, operand))
		return x;
	return put2(c->g, O_add, x, put_const(c->g, E_i64, (Shape){0}, &half));
}

Ref reverse_order(Graph *g, Ref x)
{
	bool whole = !is_float(val(g, x)->type);
	return whole ? put2(g, O_sub, num_like(g, x, -1), x) : put1(g, O_neg, x);
}

static Ref take_signed(Graph *g, Ref x)
{
	return val(g, x)->type == E_u64 ? put_cast(g, x, E_i64) : x;
}

// Whole numbers of few bits wrap as those of the file do; floats stay as they are computed.
static Ref wrapped(Call *c, Ref y)
{
	y = take_signed(c->g, y);
	Elem type = val(c->g, y)->type;
	int onnx = is_float(type) ? 0 : common_type(c);
	if (!onnx || working_type(onnx) != (int)type)
		return y;
	c->onnx = onnx;
	return put_typed(c, y, onnx, false, "");
}

static Ref as_float(Graph *g, Ref x)
{
	return put_cast(g, x, E_f32);
}

// ---- one primitive --------------------------------------------------------------------

void lower_unary(Call *c)
{
	in_val(c, 0);
	use_unsigned(c);
	c->out[0] = wrapped(c, put1(c->g, (Op)c->variant, c->in[0]));
}

// Rounding leaves integers as they are.
void lower_round(Call *c)
{
	in_val(c, 0);
	c->out[0] =
	    is_float(val(c->g, c->in[0])->type) ? put1(c->g, (Op)c->variant, c->in[0]) : c->in[0];
}

// A truth value added to float scores was meant as a mask. It is computed as the file says, and
// said.
static Ref add_truth(Call *c, Ref a, Ref b)
{
	note(c->r,
	     "%s adds truth values to floats (a mistake of the exporter with attention masks at "
	     "dropout above "
	     "0): computed as 1 and 0, so masked places are attended; export with dropout 0 or "
	     "opset below 23",
	     node_where(c->r->arena, c->node));
	return put_map2(c->g, O_add, a, put_cast(c->g, b, E_f32));
}

// Before set 7 the second operand's axes stood at `axis` of the first's, or at its end.
static Ref old_broadcast(Call *c, Ref b)
{
	int rank = in_val(c, 0)->shape.rank;
	Shape s = val(c->g, b)->shape;
	const AttributeProto *at = find_attr(c, "axis");
	if (c->opset >= 7 || !at || s.rank >= rank)
		return b;
	int64_t axis = axis_of(c, at->i, rank);
	while (axis + s.rank < rank)
		s.dim[s.rank++] = 1;
	return put_reshape(c->g, b, s);
}

void lower_binary(Call *c)
{
	in_val(c, 0), in_val(c, 1);
	use_unsigned(c);
	Ref a = c->in[0], b = old_broadcast(c, c->in[1]);
	if (c->variant == O_add && is_float(val(c->g, a)->type) && is_truth(c->g, b))
		c->out[0] = add_truth(c, a, b);
	else
		c->out[0] = wrapped(c, put_map2(c->g, (Op)c->variant, a, b));
}

void lower_variadic(Call *c)
{
	for (int k = 0; k < c->nin; k++)
		in_val(c, k);
	use_unsigned(c);
	Ref x = c->in[0];
	for (int k = 1; k < c->nin; k++)
		x = put_map2(c->g, (Op)c->variant, x, c->in[k]);
	c->out[0] = wrapped(c, x);
}

void lower_mean_of(Call *c)
{
	c->variant = O_add;
	lower_variadic(c);
	c->out[0] = put2(c->g, O_div, c->out[0], num_like(c->g, c->out[0], c->nin));
}

// Greater is Less with its operands exchanged.
void lower_swapped(Call *c)
{
	in_val(c, 0), in_val(c, 1);
	use_unsigned(c);
	c->out[0] = put_map2(c->g, (Op)c->variant, c->in[1], c->in[0]);
}

void lower_not(Call *c)
{
	in_val(c, 0);
	c->out[0] = is_truth(c->g, c->in[0])
	                ? put1(c->g, O_not, c->in[0])
	                : wrapped(c, put2(c->g, O_xor, c->in[0], num_like(c->g, c->in[0], -1)));
}

void lower_act(Call *c)
{
	in_val(c, 0);
	c->out[0] = put(c->g, O_act, 1, c->in, &(Attr){.n = 1, .i = {c->variant}});
}

// ---- a line of the book, with the numbers that ops.def lists --------------------------

typedef struct Number {
	const char *op, *name;
	double otherwise;
} Number;

static const Number numbers[] = {
#define OP(...)
#define NUMBER(op, name, otherwise) {#op, #name, otherwise},
#include "ops.def"
#undef OP
#undef NUMBER
};

int numbers_of(const char *op, AttrArg *given)
{
	int n = 0;
	for (int i = 0; i < COUNT(numbers); i++)
		if (!strcmp(numbers[i].op, op))
			given[n++] = (AttrArg){.name = numbers[i].name, .x = numbers[i].otherwise};
	return n;
}

// Whole numbers with numbers of the definition between are computed as floats.
void lower_book(Call *c)
{
	AttrArg given[MOST_NUMBERS];
	int n = numbers_of(c->node->op_type, given);
	for (int i = 0; i < n; i++)
		given[i].x = attr_number(c, given[i].name, given[i].x);
	for (int k = 0; k < c->nin; k++)
		in_val(c, k);
	Elem type = in_val(c, 0)->type;
	bool whole = n && !is_float(type);
	Ref *in = take_copy(c->r->arena, c->in, sizeof *in * (size_t)(c->nin + 1));
	for (int k = 0; whole && k < c->nin; k++)
		in[k] = as_float(c->g, in[k]);
	if (c->nin == 2)
		align2(c->g, &in[0], &in[1]);
	book_call(c->g, c->node->op_type, c->nin, in, n, given, c->nout, c->out);
	if (whole)
		c->out[0] = wrapped(c, put_cast(c->g, c->out[0], type));
}

// Of the first sets: x scale + bias, the bias of each channel.
void lower_image_scaler(Call *c)
{
	Graph *g = c->g;
	const AttributeProto *bias = find_attr(c, "bias");
	Shape s = in_val(c, 0)->shape, line = {.rank = s.rank};
	for (int a = 0; a < s.rank; a++)
		line.dim[a] = a == 1 ? s.dim[1] : 1;
	if (s.rank < 2 || !bias || (int64_t)bias->n_floats != s.dim[1])
		invalid_node(c, "wants an image and a bias for each channel");
	Ref y = put2(g, O_mul, c->in[0], num_like(g, c->in[0], attr_float(c, "scale", 1)));
	c->out[0] = put2(g, O_add, y, put_const(g, E_f32, line, bias->floats));
}

// Before set 7 a slope for each channel stood without the axes behind.
void lower_prelu(Call *c)
{
	int rank = in_val(c, 0)->shape.rank;
	Shape s = in_val(c, 1)->shape;
	while (c->opset < 7 && s.rank && s.rank < rank - 1)
		s.dim[s.rank++] = 1;
	c->in[1] = put_reshape(c->g, c->in[1], s);
	lower_book(c);
}

void lower_gelu(Call *c)
{
	in_val(c, 0);
	c->variant = strcmp(attr_string(c, "approximate", "none"), "tanh") ? A_gelu : A_gelu_tanh;
	lower_act(c);
}

static Ref put_act(Graph *g, Ref x, Act act)
{
	return put(g, O_act, 1, &x, &(Attr){.n = 1, .i = {act}});
}

// gelu(x + bias), the bias optional
void lower_fast_gelu(Call *c)
{
	in_val(c, 0);
	if (c->nin > 1 && c->in[1])
		c->in[0] = put_map2(c->g, O_add, c->in[0], c->in[1]);
	lower_act(c);
}

// x sigmoid(alpha x)
void lower_swish(Call *c)
{
	in_val(c, 0);
	Ref x = c->in[0];
	double alpha = attr_float(c, "alpha", c->node->domain[0] ? 1.702 : 1);
	if (alpha == 1)
		c->out[0] = put_act(c->g, x, A_silu);
	else
		c->out[0] =
		    put2(c->g, O_mul, x,
		         put_act(c->g, put2(c->g, O_mul, x, num_like(c->g, x, alpha)), A_sigmoid));
}

void lower_swiglu(Call *c)
{
	in_val(c, 1);
	lower_swish(c);
	c->out[0] = put_map2(c->g, O_mul, c->out[0], c->in[1]);
}

// ---- with a word more -----------------------------------------------------------------

void lower_pow(Call *c)
{
	Elem type = in_val(c, 0)->type, floats = is_float(val(c->g, c->in[0])->type) ? type : E_f64;
	in_val(c, 1);
	Ref y = put_map2(c->g, O_pow, put_cast(c->g, c->in[0], floats),
	                 put_cast(c->g, c->in[1], floats));
	c->out[0] = wrapped(c, put_cast(c->g, y, type));
}

// Operators of floats that exporters also apply to sizes.
void lower_float(Call *c)
{
	in_val(c, 0);
	c->out[0] = put1(c->g, (Op)c->variant, as_float(c->g, c->in[0]));
}

// fmod keeps the dividend's sign, the primitive the divisor's.
void lower_mod(Call *c)
{
	in_val(c, 0), in_val(c, 1);
	use_unsigned(c);
	Graph *g = c->g;
	Ref x = c->in[0], y = c->in[1];
	align2(g, &x, &y);
	if (!attr_int(c, "fmod", 0)) {
		c->out[0] = wrapped(c, put2(g, O_mod, x, y));
		return;
	}
	Ref size = put2(g, O_mod, put1(g, O_abs, x), put1(g, O_abs, y));
	c->out[0] = wrapped(c, put2(g, O_mul, put1(g, O_sign, x), size));
}

// 2^y of whole numbers, bit by bit of y.
static Ref power_of_two(Graph *g, Ref y)
{
	Ref power = put_num(g, E_i64, 1), one = power;
	y = put_cast(g, y, E_i64);
	for (int bit = 0; bit < 6; bit++) {
		int64_t factor = (int64_t)(UINT64_C(1) << (1 << bit));
		Ref is_set = put2(g, O_and, y, put_num(g, E_i64, 1 << bit));
		is_set = put2(g, O_eq, is_set, put_num(g, E_i64, 1 << bit));
		Ref times = put_const(g, E_i64, shape_of(0, NULL), &factor);
		power = put2(g, O_mul, power, put3(g, O_select, is_set, times, one));
	}
	return power;
}

void lower_shift(Call *c)
{
	in_val(c, 0), in_val(c, 1);
	use_unsigned(c);
	Graph *g = c->g;
	Elem type = val(g, c->in[0])->type;
	Ref power = put_cast(g, power_of_two(g, c->in[1]), type);
	bool right = !strcmp(attr_string(c, "direction", ""), "RIGHT");
	c->out[0] = wrapped(c, put_map2(g, right ? O_div : O_mul, c->in[0], power));
}

static void cast_to(Call *c, int to)
{
	if (working_type(to) < 0)
		unsupported_node(c, "cast to float32", "a cast to %s",
		                 type_trouble(c->r->arena, to));
	if (to == DOUBLE && !is_const(c->g, c->in[0]))
		meet_double(c->r, node_where(c->r->arena, c->node));
	Ref x = c->in[0];
	if (is_float(declared_type(to)) && declared_type(operand_type(c, 0)) == E_u64)
		x = put_cast(c->g, x, E_u64);
	c->out[0] =
	    put_typed(c, x, to, attr_int(c, "saturate", 1), attr_string(c, "round_mode", "up"));
	c->onnx = to;
}

void lower_cast(Call *c)
{
	in_val(c, 0);
	cast_to(c, (int)attr_int(c, "to", 0));
}

void lower_cast_like(Call *c)
{
	in_val(c, 0);
	cast_to(c, operand_type(c, 1));
}

void lower_where(Call *c)
{
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	Graph *g = c->g;
	int rank = 0;
	for (int k = 0; k < 3; k++)
		rank = MAX(rank, val(g, c->in[k])->shape.rank);
	Ref x[3];
	for (int k = 0; k < 3; k++)
		x[k] = val(g, c->in[k])->shape.rank ? put_rank(g, c->in[k], rank) : c->in[k];
	c->out[0] = put3(g, O_select, x[0], x[1], x[2]);
}

void lower_clip(Call *c)
{
	in_val(c, 0);
	use_unsigned(c);
	Graph *g = c->g;
	Ref x = c->in[0];
	const AttributeProto *low = find_attr(c, "min"), *high = find_attr(c, "max");
	if (c->nin > 1 && c->in[1])
		x = put_map2(g, O_max, x, c->in[1]);
	else if (low && c->opset < 11)
		x = put2(g, O_max, x, num_like(g, x, (double)low->f));
	if (c->nin > 2 && c->in[2])
		x = put_map2(g, O_min, x, c->in[2]);
	else if (high && c->opset < 11)
		x = put2(g, O_min, x, num_like(g, x, (double)high->f));
	c->out[0] = take_signed(g, x);
}

void lower_isinf(Call *c)
{
	in_val(c, 0);
	Graph *g = c->g;
	Ref x = c->in[0], inf = num_like(g, x, INFINITY);
	bool up = attr_int(c, "detect_positive", 1), down = attr_int(c, "detect_negative", 1);
	if (up && down)
		x = put1(g, O_abs, x);
	else if (down)
		x = put1(g, O_neg, x);
	c->out[0] = up || down ? put2(g, O_eq, x, inf) : put2(g, O_lt, x, x);
}
