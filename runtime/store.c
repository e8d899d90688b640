// store.c: writes and reads checkpoints in memory: a header, then the blocks of parameters and
// state. Invariant: nothing is trusted without its checksum.
//
// Format, little endian: struct head; for each slot that is not an input, a struct record and its
// name; the identity (identity.c); zeros up to a multiple of 64; params; state. head.crc covers all
// bytes before params (with itself 0); the other checksums cover their blocks. Before the first
// step both blocks are left out: they are as amos_open_slots() makes them. Every format from 3 on
// begins with its number in head.magic and head.version; format 2 lacks head.version and is read,
// too.
#include "number.h"

static const char magic[8] = "amosckp3";

struct head {
	char magic[8];    // "amosckp" and the number of the format
	char version[16]; // of the amosc that wrote it
	uint32_t crc, crc_params, crc_state, nslots;
	int64_t bytes; // size of all before params
	struct amos_position point;
	int64_t params, state, identity; // bytes
};

static size_t length_of(const char *text)
{
	size_t count = 0;
	while (text[count])
		count++;
	return count;
}

static uint32_t crc_of(const void *at, int64_t bytes)
{
	return amos_crc(AMOS_CRC32, 0, at, (size_t)bytes);
}

static bool is_saved(const struct amos_slot *slot)
{
	return slot->kind != AMOS_SLOT_INPUT && slot->kind != AMOS_SLOT_GRADIENT;
}

// ---- writing --------------------------------------------------------------------------

struct amos_position amos_start_position(void)
{
	static const struct amos_held none = {-1, (double)__builtin_inff(), AMOS_NAN};
	return (struct amos_position){.held = none, .best = none};
}

int64_t amos_header_bytes(const struct amos_model *model, const char *identity)
{
	int64_t bytes = (int64_t)(sizeof(struct head) + length_of(identity));
	for (int64_t i = 0; i < model->nslots; i++)
		if (is_saved(&model->slots[i]))
			bytes +=
			    (int64_t)(sizeof(struct amos_record) + length_of(model->slots[i].name));
	return (bytes + 63) / 64 * 64;
}

void amos_write_header(char *header, const struct amos *m, const struct amos_position *point,
                       const char *identity, int64_t params, int64_t state)
{
	const struct amos_model *model = m->model;
	struct head head = {.version = AMOS_VERSION,
	                    .bytes = amos_header_bytes(model, identity),
	                    .point = *point,
	                    .params = params,
	                    .state = state,
	                    .identity = (int64_t)length_of(identity),
	                    .crc_params = crc_of(m->params, params),
	                    .crc_state = crc_of(m->state, state)};
	char *at = header + sizeof head;
	memcpy(head.magic, magic, sizeof magic);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		if (!is_saved(s))
			continue;
		struct amos_record record = {.offset = s->offset,
		                             .kind = s->kind,
		                             .type = s->type,
		                             .rank = (int32_t)s->rank,
		                             .name = (int32_t)length_of(s->name)};
		memcpy(record.dim, s->dim, sizeof record.dim);
		memcpy(at, &record, sizeof record);
		memcpy(at + sizeof record, s->name, (size_t)record.name);
		at += (int64_t)sizeof record + record.name;
		head.nslots++;
	}
	memcpy(at, identity, (size_t)head.identity);
	memcpy(header, &head, sizeof head);
	head.crc = crc_of(header, head.bytes);
	memcpy(header, &head, sizeof head);
}

struct amos_position amos_position_of(const struct amos *m)
{
	struct amos_position point = amos_start_position();
	point.step = amos_steps(m);
	return point;
}

int64_t amos_checkpoint_bytes(const struct amos *m)
{
	const struct amos_model *model = m->model;
	return amos_header_bytes(model, model->identity) + model->params + model->state;
}

int amos_store(const struct amos *m, void *to, int64_t bytes)
{
	const struct amos_model *model = m->model;
	struct amos_position point = amos_position_of(m);
	int64_t header = amos_header_bytes(model, model->identity);
	if (bytes < amos_checkpoint_bytes(m))
		return amos_fail(AMOS_INPUT, "amos_store: expected room for %lld bytes, found %lld",
		                 (long long)amos_checkpoint_bytes(m), (long long)bytes);
	memset(to, 0, (size_t)header);
	amos_write_header(to, m, &point, model->identity, model->params, model->state);
	memcpy((char *)to + header, m->params, (size_t)model->params);
	memcpy((char *)to + header + model->params, m->state, (size_t)model->state);
	return AMOS_DONE;
}

// ---- reading --------------------------------------------------------------------------

// Copies a printable version, as the file has it, to `to`.
static void copy_version(char *to, const unsigned char *from, size_t count)
{
	size_t n = 0;
	for (; n < count && from[n] > ' ' && from[n] < 127; n++)
		to[n] = (char)from[n];
	to[n] = 0;
}

// Fails because the file has another format, which an earlier or later amosc wrote.
static int other_format(const struct amos_image *c, int format)
{
	int ours = magic[7] - '0', found = format - '0';
	if (found < ours)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: a checkpoint of an amosc before %s; expected format %d, found format "
		    "%d" AMOS_HELP "export its weights with that amosc",
		    c->name, AMOS_VERSION, ours, found);
	return amos_fail(AMOS_INPUT,
	                 "%s: a checkpoint of amosc %s, which is later than this amosc %s; "
	                 "expected format %d, found format %d" AMOS_HELP
	                 "export its weights with that amosc, or install it",
	                 c->name, c->version, AMOS_VERSION, ours, found);
}

static bool is_checkpoint(const struct amos_image *c)
{
	for (size_t k = 0; k < sizeof magic - 1; k++)
		if (c->bytes < (int64_t)sizeof magic || c->at[k] != (unsigned char)magic[k])
			return false;
	return true;
}

// Copies the head and sets *bytes to its size in the file.
static int copy_head(struct amos_image *c, struct head *head, size_t *bytes)
{
	size_t prefix = offsetof(struct head, crc), count = (size_t)c->bytes;
	int format = is_checkpoint(c) ? c->at[7] : 0;
	*bytes = sizeof *head - (format == '2' ? sizeof head->version : 0);
	if (format > '2' && count >= prefix)
		copy_version(c->version, c->at + sizeof magic, sizeof c->version - 1);
	if (format > '0' && format <= '9' && format != '2' && format != magic[7])
		return other_format(c, format);
	if ((format != '2' && format != magic[7]) || count < *bytes)
		return amos_fail(AMOS_INPUT, "%s: not a checkpoint of amosc", c->name);
	memcpy(&head->crc, c->at + *bytes - (sizeof *head - prefix), sizeof *head - prefix);
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

static int corrupt(const struct amos_image *c)
{
	return amos_fail(AMOS_INPUT, "%s: corrupt", c->name);
}

// Fails unless the file is complete and its checksums match.
static int read_head(struct amos_image *c)
{
	struct head head;
	size_t bytes;
	int status = copy_head(c, &head, &bytes);
	if (status)
		return status;
	int64_t size = c->bytes;
	if (head.bytes < (int64_t)bytes || head.bytes > size || head.bytes % 64 ||
	    head.params < 0 || head.state < 0 || head.identity < 0 || head.identity > head.bytes ||
	    head.params > size - head.bytes || head.state != size - head.bytes - head.params ||
	    head.nslots > (uint64_t)head.bytes / sizeof(struct amos_record))
		return amos_fail(AMOS_INPUT, "%s: truncated or corrupt: %lld bytes", c->name,
		                 (long long)size);
	size_t at = offsetof(struct head, crc) - (sizeof head - bytes);
	const unsigned char *params = c->at + head.bytes;
	if (crc_of_head(c->at, at, (size_t)head.bytes) != head.crc ||
	    crc_of(params, head.params) != head.crc_params ||
	    crc_of(params + head.params, head.state) != head.crc_state)
		return amos_fail(AMOS_INPUT, "%s: corrupt: a checksum does not match", c->name);
	c->start = !head.params && !head.state;
	c->point = head.point;
	c->count = head.nslots;
	c->records = (int64_t)bytes;
	c->params = head.bytes;
	c->state = head.bytes + head.params;
	c->identity_bytes = head.identity;
	return AMOS_DONE;
}

static bool is_sound(const struct amos_image *c, const struct amos_record *r, int64_t room)
{
	int64_t block = r->kind == AMOS_SLOT_STATE ? c->bytes - c->state : c->state - c->params;
	if (r->rank < 0 || r->rank > 10 || r->type < 0 || r->type >= AMOS_TYPES || r->name < 0 ||
	    r->name > room || r->offset < 0 || (!c->start && r->offset > block))
		return false;
	int64_t count = amos_elements(r->rank, r->dim);
	return count >= 0 && (c->start || count <= (block - r->offset) / amos_types[r->type].bytes);
}

int amos_image_open(struct amos_image *c)
{
	struct amos_record r;
	int status = read_head(c);
	int64_t at = c->records;
	for (int64_t i = 0; !status && i < c->count; i++) {
		int64_t room = c->params - at - (int64_t)sizeof r;
		if (room < 0)
			return corrupt(c);
		amos_image_next(c, &at, &r);
		if (!is_sound(c, &r, room))
			return corrupt(c);
	}
	c->identity = at;
	return !status && c->identity_bytes > c->params - at ? corrupt(c) : status;
}

const char *amos_image_next(const struct amos_image *c, int64_t *at, struct amos_record *to)
{
	const unsigned char *from = c->at + *at;
	memcpy(to, from, sizeof *to);
	*at += (int64_t)sizeof *to + to->name;
	return (const char *)from + sizeof *to;
}

const void *amos_image_slot(const struct amos_image *c, const struct amos_record *r)
{
	int64_t block = r->kind == AMOS_SLOT_STATE ? c->state : c->params;
	return c->start ? NULL : c->at + block + r->offset;
}

// ---- into a model ---------------------------------------------------------------------

static bool is_named(const char *name, const char *text, int64_t count)
{
	int64_t i = 0;
	while (i < count && name[i] && name[i] == text[i])
		i++;
	return i == count && !name[i];
}

// Finds the record of this name at or after *at, or from the first on, since most have the order of
// the model, and moves *at past it; false: there is none.
static bool find(const struct amos_image *c, const char *name, int64_t *at, struct amos_record *to)
{
	for (int64_t i = 0; i < c->count; i++) {
		*at = *at < c->identity ? *at : c->records;
		const char *text = amos_image_next(c, at, to);
		if (is_named(name, text, to->name))
			return true;
	}
	return false;
}

// Returns the number of the model's slot that a record is of; -1: none.
static int64_t slot_of(const struct amos_model *model, const char *text, int64_t count)
{
	for (int64_t i = 0; i < model->nslots; i++)
		if (is_saved(&model->slots[i]) && is_named(model->slots[i].name, text, count))
			return i;
	return -1;
}

// How to fix a mismatch: the versions, if another amosc wrote the checkpoint.
#define VERSIONS "%s%s%s"
#define VERSIONS_OF(c)                                                                             \
	is_ours(c) ? "" : AMOS_HELP "amosc ", is_ours(c) ? "" : (c)->version,                      \
	    is_ours(c) ? "" : " wrote the checkpoint, this is amosc " AMOS_VERSION

static bool is_ours(const struct amos_image *c)
{
	return !*c->version || amos_same(c->version, AMOS_VERSION);
}

static int check_slot(const struct amos_image *c, const struct amos_slot *slot,
                      const struct amos_record *r)
{
	char found[128], expected[128];
	bool same = r->type == slot->type && r->rank == slot->rank &&
	            (r->kind == AMOS_SLOT_STATE) == (slot->kind == AMOS_SLOT_STATE);
	for (int64_t a = 0; same && a < slot->rank; a++)
		same = r->dim[a] == slot->dim[a];
	if (same)
		return AMOS_DONE;
	return amos_fail(
	    AMOS_INPUT, "%s: of another model: slot '%s': expected %s, found %s" VERSIONS, c->name,
	    slot->name,
	    amos_shape_text(expected, sizeof expected, slot->type, (int)slot->rank, slot->dim),
	    amos_shape_text(found, sizeof found, r->type, r->rank, r->dim), VERSIONS_OF(c));
}

// Fails unless the model and the file have the same slots. Files of earlier versions lack
// amos.rate.
static int check_slots(const struct amos_image *c, const struct amos_model *model)
{
	int64_t count = 0, at = c->records;
	struct amos_record r;
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (!is_saved(slot))
			continue;
		bool found = find(c, slot->name, &at, &r);
		if (!found && amos_same(slot->name, "amos.rate"))
			continue;
		if (!found)
			return amos_fail(
			    AMOS_INPUT,
			    "%s: of another model or optimizer: it has no '%s'" VERSIONS, c->name,
			    slot->name, VERSIONS_OF(c));
		int status = check_slot(c, slot, &r);
		if (status)
			return status;
		count++;
	}
	at = c->records;
	for (int64_t i = 0; count != c->count && i < c->count; i++) {
		const char *name = amos_image_next(c, &at, &r);
		if (slot_of(model, name, r.name) < 0)
			return amos_fail(AMOS_INPUT,
			                 "%s: of another model or optimizer: it has '%.*s', which "
			                 "this model lacks" VERSIONS,
			                 c->name, r.name, name, VERSIONS_OF(c));
	}
	return count == c->count
	           ? AMOS_DONE
	           : amos_fail(AMOS_INPUT, "%s: corrupt: it has a slot twice" VERSIONS, c->name,
	                       VERSIONS_OF(c));
}

// Returns the name of the optimizer in an identity, up to the end of its line; NULL: none is given.
static const char *optimizer_in(const char *identity, int64_t count)
{
	static const char key[] = "--optimizer\t";
	const int64_t length = sizeof key - 1;
	for (int64_t at = 0, i; at + length < count; at++) {
		for (i = 0; i < length && identity[at + i] == key[i];)
			i++;
		if (i == length)
			return identity + at + length;
	}
	return NULL;
}

static int line_length(const char *text, const char *end)
{
	int length = 0;
	while (text + length < end && text[length] != '\n')
		length++;
	return length;
}

// Fails if another optimizer's state has the same names and shapes.
static int check_optimizer(const struct amos_image *c, const struct amos_model *model)
{
	const char *identity = (const char *)c->at + c->identity,
	           *ours = model->identity ? model->identity : "";
	const char *end = identity + c->identity_bytes, *our_end = ours + length_of(ours);
	const char *found = optimizer_in(identity, c->identity_bytes),
	           *expected = optimizer_in(ours, our_end - ours);
	if (!found || !expected)
		return AMOS_DONE;
	int length = line_length(found, end), count = line_length(expected, our_end), i = 0;
	while (i < length && i < count && found[i] == expected[i])
		i++;
	return i == length && i == count
	           ? AMOS_DONE
	           : amos_fail(AMOS_INPUT, "%s: of another optimizer: expected %.*s, found %.*s",
	                       c->name, count, expected, length, found);
}

int amos_image_load(const struct amos_image *c, struct amos *m)
{
	const struct amos_model *model = m->model;
	struct amos_record r;
	int64_t at = c->records;
	int status = check_slots(c, model);
	if (!status)
		status = check_optimizer(c, model);
	if (!status && amos_find_slot(model, "amos.rate") >= 0)
		amos_set_rate(m, 1);
	for (int64_t i = 0; !status && !c->start && i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (is_saved(slot) && find(c, slot->name, &at, &r))
			memcpy(amos_slot_bytes(m, i), amos_image_slot(c, &r), (size_t)slot->bytes);
	}
	return status;
}

int amos_restore(struct amos *m, const void *from, int64_t bytes)
{
	struct amos_image c = {.name = "amos_restore", .at = from, .bytes = bytes < 0 ? 0 : bytes};
	int status = amos_image_open(&c);
	return status ? status : amos_image_load(&c, m);
}
