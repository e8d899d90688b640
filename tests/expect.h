// expect.h: checks that are counted: a test goes on after one that failed, and reports at its end.
#ifndef EXPECT_H
#define EXPECT_H
#include <stdbool.h>

void expect(bool truth, const char *what); // Prints `what`, which is wrong, if `truth` is false.
int expected(void); // Prints how many checks there were. Returns the exit status of the test.

#endif
