// float_mode.h: sets the floating-point mode of a thread.
// Kernels run in one mode whatever the caller's is: they round to nearest, trap nothing, and take
// subnormal numbers for 0 if the CPU can. Many CPUs compute with those a hundred times slower, and
// a model that fits its data well has little else in its gradients and moments.
#ifndef AMOS_FLOAT_MODE_H
#define AMOS_FLOAT_MODE_H

#if defined(__x86_64__) || defined(__SSE__)
enum { AMOS_KERNEL_MODE = 0x9fc0 }; // flush to zero, denormals are zeros, all exceptions masked
#define AMOS_MODE_GET(mode) __asm__ volatile("stmxcsr %0" : "=m"(mode))
#define AMOS_MODE_SET(mode) __asm__ volatile("ldmxcsr %0" : : "m"(mode))
typedef unsigned amos_float_mode;
#elif defined(__aarch64__)
enum { AMOS_KERNEL_MODE = 1 << 24 }; // flush to zero
#define AMOS_MODE_GET(mode) __asm__ volatile("mrs %0, fpcr" : "=r"(mode))
#define AMOS_MODE_SET(mode) __asm__ volatile("msr fpcr, %0" : : "r"(mode))
typedef unsigned long amos_float_mode;
#elif defined(__arm__) && defined(__ARM_FP)
enum { AMOS_KERNEL_MODE = 1 << 24 }; // flush to zero
#define AMOS_MODE_GET(mode) __asm__ volatile("vmrs %0, fpscr" : "=r"(mode))
#define AMOS_MODE_SET(mode) __asm__ volatile("vmsr fpscr, %0" : : "r"(mode))
typedef unsigned amos_float_mode;
#elif defined(__riscv_flen)
enum { AMOS_KERNEL_MODE = 0 }; // to nearest; subnormal numbers are always exact
#define AMOS_MODE_GET(mode) __asm__ volatile("frrm %0" : "=r"(mode))
#define AMOS_MODE_SET(mode) __asm__ volatile("fsrm %0" : : "r"(mode))
typedef unsigned long amos_float_mode;
#else
enum { AMOS_KERNEL_MODE = 0 }; // no such mode
#define AMOS_MODE_GET(mode) ((mode) = 0)
#define AMOS_MODE_SET(mode) ((void)(mode))
typedef unsigned amos_float_mode;
#endif

// Returns the mode that the thread had.
static inline amos_float_mode amos_set_float_mode(amos_float_mode mode)
{
	amos_float_mode before;
	AMOS_MODE_GET(before);
	AMOS_MODE_SET(mode);
	return before;
}

#endif
