// eta_graph.h: a graph in the notation with what a person says of its parameters, in comments, one
// of each:
//   # convention NAME
//   # eta PATTERN=EXPRESSION
//   # range INPUT=EXPRESSION
//   # slots PATTERN=SHAPE
// Takes passes.h. Gives what eta_pass() wants, and a parameter's eta as one line.
#ifndef ETA_GRAPH_H
#define ETA_GRAPH_H
#include "passes.h"

typedef struct EtaGraph {
	char *text; // of the file
	Graph *g;
	EtaOptions wishes;
} EtaGraph;

EtaGraph read_eta_graph(Arena *, const char *path);
const char *eta_line(Arena *, const char *name, const Eta *); // NAME ROLE FORMULA SLOTS [unsure]

#endif
