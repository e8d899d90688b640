// fault.h: declares the counters that fault.c shares with faults.c in a file; fault.def lists them.
#ifndef FAULT_H
#define FAULT_H

enum {
#define CLASS(name, ...) FAULT_##name,
#define CALL(...)
#include "fault.def"
#undef CLASS
#undef CALL
	FAULTS
};

struct fault_counts {
	long calls[FAULTS], failed;
};

#endif
