// minimal.c: takes the place of the readers that need other libraries, in trainers built with
// --minimal: each file that they would read is an error.
#include "rt.h"
#include <unistd.h>

static int not_here(const char *path, const char *what)
{
	return amos_fail(AMOS_INPUT,
	                 "%s: a trainer that is built with --minimal reads no %s" HELP
	                 "store the data in .npy or uncompressed .npz files",
	                 path, what);
}

int amos_gunzip(int file, const char *path, struct amos_blob *blob)
{
	(void)blob;
	close(file);
	return not_here(path, "compressed files");
}

int amos_inflate(struct amos_blob *to, const void *from, uint64_t count, const char *where)
{
	(void)to, (void)from, (void)count;
	return not_here(where, "compressed arrays");
}

int amos_arrays_jsonl(const char *path, const char *field, struct amos_arrays *to)
{
	(void)field, (void)to;
	return not_here(path, "JSON");
}

int amos_arrays_safetensors(const char *path, const char *key, struct amos_arrays *to)
{
	(void)key, (void)to;
	return not_here(path, "safetensors");
}

int amos_bitmap_read(const char *path, const struct amos_blob *blob, bool header,
                     struct amos_bitmap *map)
{
	(void)blob, (void)header, (void)map;
	return not_here(path, "images");
}
