// locale.c: numbers in the format of C while a library works in a program that has set a locale.
// State per thread: the locale of the program.
#include "common.h"
#include <locale.h>

static _Thread_local locale_t host;

void amos_locale_own(void)
{
	locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(own);
	if (before != own)
		host = before;
}

void amos_locale_host(void)
{
	if (host)
		uselocale(host);
}
