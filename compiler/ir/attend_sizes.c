// attend_sizes.c: sizes that follow from the schedule of attention: blocks, strips, local memory.
#include "plan.h"

Elem attend_matrix(const Graph *g, const Val *v, const Machine *machine)
{
	bool exact = machine->exact && !is_half(g->products);
	if (v->type != E_f32)
		return 0;
	if (has_block_matrix(machine))
		return exact ? E_f32 : g->products;
	return machine->pairs && g->products == E_bf16 ? E_bf16 : 0;
}

// True if matrix registers multiply slices of f32: if slicing probabilities, and packing operands
// that come from memory, is worth it.
static bool is_sliced(const Graph *g, const AttendSizes *p, const Machine *machine)
{
	enum { QUERIES = 64, KEYS = 512, COLUMNS = 32 }; // at least
	return has_thread_matrix(machine) && !g->products && p->bytes == elems[E_f32].bytes &&
	       p->queries >= QUERIES && p->keys >= KEYS && p->width >= COLUMNS;
}

static AttendSizes shapes_of(const Graph *g, const Val *v, const Machine *machine)
{
	const Shape *q = &val(g, v->in[0])->shape, *k = &val(g, v->in[1])->shape;
	int r = v->shape.rank;
	bool back = v->op >= O_attend_dq; // that of a bias has fewer heads than the statistics
	const Shape *lead = back ? &val(g, v->in[4])->shape : &v->shape;
	AttendSizes p = {.lead = shape_of(r - 2, lead->dim), .back = back};
	p.batch = count_of(&p.lead);
	p.queries = q->dim[r - 2];
	p.keys = k->dim[r - 2];
	p.width = q->dim[r - 1];
	p.depth = v->op == O_attend_stats ? 0 : last_dim(&val(g, v->in[2])->shape);
	p.bytes = elems[v->type].bytes;
	p.lanes = (int)MAX(1, machine->lanes * 4 / p.bytes);
	p.slices = is_sliced(g, &p, machine) ? SLICES : 1;
	p.halves = attend_matrix(g, v, machine) || p.slices > 1;
	p.matrix = p.halves && has_thread_matrix(machine) ? machine->pairs : 0;
	return p;
}

// ---- by blocks of threads -------------------------------------------------------------

enum {
	SHARED = 48 << 10, // bytes of a block of threads
	THREAD_SUMS = 32,  // of f32
};

// Columns that a tile has for as many of a value.
static int64_t tile_columns(Elem matrix, int64_t columns)
{
	int64_t least = matrix ? 64 : 16, side = least;
	while (!matrix && side < columns)
		side *= 2;
	return matrix ? ceil_div(columns, least) * least : side;
}

// Lays out shared memory: sets the offsets and the size.
static void lay_out(AttendBlocks *z, const AttendSizes *p, bool back)
{
	int64_t pad = z->matrix ? 0 : 4;               // after a line of elements
	int64_t turned = z->matrix == E_f32 ? 8 : pad; // the same, if it is not along k
	int64_t line = z->height + pad, other = z->columns + pad;
	int64_t summed = back ? MAX(z->width, z->depth) : z->depth;
	int64_t size[AB_PARTS] = {[AB_ROWS] = z->width * line,
	                          [AB_COLUMNS] = z->width * other,
	                          [AB_VALUES] = z->depth * other,
	                          [AB_WEIGHTS] = z->depth ? z->columns * line : 0,
	                          [AB_SUMMED] = z->columns * (summed + turned)};
	if (back)
		size[AB_GRADIENTS] = z->depth * line;
	else
		size[AB_VALUES] = 0;
	if (!z->depth || (back && z->both_ways))
		size[AB_SUMMED] = 0;
	if (z->turns) {
		size[AB_COLUMNS] = MAX(size[AB_SUMMED], MAX(size[AB_COLUMNS], size[AB_VALUES]));
		size[AB_VALUES] = size[AB_SUMMED] = 0;
	}
	z->shared = 0;
	for (int k = 0; k < AB_PARTS; k++) {
		z->at[k] = z->shared / z->bytes;
		z->shared += size[k] * z->bytes;
	}
	if (z->turns)
		z->at[AB_VALUES] = z->at[AB_SUMMED] = z->at[AB_COLUMNS];
	if (!back)
		z->shared += z->height * ATTEND_WAYS * p->bytes;
}

// True if blocks of half as many rows, which are more, have a multiprocessor each.
static bool leaves_idle(const AttendSizes *p, const Machine *machine, int64_t height, bool back)
{
	int64_t rows = back ? MAX(p->queries, p->keys) : p->queries;
	int64_t half = ceil_div(rows, height / 2);
	return half > ceil_div(rows, height) && p->batch * half <= machine->workers;
}

int64_t attend_tile_rows(const AttendBlocks *z)
{
	return z->beside ? 2 * z->height : z->height;
}

// Returns the sizes by which warps have rows of their own, if they can, of halves in shared memory;
// shared: 0: they cannot. There are two stages of columns unless a block has them all, and after
// them, if it is to compute all gradients (once), slopes of all keys with a block of queries. If
// warpgroups have the same rows, one hands its sums over to the other in place of the operands.
static AttendBlocks share_by_rows(AttendBlocks z, const AttendSizes *p, const Machine *machine,
                                  bool back)
{
	enum { ROWS = 16, WARP = 32, MOST = 64, LEAST = 16, DEPTH = 128 };
	enum { JOINED = 8 }; // of a row: statistics, of each of four threads
	int threads = machine->threads;
	z.own_rows = true;
	int64_t tile = threads / WARP * ROWS;
	z.groups = has_group_matrix(machine, z.matrix, tile);
	z.beside = z.groups && leaves_idle(p, machine, tile, back);
	int64_t sides = z.beside ? 2 : 1;
	z.height = tile / sides;
	z.width = z.depth = LEAST;
	while (z.width < p->width)
		z.width *= 2;
	while (z.depth < p->depth)
		z.depth *= 2;
	z.depth = p->depth ? z.depth : 0;
	int64_t rows = z.height * (z.width + (back ? z.depth : 0));
	int64_t joined = z.beside ? z.height * (z.depth + (back ? z.width : JOINED)) * p->bytes : 0;
	int64_t room = z.groups ? shared_room(machine, RESIDENT) : SHARED;
	int64_t all = back ? MAX(p->queries, p->keys) : p->keys;
	for (z.columns = MOST * sides; z.columns >= LEAST * sides; z.columns /= 2) {
		z.stages = all > z.columns ? 2 : 1;
		z.stage = z.columns * (z.width + z.depth) * z.bytes;
		z.at[AB_WEIGHTS] = rows + z.stages * z.stage / z.bytes;
		z.shared = (z.at[AB_WEIGHTS] + (z.once ? z.height * z.columns : 0)) * z.bytes;
		z.shared = MAX(z.shared, joined);
		if (z.shared <= room)
			break;
	}
	z.launched = z.shared > SHARED;
	int64_t sums = (z.width + z.depth + 2 * LEAST) * tile / threads;
	bool fit = back ? sums <= (z.groups ? RESIDENT : 1) * ATTEND_SUMS : z.depth <= DEPTH;
	z.at[AB_GRADIENTS] = z.height * z.width;
	z.at[AB_COLUMNS] = rows;
	z.at[AB_VALUES] = z.at[AB_SUMMED] = rows + z.columns * z.width;
	if (z.once) // rows are lines of 64 for both kinds of instructions
		fit &= z.groups && !z.beside && p->keys <= tile && z.width == MATRIX_COLUMNS &&
		       z.columns >= MATRIX_ROWS;
	if (!fit || z.columns < LEAST * sides)
		z.shared = 0;
	return z;
}

AttendBlocks attend_blocks(const Graph *g, const Val *v, const Machine *machine, bool back)
{
	// Rows of the tile, which stay, and columns, whose blocks come one after the other.
	static const struct {
		int64_t height, columns;
	} sizes[] = {{64, 64}, {64, 32}, {32, 64}, {32, 32}, {32, 16}, {16, 16}};
	AttendSizes p = shapes_of(g, v, machine);
	Elem matrix = attend_matrix(g, v, machine);
	AttendBlocks z = {.matrix = matrix,
	                  .bytes = is_half(matrix) ? 2 : p.bytes,
	                  .both_ways = is_half(matrix) && !machine->exact};
	for (int once = back; once >= 0 && z.both_ways; once--) {
		z.once = once;
		AttendBlocks by_rows = share_by_rows(z, &p, machine, back);
		if (by_rows.shared)
			return by_rows;
	}
	z.once = false;
	z.width = tile_columns(matrix, p.width);
	z.depth = p.depth ? tile_columns(matrix, p.depth) : 0;
	for (int i = 0; i < COUNT(sizes) * 2; i++) {
		z.height = sizes[i / 2].height, z.columns = sizes[i / 2].columns;
		z.turns = i % 2;
		lay_out(&z, &p, back);
		int64_t sums =
		    z.height * (z.depth + (back ? 4 * z.columns + z.width : 2 * z.columns));
		bool tile = !matrix || (z.height >= 32 && z.columns >= 64);
		if (tile && z.shared <= SHARED &&
		    sums * p.bytes / 4 <= (matrix ? 2 : 1) * THREAD_SUMS * machine->threads)
			return z;
	}
	return (AttendBlocks){0};
}

Ref attention_of(const Graph *g, Ref out)
{
	const Val *v = val(g, out);
	return v->op == O_cast ? v->in[0] : out;
}

bool attend_computes(const Graph *g, const Kern *kern, bool keys)
{
	bool some = false;
	for (int o = 0; o < kern->nout; o++) {
		Op op = val(g, attention_of(g, kern->out[o]))->op;
		some |= op != O_attend_db && keys == (op == O_attend_dk || op == O_attend_dv);
	}
	return some;
}

// Returns how many tiles cover the scores of a head.
static int64_t head_tiles(const Val *v, const AttendBlocks *z)
{
	const int64_t *dim = v->shape.dim + v->shape.rank - 2;
	return ceil_div(dim[0], z->height) * ceil_div(dim[1], z->columns);
}

int64_t attend_head_tiles(const Graph *g, const Val *v, const Machine *machine)
{
	AttendBlocks z = attend_blocks(g, v, machine, true);
	return z.shared ? head_tiles(v, &z) : 1;
}

int64_t attend_bias_tiles(const Graph *g, const Kern *kern, const AttendBlocks *z, int o)
{
	const Val *v = val(g, kern->out[o]);
	Shape heads = shape_of(v->shape.rank - 2, v->shape.dim);
	return v->op == O_attend_db ? count_of(&heads) * head_tiles(v, z) : 0;
}

AttendWorkers attend_workers(const Graph *g, const Kern *kern, const Machine *machine)
{
	AttendSizes p = attend_sizes(g, kern, machine);
	AttendBlocks z = attend_blocks(g, val(g, kern->root), machine, p.back);
	bool keys = attend_computes(g, kern, true), others = attend_computes(g, kern, false);
	int64_t tiles = 0, queries = 0;
	if (others && !(keys && z.once))
		queries = p.batch * ceil_div(p.queries, z.height);
	for (int o = 0; o < kern->nout; o++)
		tiles += attend_bias_tiles(g, kern, &z, o);
	return (AttendWorkers){.keys = keys ? p.batch * ceil_div(p.keys, z.height) : 0,
	                       .queries = queries,
	                       .tiles = tiles,
	                       .together = z.beside || !queries};
}

// ---- all ------------------------------------------------------------------------------

bool attend_fits(const Graph *g, const Val *v, const Machine *machine, bool back)
{
	enum { SHORT = 16, WIDE = 256 };
	AttendSizes p = shapes_of(g, v, machine);
	bool blocks = machine->threads > 1, gradients = back || p.back;
	bool tile = machine->rows || (blocks && attend_blocks(g, v, machine, gradients).shared);
	return tile && (v->type == E_f32 || v->type == E_f64) && p.batch > 0 &&
	       p.queries >= SHORT && p.keys >= SHORT && p.width > 1 && p.width <= WIDE &&
	       (!blocks || p.keys < INT32_MAX / 2) && !(v->attr->i[0] && p.queries > p.keys) &&
	       p.depth <= WIDE && (v->op == O_attend_stats || p.depth > 1) &&
	       (!back || blocks || p.batch >= ATTENTION_WORKERS);
}

int64_t attend_half_line(const AttendSizes *p, int64_t columns)
{
	return (ceil_div(columns, p->panel) + 1) * p->panel; // other lines, other sets of the cache
}

// Sizes of what both kinds of tiles have: statistics and sums.
static void size_sums(AttendSizes *p, const Sched *s, const Machine *machine)
{
	int64_t *local = p->local, rows = s->strips * s->height;
	if (p->back) {
		int64_t keys = ceil_div(s->depth, s->key_height) * s->key_height;
		local[AT_DQ] = p->parts * rows * p->width_line;
		local[AT_DK] = keys * p->width_line;
		local[AT_DV] = keys * p->depth_line;
	} else {
		local[AT_SUMS] = rows * p->depth_line;
		local[AT_MOST] = local[AT_TOTAL] = s->strips * p->stat_line;
		local[AT_BASE] = local[AT_FADE] = p->stat_line;
		local[AT_LANES] = s->height * machine->lanes;
	}
}

static void size_vectors(AttendSizes *p, const Sched *s)
{
	int64_t *local = p->local, rows = s->strips * s->height;
	int64_t block = ceil_div(s->depth, p->panel) * p->panel;
	int64_t width = ceil_div(p->width, p->panel) * p->panel;
	int64_t depth = ceil_div(p->depth, p->panel) * p->panel;
	local[AT_KEYS] = block * (p->width + 1);
	local[AT_QUERIES] = (p->back ? rows : s->height) * p->width_line;
	local[AT_SCORES] = (p->back ? rows : s->height) * p->score_line;
	local[AT_VALUES] = p->back ? block * (p->depth + 1) : depth * (s->depth + 1);
	if (p->back) {
		local[AT_KEY_ROWS] = width * (s->depth + 1);
		local[AT_SLOPES] = local[AT_SCORES];
		local[AT_GRADIENTS] = rows * p->depth_line;
	}
}

// Elements are those of scores, as are pairs of bf16. The operands of products have all slices.
static void size_halves(AttendSizes *p, const Sched *s)
{
	int64_t *local = p->local, rows = s->strips * s->height;
	int64_t width = ceil_div(p->width, p->panel) * p->panel;
	int64_t depth = ceil_div(p->depth, p->panel) * p->panel;
	int64_t strip = s->height * attend_half_line(p, s->depth) / 2;
	int64_t keys = ceil_div(s->depth, s->key_height) * s->key_height;
	local[AT_KEYS] = s->depth * (width / 2 + 1);
	local[AT_QUERIES] = (p->back ? rows : s->height) * attend_half_line(p, width) / 2;
	local[AT_VALUES] = p->back ? s->depth * (depth / 2 + 1) : depth * (s->depth / 2 + 1);
	local[AT_WEIGHT_ROWS] = strip;
	if (p->back) {
		local[AT_SLOPE_ROWS] = strip;
		local[AT_KEY_WEIGHTS] = keys * attend_half_line(p, rows) / 2;
		local[AT_KEY_SLOPES] = local[AT_KEY_WEIGHTS];
		local[AT_KEY_ROWS] = width * (s->depth / 2 + 1);
		local[AT_GRADIENTS] = rows * attend_half_line(p, depth) / 2;
		int64_t line = ceil_div(rows, p->panel) * p->panel / 2 + 1;
		local[AT_QUERY_PAIRS] = width * line;
		local[AT_GRADIENT_PAIRS] = depth * line;
	}
	for (int k = 0; k < AT_PARTS; k++)
		local[k] *= p->slices;
	local[AT_SCORES] = s->height * p->score_line;
	local[AT_SLOPES] = p->back ? local[AT_SCORES] : 0;
}

// Returns how many adjacent heads along each leading axis are a worker's: those that any gradient
// of a bias adds up.
static Shape heads_added(const Graph *g, const Kern *kern, const Shape *lead)
{
	Shape added = {.rank = lead->rank};
	for (int a = 0; a < lead->rank; a++) {
		int64_t parts = lead->dim[a];
		for (int o = 0; o < kern->nout; o++) {
			const Val *v = val(g, kern->out[o]);
			if (v->op == O_attend_db)
				parts = common_divisor(parts, v->shape.dim[a]);
		}
		added.dim[a] = lead->dim[a] / parts;
	}
	return added;
}

AttendSizes attend_sizes(const Graph *g, const Kern *kern, const Machine *machine)
{
	const Sched *s = kern->sched;
	AttendSizes p = shapes_of(g, val(g, kern->root), machine);
	p.panel = s->vectors * p.lanes;
	p.added = heads_added(g, kern, &p.lead);
	if (!s->depth) // not yet, or by blocks of threads
		return p;
	p.blocks = ceil_div(p.keys, s->depth);
	p.strips = ceil_div(p.queries, s->height);
	p.lower = p.halves ? 0 : p.strips * s->height - p.queries;
	p.parts = ceil_div(p.strips, s->strips);
	// A row of scores ends in space for the tile that takes its columns for rows.
	p.score_line = ceil_div(s->depth, p.panel) * p.panel + 2 * machine->lanes;
	p.width_line = ceil_div(p.width, p.panel) * p.panel + machine->lanes;
	p.depth_line = ceil_div(p.depth, p.panel) * p.panel + machine->lanes;
	p.stat_line = ceil_div(s->height, machine->lanes) * machine->lanes;
	if (p.halves)
		size_halves(&p, s);
	else
		size_vectors(&p, s);
	size_sums(&p, s, machine);
	for (int k = 0; k < AT_PARTS; k++)
		p.local_bytes += full_lines(p.local[k] * p.bytes);
	return p;
}

static bool is_in_both(const Val *a, int from_a, const Val *b, int from_b)
{
	bool some = a->nin > from_a;
	return some == (b->nin > from_b) && (!some || a->in[from_a] == b->in[from_b]);
}

bool same_attention(const Val *a, const Val *b)
{
	int n = attention_bias(a->op), m = attention_bias(b->op), given = MIN(n, m);
	bool same = (a->op >= O_attend_dq) == (b->op >= O_attend_dq) && a->attr->x == b->attr->x &&
	            a->attr->i[0] == b->attr->i[0] && a->attr->i[1] == b->attr->i[1];
	for (int k = 0; same && k < given; k++)
		same = a->in[k] == b->in[k];
	bool stats = a->op == O_attend_stats || b->op == O_attend_stats; // without the factor
	for (int k = 0; same && k < 3 - stats; k++)
		same = is_in_both(a, n + k, b, m + k);
	return same;
}
