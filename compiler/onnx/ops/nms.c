// nms.c: lowers NonMaxSuppression.
// Takes the node being lowered. Gives as many boxes as there can be, and their count. Keeps: a
// loop whose trips each take the best box of each class of each image; it ends when none is left.
#include "ops.h"
#include <math.h>

typedef struct Boxes { // f32[images, 1, n]
	Ref low[2], high[2];
} Boxes;

static Boxes read_boxes(Call *c)
{
	Graph *g = c->g;
	Boxes b;
	Ref x[4], all = put_all_padded(g, fixed_operand(c, 0));
	bool centred = attr_int(c, "center_point_box", 0);
	for (int k = 0; k < 4; k++)
		x[k] = put_permute(g, take_range(g, all, 2, k, 1), (int64_t[]){0, 2, 1});
	for (int a = 0; a < 2; a++) {
		Ref ends[2] = {x[a], x[a + 2]};
		if (centred) {
			Ref half = scaled(g, x[a + 2], 0.5);
			ends[0] = put2(g, O_sub, x[a], half);
			ends[1] = put2(g, O_add, x[a], half);
		}
		b.low[a] = put2(g, O_min, ends[0], ends[1]);
		b.high[a] = put2(g, O_max, ends[0], ends[1]);
	}
	return b;
}

// Those of box `at`, [images, classes, 1].
static Ref chosen(Graph *g, Ref hit, Ref x)
{
	int64_t axis = 2;
	return put_reduce(g, O_sum, put3(g, O_select, hit, x, num_like(g, x, 0)), 1, &axis);
}

static Ref number_or(Call *c, int k, double otherwise)
{
	if (k >= c->nin || c->arg[k].absent)
		return put_num(c->g, E_f32, otherwise);
	return put_reshape(c->g, fixed_operand(c, k), (Shape){0});
}

// [rounds, images, classes, 1] as [images, classes, rounds]
static Ref rounds_last(Graph *g, Ref x)
{
	return drop_axes(g, put_permute(g, x, (int64_t[]){1, 2, 0, 3}), 1, &(int64_t){3});
}

// One round: the best box of each class of each image, and what is left of the scores without it
// and those that overlap it by more than `most`. found: whether there was one.
static Ref best_box(Graph *g, const Boxes *b, Ref most, Ref *scores, Ref *found)
{
	int64_t axis = 2, dims[] = {1, 1, val(g, *scores)->shape.dim[2]};
	Ref none = put_num(g, E_f32, -INFINITY), in[8];
	Ref at = put_reduce(g, O_argmax, *scores, 1, &axis);
	*found = put2(g, O_lt, none, put_reduce(g, O_amax, *scores, 1, &axis));
	Ref hit = put2(g, O_eq, put_iota(g, shape_of(3, dims), 2), at);
	for (int a = 0; a < 2; a++) {
		in[4 * a] = b->low[a];
		in[4 * a + 1] = b->high[a];
		in[4 * a + 2] = chosen(g, hit, b->low[a]);
		in[4 * a + 3] = chosen(g, hit, b->high[a]);
	}
	Ref overlap = book_call1(g, "overlap", 8, in, 0, NULL);
	Ref gone = put2(g, O_or, hit, put2(g, O_lt, most, overlap));
	*scores = put3(g, O_select, gone, none, *scores);
	return at;
}

// All rounds. scores: f32[images, classes, n], -inf: not there. Gives which box each round takes,
// and whether there was one, [images, classes, rounds].
static Ref choose_boxes(Call *c, Ref scores, Ref limit, int64_t rounds, Ref *found)
{
	Reader *r = c->r;
	Boxes b = read_boxes(c);
	Ref most = number_or(c, 3, 0), part[3];
	LoopScope nest, *home = r->nest;
	open_nest(r, &nest);
	Ref left = nest_slot(r, &nest, scores, false), one;
	for (int a = 0; a < 2; a++) {
		b.low[a] = bring_in(r, b.low[a], home);
		b.high[a] = bring_in(r, b.high[a], home);
	}
	Ref at = best_box(nest.body, &b, bring_in(r, most, home), &left, &one);
	int64_t all[] = {0, 1, 2};
	Ref any = put_reduce(nest.body, O_amax, put_cast(nest.body, one, E_i32), 3, all);
	add_out(nest.body, "on",
	        put_cast(nest.body, put_reshape(nest.body, any, (Shape){0}), E_b8));
	add_out(nest.body, "left", left);
	add_out(nest.body, "at", at);
	add_out(nest.body, "found", one);
	close_nest(r, &nest);
	LoopInfo cycle = {.trips = rounds, .carried = 1, .until = true};
	put_loop_info(r, &cycle, &nest, limit, part);
	*found = rounds_last(c->g, part[2]);
	return rounds_last(c->g, part[1]);
}

// How many rounds there are at most.
static Ref rounds_of(Call *c, int64_t n)
{
	Ref none = put_i64(c->g, 0);
	if (c->nin < 3 || c->arg[2].absent)
		return none;
	Ref most = put_cast(c->g, put_reshape(c->g, fixed_operand(c, 2), (Shape){0}), E_i64);
	return larger_of(c->g, smaller_of(c->g, most, put_i64(c->g, n)), none);
}

// The scores, -inf for boxes that are not there, or score too little.
static Ref scores_there(Call *c)
{
	Graph *g = c->g;
	Ref scores = fixed_operand(c, 1), none = num_like(g, scores, -INFINITY);
	Lengths l = *lengths_of(g, scores), of_boxes = *lengths_of(g, fixed_operand(c, 0));
	l.of[0] = l.of[0] ? l.of[0] : of_boxes.of[0];
	l.of[2] = l.of[2] ? l.of[2] : of_boxes.of[1];
	scores = put_all_filled(g, put_lengths(g, scores, &l), -INFINITY);
	if (c->nin < 5 || c->arg[4].absent)
		return scores;
	return put3(g, O_select, put2(g, O_lt, number_or(c, 4, 0), scores), scores, none);
}

void lower_nms(Call *c)
{
	Graph *g = c->g;
	Shape boxes = in_val(c, 0)->shape, s = in_val(c, 1)->shape;
	if (boxes.rank != 3 || boxes.dim[2] != 4 || s.rank != 3 || s.dim[0] != boxes.dim[0] ||
	    s.dim[2] != boxes.dim[1])
		invalid_node(c, "wants boxes [images, n, 4] and scores [images, classes, n]");
	Ref found, limit = rounds_of(c, s.dim[2]);
	int64_t rounds = extent_of(c, limit, "how many boxes it gives").most;
	if (!rounds || !count_of(&s)) {
		c->out[0] = put_const(g, E_i64, shape_of(2, (int64_t[]){0, 3}), "");
		return;
	}
	Ref at = choose_boxes(c, scores_there(c), limit, rounds, &found);
	Ref place = places_where(g, flat(g, found)), column[3];
	column[0] = put2(g, O_div, place, put_i64(g, s.dim[1] * rounds));
	column[1] = put2(g, O_div, place, put_i64(g, rounds));
	column[1] = put2(g, O_mod, column[1], put_i64(g, s.dim[1]));
	column[2] = put_gather(g, flat(g, at), place, 0);
	for (int k = 0; k < 3; k++)
		column[k] = insert_axis(g, column[k], 1);
	c->out[0] = put_concat(g, 1, 3, column);
}
