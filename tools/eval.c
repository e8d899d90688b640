// eval.c: implements amosc eval: computes loss and metrics over all the data.
// Every sample counts once: those after the last complete batch make a smaller batch, with code
// compiled for its size.
#include "tool.h"
#include <math.h>

void verb_eval(Session *session)
{
	need_host(session);
	struct amos_data *data = open_data(session);
	Program *program = program_new(session, data);
	attach_data(program);
	tell(session, "%s", data->read);
	struct amos *open = open_program(program);
	release_program(program);
	amos_give_back();
	struct amos_result r;
	need_done(amos_evaluate_data(open, data, NULL, &r));
	int64_t left = amos_data_eval_samples(data) - r.eval_samples;
	if (left)
		tell(session, "amosc: warning: --data: after the last complete batch, %lld %s\n",
		     (long long)left, PLURAL(left, "sample is omitted", "samples are omitted"));
	if (chosen(session, OPT_json))
		print_json(json_pack("{so so so sI}", "model", json_text(session->path), "loss",
		                     number_json(r.eval_loss), "accuracy",
		                     number_json(r.eval_accuracy), "samples",
		                     (json_int_t)r.eval_samples));
	else if (isfinite(r.eval_accuracy))
		printf("loss %.6g  accuracy %.4f\n", r.eval_loss, r.eval_accuracy);
	else
		printf("loss %.6g\n", r.eval_loss);
}
