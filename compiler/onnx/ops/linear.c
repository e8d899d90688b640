// linear.c: lowers LinearRegressor and LinearClassifier, whose weights are attributes.
#include "ops.h"
#include <string.h>

// Returns the input as rows of f32 or f64, as weights are; one line is one row.
static Ref rows(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	if (s.rank != 1 && s.rank != 2)
		invalid_node(c, "the input has rank %d; expected rows of features", s.rank);
	Ref x = put_cast(g, c->in[0], number_type(g, elems[E_f32].onnx));
	return s.rank == 2 ? x : put_reshape(g, x, shape_of(2, (int64_t[]){1, s.dim[0]}));
}

// Returns x w^T + b [rows, targets].
static Ref scores(Call *c, Ref x, int64_t targets)
{
	Graph *g = c->g;
	int64_t features = val(g, x)->shape.dim[1];
	Ref w = attribute_weight(c, "coefficients", shape_of(2, (int64_t[]){targets, features}));
	Ref y = put2(g, O_dot, x, swap_last(g, w));
	const AttributeProto *b = find_attr(c, "intercepts");
	if (!b || !b->n_floats)
		return y;
	Ref bias = attribute_weight(c, "intercepts", shape_of(1, &targets));
	return put2(g, O_add, y, put_reshape(g, bias, shape_of(2, (int64_t[]){1, targets})));
}

static Ref transformed(Call *c, Ref y)
{
	static const struct {
		const char *name, *def; // of the book
	} known[] = {{"NONE", NULL},
	             {"LOGISTIC", "Sigmoid"},
	             {"SOFTMAX", "softmax_of_rows"},
	             {"SOFTMAX_ZERO", "softmax_without_zeros"}};
	const char *name = attr_string(c, "post_transform", "NONE");
	for (int i = 0; i < COUNT(known); i++)
		if (!strcmp(name, known[i].name))
			return known[i].def ? book_call1(c->g, known[i].def, 1, &y, 0, NULL) : y;
	invalid_node(c, "post_transform %s; expected NONE, LOGISTIC, SOFTMAX or SOFTMAX_ZERO",
	             name);
}

void lower_linear_regressor(Call *c)
{
	c->out[0] = transformed(c, scores(c, rows(c), attr_int(c, "targets", 1)));
}

// Returns how many scores the coefficients give: one may stand for two classes.
static int64_t scores_of(Call *c, Ref x, int64_t classes)
{
	const AttributeProto *w = find_attr(c, "coefficients");
	bool one = classes == 2 && w && (int64_t)w->n_floats == val(c->g, x)->shape.dim[1];
	return one ? 1 : classes;
}

// Returns which class each row has: that of the largest score, or the second one if its only score
// is positive.
static Ref places(Graph *g, Ref y, int64_t targets)
{
	int64_t last = 1;
	Ref at = targets > 1 ? put_reduce(g, O_argmax, y, 1, &last)
	                     : put_cast(g, put2(g, O_lt, put_num(g, val(g, y)->type, 0), y), E_i64);
	return drop_axes(g, at, 1, &last);
}

// Returns the scores of two classes from the score of the second one, as ONNX Runtime has them.
static Ref two_scores(Call *c, Ref y)
{
	bool logistic = !strcmp(attr_string(c, "post_transform", "NONE"), "LOGISTIC");
	if (!logistic)
		transformed(c, y); // or refused
	return book_call1(c->g, logistic ? "logistic_pair" : "linear_pair", 1, &y, 0, NULL);
}

// The label is a class; one that is text is left out.
void lower_linear_classifier(Call *c)
{
	Graph *g = c->g;
	const AttributeProto *words = find_attr(c, "classlabels_strings");
	int count = 0;
	const int64_t *labels = attr_ints(c, "classlabels_ints", &count);
	int64_t classes = labels ? count : words ? (int64_t)words->n_strings : 0;
	if (!classes)
		invalid_node(c, "expected classlabels_ints or classlabels_strings");
	Ref x = rows(c);
	int64_t targets = scores_of(c, x, classes);
	Ref y = scores(c, x, targets);
	if (labels)
		c->out[0] = put_gather(g, put_ints(g, count, labels), places(g, y, targets), 0);
	else
		c->value[0].bad = true;
	c->out[1] = targets < classes ? two_scores(c, y) : transformed(c, y);
}
