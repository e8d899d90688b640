// identity.c: describes a run's model, command, target and data as text, stored in checkpoints.
// Each line is "NAME\tVALUE\n"; the compiler writes those of model, target and command
// (amos_model.identity). Runs of equal identity compute the same numbers, regardless of threads,
// length and file locations. Data are identified by type, shape, content and how they are read, not
// by name.
#include "device.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// ---- content --------------------------------------------------------------------------

static uint64_t hash_words(uint64_t hash, const char *at, size_t bytes)
{
	uint64_t word = 0;
	for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
		memcpy(&word, at, sizeof word);
		hash = amos_mix(hash ^ word);
	}
	word = 0;
	memcpy(&word, at, bytes);
	return amos_mix(hash ^ word);
}

// Hashes all bytes up to 64 MiB; of more, 64 MiB in evenly spaced blocks.
static uint64_t hash_content(const char *at, size_t bytes)
{
	enum { BLOCK = 1 << 14, BLOCKS = 1 << 12 };
	if (bytes <= (size_t)BLOCK * BLOCKS)
		return hash_words(bytes, at, bytes);
	uint64_t hash = bytes;
	for (size_t i = 0; i < BLOCKS; i++)
		hash = hash_words(hash, at + (bytes - BLOCK) / (BLOCKS - 1) * i, BLOCK);
	return hash;
}

// ---- the text -------------------------------------------------------------------------

static uint64_t hash_feed(const struct amos_data *data, const struct amos_feed *feed)
{
	const struct amos_array *a = feed->from;
	int64_t bytes = amos_elements(a->rank, a->dim) * amos_types[a->type].bytes;
	if (a->bytes)
		return hash_content(a->bytes, (size_t)bytes);
	const struct amos_source *source = feed->source;
	return amos_images_hash(data->files[source->file].images, (uint64_t)bytes);
}

static void describe_feed(char **text, const struct amos_data *data, const struct amos_feed *feed)
{
	char shape[256];
	const struct amos_array *a = feed->from;
	amos_append(text, "data of input '");
	for (const char *name = feed->to->name; *name; name++) // on one line
		amos_append(text, "%c", iscntrl((unsigned char)*name) ? '?' : *name);
	amos_append(text, "'\t");
	if (!a) {
		amos_append(text, "%ds\n", feed->source->fill);
		return;
	}
	amos_append(text, "%s, content %016llx",
	            amos_shape_text(shape, sizeof shape, a->type, a->rank, a->dim),
	            (unsigned long long)hash_feed(data, feed));
	if (feed->source->shift)
		amos_append(text, ", shifted by %d", feed->source->shift);
	if (feed->divide != 1)
		amos_append(text, ", divided by %g", feed->divide);
	amos_append(text, "%s%s\n", feed->source->masked ? ", labels of a mask" : "",
	            feed->hidden ? ", masked" : "");
}

char *amos_identity(const struct amos *m, const struct amos_data *data)
{
	const struct amos_model *model = m->model;
	char *text = strdup(model->identity ? model->identity : "");
	amos_append(&text, "--seed\t%lld\n--batch\t%lld\n--split\t%.17g\n", (long long)data->seed,
	            (long long)data->batch, data->split);
	if (m->device) // whose compiler and arithmetic decide the last bits
		amos_append(&text, "device\t%s\n", amos_device_name(m->device));
	bool masked = false;
	for (int i = 0; i < data->nfeeds; i++)
		masked |= data->feeds[i].hidden;
	if (masked)
		amos_append(&text, "--mask\t%.17g\n--mask-token\t%lld\n", data->mask,
		            (long long)data->mask_token);
	for (int i = 0; i < data->nfeeds; i++)
		describe_feed(&text, data, &data->feeds[i]);
	return text;
}

// ---- comparison -----------------------------------------------------------------------

// Returns the line of `text` with the same NAME as the line `like`, or NULL.
static const char *line_of(const char *text, const char *like)
{
	size_t name = strcspn(like, "\t\n") + 1;
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (!strncmp(text, like, name))
			return text;
	return NULL;
}

// Fails because the line `like` is missing from the other text or differs there.
static int differ(const char *run, const char *like, const char *expected, const char *found)
{
	expected = expected ? expected + strcspn(expected, "\t\n") + 1 : "none";
	found = found ? found + strcspn(found, "\t\n") + 1 : "none";
	return amos_fail(AMOS_INPUT,
	                 "%s: %.*s differs from the run's; expected %.*s, found %.*s" HELP
	                 "give the same as before, or start another run with -o DIR",
	                 run, (int)strcspn(like, "\t\n"), like, (int)strcspn(expected, "\n"),
	                 expected, (int)strcspn(found, "\n"), found);
}

int amos_identity_check(const char *run, const char *expected, const char *found)
{
	const char *line, *other;
	for (line = expected; *line; line += strcspn(line, "\n") + 1) {
		other = line_of(found, line);
		if (!other || strncmp(line, other, strcspn(line, "\n") + 1))
			return differ(run, line, line, other);
	}
	for (line = found; *line; line += strcspn(line, "\n") + 1)
		if (!line_of(expected, line))
			return differ(run, line, NULL, line);
	return AMOS_DONE;
}
