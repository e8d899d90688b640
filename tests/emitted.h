// emitted.h: graphs compiled and run in this process, against the evaluator. A run that writes
// behind a block of its memory is told, and agrees with nothing.
#ifndef EMITTED_H
#define EMITTED_H
#include "emit.h"
#include "passes.h"

// The graph of a file in the notation.
Graph *read_graph(Arena *, const char *path);
// Slots of g with pseudo-random contents: floats in [-2, 2), integers below `below`, in their
// types.
Array *random_slots(Arena *, const Graph *, uint64_t seed, int64_t below);
typedef int Launcher(const struct amos_run *, amos_worker *, char *const *buf, int64_t n,
                     int64_t kernel);
Launcher plain_launch; // one worker after the other, the last first
// A graph in this process: each run reads all slots from `slot` and leaves in it what was stored.
typedef struct Compiled Compiled;
Compiled *compile_graph(Arena *, const Graph *, const Target *, const char *what);
void run_compiled(Arena *, const Compiled *, Array *slot, Launcher *);
// A run's outs, each where the evaluator has it.
Array *outs_compiled(Arena *, const Compiled *, const Array *slot);
void free_compiled(Compiled *);
Ref end_at(const Graph *, int k); // outs, then what is stored, by number
// Compiles g by `target` and runs it once. Answers how far the worst out or store lies from the
// evaluator, in units of `tolerance` times the largest entry of that array, but at least least[k]
// (outs, then stores; NULL: 0): 1 is the most that is allowed. Prints what differs.
double check_graph(Arena *, const Graph *, const Array *slot, const Target *, Launcher *,
                   double tolerance, const double *least, const char *what);
// The same graph computed in double, outs and inputs too; what would be narrowed to be stored
// leaves as an out, behind the others.
Graph *widen_graph(Arena *, const Graph *);
Array *widen_slots(Arena *, const Graph *wide, const Array *slot); // in the types it has them in
// The same of it: slots of `slot` are f64 where it has them so.
double check_wide(Arena *, const Graph *, const Array *slot, const Target *, Launcher *,
                  double tolerance, const double *least, const char *what);
// By out, then store: how far an element of it lies from the evaluator, compiled; INFINITY where
// workers in another order leave other bits. Floats narrower than f32 are rounded as in memory.
double *graph_errors(Arena *, const Graph *, const Array *slot, const Target *, const char *what);
// By out, then store: how much it changes at most when every value is rounded to its type, as it
// is or with floats disturbed by up to that share of them: what is to be expected of a computation
// in these types.
double *rounding_errors(Arena *, const Graph *, const Array *slot, double disturbance);

#endif
