// ckpt.c: checks checkpoints: round trips, corrupt and foreign files, killed writers.
// Bad files are rejected with their name and change nothing; a writer killed at any moment leaves
// the old file or the new one.
#include "fixtures.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static struct amos *open_line(const struct amos_model *model)
{
	struct amos *m;
	CHECK(!amos_open_slots(model, 1, 5, NULL, NULL, &m), "open");
	return m;
}

static int load(struct amos *m, const char *path, struct amos_position *point)
{
	struct amos_checkpoint *c;
	int status = amos_checkpoint_open(path, true, &c);
	if (!status)
		status = amos_checkpoint_load(c, m);
	if (!status)
		*point = c->image.point;
	amos_checkpoint_close(c);
	return status;
}

static void there_and_back(void)
{
	struct amos *m = open_line(&mock_line), *other = open_line(&mock_line);
	struct amos_position point = {.step = 12, .run = 34, .best = {8, 0.125, 0.5}}, read;
	float w[3] = {3, 1, 4};
	memcpy(amos_slot_bytes(m, 2), w, sizeof w);
	*(int64_t *)amos_slot_bytes(m, 4) = 12;
	CHECK(!amos_checkpoint_save(m, "good.ckpt", &point, "model\tline\n"), "save");
	CHECK(!load(other, "good.ckpt", &read), "load");
	CHECK(!memcmp(&point, &read, sizeof point), "where it stands");
	CHECK(!memcmp(amos_slot_bytes(other, 2), w, sizeof w) &&
	          *(int64_t *)amos_slot_bytes(other, 4) == 12,
	      "slots");
	struct amos_checkpoint *c;
	CHECK(!amos_checkpoint_open("good.ckpt", false, &c) && c->count == 4,
	      "w, b, amos.step, amos.seed");
	CHECK(!strcmp(c->identity, "model\tline\n"), "identity");
	struct amos_array array = c->slots[0].array;
	CHECK(!strcmp(array.name, "w") && c->slots[0].kind == S_param && array.rank == 1 &&
	          array.dim[0] == 3 && !memcmp(array.bytes, w, 12),
	      "w");
	amos_checkpoint_close(c);
	amos_close(m);
	amos_close(other);
}

// Every prefix and every changed byte is rejected, and the model stays unchanged.
static void damaged(const char *path)
{
	struct amos *m = open_line(&mock_line);
	float before[3], after[3];
	memcpy(before, amos_slot_bytes(m, 2), sizeof before);
	size_t size;
	char *bytes = read_file(arena, path, &size);
	struct amos_position point;
	for (size_t n = 0; n < size; n++) {
		write_file("cut.ckpt", bytes, n);
		CHECK(load(m, "cut.ckpt", &point) == AMOS_INPUT, "cut at %zu of %zu", n, size);
	}
	for (size_t n = 0; n < size; n++) {
		bytes[n] ^= (char)(1 << n % 8);
		write_file("changed.ckpt", bytes, size);
		CHECK(load(m, "changed.ckpt", &point) == AMOS_INPUT, "byte %zu changed", n);
		CHECK(strstr(amos_error(), "changed.ckpt"), "names the file");
		bytes[n] ^= (char)(1 << n % 8);
	}
	memcpy(after, amos_slot_bytes(m, 2), sizeof after);
	CHECK(!memcmp(before, after, sizeof before), "a refused checkpoint changed the model");
	amos_close(m);
}

enum { VERSION = 8, CRC = 24, BYTES = 40 }; // offsets of the head, see ckpt.c

// Writes a copy of the file's `size` bytes with this format and version, under a right checksum.
static void write_as(const char *path, char *bytes, size_t size, char format, const char *version)
{
	int64_t head;
	uint32_t crc = 0;
	memcpy(&head, bytes + BYTES, sizeof head);
	bytes[VERSION - 1] = format;
	memset(bytes + VERSION, 0, CRC - VERSION);
	strcpy(bytes + VERSION, version);
	memcpy(bytes + CRC, &crc, sizeof crc);
	crc = (uint32_t)crc32_z(0, (const Bytef *)bytes, (size_t)head);
	memcpy(bytes + CRC, &crc, sizeof crc);
	write_file(path, bytes, size);
}

// The version is kept; another one is no error, and is named in those of files that do not fit.
static void versions(void)
{
	struct amos *m = open_line(&mock_line);
	struct amos_checkpoint *c;
	struct amos_position point;
	size_t size;
	char *bytes = read_file(arena, "good.ckpt", &size);
	CHECK(!amos_checkpoint_open("good.ckpt", false, &c) &&
	          !strcmp(c->image.version, AMOS_VERSION),
	      "version");
	amos_checkpoint_close(c);
	write_as("version.ckpt", bytes, size, '3', "7.8.9");
	CHECK(!load(m, "version.ckpt", &point), "another version loads: %s", amos_error());
	amos_close(m);
	struct amos_model other = mock_line;
	other.nslots = 5;
	m = open_line(&other);
	CHECK(load(m, "version.ckpt", &point) == AMOS_INPUT &&
	          strstr(amos_error(),
	                 "amosc 7.8.9 wrote the checkpoint, this is amosc " AMOS_VERSION),
	      "both versions: %s", amos_error());
	CHECK(load(m, "good.ckpt", &point) == AMOS_INPUT && !strstr(amos_error(), "wrote"),
	      "the same version: %s", amos_error());
	amos_close(m);
}

// The state of two optimizers may have the same names and shapes.
static void optimizers(void)
{
	struct amos_model lion = mock_line, sgd = mock_line;
	lion.identity = "model\tline\n--optimizer\tlion\n--rate\t1\n";
	sgd.identity = "model\tline\n--optimizer\tsgd\n";
	struct amos *a = open_line(&lion), *b = open_line(&sgd), *c = open_line(&mock_line);
	struct amos_position point;
	CHECK(!amos_save(a, "lion.ckpt"), "save");
	CHECK(!load(a, "lion.ckpt", &point) && !load(c, "lion.ckpt", &point), "load: %s",
	      amos_error());
	CHECK(load(b, "lion.ckpt", &point) == AMOS_INPUT &&
	          strstr(amos_error(), "lion.ckpt: of another optimizer: expected sgd, found lion"),
	      "another optimizer: %s", amos_error());
	amos_close(a);
	amos_close(b);
	amos_close(c);
}

// Files of formats that this amosc cannot read are reported as such, whatever follows.
static void other_formats(void)
{
	struct amos *m = open_line(&mock_line);
	struct amos_position point;
	size_t size;
	char *bytes = read_file(arena, "good.ckpt", &size);
	write_as("format.ckpt", bytes, size, '1', "");
	CHECK(load(m, "format.ckpt", &point) == AMOS_INPUT &&
	          strstr(amos_error(), "expected format 3, found format 1"),
	      "format 1: %s", amos_error());
	write_as("format.ckpt", bytes, size, '4', "7.8.9");
	CHECK(load(m, "format.ckpt", &point) == AMOS_INPUT &&
	          strstr(amos_error(), "amosc 7.8.9, which is later than this amosc " AMOS_VERSION),
	      "format 4: %s", amos_error());
	write_as("format.ckpt", bytes, size, '4', "7\n\033[");
	CHECK(load(m, "format.ckpt", &point) == AMOS_INPUT && strstr(amos_error(), "amosc 7,"),
	      "a damaged version: %s", amos_error());
	write_as("format.ckpt", bytes, size, 'x', "");
	CHECK(load(m, "format.ckpt", &point) == AMOS_INPUT &&
	          strstr(amos_error(), "not a checkpoint"),
	      "no format: %s", amos_error());
	amos_close(m);
}

// Format 2, whose head has no version, loads.
static void without_version(void)
{
	struct amos *m = open_line(&mock_line), *other = open_line(&mock_line);
	struct amos_position point = {.step = 3}, read;
	float w[3] = {2, 7, 1};
	size_t size;
	int64_t head;
	memcpy(amos_slot_bytes(m, 2), w, sizeof w);
	CHECK(!amos_checkpoint_save(m, "new.ckpt", &point, "a line"), "save");
	char *bytes = read_file(arena, "new.ckpt", &size);
	memcpy(&head, bytes + BYTES, sizeof head);
	memmove(bytes + VERSION, bytes + CRC,
	        (size_t)head - CRC); // and zeros at the end of the head
	memset(bytes + head - (CRC - VERSION), 0, CRC - VERSION);
	bytes[VERSION - 1] = '2';
	uint32_t crc = 0;
	memcpy(bytes + VERSION, &crc, sizeof crc);
	crc = (uint32_t)crc32_z(0, (const Bytef *)bytes, (size_t)head);
	memcpy(bytes + VERSION, &crc, sizeof crc);
	write_file("old.ckpt", bytes, size);
	CHECK(!load(other, "old.ckpt", &read), "format 2: %s", amos_error());
	CHECK(!memcmp(&point, &read, sizeof point) &&
	          !memcmp(amos_slot_bytes(other, 2), w, sizeof w),
	      "its contents");
	struct amos_checkpoint *c;
	CHECK(!amos_checkpoint_open("old.ckpt", false, &c) && !*c->image.version &&
	          !strcmp(c->identity, "a line"),
	      "its identity");
	amos_checkpoint_close(c);
	amos_close(m);
	amos_close(other);
	damaged("old.ckpt");
}

// A checkpoint of the start has the slots and no weights: the model stays as it was opened.
static void start(void)
{
	struct amos *m = open_line(&mock_line);
	struct amos_position point = {.best = {-1, 1, 0}}, read;
	struct amos_checkpoint *c;
	const float before[] = {5, 6, 7};
	size_t all, few;
	memcpy(amos_slot_bytes(m, 2), before, sizeof before);
	CHECK(!amos_checkpoint_save_start(m, "start.ckpt", &point, "model\tline\n"), "save");
	CHECK(!load(m, "start.ckpt", &read) && !memcmp(&point, &read, sizeof point), "load");
	CHECK(!memcmp(amos_slot_bytes(m, 2), before, sizeof before), "no weights are loaded");
	CHECK(!amos_checkpoint_open("start.ckpt", true, &c) && c->image.start && c->count == 4 &&
	          !c->slots[0].array.bytes,
	      "the slots");
	amos_checkpoint_close(c);
	read_file(arena, "good.ckpt", &all);
	read_file(arena, "start.ckpt", &few);
	CHECK(few + (size_t)(mock_line.params + mock_line.state) == all, "no blocks");
	amos_close(m);
}

static void foreign(const char *path)
{
	struct amos_slot slots[7];
	memcpy(slots, mock_line.slots, 6 * sizeof *slots);
	struct amos_model other = mock_line;
	other.slots = slots;
	struct amos_position point;
	slots[2].dim[0] = 4;
	struct amos *m = open_line(&other);
	CHECK(load(m, path, &point) == AMOS_INPUT, "another shape");
	CHECK(strstr(amos_error(), "slot 'w': expected f32[4], found f32[3]"), "says which");
	amos_close(m);
	slots[2].dim[0] = 3;
	slots[6] = (struct amos_slot){
	    .name = "w.m", .kind = S_state, .type = E_f32, .bytes = 4, .offset = 120};
	other.nslots = 7;
	m = open_line(&other);
	CHECK(load(m, path, &point) == AMOS_INPUT && strstr(amos_error(), "no 'w.m'"),
	      "a slot more");
	amos_close(m);
	slots[6] = (struct amos_slot){
	    .name = "amos.rate", .kind = S_state, .type = E_f64, .bytes = 8, .offset = 120};
	m = open_line(&other);
	CHECK(!amos_set_rate(m, 0.5) && !load(m, path, &point) && amos_rate(m) == 1,
	      "a file from before there were rates");
	amos_close(m);
	other.nslots = 5;
	m = open_line(&other);
	CHECK(load(m, path, &point) == AMOS_INPUT && strstr(amos_error(), "'amos.seed'"),
	      "a slot less");
	amos_close(m);
	other.nslots = 6;
	slots[5].kind = S_input;
	slots[5].offset = 2;
	m = open_line(&other);
	CHECK(load(m, path, &point) == AMOS_INPUT && strstr(amos_error(), "it has 'amos.seed'"),
	      "an input where it has a slot");
	CHECK(load(m, "nothing.ckpt", &point) == AMOS_INPUT && strstr(amos_error(), "nothing.ckpt"),
	      "no file");
	amos_close(m);
}

// A child saves repeatedly; it is killed at random moments.
static void killed(void)
{
	enum { ROUNDS = 40, PATIENCE = 3000 };
	struct amos_slot slots[6];
	memcpy(slots, mock_line.slots, sizeof slots);
	struct amos_model large = mock_line;
	large.slots = slots;
	slots[4].rank = 1;
	slots[4].dim[0] = 1 << 16;
	slots[4].bytes = 8 << 16;
	slots[5].offset = slots[4].bytes;
	large.state = slots[4].bytes + 64;
	int64_t least = 0;
	for (int round = 0; round < ROUNDS; round++) {
		pid_t child = fork();
		if (!child) {
			struct amos *m = open_line(&large);
			int64_t *state = amos_slot_bytes(m, 4);
			struct amos_position point = {.step = least};
			for (;;) {
				point.step++;
				for (int i = 0; i < 1 << 16; i++)
					state[i] = point.step;
				if (amos_checkpoint_save(m, "killed.ckpt", &point, ""))
					_exit(1);
			}
		}
		usleep(3000 + 997 * (useconds_t)round);
		int late = round == ROUNDS - 1 && !least; // on a busy machine
		for (int i = 0; i < PATIENCE && late && access("killed.ckpt", F_OK); i++)
			usleep(10000);
		kill(child, SIGKILL);
		int status;
		waitpid(child, &status, 0);
		CHECK(WIFSIGNALED(status), "the child ended by itself: %d", status);
		if (access("killed.ckpt", F_OK))
			continue;
		struct amos *m = open_line(&large);
		struct amos_position point;
		CHECK(!load(m, "killed.ckpt", &point), "round %d", round);
		const int64_t *state = amos_slot_bytes(m, 4);
		for (int i = 0; i < 1 << 16; i++)
			CHECK(state[i] == point.step, "round %d: a torn checkpoint", round);
		CHECK(point.step >= least, "an older checkpoint came back");
		least = point.step;
		amos_close(m);
	}
	CHECK(least > 0, "no checkpoint was written");
}

int main(void)
{
	enter_folder();
	there_and_back();
	damaged("good.ckpt");
	versions();
	optimizers();
	other_formats();
	without_version();
	start();
	damaged("start.ckpt");
	foreign("good.ckpt");
	foreign("start.ckpt");
	killed();
	printf("ckpt: there and back, cut at every byte, every byte changed, other models, writers "
	       "killed\n");
}
