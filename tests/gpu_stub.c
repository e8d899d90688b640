// gpu_stub.c: stands for libcuda.so.1 or, with -DHIP, libamdhip64.so: records and checks calls.
// $GPU_CALLS: file of the calls, a line each; $GPU_FAIL: number of the call that fails. Objects
// must be live and of the current context; kernels must be in the code, PTX with as many threads as
// it says. Work is done as late as a wait allows: until then, what it uses must be live and stay as
// it is, other streams' work that it needs must be waited for, and the host may not touch managed
// memory. It may never touch memory of the device. Neither is zero at first. Kernels compute
// nothing: the n-th copy to pinned memory of the host brings the float n every 64 bytes, but NaN if
// n is $GPU_NAN. $GPU_SM: its architecture, of a GPU of NVIDIA (86), or its number in code objects,
// of one of AMD (any); $GPU_CODE: file of the architecture of the code that was loaded; $GPU_FREE:
// bytes of its memory that are free. The last line tells what was not released.
#include <elf.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef HIP
#define N(cuda, hip) hip
#else
#define N(cuda, hip) cuda
#endif

enum {
	MOST = 4096,
	TIMED = 2, // bytes of an event that has a time
	FAILURE = 999,
	MEMORY = 2,
	OTHER_GPU = 209,
	MANAGED = 'b',
	UNKNOWN = 0xA5, // every byte of memory at first
	HOST = 'h',
	DEVICE = 'd',
	MODULE = 'm',
	KERNEL = 'k',
	STREAM = 's',
	EVENT = 'e',
	GRAPH = 'g',
	EXECUTABLE = 'x'
};

static struct object {
	char kind, *at, *text; // text: of a module; of a kernel from its name on
	size_t bytes;
	const void *stream; // of an event: it is done with the work of this
	int number;         // up to this number; of a kernel: bytes of its argument, 0: an address
	int shared;         // of a kernel: bytes that launches may give it
} objects[MOST];

static struct work { // that is not done
	enum { LAUNCH, UPLOAD, DOWNLOAD, MOVE, FILL, PREFETCH, WAIT } kind;
	const void *stream, *other; // other: of a wait, which is for work of this
	int number, until;          // until: of a wait, for work up to this number
	char *to;
	const char *from; // of a launch: its table
	size_t bytes;
	unsigned sum;           // of `from`
	const void *executable; // that has started it; NULL: none
} queue[MOST];

struct graph {
	int count;
	struct work launches[];
};

static const void *capturing; // the stream whose launches are recorded; NULL: none
static struct graph *captured;
static int nobjects, nqueue, calls, works, downloads, depth, retained;
static FILE *record;

static void wrong(const char *what)
{
	fprintf(stderr, "gpu_stub: %s\n", what);
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
	const char *fail = getenv("GPU_FAIL");
	if (!record) {
		record = fopen(getenv("GPU_CALLS"), "w");
		atexit(finish);
	}
	fprintf(record, "%s\n", name);
	if (capturing && !strstr(name, "LaunchKernel"))
		wrong("something else than a launch is recorded");
	return ++calls == (fail ? atoi(fail) : 0);
}
#define CALL(error)                                                                                \
	if (fails(__func__))                                                                       \
	return error

static struct object *is_live(char kind, const void *at)
{
	for (int i = nobjects; i-- > 0;)
		if (objects[i].kind == kind && (char *)at >= objects[i].at &&
		    (char *)at < objects[i].at + objects[i].bytes && objects[i].at)
			return &objects[i];
	return NULL;
}

static struct object *find(char kind, const void *at)
{
	struct object *o = is_live(kind, at);
	if (!o)
		wrong("an object that is not live");
	return o;
}

static void *make(char kind, size_t bytes)
{
	if (!depth)
		wrong("no current context");
	int maps = kind == MANAGED || kind == DEVICE;
	char *at =
	    maps ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
	         : calloc(1, bytes);
	if (maps)
		memset(at, UNKNOWN, bytes);
	objects[nobjects] = (struct object){.kind = kind, .at = at, .bytes = bytes};
	return objects[nobjects++].at;
}

// Lets the host use memory of a kind, or not.
static void open_memory(char kind, int open)
{
	for (int i = 0; i < nobjects; i++)
		if (objects[i].at && objects[i].kind == kind)
			mprotect(objects[i].at, objects[i].bytes,
			         open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

// Lets the stub use all memory, until the work that is left takes it back.
static void open_all(void)
{
	open_memory(MANAGED, 1);
	open_memory(DEVICE, 1);
}

static void close_again(void)
{
	open_memory(MANAGED, !nqueue);
	open_memory(DEVICE, 0);
}

static unsigned sum_of(const char *at, size_t bytes)
{
	unsigned sum = 1;
	for (size_t i = 0; i < bytes; i++)
		sum = sum * 31 + (unsigned char)at[i];
	return sum;
}

static void finish_work(const struct work *w)
{
	if (w->kind < MOVE && sum_of(w->from, w->bytes) != w->sum)
		wrong("what a launch or copy reads has changed before it was done");
	if (w->kind == UPLOAD || w->kind == MOVE)
		memcpy(w->to, w->from, w->bytes);
	if (w->kind == FILL)
		memset(w->to, 0, w->bytes);
	downloads += w->kind == DOWNLOAD;
	const char *none = getenv("GPU_NAN");
	float number = none && downloads == atoi(none) ? NAN : (float)downloads;
	for (size_t i = 0; w->kind == DOWNLOAD && i < w->bytes; i += 64)
		memcpy(w->to + i, &number, sizeof number);
}

// Does the work of a stream up to a number, in order, and before it what that waits for.
static void do_work(const void *stream, int number)
{
	for (int i = 0; i < nqueue; i++) {
		struct work w = queue[i];
		if (w.stream != stream || w.number > number)
			continue;
		memmove(&queue[i], &queue[i + 1], sizeof w * (size_t)(--nqueue - i));
		if (w.kind == WAIT)
			do_work(w.other, w.until);
		finish_work(&w);
		i = -1; // the queue may have moved
	}
}

static void complete(const void *stream, int number)
{
	open_all();
	do_work(stream, number);
	close_again();
}

static struct work *add_work(int kind, const void *stream)
{
	find(STREAM, stream);
	if (capturing == stream) {
		captured =
		    realloc(captured, sizeof *captured + sizeof *queue * (size_t)++captured->count);
		return &captured->launches[captured->count - 1];
	}
	if (nqueue == MOST)
		wrong("too much work without a wait");
	if (!nqueue)
		open_memory(MANAGED, 0);
	queue[nqueue] = (struct work){.kind = kind, .stream = stream, .number = ++works};
	return &queue[nqueue++];
}

// Fails unless a stream waits for all uploads so far.
static void need_uploads(const void *stream)
{
	for (int i = 0; i < nqueue; i++) {
		int waits = queue[i].kind != UPLOAD || queue[i].stream == stream;
		for (int k = 0; k < nqueue; k++)
			waits |= queue[k].kind == WAIT && queue[k].stream == stream &&
			         queue[k].other == queue[i].stream &&
			         queue[k].until >= queue[i].number;
		if (!waits)
			wrong("a launch that does not wait for an upload");
	}
}

// Fails if work that is not done uses the object.
static void need_rest(const struct object *o)
{
	for (int i = 0; i < nqueue; i++)
		if ((queue[i].from >= o->at && queue[i].from < o->at + o->bytes) ||
		    (queue[i].to >= o->at && queue[i].to < o->at + o->bytes) ||
		    queue[i].stream == o->at || queue[i].executable == o->at ||
		    (o->kind == MODULE && queue[i].kind == LAUNCH))
			wrong("a release of what is in use");
}

static int drop(char kind, const void *at)
{
	struct object *o = find(kind, at);
	if (o->at != at || !depth)
		wrong("a release of something else");
	need_rest(o);
	if (kind == MANAGED || kind == DEVICE)
		munmap(o->at, o->bytes);
	else
		free(o->at);
	o->at = NULL;
	return 0;
}

int N(cuInit, hipInit)(unsigned flags)
{
	CALL(FAILURE);
	return (int)flags;
}

int N(cuGetErrorName, hipDrvGetErrorName)(int error, const char **name)
{
	*name = error == MEMORY ? "ERROR_OUT_OF_MEMORY" : "ERROR_UNKNOWN";
	return 0;
}

int N(cuDeviceGetCount, hipGetDeviceCount)(int *count)
{
	CALL(FAILURE);
	*count = getenv("GPU_NONE") ? 0 : 1;
	return 0;
}

int N(cuDeviceGet, hipDeviceGet)(int *device, int number)
{
	CALL(FAILURE);
	*device = number;
	return 0;
}

int N(cuDeviceGetName, hipDeviceGetName)(char *name, int room, int device)
{
	CALL(FAILURE);
	snprintf(name, (size_t)room, "GPU %d", device);
	return 0;
}

int N(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int which, int device)
{
	int sm = getenv("GPU_SM") ? atoi(getenv("GPU_SM")) : 86;
	*value = which == 75   ? sm / 10
	         : which == 76 ? sm % 10
	                       : (which == N(83, 24) || which == N(89, 9)) && !device;
	return 0;
}

int N(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain)(void **context, int device)
{
	CALL(MEMORY);
	*context = &depth + device;
	retained++;
	return 0;
}

int N(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease)(int device)
{
	fails(__func__);
	retained--;
	return device;
}

int N(cuCtxPushCurrent_v2, hipCtxPushCurrent)(void *context)
{
	if (context != &depth)
		wrong("another context");
	depth++;
	return 0;
}

int N(cuCtxPopCurrent_v2, hipCtxPopCurrent)(void **context)
{
	if (!depth--)
		wrong("no context to leave");
	*context = &depth;
	return 0;
}

int N(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags)
{
	CALL(MEMORY);
	*stream = make(STREAM, flags);
	return 0;
}

int N(cuStreamDestroy_v2, hipStreamDestroy)(void *stream)
{
	fails(__func__);
	return drop(STREAM, stream);
}

int N(cuStreamSynchronize, hipStreamSynchronize)(void *stream)
{
	CALL(FAILURE);
	find(STREAM, stream);
	complete(stream, works);
	return 0;
}

int N(cuStreamWaitEvent, hipStreamWaitEvent)(void *stream, void *event, unsigned flags)
{
	CALL(FAILURE);
	const struct object *e = find(EVENT, event);
	struct work *w = add_work(WAIT, stream);
	w->other = e->stream;
	w->until = e->number;
	if (flags || !e->stream)
		wrong("a wait for an event that is not recorded");
	return 0;
}

int N(cuEventCreate, hipEventCreateWithFlags)(void **event, unsigned flags)
{
	CALL(MEMORY);
	if (flags && flags != 2)
		wrong("an event of another kind");
	*event = make(EVENT, flags ? 1 : TIMED);
	return 0;
}

int N(cuEventDestroy_v2, hipEventDestroy)(void *event)
{
	fails(__func__);
	return drop(EVENT, event);
}

int N(cuEventRecord, hipEventRecord)(void *event, void *stream)
{
	CALL(FAILURE);
	find(STREAM, stream);
	struct object *e = find(EVENT, event);
	e->stream = stream;
	e->number = works;
	return 0;
}

int N(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to)
{
	CALL(FAILURE);
	const struct object *a = find(EVENT, from), *b = find(EVENT, to);
	if (!a->stream || !b->stream || a->bytes != TIMED || b->bytes != TIMED)
		wrong("a time of an event that is not recorded, or has none");
	*ms = 1;
	return 0;
}

int N(cuEventSynchronize, hipEventSynchronize)(void *event)
{
	CALL(FAILURE);
	const struct object *e = find(EVENT, event);
	if (!e->stream)
		wrong("a wait for an event that is not recorded");
	complete(e->stream, e->number);
	return 0;
}

// Fails unless the bytes lie in one block of the device or, with HOST, of pinned memory.
static void need_block(char kind, const char *at, size_t bytes)
{
	const struct object *o = is_live(MANAGED, at);
	o = kind == HOST || !o ? find(kind, at) : o;
	if (!depth || !bytes || at + bytes > o->at + o->bytes)
		wrong("a use of nothing, or outside of a block");
}

static struct work *add_copy(int kind, char *to, const char *from, size_t bytes, void *stream)
{
	struct work *w = add_work(kind, stream);
	w->to = to;
	w->from = from;
	w->bytes = bytes;
	return w;
}

// Copies between memory of the host and of the device: pinned memory later, and other memory at
// once, after the work of the stream.
static int copy(int kind, char *to, const char *from, size_t bytes, void *stream)
{
	const char *host = kind == UPLOAD ? from : to;
	need_block(DEVICE, kind == UPLOAD ? to : from, bytes);
	if (is_live(HOST, host)) {
		need_block(HOST, host, bytes);
		struct work *w = add_copy(kind, to, from, bytes, stream);
		open_all();
		w->sum = sum_of(from, bytes);
		close_again();
		return 0;
	}
	need_uploads(stream);
	add_copy(MOVE, to, from, bytes, stream);
	complete(stream, works);
	return 0;
}

int N(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(uint64_t to, const void *from, size_t bytes,
                                                void *stream)
{
	CALL(FAILURE);
	return copy(UPLOAD, (char *)(uintptr_t)to, from, bytes, stream);
}

int N(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void *to, uint64_t from, size_t bytes, void *stream)
{
	CALL(FAILURE);
	return copy(DOWNLOAD, to, (const char *)(uintptr_t)from, bytes, stream);
}

int N(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t bytes,
                                                void *stream)
{
	CALL(FAILURE);
	need_block(DEVICE, (char *)(uintptr_t)to, bytes);
	need_block(DEVICE, (char *)(uintptr_t)from, bytes);
	need_uploads(stream);
	add_copy(MOVE, (char *)(uintptr_t)to, (char *)(uintptr_t)from, bytes, stream);
	return 0;
}

int N(cuMemsetD8Async, hipMemsetD8Async)(uint64_t to, unsigned char value, size_t bytes,
                                         void *stream)
{
	CALL(FAILURE);
	need_block(DEVICE, (char *)(uintptr_t)to, bytes);
	if (value)
		wrong("memory that is set to something else than 0");
	add_copy(FILL, (char *)(uintptr_t)to, NULL, bytes, stream);
	return 0;
}

int N(cuMemPrefetchAsync, hipMemPrefetchAsync)(uint64_t address, size_t bytes, int device,
                                               void *stream)
{
	CALL(FAILURE);
	char *at = (char *)(uintptr_t)address;
	need_block(MANAGED, at, bytes);
	if (device)
		wrong("memory that moves to another device");
	add_copy(PREFETCH, at, NULL, bytes, stream);
	return 0;
}

int N(cuMemGetInfo_v2, hipMemGetInfo)(size_t *left, size_t *all)
{
	CALL(FAILURE);
	if (!depth)
		wrong("no current context");
	*all = (size_t)1 << 40;
	*left = getenv("GPU_FREE") ? (size_t)atoll(getenv("GPU_FREE")) : *all;
	return 0;
}

int N(cuMemAlloc_v2, hipMalloc)(uint64_t *address, size_t bytes)
{
	CALL(MEMORY);
	if (!bytes)
		wrong("a block of nothing");
	*address = (uintptr_t)make(DEVICE, bytes);
	open_memory(DEVICE, 0);
	return 0;
}

int N(cuMemAllocManaged, hipMallocManaged)(uint64_t *address, size_t bytes, unsigned flags)
{
	CALL(MEMORY);
	if (flags != 1 || !bytes)
		wrong("a block of nothing, or of one stream");
	*address = (uintptr_t)make(MANAGED, bytes);
	return 0;
}

int N(cuMemFree_v2, hipFree)(uint64_t address)
{
	fails(__func__);
	const void *at = (void *)(uintptr_t)address;
	return drop(is_live(MANAGED, at) ? MANAGED : DEVICE, at);
}

int N(cuMemHostAlloc, hipHostMalloc)(void **address, size_t bytes, unsigned flags)
{
	CALL(MEMORY);
	*address = make(HOST, flags ? bytes : 0);
	return 0;
}

int N(cuMemFreeHost, hipHostFree)(void *address)
{
	fails(__func__);
	return drop(HOST, address);
}

static void note_code(const char *name, size_t length)
{
	FILE *to = getenv("GPU_CODE") ? fopen(getenv("GPU_CODE"), "w") : NULL;
	if (!to)
		return;
	fprintf(to, "%.*s\n", (int)length, name);
	fclose(to);
}

#ifdef HIP
static size_t size_of(const char *code)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)code;
	return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize; // the sections' headers are last
}

static char *copy_code(const char *code)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)code;
	if (memcmp(code, ELFMAG, SELFMAG) || h->e_type != ET_DYN || h->e_machine != EM_AMDGPU)
		wrong("a module that is no code object");
	char *copy = malloc(size_of(code));
	return memcpy(copy, code, size_of(code));
}

// Notes which GPU the code is for. True if that is another one.
static int other_gpu(const char *code)
{
	unsigned gpu = ((const Elf64_Ehdr *)code)->e_flags & 0xFF;
	const char *own = getenv("GPU_SM");
	char name[16];
	snprintf(name, sizeof name, "%u", gpu);
	if (own && (unsigned)atoi(own) != gpu)
		return 1;
	note_code(name, strlen(name));
	return 0;
}

static int argument_bytes(const char *code, const char *name)
{
	(void)code, (void)name;
	return 0;
}

// Returns NULL unless there is a descriptor of the kernel, and kernels say that they have 256
// threads.
static const char *find_kernel(const char *code, const char *name)
{
	static const char threads[] = ".max_flat_workgroup_size\xcd\x01";
	const Elf64_Shdr *s = (const Elf64_Shdr *)(code + ((const Elf64_Ehdr *)code)->e_shoff);
	char descriptor[256];
	snprintf(descriptor, sizeof descriptor, "%s.kd", name);
	while (s->sh_type != SHT_DYNSYM)
		s++;
	const Elf64_Sym *symbol = (const Elf64_Sym *)(code + s->sh_offset);
	const char *names =
	    code + ((const Elf64_Shdr *)(code + ((const Elf64_Ehdr *)code)->e_shoff))[s->sh_link]
	               .sh_offset;
	for (size_t i = 0; i < s->sh_size / sizeof *symbol; i++)
		if (!strcmp(names + symbol[i].st_name, descriptor))
			return memmem(code, size_of(code), threads, sizeof threads);
	return NULL;
}

static int takes_memory(const char *kernel)
{
	return !kernel;
}
#else
// Notes which GPU the code is for; the caller has checked that it runs here.
static int other_gpu(const char *code)
{
	const char *target = strstr(code, ".target ");
	if (target)
		note_code(target + 8, strcspn(target + 8, "\n,"));
	return 0;
}

static char *copy_code(const char *code)
{
	if (!strstr(code, ".version 8.0"))
		wrong("a module that is no PTX");
	return strdup(code);
}

// Returns the bytes of a table that is a kernel's argument, or 0.
static int argument_bytes(const char *code, const char *name)
{
	char entry[256];
	snprintf(entry, sizeof entry, ".param .align 8 .b8 %s_param_0[", name);
	const char *text = strstr(code, entry);
	return text ? atoi(text + strlen(entry)) : 0;
}

static const char *find_kernel(const char *code, const char *name)
{
	char entry[256];
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	const char *text = strstr(code, entry);
	return text && !strncmp(strchr(text, ')'), ")\n.maxntid 256, 1, 1\n", 20) ? text : NULL;
}

// True if the kernel uses memory that its launch gives.
static int takes_memory(const char *kernel)
{
	const char *end = strstr(kernel + 1, ".visible .entry");
	const char *use = strstr(kernel, "amos_launch_memory");
	return use && (!end || use < end);
}
#endif

int N(cuModuleLoadDataEx, hipModuleLoadDataEx)(void **module, const void *code, unsigned n,
                                               int *option, void **value)
{
	CALL(FAILURE);
	if (other_gpu(code))
		return OTHER_GPU;
	if (n != 2 || option[0] != 5 || option[1] != 6 || !value[1])
		wrong("options of a module");
	*module = make(MODULE, 1);
	find(MODULE, *module)->text = copy_code(code);
	return 0;
}

int N(cuModuleUnload, hipModuleUnload)(void *module)
{
	fails(__func__);
	free(find(MODULE, module)->text);
	return drop(MODULE, module);
}

int N(cuModuleGetFunction, hipModuleGetFunction)(void **kernel, void *module, const char *name)
{
	CALL(FAILURE);
	const char *text = find_kernel(find(MODULE, module)->text, name);
	if (!text)
		wrong("a kernel that is not in the module, or says not its threads");
	*kernel = make(KERNEL, 1);
	find(KERNEL, *kernel)->number = argument_bytes(find(MODULE, module)->text, name);
	find(KERNEL, *kernel)->text = (char *)text;
	return 0;
}

int N(cuFuncSetAttribute, hipFuncSetAttribute)(void *kernel, int which, int value)
{
	CALL(FAILURE);
	find(KERNEL, kernel)->shared = value;
	if (which != 8 || value <= 0 || value > 227 << 10)
		wrong("another attribute, or more memory than a block has");
	return 0;
}

int N(cuFuncGetAttribute, hipFuncGetAttribute)(int *value, int which, void *kernel)
{
	CALL(FAILURE);
	find(KERNEL, kernel);
	*value = which ? 0 : 256;
	return 0;
}

int N(cuLaunchKernel, hipModuleLaunchKernel)(void *kernel, unsigned x, unsigned y, unsigned z,
                                             unsigned threads, unsigned ty, unsigned tz,
                                             unsigned shared, void *stream, void **argument,
                                             void **extra)
{
	CALL(FAILURE);
	const struct object *k = find(KERNEL, kernel);
	find(STREAM, stream);
	size_t own = (size_t)find(KERNEL, kernel)->number; // bytes of its argument
	const uint64_t *table = own ? argument[0] : *(const uint64_t *const *)argument[0];
	bool far = !own && is_live(DEVICE, table); // where the host cannot look
	for (size_t i = 0; !far && i < (own ? own / sizeof *table : 1); i++)
		if (!is_live(MANAGED, (void *)(uintptr_t)table[i]) &&
		    !is_live(DEVICE, (void *)(uintptr_t)table[i]))
			wrong("an operand that is not memory of the device");
	if (!capturing)
		need_uploads(stream);
	if (!own)
		find(far ? DEVICE : HOST, table);
	struct work *w = add_work(LAUNCH, stream);
	w->from = own ? NULL : (const char *)table;
	w->bytes = own || far ? 0 : sizeof *table;
	w->sum = sum_of(w->from, w->bytes);
	if (!x || y != 1 || z != 1 || threads != 256 || ty != 1 || tz != 1 || extra)
		wrong("a launch of another shape");
	if ((int)shared != k->shared || takes_memory(k->text) != (shared > 0))
		wrong("a launch with other shared memory than its code takes");
	return 0;
}

int N(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *stream, int mode)
{
	CALL(FAILURE);
	if (mode != 1)
		wrong("a capture that minds other threads");
	capturing = find(STREAM, stream)->at;
	captured = calloc(1, sizeof *captured);
	return 0;
}

int N(cuStreamEndCapture, hipStreamEndCapture)(void *stream, void **graph)
{
	if (capturing != stream)
		wrong("the end of a capture that is none");
	capturing = NULL;
	size_t bytes = sizeof *captured + sizeof *queue * (size_t)captured->count;
	int failed = fails(__func__);
	*graph = failed ? NULL : memcpy(make(GRAPH, bytes), captured, bytes);
	free(captured);
	return failed ? FAILURE : 0;
}

int N(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **executable, void *graph,
                                                                 unsigned long long flags)
{
	CALL(FAILURE);
	const struct object *o = find(GRAPH, graph);
	if (flags || !((struct graph *)graph)->count)
		wrong("a graph of nothing, or with flags");
	*executable = memcpy(make(EXECUTABLE, o->bytes), graph, o->bytes);
	return 0;
}

int N(cuGraphDestroy, hipGraphDestroy)(void *graph)
{
	fails(__func__);
	return drop(GRAPH, graph);
}

int N(cuGraphExecDestroy, hipGraphExecDestroy)(void *executable)
{
	fails(__func__);
	return drop(EXECUTABLE, executable);
}

int N(cuGraphLaunch, hipGraphLaunch)(void *executable, void *stream)
{
	CALL(FAILURE);
	const struct graph *g = (const struct graph *)find(EXECUTABLE, executable)->at;
	need_uploads(stream);
	for (int i = 0; i < nqueue; i++)
		if (queue[i].executable == executable)
			wrong("a graph that is started while it runs");
	for (int i = 0; i < g->count; i++) {
		struct work *w = add_work(LAUNCH, stream);
		if (g->launches[i].from && !is_live(HOST, g->launches[i].from))
			find(DEVICE, g->launches[i].from);
		w->from = g->launches[i].from;
		w->bytes = g->launches[i].bytes;
		w->sum = g->launches[i].sum;
		w->executable = executable;
	}
	return 0;
}
