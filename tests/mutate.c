// mutate.c: mutates model files and checks that each compiles or is reported.
// mutate SEED SECONDS MODEL...: changes fields of a model, contrary to the schema: by boundary
// values, by parts of the same or another model, deeper and deeper, or by bytes of the encoding.
// The result goes through the reader, the loss, eta, the gradient, the plan and the writer, until
// the time is up. mutate --operands MODEL...: omits each input of each node, and all from it on.
// Each succeeds or reports the error with the file's name; none crashes or hangs.
#include "files.h"
#include "onnx.h"
#include "onnx.pb-c.h"
#include "passes.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { FEW_CHANGES = 4, MANY_CHANGES = 64, PATIENCE = 20 };

typedef struct Site { // a field of a message
	ProtobufCMessage *in;
	const ProtobufCFieldDescriptor *field;
} Site;

typedef struct Mutant {
	Arena *arena;
	VEC(Site) sites;
	VEC(char *) strings;              // strings of the model and of the other one
	VEC(ProtobufCMessage *) messages; // messages, likewise
} Mutant;

static void *in_arena(void *arena, size_t bytes)
{
	return take(arena, bytes + 1);
}

static void keep(void *arena, void *memory)
{
	(void)arena, (void)memory;
}

static uint64_t number; // number of the current mutant
static uint64_t state;
static const char *tried; // the model it was made from

static ProtobufCMessage *unpacked(Arena *arena, const ProtobufCMessageDescriptor *kind,
                                  size_t count, const uint8_t *bytes)
{
	ProtobufCAllocator allocator = {in_arena, keep, arena};
	return protobuf_c_message_unpack(kind, &allocator, count, bytes);
}

static uint64_t draw(uint64_t below)
{
	state += 0x9E3779B97F4A7C15u;
	return hash_bytes(&state, sizeof state, 3) % below;
}

// ---- fields ---------------------------------------------------------------------------

static void *member(const Site *p)
{
	return (char *)p->in + p->field->offset;
}

static void *quantifier(const Site *p) // count, or presence
{
	return (char *)p->in + p->field->quantifier_offset;
}

static bool one_of(const Site *p)
{
	return p->field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

// Collects strings and messages; if `sites`, also the fields, as candidates for changes.
static void collect(Mutant *m, ProtobufCMessage *message, bool sites)
{
	PUSH(m->arena, m->messages, message);
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		Site p = {message, &message->descriptor->fields[i]};
		bool many = p.field->label == PROTOBUF_C_LABEL_REPEATED;
		size_t n = many ? *(size_t *)quantifier(&p) : 1;
		if (one_of(&p) && *(uint32_t *)quantifier(&p) != p.field->id)
			continue;
		if (sites)
			PUSH(m->arena, m->sites, p);
		for (size_t k = 0; k < n; k++) {
			void *at = many ? *(char **)member(&p) + k * sizeof(void *) : member(&p);
			if (p.field->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)at)
				collect(m, *(ProtobufCMessage **)at, sites);
			else if (p.field->type == PROTOBUF_C_TYPE_STRING && *(char **)at)
				PUSH(m->arena, m->strings, *(char **)at);
		}
	}
}

static size_t width(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_FLOAT:
		return 4;
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 8;
	}
}

// Returns an integer around a power of two, a small one, or one that is special in ONNX.
static int64_t any_integer(void)
{
	static const int64_t odd[] = {0, 1, 2, 3, 4, 7, 14, 100, 1000, INT32_MAX, INT64_MAX};
	int64_t integer;
	switch (draw(4)) {
	case 0:
		return (int64_t)draw(40) - 8;
	case 1:
		integer = (int64_t)((UINT64_C(1) << draw(64)) - draw(3));
		break;
	default:
		integer = odd[draw(COUNT(odd))];
	}
	return draw(3) ? integer : (int64_t)(0 - (uint64_t)integer);
}

// Returns a copy of a message of the same kind from elsewhere in the models; a copy, so that no
// message contains itself.
static ProtobufCMessage *another(const Mutant *m, const ProtobufCMessageDescriptor *kind)
{
	for (int tries = 0; tries < 200; tries++) {
		const ProtobufCMessage *found = m->messages.at[draw((uint64_t)m->messages.count)];
		if (found->descriptor != kind)
			continue;
		size_t count = protobuf_c_message_get_packed_size(found);
		uint8_t *bytes = take(m->arena, count + 1);
		protobuf_c_message_pack(found, bytes);
		return unpacked(m->arena, kind, count, bytes);
	}
	return NULL;
}

// ---- changes --------------------------------------------------------------------------

static void change_bytes(Mutant *m, ProtobufCBinaryData *data)
{
	if (!data->len)
		return;
	data->data = take_copy(m->arena, data->data, data->len);
	if (draw(2))
		data->len = draw(data->len);
	else
		data->data[draw(data->len)] = (uint8_t)draw(256);
}

// Returns a copy of a text with a part left out, repeated or replaced.
static char *changed_text(Mutant *m, const char *text)
{
	static const char *const parts[] = {"\n", "  File \"", ", line ", "\"", "(", ")",   "%",
	                                    "_1", ".",         " = ",     ":",  "/", "\xff"};
	size_t n = strlen(text), at = draw(n + 1), gone = draw(MIN(n - at, 40) + 1);
	const char *part = draw(2) ? parts[draw(COUNT(parts))] : "";
	int kept = draw(2) ? (int)gone : 0;
	return format(m->arena, "%.*s%.*s%s%s", (int)at, text, kept, text + at, part,
	              text + at + (draw(2) ? gone : 0));
}

static void change_one(Mutant *m, const ProtobufCFieldDescriptor *field, void *at)
{
	static const double floats[] = {0, 1, -1, 1e30, -1e-30, __builtin_inf(), __builtin_nan("")};
	int64_t integer = any_integer();
	float real = (float)floats[draw(COUNT(floats))];
	double wide = (double)real;
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		*(char **)at = *(char **)at && !draw(3) ? changed_text(m, *(char **)at)
		               : draw(8) && m->strings.count
		                   ? m->strings.at[draw((uint64_t)m->strings.count)]
		                   : copy_string(m->arena, draw(2) ? "" : "nobody");
		break;
	case PROTOBUF_C_TYPE_BYTES:
		change_bytes(m, at);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		*(void **)at = another(m, field->descriptor);
		break;
	case PROTOBUF_C_TYPE_FLOAT:
		memcpy(at, &real, sizeof real);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		memcpy(at, &wide, sizeof wide);
		break;
	default: // the rest, little endian
		memcpy(at, &integer, width(field->type));
	}
}

// Removes, repeats, swaps or changes elements.
static void change_many(Mutant *m, const Site *p)
{
	size_t *n = quantifier(p), size = width(p->field->type);
	if (!*n)
		return;
	char *list = take(m->arena, (*n + 1) * size);
	memcpy(list, *(char **)member(p), *n * size);
	*(char **)member(p) = list;
	char *a = list + draw(*n) * size, *b = list + draw(*n) * size, keep[64];
	switch (draw(4)) {
	case 0:
		memmove(a, a + size, (size_t)(list + *n * size - a) - size);
		--*n;
		return;
	case 1:
		memcpy(list + *n * size, a, size);
		++*n;
		return;
	case 2:
		memcpy(keep, a, size);
		memmove(a, b, size);
		memcpy(b, keep, size);
		return;
	default:
		change_one(m, p->field, a);
		if (p->field->type == PROTOBUF_C_TYPE_MESSAGE && !*(void **)a) {
			memmove(a, a + size, (size_t)(list + *n * size - a) - size);
			--*n;
		}
	}
}

static void change(Mutant *m)
{
	const Site *p = &m->sites.at[draw((uint64_t)m->sites.count)];
	ProtobufCType type = p->field->type;
	if (p->field->label == PROTOBUF_C_LABEL_REPEATED) {
		change_many(m, p);
		return;
	}
	bool pointer = type == PROTOBUF_C_TYPE_STRING || type == PROTOBUF_C_TYPE_MESSAGE;
	bool dropped = !draw(3);
	if (!dropped)
		change_one(m, p->field, member(p));
	else if (one_of(p))
		*(uint32_t *)quantifier(p) = 0;
	else if (pointer)
		*(void **)member(p) = NULL;
	if (!pointer && !one_of(p) && p->field->quantifier_offset)
		*(protobuf_c_boolean *)quantifier(p) = !dropped;
}

// ---- a mutant -------------------------------------------------------------------------

// Changes a model. Returns false if there was nothing to change.
typedef bool Alter(Arena *, ProtobufCMessage *model, ProtobufCMessage *other);

// A later change may change what an earlier one inserted.
static bool change_some(Arena *arena, ProtobufCMessage *model, ProtobufCMessage *other)
{
	uint64_t most = draw(8) ? FEW_CHANGES : MANY_CHANGES;
	for (uint64_t k = 0, n = 1 + draw(most); k < n; k++) {
		Mutant m = {.arena = arena};
		collect(&m, model, true);
		collect(&m, other, false);
		change(&m);
	}
	return true;
}

// By number: omits input v of a node, or inputs from v on; last, adds an output that the operator
// lacks.
static bool omit(Arena *arena, ProtobufCMessage *model, ProtobufCMessage *other)
{
	(void)other;
	uint64_t v = number;
	const GraphProto *g = ((ModelProto *)model)->graph;
	size_t i = 0;
	for (; i < g->n_node && v > 2 * g->node[i]->n_input; i++)
		v -= 2 * g->node[i]->n_input + 1;
	if (i == g->n_node)
		return false;
	NodeProto *n = g->node[i];
	if (v < n->n_input) {
		n->input[v] = "";
	} else if (v < 2 * n->n_input) {
		n->n_input = v - n->n_input;
	} else {
		char **all = NEWS(arena, char *, n->n_output + 1);
		memcpy(all, n->output, sizeof *all * n->n_output);
		all[n->n_output++] = "another";
		n->output = all;
	}
	return true;
}

// Changes tags, lengths and numbers of the encoding.
static void damage(uint8_t *bytes, size_t count)
{
	for (uint64_t k = 0, n = 1 + draw(FEW_CHANGES); k < n && count; k++)
		bytes[draw(count)] ^= (uint8_t)(1 << draw(8));
}

static void write_mutant(Arena *arena, const ProtobufCMessage *model, const char *path,
                         bool encoding)
{
	size_t count = protobuf_c_message_get_packed_size(model);
	uint8_t *bytes = take(arena, count + 1);
	protobuf_c_message_pack(model, bytes);
	if (encoding)
		damage(bytes, count);
	write_file(path, bytes, count);
}

// Returns the trained value of every second weight.
static const void *trained(void *model, int slot)
{
	const Slot *s = &((Model *)model)->graph->slots.at[slot];
	return slot % 2 ? s->init : NULL;
}

static void take_through(Arena *arena, const char *path)
{
	Bind bind[] = {{"batch", 2}, {"sequence", 4}, {"seq", 4}};
	ReadOptions options = {.nbind = COUNT(bind), .bind = bind, .training = draw(2)};
	budget_new(arena);
	Model *m = read_model(arena, path, &options);
	write_model(m, format(arena, "%s.out", path), draw(2), trained, m);
	const Graph *g = m->graph;
	const Graph *loss = draw(2) ? cotangent_pass(arena, g, NULL) : loss_pass(arena, g, NULL);
	eta_pass(arena, loss, &(EtaOptions){0}, NULL);
	bool *active = NEWS(arena, bool, loss->slots.count + 1);
	for (int s = 0; s < loss->slots.count; s++)
		active[s] = loss->slots.at[s].kind == S_param;
	Plan *plan =
	    plan_graph(arena, grad_pass(arena, loss, active, &machines[0]), "grad", &machines[0]);
	verify_plan(plan);
}

// Limits this process to `seconds` of processor time until SIGPROF; 0: no limit.
static void limit_time(int seconds)
{
	struct itimerval limit = {.it_value.tv_sec = seconds};
	setitimer(ITIMER_PROF, &limit, NULL);
}

// True if it succeeded or reported an error in the file.
static bool try_mutant(const char *path)
{
	Arena *arena = arena_new();
	Catch caught;
	bool good = true;
	limit_time(PATIENCE);
	if (!TRY(caught)) {
		take_through(arena, path);
		catch_end(&caught);
	} else {
		good = caught.status != STATUS_BUG &&
		       (strstr(caught.message, path) || strstr(caught.message, "loss"));
		if (!good)
			printf("%s, mutant %llu: a bug, or no file in the message: %s\n", tried,
			       (unsigned long long)number, caught.message);
		free(caught.message);
	}
	limit_time(0);
	arena_free(arena);
	return good;
}

static void say_number(int signal)
{
	fprintf(stderr, "%s, mutant %llu: ended by signal %d\n", tried, (unsigned long long)number,
	        signal);
	_Exit(1);
}

// Called by sanitizers, whose exit then reports the mutant.
const char *__asan_default_options(void), *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "abort_on_error=1";
}

const char *__ubsan_default_options(void)
{
	return "abort_on_error=1";
}

static int made, wrong;

static ProtobufCMessage *message_of(Arena *arena, const char *model)
{
	size_t count;
	const uint8_t *bytes = (const uint8_t *)read_file(arena, model, &count);
	ProtobufCMessage *message = unpacked(arena, &model_proto__descriptor, count, bytes);
	if (!message)
		fail(model, "is no model");
	return message;
}

static bool try_altered(const char *model, const char *other, const char *path, Alter *alter)
{
	Arena *own = arena_new();
	ProtobufCMessage *message = message_of(own, model);
	tried = model;
	state = number * 0xD1342543DE82EF95u;
	bool altered = alter(own, message, message_of(own, other));
	if (altered) {
		write_mutant(own, message, path, alter == change_some && !draw(8));
		wrong += !try_mutant(path);
		made++;
	}
	arena_free(own);
	return altered;
}

static void try_at_random(const char *path, uint64_t seed, long seconds, int n, char **models)
{
	time_t end = time(NULL) + seconds;
	for (number = seed; time(NULL) < end || number < seed + (uint64_t)n; number++)
		try_altered(models[number % (uint64_t)n],
		            models[hash_bytes(&number, sizeof number, 1) % (uint64_t)n], path,
		            change_some);
}

int main(int argc, char **argv)
{
	bool operands = argc > 1 && !strcmp(argv[1], "--operands");
	int first = operands ? 2 : 3;
	if (argc <= first)
		return 2;
	char path[4096];
	snprintf(path, sizeof path, "%s/mutant", own_folder());
	signal(SIGABRT, say_number);
	signal(SIGPROF, say_number);
	if (!operands)
		try_at_random(path, strtoull(argv[1], NULL, 10), strtol(argv[2], NULL, 10),
		              argc - first, argv + first);
	for (int i = first; operands && i < argc; i++)
		for (number = 0; try_altered(argv[i], argv[i], path, omit); number++)
			;
	printf("mutate: %d mutants of %d models, %d bugs or messages without the file\n", made,
	       argc - first, wrong);
	return wrong || !made;
}
