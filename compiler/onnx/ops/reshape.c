// reshape.c: lowers operators that move or repeat elements to sizes that inputs give.
// Reshape, Flatten and Expand. The sizes may depend on the data.
#include "ops.h"
#include <string.h>

void lower_identity(Call *c)
{
	if (c->nin < 1 || c->arg[0].absent)
		invalid_node(c, "input 0 is missing");
	c->value[0] = c->arg[0];
	if (c->arg[0].weight && !c->space->depth) // in a branch, a loop or a function: a copy
		c->value[0] = alias_weight(c->r, c->arg[0].weight, c->node->output[0]);
}

void lower_reshape(Call *c)
{
	const Val *x = in_val(c, 0);
	int n = 0, open = 0;
	BoundedSize *want = extents_of(c, 1, "shape", &n);
	check_rank(c, n);
	for (int a = 0; a < n; a++) {
		open += want[a].most < 0;
		if (want[a].most < -1 || open > 1)
			invalid_node(c,
			             "the new shape has %lld along axis %d; at most one -1 is open",
			             (long long)want[a].most, a);
		bool copy = !want[a].most && !want[a].count && !attr_int(c, "allowzero", 0);
		if (copy && a >= x->shape.rank)
			invalid_node(c, "dimension %d is to be copied from an input of rank %d", a,
			             x->shape.rank);
		if (copy)
			want[a] = size_along(c->g, c->in[0], a);
	}
	c->out[0] = reshape_to(c, c->in[0], n, want);
}

void lower_flatten(Call *c)
{
	const Val *x = in_val(c, 0);
	int64_t axis = attr_int(c, "axis", 1);
	BoundedSize to[2] = {{1, 0}, {1, 0}};
	if (axis != x->shape.rank)
		axis = axis_of(c, axis, x->shape.rank);
	for (int a = 0; a < x->shape.rank; a++)
		to[a >= axis] = extent_product(c->g, to[a >= axis], size_along(c->g, c->in[0], a));
	c->out[0] = reshape_to(c, c->in[0], 2, to);
}

void lower_expand(Call *c)
{
	in_val(c, 0);
	int n = 0;
	const BoundedSize *want = extents_of(c, 1, "", &n);
	int own = val(c->g, c->in[0])->shape.rank, rank = MAX(n, own);
	if (!want)
		invalid_node(c, "the shape is missing");
	check_rank(c, rank);
	Ref x = put_rank(c->g, c->in[0], rank);
	Shape out = val(c->g, x)->shape;
	Lengths l = *lengths_of(c->g, x);
	for (int a = 0; a < n; a++) {
		int64_t most = want[a].most, at = rank - n + a, *d = &out.dim[at];
		bool exact = !want[a].count && !l.of[at];
		if (exact && most != 1 && *d != 1 && most != *d)
			invalid_node(
			    c, "%s cannot be broadcast to %lld along axis %lld",
			    shape_text(c->r->arena, val(c->g, x)->type, &val(c->g, x)->shape),
			    (long long)most, (long long)at);
		if (*d != 1 || l.of[at] || (most == 1 && !want[a].count))
			continue;
		*d = most;
		l.of[at] = want[a].count;
	}
	c->out[0] = put_lengths(c->g, put_expand(c->g, x, out), &l);
}
