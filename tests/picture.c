// picture.c: writes two classes of images for the file tests: FOLDER/across and FOLDER/down have N
// images each, of stripes that lie and that stand, in random colors and places, of several sizes.
// picture FOLDER N [SIZE]      SIZE: all images have this height and width
#include "pictures.h"
#include "base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static unsigned draw(unsigned n)
{
	static uint32_t state = 1;
	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

static void write_one(const char *path, bool down, int width, int height)
{
	static unsigned char pixels[64 * 64 * 3];
	unsigned char color[2][3];
	unsigned place = draw(8);
	for (int c = 0; c < 3; c++) {
		color[0][c] = (unsigned char)(10 + draw(90));
		color[1][c] = (unsigned char)(145 + draw(100));
	}
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			for (int c = 0; c < 3; c++) {
				unsigned at = (unsigned)(down ? x : y) + place;
				pixels[(y * width + x) * 3 + c] =
				    (unsigned char)(color[at / 4 % 2][c] + draw(20) - 10);
			}
	Picture p = {.width = width,
	             .height = height,
	             .type = RGB,
	             .bits = 8,
	             .channels = 3,
	             .pixels = pixels};
	(strstr(path, ".jpg") ? write_jpeg : write_png)(path, &p);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"across", "down"};
	char path[512];
	if (argc < 3)
		return 2;
	int n = atoi(argv[2]), size = argc > 3 ? atoi(argv[3]) : 0;
	mkdir(argv[1], 0777);
	for (int down = 0; down < 2; down++) {
		snprintf(path, sizeof path, "%s/%s", argv[1], names[down]);
		mkdir(path, 0777);
		for (int i = 0; i < n; i++) {
			snprintf(path, sizeof path, "%s/%s/%d.%s", argv[1], names[down], i,
			         i % 2 ? "jpg" : "png");
			write_one(path, down, size ? size : 16 + (int)draw(16),
			          size ? size : 16 + (int)draw(16));
		}
	}
	return 0;
}
