// inputs.c: defines a model that reads inputs and computes nothing, for the tests of data.
#include "inputs.h"
#include <stdarg.h>

struct amos_slot slots[2];
struct amos_entry entry = {.name = "train", .reads = "11"};
struct amos_model model = {
    .abi = AMOS_ABI, .name = "test", .slots = slots, .entries = &entry, .nentries = 1, .note = ""};
struct amos *m;
struct amos_data *data;
int64_t decoded = 1 << 30;

void declare(int i, const char *name, Elem type, int64_t limit, int rank, ...)
{
	slots[i] = (struct amos_slot){.name = name,
	                              .type = type,
	                              .rank = rank,
	                              .offset = i,
	                              .limit = limit,
	                              .bytes = elems[type].bytes};
	va_list args;
	va_start(args, rank);
	for (int a = 0; a < rank; a++)
		slots[i].bytes *= slots[i].dim[a] = va_arg(args, int);
	va_end(args);
	model.nslots = i + 1;
}

void close_all(void)
{
	amos_data_close(data);
	amos_close(m);
	data = NULL;
	m = NULL;
}

int attach(int exact, const struct amos_options *options)
{
	static const char *const entries[] = {"train", NULL};
	close_all();
	CHECK(!amos_open_slots(&model, 1, 0, NULL, NULL, &m), "open");
	int status = amos_data_open(options, exact, &data);
	if (!status)
		data->decoded = decoded;
	return status ? status : amos_data_attach(data, &model, entries);
}

int fit_source(int exact, const char *source)
{
	char text[512];
	snprintf(text, sizeof text, "x=%s", source);
	struct amos_options options = options_of("data", text, NULL);
	return attach(exact, &options);
}
