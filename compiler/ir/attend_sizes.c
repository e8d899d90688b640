// attend_sizes.c: sizes that follow from the schedule of attention: blocks, strips, local memory.
#include "plan.h"

static AttendSizes shapes_of(const Graph *g, const Val *v, const Machine *machine)
{
	const Shape *q = &val(g, v->in[0])->shape, *k = &val(g, v->in[1])->shape;
	int r = v->shape.rank;
	AttendSizes p = {.lead = shape_of(r - 2, v->shape.dim), .back = v->op >= O_attend_dq};
	p.batch = count_of(&p.lead);
	p.queries = q->dim[r - 2];
	p.keys = k->dim[r - 2];
	p.width = q->dim[r - 1];
	p.depth = v->op == O_attend_stats ? 0 : last_dim(&val(g, v->in[2])->shape);
	p.bytes = elems[v->type].bytes;
	p.lanes = (int)MAX(1, machine->lanes * 4 / p.bytes);
	return p;
}

bool attend_fits(const Graph *g, const Val *v, const Machine *machine, bool back)
{
	enum { SHORT = 16, WIDE = 256, SEVERAL = 4 };
	AttendSizes p = shapes_of(g, v, machine);
	return machine->rows && (v->type == E_f32 || v->type == E_f64) && p.batch > 0 &&
	       p.queries >= SHORT && p.keys >= SHORT && p.width > 1 && p.width <= WIDE &&
	       !(v->attr->i[0] && p.queries > p.keys) && p.depth <= WIDE &&
	       (v->op == O_attend_stats || p.depth > 1) && (!back || p.batch >= SEVERAL);
}

AttendSizes attend_sizes(const Graph *g, const Kern *kern, const Machine *machine)
{
	const Sched *s = kern->sched;
	AttendSizes p = shapes_of(g, val(g, kern->root), machine);
	p.panel = s->vectors * p.lanes;
	if (!s->depth)
		return p;
	p.blocks = ceil_div(p.keys, s->depth);
	p.strips = ceil_div(p.queries, s->height);
	p.parts = ceil_div(p.strips, s->strips);
	// A row of scores ends in space for the tile that takes its columns for rows.
	p.score_line = ceil_div(s->depth, p.panel) * p.panel + 2 * machine->lanes;
	p.width_line = ceil_div(p.width, p.panel) * p.panel + machine->lanes;
	p.depth_line = ceil_div(p.depth, p.panel) * p.panel + machine->lanes;
	p.stat_line = ceil_div(s->height, machine->lanes) * machine->lanes;
	int64_t rows = s->strips * s->height, block = ceil_div(s->depth, p.panel) * p.panel;
	int64_t width = ceil_div(p.width, p.panel) * p.panel;
	int64_t depth = ceil_div(p.depth, p.panel) * p.panel;
	int64_t *local = p.local;
	local[AT_KEYS] = block * (p.width + 1);
	local[AT_QUERIES] = (p.back ? rows : s->height) * p.width_line;
	local[AT_SCORES] = (p.back ? rows : s->height) * p.score_line;
	if (p.back) {
		int64_t keys = ceil_div(s->depth, s->key_height) * s->key_height;
		local[AT_VALUES] = block * (p.depth + 1);
		local[AT_KEY_ROWS] = width * (s->depth + 1);
		local[AT_SLOPES] = local[AT_SCORES];
		local[AT_GRADIENTS] = rows * p.depth_line;
		local[AT_DQ] = p.parts * rows * p.width_line;
		local[AT_DK] = keys * p.width_line;
		local[AT_DV] = keys * p.depth_line;
	} else {
		local[AT_VALUES] = depth * (s->depth + 1);
		local[AT_SUMS] = rows * p.depth_line;
		local[AT_MOST] = local[AT_TOTAL] = s->strips * p.stat_line;
		local[AT_BASE] = local[AT_FADE] = p.stat_line;
		local[AT_LANES] = s->height * machine->lanes;
	}
	for (int k = 0; k < AT_PARTS; k++)
		p.local_bytes += full_lines(local[k] * p.bytes);
	return p;
}

bool same_attention(const Val *a, const Val *b)
{
	int n = attention_bias(a->op), m = attention_bias(b->op), given = MIN(n, m);
	bool same = (a->op >= O_attend_dq) == (b->op >= O_attend_dq) && a->nin - n == b->nin - m &&
	            a->attr->x == b->attr->x && a->attr->i[0] == b->attr->i[0] &&
	            a->attr->i[1] == b->attr->i[1];
	for (int k = 0; same && k < given; k++)
		same = a->in[k] == b->in[k];
	for (int k = 0; same && k < a->nin - n; k++)
		same = a->in[n + k] == b->in[m + k];
	return same;
}
