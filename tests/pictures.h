// pictures.h: declares how tests write images.
#ifndef PICTURES_H
#define PICTURES_H
#include <stdbool.h>

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGBA = 6 }; // color types of PNG

typedef struct Picture {
	int width, height;
	int type, bits;       // of PNG: color type, bits of a sample
	bool interlaced;      // PNG; JPEG: progressive
	const void *pixels;   // PNG: its rows, each of full bytes; JPEG: 8-bit samples
	int channels;         // of JPEG: 1 gray, 3 RGB, 4 CMYK
	int orientation;      // of JPEG: EXIF's; 0: none
	const char *palette;  // of PNG: bytes of RGB
	const char *alpha;    // of PNG: the chunk tRNS
	int colors, alphas;   // bytes of these
	const char *more;     // a chunk of PNG before the pixels: its name, then bytes
	unsigned more_length; // of its bytes
} Picture;

void write_png(const char *path, const Picture *);
void write_jpeg(const char *path, const Picture *); // of quality 100, colors at full resolution

#endif
