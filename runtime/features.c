// features.c: chooses the code that this CPU has the features for.
// Input: features.def, cpuid or getauxval.
// Invariant: a feature counts only if the operating system saves its registers.
#include "rt.h"
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { A, B, C, D };
enum { NONE = 0, AVX = 0x6, AVX512 = 0xE6, AMX = 0x60000 }; // bits of XCR0
enum { BEYOND = 5 };

static const struct feature {
	const char *name;
	unsigned leaf, subleaf, word, bit, state;
	int level;
} features[] = {
#define X86(name, leaf, subleaf, word, bit, state, level)                                          \
	{name, leaf, subleaf, word, bit, state, level},
#define ARM64(...)
#define ARM(...)
#define RISCV(...)
#include "features.def"
};

// Sets has[i] for each feature. A hypervisor takes microseconds for each cpuid, so features of a
// leaf, which are adjacent, are read at once.
static void read_features(bool *has)
{
	enum { OSXSAVE = 1 << 27 };
	unsigned r[4] = {0}, saved = 0, high;
	if (__get_cpuid(1, &r[A], &r[B], &r[C], &r[D]) && r[C] & OSXSAVE)
		__asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
	for (int i = 0; i < COUNT(features); i++) {
		const struct feature *f = &features[i], *before = f - (i > 0);
		if ((before->leaf != f->leaf || before->subleaf != f->subleaf) &&
		    !__get_cpuid_count(f->leaf, f->subleaf, &r[A], &r[B], &r[C], &r[D]))
			memset(r, 0, sizeof r);
		has[i] = r[f->word] >> f->bit & 1 && (saved & f->state) == f->state;
	}
}

// Writes the best value for amosc build --target that runs on this CPU.
static void best_target(char *to, size_t room, const bool *has)
{
	int level = BEYOND - 1;
	for (int i = 0; i < COUNT(features); i++)
		if (features[i].level <= level && !has[i])
			level = features[i].level - 1;
	snprintf(to, room, level > 1 ? "x86-64-v%d" : "x86-64", level);
}

#else // Linux reports the features as bits of two words
#include <sys/auxv.h>
#define ROW(name, word, bit) {name, word, bit},
#define NONE(...)
#define X86   NONE
#define ARM64 NONE
#define ARM   NONE
#define RISCV NONE
#if defined(__aarch64__)
#undef ARM64
#define ARM64  ROW
#define TARGET "aarch64-linux-gnu"
#elif defined(__arm__)
#undef ARM
#define ARM    ROW
#define TARGET "armv7-linux-gnueabihf"
#elif defined(__riscv)
#undef RISCV
#define RISCV  ROW
#define TARGET "riscv64-linux-gnu"
#else
#error "features.c knows x86-64, Arm and RISC-V"
#endif

static const struct feature {
	const char *name;
	int word, bit;
} features[] = {
#include "features.def"
};

static void read_features(bool *has)
{
	for (int i = 0; i < COUNT(features); i++)
		has[i] =
		    getauxval(features[i].word == 1 ? AT_HWCAP : AT_HWCAP2) >> features[i].bit & 1;
}

static void best_target(char *to, size_t room, const bool *has)
{
	(void)has;
	snprintf(to, room, TARGET);
}

#endif

// True if `needs` lists the feature, or its absence, as `sign` says: "+" or "-".
static bool lists(const char *needs, char sign, const char *name)
{
	size_t n = strlen(name);
	for (; needs && *needs; needs += strcspn(needs, ","), needs += *needs == ',') {
		const char *one = needs + (*needs == '-');
		if ((*needs == '-') == (sign == '-') && !strncmp(one, name, n) &&
		    (one[n] == ',' || !one[n]))
			return true;
	}
	return false;
}

// True unless the model needs matrix registers that the system does not permit. Only models that
// need them ask.
static bool is_permitted(const struct amos_model *m)
{
	return !lists(m->needs, '+', "amx-tile") || amos_permit_amx();
}

const struct amos_model *amos_best(const struct amos_model *model)
{
	bool has[COUNT(features)];
	const struct amos_model *best = model;
	if (model->better)
		read_features(has);
	for (const struct amos_model *m = model->better; m; m = m->better) {
		bool fits = !m->device;
		for (int i = 0; i < COUNT(features); i++)
			fits &= !lists(m->needs, has[i] ? '-' : '+', features[i].name);
		best = fits && is_permitted(m) ? m : best;
	}
	return best;
}

int amos_check_cpu(const struct amos_model *model)
{
	bool has[COUNT(features)];
	char missing[1024] = "", target[64];
	if (!model->needs || !*model->needs)
		return AMOS_DONE;
	read_features(has);
	for (int i = 0; i < COUNT(features); i++) {
		size_t end = strlen(missing);
		if (!has[i] && lists(model->needs, '+', features[i].name))
			snprintf(missing + end, sizeof missing - end, "%s%s", end ? ", " : "",
			         features[i].name);
	}
	if (!*missing && is_permitted(model))
		return AMOS_DONE;
	if (!*missing)
		snprintf(missing, sizeof missing, "amx-tile, which the system does not permit");
	best_target(target, sizeof target, has);
	return amos_fail(AMOS_INPUT,
	                 "%s: compiled for a CPU with more features than this one; missing: %s" HELP
	                 "build it with --target %s",
	                 model->name, missing, target);
}
