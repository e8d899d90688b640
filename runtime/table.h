// table.h: declares what the readers of text tables share: table.c (csv), jsonl.c.
#ifndef TABLE_H
#define TABLE_H
#include "rt.h"

#define BEYOND_DOUBLE " has more digits than a double holds" HELP "store it in an .npy file"

enum { MOST_COLUMNS = 4096 };

struct amos_table {
	const char *path, *key; // key: COLUMNS or FIELD; NULL: all of a line
	struct amos_array *array;
	double *numbers; // read so far
	size_t count, room;
	char **cells; // csv: of the current line
	size_t ncells, cell_room;
	int taken;     // csv: columns taken
	bool counting; // csv: the first line is 0,1,2, ...
	int column[MOST_COLUMNS];
};

int amos_table_add(struct amos_table *, double x);
// Reads all lines but blank ones into one array. `number` counts lines from 1.
int amos_table_lines(const char *path, const char *key,
                     int read_line(struct amos_table *, long number, char *line),
                     struct amos_arrays *to);

#endif
