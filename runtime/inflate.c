// inflate.c: decompresses files and entries of zip files, with zlib.
#include "rt.h"
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

int amos_gunzip(int file, const char *path, struct amos_blob *blob)
{
	enum { BLOCK = 1 << 16 };
	gzFile from = gzdopen(file, "rb");
	if (!from) {
		close(file);
		return amos_no_memory(path);
	}
	size_t room = 0;
	int status = AMOS_DONE, cause = Z_OK;
	for (int got = 1; !status && got;) {
		bool grown = amos_grow((void **)&blob->at, &room, blob->count + BLOCK, 1);
		got = grown ? gzread(from, blob->at + blob->count, BLOCK) : 0;
		gzerror(from, &cause);
		if (!grown || cause == Z_MEM_ERROR)
			status = amos_no_memory(path);
		else if (got < 0)
			status = cause == Z_ERRNO
			             ? amos_fail_errno("read", path)
			             : amos_fail(AMOS_INPUT, "%s: corrupt compressed data", path);
		else if (!got && cause == Z_BUF_ERROR)
			status = amos_fail(AMOS_INPUT, "%s: truncated file", path);
		else
			blob->count += (size_t)got;
	}
	gzclose(from);
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
