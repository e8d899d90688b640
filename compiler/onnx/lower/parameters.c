// parameters.c: separates parameters from constants.
// Takes the weights of a file and the node that reads one. Gives a slot or a constant for each
// use: several slots for one initializer where the exporter merged parameters that were equal, one
// slot for two where it copied a tied one. Keeps: every such decision is in Model.notes.
#include "ops/ops.h"
#include <stdlib.h>
#include <string.h>

static const void *weight_data(Reader *r, Weight *w)
{
	if (w->data)
		return w->data;
	r->help = "supply all files of the model, or export it again";
	w->data = tensor_data(r->file, r->arena, r->model->path, w->proto, w->type);
	r->help = NULL;
	return w->data;
}

double weight_number(Reader *r, Weight *w, int64_t i)
{
	return const_at(&(Val){.type = w->type, .data = weight_data(r, w)}, i);
}

Ref weight_constant(Reader *r, Weight *w)
{
	if (r->nest)
		return put_const(r->g, w->type, w->shape, weight_data(r, w));
	if (!w->ref)
		w->ref = put_const(r->g, w->type, w->shape, weight_data(r, w));
	return w->ref;
}

// ---- facts about a weight -------------------------------------------------------------

int wide_axes(const Shape *s)
{
	int n = 0;
	for (int a = 0; a < s->rank; a++)
		n += s->dim[a] > 1;
	return n;
}

bool one_value(Reader *r, Weight *w)
{
	int64_t n = count_of(&w->shape);
	for (int64_t i = 1; i < n; i++)
		if (weight_number(r, w, i) != weight_number(r, w, 0))
			return false;
	return true;
}

// Number i of such a copy of a weight.
static double copied_number(Reader *r, Weight *w, Copy copy, int64_t i)
{
	const int64_t *dim = w->shape.dim;
	double x =
	    weight_number(r, w, copy == COPY_TRANSPOSED ? i % dim[0] * dim[1] + i / dim[0] : i);
	if (copy != COPY_COMPLEMENT)
		return x;
	return w->type == E_f32 ? (double)(float)(1 - x) : 1 - x;
}

static Shape copied_shape(const Weight *w, Copy copy)
{
	Shape s = w->shape;
	if (copy == COPY_TRANSPOSED)
		s = shape_of(2, (int64_t[]){s.dim[1], s.dim[0]});
	return s;
}

// Is weight `a` such a copy of `b`?
static bool is_copy(Reader *r, Weight *a, Weight *b, Copy copy)
{
	Shape shape = copied_shape(b, copy);
	if (a->type != b->type || (copy == COPY_TRANSPOSED && b->shape.rank != 2) ||
	    !same_shape(&a->shape, &shape))
		return false;
	for (int64_t i = 0; i < count_of(&shape); i++)
		if (weight_number(r, a, i) != copied_number(r, b, copy, i))
			return false;
	return true;
}

static bool is_same(Reader *r, Weight *a, Weight *b)
{
	return a->type == b->type && same_shape(&a->shape, &b->shape) &&
	       !memcmp(weight_data(r, a), weight_data(r, b),
	               (size_t)byte_count(a->type, &a->shape));
}

// ---- weights that are copies of others ------------------------------------------------

// What another weight must begin with to be a copy of this one: shape and a few numbers.
typedef struct Print {
	int64_t copy, rank, dim[RANK];
	float number[16];
} Print;

typedef struct Twin {
	Weight *weight;
	struct Twin *next; // with the same print; the first one stays the first
} Twin;

// Of a weight that may be such a copy, or (`from` is `copy`) of one that has them.
static Print print_of(Reader *r, Weight *w, Copy copy, Copy from)
{
	Shape shape = copied_shape(w, from);
	Print print = {.copy = copy, .rank = shape.rank};
	int64_t n = count_of(&shape);
	memcpy(print.dim, shape.dim, sizeof *print.dim * (size_t)shape.rank);
	for (int k = 0; k < COUNT(print.number) && n; k++)
		print.number[k] =
		    (float)copied_number(r, w, from, k * (n - 1) / (COUNT(print.number) - 1)) +
		    0.0f; // -0 is 0
	return print;
}

static void list_twin(Reader *r, Weight *w, Copy copy)
{
	Print print = print_of(r, w, copy, copy);
	uint64_t *cell = table_cell(r->twins, &print, sizeof print);
	Twin *twin = NEW(r->arena, Twin), *first = (Twin *)(uintptr_t)*cell;
	*twin = (Twin){w, first ? first->next : NULL};
	if (first)
		first->next = twin;
	else
		*cell = (uint64_t)(uintptr_t)twin;
}

// The weight with a slot that this one is such a copy of; NULL: none.
static Weight *original_of(Reader *r, Weight *w, Copy copy)
{
	Print print = print_of(r, w, copy, COPY_SAME);
	const uint64_t *cell = table_find(r->twins, &print, sizeof print);
	for (Twin *t = cell ? (Twin *)(uintptr_t)*cell : NULL; t; t = t->next)
		if (t->weight != w && is_copy(r, w, t->weight, copy))
			return t->weight;
	return NULL;
}

// The first slot of an initializer is the one that copies of it are tied to.
static void take_slot(Reader *r, Weight *w, int slot)
{
	if (w->slot >= 0)
		return;
	w->slot = slot;
	if (w->alias || r->options->separate)
		return;
	if (wide_axes(&w->shape) == 1 && !one_value(r, w))
		list_twin(r, w, COPY_COMPLEMENT);
	if (w->table && w->shape.rank == 2)
		list_twin(r, w, COPY_TRANSPOSED);
}

static bool is_training_node(const NodeProto *node)
{
	if (!strcmp(node->op_type, "BatchNormalization"))
		return node->n_output > 1;
	return !strcmp(node->op_type, "Dropout") && node->n_input > 2;
}

// Was the file exported in training mode? Then what is shared was shared by its author.
static bool is_training_file(const Reader *r)
{
	for (size_t i = 0; i < r->proto->graph->n_node; i++)
		if (is_training_node(r->proto->graph->node[i]))
			return true;
	return false;
}

void read_roles(Reader *r, const NameScope *top)
{
	read_metadata(r);
	r->training_file = is_training_file(r);
	const GraphProto *g = r->proto->graph;
	r->twins = table_new(r->arena);
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_input; k++) {
			const Value *v = table_pointer_s(top->names, g->node[i]->input[k]);
			Weight *w = v ? v->weight : NULL;
			if (!w)
				continue;
			w->uses++;
			w->table |= !strcmp(g->node[i]->op_type, "Gather") && k == 0;
		}
}

// ---- slots ----------------------------------------------------------------------------

static void add_home(Reader *r, int slot, Weight *w, Copy copy, const NodeProto *node, int operand)
{
	View *v = NEW(r->arena, View);
	if (w)
		w->origin->trained |= r->g->slots.at[slot].kind != S_frozen;
	*v = (View){.weight = w,
	            .copy = copy,
	            .node = node,
	            .operand = operand,
	            .alias = w ? w->alias : NULL,
	            .next = r->g->slots.at[slot].view};
	v->first = v->next ? v->next->first : v;
	r->g->slots.at[slot].view = v;
}

static const char *fresh_name(Reader *r, const char *name)
{
	const char *tried = name;
	for (int i = 2; find_slot(r->g, tried) >= 0; i++)
		tried = format(r->arena, "%s#%d", name, i);
	return tried;
}

// The slot of a weight as the node's operand k.
static Ref put_home(Reader *r, Weight *w, int slot, const NodeProto *node, int k)
{
	take_slot(r, w, slot);
	add_home(r, slot, w, COPY_SAME, node, k);
	return put_slot(r->g, slot);
}

static Weight *weight_of(const Reader *r, int slot)
{
	const View *v = r->g->slots.at[slot].view;
	return v ? v->first->weight : NULL;
}

static Slot weight_slot(Reader *r, Weight *w, const char *name)
{
	if (w->proto->data_type == DOUBLE)
		meet_double(r, format(r->arena, "initializer '%s'", w->name));
	return (Slot){.name = name,
	              .file = w->name,
	              .kind = S_param,
	              .type = w->type,
	              .shape = w->shape,
	              .init = weight_data(r, w)};
}

// A weight that is such a copy of a slot's is tied to it again; `what` it is of the slot.
static Ref put_tie(Reader *r, Weight *w, int slot, Copy copy, const char *what,
                   const NodeProto *node, int k)
{
	note(r, "initializer '%s' is %s %s: tied again", w->name, what, r->g->slots.at[slot].name);
	add_home(r, slot, w, copy, node, k);
	Ref x = put_slot(r->g, slot);
	if (copy == COPY_COMPLEMENT)
		return put2(r->g, O_sub, num_like(r->g, x, 1), x);
	return copy == COPY_TRANSPOSED ? swap_last(r->g, x) : x;
}

// True if the exporter may have computed 1 minus a parameter beside it: what mixes two signals.
static bool may_be_complement(const Reader *r, const Weight *w)
{
	bool own = has_signature(r) ? is_parameter_name(r, w->name) : !is_opaque(w->name);
	return !own && wide_axes(&w->shape) == 1;
}

// A weight under a new name: the last product's may be a transposed copy of an embedding, an
// unnamed vector 1 minus a parameter.
static Ref put_new(Reader *r, Weight *w, const NodeProto *node, int k, const char *name,
                   const char *ask)
{
	const Weight *from = NULL;
	bool tie = !r->options->separate;
	if (tie && node && !strcmp(node->op_type, "MatMul") && w->shape.rank == 2)
		from = original_of(r, w, COPY_TRANSPOSED);
	if (from)
		return put_tie(r, w, from->slot, COPY_TRANSPOSED,
		               "a transposed copy of the embedding", node, k);
	if (tie && may_be_complement(r, w))
		from = original_of(r, w, COPY_COMPLEMENT);
	if (from)
		return put_tie(r, w, from->slot, COPY_COMPLEMENT, "1 minus parameter", node, k);
	int slot = add_slot(r->g, weight_slot(r, w, name));
	r->g->slots.at[slot].why = ask;
	return put_home(r, w, slot, node, k);
}

// A name that another initializer has too is the same parameter where the values agree, else
// another one.
static Ref param_ref(Reader *r, Weight *w, const NodeProto *node, int k, const char *name,
                     const char *ask)
{
	int slot = find_slot(r->g, name);
	Weight *owner = slot >= 0 ? weight_of(r, slot) : NULL;
	if (owner && owner->origin != w->origin) {
		bool same = is_same(r, owner, w);
		if (!r->options->separate && (same || is_copy(r, owner, w, COPY_TRANSPOSED)))
			return put_tie(r, w, slot, same ? COPY_SAME : COPY_TRANSPOSED,
			               "a copy of parameter", node, k);
		slot = w->slot;
		name = fresh_name(r, w->name);
	}
	return slot < 0 ? put_new(r, w, node, k, name, ask) : put_home(r, w, slot, node, k);
}

static int untrained_slot(Reader *r, Weight *w, SlotKind kind, const char *name, const char *why)
{
	Slot s = weight_slot(r, w, fresh_name(r, name));
	s.kind = kind;
	s.why = why;
	return add_slot(r->g, s);
}

static Ref frozen_ref(Reader *r, Weight *w, const char *name, const char *why,
                      const NodeProto *node, int k)
{
	int slot = w->slot < 0 ? untrained_slot(r, w, S_frozen, name, why) : w->slot;
	return put_home(r, w, slot, node, k);
}

// Running statistics of one name are one buffer. Where the exporter merged them with a parameter,
// or with others of another name, whose values were equal, they are a buffer of their own.
static Ref statistics_ref(Reader *r, Weight *w, const char *name, const NodeProto *node, int k)
{
	int slot = find_slot(r->g, name);
	if (slot < 0 || r->g->slots.at[slot].kind != S_buffer)
		slot = untrained_slot(r, w, S_buffer, name, running_statistics);
	add_home(r, slot, w, COPY_SAME, node, k);
	return put_slot(r->g, slot);
}

// Outside of PyTorch equal tensors are merged without a trace: one value everywhere means that
// nothing was shared.
static const char *split_name(Reader *r, Weight *w, const NodeProto *node, const char *name)
{
	if (!node || w->uses < 2 || w->alias || has_signature(r) ||
	    starts_with(r->proto->producer_name, "pytorch") || !one_value(r, w))
		return name;
	const char *slash = strrchr(node->name, '/'), *leaf = strrchr(w->name, '/');
	if (!slash || !leaf)
		return format(r->arena, "%s@%s", w->name,
		              node->name[0] ? node->name : node->output[0]);
	return format(r->arena, "%.*s%s", (int)(slash - node->name), node->name, leaf);
}

static Ref weight_ref(Reader *r, Weight *w, const Call *c, int k)
{
	if (!is_float(w->type))
		return weight_constant(r, w);
	const Call *main = c && !c->space->depth ? c : NULL;
	const NodeProto *node = main ? main->node : NULL;
	const char *name = split_name(r, w, node, name_of_use(r, w, node, k));
	const char *why = reason_not_trained(r, w, main, k, name);
	int choice = users_choice(r, name, w->name);
	if (choice == 1 && role_of(node, k) == R_scalar && w->shape.rank == 0)
		choice = -1;
	bool every = r->options->separate && w->shape.rank && node && role_of(node, k) != R_scalar;
	if (every && !(why && !strcmp(why, running_statistics)))
		why = NULL;
	bool frozen =
	    choice == 0 && (!why || !strcmp(why, running_statistics)); // a constant stays one
	if (frozen)
		why = "--freeze";
	if ((choice == 1 && !w->inner) || !why)
		return param_ref(r, w, node, k, name,
		                 choice == 1 ? NULL : reason_to_ask(r, w, main, k, name));
	w->origin->why = why;
	if (c && choice != 0 && !w->inner && role_of(c->node, k) == R_statistic)
		return statistics_ref(r, w, name, node, k);
	if (frozen || leaves_of(r, w).parameters || count_of(&w->shape) > FOLD_LIMIT)
		return frozen_ref(r, w, name, why, node, k);
	if (why == computed_table && !w->ref)
		note(r,
		     "initializer '%s' is not trained: the exporter computed it, from a parameter "
		     "(positions, say) or from none; export in training mode without constant "
		     "folding to see",
		     w->name);
	return weight_constant(r, w);
}

Ref use_weight(Reader *r, Weight *w, const Call *c, int k)
{
	LoopScope *inside = leave_nests(r);
	return enter_nests(r, inside, weight_ref(r, w, c, k));
}

// ---- Identity, biases left out --------------------------------------------------------

// Identity of an initializer: the author's own sharing in files exported for training; else a
// parameter that happened to have equal values when it was exported, unless one is an embedding and
// the other its output matrix.
Value alias_weight(Reader *r, Weight *w, const char *name)
{
	if (!is_float(w->type) || (r->training_file && !one_value(r, w)) ||
	    (w->table && !one_value(r, w)))
		return (Value){.weight = w};
	Weight *other = NEW(r->arena, Weight);
	*other = *w;
	other->origin = w->origin;
	other->alias = name;
	other->slot = -1;
	other->table = false;
	return (Value){.weight = other};
}

Ref missing_bias(const Call *c, int64_t n)
{
	Reader *r = c->r;
	const char *name = c->space->depth ? NULL : bias_left_out(r, c->node);
	if (!name || find_slot(r->g, name) >= 0 || users_choice(r, name, name) == 0)
		return 0;
	int slot = add_slot(
	    r->g, (Slot){.name = name, .kind = S_param, .type = E_f32, .shape = shape_of(1, &n)});
	add_home(r, slot, NULL, COPY_SAME, c->node, 2);
	note(r, "%s was zero and left out by the exporter: made again", name);
	return put_slot(r->g, slot);
}

// BatchNorm folded into convolutions: the newer exporter says so, the older one renames their
// weights.
static void note_fused(Reader *r)
{
	int fused = 0;
	for (size_t i = 0; i < r->proto->graph->n_node; i++) {
		const NodeProto *n = r->proto->graph->node[i];
		bool renamed = !strcmp(n->op_type, "Conv") && n->n_input > 2 &&
		               starts_with(n->input[1], "onnx::Conv_") &&
		               starts_with(n->input[2], "onnx::Conv_");
		fused += renamed || is_fused(n);
	}
	if (fused)
		note(r,
		     "BatchNormalization was folded into %d operators by the exporter: the network "
		     "trains without "
		     "it; export in training mode with optimize=False (older: "
		     "do_constant_folding=False)",
		     fused);
}

static int larger_first(const void *a, const void *b)
{
	const Untrained *one = a, *other = b;
	int64_t x = count_of(&one->shape), y = count_of(&other->shape);
	return x == y ? strcmp(one->name, other->name) : x < y ? 1 : -1;
}

void sort_untrained(Model *m)
{
	if (m->untrained.count)
		qsort(m->untrained.at, (size_t)m->untrained.count, sizeof *m->untrained.at,
		      larger_first);
}

void list_untrained(Reader *r)
{
	Model *m = r->model;
	Table *seen = table_new(r->arena); // the graph of a loop is lowered more than once
	for (int i = 0; i < r->weights.count; i++) {
		const Weight *w = r->weights.at[i];
		uint64_t *known = table_cell(seen, &w->proto, sizeof w->proto);
		if (*known || !is_float(w->type) || (!w->trained && count_of(&w->shape) < 2))
			continue;
		*known = true;
		m->weights += count_of(&w->shape);
		Untrained one = {w->slot < 0 ? w->name : r->g->slots.at[w->slot].name,
		                 w->why ? w->why : "no operator reads it as a weight", w->type,
		                 w->shape};
		if (!w->trained)
			PUSH(r->arena, m->untrained, one);
	}
	sort_untrained(m);
}

// One note for each initializer that several parameters share, and one for all that were renamed.
void note_roles(Reader *r)
{
	note_fused(r);
	if (r->file->training)
		note(r, "%s", r->file->training);
	int renamed = 0;
	Table *seen = table_new(r->arena);
	for (int s = 0; s < r->g->slots.count; s++) {
		const Slot *slot = &r->g->slots.at[s];
		if (slot->kind == S_frozen)
			note(r, "%s is not trained: %s", slot->name, slot->why);
		if (slot->kind != S_param || !slot->file)
			continue;
		renamed += strcmp(slot->name, slot->file) != 0;
		++*table_cell_s(seen, slot->file);
	}
	for (int i = 0; i < r->weights.count; i++) {
		const uint64_t *n = table_find_s(seen, r->weights.at[i]->name);
		if (n && *n > 1)
			note(r,
			     "initializer '%s' holds %d parameters whose values were equal at "
			     "export: parted",
			     r->weights.at[i]->name, (int)*n);
	}
	if (renamed)
		note(r, "%d parameter%s in initializers of another name", renamed,
		     renamed == 1 ? " lies" : "s lie");
}
