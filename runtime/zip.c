// zip.c: reads and writes zip files, those of .npz: entries that are stored or deflated.
// Format: PKWARE's APPNOTE.TXT 6.3, with its 64-bit records.
// Invariant: nothing in a file is trusted before it lies within the file.
#include "zip.h"
#include <stdlib.h>
#include <string.h>

enum { STORED = 0, DEFLATED = 8, UTF8 = 1 << 11, ENCRYPTED = 1 };
enum { ENTRY = 46, LOCAL = 30, END = 22, END64 = 56, LOCATOR = 20, BIG = 1 }; // bytes; BIG: extra 1
#define ALL16 0xFFFFu // "see the 64-bit record"
#define ALL32 0xFFFFFFFFu

static uint64_t number(const unsigned char *at, int bytes)
{
	uint64_t x = 0;
	memcpy(&x, at, (size_t)bytes);
	return x;
}

static bool is_record(const unsigned char *at, const char *signature)
{
	return !memcmp(at, "PK", 2) && !memcmp(at + 2, signature, 2);
}

// ---- reading --------------------------------------------------------------------------

static int corrupt(const char *path)
{
	return amos_fail(AMOS_INPUT, "%s: corrupt zip file", path);
}

// Finds the record at the end, before a comment that reaches the end of the file; NULL: none.
static const unsigned char *find_end(const struct amos_blob *file)
{
	for (size_t comment = 0; comment <= ALL16 && file->count >= END + comment; comment++) {
		const unsigned char *at = file->at + file->count - END - comment;
		if (is_record(at, "\5\6") && number(at + 20, 2) == comment)
			return at;
	}
	return NULL;
}

int amos_zip_open(const char *path, struct amos_zip *zip)
{
	int status = amos_blob_open(path, false, &zip->file);
	const unsigned char *end = status ? NULL : find_end(&zip->file);
	if (!status && !end)
		return amos_fail(AMOS_INPUT, "%s: cannot read as npz: not a zip file, or truncated",
		                 path);
	if (status)
		return status;
	const unsigned char *first = zip->file.at, *big = NULL;
	size_t before = (size_t)(end - first);
	if (before >= LOCATOR && is_record(end - LOCATOR, "\6\7")) {
		uint64_t offset = number(end - LOCATOR + 8, 8);
		if (before < END64 || offset > before - END64 || !is_record(first + offset, "\6\6"))
			return corrupt(path);
		big = first + offset;
	}
	zip->path = path;
	zip->left = big ? number(big + 32, 8) : number(end + 10, 2);
	zip->at = big ? number(big + 48, 8) : number(end + 16, 4);
	zip->end = before;
	return AMOS_DONE;
}

void amos_zip_close(struct amos_zip *zip)
{
	amos_blob_free(&zip->file);
}

// Reads the sizes and offset that need 64 bits from the extra fields of an entry.
static bool read_big(const unsigned char *at, const unsigned char *end, uint64_t *number_of[3])
{
	while (end - at >= 4 && end - at - 4 >= (ptrdiff_t)number(at + 2, 2)) {
		const unsigned char *next = at + 4 + number(at + 2, 2);
		if (number(at, 2) == BIG) {
			at += 4;
			for (int k = 0; k < 3; k++)
				if (*number_of[k] == ALL32) {
					if (next - at < 8)
						return false;
					*number_of[k] = number(at, 8);
					at += 8;
				}
			return true;
		}
		at = next;
	}
	return *number_of[0] != ALL32 && *number_of[1] != ALL32 && *number_of[2] != ALL32;
}

int amos_zip_next(struct amos_zip *zip, struct amos_zip_entry *entry)
{
	*entry = (struct amos_zip_entry){0};
	if (!zip->left)
		return AMOS_DONE;
	zip->left--;
	const unsigned char *file = zip->file.at, *at = file + zip->at;
	if (zip->at > zip->end || zip->end - zip->at < ENTRY || !is_record(at, "\1\2"))
		return corrupt(zip->path);
	size_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
	uint64_t offset = number(at + 42, 4);
	if (zip->end - zip->at - ENTRY < name + extra + comment)
		return corrupt(zip->path);
	*entry = (struct amos_zip_entry){.name = (const char *)at + ENTRY,
	                                 .length = name,
	                                 .method = (int)number(at + 10, 2),
	                                 .encrypted = number(at + 8, 2) & ENCRYPTED,
	                                 .check = (uint32_t)number(at + 16, 4),
	                                 .stored = number(at + 20, 4),
	                                 .size = number(at + 24, 4)};
	uint64_t *big[] = {&entry->size, &entry->stored, &offset};
	at += ENTRY + name;
	if (!read_big(at, at + extra, big))
		return corrupt(zip->path);
	zip->at += ENTRY + name + extra + comment;
	if (offset > zip->end || zip->end - offset < LOCAL || !is_record(file + offset, "\3\4"))
		return corrupt(zip->path);
	size_t head = LOCAL + number(file + offset + 26, 2) + number(file + offset + 28, 2);
	if (zip->end - offset < head || zip->end - offset - head < entry->stored)
		return corrupt(zip->path);
	entry->bytes = file + offset + head;
	return AMOS_DONE;
}

int amos_zip_read(const struct amos_zip_entry *entry, const char *where, struct amos_blob *to)
{
	enum { MOST = 1032 }; // bytes of contents per byte that is deflated
	*to = (struct amos_blob){0};
	bool deflated = entry->method == DEFLATED;
	if (entry->encrypted || (!deflated && entry->method != STORED))
		return amos_fail(AMOS_INPUT, "%s: %s" HELP "save it with numpy.savez", where,
		                 entry->encrypted ? "encrypted" : "unknown compression method");
	if (deflated ? entry->size / MOST > entry->stored : entry->size != entry->stored)
		return amos_fail(AMOS_INPUT, "%s: corrupt entry", where);
	to->at = entry->size < SIZE_MAX ? malloc(entry->size + 1) : NULL;
	to->count = entry->size;
	if (!to->at)
		return amos_no_memory(where);
	int status = AMOS_DONE;
	if (deflated)
		status = amos_inflate(to, entry->bytes, entry->stored, where);
	else
		memcpy(to->at, entry->bytes, entry->size);
	if (!status && amos_crc(AMOS_CRC32, 0, to->at, to->count) != entry->check)
		status = amos_fail(AMOS_INPUT, "%s: corrupt entry", where);
	if (status)
		amos_blob_free(to);
	return status;
}

// ---- writing --------------------------------------------------------------------------

struct record { // up to 64 bytes of a zip file
	unsigned char at[80];
	size_t count;
};

static void add(struct record *r, uint64_t x, int bytes)
{
	memcpy(r->at + r->count, &x, (size_t)bytes);
	r->count += (size_t)bytes;
}

static uint64_t least(uint64_t x, uint64_t limit)
{
	return x < limit ? x : limit;
}

// Adds what the local and the central header of an entry share. Equal arrays give equal bytes: the
// date is the first that zip can represent.
static void add_entry(struct record *r, const struct amos_zip_entry *e, size_t extra)
{
	enum { VERSION = 45, FIRST_DAY = 1 << 5 | 1 };
	add(r, VERSION, 2);
	add(r, UTF8, 2);
	add(r, STORED, 2);
	add(r, (uint64_t)FIRST_DAY << 16, 4);
	add(r, e->check, 4);
	add(r, least(e->size, ALL32), 4);
	add(r, least(e->size, ALL32), 4);
	add(r, e->length, 2);
	add(r, extra, 2);
}

static void add_big(struct record *r, const struct amos_zip_entry *e, size_t extra)
{
	if (!extra)
		return;
	add(r, BIG, 2);
	add(r, extra - 4, 2);
	if (e->size >= ALL32) {
		add(r, e->size, 8);
		add(r, e->size, 8);
	}
}

static void put(const struct record *r, FILE *to)
{
	fwrite(r->at, 1, r->count, to);
}

void amos_zip_write(FILE *to, struct amos_zip_entry *e)
{
	struct record head = {"PK\3\4", 4}, big = {{0}, 0};
	size_t extra = e->size >= ALL32 ? 20 : 0;
	e->offset = (uint64_t)ftello(to);
	add_entry(&head, e, extra);
	add_big(&big, e, extra);
	put(&head, to);
	fwrite(e->name, 1, e->length, to);
	put(&big, to);
	fwrite(e->bytes, 1, e->size, to);
}

static void write_central(FILE *to, const struct amos_zip_entry *e)
{
	enum { MADE_BY = 45 };
	struct record head = {"PK\1\2", 4}, big = {{0}, 0};
	bool far = e->offset >= ALL32;
	size_t extra = (e->size >= ALL32 ? 16 : 0) + (far ? 8 : 0);
	extra += extra ? 4 : 0;
	add(&head, MADE_BY, 2);
	add_entry(&head, e, extra);
	add(&head, 0, 2); // comment
	add(&head, 0, 2); // disk
	add(&head, 0, 2); // attributes
	add(&head, 0, 4);
	add(&head, least(e->offset, ALL32), 4);
	add_big(&big, e, extra);
	if (far)
		add(&big, e->offset, 8);
	put(&head, to);
	fwrite(e->name, 1, e->length, to);
	put(&big, to);
}

void amos_zip_finish(FILE *to, int64_t n, const struct amos_zip_entry *entries)
{
	uint64_t start = (uint64_t)ftello(to), count = (uint64_t)n;
	for (int64_t i = 0; i < n; i++)
		write_central(to, &entries[i]);
	uint64_t end = (uint64_t)ftello(to), size = end - start;
	struct record last = {"PK\5\6", 4}, big = {"PK\6\6", 4};
	if (start >= ALL32 || size >= ALL32 || count >= ALL16) {
		const uint64_t rest[] = {count, count, size, start};
		add(&big, END64 - 12, 8);
		add(&big, 45 << 16 | 45, 4);
		add(&big, 0, 8); // disks
		for (int k = 0; k < COUNT(rest); k++)
			add(&big, rest[k], 8);
		put(&big, to);
		big = (struct record){"PK\6\7", 4};
		add(&big, 0, 4);
		add(&big, end, 8);
		add(&big, 1, 4);
		put(&big, to);
	}
	add(&last, 0, 4); // disks
	add(&last, least(count, ALL16), 2);
	add(&last, least(count, ALL16), 2);
	add(&last, least(size, ALL32), 4);
	add(&last, least(start, ALL32), 4);
	add(&last, 0, 2); // comment
	put(&last, to);
}
