// pictures.c: writes images, for tests: PNG files of every kind by zlib alone, JPEG files by
// libjpeg.
#include "pictures.h"
#include "files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <jpeglib.h>

typedef struct Bytes {
	unsigned char at[1 << 16];
	size_t n;
} Bytes;

static void put(Bytes *to, const void *bytes, size_t n)
{
	if (n > sizeof to->at - to->n)
		fail("picture", "larger than %zu bytes", sizeof to->at);
	memcpy(to->at + to->n, bytes, n);
	to->n += n;
}

static void put_number(Bytes *to, unsigned long number)
{
	for (int shift = 24; shift >= 0; shift -= 8)
		put(to, &(unsigned char){(unsigned char)(number >> shift)}, 1);
}

static void put_chunk(Bytes *to, const char *name, const void *bytes, size_t n)
{
	put_number(to, n);
	size_t from = to->n;
	put(to, name, 4);
	put(to, bytes, n);
	put_number(to, crc32_z(0, to->at + from, to->n - from));
}

static int samples_of(const Picture *p)
{
	static const int samples[] = {
	    [GRAY] = 1, [RGB] = 3, [PALETTE] = 1, [GRAY_ALPHA] = 2, [RGBA] = 4};
	return samples[p->type];
}

// Puts every `step`-th pixel of every `down`-th row, as rows without a filter.
static void put_rows(Bytes *to, const Picture *p, int x, int y, int step, int down)
{
	int bits = samples_of(p) * p->bits, line = (p->width * bits + 7) / 8;
	for (int row = y; row < p->height && x < p->width; row += down) {
		const unsigned char *from = (const unsigned char *)p->pixels + row * line;
		static unsigned char packed[1 << 16];
		memset(packed, 0, (size_t)line + 2);
		int at = 8; // bits, after the number of the filter
		for (int column = x; column < p->width; column += step)
			for (int bit = column * bits; bit < (column + 1) * bits; bit++, at++)
				packed[at / 8] |=
				    (unsigned char)((from[bit / 8] >> (7 - bit % 8) & 1)
				                    << (7 - at % 8));
		put(to, packed, (size_t)(at + 7) / 8);
	}
}

void write_png(const char *path, const Picture *p)
{
	static const int passes[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
	                                 {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
	static Bytes file, head, rows;
	static unsigned char packed[1 << 16];
	uLongf n = sizeof packed;
	file.n = head.n = rows.n = 0;
	put(&file, "\x89PNG\r\n\x1a\n", 8);
	put_number(&head, (unsigned long)p->width);
	put_number(&head, (unsigned long)p->height);
	put(&head,
	    (unsigned char[]){(unsigned char)p->bits, (unsigned char)p->type, 0, 0, p->interlaced},
	    5);
	put_chunk(&file, "IHDR", head.at, head.n);
	if (p->more)
		put_chunk(&file, p->more, p->more + 4, p->more_length);
	if (p->palette)
		put_chunk(&file, "PLTE", p->palette, (size_t)p->colors);
	if (p->alpha)
		put_chunk(&file, "tRNS", p->alpha, (size_t)p->alphas);
	for (int i = 0; p->interlaced && i < 7; i++)
		put_rows(&rows, p, passes[i][0], passes[i][1], passes[i][2], passes[i][3]);
	if (!p->interlaced)
		put_rows(&rows, p, 0, 0, 1, 1);
	if (compress(packed, &n, rows.at, rows.n) != Z_OK)
		fail(path, "zlib");
	put_chunk(&file, "IDAT", packed, n);
	put_chunk(&file, "IEND", "", 0);
	write_file(path, file.at, file.n);
}

void write_jpeg(const char *path, const Picture *p)
{
	static const unsigned char exif[] =
	    "Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0?\0\0\0\0\0";
	struct jpeg_error_mgr errors;
	struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&errors)};
	unsigned char *bytes = NULL, about[sizeof exif];
	unsigned long n = 0;
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &bytes, &n);
	jpeg.image_width = (unsigned)p->width;
	jpeg.image_height = (unsigned)p->height;
	jpeg.input_components = p->channels;
	jpeg.in_color_space = p->channels == 1   ? JCS_GRAYSCALE
	                      : p->channels == 3 ? JCS_RGB
	                                         : JCS_CMYK;
	jpeg_set_defaults(&jpeg);
	jpeg_set_quality(&jpeg, 100, TRUE);
	for (int c = 0; c < jpeg.num_components; c++)
		jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
	if (p->interlaced)
		jpeg_simple_progression(&jpeg);
	jpeg_start_compress(&jpeg, TRUE);
	memcpy(about, exif, sizeof exif);
	about[25] = (unsigned char)p->orientation;
	if (p->orientation)
		jpeg_write_marker(&jpeg, JPEG_APP0 + 1, about, sizeof about - 1);
	while (jpeg.next_scanline < jpeg.image_height) {
		JSAMPROW row = (JSAMPROW)p->pixels +
		               jpeg.next_scanline * jpeg.image_width * (unsigned)p->channels;
		jpeg_write_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	write_file(path, bytes, n);
	free(bytes);
}
