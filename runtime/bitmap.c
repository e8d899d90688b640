// bitmap.c: decodes PNG and JPEG files, with libpng and libjpeg.
// Colors are taken as they are stored: profiles, gamma and EXIF's orientation are ignored.
// Invariant: an image that lacks pixels or has corrupt ones is refused.
#include "rt.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

// Sets the size of an image, and its memory unless only the header is wanted.
static int begin(struct amos_bitmap *map, const char *path, uint32_t width, uint32_t height,
                 int channels, bool header)
{
	enum { MOST = 1 << 27 }; // pixels: what a small file expands to must fit in memory
	if ((uint64_t)width * height > MOST)
		return amos_fail(AMOS_INPUT, "%s: expected at most %d pixels, found %u x %u", path,
		                 MOST, width, height);
	*map = (struct amos_bitmap){width, height, channels, NULL};
	if (!header)
		map->at = malloc((size_t)width * height * (size_t)channels);
	return header || map->at ? AMOS_DONE : amos_no_memory(path);
}

// ---- PNG ------------------------------------------------------------------------------

struct png_trap {
	const char *path;
	const unsigned char *at; // the rest of the file
	size_t left;
	bool no_memory;
	char text[128];
};

static png_voidp png_get(png_structp png, png_alloc_size_t size)
{
	struct png_trap *trap = png_get_mem_ptr(png);
	void *at = malloc(size);
	trap->no_memory |= !at;
	return at;
}

static void png_give(png_structp png, png_voidp at)
{
	(void)png;
	free(at);
}

static void png_failed(png_structp png, png_const_charp text)
{
	struct png_trap *trap = png_get_error_ptr(png);
	snprintf(trap->text, sizeof trap->text, "%s", text);
	png_longjmp(png, 1);
}

static void png_warned(png_structp png, png_const_charp text)
{
	(void)png, (void)text;
}

static void png_take(png_structp png, png_bytep to, size_t n)
{
	struct png_trap *trap = png_get_io_ptr(png);
	if (n > trap->left)
		png_error(png, "truncated");
	memcpy(to, trap->at, n);
	trap->at += n;
	trap->left -= n;
}

// Reads all pixels in 8 bits; an interlaced image in several passes.
static void png_rows(png_structp png, png_infop info, const struct amos_bitmap *map)
{
	size_t line = png_get_rowbytes(png, info);
	for (int pass = png_set_interlace_handling(png); pass > 0; pass--)
		for (int64_t y = 0; y < map->height; y++)
			png_read_row(png, map->at + (size_t)y * line, NULL);
	png_read_end(png, NULL);
}

static void png_open(struct png_trap *trap, png_structp png, png_infop info)
{
	png_set_read_fn(png, trap, png_take);
	png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); // all but pixels
	png_read_info(png, info);
	png_set_expand(png);
	png_set_scale_16(png);
	png_set_interlace_handling(png);
	png_read_update_info(png, info);
}

static int png_try(struct png_trap *trap, png_structp png, png_infop info, bool header,
                   struct amos_bitmap *map)
{
	if (setjmp(png_jmpbuf(png)))
		return trap->no_memory ? amos_no_memory(trap->path)
		                       : amos_fail(AMOS_INPUT, "%s: cannot decode the PNG file: %s",
		                                   trap->path, trap->text);
	png_open(trap, png, info);
	int status = begin(map, trap->path, png_get_image_width(png, info),
	                   png_get_image_height(png, info), png_get_channels(png, info), header);
	if (!status && !header)
		png_rows(png, info, map);
	return status;
}

static int read_png(const char *path, const struct amos_blob *blob, bool header,
                    struct amos_bitmap *map)
{
	struct png_trap trap = {.path = path, .at = blob->at, .left = blob->count};
	png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &trap, png_failed,
	                                           png_warned, &trap, png_get, png_give);
	png_infop info = png ? png_create_info_struct(png) : NULL;
	int status = info ? png_try(&trap, png, info, header, map) : amos_no_memory(path);
	png_destroy_read_struct(&png, &info, NULL);
	return status;
}

// ---- JPEG -----------------------------------------------------------------------------

struct jpeg_trap {
	struct jpeg_error_mgr base;
	jmp_buf back;
	char text[JMSG_LENGTH_MAX];
};

static void jpeg_failed(j_common_ptr jpeg)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)jpeg->err;
	jpeg->err->format_message(jpeg, trap->text);
	longjmp(trap->back, 1);
}

// After these warnings libjpeg makes up pixels; after others, such as bytes between markers, all
// are there.
static void jpeg_warned(j_common_ptr jpeg, int level)
{
	int code = jpeg->err->msg_code;
	if (level < 0 &&
	    (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
		jpeg_failed(jpeg);
}

// Converts inks to RGB in place. 255 is no ink, as Adobe's programs store it.
static void colors_of_inks(struct amos_bitmap *map)
{
	int64_t n = map->width * map->height;
	for (int64_t i = 0; i < n; i++) {
		unsigned white = map->at[4 * i + 3];
		for (int c = 0; c < 3; c++) {
			unsigned dark = (255U - map->at[4 * i + c]) * white + 128;
			map->at[3 * i + c] = (unsigned char)(white - ((dark + (dark >> 8)) >> 8));
		}
	}
	map->channels = 3;
}

static void jpeg_rows(struct jpeg_decompress_struct *jpeg, const struct amos_bitmap *map)
{
	size_t line = (size_t)map->width * (size_t)map->channels;
	jpeg_start_decompress(jpeg);
	while (jpeg->output_scanline < jpeg->output_height) {
		JSAMPROW row = map->at + line * jpeg->output_scanline;
		jpeg_read_scanlines(jpeg, &row, 1);
	}
	jpeg_finish_decompress(jpeg);
}

static int jpeg_try(struct jpeg_trap *trap, struct jpeg_decompress_struct *jpeg, const char *path,
                    const struct amos_blob *blob, bool header, struct amos_bitmap *map)
{
	if (setjmp(trap->back))
		return trap->base.msg_code == JERR_OUT_OF_MEMORY
		           ? amos_no_memory(path)
		           : amos_fail(AMOS_INPUT, "%s: cannot decode the JPEG file: %s", path,
		                       trap->text);
	jpeg_create_decompress(jpeg);
	jpeg_mem_src(jpeg, blob->at, blob->count);
	jpeg_read_header(jpeg, TRUE);
	bool inks = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK,
	     gray = jpeg->jpeg_color_space == JCS_GRAYSCALE;
	jpeg->out_color_space = inks ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
	int status = begin(map, path, jpeg->image_width, jpeg->image_height,
	                   inks   ? 4
	                   : gray ? 1
	                          : 3,
	                   header);
	if (status || header)
		return status;
	jpeg_rows(jpeg, map);
	if (inks)
		colors_of_inks(map);
	return AMOS_DONE;
}

static int read_jpeg(const char *path, const struct amos_blob *blob, bool header,
                     struct amos_bitmap *map)
{
	struct jpeg_trap trap;
	struct jpeg_decompress_struct jpeg = {.err = jpeg_std_error(&trap.base)};
	trap.base.error_exit = jpeg_failed;
	trap.base.emit_message = jpeg_warned;
	int status = jpeg_try(&trap, &jpeg, path, blob, header, map);
	jpeg_destroy_decompress(&jpeg);
	return status;
}

// ---- by the first bytes ---------------------------------------------------------------

int amos_bitmap_read(const char *path, const struct amos_blob *blob, bool header,
                     struct amos_bitmap *map)
{
	*map = (struct amos_bitmap){0};
	if (blob->count >= 8 && !memcmp(blob->at, "\x89PNG\r\n\x1a\n", 8))
		return read_png(path, blob, header, map);
	if (blob->count >= 3 && !memcmp(blob->at, "\xff\xd8\xff", 3))
		return read_jpeg(path, blob, header, map);
	return amos_fail(AMOS_INPUT, "%s: not a PNG or JPEG file", path);
}
