// attach.c: attaches data to the inputs of a compiled model and checks every value.
// Invariant: every value is checked before the first step, so no label makes a kernel access memory
// out of bounds.
#include "rt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double amos_divisor(const struct amos_data *data, const struct amos_source *source, char class)
{
	const struct amos_opened *file = &data->files[source->file];
	return class == 'f' && file->array.type == AMOS_u8 && !file->token && !source->raw ? 255
	                                                                                   : 1;
}

static bool is_read(const struct amos_model *model, int64_t input, const char *const *entries)
{
	for (; *entries; entries++) {
		const struct amos_entry *entry = amos_find_entry(model, *entries);
		if (entry && (!entry->reads || entry->reads[input] == '1'))
			return true;
	}
	return false;
}

// True if the shapes are equal when axes of size 1 are removed, or if one of them is flat.
static bool regroups(int rank, const int64_t *a, int rank_b, const int64_t *b)
{
	int64_t x[10], y[10];
	int n = 0, m = 0;
	for (int i = 0; i < rank; i++)
		if (a[i] != 1)
			x[n++] = a[i];
	for (int i = 0; i < rank_b; i++)
		if (b[i] != 1)
			y[m++] = b[i];
	if (amos_elements(n, x) != amos_elements(m, y))
		return false;
	return n <= 1 || m <= 1 || (n == m && !memcmp(x, y, sizeof(int64_t) * (size_t)n));
}

// True if the array has a row for each sample or token of the others. Those of inputs without axes
// are not among what lay_out() counts.
static bool has_all_rows(const struct amos_data *data, const struct amos_feed *feed)
{
	const struct amos_array *from = feed->from;
	return from->rank && from->dim[0] == data->length && feed->stream == data->stream;
}

// Returns help about labels of another shape than their input's; "": none.
static const char *labels_help(const struct amos_slot *to, const struct amos_array *from)
{
	int rank = (int)to->rank;
	if (to->ignore && from->rank == rank + 1 && from->dim[rank] == to->limit)
		return HELP "labels are class numbers; those of one-hot rows are argmax over the "
		            "last axis";
	bool first = to->ignore && from->rank == rank && rank > 1;
	for (int a = 1; a < rank && first; a++)
		first = from->dim[a] == (a + 1 < rank ? to->dim[a + 1] : to->limit);
	return first ? HELP "the last axis of logits is that of classes; in --loss, "
	                    "permute(logits; [0, 2, 3, 1]) moves axis 1 of [N, C, H, W] there"
	             : "";
}

// Chooses how an array fills its input. Fails if the shapes do not fit.
static int attach_shape(const struct amos_data *data, struct amos_feed *feed)
{
	const struct amos_slot *to = feed->to;
	const struct amos_array *from = feed->from;
	int rank = (int)to->rank;
	int64_t count = amos_elements(rank, to->dim), flat[] = {count / data->batch};
	bool rows = rank && to->dim[0] == data->batch;
	feed->constant = data->exact || amos_is_constant(data, feed->source, rank, to->dim, from);
	feed->per = feed->constant ? count : flat[0];
	feed->stream = !feed->constant && from->rank == 1 && feed->per > 1;
	if (feed->constant ||
	    (has_all_rows(data, feed) && count % data->batch == 0 &&
	     (feed->stream || regroups(from->rank - 1, from->dim + 1, rows ? rank - 1 : 1,
	                               rows ? to->dim + 1 : flat))))
		return AMOS_DONE;
	struct amos_input as = {.name = to->name, .type = to->type, .rank = rank};
	memcpy(as.dim, to->dim, sizeof as.dim);
	return amos_shape_mismatch(feed->source, &as, from, labels_help(to, from));
}

// Returns help about a value that is out of range; "": none.
static const char *value_help(const struct amos_feed *feed, const struct amos_opened *file,
                              char *room, size_t bytes)
{
	*room = 0;
	if (file->token && !file->vocabulary.count)
		snprintf(room, bytes, HELP "text:PATH:auto numbers only the bytes that occur");
	else if (feed->to->ignore)
		snprintf(room, bytes,
		         HELP "classes are numbered from 0; labels of %lld are ignored",
		         (long long)feed->to->ignore);
	return room;
}

static int bad_value(const struct amos_data *data, const struct amos_feed *feed, int64_t at)
{
	double found = amos_number(feed->from->bytes, feed->from->type, at);
	char expected[128], help[128];
	bool real = amos_types[feed->to->type].class == 'f';
	if (feed->to->limit && !real)
		snprintf(expected, sizeof expected, "integers from 0 to %lld",
		         (long long)feed->to->limit - 1);
	else if (feed->to->type == AMOS_u64)
		snprintf(expected, sizeof expected, "integers from 0 to %lld",
		         (long long)INT64_MAX);
	else
		snprintf(expected, sizeof expected, "%s within the range of %s%s",
		         real ? "numbers" : "integers",
		         feed->to->limit ? "f16" : amos_types[feed->to->type].name,
		         real && !data->exact ? " other than NaN" : "");
	int64_t per = feed->stream || feed->constant ? 1 : feed->per;
	const struct amos_opened *file = &data->files[feed->source->file];
	return amos_fail(AMOS_INPUT, "--data %s=%s: %s %lld: expected %s, found %.17g%s",
	                 feed->source->name, file->text,
	                 per > 1        ? "an element of sample"
	                 : feed->stream ? "token"
	                                : "element",
	                 (long long)(at / per), expected, found,
	                 value_help(feed, file, help, sizeof help));
}

static int all_ignored(const struct amos_data *data, const struct amos_feed *feed)
{
	return amos_fail(AMOS_INPUT, "--data %s=%s: all labels are %lld, which the loss ignores",
	                 feed->source->name, data->files[feed->source->file].text,
	                 (long long)feed->to->ignore);
}

// NaN is allowed in one exact batch. Of floats, a type that holds less than the slot's has a limit.
static bool is_valid(const struct amos_slot *to, double x, bool exact)
{
	if (amos_types[to->type].class != 'f')
		return amos_in_range(to, x);
	return isnan(x) ? exact : !to->limit || isinf(x) || fabs(x) < (double)to->limit;
}

// Fails if bytes that would be divided by 255 are 0 and 1 alone: flags, not shades.
static int check_shades(const struct amos_data *data, const struct amos_feed *feed)
{
	const struct amos_array *from = feed->from;
	const unsigned char *bytes = from->bytes;
	int64_t count = amos_elements(from->rank, from->dim), i = 0;
	bool flags = false;
	while (bytes && i < count && bytes[i] <= 1)
		flags |= bytes[i++];
	if (!flags || i < count)
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "--data %s=%s: expected bytes up to 255, which are divided by 255; found "
	                 "0 and 1 alone" HELP "raw(SOURCE) keeps 0 and 1, and so do Booleans",
	                 feed->source->name, data->files[feed->source->file].text);
}

static int check_values(const struct amos_data *data, const struct amos_feed *feed)
{
	enum { CHUNK = 4096 };
	char converted[CHUNK * 8] __attribute__((aligned(8)));
	double x[CHUNK];
	const struct amos_slot *to = feed->to;
	const struct amos_array *from = feed->from;
	int64_t count = amos_elements(from->rank, from->dim);
	bool integer = amos_types[to->type].class != 'f';
	bool ignored = to->ignore && count && !data->exact; // until another label is found
	if (feed->divide != 1 && !data->exact)
		return check_shades(data, feed);
	if (amos_attachable(to->type, from->type, integer ? to->limit : 0))
		return AMOS_DONE;
	if (!from->bytes)
		return amos_fail(
		    AMOS_INPUT,
		    "--data %s=%s: expected an input of bytes, which are 0 to 255; found "
		    "integers from 0 to %lld",
		    feed->source->name, data->files[feed->source->file].text,
		    (long long)to->limit - 1);
	for (int64_t at = 0; at < count; at += CHUNK) {
		int64_t n = count - at < CHUNK ? count - at : CHUNK;
		const char *bytes = (const char *)from->bytes + at * amos_types[from->type].bytes;
		int64_t bad = amos_convert(converted, to->type, bytes, from->type, n, feed->divide);
		amos_numbers(x, converted, to->type, bad < 0 ? n : 0);
		for (int64_t i = 0; i < n && bad < 0; i++) {
			ignored = ignored && x[i] == (double)to->ignore;
			if (!is_valid(to, x[i], data->exact))
				bad = i;
		}
		if (bad >= 0)
			return bad_value(data, feed, at + bad);
	}
	return ignored ? all_ignored(data, feed) : AMOS_DONE;
}

int amos_data_values(const struct amos_data *data, const char *input, int type, void *to)
{
	struct amos_slot as = {.name = input, .type = type};
	struct amos_feed feed = {.to = &as, .constant = true};
	feed.source = amos_source_of(data, input);
	feed.from = amos_source_array(data, feed.source);
	feed.divide = amos_divisor(data, feed.source, amos_types[type].class);
	int status = check_values(data, &feed);
	if (!status)
		amos_convert(to, type, feed.from->bytes, feed.from->type,
		             amos_elements(feed.from->rank, feed.from->dim), feed.divide);
	return status;
}

// masked() masks tokens of the other input that reads the same source.
static int attach_masks(struct amos_data *data)
{
	bool masked = false;
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_source *labels = data->feeds[i].source;
		if (!labels->masked)
			continue;
		bool found = false;
		masked = true;
		for (int j = 0; j < data->nfeeds; j++) {
			const struct amos_source *tokens = data->feeds[j].source;
			if (!tokens->masked && tokens->fill == AMOS_ABSENT &&
			    tokens->file == labels->file && tokens->shift == labels->shift)
				found = data->feeds[j].hidden = true;
		}
		if (!found)
			return amos_fail(
			    AMOS_INPUT,
			    "--data %s: no other input reads the source in masked(), with the "
			    "same shift(), so nothing would be masked",
			    labels->name);
	}
	if (masked && data->mask_token < 0)
		return amos_fail(
		    AMOS_INPUT,
		    "masked(): expected --mask-token ID, the token that replaces masked ones");
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_slot *to = data->feeds[i].to;
		if (data->feeds[i].hidden && to->limit && data->mask_token >= to->limit)
			return amos_fail(
			    AMOS_INPUT,
			    "--mask-token %lld: expected a token of input '%s', from 0 to %lld",
			    (long long)data->mask_token, to->name, (long long)to->limit - 1);
	}
	return AMOS_DONE;
}

// Fails if windows of several recordings go with windows of an array that does not say where the
// recordings end: they could agree in number and belong to different times.
static int check_windows(const struct amos_data *data)
{
	const struct amos_opened *parts = NULL;
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_source *source = data->feeds[i].source;
		const struct amos_opened *file =
		    data->feeds[i].from ? &data->files[source->file] : NULL;
		if (file && file->cut && file->recordings.n > 1)
			parts = file;
	}
	for (int i = 0; parts && i < data->nfeeds; i++) {
		const struct amos_source *source = data->feeds[i].source;
		const struct amos_opened *file =
		    data->feeds[i].from ? &data->files[source->file] : NULL;
		if (file && file->cut && file->recordings.n <= 1)
			return amos_fail(
			    AMOS_INPUT,
			    "--data %s=%s: %s is cut into windows per recording" HELP
			    "join the recordings in one file, or give one label per window",
			    source->name, file->text, parts->text);
	}
	return AMOS_DONE;
}

// Fails if an input that is read has no source, or a --data NAME has no input.
static int check_names(const struct amos_data *data, const struct amos_model *model,
                       const char *const *entries)
{
	char names[1024] = "", unused[512] = "";
	for (int i = 0; i < data->nsources; i++)
		if (data->sources[i].by_name && !data->sources[i].taken)
			amos_list_name(unused, sizeof unused, data->sources[i].name);
	for (int64_t i = 0; i < model->nslots; i++)
		if (model->slots[i].kind == AMOS_SLOT_INPUT)
			amos_list_name(names, sizeof names, model->slots[i].name);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (slot->kind != AMOS_SLOT_INPUT || amos_source_of(data, slot->name))
			continue;
		if (is_read(model, slot->offset, entries))
			return amos_fail(AMOS_INPUT,
			                 "input '%s' has no data; the inputs are %s%s%s" HELP
			                 "give --data %s=SOURCE; ones and zeros are sources, too",
			                 slot->name, names, *unused ? "; no input takes " : "",
			                 unused, slot->name);
	}
	for (int i = 0; i < data->nsources; i++) {
		const struct amos_source *source = &data->sources[i];
		if (!source->by_name && !source->taken)
			return amos_fail(
			    AMOS_INPUT, "--data %s: the model has no such input; the inputs are %s",
			    source->name, names);
	}
	return AMOS_DONE;
}

// Lists the inputs that have a source, and counts samples.
static int take_feeds(struct amos_data *data, const struct amos_model *model,
                      const char *const *entries)
{
	int n = 0;
	size_t room = (size_t)model->nslots + 1;
	struct amos_input *inputs = calloc(room, sizeof *inputs);
	const char **names = calloc(room, sizeof *names);
	free(data->feeds);
	data->nfeeds = 0;
	data->feeds = calloc(room, sizeof *data->feeds);
	int status = inputs && names && data->feeds ? AMOS_DONE : amos_no_memory("--data");
	for (int64_t i = 0; !status && i < model->nslots; i++) {
		const struct amos_slot *slot = &model->slots[i];
		if (slot->kind != AMOS_SLOT_INPUT)
			continue;
		names[n] = slot->name;
		inputs[n] = (struct amos_input){.name = slot->name,
		                                .type = slot->type,
		                                .rank = (int)slot->rank,
		                                .counts = slot->counts || slot->ignore};
		memcpy(inputs[n++].dim, slot->dim, sizeof slot->dim);
		const struct amos_source *source = amos_source_of(data, slot->name);
		if (source)
			data->feeds[data->nfeeds++] =
			    (struct amos_feed){.slot = i, .to = slot, .source = source};
	}
	if (!status)
		status = amos_data_take(data, n, names);
	if (!status)
		status = check_names(data, model, entries);
	if (!status)
		status = amos_data_lay_out(data, n, inputs);
	if (data->exact)
		data->batch = 1;
	free(inputs);
	free(names);
	return status;
}

static bool is_named(const char *const *entries, const char *name)
{
	for (; *entries; entries++)
		if (!strcmp(*entries, name))
			return true;
	return false;
}

// Reports what an input reads of recordings or images.
static void describe_recordings(const struct amos_data *data, const struct amos_feed *feed,
                                char **note)
{
	const struct amos_opened *file = feed->from ? &data->files[feed->source->file] : NULL;
	const struct amos_recordings *r = file ? &file->recordings : NULL;
	const char *name = feed->source->name;
	if (file && file->images)
		amos_images_describe(data, feed->source, note);
	bool classes = r && r->classes && *r->classes;
	if (!r || file->images || (!r->rate && !classes))
		return;
	if (feed->from->type != AMOS_f32) {
		amos_append(note, "data: %s: classes %s\n", name, r->classes);
		return;
	}
	amos_append(note, "data: %s: %lld s at %lld %s per second, %lld %s\n", name,
	            (long long)r->seconds, (long long)r->rate, PLURAL(r->rate, "sample", "samples"),
	            (long long)r->n, PLURAL(r->n, "recording", "recordings"));
	if (r->left_out)
		amos_append(note, "data: %s: recordings shorter than a window left out: %lld\n",
		            name, (long long)r->left_out);
}

// Returns the input that has the same elements, in the same places, as labels of tokens; NULL:
// none.
static const struct amos_feed *labels_itself(const struct amos_data *data,
                                             const struct amos_feed *labels)
{
	const struct amos_source *source = labels->source;
	for (int i = 0; i < data->nfeeds && labels->to->ignore && labels->stream; i++) {
		const struct amos_feed *feed = &data->feeds[i];
		if (feed->from == labels->from && !feed->to->ignore && !feed->hidden &&
		    feed->source->shift == source->shift && !source->masked)
			return feed;
	}
	return NULL;
}

// Counts the labels [from, to) of each class in `counts`, and returns how many are not ignored. Of
// many labels, one in every few is taken.
static int64_t count_classes(const struct amos_feed *labels, int64_t from, int64_t to, int *counts)
{
	enum { MANY = 1 << 20 };
	const struct amos_array *array = labels->from;
	int64_t every = 1 + (to - from) / MANY, all = 0;
	for (int64_t i = from; i < to; i += every) {
		double label = amos_number(array->bytes, array->type, i);
		if (label < 0 || label >= (double)labels->to->limit)
			continue; // ignored
		counts[(int64_t)label]++;
		all++;
	}
	return all;
}

// True if most labels held out are of classes that are rare in those to train on, or none of them:
// of sorted samples, the last ones are so.
static bool differs_held_out(const struct amos_data *data, const struct amos_feed *labels)
{
	enum { CLASSES = 4096, EACH = 4 };
	const struct amos_slot *to = labels->to;
	int64_t train = data->train * labels->per, all = data->length * labels->per;
	if (!labels->from || !labels->from->bytes || labels->constant || data->stream ||
	    data->exact || !to->ignore || to->limit > CLASSES || train == all)
		return false;
	int before[CLASSES] = {0}, after[CLASSES] = {0};
	int64_t trained = count_classes(labels, 0, train, before);
	int64_t held = count_classes(labels, train, all, after), classes = 0;
	if (!trained || !held)
		return false;
	double differs = 0; // of the parts that each class is of the labels, in all
	for (int64_t k = 0; k < to->limit; k++) {
		classes += before[k] > 0;
		differs +=
		    fabs((double)before[k] / (double)trained - (double)after[k] / (double)held);
	}
	return held >= EACH * classes && differs > 1;
}

// Reports readings that a user may not have meant.
static int write_read(struct amos_data *data)
{
	free(data->read);
	char **note = &data->read;
	*note = strdup("");
	for (int i = 0; i < data->nfeeds; i++) {
		const struct amos_feed *feed = &data->feeds[i];
		const struct amos_feed *same = labels_itself(data, feed);
		const char *name = feed->source->name;
		if (feed->divide != 1)
			amos_append(note,
			            "data: %s: bytes are divided by 255 (raw(SOURCE) keeps them)\n",
			            name);
		if (feed->constant && data->counted >= 0 && feed->from && feed->to->rank)
			amos_append(note, "data: %s: the same array in every batch\n", name);
		if (differs_held_out(data, feed))
			amos_append(note,
			            "warning: --split: the last samples, which are held out, have "
			            "other classes in '%s' than those to train on; shuffle "
			            "samples that are sorted\n",
			            name);
		if (same)
			amos_append(note,
			            "data: %s: the tokens of '%s' themselves; shift(SOURCE) has "
			            "the next ones\n",
			            name, same->source->name);
	}
	for (int i = 0; i < data->nfiles; i++)
		if (data->files[i].counting)
			amos_append(note,
			            "data: %s: the first line, 0,1 and so on, is read as numbers; "
			            "remove it if it names the columns\n",
			            data->files[i].text);
	return *note ? AMOS_DONE : amos_no_memory("--data");
}

static int write_note(struct amos_data *data, const struct amos_model *model, bool trains)
{
	free(data->note);
	char **note = &data->note;
	*note = strdup("");
	int64_t batches = amos_data_batches(data), held = amos_data_held_out(data);
	amos_append(note, "data: %lld %s", (long long)data->length,
	            data->stream ? PLURAL(data->length, "token", "tokens")
	                         : PLURAL(data->length, "sample", "samples"));
	if (data->stream)
		amos_append(note, " in windows of %lld", (long long)data->window);
	amos_append(note, ", %lld per batch: %lld %s to train on, %lld %s held out\n",
	            (long long)data->batch, (long long)batches, PLURAL(batches, "batch", "batches"),
	            (long long)held, amos_unit(data, held));
	int64_t rest = data->train - batches * data->batch;
	if (trains && !data->stream && rest)
		amos_append(note,
		            "data: each epoch leaves out %lld %s, at random: too few for a batch\n",
		            (long long)rest, amos_unit(data, rest));
	int64_t left = amos_data_left(data, model);
	if (data->train < data->length && left)
		amos_append(note,
		            "data: the last %lld %s held out %s omitted: too few for a batch\n",
		            (long long)left, amos_unit(data, left), PLURAL(left, "is", "are"));
	amos_append(note, "%s", data->read);
	for (int i = 0; i < data->nfeeds; i++)
		describe_recordings(data, &data->feeds[i], note);
	return *note ? AMOS_DONE : amos_no_memory("--data");
}

int amos_data_attach(struct amos_data *data, const struct amos_model *model,
                     const char *const *entries)
{
	bool any = false;
	int status = take_feeds(data, model, entries);
	for (int i = 0; !status && i < data->nfeeds; i++) {
		struct amos_feed *feed = &data->feeds[i];
		feed->from = amos_source_array(data, feed->source);
		feed->divide = 1;
		if (!feed->from)
			continue;
		feed->divide = amos_divisor(data, feed->source, amos_types[feed->to->type].class);
		any |= feed->to->rank > 0;
		status = attach_shape(data, feed);
		if (!status)
			status = check_values(data, feed);
	}
	if (!status)
		status = check_windows(data);
	if (!status)
		status = attach_masks(data);
	if (!status)
		status = write_read(data);
	if (status || data->exact)
		return status;
	if (!any)
		return amos_fail(AMOS_INPUT, "--data: expected data for at least one input");
	bool trains = is_named(entries, "train"),
	     evaluates = is_named(entries, "eval") && amos_find_entry(model, "eval") &&
	                 (!trains || data->train < data->length);
	status = trains ? amos_data_check_size(data) : AMOS_DONE;
	int64_t samples = amos_data_eval_samples(data);
	if (!status && evaluates && amos_data_left(data, model) == samples)
		status =
		    amos_fail(AMOS_INPUT,
		              "--data: %lld %s to evaluate on, fewer than one batch of %lld" HELP
		              "supply more data, or a smaller --split or --batch",
		              (long long)samples, amos_unit(data, samples), (long long)data->batch);
	return status ? status : write_note(data, model, trains);
}
