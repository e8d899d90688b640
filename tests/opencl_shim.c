// opencl_shim.c: stands for libOpenCL.so.1 and calls the system's, but its devices lack what
// $OPENCL_HIDE names: words of their lists of extensions, svm, or fences, with blanks between them.
// $OPENCL_MEMORY: bytes of memory that they have.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEVICE_MEMORY_BYTES = 0x101F,
	DEVICE_EXTENSIONS = 0x1030,
	DEVICE_SVM = 0x1053,
	DEVICE_FENCES = 0x1064
};

// Each function jumps to the one of the system; clGetDeviceInfo() has another name, and is ours.
#define clGetDeviceInfo                get_device_info
#define F(result, function, arguments) JUMP(function)
#define JUMP(function)                                                                             \
	static void *system_##function __attribute__((used));                                      \
	__asm__(".text\n.globl " #function "\n" #function ": jmp *system_" #function "(%rip)");
#include "opencl.def"
#undef clGetDeviceInfo

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
	if (!error && value && what == DEVICE_MEMORY_BYTES && getenv("OPENCL_MEMORY"))
		*(uint64_t *)value = strtoull(getenv("OPENCL_MEMORY"), NULL, 10);
	if (error || !value || what != DEVICE_EXTENSIONS)
		return error;
	for (char *word = strtok_r(hide, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		while ((found = strstr(value, word)))
			*found = '-';
	return error;
}

__attribute__((constructor)) static void find_functions(void)
{
	void *loaded = dlopen("/usr/lib/x86_64-linux-gnu/libOpenCL.so.1", RTLD_NOW);
#define clGetDeviceInfo                get_device_info
#define F(result, function, arguments) FIND(function)
#define FIND(function)                 system_##function = loaded ? dlsym(loaded, #function) : NULL;
#include "opencl.def"
#undef clGetDeviceInfo
	if (loaded)
		system_get_device_info = dlsym(loaded, "clGetDeviceInfo");
}
