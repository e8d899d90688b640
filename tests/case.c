// case.c: see case.h.
#include "case.h"
#include "lower.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *from_arena(void *arena, size_t count)
{
	return take(arena, count);
}

static void leave_to_arena(void *arena, void *bytes)
{
	(void)arena, (void)bytes;
}

static bool load(Arena *arena, const char *path, Bytes *bytes)
{
	struct stat st;
	FILE *f = stat(path, &st) ? NULL : fopen(path, "rb");
	if (!f)
		return false;
	uint8_t *at = take(arena, (size_t)st.st_size + 1);
	*bytes = (Bytes){at, fread(at, 1, (size_t)st.st_size, f)};
	fclose(f);
	return true;
}

static ModelProto *load_model(Arena *arena, const char *folder)
{
	ProtobufCAllocator allocator = {from_arena, leave_to_arena, arena};
	Bytes bytes;
	const char *path = format(arena, "%s/model.onnx", folder);
	ModelProto *m = load(arena, path, &bytes)
	                    ? model_proto__unpack(&allocator, bytes.count, bytes.at)
	                    : NULL;
	if (!m || !m->graph)
		fail(path, "is no model");
	return m;
}

Case *open_case(Arena *arena, const char *folder)
{
	ProtobufCAllocator allocator = {from_arena, leave_to_arena, arena};
	Case *c = NEW(arena, Case);
	ModelProto *m = load_model(arena, folder);
	*c = (Case){folder, m, NEWS(arena, TensorProto *, m->graph->n_input + 1)};
	for (size_t i = 0; i < m->graph->n_input; i++) {
		Bytes bytes;
		const char *path = format(arena, "%s/test_data_set_0/input_%zu.pb", folder, i);
		if (m->graph->input[i]->type->tensor_type && load(arena, path, &bytes))
			c->input[i] = tensor_proto__unpack(&allocator, bytes.count, bytes.at);
		if (c->input[i])
			c->input[i]->name = m->graph->input[i]->name;
	}
	return c;
}

const char *case_operator(Arena *arena, const Case *c)
{
	const GraphProto *g = c->proto->graph;
	const char *expanded = strstr(c->folder, "_expanded");
	struct stat st;
	if (expanded) {
		const char *plain = format(arena, "%.*s", (int)(expanded - c->folder), c->folder);
		if (!stat(plain, &st))
			g = load_model(arena, plain)->graph;
	}
	return g->n_node ? g->node[g->n_node - 1]->op_type : "";
}

// Sizes of inputs that the model leaves open.
static void bind_sizes(Arena *arena, const Case *c, ReadOptions *options)
{
	VEC(Bind) bind = {0};
	for (size_t i = 0; i < c->proto->graph->n_input; i++)
		for (size_t a = 0; c->input[i] && a < c->input[i]->n_dims; a++) {
			const char *name = format(arena, "%s:%zu", c->input[i]->name, a);
			PUSH(arena, bind, ((Bind){name, c->input[i]->dims[a]}));
		}
	options->nbind = bind.count;
	options->bind = bind.at;
}

Model *read_case(Arena *arena, const Case *c, const bool *settle)
{
	ModelProto m = *c->proto;
	GraphProto g = *m.graph;
	m.graph = &g;
	g.initializer = NEWS(arena, TensorProto *, g.n_initializer + g.n_input);
	memcpy(g.initializer, c->proto->graph->initializer,
	       sizeof *g.initializer * g.n_initializer);
	for (size_t i = 0; i < g.n_input; i++)
		if (settle[i] && c->input[i])
			g.initializer[g.n_initializer++] = c->input[i];
	size_t size = model_proto__get_packed_size(&m);
	uint8_t *bytes = take(arena, size + 1);
	int file = memfd_create("case", 0);
	if (file < 0 || write(file, bytes, model_proto__pack(&m, bytes)) != (ssize_t)size)
		fail_status(STATUS_MACHINE, c->folder, "no memory for a file");
	ReadOptions options = {.dropout = true};
	bind_sizes(arena, c, &options);
	Catch caught;
	Model *model = NULL;
	if (!TRY(caught)) {
		model = read_model(arena, format(arena, "/proc/self/fd/%d", file), &options);
		catch_end(&caught);
	}
	close(file);
	if (!model)
		fail_status(caught.status, NULL, "%s", caught.message);
	return model;
}

Array case_slot(Arena *arena, const Case *c, const Slot *s)
{
	int64_t n = count_of(&s->shape);
	Array a = {.type = s->type, .shape = s->shape, .f = NEWS(arena, double, n + 1)};
	if (s->kind != S_input)
		return s->init ? array_from(arena, s->type, &s->shape, s->init) : a;
	const TensorProto *t = NULL;
	for (size_t i = 0; i < c->proto->graph->n_input; i++)
		if (!strcmp(c->proto->graph->input[i]->name, s->name))
			t = c->input[i];
	if (!t)
		fail(c->folder, "no values for %s", s->name);
	File file = {.arena = arena, .path = c->folder};
	Shape shape = tensor_shape(c->folder, t);
	const void *data = tensor_data(&file, arena, c->folder, t);
	Array b = array_from(arena, (Elem)working_type(t->data_type), &shape, data);
	if (count_of(&shape) != n)
		fail(c->folder, "%s has another shape", s->name);
	b.type = s->type;
	b.shape = s->shape;
	return b;
}
