// dot.c: matrix products.
#include "gen.h"

void emit_dot(Gen *g, const Kern *kern)
{
	emit_map(g, kern);
}
