// files.h: files of tests: a folder of the test's own, files read and written whole. Takes base.h.
// What cannot be done fails (base.h).
#ifndef FILES_H
#define FILES_H
#include "base.h"

// Makes a folder in $TMPDIR, or /tmp, that is removed with all that is in it when the process ends.
// One a process; a child that ends leaves it.
const char *own_folder(void);
char *read_file(Arena *, const char *path, size_t *count); // a zero behind; count: NULL or how many
void write_file(const char *path, const void *bytes, size_t count);
bool same_files(const char *, const char *); // Do both hold the same bytes?

typedef VEC(char *) Lines;
Lines read_lines(Arena *, const char *path); // without empty ones and comments, which begin with #

#endif
