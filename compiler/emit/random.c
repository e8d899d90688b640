// random.c: emits rand, a counter-based function of seed, step, site and position.
// Invariant: bit-identical to random_uniform() in eval.c.
#include "gen.h"

// Shifts, exclusive ors and products by odd constants: every bit of h changes about half of all.
static Value mix(Gen *g, Value h, const int shift[3], const uint64_t by[2])
{
	for (int k = 0; k < 3; k++) {
		Value low = LLVMBuildLShr(g->b, h, int_like(h, shift[k]), "");
		h = LLVMBuildXor(g->b, h, low, "");
		if (k < 2)
			h = LLVMBuildMul(g->b, h, int_like(h, (int64_t)by[k]), "");
	}
	return h;
}

static Value mix64(Gen *g, Value z)
{
	static const int shift[] = {30, 27, 31};
	static const uint64_t by[] = {0xBF58476D1CE4E5B9, 0x94D049BB133111EB};
	z = LLVMBuildAdd(g->b, z, number(g, (int64_t)0x9E3779B97F4A7C15), "");
	return mix(g, z, shift, by);
}

static Value mix32(Gen *g, Value h)
{
	static const int shift[] = {16, 13, 16};
	static const uint64_t by[] = {0x85EBCA6B, 0xC2B2AE35};
	return mix(g, h, shift, by);
}

// Returns 32 bits of x, for as many lanes as `shape` has.
static Value part32(Gen *g, Value x, int shift, Value shape)
{
	x = LLVMBuildLShr(g->b, x, int_like(x, shift), "");
	return match(g, LLVMBuildTrunc(g->b, x, like(g->i32, x), ""), shape);
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
	Value h = part32(g, p, 0, p);
	h = LLVMBuildMul(g->b, h, int_like(h, 0x9E3779B1), "");
	h = mix32(g, LLVMBuildAdd(g->b, h, part32(g, key, 0, p), ""));
	h = LLVMBuildXor(g->b, h, part32(g, key, 32, p), "");
	if (count_of(&v->shape) > UINT32_MAX) {
		Value high = LLVMBuildMul(g->b, part32(g, p, 32, p), int_like(h, 0x85EBCA77), "");
		h = LLVMBuildXor(g->b, h, high, "");
	}
	h = mix32(g, h);
	h = LLVMBuildLShr(g->b, h, int_like(h, 8), "");
	Value u = LLVMBuildUIToFP(g->b, h, like(g->f32, h), "");
	return LLVMBuildFMul(g->b, u, real_like(u, 0x1p-24), "");
}
