// peak.h: declares the peak rates of this machine, to compare kernels with.
#ifndef PEAK_H
#define PEAK_H
#include <stdint.h>

typedef struct Peak {
	double flops; // per second: multiply-adds on registers, two each
	double bytes; // per second: memory read and written in place, both counted
} Peak;

// Runs multiply-adds on registers on this thread; returns their flops. `lanes`: the most f32 of a
// register, of which the target may have fewer than this CPU.
double peak_work(int lanes);
// Measures on as many threads as the runtime starts for `threads`, in half a second and memory of
// 8 times the last cache, at least 512 MiB; both are less if `seconds` are fewer. Returns AMOS_DONE
// or an error code.
int measure_peak(int64_t threads, int lanes, double seconds, Peak *);

#endif
