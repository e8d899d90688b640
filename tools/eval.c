// eval.c: amosc eval: loss and metrics over all the data, no update. Keeps: every sample counts
// once; those behind the last whole batch are a smaller one, compiled for them.
#include "tool.h"
#include <math.h>

void verb_eval(Command *command)
{
	static const char *const entries[] = {"eval", NULL};
	struct amos_options options = runtime_options(command);
	need_host(command);
	struct amos_data *data = open_data(command, &options, false);
	const Graph *graph;
	Object *object = compile_evaluation(command, data, &graph);
	struct amos *open = open_object(command, object, graph);
	check(amos_data_attach(data, amos_model_of(open), entries));
	note_unused(command, data, graph);
	struct amos_result r;
	check(amos_evaluate(open, data, &r));
	int64_t left = amos_data_eval_samples(data) - r.eval_samples;
	if (left)
		warn("--data", "%lld samples behind the last whole batch are left out",
		     (long long)left);
	if (chosen(command, OPT_json))
		print_json(json_pack("{so so so sI}", "model", json_text(command->arguments.at[0]),
		                     "loss", number_json(r.eval_loss), "accuracy",
		                     number_json(r.eval_accuracy), "samples",
		                     (json_int_t)r.eval_samples));
	else if (isfinite(r.eval_accuracy))
		printf("loss %.6g  accuracy %.4f\n", r.eval_loss, r.eval_accuracy);
	else
		printf("loss %.6g\n", r.eval_loss);
}
