// library.c: a program over amosc.h alone: opens a model, reads what it declares, trains,
// evaluates, exports, in two threads at once. Compiled as C and as C++. usage: library MODEL
// DATA.npz
#include "amosc.h"
#include <glob.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int wrong;

static void expect(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "library: %s: %s\n", what, amos_error());
	wrong = 1;
}

struct job {
	const char *model, *data, *run;
	struct amos_result result;
};

static int set_options(struct amosc *s, const struct job *job)
{
	return amosc_option(s, "loss", "cross_entropy(logits, labels)") ||
	       amosc_option(s, "data", job->data) || amosc_option(s, "batch", "8") ||
	       amosc_option(s, "seed", "3") || amosc_option(s, "threads", "1");
}

static void *train(void *context)
{
	struct job *job = (struct job *)context;
	struct amosc *s;
	char trained[256];
	snprintf(trained, sizeof trained, "%s.onnx", job->run);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s), "open");
	expect(!set_options(s, job), "options");
	expect(!amosc_option(s, "out", job->run) && !amosc_option(s, "steps", "20") &&
	           !amosc_option(s, "quiet", NULL),
	       "options of training");
	expect(!amosc_train(s, &job->result), "train");
	expect(job->result.step == 20, "20 steps");
	expect(!amosc_export(s, trained), "export");
	amosc_close(s);
	return NULL;
}

static void evaluate(const struct job *job)
{
	struct amosc *s;
	struct amos_result result;
	char trained[256];
	snprintf(trained, sizeof trained, "%s.onnx", job->run);
	expect(!amosc_open(trained, AMOSC_EVAL, &s), "open what was trained");
	expect(!set_options(s, job) && !amosc_eval(s, &result), "eval");
	expect(result.eval_loss < 1.2 && result.eval_samples == 64, "the loss of all samples");
	expect(result.loss != result.loss, "nothing of the training before it");
	amosc_close(s);
}

static void inspect(const struct job *job)
{
	struct amosc *s;
	int n;
	const struct amosc_value *value;
	const char *text, *again;
	expect(!amosc_open(job->model, AMOSC_REPORT, &s), "open");
	expect(!amosc_inputs(s, &n, &value) && n == 1 && !strcmp(value[0].name, "x") &&
	           value[0].rank == 2 && value[0].dim[0] == -1 && value[0].dim[1] == 4,
	       "inputs");
	expect(!amosc_outputs(s, &n, &value) && n == 1 && !strcmp(value[0].name, "logits"),
	       "outputs");
	expect(!amosc_eta(s, &text) && strstr(text, "\"name\": \"0.weight\""), "eta");
	amosc_close(s);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s), "open");
	expect(!amosc_option(s, "loss", "cross_entropy(logits, labels)") &&
	           !amosc_show(s, NULL, "step", &text) && !amosc_show(s, text, "step", &again) &&
	           !strcmp(text, again),
	       "show");
	amosc_close(s);
}

// Settings of Amos, by the rules of docs/optimizer.md.
static void settings(void)
{
	struct amosc_amos a = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0, 0, 0, 0, 0, 0};
	struct amosc_amos given = a, unknown = a, average = a;
	expect(!amosc_amos_defaults(&a, 500, 16), "settings by rule");
	expect(fabs(a.xi - 0.02) < 1e-12 && a.beta == 0.98 && a.clip == 0.25 && a.warmup == 51 &&
	           a.reach == 2 && a.pace > 4 && a.most > 1 && a.extra_l2 == 0 && !a.average &&
	           a.strength == 1,
	       "settings for few batches");
	average.average = 8;
	expect(!amosc_amos_defaults(&average, 500, 16) && average.average == 8 &&
	           average.xi > 2.9 * a.xi && !average.momentum && average.mix == 0.8 &&
	           average.strength == average.pace,
	       "settings for a running mean");
	given.xi = 0.01;
	expect(!amosc_amos_defaults(&given, 500, 0) && given.xi == 0.01 && given.beta == 0.99 &&
	           given.warmup == 500 && given.pace == 1 && !given.most && !given.reach &&
	           !given.clip,
	       "settings of Algorithm 1");
	expect(!amosc_amos_defaults(&unknown, 0, 0) && unknown.xi == 0.01 && !unknown.reach,
	       "settings without data");
}

// Every failure is a value, and the session can be closed.
static void fail(const struct job *job)
{
	struct amosc *s;
	struct amos *open;
	struct amos_result result;
	expect(!amosc_open("no-such-file.onnx", AMOSC_TRAIN, &s), "a session without a file");
	expect(amosc_compile(s, &open, NULL) == AMOSC_INPUT && strstr(amos_error(), "no-such-file"),
	       "a file that is not there");
	expect(amosc_option(s, "no-such-option", "1") == AMOSC_USAGE, "an unknown option");
	expect(amosc_option(s, "loss", NULL) == AMOSC_USAGE, "an option without its value");
	expect(amosc_option(s, "wrt", "all") == AMOSC_USAGE, "an option of other sessions");
	expect(amosc_train(s, &result) == AMOSC_USAGE, "training without data");
	amosc_close(s);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s), "open");
	expect(!amosc_option(s, "loss", "mse(logits"), "a loss");
	expect(amosc_compile(s, &open, NULL) == AMOSC_INPUT, "a loss that cannot be read");
	amosc_close(s);
	amosc_close(NULL);
}

// What is not there is an error, or NULL; nothing else is read or written in its place.
static void missing(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	expect(amosc_open(NULL, AMOSC_TRAIN, &s) == AMOSC_USAGE && !s, "a model without a path");
	expect(amosc_open(job->model, (enum amosc_purpose)17, &s) == AMOSC_USAGE && !s &&
	           amosc_open(job->model, (enum amosc_purpose) - 1, &s) == AMOSC_USAGE,
	       "a purpose that is none");
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job), "open");
	expect(amosc_option(s, NULL, "1") == AMOSC_USAGE, "an option without a name");
	expect(amosc_write(s, NULL) == AMOSC_USAGE, "an object without a path");
	expect(!amosc_compile(s, &m, NULL), "compile");
	expect(amosc_export(s, NULL) == AMOSC_USAGE, "an export without a path");
	for (int kind = 0; kind <= AMOS_KINDS; kind++) {
		enum amos_kind k = (enum amos_kind)kind;
		int64_t none[] = {amos_find(m, k, "none"), amos_count(m, k), INT64_MAX}, bytes;
		for (int i = 0; i < 3; i++)
			expect(!amos_values(m, k, none[i]) && !amos_name(m, k, none[i]) &&
			           !amos_bytes(m, k, none[i]) && !amos_rank(m, k, none[i]),
			       "an array that is none");
		expect(k < AMOS_KINDS || (!amos_count(m, k) && !amos_block(m, k, &bytes)),
		       "a kind that is none");
	}
	expect(amos_set_input(m, -1, NULL) == AMOS_INPUT &&
	           strstr(amos_error(), "no input -1; the model has 2") &&
	           amos_set_input(m, 2, NULL) == AMOS_INPUT,
	       "an input that is none");
	amosc_close(s);
}

// A session trains once: another run would begin with the weights of the first. Its model trains in
// one call.
static void train_again(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	double loss;
	struct amos_result result;
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job) &&
	           !amosc_option(s, "out", "again") && !amosc_option(s, "overwrite", NULL) &&
	           !amosc_option(s, "steps", "2"),
	       "open");
	expect(!amosc_train(s, &result), "train");
	expect(amosc_train(s, &result) == AMOSC_USAGE && strstr(amos_error(), "already"),
	       "a second training");
	expect(!amosc_compile(s, &m, NULL) && amos_steps(m) == 2 && !amos_evaluate(m, &loss),
	       "the model that was trained");
	expect(amos_gradient(m, &loss) == AMOSC_USAGE && strstr(amos_error(), "compiled without"),
	       "gradients of a model for training");
	amosc_close(s);
}

// The options of a text are not those of the session, though it cannot be read.
static void show_text(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	const char *text;
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job), "open");
	expect(amosc_show(s, "garbage", "step", &text) == AMOSC_INPUT, "a text of no program");
	expect(!amosc_compile(s, &m, NULL) && amos_shape(m, AMOS_INPUTS, 0)[0] == 8,
	       "the options of the session");
	amosc_close(s);
}

// On a full disk no file is left, not even a temporary one.
static void full_disk(const struct job *job)
{
	struct amosc *s;
	struct rlimit before, little;
	glob_t found;
	getrlimit(RLIMIT_FSIZE, &before);
	little = before;
	little.rlim_cur = 512;
	signal(SIGXFSZ, SIG_IGN);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job), "open");
	setrlimit(RLIMIT_FSIZE, &little);
	expect(amosc_write(s, "full.o") == AMOSC_MACHINE && strstr(amos_error(), "cannot write"),
	       "an object larger than a file may be");
	setrlimit(RLIMIT_FSIZE, &before);
	expect(glob("full.o", 0, NULL, &found) == GLOB_NOMATCH &&
	           glob("*.aside", 0, NULL, &found) == GLOB_NOMATCH,
	       "a file is left");
	expect(!amosc_write(s, "full.o"), "an object");
	amosc_close(s);
}

// Two trainers, one of which reads the program's arrays.
static void step_by_step(const struct job *job)
{
	static char room[192];
	float *x = (float *)(room + 64 - (uintptr_t)room % 64);
	int64_t shape[2];
	double own, set;
	struct amosc *s[2];
	struct amos *m[2];
	for (int k = 0; k < 2; k++) {
		expect(!amosc_open(job->model, AMOSC_TRAIN, &s[k]) && !set_options(s[k], job) &&
		           !amosc_compile(s[k], &m[k], NULL),
		       "compile");
		int64_t *labels = (int64_t *)amos_values(m[k], AMOS_INPUTS,
		                                         amos_find(m[k], AMOS_INPUTS, "labels"));
		for (int i = 0; i < 8; i++)
			labels[i] = i % 3;
	}
	int64_t i = amos_find(m[0], AMOS_INPUTS, "x");
	float *values = (float *)amos_values(m[0], AMOS_INPUTS, i);
	for (int k = 0; k < 32; k++)
		x[k] = values[k] = (float)k / 32;
	expect(!amos_set_input(m[1], i, x), "an array of the program");
	expect(amos_set_input(m[1], i, (char *)x + 4) == AMOS_INPUT,
	       "an array that is not aligned");
	expect(!amos_step(m[0], &own) && !amos_step(m[1], &set) && own == set, "equal losses");
	expect(!amos_forward(m[1]) && amos_count(m[1], AMOS_OUTPUTS) == 1, "outputs");
	amos_output_shape(m[1], 0, shape);
	expect(shape[0] == 8 && shape[1] == 3, "the shape of an output");
	expect(!amos_set_input(m[1], i, NULL) && !amos_step(m[0], &own) && !amos_step(m[1], &set) &&
	           own != set,
	       "the array of the trainer");
	amosc_close(s[0]);
	amosc_close(s[1]);
}

// The optimizer's step alone, for a program that computes the gradients.
static void update_only(const struct job *job)
{
	struct amosc *s;
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job), "open");
	expect(!amosc_option(s, "update-only", NULL), "an option of a flag");
	expect(amosc_write(s, "update") == AMOSC_USAGE && strstr(amos_error(), "update-only"),
	       "an update is no executable");
	expect(!amosc_write(s, "update.o"), "an update");
	amosc_close(s);
}

// The same in memory.
static void update_here(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	struct amos_result result;
	double loss;
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job) &&
	           !amosc_option(s, "update-only", NULL) && !amosc_option(s, "out", "none"),
	       "open");
	expect(amosc_train(s, &result) == AMOSC_USAGE && strstr(amos_error(), "update-only"),
	       "an update does not train");
	expect(!amosc_compile(s, &m, NULL), "an update in memory");
	expect(amos_count(m, AMOS_PARAMETERS) == 4 && !amos_count(m, AMOS_INPUTS), "its arrays");
	float *w = (float *)amos_values(m, AMOS_PARAMETERS, 0),
	      *g = (float *)amos_values(m, AMOS_GRADIENTS, 0), before = w[0];
	g[0] = 1;
	expect(!amos_update(m) && w[0] < before && amos_steps(m) == 1, "a step");
	expect(amos_step(m, &loss) == AMOS_USAGE, "it computes no gradients");
	amosc_close(s);
}

// Options without effect are refused, as by the command.
static void unused(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	const char *text;
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job) &&
	           !amosc_option(s, "update-only", NULL) && !amosc_option(s, "accumulate", "2"),
	       "open");
	expect(amosc_write(s, "unused.o") == AMOSC_USAGE && strstr(amos_error(), "--accumulate"),
	       "an update that accumulates, written");
	expect(amosc_compile(s, &m, NULL) == AMOSC_USAGE && strstr(amos_error(), "--accumulate"),
	       "an update that accumulates, in memory");
	amosc_close(s);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !amosc_option(s, "split", "0.5"),
	       "open");
	expect(amosc_write(s, "unused.o") == AMOSC_USAGE && amosc_eta(s, &text) == AMOSC_USAGE &&
	           amosc_show(s, NULL, "step", &text) == AMOSC_USAGE &&
	           strstr(amos_error(), "--split does nothing without --data"),
	       "a split of no data");
	amosc_close(s);
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !amosc_option(s, "seed", "1"), "open");
	expect(!amosc_eta(s, &text), "a report of a session that trains later");
	amosc_close(s);
}

// A loss of cotangents, by output.
static void cotangents(const struct job *job)
{
	struct amosc *s;
	struct amos *m;
	expect(!amosc_open(job->model, AMOSC_GRAD, &s) && !amosc_option(s, "data", job->data) &&
	           !amosc_option(s, "cotangent", "cotangents.npz"),
	       "open");
	expect(!amosc_compile(s, &m, NULL), "gradients by cotangents");
	amosc_close(s);
	expect(!amosc_open(job->model, AMOSC_GRAD, &s) && !amosc_option(s, "data", job->data) &&
	           !amosc_option(s, "cotangent", "others.npz"),
	       "open");
	expect(amosc_compile(s, &m, NULL) == AMOSC_INPUT && strstr(amos_error(), "'other' is no"),
	       "a cotangent of no output");
	amosc_close(s);
}

static void hear(void *context, const char *text)
{
	char number[8];
	snprintf(number, sizeof number, "%.1f", 0.5);
	*(int *)context |= *text && !strcmp(number, "0,5");
}

// A program may have set a locale in which 0.5 is 0,5.
static void decimal_comma(const struct job *job)
{
	struct amosc *s;
	struct amos_result result;
	char here[4096], number[8];
	int heard = 0;
	if (!getcwd(here, sizeof here) ||
	    system("localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 >messages 2>&1") > 1 << 8 ||
	    setenv("LOCPATH", here, 1) || !setlocale(LC_ALL, "de_DE.UTF-8"))
		return; // this system has no localedef
	expect(!amosc_open(job->model, AMOSC_TRAIN, &s) && !set_options(s, job), "open");
	amosc_listen(s, hear, &heard);
	expect(!amosc_option(s, "split", "0.5") && !amosc_option(s, "steps", "2") &&
	           !amosc_option(s, "out", "comma") && !amosc_option(s, "overwrite", NULL),
	       "options in a locale with a decimal comma");
	expect(!amosc_train(s, &result), "train in that locale");
	amosc_close(s);
	expect(heard, "the program's locale in its callback");
	snprintf(number, sizeof number, "%.1f", 0.5);
	expect(!strcmp(number, "0,5"), "the program's locale afterwards");
	setlocale(LC_ALL, "C");
}

int main(int argc, char **argv)
{
	pthread_t thread;
	static struct job jobs[2];
	for (int i = 0; i < 2 && argc == 3; i++) {
		jobs[i].model = argv[1];
		jobs[i].data = argv[2];
		jobs[i].run = i ? "second" : "first";
	}
	pthread_create(&thread, NULL, train, &jobs[0]);
	train(&jobs[1]);
	pthread_join(thread, NULL);
	expect(jobs[0].result.loss == jobs[1].result.loss, "equal losses in two threads");
	evaluate(&jobs[0]);
	settings();
	inspect(&jobs[0]);
	fail(&jobs[0]);
	full_disk(&jobs[0]);
	step_by_step(&jobs[0]);
	update_only(&jobs[0]);
	update_here(&jobs[0]);
	unused(&jobs[0]);
	cotangents(&jobs[0]);
	missing(&jobs[0]);
	train_again(&jobs[0]);
	show_text(&jobs[0]);
	decimal_comma(&jobs[0]);
	return wrong;
}
