// read.c: the model as the command line reads it: what is frozen, which statistics and dropout,
// and every dimension bound, by --bind, by the data, or by a size that stands for any. Takes the
// options of verbs.def, open data. Gives a Model. Keeps: a model is read as often as it is asked
// for, standard input too.
#include "driver.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Reading { // ReadOptions while they are being collected
	VEC(Bind) binds;
	VEC(const char *) freeze;
	KnownList known;
} Reading;

// Takes NAME=N off the front of a list NAME=N,NAME=N; false: it is none, or N is below 1.
static bool next_pair(Arena *arena, const char **list, Bind *pair)
{
	const char *equal = strchr(*list, '=');
	char *end = NULL;
	errno = 0;
	long long size = equal ? strtoll(equal + 1, &end, 10) : 0;
	if (!equal || equal == *list || (*end && *end != ',') || size < 1 || errno)
		return false;
	*pair = (Bind){format(arena, "%.*s", (int)(equal - *list), *list), size};
	*list = *end ? end + 1 : end;
	return true;
}

static void read_bind(Session *session, const char *text, Reading *r)
{
	Bind bind;
	for (const char *rest = text; *rest;) {
		if (!next_pair(session->arena, &rest, &bind))
			fail_status(STATUS_USAGE, "--bind",
			            "expected NAME=N,... with N at least 1, found '%s'", text);
		PUSH(session->arena, r->binds, bind);
	}
}

static void read_limits(Arena *arena, Budget *budget, const char *text)
{
	Bind limit;
	for (const char *rest = text; *rest;) {
		int cost = 0;
		bool good = next_pair(arena, &rest, &limit);
		while (good && cost < COSTS && strcmp(cost_names[cost], limit.name))
			cost++;
		if (!good || cost == COSTS)
			fail_status(STATUS_USAGE, "--limit",
			            "expected COST=N,..., COST nodes, bytes or elements, N at "
			            "least 1; found '%s'",
			            text);
		budget->limit[cost] = (uint64_t)limit.size;
	}
}

void limit_cost(Session *session)
{
	Budget *budget = budget_new(session->arena);
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == OPT_limit)
			read_limits(session->arena, budget, session->choices.at[i].value);
}

static Reading read_choices(Session *session)
{
	Reading r = {0};
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option == OPT_bind)
			read_bind(session, c->value, &r);
		if (c->option == OPT_freeze)
			PUSH(session->arena, r.freeze, c->value);
		if (c->option == OPT_train)
			PUSH(session->arena, r.freeze, format(session->arena, "!%s", c->value));
	}
	return r;
}

// Copies standard input into memory unless it is a regular file, which is mapped.
static void copy_input(void)
{
	char block[1 << 16];
	ssize_t got;
	struct stat about;
	if (!fstat(STDIN_FILENO, &about) && S_ISREG(about.st_mode))
		return;
	int copy = memfd_create("model", 0);
	while (copy >= 0 && (got = read(STDIN_FILENO, block, sizeof block)) > 0)
		if (write(copy, block, (size_t)got) != got)
			fail_status(STATUS_MACHINE, "standard input", "%s", strerror(errno));
	if (copy < 0 || dup2(copy, STDIN_FILENO) < 0)
		fail_status(STATUS_MACHINE, "standard input", "%s", strerror(errno));
	close(copy);
}

typedef enum Trait {   // of what a model is read for
	MEASURES = 1,  // the loss of a network that trained: by the statistics that it gathered
	DOUBLES = 2,   // may compute in double
	USES_LOSS = 4, // goes by the loss that the file holds
} Trait;
static const int traits[] = {
    [FOR_TRAINING] = MEASURES | USES_LOSS,
    [FOR_EVALUATION] = MEASURES | DOUBLES | USES_LOSS,
    [FOR_OUTPUTS] = DOUBLES,
    [FOR_GRADIENTS] = DOUBLES | USES_LOSS,
    [FOR_REPORT] = USES_LOSS,
    [FOR_EXPORT] = 0,
};

// A loss that the file holds, where nothing else is to be minimized.
static bool wants_loss(const Session *session)
{
	return traits[session->purpose] & USES_LOSS && !session->plain &&
	       !chosen(session, OPT_loss) && !chosen(session, OPT_cotangent);
}

// A network in training is measured by the statistics that it has gathered; run and grad go by the
// file.
static Statistics statistics(const Session *session, bool random)
{
	const char *said = session->drawn ? "train" : choice(session, OPT_bn, NULL);
	if (said && strcmp(said, "train") && strcmp(said, "frozen"))
		fail_status(STATUS_USAGE, "--bn", "expected train or frozen, found '%s'", said);
	if (said && !strcmp(said, "frozen"))
		return BN_RUNNING;
	if (!random && traits[session->purpose] & MEASURES)
		return BN_RUNNING;
	return said || random ? BN_BATCH : BN_FILE;
}

// By --precision; where that is not given, grad computes in double, run and eval as the file does.
static Precision precision(const Session *session)
{
	const char *said = choice(session, OPT_precision, NULL);
	bool can = traits[session->purpose] & DOUBLES, apart = session->purpose == FOR_GRADIENTS;
	if (!said && can)
		return apart ? PRECISION_F64 : PRECISION_FILE;
	if (said && strcmp(said, "f32") && !(can && !strcmp(said, "f64")))
		fail_status(STATUS_USAGE, "--precision",
		            "'%s': only f32 is there so far, and f64 in run, eval and grad", said);
	return said && strcmp(said, "f32") ? PRECISION_F64 : PRECISION_F32;
}

static void settle_dropout(Session *session, Model *model, bool random)
{
	double rate = choice_part(session, OPT_dropout, NAN);
	int added;
	model->graph = dropout_pass(session->arena, model->graph, random, rate, &added);
	if (random && rate > 0 && !added)
		fail("--dropout", "no place takes it: the model has no block of attention or MLP "
		                  "without dropout of its own");
	if (random && rate > 0)
		PUSH(session->arena, model->notes,
		     format(session->arena, "dropout of %g put at %d places", rate, added));
}

// Reports random numbers that are no dropout, where dropout is gone.
static void note_draws(Session *session, const Model *model)
{
	int found = drawing_node(model->graph);
	if (found < 0 || session->drawing)
		return;
	const Node *node = &model->graph->nodes->list.at[found];
	tell(session,
	     "note: node '%s' (%s) draws at random and is no dropout: what it computes "
	     "depends on --seed\n",
	     node->name, node->op);
	session->drawing = true;
}

typedef struct Parsed {
	const char *path;
	bool loss;
	struct File *file;
} Parsed;

// A file is parsed once, however often it is read.
static struct File *parsed_file(Session *session, bool loss)
{
	const char *path = session->path;
	const Parsed *last = session->parsed;
	if (last && last->loss == loss && !strcmp(last->path, path))
		return last->file;
	if (!strcmp(path, "-"))
		copy_input();
	Parsed *parsed = NEW(session->arena, Parsed);
	*parsed = (Parsed){path, loss, parse_model(session->arena, path, loss)};
	session->parsed = parsed;
	return parsed->file;
}

static Model *read_file_with(Session *session, const ReadOptions *options)
{
	return read_parsed(session->arena, parsed_file(session, options->loss), options);
}

// What can be said against --loss when the model cannot be read: NULL, or a text.
static const char *loss_trouble(Session *session, ReadOptions options)
{
	Catch catch;
	options.list = true;
	if (!TRY(catch)) {
		const Model *m = read_file_with(session, &options);
		const char **names = NEWS(session->arena, const char *, m->outputs.count + 1);
		for (int i = 0; i < m->outputs.count; i++)
			names[i] = m->outputs.at[i].name;
		loss_check(session->arena, choice(session, OPT_loss, ""), m->outputs.count, names);
		catch_end(&catch);
		return NULL;
	}
	const char *text = copy_string(session->arena, catch.message);
	free(catch.message);
	return text;
}

// What is wrong with the model and with its loss, in one failure.
static Model *read_or_all(Session *session, const ReadOptions *options)
{
	Catch catch;
	if (!TRY(catch)) {
		Model *m = read_file_with(session, options);
		catch_end(&catch);
		return m;
	}
	const char *text = copy_string(session->arena, catch.message), *more = NULL;
	free(catch.message);
	if (catch.status == STATUS_INPUT && !options->list && chosen(session, OPT_loss) &&
	    strcmp(session->path, "-"))
		more = loss_trouble(session, *options);
	fail_status(catch.status, NULL, "%s%s%s", text, more ? "\n" : "", more ? more : "");
}

static void check_norms(const Session *session, const Model *model)
{
	for (int i = 0; i < model->ops.count; i++)
		if (starts_with(model->ops.at[i].op, "BatchNorm"))
			return;
	if (chosen(session, OPT_bn))
		fail("--bn", "the model has no BatchNormalization");
}

static Model *read_with(Session *session, const Reading *r, bool random, bool list)
{
	ReadOptions options = {.nbind = r->binds.count,
	                       .bind = r->binds.at,
	                       .nfreeze = r->freeze.count,
	                       .freeze = r->freeze.at,
	                       .statistics = statistics(session, random),
	                       .training = random,
	                       .separate = session->purpose == FOR_GRADIENTS,
	                       .loss = wants_loss(session),
	                       .precision = precision(session),
	                       .nknown = r->known.count,
	                       .known = r->known.at,
	                       .list = list};
	Model *model = read_or_all(session, &options);
	if (!list)
		check_norms(session, model);
	if (model->graph)
		settle_dropout(session, model, random);
	if (model->graph && !random)
		note_draws(session, model);
	if (beyond_f32(model) && !session->beyond) {
		tell(session, "note: %s\n", beyond_f32(model));
		session->beyond = true;
	}
	return model;
}

static void bind_axis(Session *session, Reading *r, const Input *in, int axis, int64_t size)
{
	const char *name = in->dim[axis].name;
	Bind bind = {name && *name ? name : format(session->arena, "%s:%d", in->name, axis), size};
	PUSH(session->arena, r->binds, bind);
}

static struct amos_input runtime_input(const Input *in)
{
	struct amos_input out = {.name = in->name, .type = in->type, .rank = in->rank};
	for (int a = 0; a < in->rank; a++) {
		out.dim[a] = in->dim[a].size;
		out.axis[a] = in->dim[a].name && *in->dim[a].name ? in->dim[a].name : NULL;
	}
	return out;
}

// The arrays of one batch: numbers that operators may need when the file is read.
static void know_data(Session *session, const struct amos_data *data, Reading *r)
{
	const char *input;
	for (int k = 0;; k++) {
		const struct amos_array *array = amos_data_array(data, k, &input);
		if (!input)
			return;
		if (!array)
			continue;
		Known known = {.name = input,
		               .type = (Elem)array->type,
		               .shape = shape_of(array->rank, array->dim),
		               .bytes = array->bytes};
		PUSH(session->arena, r->known, known);
	}
}

// Arrays are named by an input or, as NAME#k, by an element of a sequence.
static bool is_for(const Known *known, const Input *in)
{
	size_t length = strlen(in->name);
	char after = strncmp(known->name, in->name, length) ? ' ' : known->name[length];
	return !after || (after == '#' && in->sequence);
}

// Turns values that operators may need when the file is read into the type of their input.
static void know_as(Session *session, const struct amos_data *data, const Input *in, Known *known)
{
	bool floats = is_float(in->type) && is_float(known->type);
	if (floats || (in->type == known->type && known->type != E_u64))
		return;
	void *values = take(session->arena, (size_t)byte_count(in->type, &known->shape) + 8);
	check(amos_data_values(data, known->name, in->type, values));
	known->bytes = values;
	known->type = in->type;
}

static void take_inputs(Session *session, struct amos_data *data, const Model *listed, Reading *r)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		PUSH(session->arena, names, in->name);
		for (int k = 0; k < r->known.count; k++)
			if (is_for(&r->known.at[k], in))
				PUSH(session->arena, names, r->known.at[k].name);
	}
	check(amos_data_take(data, names.count, names.at));
	for (int i = 0; i < listed->inputs.count; i++)
		for (int k = 0; k < r->known.count; k++)
			if (is_for(&r->known.at[k], &listed->inputs.at[i]))
				know_as(session, data, &listed->inputs.at[i], &r->known.at[k]);
}

static void bind_by_data(Session *session, struct amos_data *data, const Model *listed, Reading *r)
{
	int n = 0;
	const Input **from = NEWS(session->arena, const Input *, listed->inputs.count + 1);
	struct amos_input *in = NEWS(session->arena, struct amos_input, listed->inputs.count + 1);
	for (int i = 0; i < listed->inputs.count; i++) {
		from[n] = &listed->inputs.at[i];
		in[n] = runtime_input(from[n]);
		n += from[n]->rank >= 0 && !from[n]->sequence && !from[n]->optional;
	}
	take_inputs(session, data, listed, r);
	check(amos_data_bind(data, n, in));
	for (int i = 0; i < n; i++)
		for (int a = 0; a < in[i].rank; a++)
			if (from[i]->dim[a].size < 0 && in[i].dim[a] >= 0)
				bind_axis(session, r, from[i], a, in[i].dim[a]);
}

// --batch where no data tell more: the first axis of each input.
static void bind_batch(Session *session, const Model *listed, int64_t batch, Reading *r)
{
	bool any = false;
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		if (in->rank > 0 && in->dim[0].size < 0)
			bind_axis(session, r, in, 0, batch);
		any |= in->rank > 0 && (in->dim[0].size < 0 || in->dim[0].size == batch);
	}
	if (!any)
		fail("--batch", "no input has an open first axis");
}

static bool has_dimension(Session *session, const Model *model, const char *name)
{
	for (int i = 0; i < model->inputs.count; i++) {
		const Input *in = &model->inputs.at[i];
		for (int a = 0; a < in->rank; a++) {
			const char *symbol = in->dim[a].name ? in->dim[a].name : "";
			bool part = is_formula(symbol) && strstr(symbol, name);
			if (part || !strcmp(symbol, name) ||
			    !strcmp(format(session->arena, "%s:%d", in->name, a), name))
				return true;
		}
	}
	return false;
}

// Every --bind is of a dimension; looked at once.
static void check_binds(Session *session, const Model *model)
{
	if (session->bound)
		return;
	Reading r = read_choices(session);
	for (int i = 0; i < r.binds.count; i++)
		if (!has_dimension(session, model, r.binds.at[i].name))
			fail("--bind", "no input has a dimension '%s'", r.binds.at[i].name);
	session->bound = true;
}

// The options, and the sizes that the data tell, or --batch.
static Reading read_told(Session *session, struct amos_data *data, bool random, int64_t batch)
{
	Reading r = read_choices(session);
	if (data)
		know_data(session, data, &r);
	if (data)
		bind_by_data(session, data, read_with(session, &r, random, true), &r);
	else if (batch)
		bind_batch(session, read_with(session, &r, random, true), batch, &r);
	return r;
}

Model *read_bound(Session *session, struct amos_data *data, bool random, int64_t samples)
{
	if (data && samples)
		amos_data_batch(data, samples);
	const Reading r = read_told(session, data, random,
	                            samples ? samples : choice_count(session, OPT_batch, 0));
	Model *model = read_with(session, &r, random, false);
	check_binds(session, model);
	return model;
}

// Open dimensions become `batch` on the first axis of an input and `size` on the others; those that
// are computed from others only where these do not tell.
static void bind_open(Session *session, int64_t batch, int64_t size, Reading *r)
{
	bool open = true;
	for (int formulas = 0; formulas < 2 && open; formulas++) {
		const Model *listed = read_with(session, r, false, true);
		open = false;
		for (int i = 0; i < listed->inputs.count; i++)
			for (int a = 0; a < listed->inputs.at[i].rank; a++) {
				const Input *in = &listed->inputs.at[i];
				open |= in->dim[a].size < 0;
				if (in->dim[a].size < 0 && is_formula(in->dim[a].name) <= formulas)
					bind_axis(session, r, in, a, a ? size : batch);
			}
	}
}

Model *read_window(Session *session, int64_t window)
{
	Reading r = read_choices(session);
	bind_open(session, 1, window, &r);
	return read_with(session, &r, false, false);
}

Model *attempt_read(Session *session, ReadModel *read, const void *context, const char **failure)
{
	Catch catch;
	if (!TRY(catch)) {
		Model *model = read(session, context);
		catch_end(&catch);
		return model;
	}
	if (catch.status != STATUS_INPUT)
		fail_again(&catch);
	*failure = copy_string(session->arena, catch.message);
	free(catch.message);
	return NULL;
}

typedef struct Trial { // sizes of open dimensions to read a model with
	const Reading *told;
	int64_t size;
	bool random;
} Trial;

static Model *read_trial(Session *session, const void *context)
{
	const Trial *t = context;
	Reading r = *t->told;
	bind_open(session, 2, t->size, &r);
	return read_with(session, &r, t->random, false);
}

Model *list_model(Session *session)
{
	Reading r = read_choices(session);
	return read_with(session, &r, false, true);
}

Model *read_standing(Session *session, struct amos_data *data, bool random)
{
	static const int64_t sizes[] = {8, 12, 16, 32, 64, 224};
	const Reading told = read_told(session, data, false, choice_count(session, OPT_batch, 0));
	Model *model = NULL;
	const char *failure;
	for (int k = 0; k < COUNT(sizes) && !model; k++)
		model =
		    attempt_read(session, read_trial, &(Trial){&told, sizes[k], random}, &failure);
	if (chosen(session, OPT_bind))
		check_binds(session, read_with(session, &told, false, true));
	return model ? model : read_trial(session, &(Trial){&told, sizes[0], random});
}
