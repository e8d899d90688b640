// shadow.h: declares a record of who read and wrote each byte of memory last, which finds races in
// whatever order threads run.
// Two threads race if both access a byte, one of them writes it, and no barrier of a block that has
// both lies between, nor do fences with a count that both have added to.
#ifndef SHADOW_H
#define SHADOW_H
#include <stdbool.h>
#include <stdint.h>

enum { WARP = 32 }; // threads

typedef struct Who {
	uint32_t life;  // of the memory: another number for each launch, or for each block's own
	uint32_t block; // its number
	uint32_t epoch; // barriers that the block has passed
	uint32_t thread;
	uint32_t fences; // of another way to memory, that the thread has passed
	uint32_t turn;   // barriers of its warp that it has passed
} Who;

// True if fences order all that one had done before what the other, of another block, does now:
// of who uses this record.
bool is_ordered(const Who *before, const Who *now);
bool is_after_all(const Who *now); // of everything that other blocks did before they counted
// True if the access races with an earlier one; *other: that one.
bool shadow_read(uintptr_t at, int bytes, Who, Who *other);
bool shadow_write(uintptr_t at, int bytes, Who, Who *other);
// The same, of memory that is not written when its life begins: *other is who itself if so.
bool shadow_read_own(uintptr_t at, int bytes, Who, Who *other);
// True if `is` is, of the last write of any of the bytes.
bool shadow_written(uintptr_t at, int bytes, bool (*is)(const Who *));
void shadow_clear(uintptr_t at, int bytes); // forgets who read and wrote it
void shadow_free(void);                     // forgets everything

#endif
