// read.c: reads the model with the options and the sizes of the data.
// Chooses precision, frozen weights, statistics and dropout. Every dimension gets a size: from
// --bind, from the data, or a placeholder.
// Invariant: a model can be read any number of times, also from standard input.
#include "driver.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef VEC(Bind) Binds;

typedef struct Reading { // the ReadOptions while they are collected
	Session *session;
	bool random;         // as in a training step
	int64_t batch, size; // placeholders for open dimensions: the first axis, the others
	Binds binds;
	Binds values; // of --bind
	VEC(Selection) select;
	VEC(const char *) detach;
	KnownList known;
} Reading;

// Returns the pairs of an option whose values are lists NAME=N,NAME=N with N at least 1.
static Binds all_pairs(const Session *session, OptionName option)
{
	Binds pairs = {0};
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option != option)
			continue;
		const char *list = c->value, *equal;
		do {
			char *end = NULL;
			errno = 0;
			equal = strchr(list, '=');
			long long size = equal ? strtoll(equal + 1, &end, 10) : 0;
			if (!equal || equal == list || (*end && *end != ',') || size < 1 || errno)
				bad_usage(session,
				          format(session->arena,
				                 "--%s: expected %s with N at least 1, found '%s'",
				                 options[option].name, options[option].argument,
				                 c->value));
			char *name = format(session->arena, "%.*s", (int)(equal - list), list);
			PUSH(session->arena, pairs, ((Bind){name, size}));
			list = *end ? end + 1 : end;
		} while (*list);
	}
	return pairs;
}

// Returns the pairs, of those with the same name the largest. Fails if they differ, unless they are
// batch sizes.
static Binds pairs_of(const Session *session, OptionName option)
{
	const Binds all = all_pairs(session, option);
	Binds largest = {0};
	for (int i = 0; i < all.count; i++) {
		Bind *pair = &all.at[i];
		int k = amos_index(pair->name, largest.at, largest.count, sizeof *largest.at);
		if (k < 0) {
			PUSH(session->arena, largest, *pair);
			continue;
		}
		Bind *before = &largest.at[k];
		if (pair->size != before->size && !(session->several && option == OPT_bind))
			bad_usage(session, format(session->arena,
			                          "--%s: '%s' is given twice, as %lld and %lld",
			                          options[option].name, pair->name,
			                          (long long)before->size, (long long)pair->size));
		before->size = MAX(before->size, pair->size);
	}
	return largest;
}

static int descending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x < y) - (x > y);
}

Sizes batch_sizes(const Session *session)
{
	const Binds all = all_pairs(session, OPT_bind), largest = pairs_of(session, OPT_bind);
	Sizes sizes = {0};
	const char *name = NULL;
	for (int i = 0; i < all.count; i++) {
		const Bind *pair = &all.at[i];
		int k = amos_index(pair->name, largest.at, largest.count, sizeof *largest.at);
		if (pair->size == largest.at[k].size)
			continue;
		if (!name)
			PUSH(session->arena, sizes, largest.at[k].size);
		if (name && strcmp(name, pair->name))
			bad_usage(session, format(session->arena,
			                          "--bind: only the batch may have several sizes, "
			                          "found them for '%s' and '%s'",
			                          name, pair->name));
		name = pair->name;
		PUSH(session->arena, sizes, pair->size);
	}
	if (sizes.count)
		qsort(sizes.at, (size_t)sizes.count, sizeof *sizes.at, descending);
	int kept = 0;
	for (int i = 0; i < sizes.count; i++)
		if (!i || sizes.at[i] != sizes.at[i - 1])
			sizes.at[kept++] = sizes.at[i];
	sizes.count = kept;
	return sizes;
}

void limit_cost(Session *session)
{
	Budget *budget = budget_new(session->arena);
	const Binds limits = pairs_of(session, OPT_limit);
	for (int i = 0; i < limits.count; i++) {
		int cost = FIND(limits.at[i].name, costs);
		if (cost < 0)
			fail_status(STATUS_USAGE, "--limit",
			            "expected nodes, bytes or elements, found '%s'",
			            limits.at[i].name);
		budget->limit[cost] = (uint64_t)limits.at[i].size;
	}
}

static Reading read_choices(Session *session, bool random)
{
	Reading r = {.session = session, .random = random, .binds = pairs_of(session, OPT_bind)};
	r.values = r.binds;
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		bool train = c->option == OPT_train;
		if (train || c->option == OPT_freeze)
			PUSH(session->arena, r.select, ((Selection){c->value, train}));
		if (c->option == OPT_detach)
			PUSH(session->arena, r.detach, c->value);
	}
	return r;
}

// ---- the file -------------------------------------------------------------------------

// Copies standard input into memory, unless it is a regular file: that can be mapped.
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
	if (copy >= 0 && got < 0)
		fail("standard input", "cannot read: %s", strerror(errno));
	if (copy < 0 || dup2(copy, STDIN_FILENO) < 0)
		fail_status(STATUS_MACHINE, "standard input", "%s", strerror(errno));
	close(copy);
}

bool is_report(const char *path)
{
	if (strcmp(path, "-"))
		return ends_with(path, ".json");
	copy_input();
	char first = 0; // of JSON text that is an object; no ONNX file begins so
	off_t at = 0;
	do
		if (pread(STDIN_FILENO, &first, 1, at++) != 1)
			return false;
	while (isspace((unsigned char)first));
	return first == '{';
}

// Returns the choice of --bn. Without it, a training step uses batch statistics, the loss of a
// network in training its running statistics, and run and grad what the file says.
static Statistics statistics(const Session *session, bool random)
{
	const char *said = session->drawn ? "train" : choice(session, OPT_bn, NULL);
	if (said && strcmp(said, "train") && strcmp(said, "frozen"))
		fail_status(STATUS_USAGE, "--bn", "expected train or frozen, found '%s'", said);
	if (said && !strcmp(said, "frozen"))
		return BN_RUNNING;
	if (!random && (session->purpose == FOR_TRAINING || session->purpose == FOR_EVALUATION))
		return BN_RUNNING;
	return said || random ? BN_BATCH : BN_FILE;
}

// Returns the choice of --precision. Without it, grad computes in double, run and eval in the
// file's types.
static Precision precision(const Session *session)
{
	static const char *const names[] = {[PRECISION_F32] = "f32",
	                                    [PRECISION_BF16] = "bf16",
	                                    [PRECISION_F16] = "f16",
	                                    [PRECISION_TF32] = "tf32",
	                                    [PRECISION_F64] = "f64"};
	const char *said = choice(session, OPT_precision, NULL);
	bool gradients = session->purpose == FOR_GRADIENTS,
	     forward = session->purpose == FOR_EVALUATION || session->purpose == FOR_OUTPUTS;
	if (!said && (forward || gradients))
		return gradients ? PRECISION_F64 : PRECISION_FILE;
	Precision p = PRECISION_F32;
	while (said && p < PRECISION_FILE && strcmp(said, names[p]))
		p++;
	bool fits = p != PRECISION_F64 || forward || gradients;
	if (p == PRECISION_FILE || !fits)
		fail_status(STATUS_USAGE, "--precision",
		            "expected f32, bf16, f16 or tf32, or f64 in run, eval and grad; found "
		            "'%s'",
		            said);
	return p;
}

// Returns the choice of --loss-scale; 0: it depends on the gradients.
static double fixed_loss_scale(const Session *session)
{
	if (!chosen(session, OPT_loss_scale))
		return 0;
	double scale = choice_number(session, OPT_loss_scale, 0);
	if (precision(session) != PRECISION_F16)
		fail_status(STATUS_USAGE, "--loss-scale",
		            "no gradients are computed in f16, which alone needs a scale" HELP
		            "give --precision f16");
	if (!(scale >= LEAST_LOSS_SCALE && scale <= MOST_LOSS_SCALE))
		fail_status(STATUS_USAGE, "--loss-scale", "expected %g to %g, found '%s'",
		            LEAST_LOSS_SCALE, MOST_LOSS_SCALE, choice(session, OPT_loss_scale, ""));
	return scale;
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

// Parses the file at the first call only.
static Model *read_file(Session *session, const void *context)
{
	const ReadOptions *options = context;
	if (!session->file && is_report(session->path))
		fail(session->path, "a report; expected a model" HELP
		                    "amosc eta prints it, and amosc build --update-only "
		                    "compiles the update of its parameters");
	if (!session->file)
		session->file = parse_model(session->arena, session->path, options->loss);
	return read_parsed(work_arena(session), session->file, options);
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

// Inserts or removes dropout as --dropout says. Outside of training, reports a node that draws
// random numbers and is not a dropout.
static void settle_graph(Session *session, Model *model, bool random)
{
	bool norms = false;
	for (int i = 0; i < model->ops.count; i++)
		norms |= starts_with(model->ops.at[i].op, "BatchNorm");
	if (chosen(session, OPT_bn) && !norms)
		fail("--bn", "the model has no BatchNormalization");
	double rate = choice_number(session, OPT_dropout, NAN);
	int added;
	model->graph = dropout_pass(model->arena, model->graph, random, rate, &added);
	if (random && rate > 0 && !added)
		fail("--dropout",
		     "the model has no attention or MLP block without dropout of its own");
	if (random && rate > 0)
		PUSH(model->arena, model->notes,
		     format(model->arena, "dropout of %g inserted at %d %s", rate, added,
		            PLURAL(added, "point", "points")));
	int drawing = random ? -1 : drawing_node(model->graph);
	if (drawing < 0)
		return;
	const Node *node = &model->graph->nodes->list.at[drawing];
	tell(session,
	     "note: node '%s' (%s) draws random numbers and is not a dropout: its result depends "
	     "on --seed\n",
	     node->name, node->op);
}

// Errors in the model and in --loss are reported together.
static Model *read_with(const Reading *r, bool list)
{
	Session *session = r->session;
	const ReadOptions options = {
	    .nbind = r->binds.count,
	    .bind = r->binds.at,
	    .nvalue = r->values.count,
	    .value = r->values.at,
	    .nselect = r->select.count,
	    .select = r->select.at,
	    .ndetach = r->detach.count,
	    .detach = r->detach.at,
	    .statistics = statistics(session, r->random),
	    .training = r->random,
	    .separate = session->purpose == FOR_GRADIENTS,
	    // the file's, unless the options give another
	    .loss = session->purpose != FOR_OUTPUTS && session->purpose != FOR_EXPORT &&
	            !chosen(session, OPT_loss) && !chosen(session, OPT_cotangent),
	    .precision = precision(session),
	    .loss_scale = fixed_loss_scale(session),
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

// True if the array has the input's name or, for a sequence, the name NAME#k of an element.
static bool is_for(const Known *known, const Input *in)
{
	size_t length = strlen(in->name);
	char after = strncmp(known->name, in->name, length) ? ' ' : known->name[length];
	return !after || (after == '#' && in->sequence);
}

// True if --bind gives the input a number, and no dimension is called so: it takes no data.
static bool has_value(const Reading *r, const Model *listed, const Input *input)
{
	bool found = false, one = !is_float(input->type) && input->rank <= 1;
	for (int i = 0; one && i < r->values.count; i++)
		found |= !strcmp(r->values.at[i].name, input->name);
	for (int i = 0; i < listed->inputs.count; i++)
		for (int a = 0; found && a < listed->inputs.at[i].rank; a++) {
			const char *name = listed->inputs.at[i].dim[a].name;
			found = !name || strcmp(name, input->name);
		}
	return found;
}

// Tells the data which of their arrays the model takes.
static void take_arrays(const Reading *r, struct amos_data *data, const Model *listed)
{
	Arena *arena = r->session->arena;
	VEC(const char *) names = {0};
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		if (has_value(r, listed, in))
			continue;
		PUSH(arena, names, in->name);
		for (int k = 0; k < r->known.count; k++)
			if (is_for(&r->known.at[k], in))
				PUSH(arena, names, r->known.at[k].name);
	}
	need_done(amos_data_take(data, names.count, names.at));
}

// Operators may need the values of arrays when the file is read, in the type of their input.
static void convert_known(Reading *r, struct amos_data *data, const Model *listed)
{
	Arena *arena = r->session->arena;
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
}

static struct amos_input data_input(const Input *in)
{
	struct amos_input to = {
	    .name = in->name, .type = in->type, .rank = in->rank, .counts = in->open};
	for (int a = 0; a < in->rank; a++) {
		to.dim[a] = in->dim[a].size;
		to.axis[a] = in->dim[a].name && *in->dim[a].name ? in->dim[a].name : NULL;
	}
	return to;
}

static void bind_by_data(Reading *r, struct amos_data *data)
{
	Arena *arena = r->session->arena;
	const struct amos_array *array;
	const char *name;
	VEC(const Input *) from = {0};
	VEC(struct amos_input) inputs = {0};
	for (int k = 0; array = amos_data_array(data, k, &name), name; k++)
		if (array)
			PUSH(arena, r->known,
			     ((Known){name, (Elem)array->type, shape_of(array->rank, array->dim),
			              array->bytes}));
	const Model *listed = read_with(r, true);
	take_arrays(r, data, listed);
	convert_known(r, data, listed);
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		if (in->rank < 0 || in->sequence || in->optional || has_value(r, listed, in))
			continue;
		PUSH(arena, from, in);
		PUSH(arena, inputs, data_input(in));
	}
	need_done(amos_data_bind(data, inputs.count, inputs.at));
	for (int i = 0; i < inputs.count; i++)
		for (int a = 0; a < inputs.at[i].rank; a++)
			if (from.at[i]->dim[a].size < 0 && inputs.at[i].dim[a] >= 0)
				bind_axis(r, from.at[i], a, inputs.at[i].dim[a]);
}

// Sets the size of those dimensions that --bind names and that are the first axis of an input.
static void bind_samples(Reading *r, int64_t samples)
{
	const Model *listed = read_with(r, true);
	for (int i = 0; i < listed->inputs.count; i++) {
		const Input *in = &listed->inputs.at[i];
		const char *symbol = in->rank > 0 && in->dim[0].name ? in->dim[0].name : "";
		const char *numbered = format(r->session->arena, "%s:0", in->name);
		for (int k = 0; k < r->binds.count && in->rank > 0; k++)
			if (!strcmp(r->binds.at[k].name, symbol) ||
			    !strcmp(r->binds.at[k].name, numbered))
				r->binds.at[k].size = samples;
	}
}

// Returns the options, with sizes from the data or, for the first axis of each input, `batch`.
static Reading read_sizes(Reading r, struct amos_data *data, int64_t batch)
{
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

// True if the axis has the name: its own, INPUT:AXIS, or a part of its formula.
static bool is_called(Session *session, const Input *in, int axis, const char *name)
{
	const char *symbol = in->dim[axis].name ? in->dim[axis].name : "";
	bool part = is_formula(symbol) && strstr(symbol, name);
	return part || !strcmp(symbol, name) ||
	       !strcmp(format(session->arena, "%s:%d", in->name, axis), name);
}

// True if an axis of an input, from number `from` on, has the name.
static bool has_dimension(Session *session, const Model *model, const char *name, int from)
{
	for (int i = 0; i < model->inputs.count; i++)
		for (int a = from; a < model->inputs.at[i].rank; a++)
			if (is_called(session, &model->inputs.at[i], a, name))
				return true;
	return false;
}

// Fails if all axes of the name have other sizes: by the file, or by another name.
static void check_size(Session *session, const Model *model, const Bind *bind)
{
	int64_t other = -1;
	for (int i = 0; i < model->inputs.count; i++) {
		const Input *in = &model->inputs.at[i];
		for (int a = 0; a < in->rank; a++) {
			int64_t size = in->dim[a].size;
			bool formula = in->dim[a].name && is_formula(in->dim[a].name);
			if (!is_called(session, in, a, bind->name))
				continue;
			if (formula || size < 0 || size == bind->size)
				return;
			other = size;
		}
	}
	if (other >= 0)
		fail("--bind", "'%s' is %lld in the model or by another name in --bind; found %lld",
		     bind->name, (long long)other, (long long)bind->size);
}

static bool has_input(const Model *model, const char *name)
{
	bool found = false;
	for (int i = 0; i < model->inputs.count; i++)
		found |= !strcmp(model->inputs.at[i].name, name);
	return found;
}

static void check_binds(const Reading *r)
{
	Session *session = r->session;
	const Model *model = read_with(r, true);
	const Binds binds = pairs_of(session, OPT_bind), all = all_pairs(session, OPT_bind);
	for (int i = 0; i < binds.count; i++)
		if (!has_input(model, binds.at[i].name) &&
		    !has_dimension(session, model, binds.at[i].name, 0))
			fail("--bind", "no input has a dimension '%s'", binds.at[i].name);
	for (int i = 0; i < r->values.count; i++) // before sizes from the data
		check_size(session, model, &r->binds.at[i]);
	for (int i = 0; i < all.count; i++) {
		const char *name = all.at[i].name;
		int k = amos_index(name, binds.at, binds.count, sizeof *binds.at);
		bool several = all.at[i].size != binds.at[k].size;
		if (several && (has_dimension(session, model, name, 1) ||
		                !has_dimension(session, model, name, 0)))
			fail("--bind",
			     "'%s' has several sizes, but is not the batch, which is the first "
			     "axis of inputs",
			     name);
	}
}

Model *read_bound(Session *session, struct amos_data *data, bool random, int64_t samples)
{
	if (data && samples)
		data->batch = samples;
	Reading r = read_choices(session, random);
	if (samples)
		bind_samples(&r, samples);
	r = read_sizes(r, data, samples ? samples : choice_count(session, OPT_batch, 0));
	if (chosen(session, OPT_bind))
		check_binds(&r);
	return read_with(&r, false);
}

// Reads the model with placeholders for open dimensions. One computed from others gets a
// placeholder only if it is still open when the others have one.
static Model *read_open(Session *session, const void *reading)
{
	Reading r = *(const Reading *)reading;
	bool open = true;
	(void)session;
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
	Reading r = read_choices(session, random);
	r = read_sizes(r, data, choice_count(session, OPT_batch, 0));
	Model *model = NULL;
	const char *failure;
	if (chosen(session, OPT_bind))
		check_binds(&r);
	r.batch = 2;
	for (int k = 0; k < COUNT(sizes) && !model; k++) {
		r.size = sizes[k];
		model = attempt_read(session, read_open, &r, &failure);
	}
	r.size = sizes[0];
	return model ? model : read_open(session, &r);
}
