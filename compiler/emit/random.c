// random.c: emits rand, a counter-based function of seed, step, site and position.
// Invariant: bit-identical to random_uniform() in eval.c.
#include "gen.h"

static Value mix64(Gen *g, Value z)
{
	static const struct {
		int shift;
		uint64_t times;
	} round[] = {{30, 0xBF58476D1CE4E5B9}, {27, 0x94D049BB133111EB}};
	z = LLVMBuildAdd(g->b, z, number(g, (int64_t)0x9E3779B97F4A7C15), "");
	for (int k = 0; k < COUNT(round); k++) {
		z = LLVMBuildXor(g->b, z, LLVMBuildLShr(g->b, z, number(g, round[k].shift), ""),
		                 "");
		z = LLVMBuildMul(g->b, z, number(g, (int64_t)round[k].times), "");
	}
	return LLVMBuildXor(g->b, z, LLVMBuildLShr(g->b, z, number(g, 31), ""), "");
}

static Value number32(Gen *g, uint32_t n, Value shape)
{
	Value v = LLVMConstInt(g->i32, n, 0);
	return is_vector(shape) ? splat(g, v) : v;
}

static Value mix32(Gen *g, Value h)
{
	static const struct {
		uint32_t shift, times;
	} round[] = {{16, 0x85EBCA6B}, {13, 0xC2B2AE35}};
	for (int k = 0; k < COUNT(round); k++) {
		Value low = LLVMBuildLShr(g->b, h, number32(g, round[k].shift, h), "");
		h = LLVMBuildXor(g->b, h, low, "");
		h = LLVMBuildMul(g->b, h, number32(g, round[k].times, h), "");
	}
	return LLVMBuildXor(g->b, h, LLVMBuildLShr(g->b, h, number32(g, 16, h), ""), "");
}

static Value part32(Gen *g, Value x, int shift, Value shape)
{
	Value by = number(g, shift);
	x = LLVMBuildLShr(g->b, x, is_vector(x) ? splat(g, by) : by, "");
	x = LLVMBuildTrunc(g->b, x, like(g->i32, x), "");
	return is_vector(shape) ? splat(g, x) : x;
}

Value at_rand(Gen *g, const Val *v, const Index *idx)
{
	// The key is mix(mix(mix(seed) + step) + site), once per kernel.
	Level *was = level_go(g, g->floor);
	Value seed = cast_value(g, at(g, v->in[0], NULL), val(g->graph, v->in[0])->type, E_i64);
	Value key = mix64(g, seed);
	Value step = cast_value(g, at(g, v->in[1], NULL), val(g->graph, v->in[1])->type, E_i64);
	key = mix64(g, LLVMBuildAdd(g->b, key, step, ""));
	key = mix64(g, LLVMBuildAdd(g->b, key, number(g, v->attr->i[0]), ""));
	level_go(g, was);
	Index linear = ravel(g->vars, &v->shape, idx);
	Value p = index_i64(g, &linear);
	Value h = LLVMBuildMul(g->b, part32(g, p, 0, p), number32(g, 0x9E3779B1, p), "");
	h = mix32(g, LLVMBuildAdd(g->b, h, part32(g, key, 0, p), ""));
	h = LLVMBuildXor(g->b, h, part32(g, key, 32, p), "");
	if (count_of(&v->shape) > UINT32_MAX) {
		Value high =
		    LLVMBuildMul(g->b, part32(g, p, 32, p), number32(g, 0x85EBCA77, p), "");
		h = LLVMBuildXor(g->b, h, high, "");
	}
	h = LLVMBuildLShr(g->b, mix32(g, h), number32(g, 8, p), "");
	Value u = LLVMBuildUIToFP(g->b, h, like(g->f32, h), "");
	return LLVMBuildFMul(g->b, u, match(g, constant_value(g, E_f32, 0x1p-24, 0), u), "");
}
