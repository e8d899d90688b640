// eval.c: amosc eval: loss and metrics over all the data, no update. Keeps: every sample counts
// once; those behind the last whole batch are a smaller one, compiled for them.
#include "tool.h"
#include <math.h>
#include <stdlib.h>

typedef struct Measured { // means, over so many samples
	double loss, accuracy;
	int64_t samples, left; // left: behind the last whole batch
} Measured;

static Measured measure(Command *command, const struct amos_options *options, int64_t from)
{
	static const char *const outs[] = {"loss", "accuracy", NULL}, *const entries[] = {"eval",
	                                                                                  NULL};
	struct amos_data *data = open_data(command, options, false);
	const Graph *g = read_bound(command, data, false)->graph;
	Graph *loss = loss_pass(command->arena, g, choice(command, OPT_loss, NULL));
	struct amos *open = open_entry(command, only_outs(command->arena, loss, outs), "eval");
	check(amos_data_fit(data, amos_model_of(open), entries));
	amos_data_skip(data, from);
	struct amos_result result;
	check(amos_evaluate(open, data, &result));
	return (Measured){result.eval_loss, result.eval_accuracy,
	                  amos_data_eval_batches(data) * amos_data_samples(data),
	                  amos_data_left(data)};
}

// The samples that are left, as a batch of their own, where the model takes one of that size.
static void measure_rest(Command *command, struct amos_options options, Measured *all)
{
	Catch catch;
	if (TRY(catch)) {
		if (catch.status != STATUS_INPUT)
			fail_status(catch.status, NULL, "%s", catch.message);
		free(catch.message);
		warn("--data", "%lld samples behind the last whole batch are left out",
		     (long long)all->left);
		return;
	}
	options.batch = all->left;
	Measured rest = measure(command, &options, all->samples);
	catch_end(&catch);
	double sum = (double)(all->samples + rest.samples), part = (double)rest.samples / sum;
	all->loss += part * (rest.loss - all->loss);
	all->accuracy += part * (rest.accuracy - all->accuracy);
	all->samples += rest.samples;
	all->left = rest.left;
}

void verb_eval(Command *command)
{
	struct amos_options options = runtime_options(command);
	Measured all = measure(command, &options, 0);
	if (all.left)
		measure_rest(command, options, &all);
	if (chosen(command, OPT_json))
		print_json(json_pack("{so so so sI}", "model", json_text(command->arguments.at[0]),
		                     "loss", number_json(all.loss), "accuracy",
		                     number_json(all.accuracy), "samples",
		                     (json_int_t)all.samples));
	else if (isfinite(all.accuracy))
		printf("loss %.6g  accuracy %.4f\n", all.loss, all.accuracy);
	else
		printf("loss %.6g\n", all.loss);
}
