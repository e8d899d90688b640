// matrices.c: decides how optimizers other than Amos treat a parameter: its matrices, its decay.
// Input: an Eta with its Structure, of a graph or of a report. Invariant: role and structure
// decide, never a name, and never a size on its own.
#include "passes.h"
#include <math.h>
#include <string.h>

const char *decay_group(const char *role)
{
	return !strcmp(role, "kernel")      ? "decay"
	       : !strcmp(role, "embedding") ? "table"
	                                    : "no_decay";
}

EtaPieces eta_pieces(Arena *arena, const Shape *shape, const Eta *eta, int *axis)
{
	const Structure *of = eta->structure;
	EtaPieces list = {0};
	bool used = of->pieces.count && (!eta->nparts || eta->axis == of->axis);
	*axis = eta->nparts ? eta->axis : of->axis;
	if (!eta->nparts && !used)
		return list;
	int part = 0, piece = 0;
	int64_t end = eta->nparts ? eta->counts[0] : shape->dim[*axis];
	for (int64_t from = 0, to; from < shape->dim[*axis]; from = to) {
		const ParamPiece *use = used ? &of->pieces.at[piece] : NULL;
		to = use ? MIN(end, use->to) : end;
		bool all = use && use->from == from && use->to == to;
		PUSH(arena, list,
		     ((EtaPiece){{from, to, use ? use->use : of->use, all ? use->heads : 0},
		                 eta->nparts ? &eta->parts[part] : eta}));
		if (eta->nparts && to == end && part + 1 < eta->nparts)
			end += eta->counts[++part];
		piece += use && to == use->to;
	}
	return list;
}

Stack stack_of(const Shape *shape, const Eta *eta)
{
	const Structure *of = eta->structure;
	Stack s = {.count = of->groups, .columns = 1};
	for (int a = 0; a < shape->rank; a++) {
		s.columns *= eta->fan_in[a] ? shape->dim[a] : 1;
		s.split |= eta->fan_in[a] && of->group_axes[a];
	}
	s.columns = s.split ? s.columns / s.count : s.columns;
	s.rows = count_of(shape) / MAX(s.count * s.columns, 1);
	return s;
}

// Returns why a parameter is not trained as matrices; NULL if it is.
static const char *no_matrix(const Shape *shape, const Eta *eta)
{
	const Structure *of = eta->structure;
	Stack s = stack_of(shape, eta);
	bool in = false, out = false;
	for (int a = 0; a < shape->rank; a++) {
		in |= eta->fan_in[a];
		out |= eta->fan_out[a];
	}
	if (!strcmp(eta->role, "embedding"))
		return of->readout ? "table, tied to the readout" : "table";
	if (strcmp(eta->role, "kernel") != 0)
		return eta->role;
	if (of->readout)
		return "readout";
	if (of->input)
		return "reads an input";
	if (!in || !out)
		return "a kernel whose axes cannot be followed";
	if (s.split)
		return "groups divide its inputs";
	if (s.rows < 2 || s.columns < 2)
		return s.count > 1 ? "a stack of vectors" : "a vector";
	return NULL;
}

// True if two pieces are heads of one matrix, which need not be adjacent.
static bool are_joined(const ParamPiece *one, const ParamPiece *other)
{
	return one->heads && other->heads && one->use && other->use &&
	       !strcmp(one->use, other->use);
}

// Returns the matrix of piece i and of those after it that are joined to it.
static Matrix matrix_at(Arena *arena, const Shape *shape, const EtaPieces *pieces, int i, int axis,
                        Stack s)
{
	const ParamPiece *first = &pieces->at[i].piece;
	Matrix m = {.use = first->use, .count = s.count, .columns = s.columns};
	m.range = NEWS(arena, struct MatrixRange, pieces->count);
	double squares = 0;
	int64_t size = 0;
	for (int k = i; k < pieces->count; k++) {
		const ParamPiece *piece = &pieces->at[k].piece;
		double eta = pieces->at[k].own->eta.value;
		if (k > i && !are_joined(first, piece))
			continue;
		m.range[m.nrange++] = (struct MatrixRange){piece->from, piece->to};
		squares += eta * eta * (double)(piece->to - piece->from);
		size += piece->to - piece->from;
	}
	m.rows = s.rows * size / shape->dim[axis];
	m.eta = sqrt(squares / (double)size);
	return m;
}

// Returns the matrix that is all of a kernel.
static Matrix one_matrix(Arena *arena, const Shape *shape, const Eta *eta, int axis)
{
	Stack s = stack_of(shape, eta);
	Matrix m = {.use = eta->structure->use,
	            .count = s.count,
	            .rows = s.rows,
	            .columns = s.columns,
	            .nrange = 1,
	            .eta = eta->eta.value};
	double squares = 0;
	for (int i = 0; i < eta->nparts; i++)
		squares += eta->parts[i].eta.value * eta->parts[i].eta.value *
		           (double)eta->counts[i] / (double)shape->dim[eta->axis];
	m.eta = eta->nparts ? sqrt(squares) : m.eta;
	m.range = NEW(arena, struct MatrixRange);
	m.range[0] = (struct MatrixRange){0, shape->dim[axis]};
	return m;
}

// Finds the axes in the order group, outputs, inputs.
static void find_order(const Shape *shape, const Eta *eta, int *order)
{
	int n = 0;
	for (int part = 0; part < 3; part++)
		for (int a = 0; a < shape->rank; a++)
			if (part == (eta->fan_in[a] ? 2 : eta->structure->group_axes[a] ? 0 : 1))
				order[n++] = a;
}

const Matrices *matrices_of(Arena *arena, const Shape *shape, const Eta *eta)
{
	Matrices *all = NEW(arena, Matrices);
	all->why = no_matrix(shape, eta);
	if (all->why)
		return all;
	all->why = "hidden";
	find_order(shape, eta, all->order);
	EtaPieces pieces = eta_pieces(arena, shape, eta, &all->axis);
	int axis = all->axis;
	bool apart = pieces.count && !eta->fan_in[axis] && !eta->structure->group_axes[axis];
	all->at = NEWS(arena, Matrix, pieces.count + 1);
	for (int i = 0; i < pieces.count && apart; i++) {
		bool first = true;
		for (int k = 0; k < i; k++)
			first &= !are_joined(&pieces.at[i].piece, &pieces.at[k].piece);
		if (first)
			all->at[all->n++] =
			    matrix_at(arena, shape, &pieces, i, axis, stack_of(shape, eta));
	}
	if (all->n)
		return all;
	for (all->axis = 0; !eta->fan_out[all->axis]; all->axis++)
		;
	all->at[all->n++] = one_matrix(arena, shape, eta, all->axis);
	return all;
}
