// leaks.c: checks that the runtime gives back what it took when memory or the disk runs out.
// Each case runs while its n-th allocation fails, for every n, and with every limit on the size of
// files. A failed run is reported as a system error and leaves no memory, descriptor or temporary
// file behind; the file that it would have replaced stays as it was.
#include "fixtures.h"
#include "pictures.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <zlib.h>

// ---- an allocator that counts and fails -----------------------------------------------

static int64_t blocks;  // allocated and not freed
static int64_t failing; // number of the allocation that fails, counted down; 0: none

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static bool fails(void)
{
	if (!failing || --failing)
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	void *block = fails() ? NULL : __libc_malloc(size);
	blocks += block != NULL;
	return block;
}

void *calloc(size_t count, size_t size)
{
	void *block = fails() ? NULL : __libc_calloc(count, size);
	blocks += block != NULL;
	return block;
}

void *realloc(void *old, size_t size)
{
	void *block = fails() ? NULL : __libc_realloc(old, size);
	blocks += block && !old;
	return block;
}

void *aligned_alloc(size_t align, size_t size)
{
	void *block = fails() ? NULL : __libc_memalign(align, size);
	blocks += block != NULL;
	return block;
}

void free(void *block)
{
	blocks -= block != NULL;
	__libc_free(block);
}

// ---- cases ----------------------------------------------------------------------------

static struct amos *line;

static int save(void)
{
	struct amos_position point = {.step = 1};
	return amos_checkpoint_save(line, "out", &point, "model\tline\n");
}

static int load(void)
{
	struct amos_checkpoint *c;
	int status = amos_checkpoint_open("good.ckpt", true, &c);
	if (!status)
		status = amos_checkpoint_load(c, line);
	amos_checkpoint_close(c);
	return status;
}

static int write_arrays(void)
{
	float x[200] = {1, 2, 3, 4};
	struct amos_array arrays[] = {
	    {.name = "x", .type = E_f32, .rank = 2, .dim = {2, 100}, .bytes = x},
	    {.name = "y", .type = E_bf16, .rank = 1, .dim = {4}, .bytes = x}};
	return amos_npz_write("out", 2, arrays);
}

static int read_data(const char *source)
{
	struct amos_options options = options_of("data", source, "data", "y=zeros", NULL);
	static const char *const entries[] = {"train", NULL};
	struct amos_data *data;
	int status = amos_data_open(&options, 0, &data);
	if (!status)
		status = amos_data_attach(data, &mock_line, entries);
	amos_data_close(data);
	return status;
}

static int npy(void)
{
	return read_data("x=x.npy");
}

static int npz(void)
{
	return read_data("a.npz");
}

static int safetensors(void)
{
	return read_data("x=a.safetensors:x");
}

static int csv(void)
{
	return read_data("x=a.csv:0,c,b");
}

static int jsonl(void)
{
	return read_data("x=a.jsonl:x");
}

static int gz(void)
{
	return read_data("x=a.idx.gz");
}

static int text(void)
{
	return read_data("x=text:letters:auto");
}

static int words(void)
{
	return read_data("x=text:letters:words");
}

static int recordings(void)
{
	return read_data("x=windows(classes(windows(wav:clips; 1)); 3)");
}

// The images of a batch, decoded at the start or later.
static int read_images(int64_t decoded)
{
	struct amos_options options =
	    options_of("data", "x=images:pictures:1x1", "data", "y=zeros", "threads", "1", NULL);
	static const char *const entries[] = {"train", NULL};
	struct amos_data *data;
	int status = amos_data_open(&options, 0, &data);
	if (status)
		return status;
	data->decoded = decoded;
	status = amos_data_attach(data, &mock_line, entries);
	if (!status)
		status = amos_data_train(data, line, 0);
	amos_data_close(data);
	return status;
}

static int images(void)
{
	return read_images(1 << 20);
}

static int later(void)
{
	return read_images(0);
}

static int train(void)
{
	char *argv[] = {"leaks", "train"};
	struct amos_options options =
	    options_of("data", "x=x.npy", "data", "y=y.npy", "steps", "2", "split", "0.5", "out",
	               "run", "overwrite", NULL, "quiet", NULL, NULL);
	options.argc = 2;
	options.argv = argv;
	static const char *const entries[] = {"train", "eval", NULL};
	struct amos_data *data;
	struct amos *m;
	struct amos_result result;
	int status = amos_open_slots(&mock_line, 1, 0, NULL, NULL, &m);
	if (status)
		return status;
	status = amos_data_open(&options, 0, &data);
	if (!status)
		status = amos_data_attach(data, &mock_line, entries);
	if (!status)
		status = amos_train(m, data, &options, &result);
	amos_data_close(data);
	amos_close(m);
	return status;
}

static const struct {
	const char *name;
	int (*run)(void);
} cases[] = {{"save", save},     {"load", load},   {"write", write_arrays},
             {"npy", npy},       {"npz", npz},     {"safetensors", safetensors},
             {"csv", csv},       {"jsonl", jsonl}, {"gz", gz},
             {"text", text},     {"words", words}, {"wav", recordings},
             {"images", images}, {"later", later}, {"train", train}};

static void make_files(void)
{
	write_line_data(8);
	CHECK(
	    !amos_npz_write(
	        "a.npz", 1,
	        &(struct amos_array){
	            .name = "x", .type = E_f32, .rank = 2, .dim = {8, 3}, .bytes = (float[24]){1}}),
	    "a.npz");
	const char *header = "{\"x\":{\"dtype\":\"F32\",\"shape\":[8,3],\"data_offsets\":[0,96]}}";
	char file[512] = {0};
	file[0] = (char)strlen(header);
	memcpy(file + 8, header, strlen(header));
	write_file("a.safetensors", file, 8 + strlen(header) + 96);
	const char *csv = "a,b,c\n1,2,3\n1,2,3\n1,2,3\n1,2,3\n";
	write_file("a.csv", csv, strlen(csv));
	const char *jsonl = "{\"x\":[1,2,3]}\n{\"x\":[1,2,3]}\n{\"x\":[1,2,3]}\n{\"x\":[1,2,3]}\n";
	write_file("a.jsonl", jsonl, strlen(jsonl));
	unsigned char idx[12 + 12] = {0, 0, 8, 2, 0, 0, 0, 4, 0, 0, 0, 3};
	gzFile gz = gzopen("a.idx.gz", "wb");
	CHECK(gzwrite(gz, idx, sizeof idx) == sizeof idx && !gzclose(gz), "a.idx.gz");
	static const unsigned char header_of[44] =
	    "RIFF\60\0\0\0WAVEfmt \20\0\0\0\1\0\1\0\100\37\0\0\200\76\0\0\2\0\20\0data\14\0\0";
	unsigned char wav[44 + 12] = {0};
	memcpy(wav, header_of, 44);
	mkdir("clips", 0777);
	mkdir("clips/a", 0777);
	mkdir("clips/b", 0777);
	write_file("clips/a/1.wav", wav, sizeof wav);
	write_file("clips/b/1.wav", wav, sizeof wav);
	mkdir("pictures", 0777);
	Picture picture = {2, 2, RGB, 8, .channels = 3, .pixels = wav};
	write_png("pictures/1.png", &picture);
	write_jpeg("pictures/2.jpg", &picture);
	picture.interlaced = true;
	write_png("pictures/3.png", &picture);
	write_jpeg("pictures/4.jpg", &picture);
	write_file("letters", "aabbccddeeff", 12);
	write_file("words", "a\nb\nc\nd\ne\nf\n", 12);
	CHECK(!amos_open_slots(&mock_line, 1, 0, NULL, NULL, &line) && !save() &&
	          !rename("out", "good.ckpt"),
	      "good.ckpt");
}

// ---- what must not remain -------------------------------------------------------------

static int descriptors(void)
{
	int count = 0;
	for (int file = 0; file < 64; file++)
		count += fcntl(file, F_GETFD) >= 0;
	return count;
}

static int temporary_files(const char *folder)
{
	int count = 0;
	DIR *names = opendir(folder);
	for (struct dirent *one; names && (one = readdir(names));)
		count += ends_with(one->d_name, ".aside");
	if (names)
		closedir(names);
	return count;
}

static bool is_old(void)
{
	char bytes[4] = "";
	FILE *file = fopen("out", "r");
	bool old = file && fread(bytes, 1, 4, file) == 4 && !memcmp(bytes, "old\n", 4);
	if (file)
		fclose(file);
	return old;
}

// Runs a case; true if its n-th allocation, or a file of that size, failed.
static bool run_case(int k, const char *kind, int64_t n)
{
	int files = descriptors();
	int64_t before = blocks;
	write_file("out", "old\n", 4);
	before = blocks;
	failing = strcmp(kind, "memory") ? 0 : n;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	if (!strcmp(kind, "file size"))
		limit.rlim_cur = (rlim_t)n;
	CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "limit");
	int status = cases[k].run();
	bool reached = strcmp(kind, "memory") ? status != AMOS_DONE : !failing;
	failing = 0;
	limit.rlim_cur = RLIM_INFINITY;
	CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "limit");
	const char *name = cases[k].name;
	CHECK(!status || status == AMOS_MACHINE, "%s: %s %d: status %d", name, kind, (int)n,
	      status);
	CHECK(blocks == before, "%s: %s %d: %d blocks leak", name, kind, (int)n,
	      (int)(blocks - before));
	CHECK(descriptors() == files, "%s: %s %d: a descriptor leaks", name, kind, (int)n);
	CHECK(!temporary_files(".") && !temporary_files("run"), "%s: %s %d: a temporary file", name,
	      kind, (int)n);
	CHECK(!status || is_old(), "%s: %s %d: a file was replaced", name, kind, (int)n);
	return reached;
}

int main(void)
{
	enter_folder();
	setenv("TZ", "UTC0", 1); // else libc keeps a name of its own, which it allocates anew
	signal(SIGXFSZ, SIG_IGN);
	make_files();
	for (int k = 0; k < COUNT(cases); k++) {
		CHECK(!cases[k].run() && !cases[k].run(), "%s", cases[k].name);
		int64_t n = 1;
		while (run_case(k, "memory", n))
			n++;
		for (int64_t size = 0; run_case(k, "file size", size); size += 61)
			;
		printf("%s: %d allocations\n", cases[k].name, (int)n - 1);
	}
	amos_close(line);
}
