// manual.h: declares what the files of the program manual share.
#ifndef MANUAL_H
#define MANUAL_H
#include "tool.h"

// ---- completion.c ---------------------------------------------------------------------

// Returns the completion of the command for bash, zsh or fish; NULL: no such shell.
const char *completion_text(Arena *, const char *shell);

#endif
