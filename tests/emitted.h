// emitted.h: declares compiling a graph in this process and comparing it with the evaluator.
// A run that writes past a block of its memory is reported and agrees with nothing.
#ifndef EMITTED_H
#define EMITTED_H
#include "runtime.h"
#include "emit.h"
#include "passes.h"

// Reads a graph in the notation from a file.
Graph *read_graph(Arena *, const char *path);
// Returns pseudo-random contents for the slots of g: floats in [-2, 2), integers below `below`, in
// the slots' types.
Array *random_slots(Arena *, const Graph *, uint64_t seed, int64_t below);
// True without a mask, or if one, such as "-avx2,-fma", takes a feature from this CPU: any other
// mask would only repeat what was tested. With sanitizers, which see the compiler and not what it
// emits, only without a mask.
bool mask_applies(Arena *, const char *mask);
typedef int Launcher(const struct amos_run *, const struct amos_kernel *, char *const *buf);
Launcher plain_launch;  // runs workers in order, the last first
Launcher device_launch; // of a graph compiled for a device
// A graph compiled in this process. Each run reads all slots from `slot` and stores the results
// there.
typedef struct Compiled Compiled;
extern int scratch_byte; // what scratch is filled with before a run
Compiled *compile_graph(Arena *, const Graph *, const Target *, const char *what);
Compiled *compile_plan(Arena *, const Graph *, Plan *, const Target *, const char *what);
const Graph *compiled_graph(const Compiled *);
void run_compiled(Arena *, const Compiled *, Array *slot, Launcher *);
// Returns the outputs of a run, as the evaluator lays them out.
Array *outs_compiled(Arena *, const Compiled *, const Array *slot);
Array *outs_launched(Arena *, const Compiled *, const Array *slot, Launcher *);
void free_compiled(Compiled *);
Ref end_at(const Graph *, int k); // outputs, then stores, by number
// Runs it once. Returns the error of the worst output or store against the evaluator, in units of
// `tolerance` times the largest element of that array, but at least least[k] (outputs, then stores;
// NULL: 0): 1 is the limit. Prints what differs.
double check_compiled(Arena *, const Compiled *, const Array *slot, Launcher *, double tolerance,
                      const double *least, const char *what);
// The same for a graph that is compiled for `target`.
double check_graph(Arena *, const Graph *, const Array *slot, const Target *, Launcher *,
                   double tolerance, const double *least, const char *what);
// Returns the loss of a graph in the notation, and the gradients of its parameters; `outputs`: and
// its own outputs.
Graph *gradient_graph(Arena *, const char *name, const char *text, const char *loss, bool outputs);
// Returns the graph computed in double, with inputs and outputs in double. Stores that would be
// narrowed become additional outputs, after the others.
Graph *widen_graph(Arena *, const Graph *);
Array *widen_slots(Arena *, const Graph *wide,
                   const Array *slot); // slots converted to the types in `wide`
// The same for a widened graph: slots of `slot` are f64 where the graph has them so.
double check_wide(Arena *, const Graph *, const Array *slot, const Target *, Launcher *,
                  double tolerance, const double *least, const char *what);
// Returns, by output and then store, the largest error of an element against the evaluator, of code
// scheduled for a machine; INFINITY if another order of workers gives other bits. Floats narrower
// than f32 are rounded as in memory.
double *graph_errors(Arena *, const Graph *, const Array *slot, const Target *, const Machine *,
                     const char *what);
// Returns, by output and then store, the largest change if every value is rounded to its type, as
// it is or with floats disturbed by up to that fraction: the error to expect of a computation in
// these types.
double *rounding_errors(Arena *, const Graph *, const Array *slot, double disturbance);

#endif
