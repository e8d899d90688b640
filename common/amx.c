// amx.c: asks the system for the matrix registers of AMX, which a process gets only on request.
#include "common.h"
#ifdef __x86_64__
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST = 0x1023, MATRIX_DATA = 18 }; // ARCH_REQ_XCOMP_PERM; see arch_prctl(2)

bool amos_permit_amx(void)
{
	return !syscall(SYS_arch_prctl, REQUEST, MATRIX_DATA);
}
#else
bool amos_permit_amx(void)
{
	return false;
}
#endif
