// inflate.c: decompresses files and entries of zip files, with zlib.
#include "rt.h"
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

struct gzip {
	z_stream z;
	int state;   // of the current member: Z_OK until its end
	int members; // complete ones
	bool padded; // zeros followed them, as on a tape
	unsigned char in[1 << 16];
};

static int bad_gzip(const struct gzip *g, const char *path)
{
	enum { MAGIC = 2 }; // bytes that begin a member
	if (g->state == Z_MEM_ERROR)
		return amos_no_memory(path);
	bool begins = g->z.total_in > MAGIC && !g->padded;
	return amos_fail(AMOS_INPUT, "%s: %s", path,
	                 !begins && g->members ? "other data follow the compressed data"
	                 : g->state == Z_OK    ? "truncated file"
	                 : begins              ? "corrupt compressed data"
	                                       : "expected gzip data" HELP
	                            "name a file that is not compressed without .gz");
}

// Decompresses the next bytes of the input, as far as there is a block of room, and appends them.
static int gunzip_some(struct gzip *g, const char *path, struct amos_blob *blob, size_t *room)
{
	if (g->state == Z_STREAM_END && !*g->z.next_in) {
		g->padded = true;
		g->z.next_in++;
		g->z.avail_in--;
		return AMOS_DONE;
	}
	if (g->padded)
		return bad_gzip(g, path);
	if (g->state == Z_STREAM_END)
		g->state = inflateReset(&g->z);
	if (!amos_grow((void **)&blob->at, room, blob->count + sizeof g->in, 1))
		return amos_no_memory(path);
	g->z.next_out = (void *)(blob->at + blob->count);
	g->z.avail_out = sizeof g->in;
	g->state = inflate(&g->z, Z_NO_FLUSH);
	g->state = g->state == Z_BUF_ERROR ? Z_OK : g->state; // it had written all
	blob->count += sizeof g->in - g->z.avail_out;
	g->members += g->state == Z_STREAM_END;
	return g->state == Z_OK || g->state == Z_STREAM_END ? AMOS_DONE : bad_gzip(g, path);
}

int amos_gunzip(int file, const char *path, struct amos_blob *blob)
{
	enum { GZIP = 16 };
	struct gzip g = {.z.avail_out = 1};
	size_t room = 0;
	ssize_t n = 1;
	int status = inflateInit2(&g.z, MAX_WBITS + GZIP) ? amos_no_memory(path) : AMOS_DONE;
	while (!status && n > 0) {
		n = read(file, g.in, sizeof g.in);
		g.z.next_in = g.in;
		g.z.avail_in = n > 0 ? (uInt)n : 0;
		while (!status && (g.z.avail_in || (g.state == Z_OK && !g.z.avail_out)))
			status = gunzip_some(&g, path, blob, &room);
	}
	if (!status && n < 0)
		status = amos_fail_errno("read", path);
	if (!status && g.state != Z_STREAM_END)
		status = bad_gzip(&g, path);
	inflateEnd(&g.z);
	close(file);
	return status;
}

// zlib counts bytes in 32 bits, so large data pass through it in pieces.
int amos_inflate(struct amos_blob *to, const void *from, uint64_t count, const char *where)
{
	z_stream z = {.next_in = (void *)from, .next_out = to->at};
	uint64_t in = count, out = to->count;
	int state = inflateInit2(&z, -MAX_WBITS);
	while (state == Z_OK) {
		uInt some = (uInt)(in < UINT_MAX ? in : UINT_MAX),
		     room = (uInt)(out < UINT_MAX ? out : UINT_MAX);
		z.avail_in = some;
		z.avail_out = room;
		state = inflate(&z, Z_NO_FLUSH);
		in -= some - z.avail_in;
		out -= room - z.avail_out;
	}
	inflateEnd(&z);
	if (state == Z_MEM_ERROR)
		return amos_no_memory(where);
	return state == Z_STREAM_END && !in && !out
	           ? AMOS_DONE
	           : amos_fail(AMOS_INPUT, "%s: corrupt entry", where);
}
