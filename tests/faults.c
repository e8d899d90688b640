// faults.c: checks every command while one system function after another fails, as SQLite does.
// faults AMOSC NPZ MODELS LIBRARY SEED all|places|COUNT [CASE...]: runs each command of faults.def
// while the n-th call of each class of fault.def fails, once and permanently: every n, the first
// from each place of the code (of allocations: that no case before had), or COUNT random ones.
// LIBRARY is fault.c. Each run ends with status 0 and the output of a run without faults, or with
// status 3, one message, and no file torn or lost: files are as before, or as without a fault;
// those of a training become so on resume.
#include "fault.h"
#include "files.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE = 20, MOST_REPORTED = 20 };

static const struct Case {
	const char *name, *make, *command, *says, *mend;
} cases[] = {
#define CASE(a, b, c, d)        {.name = a, .make = b, .command = c, .says = d},
#define TRAINING(a, b, c, d, e) {a, b, c, d, e},
#include "faults.def"
#undef CASE
#undef TRAINING
};

static const char *const classes[] = {
#define CLASS(name, ...) #name,
#define CALL(...)
#include "fault.def"
#undef CLASS
#undef CALL
};

static struct fault_counts *counts; // counters of the current command
static uint64_t state;
static int reported;

static uint64_t draw(uint64_t below)
{
	state += 0x9E3779B97F4A7C15u;
	return hash_bytes(&state, sizeof state, 3) % below;
}

// ---- commands -------------------------------------------------------------------------

// Runs a shell command in `folder`; its output goes to NAME.out and NAME.err next to it.
static int run(const char *folder, const char *name, const char *command)
{
	pid_t child = fork();
	if (child == 0) {
		char out[64], err[64];
		snprintf(out, sizeof out, "%s.out", name);
		snprintf(err, sizeof err, "%s.err", name);
		int in = open("/dev/null", O_RDONLY), to = creat(out, 0666),
		    messages_to = creat(err, 0666);
		if (dup2(in, 0) < 0 || dup2(to, 1) < 0 || dup2(messages_to, 2) < 0 || chdir(folder))
			_exit(127);
		close(in), close(to), close(messages_to);
		alarm(PATIENCE);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail_status(STATUS_MACHINE, command, "cannot be started");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void must(const char *command)
{
	if (run(".", "must", command))
		fail(command, "failed: %s", read_file(arena_new(), "must.err", NULL));
}

static int run_with_faults(const struct Case *c, const char *folder, const char *fault)
{
	char command[4096];
	memset(counts, 0, sizeof *counts);
	snprintf(command, sizeof command, "LD_PRELOAD=$FAULT_LIBRARY FAULT=%s exec %s", fault,
	         c->command);
	return run(folder, folder, command);
}

// ---- expected results -----------------------------------------------------------------

// Blanks times and memory sizes, which differ between runs.
static void steady(char *text)
{
	static const char *const words[] = {"seconds", "samples_per_s", "tokens_per_s",
	                                    "memory_mb"};
	for (int k = 0; k < COUNT(words); k++)
		for (char *at = text; (at = strstr(at, words[k]));) {
			at += strlen(words[k]);
			at += strspn(at, "\": ");
			memset(at, '#', strspn(at, "0123456789.e+-"));
			char *end = at + strspn(at, "#");
			memmove(at, end, strlen(end) + 1);
		}
}

static bool is_log(const char *path)
{
	return ends_with(path, "log.jsonl");
}

// Returns the contents of a file; of a log, with times blanked. Event files are compared by name
// only, since they contain times.
static char *contents(Arena *arena, const char *path, size_t *count)
{
	if (strstr(path, "tfevents")) {
		*count = 0;
		return "";
	}
	char *bytes = read_file(arena, path, count);
	if (is_log(path)) {
		steady(bytes);
		*count = strlen(bytes);
	}
	return bytes;
}

static Arena *arena;
static VEC(char *) listed;
static int top; // length of the directory's name

static int list_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
	(void)about, (void)where;
	if (kind == FTW_F)
		PUSH(arena, listed, copy_string(arena, path + top + 1));
	return 0;
}

// Lists the files below a directory.
static void list(const char *folder)
{
	memset(&listed, 0, sizeof listed); // its arena may have been freed
	top = (int)strlen(folder);
	nftw(folder, list_one, 8, FTW_PHYS);
}

// True if file `name` of directory `now` equals that in `then`. With `begin`, a log may be a prefix
// of it.
static bool same_as(const char *then, const char *name, bool begin)
{
	Arena *own = arena_new();
	const char *path = format(own, "%s/%s", then, name), *events = strstr(path, "tfevents");
	if (events)
		path = format(own, "%.*s*", (int)(events - path), path);
	bool same = events || !access(path, R_OK);
	if (same && !events) {
		size_t n, m;
		const char *a = contents(own, format(own, "now/%s", name), &n),
		           *b = contents(own, path, &m);
		same = (begin && is_log(name) ? n <= m : n == m) && !memcmp(a, b, n);
	}
	arena_free(own);
	return same;
}

static const char *wrong_files(int status)
{
	list("now");
	for (int i = 0; i < listed.count; i++)
		if (!same_as("after", listed.at[i], status) &&
		    !(status && same_as("before", listed.at[i], false)))
			return format(arena, "the file %s is not as it should be", listed.at[i]);
	const char *complete = status ? "before" : "after";
	list(complete);
	for (int i = 0; i < listed.count; i++)
		if (!strstr(listed.at[i], "tfevents") &&
		    access(format(arena, "now/%s", listed.at[i]), F_OK))
			return format(arena, "the file %s is lost", listed.at[i]);
	return NULL;
}

static const char *wrong_names(void)
{
	list("now");
	for (int i = 0; i < listed.count; i++)
		if (!strstr(listed.at[i], "tfevents") &&
		    access(format(arena, "after/%s", listed.at[i]), F_OK))
			return format(arena, "the file %s is left", listed.at[i]);
	return NULL;
}

// Repeats the failed command without faults; it must succeed.
static const char *wrong_mended(const char *mend)
{
	const char *what = wrong_names();
	if (what)
		return what;
	if (run("now", "mend", mend))
		return format(arena, "it cannot go on: %s", read_file(arena, "mend.err", NULL));
	return wrong_files(STATUS_DONE);
}

static bool same_output(void)
{
	char *a = read_file(arena, "now.out", NULL), *b = read_file(arena, "after.out", NULL);
	steady(a);
	steady(b);
	return !strcmp(a, b);
}

// Counts lines that begin as messages do, without warnings and notes.
static int messages(const struct Case *c, const char *text)
{
	const char *who = format(arena, "%s: ", c->says);
	int n = 0;
	for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : 0) {
		line += 2 * starts_with(line, "./");
		n += starts_with(line, who) && !starts_with(line + strlen(who), "warning: ") &&
		     !starts_with(line + strlen(who), "note: ");
	}
	return n;
}

// Returns what is wrong with the results; NULL: nothing.
static const char *wrong(const struct Case *c, int status)
{
	if (status == 128 + SIGALRM)
		return "it hangs";
	if (status != STATUS_DONE && status != STATUS_MACHINE)
		return format(arena, "status %d", status);
	if (!status && !same_output())
		return "a false report";
	if (status && messages(c, read_file(arena, "now.err", NULL)) != 1)
		return "not one message";
	return status && c->mend ? wrong_mended(c->mend) : wrong_files(status);
}

// ---- faults ---------------------------------------------------------------------------

typedef struct Score {
	long tried, done, rejected, wrong;
} Score;

static void try_fault(const struct Case *c, const char *fault, Score *score)
{
	must("rm -rf now && cp -a before now");
	int status = run_with_faults(c, "now", fault);
	if (!counts->failed &&
	    counts->calls[0]) // threads ran differently, so there was no n-th call
		return;
	const char *what = wrong(c, status);
	score->tried++;
	score->done += !status;
	score->rejected += status == STATUS_MACHINE;
	score->wrong += what != NULL;
	if (what && reported++ < MOST_REPORTED)
		fprintf(stderr, "%s: %s: %s\n%s", c->name, fault, what,
		        read_file(arena, "now.err", NULL));
}

typedef VEC(long) Calls;

// Returns the calls that fail, one after the other. What follows a failed allocation depends on the
// place alone, not on the files of the case.
static Calls calls_of(int class, const struct fault_counts *complete, long most)
{
	static Table *tried; // places that allocate
	Calls list = {0};
	long calls = complete->calls[class];
	for (long k = 1; most && k <= MIN(calls, most); k++)
		PUSH(arena, list, calls <= most ? k : 1 + (long)draw((uint64_t)calls));
	if (!tried)
		tried = table_new(arena_new());
	for (int k = 0; !most && k < FAULT_PLACES; k++) {
		const struct fault_place *p = &complete->place[class][k];
		bool shared = p->hash && class == FAULT_memory;
		if (p->hash && !(shared && (*table_cell(tried, &p->hash, sizeof p->hash))++))
			PUSH(arena, list, p->first);
	}
	return list;
}

static void try_class(const struct Case *c, int class, const struct fault_counts *complete,
                      long most)
{
	Score score = {0};
	Arena *outer = arena;
	Calls list = calls_of(class, complete, most);
	long calls = complete->calls[class];
	for (int k = 0; k < 2 * list.count; k++) {
		arena = arena_new();
		try_fault(
		    c,
		    format(arena, "%s:%ld%s", classes[class], list.at[k / 2], k % 2 ? ":once" : ""),
		    &score);
		arena_free(arena);
		arena = outer;
	}
	if (calls)
		printf("%-15s %-8s %6ld calls %6ld failed: %6ld done %6ld rejected %4ld wrong\n",
		       c->name, classes[class], calls, score.tried, score.done, score.rejected,
		       score.wrong);
	fflush(stdout);
	if (score.wrong)
		reported = MAX(reported, 1);
}

static void try_case(const struct Case *c, long most)
{
	must("rm -rf before && mkdir before");
	must(format(arena, "cd before; %s", *c->make ? c->make : ":"));
	for (int k = 0; k < 2; k++) {
		must("rm -rf now && cp -a before now");
		if (run_with_faults(c, "now", "memory:0"))
			fail(c->name, "status without a fault: %s",
			     read_file(arena, "now.err", NULL));
		if (!k)
			must("rm -rf after && mv now after && mv now.out after.out");
	}
	struct fault_counts *complete = take_copy(arena, counts, sizeof *counts);
	const char *what = wrong(c, STATUS_DONE);
	if (what)
		fail(c->name, "no two runs are the same: %s", what);
	for (int class = 0; class < FAULTS; class ++)
		try_class(c, class, complete, most);
}

int main(int argc, char **argv)
{
	arena = arena_new();
	if (argc < 7)
		fail_status(STATUS_USAGE, NULL,
		            "faults AMOSC NPZ MODELS LIBRARY SEED all|places|COUNT [CASE...]");
	state = strtoull(argv[5], NULL, 10);
	bool all = !strcmp(argv[6], "all"), places = !strcmp(argv[6], "places");
	long most = all ? INT32_MAX : places ? 0 : atol(argv[6]);
	setenv("PATH", format(arena, "%s:%s:%s", argv[1], argv[2], getenv("PATH")), 1);
	setenv("models", argv[3], 1);
	setenv("FAULT_LIBRARY", argv[4], 1);
	const char *folder = own_folder(), *file = format(arena, "%s/counts", folder);
	setenv("FAULT_COUNTS", file, 1);
	if (chdir(folder))
		need_done(amos_fail_errno("write", folder));
	write_file(file, NEW(arena, struct fault_counts), sizeof *counts);
	int fd = open(file, O_RDWR);
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counts == MAP_FAILED)
		need_done(amos_fail_errno("write", file));
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	for (int k = 0; k < COUNT(cases); k++) {
		bool selected = argc == 7;
		for (int i = 7; i < argc; i++)
			selected |= !strcmp(argv[i], cases[k].name);
		if (selected)
			try_case(&cases[k], most);
	}
	return reported > 0;
}
