// roles.c: which initializers are parameters, and under which names.
// Takes the weights of a file. Gives, for each use of one, a slot or a constant. Keeps: every
// decision is noted.
#include "lower.h"
#include <string.h>

static const void *weight_data(Reader *r, Weight *w)
{
	if (!w->data)
		w->data = tensor_data(r->file, r->arena, r->model->path, w->proto);
	return w->data;
}

Ref weight_constant(Reader *r, Weight *w)
{
	if (!w->ref)
		w->ref = put_const(r->g, w->type, w->shape, weight_data(r, w));
	return w->ref;
}

Value alias_weight(Reader *r, Weight *w, const char *name)
{
	(void)r, (void)name;
	return (Value){.weight = w};
}

Ref missing_bias(const Call *c, int64_t n)
{
	(void)c, (void)n;
	return 0;
}

bool says_training(const Call *c)
{
	(void)c;
	return false;
}

void read_roles(Reader *r)
{
	for (int i = 0; i < r->weights.count; i++) {
		Weight *w = r->weights.at[i];
		w->constant = w->type != E_f32 || !w->shape.rank;
	}
}

Ref use_weight(Reader *r, Weight *w, const Call *c, int k)
{
	(void)c, (void)k;
	if (w->type != E_f32 || w->constant)
		return weight_constant(r, w);
	if (w->slot < 0)
		w->slot = add_slot(r->g, (Slot){.name = w->name,
		                                .file = w->name,
		                                .kind = S_param,
		                                .type = E_f32,
		                                .shape = w->shape,
		                                .init = weight_data(r, w)});
	return put_slot(r->g, w->slot);
}
