// wav.c: reads recordings in WAV files (RIFF, RF64) as samples: f32 from -1 to 1.
// Integers of b bits are divided by 2^(b - 1); channels are averaged.
#include "rt.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- one file -------------------------------------------------------------------------

enum { PCM = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE, UNKNOWN = -1 }; // formats; UNKNOWN: a length

struct wave {
	const char *path;
	int format, channels, bits;
	int64_t rate, frames;
	const unsigned char *at; // frames * channels samples
};

static uint64_t little(const unsigned char *at, int bytes)
{
	uint64_t value = 0;
	for (int i = bytes; i-- > 0;)
		value = value << 8 | at[i];
	return value;
}

static int parse_format(struct wave *w, const unsigned char *at, size_t size)
{
	// The format of an extensible header is the first two bytes of this GUID.
	static const unsigned char guid[] = {0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113};
	if (size < 16)
		return amos_fail(AMOS_INPUT, "%s: corrupt WAV header", w->path);
	w->format = (int)little(at, 2);
	w->channels = (int)little(at + 2, 2);
	w->rate = (int64_t)little(at + 4, 4);
	w->bits = (int)little(at + 14, 2);
	if (w->format == EXTENSIBLE && size >= 40 && !memcmp(at + 26, guid, sizeof guid))
		w->format = (int)little(at + 24, 2);
	bool pcm = w->format == PCM && w->bits % 8 == 0 && w->bits >= 8 && w->bits <= 32;
	if (!pcm && !(w->format == FLOAT && (w->bits == 32 || w->bits == 64)))
		return amos_fail(
		    AMOS_INPUT,
		    "%s: expected samples of 8, 16, 24 or 32 bits or floats of 32 or 64 "
		    "bits; found WAV format %d of %d %s" HELP
		    "convert it: ffmpeg -i FILE -c:a pcm_s16le OUT.wav",
		    w->path, w->format, w->bits, PLURAL(w->bits, "bit", "bits"));
	if (!w->channels || !w->rate || little(at + 12, 2) != (uint64_t)(w->channels * w->bits / 8))
		return amos_fail(AMOS_INPUT, "%s: corrupt WAV header", w->path);
	return AMOS_DONE;
}

// `size` bytes: UNKNOWN if the writer did not know, as in a pipe; then all of the `left` bytes.
static int parse_data(struct wave *w, const unsigned char *at, int64_t size, size_t left)
{
	int64_t block = w->channels * w->bits / 8, bytes = size == UNKNOWN ? (int64_t)left : size;
	if (!block)
		return amos_fail(AMOS_INPUT, "%s: corrupt WAV file: samples without a header",
		                 w->path);
	if (bytes < 0 || (uint64_t)bytes > left)
		return amos_fail(AMOS_INPUT,
		                 "%s: truncated; expected %lld %s of samples, found %zu", w->path,
		                 (long long)bytes, PLURAL(bytes, "byte", "bytes"), left);
	if (size != UNKNOWN && bytes % block)
		return amos_fail(AMOS_INPUT, "%s: corrupt WAV file: %lld %s of samples of %lld",
		                 w->path, (long long)bytes, PLURAL(bytes, "byte", "bytes"),
		                 (long long)block);
	w->at = at;
	w->frames = bytes / block;
	return AMOS_DONE;
}

// Finds format and samples among the chunks, which are padded to even lengths.
static int parse(struct wave *w, const struct amos_blob *blob)
{
	const unsigned char *at = blob->at;
	bool large = blob->count >= 12 && !memcmp(at, "RF64", 4); // real lengths are in chunk ds64
	if (blob->count < 12 || memcmp(at + 8, "WAVE", 4) || !(large || !memcmp(at, "RIFF", 4)))
		return amos_fail(
		    AMOS_INPUT,
		    "%s: not a WAV file%s" HELP "convert it: ffmpeg -i FILE -c:a pcm_s16le OUT.wav",
		    w->path,
		    blob->count >= 4 && !memcmp(at, "RIFX", 4) ? " of little-endian samples (RIFX)"
		                                               : "");
	int64_t samples = UNKNOWN;
	int status = AMOS_DONE;
	for (size_t i = 12, size; !status && !w->at && blob->count - i >= 8; i += size) {
		const unsigned char *name = at + i;
		size_t left = blob->count - (i += 8);
		size = (size_t)little(name + 4, 4);
		if (!memcmp(name, "data", 4))
			status = parse_data(w, at + i, size == UINT32_MAX ? samples : (int64_t)size,
			                    left);
		else if (size > left)
			status = amos_fail(AMOS_INPUT, "%s: truncated", w->path);
		else if (!memcmp(name, "fmt ", 4))
			status = parse_format(w, at + i, size);
		else if (large && size >= 16 && !memcmp(name, "ds64", 4))
			samples = (int64_t)little(at + i + 8, 8);
		size += size % 2 && size < left;
	}
	return status || w->at ? status : amos_fail(AMOS_INPUT, "%s: no samples", w->path);
}

// Returns a sample as a number from -1 to 1.
static double sample_at(const struct wave *w, int64_t i)
{
	int bytes = w->bits / 8;
	const unsigned char *at = w->at + i * bytes;
	if (w->format == FLOAT) {
		float narrow;
		double wide;
		memcpy(&narrow, at, sizeof narrow);
		memcpy(&wide, at, bytes == 8 ? sizeof wide : 0);
		return bytes == 8 ? wide : (double)narrow;
	}
	if (bytes == 1) // the only one without a sign
		return (*at - 128) / 128.0;
	return (int32_t)(uint32_t)(little(at, bytes) << (32 - w->bits)) * 0x1p-31;
}

static void read_frames(const struct wave *w, float *to)
{
	for (int64_t i = 0; i < w->frames; i++) {
		double sum = 0;
		for (int c = 0; c < w->channels; c++)
			sum += sample_at(w, i * w->channels + c);
		to[i] = (float)(sum / w->channels);
	}
}

// ---- arrays ---------------------------------------------------------------------------

struct recorder {
	struct amos_recordings *to;
	float *at; // samples
	size_t n, room;
};

static int append(struct recorder *r, const struct wave *w, int64_t label)
{
	struct amos_recordings *to = r->to;
	if (!amos_grow((void **)&r->at, &r->room, r->n + (size_t)w->frames, sizeof *r->at) ||
	    !amos_grow((void **)&to->at, &to->room, (size_t)to->n + 1, sizeof *to->at))
		return amos_no_memory(w->path);
	read_frames(w, r->at + r->n);
	r->n += (size_t)w->frames;
	to->at[to->n++] = (struct amos_recording){w->frames, label};
	return AMOS_DONE;
}

static int read_wave(struct recorder *r, const char *path, int64_t label)
{
	struct wave w = {.path = path};
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (!status)
		status = parse(&w, &blob);
	if (!status && !w.frames)
		status = amos_fail(AMOS_INPUT, "%s: no samples", path);
	if (!status && r->to->rate && r->to->rate != w.rate)
		status = amos_fail(
		    AMOS_INPUT,
		    "%s: expected %lld %s per second, found %lld" HELP
		    "amosc does not resample; convert it: ffmpeg -i FILE -ar %lld OUT.wav",
		    path, (long long)r->to->rate, PLURAL(r->to->rate, "sample", "samples"),
		    (long long)w.rate, (long long)r->to->rate);
	if (!status)
		status = append(r, &w, label);
	r->to->rate = w.rate;
	amos_blob_free(&blob);
	return status;
}

static int read_files(struct recorder *r, const char *path)
{
	static const char *const endings[] = {".wav", NULL};
	struct amos_listing files = {.root = path, .what = ".wav", .endings = endings};
	int status = amos_is_folder(path) ? amos_list(&files) : AMOS_DONE;
	if (!status && !files.n)
		status = read_wave(r, path, -1);
	for (size_t i = 0; !status && i < files.n; i++)
		status = read_wave(r, files.at[i].path, files.at[i].label);
	r->to->classes = files.names;
	files.names = NULL;
	amos_listing_free(&files);
	return status;
}

// Removes :RATE from the end of `path`, unless a file is called so.
static int take_rate(char *path, int64_t *rate)
{
	char *colon = access(path, F_OK) ? strrchr(path, ':') : NULL, *end;
	if (!colon)
		return AMOS_DONE;
	*rate = strtoll(colon + 1, &end, 10);
	if (*rate <= 0 || *end || *rate > UINT32_MAX)
		return amos_fail(AMOS_INPUT,
		                 "wav:%s: expected samples per second after the colon, such as "
		                 "16000",
		                 path);
	*colon = 0;
	return AMOS_DONE;
}

int amos_wav_open(const char *source, struct amos_array *array, struct amos_recordings *to)
{
	struct recorder r = {.to = to};
	char *path = strdup(source);
	if (!path)
		return amos_no_memory("--data");
	int status = take_rate(path, &to->rate);
	if (!status)
		status = read_files(&r, path);
	struct amos_blob blob = {(void *)r.at, r.n * sizeof *r.at, false};
	array->type = AMOS_f32;
	array->rank = 1;
	array->dim[0] = (int64_t)r.n;
	if (!status) {
		to->seconds = (int64_t)r.n / to->rate;
		status = amos_array_take(array, path, &blob, 0);
	}
	amos_blob_free(&blob);
	free(path);
	return status;
}

void amos_recordings_free(struct amos_recordings *r)
{
	free(r->at);
	free(r->classes);
	*r = (struct amos_recordings){0};
}
