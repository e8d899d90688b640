// train.c: amosc train: compile in memory, train, write the trained model beside the run.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const void *slot_bytes(void *open, int slot)
{
	return amos_slot_bytes(open, slot);
}

static const char *file_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

// Where the trained model goes: DIR.onnx for the run in DIR/.
static const char *trained_path(Arena *arena, const char *folder)
{
	size_t count = strlen(folder);
	while (count > 1 && folder[count - 1] == '/')
		count--;
	return format(arena, "%.*s.onnx", (int)count, folder);
}

// MODEL.run in the working folder, unless -o or --resume says otherwise.
static void choose_folder(Command *command)
{
	if (chosen(command, OPT_out) || chosen(command, OPT_resume))
		return;
	const char *name = file_part(command->arguments.at[0]);
	if (!strcmp(name, "-"))
		name = "model";
	int stem = (int)strlen(name) - (ends_with(name, ".onnx") ? 5 : 0);
	Choice out = {OPT_out, format(command->arena, "%.*s.run", stem, name)};
	PUSH(command->arena, command->choices, out);
}

// Where the words of the command that began a run were typed; NULL: it does not say.
static const char *folder_of_command(Command *command, const char *run)
{
	json_t *file = json_load_file(format(command->arena, "%s/command.json", run), 0, NULL);
	char *folder = copy_string(command->arena, text_at(file, "folder"));
	json_decref(file);
	amos_restore(folder);
	return *folder ? folder : NULL;
}

// The files that the command names are sought from where it was typed, unless they are here.
static void go_there(Command *command, const char *run)
{
	const char *folder = folder_of_command(command, run);
	char *whole = realpath(run, NULL);
	if (!whole || !folder || !access(command->arguments.at[0], F_OK) || chdir(folder)) {
		free(whole);
		return;
	}
	Choice resume = {OPT_resume, copy_string(command->arena, whole)};
	PUSH(command->arena, command->choices, resume);
	free(whole);
}

// A command without the data of another, which are typed anew.
static void drop_data(Command *command)
{
	int kept = 0;
	for (int i = 0; i < command->choices.count; i++)
		if (command->choices.at[i].option != OPT_data)
			command->choices.at[kept++] = command->choices.at[i];
	command->choices.count = kept;
}

// --resume goes on with the command that began the run; what is said now comes after it.
static void recall(Command *command)
{
	const char *run = choice(command, OPT_resume, NULL);
	if (!run && !command->arguments.count)
		bad_usage(command, "wants MODEL, or --resume DIR");
	if (!run)
		return;
	if (chosen(command, OPT_out) || chosen(command, OPT_overwrite))
		bad_usage(command, "--resume goes on in its own folder; -o and --overwrite are for "
		                   "another run");
	int argc;
	char **argv;
	check(amos_command(run, &argc, &argv));
	close_later(command, free, argv);
	if (argc < 2 || strcmp(argv[1], command->verb->name))
		fail(run, "begun by a compiled trainer, %s: go on with that", argv[0]);
	Command first = {.arena = command->arena, .opened = command->opened};
	parse_command(&first, command->verb, argc - 1, argv + 1);
	bool here = command->arguments.count || chosen(command, OPT_data);
	if (chosen(command, OPT_data))
		drop_data(&first);
	if (command->arguments.count)
		first.arguments.at[0] = command->arguments.at[0];
	for (int i = 0; i < command->choices.count; i++)
		PUSH(command->arena, first.choices, command->choices.at[i]);
	*command = first; // of no words: command.json stays as it is
	if (!here)
		go_there(command, run);
}

static void print_program(const Command *command, const Trainer *t, const struct amos *open,
                          const struct amos_data *data)
{
	Arena *arena = command->arena;
	struct amos_memory m = amos_memory(open);
	int64_t parameters = 0;
	for (int i = 0; i < t->graph->slots.count; i++)
		if (t->graph->slots.at[i].kind == S_param)
			parameters += count_of(&t->graph->slots.at[i].shape);
	for (int i = 0; i < t->model->notes.count && chosen(command, OPT_verbose); i++)
		say_progress(command, "note: %s\n", t->model->notes.at[i]);
	say_progress(command, "%s%s", t->opt.chosen, amos_data_note(data));
	long long threads = amos_threads(open);
	say_progress(command, "%lld parameters; %d kernels compiled in %.2f s; %lld thread%s\n",
	             (long long)parameters, t->object->kernels, t->object->seconds, threads,
	             threads == 1 ? "" : "s");
	say_progress(
	    command, "memory: %s = %s parameters + %s state + %s scratch + %s batch and threads\n",
	    bytes_text(arena, (double)(m.params + m.state + m.scratch + m.pads + m.batch)),
	    bytes_text(arena, (double)m.params), bytes_text(arena, (double)m.state),
	    bytes_text(arena, (double)m.scratch), bytes_text(arena, (double)(m.pads + m.batch)));
}

// Is the best evaluation of earlier weights than those at the end?
static bool has_better(const struct amos_result *r)
{
	return isfinite(r->best.loss) && r->best.step != r->step;
}

static void print_kept(const struct amos_result *r, const char *trained, bool last)
{
	const struct amos_held *best = &r->best;
	if (!has_better(r))
		printf("%s: the trained model\n", trained);
	else if (last)
		printf("%s: the weights of step %lld; those of step %lld have the least loss on "
		       "what is held out (%.6g), --keep best writes them\n",
		       trained, (long long)r->step, (long long)best->step, best->loss);
	else
		printf("%s: the weights of step %lld (held out %.6g); those of the last step have "
		       "%.6g, --keep last writes them\n",
		       trained, (long long)best->step, best->loss, r->eval_loss);
}

static json_t *best_json(const struct amos_held *best)
{
	if (!isfinite(best->loss))
		return json_null();
	return json_pack("{sI so so}", "step", (json_int_t)best->step, "eval_loss",
	                 number_json(best->loss), "eval_accuracy", number_json(best->accuracy));
}

static void print_result(const Command *command, const Model *model, const struct amos_result *r,
                         const char *folder, const char *trained, bool last)
{
	if (chosen(command, OPT_json))
		print_json(json_pack(
		    "{so so so sI so so so so so sI so sf sb}", "run", json_text(folder), "model",
		    json_text(trained), "not_trained", untrained_json(model), "step",
		    (json_int_t)r->step, "loss", number_json(r->loss), "accuracy",
		    number_json(r->accuracy), "eval_loss", number_json(r->eval_loss),
		    "eval_accuracy", number_json(r->eval_accuracy), "best", best_json(&r->best),
		    "model_step", (json_int_t)(has_better(r) && !last ? r->best.step : r->step),
		    "constant_loss", number_json(r->constant.loss), "seconds", r->seconds,
		    "stopped", r->stopped));
	else if (!chosen(command, OPT_quiet)) {
		printf("step %lld", (long long)r->step);
		if (isfinite(r->loss))
			printf("  loss %.6g", r->loss);
		if (isfinite(r->eval_loss))
			printf("  held out %.6g", r->eval_loss);
		printf("\n");
		print_kept(r, trained, last);
	}
}

// Nothing stands where the trained model goes that this run did not write.
static void check_trained(const Command *command, const char *run, const char *trained)
{
	struct stat about;
	bool wrote;
	check(amos_output_check(trained));
	check(amos_command_wrote(run, trained, &wrote));
	if (lstat(trained, &about) || chosen(command, OPT_overwrite) || wrote)
		return;
	fail(trained, "the trained model goes here, and there is a file that this run did not "
	              "write\n  help: move it away, or train with --overwrite or another -o DIR");
}

static void write_trained(const Command *command, const Trainer *t, struct amos *open,
                          const struct amos_result *r, const char *run, const char *trained,
                          bool last)
{
	struct amos_checkpoint *best;
	if (has_better(r) && !last) {
		check(amos_checkpoint_open(run, false, &best));
		int status = amos_checkpoint_load(best, open);
		amos_checkpoint_close(best);
		check(status);
	}
	check_trained(command, run, trained);
	bool wrote;
	check(amos_command_wrote(run, trained, &wrote));
	if (!wrote)
		check(amos_command_writes(run, trained));
	write_model(t->model, trained, chosen(command, OPT_keep_training), slot_bytes, open);
}

void verb_train(Command *command)
{
	static const char *const entries[] = {"train", "eval", NULL};
	recall(command);
	choose_folder(command);
	need_host(command);
	struct amos_options options = runtime_options(command);
	const char *folder = options.resume ? options.resume : options.out;
	bool last;
	check(amos_keeps_last(&options, &last));
	if (!options.resume)
		check(amos_folder_free(folder, options.overwrite));
	struct amos_data *data = open_data(command, &options, false);
	Trainer t = compile_trainer(command, data, false);
	const char *trained = trained_path(command->arena, folder);
	check_trained(command, folder, trained);
	struct amos *open = open_object(command, t.object, t.graph);
	check(amos_data_attach(data, amos_model_of(open), entries));
	note_unused(command, data, t.graph);
	print_program(command, &t, open, data);
	struct amos_result result;
	check(amos_train(open, data, &options, &result));
	write_trained(command, &t, open, &result, folder, trained, last);
	print_result(command, t.model, &result, folder, trained, last);
	char why[256];
	if (isfinite(result.constant.loss))
		warn(command->arguments.at[0], "%s",
		     amos_constant_text(why, sizeof why, &result.constant));
}
