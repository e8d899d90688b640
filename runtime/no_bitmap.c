// no_bitmap.c: refuses images, where amosc was built without libpng or libjpeg.
#include "rt.h"

int amos_bitmap_read(const char *path, const struct amos_blob *blob, bool header,
                     struct amos_bitmap *map)
{
	(void)blob, (void)header, (void)map;
	return amos_fail(AMOS_INPUT,
	                 "%s: this amosc was built without libpng and libjpeg, so it reads no "
	                 "images" HELP "convert them to an .npy file, or build amosc with both",
	                 path);
}
