// ckpt.c: reads and writes checkpoints: a header, then the blocks of parameters and state.
// Invariant: nothing is trusted without its checksum.
//
// Format, little endian: struct head; for each slot that is not an input, a struct record and its
// name; the identity (identity.c); zeros up to a multiple of 64; params; state. head.crc covers all
// bytes before params (with itself 0); the other checksums cover their blocks. Before the first
// step both blocks are left out: they are as amos_open_slots() makes them. Every format from 3 on
// begins with its number in head.magic and head.version; format 2 lacks head.version and is read,
// too.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "amosckp3";

struct head {
	char magic[8];    // "amosckp" and the number of the format
	char version[16]; // of the amosc that wrote it
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

static uint32_t crc_of(const void *at, int64_t bytes)
{
	return amos_crc(AMOS_CRC32, 0, at, (size_t)bytes);
}

static bool is_saved(const struct amos_slot *slot)
{
	return slot->kind != AMOS_SLOT_INPUT && slot->kind != AMOS_SLOT_GRADIENT;
}

// ---- writing --------------------------------------------------------------------------

// Fails if the disk has no room for a file of `bytes` bytes. The room stays the file's if the file
// system can do that.
static bool reserve(FILE *to, int64_t bytes)
{
	return !fallocate(fileno(to), FALLOC_FL_KEEP_SIZE, 0, bytes) ||
	       (errno != ENOSPC && errno != EDQUOT && errno != EFBIG);
}

struct amos_position amos_start_position(void)
{
	static const struct amos_held none = {-1, INFINITY, NAN};
	return (struct amos_position){.held = none, .best = none};
}

static int64_t header_bytes(const struct amos_model *model, const char *identity)
{
	int64_t bytes = (int64_t)(sizeof(struct head) + strlen(identity));
	for (int64_t i = 0; i < model->nslots; i++)
		if (is_saved(&model->slots[i]))
			bytes += (int64_t)(sizeof(struct record) + strlen(model->slots[i].name));
	return (bytes + 63) / 64 * 64;
}

// Writes the header of a checkpoint, of header_bytes() zeros, whose blocks have `params` and
// `state` bytes.
static void write_header(char *header, const struct amos *m, const struct amos_position *point,
                         const char *identity, int64_t params, int64_t state)
{
	const struct amos_model *model = m->model;
	struct head head = {.version = AMOS_VERSION,
	                    .bytes = header_bytes(model, identity),
	                    .point = *point,
	                    .params = params,
	                    .state = state,
	                    .identity = (int64_t)strlen(identity),
	                    .crc_params = crc_of(m->params, params),
	                    .crc_state = crc_of(m->state, state)};
	char *at = header + sizeof head;
	memcpy(head.magic, magic, sizeof magic);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		if (!is_saved(s))
			continue;
		struct record record = {.offset = s->offset,
		                        .kind = s->kind,
		                        .type = s->type,
		                        .rank = (int32_t)s->rank,
		                        .name = (int32_t)strlen(s->name)};
		memcpy(record.dim, s->dim, sizeof record.dim);
		at = mempcpy(at, &record, sizeof record);
		at = mempcpy(at, s->name, (size_t)record.name);
		head.nslots++;
	}
	memcpy(at, identity, (size_t)head.identity);
	memcpy(header, &head, sizeof head);
	head.crc = crc_of(header, head.bytes);
	memcpy(header, &head, sizeof head);
}

// Writes a checkpoint with the two blocks, which have `params` and `state` bytes or are left out.
static int save(const struct amos *m, const char *path, const struct amos_position *point,
                const char *identity, int64_t params, int64_t state)
{
	const struct amos_model *model = m->model;
	int64_t bytes = header_bytes(model, identity);
	char *header = calloc(1, (size_t)bytes);
	if (!header)
		return amos_no_memory(path);
	write_header(header, m, point, identity, params, state);
	struct amos_temp_file file;
	int status = amos_file_begin(&file, path, AMOS_OWN);
	if (!status && !reserve(file.to, bytes + model->params + model->state)) {
		status = amos_fail_errno("write", path);
		amos_file_drop(&file);
	}
	if (!status) {
		// The stream remembers errors; amos_file_keep() checks for them.
		fwrite(header, 1, (size_t)bytes, file.to);
		fwrite(m->params, 1, (size_t)params, file.to);
		fwrite(m->state, 1, (size_t)state, file.to);
		status = amos_file_keep(&file);
	}
	free(header);
	return status;
}

int amos_checkpoint_save(const struct amos *m, const char *path, const struct amos_position *point,
                         const char *identity)
{
	return save(m, path, point, identity, m->model->params, m->model->state);
}

int amos_checkpoint_save_start(const struct amos *m, const char *path,
                               const struct amos_position *point, const char *identity)
{
	return save(m, path, point, identity, 0, 0);
}

// ---- writing for other programs -------------------------------------------------------

static struct amos_position position_of(const struct amos *m)
{
	struct amos_position point = amos_start_position();
	point.step = amos_steps(m);
	return point;
}

int amos_save(const struct amos *m, const char *path)
{
	struct amos_position point = position_of(m);
	return amos_checkpoint_save(m, path, &point, m->model->identity);
}

int64_t amos_checkpoint_bytes(const struct amos *m)
{
	const struct amos_model *model = m->model;
	return header_bytes(model, model->identity) + model->params + model->state;
}

int amos_store(const struct amos *m, void *to, int64_t bytes)
{
	const struct amos_model *model = m->model;
	struct amos_position point = position_of(m);
	int64_t header = header_bytes(model, model->identity);
	if (bytes < amos_checkpoint_bytes(m))
		return amos_fail(AMOS_INPUT, "amos_store: expected room for %lld bytes, found %lld",
		                 (long long)amos_checkpoint_bytes(m), (long long)bytes);
	memset(to, 0, (size_t)header);
	write_header(to, m, &point, model->identity, model->params, model->state);
	memcpy((char *)to + header, m->params, (size_t)model->params);
	memcpy((char *)to + header + model->params, m->state, (size_t)model->state);
	return AMOS_DONE;
}

// ---- reading --------------------------------------------------------------------------

// Copies a printable version, as the file has it, to `to`.
static void copy_version(char *to, const char *from, size_t count)
{
	size_t n = 0;
	for (; n < count && from[n] > ' ' && from[n] < 127; n++)
		to[n] = from[n];
	to[n] = 0;
}

// Fails because the file has another format, which an earlier or later amosc wrote.
static int other_format(const struct amos_checkpoint *c, int format)
{
	if (format < magic[7])
		return amos_fail(AMOS_INPUT,
		                 "%s: a checkpoint of an amosc before %s; expected format %c, "
		                 "found format %c" HELP "export its weights with that amosc",
		                 c->path, AMOS_VERSION, magic[7], format);
	return amos_fail(AMOS_INPUT,
	                 "%s: a checkpoint of amosc %s, which is later than this amosc %s; "
	                 "expected format %c, found format %c" HELP
	                 "export its weights with that amosc, or install it",
	                 c->path, c->version, AMOS_VERSION, magic[7], format);
}

// Copies the head and sets *bytes to its size in the file.
static int copy_head(struct amos_checkpoint *c, struct head *head, size_t *bytes)
{
	const struct amos_blob *file = &c->file;
	size_t prefix = offsetof(struct head, crc);
	bool ours = file->count >= sizeof magic && !memcmp(file->at, magic, sizeof magic - 1);
	int format = ours ? file->at[7] : 0;
	*bytes = sizeof *head - (format == '2' ? sizeof head->version : 0);
	if (format > '2' && file->count >= prefix)
		copy_version(c->version, (const char *)file->at + sizeof magic,
		             sizeof c->version - 1);
	if (format > '0' && format <= '9' && format != '2' && format != magic[7])
		return other_format(c, format);
	if ((format != '2' && format != magic[7]) || file->count < *bytes)
		return amos_fail(AMOS_INPUT, "%s: not a checkpoint of amosc", c->path);
	memcpy(&head->crc, file->at + *bytes - (sizeof *head - prefix), sizeof *head - prefix);
	return AMOS_DONE;
}

// Returns the checksum of the first `bytes` bytes, taking their own at `at` as 0.
static uint32_t crc_of_head(const unsigned char *file, size_t at, size_t bytes)
{
	static const unsigned char none[4];
	uint32_t crc = amos_crc(AMOS_CRC32, 0, file, at);
	crc = amos_crc(AMOS_CRC32, crc, none, sizeof none);
	return amos_crc(AMOS_CRC32, crc, file + at + sizeof none, bytes - at - sizeof none);
}

// Fails unless the file is complete and undamaged.
static int read_head(struct amos_checkpoint *c, struct head *head, size_t *bytes)
{
	const struct amos_blob *file = &c->file;
	int status = copy_head(c, head, bytes);
	if (status)
		return status;
	int64_t size = (int64_t)file->count;
	if (head->bytes < (int64_t)*bytes || head->bytes > size || head->bytes % 64 ||
	    head->params < 0 || head->state < 0 || head->identity < 0 ||
	    head->identity > head->bytes || head->params > size - head->bytes ||
	    head->state != size - head->bytes - head->params ||
	    head->nslots > (uint64_t)head->bytes / sizeof(struct record))
		return amos_fail(AMOS_INPUT, "%s: truncated or corrupt: %lld bytes", c->path,
		                 (long long)size);
	size_t at = offsetof(struct head, crc) - (sizeof *head - *bytes);
	const unsigned char *params = file->at + head->bytes;
	if (crc_of_head(file->at, at, (size_t)head->bytes) != head->crc ||
	    crc_of(params, head->params) != head->crc_params ||
	    crc_of(params + head->params, head->state) != head->crc_state)
		return amos_fail(AMOS_INPUT, "%s: corrupt: a checksum does not match", c->path);
	return AMOS_DONE;
}

// Lists what is in the bytes of a checkpoint, c->file.
static int read_slots(struct amos_checkpoint *c)
{
	struct head head;
	size_t size;
	int status = read_head(c, &head, &size);
	if (status)
		return status;
	c->point = head.point;
	c->start = !head.params && !head.state;
	c->slots = calloc((size_t)head.nslots + 1, sizeof *c->slots);
	if (!c->slots)
		return amos_no_memory(c->path);
	int64_t at = (int64_t)size;
	while (c->count < head.nslots) {
		struct record r;
		if (head.bytes - at < (int64_t)sizeof r)
			return amos_fail(AMOS_INPUT, "%s: corrupt", c->path);
		memcpy(&r, c->file.at + at, sizeof r);
		at += (int64_t)sizeof r;
		bool state = r.kind == AMOS_SLOT_STATE;
		int64_t block = state ? head.state : head.params;
		bool sound = r.rank >= 0 && r.rank <= 10 && r.type >= 0 && r.type < AMOS_TYPES &&
		             r.name >= 0 && r.name <= head.bytes - at && r.offset >= 0 &&
		             (c->start || r.offset <= block);
		int64_t count = sound ? amos_elements(r.rank, r.dim) : -1;
		if (count < 0 ||
		    (!c->start && count > (block - r.offset) / amos_types[r.type].bytes))
			return amos_fail(AMOS_INPUT, "%s: corrupt", c->path);
		struct amos_saved *slot = &c->slots[c->count++];
		slot->kind = r.kind;
		slot->array = (struct amos_array){
		    .name = strndup((const char *)c->file.at + at, (size_t)r.name),
		    .type = r.type,
		    .rank = r.rank,
		    .bytes = c->start
		                 ? NULL
		                 : c->file.at + head.bytes + r.offset + (state ? head.params : 0)};
		memcpy(slot->array.dim, r.dim, sizeof r.dim);
		if (!slot->array.name)
			return amos_no_memory(c->path);
		at += r.name;
	}
	if (head.identity > head.bytes - at)
		return amos_fail(AMOS_INPUT, "%s: corrupt", c->path);
	c->identity = strndup((const char *)c->file.at + at, (size_t)head.identity);
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
	struct amos_checkpoint *c = *to = calloc(1, sizeof *c);
	if (c)
		c->path = file_of(path, last);
	int status = c && c->path ? amos_blob_open(c->path, false, &c->file) : amos_no_memory(path);
	if (!status)
		status = read_slots(c);
	if (status) {
		amos_checkpoint_close(c);
		*to = NULL;
	}
	return status;
}

void amos_checkpoint_close(struct amos_checkpoint *c)
{
	if (!c)
		return;
	for (int64_t i = 0; i < c->count; i++)
		free((char *)c->slots[i].array.name);
	amos_blob_free(&c->file);
	free(c->slots);
	free(c->identity);
	free(c->path);
	free(c);
}

// ---- into a model ---------------------------------------------------------------------

// Fails unless the model and the file have the same slots. Files of earlier versions lack
// amos.rate.
static int check_slots(const struct amos_checkpoint *c, const struct amos_model *model)
{
	int64_t count = 0;
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (!is_saved(slot))
			continue;
		int at = amos_index(slot->name, c->slots, c->count, sizeof *c->slots);
		if (at < 0 && !strcmp(slot->name, "amos.rate"))
			continue;
		if (at < 0)
			return amos_fail(AMOS_INPUT,
			                 "%s: of another model or optimizer: it has no '%s'",
			                 c->path, slot->name);
		const struct amos_array *a = &c->slots[at].array;
		char found[256], expected[256];
		if (a->type != slot->type || a->rank != slot->rank ||
		    (c->slots[at].kind == AMOS_SLOT_STATE) != (slot->kind == AMOS_SLOT_STATE) ||
		    memcmp(a->dim, slot->dim, sizeof(int64_t) * (size_t)slot->rank))
			return amos_fail(
			    AMOS_INPUT, "%s: of another model: slot '%s': expected %s, found %s",
			    c->path, slot->name,
			    amos_shape_text(expected, sizeof expected, slot->type, (int)slot->rank,
			                    slot->dim),
			    amos_shape_text(found, sizeof found, a->type, a->rank, a->dim));
		count++;
	}
	for (int64_t i = 0; count != c->count && i < c->count; i++) {
		int64_t slot = amos_find_slot(model, c->slots[i].array.name);
		if (slot < 0 || !is_saved(&model->slots[slot]))
			return amos_fail(AMOS_INPUT,
			                 "%s: of another model or optimizer: it has '%s', which "
			                 "this model lacks",
			                 c->path, c->slots[i].array.name);
	}
	return count == c->count
	           ? AMOS_DONE
	           : amos_fail(AMOS_INPUT, "%s: corrupt: it has a slot twice", c->path);
}

// Adds the versions to the error if another amosc wrote the checkpoint: it may be the reason.
static void name_versions(const struct amos_checkpoint *c)
{
	char error[2048];
	if (!*c->version || !strcmp(c->version, AMOS_VERSION))
		return;
	snprintf(error, sizeof error, "%s", amos_error());
	amos_fail(0, "%s" HELP "amosc %s wrote the checkpoint, this is amosc %s", error, c->version,
	          AMOS_VERSION);
}

int amos_checkpoint_load(const struct amos_checkpoint *c, struct amos *m)
{
	const struct amos_model *model = m->model;
	int status = check_slots(c, model);
	if (status)
		name_versions(c);
	else if (amos_find_slot(model, "amos.rate") >= 0)
		amos_set_rate(m, 1);
	for (int64_t i = 0; !status && !c->start && i < c->count; i++) {
		int64_t slot = amos_find_slot(model, c->slots[i].array.name);
		memcpy(amos_slot_bytes(m, slot), c->slots[i].array.bytes,
		       (size_t)model->slots[slot].bytes);
	}
	return status;
}

int amos_load(struct amos *m, const char *path)
{
	struct amos_checkpoint *c;
	int status = amos_checkpoint_open(path, false, &c);
	if (!status)
		status = amos_checkpoint_load(c, m);
	amos_checkpoint_close(c);
	return status;
}

int amos_restore(struct amos *m, const void *from, int64_t bytes)
{
	struct amos_checkpoint *c = calloc(1, sizeof *c);
	if (c)
		c->path = strdup("amos_restore");
	if (!c || !c->path) {
		amos_checkpoint_close(c);
		return amos_no_memory("amos_restore");
	}
	c->file = (struct amos_blob){(void *)from, bytes < 0 ? 0 : (size_t)bytes, false};
	int status = read_slots(c);
	if (!status)
		status = amos_checkpoint_load(c, m);
	c->file = (struct amos_blob){0}; // the caller's
	amos_checkpoint_close(c);
	return status;
}
