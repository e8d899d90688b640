// opencl.c: runs kernels on a device of OpenCL that takes SPIR-V and shares memory with the host:
// by cl_intel_unified_shared_memory, or else by OpenCL's shared virtual memory (SVM), if host and
// device may use a block at once. A GPU is preferred to a CPU.
// The library is opened at run time, and declared here as its specification has it: no header is
// needed. Kernels find addresses in memory, so the driver is told that they use any block.
#include "device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { // numbers of the specification
	DEVICE_TYPE = 0x1000,
	DEVICE_ADDRESS_BITS = 0x100D,
	DEVICE_LARGEST_BLOCK = 0x1010, // CL_DEVICE_MAX_MEM_ALLOC_SIZE
	DEVICE_SINGLE_FP_CONFIG = 0x101B,
	DEVICE_MEMORY_BYTES = 0x101F,
	DEVICE_NAME = 0x102B,
	DEVICE_VERSION = 0x102F,
	DEVICE_GLOBAL_VARIABLES = 0x104D, // their bytes
	DEVICE_SVM = 0x1053,
	DEVICE_EXTENSIONS = 0x1030,
	DEVICE_IL_VERSION = 0x105B,
	DEVICE_FENCES = 0x1064, // from version 3 on, which does not ask for any
	DEVICE_HOST_MEMORY = 0x4190,
	DEVICE_OWN_MEMORY = 0x4191,
	DEVICE_SHARED_MEMORY = 0x4192,
	TYPE_GPU = 4,
	FENCE_ORDER = 1 << 1 | 1 << 5,   // of DEVICE_FENCES: acquire and release, of the device
	SVM_FINE_GRAIN = 1 << 1,         // of DEVICE_SVM: host and device use buffers at once
	MEMORY_FINE_GRAIN = 1 << 10 | 1, // flags of a block: that, and to be read and written
	MEMORY_FLAGS = 0x1101,           // property of a block of shared memory
	MEMORY_ANY_SIZE = 1 << 23,       // such a flag, of Intel's GPUs: beyond the largest block
	CORRECTLY_ROUNDED = 1 << 7,      // quotients and roots of f32
	DEVICE_COMMAND_BUFFER_QUEUE = 0x12AA, // properties of a queue that they need
	PROGRAM_BUILD_LOG = 0x1183,
	KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
	KERNEL_SVM_BLOCKS = 0x11B6,
	KERNEL_INDIRECT_HOST_ACCESS = 0x4200,
	KERNEL_INDIRECT_DEVICE_ACCESS = 0x4201,
	KERNEL_INDIRECT_SHARED_ACCESS = 0x4202,
	PLATFORM = 0x1084, // property of a context
};
static const uint64_t ANY_TYPE = 0xFFFFFFFF;
#define LIBRARY "libOpenCL.so.1"

struct opencl {
	void *library, *platform, *device, *context, *program;
	void *queue, *copies;    // of launches and downloads; of uploads
	void *marks[AMOS_MARKS]; // events
	bool graphs;             // it has command buffers
	void *recording;         // one that takes the launches; NULL: the queue does
	char name[256];
	void **kernels;
	size_t count, room; // of them
	bool svm;           // memory is of SVM
	void **blocks;      // of SVM
	size_t nblocks, block_room;
#define F(result, function, arguments) result(*function) arguments;
#define X                              F
#define G                              F
#include "opencl.def"
};

// ---- errors ---------------------------------------------------------------------------

static int failed(const struct opencl *d, int32_t error, const char *what)
{
	static const struct {
		int32_t number;
		const char *name;
	} errors[] = {
#define ERROR(number, name) {number, #name},
#include "opencl.def"
	};
	const char *name = "an error of OpenCL";
	for (int k = 0; k < COUNT(errors); k++)
		if (errors[k].number == error)
			name = errors[k].name;
	bool memory = error == -4 || error == -5 || error == -6 || error == -61;
	return amos_fail(AMOS_MACHINE, "%s: cannot %s: %s (%d)%s", *d->name ? d->name : "OpenCL",
	                 what, name, (int)error, memory ? HELP "give a smaller --batch" : "");
}

// ---- a device -------------------------------------------------------------------------

static uint64_t number_of(const struct opencl *d, void *device, uint32_t what)
{
	uint64_t number = 0;
	return d->clGetDeviceInfo(device, what, sizeof number, &number, NULL) ? 0 : number;
}

// Returns a text of the device; to be freed. NULL: no memory, or no such text.
static char *text_of(const struct opencl *d, void *device, uint32_t what)
{
	size_t bytes = 0;
	if (d->clGetDeviceInfo(device, what, 0, NULL, &bytes))
		return NULL;
	char *text = calloc(1, bytes + 1);
	if (text && d->clGetDeviceInfo(device, what, bytes, text, NULL))
		*text = 0;
	return text;
}

static bool has(const struct opencl *d, void *device, uint32_t list, const char *word)
{
	char *text = text_of(d, device, list);
	bool is = text && strstr(text, word);
	free(text);
	return is;
}

static bool has_usm(const struct opencl *d, void *device)
{
	return has(d, device, DEVICE_EXTENSIONS, "cl_intel_unified_shared_memory") &&
	       number_of(d, device, DEVICE_HOST_MEMORY) & 1 &&
	       number_of(d, device, DEVICE_OWN_MEMORY) & 1 &&
	       number_of(d, device, DEVICE_SHARED_MEMORY) & 1;
}

// True if kernels can count their workers, of which the last adds up what all have.
static bool has_counts(const struct opencl *d, void *device)
{
	uint64_t fences = number_of(d, device, DEVICE_FENCES);
	bool ordered =
	    (fences & FENCE_ORDER) == FENCE_ORDER || has(d, device, DEVICE_VERSION, "OpenCL 2.");
	return ordered && number_of(d, device, DEVICE_GLOBAL_VARIABLES);
}

// Returns what the device lacks; NULL: nothing.
static const char *missing(const struct opencl *d, void *device)
{
	if (number_of(d, device, DEVICE_ADDRESS_BITS) != 64)
		return "addresses of 64 bits";
	if (!has(d, device, DEVICE_IL_VERSION, "SPIR-V"))
		return "SPIR-V";
	if (!has_usm(d, device) && !(number_of(d, device, DEVICE_SVM) & SVM_FINE_GRAIN))
		return "memory shared with the host (cl_intel_unified_shared_memory, or SVM of "
		       "fine grain)";
	if (!has_counts(d, device))
		return "fences and variables of the device, which OpenCL 2 has";
	return NULL;
}

enum { MOST = 64 }; // devices of a platform, and platforms

// Takes a device if it lacks nothing and is the first such one, or the first GPU (*gpu: it is one).
// Appends to `lacks` what it lacks.
static void consider(struct opencl *d, void *platform, void *device, bool *gpu, char *lacks,
                     size_t room)
{
	const char *lack = missing(d, device);
	bool is_gpu = number_of(d, device, DEVICE_TYPE) & TYPE_GPU;
	char *name = text_of(d, device, DEVICE_NAME);
	size_t end = strlen(lacks);
	if (lack) {
		snprintf(lacks + end, room - end, "%s%s has no %s", end ? "; " : "",
		         name ? name : "a device", lack);
	} else if (!d->device || (is_gpu && !*gpu)) {
		d->platform = platform;
		d->device = device;
		snprintf(d->name, sizeof d->name, "%s", name ? name : "");
		*gpu = is_gpu;
	}
	free(name);
}

static void choose(struct opencl *d, char *lacks, size_t room)
{
	void *platforms[MOST], *devices[MOST];
	uint32_t nplatforms = 0, ndevices;
	bool gpu = false;
	if (d->clGetPlatformIDs(MOST, platforms, &nplatforms))
		nplatforms = 0;
	for (uint32_t p = 0; p < nplatforms && p < MOST; p++) {
		ndevices = 0;
		if (d->clGetDeviceIDs(platforms[p], ANY_TYPE, MOST, devices, &ndevices))
			continue;
		for (uint32_t k = 0; k < ndevices && k < MOST; k++)
			consider(d, platforms[p], devices[k], &gpu, lacks, room);
	}
}

// ---- open and close -------------------------------------------------------------------

static int find_functions(struct opencl *d)
{
#define F(result, function, arguments)                                                             \
	*(void **)&d->function = dlsym(d->library, #function);                                     \
	if (!d->function)                                                                          \
		return amos_fail(AMOS_MACHINE,                                                     \
		                 LIBRARY " has no " #function HELP "install OpenCL 2.1 or newer");
#include "opencl.def"
	return AMOS_DONE;
}

static int find_extensions(struct opencl *d)
{
#define X(result, function, arguments)                                                             \
	*(void **)&d->function =                                                                   \
	    d->clGetExtensionFunctionAddressForPlatform(d->platform, #function);                   \
	if (!d->function)                                                                          \
		return amos_fail(AMOS_MACHINE, "%s: its driver has no " #function, d->name);
#include "opencl.def"
	return AMOS_DONE;
}

// Finds command buffers, which the device may lack.
static void find_graphs(struct opencl *d)
{
	d->graphs = has(d, d->device, DEVICE_EXTENSIONS, "cl_khr_command_buffer") &&
	            !number_of(d, d->device, DEVICE_COMMAND_BUFFER_QUEUE);
#define G(result, function, arguments)                                                             \
	*(void **)&d->function =                                                                   \
	    d->clGetExtensionFunctionAddressForPlatform(d->platform, #function);                   \
	d->graphs = d->graphs && d->function;
#include "opencl.def"
}

static int open_device(struct opencl *d)
{
	char lacks[1024] = "";
	int32_t error = 0;
	int status = find_functions(d);
	if (status)
		return status;
	choose(d, lacks, sizeof lacks);
	if (!d->device && *lacks)
		return amos_fail(AMOS_MACHINE,
		                 "no device of OpenCL can run the kernels: %s" HELP
		                 "install another driver",
		                 lacks);
	if (!d->device)
		return amos_fail(AMOS_MACHINE,
		                 "no device of OpenCL" HELP
		                 "install the driver of the device: clinfo lists those that are "
		                 "found");
	d->svm = !has_usm(d, d->device);
	status = d->svm ? AMOS_DONE : find_extensions(d);
	if (status)
		return status;
	find_graphs(d);
	const intptr_t properties[] = {PLATFORM, (intptr_t)d->platform, 0};
	d->context = d->clCreateContext(properties, 1, &d->device, NULL, NULL, &error);
	if (!d->context)
		return failed(d, error, "open it");
	d->queue = d->clCreateCommandQueueWithProperties(d->context, d->device, NULL, &error);
	if (d->queue)
		d->copies =
		    d->clCreateCommandQueueWithProperties(d->context, d->device, NULL, &error);
	return d->copies ? AMOS_DONE : failed(d, error, "make queues");
}

static void opencl_close(void *device)
{
	struct opencl *d = device;
	for (size_t k = 0; k < d->count; k++)
		d->clReleaseKernel(d->kernels[k]);
	if (d->program)
		d->clReleaseProgram(d->program);
	for (int k = 0; k < AMOS_MARKS; k++)
		if (d->marks[k])
			d->clReleaseEvent(d->marks[k]);
	if (d->copies)
		d->clReleaseCommandQueue(d->copies);
	if (d->queue)
		d->clReleaseCommandQueue(d->queue);
	if (d->context)
		d->clReleaseContext(d->context);
	free(d->kernels);
	free(d->blocks);
	free(d); // drivers have threads and handlers of the process's end: the library stays
}

static int opencl_open(void **device)
{
	*device = NULL;
	struct opencl *d = calloc(1, sizeof *d);
	if (!d)
		return amos_no_memory("OpenCL");
	d->library = dlopen(LIBRARY, RTLD_NOW);
	int status =
	    d->library ? open_device(d)
	               : amos_fail(AMOS_MACHINE, "cannot open " LIBRARY HELP
	                                         "install OpenCL's loader (ocl-icd-libopencl1) and "
	                                         "the driver of the device");
	if (status)
		opencl_close(d);
	else
		*device = d;
	return status;
}

static const char *opencl_describe(void *device)
{
	return ((struct opencl *)device)->name;
}

// ---- memory ---------------------------------------------------------------------------

// Tells the driver that the kernel may access every SVM block allocated so far.
static int32_t tell_blocks(const struct opencl *d, void *kernel)
{
	return d->nblocks ? d->clSetKernelExecInfo(kernel, KERNEL_SVM_BLOCKS,
	                                           d->nblocks * sizeof *d->blocks, d->blocks)
	                  : 0;
}

static void *allocate_svm(struct opencl *d, size_t bytes)
{
	int32_t error = 0;
	if (!amos_grow((void **)&d->blocks, &d->block_room, d->nblocks + 1, sizeof *d->blocks))
		return NULL;
	void *at = d->clSVMAlloc(d->context, MEMORY_FINE_GRAIN, bytes, AMOS_LINE);
	if (!at)
		return NULL;
	d->blocks[d->nblocks++] = at;
	for (size_t k = 0; k < d->count && !error; k++)
		error = tell_blocks(d, d->kernels[k]);
	if (!error)
		return at;
	d->nblocks--;
	d->clSVMFree(d->context, at);
	return NULL;
}

static void *allocate_usm(const struct opencl *d, enum amos_sharing sharing, const uint64_t *with,
                          size_t bytes)
{
	int32_t error;
	return sharing == AMOS_HOST ? d->clHostMemAllocINTEL(d->context, with, bytes, 0, &error)
	       : sharing == AMOS_DEVICE
	           ? d->clDeviceMemAllocINTEL(d->context, d->device, with, bytes, 0, &error)
	           : d->clSharedMemAllocINTEL(d->context, d->device, with, bytes, 0, &error);
}

static int64_t opencl_largest(void *device)
{
	const struct opencl *d = device;
	return (int64_t)number_of(d, d->device, DEVICE_LARGEST_BLOCK);
}

// Intel's GPUs address 4 GB from the start of a buffer that is an argument, so their driver has
// this as the largest block. Kernels that load addresses from memory can reach all of a larger one.
static void *opencl_allocate(void *device, enum amos_sharing sharing, int64_t bytes)
{
	static const uint64_t any_size[] = {MEMORY_FLAGS, MEMORY_ANY_SIZE, 0};
	struct opencl *d = device;
	if (d->svm)
		return allocate_svm(d, (size_t)bytes);
	void *at = allocate_usm(d, sharing, NULL, (size_t)bytes);
	return at || bytes <= opencl_largest(d) ? at
	                                        : allocate_usm(d, sharing, any_size, (size_t)bytes);
}

// OpenCL does not say how much of it is free.
static int opencl_room(void *device, int64_t *bytes)
{
	const struct opencl *d = device;
	*bytes = (int64_t)number_of(d, d->device, DEVICE_MEMORY_BYTES);
	return AMOS_DONE;
}

static int opencl_clear(void *device, void *at, int64_t bytes)
{
	struct opencl *d = device;
	int32_t error = (d->svm ? d->clEnqueueSVMMemFill : d->clEnqueueMemFillINTEL)(
	    d->queue, at, "", 1, (size_t)bytes, 0, NULL, NULL);
	return error ? failed(d, error, "clear memory") : AMOS_DONE;
}

static void opencl_release(void *device, enum amos_sharing sharing, void *memory)
{
	(void)sharing;
	struct opencl *d = device;
	if (!d->svm) {
		d->clMemBlockingFreeINTEL(d->context, memory);
		return;
	}
	d->clFinish(d->copies);
	d->clFinish(d->queue);
	d->clSVMFree(d->context, memory);
}

// ---- code -----------------------------------------------------------------------------

// Fails if the code needs a type of floats that the device lacks. SPIR-V begins with five words and
// a list of capabilities.
static int check_floats(const struct opencl *d, const uint32_t *word, int64_t words)
{
	enum { HEADER = 5, CAPABILITY = 2 << 16 | 17, FLOAT_16 = 9, FLOAT_64 = 10 };
	for (int64_t k = HEADER; k + 1 < words && word[k] == CAPABILITY; k += 2) {
		const char *lacks = word[k + 1] == FLOAT_64   ? "cl_khr_fp64"
		                    : word[k + 1] == FLOAT_16 ? "cl_khr_fp16"
		                                              : NULL;
		if (lacks && !has(d, d->device, DEVICE_EXTENSIONS, lacks))
			return amos_fail(AMOS_INPUT,
			                 "%s: the model computes in %s, and the device does not "
			                 "(%s)" HELP "give --precision f32",
			                 d->name, word[k + 1] == FLOAT_64 ? "f64" : "f16", lacks);
	}
	return AMOS_DONE;
}

// The compiler's log is several lines; the first that mentions an error says why.
static int build_failed(const struct opencl *d, int32_t error)
{
	size_t bytes = 0;
	d->clGetProgramBuildInfo(d->program, d->device, PROGRAM_BUILD_LOG, 0, NULL, &bytes);
	char *log = calloc(1, bytes + 1), what[600];
	if (log)
		d->clGetProgramBuildInfo(d->program, d->device, PROGRAM_BUILD_LOG, bytes, log,
		                         NULL);
	const char *why = log ? strstr(log, "rror") : NULL;
	while (why && why > log && why[-1] != '\n')
		why--;
	int length = why ? (int)strcspn(why, "\n") : 0;
	snprintf(what, sizeof what, "compile the kernels%s%.*s", length ? ": " : "", length,
	         why ? why : "");
	free(log);
	return failed(d, error, what);
}

static int opencl_build(void *device, const void *code, int64_t bytes)
{
	struct opencl *d = device;
	int32_t error = 0;
	int status = check_floats(d, code, bytes / 4);
	if (status)
		return status;
	d->program = d->clCreateProgramWithIL(d->context, code, (size_t)bytes, &error);
	if (!d->program)
		return failed(d, error, "read the kernels");
	bool exact = number_of(d, d->device, DEVICE_SINGLE_FP_CONFIG) & CORRECTLY_ROUNDED;
	error =
	    d->clBuildProgram(d->program, 1, &d->device,
	                      exact ? "-cl-fp32-correctly-rounded-divide-sqrt" : "", NULL, NULL);
	return error ? build_failed(d, error) : AMOS_DONE;
}

static int opencl_find(void *device, const char *function, int64_t shared, void **kernel,
                       int64_t *threads)
{
	(void)shared;
	struct opencl *d = device;
	static const uint32_t memory[] = {KERNEL_INDIRECT_HOST_ACCESS,
	                                  KERNEL_INDIRECT_DEVICE_ACCESS,
	                                  KERNEL_INDIRECT_SHARED_ACCESS};
	int32_t error = 0;
	uint32_t yes = 1;
	size_t size[3] = {0};
	if (!amos_grow((void **)&d->kernels, &d->room, d->count + 1, sizeof *d->kernels))
		return amos_no_memory(d->name);
	*kernel = d->clCreateKernel(d->program, function, &error);
	if (!*kernel)
		return failed(d, error, "find a kernel");
	d->kernels[d->count++] = *kernel;
	if (!error)
		error = d->clGetKernelWorkGroupInfo(
		    *kernel, d->device, KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof size, size, NULL);
	if (!error && d->svm)
		error = tell_blocks(d, *kernel);
	for (int k = 0; k < COUNT(memory) && !error && !d->svm; k++)
		error = d->clSetKernelExecInfo(*kernel, memory[k], sizeof yes, &yes);
	*threads = (int64_t)size[0];
	return error ? failed(d, error, "prepare a kernel") : AMOS_DONE;
}

// ---- launches -------------------------------------------------------------------------

static int opencl_launch(void *device, void *kernel, const uint64_t *table, const uint64_t *at,
                         int64_t n, int64_t blocks, int64_t threads, int64_t shared)
{
	struct opencl *d = device;
	(void)at, (void)n, (void)shared;
	size_t all = (size_t)(blocks * threads), block = (size_t)threads;
	int32_t error = (d->svm ? d->clSetKernelArgSVMPointer
	                        : d->clSetKernelArgMemPointerINTEL)(kernel, 0, table);
	if (!error)
		error = d->recording
		            ? d->clCommandNDRangeKernelKHR(d->recording, NULL, NULL, kernel, 1,
		                                           NULL, &all, &block, 0, NULL, NULL, NULL)
		            : d->clEnqueueNDRangeKernel(d->queue, kernel, 1, NULL, &all, &block, 0,
		                                        NULL, NULL);
	return error ? failed(d, error, "start a kernel") : AMOS_DONE;
}

static int opencl_wait(void *device)
{
	struct opencl *d = device;
	int32_t error = d->clFinish(d->copies);
	if (!error)
		error = d->clFinish(d->queue);
	return error ? failed(d, error, "run the kernels") : AMOS_DONE;
}

// ---- copies ---------------------------------------------------------------------------

static int32_t copy(const struct opencl *d, void *queue, void *to, const void *from, int64_t bytes)
{
	return (d->svm ? d->clEnqueueSVMMemcpy
	               : d->clEnqueueMemcpyINTEL)(queue, 0, to, from, (size_t)bytes, 0, NULL, NULL);
}

static int opencl_copy(void *device, enum amos_way way, void *to, const void *from, int64_t bytes)
{
	(void)way;
	struct opencl *d = device;
	int32_t error = copy(d, d->queue, to, from, bytes);
	if (!error)
		error = d->clFinish(d->queue);
	return error ? failed(d, error, "copy memory") : AMOS_DONE;
}

static int opencl_upload(void *device, void *to, const void *from, int64_t bytes)
{
	struct opencl *d = device;
	int32_t error = copy(d, d->copies, to, from, bytes);
	return error ? failed(d, error, "copy a batch") : AMOS_DONE;
}

static int opencl_join(void *device)
{
	struct opencl *d = device;
	void *uploaded = NULL;
	int32_t error = d->clEnqueueMarkerWithWaitList(d->copies, 0, NULL, &uploaded);
	if (!error)
		error = d->clFlush(d->copies);
	if (!error)
		error = d->clEnqueueBarrierWithWaitList(d->queue, 1, &uploaded, NULL);
	if (uploaded)
		d->clReleaseEvent(uploaded);
	return error ? failed(d, error, "wait for a batch") : AMOS_DONE;
}

static int opencl_download(void *device, void *to, const void *from, int64_t bytes)
{
	struct opencl *d = device;
	int32_t error = copy(d, d->queue, to, from, bytes);
	return error ? failed(d, error, "copy results") : AMOS_DONE;
}

static int opencl_mark(void *device, int64_t mark)
{
	struct opencl *d = device;
	if (d->marks[mark])
		d->clReleaseEvent(d->marks[mark]);
	d->marks[mark] = NULL;
	int32_t error = d->clEnqueueMarkerWithWaitList(d->queue, 0, NULL, &d->marks[mark]);
	if (!error)
		error = d->clFlush(d->queue);
	return error ? failed(d, error, "start the kernels") : AMOS_DONE;
}

static int opencl_reach(void *device, int64_t mark)
{
	struct opencl *d = device;
	int32_t error = d->clWaitForEvents(1, &d->marks[mark]);
	return error ? failed(d, error, "run the kernels") : AMOS_DONE;
}

// ---- graphs: command buffers ----------------------------------------------------------

static int opencl_record(void *device)
{
	struct opencl *d = device;
	int32_t error = 0;
	d->recording = d->clCreateCommandBufferKHR(1, &d->queue, NULL, &error);
	return d->recording ? AMOS_DONE : failed(d, error, "record the kernels");
}

static int opencl_keep(void *device, void **graph)
{
	struct opencl *d = device;
	void *recorded = d->recording;
	d->recording = NULL;
	int32_t error = graph ? d->clFinalizeCommandBufferKHR(recorded) : 0;
	if (error || !graph)
		d->clReleaseCommandBufferKHR(recorded);
	else
		*graph = recorded;
	return error ? failed(d, error, "make a command buffer of the kernels") : AMOS_DONE;
}

static int opencl_replay(void *device, void *graph)
{
	struct opencl *d = device;
	int32_t error = d->clEnqueueCommandBufferKHR(0, NULL, graph, 0, NULL, NULL);
	return error ? failed(d, error, "start the kernels") : AMOS_DONE;
}

static void opencl_forget(void *device, void *graph)
{
	((struct opencl *)device)->clReleaseCommandBufferKHR(graph);
}

static const char *opencl_lacks_graphs(void *device)
{
	return ((struct opencl *)device)->graphs ? NULL : "command buffers (cl_khr_command_buffer)";
}

const struct amos_driver amos_opencl = {.name = "opencl",
                                        .open = opencl_open,
                                        .close = opencl_close,
                                        .describe = opencl_describe,
                                        .room = opencl_room,
                                        .room_word = "in all",
                                        .largest = opencl_largest,
                                        .largest_word = "CL_DEVICE_MAX_MEM_ALLOC_SIZE",
                                        .allocate = opencl_allocate,
                                        .release = opencl_release,
                                        .build = opencl_build,
                                        .find = opencl_find,
                                        .launch = opencl_launch,
                                        .wait = opencl_wait,
                                        .copy = opencl_copy,
                                        .clear = opencl_clear,
                                        .upload = opencl_upload,
                                        .download = opencl_download,
                                        .join = opencl_join,
                                        .mark = opencl_mark,
                                        .reach = opencl_reach,
                                        .record = opencl_record,
                                        .keep = opencl_keep,
                                        .replay = opencl_replay,
                                        .forget = opencl_forget,
                                        .lacks_graphs = opencl_lacks_graphs};
