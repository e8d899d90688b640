// files.h: declares file helpers: a private directory, complete reads and writes.
// Errors fail().
#ifndef FILES_H
#define FILES_H
#include "base.h"

// Makes a directory in $TMPDIR, or /tmp, that is removed with its contents when the process ends.
// One per process; a child that ends does not remove it.
const char *own_folder(void);
char *read_file(Arena *, const char *path,
                size_t *count); // zero-terminated; count: NULL or the size
void write_file(const char *path, const void *bytes, size_t count);
bool same_files(const char *, const char *); // true if both contain the same bytes

typedef VEC(char *) Lines;
Lines read_lines(Arena *, const char *path); // without empty lines and comments (#)

#endif
