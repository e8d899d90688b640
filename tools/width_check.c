// width_check.c: implements amosc eta --for mup --check, the coordinate check of muP.
// Trains the network in several widths for a few steps of Adam on random data, with the multipliers
// and without, and measures how far each kernel's output moves: with correct multipliers the same
// in every width. Parameters begin at their eta: with the multipliers at that of the base model,
// times theirs, but output layers at 0, since the random part of what they pass on falls with the
// width. Method: Tensor Programs V (arXiv 2203.03466), its coordinate check.
// Invariant: all is a function of the seed.
#include "report.h"
#include <math.h>
#include <string.h>

enum { STEPS = 4, DRAWS = 4 };
static const double rate = 0x1p-7, beta1 = 0.9, beta2 = 0.99; // of Adam, at the base width
static const double bound = 0.25; // largest exponent of a power of the width that counts as none

typedef struct Moved { // a kernel's output
	const char *node;
	double *change[2]; // root mean square by width: without the multipliers, with them
	double slope[2];   // exponent of the width, by which the change grows
	bool flat[2];
	bool tied; // by a table, which cannot begin at 0
} Moved;

typedef struct Check {
	Session *session;
	Arena *arena;
	int models;
	const char **paths; // the base model, then others
	double *widths;     // relative to the base model
	const Graph *base;
	const Eta *base_eta;
	VEC(Moved) moved;     // in the order of the base model
	bool scores;          // of attention could not be scaled
	const json_t *widest; // policy of the last model
} Check;

// ---- the network with multipliers in its forward pass ------------------------------------

typedef struct Factors {
	const Graph *g;
	double *at;    // by Ref: factor of a kernel's output; 0: none
	double scores; // of attention
	bool *attends; // set if there is any
} Factors;

static Ref put_factor(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Factors *f = context;
	Attr attr = attr_copy(v);
	double factor = f->at[ref_of(f->g, v)];
	if (v->op == O_attend) {
		*f->attends = true;
		attr.x *= f->scores;
		return put(to, O_attend, v->nin, in, &attr);
	}
	Ref r = put_as(to, v, in);
	if (factor == 0 || factor == 1)
		return r;
	return put2(to, O_mul, r, put_rank(to, put_num(to, v->type, factor), v->shape.rank));
}

// Puts the graph with the factors, and every probe as an output: `probe:` and its number.
static Graph *with_factors(Arena *arena, const Graph *g, Factors *f, const Ref *probes, int n)
{
	Graph *to = graph_like(arena, g);
	Ref *now = NEWS(arena, Ref, g->nval);
	copy_graph(to, g, now, put_factor, f);
	for (int i = 0; i < n; i++)
		add_out(to, format(arena, "probe:%d", i), now[probes[i]]);
	return to;
}

// Returns the graph with a loss, that of the options or the sum of outputs times random numbers,
// and its gradients.
static Graph *with_gradients(Arena *arena, Graph *g)
{
	Shape *given = NEWS(arena, Shape, g->outs.count + 1);
	bool *want = NEWS(arena, bool, g->slots.count + 1);
	for (int i = 0; i < g->outs.count; i++) {
		const Val *v = val(g, g->outs.at[i].val);
		bool own = is_float(v->type) && !starts_with(g->outs.at[i].name, "probe:") &&
		           is_own_out(g->outs.at[i].name);
		given[i] = own ? v->shape : (Shape){.rank = -1};
	}
	Graph *loss = find_output(g, "loss") ? g : cotangent_pass(arena, g, given);
	for (int i = 0; i < loss->slots.count; i++)
		want[i] = loss->slots.at[i].kind == S_param;
	return grad_pass(arena, loss, want, NULL);
}

// ---- one training --------------------------------------------------------------------------

typedef struct Trained { // a parameter in training
	float *x;
	int64_t count;
	double *m, *v;
	double rate;
	int64_t gradient; // index of the output
} Trained;

static void step_adam(const struct amos *open, const struct amos_entry *entry, Trained *p, int step)
{
	const float *g = amos_out_bytes(open, entry, p->gradient);
	for (int64_t i = 0; i < p->count; i++) {
		p->m[i] += (1 - beta1) * (g[i] - p->m[i]);
		p->v[i] += (1 - beta2) * ((double)g[i] * g[i] - p->v[i]);
		double root = sqrt(p->v[i] / (1 - pow(beta2, step)));
		if (root > 0)
			p->x[i] -= (float)(p->rate * p->m[i] / (1 - pow(beta1, step)) / root);
	}
}

// Returns the number of elements of an output.
static int64_t elements(const struct amos_out *out)
{
	Shape shape = shape_of((int)out->rank, out->dim);
	return count_of(&shape);
}

// Adds to squares[i] the mean square by which probe i moved.
static void train(Check *c, const Graph *g, const Eta *start, const double *rates, int probes,
                  double *squares, uint64_t draw)
{
	Arena *arena = arena_new();
	Program *program = program_of(c->session, graph_live(c->arena, g), "check");
	struct amos *open = open_program(program);
	const struct amos_entry *entry = &open->model->entries[0];
	Trained *trained = NEWS(arena, Trained, g->slots.count + 1);
	float **before = NEWS(arena, float *, probes + 1);
	uint64_t seed = (uint64_t)choice_count(c->session, OPT_seed, 0);
	int n = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		Draw d = {.seed = seed, .step = draw, .site = (uint64_t)i};
		if (s->kind == S_input)
			draw_input(g, NULL, i, &d, amos_slot_bytes(open, i));
		if (s->kind != S_param)
			continue;
		int64_t count = count_of(&s->shape);
		Trained *p = &trained[n++];
		*p = (Trained){.x = amos_slot_bytes(open, i),
		               .count = count,
		               .m = NEWS(arena, double, count),
		               .v = NEWS(arena, double, count),
		               .rate = rates[i],
		               .gradient =
		                   amos_find_output(entry, format(arena, GRAD_OF "%s", s->name))};
		if (p->gradient < 0)
			bug("no gradient of %s", s->name);
		draw_parameter(s, &start[i], &d, p->x);
	}
	for (int step = 0; step <= STEPS; step++) {
		need_done(amos_call(open, entry, NULL, NULL));
		for (int k = 0; k < n && step < STEPS; k++)
			step_adam(open, entry, &trained[k], step + 1);
		for (int i = 0; i < probes; i++) {
			int64_t out = amos_find_output(entry, format(arena, "probe:%d", i)),
			        count = elements(&entry->outs[out]);
			const float *x = amos_out_bytes(open, entry, out);
			if (!step)
				before[i] = take_copy(arena, x, sizeof *x * (size_t)MAX(count, 1));
			for (int64_t e = 0; e < count && step == STEPS; e++)
				squares[i] += pow((double)x[e] - before[i][e], 2) / (double)count;
		}
	}
	arena_free(arena);
}

// ---- one width -----------------------------------------------------------------------------

static double number_at(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

// Returns where the output of a parameter's kernel is; 0: it is no kernel.
static Ref output_of(const Eta *eta)
{
	const Structure *of = eta->structure;
	return of && of->contracted ? of->at : 0;
}

static const Graph *read_width(Check *c, int model)
{
	Session *session = c->session;
	session->path = c->paths[model];
	session->file = NULL;
	session->drawn = true;
	return eta_graph(c->arena, with_loss(session, read_standing(session, NULL, false)->graph));
}

typedef struct Width { // a model, as it is trained with the multipliers or without
	const Graph *g;
	Factors factors;
	Eta *start;    // by slot
	double *rates; // by slot
} Width;

// Finds the probe that is the output of a parameter's kernel.
static void find_probe(Check *c, const Graph *g, Ref output, const json_t *row, Ref *probes)
{
	for (int k = 0; k < c->moved.count && output; k++) {
		Moved *m = &c->moved.at[k];
		if (strcmp(m->node, value_label(c->arena, g, output)))
			continue;
		probes[k] = output;
		m->tied |= !strcmp(text_at(row, "group"), "tied");
	}
}

// Sets how a parameter starts and is trained without multipliers.
static void set_plain(Width *w, int slot)
{
	w->rates[slot] = rate;
	w->start[slot].nparts = 0;
	if (strstr(w->start[slot].role, "bias"))
		w->start[slot].eta = surd_number(0);
}

// The same with those of its row.
static void set_multiplied(Check *c, Width *w, int slot, Ref output, const json_t *row)
{
	const char *name = w->g->slots.at[slot].name;
	bool zero = strstr(w->start[slot].role, "bias") ||
	            !strcmp(text_at(row_named(c->widest, name), "group"), "output");
	Surd base = c->base_eta[find_slot(c->base, name)].eta;
	w->rates[slot] = rate * number_at(row, "adam");
	w->start[slot].nparts = 0;
	w->start[slot].eta =
	    zero ? surd_number(0) : surd_mul(base, surd_number(number_at(row, "init")));
	if (output)
		w->factors.at[output] = number_at(row, "output");
	if (json_is_number(json_object_get(row, "scores")))
		w->factors.scores = number_at(row, "scores");
}

static void measure_width(Check *c, int model, const json_t *policy)
{
	Arena *arena = c->arena;
	const Graph *g = read_width(c, model);
	const Eta *eta = etas(c->session, g, NULL, NULL);
	bool attends = false;
	Ref *probes = NEWS(arena, Ref, c->moved.count + 1);
	for (int with = 0; with < 2; with++) {
		Width w = {.g = g,
		           .factors = {.g = g,
		                       .at = NEWS(arena, double, g->nval),
		                       .scores = 1,
		                       .attends = &attends},
		           .start = take_copy(arena, eta, sizeof *eta * (size_t)g->slots.count),
		           .rates = NEWS(arena, double, g->slots.count + 1)};
		for (int i = 0; i < g->slots.count; i++) {
			const Slot *s = &g->slots.at[i];
			if (s->kind != S_param)
				continue;
			const json_t *row = row_named(policy, s->name);
			Ref output = output_of(&eta[i]);
			find_probe(c, g, output, row, probes);
			c->widths[model] = fmax(c->widths[model], number_at(row, "width"));
			if (with)
				set_multiplied(c, &w, i, output, row);
			else
				set_plain(&w, i);
		}
		Graph *full = with_gradients(
		    arena, with_factors(arena, g, &w.factors, probes, c->moved.count));
		double *squares = NEWS(arena, double, c->moved.count + 1);
		for (uint64_t draw = 0; draw < DRAWS; draw++)
			train(c, full, w.start, w.rates, c->moved.count, squares, draw);
		for (int k = 0; k < c->moved.count; k++)
			c->moved.at[k].change[with][model] = sqrt(squares[k] / DRAWS);
		c->scores |= with && w.factors.scores != 1 && !attends;
	}
}

// Returns the slope of log change over log width, by least squares.
static double slope_of(const Check *c, const double *change)
{
	double x = 0, y = 0, xx = 0, xy = 0;
	for (int i = 0; i < c->models; i++) {
		double a = log(c->widths[i]), b = log(fmax(change[i], 1e-30));
		x += a, y += b, xx += a * a, xy += a * b;
	}
	double n = c->models;
	return (n * xy - x * y) / (n * xx - x * x);
}

// ---- results -------------------------------------------------------------------------------

static void print_widths(const Check *c)
{
	int longest = 0, flat[2] = {0};
	bool tied = false;
	for (int k = 0; k < c->moved.count; k++)
		longest = MAX(longest, (int)strlen(c->moved.at[k].node));
	printf("%-*s", longest, "");
	for (int i = 0; i < c->models; i++)
		printf("  %8.4gx", c->widths[i]);
	printf("  exponent  without\n");
	for (int k = 0; k < c->moved.count; k++) {
		const Moved *m = &c->moved.at[k];
		printf("%-*s", longest, m->node);
		for (int i = 0; i < c->models; i++)
			printf("  %9.3g", m->change[1][i]);
		printf("  %+8.2f  %+7.2f\n", m->slope[1], m->slope[0]);
		flat[0] += m->flat[0];
		flat[1] += m->flat[1];
		tied |= m->tied && m->slope[1] < -bound;
	}
	printf("%d of %d outputs move the same in every width with the multipliers, %d without "
	       "(exponents within %g)\n",
	       flat[1], c->moved.count, flat[0], bound);
	if (tied)
		printf("The random part of what a table tied to the readout passes on falls with "
		       "the width.\n");
	if (c->scores)
		printf("Attention is not recognized: its scores are not scaled.\n");
}

static json_t *widths_json(const Check *c)
{
	json_t *list = json_array(), *widths = json_array(), *models = json_array();
	for (int i = 0; i < c->models; i++) {
		json_array_append_new(widths, number_json(c->widths[i]));
		json_array_append_new(models, json_text(c->paths[i]));
	}
	for (int k = 0; k < c->moved.count; k++) {
		const Moved *m = &c->moved.at[k];
		json_t *change[2] = {json_array(), json_array()};
		for (int i = 0; i < c->models; i++)
			for (int with = 0; with < 2; with++)
				json_array_append_new(change[with],
				                      number_json(m->change[with][i]));
		json_array_append_new(
		    list, json_pack("{ss so so sb so so sb}", "node", m->node, "with", change[1],
		                    "exponent", number_json(m->slope[1]), "flat", (int)m->flat[1],
		                    "without", change[0], "exponent_without",
		                    number_json(m->slope[0]), "flat_without", (int)m->flat[0]));
	}
	return json_pack("{so so sf so}", "models", models, "widths", widths, "bound", bound,
	                 "outputs", list);
}

enum { PANEL = 360, HEIGHT = 300, MARGIN = 56 }; // of the picture

// Prints one panel: change over width, both logarithmic, a line per output.
static void print_panel(const Check *c, int with, double low, double high)
{
	int left = MARGIN + !!with * (PANEL + MARGIN);
	double widest = log(c->widths[c->models - 1]);
	printf("<text x=\"%d\" y=\"24\" font-weight=\"600\">%s muP</text>\n", left,
	       with ? "with" : "without");
	printf("<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
	       "stroke=\"#aab\"/>\n",
	       left, 36, PANEL, HEIGHT);
	for (double decade = ceil(log10(low)); decade <= log10(high); decade++) {
		double y = 36 + HEIGHT * (1 - (decade * log(10) - log(low)) / log(high / low));
		printf("<path d=\"M%d %.1fh%d\" stroke=\"#dde\"/><text x=\"%d\" y=\"%.1f\" "
		       "text-anchor=\"end\">%g</text>\n",
		       left, y, PANEL, left - 6, y + 4, pow(10, decade));
	}
	for (int i = 0; i < c->models; i++)
		printf("<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%gx</text>\n",
		       left + PANEL * log(c->widths[i]) / widest, 36 + HEIGHT + 18, c->widths[i]);
	for (int k = 0; k < c->moved.count; k++) {
		const Moved *m = &c->moved.at[k];
		printf("<polyline fill=\"none\" stroke=\"hsl(%d 60%% 45%%)\" "
		       "stroke-width=\"1.5\" points=\"",
		       360 * k / c->moved.count);
		for (int i = 0; i < c->models; i++)
			printf("%s%.1f,%.1f", i ? " " : "",
			       left + PANEL * log(c->widths[i]) / widest,
			       36 + HEIGHT * (1 - log(fmax(m->change[with][i], low) / low) /
			                              log(high / low)));
		printf("\"><title>");
		for (const char *t = m->node; *t; t++)
			printf(*t == '<' ? "&lt;" : *t == '&' ? "&amp;" : "%c", *t);
		printf(": %+.2f</title></polyline>\n", m->slope[with]);
	}
}

static void print_svg(const Check *c)
{
	double low = INFINITY, high = 0;
	for (int k = 0; k < c->moved.count; k++)
		for (int i = 0; i < 2 * c->models; i++) {
			double x = c->moved.at[k].change[i % 2][i / 2];
			low = x > 0 ? fmin(low, x) : low;
			high = fmax(high, x);
		}
	if (high <= low)
		low = high / 2;
	printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
	       "font-family=\"sans-serif\" font-size=\"12\" fill=\"#223\">\n"
	       "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
	       2 * PANEL + 3 * MARGIN, HEIGHT + 96);
	print_panel(c, 0, low, high);
	print_panel(c, 1, low, high);
	printf("<text x=\"%d\" y=\"%d\">how far each kernel's output moves in %d steps of Adam, "
	       "by width</text>\n</svg>\n",
	       MARGIN, HEIGHT + 80, STEPS);
}

// ---- the check -----------------------------------------------------------------------------

static void find_outputs(Check *c)
{
	c->base = read_width(c, 0);
	c->base_eta = etas(c->session, c->base, NULL, NULL);
	Table *found = table_new(c->arena);
	for (Ref r = 1; r < (Ref)c->base->nval; r++)
		for (int i = 0; i < c->base->slots.count; i++) {
			bool own =
			    c->base->slots.at[i].kind == S_param && output_of(&c->base_eta[i]) == r;
			const char *node = own ? value_label(c->arena, c->base, r) : NULL;
			if (!own || (*table_cell_s(found, node))++)
				continue;
			Moved moved = {.node = node,
			               .change = {NEWS(c->arena, double, c->models),
			                          NEWS(c->arena, double, c->models)}};
			PUSH(c->arena, c->moved, moved);
		}
	if (!c->moved.count)
		fail(c->paths[0], "no kernel: nothing to check");
}

void check_widths(Session *session)
{
	Check c = {.session = session, .arena = session->arena};
	const char *wanted = choice(session, OPT_format, "text"), *model = session->path;
	bool json = chosen(session, OPT_json), svg = !strcmp(wanted, "svg");
	if (!svg && strcmp(wanted, "text"))
		fail_status(STATUS_USAGE, "--format",
		            "expected text or svg with --check, found '%s'", wanted);
	if (chosen(session, OPT_data))
		bad_usage(session, "--data does nothing with --for mup --check: it draws inputs");
	c.paths = NEWS(c.arena, const char *, session->choices.count + 1);
	c.widths = NEWS(c.arena, double, session->choices.count + 1);
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == OPT_base)
			c.paths[c.models++] = session->choices.at[i].value;
	if (!c.models)
		bad_usage(session, "--check needs --base: the same network in another width");
	c.paths[c.models++] = model;
	find_outputs(&c);
	Report base = full_report(session, c.paths[0]);
	Report last = full_report(session, model);
	c.widest = make_policy(session, "mup", &last, &base);
	for (int i = 0; i < c.models; i++) {
		Report report = full_report(session, c.paths[i]);
		measure_width(&c, i, make_policy(session, "mup", &report, &base));
		if (i && c.widths[i] <= c.widths[i - 1])
			fail(c.paths[i],
			     "is not wider than %s" HELP "give models from narrow to wide",
			     c.paths[i - 1]);
	}
	int failed = 0;
	for (int k = 0; k < c.moved.count; k++) {
		Moved *m = &c.moved.at[k];
		for (int with = 0; with < 2; with++) {
			m->slope[with] = slope_of(&c, m->change[with]);
			m->flat[with] = fabs(m->slope[with]) <= bound;
		}
		m->flat[1] |= m->tied && m->slope[1] < 0;
		failed += !m->flat[1];
	}
	if (json)
		print_json(widths_json(&c));
	else if (svg)
		print_svg(&c);
	else
		print_widths(&c);
	if (failed)
		fail(NULL, "%d %s with the width", failed,
		     failed == 1 ? "output changes" : "outputs change");
}
