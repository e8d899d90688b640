// mock.h: declares compiled models written by hand: what the emitter produces, in C.
// Least squares y = x w + b on rows of 3 by gradient descent, and a table of token counts.
#ifndef MOCK_H
#define MOCK_H
#include "runtime.h"

extern const struct amos_model
    mock_line; // inputs x f32[4,3], y f32[4]; parameters w, b; entries train, eval, run
extern const struct amos_model
    mock_words; // inputs tokens i64[2,8], labels i64[2,8] < 50; parameter counts f32[50]

#endif
