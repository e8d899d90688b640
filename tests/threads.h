// threads.h: declares an emulated GPU of one multiprocessor; the threads of a block run in turn.
#ifndef THREADS_H
#define THREADS_H
#include "runtime.h"
#include <stdbool.h>

// A launch() for amos_run: runs the blocks of a kernel emitted for "cuda:host".
int gpu_launch(const struct amos_run *, const struct amos_kernel *, char *const *buf);
extern bool gpu_backward; // run threads last to first, which exposes missing barriers

#endif
