// ckpt.c: reads and writes checkpoint files, in the format of store.c.
#include "device.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- writing --------------------------------------------------------------------------

// Fails if the disk has no room for a file of `bytes` bytes. The room stays the file's if the file
// system can do that.
static bool reserve(FILE *to, int64_t bytes)
{
	return !fallocate(fileno(to), FALLOC_FL_KEEP_SIZE, 0, bytes) ||
	       (errno != ENOSPC && errno != EDQUOT && errno != EFBIG);
}

// Writes a checkpoint with the two blocks, which have `params` and `state` bytes or are left out.
static int save(const struct amos *m, const char *path, const struct amos_position *point,
                const char *identity, int64_t params, int64_t state)
{
	const struct amos_model *model = m->model;
	int64_t bytes = amos_header_bytes(model, identity);
	char *header = calloc(1, (size_t)bytes);
	if (!header)
		return amos_no_memory(path);
	amos_write_header(header, m, point, identity, params, state);
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
	amos_device_touched(m->device);
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

int amos_save(const struct amos *m, const char *path)
{
	struct amos_position point = amos_position_of(m);
	return amos_checkpoint_save(m, path, &point, m->model->identity);
}

// ---- reading --------------------------------------------------------------------------

// Lists what is in the bytes of a checkpoint, c->file.
static int read_slots(struct amos_checkpoint *c)
{
	struct amos_image *image = &c->image;
	*image =
	    (struct amos_image){.name = c->path, .at = c->file.at, .bytes = (int64_t)c->file.count};
	int status = amos_image_open(image);
	if (status)
		return status;
	c->slots = calloc((size_t)image->count + 1, sizeof *c->slots);
	if (!c->slots)
		return amos_no_memory(c->path);
	for (int64_t at = image->records; c->count < image->count;) {
		struct amos_record r;
		const char *name = amos_image_next(image, &at, &r);
		struct amos_saved *slot = &c->slots[c->count++];
		slot->kind = r.kind;
		slot->array = (struct amos_array){.name = strndup(name, (size_t)r.name),
		                                  .type = r.type,
		                                  .rank = r.rank,
		                                  .bytes = (void *)amos_image_slot(image, &r)};
		memcpy(slot->array.dim, r.dim, sizeof r.dim);
		if (!slot->array.name)
			return amos_no_memory(c->path);
	}
	c->identity =
	    strndup((const char *)image->at + image->identity, (size_t)image->identity_bytes);
	return c->identity ? AMOS_DONE : amos_no_memory(c->path);
}

// Returns the checkpoint file for `path`, to be freed by the caller; NULL: out of memory. A run
// killed at its start has no best.ckpt yet.
static char *file_of(const char *path, bool last)
{
	char *best, *inside;
	if (!amos_is_folder(path))
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
	int status = c && c->path ? AMOS_DONE : amos_no_memory(path);
	if (!status && amos_is_folder(path))
		status = amos_folder_check(path);
	if (!status)
		status = amos_blob_open(c->path, false, &c->file);
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

int amos_checkpoint_load(const struct amos_checkpoint *c, struct amos *m)
{
	return amos_image_load(&c->image, m);
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
