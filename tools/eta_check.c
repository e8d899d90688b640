// eta_check.c: implements amosc eta --check.
// Draws every parameter at its eta and runs the compiled graph on normal data of the declared
// ranges, or on the data given. Output: the root mean square of each node's result, next to the
// inferred range. Masked elements (-1e3 and below, infinities) do not count. Draws are a function
// of the seed.
#include "tool.h"
#include <math.h>
#include <string.h>

// The number of draws, within these limits, is such that about NUMBERS elements are drawn.
enum { NUMBERS = 1 << 22, LEAST = 8, MOST = 64 };

static const double bound = 2; // largest accepted ratio of the measured and the inferred range

typedef struct Probe { // a value that is measured
	Ref ref;
	bool kernel; // a kernel's output
	double inferred, squares, elements, measured, ratio;
	bool holds;
	const char *reason; // why the ratio is far from 1; NULL: it is not, or no known reason
} Probe;

typedef struct Check {
	Session *session;
	Graph *g;
	const Scales *scales;
	const Eta *eta;
	VEC(Probe) probes;
	int *probe_of; // indexed by Ref: index in probes + 1
	int draws;
} Check;

// ---- what is measured -----------------------------------------------------------------

static bool is_parameter(const Check *c, Ref r)
{
	while (prims[val(c->g, r)->op].cls == C_move)
		r = val(c->g, r)->in[0];
	return val(c->g, r)->op == O_slot && c->scales->nature[r] == VARIABLE;
}

// True for a contraction with a parameter, with or without a bias.
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

// True for kernels' outputs, composites, sums and products of signals. All else is a view, or part
// of one of these.
static bool computes(const Check *c, Ref r)
{
	const Val *v = val(c->g, r);
	const Nature *nature = c->scales->nature;
	bool two = (v->op == O_add || v->op == O_mul) && v->in[0] != v->in[1] &&
	           nature[v->in[0]] == SIGNAL && nature[v->in[1]] == SIGNAL;
	return two || prims[v->op].cls == C_dot || prims[v->op].cls == C_composite ||
	       v->op == O_amax || is_kernel(c, r, 4);
}

static Ref total(Graph *g, Ref x)
{
	int64_t axes[RANK];
	const Shape shape = val(g, x)->shape;
	for (int a = 0; a < shape.rank; a++)
		axes[a] = a;
	return put_reshape(g, put_reduce(g, O_sum, x, shape.rank, axes), shape_of(0, NULL));
}

// Adds two outputs for the last value of each node of the file that is a signal: the sum of squares
// of its unmasked elements, and their number.
static void place_probes(Check *c)
{
	Graph *g = c->g;
	Arena *arena = c->session->arena;
	Ref *last = NEWS(arena, Ref, g->nodes->list.count + 1);
	const int *live = graph_uses(arena, g);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (live[r] && v->from && v->type == E_f32 && c->scales->nature[r] == SIGNAL &&
		    count_of(&v->shape) > 0)
			last[v->from] = r;
	}
	memset(&g->outs, 0, sizeof g->outs);
	for (int i = 1, count = g->nodes->list.count; i < count; i++) {
		Ref r = last[i];
		if (!r || !computes(c, r))
			continue;
		Probe p = {
		    .ref = r, .kernel = is_kernel(c, r, 4), .inferred = c->scales->range[r].value};
		Shape shape = val(g, r)->shape;
		g->from = val(g, r)->from;
		Ref zero = put_num(g, E_f32, 0),
		    ones = put_rank(g, put_num(g, E_f32, 1), shape.rank);
		Ref unmasked = put2(g, O_lt, put_num(g, E_f32, -1e3), r);
		Ref square = put3(g, O_select, unmasked, put2(g, O_mul, r, r), zero);
		Ref one = put3(g, O_select, unmasked, put_expand(g, ones, shape), zero);
		add_out(g, format(arena, "square:%u", r), total(g, square));
		add_out(g, format(arena, "count:%u", r), total(g, one));
		PUSH(arena, c->probes, p);
	}
	if (!c->probes.count)
		fail(g->name, "no value depends on data and on parameters: nothing to check");
}

// ---- measurement --------------------------------------------------------------------------

static void measure(Check *c, struct amos_data *data)
{
	Program *program = program_of(c->session, graph_live(c->session->arena, c->g), "check");
	program->data = data;
	if (data)
		attach_data(program);
	struct amos *open = open_program(program);
	const struct amos_entry *entry = &open->model->entries[0];
	uint64_t seed = (uint64_t)choice_count(c->session, OPT_seed, 0);
	for (int step = 0; step < c->draws; step++) {
		for (int i = 0; i < c->g->slots.count; i++) {
			const Slot *s = &c->g->slots.at[i];
			Draw d = {.seed = seed, .step = (uint64_t)step, .site = (uint64_t)i};
			if (s->kind == S_param)
				draw_parameter(s, &c->eta[i], &d, amos_slot_bytes(open, i));
			else if (s->kind == S_input && !data)
				draw_input(c->g, c->scales, i, &d, amos_slot_bytes(open, i));
		}
		if (data)
			need_done(amos_data_eval(data, open, 0, data->batch));
		need_done(amos_call(open, entry, NULL, NULL));
		for (int i = 0; i < c->probes.count; i++) {
			Probe *p = &c->probes.at[i];
			p->squares += amos_out_number(open, entry, 2 * i);
			p->elements += amos_out_number(open, entry, 2 * i + 1);
		}
	}
	for (int i = 0; i < c->probes.count; i++) {
		Probe *p = &c->probes.at[i];
		p->measured = p->elements > 0 ? sqrt(p->squares / p->elements) : p->inferred;
		p->ratio = p->measured / p->inferred;
		p->holds = p->ratio <= bound && p->ratio >= 1 / bound;
	}
}

// ---- results --------------------------------------------------------------------------

// Returns a reason for the measured range of `r`: a coarse rule, a parameter whose eta is not sure,
// or the reason of an operand that deviates the same way. NULL if there is none.
static const char *reason_behind(const Check *c, Ref r, bool larger, int depth)
{
	const Val *v = val(c->g, r);
	const char *found = c->scales->coarse[r];
	int slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	if (!found && slot >= 0 && c->g->slots.at[slot].kind == S_param && !c->eta[slot].sure)
		found = format(c->session->arena, "the scale of %s is not sure",
		               c->g->slots.at[slot].name);
	for (int k = 0; k < v->nin && depth > 0 && !found; k++) {
		int number = c->probe_of[v->in[k]];
		const Probe *p = number ? &c->probes.at[number - 1] : NULL;
		if (!p)
			found = reason_behind(c, v->in[k], larger, depth - 1);
		else if (p->reason && (p->ratio > 1) == larger)
			found = p->reason;
	}
	return found;
}

static void print_check(const Check *c, int failed)
{
	double kernels = 1; // largest factor by which a kernel's output deviates
	int explained = 0;
	for (int i = 0; i < c->probes.count; i++) {
		const Probe *p = &c->probes.at[i];
		const Node *node = &c->g->nodes->list.at[val(c->g, p->ref)->from];
		if (p->kernel && !p->reason)
			kernels = fmax(kernels, exp(fabs(log(p->ratio))));
		if (p->holds)
			continue;
		explained += p->reason != NULL;
		printf("%-44s %-18s inferred %-9.4g measured %-9.4g x %.3g\n",
		       *node->name ? node->name : "(no name)", node->op, p->inferred, p->measured,
		       p->ratio);
		if (p->reason)
			printf("    %s\n", p->reason);
	}
	printf(
	    "%d values, %d draws: %d agree within a factor of %g, %d do not for a known reason, %d "
	    "do not; kernels' outputs within %.3g\n",
	    c->probes.count, c->draws, c->probes.count - explained - failed, bound, explained,
	    failed, kernels);
}

static json_t *check_json(const Check *c, int failed)
{
	json_t *list = json_array();
	for (int i = 0; i < c->probes.count; i++) {
		const Probe *p = &c->probes.at[i];
		const Node *node = &c->g->nodes->list.at[val(c->g, p->ref)->from];
		json_array_append_new(
		    list,
		    json_pack("{ss ss sb so so so sb ss?}", "node", node->name, "op", node->op,
		              "kernel", (int)p->kernel, "inferred", number_json(p->inferred),
		              "measured", number_json(p->measured), "ratio", number_json(p->ratio),
		              "holds", (int)p->holds, "why", p->holds ? NULL : p->reason));
	}
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
	int64_t numbers = 1;
	for (int i = 0; i < c.g->slots.count; i++)
		if (c.g->slots.at[i].kind == S_param)
			numbers += count_of(&c.g->slots.at[i].shape);
	c.draws = (int)MAX(LEAST, MIN(MOST, NUMBERS / numbers));
	place_probes(&c);
	measure(&c, data);
	c.probe_of = NEWS(arena, int, c.g->nval);
	for (int i = 0; i < c.probes.count; i++)
		c.probe_of[c.probes.at[i].ref] = i + 1;
	int failed = 0;
	for (int i = 0; i < c.probes.count; i++) {
		Probe *p = &c.probes.at[i];
		if (fabs(log(p->ratio)) > log(1.2))
			p->reason = reason_behind(&c, p->ref, p->ratio > 1, 12);
		failed += !p->holds && !p->reason;
	}
	if (chosen(session, OPT_json))
		print_json(check_json(&c, failed));
	else
		print_check(&c, failed);
	if (failed)
		fail(NULL, "%d %s", failed,
		     failed == 1 ? "value does not have the inferred range"
		                 : "values do not have the inferred range");
}
