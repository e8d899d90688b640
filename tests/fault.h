// fault.h: declares the counters that fault.c shares with faults.c in a file; fault.def lists them.
#ifndef FAULT_H
#define FAULT_H
#include <stdint.h>

enum {
#define CLASS(name, ...) FAULT_##name,
#define CALL(...)
#include "fault.def"
#undef CLASS
#undef CALL
	FAULTS
};

enum { FAULT_PLACES = 1 << 14 };

struct fault_place {   // that calls, with those that called it
	uint64_t hash; // the same in every run; 0: none
	long first;    // its first call
};

struct fault_counts {
	long calls[FAULTS], failed;
	struct fault_place place[FAULTS][FAULT_PLACES];
};

#endif
