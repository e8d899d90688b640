// typed.c: rounds values to element types of few bits.
// A graph computes in f32 and i64; a value that a file declares in fewer bits is one of those that
// the few bits can represent. Also BitCast.
#include "ops/ops.h"
#include <math.h>
#include <string.h>

static Ref round_float(const Call *c, Ref x, const Format *f, bool saturate, const char *powers)
{
	AttrArg given[] = {{.name = "bits", .x = f->mantissa},
	                   {.name = "least", .x = 1 - f->bias},
	                   {.name = "most", .x = largest_of(f)},
	                   {.name = "beyond", .x = f->special == F_ieee ? INFINITY : NAN}};
	x = put_cast(c->g, x, E_f32);
	if (f->special == F_power)
		return book_call1(c->g, format(c->r->arena, "power_%s", powers), 1, &x, 0, NULL);
	if (f->special == F_none) // it has no NaN, which becomes 0
		x = put3(c->g, O_select, put1(c->g, O_isnan, x), num_like(c->g, x, 0), x);
	bool full = !saturate && f->special != F_none;
	return book_call1(c->g, full ? "few_bits_open" : "few_bits", 1, &x, full ? 4 : 3, given);
}

Ref put_typed(const Call *c, Ref x, int onnx, bool saturate, const char *powers)
{
	Graph *g = c->g;
	const Format *f = find_format(onnx);
	if (f && is_integral(f)) { // wraps around
		double all = 1 << f->bits, low = f->special == F_signed ? all / 2 : 0;
		x = put2(g, O_add, put_cast(g, x, E_i64), put_num(g, E_i64, low));
		x = put2(g, O_mod, x, put_num(g, E_i64, all));
		return put2(g, O_sub, x, put_num(g, E_i64, low));
	}
	if (f)
		return round_float(c, x, f, saturate, powers);
	Elem to = (Elem)declared_type(onnx), working = (Elem)working_type(onnx);
	Elem from = val(g, x)->type;
	bool loses = (elems[to].bytes < elems[working].bytes && !is_float(to) && from != E_b8) ||
	             (to == E_u64 && is_float(from)); // whose upper half is beyond i64
	return put_cast(g, loses ? put_cast(g, x, to) : x, working);
}

// ---- BitCast --------------------------------------------------------------------------

void lower_bit_cast(Call *c)
{
	const Val *v = val(c->g, constant_operand(c, 0));
	int to = declared_type((int)attr_int(c, "to", 0));
	Elem from = (Elem)declared_type(operand_type(c, 0));
	if (to < 0 || elems[to].bytes != elems[from].bytes ||
	    find_format((int)attr_int(c, "to", 0)))
		invalid_node(c, "from %s to type %lld, which amosc does not compute with",
		             elems[from].name, (long long)attr_int(c, "to", 0));
	// The bits that the file's type gives each number; floats of 64 bits are computed in 32.
	Array stored = array_from(c->r->arena, v->type, &v->shape, v->data);
	void *bytes = take(c->r->arena, (size_t)byte_count((Elem)to, &v->shape) + 1);
	stored.type = from;
	array_to(&stored, bytes);
	Ref x = put_const(c->g, (Elem)to, v->shape, bytes);
	c->onnx = elems[to].onnx;
	c->out[0] = put_cast(c->g, x, (Elem)working_type(c->onnx));
}
