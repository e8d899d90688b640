// train.c: the training loop and evaluation.
// Takes an open model, its data, options. Gives the run folder. Keeps: the loop takes no memory;
// where it stands is (parameters, state, number of the batch), all of which a checkpoint holds, so
// going on from one changes no bit.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct training {
	struct amos *m;
	struct amos_data *data;
	const struct amos_options *options;
	const struct amos_entry *entry, *gather; // gather: NULL, or of batches that make no update
	int64_t loss;                            // out of both; -1: none
	int64_t step_slot, left_slot;            // amos.step, amos.left; -1: a batch is a step
	int64_t steps, runs;                     // where to end
	int64_t evaluated;                       // step of the last evaluation
	char *dir, *last, *best;
	int folder; // dir, open and locked; -1
	struct amos_point point;
	struct amos_log log;
	struct amos_mean losses, accuracies; // since the last line
	double line_time, save_time, begin_time;
	int64_t line_run, begin_run;
	struct amos_result *result;
};

// ---- interrupts -----------------------------------------------------------------------

static volatile sig_atomic_t interrupts;

static void interrupt(int signal)
{
	(void)signal;
	if (++interrupts > 1)
		amos_interrupt("\nstopped at once; the last checkpoint stands\n");
}

enum { SIGNALS = 3 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

static void catch_interrupts(struct sigaction *before)
{
	struct sigaction ours = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
	interrupts = 0;
	for (int i = 0; i < SIGNALS; i++) {
		sigaction(signals[i], &ours, &before[i]);
		if (signals[i] == SIGHUP && before[i].sa_handler == SIG_IGN) // by nohup
			sigaction(SIGHUP, &before[i], NULL);
	}
}

static void release_interrupts(const struct sigaction *before)
{
	for (int i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &before[i], NULL);
}

bool amos_stopping(void)
{
	return interrupts > 0;
}

// ---- checkpoints, evaluation ----------------------------------------------------------

static int save(struct training *t, const char *path)
{
	t->save_time = amos_now();
	int status = amos_log_flush(&t->log); // no step of the checkpoint's is missing in the log
	return status ? status : amos_save(t->m, path, &t->point);
}

// Until something has been evaluated the last is the best: one file of two names.
static int save_last(struct training *t)
{
	int status = save(t, t->last);
	if (status || isfinite(t->point.best))
		return status;
	if ((unlink(t->best) && errno != ENOENT) || link(t->last, t->best))
		return save(t, t->best); // on file systems without links
	return AMOS_DONE;
}

static int evaluate(struct training *t)
{
	struct amos_result *r = t->result;
	t->evaluated = t->point.step;
	int status = amos_evaluate(t->m, t->data, r);
	if (status || interrupts)
		return status;
	bool better = r->eval_loss < t->point.best;
	char accuracy[64] = "";
	if (isfinite(r->eval_accuracy))
		snprintf(accuracy, sizeof accuracy, "  accuracy %.4f", r->eval_accuracy);
	amos_say(&t->log, "step %lld  held out: loss %.4f%s%s\n", (long long)t->point.step,
	         r->eval_loss, accuracy, better ? "  (best)" : "");
	struct amos_figure figures[] = {{"eval_loss", r->eval_loss},
	                                {"eval_accuracy", r->eval_accuracy}};
	status = amos_log_line(&t->log, t->point.step, COUNT(figures), figures);
	if (status || !better)
		return status;
	t->point.best = r->eval_loss;
	return save(t, t->best);
}

// ---- the loop -------------------------------------------------------------------------

static int not_a_number(const struct training *t, double loss)
{
	return amos_fail(
	    AMOS_INPUT,
	    "step %lld: the loss is %g, so training stops; the checkpoints in %s stand.\nTry a "
	    "smaller --xi (--rate of "
	    "other optimizers) or a longer --warmup, and look for very large numbers in the data.",
	    (long long)t->point.step + 1, loss, t->dir);
}

static int64_t counter(const struct training *t, int64_t slot)
{
	int64_t count;
	memcpy(&count, amos_slot_bytes(t->m, slot), sizeof count);
	return count;
}

// One batch. The model counts the updates itself: with --accumulate several batches make one.
static int run_batch(struct training *t)
{
	bool gathers = t->gather && counter(t, t->left_slot) > 0;
	const struct amos_entry *entry = gathers ? t->gather : t->entry;
	int status = amos_data_train(t->data, t->m, t->point.run);
	if (!status)
		status = amos_call(t->m, entry, NULL, NULL);
	if (status)
		return status;
	double loss = t->loss >= 0 ? amos_out_number(t->m, entry, t->loss) : 0;
	if (!isfinite(loss))
		return not_a_number(t, loss);
	amos_mean_add(&t->losses, t->m, entry, "loss", 1);
	amos_mean_add(&t->accuracies, t->m, entry, "accuracy", 1);
	t->point.run++;
	t->point.step = t->step_slot < 0 ? t->point.run : counter(t, t->step_slot);
	return AMOS_DONE;
}

static int64_t last_step(const struct training *t)
{
	if (t->runs == INT64_MAX || t->point.run == 0)
		return t->steps;
	double by_runs = ceil((double)t->runs * (double)t->point.step / (double)t->point.run);
	return by_runs < (double)t->steps ? (int64_t)by_runs : t->steps;
}

static bool ended(const struct training *t)
{
	return t->point.step >= t->steps || t->point.run >= t->runs;
}

static void tell(struct training *t, bool last)
{
	double passed = amos_now() - t->begin_time, runs = (double)(t->point.run - t->begin_run);
	double part =
	    (double)(last_step(t) - t->point.step) / (double)(t->point.step ? t->point.step : 1);
	int64_t tokens = amos_data_tokens(t->data), samples = amos_data_samples(t->data);
	double rate = passed > 0 ? runs * (double)(tokens ? tokens : samples) / passed : 0;
	double left = runs > 0 ? passed / runs * (double)t->point.run * part : 0;
	amos_progress(&t->log, t->point.step, last_step(t), amos_mean(&t->losses), rate,
	              tokens ? "tokens" : "samples", left, last);
}

static int write_line(struct training *t)
{
	double now = amos_now(), runs = (double)(t->point.run - t->line_run),
	       passed = now - t->line_time;
	struct amos_result *r = t->result;
	r->loss = amos_mean(&t->losses);
	r->accuracy = amos_mean(&t->accuracies);
	double rate = passed > 0 ? runs / passed : NAN;
	int64_t tokens = amos_data_tokens(t->data);
	struct amos_figure figures[] = {
	    {"loss", r->loss},
	    {"accuracy", r->accuracy},
	    {"epoch", (double)t->point.run / (double)amos_data_batches(t->data)},
	    {"samples_per_s", rate * (double)amos_data_samples(t->data)},
	    {"tokens_per_s", tokens ? rate * (double)tokens : NAN},
	};
	t->losses = t->accuracies = (struct amos_mean){0};
	t->line_time = now;
	t->line_run = t->point.run;
	return amos_log_line(&t->log, t->point.step, COUNT(figures), figures);
}

static bool due(int64_t step, int64_t every)
{
	return every > 0 && step % every == 0;
}

// After an update: what is due.
static int after_step(struct training *t)
{
	enum { SAVE_SECONDS = 600 };
	const struct amos_options *o = t->options;
	int64_t step = t->point.step;
	bool last = ended(t);
	int status = AMOS_DONE;
	tell(t, last);
	if (last || due(step, o->log_every > 0 ? o->log_every : 1))
		status = write_line(t);
	if (!status && due(step, o->eval_every) && amos_data_held(t->data))
		status = evaluate(t);
	bool late = o->save_every < 0 && amos_now() - t->save_time > SAVE_SECONDS;
	if (!status && !last && (late || due(step, o->save_every)))
		status = save_last(t);
	return status;
}

static int loop(struct training *t)
{
	int status = AMOS_DONE;
	while (!status && !interrupts && !ended(t)) {
		int64_t step = t->point.step;
		status = run_batch(t);
		if (!status && t->point.step != step)
			status = after_step(t);
	}
	if (status)
		return status;
	t->result->stopped = interrupts > 0;
	if (!interrupts && amos_data_held(t->data) &&
	    amos_find_entry(amos_model_of(t->m), "eval") && t->evaluated != t->point.step)
		status = evaluate(t);
	return status ? status : save_last(t);
}

// ---- before the loop ------------------------------------------------------------------

// One run at a time. Where the file system knows no locks there is none.
static int lock_folder(struct training *t)
{
	t->folder = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->folder < 0)
		return amos_fail_errno("open the run folder", t->dir);
	if (flock(t->folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return amos_fail(AMOS_INPUT,
		                 "%s: another run is going on in this folder: wait for its end, or "
		                 "give a folder of its own by -o",
		                 t->dir);
	amos_file_sweep(t->dir);
	return AMOS_DONE;
}

static int make_folder(struct training *t)
{
	const char *name = amos_model_of(t->m)->name, *base = strrchr(name, '/');
	const struct amos_options *o = t->options;
	base = base ? base + 1 : name;
	int stem =
	    (int)(strlen(base) > 5 && !strcmp(base + strlen(base) - 5, ".onnx") ? strlen(base) - 5
	                                                                        : strlen(base));
	const char *given = o->resume ? o->resume : o->out;
	bool made = given ? asprintf(&t->dir, "%s", given) >= 0
	                  : asprintf(&t->dir, "%.*s.run", stem, base) >= 0;
	if (!made || asprintf(&t->last, "%s/last.ckpt", t->dir) < 0 ||
	    asprintf(&t->best, "%s/best.ckpt", t->dir) < 0)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", name);
	if (!o->resume && mkdir(t->dir, 0777) && errno != EEXIST)
		return amos_fail_errno("make the run folder", t->dir);
	return lock_folder(t);
}

static int begin(struct training *t)
{
	const struct amos_options *o = t->options;
	int64_t seed = o->seed < 0 ? 0 : o->seed;
	t->point = (struct amos_point){.seed = seed, .best = INFINITY};
	if (!o->resume) {
		// The best of an earlier run in this folder is not this one's.
		if (unlink(t->best) && errno != ENOENT)
			return amos_fail_errno("write", t->best);
		return amos_command_keep(t->dir, amos_model_of(t->m), o);
	}
	int status = amos_load(t->m, t->last, &t->point);
	if (!status && t->point.seed != seed)
		status = amos_fail(AMOS_INPUT, "--seed %lld: the run in %s began with --seed %lld",
		                   (long long)seed, t->dir, (long long)t->point.seed);
	return status;
}

// Batches that the next update takes, but the first of them.
static int64_t behind_first(const struct training *t)
{
	return t->left_slot < 0 ? 0 : counter(t, t->left_slot);
}

static int check_accumulate(const struct training *t)
{
	int64_t behind = behind_first(t);
	if (!behind || behind < t->runs || t->options->resume)
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "--accumulate %lld: the training has %lld batches, which make no update: "
	                 "wanted fewer batches an update, --steps N, or more --epochs",
	                 (long long)behind + 1, (long long)t->runs);
}

static int prepare(struct training *t)
{
	const struct amos_options *o = t->options;
	const struct amos_model *model = amos_model_of(t->m);
	t->entry = amos_find_entry(model, "train");
	if (!t->entry)
		return amos_fail(AMOS_INPUT, "%s: compiled without training", model->name);
	if (o->eval_every > 0 && (!amos_data_held(t->data) || !amos_find_entry(model, "eval")))
		return amos_fail(
		    AMOS_INPUT,
		    "--eval-every: nothing is held out to evaluate on: wanted --split 0.9");
	t->loss = amos_find_out(t->entry, "loss");
	t->step_slot = amos_find_slot(model, "amos.step");
	t->left_slot = amos_find_slot(model, "amos.left");
	t->gather = t->left_slot < 0 ? NULL : amos_find_entry(model, "gather");
	double epochs = o->epochs >= 0 ? o->epochs : o->steps >= 0 ? INFINITY : 1;
	t->steps = o->steps >= 0 ? o->steps : INT64_MAX;
	t->runs =
	    isinf(epochs) ? INT64_MAX : (int64_t)ceil(epochs * (double)amos_data_batches(t->data));
	t->evaluated = -1;
	int status = check_accumulate(t);
	if (!status)
		status = make_folder(t);
	if (!status)
		status = begin(t);
	if (!status)
		status = amos_data_keep(t->data, t->dir);
	return status ? status : amos_log_open(&t->log, t->dir, t->point.step, o);
}

static int train(struct training *t)
{
	int status = prepare(t);
	if (status)
		return status;
	if (t->options->resume)
		amos_say(&t->log, "goes on after step %lld\n", (long long)t->point.step);
	else if (behind_first(t) >= amos_data_batches(t->data))
		amos_say(&t->log, "an update takes %lld batches, of %lld in an epoch\n",
		         (long long)behind_first(t) + 1, (long long)amos_data_batches(t->data));
	t->begin_time = t->line_time = t->save_time = amos_now();
	t->begin_run = t->line_run = t->point.run;
	struct sigaction before[SIGNALS];
	catch_interrupts(before);
	status = loop(t);
	release_interrupts(before);
	if (!status && t->result->stopped)
		amos_say(&t->log, "stopped at step %lld and saved; --resume %s goes on\n",
		         (long long)t->point.step, t->dir);
	interrupts = 0;
	return status;
}

int amos_train(struct amos *m, struct amos_data *data, const struct amos_options *options,
               struct amos_result *result)
{
	struct training t = {
	    .m = m, .data = data, .options = options, .folder = -1, .result = result};
	*result = (struct amos_result){
	    .loss = NAN, .accuracy = NAN, .eval_loss = NAN, .eval_accuracy = NAN};
	double start = amos_now();
	int status = train(&t);
	result->step = t.point.step;
	result->seconds = amos_now() - start;
	int closed = amos_log_close(&t.log, status);
	if (t.folder >= 0)
		close(t.folder);
	free(t.dir);
	free(t.last);
	free(t.best);
	return closed;
}
