// images.c: checks images as data: every kind of file, channels, sizes, resizing, classes, damage.
// Values of resized images are computed by hand.
#include "inputs.h"
#include "pictures.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *amos_identity(const struct amos *, const struct amos_data *); // rt.h

// ---- fixtures -------------------------------------------------------------------------

static int attach_options(struct amos_options options)
{
	return attach(0, &options);
}

static double at(int slot, int64_t i)
{
	return amos_number(amos_slot_bytes(m, slot), slots[slot].type, i);
}

// Checks that the source fills x with these values, decoded at the start and later.
static void gives(const char *source, int n, const int *expected, int tolerance)
{
	for (int later = 0; later < 2; later++) {
		decoded = later ? 0 : 1 << 30;
		CHECK(!fit_source(0, source), "%s", source);
		CHECK(!amos_data_eval(data, m, 0, data->batch), "%s", source);
		double scale = slots[0].type == E_u8 || !strncmp(source, "raw", 3) ? 1 : 255;
		for (int i = 0; i < n; i++)
			CHECK(fabs(at(0, i) * scale - expected[i]) < tolerance + 1e-4,
			      "%s: element %d is %g, wanted %d", source, i, at(0, i) * scale,
			      expected[i]);
	}
	decoded = 1 << 30;
}

// Checks that `source` is rejected with a message that has both words.
static void rejected(const char *source, const char *word, const char *other)
{
	int status = fit_source(0, source);
	CHECK(status == AMOS_INPUT, "%s: status %d", source, status);
	CHECK(strstr(amos_error(), word) && strstr(amos_error(), other),
	      "%s: the message lacks '%s' or '%s'", source, word, other);
}

#define VALUES(...)                                                                                \
	(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[])                                 \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define BYTES(...)                                                                                 \
	(unsigned char[])                                                                          \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

// ---- PNG ------------------------------------------------------------------------------

static void kinds_of_png(void)
{
	// 2 x 2 pixels: 0, 255 and 255, 0 in gray
	declare(0, "x", E_f32, 0, 4, 1, 1, 2, 2);
	write_png("a.png", &(Picture){2, 2, GRAY, 8, .pixels = BYTES(0, 255, 9, 0)});
	gives("images:a.png", VALUES(0, 255, 9, 0), 0);
	write_png("a.png", &(Picture){2, 2, GRAY, 1, .pixels = BYTES(0x40, 0x80)});
	gives("images:a.png", VALUES(0, 255, 255, 0), 0);
	write_png("a.png", &(Picture){2, 2, GRAY, 2, .pixels = BYTES(0x60, 0xD0)});
	gives("images:a.png", VALUES(85, 170, 255, 85), 0);
	write_png("a.png", &(Picture){2, 2, GRAY, 4, .pixels = BYTES(0x1F, 0x80)});
	gives("images:a.png", VALUES(17, 255, 136, 0), 0);
	write_png("a.png",
	          &(Picture){2, 2, GRAY, 16, .pixels = BYTES(0, 0, 255, 255, 1, 255, 1, 128)});
	gives("images:a.png", VALUES(0, 255, 2, 1), 0); // nearest, of 16 bits
	write_png("a.png",
	          &(Picture){2, 2, GRAY_ALPHA, 8, .pixels = BYTES(1, 0, 2, 255, 3, 9, 4, 0)});
	gives("images:a.png", VALUES(1, 2, 3, 4), 0);
	// 0.299 R + 0.587 G + 0.114 B
	write_png(
	    "a.png",
	    &(Picture){2, 2, RGB, 8, .pixels = BYTES(255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30)});
	gives("images:a.png", VALUES(76, 150, 29, 18), 0);

	declare(0, "x", E_f32, 0, 4, 1, 2, 2, 3);
	gives("images:a.png", VALUES(255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30), 0);
	gives("raw(images:a.png)", VALUES(255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30), 0);
	declare(0, "x", E_u8, 0, 4, 1, 2, 2, 3);
	gives("images:a.png", VALUES(255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30), 0);
	declare(0, "x", E_f32, 0, 4, 1, 3, 2, 2);
	gives("images:a.png", VALUES(255, 0, 0, 10, 0, 255, 0, 20, 0, 0, 255, 30), 0);
	declare(0, "x", E_f32, 0, 2, 1, 12);
	gives("images:a.png", VALUES(255, 0, 0, 10, 0, 255, 0, 20, 0, 0, 255, 30), 0);
	gives("images:a.png:2x2", VALUES(255, 0, 0, 10, 0, 255, 0, 20, 0, 0, 255, 30), 0);
	declare(0, "x", E_f32, 0, 3, 1, 2, 2);
	gives("images:a.png", VALUES(76, 150, 29, 18), 0);
	declare(0, "x", E_bf16, 0, 4, 1, 2, 2, 4);
	gives("images:a.png", VALUES(255, 0, 0, 255, 0, 255, 0, 255), 1);
	write_png("a.png",
	          &(Picture){1, 2, RGBA, 16,
	                     .pixels = BYTES(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8)});
	declare(0, "x", E_u8, 0, 4, 1, 2, 1, 4);
	gives("images:a.png", VALUES(1, 2, 3, 4, 5, 6, 7, 8), 0);
	declare(0, "x", E_u8, 0, 4, 1, 2, 1, 3);
	gives("images:a.png", VALUES(1, 2, 3, 5, 6, 7), 0);
	write_png("a.png", &(Picture){3, 2, PALETTE, 2, .pixels = BYTES(0x18, 0x90),
	                              .palette = "\1\2\3\4\5\6\7\10\11", .colors = 9,
	                              .alpha = "\0\200", .alphas = 2});
	declare(0, "x", E_u8, 0, 4, 1, 2, 3, 3);
	gives("images:a.png", VALUES(1, 2, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9, 4, 5, 6, 1, 2, 3), 0);
	declare(0, "x", E_u8, 0, 4, 1, 2, 3, 4);
	gives("images:a.png", VALUES(1, 2, 3, 0, 4, 5, 6, 128, 7, 8, 9, 255, 7, 8, 9, 255), 0);
	// A gamma chunk, which is ignored.
	write_png("a.png", &(Picture){2, 1, GRAY, 8, .pixels = BYTES(100, 200),
	                              .more = "gAMA\0\1\206\240", .more_length = 4});
	declare(0, "x", E_u8, 0, 3, 1, 1, 2);
	gives("images:a.png", VALUES(100, 200), 0);
}

static void interlaced_png(void)
{
	unsigned char pixels[11 * 9 * 3];
	int expected[COUNT(pixels)];
	for (int i = 0; i < COUNT(pixels); i++)
		expected[i] = pixels[i] = (unsigned char)(i * 37 % 256);
	declare(0, "x", E_u8, 0, 4, 1, 9, 11, 3);
	for (int interlaced = 0; interlaced < 2; interlaced++) {
		write_png("a.png",
		          &(Picture){11, 9, RGB, 8, .interlaced = interlaced, .pixels = pixels});
		gives("images:a.png", COUNT(pixels), expected, 0);
	}
	write_png("a.png",
	          &(Picture){9, 1, GRAY, 1, .interlaced = true, .pixels = BYTES(0xA5, 0x80)});
	declare(0, "x", E_u8, 0, 3, 1, 1, 9);
	gives("images:a.png", VALUES(255, 0, 255, 0, 0, 255, 0, 255, 255), 0);
}

// ---- JPEG -----------------------------------------------------------------------------

static void kinds_of_jpeg(void)
{
	unsigned char gray[16 * 8], colors[16 * 8 * 3], inks[16 * 8 * 4];
	int expected[16 * 8 * 3], grays[16 * 8], printed[16 * 8 * 3];
	for (int i = 0; i < 16 * 8; i++) {
		bool right = i % 16 > 7;
		grays[i] = gray[i] = right ? 200 : 40;
		for (int c = 0; c < 3; c++) {
			expected[3 * i + c] = colors[3 * i + c] =
			    (unsigned char)(right ? 60 * c : 200 - 50 * c);
			inks[4 * i + c] = (unsigned char)(right ? 255 : 100);
			printed[3 * i + c] = right ? 51 : 100; // ink times what black leaves
		}
		inks[4 * i + 3] = right ? 51 : 255;
	}
	Picture p = {.width = 16, .height = 8, .channels = 1, .pixels = gray};
	declare(0, "x", E_u8, 0, 3, 1, 8, 16);
	write_jpeg("a.jpg", &p);
	gives("images:a.jpg", COUNT(grays), grays, 0);
	p.channels = 3;
	p.pixels = colors;
	declare(0, "x", E_u8, 0, 4, 1, 8, 16, 3);
	for (int progressive = 0; progressive < 2; progressive++) {
		p.interlaced = progressive;
		write_jpeg("a.jpg", &p);
		gives("images:a.jpg", COUNT(expected), expected, 2);
	}
	p.orientation = 6; // turned by 90 degrees, which is ignored
	write_jpeg("a.jpg", &p);
	gives("images:a.jpg", COUNT(expected), expected, 2);
	rename("a.jpg", "wrong.png"); // the bytes decide
	gives("images:wrong.png", COUNT(expected), expected, 2);
	p = (Picture){.width = 16, .height = 8, .channels = 4, .pixels = inks};
	write_jpeg("a.jpg", &p);
	gives("images:a.jpg", COUNT(printed), printed, 1);
}

// ---- sizes ----------------------------------------------------------------------------

// Writes a gray image.
static void write_gray(const char *path, int width, int height, const void *pixels)
{
	write_png(path, &(Picture){width, height, GRAY, 8, .pixels = pixels});
}

static void resizes(void)
{
	// Larger: output pixel 1 lies 0.25 from the center of pixel 0, and 0.75 from that of 1.
	declare(0, "x", E_u8, 0, 3, 1, 4, 4);
	write_gray("a.png", 2, 2, BYTES(0, 255, 0, 255));
	gives("images:a.png", VALUES(0, 64, 191, 255, 0, 64, 191, 255), 0);
	write_gray("a.png", 2, 2, BYTES(0, 0, 255, 255));
	gives("images:a.png", VALUES(0, 0, 0, 0, 64, 64, 64, 64, 191, 191, 191, 191), 0);
	// Smaller by 2: weights 3, 3, 1 and 1, 3, 3 of 7.
	unsigned char rows[4][4];
	static const unsigned char row[] = {0, 100, 200, 40};
	for (int i = 0; i < 4; i++)
		memcpy(rows[i], row, 4);
	declare(0, "x", E_u8, 0, 3, 1, 2, 2);
	write_gray("a.png", 4, 4, rows);
	gives("images:a.png", VALUES(71, 117, 71, 117), 0);
	// To one pixel: weights 7, 9, 11, 11, 9, 7 of 54.
	unsigned char wide[6][6] = {{0}};
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < 6; k++)
			wide[i][k] = (unsigned char)(k < 2 ? 0 : k < 3 ? 120 : 240);
	declare(0, "x", E_u8, 0, 3, 1, 1, 1);
	write_gray("a.png", 6, 6, wide);
	gives("images:a.png", VALUES(144), 0);
	// Colors count by their alpha, and are divided by what is left of it.
	unsigned char seen[4][4][4];
	for (int i = 0; i < 16; i++)
		memcpy(seen[i / 4][i % 4], i % 4 < 2 ? "\310\144\62\377" : "\132\132\132", 4);
	write_png("a.png", &(Picture){4, 4, RGBA, 8, .pixels = seen});
	declare(0, "x", E_u8, 0, 4, 1, 2, 2, 4);
	gives("images:a.png", VALUES(199, 100, 50, 219, 205, 99, 49, 36), 0);
	declare(0, "x", E_u8, 0, 4, 1, 4, 2, 2);
	gives("images:a.png", VALUES(199, 205, 199, 205, 100, 99, 100, 99), 0);
}

static void crops(void)
{
	// The center, or half a pixel from it: half the difference is rounded to even.
	declare(0, "x", E_u8, 0, 3, 1, 1, 2);
	write_gray("a.png", 4, 1, BYTES(1, 2, 3, 4));
	gives("images:a.png", VALUES(2, 3), 0);
	write_gray("a.png", 3, 1, BYTES(1, 2, 3));
	gives("images:a.png", VALUES(1, 2), 0);
	write_gray("a.png", 5, 1, BYTES(1, 2, 3, 4, 5));
	gives("images:a.png", VALUES(3, 4), 0);
	declare(0, "x", E_u8, 0, 3, 1, 2, 1);
	write_gray("a.png", 1, 6, BYTES(1, 2, 3, 4, 5, 6));
	gives("images:a.png", VALUES(3, 4), 0);
	// Enlarged to 2 x 4, then cropped.
	declare(0, "x", E_u8, 0, 3, 1, 2, 2);
	write_gray("a.png", 2, 1, BYTES(0, 255));
	gives("images:a.png", VALUES(64, 191, 64, 191), 0);
	// A line of 60000 pixels is as high as the input at 240000.
	static unsigned char line[60000];
	memset(line, 7, sizeof line);
	line[29999] = line[30000] = 9;
	write_gray("a.png", 60000, 1, line);
	declare(0, "x", E_u8, 0, 3, 1, 4, 4);
	gives("images:a.png", VALUES(9, 9, 9, 9), 0);
}

// Shapes that the data complete.
static void open_sizes(void)
{
	mkdir("same", 0777);
	write_gray("same/1.png", 3, 2, BYTES(1, 2, 3, 4, 5, 6));
	write_gray("same/2.png", 3, 2, BYTES(1, 2, 3, 4, 5, 6));
	struct amos_input in = {.name = "x", .type = E_f32, .rank = 4, .dim = {-1, 3, -1, -1}};
	struct amos_options options = options_of("data", "x=images:same", NULL);
	close_all();
	CHECK(!amos_data_open(&options, 0, &data) && !amos_data_bind(data, 1, &in), "bind");
	CHECK(in.dim[0] == 2 && in.dim[2] == 2 && in.dim[3] == 3, "the size of all images");
	in = (struct amos_input){.name = "x", .type = E_f32, .rank = 4, .dim = {-1, -1, -1, 1}};
	options = options_of("data", "x=images:same:4x5", "batch", "1", NULL);
	close_all();
	CHECK(!amos_data_open(&options, 0, &data) && !amos_data_bind(data, 1, &in), "bind");
	CHECK(in.dim[0] == 1 && in.dim[1] == 4 && in.dim[2] == 5, "the size asked for");
	in = (struct amos_input){.name = "x", .type = E_f32, .rank = 4, .dim = {-1, -1, -1, -1}};
	CHECK(amos_data_bind(data, 1, &in) == AMOS_INPUT && strstr(amos_error(), "channels"), "%s",
	      amos_error());
	write_gray("same/3.png", 2, 3, BYTES(1, 2, 3, 4, 5, 6));
	in = (struct amos_input){.name = "x", .type = E_f32, .rank = 4, .dim = {-1, 3, -1, -1}};
	options = options_of("data", "x=images:same", NULL);
	close_all();
	CHECK(!amos_data_open(&options, 0, &data) && amos_data_bind(data, 1, &in) == AMOS_INPUT &&
	          strstr(amos_error(), "same/1.png has 3 x 2 pixels, same/3.png has 2 x 3") &&
	          strstr(amos_error(), "images:same:224x224"),
	      "%s", amos_error());
	declare(0, "x", E_f32, 0, 4, 1, 3, 2, 2);
	CHECK(!fit_source(0, "images:same"), "%s", amos_error());
	rejected("images:same:3x2", "the model takes other sizes", "images:same:3x2");
	rejected("images:same:3", "HEIGHTxWIDTH after the colon", "same:3");
	declare(0, "x", E_u8, 0, 4, 1, 3, 30000, 2000);
	rejected("images:same", "at most 134217728 bytes per image", "2000 x 30000 pixels");
	declare(0, "x", E_f32, 0, 4, 1, 2, 5, 5);
	rejected("images:same", "1, 3 or 4 channels", "f32[1,2,5,5]");
	declare(0, "x", E_f32, 0, 4, 1, 3, 4, 4);
	rejected("images:same", "1, 3 or 4 channels", "f32[1,3,4,4]"); // or NHWC of 3 x 4?
	declare(0, "x", E_f32, 0, 2, 1, 10);
	rejected("images:same:3x2", "expected 10 elements", "2 x 3 pixels");
	declare(0, "x", E_i64, 0, 1, 1);
	rejected("images:same", "i64[1]", "classes(images:same) gives the class of each image");
	declare(0, "x", E_i64, 0, 3, 1, 4, 4);
	rejected("images:same", "i64[1,4,4]", "floats or u8");
	rejected("windows(images:same; 2)", "windows(): expected an array", "images:same");
}

// ---- directories ----------------------------------------------------------------------

static void dot(const char *path, int value)
{
	write_gray(path, 1, 1, BYTES((unsigned char)value));
}

static void make_folders(void)
{
	mkdir("dots", 0777);
	mkdir("dots/b", 0777);
	mkdir("dots/b/deep", 0777);
	mkdir("dots/a", 0777);
	mkdir("dots/.hidden", 0777);
	mkdir("elsewhere", 0777);
	dot("dots/a/1.png", 1);
	dot("dots/a/2.PNG", 2);
	dot("dots/a/3.png", 3);
	dot("dots/a/4.jpeg", 4);
	dot("dots/b/deep/5.png", 5);
	CHECK(!symlink("../a/4.jpeg", "dots/b/6.png"), "link");
	dot("elsewhere/7.png", 7);
	CHECK(!symlink("../elsewhere", "dots/c"), "link"); // of a class: followed
	dot("dots/a/._1.png", 8);
	dot("dots/.hidden/1.png", 9);
	write_file("dots/a/notes.txt", "a", 1);
	write_file("dots/list.csv", "a", 1);
}

static void classes_of_folders(void)
{
	declare(0, "x", E_u8, 0, 3, 7, 1, 1);
	declare(1, "y", E_i64, 3, 1, 7);
	struct amos_options options =
	    options_of("data", "x=images:dots", "data", "y=classes(images:dots)", NULL);
	for (int later = 0; later < 2; later++) {
		decoded = later ? 0 : 1 << 30;
		CHECK(!attach_options(options) && !amos_data_eval(data, m, 0, 7), "%s",
		      amos_error());
		static const int value[] = {1, 4, 2, 7, 3, 5, 4}, label[] = {0, 1, 0, 2, 0, 1, 0};
		for (int i = 0; i < 7; i++)
			CHECK(at(0, i) == value[i] && at(1, i) == label[i],
			      "sample %d: %g of class %g", i, at(0, i), at(1, i));
		CHECK(strstr(data->note, "data: x: 7 images as 1 x 1 pixels, "
		                         "gray\n") &&
		          strstr(data->note, "data: x: other files ignored: 2\n") &&
		          strstr(data->note, "data: y: classes a, b, c\n") &&
		          later == (strstr(data->note, "batch by batch") != NULL),
		      "%s", data->note);
	}
}

// The same batches, whenever the images are decoded.
static void batches_of_folders(const struct amos_options options)
{
	unsigned char first[2][7];
	for (int later = 0; later < 2; later++) {
		decoded = later ? 0 : 1 << 30;
		CHECK(!attach_options(options) && !amos_data_train(data, m, 1), "%s", amos_error());
		memcpy(first[later], amos_slot_bytes(m, 0), 7);
		double square = (1 + 16 + 4 + 49 + 9 + 25 + 16) / 7.0;
		CHECK(fabs(amos_data_rms(data, "x") * 255 - sqrt(square)) < 1e-9, "rms %g",
		      amos_data_rms(data, "x"));
	}
	CHECK(!memcmp(first[0], first[1], 7), "batches differ");
	decoded = 1 << 30;
}

static void faults_of_folders(const struct amos_options options)
{
	mkdir("dots/d", 0777);
	CHECK(attach_options(options) == AMOS_INPUT &&
	          strstr(amos_error(), "dots/d: no .png, .jpg or .jpeg"),
	      "%s", amos_error());
	rmdir("dots/d");
	dot("dots/0.png", 0);
	CHECK(attach_options(options) == AMOS_INPUT &&
	          strstr(amos_error(), "dots/0.png: the image lies in no"),
	      "%s", amos_error());
	declare(0, "x", E_u8, 0, 3, 1, 1, 1);
	CHECK(!fit_source(0, "images:dots"), "%s", amos_error());
	CHECK(!symlink("../../dots", "dots/b/loop"), "link");
	rejected("images:dots", "dots/b/loop: expected a file", "link to a directory");
	rejected("images:none", "none", "No such file");
	rejected("images:/dev/null", "/dev/null", "not a regular file");
	mkdir("empty", 0777);
	rejected("images:empty", "no .png, .jpg or .jpeg files in the directory", "empty");
}

static void folders(void)
{
	make_folders();
	classes_of_folders();
	struct amos_options options =
	    options_of("data", "x=images:dots", "data", "y=classes(images:dots)", "seed", "3",
	               "threads", "3", NULL);
	batches_of_folders(options);
	faults_of_folders(options);
}

// Classes are numbered in order of name, and the note lists the first of many.
static void many_classes(void)
{
	char path[64];
	mkdir("many", 0777);
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof path, "many/%03d", i);
		mkdir(path, 0777);
		for (int k = 0; k < 4; k++) {
			snprintf(path, sizeof path, "many/%03d/%d.png", i, k);
			dot(path, i % 256);
		}
	}
	declare(0, "x", E_u8, 0, 3, 32, 1, 1);
	declare(1, "y", E_i64, 3, 1, 32);
	slots[1].limit = 300;
	CHECK(!attach_options(options_of("data", "x=images:many", "data", "y=classes(images:many)",
	                                 "threads", "4", NULL)),
	      "%s", amos_error());
	CHECK(strstr(data->note, " 018, 019 and 280 more\n"), "%s", data->note);
	for (int run = 0; run < 37; run++) {
		CHECK(!amos_data_train(data, m, run), "batch");
		for (int i = 0; i < 32; i++)
			CHECK(at(0, i) == (double)((int)at(1, i) % 256), "%g of %g", at(0, i),
			      at(1, i));
	}
}

// ---- damage ---------------------------------------------------------------------------

// Every prefix of a good file is rejected; changed bytes give an image or an error.
static void damaged(const char *good)
{
	size_t size;
	unsigned char *bytes = (unsigned char *)read_file(arena, good, &size);
	for (size_t n = 0; n < size; n++) {
		write_file("damaged", bytes, n);
		CHECK(fit_source(0, "images:damaged") == AMOS_INPUT, "%s cut at %zu of %zu", good,
		      n, size);
		CHECK(strstr(amos_error(), "damaged: "), "the file's name");
	}
	uint64_t state = 1;
	for (int i = 0; i < 1000; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		size_t place = (size_t)(state >> 33) % size;
		unsigned char old = bytes[place];
		bytes[place] ^= (unsigned char)(1 << (state >> 30) % 8);
		write_file("damaged", bytes, size);
		int status = fit_source(0, "images:damaged");
		CHECK(!status || (status == AMOS_INPUT && strstr(amos_error(), "damaged: ")), "%d",
		      status);
		bytes[place] = old;
	}
}

static void damage(void)
{
	unsigned char pixels[12 * 9 * 3];
	for (int i = 0; i < COUNT(pixels); i++)
		pixels[i] = (unsigned char)(i * 91 % 256);
	Picture p = {
	    .width = 12, .height = 9, .type = RGB, .bits = 8, .channels = 3, .pixels = pixels};
	declare(0, "x", E_u8, 0, 3, 1, 4, 4);
	for (int k = 0; k < 2; k++) {
		p.interlaced = k;
		write_png("good.png", &p);
		damaged("good.png");
		write_jpeg("good.jpg", &p);
		damaged("good.jpg");
	}
	write_file("text.png", "not an image", 12);
	rejected("images:text.png", "text.png", "not a PNG or JPEG file");
	// The first image of those that are corrupt is named, whatever thread meets it.
	mkdir("mixed", 0777);
	char path[64];
	for (int i = 0; i < 40; i++) {
		snprintf(path, sizeof path, "mixed/%02d.png", i);
		if (i < 17)
			write_png(path, &p);
		else
			write_file(path, "not an image", 12);
	}
	for (int i = 0; i < 20; i++)
		CHECK(attach_options(options_of("data", "x=images:mixed", "threads", "4", NULL)) ==
		              AMOS_INPUT &&
		          strstr(amos_error(), "mixed/17.png"),
		      "%s", amos_error());
	decoded = 0;
	CHECK(fit_source(0, "images:mixed") == AMOS_INPUT && strstr(amos_error(), "mixed/17.png"),
	      "%s", amos_error());
	decoded = 1 << 30;
	// What a small file expands to.
	write_png("bomb.png", &p);
	size_t size;
	char *bytes = read_file(arena, "bomb.png", &size);
	static const unsigned char head[] = "IHDR\0\0\352\140\0\0\352\140\10\2\0\0\0";
	uint32_t crc = amos_crc(AMOS_CRC32, 0, head, 17);
	memcpy(bytes + 12, head, 17);
	for (int i = 0; i < 4; i++)
		bytes[29 + i] = (char)(crc >> (24 - 8 * i));
	write_file("bomb.png", bytes, size);
	rejected("images:bomb.png", "bomb.png", "at most 134217728 pixels, found 60000 x 60000");
}

// ---- identity -------------------------------------------------------------------------

// Other images have another identity; so have other names, if the images are not in memory.
static void identities(void)
{
	mkdir("known", 0777);
	dot("known/1.png", 1);
	dot("known/2.png", 2);
	declare(0, "x", E_u8, 0, 3, 1, 1, 1);
	for (int later = 0; later < 2; later++) {
		decoded = later ? 0 : 1 << 30;
		char *text[3];
		for (int i = 0; i < 3; i++) {
			dot("known/2.png", i == 2 ? 3 : 2);
			CHECK(!fit_source(0, "images:known"), "%s", amos_error());
			text[i] = amos_identity(m, data);
		}
		CHECK(!strcmp(text[0], text[1]) && strcmp(text[0], text[2]), "%s%s", text[0],
		      text[2]);
		for (int i = 0; i < 3; i++)
			free(text[i]);
	}
	decoded = 1 << 30;
}

int main(void)
{
	enter_folder();
	kinds_of_png();
	interlaced_png();
	kinds_of_jpeg();
	resizes();
	crops();
	open_sizes();
	folders();
	many_classes();
	damage();
	identities();
	close_all();
	printf("images: PNG and JPEG of every kind, cut and changed; channels, sizes, crops, "
	       "classes\n");
}
