// opencl_shim.c: stands for libOpenCL.so.1 and calls the system's, but its devices lack what
// $OPENCL_HIDE names: words of their lists of extensions, svm, or fences, with blanks between them.
// $OPENCL_MEMORY: bytes of memory that they have; $OPENCL_BLOCK: of a block of it, at most, unless
// $OPENCL_ANY_SIZE is set and a block has the flag of Intel's GPUs for that.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEVICE_LARGEST_BLOCK = 0x1010,
	DEVICE_MEMORY_BYTES = 0x101F,
	DEVICE_EXTENSIONS = 0x1030,
	DEVICE_SVM = 0x1053,
	DEVICE_FENCES = 0x1064,
	MEMORY_FLAGS = 0x1101,
	MEMORY_ANY_SIZE = 1 << 23
};

// Each function jumps to the one of the system; those that are ours have another name.
#define clGetDeviceInfo                          get_device_info
#define clSVMAlloc                               svm_alloc
#define clGetExtensionFunctionAddressForPlatform get_function
#define F(result, function, arguments)           JUMP(function)
#define JUMP(function)                                                                             \
	static void *system_##function __attribute__((used));                                      \
	__asm__(".text\n.globl " #function "\n" #function ": jmp *system_" #function "(%rip)");
#include "opencl.def"
#undef clGetDeviceInfo
#undef clSVMAlloc
#undef clGetExtensionFunctionAddressForPlatform

static size_t number_in(const char *variable, size_t otherwise)
{
	const char *text = getenv(variable);
	return text ? strtoull(text, NULL, 10) : otherwise;
}

int32_t clGetDeviceInfo(void *device, uint32_t what, size_t room, void *value, size_t *bytes)
{
	int32_t (*get)(void *, uint32_t, size_t, void *, size_t *);
	*(void **)&get = system_get_device_info;
	int32_t error = get(device, what, room, value, bytes);
	char hide[256], *rest, *found;
	snprintf(hide, sizeof hide, "%s", getenv("OPENCL_HIDE") ? getenv("OPENCL_HIDE") : "");
	if (!error && value && what == DEVICE_SVM && strstr(hide, "svm"))
		memset(value, 0, sizeof(uint64_t));
	if (!error && value && what == DEVICE_FENCES && strstr(hide, "fences"))
		memset(value, 0, sizeof(uint64_t));
	if (!error && value && what == DEVICE_MEMORY_BYTES)
		*(uint64_t *)value = number_in("OPENCL_MEMORY", *(uint64_t *)value);
	if (!error && value && what == DEVICE_LARGEST_BLOCK)
		*(uint64_t *)value = number_in("OPENCL_BLOCK", *(uint64_t *)value);
	if (error || !value || what != DEVICE_EXTENSIONS)
		return error;
	for (char *word = strtok_r(hide, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		while ((found = strstr(value, word)))
			*found = '-';
	return error;
}

// ---- blocks of memory -----------------------------------------------------------------

static void *(*host_alloc)(void *, const uint64_t *, size_t, uint32_t, int32_t *);
static void *(*device_alloc)(void *, void *, const uint64_t *, size_t, uint32_t, int32_t *);
static void *(*shared_alloc)(void *, void *, const uint64_t *, size_t, uint32_t, int32_t *);

static bool is_given(const uint64_t *with, size_t bytes)
{
	bool any = with && with[0] == MEMORY_FLAGS && with[1] == MEMORY_ANY_SIZE && !with[2];
	return bytes <= number_in("OPENCL_BLOCK", SIZE_MAX) || (any && getenv("OPENCL_ANY_SIZE"));
}

static void *block_of_host(void *context, const uint64_t *with, size_t bytes, uint32_t align,
                           int32_t *error)
{
	return is_given(with, bytes) ? host_alloc(context, NULL, bytes, align, error) : NULL;
}

static void *block_of_device(void *context, void *device, const uint64_t *with, size_t bytes,
                             uint32_t align, int32_t *error)
{
	return is_given(with, bytes) ? device_alloc(context, device, NULL, bytes, align, error)
	                             : NULL;
}

static void *block_of_both(void *context, void *device, const uint64_t *with, size_t bytes,
                           uint32_t align, int32_t *error)
{
	return is_given(with, bytes) ? shared_alloc(context, device, NULL, bytes, align, error)
	                             : NULL;
}

void *clSVMAlloc(void *context, uint64_t flags, size_t bytes, uint32_t align)
{
	void *(*allocate)(void *, uint64_t, size_t, uint32_t);
	*(void **)&allocate = system_svm_alloc;
	return is_given(NULL, bytes) ? allocate(context, flags, bytes, align) : NULL;
}

// Keeps the system's function in `own`, and gives ours.
static void *instead(void *found, void *own, void *ours)
{
	*(void **)own = found;
	return found ? ours : NULL;
}

void *clGetExtensionFunctionAddressForPlatform(void *platform, const char *name)
{
	void *(*find)(void *, const char *);
	*(void **)&find = system_get_function;
	void *found = find(platform, name);
	return !strcmp(name, "clHostMemAllocINTEL") ? instead(found, &host_alloc, block_of_host)
	       : !strcmp(name, "clDeviceMemAllocINTEL")
	           ? instead(found, &device_alloc, block_of_device)
	       : !strcmp(name, "clSharedMemAllocINTEL")
	           ? instead(found, &shared_alloc, block_of_both)
	           : found;
}

__attribute__((constructor)) static void find_functions(void)
{
	void *loaded = dlopen("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1", RTLD_NOW);
#define clGetDeviceInfo                          get_device_info
#define clSVMAlloc                               svm_alloc
#define clGetExtensionFunctionAddressForPlatform get_function

#define F(result, function, arguments) FIND(function)
#define FIND(function)                 system_##function = loaded ? dlsym(loaded, #function) : NULL;
#include "opencl.def"
#undef clGetDeviceInfo
#undef clSVMAlloc
#undef clGetExtensionFunctionAddressForPlatform
	if (!loaded)
		return;
	system_get_device_info = dlsym(loaded, "clGetDeviceInfo");
	system_svm_alloc = dlsym(loaded, "clSVMAlloc");
	system_get_function = dlsym(loaded, "clGetExtensionFunctionAddressForPlatform");
}
