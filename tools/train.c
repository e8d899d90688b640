// train.c: amosc train: compile in memory, train, write the trained model beside the run.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
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

// Where the trained model goes: DIR.onnx for the run in DIR/. A model with external data goes into
// DIR with them: their names are fixed, and beside the run they would meet the untrained ones.
static const char *trained_path(Arena *arena, const Model *model, const char *folder)
{
	size_t count = strlen(folder);
	while (count > 1 && folder[count - 1] == '/')
		count--;
	if (model->external)
		return format(arena, "%.*s/%s", (int)count, folder, file_part(model->path));
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
	const char *folder = text_at(file, "folder");
	folder = *folder ? copy_string(command->arena, folder) : NULL;
	json_decref(file);
	return folder;
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
	if (chosen(command, OPT_out))
		bad_usage(command, "--resume goes on in its own folder; -o is for another run");
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

static void print_result(const Command *command, const struct amos_result *r, const char *folder,
                         const char *trained)
{
	if (chosen(command, OPT_json))
		print_json(json_pack(
		    "{so so sI so so so so sf sb}", "run", json_text(folder), "model",
		    json_text(trained), "step", (json_int_t)r->step, "loss", number_json(r->loss),
		    "accuracy", number_json(r->accuracy), "eval_loss", number_json(r->eval_loss),
		    "eval_accuracy", number_json(r->eval_accuracy), "seconds", r->seconds,
		    "stopped", r->stopped));
	else if (!chosen(command, OPT_quiet)) {
		printf("step %lld", (long long)r->step);
		if (isfinite(r->loss))
			printf("  loss %.6g", r->loss);
		if (isfinite(r->eval_loss))
			printf("  held out %.6g", r->eval_loss);
		printf("\n%s: the trained model\n", trained);
	}
}

void verb_train(Command *command)
{
	static const char *const entries[] = {"train", "eval", NULL};
	recall(command);
	choose_folder(command);
	need_host(command);
	struct amos_options options = runtime_options(command);
	struct amos_data *data = open_data(command, &options, false);
	Trainer t = compile_trainer(command, data, false);
	struct amos *open = open_object(command, t.object, t.graph);
	check(amos_data_fit(data, amos_model_of(open), entries));
	print_program(command, &t, open, data);
	struct amos_result result;
	check(amos_train(open, data, &options, &result));
	const char *folder = options.resume ? options.resume : options.out;
	const char *trained = trained_path(command->arena, t.model, folder);
	write_model(t.model, trained, slot_bytes, open);
	print_result(command, &result, folder, trained);
}
