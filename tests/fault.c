// fault.c: makes system functions fail in a program, as a library for LD_PRELOAD, from main on.
// FAULT=CLASS:N fails the Nth call of a class of fault.def and all later ones, FAULT=CLASS:N:once
// only the Nth; N = 0: none, and places that call are noted. FAULT_COUNTS names a file that gets
// struct fault_counts.
//
// Allocations, threads and processes are wrapped by name. System calls are trapped by a filter
// (seccomp), so that calls inside libc, by stdio and pthread_create, are caught too. Only calls
// from this process's libc are trapped; programs it executes have their libc at another address.
#include "fault.h"
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "fault.c knows the system calls of x86-64 alone"
#endif

static const struct class
{
	const char *name;
	int error;
} classes[] = {
#define CLASS(name, error, says) {#name, error},
#define CALL(...)
#include "fault.def"
#undef CLASS
#undef CALL
};

static const struct call {
	int class, number;
} calls[] = {
#define CLASS(...)
#define CALL(class, name) {FAULT_##class, SYS_##name},
#include "fault.def"
#undef CLASS
#undef CALL
};

enum { CALLS = sizeof calls / sizeof *calls };

static struct fault_counts *counts;
static int failing = -1; // class, or -1
static long nth;
static bool once;
static pid_t owner; // 0 before main

enum {
	OWN = 2,      // frames: of note_place() and the function that stands in place of another
	OF_SIGNAL = 3 // more: of the signal and of the function in libc
};

// Notes call n if it is the first from its place. Where code is loaded differs by whole pages.
static void note_place(int class, long n, int skipped)
{
	enum { CALLERS = 4, MOST = OWN + OF_SIGNAL + CALLERS, PAGE = 4096 };
	static _Thread_local bool within; // a backtrace may allocate
	static int taken;
	void *at[MOST];
	uint64_t hash = 14695981039346656037u;
	if (within)
		return;
	within = true;
	int frames = backtrace(at, skipped + CALLERS);
	for (int k = skipped; k < frames; k++)
		hash = (hash ^ (uintptr_t)at[k] % PAGE) * 1099511628211u;
	struct fault_place *all = counts->place[class], *p = all + hash % FAULT_PLACES;
	while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE))
		;
	for (int k = 0; p->hash && p->hash != hash && k < FAULT_PLACES; k++)
		p = p + 1 == all + FAULT_PLACES ? all : p + 1;
	if (!p->hash)
		*p = (struct fault_place){hash, n};
	__atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
	within = false;
}

static inline __attribute__((always_inline)) bool fails(int class, int skipped)
{
	if (!owner || getpid() != owner)
		return false;
	long n = __atomic_add_fetch(&counts->calls[class], 1, __ATOMIC_RELAXED);
	if (!nth)
		note_place(class, n, skipped);
	if (class != failing || !nth || n < nth || (once && n > nth))
		return false;
	__atomic_add_fetch(&counts->failed, 1, __ATOMIC_RELAXED);
	return true;
}

// ---- by name --------------------------------------------------------------------------

// A program's own malloc calls __libc_malloc, which is wrapped here; the next one is libc's malloc.
#define WRAP(class, type, none, name, next, ...)                                                   \
	type name(__VA_ARGS__)                                                                     \
	{                                                                                          \
		static type (*real)(__VA_ARGS__);                                                  \
		if (!real)                                                                         \
			real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #next);                      \
		if (fails(FAULT_##class, OWN)) {                                                   \
			errno = classes[FAULT_##class].error;                                      \
			return none;                                                               \
		}                                                                                  \
		return real ARGUMENTS;                                                             \
	}

#define ARGUMENTS (bytes)
WRAP(memory, void *, NULL, malloc, malloc, size_t bytes)
WRAP(memory, void *, NULL, __libc_malloc, malloc, size_t bytes)
#undef ARGUMENTS
#define ARGUMENTS (count, bytes)
WRAP(memory, void *, NULL, calloc, calloc, size_t count, size_t bytes)
WRAP(memory, void *, NULL, __libc_calloc, calloc, size_t count, size_t bytes)
WRAP(memory, void *, NULL, memalign, memalign, size_t count, size_t bytes)
WRAP(memory, void *, NULL, __libc_memalign, memalign, size_t count, size_t bytes)
WRAP(memory, void *, NULL, aligned_alloc, aligned_alloc, size_t count, size_t bytes)
#undef ARGUMENTS
#define ARGUMENTS (block, bytes)
WRAP(memory, void *, NULL, realloc, realloc, void *block, size_t bytes)
WRAP(memory, void *, NULL, __libc_realloc, realloc, void *block, size_t bytes)
#undef ARGUMENTS
#define ARGUMENTS (to, align, bytes)
WRAP(memory, int, ENOMEM, posix_memalign, posix_memalign, void **to, size_t align, size_t bytes)
#undef ARGUMENTS
#define ARGUMENTS (to, about, run, with)
WRAP(thread, int, EAGAIN, pthread_create, pthread_create, pthread_t *to,
     const pthread_attr_t *about, void *(*run)(void *), void *with)
#undef ARGUMENTS
#define ARGUMENTS ()
WRAP(process, pid_t, -1, fork, fork, void)
#undef ARGUMENTS

// ---- system calls ---------------------------------------------------------------------

// A call trapped while its signal is blocked would end the process.
static int mask_others(const char *name, int how, const sigset_t *set, sigset_t *before)
{
	typedef int mask(int, const sigset_t *, sigset_t *);
	mask *real = (mask *)dlsym(RTLD_NEXT, name);
	sigset_t others;
	if (set) {
		others = *set;
		sigdelset(&others, SIGSYS);
	}
	return real(how, set ? &others : NULL, before);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
	return mask_others("sigprocmask", how, set, before);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
	return mask_others("pthread_sigmask", how, set, before);
}

// Makes the system call from here, since the filter matches libc only.
static long do_call(const greg_t *r)
{
	long result;
	register long r10 __asm__("r10") = r[REG_R10], r8 __asm__("r8") = r[REG_R8],
	                  r9 __asm__("r9") = r[REG_R9];
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(r[REG_RAX]), "D"(r[REG_RDI]), "S"(r[REG_RSI]), "d"(r[REG_RDX]),
	                   "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}

static int class_of(long number)
{
	int k = 0;
	while (calls[k].number != number)
		k++;
	return calls[k].class;
}

static void trapped(int signal, siginfo_t *about, void *context)
{
	(void)signal;
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	int cause = errno, class = class_of(about->si_syscall);
	r[REG_RAX] = about->si_syscall;
	bool message = class == FAULT_write && r[REG_RDI] == STDERR_FILENO,
	     fail = !message && fails(class, OWN + OF_SIGNAL);
	long result = fail && class != FAULT_close ? 0 : do_call(r);
	r[REG_RAX] = fail ? -classes[class].error : result;
	errno = cause;
}

static void trap(uintptr_t from, uintptr_t to)
{
	enum { BEFORE = 6, AT = offsetof(struct seccomp_data, instruction_pointer) };
	struct sock_filter code[BEFORE + CALLS + 2] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT + 4),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(from >> 32), 0, CALLS + 4),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT),
	    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)from, 0, CALLS + 2),
	    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)to, CALLS + 1, 0),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	for (int k = 0; k < CALLS; k++)
		code[BEFORE + k] = (struct sock_filter)BPF_JUMP(
		    BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[k].number, (uint8_t)(CALLS - k), 0);
	code[BEFORE + CALLS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[BEFORE + CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
	struct sock_fprog filter = {BEFORE + CALLS + 2, code};
	struct sigaction ours = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
	if (sigaction(SIGSYS, &ours, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(99);
}

static int find_libc(struct dl_phdr_info *about, size_t size, void *to)
{
	(void)size;
	uintptr_t *range = to;
	for (int k = 0; strstr(about->dlpi_name, "libc.so") && k < about->dlpi_phnum; k++)
		if (about->dlpi_phdr[k].p_type == PT_LOAD && about->dlpi_phdr[k].p_flags & PF_X) {
			range[0] = about->dlpi_addr + about->dlpi_phdr[k].p_vaddr;
			range[1] = range[0] + about->dlpi_phdr[k].p_memsz;
		}
	return 0;
}

// ---- the start ------------------------------------------------------------------------

static void read_fault(void)
{
	const char *spec = getenv("FAULT"), *file = getenv("FAULT_COUNTS"),
	           *colon = spec ? strchr(spec, ':') : NULL;
	char *end = "";
	for (int k = 0; colon && k < FAULTS; k++)
		if (!strncmp(classes[k].name, spec, (size_t)(colon - spec)))
			failing = k;
	nth = colon ? strtol(colon + 1, &end, 10) : 0;
	once = !strcmp(end, ":once");
	int fd = file ? open(file, O_RDWR) : -1;
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE,
	              fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (counts == MAP_FAILED || (colon && failing < 0))
		_exit(99);
	if (fd >= 0)
		close(fd);
}

static int (*program)(int, char **, char **);

// Replaces the program's main. If libc crosses a multiple of 4 GiB, which the filter cannot
// express, the program is started again, at other addresses.
static int with_faults(int argc, char **argv, char **environment)
{
	uintptr_t libc[2] = {0};
	dl_iterate_phdr(find_libc, libc);
	if (libc[0] >> 32 != libc[1] >> 32)
		execve("/proc/self/exe", argv, environment);
	read_fault();
	unsetenv("LD_PRELOAD");
	backtrace(&(void *){NULL}, 1); // loads what it needs
	trap(libc[0], libc[1]);
	owner = getpid();
	return program(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
	typedef int start(int (*)(int, char **, char **), int, char **, void (*)(void),
	                  void (*)(void), void (*)(void), void *);
	start *real = (start *)dlsym(RTLD_NEXT, "__libc_start_main");
	program = main;
	return real(with_faults, argc, argv, init, fini, loader_fini, stack_end);
}
