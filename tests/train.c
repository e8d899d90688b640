// train.c: checks the training loop on models written by hand.
// Bit-identical resume, the log, events, interrupts, losses that are not finite, full disks.
#include "fixtures.h"
#include <glob.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_DATA "data", "x=x.npy", "data", "y=y.npy", "quiet", ""

static const char *const entries[] = {"train", "eval", NULL};

// Opens, trains, closes. Returns the status of amos_train().
static int train_with(const struct amos_model *model, const struct amos_options *options,
                      int threads, struct amos_result *result)
{
	struct amos *m;
	struct amos_data *data;
	CHECK(
	    !amos_open_slots(model, threads, options->seed < 0 ? 0 : options->seed, NULL, NULL, &m),
	    "open");
	CHECK(!amos_data_open(options, 0, &data), "data");
	int status = amos_data_attach(data, model, entries);
	if (!status)
		status = amos_train(m, data, options, result);
	amos_data_close(data);
	amos_close(m);
	return status;
}

static int count_lines(const char *path, const char *with)
{
	char *text = read_file(arena, path, NULL);
	int count = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		count += strstr(line, with) != NULL;
	return count;
}

static void resumes_to_the_bit(void)
{
	struct amos_result r;
	struct amos_options whole =
	    options_of(LINE_DATA, "split", "0.8", "steps", "60", "eval-every", "20", "seed", "3",
	               "out", "whole", NULL);
	CHECK(!train_with(&mock_line, &whole, 1, &r), "whole");
	CHECK(r.step == 60 && r.loss < 0.1 && r.eval_loss < 0.1, "step %d, loss %g, held out %g",
	      (int)r.step, r.loss, r.eval_loss);
	struct amos_options part =
	    options_of(LINE_DATA, "split", "0.8", "steps", "33", "eval-every", "20", "seed", "3",
	               "out", "parts", NULL);
	CHECK(!train_with(&mock_line, &part, 2, &r) && r.step == 33, "first part");
	struct amos_options rest =
	    options_of(LINE_DATA, "split", "0.8", "steps", "60", "eval-every", "20", "seed", "3",
	               "resume", "parts", NULL);
	CHECK(!train_with(&mock_line, &rest, 1, &r) && r.step == 60, "rest");
	hold_same("whole/last.ckpt", "parts/last.ckpt");
	hold_same("whole/best.ckpt", "parts/best.ckpt");
	CHECK(count_lines("parts/log.jsonl", "\"loss\"") == 60, "lines of steps");
	CHECK(count_lines("parts/log.jsonl", "\"eval_loss\"") == 4,
	      "lines of evaluations: 20, 33, 40, 60");
	// Resuming a finished run changes nothing.
	char *before = read_file(arena, "parts/log.jsonl", NULL);
	CHECK(!train_with(&mock_line, &rest, 1, &r) && r.step == 60 && r.eval_loss < 0.1, "again");
	CHECK(!strcmp(before, read_file(arena, "parts/log.jsonl", NULL)), "a line of no step");
	hold_same("whole/last.ckpt", "parts/last.ckpt");
	CHECK(count_lines("whole/log.jsonl", "\"eval_loss\"") == 3,
	      "lines of evaluations: 20, 40, 60");
	struct amos_options nothing = options_of(LINE_DATA, "resume", "nowhere", NULL);
	CHECK(train_with(&mock_line, &nothing, 1, &r) == AMOS_INPUT, "no run");
}

// A checkpoint of another training is not resumed.
static void knows_its_own(void)
{
	static const struct {
		const char *name, *value, *says;
	} others[] = {
	    {"seed", "4", "--seed differs from the run's; expected 3, found 4"},
	    {"split", "0.7", "--split differs from the run's; expected 0.8"},
	    {"data", "y=other.npy",
	     "data of input 'y' differs from the run's; expected f32[100], content "},
	};
	struct amos_result r;
	float y[100] = {1};
	write_npy("other.npy", "<f4", false, "100,", y, sizeof y);
	size_t size;
	char *bytes = read_file(arena, "y.npy", &size);
	write_file("moved.npy", bytes, size);
	for (int i = 0; i < COUNT(others); i++) {
		struct amos_options o = options_of("data", "x=x.npy", "seed", "3", "split", "0.8",
		                                   "quiet", "", "resume", "parts", NULL);
		bool data = !strcmp(others[i].name, "data");
		CHECK(data || !amos_option(&o, "data", "y=y.npy"), "data");
		CHECK(!amos_option(&o, others[i].name, others[i].value), "%s", others[i].name);
		CHECK(train_with(&mock_line, &o, 1, &r) == AMOS_INPUT &&
		          strstr(amos_error(), others[i].says),
		      "%s %s", others[i].name, others[i].value);
	}
	struct amos_options same =
	    options_of("data", "x=x.npy", "data", "y=moved.npy", "seed", "3", "split", "0.8",
	               "quiet", "", "steps", "61", "resume", "parts", NULL);
	CHECK(!train_with(&mock_line, &same, 2, &r) && r.step == 61, "the same data elsewhere");
	struct amos_model other = mock_line;
	other.identity = "model\tcontent 2\n";
	CHECK(train_with(&other, &same, 1, &r) == AMOS_INPUT &&
	          strstr(amos_error(),
	                 "model differs from the run's; expected none, found content 2"),
	      "another model");
}

// A log longer than the checkpoint (the machine stopped in between) loses the lines that will be
// repeated.
static void log_has_each_step_once(void)
{
	struct amos_result r;
	struct amos_options first = options_of(LINE_DATA, "steps", "10", "out", "crash", NULL);
	CHECK(!train_with(&mock_line, &first, 1, &r), "first");
	FILE *log = fopen("crash/log.jsonl", "a");
	fputs("{\"step\": 11, \"loss\": 1}\n{\"step\": 12, \"lo", log);
	fclose(log);
	struct amos_options rest = options_of(LINE_DATA, "steps", "20", "resume", "crash", NULL);
	CHECK(!train_with(&mock_line, &rest, 1, &r), "rest");
	CHECK(count_lines("crash/log.jsonl", "\"step\": ") == 20, "lines");
	CHECK(count_lines("crash/log.jsonl", "\"step\": 11,") == 1, "step 11");
}

static int see_log(void *lines, const struct amos_progress *now)
{
	if (now->step == 1)
		*(int *)lines = count_lines("seen/log.jsonl", "\"loss\"");
	return 0;
}

// The first line is not held back, however soon it comes.
static void first_line_is_seen(void)
{
	static const char *const options[] = {"data", "x=x.npy", "data", "y=y.npy", "steps",
	                                      "3",    "out",     "seen", NULL};
	int lines = 0;
	struct amos *m;
	struct amos_training training = {
	    .size = sizeof training, .options = options, .progress = see_log, .context = &lines};
	CHECK(!amos_open_slots(&mock_line, 1, 0, NULL, NULL, &m), "open");
	CHECK(!amos_fit(m, &training), "%s", amos_error());
	CHECK(lines == 1, "%d lines after the first step", lines);
	training.size = 1;
	CHECK(amos_fit(m, &training) == AMOS_INPUT &&
	          strstr(amos_error(), "of 16 to 32 bytes, found 1"),
	      "%s", amos_error());
	amos_close(m);
}

static void ends_by_epochs(void)
{
	struct amos_result r;
	struct amos_options one = options_of(LINE_DATA, "out", "epoch", NULL);
	CHECK(!train_with(&mock_line, &one, 1, &r) && r.step == 25,
	      "100 samples, 4 a batch: %d steps", (int)r.step);
	struct amos_options half = options_of(LINE_DATA, "epochs", "2.5", "out", "epochs", NULL);
	CHECK(!train_with(&mock_line, &half, 1, &r) && r.step == 63, "2.5 epochs: %d steps",
	      (int)r.step);
}

enum { UPDATE = 2 }; // the last launch of the line model

// Returns the line model with another update; `entry` and its `kernels` become part of it.
static struct amos_model updated_by(amos_worker *update, struct amos_entry *entry,
                                    struct amos_kernel kernels[UPDATE + 1])
{
	struct amos_model model = mock_line;
	*entry = mock_line.entries[0];
	memcpy(kernels, entry->kernels, sizeof *kernels * (UPDATE + 1));
	kernels[UPDATE].code = update;
	entry->kernels = kernels;
	model.entries = entry;
	model.nentries = 1;
	return model;
}

enum { LEFT = 8 }; // amos.left of --accumulate 2, in the state

// Of the last worker, the one that counts.
static void count_left(char *const *buf, int64_t i, int64_t left)
{
	if (i == mock_line.entries[0].kernels[UPDATE].workers - 1)
		memcpy(buf[5] + LEFT, &left, sizeof left);
}

static void second_batch(char *const *buf, int64_t i, int64_t end, char *local)
{
	mock_line.entries[0].kernels[UPDATE].code(buf, i, end, local);
	count_left(buf, i, 1);
}

static void first_batch(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)end, (void)local;
	count_left(buf, i, 0);
}

static void counts_updates(void)
{
	static const int64_t one = 1;
	struct amos_entry entries[2];
	struct amos_kernel kernels[2][UPDATE + 1];
	struct amos_slot slots[16];
	struct amos_model model = updated_by(second_batch, &entries[0], kernels[0]);
	updated_by(first_batch, &entries[1], kernels[1]);
	entries[1].name = "gather";
	model.nentries = 2;
	memcpy(slots, model.slots, sizeof *slots * (size_t)model.nslots);
	slots[model.nslots++] = (struct amos_slot){.name = "amos.left",
	                                           .kind = AMOS_SLOT_STATE,
	                                           .type = AMOS_I64,
	                                           .bytes = sizeof one,
	                                           .offset = LEFT,
	                                           .init = &one};
	model.slots = slots;
	struct amos_result r;
	struct amos_options options = options_of(LINE_DATA, "steps", "7", "out", "twos", NULL);
	CHECK(!train_with(&model, &options, 1, &r) && r.step == 7, "%d steps", (int)r.step);
	CHECK(count_lines("twos/log.jsonl", "\"loss\"") == 7, "a line an update");
	struct amos_checkpoint *c;
	CHECK(!amos_checkpoint_open("twos", true, &c) && c->image.point.run == 14, "batches");
	amos_checkpoint_close(c);
}

static void keeps_the_command(void)
{
	struct amos_result r;
	struct amos_options options = options_of(LINE_DATA, "steps", "1", "out", "kept", NULL);
	options.argc = 3;
	options.argv = (char *[]){"amosc", "tr\"ain", "x=\xc3\xa9", NULL};
	CHECK(!train_with(&mock_line, &options, 1, &r), "train");
	int argc;
	char **argv;
	CHECK(!amos_command("kept", &argc, &argv) && argc == 3, "%d words", argc);
	for (int i = 0; i < 3; i++)
		CHECK(!strcmp(argv[i], options.argv[i]), "word %d is %s", i, argv[i]);
	free(argv);
	write_file("kept/command.json", "{\"comm", 6);
	CHECK(amos_command("kept", &argc, &argv) == AMOS_INPUT, "damaged command");
}

// Returns the masked CRC-32C of a record, from its definition.
static uint32_t masked(const char *at, uint64_t count)
{
	uint32_t crc = ~0u;
	for (uint64_t i = 0; i < 8 * count; i++) {
		uint32_t bit = (crc ^ ((uint32_t)(unsigned char)at[i / 8] >> i % 8)) & 1;
		crc = crc >> 1 ^ (bit ? 0x82F63B78 : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

static void events_are_sound(const char *pattern, long expected)
{
	glob_t found;
	CHECK(!glob(pattern, 0, NULL, &found) && found.gl_pathc == 1, "one file of events");
	long records = 0;
	size_t size;
	const char *bytes = read_file(arena, found.gl_pathv[0], &size);
	globfree(&found);
	for (size_t at = 0; at < size; records++) {
		uint64_t length;
		uint32_t crc;
		CHECK(size - at >= 16, "record %ld is cut off", records);
		memcpy(&length, bytes + at, 8);
		memcpy(&crc, bytes + at + 8, 4);
		CHECK(crc == masked(bytes + at, 8) && length < 1000, "record %ld: length", records);
		memcpy(&crc, bytes + at + 12 + length, 4);
		CHECK(crc == masked(bytes + at + 12, length), "record %ld: data", records);
		at += 16 + length;
	}
	CHECK(records == expected, "%ld records", records);
}

// ---- failures -------------------------------------------------------------------------

static void stops_at_nan(void)
{
	struct amos_result r;
	struct amos_options options = options_of("data", "x=x.npy", "data", "y=huge.csv", "quiet",
	                                         "", "epochs", "3", "out", "nan", NULL);
	FILE *csv = fopen("huge.csv", "w");
	for (int i = 0; i < 100; i++)
		fprintf(csv, "%s\n", i < 96 ? "1" : "1e30");
	fclose(csv);
	CHECK(train_with(&mock_line, &options, 1, &r) == AMOS_INPUT,
	      "training goes on with a loss that is no number");
	CHECK(strstr(amos_error(), "the loss is") && strstr(amos_error(), "--xi"),
	      "says what to try");
}

// Whoever reads the log of a training finds complete lines; a few reads may meet a write.
static void readers_see_lines(void)
{
	enum { READS = 100 };
	pid_t child = fork();
	if (!child) {
		struct amos_result r;
		struct amos_options options =
		    options_of(LINE_DATA, "steps", "100000000", "out", "lines", NULL);
		_exit(train_with(&mock_line, &options, 1, &r));
	}
	int complete = 0;
	off_t size = 0;
	for (int reads = 0; reads < READS;) {
		char last = 0;
		int file = open("lines/log.jsonl", O_RDONLY);
		off_t now = file < 0 ? 0 : lseek(file, 0, SEEK_END);
		if (now > size) {
			CHECK(pread(file, &last, 1, now - 1) == 1, "log");
			complete += last == '\n';
			size = now;
			reads++;
		}
		close(file);
		CHECK(!waitpid(child, NULL, WNOHANG), "the child ended by itself");
		usleep(500);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	CHECK(complete > READS * 8 / 10, "%d of %d reads end with a line", complete, READS);
}

static void first_interrupt_saves(void)
{
	struct amos_result r;
	struct amos_options options =
	    options_of(LINE_DATA, "steps", "1000000000", "out", "stopped", NULL);
	pid_t child = fork();
	if (!child) {
		int status = train_with(&mock_line, &options, 1, &r);
		_exit(status ? 10 + status : r.stopped ? 0 : 20);
	}
	struct stat log = {0};
	while (!log.st_size) { // until one step is done
		usleep(1000);
		stat("stopped/log.jsonl", &log);
	}
	kill(child, SIGINT);
	int status;
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
	struct amos_checkpoint *c;
	CHECK(!amos_checkpoint_open("stopped", true, &c), "the checkpoint");
	CHECK(c->image.point.step > 0, "no step was made");
	amos_checkpoint_close(c);
}

static void slow(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)buf, (void)i, (void)end, (void)local;
	close(creat("running", 0666));
	while (pause())
		;
}

static void second_interrupt_stops(void)
{
	struct amos_entry entry;
	struct amos_kernel kernels[UPDATE + 1];
	struct amos_model model = updated_by(slow, &entry, kernels);
	pid_t child = fork();
	if (!child) {
		struct amos_result r;
		struct amos_options options = options_of(LINE_DATA, "out", "twice", NULL);
		fclose(stderr);
		train_with(&model, &options, 1, &r);
		_exit(20);
	}
	while (access("running", F_OK))
		usleep(1000);
	int status;
	do // two signals at once count as one
		kill(child, SIGINT);
	while (!usleep(50000) && !waitpid(child, &status, WNOHANG));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == AMOS_MACHINE, "status %d", status);
}

// No checkpoint fits on the disk: the training fails at the first.
static void fails_without_room(const struct amos_options *options)
{
	struct amos_result r;
	pid_t child = fork();
	if (!child) {
		signal(SIGXFSZ, SIG_IGN);
		struct rlimit limit = {512, 512};
		setrlimit(RLIMIT_FSIZE, &limit);
		int status = train_with(&mock_line, options, 1, &r);
		_exit(status == AMOS_MACHINE && strstr(amos_error(), "last.ckpt: cannot write")
		          ? 0
		          : 20 + status);
	}
	int status;
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

// The checkpoint does not fit on the disk: the old one stays, without temporary files. A thread
// saves that of a new run, whose failure is reported as well, and no step.
static void full_disk(void)
{
	struct amos_result r;
	struct amos_options first =
	    options_of(LINE_DATA, "steps", "5", "log-every", "1000", "out", "full", NULL);
	CHECK(!train_with(&mock_line, &first, 1, &r), "first");
	struct amos_options rest =
	    options_of(LINE_DATA, "steps", "9", "log-every", "1000", "resume", "full", NULL);
	fails_without_room(&rest);
	struct amos_options new = options_of(LINE_DATA, "steps", "1000", "out", "no_room", NULL);
	new.fresh = true;
	fails_without_room(&new);
	CHECK(!count_lines("no_room/log.jsonl", "step"), "a step of a run that cannot resume");
	struct amos_checkpoint *c;
	CHECK(!amos_checkpoint_open("full", true, &c) && c->image.point.step == 5,
	      "the old checkpoint");
	amos_checkpoint_close(c);
	glob_t found;
	CHECK(glob("full/*.aside", 0, NULL, &found) == GLOB_NOMATCH, "half a file is left");
}

static void refuses(void)
{
	struct amos_result r;
	struct amos_options held = options_of(LINE_DATA, "eval-every", "5", "out", "bad", NULL);
	CHECK(train_with(&mock_line, &held, 1, &r) == AMOS_INPUT && strstr(amos_error(), "--split"),
	      "nothing held out");
	struct amos_options folder = options_of(LINE_DATA, "out", "x.npy/run", NULL);
	CHECK(train_with(&mock_line, &folder, 1, &r) == AMOS_INPUT, "a folder in a file");
	struct amos_options options = amos_options();
	CHECK(amos_option(&options, "steps", "ten") == AMOS_USAGE &&
	          strstr(amos_error(), "--steps"),
	      "steps ten");
	CHECK(amos_option(&options, "steps", "-1") == AMOS_USAGE, "steps -1");
	CHECK(amos_option(&options, "epochs", "nan") == AMOS_USAGE, "epochs nan");
	CHECK(amos_option(&options, "stepz", "1") == AMOS_USAGE, "stepz");
	CHECK(!amos_option(&options, "eval-every", "12") && options.eval_every == 12, "eval-every");
}

int main(void)
{
	enter_folder();
	write_line_data(100);
	// Children first, since a process with threads should not fork.
	readers_see_lines();
	first_interrupt_saves();
	second_interrupt_stops();
	full_disk();
	resumes_to_the_bit();
	knows_its_own();
	log_has_each_step_once();
	first_line_is_seen();
	ends_by_epochs();
	counts_updates();
	keeps_the_command();
	// The version, three values per step (loss, epoch, samples_per_s), one per evaluation; a
	// resumed run appends to the same file.
	events_are_sound("whole/events.out.tfevents.*", 1 + 3 * 60 + 3);
	events_are_sound("parts/events.out.tfevents.*", 1 + 3 * 61 + 5);
	stops_at_nan();
	refuses();
	printf(
	    "train: resume to the bit, log, events, command, epochs, NaN, interrupts, full disk\n");
}
