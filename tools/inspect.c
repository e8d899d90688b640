// inspect.c: implements amosc inspect: lists what the file holds and what amosc can do with it.
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static json_t *value_json(const Input *in, bool input)
{
	json_t *shape = json_array();
	for (int a = 0; a < in->rank; a++)
		json_array_append_new(shape, in->dim[a].name && *in->dim[a].name
		                                 ? json_string(in->dim[a].name)
		                             : in->dim[a].size < 0 ? json_null()
		                                                   : json_integer(in->dim[a].size));
	json_t *one =
	    json_pack("{ss ss so}", "name", in->name, "type", elems[in->type].name, "shape", shape);
	if (input)
		json_object_set_new(one, "used", json_boolean(in->used));
	return one;
}

static void add_untrainable(json_t *list, const char *what, const char *why)
{
	json_array_append_new(list, json_pack("{ss ss}", "what", what, "why", why));
}

// Returns everything that prevents or limits training, each with its reason.
static json_t *untrainable_json(const Session *session, const Model *listed, const Model *model,
                                const char *failure)
{
	json_t *list = json_array();
	for (int i = 0; i < listed->ops.count; i++)
		if (!failure && listed->ops.at[i].trouble)
			add_untrainable(list, listed->ops.at[i].op, listed->ops.at[i].trouble);
	const Problems *problems = problems_of(session->file);
	if (failure && !problems->count)
		add_untrainable(list, "the model", failure);
	for (int i = 0; failure && i < problems->count; i++) {
		const Problem *p = &problems->at[i];
		add_untrainable(list, p->where ? p->where : "the model", p->why);
		if (p->help)
			json_object_set_new(json_array_get(list, json_array_size(list) - 1), "help",
			                    json_text(p->help));
	}
	if (failure && session->loss_trouble)
		add_untrainable(list, "--loss", session->loss_trouble);
	for (int i = 0; model && i < model->graph->slots.count; i++) {
		const Slot *s = &model->graph->slots.at[i];
		if ((s->kind == S_frozen || s->kind == S_buffer) && s->why)
			add_untrainable(list, s->name, s->why);
	}
	return list;
}

// `model`: complete, or NULL if `failure` says why it cannot be read.
static json_t *model_json(Session *session, Model *listed, Model *model, const char *failure)
{
	json_t *inputs = json_array(), *outputs = json_array(), *parameters = json_array(),
	       *operators = json_array(), *notes = json_array();
	for (int i = 0; i < listed->inputs.count; i++) {
		listed->inputs.at[i].used = !model || model->inputs.at[i].used;
		json_array_append_new(inputs, value_json(&listed->inputs.at[i], true));
	}
	for (int i = 0; i < listed->outputs.count; i++)
		json_array_append_new(outputs, value_json(&listed->outputs.at[i], false));
	for (int i = 0; i < listed->ops.count; i++) {
		const OpCount *o = &listed->ops.at[i];
		json_array_append_new(operators,
		                      json_pack("{ss ss si ss?}", "op", o->op, "domain", o->domain,
		                                "count", o->count, "trouble", o->trouble));
	}
	for (int i = 0; model && i < model->notes.count; i++)
		json_array_append_new(notes, json_string(model->notes.at[i]));
	const Eta *eta = model ? etas(session, with_loss(session, model->graph), NULL, NULL) : NULL;
	const Readers *readers = model ? readers_of(model->arena, model->graph) : NULL;
	for (int i = 0; model && i < model->graph->slots.count; i++) {
		const Slot *s = &model->graph->slots.at[i];
		if (s->kind != S_param && s->kind != S_frozen && s->kind != S_buffer)
			continue;
		const char *role = s->kind == S_param    ? eta[i].role
		                   : s->kind == S_buffer ? "buffer"
		                                         : "frozen";
		json_array_append_new(
		    parameters,
		    json_pack("{ss ss? so ss ss so sb ss?}", "name", s->name, "initializer",
		              s->file, "shape", shape_json(&s->shape), "type", elems[s->type].name,
		              "role", role, "tied", others_json(&readers[i]), "trained",
		              (int)(s->kind == S_param), "why", s->why));
	}
	return json_pack("{so sI sI ss? so so so so so so so}", "model", json_text(session->path),
	                 "ir_version", (json_int_t)listed->ir_version, "opset",
	                 (json_int_t)listed->opset, "producer", listed->producer, "inputs", inputs,
	                 "outputs", outputs, "parameters", parameters, "operators", operators,
	                 "untrainable", untrainable_json(session, listed, model, failure),
	                 "not_trained", model ? untrained_json(model) : json_null(), "notes",
	                 notes);
}

// ---- memory of training ---------------------------------------------------------------

static const struct {
	const char *name, *label;
} parts[] = {{"parameters", "parameters"},   {"state", "state"},     {"scratch", "scratch"},
             {"batch", "batch and threads"}, {"process", "process"}, {"training", "training"},
             {"before", "before training"},  {"peak", "peak"}};

// Compiles as train does, and returns the bytes of each part. Frees the models that were read.
static json_t *memory_json(Session *session)
{
	free_work(session);
	session->purpose = FOR_TRAINING;
	Program *program = program_new(session, open_data(session));
	program->runs = true;
	attach_data(program);
	const struct amos *open = open_program(program);
	const struct amos_memory *m = &open->memory;
	struct rusage usage;
	release_program(program);
	amos_give_back();
	int64_t process = amos_process_memory(open), training = m->total + process,
	        before = getrusage(RUSAGE_SELF, &usage) ? 0 : 1024 * (int64_t)usage.ru_maxrss;
	const int64_t bytes[] = {m->params, m->state, m->scratch, m->batch + m->pads,
	                         process,   training, before,     MAX(before, training)};
	_Static_assert(COUNT(bytes) == COUNT(parts), "a part has its bytes");
	json_t *all = json_object();
	for (int i = 0; i < COUNT(parts); i++)
		json_object_set_new(all, parts[i].name, json_integer(bytes[i]));
	return all;
}

static void print_memory(const Session *session, const json_t *memory)
{
	printf("memory\n");
	for (int i = 0; i < COUNT(parts); i++) {
		double bytes = json_number_value(json_object_get(memory, parts[i].name));
		printf("  %-40s %10s\n", parts[i].label, bytes_text(session->arena, bytes));
	}
}

static void check_memory_options(const Session *session)
{
	enum { TRAINS = DROPS | ETA | STEP | SPLIT | MASK | TARGET | MEMORY | CACHE | WORK };
	for (int i = 0; i < session->choices.count && !chosen(session, OPT_data); i++) {
		OptionName option = session->choices.at[i].option;
		if (options[option].group & TRAINS)
			bad_usage(session,
			          format(session->arena, "--%s does nothing without --data",
			                 long_name(session->arena, option)));
	}
}

// ---- text ------------------------------------------------------------------------------

static const char *shape_words(Session *session, const json_t *one)
{
	Text text = {.arena = session->arena};
	size_t i;
	json_t *dim;
	say(&text, "%s[", text_at(one, "type"));
	json_array_foreach (json_object_get(one, "shape"), i, dim) {
		if (json_is_integer(dim))
			say(&text, "%s%lld", i ? "," : "", (long long)json_integer_value(dim));
		else
			say(&text, "%s%s", i ? "," : "",
			    json_is_string(dim) ? json_string_value(dim) : "?");
	}
	say(&text, "]");
	return text.at;
}

// Prints parameters with role, shape and ties, or weights that are not trained with the reason.
static void print_weights(Session *session, const json_t *list)
{
	size_t i, k;
	json_t *one, *node;
	int width = 0;
	json_array_foreach (list, i, one)
		width = MAX(width, (int)strlen(text_at(one, "name")));
	json_array_foreach (list, i, one) {
		const char *why = text_at(one, "why"), *role = text_at(one, "role");
		printf("  %-*s  ", width, text_at(one, "name"));
		printf(*role ? "%-10s  %s" : "%s%s", role, shape_words(session, one));
		printf("%s%s", *why ? "  " : "", why);
		json_array_foreach (json_object_get(one, "tied"), k, node)
			printf("%s%s",
			       k      ? ", "
			       : *why ? "; tied to "
			              : "  tied to ",
			       json_string_value(node));
		printf("\n");
	}
}

static void print_model(Session *session, const json_t *all)
{
	size_t i;
	json_t *one;
	const char *producer = text_at(all, "producer");
	printf("%s: opset %lld, IR version %lld%s%s\n", text_at(all, "model"),
	       (long long)json_integer_value(json_object_get(all, "opset")),
	       (long long)json_integer_value(json_object_get(all, "ir_version")),
	       *producer ? ", by " : "", producer);
	printf("\ninputs\n");
	json_array_foreach (json_object_get(all, "inputs"), i, one)
		printf("  %-40s %s%s\n", text_at(one, "name"), shape_words(session, one),
		       json_is_true(json_object_get(one, "used")) ? "" : "  not used");
	printf("outputs\n");
	json_array_foreach (json_object_get(all, "outputs"), i, one)
		printf("  %-40s %s\n", text_at(one, "name"), shape_words(session, one));
	const json_t *parameters = json_object_get(all, "parameters"),
	             *rest = json_object_get(all, "not_trained"),
	             *weights = json_object_get(rest, "weights");
	if (json_array_size(parameters))
		printf("parameters\n");
	print_weights(session, parameters);
	if (json_array_size(weights))
		printf("not trained: %s of the weights\n",
		       percent_text(session->arena,
		                    json_number_value(json_object_get(rest, "percent"))));
	print_weights(session, weights);
	printf("operators\n");
	json_array_foreach (json_object_get(all, "operators"), i, one)
		printf("  %-40s %5lld  %s\n", text_at(one, "op"),
		       (long long)json_integer_value(json_object_get(one, "count")),
		       text_at(one, "trouble"));
	if (json_array_size(json_object_get(all, "notes")))
		printf("notes\n");
	json_array_foreach (json_object_get(all, "notes"), i, one)
		printf("  %s\n", json_string_value(one));
	if (json_object_get(all, "memory"))
		print_memory(session, json_object_get(all, "memory"));
}

// ---- the verb -------------------------------------------------------------------------

static Model *listed_model(Session *session, const void *context)
{
	(void)context;
	return list_model(session);
}

static Model *complete_model(Session *session, const void *context)
{
	(void)context;
	return read_standing(session, NULL, false);
}

void verb_inspect(Session *session)
{
	const char *failure = NULL;
	check_memory_options(session);
	Model *listed = attempt_read(session, listed_model, NULL, &failure);
	if (!listed) { // the file's own loss may be the reason: an export does not read it
		session->purpose = FOR_EXPORT;
		session->file = NULL;
		listed = list_model(session);
	}
	Model *model = attempt_read(session, complete_model, NULL, &failure);
	json_t *all = model_json(session, listed, model, failure);
	keep_json(session, all);
	if (chosen(session, OPT_data) && !failure)
		json_object_set_new(all, "memory", memory_json(session));
	if (chosen(session, OPT_json))
		print_json(json_incref(all));
	else
		print_model(session, all);
	if (failure)
		fail(NULL, "%s", failure);
}
