// main.c: implements the verbs of a compiled trainer as a command.
// Options come from options.def through getopt_long(). Results go to standard output, all else to
// standard error; no file appears half written.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum group {
	COMMON = 1 << 0,
	DATA = 1 << 1,
	SPLIT = 1 << 2,
	MASK = 1 << 3,
	WORK = 1 << 4,
	DRAW = 1 << 5,
	SHAPE = 1 << 6,
	STEP = 1 << 7,
	LOOP = 1 << 8,
	OUT = 1 << 9,
	JSON = 1 << 10,
	KEEP = 1 << 11,
	RUN = DATA | MASK | WORK | DRAW, // options of verbs that run the model
};

struct command {
	const struct amos_model *model;
	const struct verb *verb;
	struct amos_options options;
	const char *checkpoint;
};

struct verb {
	const char *name;
	unsigned takes;
	const char *arguments;
	const char *about;
	int (*run)(struct command *);
};

// ---- the command line -----------------------------------------------------------------

static const struct amos_option_row rows[] = {
#define OPTION(name, letter, group, type, argument, help)                                          \
	{#name, letter, group, #type, argument, help},
#include "options.def"
#undef OPTION
};

static int take_option(void *command, int row, const char *value)
{
	return amos_option(&((struct command *)command)->options, rows[row].name, value);
}

static void take_checkpoint(void *command, const char *path)
{
	((struct command *)command)->checkpoint = path;
}

static void parse(struct command *c, const char *program, int argc, char **argv)
{
	amos_parse(&(struct amos_command_line){.program = program,
	                                       .arguments = c->verb->arguments,
	                                       .about = c->verb->about,
	                                       .least = *c->verb->arguments == 'C',
	                                       .most = *c->verb->arguments != 0,
	                                       .rows = COUNT(rows),
	                                       .row = rows,
	                                       .takes = c->verb->takes,
	                                       .context = c,
	                                       .option = take_option,
	                                       .argument = take_checkpoint},
	           argc, argv);
}

// ---- shared by the verbs --------------------------------------------------------------

static int open_checkpoint(const struct command *c, struct amos_checkpoint **to)
{
	struct stat about;
	bool last;
	int status = amos_keeps_last(&c->options, &last);
	bool file = c->checkpoint && !stat(c->checkpoint, &about) && !S_ISDIR(about.st_mode);
	if (!status && c->options.keep && (file || !c->checkpoint))
		status =
		    amos_fail(AMOS_USAGE, "--keep does nothing with %s: expected a run directory",
		              file ? "a checkpoint file" : "the trainer's own weights");
	return status ? status : amos_checkpoint_open(c->checkpoint, last, to);
}

static int open_data(const struct command *c, int exact, const char *const *entries,
                     struct amos_data **to)
{
	int status = amos_data_open(&c->options, exact, to);
	return status ? status : amos_data_attach(*to, c->model, entries);
}

// True if all arrays have the exact shapes of their inputs.
static bool is_one_batch(const struct amos_data *data, const struct amos_model *model)
{
	bool all = true;
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		const struct amos_array *from =
		    s->kind == AMOS_SLOT_INPUT
		        ? amos_source_array(data, amos_source_of(data, s->name))
		        : NULL;
		all &= !from || (from->rank == s->rank &&
		                 !memcmp(from->dim, s->dim, sizeof *s->dim * (size_t)s->rank));
	}
	return all;
}

// Opens the model and the data that the entries read, calls `work`, and closes both.
static int with_model(struct command *c, int exact, const char *const *entries,
                      int work(struct command *, struct amos *, struct amos_data *))
{
	const struct amos_options *o = &c->options;
	struct amos *m = NULL;
	struct amos_data *data = NULL;
	struct amos_checkpoint *checkpoint = NULL;
	if (!amos_find_entry(c->model, entries[0]))
		return amos_fail(AMOS_INPUT, "%s: compiled without '%s'", c->model->name,
		                 entries[0]);
	int status =
	    amos_open_slots(c->model, o->threads, o->seed < 0 ? 0 : o->seed, NULL, NULL, &m);
	if (!status && m->device_missing && !o->quiet)
		fprintf(stderr, "note: on the CPU: %.*s\n", (int)strcspn(m->device_missing, "\n"),
		        m->device_missing);
	if (!status && m->graphs_missing && !o->quiet)
		fprintf(stderr, "note: kernels are started one by one: the device has no %s\n",
		        m->graphs_missing);
	if (!status && m->threads_missing && !o->quiet)
		fprintf(stderr, "note: %lld %s could not be started\n",
		        (long long)m->threads_missing,
		        PLURAL(m->threads_missing, "thread", "threads"));
	if (!status && (c->checkpoint || (o->keep && !(c->verb->takes & LOOP))))
		status = open_checkpoint(c, &checkpoint);
	if (!status && checkpoint)
		status = amos_checkpoint_load(checkpoint, m);
	amos_checkpoint_close(checkpoint);
	if (!status)
		status = open_data(c, exact, entries, &data);
	if (status == AMOS_INPUT && exact && data && !is_one_batch(data, c->model)) {
		amos_data_close(data);
		data = NULL;
		status = open_data(c, 0, entries, &data);
	}
	if (!status && !o->quiet)
		amos_print(stderr, data->unused, "");
	if (!status && !o->quiet && !(c->verb->takes & LOOP)) // train prints it with the note
		amos_print(stderr, data->read, "");
	if (!status)
		status = work(c, m, data);
	amos_data_close(data);
	amos_close(m);
	return status;
}

static void print_number(const char *name, double x, int json)
{
	if (isfinite(x))
		printf(json ? ", \"%s\": %.9g" : "%s %.6g\n", name, x);
}

static void print_result(const struct amos_result *r, int json)
{
	printf(json ? "{\"step\": %lld" : "step %lld\n", (long long)r->step);
	print_number("loss", r->loss, json);
	print_number("accuracy", r->accuracy, json);
	print_number("eval_loss", r->eval_loss, json);
	print_number("eval_accuracy", r->eval_accuracy, json);
	if (isfinite(r->best.loss))
		print_number("best_step", (double)r->best.step, json);
	print_number("best_loss", r->best.loss, json);
	print_number("constant_loss", r->constant.loss, json);
	print_number("seconds", r->seconds, json);
	if (json)
		printf(", \"stopped\": %s, \"out_of_patience\": %s}\n",
		       r->stopped ? "true" : "false", r->impatient ? "true" : "false");
}

// ---- verbs ----------------------------------------------------------------------------

// Returns the bytes of the outputs of entry `run`, which training leaves untouched.
static int64_t idle_bytes(const struct amos_model *model)
{
	const struct amos_entry *run = amos_find_entry(model, "run");
	int64_t bytes = 0;
	for (int64_t i = 0; run && i < run->nouts; i++)
		bytes += run->outs[i].bytes;
	return bytes;
}

static int train_and_print(struct command *c, struct amos *m, struct amos_data *data,
                           struct amos_result *result)
{
	const struct amos_memory *b = &m->memory;
	int64_t batch = b->batch - idle_bytes(m->model);
	amos_give_back();
	int64_t process = amos_process_memory(m);
	char warning[256];
	if (!c->options.quiet)
		fprintf(stderr,
		        "%s%smemory: %s = %s parameters + %s state + %s scratch + %s batch and "
		        "threads + %s process\n",
		        m->model->note ? m->model->note : "", data->note,
		        amos_bytes_text(b->total - b->batch + batch + process).text,
		        amos_bytes_text(b->params).text, amos_bytes_text(b->state).text,
		        amos_bytes_text(b->scratch).text, amos_bytes_text(batch + b->pads).text,
		        amos_bytes_text(process).text);
	c->options.fresh = !c->checkpoint;
	int status = amos_train(m, data, &c->options, result);
	if (status)
		return status;
	if (c->options.json || !c->options.quiet)
		print_result(result, c->options.json);
	if (!c->options.quiet && amos_training_warning(warning, sizeof warning, result))
		fprintf(stderr, "%s: warning: %s\n", c->options.argv[0], warning);
	return AMOS_DONE;
}

// Fails if --keep has no effect.
static int check_keep(const struct command *c, const struct amos_data *data, bool *last)
{
	int status = amos_keeps_last(&c->options, last);
	if (!status && c->options.keep && !c->model->file)
		return amos_fail(AMOS_USAGE,
		                 "--keep does nothing: the program was built with --no-export");
	if (!status && c->options.keep && !amos_data_held_out(data))
		return amos_fail(AMOS_INPUT, "--keep: no data are held out to evaluate on" HELP
		                             "give --split 0.9");
	return status;
}

// Trains and, if the program has the model's file, writes DIR.onnx for the run in DIR.
static int train(struct command *c, struct amos *m, struct amos_data *data)
{
	const struct amos_options *o = &c->options;
	const char *dir = o->resume ? o->resume : o->out;
	struct amos_result result;
	bool last, wrote, writes = c->model->file;
	char *path = amos_trained_path(dir);
	int status = path ? check_keep(c, data, &last) : amos_no_memory(dir);
	if (!status && writes)
		status = amos_trained_check(dir, path, o->overwrite, &wrote);
	if (!status)
		status = train_and_print(c, m, data, &result);
	if (!status && writes)
		status = amos_load_trained(m, dir, &result, last);
	if (!status && writes)
		status = amos_trained_check(dir, path, o->overwrite, &wrote);
	if (!status && writes && !wrote)
		status = amos_command_writes(dir, path);
	if (!status && writes)
		status = amos_export_onnx(m, path);
	free(path);
	return status;
}

// The run directory is PROGRAM.run, unless -o or --resume gives another.
static int verb_train(struct command *c)
{
	struct amos_options *o = &c->options;
	char *folder = NULL;
	if (o->out && !strcmp(o->out, "-"))
		return amos_fail(AMOS_USAGE,
		                 "--out: expected the name of a run directory, found '-'");
	if (!o->out && !o->resume) {
		if (asprintf(&folder, "%s.run", basename(o->argv[0])) < 0)
			return amos_no_memory(o->argv[0]);
		o->out = folder;
	}
	int status = o->resume ? AMOS_DONE : amos_folder_free(o->out, o->overwrite);
	if (!status)
		status = with_model(c, 0, (const char *const[]){"train", "eval", NULL}, train);
	free(folder);
	return status;
}

static int evaluate(struct command *c, struct amos *m, struct amos_data *data)
{
	struct amos_result result;
	int status = amos_evaluate_data(m, data, NULL, &result);
	if (status)
		return status;
	int64_t left = amos_data_eval_samples(data) - result.eval_samples;
	if (left && !c->options.quiet)
		fprintf(stderr, "note: %lld %s after the last full batch\n", (long long)left,
		        PLURAL(left, "sample is omitted", "samples are omitted"));
	print_result(&result, c->options.json);
	return AMOS_DONE;
}

static int verb_eval(struct command *c)
{
	return with_model(c, 0, (const char *const[]){"eval", NULL}, evaluate);
}

// Writes the entry's outputs by name: of the batch that was run, or if they are given, `rows` of
// `samples` samples.
static int write_outputs(const struct amos *m, const struct amos_entry *entry, char **rows,
                         int64_t samples, const char *path)
{
	struct amos_array *outs = calloc((size_t)entry->nouts + 1, sizeof *outs);
	if (!outs)
		return amos_no_memory(path);
	int64_t n = 0;
	for (int64_t i = 0; i < entry->nouts; i++) {
		const struct amos_out *out = &entry->outs[i];
		if (out->auxiliary)
			continue;
		outs[n] = (struct amos_array){
		    .name = out->name, .type = (int)out->type, .rank = (int)out->rank};
		amos_out_shape(m, entry, i, outs[n].dim);
		if (rows)
			outs[n].dim[0] = samples;
		outs[n++].bytes = rows ? rows[i] : amos_out_bytes(m, entry, i);
	}
	int status = amos_npz_write(path, n, outs);
	free(outs);
	return status;
}

static int run(struct command *c, struct amos *m, struct amos_data *data)
{
	const struct amos_entry *entry = amos_find_entry(c->model, "run");
	char **rows = NULL;
	int status = amos_output_check(c->options.out);
	if (!status && !data->exact)
		status = amos_run_data(m, data, entry, &rows);
	if (!status && data->exact)
		status = amos_data_eval(data, m, 0, 1);
	if (!status && data->exact)
		status = amos_call(m, entry, NULL, NULL);
	if (!status)
		status =
		    write_outputs(m, entry, rows, amos_data_eval_samples(data), c->options.out);
	amos_outputs_free(entry, rows);
	return status;
}

static int verb_run(struct command *c)
{
	if (!c->options.out)
		return amos_fail(AMOS_USAGE, "run: expected -o OUT.npz");
	if (!amos_npz_named(c->options.out))
		return amos_fail(AMOS_USAGE, "run: expected -o OUT.npz, found '%s'",
		                 c->options.out);
	c->options.out = amos_output_name(c->options.out);
	return with_model(c, 1, (const char *const[]){"run", NULL}, run);
}

static int export_arrays(const struct amos_checkpoint *from, const char *path)
{
	int64_t n = 0;
	struct amos_array *arrays = calloc((size_t)from->count + 1, sizeof *arrays);
	if (!arrays)
		return amos_no_memory("export");
	for (int64_t i = 0; i < from->count; i++)
		if (from->slots[i].kind != AMOS_SLOT_STATE)
			arrays[n++] = from->slots[i].array;
	int status = amos_npz_write(path, n, arrays);
	free(arrays);
	return status;
}

static int export_onnx(const struct command *c, const struct amos_checkpoint *from)
{
	struct amos *m = NULL;
	int status = amos_open_slots(c->model, 1, 0, NULL, NULL, &m);
	if (!status)
		status = amos_checkpoint_load(from, m);
	if (!status)
		status = amos_export_onnx(m, c->options.out);
	amos_close(m);
	return status;
}

static int verb_export(struct command *c)
{
	const char *out = c->options.out, *dot = out ? strrchr(out, '.') : NULL;
	bool onnx = dot && !strcmp(dot, ".onnx"), npz = dot && !strcmp(dot, ".npz");
	struct amos_checkpoint *from;
	if (!onnx && !npz) // the name's ending says what to write
		return amos_fail(AMOS_USAGE, "export: expected -o OUT.onnx or OUT.npz%s%s%s",
		                 out ? ", found '" : "", out ? out : "", out ? "'" : "");
	int status = open_checkpoint(c, &from);
	if (status)
		return status;
	status = from->image.start
	             ? amos_fail(AMOS_INPUT,
	                         "%s: the run was stopped before it saved weights" HELP
	                         "continue it with --resume",
	                         from->path)
	             : amos_output_check(out);
	if (!status)
		status = onnx ? export_onnx(c, from) : export_arrays(from, out);
	amos_checkpoint_close(from);
	return status;
}

static int verb_info(struct command *c)
{
	static const char *const kinds[] = {"input",  "parameter", "frozen",
	                                    "buffer", "state",     "gradient"};
	const struct amos_model *model = c->model;
	printf("%s for %s\n%s", model->name, model->target ? model->target : "",
	       model->note ? model->note : "");
	for (int64_t i = 0; i < model->nentries; i++) {
		const struct amos_entry *e = &model->entries[i];
		int64_t launches = 0;
		for (int64_t k = 0; k < e->nkernels; k++)
			launches += !e->kernels[k].loop;
		printf("entry     %s: %lld %s, %s of scratch\n", e->name, (long long)launches,
		       PLURAL(launches, "launch", "launches"), amos_bytes_text(e->scratch).text);
	}
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		char shape[256];
		if (s->kind < AMOS_SLOT_STATE || c->options.verbose)
			printf("%-9s %s %s\n", kinds[s->kind], s->name,
			       amos_shape_text(shape, sizeof shape, s->type, (int)s->rank, s->dim));
	}
	printf("memory    %s of parameters, %s of state\n", amos_bytes_text(model->params).text,
	       amos_bytes_text(model->state).text);
	return AMOS_DONE;
}

static const struct verb verbs[] = {
    {"train", COMMON | RUN | SPLIT | LOOP | OUT | JSON | KEEP, "",
     "Train the model that this program was compiled from", verb_train},
    {"eval", COMMON | RUN | SPLIT | JSON | KEEP, "[CHECKPOINT]",
     "Compute loss and metrics over all data, or the held-out part", verb_eval},
    {"run", COMMON | RUN | OUT | KEEP, "[CHECKPOINT]",
     "Write the outputs of one batch, or of samples along axis 0, to OUT.npz", verb_run},
    {"export", COMMON | OUT | KEEP, "CHECKPOINT",
     "Write the weights of a checkpoint or run directory to OUT.onnx, the trained model, or "
     "OUT.npz",
     verb_export},
    {"info", COMMON, "", "Print what this program was compiled from, and the memory it needs",
     verb_info},
};

// --resume takes the options of the command that began the run; options typed with it override
// those.
static int parse_resumed(struct command *c, int argc, char **argv, char ***began)
{
	const char *program = c->options.argv[0];
	*began = NULL;
	parse(c, program, argc, argv);
	if (!c->options.resume)
		return AMOS_DONE;
	if (c->options.overwrite || c->options.out)
		return amos_fail(AMOS_USAGE,
		                 "--resume continues in the run's directory; --overwrite and -o "
		                 "are for a new run");
	int words;
	int status = amos_command(c->options.resume, &words, began);
	if (status)
		return status;
	bool data = c->options.data.count, verb = words > 1 && !strcmp((*began)[1], "train");
	if (verb && words > 2 && *(*began)[2] != '-') // MODEL, which this program does not take
		return amos_fail(AMOS_INPUT,
		                 "%s: this run belongs to amosc train" HELP "resume it with %s "
		                 "train --resume %s",
		                 c->options.resume, (*began)[0], c->options.resume);
	c->options = amos_options();
	parse(c, program, words - verb, *began + verb);
	if (data) // replaces the data of the command
		c->options.data.count = 0;
	parse(c, program, argc, argv);
	return AMOS_DONE;
}

int amos_main(const struct amos_model *model, int argc, char **argv)
{
	struct command c = {
	    .model = amos_best(model), .verb = &verbs[0], .options = amos_options()};
	if (argc > 1 &&
	    (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-?") || !strcmp(argv[1], "help"))) {
		printf("Usage: %s [VERB] [OPTION...]\n\n", argv[0]);
		for (int i = 0; i < COUNT(verbs); i++)
			printf("  %-8s %s\n", verbs[i].name, verbs[i].about);
		printf("\nThe default verb is train. %s VERB --help lists the options.\n"
		       "Exit status: 0 success, 1 invalid input, 2 usage error, 3 system error.\n",
		       argv[0]);
		return AMOS_DONE;
	}
	int verb = argc > 1 ? amos_index(argv[1], verbs, COUNT(verbs), sizeof *verbs) : -1;
	int skip = verb >= 0;
	if (skip)
		c.verb = &verbs[verb];
	char **began;
	c.options.argv = argv;
	amos_locale_own();
	int status = parse_resumed(&c, argc - skip, argv + skip, &began);
	c.options.argc = argc;
	c.options.argv = argv;
	if (!status)
		status = c.verb->run(&c);
	free(began);
	if (status) {
		fprintf(stderr, "%s: ", argv[0]);
		amos_print(stderr, amos_error(), "  ");
		fputs("\n", stderr);
	}
	amos_locale_host();
	return status;
}
