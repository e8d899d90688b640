// signature.c: finds kernels with equal code.
// Output: bytes to compare, and the locations whose addresses the code gets in buf. Invariant:
// equal signatures, equal code.
#include "gen.h"

// ---- signatures -----------------------------------------------------------------------

static void sign_bytes(Signature *s, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		PUSH(s->arena, s->bytes, ((const unsigned char *)bytes)[i]);
}

static void sign(Signature *s, int64_t x)
{
	sign_bytes(s, &x, sizeof x);
}

static int location_entry(Signature *s, Location p)
{
	int64_t key[2] = {p.block, p.offset};
	uint64_t *cell = table_cell(s->entry, key, sizeof key);
	if (!*cell) {
		PUSH(s->arena, s->place, p);
		*cell = (uint64_t)s->place.count;
	}
	return (int)*cell - 1;
}

Location value_location(const Plan *plan, Ref r)
{
	const Val *v = val(plan->graph, r);
	if (v->op == O_slot)
		return plan->slot[v->attr->i[0]];
	if (v->op == O_const)
		return (Location){B_const, r};
	return plan->place[r];
}

static void sign_value(Signature *s, const int *writer, int kern, Ref r)
{
	uint64_t *cell = table_cell(s->number, &r, sizeof r);
	if (*cell) {
		sign(s, -(int64_t)*cell);
		return;
	}
	*cell = (uint64_t)++s->count;
	const Val *v = val(s->plan->graph, r);
	bool inside = is_inside(s->plan, writer, kern, r);
	sign(s, inside ? v->op : OPS);
	sign(s, v->type);
	sign(s, v->shape.rank);
	sign_bytes(s, v->shape.dim, sizeof *v->shape.dim * (size_t)v->shape.rank);
	sign(s, v->pitch);
	if (!inside) {
		sign(s, location_entry(s, value_location(s->plan, r)));
		return;
	}
	PUSH(s->arena, s->inside, r);
	sign(s, v->nin);
	sign(s, v->attr->n);
	sign_bytes(s, v->attr->i, sizeof *v->attr->i * (size_t)v->attr->n);
	sign_bytes(s, &v->attr->x, sizeof v->attr->x);
	if (v->op == O_const)
		sign_bytes(s, v->data, (size_t)elems[v->type].bytes);
	for (int k = 0; k < v->nin; k++)
		sign_value(s, writer, kern, v->in[k]);
}

static void sign_steps(Signature *s, const ValSteps *steps)
{
	sign(s, steps->count);
	for (int i = 0; i < steps->count; i++) {
		sign(s, (int64_t)*table_cell(s->number, &steps->at[i].val, sizeof(Ref)));
		sign(s, steps->at[i].depth);
		sign(s, steps->at[i].chains);
	}
}

Signature *signature_new(Arena *arena, const Plan *plan, const int *writer, int kern)
{
	Signature *s = NEW(arena, Signature);
	const Kern *k = &plan->kerns.at[kern];
	*s = (Signature){.arena = arena, .plan = plan, .kern = k};
	s->entry = table_new(arena);
	s->number = table_new(arena);
	sign(s, k->kind);
	sign(s, k->reduce);
	sign(s, k->space.rank);
	sign_bytes(s, k->space.dim, sizeof *k->space.dim * (size_t)k->space.rank);
	for (int o = 0; o < k->nout; o++) {
		sign(s, k->out[o] == k->root);
		sign_value(s, writer, kern, k->out[o]);
		sign(s, location_entry(s, k->to[o]));
	}
#define S(kind, field, meaning) sign(s, k->sched->field);
#include "sched.def"
#undef S
	sign_steps(s, &k->sched->reduce);
	sign_steps(s, &k->sched->keep);
	sign_steps(s, &k->sched->ahead);
	sign_steps(s, &k->sched->past);
	if (k->sched->work)
		s->work = location_entry(s, k->work);
	return s;
}

Signature *signature_bundle(Arena *arena, const Plan *plan, const int *writer, int kern, int count)
{
	Signature *s = NEW(arena, Signature);
	*s = (Signature){.arena = arena, .plan = plan, .kern = &plan->kerns.at[kern]};
	const Signature **each = NEWS(arena, const Signature *, count);
	int *part = NEWS(arena, int, count);
	Table *known = table_new(arena); // signature -> 1 + part
	for (int i = 0; i < count; i++) {
		each[i] = signature_new(arena, plan, writer, kern + i);
		const unsigned char *bytes = each[i]->bytes.at;
		uint64_t *cell = table_cell(known, bytes, (size_t)each[i]->bytes.count);
		if (!*cell) {
			PUSH(arena, s->part, ((BundlePart){each[i], 0}));
			*cell = (uint64_t)s->part.count;
		}
		part[i] = (int)*cell - 1;
		s->part.at[part[i]].count++;
	}
	for (int p = 0; p < s->part.count; p++) {
		const Signature *own = s->part.at[p].each;
		sign(s, s->part.at[p].count);
		sign(s, own->bytes.count);
		sign_bytes(s, own->bytes.at, (size_t)own->bytes.count);
		for (int i = 0; i < count; i++)
			for (int k = 0; k < each[i]->place.count && part[i] == p; k++)
				PUSH(arena, s->place, each[i]->place.at[k]);
	}
	return s;
}

// ---- addresses ------------------------------------------------------------------------
// Threads that compile other kernels share the arena of the signatures, so nothing is added here.

static int known_entry(const Signature *s, Location p)
{
	int64_t key[2] = {p.block, p.offset};
	const uint64_t *cell = table_find(s->entry, key, sizeof key);
	if (!cell)
		bug("a kernel's code reads what its signature does not name");
	return (int)*cell - 1;
}

static Value buffer_address(Gen *g, int entry)
{
	uint64_t *cell = table_cell(g->address, &entry, sizeof entry);
	if (*cell)
		return (Value)(uintptr_t)*cell;
	Level *was = level_go(g, g->ground);
	Value i = number(g, entry);
	Value address = LLVMBuildLoad2(g->b, g->ops->pointer(g),
	                               LLVMBuildGEP2(g->b, g->ptr, g->buf, &i, 1, ""), "");
	LLVMSetVolatile(address, g->part && g->ops->hoists);
	level_go(g, was);
	*cell = (uint64_t)(uintptr_t)address;
	return address;
}

Value location_address(Gen *g, Ref r)
{
	Location p = value_location(g->plan, r);
	return buffer_address(g, known_entry(g->signature, p));
}

Value out_address(Gen *g, int k)
{
	return buffer_address(g, known_entry(g->signature, g->kern->to[k]));
}

Value work_memory(Gen *g, int64_t offset)
{
	Value i = number(g, offset);
	return LLVMBuildGEP2(g->b, g->i8, buffer_address(g, g->signature->work), &i, 1, "");
}
