// train.c: runs the training loop: batches, evaluations, checkpoints and the log.
// Invariant: the loop allocates nothing. Its position is (parameters, state, number of the batch),
// which a checkpoint holds completely, so a resumed run is bit-identical.
// While a device computes a batch, the next one may be filled, copied and started (amos.batches).
#include "rt.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct batch { // that was started
	const struct amos_entry *entry;
	bool last, shows, evaluates, saves; // what follows when it is done
};

struct training {
	struct amos *m;
	struct amos_data *data;
	const struct amos_options *options;
	const struct amos_entry *entry;
	const struct amos_entry *gather; // for batches without an update, or NULL
	int64_t loss;                    // loss output of both; -1: none
	int64_t scale, skips;  // outputs of `entry`: the loss scale of f16, and 1 if it skipped
	                       // the step; -1: none
	int64_t skipped;       // steps since the last line of the log
	int64_t steps, runs;   // limits
	struct batch batch[2]; // by number, modulo 2
	int64_t started_runs, started_steps; // batches started, and updates that they make
	int64_t left;  // batches to start before the next that makes an update
	int64_t epoch; // of the last update that was started
	const char *dir;
	char *last, *best, *identity;
	int folder; // descriptor of `dir`, locked; -1: none
	struct amos_position point;
	struct amos_log log;
	struct amos_mean ending; // losses of the last tenth of the steps
	double line_time, save_time, begin_time;
	int64_t line_run, begin_run;
	struct amos_result *result;
	const struct amos_training *training; // of amos_fit(); NULL: of a command
	struct amos_progress now;             // for its callback
	bool stopped;                         // by the callback
	struct amos_flaw flaw;                // of the weights before the first update
	bool warned;                          // of a loss on the held-out data that is not finite
	struct start {                        // the first checkpoint
		pthread_t thread;
		bool runs; // the thread, until it is waited for
		struct amos_position point;
		int status;
		char error[4096];
	} start;
};

static bool stopping(const struct training *t)
{
	return t->training ? t->stopped : amos_stopping();
}

// ---- checkpoints, evaluation ----------------------------------------------------------

static int save(struct training *t, const char *path)
{
	t->save_time = amos_now();
	if (!t->dir)
		return AMOS_DONE;
	int status = amos_log_sync(&t->log); // the log has every step of the checkpoint
	return status ? status : amos_checkpoint_save(t->m, path, &t->point, t->identity);
}

static int64_t last_step(const struct training *t)
{
	if (t->runs == INT64_MAX || t->point.run == 0)
		return t->steps;
	double by_runs = ceil((double)t->runs * (double)t->point.step / (double)t->point.run);
	return by_runs < (double)t->steps ? (int64_t)by_runs : t->steps;
}

// Calls the callback of amos_fit(), which may stop the training.
static void show_progress(struct training *t)
{
	const struct amos_training *training = t->training;
	if (!training || !training->progress)
		return;
	t->now.step = t->point.step;
	t->now.steps = last_step(t);
	t->now.eval_loss = isfinite(t->point.held.loss) ? t->point.held.loss : NAN;
	t->now.eval_accuracy = t->point.held.accuracy;
	t->now.seconds = amos_now() - t->begin_time;
	amos_use_batch(t->m, 0);
	amos_locale_host();
	t->stopped = training->progress(training->context, &t->now) != 0;
	amos_locale_own();
}

// Until the first evaluation, the last checkpoint is also the best: one file with two names.
static int name_best(struct training *t)
{
	if (!t->dir || isfinite(t->point.best.loss) || amos_file_link(t->last, t->best))
		return AMOS_DONE;
	return save(t, t->best);
}

// Saves the first checkpoint, without the values of parameters and state: they are the model's.
static int save_start(struct training *t)
{
	const struct amos_position *point = &t->start.point;
	int status = amos_log_sync(&t->log);
	if (!status)
		status = amos_checkpoint_save_start(t->m, t->last, point, t->identity);
	if (!status && !amos_file_link(t->last, t->best))
		status = amos_checkpoint_save_start(t->m, t->best, point, t->identity);
	return status;
}

static void *start_thread(void *training)
{
	struct training *t = training;
	t->start.status = save_start(t);
	snprintf(t->start.error, sizeof t->start.error, "%s", amos_error());
	return NULL;
}

// Begins to save the first checkpoint. A CPU computes the first batch meanwhile, whose end waits
// for the disk: whoever sees that a run has made a step can resume it.
static int begin_start(struct training *t)
{
	t->start.point = t->point;
	t->save_time = amos_now();
	t->start.runs = !t->m->device && !pthread_create(&t->start.thread, NULL, start_thread, t);
	return t->start.runs ? AMOS_DONE : save_start(t);
}

static int end_start(struct training *t)
{
	if (!t->start.runs)
		return AMOS_DONE;
	pthread_join(t->start.thread, NULL);
	t->start.runs = false;
	return t->start.status ? amos_fail(t->start.status, "%s", t->start.error) : AMOS_DONE;
}

static int save_last(struct training *t)
{
	int status = save(t, t->last);
	return status ? status : name_best(t);
}

static int evaluate(struct training *t)
{
	struct amos_result r;
	bool finite = true;
	t->point.owing = 1;
	int status = amos_evaluate_data(t->m, t->data, &finite, &r);
	if (status || amos_stopping())
		return status;
	if (!finite && !t->warned)
		amos_say(&t->log, "warning: held out: %.*s\n", (int)strcspn(amos_error(), "\n"),
		         amos_error());
	t->warned |= !finite;
	t->point.owing = 0;
	t->point.held = (struct amos_held){t->point.step, r.eval_loss, r.eval_accuracy};
	t->result->eval_samples = r.eval_samples;
	bool better = r.eval_loss < t->point.best.loss;
	char accuracy[64] = "";
	if (isfinite(r.eval_accuracy))
		snprintf(accuracy, sizeof accuracy, "  accuracy %.4f", r.eval_accuracy);
	amos_say(&t->log, "step %lld  held out: loss %.4f%s%s\n", (long long)t->point.step,
	         r.eval_loss, accuracy, better ? "  (best)" : "");
	struct amos_figure figures[] = {{"eval_loss", r.eval_loss},
	                                {"eval_accuracy", r.eval_accuracy}};
	status = amos_log_line(&t->log, t->point.step, COUNT(figures), figures);
	if (status || !better)
		return status;
	t->point.best = t->point.held;
	return save(t, t->best);
}

// ---- the loop -------------------------------------------------------------------------

// Returns the batches before the one that makes the next update.
static int64_t batches_left(const struct training *t)
{
	int64_t slot = amos_find_slot(t->m->model, "amos.left"), left = 0;
	if (slot >= 0)
		memcpy(&left, amos_slot_bytes(t->m, slot), sizeof left);
	return left;
}

static bool due(int64_t step, int64_t every)
{
	return every > 0 && step % every == 0;
}

// True if there are held-out data and an entry to evaluate them.
static bool holds_out(const struct training *t)
{
	return amos_data_held_out(t->data) && amos_find_entry(t->m->model, "eval");
}

// Returns how many evaluations there were up to a step, of those that --eval-every chooses.
static int64_t evaluations(const struct training *t, int64_t step)
{
	int64_t every = t->options->eval_every;
	return every > 0 ? step / every : step * (t->m->more + 1) / amos_data_batches(t->data);
}

// True if the last evaluations, as many as --patience says, brought no lower loss.
static bool lost_patience(const struct training *t)
{
	const struct amos_position *at = &t->point;
	return t->options->patience > 0 && at->best.step >= 0 &&
	       evaluations(t, at->held.step) - evaluations(t, at->best.step) >=
	           t->options->patience;
}

static bool ends(const struct training *t, int64_t step, int64_t run)
{
	return step >= t->steps || run >= t->runs;
}

static bool ended(const struct training *t)
{
	return ends(t, t->point.step, t->point.run) || lost_patience(t);
}

// Decides what follows the batch that is to start.
static struct batch next_batch(struct training *t)
{
	enum { SAVE_SECONDS = 600 };
	const struct amos_options *o = t->options;
	struct batch b = {.entry = t->gather && t->left > 0 ? t->gather : t->entry};
	int64_t run = t->started_runs + 1, step = t->started_steps + (b.entry == t->entry);
	b.last = ends(t, step, run);
	if (b.entry != t->entry)
		return b;
	b.shows = b.last || due(step, o->log_every > 0 ? o->log_every : 1);
	// --eval-every selects updates; without it, each epoch ends with an evaluation.
	int64_t before = t->epoch;
	t->epoch = run / amos_data_batches(t->data);
	bool evaluates = o->eval_every < 0 ? t->epoch != before : due(step, o->eval_every);
	b.evaluates = evaluates && holds_out(t);
	bool late = o->save_every < 0 && amos_now() - t->save_time > SAVE_SECONDS;
	b.saves = !b.last && (late || due(step, o->save_every));
	return b;
}

// Starts a batch. The model counts the updates as is done here: with --accumulate, several batches
// make one.
static int start_batch(struct training *t)
{
	struct batch b = next_batch(t);
	t->batch[t->started_runs % COUNT(t->batch)] = b;
	amos_use_batch(t->m, t->started_runs);
	int status = amos_data_train(t->data, t->m, t->started_runs);
	if (!status)
		status = amos_begin(t->m, b.entry, NULL, NULL);
	t->left = b.entry == t->gather ? t->left - 1 : t->m->more;
	t->started_runs++;
	t->started_steps += b.entry == t->entry;
	return status;
}

// True if the batch after one that was started may start before that is done: nothing in between
// reads or changes the model.
static bool may_overlap(const struct training *t, const struct batch *b)
{
	bool asks = b->shows && t->training && t->training->progress;
	return t->m->batches > 1 && !b->last && !b->evaluates && !b->saves && !asks && !stopping(t);
}

// Fails because training cannot continue after a batch.
static int stop_at(const struct training *t, const char *problem, double number, const char *help)
{
	return amos_fail(AMOS_INPUT, "step %lld: %s %g, so training stopped%s%s%s" HELP "%s",
	                 (long long)t->point.step + 1, problem, number,
	                 t->dir ? "; the checkpoints in " : "", t->dir ? t->dir : "",
	                 t->dir ? " are kept" : "", help);
}

// Reports a step that was skipped because gradients in f16 were not finite. Fails if no smaller
// loss scale can make them so.
static int check_scale(struct training *t)
{
	if (t->skips < 0 || amos_out_number(t->m, t->entry, t->skips) == 0)
		return AMOS_DONE;
	double scale = amos_out_number(t->m, t->entry, t->scale);
	if (scale <= 1)
		return stop_at(t, "gradients are not finite in f16 at a loss scale of", scale,
		               "compile with --precision bf16, whose range is larger");
	t->skipped++;
	amos_say(&t->log,
	         "step %lld is skipped: gradients are not finite in f16 at a loss scale of %g\n",
	         (long long)t->point.step + 1, scale);
	return AMOS_DONE;
}

// Stops because of the loss: before the first update, no step size is at fault.
static int stop_at_loss(const struct training *t, double loss)
{
	const struct amos_batch batch = {true, t->point.run, t->data->batch};
	const char *help = t->point.step == 0 ? "no update was made yet: " AMOS_LOSS_HELP
	                   : t->scale < 0
	                       ? "try a smaller --xi (--rate for other optimizers) or a longer "
	                         "--warmup, and check the data for very large values"
	                       : "try a smaller --xi (--rate for other optimizers), and "
	                         "--precision bf16: f16 holds no values above 65504";
	struct amos_problem problem = amos_explain_loss(
	    t->m, t->data, &batch, t->point.step == 0 ? &t->flaw : &amos_no_flaw, help);
	return stop_at(t, problem.text, loss, problem.help);
}

// Waits for the first batch that was started and takes its losses.
static int end_batch(struct training *t, const struct batch *b)
{
	struct amos_position *at = &t->point;
	amos_use_batch(t->m, at->run);
	int status = amos_end(t->m, b->entry, NULL);
	if (status)
		return status;
	double loss = t->loss >= 0 ? amos_out_number(t->m, b->entry, t->loss) : 0;
	if (!isfinite(loss))
		return stop_at_loss(t, loss);
	t->result->zero = t->result->zero && loss == 0;
	status = b->entry == t->entry ? check_scale(t) : AMOS_DONE;
	if (status)
		return status;
	amos_mean_add(&at->losses, t->m, b->entry, "loss", 1);
	amos_mean_add(&at->accuracies, t->m, b->entry, "accuracy", 1);
	if (at->step >= last_step(t) - last_step(t) / 10)
		amos_mean_add(&t->ending, t->m, b->entry, "loss", 1);
	at->run++;
	at->step += b->entry == t->entry;
	return AMOS_DONE;
}

// Shows how far the training is, how fast, and when it will end.
static void show_speed(struct training *t, double now, bool last)
{
	const struct amos_data *data = t->data;
	const struct amos_position *at = &t->point;
	double tokens = (double)data->batch * (double)data->window, passed = now - t->begin_time;
	double runs = (double)(at->run - t->begin_run);
	int64_t steps = last_step(t);
	double part = (double)(steps - at->step) / (double)at->step;
	amos_progress(&t->log, at->step, steps, amos_mean(&at->losses),
	              passed > 0 ? runs * tokens / passed : 0, data->stream ? "tokens" : "samples",
	              passed / runs * (double)at->run * part, last);
}

// Writes a line of the log: means since the last one.
static int log_step(struct training *t, double now)
{
	const struct amos_data *data = t->data;
	struct amos_position *at = &t->point;
	double since = now - t->line_time, samples = (double)data->batch;
	double rate = since > 0 ? (double)(at->run - t->line_run) / since : NAN;
	bool scales = t->scale >= 0;
	t->result->loss = t->now.loss = amos_mean(&at->losses);
	t->result->accuracy = t->now.accuracy = amos_mean(&at->accuracies);
	t->now.epochs = (double)at->run / (double)amos_data_batches(data);
	t->now.samples_per_s = rate * samples;
	struct amos_figure figures[] = {
	    {"loss", t->now.loss},
	    {"accuracy", t->now.accuracy},
	    {"epoch", t->now.epochs},
	    {"samples_per_s", t->now.samples_per_s},
	    {"tokens_per_s", data->stream ? rate * (samples * (double)data->window) : NAN},
	    {"loss_scale", scales ? amos_out_number(t->m, t->entry, t->scale) : NAN},
	    {"skipped", scales ? (double)t->skipped : NAN},
	};
	at->losses = at->accuracies = (struct amos_mean){0};
	t->skipped = 0;
	t->line_time = now;
	t->line_run = at->run;
	return amos_log_line(&t->log, at->step, COUNT(figures), figures);
}

// Does what follows an update: progress, log, evaluation, checkpoint.
static int after_step(struct training *t, const struct batch *b)
{
	double now = amos_now();
	show_speed(t, now, b->last);
	int status = b->shows ? log_step(t, now) : AMOS_DONE;
	if (!status && b->evaluates)
		status = evaluate(t);
	if (!status && b->saves)
		status = save_last(t);
	if (!status && b->shows && !b->last)
		show_progress(t);
	return status;
}

// Completes the first batch that was started, after it has started the next one if it may.
static int complete_batch(struct training *t)
{
	const struct batch *b = &t->batch[t->point.run % COUNT(t->batch)];
	int status = may_overlap(t, b) ? start_batch(t) : AMOS_DONE;
	if (!status)
		status = end_start(t);
	if (!status)
		status = end_batch(t, b);
	return status || b->entry != t->entry ? status : after_step(t, b);
}

static int loop(struct training *t)
{
	t->begin_time = t->line_time = t->save_time = amos_now();
	t->begin_run = t->line_run = t->started_runs = t->point.run;
	t->result->zero = t->loss >= 0 && !t->point.step && !ended(t);
	t->started_steps = t->point.step;
	t->left = batches_left(t);
	t->epoch = t->point.run / amos_data_batches(t->data);
	t->flaw = t->point.step ? amos_no_flaw : amos_weight_flaw(t->m);
	int status = t->point.owing ? evaluate(t) : AMOS_DONE;
	while (!status && (t->started_runs > t->point.run || (!stopping(t) && !ended(t)))) {
		if (t->started_runs == t->point.run)
			status = start_batch(t);
		if (!status)
			status = complete_batch(t);
	}
	if (!status)
		status = end_start(t); // if no batch waited for it
	int settled = status ? amos_settle(t->m) : AMOS_DONE;
	amos_use_batch(t->m, 0);
	if (status)
		return settled ? settled : status;
	t->result->stopped = stopping(t);
	t->result->impatient = !stopping(t) && lost_patience(t);
	if (!stopping(t) && lost_patience(t) && t->point.losses.weight > 0)
		status = log_step(t, amos_now()); // it ended between two lines
	if (!status && !stopping(t) && holds_out(t) && t->point.held.step != t->point.step)
		status = evaluate(t);
	if (!status)
		status = save_last(t);
	if (!status && !stopping(t))
		show_progress(t);
	return status;
}

// ---- before the loop ------------------------------------------------------------------

// Continues from the run's last checkpoint.
static int resume(struct training *t)
{
	struct amos_checkpoint *c;
	if (access(t->last, F_OK) && errno == ENOENT)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: no run to resume: it was stopped before its first checkpoint" HELP
		    "start it again with --overwrite",
		    t->dir);
	int status = amos_checkpoint_open(t->last, true, &c);
	if (status)
		return status;
	status = amos_identity_check(t->dir, c->identity, t->identity);
	if (!status)
		status = amos_checkpoint_load(c, t->m);
	if (!status)
		t->point = c->image.point;
	amos_checkpoint_close(c);
	return status;
}

// Opens the run directory and the log, and takes or saves the first checkpoint.
static int open_run(struct training *t)
{
	const struct amos_options *o = t->options;
	t->dir = o->resume ? o->resume : o->out;
	if (!t->dir && t->training)
		return AMOS_DONE;
	if (!t->dir)
		return amos_fail(AMOS_USAGE, "train: expected a run directory, -o DIR");
	t->identity = amos_identity(t->m, t->data);
	if (asprintf(&t->last, "%s/last.ckpt", t->dir) < 0 ||
	    asprintf(&t->best, "%s/best.ckpt", t->dir) < 0 || !t->identity)
		return amos_no_memory(t->dir);
	int status = amos_folder_open(t->dir, o, &t->folder);
	if (!status)
		status = o->resume ? resume(t) : amos_command_keep(t->dir, t->m->model, o);
	if (!status)
		status = amos_data_write_vocab(t->data, t->dir);
	if (!status)
		status = amos_log_open(&t->log, t->dir, t->point.step, o);
	// Saves at once: --resume works from the start, and a disk that is too small is reported
	// early.
	if (status || o->resume)
		return status;
	return o->fresh ? begin_start(t) : save_last(t);
}

// Finds the entries and the limits of the training.
static int prepare(struct training *t)
{
	const int64_t most = INT64_MAX / 2; // steps or batches; more never end
	const struct amos_options *o = t->options;
	const struct amos_model *model = t->m->model;
	t->entry = amos_find_entry(model, "train");
	if (!t->entry)
		return amos_fail(AMOS_INPUT, "%s: compiled without training", model->name);
	if ((o->eval_every > 0 || o->patience > 0) && !holds_out(t))
		return amos_fail(
		    AMOS_INPUT, "--%s: no data are held out to evaluate on" HELP "give --split 0.9",
		    o->patience > 0 ? "patience" : "eval-every");
	if (o->patience > 0 && !o->eval_every)
		return amos_fail(AMOS_USAGE, "--patience does nothing with --eval-every 0");
	t->loss = amos_find_output(t->entry, "loss");
	t->scale = amos_find_output(t->entry, "loss_scale");
	t->skips = amos_find_output(t->entry, "skipped");
	t->gather = amos_find_entry(model, "gather");
	double epochs = o->epochs >= 0 ? o->epochs : o->steps >= 0 ? INFINITY : 1;
	double runs = ceil(epochs * (double)amos_data_batches(t->data));
	t->steps = o->steps >= 0 && o->steps < most ? o->steps : INT64_MAX;
	t->runs = runs < (double)most ? (int64_t)runs : INT64_MAX;
	int64_t left = batches_left(t);
	if (left && left >= t->runs && !o->resume)
		return amos_fail(
		    AMOS_INPUT,
		    "--accumulate %lld: this training makes no update: it has %lld %s" HELP
		    "accumulate fewer batches, or give --steps N or more --epochs",
		    (long long)t->m->more + 1, (long long)t->runs,
		    PLURAL(t->runs, "batch", "batches"));
	return AMOS_DONE;
}

// Continues from the step of the instance, as if the batches before had been drawn by amos_fit().
static void go_on(struct training *t)
{
	int64_t more = t->m->more, left = batches_left(t);
	t->point.step = amos_steps(t->m);
	t->point.run = t->point.step * (more + 1) + more - left;
	t->steps += t->steps < INT64_MAX ? t->point.step : 0;
	t->runs += t->runs < INT64_MAX ? t->point.run : 0;
}

// Tells the model how many updates the run makes, if its step sizes depend on that.
static int set_length(struct training *t)
{
	int64_t by_runs = t->runs / (t->m->more + 1),
	        steps = t->steps < by_runs ? t->steps : by_runs;
	return amos_find_slot(t->m->model, "amos.steps") < 0 ? AMOS_DONE
	                                                     : amos_set_steps(t->m, steps);
}

static int train(struct training *t)
{
	bool resumed = t->options->resume;
	int64_t batches = amos_data_batches(t->data);
	int status = prepare(t);
	if (!status && t->training && !resumed)
		go_on(t);
	if (!status)
		status = open_run(t);
	if (!status)
		status = set_length(t);
	if (status)
		return status;
	if (resumed && ended(t) && !t->point.owing &&
	    (!holds_out(t) || t->point.held.step == t->point.step)) {
		bool scheduled = amos_find_slot(t->m->model, "amos.steps") >= 0;
		t->result->impatient = lost_patience(t);
		amos_say(&t->log, "finished at step %lld%s\n", (long long)t->point.step,
		         lost_patience(t) ? "; a larger --patience continues it"
		         : scheduled      ? ", the last of its schedule"
		                          : "; larger --steps or --epochs continue it");
		return name_best(t);
	}
	if (resumed)
		amos_say(&t->log, "resumed after step %lld\n", (long long)t->point.step);
	else if (t->m->more >= batches)
		amos_say(&t->log, "an update takes %lld batches; an epoch has %lld\n",
		         (long long)t->m->more + 1, (long long)batches);
	status = loop(t);
	int64_t rest = t->point.run % (t->m->more + 1);
	if (!status && t->result->stopped)
		amos_say(&t->log, "stopped at step %lld and saved; --resume %s continues\n",
		         (long long)t->point.step, t->dir);
	else if (!status && lost_patience(t))
		amos_say(&t->log, "stopped at step %lld: no lower held-out loss since step %lld\n",
		         (long long)t->point.step, (long long)t->point.best.step);
	else if (!status && rest)
		amos_say(&t->log, "the last %lld %s made no update, which takes %lld\n",
		         (long long)rest, PLURAL(rest, "batch", "batches"),
		         (long long)t->m->more + 1);
	return status;
}

// Compares the model with the best constant prediction: on the held-out data, else by the losses of
// the last tenth.
static int compare(struct training *t)
{
	enum { LEAST = 256 }; // samples
	struct amos_result *r = t->result;
	struct amos_constant constant;
	bool held = isfinite(t->point.best.loss);
	double loss = held ? t->point.best.loss : amos_mean(&t->ending),
	       accuracy = held ? t->point.best.accuracy : NAN;
	if (r->stopped || (!held && t->ending.weight * (double)t->data->batch < LEAST))
		return AMOS_DONE;
	int status = amos_constant(t->m, t->data, &constant);
	if (!status && constant.loss > 0 && loss >= constant.loss &&
	    !(accuracy > constant.accuracy)) {
		r->constant = constant;
		r->constant.model = loss;
	}
	return status;
}

int amos_train_as(struct amos *m, struct amos_data *data, const struct amos_options *options,
                  const struct amos_training *training, struct amos_result *result)
{
	struct training t = {
	    .m = m,
	    .data = data,
	    .options = options,
	    .folder = -1,
	    .point = amos_start_position(),
	    .result = result,
	    .log.quiet = training != NULL,
	    .training = training,
	    .now = {sizeof t.now, .loss = NAN, .accuracy = NAN, .samples_per_s = NAN}};
	*result = (struct amos_result){.loss = NAN,
	                               .accuracy = NAN,
	                               .eval_loss = NAN,
	                               .eval_accuracy = NAN,
	                               .constant = {NAN, NAN, NAN}};
	double start = amos_now();
	// Signals are caught before the run directory exists, since whoever sees a run begin may
	// interrupt it.
	if (!training)
		amos_catch_interrupts();
	int status = train(&t), started = end_start(&t);
	status = status ? status : started;
	if (!training)
		amos_release_interrupts();
	if (!status && !training)
		status = compare(&t);
	result->step = t.point.step;
	result->eval_loss = isfinite(t.point.held.loss) ? t.point.held.loss : NAN;
	result->eval_accuracy = t.point.held.accuracy;
	result->best = t.point.best;
	result->seconds = amos_now() - start;
	int closed = amos_log_close(&t.log, status);
	if (t.folder >= 0)
		close(t.folder);
	free(t.last);
	free(t.best);
	free(t.identity);
	return closed;
}

int amos_train(struct amos *m, struct amos_data *data, const struct amos_options *options,
               struct amos_result *result)
{
	return amos_train_as(m, data, options, NULL, result);
}
