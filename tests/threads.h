// threads.h: declares an emulated GPU of one multiprocessor; the threads of a block run in turn.
#ifndef THREADS_H
#define THREADS_H
#include "abi.h"
#include <stdbool.h>

// A launch() for amos_run: runs the blocks of a kernel emitted for "cuda:host".
int gpu_launch(const struct amos_run *, amos_worker *, char *const *buf, int64_t n, int64_t kernel);
extern bool gpu_backward; // run threads last to first, which exposes missing barriers

#endif
