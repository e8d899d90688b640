// threads.h: a GPU of one multiprocessor, emulated: the threads of a block take turns on this one.
#ifndef THREADS_H
#define THREADS_H
#include "abi.h"
#include <stdbool.h>

// A launch of amos_run: runs the blocks of a kernel emitted for "cuda:host".
int gpu_launch(const struct amos_run *, amos_worker *, char *const *buf, int64_t n, int64_t kernel);
extern bool
    gpu_backward; // threads take turns from the last to the first: finds what misses a barrier

#endif
