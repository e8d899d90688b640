// peak.h: what this machine can do at most, to measure kernels by.
#ifndef PEAK_H
#define PEAK_H
#include <stdint.h>

typedef struct Peak {
	double flops; // a second: multiply-adds on registers, two each
	double bytes; // a second: memory read and written in place, both counted
} Peak;

double peak_work(void); // runs multiply-adds on registers on this thread; returns their flops
// On as many threads as the runtime takes for `threads`. A tenth of a second, 128 MiB. 0: failed,
// see amos_error().
int measure_peak(int64_t threads, Peak *);

#endif
