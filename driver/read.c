// read.c: reads the model as the options and the data have it.
// Chooses precision, frozen weights, statistics and dropout, and binds every dimension: by --bind,
// by the data, or by a size that stands for any.
// Invariant: a model can be read any number of times, also from standard input.
#include "driver.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Reading { // ReadOptions while they are being collected
	Session *session;
	bool random;         // as in a training step
	int64_t batch, size; // of dimensions that nothing tells
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

void limit_cost(Session *session)
{
	Budget *budget = budget_new(session->arena);
	Bind limit;
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		for (const char *rest = c->option == OPT_limit ? c->value : ""; *rest;) {
			bool pair = next_pair(session->arena, &rest, &limit);
			int cost = pair ? FIND(limit.name, cost_names) : -1;
			if (cost < 0)
				fail_status(
				    STATUS_USAGE, "--limit",
				    "expected COST=N,..., COST nodes, bytes or elements, N at "
				    "least 1; found '%s'",
				    c->value);
			budget->limit[cost] = (uint64_t)limit.size;
		}
	}
}

static Reading read_choices(Session *session, bool random)
{
	Reading r = {.session = session, .random = random};
	Bind bind;
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		for (const char *rest = c->option == OPT_bind ? c->value : ""; *rest;) {
			if (!next_pair(session->arena, &rest, &bind))
				fail_status(STATUS_USAGE, "--bind",
				            "expected NAME=N,... with N at least 1, found '%s'",
				            c->value);
			PUSH(session->arena, r.binds, bind);
		}
		if (c->option == OPT_freeze)
			PUSH(session->arena, r.freeze, c->value);
		if (c->option == OPT_train)
			PUSH(session->arena, r.freeze, format(session->arena, "!%s", c->value));
	}
	return r;
}

// ---- the file -------------------------------------------------------------------------

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
		            "expected f32, or f64 in run, eval and grad; found '%s'", said);
	return said && strcmp(said, "f32") ? PRECISION_F64 : PRECISION_F32;
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

// A file is parsed once, however often it is read.
static Model *read_file(Session *session, const void *context)
{
	const ReadOptions *options = context;
	if (!session->file && !strcmp(session->path, "-"))
		copy_input();
	if (!session->file)
		session->file = parse_model(session->arena, session->path, options->loss);
	return read_parsed(session->arena, session->file, options);
}

// Fails if --loss does not suit the outputs that the file declares.
static Model *check_loss(Session *session, const void *context)
{
	ReadOptions options = *(const ReadOptions *)context;
	options.list = true;
	Model *m = read_file(session, &options);
	const char **names = NEWS(session->arena, const char *, m->outputs.count + 1);
	for (int i = 0; i < m->outputs.count; i++)
		names[i] = m->outputs.at[i].name;
	loss_check(session->arena, choice(session, OPT_loss, ""), m->outputs.count, names);
	return m;
}

// Puts in dropout as --dropout says; reports random numbers that are no dropout, where dropout is
// gone.
static void settle_graph(Session *session, Model *model, bool random)
{
	bool norms = false;
	for (int i = 0; i < model->ops.count; i++)
		norms |= starts_with(model->ops.at[i].op, "BatchNorm");
	if (chosen(session, OPT_bn) && !norms)
		fail("--bn", "the model has no BatchNormalization");
	double rate = choice_part(session, OPT_dropout, NAN);
	int added;
	model->graph = dropout_pass(session->arena, model->graph, random, rate, &added);
	if (random && rate > 0 && !added)
		fail("--dropout", "no place takes it: the model has no block of attention or MLP "
		                  "without dropout of its own");
	if (random && rate > 0)
		PUSH(session->arena, model->notes,
		     format(session->arena, "dropout of %g put at %d places", rate, added));
	int drawing = random ? -1 : drawing_node(model->graph);
	if (drawing < 0)
		return;
	const Node *node = &model->graph->nodes->list.at[drawing];
	tell(session,
	     "note: node '%s' (%s) draws at random and is no dropout: what it computes "
	     "depends on --seed\n",
	     node->name, node->op);
}

// What is wrong with the model and with its loss is one failure.
static Model *read_with(const Reading *r, bool list)
{
	Session *session = r->session;
	const ReadOptions options = {.nbind = r->binds.count,
	                             .bind = r->binds.at,
	                             .nfreeze = r->freeze.count,
	                             .freeze = r->freeze.at,
	                             .statistics = statistics(session, r->random),
	                             .training = r->random,
	                             .separate = session->purpose == FOR_GRADIENTS,
	                             // the file's, where nothing else is to be minimized
	                             .loss = traits[session->purpose] & USES_LOSS &&
	                                     !session->plain && !chosen(session, OPT_loss) &&
	                                     !chosen(session, OPT_cotangent),
	                             .precision = precision(session),
	                             .nknown = r->known.count,
	                             .known = r->known.at,
	                             .list = list};
	const char *failure = NULL, *more = NULL;
	Model *model = attempt_read(session, read_file, &options, &failure);
	if (!model && !list && chosen(session, OPT_loss) && strcmp(session->path, "-"))
		attempt_read(session, check_loss, &options, &more);
	session->loss_trouble = more;
	if (!model)
		fail(NULL, "%s%s%s", failure, more ? "\n" : "", more ? more : "");
	if (!list)
		settle_graph(session, model, r->random);
	if (beyond_f32(model))
		tell(session, "note: %s\n", beyond_f32(model));
	return model;
}

// ---- dimensions -----------------------------------------------------------------------

static void bind_axis(Reading *r, const Input *in, int axis, int64_t size)
{
	Arena *arena = r->session->arena;
	const char *name = in->dim[axis].name;
	Bind bind = {name && *name ? name : format(arena, "%s:%d", in->name, axis), size};
	PUSH(arena, r->binds, bind);
}

// Arrays are named by an input or, as NAME#k, by an element of a sequence.
static bool is_for(const Known *known, const Input *in)
{
	size_t length = strlen(in->name);
	char after = strncmp(known->name, in->name, length) ? ' ' : known->name[length];
	return !after || (after == '#' && in->sequence);
}

static void bind_by_data(Reading *r, struct amos_data *data)
{
	Arena *arena = r->session->arena;
	const struct amos_array *array;
	const char *name;
	VEC(const char *) names = {0};
	VEC(const Input *) from = {0};
	VEC(struct amos_input) inputs = {0};
	for (int k = 0; array = amos_data_array(data, k, &name), name; k++)
		if (array)
			PUSH(arena, r->known,
			     ((Known){name, (Elem)array->type, shape_of(array->rank, array->dim),
			              array->bytes}));
	const Model *listed = read_with(r, true);
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		struct amos_input to = {.name = in->name, .type = in->type, .rank = in->rank};
		for (int a = 0; a < in->rank; a++) {
			to.dim[a] = in->dim[a].size;
			to.axis[a] = in->dim[a].name && *in->dim[a].name ? in->dim[a].name : NULL;
		}
		PUSH(arena, names, in->name);
		for (int k = 0; k < r->known.count; k++)
			if (is_for(&r->known.at[k], in))
				PUSH(arena, names, r->known.at[k].name);
		if (in->rank < 0 || in->sequence || in->optional)
			continue;
		PUSH(arena, from, in);
		PUSH(arena, inputs, to);
	}
	need_done(amos_data_take(data, names.count, names.at));
	// operators may need these values when the file is read: they get the type of their input
	for (int i = 0; i < listed->inputs.count; i++)
		for (int k = 0; k < r->known.count; k++) {
			Known *known = &r->known.at[k];
			Elem type = listed->inputs.at[i].type;
			bool floats = is_float(type) && is_float(known->type),
			     same = type == known->type && type != E_u64;
			if (floats || same || !is_for(known, &listed->inputs.at[i]))
				continue;
			void *values = take(arena, (size_t)byte_count(type, &known->shape) + 8);
			need_done(amos_data_values(data, known->name, type, values));
			known->bytes = values;
			known->type = type;
		}
	need_done(amos_data_bind(data, inputs.count, inputs.at));
	for (int i = 0; i < inputs.count; i++)
		for (int a = 0; a < inputs.at[i].rank; a++)
			if (from.at[i]->dim[a].size < 0 && inputs.at[i].dim[a] >= 0)
				bind_axis(r, from.at[i], a, inputs.at[i].dim[a]);
}

// The options, and the sizes that the data tell, or --batch: the first axis of each input.
static Reading read_told(Session *session, struct amos_data *data, bool random, int64_t batch)
{
	Reading r = read_choices(session, random);
	if (data)
		bind_by_data(&r, data);
	if (data || !batch)
		return r;
	const Model *listed = read_with(&r, true);
	bool any = false;
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		if (in->rank > 0 && in->dim[0].size < 0)
			bind_axis(&r, in, 0, batch);
		any |= in->rank > 0 && (in->dim[0].size < 0 || in->dim[0].size == batch);
	}
	if (!any)
		fail("--batch", "no input has an open first axis");
	return r;
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
	const Reading r = read_choices(session, false);
	for (int i = 0; i < r.binds.count && !session->bound; i++)
		if (!has_dimension(session, model, r.binds.at[i].name))
			fail("--bind", "no input has a dimension '%s'", r.binds.at[i].name);
	session->bound = true;
}

Model *read_bound(Session *session, struct amos_data *data, bool random, int64_t samples)
{
	if (data && samples)
		amos_data_batch(data, samples);
	const Reading r = read_told(session, data, random,
	                            samples ? samples : choice_count(session, OPT_batch, 0));
	Model *model = read_with(&r, false);
	check_binds(session, model);
	return model;
}

// Reads the model by a Reading. Open dimensions become its `batch` on the first axis of an input
// and its `size` on the others; those that are computed from others only where these do not tell.
static Model *read_open(Session *session, const void *told)
{
	Reading r = *(const Reading *)told;
	bool open = true;
	(void)session;
	r.random = false;
	for (int formulas = 0; formulas < 2 && open; formulas++) {
		const Model *listed = read_with(&r, true);
		open = false;
		for (int i = 0; i < listed->inputs.count; i++)
			for (int a = 0; a < listed->inputs.at[i].rank; a++) {
				const Input *in = &listed->inputs.at[i];
				open |= in->dim[a].size < 0;
				if (in->dim[a].size < 0 && is_formula(in->dim[a].name) <= formulas)
					bind_axis(&r, in, a, a ? r.size : r.batch);
			}
	}
	r.random = ((const Reading *)told)->random;
	return read_with(&r, false);
}

Model *read_window(Session *session, int64_t window)
{
	Reading r = read_choices(session, false);
	r.batch = 1;
	r.size = window;
	return read_open(session, &r);
}

Model *list_model(Session *session)
{
	const Reading r = read_choices(session, false);
	return read_with(&r, true);
}

Model *read_standing(Session *session, struct amos_data *data, bool random)
{
	static const int64_t sizes[] = {8, 12, 16, 32, 64, 224};
	Reading told = read_told(session, data, false, choice_count(session, OPT_batch, 0));
	Model *model = NULL;
	const char *failure;
	if (chosen(session, OPT_bind))
		check_binds(session, read_with(&told, true));
	told.random = random;
	told.batch = 2;
	for (int k = 0; k < COUNT(sizes) && !model; k++) {
		told.size = sizes[k];
		model = attempt_read(session, read_open, &told, &failure);
	}
	told.size = sizes[0];
	return model ? model : read_open(session, &told);
}
