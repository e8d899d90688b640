// eval.c: amosc eval: loss and metrics over all the data, no update.
#include "tool.h"
#include <math.h>

void verb_eval(Command *command)
{
	static const char *const outs[] = {"loss", "accuracy", NULL}, *const entries[] = {"eval",
	                                                                                  NULL};
	struct amos_options options = runtime_options(command);
	struct amos_data *data = open_data(command, &options, false);
	const Graph *g = read_bound(command, data, false)->graph;
	Graph *loss = loss_pass(command->arena, g, choice(command, OPT_loss, NULL));
	struct amos *open = open_entry(command, only_outs(command->arena, loss, outs), "eval");
	check(amos_data_fit(data, amos_model_of(open), entries));
	struct amos_result result;
	check(amos_evaluate(open, data, &result));
	if (chosen(command, OPT_json))
		print_json(json_pack("{ss so so}", "model", command->arguments.at[0], "loss",
		                     number_json(result.eval_loss), "accuracy",
		                     number_json(result.eval_accuracy)));
	else if (isfinite(result.eval_accuracy))
		printf("loss %.6g  accuracy %.4f\n", result.eval_loss, result.eval_accuracy);
	else
		printf("loss %.6g\n", result.eval_loss);
}
