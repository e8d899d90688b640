// thread_share.c: emits how the threads of a block bring a step's operands to shared memory.
// Each has a share of an operand: elements that memory has side by side in one load, or one by one
// as their expressions say. Threads load a step's share while they multiply an earlier one's, and
// store it after a barrier; or copies go to shared memory by themselves.
#include "thread_tile.h"

enum {
	PAIR = 2, // elements of 16 bits
	COPY = 4, // bytes of the narrowest asynchronous copy
};

// ---- memory that threads share --------------------------------------------------------

Value lane_number(Gen *g, int i)
{
	return LLVMConstInt(g->i32, (unsigned)i, 0);
}

void load_side(Gen *g, LLVMTypeRef type, int bytes, Value from, int n, Value *to)
{
	LLVMTypeRef all = n > 1 ? LLVMVectorType(type, (unsigned)n) : type;
	Value v = LLVMBuildLoad2(g->b, all, from, "");
	LLVMSetAlignment(v, (unsigned)(n * bytes));
	to[0] = v;
	for (int i = 0; i < n && n > 1; i++)
		to[i] = LLVMBuildExtractElement(g->b, v, lane_number(g, i), "");
}

void store_side(Gen *g, LLVMTypeRef type, int bytes, Value to, int n, const Value *from)
{
	Value v = n > 1 ? LLVMGetPoison(LLVMVectorType(type, (unsigned)n)) : from[0];
	for (int i = 0; i < n && n > 1; i++)
		v = LLVMBuildInsertElement(g->b, v, from[i], lane_number(g, i), "");
	LLVMSetAlignment(LLVMBuildStore(g->b, v, to), (unsigned)(n * bytes));
}

// ---- operands -------------------------------------------------------------------------

// Returns the operand; matrix instructions for TF32 round it themselves.
Ref share_operand(const ThreadTile *d, int o)
{
	const Val *v = val(d->g->graph, d->v->in[o]);
	return d->p.matrix == E_f32 && is_tf32(v) ? v->in[0] : d->v->in[o];
}

static void term_index(ThreadTile *d, int o, const Index *k, const Index *other, Index *idx)
{
	dot_index(d->g->vars, d->g->graph, d->v, &d->p.dot, o, &d->batch, o ? k : other,
	          o ? other : k, idx);
}

// Finds where an operand's element lies in memory. False: it is computed.
bool find_element(ThreadTile *d, int o, const Index *k, const Index *other, Element *x)
{
	Gen *g = d->g;
	double fill;
	*x = (Element){.r = share_operand(d, o)};
	term_index(d, o, k, other, x->idx);
	if (locate(g->vars, g->graph, &g->computed, &x->r, x->idx, &x->place))
		return true;
	x->r = share_operand(d, o);
	term_index(d, o, k, other, x->idx);
	if (!windows_of(g->vars, g->graph, &g->computed, &x->r, x->idx, &fill) || fill != 0)
		return false;
	x->windows = &val(g->graph, x->r)->shape;
	x->place = ravel(g->vars, x->windows, x->idx);
	while (g->computed.holds(g->computed.context, x->r)) {
		if (val(g->graph, x->r)->op != O_reshape) // which leaves elements where they are
			return false;
		x->r = val(g->graph, x->r)->in[0];
	}
	return !val(g->graph, x->r)->pitch;
}

bool may_lie_outside(ThreadTile *d, const Element *x, int axis)
{
	return !index_fits(d->g->vars, &x->idx[axis], x->windows->dim[axis]);
}

// True if elements of one load, the first of which is `first`, are `apart` from each other, and all
// of them lie outside of the value under windows, or none.
static bool are_together(ThreadTile *d, const Element *first, const Element *x, int apart)
{
	Vars *w = d->g->vars;
	Index back = add_index(w, &x->place, &first->place, -1);
	for (int a = 0; x->windows && a < x->windows->rank; a++) {
		Index same = add_index(w, &x->idx[a], &first->idx[a], -1);
		if (may_lie_outside(d, first, a) && (same.n || same.constant))
			return false;
	}
	return !back.n && back.constant == apart;
}

// True if memory holds the operand so that `vec` elements are one aligned load: all of a line, or,
// where rows of memory are longer than those of the value, also beyond its end. Sets how far apart
// loads are. The caller's own memory may lie anywhere.
static bool is_wide(ThreadTile *d, int o, int vec)
{
	Gen *g = d->g;
	Vars *w = g->vars;
	const DotSizes *p = &d->p.dot;
	Share *s = &d->share[o];
	int64_t extent = o ? p->n : p->m, all = s->along ? p->k : extent;
	if (all < vec)
		return false;
	Index none = constant_index(0), group = some_index(w, all / vec);
	Index other = some_index(w, s->along ? extent : p->k);
	Index side = add_index(w, &none, &group, vec);
	Element x, next;
	if (!find_element(d, o, s->along ? &side : &other, s->along ? &other : &side, &x) ||
	    index_align(w, &x.place) % vec)
		return false;
	int64_t pitch = val(g->graph, x.r)->pitch;
	if (all % vec && (!pitch || pitch % vec))
		return false;
	for (int e = 1; e < vec; e++) {
		Index at = shift_index(side, e);
		find_element(d, o, s->along ? &at : &other, s->along ? &other : &at, &next);
		if (!are_together(d, &x, &next, e))
			return false;
	}
	Block block = value_location(g->plan, x.r).block;
	int64_t bytes = elems[val(g->graph, x.r)->type].bytes, per = s->along ? vec : 1;
	s->ahead = stride_along(w, &x.place, s->along ? &group : &other);
	s->far = stride_along(w, &x.place, &other);
	if (x.windows)
		s->ahead = s->far = IRREGULAR;
	if (s->along && s->ends)
		s->far = IRREGULAR;
	s->ahead *= s->ahead == IRREGULAR ? 1 : d->s->depth / per * bytes;
	s->far *= s->far == IRREGULAR ? 1 : bytes; // so far from line to line
	if (s->far > INT32_MAX / s->side || s->far < -INT32_MAX / s->side)
		s->far = IRREGULAR; // no immediate of an instruction
	return block != B_input && block != B_output && block != B_none;
}

bool is_copied(const ThreadTile *d, const Share *s)
{
	return s->wide && d->kind->asynchronous;
}

// Two elements of 16 bits wait in one register.
static bool is_pair(const ThreadTile *d, const Share *s)
{
	return is_half(d->p.matrix) && s->vec % PAIR == 0;
}

// True if lines of shared memory are along k, and threads have loaded elements across it. Then a
// thread has neighboring steps of k, as many as turned() at a time, and stores these together.
static bool is_turned(const ThreadTile *d, const Share *s)
{
	return !s->along && !d->kind->in_line(s);
}

static int turned(const ThreadTile *d, const Share *s)
{
	return is_turned(d, s) ? MIN(s->count, WIDE / d->packed_bytes) : 1;
}

int alike_lines(const ThreadTile *d)
{
	return d->kind->alike ? d->kind->alike(d) : LOADS;
}

Value pair_of(Gen *g, const Value *x)
{
	Value low = LLVMBuildZExt(g->b, x[0], g->i32, "");
	Value high = LLVMBuildZExt(g->b, x[1], g->i32, "");
	high = LLVMBuildShl(g->b, high, LLVMConstInt(g->i32, 16, 0), "");
	return LLVMBuildOr(g->b, low, high, "");
}

// Returns where the last of `extent` elements begin that are loaded together.
static int64_t last_group(int64_t extent, int together)
{
	return (extent - 1) / together * together;
}

// True if a line along k ends within a load: what follows there in memory is no element.
static bool is_ragged(const ThreadTile *d, const Share *s)
{
	return s->wide && s->along && d->p.dot.k % s->vec;
}

// Returns how many rows or columns threads bring, each of them as many.
static int64_t share_side(const ThreadTile *d, int o)
{
	int64_t side = d->size[o], each = side * d->s->depth / d->g->target->machine->threads;
	int64_t load = MIN(each, WIDE / d->packed_bytes);
	int64_t unit = load * d->g->target->machine->threads / d->s->depth;
	return each ? ceil_div(side, unit) * unit : side;
}

static int64_t elements_of_thread(const ThreadTile *d, const Share *s)
{
	return s->side * d->s->depth / d->g->target->machine->threads;
}

// Chooses which elements threads load together, and how many such loads each has.
static void choose_loads(ThreadTile *d, int o)
{
	Share *s = &d->share[o];
	int64_t extent = o ? d->p.dot.n : d->p.dot.m;
	int bytes = elems[val(d->g->graph, share_operand(d, o))->type].bytes;
	s->along = (o ? d->s->b : d->s->a) == W_transpose;
	s->side = share_side(d, o);
	s->ends = extent % d->size[o] || s->side > d->size[o];
	int64_t all = elements_of_thread(d, s);
	s->vec = (int)MIN(all, WIDE / bytes);
	int narrow = MIN(s->vec, (d->kind->asynchronous ? COPY : WIDE) / bytes);
	while (!(s->wide = is_wide(d, o, s->vec)) && s->vec / 2 >= narrow)
		s->vec /= 2;
	if (!s->wide) {
		bool pairs = (s->along ? d->p.dot.k : extent) % PAIR == 0;
		s->vec = is_half(d->p.matrix) && pairs ? PAIR : 1;
	}
	s->count = (int)all / s->vec;
}

// Finds what each load of the thread brings, and where that goes. Threads side by side have what is
// side by side in memory; of a line that is no power of two of loads, each has several parts.
static void place_loads(ThreadTile *d, int o)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	int64_t extent = o ? d->p.dot.n : d->p.dot.m, depth = d->s->depth;
	int64_t threads = g->target->machine->threads;
	int64_t all_line = (s->along ? depth : s->side) / s->vec, line = all_line & -all_line;
	if (finds_steps(d, o))
		line = STEP_LANES;
	int side_by_side = turned(d, s), down = (int)(s->count * line / all_line);
	s->apart = side_by_side > 1 ? 1 : threads / line;
	Value inner = times(g, LLVMBuildURem(g->b, d->thread, number(g, line), ""), s->vec);
	Value outer = LLVMBuildUDiv(g->b, d->thread, number(g, line), "");
	for (int i = 0; i < s->count; i++) {
		int64_t group = i % down / side_by_side * (threads / line) * side_by_side;
		Value next = times(g, outer, side_by_side);
		next = sum_of(g, next, number(g, group + i % down % side_by_side));
		Value own = s->along ? next : sum_of(g, inner, number(g, i / down * line * s->vec));
		Value at = sum_of(g, d->first[o], own);
		int step = s->along ? 1 : s->vec;
		if (s->ends)
			at = least(g, at, number(g, last_group(extent, step)));
		s->other[i] = uniform_index(g, at, extent, step);
		s->k[i] = s->along ? inner : next;
		int alike = is_turned(d, s) ? alike_lines(d) : s->vec;
		for (int e = 0; e < s->vec && i % side_by_side == 0; e += alike) {
			Value line = sum_of(g, own, number(g, e));
			Value to = d->kind->place(d, o, s->k[i], line);
			s->to[s->places++] = to;
		}
	}
	bool even = down == s->count;
	bool regular = even && !is_turned(d, s) && s->apart % d->kind->period == 0;
	if (!even || (side_by_side > 1 && side_by_side < s->count))
		s->far = IRREGULAR;
	s->next = regular && !s->found ? s->apart * d->kind->line(d, o) * d->packed_bytes : 0;
}

void share_start(ThreadTile *d, int o)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	choose_loads(d, o);
	s->start = d->stage;
	s->lines = s->along ? s->side : d->s->depth;
	s->size = d->kind->share_size(d, o);
	d->stage += s->size;
	place_loads(d, o);
	LLVMTypeRef type = is_pair(d, s) ? g->i32 : d->packed;
	int each = is_pair(d, s) ? PAIR : 1;
	for (int i = 0; i < elements_of_thread(d, s) / each && !is_copied(d, s); i++)
		s->loaded[i] = variable(g, LLVMConstNull(type));
}

// The constant comes last, so that both operands may have the rest in common.
Value share_memory(ThreadTile *d, int o, Value at)
{
	Value first = bytes_after(d->g, d->shared, at);
	return place_in(d->g, d->packed, first, number(d->g, d->share[o].start));
}

Index memory_start(Gen *g, Ref r)
{
	Level *was = level_go(g, g->ground);
	Value start = LLVMBuildPtrToInt(g->b, location_address(g, r), g->i64, "");
	Index x = uniform_index(g, start, INT32_MAX, 1);
	level_go(g, was);
	return x;
}

// Returns the address of an element.
Value element_address(ThreadTile *d, const Element *x)
{
	Gen *g = d->g;
	Index none = constant_index(0), start = memory_start(g, x->r);
	Index bytes = add_index(g->vars, &none, &x->place, elems[val(g->graph, x->r)->type].bytes);
	// Terms are added from the outermost level on: what no step changes comes first.
	bytes = add_index(g->vars, &bytes, &start, 1);
	return index_i64(g, &bytes);
}

// Returns whether an element under windows lies inside; NULL: it does.
Value lies_inside(ThreadTile *d, const Element *x)
{
	Gen *g = d->g;
	Value inside = NULL;
	for (int a = 0; x->windows && a < x->windows->rank; a++) {
		if (!may_lie_outside(d, x, a))
			continue;
		Value at = index_number(g, &x->idx[a], E_i32);
		Value extent = LLVMConstInt(g->i32, (uint64_t)x->windows->dim[a], 0);
		Value is = LLVMBuildICmp(g->b, LLVMIntULT, at, extent, "");
		inside = inside ? both(g, inside, is) : is;
	}
	return inside;
}

// Sets where wide load i is from step `at_k` on: its bytes from the start of the value, or its
// address; and whether it lies inside, if that depends.
static void find_wide(ThreadTile *d, int o, int i, Value at_k, Value *from, Value *inside)
{
	Gen *g = d->g;
	const Share *s = &d->share[o];
	int64_t all = d->p.dot.k;
	int align = s->along ? s->vec : 1;
	if (all % d->s->depth)
		at_k = least(g, at_k, number(g, last_group(all, align)));
	Index k = uniform_index(g, at_k, all, align);
	Element x;
	find_element(d, o, &k, &s->other[i], &x);
	Index none = constant_index(0);
	Index bytes = add_index(g->vars, &none, &x.place, elems[val(g->graph, x.r)->type].bytes);
	*from = is_copied(d, s) ? element_address(d, &x) : index_i64(g, &bytes);
	*inside = lies_inside(d, &x);
}

static int addresses(const Share *s)
{
	return s->far == IRREGULAR ? s->count : 1;
}

void advance_bytes(ThreadTile *d, int o, Value bytes)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	if (s->advanced) {
		bytes = LLVMBuildTrunc(g->b, bytes, g->i32, "");
		Value sum = LLVMBuildAdd(g->b, read_variable(g, s->advanced), bytes, "");
		set_variable(g, s->advanced, sum);
	}
	for (int i = 0; !s->advanced && i < addresses(s); i++)
		set_variable(g, s->from[i], sum_of(g, read_variable(g, s->from[i]), bytes));
}

// True if steps go forward in memory, by fewer bytes than 32 bits count.
static bool goes_forward(ThreadTile *d, int o)
{
	const Share *s = &d->share[o];
	Index none = constant_index(0);
	Element x;
	find_element(d, o, &none, &s->other[0], &x);
	bool forward = bytes_of(val(d->g->graph, x.r)) < INT32_MAX && s->ahead > 0;
	for (int64_t at = s->channels; s->channels && at < d->p.dot.k; at += s->channels) {
		Index here = constant_index(at - s->channels), there = constant_index(at);
		Element next;
		find_element(d, o, &here, &s->other[0], &x);
		find_element(d, o, &there, &s->other[0], &next);
		Index apart = add_index(d->g->vars, &next.place, &x.place, -1);
		forward &= !apart.n && apart.constant > 0;
	}
	return forward;
}

void share_addresses(ThreadTile *d, int o)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	for (int i = 0; i < (s->next || s->found ? 1 : s->places); i++)
		s->to[i] = share_memory(d, o, s->to[i]);
	if (s->found) {
		start_steps(d, o);
		return;
	}
	s->far *= s->far == IRREGULAR ? 1 : s->apart;
	s->channels = s->wide ? place_channels(d, o) : 0;
	if (s->channels) {
		int bytes = elems[val(g->graph, share_operand(d, o))->type].bytes;
		s->ahead = d->s->depth * bytes;
		d->section = s->channels;
	}
	for (int i = 0; s->channels && i < s->count; i++)
		find_inside(d, o, i);
	bool copies = is_copied(d, s) && s->ahead != IRREGULAR;
	if (copies && addresses(s) > 1 && goes_forward(d, o))
		s->advanced = variable(g, LLVMConstInt(g->i32, 0, 0));
	for (int i = 0; s->wide && s->ahead != IRREGULAR && i < addresses(s); i++) {
		Value from, inside;
		find_wide(d, o, i, sum_of(g, d->start, s->k[i]), &from, &inside);
		s->from[i] = s->advanced ? from : variable(g, from);
	}
}

// Loads what memory has as it is needed, or copies it, from step `at_k` on. *inside is false (NULL:
// always true) beyond the last step, and set to false outside of the value under windows, too.
// Addresses that no step advances by the same are computed as they are needed: until then they
// would take registers.
static void load_wide(ThreadTile *d, int o, int i, Value at_k, Value stage, Value *inside, Value *x)
{
	Gen *g = d->g;
	const Share *s = &d->share[o];
	bool regular = s->far != IRREGULAR;
	int64_t far = regular ? i * s->far : 0;
	Value from, under = NULL;
	if (s->ahead == IRREGULAR)
		find_wide(d, o, i, LLVMBuildIntCast2(g->b, at_k, g->i64, 1, ""), &from, &under);
	else if (s->advanced)
		from = sum_of(g, s->from[i],
		              LLVMBuildZExt(g->b, read_variable(g, s->advanced), g->i64, ""));
	else
		from = read_variable(g, s->from[regular ? 0 : i]);
	if (s->channels)
		under = at_place(d, s, i);
	if (under)
		*inside = *inside ? both(g, *inside, under) : under;
	if (is_copied(d, s)) {
		Copy copy = {.n = s->vec,
		             .to = bytes_after(g, s->to[s->next ? 0 : i], stage),
		             .from = from,
		             .to_bytes = i * s->next,
		             .from_bytes = far,
		             .inside = *inside};
		if (is_ragged(d, s))
			copy.left = LLVMBuildSub(g->b, step_count(d, d->p.dot.k), at_k, "");
		d->kind->copy(d, &copy);
		return;
	}
	Index none = constant_index(0);
	Element of;
	find_element(d, o, &none, &none, &of);
	from = sum_of(g, from, number(g, far));
	if (*inside) // else the first elements
		from = LLVMBuildSelect(g->b, *inside, from, number(g, 0), "");
	Elem type = val(g->graph, of.r)->type;
	Value memory = bytes_after(g, location_address(g, of.r), from);
	if (is_pair(d, s))
		load_side(g, g->i32, PAIR * d->packed_bytes, memory, s->vec / PAIR, x);
	else
		load_side(g, memory_type(g, type), elems[type].bytes, memory, s->vec, x);
}

// Loads elements of an operand one by one, as its expression says.
static void load_elements(ThreadTile *d, int o, int i, const Index *k, Value *x)
{
	Gen *g = d->g;
	const Share *s = &d->share[o];
	Index idx[RANK];
	for (int e = 0; e < s->vec; e++) {
		Index ahead = shift_index(s->along ? *k : s->other[i], e);
		term_index(d, o, s->along ? &ahead : k, s->along ? &s->other[i] : &ahead, idx);
		x[e] = at(g, share_operand(d, o), idx);
	}
}

Value step_number(const ThreadTile *d, Value i)
{
	return LLVMBuildIntCast2(d->g->b, i, d->count, 1, "");
}

Value step_count(const ThreadTile *d, int64_t n)
{
	return LLVMConstInt(d->count, (uint64_t)n, 1);
}

static Value some_or_none(Gen *g, Value some, Value x)
{
	return LLVMBuildSelect(g->b, some, x, LLVMConstNull(LLVMTypeOf(x)), "");
}

// Returns element e of the load from step `at_k` on, or `n` of them, a pair; those beyond the last
// step are 0.
static Value before_end(ThreadTile *d, Value at_k, int e, int n, Value x)
{
	Gen *g = d->g;
	int64_t all = d->p.dot.k;
	Value is = LLVMBuildICmp(g->b, LLVMIntSLT, at_k, step_count(d, all - e), "");
	if (n == PAIR && all % PAIR) {
		Value both = LLVMBuildICmp(g->b, LLVMIntSLT, at_k, step_count(d, all - e - 1), "");
		Value low = LLVMBuildAnd(g->b, x, LLVMConstInt(g->i32, UINT16_MAX, 0), "");
		x = LLVMBuildSelect(g->b, both, x, low, "");
	}
	return some_or_none(g, is, x);
}

// Loads the elements of load i, or the pairs that memory has. What is wide becomes zeros, if it has
// to, on its way to shared memory: nothing waits for memory before.
static void load_unit(ThreadTile *d, int o, int i, Value step, Value stage, Value *x)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	int64_t all = d->p.dot.k;
	int align = s->along ? s->vec : 1;
	Value own = step_number(d, s->k[i]), inside = NULL;
	Value at_k = sum_of(g, step, own);
	if (all % d->s->depth)
		inside = LLVMBuildICmp(g->b, LLVMIntSLT, at_k, step_count(d, all), "");
	if (s->wide) {
		load_wide(d, o, i, at_k, stage, &inside, x);
	} else {
		at_k = LLVMBuildIntCast2(g->b, at_k, g->i64, 1, "");
		if (inside)
			at_k = least(g, at_k, number(g, last_group(all, align)));
		Index k = uniform_index(g, at_k, all, align);
		load_elements(d, o, i, &k, x);
	}
	Elem type = val(g->graph, share_operand(d, o))->type;
	int each = s->wide && is_pair(d, s) ? PAIR : 1;
	bool later = inside && s->wide && !is_copied(d, s) && !is_ragged(d, s);
	if (later && !s->some[i])
		s->some[i] = variable(g, inside);
	if (later)
		set_variable(g, s->some[i], inside);
	for (int e = 0; e < s->vec / each && !is_copied(d, s); e++) {
		if (!is_half(d->p.matrix))
			x[e] = widen_float(g, x[e], type);
		if (is_ragged(d, s))
			x[e] = before_end(d, sum_of(g, step, own), e * each, each, x[e]);
		else if (inside && !later)
			x[e] = some_or_none(g, inside, x[e]);
	}
}

// Loads an operand's elements of the steps from `step` on; beyond the last, they are 0.
void load_share(ThreadTile *d, int o, Value step, Value stage)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	if (s->found) {
		copy_found(d, o, step, stage);
		return;
	}
	for (int i = 0; i < s->count; i++) {
		Value x[LOADS];
		load_unit(d, o, i, step, stage, x);
		if (is_copied(d, s))
			continue;
		int each = is_pair(d, s) ? PAIR : 1;
		for (int e = 0; e < s->vec / each; e++) {
			bool joins = each > 1 && !s->wide;
			set_variable(g, s->loaded[i * s->vec / each + e],
			             joins ? pair_of(g, x + e * each) : x[e]);
		}
	}
}

// Returns what variable e of load i has: an element or, if it has pairs, a pair.
static Value loaded_part(ThreadTile *d, const Share *s, int i, int e)
{
	Gen *g = d->g;
	int parts = s->vec / (is_pair(d, s) ? PAIR : 1);
	Value x = read_variable(g, s->loaded[i * parts + e]);
	return s->some[i] ? some_or_none(g, read_variable(g, s->some[i]), x) : x;
}

// Returns element e of load i.
static Value loaded_element(ThreadTile *d, const Share *s, int i, int e)
{
	Gen *g = d->g;
	if (!is_pair(d, s))
		return loaded_part(d, s, i, e);
	Value pair = loaded_part(d, s, i, e / PAIR);
	Value half = LLVMBuildLShr(g->b, pair, LLVMConstInt(g->i32, 16 * (e % PAIR), 0), "");
	return LLVMBuildTrunc(g->b, half, g->i16, "");
}

// Advances to the steps after those that were loaded.
void advance_share(ThreadTile *d, int o)
{
	const Share *s = &d->share[o];
	if (s->wide && s->ahead != IRREGULAR)
		advance_bytes(d, o, number(d->g, s->ahead));
}

static void put_turned(ThreadTile *d, const Share *s, Value stage)
{
	Gen *g = d->g;
	int n = turned(d, s), alike = MIN(s->vec, alike_lines(d));
	for (int i = 0; i < s->count; i += n)
		for (int e = 0; e < s->vec; e++) {
			Value x[LOADS], to = s->to[(i / n * s->vec + e) / alike];
			to = bytes_after(g, to, stage);
			for (int k = 0; k < n; k++)
				x[k] = loaded_element(d, s, i + k, e);
			int64_t apart = s->size / s->side; // from line to line
			to = place_in(g, d->packed, to, number(g, e % alike * apart));
			store_side(g, d->packed, d->packed_bytes, to, n, x);
		}
}

void put_share(ThreadTile *d, int o, Value stage)
{
	Gen *g = d->g;
	Share *s = &d->share[o];
	if (is_copied(d, s))
		return;
	if (is_turned(d, s)) {
		put_turned(d, s, stage);
		return;
	}
	int n = d->kind->in_line(s) ? MIN(s->vec, WIDE / d->packed_bytes) : 1; // of a store
	for (int i = 0; i < s->count; i++) {
		Value x[LOADS], to = bytes_after(g, s->to[s->next ? 0 : i], stage);
		to = bytes_after(g, to, number(g, i * s->next));
		if (is_pair(d, s)) {
			for (int e = 0; e < s->vec / PAIR; e++)
				x[e] = loaded_part(d, s, i, e);
			store_side(g, g->i32, PAIR * d->packed_bytes, to, s->vec / PAIR, x);
			continue;
		}
		for (int e = 0; e < s->vec; e++)
			x[e] = loaded_part(d, s, i, e);
		int64_t apart = n > 1 ? 1 : s->size / d->s->depth; // else from step to step
		for (int e = 0; e < s->vec; e += n)
			store_side(g, d->packed, d->packed_bytes,
			           place_in(g, d->packed, to, number(g, e * apart)), n, x + e);
	}
}
