// panels.c: packs once what the products of a loop read in every iteration.
// A weight that each iteration multiplies by a few rows would be packed anew every time, at the
// cost of the product itself. Before the loop it is laid out in panels of the register tile, which
// the products read in place; of bf16, as pairs along k, or as f32 if the machine has no products
// of pairs. Invariant: no sum changes its order.
#include "tiling.h"

// Returns how many elements along k one instruction of product v multiplies.
static int64_t fold_of(const Graph *g, const Val *v, const Machine *machine)
{
	int64_t k = last_dim(&val(g, v->in[0])->shape);
	bool pairs = machine->pairs && val(g, v->in[0])->type == E_bf16;
	return pairs && k % 2 == 0 && k >= 2 * machine->pairs ? 2 : 1;
}

// True if product v multiplies its operand x, of 16 bits, as f32.
static bool is_widened(const Val *v, const Val *x, const Machine *machine)
{
	return !machine->pairs && is_half(x->type) && v->type == E_f32;
}

// Returns how many columns a panel of x has, the second operand of dot v; 0: it is not read in
// place.
static int64_t panel_width(const Graph *g, const Val *v, const Machine *machine)
{
	enum { FEW = 10 }; // strips that meet a panel which is read in place
	const Val *x = val(g, v->in[1]);
	int64_t fold = fold_of(g, v, machine);
	bool widened = is_widened(v, x, machine);
	int64_t bytes = elems[widened ? E_f32 : x->type].bytes * fold;
	int64_t rows = count_of(&v->shape) / MAX(1, last_dim(&v->shape));
	int matrix = fold > 1 && machine->pairs > 1 ? machine->pairs : 0;
	int64_t columns = last_dim(&v->shape);
	int64_t width = tile_vectors(machine, matrix, rows, columns) * machine->lanes * 4 / bytes;
	bool folded = fold > 1 ? x->type == E_bf16 : x->type == v->type || widened;
	bool fits = x->shape.rank == 2 && folded && (bytes == 4 || bytes == 8) &&
	            rows <= FEW * machine->rows &&
	            x->shape.dim[0] / fold * width * bytes <= machine->l2 / 4;
	return fits ? width : 0;
}

typedef struct Panels {
	const Machine *machine;
	int64_t *width, *fold; // by slot of a body; width 0: as it is
	Elem *type;            // of the panels
} Panels;

// Sets how many columns a panel of operand `slot` of the body has, which products alone read; 0:
// others do. True if it has panels.
static bool choose_panel(Panels *p, const Graph *body, int slot)
{
	int64_t width = 0;
	for (Ref r = 1; r < (Ref)body->nval; r++) {
		const Val *v = val(body, r);
		for (int k = 0; k < v->nin; k++) {
			const Val *x = val(body, v->in[k]);
			if (x->op != O_slot || x->attr->i[0] != slot)
				continue;
			width = v->op == O_dot && k == 1 ? panel_width(body, v, p->machine) : 0;
			if (!width)
				return false;
			p->fold[slot] = fold_of(body, v, p->machine);
			p->type[slot] = is_widened(v, x, p->machine) ? E_f32 : x->type;
		}
	}
	for (int i = 0; i < body->outs.count; i++) {
		const Val *x = val(body, body->outs.at[i].val);
		if (x->op == O_slot && x->attr->i[0] == slot)
			return false;
	}
	p->width[slot] = width;
	return width > 0;
}

// Returns the lengths into which the axes of [rows, columns] are split: rows into what registers
// hold, steps, and what one instruction multiplies; columns into panels, vectors, and lanes.
static Shape split_shape(const Panels *p, const Shape *x, int slot)
{
	int64_t fold = p->fold[slot], width = p->width[slot], rows = x->dim[0] / fold;
	bool matrix = fold > 1 && p->machine->pairs > 1;
	int64_t steps = matrix ? p->machine->pairs : rows,
	        lanes = matrix ? p->machine->lanes : width;
	int64_t blocks = ceil_div(rows, steps), panels = ceil_div(x->dim[1], width);
	return shape_of(6, (int64_t[]){blocks, steps, fold, panels, width / lanes, lanes});
}

// Returns the shape [rows, columns] of all panels, which zeros complete.
static Shape full_shape(const Shape *split)
{
	const int64_t *dim = split->dim;
	return shape_of(2, (int64_t[]){dim[0] * dim[1] * dim[2], dim[3] * dim[4] * dim[5]});
}

// [rows, columns] as panels, each in the order in which the tile loads it.
static Ref put_panels(const Panels *p, Graph *to, Ref x, int slot)
{
	static const int64_t turn[] = {3, 0, 4, 1, 5, 2};
	Shape own = val(to, x)->shape, split = split_shape(p, &own, slot),
	      full = full_shape(&split);
	int64_t before[RANK] = {0}, after[] = {full.dim[0] - own.dim[0], full.dim[1] - own.dim[1]};
	return put_permute(to, put_reshape(to, put_pad(to, x, before, after, 0), split), turn);
}

// The reverse: operand `slot` of the body, in panels, as a matrix of this shape.
static Ref put_matrix(const Panels *p, Graph *to, const Shape *shape, int slot)
{
	static const int64_t back[] = {1, 3, 5, 0, 2, 4};
	int64_t start[RANK] = {0};
	Shape split = split_shape(p, shape, slot);
	Ref x = put_permute(to, put_slot(to, slot), back);
	return put_slice(to, put_reshape(to, x, full_shape(&split)), start, shape->dim, NULL);
}

static Ref put_in_body(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Panels *p = context;
	if (v->op == O_dot && val(to, in[0])->type != val(to, in[1])->type)
		return put_as(to, v, (Ref[]){put_cast(to, in[0], E_f32), in[1]});
	int slot = v->op == O_slot ? (int)v->attr->i[0] : 0;
	if (v->op != O_slot || !p->width[slot])
		return put_as(to, v, in);
	return put_matrix(p, to, &v->shape, slot);
}

static Ref put_loop_of_panels(Panels *p, Graph *to, const Val *v, const Ref *in)
{
	enum { TRIPS = 4 }; // that are worth a copy
	LoopInfo l = loop_of(v);
	int slots = l.body->slots.count, fixed = l.carried + l.scanned;
	Ref *operand = take_copy(to->arena, in, sizeof *in * (size_t)v->nin);
	p->width = NEWS(to->arena, int64_t, slots + 1);
	p->fold = NEWS(to->arena, int64_t, slots + 1);
	p->type = NEWS(to->arena, Elem, slots + 1);
	bool any = false;
	for (int k = fixed; k < slots && l.trips >= TRIPS; k++)
		any |= choose_panel(p, l.body, k);
	if (!any)
		return put_as(to, v, in);
	Graph *body = graph_like(to->arena, l.body);
	for (int k = fixed; k < slots; k++)
		if (p->width[k]) {
			Ref x = put_cast(to, in[1 + k], p->type[k]);
			operand[1 + k] = put_panels(p, to, x, k);
			body->slots.at[k].shape = val(to, operand[1 + k])->shape;
			body->slots.at[k].type = p->type[k];
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
