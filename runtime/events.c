// events.c: writes metrics for TensorBoard, a file of records, each a protobuf message Event.
// Formats: TensorFlow's record_writer.h (length, masked CRC-32C, data, masked CRC-32C) and
// event.proto (wall_time = 1, step = 2, file_version = 3, summary = 5), summary.proto (value = 1:
// tag = 1, simple_value = 2).
#include "rt.h"
#include <dirent.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// CRC-32C (Castagnoli), bit by bit, since records are short.
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

static void write_bytes(struct message *m, const void *bytes, size_t count)
{
	memcpy(m->at + m->count, bytes, count);
	m->count += count;
}

static void write_varint(struct message *m, uint64_t x)
{
	for (; x > 127; x >>= 7)
		m->at[m->count++] = (unsigned char)(x | 128);
	m->at[m->count++] = (unsigned char)x;
}

static void write_key(struct message *m, int field, int wire)
{
	write_varint(m, (uint64_t)(field << 3 | wire));
}

static void write_field(struct message *m, int field, const void *bytes, size_t count)
{
	write_key(m, field, BYTES);
	write_varint(m, count);
	write_bytes(m, bytes, count);
}

static void write_time(struct message *m)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	write_key(m, 1, FIXED64);
	write_bytes(m, &seconds, sizeof seconds);
}

// Reads a record. False at the end of the file, and for a torn or foreign record.
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

// Returns the step of an event written by amos_event(), where it follows the time; 0: none.
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
	write_field(&value, 1, tag, strnlen(tag, 100));
	write_key(&value, 2, FIXED32);
	write_bytes(&value, &f, sizeof f);
	write_field(&summary, 1, value.at, value.count);
	write_time(&event);
	write_key(&event, 2, VARINT);
	write_varint(&event, (uint64_t)step);
	write_field(&event, 5, summary.at, summary.count);
	write_record(to, &event);
}

FILE *amos_events_open(const char *dir, bool resumed, int64_t step)
{
	char host[256] = "", path[4096];
	DIR *names = resumed ? opendir(dir) : NULL;
	struct dirent *one = NULL;
	while (names && (one = readdir(names)) &&
	       strncmp(one->d_name, AMOS_EVENTS, strlen(AMOS_EVENTS)))
		;
	if (one)
		snprintf(path, sizeof path, "%s/%s", dir, one->d_name);
	if (names)
		closedir(names);
	if (one) {
		// Continues after the last record of `step` or earlier; torn records are cut off.
		FILE *file = amos_file_edit(path, "r+b");
		long keep = 0;
		for (struct message m; file && read_record(file, &m) && step_of(&m) <= step;)
			keep = ftell(file);
		if (!file || (!fseek(file, keep, SEEK_SET) && !ftruncate(fileno(file), keep)))
			return file;
		fclose(file);
		return NULL;
	}
	gethostname(host, sizeof host - 1);
	snprintf(path, sizeof path, "%s/" AMOS_EVENTS "%lld.%s.%d", dir, (long long)time(NULL),
	         host, getpid());
	FILE *to = amos_file_edit(path, "wb");
	if (!to)
		return NULL;
	struct message event = {.count = 0};
	write_time(&event);
	write_field(&event, 3, "brain.Event:2", 13);
	write_record(to, &event);
	return to;
}
