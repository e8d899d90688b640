// ml.c: lowers Scaler and others of ai.onnx.ml.
// Scaler, ArrayFeatureExtractor. Takes the node being lowered. Gives its result.
#include "ops.h"

// An attribute of one number, or of one a feature; 0: it is not there.
static Ref numbers_by_feature(Call *c, const char *name, int64_t features)
{
	const AttributeProto *a = find_attr(c, name);
	int64_t n = a ? (int64_t)a->n_floats : 0;
	if (n > 1 && n != features)
		invalid_node(c, "%lld numbers in '%s' for %lld features", (long long)n, name,
		             (long long)features);
	return n ? put_const(c->g, E_f32, shape_of(1, &n), a->floats) : 0;
}

void lower_scaler(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int64_t features = s.rank ? s.dim[s.rank - 1] : 1;
	Ref offset = numbers_by_feature(c, "offset", features),
	    scale = numbers_by_feature(c, "scale", features), x = put_cast(c->g, c->in[0], E_f32);
	x = offset ? put_map2(c->g, O_sub, x, offset) : x;
	c->out[0] = scale ? put_map2(c->g, O_mul, x, scale) : x;
}

// Entries of the last axis, their places in one line; a single line is the first row.
void lower_features(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	if (!s.rank)
		invalid_node(c, "features of a single number");
	Ref at = flat(c->g, wrap_index(c, c->in[1], s.rank - 1));
	Ref x = put_rank(c->g, c->in[0], s.rank == 1 ? 2 : s.rank);
	c->out[0] = put_gather(c->g, x, at, val(c->g, x)->shape.rank - 1);
}
