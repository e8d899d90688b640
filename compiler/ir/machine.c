// machine.c: reads machines.def as a table, and derives what machines of a row have.
#include "plan.h"

const Machine machines[] = {
#define M(name, plain, arch, features, lanes, registers, threads, l1, l2, ...)                     \
	{name,    plain,      arch,       features,    lanes,          registers,                  \
	 threads, (l1) << 10, (l2) << 10, __VA_ARGS__, .choices = NULL},
#include "machines.def"
#undef M
};
const int machine_count = COUNT(machines);

const Machine *machine_named(const char *name)
{
	int i = FIND(name, machines);
	return i < 0 ? NULL : &machines[i];
}

bool has_block_matrix(const Machine *machine)
{
	return machine->pairs && machine->threads > 1;
}

bool has_thread_matrix(const Machine *machine)
{
	return machine->pairs > 1 && machine->threads == 1;
}

bool has_matrix(const Machine *machine)
{
	return has_thread_matrix(machine) || has_block_matrix(machine);
}

bool has_matrix_registers(const Kern *kern, const Machine *machine)
{
	bool products = kern->kind == L_dot || kern->kind == L_attend;
	return has_thread_matrix(machine) && products && kern->sched->unroll == machine->pairs;
}

bool has_group_matrix(const Machine *machine, Elem matrix, int64_t height)
{
	enum { ROWS = 64 };
	return machine->pairs == ROWS && is_half(matrix) && height >= ROWS;
}

int64_t shared_room(const Machine *machine, int64_t blocks)
{
	enum { OWN = 4 << 10 }; // what a block and the system have besides the tiles
	return MAX(STATIC_SHARED, (machine->shared << 10) / blocks - OWN);
}
