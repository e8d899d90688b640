// eta_graph.h: declares a graph in the notation with the user's eta options, in comments.
// At most one of each:
//   # convention NAME
//   # eta PATTERN=EXPRESSION
//   # range INPUT=EXPRESSION
//   # slots PATTERN=SHAPE
#ifndef ETA_GRAPH_H
#define ETA_GRAPH_H
#include "passes.h"

typedef struct EtaGraph {
	char *text; // text of the file
	Graph *g;
	EtaOptions options;
} EtaGraph;

EtaGraph read_eta_graph(Arena *, const char *path);
const char *eta_line(Arena *, const char *name, const Eta *); // NAME ROLE FORMULA SLOTS [unsure]
// Returns NAME [input] [readout] depth D, then what else the structure has.
const char *structure_line(Arena *, const char *name, const Structure *);

#endif
