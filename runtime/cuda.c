// cuda.c: runs kernels on a GPU of NVIDIA, by the driver's library, which is opened at run time.
// The model's code is PTX, which the driver compiles. Every function makes the device's context
// current for its calls, so that a caller who uses CUDA, too, keeps its own.
#include "device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { // numbers of the driver's header
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	ATTRIBUTE_MAJOR = 75,
	ATTRIBUTE_MINOR = 76,
	ATTRIBUTE_MANAGED_MEMORY = 83,
	FUNCTION_MAX_THREADS = 0, // per block, as the code says
	ATTACH_GLOBAL = 1,        // of managed memory
	HOST_PORTABLE = 1,
	STREAM_NON_BLOCKING = 1,
	JIT_ERROR_LOG = 5,
	JIT_ERROR_LOG_BYTES = 6,
};
#define LIBRARY "libcuda.so.1"

struct cuda {
	void *library, *context, *stream, *module;
	int device;
	char name[256];
#define F(function, arguments) int(*function) arguments;
#include "cuda.def"
};

static int failed(const struct cuda *d, int error, const char *what)
{
	const char *name = "an unknown error";
	d->cuGetErrorName(error, &name);
	return amos_fail(AMOS_MACHINE, "%s: cannot %s: %s (%d)%s", *d->name ? d->name : "CUDA",
	                 what, name, error,
	                 error == OUT_OF_MEMORY ? HELP "give a smaller --batch" : "");
}

static void enter(const struct cuda *d)
{
	d->cuCtxPushCurrent_v2(d->context);
}

// Returns `error`.
static int leave(const struct cuda *d, int error)
{
	void *own;
	d->cuCtxPopCurrent_v2(&own);
	return error;
}

static int attribute(const struct cuda *d, int which)
{
	int number = 0;
	return d->cuDeviceGetAttribute(&number, which, d->device) ? 0 : number;
}

// ---- open and close -------------------------------------------------------------------

static int find_functions(struct cuda *d)
{
#define F(function, arguments)                                                                     \
	*(void **)&d->function = dlsym(d->library, #function);                                     \
	if (!d->function)                                                                          \
		return amos_fail(AMOS_MACHINE,                                                     \
		                 LIBRARY " has no " #function HELP "install a newer driver");
#include "cuda.def"
	return AMOS_DONE;
}

static int open_device(struct cuda *d)
{
	int status = find_functions(d), count = 0;
	if (status)
		return status;
	int error = d->cuInit(0);
	if (!error)
		error = d->cuDeviceGetCount(&count);
	if (error == NO_DEVICE || (!error && !count))
		return amos_fail(AMOS_MACHINE,
		                 "no GPU of NVIDIA" HELP
		                 "$CUDA_VISIBLE_DEVICES may hide it: nvidia-smi lists all");
	if (!error)
		error = d->cuDeviceGet(&d->device, 0);
	if (!error)
		error = d->cuDeviceGetName(d->name, sizeof d->name, d->device);
	if (!error && !attribute(d, ATTRIBUTE_MANAGED_MEMORY))
		return amos_fail(AMOS_MACHINE, "%s: it has no memory shared with the host",
		                 d->name);
	if (!error)
		error = d->cuDevicePrimaryCtxRetain(&d->context, d->device);
	if (error)
		return failed(d, error, "open it");
	enter(d);
	error = leave(d, d->cuStreamCreate(&d->stream, STREAM_NON_BLOCKING));
	return error ? failed(d, error, "make a stream") : AMOS_DONE;
}

static void cuda_close(void *device)
{
	struct cuda *d = device;
	if (d->context) {
		enter(d);
		if (d->module)
			d->cuModuleUnload(d->module);
		if (d->stream)
			d->cuStreamDestroy_v2(d->stream);
		leave(d, 0);
		d->cuDevicePrimaryCtxRelease_v2(d->device);
	}
	free(d); // the driver has threads and handlers of the process's end: the library stays
}

static int cuda_open(void **device)
{
	*device = NULL;
	struct cuda *d = calloc(1, sizeof *d);
	if (!d)
		return amos_no_memory("CUDA");
	d->library = dlopen(LIBRARY, RTLD_NOW);
	int status = d->library ? open_device(d)
	                        : amos_fail(AMOS_MACHINE, "cannot open " LIBRARY HELP
	                                                  "install the driver of NVIDIA's GPUs");
	if (status)
		cuda_close(d);
	else
		*device = d;
	return status;
}

static const char *cuda_describe(void *device)
{
	return ((struct cuda *)device)->name;
}

// ---- memory ---------------------------------------------------------------------------

static void *cuda_allocate(void *device, enum amos_sharing sharing, int64_t bytes)
{
	struct cuda *d = device;
	uint64_t address = 0;
	void *host = NULL;
	enter(d);
	leave(d, sharing == AMOS_HOST
	             ? d->cuMemHostAlloc(&host, (size_t)bytes, HOST_PORTABLE)
	             : d->cuMemAllocManaged(&address, (size_t)bytes, ATTACH_GLOBAL));
	return host ? host : (void *)(uintptr_t)address;
}

static void cuda_release(void *device, enum amos_sharing sharing, void *memory)
{
	struct cuda *d = device;
	enter(d);
	if (sharing == AMOS_HOST)
		d->cuMemFreeHost(memory);
	else
		d->cuMemFree_v2((uintptr_t)memory);
	leave(d, 0);
}

// ---- code -----------------------------------------------------------------------------

// Fails if the code is for a newer GPU: PTX says ".target sm_90".
static int check_target(const struct cuda *d, const char *code)
{
	const char *target = strstr(code, ".target sm_");
	int needs = target ? atoi(target + strlen(".target sm_")) : 0;
	int has = 10 * attribute(d, ATTRIBUTE_MAJOR) + attribute(d, ATTRIBUTE_MINOR);
	if (needs <= has)
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "%s: expected code for sm_%d or older, found sm_%d" HELP
	                 "give --target cuda:sm_%d",
	                 d->name, has, needs, has);
}

static int cuda_build(void *device, const void *code, int64_t bytes)
{
	struct cuda *d = device;
	char log[512] = "", what[600];
	int option[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
	void *value[] = {log, (void *)(sizeof log - 1)};
	char *text = strndup(code, (size_t)bytes); // PTX ends with a zero
	if (!text)
		return amos_no_memory(d->name);
	int status = check_target(d, text), error = 0;
	if (!status) {
		enter(d);
		error =
		    leave(d, d->cuModuleLoadDataEx(&d->module, text, COUNT(option), option, value));
	}
	free(text);
	if (!error)
		return status;
	log[strcspn(log, "\n")] = 0;
	snprintf(what, sizeof what, "compile the kernels%s%s", *log ? ": " : "", log);
	return failed(d, error, what);
}

static int cuda_find(void *device, const char *function, void **kernel, int64_t *threads)
{
	struct cuda *d = device;
	int most = 0;
	enter(d);
	int error = d->cuModuleGetFunction(kernel, d->module, function);
	if (!error)
		error = d->cuFuncGetAttribute(&most, FUNCTION_MAX_THREADS, *kernel);
	*threads = most;
	leave(d, 0);
	return error ? failed(d, error, "find a kernel") : AMOS_DONE;
}

// ---- launches -------------------------------------------------------------------------

static int cuda_launch(void *device, void *kernel, const uint64_t *table, int64_t blocks,
                       int64_t threads)
{
	struct cuda *d = device;
	void *argument[] = {&table};
	enter(d);
	int error = leave(d, d->cuLaunchKernel(kernel, (unsigned)blocks, 1, 1, (unsigned)threads, 1,
	                                       1, 0, d->stream, argument, NULL));
	return error ? failed(d, error, "start a kernel") : AMOS_DONE;
}

static int cuda_wait(void *device)
{
	struct cuda *d = device;
	enter(d);
	int error = leave(d, d->cuStreamSynchronize(d->stream));
	return error ? failed(d, error, "run the kernels") : AMOS_DONE;
}

const struct amos_driver amos_cuda = {.name = "cuda",
                                      .open = cuda_open,
                                      .close = cuda_close,
                                      .describe = cuda_describe,
                                      .allocate = cuda_allocate,
                                      .release = cuda_release,
                                      .build = cuda_build,
                                      .find = cuda_find,
                                      .launch = cuda_launch,
                                      .wait = cuda_wait};
