// fault.h: what fault.c counts, in a file that it shares with faults.c. Takes fault.def.
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
