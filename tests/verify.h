// verify.h: declares the verifier of plans.
#ifndef VERIFY_H
#define VERIFY_H
#include "passes.h"

// bug() where a kernel would read bytes that another value has overwritten.
void verify_plan(const Plan *);

#endif
