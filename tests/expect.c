// expect.c: counts checks and reports failures.
#include "expect.h"
#include <errno.h>
#include <stdio.h>

static int checks, failures;

void expect(bool truth, const char *what)
{
	checks++;
	if (truth)
		return;
	failures++;
	printf("%s: %s\n", program_invocation_short_name, what);
}

int expected(void)
{
	printf("%d checks, %d failed\n", checks, failures);
	return failures != 0;
}
