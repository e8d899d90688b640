// version.h: defines the version of amosc, the only place where it is written in code.
// CMake reads these three numbers. tests/version compares everything that has a version with them.
#ifndef AMOS_VERSION_H
#define AMOS_VERSION_H

#define AMOS_VERSION_MAJOR 0
#define AMOS_VERSION_MINOR 1
#define AMOS_VERSION_PATCH 0

// For comparison in #if: 1.2.3 is 10203.
#define AMOS_VERSION_NUMBER                                                                        \
	(AMOS_VERSION_MAJOR * 10000 + AMOS_VERSION_MINOR * 100 + AMOS_VERSION_PATCH)

#define AMOS_VERSION_TEXT(number) #number
#define AMOS_VERSION_JOIN(a, b, c)                                                                 \
	AMOS_VERSION_TEXT(a) "." AMOS_VERSION_TEXT(b) "." AMOS_VERSION_TEXT(c)
#define AMOS_VERSION AMOS_VERSION_JOIN(AMOS_VERSION_MAJOR, AMOS_VERSION_MINOR, AMOS_VERSION_PATCH)

#endif
