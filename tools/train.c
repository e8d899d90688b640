// train.c: implements amosc train: compiles in memory, trains, writes the trained model.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// True if a list of options has the value of the first command, which would count twice.
static bool repeats(const Choice *c, int count, const Choice *first)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(options[c->option].type, "list") && c->option == first[i].option &&
		    !strcmp(c->value, first[i].value))
			return true;
	return false;
}

// For --resume, inserts the options of the command that began the run before those of this one.
static void recall(Session *session)
{
	Arena *arena = session->arena;
	const char *run = choice(session, OPT_resume, NULL);
	if (!run && !session->path)
		bad_usage(session, "expected MODEL, or --resume DIR");
	if (!run)
		return;
	if (chosen(session, OPT_out) || chosen(session, OPT_overwrite))
		bad_usage(session, "--resume continues in the run's directory: expected no -o and "
		                   "no --overwrite");
	int argc;
	char **argv;
	need_done(amos_command(run, &argc, &argv));
	at_end(arena, free, argv);
	if (argc < 2 || strcmp(argv[1], "train"))
		fail(run, "this run belongs to a compiled trainer" HELP "resume it with %s",
		     argv[0]);
	Session first = *session;
	memset(&first.choices, 0, sizeof first.choices);
	first.path = NULL;
	first.argc = 0; // command.json stays as it is
	parse_command(&first, verb_named("train"), argc - 1, argv + 1);
	bool here = session->path || chosen(session, OPT_data);
	int kept = 0;
	for (int i = 0; i < first.choices.count; i++) // without its data if others are given
		if (first.choices.at[i].option != OPT_data || !chosen(session, OPT_data))
			first.choices.at[kept++] = first.choices.at[i];
	first.choices.count = kept;
	if (session->path)
		first.path = session->path;
	if (!first.path)
		fail(run, "no run to resume: the command in command.json names no model");
	for (int i = 0; i < session->choices.count; i++)
		if (!repeats(&session->choices.at[i], kept, first.choices.at))
			PUSH(arena, first.choices, session->choices.at[i]);
	*session = first;
	if (here)
		return;
	// changes to the directory in which the run began, unless the model is found from here
	json_t *file = json_load_file(format(arena, "%s/command.json", run), 0, NULL);
	char *folder = copy_string(arena, text_at(file, "folder")), *whole = realpath(run, NULL);
	json_decref(file);
	amos_unescape(folder);
	if (whole && *folder && access(session->path, F_OK) && !chdir(folder))
		PUSH(arena, session->choices, ((Choice){OPT_resume, copy_string(arena, whole)}));
	free(whole);
}

static void print_program(const Session *session, Program *p, const struct amos *open,
                          const struct amos_data *data)
{
	Arena *arena = session->arena;
	const Graph *g = program_graph(p);
	int64_t parameters = 0;
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_param)
			parameters += count_of(&g->slots.at[i].shape);
	for (int i = 0; i < p->model->notes.count && chosen(session, OPT_verbose); i++)
		tell(session, "note: %s\n", p->model->notes.at[i]);
	tell(session, "%s%s", p->note, data->note);
	long long threads = open->threads;
	const char *how = p->object->cached
	                      ? "from the cache"
	                      : format(arena, "compiled in %.2f s", p->object->seconds);
	tell(session, "%lld %s; %d %s %s; %lld %s\n", (long long)parameters,
	     PLURAL(parameters, "parameter", "parameters"), p->object->kernels,
	     PLURAL(p->object->kernels, "kernel", "kernels"), how, threads,
	     PLURAL(threads, "thread", "threads"));
}

// After what compiling needed was given back.
static void print_memory(const Session *session, const struct amos *open)
{
	Arena *arena = session->arena;
	const struct amos_memory *m = &open->memory;
	double process = (double)amos_process_memory(open);
	tell(session,
	     "memory: %s = %s parameters + %s state + %s scratch + %s batch and threads + %s "
	     "process\n",
	     bytes_text(arena, (double)m->total + process), bytes_text(arena, (double)m->params),
	     bytes_text(arena, (double)m->state), bytes_text(arena, (double)m->scratch),
	     bytes_text(arena, (double)(m->pads + m->batch)), bytes_text(arena, process));
}

static void print_json_result(json_t *untrained, const struct amos_result *r, const char *folder,
                              const char *trained, bool last)
{
	json_t *best = json_null();
	if (isfinite(r->best.loss))
		best = json_pack("{sI so so}", "step", (json_int_t)r->best.step, "eval_loss",
		                 number_json(r->best.loss), "eval_accuracy",
		                 number_json(r->best.accuracy));
	print_json(json_pack(
	    "{so so sO sI so so so so so sI so sf sb sb}", "run", json_text(folder), "model",
	    json_text(trained), "not_trained", untrained, "step", (json_int_t)r->step, "loss",
	    number_json(r->loss), "accuracy", number_json(r->accuracy), "eval_loss",
	    number_json(r->eval_loss), "eval_accuracy", number_json(r->eval_accuracy), "best", best,
	    "model_step", (json_int_t)(amos_has_better(r) && !last ? r->best.step : r->step),
	    "constant_loss", number_json(r->constant.loss), "seconds", r->seconds, "stopped",
	    r->stopped, "out_of_patience", r->impatient));
}

static void print_result(const struct amos_result *r, const char *trained, bool last)
{
	const struct amos_held *best = &r->best;
	printf("step %lld", (long long)r->step);
	if (isfinite(r->loss))
		printf("  loss %.6g", r->loss);
	if (isfinite(r->eval_loss))
		printf("  held out %.6g", r->eval_loss);
	if (!amos_has_better(r))
		printf("\n%s: the trained model\n", trained);
	else if (last)
		printf(
		    "\n%s: the weights of step %lld; those of step %lld have the lowest held-out "
		    "loss (%.6g), --keep best writes them\n",
		    trained, (long long)r->step, (long long)best->step, best->loss);
	else
		printf("\n%s: the weights of step %lld (held out %.6g); those of the last step "
		       "have %.6g, --keep last writes them\n",
		       trained, (long long)best->step, best->loss, r->eval_loss);
}

void verb_train(Session *session)
{
	recall(session);
	need_host(session);
	need_file(session, OPT_out, "the name of a run directory");
	if (!chosen(session, OPT_out) && !chosen(session, OPT_resume)) {
		// MODEL.run in the working directory
		const char *name = strcmp(session->path, "-") ? basename(session->path) : "model";
		int length = (int)strlen(name) - (ends_with(name, ".onnx") ? 5 : 0);
		PUSH(session->arena, session->choices,
		     ((Choice){OPT_out, format(session->arena, "%.*s.run", length, name)}));
	}
	struct amos_options options = runtime_options(session);
	options.fresh = true;
	const char *folder = options.resume ? options.resume : options.out;
	bool last;
	need_done(amos_keeps_last(&options, &last));
	if (!options.resume)
		need_done(amos_folder_free(folder, options.overwrite));
	struct amos_data *data = open_data(session);
	Program *program = program_new(session, data);
	program->runs = true;
	attach_data(program);
	trained_file(program, chosen(session, OPT_keep_training));
	if (chosen(session, OPT_keep) && !amos_data_held_out(data))
		fail("--keep", "no data are held out to evaluate on" HELP "give --split 0.9");
	char *trained = amos_trained_path(folder);
	if (!trained)
		fail_status(STATUS_MACHINE, folder, "out of memory");
	at_end(session->arena, free, trained);
	bool wrote;
	need_done(amos_trained_check(folder, trained, options.overwrite, &wrote));
	struct amos *open = open_program(program);
	print_program(session, program, open, data);
	struct amos_result result;
	json_t *untrained = keep_json(session, untrained_json(program->model));
	release_program(program);
	amos_give_back();
	print_memory(session, open);
	need_done(amos_train(open, data, &options, &result));
	amos_rest(open);
	need_done(amos_load_trained(open, folder, &result, last));
	need_done(amos_trained_check(folder, trained, options.overwrite, &wrote));
	if (!wrote)
		need_done(amos_command_writes(folder, trained));
	write_open(program, open, trained);
	if (chosen(session, OPT_json))
		print_json_result(untrained, &result, folder, trained, last);
	else if (!chosen(session, OPT_quiet))
		print_result(&result, trained, last);
	char warning[256];
	if (amos_training_warning(warning, sizeof warning, &result))
		tell(session, "amosc: warning: %s: %s\n", session->path, warning);
}
