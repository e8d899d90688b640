// expect.h: declares counted checks; a test continues after a failed check and reports at its end.
#ifndef EXPECT_H
#define EXPECT_H
#include <stdbool.h>

void expect(bool truth, const char *what); // prints `what` if `truth` is false
int expected(void);                        // prints the number of checks; returns the exit status

#endif
