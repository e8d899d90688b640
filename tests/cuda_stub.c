// cuda_stub.c: stands for libcuda.so.1: records calls, and checks them as a driver would not.
// $CUDA_CALLS: file of the calls, a line each; $CUDA_FAIL: number of the call that fails. Objects
// must be live and of the current context; kernels must be in the PTX, with as many threads as it
// says. The last line tells what was not released. Kernels compute nothing.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST = 4096,
	FAILURE = 999,
	MEMORY = 2,
	BLOCK = 'b',
	MODULE = 'm',
	KERNEL = 'k',
	STREAM = 's'
};

static struct object {
	char kind, *at, *text; // text: of a module; name of a kernel
	size_t bytes;
} objects[MOST];
static int nobjects, calls, depth, retained;
static FILE *record;

static void wrong(const char *what)
{
	fprintf(stderr, "cuda_stub: %s\n", what);
	_Exit(99);
}

static void finish(void)
{
	int live = 0;
	for (int i = 0; i < nobjects; i++)
		live += objects[i].at && objects[i].kind != KERNEL;
	fprintf(record, "%d objects, %d contexts left\n", live, retained);
	fclose(record);
}

// Counts the call. True if it is to fail.
static int fails(const char *name)
{
	const char *fail = getenv("CUDA_FAIL");
	if (!record) {
		record = fopen(getenv("CUDA_CALLS"), "w");
		atexit(finish);
	}
	fprintf(record, "%s\n", name);
	return ++calls == (fail ? atoi(fail) : 0);
}
#define CALL(error)                                                                                \
	if (fails(__func__))                                                                       \
	return error

static struct object *find(char kind, const void *at)
{
	for (int i = nobjects; i-- > 0;)
		if (objects[i].kind == kind && (char *)at >= objects[i].at &&
		    (char *)at < objects[i].at + objects[i].bytes && objects[i].at)
			return &objects[i];
	wrong("an object that is not live");
	return NULL;
}

static void *make(char kind, size_t bytes)
{
	if (!depth)
		wrong("no current context");
	objects[nobjects] = (struct object){kind, calloc(1, bytes), NULL, bytes};
	return objects[nobjects++].at;
}

static int drop(char kind, const void *at)
{
	struct object *o = find(kind, at);
	if (o->at != at || !depth)
		wrong("a release of something else");
	free(o->at);
	o->at = NULL;
	return 0;
}

int cuInit(unsigned flags)
{
	CALL(FAILURE);
	return (int)flags;
}

int cuGetErrorName(int error, const char **name)
{
	*name = error == MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
	return 0;
}

int cuDeviceGetCount(int *count)
{
	CALL(FAILURE);
	*count = getenv("CUDA_NONE") ? 0 : 1;
	return 0;
}

int cuDeviceGet(int *device, int number)
{
	CALL(FAILURE);
	*device = number;
	return 0;
}

int cuDeviceGetName(char *name, int room, int device)
{
	CALL(FAILURE);
	snprintf(name, (size_t)room, "GPU %d", device);
	return 0;
}

int cuDeviceGetAttribute(int *value, int which, int device)
{
	*value = which == 75 ? 8 : which == 76 ? 6 : which == 83 && !device;
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	CALL(MEMORY);
	*context = &depth + device;
	retained++;
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	fails(__func__);
	retained--;
	return device;
}

int cuCtxPushCurrent_v2(void *context)
{
	if (context != &depth)
		wrong("another context");
	depth++;
	return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
	if (!depth--)
		wrong("no context to leave");
	*context = &depth;
	return 0;
}

int cuStreamCreate(void **stream, unsigned flags)
{
	CALL(MEMORY);
	*stream = make(STREAM, flags);
	return 0;
}

int cuStreamDestroy_v2(void *stream)
{
	fails(__func__);
	return drop(STREAM, stream);
}

int cuStreamSynchronize(void *stream)
{
	CALL(FAILURE);
	find(STREAM, stream);
	return 0;
}

int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
	CALL(MEMORY);
	if (flags != 1 || !bytes)
		wrong("a block of nothing, or of one stream");
	*address = (uintptr_t)make(BLOCK, bytes);
	return 0;
}

int cuMemFree_v2(uint64_t address)
{
	fails(__func__);
	return drop(BLOCK, (void *)(uintptr_t)address);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
	CALL(MEMORY);
	*address = make(BLOCK, flags ? bytes : 0);
	return 0;
}

int cuMemFreeHost(void *address)
{
	fails(__func__);
	return drop(BLOCK, address);
}

int cuModuleLoadDataEx(void **module, const void *code, unsigned n, int *option, void **value)
{
	CALL(FAILURE);
	if (n != 2 || option[0] != 5 || option[1] != 6 || !value[1] ||
	    !strstr(code, ".version 8.0"))
		wrong("a module that is no PTX, or its options");
	*module = make(MODULE, 1);
	find(MODULE, *module)->text = strdup(code);
	return 0;
}

int cuModuleUnload(void *module)
{
	fails(__func__);
	free(find(MODULE, module)->text);
	return drop(MODULE, module);
}

int cuModuleGetFunction(void **kernel, void *module, const char *name)
{
	CALL(FAILURE);
	char entry[256];
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	const char *text = strstr(find(MODULE, module)->text, entry);
	if (!text || strncmp(strchr(text, ')'), ")\n.maxntid 256, 1, 1\n", 20))
		wrong("a kernel that is not in the module, or says not its threads");
	*kernel = make(KERNEL, 1);
	return 0;
}

int cuFuncGetAttribute(int *value, int which, void *kernel)
{
	CALL(FAILURE);
	find(KERNEL, kernel);
	*value = which ? 0 : 256;
	return 0;
}

int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty,
                   unsigned tz, unsigned shared, void *stream, void **argument, void **extra)
{
	CALL(FAILURE);
	find(KERNEL, kernel);
	find(STREAM, stream);
	uint64_t *const *table = argument[0];
	find(BLOCK, *table);
	find(BLOCK, (void *)(uintptr_t) * *table); // the first operand
	if (!x || y != 1 || z != 1 || threads != 256 || ty != 1 || tz != 1 || shared || extra)
		wrong("a launch of another shape");
	return 0;
}
