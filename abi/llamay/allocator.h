/* An allocator for the memory of K/V pages, where the owner of the pages does not allocate it itself.
 *
 * Plain C, like kv_view.h, and under the same rules of compatibility. The CPU must be able to read and write
 * the memory at the returned address: ordinary, pinned, shared or unified memory.
 */
#ifndef LLAMAY_ALLOCATOR_H
#define LLAMAY_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#define LLAMAY_ALLOCATOR_MAJOR 1
#define LLAMAY_ALLOCATOR_MINOR 1
#define LLAMAY_ALLOCATOR_CAPSULE "llamay.allocator.v1"
#define LLAMAY_ALLOCATOR_METHOD "__llamay_allocator__"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions may be called from any thread, without the GIL. The struct is copied as far as `size` says;
 * `user` must live, and the capsule is kept, until the last memory is released. A new field goes at the end
 * and bumps MINOR: one that the provider's struct does not reach counts as NULL. */
typedef struct llamay_allocator {
  size_t size; /* sizeof(llamay_allocator) as the provider compiled it */
  void* user;
  /* Memory for all pages of one group, aligned to 64 bytes, or NULL. Called once for each group. */
  void* (*allocate)(void* user, uint64_t bytes);
  void (*release)(void* user, void* memory, uint64_t bytes);
  /* May be NULL. The contents of this range are not needed any more, and its memory may be given back to the
   * system until it is written again. Without this function pages cannot be spilled. */
  void (*discard)(void* user, void* memory, uint64_t bytes);
  /* Since 1.1. May be NULL: the CPU copies then. Copies `rows` pieces of `bytes` bytes that begin `stride`
   * bytes apart, in source and destination, within memory of one group; the two do not overlap. Returns when
   * the copy is complete. A page that contexts share is cloned by this function before one of them writes to
   * it. */
  void (*copy)(void* user, void* to, const void* from, uint64_t bytes, uint64_t rows, uint64_t stride);
} llamay_allocator;

#ifdef __cplusplus
}
#endif

#endif
