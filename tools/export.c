// export.c: implements amosc export: writes the weights of a checkpoint into a copy of the model.
#include "tool.h"
#include <string.h>
#include <sys/stat.h>

static const void *trained_bytes(void *context, int slot)
{
	return ((const void **)context)[slot];
}

static void close_checkpoint(void *checkpoint)
{
	amos_checkpoint_close(checkpoint);
}

void verb_export(Session *session)
{
	const char *path = session->other, *out = stream_output(session, "OUT.onnx");
	const char *slash = strrchr(out, '/'), *end = strrchr(slash ? slash : out, '.');
	struct stat about;
	if (end && strcmp(end, ".onnx"))
		bad_usage(session, format(session->arena, "expected -o OUT.onnx, found '%s'", out));
	if (chosen(session, OPT_keep) && !stat(path, &about) && !S_ISDIR(about.st_mode))
		bad_usage(session, "--keep does nothing with a checkpoint file: expected a run "
		                   "directory");
	bool last;
	struct amos_options options = runtime_options(session);
	need_done(amos_keeps_last(&options, &last));
	Model *model = read_standing(session, NULL, false);
	const Graph *g = model->graph;
	struct amos_checkpoint *from;
	need_done(amos_checkpoint_open(path, last, &from));
	at_end(session->arena, close_checkpoint, from);
	if (from->image.start)
		fail(path, "the run was stopped before it saved weights" HELP
		           "continue it with amosc train --resume");
	need_done(amos_output_check(out));
	const void **trained = NEWS(session->arena, const void *, g->slots.count + 1);
	int count = 0;
	for (int64_t i = 0; i < from->count; i++) {
		const struct amos_array *array = &from->slots[i].array;
		if (from->slots[i].kind == S_state)
			continue;
		int slot = find_slot(g, array->name);
		bool frozen = from->slots[i].kind == S_frozen;
		if (slot < 0 && frozen) // here it is a constant
			continue;
		if (slot < 0)
			fail(path,
			     "'%s' is not a parameter of the model" HELP
			     "give the model that was trained",
			     array->name);
		const Slot *s = &g->slots.at[slot];
		Shape shape = shape_of(array->rank, array->dim);
		if ((Elem)array->type != s->type || !same_shape(&shape, &s->shape))
			fail(path, "'%s': expected %s, found %s", array->name,
			     shape_text(g->arena, s->type, &s->shape),
			     shape_text(g->arena, (Elem)array->type, &shape));
		trained[slot] = array->bytes;
		count += !frozen;
	}
	write_model(model, out, chosen(session, OPT_keep_training), trained_bytes, trained);
	if (chosen(session, OPT_json))
		print_json(json_pack("{so si sI}", "out", json_text(out), "tensors", count, "step",
		                     (json_int_t)from->image.point.step));
	else if (!chosen(session, OPT_quiet) && !amos_is_stream(out))
		printf("%s: %d %s of step %lld\n", out, count, PLURAL(count, "tensor", "tensors"),
		       (long long)from->image.point.step);
}
