// attend_tile.c: emits the packing, prefetching and products of attention by vectors.
#include "attend_tile.h"
#include <string.h>

// ---- memory ---------------------------------------------------------------------------

Value local_element(const Attend *a, Value memory, Value i)
{
	return place_beside(a->g, a->elem, memory, i);
}

LLVMTypeRef attend_vector(const Attend *a)
{
	return a->g->width > 1 ? LLVMVectorType(a->elem, (unsigned)a->g->width) : a->elem;
}

Value local_load(const Attend *a, Value memory, Value i)
{
	Value v = LLVMBuildLoad2(a->g->b, attend_vector(a), local_element(a, memory, i), "");
	LLVMSetAlignment(v, (unsigned)a->p.bytes);
	return v;
}

void local_store(const Attend *a, Value v, Value memory, Value i)
{
	Value to = LLVMBuildStore(a->g->b, splat(a->g, v), local_element(a, memory, i));
	LLVMSetAlignment(to, (unsigned)a->p.bytes);
}

Value local_load_one(const Attend *a, Value memory, Value i)
{
	return LLVMBuildLoad2(a->g->b, a->elem, local_element(a, memory, i), "");
}

Value minus(Gen *g, Value x, Value y)
{
	return LLVMBuildSub(g->b, x, y, "");
}

Value clamp_to(Gen *g, Value x, Value most) // to [0, most]
{
	Value zero = number(g, 0);
	x = least(g, x, most);
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, x, zero, ""), zero, x, "");
}

Value round_up(Gen *g, Value x, int64_t by)
{
	Value up = sum_of(g, x, number(g, by - 1));
	return times(g, LLVMBuildUDiv(g->b, up, number(g, by), ""), by);
}

Index row_index_of(const Attend *a, Value i, int64_t count)
{
	return uniform_index(a->g, least(a->g, i, number(a->g, count - 1)), count, 1);
}

// ---- packing --------------------------------------------------------------------------

void copy_operand(const Attend *a, int o, Value first, Value count, Value memory, int64_t line,
                  int64_t panel)
{
	Gen *g = a->g;
	const Val *v = val(g->graph, a->v->in[o]);
	int64_t rows = v->shape.dim[a->p.lead.rank], columns = last_dim(&v->shape);
	Loop loop = loop_begin(g, number(g, 0), count, 1);
	Index row = row_index_of(a, sum_of(g, first, loop.i), rows);
	Value to = times(g, loop.i, panel ? panel : line);
	for (int64_t c = 0; c < columns; c += g->width) {
		Index column = lanes_within(g, number(g, c), columns, g->width);
		int64_t offset = panel ? c / panel * line + c % panel : c;
		local_store(a, at_element(a, a->v->in[o], &row, &column), memory,
		            sum_of(g, to, number(g, offset)));
	}
	loop_end(g, &loop);
}

void pack_columns(const Attend *a, int o, Value memory, int64_t line, double factor)
{
	Gen *g = a->g;
	int width = g->width;
	int64_t columns = last_dim(&val(g->graph, a->v->in[o])->shape);
	int64_t full = columns / width * width, panel = a->p.panel;
	Value scale = real_like(LLVMConstNull(attend_vector(a)), factor);
	Loop loop = loop_begin(g, number(g, 0), a->keys, width);
	Value first = sum_of(g, a->first_key, loop.i);
	Value to = times(g, LLVMBuildUDiv(g->b, loop.i, number(g, panel), ""), line);
	to = sum_of(g, to, LLVMBuildURem(g->b, loop.i, number(g, panel), ""));
	Index key[64];
	for (int k = 0; k < width; k++)
		key[k] = row_index_of(a, sum_of(g, first, number(g, k)), a->p.keys);
	if (full) {
		Loop squares = loop_begin(g, number(g, 0), number(g, full), width);
		Index column = lane_index(g, squares.i, columns, width, NULL);
		Value v[64], row = sum_of(g, to, times(g, squares.i, panel));
		for (int k = 0; k < width; k++)
			v[k] = splat(g, at_element(a, a->v->in[o], &key[k], &column));
		transpose_vectors(g, v);
		for (int k = 0; k < width; k++)
			local_store(a, factor == 1 ? v[k] : LLVMBuildFMul(g->b, v[k], scale, ""),
			            memory, sum_of(g, row, number(g, k * panel)));
		loop_end(g, &squares);
	}
	Index keys = lanes_within(g, first, a->p.keys, g->width);
	for (int64_t c = full; c < columns; c++) {
		Index column = constant_index(c);
		Value v = splat(g, at_element(a, a->v->in[o], &keys, &column));
		local_store(a, factor == 1 ? v : LLVMBuildFMul(g->b, v, scale, ""), memory,
		            sum_of(g, to, number(g, c * panel)));
	}
	loop_end(g, &loop);
}

// ---- prefetching ----------------------------------------------------------------------

// How many full panels the strips of a head compute together, about: of keys, or of so many columns
// for each block of keys.
static int64_t panels_of_head(const Attend *a, int64_t columns)
{
	const AttendSizes *p = &a->p;
	int64_t panels = 0, height = a->s->height, depth = a->s->depth;
	for (int64_t key = 0; key < p->keys; key += depth)
		for (int64_t strip = 1; strip <= p->strips; strip++) {
			int64_t end = MIN(strip * height, p->queries);
			int64_t seen = MIN(depth, p->keys - key);
			if (a->causal)
				seen = MAX(0, MIN(seen, end + p->keys - p->queries - key));
			int64_t wide = columns < 0 ? seen : seen ? columns : 0;
			panels += (wide + p->panel / 2 - 1) / p->panel;
		}
	return MAX(1, panels);
}

Ahead ahead_new(const Attend *a, int64_t columns, int64_t steps)
{
	return (Ahead){.calls = panels_of_head(a, columns),
	               .iterations = MAX(1, steps / (a->p.halves ? 2 : 1) / a->s->unroll),
	               .call = variable(a->g, number(a->g, 0))};
}

static void add_ahead(Ahead *t, Value from, int64_t rows, int64_t bytes, int64_t row, Prefetch how)
{
	if (bytes < 64 || t->count == STREAMS)
		return;
	int64_t share = ceil_div(rows, t->calls), lines = ceil_div(bytes, 64);
	int64_t once = ceil_div(share * lines, t->iterations);
	t->from[t->count] = from;
	t->rows[t->count] = rows;
	t->stream[t->count++] =
	    (struct Stream){row, (int)share, (int)bytes, (int)MIN(bytes, once * 64), how, 0};
}

// Finds the element of memory that an element of an operand is, or is mapped from, as locate does.
static bool find_stored(Gen *g, Ref *r, Index *idx, Index *place)
{
	while (!locate(g->vars, g->graph, &g->computed, r, idx, place)) {
		const Val *v = val(g->graph, *r);
		int of = 0;
		while (of < v->nin &&
		       count_of(&val(g->graph, v->in[of])->shape) != count_of(&v->shape))
			of++;
		if (prims[v->op].cls != C_map || of == v->nin)
			return false;
		*r = v->in[of];
	}
	return true;
}

void add_operand(const Attend *a, Ahead *t, int o)
{
	Gen *g = a->g;
	Ref r = read_operand(a, o), from = r;
	const Shape *shape = &val(g->graph, r)->shape;
	if (!a->s->ahead_rows)
		return;
	int lead = a->p.lead.rank;
	Index idx[RANK], at[RANK], place;
	Index row = some_index(g->vars, shape->dim[lead]);
	Index column = some_index(g->vars, last_dim(shape));
	unravel(g->vars, &a->next, &a->p.lead, idx);
	index_within(shape, idx, idx);
	memcpy(at, idx, sizeof at);
	at[lead] = row, at[lead + 1] = column;
	if (!find_stored(g, &r, at, &place) || stride_along(g->vars, &place, &column) != 1)
		return;
	int64_t down = stride_along(g->vars, &place, &row);
	if (down == IRREGULAR)
		return;
	idx[lead] = idx[lead + 1] = constant_index(0);
	find_stored(g, &from, idx, &place);
	Elem type = val(g->graph, r)->type;
	int64_t bytes = elems[type].bytes;
	Value first =
	    place_in(g, memory_type(g, type), location_address(g, r), index_i64(g, &place));
	add_ahead(t, first, shape->dim[lead], last_dim(shape) * bytes, down * bytes, F_later);
}

void add_output(const Attend *a, Ahead *t, Op op)
{
	Gen *g = a->g;
	for (int o = 0; o < g->kern->nout; o++) {
		const Val *v = val(g->graph, g->kern->out[o]);
		int64_t rows = v->shape.dim[a->p.lead.rank], columns = last_dim(&v->shape);
		if (val(g->graph, attention_of(g->graph, g->kern->out[o]))->op != op)
			continue;
		int64_t bytes = elems[v->type].bytes;
		Value first = times(g, index_i64(g, &a->batch), rows * columns);
		add_ahead(t, place_in(g, memory_type(g, v->type), out_address(g, o), first), rows,
		          columns * bytes, columns * bytes, F_write);
	}
}

void prefetch_rows(const Attend *a, const Ahead *t, Value query)
{
	Gen *g = a->g;
	for (int i = 0; a->p.matrix && i < t->count; i++) {
		const struct Stream *s = &t->stream[i];
		int64_t share = ceil_div(t->rows[i], a->p.queries);
		int64_t apart = s->how == F_later ? 128 : 64; // the second cache loads two lines
		Value row = times(g, times(g, query, share), s->row);
		Value from = bytes_after(g, t->from[i], row);
		for (int64_t r = 0; r < share; r++)
			for (int64_t at = 0; at < s->bytes; at += apart) {
				Value line = number(g, r * s->row + at);
				g->ops->prefetch(g, bytes_after(g, from, line), s->how);
			}
	}
}

// ---- products -------------------------------------------------------------------------

// The shape of tiles, which is that of all if it is of matrix registers.
static Tile tile_of(const Attend *a)
{
	return (Tile){.type = a->type,
	              .bytes = (int)a->p.bytes,
	              .lanes = a->p.lanes,
	              .rows = (int)a->s->height,
	              .vectors = (int)a->s->vectors,
	              .unroll = (int)a->s->unroll,
	              .rest = !a->p.matrix,
	              .pairs = a->p.halves,
	              .dense = a->p.halves,
	              .matrix = a->p.matrix,
	              .slices = a->p.slices,
	              .loops = 1};
}

void attend_begin(const Attend *a)
{
	Tile tile = tile_of(a);
	a->g->ops->tile_begin(a->g, &tile);
}

void attend_end(const Attend *a)
{
	Tile tile = tile_of(a);
	a->g->ops->tile_end(a->g, &tile);
}

Product product_new(const Attend *a, Layout z, int64_t line, bool lower, bool narrow,
                    const Ahead *ahead)
{
	int vectors = (int)a->s->vectors;
	Product p = {.line = line};
	if (ahead && !a->p.matrix) // its tiles prefetch nothing
		p.ahead = *ahead;
	for (int less = 0; less <= lower; less++) {
		Tile tile = tile_of(a);
		tile.rows = (int)z.rows - less;
		tile.vectors = 1;
		tile.a_row = z.a_row;
		tile.loop[0].a_step = tile.dense ? 2 : z.a_step;
		tile.b_step = tile.matrix ? tile.lanes : z.b_step;
		tile.b_vector = tile.matrix * tile.lanes;
		tile.c_row = z.c_row;
		tile.a_slice = tile.matrix ? half_slice(a, z.a) : 0;
		tile.b_slice = tile.matrix ? half_slice(a, z.b) / 2 : 0;
		if (z.a_step > 1 && !tile.dense) // each step in other lines of cache
			tile.a_ahead = a->g->target->machine->ahead;
		if (narrow && vectors > 1)
			p.narrow[less] = tile_function(a->g, &tile);
		tile.vectors = vectors;
		for (int i = 0; i < p.ahead.count; i++)
			tile.stream[tile.streams++] = p.ahead.stream[i];
		p.tile[less] = tile_function(a->g, &tile);
	}
	return p;
}

bool has_narrow_rest(const Attend *a, int64_t columns)
{
	int64_t rest = columns % a->p.panel;
	return !a->p.matrix && (columns < 0 || (rest > 0 && rest <= a->p.lanes));
}

Product strip_product(const Attend *a, Layout z, int64_t line, int64_t columns, const Ahead *ahead)
{
	z.rows = a->s->height;
	return product_new(a, z, line, a->p.lower > 0, has_narrow_rest(a, columns), ahead);
}

// Sets the pointers to what this call of a tile prefetches.
static void go_ahead(const Attend *a, const Ahead *ahead, Value *pointer)
{
	Gen *g = a->g;
	if (!ahead->count)
		return;
	Value call = read_variable(g, ahead->call);
	set_variable(g, ahead->call, sum_of(g, call, number(g, 1)));
	for (int i = 0; i < ahead->count; i++) {
		Value row = LLVMBuildUDiv(g->b, times(g, call, ahead->rows[i]),
		                          number(g, ahead->calls), "");
		row = times(g, row, ahead->stream[i].row);
		pointer[i] = LLVMBuildGEP2(g->b, g->i8, ahead->from[i], &row, 1, "");
	}
}

void multiply_panel(const Attend *a, const Product *p, bool narrow, Value panel, const Operands *o)
{
	Gen *g = a->g;
	const Value *tiles = narrow ? p->narrow : p->tile;
	Value in[6 + STREAMS] = {o->steps,
	                         o->a,
	                         local_element(a, o->b, times(g, panel, p->line)),
	                         local_element(a, o->c, times(g, panel, a->p.panel)),
	                         o->again,
	                         o->a};
	if (!narrow)
		go_ahead(a, &p->ahead, in + 6);
	Value tile = tiles[1] ? LLVMBuildSelect(g->b, a->lower, tiles[1], tiles[0], "") : tiles[0];
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(tiles[0]), tile, in,
	               6 + (narrow ? 0 : (unsigned)p->ahead.count), "");
}

void each_panel(const Attend *a, const Product *p, Value columns, PanelBody *body,
                const void *context)
{
	Gen *g = a->g;
	int64_t panel = a->p.panel, most = p->narrow[0] ? panel - 1 - a->p.lanes : panel - 1;
	Value full = sum_of(g, columns, number(g, most));
	full = LLVMBuildUDiv(g->b, full, number(g, panel), "");
	Loop loop = loop_begin(g, number(g, 0), full, 1);
	body(a, p, false, loop.i, context);
	loop_end(g, &loop);
	if (!p->narrow[0])
		return;
	Value rest = LLVMBuildICmp(g->b, LLVMIntSLT, times(g, full, panel), columns, "");
	Loop once = when_begin(g, rest);
	body(a, p, true, full, context);
	when_end(g, &once);
}

static void multiply_operands(const Attend *a, const Product *p, bool narrow, Value panel,
                              const void *operands)
{
	multiply_panel(a, p, narrow, panel, operands);
}

void multiply_panels(const Attend *a, const Product *p, const Operands *o, Value columns)
{
	each_panel(a, p, columns, multiply_operands, o);
}
