// threads.h: declares an emulated GPU, which finds races and barriers that not all threads reach.
#ifndef THREADS_H
#define THREADS_H
#include "runtime.h"
#include <stdbool.h>

// A launch() for amos_run: runs the blocks of a kernel emitted for "cuda:host" or "hip:host", some
// at once, in a random order. Prints what is wrong, and returns 1 then.
int gpu_launch(const struct amos_run *, const struct amos_kernel *, char *const *buf);
// The same, but before each kernel's first launch it runs it as often as the kernel has barriers
// and waits for copies, without one of them each time. What these runs write is undone.
int gpu_launch_without(const struct amos_run *, const struct amos_kernel *, char *const *buf);
extern uint64_t gpu_seed;            // of the order of threads and blocks
extern int gpu_barriers, gpu_needed; // that were left out, and without which there is a race
void gpu_forget(void);               // frees what is known of memory and kernels

#endif
