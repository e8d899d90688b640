// gpu.c: runs kernels on a GPU of NVIDIA or AMD, by the library of its driver, opened at run time.
// HIP has the functions of CUDA's driver under other names. The model's code is PTX, which the
// driver compiles, or a code object for one kind of GPU. Every function makes the device's context
// current for its calls, so that a caller who uses the library, too, keeps its own.
#include "device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { // numbers of both libraries
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	OTHER_GPU = 209,          // the code is for another one
	FUNCTION_MAX_THREADS = 0, // per block, as the code says
	FUNCTION_SHARED = 8,      // bytes that a launch may give, 48 KiB unless it is set
	ATTACH_GLOBAL = 1,        // of managed memory
	HOST_PORTABLE = 1,
	STREAM_NON_BLOCKING = 1,
	EVENT_WITHOUT_TIME = 2,
	CAPTURE_OF_THREAD = 1, // does not mind what other threads do
	JIT_ERROR_LOG = 5,
	JIT_ERROR_LOG_BYTES = 6,
};

enum {
#define F(field, cuda, hip, arguments) FUNCTION_##field,
#include "gpu.def"
	FUNCTIONS
};

struct maker { // what differs between the two
	const char *title, *library, *gpu, *install, *hidden, *target;
	bool by_value; // kernels have tables as arguments
	// Numbers of a device's attributes; major -1: not checked; moves: parts of managed memory.
	int major, minor, managed, moves;
	const char *symbol[FUNCTIONS];
};

static const struct maker nvidia = {
    .title = "CUDA",
    .library = "libcuda.so.1",
    .gpu = "GPU of NVIDIA",
    .install = "install the driver of NVIDIA's GPUs",
    .hidden = "$CUDA_VISIBLE_DEVICES may hide it: nvidia-smi lists all",
    .target = "give the --target of this GPU: cuda:sm_90 is one",
    .by_value = true,
    .major = 75,
    .minor = 76,
    .managed = 83,
    .moves = 89,
    .symbol =
        {
#define F(field, cuda, hip, arguments) #cuda,
#include "gpu.def"
        },
};

static const struct maker amd = {
    .title = "HIP",
    .library = "libamdhip64.so",
    .gpu = "GPU of AMD",
    .install = "install ROCm, of version 5.4 or newer",
    .hidden = "$HIP_VISIBLE_DEVICES may hide it: rocminfo lists all",
    .target = "give the --target of this GPU: hip:gfx90a is one, and rocminfo names it",
    .major = -1,
    .managed = 24,
    .moves = 9,
    .symbol =
        {
#define F(field, cuda, hip, arguments) #hip,
#include "gpu.def"
        },
};

struct gpu {
	const struct maker *maker;
	void *library, *context, *module;
	void *stream, *copies;              // of launches and downloads; of uploads
	void *uploaded, *marks[AMOS_MARKS]; // events
	void *times[2];                     // the same, of the clock
	int device;
	char name[256];
#define F(field, cuda, hip, arguments) int(*field) arguments;
#include "gpu.def"
};

static int failed(const struct gpu *d, int error, const char *what)
{
	const char *name = "an unknown error";
	d->error_name(error, &name);
	return amos_fail(error == OTHER_GPU ? AMOS_INPUT : AMOS_MACHINE,
	                 "%s: cannot %s: %s (%d)%s%s", *d->name ? d->name : d->maker->title, what,
	                 name, error, error == OUT_OF_MEMORY || error == OTHER_GPU ? HELP : "",
	                 error == OUT_OF_MEMORY ? "give a smaller --batch"
	                 : error == OTHER_GPU   ? d->maker->target
	                                        : "");
}

static void enter(const struct gpu *d)
{
	d->push(d->context);
}

// Returns `error`.
static int leave(const struct gpu *d, int error)
{
	void *own;
	d->pop(&own);
	return error;
}

static int number_of(const struct gpu *d, int attribute)
{
	int number = 0;
	return d->attribute(&number, attribute, d->device) ? 0 : number;
}

// ---- open and close -------------------------------------------------------------------

static int find_functions(struct gpu *d)
{
#define F(field, cuda, hip, arguments)                                                             \
	*(void **)&d->field = dlsym(d->library, d->maker->symbol[FUNCTION_##field]);               \
	if (!d->field)                                                                             \
		return amos_fail(AMOS_MACHINE, "%s has no %s" HELP "install a newer driver",       \
		                 d->maker->library, d->maker->symbol[FUNCTION_##field]);
#include "gpu.def"
	return AMOS_DONE;
}

static int make_streams(struct gpu *d)
{
	enter(d);
	int error = d->stream_create(&d->stream, STREAM_NON_BLOCKING);
	if (!error)
		error = d->stream_create(&d->copies, STREAM_NON_BLOCKING);
	if (!error)
		error = d->event_create(&d->uploaded, EVENT_WITHOUT_TIME);
	for (int k = 0; k < AMOS_MARKS && !error; k++)
		error = d->event_create(&d->marks[k], EVENT_WITHOUT_TIME);
	for (int k = 0; k < COUNT(d->times) && !error; k++)
		error = d->event_create(&d->times[k], 0);
	return leave(d, error) ? failed(d, error, "make streams") : AMOS_DONE;
}

static int open_device(struct gpu *d)
{
	int status = find_functions(d), count = 0;
	if (status)
		return status;
	int error = d->init(0);
	if (!error)
		error = d->count(&count);
	if (error == NO_DEVICE || (!error && !count))
		return amos_fail(AMOS_MACHINE, "no %s" HELP "%s", d->maker->gpu, d->maker->hidden);
	if (!error)
		error = d->get(&d->device, 0);
	if (!error)
		error = d->name_of(d->name, sizeof d->name, d->device);
	if (!error && !number_of(d, d->maker->managed))
		return amos_fail(AMOS_MACHINE, "%s: it has no memory shared with the host",
		                 d->name);
	if (!error)
		error = d->retain(&d->context, d->device);
	return error ? failed(d, error, "open it") : make_streams(d);
}

static void gpu_close(void *device)
{
	struct gpu *d = device;
	if (d->context) {
		enter(d);
		if (d->module)
			d->module_unload(d->module);
		for (int k = 0; k < AMOS_MARKS; k++)
			if (d->marks[k])
				d->event_destroy(d->marks[k]);
		for (int k = 0; k < COUNT(d->times); k++)
			if (d->times[k])
				d->event_destroy(d->times[k]);
		if (d->uploaded)
			d->event_destroy(d->uploaded);
		if (d->copies)
			d->stream_destroy(d->copies);
		if (d->stream)
			d->stream_destroy(d->stream);
		leave(d, 0);
		d->release(d->device);
	}
	free(d); // the driver has threads and handlers of the process's end: the library stays
}

static int gpu_open(const struct maker *maker, void **device)
{
	*device = NULL;
	struct gpu *d = calloc(1, sizeof *d);
	if (!d)
		return amos_no_memory(maker->title);
	d->maker = maker;
	d->library = dlopen(maker->library, RTLD_NOW);
	int status = d->library ? open_device(d)
	                        : amos_fail(AMOS_MACHINE, "cannot open %s" HELP "%s",
	                                    maker->library, maker->install);
	if (status)
		gpu_close(d);
	else
		*device = d;
	return status;
}

static int cuda_open(void **device)
{
	return gpu_open(&nvidia, device);
}

static int hip_open(void **device)
{
	return gpu_open(&amd, device);
}

static const char *gpu_describe(void *device)
{
	return ((struct gpu *)device)->name;
}

// ---- memory ---------------------------------------------------------------------------

static int gpu_room(void *device, int64_t *bytes)
{
	struct gpu *d = device;
	size_t left = 0, all;
	enter(d);
	int error = leave(d, d->room(&left, &all));
	*bytes = (int64_t)left;
	return error ? failed(d, error, "say how much memory is free") : AMOS_DONE;
}

static void *gpu_allocate(void *device, enum amos_sharing sharing, int64_t bytes)
{
	struct gpu *d = device;
	uint64_t address = 0;
	void *host = NULL;
	enter(d);
	leave(d, sharing == AMOS_HOST ? d->allocate_host(&host, (size_t)bytes, HOST_PORTABLE)
	         : sharing == AMOS_DEVICE
	             ? d->allocate_device(&address, (size_t)bytes)
	             : d->allocate_managed(&address, (size_t)bytes, ATTACH_GLOBAL));
	return host ? host : (void *)(uintptr_t)address;
}

static void gpu_release(void *device, enum amos_sharing sharing, void *memory)
{
	struct gpu *d = device;
	enter(d);
	d->synchronize(d->copies);
	d->synchronize(d->stream);
	if (sharing == AMOS_HOST)
		d->free_host(memory);
	else
		d->free_device((uintptr_t)memory);
	leave(d, 0);
}

static int gpu_clear(void *device, void *at, int64_t bytes)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->fill((uintptr_t)at, 0, (size_t)bytes, d->stream));
	return error ? failed(d, error, "clear memory") : AMOS_DONE;
}

// Where parts of managed memory do not move, all of it moves when a kernel starts.
static int gpu_prefetch(void *device, const void *at, int64_t bytes)
{
	struct gpu *d = device;
	if (!number_of(d, d->maker->moves))
		return AMOS_DONE;
	enter(d);
	int error = leave(d, d->prefetch((uintptr_t)at, (size_t)bytes, d->device, d->stream));
	return error ? failed(d, error, "move the parameters") : AMOS_DONE;
}

// ---- code -----------------------------------------------------------------------------

// Fails if the code is for a newer GPU, or for another one alone: PTX says ".target sm_90", or
// ".target sm_90a".
static int check_target(const struct gpu *d, const char *code)
{
	const char *target = strstr(code, ".target sm_");
	char *end = "";
	int needs = target ? (int)strtol(target + strlen(".target sm_"), &end, 10) : 0;
	int has = 10 * number_of(d, d->maker->major) + number_of(d, d->maker->minor);
	bool alone = *end == 'a';
	if (alone ? needs == has : needs <= has)
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "%s: expected code for sm_%d or older, found sm_%d%s" HELP
	                 "give --target cuda:sm_%d",
	                 d->name, has, needs, alone ? "a" : "", has);
}

static int gpu_build(void *device, const void *code, int64_t bytes)
{
	struct gpu *d = device;
	char log[512] = "", what[600];
	int option[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
	void *value[] = {log, (void *)(sizeof log - 1)};
	char *text = malloc((size_t)bytes + 1); // PTX ends with a zero
	if (!text)
		return amos_no_memory(d->name);
	memcpy(text, code, (size_t)bytes);
	text[bytes] = 0;
	int status = d->maker->major < 0 ? AMOS_DONE : check_target(d, text), error = 0;
	if (!status) {
		enter(d);
		error = leave(d, d->module_load(&d->module, text, COUNT(option), option, value));
	}
	free(text);
	if (!error)
		return status;
	log[strcspn(log, "\n")] = 0;
	snprintf(what, sizeof what, "load the kernels%s%s", *log ? ": " : "", log);
	return failed(d, error, what);
}

static int gpu_find(void *device, const char *function, int64_t shared, void **kernel,
                    int64_t *threads)
{
	struct gpu *d = device;
	int most = 0;
	enter(d);
	int error = d->module_function(kernel, d->module, function);
	if (!error)
		error = d->function_attribute(&most, FUNCTION_MAX_THREADS, *kernel);
	if (!error && shared)
		error = d->set_function_attribute(*kernel, FUNCTION_SHARED, (int)shared);
	*threads = most;
	leave(d, 0);
	return error ? failed(d, error, "find a kernel") : AMOS_DONE;
}

// ---- launches -------------------------------------------------------------------------

// NVIDIA's kernels have the table as their argument, if it is not too long, and read it at once;
// from memory of the host it would take 10 us.
static int gpu_launch(void *device, void *kernel, const uint64_t *table, const uint64_t *at,
                      int64_t n, int64_t blocks, int64_t threads, int64_t shared)
{
	struct gpu *d = device;
	bool whole = d->maker->by_value && n <= AMOS_BY_VALUE;
	void *argument[] = {whole ? (void *)(uintptr_t)at : (void *)&table};
	enter(d);
	int error = leave(d, d->launch_kernel(kernel, (unsigned)blocks, 1, 1, (unsigned)threads, 1,
	                                      1, (unsigned)shared, d->stream, argument, NULL));
	return error ? failed(d, error, "start a kernel") : AMOS_DONE;
}

static int gpu_wait(void *device)
{
	struct gpu *d = device;
	enter(d);
	int error = d->synchronize(d->copies);
	if (!error)
		error = d->synchronize(d->stream);
	return leave(d, error) ? failed(d, error, "run the kernels") : AMOS_DONE;
}

// ---- copies ---------------------------------------------------------------------------

static int gpu_copy(void *device, enum amos_way way, void *to, const void *from, int64_t bytes)
{
	struct gpu *d = device;
	uint64_t target = (uintptr_t)to, source = (uintptr_t)from;
	size_t size = (size_t)bytes;
	enter(d);
	int error = way == AMOS_TO_HOST     ? d->download(to, source, size, d->stream)
	            : way == AMOS_FROM_HOST ? d->upload(target, from, size, d->stream)
	                                    : d->move(target, source, size, d->stream);
	if (!error)
		error = d->synchronize(d->stream);
	return leave(d, error) ? failed(d, error, "copy memory") : AMOS_DONE;
}

static int gpu_upload(void *device, void *to, const void *from, int64_t bytes)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->upload((uintptr_t)to, from, (size_t)bytes, d->copies));
	return error ? failed(d, error, "copy a batch") : AMOS_DONE;
}

static int gpu_join(void *device)
{
	struct gpu *d = device;
	enter(d);
	int error = d->event_record(d->uploaded, d->copies);
	if (!error)
		error = d->stream_wait(d->stream, d->uploaded, 0);
	return leave(d, error) ? failed(d, error, "wait for a batch") : AMOS_DONE;
}

static int gpu_download(void *device, void *to, const void *from, int64_t bytes)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->download(to, (uintptr_t)from, (size_t)bytes, d->stream));
	return error ? failed(d, error, "copy results") : AMOS_DONE;
}

static int gpu_mark(void *device, int64_t mark)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->event_record(d->marks[mark], d->stream));
	return error ? failed(d, error, "start the kernels") : AMOS_DONE;
}

static int gpu_reach(void *device, int64_t mark)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->event_synchronize(d->marks[mark]));
	return error ? failed(d, error, "run the kernels") : AMOS_DONE;
}

static int gpu_clock(void *device, int64_t *nanoseconds)
{
	struct gpu *d = device;
	float ms = 0;
	enter(d);
	int error = d->event_record(d->times[nanoseconds != NULL], d->stream);
	if (!error && nanoseconds)
		error = d->event_synchronize(d->times[1]);
	if (!error && nanoseconds)
		error = d->event_elapsed(&ms, d->times[0], d->times[1]);
	if (nanoseconds)
		*nanoseconds = (int64_t)(1e6 * (double)ms);
	return leave(d, error) ? failed(d, error, "run the kernels") : AMOS_DONE;
}

// ---- graphs ---------------------------------------------------------------------------

static int gpu_record(void *device)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->capture_begin(d->stream, CAPTURE_OF_THREAD));
	return error ? failed(d, error, "record the kernels") : AMOS_DONE;
}

static int gpu_keep(void *device, void **graph)
{
	struct gpu *d = device;
	void *captured = NULL;
	enter(d);
	int error = d->capture_end(d->stream, &captured);
	if (!error && graph)
		error = d->graph_instantiate(graph, captured, 0);
	if (error && graph)
		*graph = NULL;
	if (captured)
		d->graph_destroy(captured);
	leave(d, 0);
	return error && graph ? failed(d, error, "make a graph of the kernels") : AMOS_DONE;
}

static int gpu_replay(void *device, void *graph)
{
	struct gpu *d = device;
	enter(d);
	int error = leave(d, d->graph_launch(graph, d->stream));
	return error ? failed(d, error, "start the kernels") : AMOS_DONE;
}

static void gpu_forget(void *device, void *graph)
{
	struct gpu *d = device;
	enter(d);
	d->graph_forget(graph);
	leave(d, 0);
}

static const char *gpu_lacks_graphs(void *device)
{
	(void)device;
	return NULL; // drivers without them are refused
}

#define DRIVER(maker)                                                                              \
	{                                                                                          \
		.name = #maker, .open = maker##_open, .close = gpu_close,                          \
		.describe = gpu_describe, .room = gpu_room, .room_word = "free",                   \
		.allocate = gpu_allocate, .release = gpu_release, .copy = gpu_copy,                \
		.clear = gpu_clear, .prefetch = gpu_prefetch, .build = gpu_build,                  \
		.find = gpu_find, .launch = gpu_launch, .wait = gpu_wait, .upload = gpu_upload,    \
		.download = gpu_download, .join = gpu_join, .mark = gpu_mark, .reach = gpu_reach,  \
		.clock = gpu_clock, .record = gpu_record, .keep = gpu_keep, .replay = gpu_replay,  \
		.forget = gpu_forget, .lacks_graphs = gpu_lacks_graphs                             \
	}
const struct amos_driver amos_cuda = DRIVER(cuda), amos_hip = DRIVER(hip);
