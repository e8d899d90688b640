// ckpt.c: reads and writes checkpoints: a header, then the blocks of parameters and state.
// Invariant: a crash leaves the old file or the new one. Nothing is trusted without its checksum. A
// checkpoint that does not match the model changes nothing.
//
// Format, little endian: struct head; for each slot that is not an input, a struct record and its
// name; the identity (identity.c); zeros up to a multiple of 64; params; state. head.crc covers all
// bytes before params (with itself 0); the other checksums cover their blocks.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char magic[8] = "amosckp2", earlier[8] = "amosckp1";

struct head {
	char magic[8];
	uint32_t crc, crc_params, crc_state, nslots;
	int64_t bytes; // size of all before params
	struct amos_position point;
	int64_t params, state, identity; // bytes
};

struct record {
	int64_t dim[10];
	int64_t offset;                 // bytes into its block
	int32_t kind, type, rank, name; // name: its length in bytes
};

enum { INPUT_KIND = 0, STATE_KIND = 4 };

static uint32_t crc_of(const void *at, int64_t bytes)
{
	return (uint32_t)crc32_z(0, at, (size_t)bytes);
}

// ---- writing --------------------------------------------------------------------------

// Returns the head and the records, to be freed by the caller; NULL: out of memory.
static char *head_of(const struct amos *m, const struct amos_position *point, const char *identity,
                     int64_t *bytes)
{
	const struct amos_model *model = amos_model_of(m);
	struct head head = {.point = *point,
	                    .params = model->params,
	                    .state = model->state,
	                    .identity = (int64_t)strlen(identity),
	                    .crc_params = crc_of(amos_params(m), model->params),
	                    .crc_state = crc_of(amos_state(m), model->state)};
	memcpy(head.magic, magic, sizeof magic);
	char *at;
	size_t size;
	FILE *to = open_memstream(&at, &size);
	if (!to)
		return NULL;
	fwrite(&head, sizeof head, 1, to);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		if (s->kind == INPUT_KIND)
			continue;
		struct record record = {.offset = s->offset,
		                        .kind = s->kind,
		                        .type = s->type,
		                        .rank = (int32_t)s->rank,
		                        .name = (int32_t)strlen(s->name)};
		memcpy(record.dim, s->dim, sizeof record.dim);
		fwrite(&record, sizeof record, 1, to);
		fwrite(s->name, (size_t)record.name, 1, to);
		head.nslots++;
	}
	fputs(identity, to);
	while (ftell(to) % 64)
		fputc(0, to);
	if (fclose(to))
		return NULL;
	head.bytes = *bytes = (int64_t)size;
	memcpy(at, &head, sizeof head);
	head.crc = crc_of(at, head.bytes);
	memcpy(at, &head, sizeof head);
	return at;
}

int amos_save(const struct amos *m, const char *path, const struct amos_position *point,
              const char *identity)
{
	int64_t bytes;
	char *head = head_of(m, point, identity, &bytes);
	if (!head)
		return amos_no_memory(path);
	struct amos_temp_file file;
	int status = amos_file_begin(&file, path, AMOS_OWN);
	if (!status) {
		// The stream remembers errors; amos_file_keep() checks for them.
		fwrite(head, 1, (size_t)bytes, file.to);
		fwrite(amos_params(m), 1, (size_t)amos_model_of(m)->params, file.to);
		fwrite(amos_state(m), 1, (size_t)amos_model_of(m)->state, file.to);
		status = amos_file_keep(&file);
	}
	free(head);
	return status;
}

// ---- reading --------------------------------------------------------------------------

struct amos_checkpoint {
	char *path;
	struct amos_blob blob;
	struct head head;
	char *identity;
	int64_t count;
	struct slot {
		struct record record;
		char *name;
	} * slots;
};

static int read_head(struct amos_checkpoint *c)
{
	const char *path = c->path;
	if (c->blob.count >= sizeof earlier && !memcmp(c->blob.at, earlier, sizeof earlier))
		return amos_fail(AMOS_INPUT,
		                 "%s: a checkpoint of an earlier amosc; expected format 2, found "
		                 "format 1\n  help: export its weights with that amosc",
		                 path);
	if (c->blob.count < sizeof c->head || memcmp(c->blob.at, magic, sizeof magic))
		return amos_fail(AMOS_INPUT, "%s: not a checkpoint of amosc", path);
	memcpy(&c->head, c->blob.at, sizeof c->head);
	int64_t size = (int64_t)c->blob.count;
	if (c->head.bytes < (int64_t)sizeof c->head || c->head.bytes > size || c->head.bytes % 64 ||
	    c->head.params < 0 || c->head.state < 0 || c->head.identity < 0 ||
	    c->head.identity > c->head.bytes || c->head.params > size - c->head.bytes ||
	    c->head.state != size - c->head.bytes - c->head.params ||
	    c->head.nslots > (uint64_t)c->head.bytes / sizeof(struct record))
		return amos_fail(AMOS_INPUT, "%s: truncated or corrupt: %lld bytes", path,
		                 (long long)size);
	struct head plain = c->head;
	plain.crc = 0;
	uLong crc = crc32_z(0, (const Bytef *)&plain, sizeof plain);
	crc = crc32_z(crc, c->blob.at + sizeof plain, (size_t)c->head.bytes - sizeof plain);
	const unsigned char *params = c->blob.at + c->head.bytes;
	if (crc != c->head.crc || crc_of(params, c->head.params) != c->head.crc_params ||
	    crc_of(params + c->head.params, c->head.state) != c->head.crc_state)
		return amos_fail(AMOS_INPUT, "%s: corrupt: a checksum does not match", path);
	return AMOS_DONE;
}

static int read_record(struct amos_checkpoint *c, int64_t *at)
{
	const char *path = c->path;
	struct slot *slot = &c->slots[c->count];
	struct record *r = &slot->record;
	if (c->head.bytes - *at < (int64_t)sizeof *r)
		return amos_fail(AMOS_INPUT, "%s: corrupt", path);
	memcpy(r, c->blob.at + *at, sizeof *r);
	*at += (int64_t)sizeof *r;
	int64_t block = r->kind == STATE_KIND ? c->head.state : c->head.params;
	bool sound = r->rank >= 0 && r->rank <= 10 && r->type >= 0 && r->type < AMOS_TYPES &&
	             r->name >= 0 && r->name <= c->head.bytes - *at && r->offset >= 0 &&
	             r->offset <= block;
	int64_t count = sound ? amos_count(r->rank, r->dim) : -1;
	if (count < 0 || count > (block - r->offset) / amos_types[r->type].bytes)
		return amos_fail(AMOS_INPUT, "%s: corrupt", path);
	slot->name = strndup((const char *)c->blob.at + *at, (size_t)r->name);
	if (!slot->name)
		return amos_no_memory(path);
	*at += r->name;
	c->count++;
	return AMOS_DONE;
}

static int read_file(struct amos_checkpoint *c)
{
	int status = amos_blob_open(c->path, false, &c->blob);
	if (!status)
		status = read_head(c);
	if (status)
		return status;
	c->slots = calloc((size_t)c->head.nslots + 1, sizeof *c->slots);
	if (!c->slots)
		return amos_no_memory(c->path);
	int64_t at = sizeof c->head;
	while (!status && c->count < c->head.nslots)
		status = read_record(c, &at);
	if (!status && c->head.identity > c->head.bytes - at)
		status = amos_fail(AMOS_INPUT, "%s: corrupt", c->path);
	if (status)
		return status;
	c->identity = strndup((const char *)c->blob.at + at, (size_t)c->head.identity);
	return c->identity ? AMOS_DONE : amos_no_memory(c->path);
}

// Returns the checkpoint file for `path`, to be freed by the caller; NULL: out of memory. A run
// killed at its start has no best.ckpt yet.
static char *file_of(const char *path, bool last)
{
	struct stat about;
	char *best, *inside;
	if (stat(path, &about) || !S_ISDIR(about.st_mode))
		return strdup(path);
	if (asprintf(&best, "%s/best.ckpt", path) < 0)
		return NULL;
	if (!last && !access(best, F_OK))
		return best;
	free(best);
	return asprintf(&inside, "%s/last.ckpt", path) < 0 ? NULL : inside;
}

int amos_checkpoint_open(const char *path, bool last, struct amos_checkpoint **to)
{
	*to = NULL;
	struct amos_checkpoint *c = calloc(1, sizeof *c);
	if (c)
		c->path = file_of(path, last);
	int status = c && c->path ? read_file(c) : amos_no_memory(path);
	if (status)
		amos_checkpoint_close(c);
	else
		*to = c;
	return status;
}

void amos_checkpoint_close(struct amos_checkpoint *c)
{
	if (!c)
		return;
	for (int64_t i = 0; i < c->count; i++)
		free(c->slots[i].name);
	free(c->slots);
	free(c->identity);
	free(c->path);
	amos_blob_free(&c->blob);
	free(c);
}

struct amos_position amos_checkpoint_point(const struct amos_checkpoint *c)
{
	return c->head.point;
}

const char *amos_checkpoint_identity(const struct amos_checkpoint *c)
{
	return c->identity;
}

int64_t amos_checkpoint_slots(const struct amos_checkpoint *c)
{
	return c->count;
}

struct amos_array amos_checkpoint_slot(const struct amos_checkpoint *c, int64_t i, int *kind)
{
	const struct record *r = &c->slots[i].record;
	struct amos_array array = {.name = c->slots[i].name, .type = r->type, .rank = r->rank};
	memcpy(array.dim, r->dim, sizeof array.dim);
	array.bytes =
	    c->blob.at + c->head.bytes + r->offset + (r->kind == STATE_KIND ? c->head.params : 0);
	if (kind)
		*kind = r->kind;
	return array;
}

// ---- into a model ---------------------------------------------------------------------

static int differs(const char *path, const struct amos_slot *slot, const struct record *r)
{
	if (!r)
		return amos_fail(AMOS_INPUT, "%s: of another model or optimizer: it has no '%s'",
		                 path, slot->name);
	char found[256], expected[256];
	return amos_fail(
	    AMOS_INPUT, "%s: of another model: slot '%s': expected %s, found %s", path, slot->name,
	    amos_shape_text(expected, sizeof expected, slot->type, (int)slot->rank, slot->dim),
	    amos_shape_text(found, sizeof found, r->type, r->rank, r->dim));
}

static const struct record *record_of(const struct amos_checkpoint *c, const char *name)
{
	for (int64_t i = 0; i < c->count; i++)
		if (!strcmp(c->slots[i].name, name))
			return &c->slots[i].record;
	return NULL;
}

// Fails unless the model and the file have the same slots.
static int check_slots(const struct amos_checkpoint *c, const struct amos_model *model)
{
	const char *path = c->path;
	int64_t count = 0;
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (slot->kind == INPUT_KIND)
			continue;
		const struct record *r = record_of(c, slot->name);
		if (!r || r->type != slot->type || r->rank != slot->rank ||
		    (r->kind == STATE_KIND) != (slot->kind == STATE_KIND) ||
		    memcmp(r->dim, slot->dim, sizeof(int64_t) * (size_t)slot->rank))
			return differs(path, slot, r);
		count++;
	}
	for (int64_t i = 0; count != c->count && i < c->count; i++) {
		int64_t slot = amos_find_slot(model, c->slots[i].name);
		if (slot < 0 || model->slots[slot].kind == INPUT_KIND)
			return amos_fail(AMOS_INPUT,
			                 "%s: of another model or optimizer: it has '%s', which "
			                 "this model lacks",
			                 path, c->slots[i].name);
	}
	return count == c->count ? AMOS_DONE
	                         : amos_fail(AMOS_INPUT, "%s: corrupt: it has a slot twice", path);
}

int amos_checkpoint_load(const struct amos_checkpoint *c, struct amos *m)
{
	const struct amos_model *model = amos_model_of(m);
	int status = check_slots(c, model);
	for (int64_t i = 0; !status && i < c->count; i++) {
		struct amos_array array = amos_checkpoint_slot(c, i, NULL);
		int64_t slot = amos_find_slot(model, array.name);
		memcpy(amos_slot_bytes(m, slot), array.bytes, (size_t)model->slots[slot].bytes);
	}
	return status;
}
