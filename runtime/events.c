// events.c: curves for TensorBoard: a file of records, each a protobuf message Event.
// Takes steps and numbers. Gives events.out.tfevents.*. Keeps: a resumed run goes on in
// its file, each step once.
// Formats: TensorFlow's record_writer.h (length, masked CRC-32C, data, masked CRC-32C) and
// event.proto (wall_time = 1, step = 2, file_version = 3, summary = 5), summary.proto (value = 1:
// tag = 1, simple_value = 2).
#include "rt.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// CRC-32C (Castagnoli), bit by bit: records are short.
static uint32_t masked_crc(const unsigned char *at, size_t count)
{
	uint32_t crc = ~0u;
	for (size_t i = 0; i < count; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

struct message {
	unsigned char at[512];
	size_t count;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

static void put_bytes(struct message *m, const void *bytes, size_t count)
{
	memcpy(m->at + m->count, bytes, count);
	m->count += count;
}

static void put_varint(struct message *m, uint64_t x)
{
	for (; x > 127; x >>= 7)
		m->at[m->count++] = (unsigned char)(x | 128);
	m->at[m->count++] = (unsigned char)x;
}

static void put_key(struct message *m, int field, int wire)
{
	put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_field(struct message *m, int field, const void *bytes, size_t count)
{
	put_key(m, field, BYTES);
	put_varint(m, count);
	put_bytes(m, bytes, count);
}

static void put_time(struct message *m)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	put_key(m, 1, FIXED64);
	put_bytes(m, &seconds, sizeof seconds);
}

// False at the file's end, and for a record that is torn or of another writer.
static bool read_record(FILE *from, struct message *m)
{
	uint64_t length;
	uint32_t crc, body;
	if (fread(&length, sizeof length, 1, from) != 1 || fread(&crc, sizeof crc, 1, from) != 1 ||
	    crc != masked_crc((const unsigned char *)&length, sizeof length) ||
	    length > sizeof m->at)
		return false;
	m->count = (size_t)length;
	return fread(m->at, 1, m->count, from) == m->count &&
	       fread(&body, sizeof body, 1, from) == 1 && body == masked_crc(m->at, m->count);
}

// Of an event as amos_event() writes it, whose step follows its time; 0: it has none.
static int64_t step_of(const struct message *m)
{
	enum { TIME = 9, STEP = 2 << 3 | VARINT };
	uint64_t step = 0;
	if (m->count <= TIME || m->at[TIME] != STEP)
		return 0;
	for (size_t i = TIME + 1, shift = 0; i < m->count && shift < 64; i++, shift += 7) {
		step |= (uint64_t)(m->at[i] & 127) << shift;
		if (m->at[i] < 128)
			break;
	}
	return (int64_t)step;
}

static void write_record(FILE *to, const struct message *m)
{
	uint64_t length = m->count;
	uint32_t crc = masked_crc((const unsigned char *)&length, sizeof length);
	fwrite(&length, sizeof length, 1, to);
	fwrite(&crc, sizeof crc, 1, to);
	fwrite(m->at, 1, m->count, to);
	crc = masked_crc(m->at, m->count);
	fwrite(&crc, sizeof crc, 1, to);
}

void amos_event(FILE *to, const char *tag, int64_t step, double number)
{
	struct message value = {.count = 0}, summary = {.count = 0}, event = {.count = 0};
	float f = (float)number;
	put_field(&value, 1, tag, strnlen(tag, 100));
	put_key(&value, 2, FIXED32);
	put_bytes(&value, &f, sizeof f);
	put_field(&summary, 1, value.at, value.count);
	put_time(&event);
	put_key(&event, 2, VARINT);
	put_varint(&event, (uint64_t)step);
	put_field(&event, 5, summary.at, summary.count);
	write_record(to, &event);
}

// The file, to be written from the first record of a later step on, or that is torn.
static FILE *go_on(const char *path, int64_t step)
{
	FILE *file = amos_file_edit(path, "r+b");
	long keep = 0;
	for (struct message m; file && read_record(file, &m) && step_of(&m) <= step;)
		keep = ftell(file);
	if (!file || (!fseek(file, keep, SEEK_SET) && !ftruncate(fileno(file), keep)))
		return file;
	fclose(file);
	return NULL;
}

// The name of the events in `dir`, malloc'd; NULL: there are none.
static char *find(const char *dir)
{
	DIR *all = opendir(dir);
	char *path = NULL;
	for (struct dirent *one; all && !path && (one = readdir(all));)
		if (!strncmp(one->d_name, AMOS_EVENTS, strlen(AMOS_EVENTS)) &&
		    asprintf(&path, "%s/%s", dir, one->d_name) < 0)
			path = NULL;
	if (all)
		closedir(all);
	return path;
}

FILE *amos_events_open(const char *dir, bool resumed, int64_t step)
{
	char host[256] = "", path[4096], *old = resumed ? find(dir) : NULL;
	if (old) {
		FILE *file = go_on(old, step);
		free(old);
		return file;
	}
	gethostname(host, sizeof host - 1);
	snprintf(path, sizeof path, "%s/" AMOS_EVENTS "%lld.%s.%d", dir, (long long)time(NULL),
	         host, getpid());
	FILE *to = amos_file_edit(path, "wb");
	if (!to)
		return NULL;
	struct message event = {.count = 0};
	put_time(&event);
	put_field(&event, 3, "brain.Event:2", 13);
	write_record(to, &event);
	return to;
}
