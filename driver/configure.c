// configure.c: turns options into pass settings: data, loss, gradients, optimizer and target.
#include "driver.h"
#include <math.h>
#include <string.h>

struct amos_options runtime_options(const Session *session)
{
	struct amos_options all = amos_options();
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option >= OPT_data) // the first of options.def, which ends settings.def
			need_done(amos_option(&all, options[c->option].name, c->value));
	}
	all.argc = session->argc;
	all.argv = session->argv;
	return all;
}

static void close_data(void *data)
{
	amos_data_close(data);
}

// Adds the cotangents as data of the inputs that cotangent_pass() adds.
static void add_cotangents(Session *session, struct amos_options *given)
{
	const char *path = choice(session, OPT_cotangent, NULL);
	struct amos_array *array = NULL;
	int64_t n = 0;
	int status = path ? amos_npz_read(path, &n, &array) : AMOS_DONE;
	for (int64_t i = 0; i < n && !status; i++)
		status = amos_option(given, "data",
		                     format(session->arena, COTANGENT_OF "%s=%s:%s", array[i].name,
		                            path, array[i].name));
	amos_npz_free(n, array);
	need_done(status);
}

struct amos_data *open_data(Session *session)
{
	struct amos_options given = runtime_options(session);
	add_cotangents(session, &given);
	bool exact = (session->purpose == FOR_OUTPUTS && !chosen(session, OPT_batch)) ||
	             session->purpose == FOR_GRADIENTS;
	struct amos_data *data;
	need_done(amos_data_open(&given, exact, &data));
	at_end(session->arena, close_data, data);
	return data;
}

struct amos_data *open_given(Session *session)
{
	bool any = chosen(session, OPT_data) || chosen(session, OPT_cotangent);
	return any ? open_data(session) : NULL;
}

void note_unused(Session *session, struct amos_data *data, const Graph *g)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			PUSH(session->arena, names, g->slots.at[i].name);
	need_done(amos_data_take(data, names.count, names.at));
	tell(session, "%s", data->unused);
}

// ---- loss, gradient -------------------------------------------------------------------

const Graph *with_loss(Session *session, const Graph *g)
{
	int scalars = 0;
	bool named = false;
	for (int i = 0; i < g->outs.count; i++) {
		const Val *v = val(g, g->outs.at[i].val);
		bool scalar = is_float(v->type) && count_of(&v->shape) == 1;
		scalars += scalar;
		named |= scalar && !strcmp(g->outs.at[i].name, "loss");
	}
	const char *expression = choice(session, OPT_loss, NULL);
	bool told = expression || named || scalars == 1;
	return told ? loss_pass(session->arena, g, expression) : g;
}

const Shape *cotangent_shapes(Session *session, const struct amos_data *data, const Graph *g)
{
	Arena *arena = session->arena;
	Shape *shape = NEWS(arena, Shape, g->outs.count + 1);
	Table *out = table_new(arena); // name -> index + 1
	VEC(const char *) own = {0};
	const struct amos_array *array;
	const char *input;
	for (int i = 0; i < g->outs.count; i++) {
		shape[i].rank = -1;
		uint64_t *index = table_cell_s(out, g->outs.at[i].name);
		*index = *index ? *index : (uint64_t)i + 1;
		if (is_own_out(g->outs.at[i].name))
			PUSH(arena, own, g->outs.at[i].name);
	}
	for (int k = 0; array = amos_data_array(data, k, &input), input; k++) {
		if (!starts_with(input, COTANGENT_OF))
			continue;
		const char *name = input + strlen(COTANGENT_OF);
		const uint64_t *cell = table_find_s(out, name);
		if (!cell)
			fail(choice(session, OPT_cotangent, ""),
			     "'%s' is not an output of the model; %s", name,
			     suggest(arena, name, own.count, own.at));
		if (!array)
			continue;
		Shape *of = &shape[*cell - 1];
		*of = val(g, g->outs.at[*cell - 1].val)->shape;
		bool counted = table_find_s(out, format(arena, SHAPE_OF "%s", name)) != NULL;
		for (int a = 0; counted && a < MIN(array->rank, of->rank); a++)
			of->dim[a] = MIN(of->dim[a], array->dim[a]);
	}
	return shape;
}

// Adds the slots in the initializers of wanted parameters: other parameters, whose values were
// equal at export, and running statistics. The gradient of an initializer is the sum of theirs.
static void want_initializers(Arena *arena, const Graph *g, bool *want)
{
	Table *files = table_new(arena);
	for (int i = 0; i < g->slots.count; i++)
		if (want[i] && g->slots.at[i].file)
			*table_cell_s(files, g->slots.at[i].file) = 1;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		if ((s->kind == S_param || s->kind == S_buffer) && s->file)
			want[i] |= table_find_s(files, s->file) != NULL;
	}
}

bool *wanted(Session *session, const Graph *g)
{
	const char *wrt = choice(session, OPT_wrt, "params");
	bool all = !strcmp(wrt, "all"), inputs = all || !strcmp(wrt, "inputs"),
	     params = all || !strcmp(wrt, "params");
	bool *want = NEWS(session->arena, bool, g->slots.count + 1), any = inputs || params;
	VEC(const char *) names = {0};
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		bool data =
		    s->kind == S_input && is_float(s->type) && !starts_with(s->name, COTANGENT_OF);
		bool param = s->kind == S_param;
		want[i] = inputs || params ? (params && param) || (inputs && data)
		                           : (param || data) && matches(wrt, s->name);
		any |= want[i];
		if (param || data)
			PUSH(session->arena, names, s->name);
	}
	if (!any)
		fail("--wrt", "'%s' matches no parameter and no float input; %s", wrt,
		     suggest(session->arena, wrt, names.count, names.at));
	if (session->purpose == FOR_GRADIENTS)
		want_initializers(session->arena, g, want);
	return want;
}

// ---- the optimizer --------------------------------------------------------------------

static double part_labels(void *data, const Slot *s)
{
	return data ? amos_data_labels(data, s->name, 1, s->ignore) : 1;
}

// Returns the number of independent batches in the data; 0: unknown.
static double batches_of(const Session *session, struct amos_data *data)
{
	double given = choice_number(session, OPT_batches, NAN);
	if (given == 0)
		bad_usage(session, "--batches: expected a number above 0, found 0");
	if (!isnan(given) && data)
		bad_usage(session, "--batches does nothing with --data, whose batches are counted");
	if (!isnan(given) && chosen(session, OPT_xi))
		bad_usage(session, "--batches does nothing with --xi, which follows from it");
	return !isnan(given) ? given : data ? amos_data_independent_batches(data) : 0;
}

Opt optimizer(Session *session, const Graph *loss, struct amos_data *data)
{
	static const struct {
		OptionName option;
		const char *operand, *meant; // `meant`: the option of other optimizers for the same
	} rows[] = {
#define HYPER(name, ...) {OPT_##name, #name, NULL},
#include "optimizers.def"
#undef HYPER
	    {OPT_rate, "rate", "xi"}, {OPT_xi, "xi", "rate"},    {OPT_eta, "eta", NULL},
	    {OPT_range, "eta", NULL}, {OPT_slots, "over", NULL}, {OPT_convention, "eta", NULL},
	    {OPT_batches, "xi", NULL}};
	Opt opt = opt_named(choice(session, OPT_optimizer, "amos"));
	opt.elsewhere = chosen(session, OPT_update_only);
	opt.schedule = choice(session, OPT_schedule, NULL);
	opt.labels = loss ? count_labels(loss, part_labels, data) : (Labels){0};
#define HYPER(name, ...) opt.name = choice_number(session, OPT_##name, NAN);
#include "optimizers.def"
#undef HYPER
	opt.accumulate = choice_count(session, OPT_accumulate, 1);
	opt.batches = batches_of(session, data) / (double)opt.accumulate;
	opt_defaults(session->arena, &opt);
	// an option without an operand in the optimizer's definition is meant for another optimizer
	for (int i = COUNT(rows); i-- > 0;) {
		bool scheduled = of_schedule(rows[i].operand);
		bool uses = scheduled ? schedule_uses(opt.schedule, rows[i].operand)
		                      : opt_uses(opt.name, rows[i].operand);
		if (chosen(session, rows[i].option) && !uses)
			bad_usage(session,
			          format(session->arena, "--%s does nothing under %s%s%s%s",
			                 long_name(session->arena, rows[i].option),
			                 scheduled ? "schedule " : "",
			                 scheduled ? opt.schedule : opt.name,
			                 rows[i].meant ? ": expected --" : "",
			                 rows[i].meant ? rows[i].meant : ""));
	}
	return opt;
}

// ---- the target -----------------------------------------------------------------------

int targets_of(const Session *session, const Target *const **to)
{
	return target_list(session->arena, choice(session, OPT_target, "cpu"), to);
}

const Target *target_of(const Session *session)
{
	const Target *const *all;
	if (targets_of(session, &all) > 1 && !session->several_targets)
		fail_status(STATUS_USAGE, "--target",
		            "expected one target, found '%s'" HELP "amosc build takes several",
		            choice(session, OPT_target, NULL));
	return all[0];
}

void refuse_threads(const Session *session)
{
	if (chosen(session, OPT_threads))
		bad_usage(session, format(session->arena, "--threads does nothing on --target %s",
		                          choice(session, OPT_target, NULL)));
}

void need_host(const Session *session)
{
	const Target *target = target_of(session);
	const char *device = target_device(target);
	if (!target_runs_here(target))
		fail("--target",
		     "code for '%s' cannot run on this machine" HELP
		     "amosc build writes it to a file",
		     choice(session, OPT_target, "cpu"));
	if (!device)
		return;
	refuse_threads(session);
	need_done(amos_device_check(device));
}
