// images.c: reads images as samples: bytes, in the shape that their input asks for.
// A set of up to 1 GiB is decoded at the start; of a larger one, the images of each batch, by all
// threads. Both give the same bytes.
#include "rt.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct amos_images {
	struct amos_listing files;
	char *path;            // of the source
	int64_t height, width; // asked for; 0: as the input asks
	int64_t threads;
};

int amos_bitmap_refuse(const char *path, const struct amos_blob *blob, bool header,
                       struct amos_bitmap *map)
{
	(void)blob, (void)header, (void)map;
	return amos_fail(AMOS_INPUT,
	                 "%s: this trainer reads no images, since its model has no input "
	                 "[N,C,H,W] or [N,H,W,C] for them" HELP
	                 "build it with --data NAME=images:PATH, or store the data in .npy files",
	                 path);
}

// ---- open -----------------------------------------------------------------------------

// Images are not recorded as inputs: there may be millions.
static int open_image(const char *path, struct amos_blob *blob)
{
	return amos_blob_take(open(path, O_RDONLY | O_CLOEXEC), path, false, blob);
}

static int read_header(const char *path, struct amos_bitmap *map)
{
	struct amos_blob blob;
	int status = open_image(path, &blob);
	if (!status)
		status = amos_bitmap_read(path, &blob, true, map);
	amos_blob_free(&blob);
	return status;
}

// Removes :HEIGHTxWIDTH from the end of the path, unless a file is called so.
static int take_size(struct amos_images *images)
{
	char *colon = access(images->path, F_OK) ? strrchr(images->path, ':') : NULL;
	int used = 0;
	if (!colon)
		return AMOS_DONE;
	long long height = 0, width = 0;
	if (sscanf(colon, ":%5lldx%5lld%n", &height, &width, &used) != 2 || colon[used] ||
	    height < 1 || width < 1)
		return amos_fail(AMOS_INPUT,
		                 "images:%s: expected HEIGHTxWIDTH after the colon, such as "
		                 "224x224",
		                 images->path);
	*colon = 0;
	images->height = height;
	images->width = width;
	return AMOS_DONE;
}

// Makes a list of one file.
static int list_one(struct amos_listing *files)
{
	struct stat about;
	if (!stat(files->root, &about) && !S_ISREG(about.st_mode)) // a pipe is read once
		return amos_fail(AMOS_INPUT, "%s: not a regular file", files->root);
	char *copy = strdup(files->root);
	files->at = malloc(sizeof *files->at);
	if (!copy || !files->at) {
		free(copy);
		return amos_no_memory(files->root);
	}
	files->at[files->n++] = (struct amos_found){copy, -1, 0};
	return AMOS_DONE;
}

static int list_images(struct amos_images *images)
{
	static const char *const endings[] = {".png", ".jpg", ".jpeg", NULL};
	struct amos_listing *files = &images->files;
	*files = (struct amos_listing){
	    .root = images->path, .what = ".png, .jpg or .jpeg", .endings = endings};
	return amos_is_folder(images->path) ? amos_list(files) : list_one(files);
}

// Makes the list of labels, and an array that has only the number of images.
static int label_images(const char *source, struct amos_opened *to)
{
	const struct amos_listing *files = &to->images->files;
	struct amos_recordings *labels = &to->recordings;
	labels->at = malloc(files->n * sizeof *labels->at);
	labels->classes = strdup(files->names ? files->names : "");
	if (!labels->at || !labels->classes)
		return amos_no_memory(source);
	for (size_t i = 0; i < files->n; i++)
		labels->at[i] = (struct amos_recording){1, files->at[i].label};
	labels->n = (int64_t)files->n;
	to->array = (struct amos_array){.type = AMOS_u8, .rank = 1, .dim = {labels->n}};
	return AMOS_DONE;
}

int amos_images_open(const char *source, int64_t threads, struct amos_opened *to)
{
	struct amos_images *images = to->images = calloc(1, sizeof *images);
	struct amos_bitmap first; // a runtime that cannot decode says so here
	if (!images || !(images->path = strdup(source)))
		return amos_no_memory(source);
	images->threads = threads;
	int status = take_size(images);
	if (!status)
		status = list_images(images);
	if (!status)
		status = read_header(images->files.at[0].path, &first);
	return status ? status : label_images(source, to);
}

int amos_images_check_classes(const struct amos_images *images)
{
	const struct amos_listing *files = &images->files;
	if (files->empty)
		return amos_fail(AMOS_INPUT,
		                 "%s: no %s files in the directory of a class" HELP
		                 "remove the directory, or add its images: classes are numbered by "
		                 "directories",
		                 files->empty, files->what);
	for (size_t i = 0; i < files->n; i++)
		if (files->at[i].label < 0)
			return amos_fail(AMOS_INPUT,
			                 "%s: the image lies in no directory of its class" HELP
			                 "store the images as DIR/CLASS/NAME.png, for images:DIR",
			                 files->at[i].path);
	return AMOS_DONE;
}

void amos_images_free(struct amos_images *images)
{
	if (!images)
		return;
	amos_listing_free(&images->files);
	free(images->path);
	free(images);
}

// ---- decode ---------------------------------------------------------------------------

struct job { // images to decode, taken in order by several threads
	const struct amos_images *images;
	const struct amos_pixels *pixels;
	const int64_t *rows; // indices of the images; NULL: 0, 1, ...
	int64_t n, per;      // images; bytes of each
	char *to;
	int type; // of `to`
	double divide;

	int64_t next;
	pthread_mutex_t lock; // of what follows: the error of the first image that has one
	int64_t failed;
	int status;
	char *error;
};

static int read_image(const struct job *job, int64_t row, unsigned char *to)
{
	const char *path = job->images->files.at[row].path;
	struct amos_blob blob;
	struct amos_bitmap map = {0};
	int status = open_image(path, &blob);
	if (!status)
		status = amos_bitmap_read(path, &blob, false, &map);
	amos_blob_free(&blob);
	if (!status)
		status = amos_bitmap_fit(path, &map, job->pixels, to);
	free(map.at);
	return status;
}

// Keeps the error of image `i`, unless an earlier one failed; no more images are taken.
static void keep_error(struct job *job, int64_t i, int status)
{
	__atomic_store_n(&job->next, job->n, __ATOMIC_RELAXED);
	pthread_mutex_lock(&job->lock);
	if (!job->status || i < job->failed) {
		free(job->error);
		job->error = strdup(amos_error());
		job->status = status;
		job->failed = i;
	}
	pthread_mutex_unlock(&job->lock);
}

static void *decode(void *context)
{
	struct job *job = context;
	int item = amos_types[job->type].bytes;
	unsigned char *bytes = malloc((size_t)job->per);
	int64_t i;
	while ((i = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->n) {
		int64_t row = job->rows ? job->rows[i] : i;
		int status = bytes ? read_image(job, row, bytes) : amos_no_memory("--data");
		if (status)
			keep_error(job, i, status);
		else
			amos_convert(job->to + i * job->per * item, job->type, bytes, AMOS_u8,
			             job->per, job->divide);
	}
	free(bytes);
	return NULL;
}

// Runs a job on this thread and others, as many as the system starts.
static int run(struct job *job)
{
	enum { MOST = 64 };
	pthread_t thread[MOST];
	int64_t wanted = job->images->threads < job->n ? job->images->threads : job->n;
	int helpers = 0;
	pthread_mutex_init(&job->lock, NULL);
	while (helpers < wanted - 1 && helpers < MOST &&
	       !pthread_create(&thread[helpers], NULL, decode, job))
		helpers++;
	decode(job);
	while (helpers > 0)
		pthread_join(thread[--helpers], NULL);
	pthread_mutex_destroy(&job->lock);
	if (job->status)
		amos_fail(job->status, "%s", job->error ? job->error : "out of memory");
	free(job->error);
	return job->status;
}

static struct job job_of(const struct amos_data *data, const struct amos_source *source)
{
	const struct amos_pixels *p = &source->pixels;
	return (struct job){.images = data->files[source->file].images,
	                    .pixels = p,
	                    .per = p->channels * p->height * p->width,
	                    .type = AMOS_u8,
	                    .divide = 1};
}

int amos_images_fill(const struct amos_data *data, const struct amos_feed *feed, int64_t n,
                     const int64_t *rows, void *to)
{
	struct job job = job_of(data, feed->source);
	job.rows = rows;
	job.n = n;
	job.to = to;
	job.type = feed->to->type;
	job.divide = feed->divide;
	return run(&job);
}

// ---- the form that an input asks for --------------------------------------------------

struct fitting {
	const struct amos_images *images;
	const struct amos_source *source;
	const struct amos_input *input;
};

// True for element types that hold pixels. Integers other than u8 are labels, which cannot be
// resized.
static bool takes_bytes(int type)
{
	return amos_types[type].class == 'f' || type == AMOS_u8;
}

static int not_for_images(const struct fitting *f)
{
	char found[256];
	const struct amos_input *in = f->input;
	bool label = in->rank < 2 || !takes_bytes(in->type);
	amos_shape_text(found, sizeof found, in->type, in->rank, in->dim);
	return amos_fail(AMOS_INPUT,
	                 "--data %s=images:%s: expected an input of images, floats or u8, as "
	                 "[N,C,H,W] or [N,H,W,C], of which one axis is 1, 3 or 4 channels, [N,H,W] "
	                 "or [N,PIXELS]; "
	                 "found %s%s%s%s",
	                 f->source->name, f->images->path, found,
	                 label ? HELP "classes(images:" : "", label ? f->images->path : "",
	                 label ? ") gives the class of each image" : "");
}

static bool is_channels(int64_t n)
{
	return n == 1 || n == 3 || n == 4;
}

// Sets *height and *width to the size of all images.
static int common_size(const struct fitting *f, int64_t *height, int64_t *width)
{
	const struct amos_listing *files = &f->images->files;
	struct amos_bitmap first, map;
	int status = read_header(files->at[0].path, &first);
	for (size_t i = 1; !status && i < files->n; i++) {
		status = read_header(files->at[i].path, &map);
		if (!status && (map.width != first.width || map.height != first.height))
			return amos_fail(
			    AMOS_INPUT,
			    "--data %s=images:%s: the model leaves the size open, and the images "
			    "have "
			    "several: %s has %lld x %lld pixels, %s has %lld x %lld" HELP
			    "give height and width as images:%s:224x224",
			    f->source->name, f->images->path, files->at[0].path,
			    (long long)first.width, (long long)first.height, files->at[i].path,
			    (long long)map.width, (long long)map.height, f->images->path);
	}
	*height = status ? 0 : first.height;
	*width = status ? 0 : first.width;
	return status;
}

// Chooses the size: that of the input, of the source, or of all images. What the input leaves open
// is -1 before.
static int choose_size(const struct fitting *f, int64_t *height, int64_t *width)
{
	const struct amos_images *images = f->images;
	int64_t h = images->height, w = images->width;
	int status = AMOS_DONE;
	if (!h && (*height < 0 || *width < 0))
		status = common_size(f, &h, &w);
	else if (h && ((*height >= 0 && *height != h) || (*width >= 0 && *width != w)))
		status = amos_fail(AMOS_INPUT,
		                   "--data %s=images:%s:%lldx%lld: the model takes other sizes" HELP
		                   "leave out the size, which follows from the model",
		                   f->source->name, images->path, (long long)h, (long long)w);
	*height = *height < 0 ? h : *height;
	*width = *width < 0 ? w : *width;
	return status;
}

// Chooses the form for an input [N, PIXELS]: the size is that of the source or of all images.
static int choose_flat(const struct fitting *f, struct amos_pixels *to)
{
	*to = (struct amos_pixels){.height = -1, .width = -1};
	int status = choose_size(f, &to->height, &to->width);
	int64_t all = f->input->dim[1], area = to->height * to->width;
	if (status)
		return status;
	to->channels = all / area;
	return all % area || !is_channels(to->channels)
	           ? amos_fail(AMOS_INPUT,
	                       "--data %s=images:%s: expected %lld %s per image, found 1, 3 or 4 "
	                       "channels of %lld x %lld pixels" HELP
	                       "give height and width as images:%s:28x28",
	                       f->source->name, f->images->path, (long long)all,
	                       PLURAL(all, "element", "elements"), (long long)to->width,
	                       (long long)to->height, f->images->path)
	           : AMOS_DONE;
}

static int choose_pixels(const struct fitting *f, struct amos_pixels *to)
{
	const struct amos_input *in = f->input;
	const int64_t *dim = in->dim;
	bool flat = in->rank == 2 && dim[1] > 0, first = in->rank == 4 && is_channels(dim[1]),
	     last = in->rank == 4 && is_channels(dim[3]);
	if (!takes_bytes(in->type) || (!flat && in->rank != 3 && first == last))
		return not_for_images(f);
	if (flat)
		return choose_flat(f, to);
	int at = first ? 2 : 1; // axis of the height
	*to = (struct amos_pixels){.channels = in->rank == 3 ? 1 : dim[first ? 1 : 3],
	                           .height = dim[at],
	                           .width = dim[at + 1],
	                           .last = last};
	return choose_size(f, &to->height, &to->width);
}

// Sets the shape of the source's array: that of the input, but for axis 0.
static void shape_array(const struct fitting *f, const struct amos_pixels *p,
                        struct amos_array *array)
{
	const struct amos_input *in = f->input;
	int64_t n = (int64_t)f->images->files.n, flat[] = {n, in->dim[1]},
	        gray[] = {n, p->height, p->width}, first[] = {n, p->channels, p->height, p->width},
	        last[] = {n, p->height, p->width, p->channels};
	const int64_t *dim = in->rank == 2 ? flat : in->rank == 3 ? gray : p->last ? last : first;
	*array = (struct amos_array){.type = AMOS_u8, .rank = in->rank};
	memcpy(array->dim, dim, sizeof *dim * (size_t)in->rank);
}

// ---- the array ------------------------------------------------------------------------

static int decode_all(const struct amos_data *data, struct amos_source *source, int64_t bytes)
{
	struct amos_blob blob = {malloc((size_t)bytes), (size_t)bytes, false};
	if (!blob.at)
		return amos_no_memory(source->name);
	struct job job = job_of(data, source);
	job.n = job.images->files.n;
	job.to = (char *)blob.at;
	int status = run(&job);
	if (!status)
		status = amos_array_take(&source->array, source->name, &blob, 0);
	amos_blob_free(&blob);
	return status;
}

// Measures up to 256 images of the training part, sampled evenly, 16 at a time.
static int measure(const struct amos_data *data, struct amos_source *source)
{
	enum { SAMPLE = 256, EACH = 16 };
	struct job job = job_of(data, source);
	int64_t all = (int64_t)((double)job.images->files.n * data->split), rows[EACH],
	        n = all < SAMPLE ? all : SAMPLE;
	unsigned char *bytes = malloc((size_t)(EACH * job.per));
	int status = bytes ? AMOS_DONE : amos_no_memory(source->name);
	double sum = 0;
	for (int64_t i = 0; !status && i < n; i += EACH) {
		struct job part = job;
		part.rows = rows;
		part.to = (char *)bytes;
		part.n = n - i < EACH ? n - i : EACH;
		for (int64_t k = 0; k < part.n; k++)
			rows[k] = all > SAMPLE
			              ? (int64_t)(amos_mix((uint64_t)(i + k)) % (uint64_t)all)
			              : i + k;
		status = run(&part);
		for (int64_t k = 0; !status && k < part.n * job.per; k++)
			sum += (double)(bytes[k] * bytes[k]);
	}
	free(bytes);
	source->mean_square = n ? sum / (double)n / (double)job.per : 0;
	return status;
}

static bool same_shape(const struct amos_array *a, const struct amos_array *b)
{
	return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim);
}

int amos_images_fit(struct amos_data *data, struct amos_source *source,
                    const struct amos_input *input)
{
	struct fitting f = {data->files[source->file].images, source, input};
	struct amos_pixels pixels;
	struct amos_array array;
	int status = choose_pixels(&f, &pixels);
	if (status)
		return status;
	shape_array(&f, &pixels, &array);
	if (same_shape(&array, &source->array) && pixels.last == source->pixels.last)
		return AMOS_DONE;
	amos_array_free(&source->array);
	enum { LINE = 1 << 15, MOST = 1 << 27 }; // pixels; bytes of an image
	int64_t bytes = amos_elements(array.rank, array.dim);
	if (bytes < 1)
		return not_for_images(&f);
	if (pixels.height > LINE || pixels.width > LINE ||
	    pixels.height * pixels.width * pixels.channels > MOST)
		return amos_fail(AMOS_INPUT,
		                 "--data %s=images:%s: expected at most %d bytes per image, found "
		                 "%lld x %lld pixels",
		                 source->name, f.images->path, MOST, (long long)pixels.width,
		                 (long long)pixels.height);
	source->array = array;
	source->pixels = pixels;
	status = bytes > data->decoded ? measure(data, source) : decode_all(data, source, bytes);
	if (status)
		source->array = (struct amos_array){0};
	return status;
}

// ---- what was read --------------------------------------------------------------------

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = amos_mix(hash ^ (unsigned char)*text);
	return amos_mix(hash);
}

uint64_t amos_images_hash(const struct amos_images *images, uint64_t hash)
{
	enum { BLOCK = 1 << 14, BLOCKS = 1 << 12 };
	const struct amos_listing *files = &images->files;
	size_t every = (files->n + BLOCKS - 1) / BLOCKS;
	for (size_t i = 0; i < files->n; i++) {
		struct stat about;
		struct amos_blob blob = {0};
		const char *path = files->at[i].path;
		hash = hash_text(hash, path + strlen(files->root));
		hash = amos_mix(hash ^ (stat(path, &about) ? 0 : (uint64_t)about.st_size));
		if (i % every == 0 && !open_image(path, &blob))
			for (size_t k = 0; k < blob.count && k < BLOCK; k++)
				hash = amos_mix(hash ^ blob.at[k]);
		amos_blob_free(&blob);
	}
	return hash;
}

void amos_images_describe(const struct amos_data *data, const struct amos_source *source,
                          char **text)
{
	static const char *const colors[] = {[1] = "gray", [3] = "RGB", [4] = "RGBA"};
	const struct amos_pixels *p = &source->pixels;
	const struct amos_listing *files = &data->files[source->file].images->files;
	amos_append(text, "data: %s: %zu %s as %lld x %lld pixels, %s\n", source->name, files->n,
	            PLURAL(files->n, "image", "images"), (long long)p->width, (long long)p->height,
	            colors[p->channels]);
	if (!source->array.bytes)
		amos_append(text,
		            "data: %s: decoded batch by batch, for all are more than %lld MiB\n",
		            source->name, (long long)(data->decoded >> 20));
	if (files->others)
		amos_append(text, "data: %s: other files ignored: %lld\n", source->name,
		            (long long)files->others);
}
