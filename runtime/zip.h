// zip.h: declares the reader and writer of zip files, for npz.c.
#ifndef ZIP_H
#define ZIP_H
#include "rt.h"

struct amos_zip { // an open zip file
	const char *path;
	struct amos_blob file;
	uint64_t left, at, end; // entries left; position of the next one; end of the list
};
struct amos_zip_entry {
	const char *name;
	size_t length; // of the name
	int method;
	bool encrypted;
	uint32_t check;                // CRC-32 of the contents
	uint64_t stored, size, offset; // bytes in the file; of the contents; position, if written
	const void *bytes;             // in the file; or to write
};

// Opens a zip file. The caller closes it, also if this fails.
int amos_zip_open(const char *path, struct amos_zip *);
void amos_zip_close(struct amos_zip *);
// Returns the next entry; at the end its name is NULL. It is valid until the file is closed.
int amos_zip_next(struct amos_zip *, struct amos_zip_entry *);
// Reads the contents of an entry, which the caller frees. `where` names it in messages.
int amos_zip_read(const struct amos_zip_entry *, const char *where, struct amos_blob *);

// Writes an entry, whose name, bytes, size and check are set, without compression.
void amos_zip_write(FILE *, struct amos_zip_entry *);
// Ends the file with the list of its entries. The caller checks ferror().
void amos_zip_finish(FILE *, int64_t n, const struct amos_zip_entry *);

#endif
