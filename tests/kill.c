// kill.c: kills trainings at any moment, repeatedly, and checks that the end results are
// unaffected.
// A chain is one training: it is started, killed after a random time and resumed until it ends. Its
// final checkpoints, trained model, log and events equal those of an uninterrupted training (log
// and events except for times). After each kill no file is lost or torn. Each chain begins with
// --overwrite in the directory of another run, whose files never reappear.
// usage: test_kill KILLS MOCK_TRAINER AMOSC MODEL
#include "fixtures.h"
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 40 };

typedef struct Training {
	const char *name;
	const char *begin[WORDS], *resume[WORDS]; // commands, NULL-terminated
	const char *files[4]; // files that must be equal at the end, NULL-terminated
} Training;

static uint64_t draws;

static double draw(void) // returns a value in [0, 1)
{
	draws = draws * 6364136223846793005 + 1442695040888963407;
	return (double)(draws >> 11) * 0x1p-53;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Starts the command `words`, then `more` (NULL: none), in the directory.
static pid_t start(const char *folder, const char *const *words, const char *const *more)
{
	char *argv[2 * WORDS];
	int n = 0;
	for (int i = 0; words[i]; i++)
		argv[n++] = (char *)words[i];
	for (int i = 0; more && more[i]; i++)
		argv[n++] = (char *)more[i];
	argv[n] = NULL;
	pid_t child = fork();
	if (child)
		return child;
	int to = open("said.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (chdir(folder) || dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0)
		_exit(126);
	execvp(argv[0], argv);
	_exit(127);
}

// True if it ended by itself, with status 0.
static bool ended(pid_t child, const char *what)
{
	int status;
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return false;
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "%s: ended with %x: %s", what, status,
	      read_file(arena, "said.txt", NULL));
	return true;
}

static void run_uninterrupted(const char *folder, const char *const *words, const char *const *more)
{
	CHECK(ended(start(folder, words, more), folder), "%s was killed by another", folder);
}

// ---- results of a run -----------------------------------------------------------------

// Returns the log without times and memory sizes.
static char *steps_of(const char *path)
{
	static const char *const timed[] = {", \"samples_per_s\"", ", \"tokens_per_s\"",
	                                    ", \"seconds\""};
	char *log = read_file(arena, path, NULL), *to = log;
	for (char *line = log, *end; *line; line = end) {
		end = line + strcspn(line, "\n") + 1;
		CHECK(end[-1] == '\n', "%s: a torn line", path);
		size_t keep = (size_t)(end - line);
		for (int i = 0; i < COUNT(timed); i++) {
			const char *cut = memmem(line, keep, timed[i], strlen(timed[i]));
			keep = cut ? (size_t)(cut - line) : keep;
		}
		memmove(to, line, keep);
		to += keep;
		*to++ = '\n';
	}
	*to = 0;
	return log;
}

// Returns the records of the run's event file, without times and rates.
static char *events_of(const char *folder, size_t *count)
{
	enum { HEAD = 12, TIME = 9, TAIL = 4, VALUE = 4 };
	glob_t found;
	CHECK(!glob(format(arena, "%s/run/events.out.tfevents.*", folder), 0, NULL, &found) &&
	          found.gl_pathc == 1,
	      "%s: a file of events", folder);
	size_t size;
	char *all = read_file(arena, found.gl_pathv[0], &size), *to = all;
	globfree(&found);
	for (size_t at = 0; at < size;) {
		uint64_t length;
		memcpy(&length, all + at, sizeof length);
		CHECK(length < 1000 && at + HEAD + length + TAIL <= size, "%s: a torn event",
		      folder);
		size_t from = at + HEAD + TIME, keep = (size_t)length - TIME;
		if (memmem(all + from, keep, "_per_s", 6))
			keep -= VALUE;
		memmove(to, all + from, keep);
		to += keep;
		at += HEAD + (size_t)length + TAIL;
	}
	*count = (size_t)(to - all);
	return all;
}

static void compare(const Training *t)
{
	for (int i = 0; t->files[i]; i++)
		hold_same(format(arena, "whole/%s", t->files[i]),
		          format(arena, "killed/%s", t->files[i]));
	CHECK(!strcmp(steps_of("whole/run/log.jsonl"), steps_of("killed/run/log.jsonl")),
	      "%s: the logs differ", t->name);
	size_t expected, found;
	const char *one = events_of("whole", &expected), *other = events_of("killed", &found);
	CHECK(expected == found && !memcmp(one, other, found), "%s: the events differ", t->name);
}

// ---- chains ---------------------------------------------------------------------------

// Returns the step of the run's checkpoint, which must be complete; -1: none, or of the other run.
static int64_t step_of(const char *path)
{
	struct amos_checkpoint *c;
	if (access(path, F_OK))
		return -1;
	CHECK(!amos_checkpoint_open(path, true, &c), "after a kill");
	bool ours = strstr(c->identity, "--seed\t2\n");
	int64_t step = ours ? c->image.point.step : -1;
	amos_checkpoint_close(c);
	return step;
}

// True if the directory's command is that of the new run.
static bool is_new(void)
{
	const char *command = read_file(arena, "killed/run/command.json", NULL);
	return strstr(command, "\"--overwrite\"");
}

// Checks that --resume reports a directory without checkpoint, whichever command it contains.
static void refuses_to_go_on(const Training *t)
{
	int status;
	waitpid(start("killed", t->resume, NULL), &status, 0);
	const char *said = read_file(arena, "said.txt", NULL);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == AMOS_INPUT &&
	          strstr(said, "stopped before its first checkpoint"),
	      "%s: %s", t->name, said);
}

// Runs one training, killed until it ends. Returns the number of kills.
static int chain(const Training *t, double seconds)
{
	static const char *const overwrite[] = {"--overwrite", NULL};
	int kills = 0;
	int64_t last = -1, best = -1;
	CHECK(!system("rm -rf killed; cp -r other killed; rm -f killed/run.onnx"), "cp");
	for (bool done = false; !done;) {
		bool continues = last >= 0;
		pid_t child =
		    start("killed", continues ? t->resume : t->begin, continues ? NULL : overwrite);
		usleep((useconds_t)(1e6 * seconds * draw()));
		kill(child, SIGKILL);
		done = ended(child, t->name);
		kills += !done;
		int64_t now_last = step_of("killed/run/last.ckpt"),
		        now_best = step_of("killed/run/best.ckpt");
		CHECK(now_last >= last && now_best >= best, "%s: a checkpoint is lost", t->name);
		CHECK(now_last < 0 || is_new(), "%s: a checkpoint before its command", t->name);
		if (now_last < 0 && access("killed/run/last.ckpt", F_OK))
			refuses_to_go_on(t);
		last = now_last;
		best = now_best;
	}
	return kills;
}

static void kill_chains(const Training *t, int kills)
{
	static const char *const first[] = {"--seed", "1", NULL};
	CHECK(!system("rm -rf whole other; mkdir whole other"), "mkdir");
	run_uninterrupted("other", t->begin, first);
	double begin = now();
	run_uninterrupted("whole", t->begin, NULL);
	double seconds = now() - begin;
	int count = 0, chains = 0;
	while (count < kills || !chains) {
		count += chain(t, seconds);
		compare(t);
		chains++;
	}
	printf("kill: %s: %d kills in %d chains, every file as it is without them\n", t->name,
	       count, chains);
}

// Writes x4.npy and labels.npy, with three classes.
static void write_class_data(void)
{
	float x[400];
	int64_t labels[100];
	for (int i = 0; i < 400; i++)
		x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
	for (int i = 0; i < 100; i++)
		labels[i] = i % 3;
	write_npy("x4.npy", "<f4", false, "100, 4", x, sizeof x);
	write_npy("labels.npy", "<i8", false, "100,", labels, sizeof labels);
}

int main(int argc, char **argv)
{
	CHECK(argc == 5, "usage: test_kill KILLS MOCK_TRAINER AMOSC MODEL");
	int kills = atoi(argv[1]);
	enter_folder();
	write_line_data(100);
	write_class_data();
	Training mock = {.name = "a compiled trainer",
	                 .begin = {argv[2],      "--data",       "x=../x.npy", "--data",
	                           "y=../y.npy", "--split",      "0.8",        "-n",
	                           "60",         "--save-every", "3",          "--eval-every",
	                           "7",          "--log-every",  "4",          "-o",
	                           "run",        "-q",           "--seed",     "2",
	                           NULL},
	                 .resume = {argv[2], "--resume", "run", NULL},
	                 .files = {"run/last.ckpt", "run/best.ckpt", NULL}};
	kill_chains(&mock, kills);
	Training amosc = {.name = "amosc train",
	                  .begin = {argv[3],
	                            "train",
	                            argv[4],
	                            "--data",
	                            "x=../x4.npy",
	                            "--data",
	                            "labels=../labels.npy",
	                            "--loss",
	                            "cross_entropy(logits, labels)",
	                            "--batch",
	                            "4",
	                            "--split",
	                            "0.8",
	                            "-n",
	                            "60",
	                            "--save-every",
	                            "3",
	                            "--eval-every",
	                            "7",
	                            "--log-every",
	                            "4",
	                            "-o",
	                            "run",
	                            "-q",
	                            "-j",
	                            "1",
	                            "--seed",
	                            "2",
	                            NULL},
	                  .resume = {argv[3], "train", "--resume", "run", NULL},
	                  .files = {"run/last.ckpt", "run/best.ckpt", "run.onnx", NULL}};
	kill_chains(&amosc, kills);
}
