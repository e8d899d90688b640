// eta_check.c: implements amosc eta --check.
// Inference that can be falsified. Takes a model and what is said of eta. Draws every parameter at
// its eta and runs the compiled graph on normal data of the declared ranges, or on the data given;
// gives the root mean square of what each node computes beside the range that was inferred. Keeps:
// numbers that hide (masks: -1e3 and below, infinities) are not measured; draws are a function of
// the seed.
#include "tool.h"
#include <math.h>
#include <string.h>

// Draws of all parameters: as many as make so many numbers, few of a large model, many of a small
// one.
enum { NUMBERS = 1 << 22, LEAST = 8, MOST = 64 };

static const double bound = 2; // how far a measured range may be from the inferred one

typedef struct Probe { // a value that is measured
	Ref ref;
	int square, count; // outs: sum of squares, and of how many
	bool kernel;       // the output of one
	double inferred, squares, entries;
	const char *reason; // why it leaves its range; NULL: it does not, or nothing explains it
} Probe;

typedef struct Check {
	Session *session;
	Graph *g;
	const Scales *scales;
	const Eta *eta;
	VEC(Probe) probes;
	int *probe_of; // by Ref: its number + 1
	int draws;
	struct amos *open;
	const struct amos_entry *entry;
} Check;

// ---- what is measured -----------------------------------------------------------------

static bool is_parameter(const Check *c, Ref r)
{
	while (prims[val(c->g, r)->op].cls == C_move)
		r = val(c->g, r)->in[0];
	return val(c->g, r)->op == O_slot && c->scales->nature[r] == VARIABLE;
}

// A contraction with a parameter, a bias added or not.
static bool is_kernel(const Check *c, Ref r, int depth)
{
	const Val *v = val(c->g, r);
	if (v->op == O_dot)
		return is_parameter(c, v->in[0]) || is_parameter(c, v->in[1]);
	bool passes = prims[v->op].cls == C_move || v->op == O_add;
	for (int k = 0; k < v->nin && passes && depth > 0; k++)
		if (c->scales->nature[v->in[k]] == SIGNAL)
			return (v->op != O_add || c->scales->nature[v->in[1 - k]] == VARIABLE) &&
			       is_kernel(c, v->in[k], depth - 1);
	return false;
}

// Kernels' outputs, wholes, sums and products of signals. All else is a view, or part of one of
// these.
static bool computes(const Check *c, Ref r)
{
	const Val *v = val(c->g, r);
	const Nature *nature = c->scales->nature;
	bool two = (v->op == O_add || v->op == O_mul) && v->in[0] != v->in[1] &&
	           nature[v->in[0]] == SIGNAL && nature[v->in[1]] == SIGNAL;
	return two || prims[v->op].cls == C_dot || prims[v->op].cls == C_composite ||
	       v->op == O_amax || is_kernel(c, r, 4);
}

// The last value of each node of the file, where it is a signal.
static Ref *last_values(const Check *c, int *count)
{
	const Graph *g = c->g;
	Ref *last = NEWS(c->session->arena, Ref, g->nodes->list.count + 1);
	const bool *live = graph_marks(c->session->arena, g);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (live[r] && v->from && v->type == E_f32 && c->scales->nature[r] == SIGNAL &&
		    count_of(&v->shape) > 0)
			last[v->from] = r;
	}
	*count = g->nodes->list.count;
	return last;
}

static Ref total(Graph *g, Ref x)
{
	int64_t axes[RANK];
	const Shape shape = val(g, x)->shape;
	for (int a = 0; a < shape.rank; a++)
		axes[a] = a;
	return put_reshape(g, put_reduce(g, O_sum, x, shape.rank, axes), shape_of(0, NULL));
}

// The sum of squares of ordinary entries, and how many there are.
static void probe(Check *c, Ref r)
{
	Graph *g = c->g;
	Probe p = {.ref = r,
	           .kernel = is_kernel(c, r, 4),
	           .inferred = c->scales->range[r].value,
	           .square = g->outs.count};
	Shape shape = val(g, r)->shape;
	g->from = val(g, r)->from;
	Ref zero = put_num(g, E_f32, 0), ones = put_rank(g, put_num(g, E_f32, 1), shape.rank);
	Ref ordinary = put2(g, O_lt, put_num(g, E_f32, -1e3), r);
	Ref square = put3(g, O_select, ordinary, put2(g, O_mul, r, r), zero);
	Ref entry = put3(g, O_select, ordinary, put_expand(g, ones, shape), zero);
	p.count = p.square + 1;
	add_out(g, format(c->session->arena, "square:%u", r), total(g, square));
	add_out(g, format(c->session->arena, "count:%u", r), total(g, entry));
	PUSH(c->session->arena, c->probes, p);
}

static void place_probes(Check *c)
{
	int count;
	Ref *last = last_values(c, &count);
	memset(&c->g->outs, 0, sizeof c->g->outs);
	for (int i = 1; i < count; i++)
		if (last[i] && computes(c, last[i]))
			probe(c, last[i]);
	if (!c->probes.count)
		fail(c->g->name, "nothing in it depends on data and parameters: nothing to check");
}

// ---- draws ----------------------------------------------------------------------------

typedef struct Draw {
	uint64_t seed, step, site, position;
} Draw;

static double uniform(Draw *d)
{
	return random_uniform(d->seed, d->step, d->site, d->position++);
}

static double normal(Draw *d)
{
	double radius = sqrt(-2 * log(1 - uniform(d)));
	return radius * cos(2 * M_PI * uniform(d));
}

// The eta of entry i.
static double eta_at(const Eta *eta, const Shape *shape, int64_t i)
{
	if (!eta->nparts)
		return eta->eta.value;
	for (int a = shape->rank - 1; a > eta->axis; a--)
		i /= shape->dim[a];
	i %= shape->dim[eta->axis];
	int part = 0;
	for (int64_t end = eta->counts[0]; i >= end && part + 1 < eta->nparts;)
		end += eta->counts[++part];
	return eta->parts[part].eta.value;
}

// Factors are their eta; all else has it as its deviation.
static void draw_parameter(const Slot *s, const Eta *eta, Draw *d, float *to)
{
	bool factor = !strcmp(eta->role, "norm_scale") || !strcmp(eta->role, "scale");
	for (int64_t i = 0; i < count_of(&s->shape); i++)
		to[i] = (float)(eta_at(eta, &s->shape, i) * (factor ? 1 : normal(d)));
}

// Floats are normal, indices any that are allowed; other integers are ones, as in masks.
static void draw_input(const Check *c, int slot, Draw *d, void *to)
{
	const Slot *s = &c->g->slots.at[slot];
	Ref r = slot_ref(c->g, slot);
	double range = r ? c->scales->range[r].value : 1;
	for (int64_t i = 0; i < count_of(&s->shape); i++) {
		int64_t n = s->limit ? (int64_t)(uniform(d) * (double)s->limit) : 1;
		if (s->type == E_f32)
			((float *)to)[i] = (float)(range * normal(d));
		else if (elems[s->type].bytes == 8)
			((int64_t *)to)[i] = n;
		else if (elems[s->type].bytes == 4)
			((int32_t *)to)[i] = (int32_t)n;
		else
			((uint8_t *)to)[i] = 1;
	}
}

static void run_draw(Check *c, struct amos_data *data, int step)
{
	Draw d = {.seed = (uint64_t)choice_count(c->session, OPT_seed, 0), .step = (uint64_t)step};
	for (int i = 0; i < c->g->slots.count; i++) {
		const Slot *s = &c->g->slots.at[i];
		d.site = (uint64_t)i, d.position = 0;
		if (s->kind == S_param)
			draw_parameter(s, &c->eta[i], &d, amos_slot_bytes(c->open, i));
		else if (s->kind == S_input && !data)
			draw_input(c, i, &d, amos_slot_bytes(c->open, i));
	}
	if (data)
		need_done(amos_data_eval(data, c->open, 0, amos_data_samples(data)));
	need_done(amos_call(c->open, c->entry, NULL, NULL));
	for (int i = 0; i < c->probes.count; i++) {
		Probe *p = &c->probes.at[i];
		p->squares += amos_out_number(c->open, c->entry, p->square);
		p->entries += amos_out_number(c->open, c->entry, p->count);
	}
}

static int draws_of(const Graph *g)
{
	int64_t n = 1;
	for (int i = 0; i < g->slots.count; i++)
		n += g->slots.at[i].kind == S_param ? count_of(&g->slots.at[i].shape) : 0;
	return (int)MAX(LEAST, MIN(MOST, NUMBERS / n));
}

static void measure(Check *c, struct amos_data *data)
{
	Program *program = program_of(c->session, graph_live(c->session->arena, c->g), "check");
	program->data = data;
	if (data)
		attach_data(program);
	c->open = open_program(program);
	c->entry = &amos_model_of(c->open)->entries[0];
	for (int i = 0; i < c->draws; i++)
		run_draw(c, data, i);
}

// ---- what came out --------------------------------------------------------------------

static double measured(const Probe *p)
{
	return p->entries > 0 ? sqrt(p->squares / p->entries) : p->inferred;
}

static double ratio(const Probe *p)
{
	return measured(p) / p->inferred;
}

static bool holds(const Probe *p)
{
	return ratio(p) <= bound && ratio(p) >= 1 / bound;
}

// A parameter whose eta is not sure.
static const char *doubt(const Check *c, const Val *v)
{
	int slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	bool asked = slot >= 0 && c->g->slots.at[slot].kind == S_param && !c->eta[slot].sure;
	return asked ? format(c->session->arena, "the scale of %s is not sure",
	                      c->g->slots.at[slot].name)
	             : NULL;
}

// What is behind `r`: a value that is not as inferred either, a rule that is known to be coarse, or
// a parameter that is not sure.
static const char *reason_behind(const Check *c, Ref r, bool larger, int depth)
{
	const Val *v = val(c->g, r);
	const char *found = c->scales->coarse[r];
	if (!found)
		found = doubt(c, v);
	for (int k = 0; k < v->nin && depth > 0 && !found; k++) {
		int number = c->probe_of[v->in[k]];
		const Probe *p = number ? &c->probes.at[number - 1] : NULL;
		if (!p)
			found = reason_behind(c, v->in[k], larger, depth - 1);
		else if (p->reason && (ratio(p) > 1) == larger)
			found = p->reason;
	}
	return found;
}

static void explain(Check *c)
{
	c->probe_of = NEWS(c->session->arena, int, c->g->nval);
	for (int i = 0; i < c->probes.count; i++)
		c->probe_of[c->probes.at[i].ref] = i + 1;
	for (int i = 0; i < c->probes.count; i++) {
		Probe *p = &c->probes.at[i];
		if (fabs(log(ratio(p))) > log(1.2))
			p->reason = reason_behind(c, p->ref, ratio(p) > 1, 12);
	}
}

static json_t *probe_json(const Check *c, const Probe *p)
{
	const Node *node = &c->g->nodes->list.at[val(c->g, p->ref)->from];
	return json_pack("{ss ss sb so so so sb ss?}", "node", node->name, "op", node->op, "kernel",
	                 (int)p->kernel, "inferred", number_json(p->inferred), "measured",
	                 number_json(measured(p)), "ratio", number_json(ratio(p)), "holds",
	                 (int)holds(p), "why", holds(p) ? NULL : p->reason);
}

static void print_probe(const Check *c, const Probe *p)
{
	const Node *node = &c->g->nodes->list.at[val(c->g, p->ref)->from];
	const char *name = *node->name ? node->name : "(no name)";
	printf("%-44s %-18s inferred %-9.4g measured %-9.4g x %.3g\n", name, node->op, p->inferred,
	       measured(p), ratio(p));
	if (p->reason)
		printf("    %s\n", p->reason);
}

static double distance(const Probe *p)
{
	return exp(fabs(log(ratio(p))));
}

static void print_check(const Check *c, int failed)
{
	double kernels = 1;
	int explained = 0;
	for (int i = 0; i < c->probes.count; i++) {
		const Probe *p = &c->probes.at[i];
		if (!holds(p))
			print_probe(c, p);
		explained += !holds(p) && p->reason;
		if (p->kernel && !p->reason)
			kernels = fmax(kernels, distance(p));
	}
	printf("%d values, %d draws: %d hold within %g, %d do not for a reason that is known, %d "
	       "do not; kernels' outputs within %.3g\n",
	       c->probes.count, c->draws, c->probes.count - explained - failed, bound, explained,
	       failed, kernels);
}

static json_t *check_json(const Check *c, int failed)
{
	json_t *list = json_array();
	for (int i = 0; i < c->probes.count; i++)
		json_array_append_new(list, probe_json(c, &c->probes.at[i]));
	return json_pack("{so si sb so}", "model", json_text(c->session->path), "draws", c->draws,
	                 "holds", (int)!failed, "values", list);
}

void check_eta(Session *session)
{
	Arena *arena = session->arena;
	struct amos_data *data = open_given(session);
	session->drawn = true;
	Scales scales;
	Check c = {
	    .session = session,
	    .g = eta_graph(arena, with_loss(session, read_standing(session, data, false)->graph)),
	    .scales = &scales};
	c.eta = etas(session, c.g, data, &scales);
	c.draws = draws_of(c.g);
	place_probes(&c);
	measure(&c, data);
	explain(&c);
	int failed = 0;
	for (int i = 0; i < c.probes.count; i++)
		failed += !holds(&c.probes.at[i]) && !c.probes.at[i].reason;
	if (chosen(session, OPT_json))
		print_json(check_json(&c, failed));
	else
		print_check(&c, failed);
	if (failed)
		fail(NULL, "%d %s", failed,
		     failed == 1 ? "value is not as large as inferred"
		                 : "values are not as large as inferred");
}
