// events.c: writes metrics for TensorBoard, a file of records, each a protobuf message Event.
// Formats: TensorFlow's record_writer.h (length, masked CRC-32C, data, masked CRC-32C) and
// event.proto (wall_time = 1, step = 2, file_version = 3, summary = 5), summary.proto (value = 1:
// tag = 1, simple_value = 2).
#include "rt.h"
#include <dirent.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint32_t masked_crc(const void *at, size_t count)
{
	uint32_t crc = amos_crc(AMOS_CRC32C, 0, at, count);
	return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

struct message {
	unsigned char at[256];
	size_t count;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

#define KEY(field, wire) ((field) << 3 | (wire))

static void write_bytes(struct message *m, const void *bytes, size_t count)
{
	memcpy(m->at + m->count, bytes, count);
	m->count += count;
}

// Begins an event with its time.
static struct message event_now(void)
{
	struct message m = {.at = {KEY(1, FIXED64)}, .count = 1};
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	write_bytes(&m, &seconds, sizeof seconds);
	return m;
}

// Returns the step of the next event, which amos_event() writes after the time; 0: it has none; -1:
// the end of the file, or a torn or foreign record.
static int64_t next_event(FILE *from)
{
	enum { TIME = 9 };
	uint64_t length, step = 0;
	uint32_t crc, body;
	struct message m;
	if (fread(&length, sizeof length, 1, from) != 1 || fread(&crc, sizeof crc, 1, from) != 1 ||
	    crc != masked_crc(&length, sizeof length) || length > sizeof m.at ||
	    fread(m.at, 1, (size_t)length, from) != length ||
	    fread(&body, sizeof body, 1, from) != 1 || body != masked_crc(m.at, (size_t)length))
		return -1;
	if (length <= TIME || m.at[TIME] != KEY(2, VARINT))
		return 0;
	for (size_t i = TIME + 1, shift = 0; i < length && shift < 64; i++, shift += 7) {
		step |= (uint64_t)(m.at[i] & 127) << shift;
		if (m.at[i] < 128)
			break;
	}
	return (int64_t)step;
}

static void write_record(FILE *to, const struct message *m)
{
	uint64_t length = m->count;
	uint32_t crc = masked_crc(&length, sizeof length);
	fwrite(&length, sizeof length, 1, to);
	fwrite(&crc, sizeof crc, 1, to);
	fwrite(m->at, 1, m->count, to);
	crc = masked_crc(m->at, m->count);
	fwrite(&crc, sizeof crc, 1, to);
}

void amos_event(FILE *to, const char *tag, int64_t step, double number)
{
	float f = (float)number;
	struct message m = event_now();
	m.at[m.count++] = KEY(2, VARINT);
	m.count += amos_varint((char *)m.at + m.count, (uint64_t)step);
	// Lengths of a summary, its value and the value's tag: below 128, a byte each.
	unsigned char size = (unsigned char)strnlen(tag, 100);
	const unsigned char head[] = {KEY(5, BYTES), size + 9u,     KEY(1, BYTES),
	                              size + 7u,     KEY(1, BYTES), size};
	write_bytes(&m, head, sizeof head);
	write_bytes(&m, tag, size);
	m.at[m.count++] = KEY(2, FIXED32);
	write_bytes(&m, &f, sizeof f);
	write_record(to, &m);
}

FILE *amos_events_open(const char *dir, bool resumed, int64_t step)
{
	char host[256] = "", path[4096];
	DIR *names = resumed ? opendir(dir) : NULL;
	struct dirent *one = NULL;
	while (names && (one = readdir(names)) &&
	       strncmp(one->d_name, AMOS_EVENTS, strlen(AMOS_EVENTS)))
		;
	gethostname(host, sizeof host - 1);
	if (one)
		snprintf(path, sizeof path, "%s/%s", dir, one->d_name);
	else
		snprintf(path, sizeof path, "%s/" AMOS_EVENTS "%lld.%s.%d", dir,
		         (long long)time(NULL), host, getpid());
	if (names)
		closedir(names);
	FILE *to = amos_log_file(path, one != NULL, step, next_event);
	if (to && !ftell(to)) {
		static const char version[] = "\x1a\x0d"
		                              "brain.Event:2"; // file_version, 13 bytes
		struct message m = event_now();
		write_bytes(&m, version, sizeof version - 1);
		write_record(to, &m);
	}
	return to;
}
