// matrix.h: declares the emulated matrix registers of a thread.
#ifndef MATRIX_H
#define MATRIX_H
#include <stdbool.h>
#include <stdint.h>

void amos_matrix_configure(const void *from);
void amos_matrix_release(void);
void amos_matrix_clear(int8_t to);
void amos_matrix_load(int8_t to, const void *from, int64_t stride); // bytes
void amos_matrix_store(int8_t from, void *to, int64_t stride);
void amos_matrix_multiply(int8_t sum, int8_t a, int8_t b);

#endif
