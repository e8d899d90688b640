// events.c: curves for TensorBoard: a file of records, each a protobuf message Event.
// Takes steps and numbers. Gives events.out.tfevents.*. Keeps: appends only; no memory is taken.
// Formats: TensorFlow's record_writer.h (length, masked CRC-32C, data, masked CRC-32C) and
// event.proto (wall_time = 1, step = 2, file_version = 3, summary = 5), summary.proto (value = 1:
// tag = 1, simple_value = 2).
#include "rt.h"
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

FILE *amos_events_open(const char *dir)
{
	char host[256] = "", path[4096];
	gethostname(host, sizeof host - 1);
	snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%d", dir, (long long)time(NULL),
	         host, getpid());
	FILE *to = fopen(path, "wb");
	if (!to)
		return NULL;
	struct message event = {.count = 0};
	put_time(&event);
	put_field(&event, 3, "brain.Event:2", 13);
	write_record(to, &event);
	return to;
}
