// panels.c: packs once what the products of a loop read in every iteration.
// A weight that each iteration multiplies by a few rows would be packed anew every time, at the
// cost of the product itself. Before the loop it is laid out in panels of the register tile, which
// the products read in place. Invariant: no sum changes its order.
#include "passes.h"

// Returns how many columns a panel of x has, the second operand of dot v; 0: it is not read in
// place.
static int64_t panel_width(const Graph *g, const Val *v, const Machine *machine)
{
	enum { FEW = 10 }; // strips that meet a panel which is read in place
	const Val *x = val(g, v->in[1]);
	int bytes = elems[x->type].bytes;
	int64_t rows = count_of(&v->shape) / MAX(1, last_dim(&v->shape));
	int64_t width = machine->vectors * machine->lanes * 4 / bytes;
	bool fits = x->shape.rank == 2 && x->type == v->type && (bytes == 4 || bytes == 8) &&
	            rows <= FEW * machine->rows && x->shape.dim[1] % width == 0 &&
	            x->shape.dim[0] * width * bytes <= machine->l2 / 4;
	return fits ? width : 0;
}

// Returns how many columns a panel of operand `slot` of the body has, which products alone read; 0:
// others do.
static int64_t panel_of_slot(const Graph *body, int slot, const Machine *machine)
{
	int64_t width = 0;
	for (Ref r = 1; r < (Ref)body->nval; r++) {
		const Val *v = val(body, r);
		for (int k = 0; k < v->nin; k++) {
			const Val *x = val(body, v->in[k]);
			if (x->op != O_slot || x->attr->i[0] != slot)
				continue;
			width = v->op == O_dot && k == 1 ? panel_width(body, v, machine) : 0;
			if (!width)
				return 0;
		}
	}
	for (int i = 0; i < body->outs.count; i++) {
		const Val *x = val(body, body->outs.at[i].val);
		if (x->op == O_slot && x->attr->i[0] == slot)
			return 0;
	}
	return width;
}

static const int64_t turn[] = {1, 0, 2}; // panels and rows

// [rows, columns] as [panels, rows, width].
static Ref put_panels(Graph *to, Ref x, int64_t width)
{
	const int64_t *dim = val(to, x)->shape.dim;
	int64_t split[] = {dim[0], dim[1] / width, width};
	return put_permute(to, put_reshape(to, x, shape_of(3, split)), turn);
}

typedef struct Panels {
	const Machine *machine;
	int64_t *width; // by slot of a body; 0: as it is
} Panels;

static Ref put_in_body(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Panels *p = context;
	if (v->op != O_slot || !p->width[v->attr->i[0]])
		return put_as(to, v, in);
	return put_reshape(to, put_permute(to, put_slot(to, (int)v->attr->i[0]), turn), v->shape);
}

static Ref put_loop_of_panels(Panels *p, Graph *to, const Val *v, const Ref *in)
{
	enum { TRIPS = 4 }; // that are worth a copy
	LoopInfo l = loop_of(v);
	int slots = l.body->slots.count, fixed = l.carried + l.scanned;
	Ref *operand = take_copy(to->arena, in, sizeof *in * (size_t)v->nin);
	p->width = NEWS(to->arena, int64_t, slots + 1);
	bool any = false;
	for (int k = fixed; k < slots && l.trips >= TRIPS; k++) {
		p->width[k] = panel_of_slot(l.body, k, p->machine);
		any |= p->width[k] > 0;
	}
	if (!any)
		return put_as(to, v, in);
	Graph *body = graph_like(to->arena, l.body);
	for (int k = fixed; k < slots; k++)
		if (p->width[k]) {
			operand[1 + k] = put_panels(to, in[1 + k], p->width[k]);
			body->slots.at[k].shape = val(to, operand[1 + k])->shape;
		}
	copy_graph(body, l.body, NULL, put_in_body, p);
	l.body = body;
	return put_loop(to, &l, operand);
}

static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	return v->op == O_loop ? put_loop_of_panels(context, to, v, in) : put_as(to, v, in);
}

Graph *panels_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Graph *to = graph_like(arena, from);
	Panels p = {.machine = machine};
	copy_graph(to, from, NULL, put_value, &p);
	return to;
}
