// export.c: amosc export: the numbers of a checkpoint in the very bytes of the model file.
#include "tool.h"
#include <string.h>

typedef struct Trained { // a slot's numbers, by slot of the model
	const void **bytes;
} Trained;

static const void *trained_bytes(void *context, int slot)
{
	return ((Trained *)context)->bytes[slot];
}

static void take_slot(const Graph *g, const char *where, const struct amos_array *array,
                      Trained *trained)
{
	int slot = find_slot(g, array->name);
	if (slot < 0)
		fail(where, "holds '%s', which the model does not have: is it of another model?",
		     array->name);
	const Slot *s = &g->slots.at[slot];
	Shape shape = shape_of(array->rank, array->dim);
	if ((Elem)array->type != s->type || !same_shape(&shape, &s->shape))
		fail(where, "'%s' is %s there and %s in the model", array->name,
		     shape_text(g->arena, (Elem)array->type, &shape),
		     shape_text(g->arena, s->type, &s->shape));
	trained->bytes[slot] = array->bytes;
}

static void close_checkpoint(void *checkpoint)
{
	amos_checkpoint_close(checkpoint);
}

void verb_export(Session *session)
{
	const char *path = session->other, *out = choice(session, OPT_out, NULL);
	if (!out)
		bad_usage(session, "wants -o OUT.onnx");
	bool last;
	struct amos_options options = runtime_options(session);
	check(amos_keeps_last(&options, &last));
	Model *model = read_standing(session, NULL, false);
	struct amos_checkpoint *checkpoint;
	check(amos_checkpoint_open(path, last, &checkpoint));
	close_later(session, close_checkpoint, checkpoint);
	check(amos_output_check(out));
	Trained trained = {NEWS(session->arena, const void *, model->graph->slots.count + 1)};
	int count = 0;
	for (int64_t i = 0; i < amos_checkpoint_slots(checkpoint); i++) {
		int kind;
		struct amos_array array = amos_checkpoint_slot(checkpoint, i, &kind);
		if (kind != S_param && kind != S_buffer)
			continue;
		take_slot(model->graph, path, &array, &trained);
		count++;
	}
	write_model(model, out, chosen(session, OPT_keep_training), trained_bytes, &trained);
	struct amos_position point = amos_checkpoint_point(checkpoint);
	if (chosen(session, OPT_json))
		print_json(json_pack("{so si sI}", "out", json_text(out), "tensors", count, "step",
		                     (json_int_t)point.step));
	else if (!chosen(session, OPT_quiet))
		printf("%s: %d tensors of step %lld\n", out, count, (long long)point.step);
}
