// program.c: runs the passes of passes.def on a program: the entries that one object holds.
// Input: a Session and its data, or a program read from text. Output: an open model.
// Invariant: from pass `join` on, all entries have the slot table of the first.
#include "driver.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const Graph *program_graph(const Program *p)
{
	return p->entries.at[0].unit.graph;
}

const char *program_identity(Program *p)
{
	if (!p->identity && p->hashing)
		p->identity = identity_of(p->session, p->hashing);
	return p->identity;
}

// Adds an entry of the live values of `g`, as if printed and read back; g NULL: not read yet.
static Entry *add_entry(Program *p, const char *name, const Graph *g)
{
	Arena *arena = work_arena(p->session);
	const Graph *live = g ? graph_live(arena, g) : NULL;
	const Machine *machine = target_machine(p->target[0]);
	PUSH(arena, p->entries,
	     ((Entry){.unit = {.name = name, .machine = machine, .graph = live}}));
	return &p->entries.at[p->entries.count - 1];
}

static Entry *entry_named(Program *p, const char *name)
{
	int i = amos_index(name, p->entries.at, p->entries.count, sizeof(Entry));
	return i < 0 ? NULL : &p->entries.at[i];
}

static void set_graph(Entry *e, const Graph *g)
{
	if (g != e->unit.graph)
		e->unit.graph = graph_live(g->arena, g);
}

// Runs `pass` on one entry. Returns false if it fails on an entry for fewer samples.
static bool run_on_entry(Program *p, Entry *e, const Graph *pass(Program *, Entry *))
{
	Catch catch;
	if (!TRY(catch)) {
		set_graph(e, pass(p, e));
		catch_end(&catch);
		return true;
	}
	if (catch.status != STATUS_INPUT || !e->samples || e->asked)
		fail_again(&catch);
	free(catch.message);
	return false;
}

// Runs `pass` on the entries from `first` on. Drops entries for fewer samples on which it fails:
// not every model accepts them.
static void run_on_entries(Program *p, int first, const Graph *pass(Program *, Entry *))
{
	int kept = first;
	for (int i = first; i < p->entries.count; i++)
		if (run_on_entry(p, &p->entries.at[i], pass))
			p->entries.at[kept++] = p->entries.at[i];
	p->entries.count = kept;
}

// ---- read -----------------------------------------------------------------------------

static Model *read_all(Session *session, const void *data)
{
	return read_bound(session, (struct amos_data *)data, true, 0);
}

// Returns the model whose update is compiled alone: open dimensions may stay open.
static Model *read_update(Program *p)
{
	const char *failure;
	Model *model = attempt_read(p->session, read_all, p->data, &failure);
	p->standing = !model;
	return model ? model : read_standing(p->session, p->data, true);
}

// Reads a report instead of a model: it has all that the update of its parameters needs.
static void read_report(Program *p)
{
	Session *session = p->session;
	p->report = full_report(session, session->path).json;
	p->standing = true;
	p->identity = identity_of_report(session, p->report);
	add_entry(p, "train", report_graph(work_arena(session), session->path, p->report));
}

static Model *read_entry(Program *p, bool random)
{
	return p->standing ? read_standing(p->session, p->data, random)
	                   : read_bound(p->session, p->data, random, 0);
}

static const Graph *read_fewer(Program *p, Entry *e)
{
	return read_bound(p->session, p->data, false, e->samples)->graph;
}

static const char *fewer_name(Arena *arena, const char *name, int64_t samples)
{
	return format(arena, "%s:%lld", name, (long long)samples);
}

static Entry *add_fewer(Program *p, const char *name, int64_t samples)
{
	Entry *e = add_entry(p, fewer_name(work_arena(p->session), name, samples), NULL);
	e->samples = samples;
	return e;
}

// Adds entries that evaluate the samples after the last complete batch, and `least` samples (0:
// none).
static void read_rest(Program *p, int64_t least)
{
	Arena *arena = work_arena(p->session);
	int64_t batch = p->data ? p->data->batch : 0,
	        sizes[] = {p->data ? amos_data_eval_samples(p->data) % batch : 0, least};
	int first = p->entries.count;
	const Sizes asked = batch_sizes(p->session);
	for (int k = 1; k < asked.count; k++) {
		add_fewer(p, "eval", asked.at[k])->asked = true;
		add_fewer(p, "run", asked.at[k])->asked = true;
	}
	for (int k = 0; k < COUNT(sizes); k++)
		if (sizes[k] && !entry_named(p, fewer_name(arena, "eval", sizes[k])))
			add_fewer(p, "eval", sizes[k]);
	run_on_entries(p, first, read_fewer);
	if (p->data)
		p->data->batch = batch;
}

// Returns the parameters that the user should confirm for a reason: a few, or all with --verbose.
static const char *names_asked(const Session *session, const Graph *g, const char *why)
{
	enum { FEW = 2 };
	Text names = {.arena = session->arena};
	int n = 0, most = chosen(session, OPT_verbose) ? INT_MAX : FEW;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		if (s->kind != S_param || !s->why || strcmp(s->why, why) != 0 || n++ >= most)
			continue;
		say(&names, "%s'%s'", n > 1 ? ", " : "", s->name);
		if (strcmp(s->name, s->file) != 0)
			say(&names, " (initializer '%s')", s->file);
	}
	if (n > most)
		say(&names, " and %d more", n - most);
	return names.at;
}

// Warns of them in a line for each reason.
static void tell_asked(const Session *session, const Graph *g)
{
	Table *told = table_new(session->arena);
	for (int i = 0; i < g->slots.count; i++) {
		const char *why = g->slots.at[i].kind == S_param ? g->slots.at[i].why : NULL;
		uint64_t *cell = why ? table_cell_s(told, why) : NULL;
		if (cell && !*cell)
			tell(session, "amosc: warning: %s: %s: %s\n", session->path,
			     names_asked(session, g, why), why);
		if (cell)
			*cell = true;
	}
}

// Tells that parameters in double are trained as f32. Fails if one is too large for that.
static void narrow_doubles(const Program *p)
{
	const Graph *g = p->model->graph;
	if (!p->model->doubles)
		return;
	tell(p->session,
	     "%s is double: training computes in f32, and the trained file keeps its types\n",
	     p->model->doubles);
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		for (int64_t k = 0; s->kind == S_param && s->init && k < count_of(&s->shape); k++)
			if (isinf(const_at(&(Val){.type = s->type, .data = s->init}, k)))
				fail(p->model->path,
				     "parameter %s: entry %lld is too large for f32", s->name,
				     (long long)k);
	}
}

static void pass_read(Program *p)
{
	static const char *const names[] = {[FOR_TRAINING] = "train",
	                                    [FOR_EVALUATION] = "eval",
	                                    [FOR_OUTPUTS] = "run",
	                                    [FOR_GRADIENTS] = "grad"};
	Session *session = p->session;
	bool trains = session->purpose == FOR_TRAINING;
	if (p->update_only && is_report(session->path)) {
		read_report(p);
		return;
	}
	p->model = p->update_only ? read_update(p) : read_entry(p, trains);
	add_entry(p, names[session->purpose], p->model->graph);
	bool differentiates = trains || session->purpose == FOR_GRADIENTS;
	for (int i = 0; i < p->model->doubts.count && differentiates; i++)
		tell(session, "amosc: warning: %s: %s\n", session->path, p->model->doubts.at[i]);
	if (differentiates)
		tell_asked(session, p->model->graph);
	if (session->purpose == FOR_EVALUATION)
		read_rest(p, 0);
	if (!trains)
		return;
	narrow_doubles(p);
	if (p->data)
		need_done(amos_data_check_size(p->data));
	p->hashing = hash_begin(session, p->model);
	if (p->update_only || (p->runs && !(p->data && amos_data_held_out(p->data))))
		return;
	const Graph *still = read_entry(p, false)->graph;
	add_entry(p, "eval", still);
	if (p->weights || p->apart)
		add_entry(p, "run", still);
	if (p->weights || (p->data && amos_data_held_out(p->data)))
		read_rest(p, p->weights);
}

// ---- data -----------------------------------------------------------------------------

// Attaches the data to a model without code, which describes the object before there is one.
static void attach(Program *p)
{
	static const char *const both[] = {"train", "eval", NULL};
	const char *first[] = {p->entries.at[0].unit.name, NULL};
	Arena *arena = p->session->arena;
	const Graph *g = program_graph(p);
	struct amos_slot *slots = NEWS(arena, struct amos_slot, g->slots.count + 1);
	struct amos_entry *entries = NEWS(arena, struct amos_entry, p->entries.count);
	struct amos_model *model = NEW(arena, struct amos_model);
	int64_t inputs = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		const char *file = s->file ? copy_string(arena, s->file) : NULL;
		slots[i] = (struct amos_slot){.name = copy_string(arena, s->name),
		                              .file = file,
		                              .kind = s->kind,
		                              .type = s->type,
		                              .rank = s->shape.rank,
		                              .bytes = byte_count(s->type, &s->shape),
		                              .offset = s->kind == S_input ? inputs++ : 0,
		                              .limit = s->limit,
		                              .ignore = s->ignore,
		                              .counts = s->counts};
		memcpy(slots[i].dim, s->shape.dim, sizeof *s->shape.dim * (size_t)s->shape.rank);
	}
	for (int i = 0; i < p->entries.count; i++) {
		const Unit *unit = &p->entries.at[i].unit;
		Text reads = {.arena = arena};
		for (int k = 0; k < unit->graph->slots.count; k++)
			if (unit->graph->slots.at[k].kind == S_input)
				say(&reads, "%d", slot_ref(unit->graph, k) != 0);
		entries[i] = (struct amos_entry){copy_string(arena, unit->name), .reads = reads.at};
	}
	*model = (struct amos_model){.name = copy_string(arena, g->name),
	                             .slots = slots,
	                             .nslots = g->slots.count,
	                             .entries = entries,
	                             .nentries = p->entries.count};
	need_done(
	    amos_data_attach(p->data, model, p->session->purpose == FOR_TRAINING ? both : first));
}

void attach_data(Program *p)
{
	run_passes(p, p->update_only ? PASS_grad : PASS_join);
	attach(p);
	note_unused(p->session, p->data, program_graph(p));
}

// ---- loss, eta, grad, step ------------------------------------------------------------

// Adds the loss. The graphs of train and eval keep only loss, accuracy and checks as outputs; that
// of grad keeps all.
static const Graph *entry_loss(Program *p, Entry *e)
{
	Arena *arena = work_arena(p->session);
	const Graph *g = e->unit.graph;
	const char *expr = choice(p->session, OPT_loss, NULL);
	if (starts_with(e->unit.name, "run") || p->report)
		return g;
	if (chosen(p->session, OPT_cotangent))
		return cotangent_pass(arena, g, cotangent_shapes(p->session, p->data, g));
	const char *doubt = expr ? loss_doubt(g, expr) : NULL;
	if (doubt)
		tell(p->session, "amosc: warning: %s: %s\n", p->session->path, doubt);
	g = p->update_only ? with_loss(p->session, e->unit.graph) : loss_pass(arena, g, expr);
	if (!strcmp(e->unit.name, "grad") || !find_output(g, "loss"))
		return g;
	Graph *kept = take_copy(arena, g, sizeof *g);
	memset(&kept->outs, 0, sizeof kept->outs);
	for (int i = 0; i < g->outs.count; i++) {
		const char *name = g->outs.at[i].name;
		if (starts_with(name, CHECK_OF) || starts_with(name, COUNT_OF) ||
		    !strcmp(name, "loss") || !strcmp(name, "accuracy"))
			PUSH(arena, kept->outs, g->outs.at[i]);
	}
	return kept;
}

static void pass_loss(Program *p)
{
	run_on_entries(p, 0, entry_loss);
	if (p->session->purpose == FOR_TRAINING && !p->update_only)
		p->labels = loss_labels(program_graph(p), choice(p->session, OPT_loss, NULL));
}

static void pass_eta(Program *p)
{
	if (!entry_named(p, "train"))
		return;
	if (p->data && !p->model) // reading the model would have bound them
		attach(p);
	const Graph *g = program_graph(p);
	if (!p->report)
		p->eta = etas(p->session, g, p->data, NULL);
	bool sized = !p->update_only || !p->standing; // else the number of labels is unknown
	p->opt = optimizer(p->session, sized ? g : NULL, p->data);
	if (p->report)
		p->eta = report_etas(work_arena(p->session), g, p->report, p->opt.name);
	p->note = p->opt.chosen;
	if (p->update_only && opt_moves_point(&p->opt))
		fail("--update-only",
		     "%s takes gradients at another point than the parameters, which a program "
		     "that computes them does not have" HELP "build the complete model, or %s",
		     p->opt.name,
		     opt_uses(p->opt.name, "average") ? "leave out --average"
		                                      : "choose another --optimizer");
}

double untrained_percent(const Model *m)
{
	double all = (double)m->weights, rest = 0;
	for (int i = 0; i < m->untrained.count; i++)
		rest += (double)count_of(&m->untrained.at[i].shape);
	return rest ? fmin(100 * rest / all, 100) : 0;
}

const char *percent_text(Arena *arena, double x)
{
	return x > 0 && x < 0.1 ? "less than 0.1 %" : format(arena, "%.3g %%", x);
}

// Reports how much is not trained, in one line; with --verbose, first a line for each weight.
static void tell_untrained(const Session *session, const Model *m)
{
	enum { FEW = 2 };
	Text names = {.arena = session->arena};
	int n = m->untrained.count;
	for (int i = 0; i < n; i++) {
		const Untrained *one = &m->untrained.at[i];
		if (chosen(session, OPT_verbose))
			tell(session, "%s is not trained: %s\n", one->name, one->why);
		if (i < FEW)
			say(&names, "%s%s (%s)", i ? ", " : "", one->name, one->why);
	}
	if (n > FEW)
		say(&names, " and %d more (--verbose lists them)", n - FEW);
	if (n)
		tell(session, "%s of the weights are not trained: %s\n",
		     percent_text(session->arena, untrained_percent(m)), names.at);
}

// Returns the graph with an output grad:NAME for each parameter that an output depends on, which
// stands for the gradient that a caller computes.
static Graph *given_gradients(Arena *arena, const Graph *from, UnusedParams *unused)
{
	Graph *g = graph_live(arena, from);
	g->outs.count = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		Ref r = slot_ref(g, i);
		if (s->kind == S_param && r)
			add_out(g, format(arena, GRAD_OF "%s", s->name), r);
		if (s->kind == S_param && !r)
			PUSH(arena, *unused,
			     ((UnusedParam){.slot = i, .why = "no output depends on it"}));
	}
	return graph_live(arena, g);
}

// Returns the graph with the gradients of a loss, and lists the parameters without one.
static Graph *loss_gradients(Session *session, const Graph *loss, const Machine *machine,
                             UnusedParams *unused)
{
	Arena *arena = work_arena(session);
	Graph *all = grad_pass(arena, loss, wanted(session, loss), machine);
	return unused_params_pass(arena, loss, all, unused);
}

// Warns of gradients that are zero because they end on the way, at no detach.
static void tell_lost(const Session *session, const Graph *loss, const Graph *gradients)
{
	UnusedParams zero = {0};
	unused_params_pass(session->arena, loss, gradients, &zero);
	for (int i = 0; i < zero.count; i++)
		if (zero.at[i].lost)
			tell(session, "amosc: warning: %s: the gradient of '%s' is 0: %s\n",
			     session->path, loss->slots.at[zero.at[i].slot].name, zero.at[i].why);
}

static void pass_grad(Program *p)
{
	Session *session = p->session;
	Arena *arena = work_arena(session);
	Entry *train = entry_named(p, "train"), *grad = entry_named(p, "grad");
	if (grad) {
		const Graph *loss = grad->unit.graph;
		set_graph(grad, grad_pass(arena, loss, wanted(session, loss), grad->unit.machine));
		tell_lost(session, loss, grad->unit.graph);
		if (grad->unit.graph->products == E_f16)
			set_graph(grad, loss_scale_pass(arena, grad->unit.graph));
	}
	if (!train)
		return;
	const Graph *loss = train->unit.graph;
	UnusedParams idle = {0};
	bool differentiates = !p->update_only || find_output(loss, "loss");
	set_graph(train, differentiates ? loss_gradients(session, loss, train->unit.machine, &idle)
	                                : given_gradients(arena, loss, &idle));
	int trained = 0;
	for (int i = 0; i < train->unit.graph->outs.count; i++)
		trained += starts_with(train->unit.graph->outs.at[i].name, GRAD_OF);
	// a program that also runs the model may leave all parameters as they are
	bool may_rest = (p->weights || p->standing) && !p->update_only;
	if (!trained && !idle.count && !may_rest)
		fail(session->path,
		     "no parameter to train: the model has none, or --freeze leaves none" HELP
		     "amosc inspect lists them");
	Text why = {.arena = arena};
	for (int i = 0; i < idle.count; i++)
		say(&why, "\n%s is not trained: %s", loss->slots.at[idle.at[i].slot].name,
		    idle.at[i].why);
	if (idle.count && !trained)
		fail(session->path,
		     "no parameter gets a gradient:%s" HELP
		     "choose a --loss that depends on them, or export the model without the "
		     "operators that end their gradients",
		     why.at);
	if (!p->model)
		return;
	for (int i = 0; i < idle.count; i++) {
		const Slot *s = &loss->slots.at[idle.at[i].slot];
		PUSH(p->model->arena, p->model->untrained,
		     ((Untrained){s->name, idle.at[i].why, s->type, s->shape}));
	}
	sort_untrained(p->model);
	tell_untrained(session, p->model);
}

static void pass_step(Program *p)
{
	Arena *arena = work_arena(p->session);
	Entry *train = entry_named(p, "train");
	if (!train)
		return;
	const Graph *grad = train->unit.graph;
	if (p->apart)
		grad = gradient_slots(arena, grad);
	if (p->update_only)
		train->unit.name = "update";
	set_graph(train, step_pass(arena, grad, p->eta, &p->opt,
	                           p->update_only ? STEP_apply : STEP_train));
	if (p->opt.accumulate > 1)
		add_entry(p, "gather", step_pass(arena, grad, p->eta, &p->opt, STEP_gather));
	if (p->apart) {
		add_entry(p, "gradient", step_pass(arena, grad, p->eta, &p->opt, STEP_gradient));
		add_entry(p, "update", step_pass(arena, grad, p->eta, &p->opt, STEP_apply));
	}
	p->eta = NULL;
}

// ---- join -----------------------------------------------------------------------------

typedef struct Joined { // a graph that is put on the slots of the first
	const Graph *from;
	int64_t samples; // in a batch of `from` if it is smaller; else 0
	int fewer;       // number of inputs of `from` that are so many rows of a slot
} Joined;

static Ref put_named_slot(void *context, Graph *to, const Val *v, const Ref *in)
{
	static const int64_t start[RANK];
	Joined *joined = context;
	if (v->op != O_slot)
		return put_as(to, v, in);
	const Slot *s = &joined->from->slots.at[v->attr->i[0]];
	Ref all = put_slot(to, find_slot(to, s->name));
	Shape rows = val(to, all)->shape;
	if (same_shape(&rows, &s->shape))
		return all;
	rows.dim[0] = joined->samples;
	if (s->kind != S_input || !same_shape(&rows, &s->shape))
		fail(s->name, "its shape in evaluation differs from that in training");
	joined->fewer++;
	return put_slice(to, all, start, rows.dim, NULL);
}

// Returns the graph of an entry on the slots of the first. Slots are matched by name, since the
// first may have more: those of dropout.
static const Graph *join_entry(Program *p, Entry *e)
{
	Arena *arena = work_arena(p->session);
	Joined joined = {e->unit.graph, e->samples, 0};
	Graph *to = graph_like(arena, program_graph(p));
	to->nodes = joined.from->nodes;
	Ref *now = NEWS(arena, Ref, joined.from->nval);
	if (!strcmp(e->unit.name, "gather")) // on these slots already
		return joined.from;
	copy_values(to, joined.from, now, put_named_slot, &joined);
	for (int i = 0; i < joined.from->outs.count; i++)
		add_out(to, joined.from->outs.at[i].name, now[joined.from->outs.at[i].val]);
	for (int i = 0; i < joined.from->stores.count; i++) {
		Store store = joined.from->stores.at[i];
		add_store(to, find_slot(to, joined.from->slots.at[store.slot].name),
		          now[store.val]);
	}
	if (e->samples && !joined.fewer)
		fail(e->unit.name, "no input has the batch size");
	return to;
}

int64_t threads_of(const Session *session)
{
	int64_t here = chosen(session, OPT_freestanding) ? 1 : 0;
	return amos_threads(choice_count(session, OPT_threads, here));
}

// Divides launches among the threads that will run them. The number of a GPU's multiprocessors is
// typical of it.
static void set_processors(Program *p)
{
	int64_t threads = threads_of(p->session);
	for (int i = 0; i < p->entries.count; i++) {
		Unit *unit = &p->entries.at[i].unit;
		Machine *own = take_copy(work_arena(p->session), unit->machine, sizeof *own);
		own->processors = own->threads == 1 ? (int)threads : 0;
		unit->machine = own;
	}
}

static void pass_join(Program *p)
{
	run_on_entries(p, 1, join_entry);
	int n = p->entries.count;
	for (int i = n; i < n * p->variants; i++) {
		Entry e = p->entries.at[i % n];
		e.unit.machine = target_machine(p->target[i / n]);
		PUSH(work_arena(p->session), p->entries, e);
	}
	if (chosen(p->session, OPT_threads))
		set_processors(p);
}

// ---- recompute ------------------------------------------------------------------------

static int64_t local_of(const Plan *p)
{
	int64_t most = 0;
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		most = MAX(most, kern->body ? local_of(kern->body) : kern->sched->local);
	}
	return most;
}

// Returns the bytes of all that is not scratch: slots, outputs, and what threads have of their own.
static int64_t fixed_bytes(const Program *p)
{
	const Graph *g = program_graph(p);
	int64_t bytes = 0, local = 0;
	for (int i = 0; i < g->slots.count; i++)
		bytes += full_lines(byte_count(g->slots.at[i].type, &g->slots.at[i].shape));
	for (int e = 0; e < p->entries.count; e++) {
		const Unit *unit = &p->entries.at[e].unit;
		for (int i = 0; i < unit->graph->outs.count; i++)
			bytes +=
			    full_lines(bytes_of(val(unit->graph, unit->graph->outs.at[i].val)));
		local = MAX(local, local_of(unit->plan));
	}
	return bytes + full_lines(local) * threads_of(p->session);
}

// Returns the size, rounded up, as --memory takes it.
static const char *size_text(Arena *arena, int64_t bytes)
{
	bool large = bytes >= 64 << 20;
	return format(arena, "%lld%c", (long long)ceil_div(bytes, large ? 1 << 20 : 1 << 10),
	              large ? 'M' : 'K');
}

static void pass_recompute(Program *p)
{
	Session *session = p->session;
	Arena *arena = session->arena;
	if (!chosen(session, OPT_memory))
		return;
	int64_t limit = choice_count(session, OPT_memory, 0), fixed = fixed_bytes(p), least = 0;
	for (int i = 0; i < p->entries.count; i++) {
		Unit *unit = &p->entries.at[i].unit;
		least = MAX(least, recompute_pass(work_arena(session), unit->plan, limit - fixed));
	}
	if (least > limit - fixed)
		fail("--memory",
		     "expected at least %s, found %s: parameters, state, batch and threads take "
		     "%s" HELP
		     "give a smaller --batch; with --accumulate N, N of these make an update",
		     size_text(arena, fixed + least), choice(session, OPT_memory, NULL),
		     size_text(arena, fixed));
}

// ---- object ---------------------------------------------------------------------------

const struct amos_template *trained_file(const Program *p, bool keep_training)
{
	const Graph *g = program_graph(p);
	Arena *arena = work_arena(p->session);
	const struct amos_template *t = model_template(p->model, arena, keep_training);
	bool *changes = NEWS(arena, bool, g->slots.count + 1);
	for (int i = 0; i < g->stores.count; i++)
		changes[g->stores.at[i].slot] = true;
	for (int64_t i = 0; i < t->nviews; i++) {
		int64_t slot = t->views[i].slot;
		if (strcmp(g->slots.at[slot].name, p->model->graph->slots.at[slot].name))
			bug("slot %s has another number", g->slots.at[slot].name);
	}
	for (int64_t i = 0; i < t->ntests; i++) {
		const struct amos_test *test = &t->tests[i];
		bool differs = changes[t->views[test->view].slot] ||
		               (test->other >= 0 && changes[t->views[test->other].slot]);
		if (test->error && differs)
			fail(p->session->path, "%s%s", test->error,
			     p->weights ? ", or build with --no-export" : "");
	}
	return t;
}

// Returns the template of the model's file for a program that writes it; NULL: it does not.
static const struct amos_template *file_of(const Program *p)
{
	bool writes = p->weights && p->model && !p->update_only && !p->device_code &&
	              !chosen(p->session, OPT_no_export) && !chosen(p->session, OPT_freestanding);
	return writes ? trained_file(p, false) : NULL;
}

static void pass_object(Program *p)
{
	Session *session = p->session;
	Arena *arena = work_arena(session);
	Plan **plans = NEWS(arena, Plan *, p->entries.count);
	Variant *variants = NEWS(arena, Variant, p->variants);
	int n = p->entries.count / p->variants;
	for (int i = 0; i < p->entries.count; i++)
		plans[i] = p->entries.at[i].unit.plan;
	const char *identity = p->runs ? NULL : program_identity(p); // open_object() sets it
	for (int v = 0; v < p->variants; v++)
		variants[v] = (Variant){.target = p->target[v],
		                        .identity = v ? identity_on(session, identity, p->target[v])
		                                      : identity,
		                        .plan = plans + v * n};
	const Sizes sizes = batch_sizes(session);
	const struct amos_template *file = file_of(p);
	EmitOptions emit_options = {.threads =
	                                (int)MIN(choice_count(session, OPT_threads, 0), INT_MAX),
	                            .name = basename(program_graph(p)->name),
	                            .note = p->note,
	                            .labels = p->labels,
	                            .batch = sizes.count ? sizes.at[0] : 0,
	                            .file = file,
	                            .weights = p->weights,
	                            .lld = linker_path(arena),
	                            .device_code = p->device_code};
	p->object = emit(arena, n, p->variants, variants, &emit_options);
}

// ---- programs -------------------------------------------------------------------------

static void (*const program_passes[PASSES])(Program *) = {
    [PASS_read] = pass_read,           [PASS_loss] = pass_loss,     [PASS_eta] = pass_eta,
    [PASS_grad] = pass_grad,           [PASS_step] = pass_step,     [PASS_join] = pass_join,
    [PASS_recompute] = pass_recompute, [PASS_object] = pass_object,
};

// A CPU is named by its class, a device as the user named it.
static void check_targets(const Program *p)
{
	for (int v = 0; v < p->variants; v++) {
		const Target *t = p->target[v];
		const Machine *machine = target_machine(t);
		check_precision(program_graph(p), machine,
		                target_device(t) ? target_kind(work_arena(p->session), t, true)
		                                 : machine->name);
	}
}

void run_passes(Program *p, Pass last)
{
	for (; p->next <= last; p->next++) {
		if (p->next == PASS_fuse)
			check_targets(p);
		if (p->next == PASS_join + 1 && chosen(p->session, OPT_tune) && !p->tuned)
			tune(p);
		if (program_passes[p->next])
			program_passes[p->next](p);
		for (int i = 0; i < p->entries.count && !program_passes[p->next]; i++) {
			p->entries.at[i].unit.limited = chosen(p->session, OPT_memory);
			run_pass(work_arena(p->session), p->next, &p->entries.at[i].unit);
		}
	}
}

Program *program_new(Session *session, struct amos_data *data)
{
	Program *p = NEW(session->arena, Program);
	const Target **target = NEW(session->arena, const Target *);
	*target = target_of(session);
	*p = (Program){.session = session, .data = data, .variants = 1, .target = target};
	return p;
}

Program *program_of(Session *session, const Graph *g, const char *entry)
{
	Program *p = program_new(session, NULL);
	add_entry(p, entry, g);
	p->next = PASS_join;
	return p;
}

// ---- in memory ------------------------------------------------------------------------

static const void *first_contents(void *graph, int64_t slot)
{
	return ((const Graph *)graph)->slots.at[slot].init;
}

static void close_jit(void *jit)
{
	jit_free(jit);
}

static void close_model(void *open)
{
	amos_close(open);
}

// Compiles the program, unless the cache has its object.
static void find_object(Program *p)
{
	const Session *session = p->session;
	run_passes(p, PASS_join);
	set_processors(p); // this process runs it
	const Key key = program_key(p);
	p->object = cache_find(session, &key);
	if (p->object) {
		if (chosen(session, OPT_verbose))
			tell(session, "note: the cache has the compiled program\n");
		p->next = PASS_object + 1;
		return;
	}
	run_passes(p, PASS_object);
	cache_keep(session, &key, p->object);
}

struct amos *open_object(Program *p, Arena *until)
{
	Session *session = p->session;
	Jit *jit = jit_load(p->object);
	at_end(until, close_jit, jit);
	struct amos_model *model = take_copy(until, jit_model(jit), sizeof *model);
	model->name = copy_string(until, basename(program_graph(p)->name));
	model->note = p->note ? p->note : "";
	model->labels = p->labels ? copy_string(until, p->labels) : NULL;
	struct amos *open;
	need_done(amos_open_slots(model, choice_count(session, OPT_threads, 0),
	                          choice_count(session, OPT_seed, 0), first_contents,
	                          (void *)program_graph(p), &open));
	at_end(until, close_model, open);
	const char *identity = program_identity(p);
	model->identity = identity ? identity : "";
	return open;
}

struct amos *open_program(Program *p)
{
	Session *session = p->session;
	need_host(session);
	find_object(p);
	struct amos *open = open_object(p, session->arena);
	if (open->graphs_missing)
		tell(session, "note: kernels are started one by one: the device has no %s\n",
		     open->graphs_missing);
	if (open->threads_missing)
		tell(session, "note: %lld %s could not be started\n",
		     (long long)open->threads_missing,
		     PLURAL(open->threads_missing, "thread", "threads"));
	return open;
}

void release_program(Program *p)
{
	free_work(p->session);
	memset(&p->entries, 0, sizeof p->entries);
	p->model = NULL;
	p->object = NULL;
	p->eta = NULL;
	p->hashing = NULL;
}

static const void *open_slot(void *open, int slot)
{
	return amos_slot_bytes(open, slot);
}

void write_open(Program *p, struct amos *open, const char *path)
{
	if (!p->model)
		p->model = read_entry(p, p->session->purpose == FOR_TRAINING);
	write_model(p->model, path, chosen(p->session, OPT_keep_training), open_slot, open);
}
