/* The contract between the owner of K/V pages and the code that computes on them.
 *
 * Plain C on purpose: the two sides are separate wheels, built at different times, perhaps by different
 * compilers. Nothing here depends on the C++ library, on nanobind or on Python.
 *
 * A view is a lease on one context. From export to release
 *   - no arena moves and no listed page is freed;
 *   - positions [0, n_tokens) are not written;
 *   - positions [n_tokens, n_tokens + n_reserved) are written by the holder of the lease only.
 * So the holder needs neither a lock nor the GIL. The protocol of a step is reserve -> run -> commit: before
 * the lease is committed no written position counts, and a commit may keep fewer positions than were
 * reserved.
 *
 * Where an element lives. Layers with the same page table form a group. Position p of a group is slot
 * p % page_tokens of page number
 *   - blocks[(p / page_tokens) / block_pages][(p / page_tokens) % block_pages], say n,
 *
 * and that page begins at arena + n * page_bytes. A negative number is a page that was dropped because it
 * lies wholly behind the group's window. Inside a page, for each layer of the group, with P = page_tokens:
 *   - K of head h, dimension d: element k_offset / element_size + (h * k_dim + d) * P + slot
 *   - V of head h, dimension d: element v_offset / element_size + (h * P + slot) * v_dim + d
 *
 * K is dimension-major so that one SIMD lane holds one key: a score then needs no sum across lanes. V is
 * position-major so that one lane holds one output dimension. Both are read in straight lines.
 *
 * A LATENT group (since 1.2) has K only: one vector for each position, of which the values are a part that
 * the model knows. Its v_dim is 0.
 *
 * A STATE group (since 1.2) has states instead of positions: the memory of a recurrent layer after a number
 * of tokens. Each state is one page (page_tokens is 1), and a step reads one state and writes others, so that
 * no state is ever changed and abandoning a step needs no undoing. Page blocks[0][i] is the state after
 * state_at[i] tokens, for i < n_states:
 *   - a step reads the state with state_at[i] == n_tokens; there is none if n_tokens is 0: the state is then
 * zeros;
 *   - a step writes the states with state_at[i] > n_tokens. The last state is after all reserved positions;
 * the owner may list others before it. A commit ends at one of these states.
 *
 * A step of fewer rows than are reserved writes the states up to its own end. Steps may follow one another
 * within a lease: the holder advances its copy of the view by the k tokens that are written, n_tokens + k and
 * n_reserved - k. States with state_at[i] < n_tokens are then behind it, and are neither read nor written.
 *
 * For each layer K of head h, element d is the last inputs of a short convolution, at h * k_dim + d; V is the
 * recurrent state, at h * v_dim + d. Either may be absent (dimension 0).
 *
 * Compatibility. A change of meaning bumps MAJOR, and with it the capsule's name. A new field goes at the end
 * of its struct and bumps MINOR: a reader asks whether it is there with LLAMAY_HAS. Arrays of structs are
 * walked by the stride that the owner states, never by the reader's sizeof.
 */
#ifndef LLAMAY_KV_VIEW_H
#define LLAMAY_KV_VIEW_H

#include <stddef.h>
#include <stdint.h>

#define LLAMAY_KV_VIEW_MAJOR 1
#define LLAMAY_KV_VIEW_MINOR 2
#define LLAMAY_KV_VIEW_CAPSULE "llamay.kv_view.v1"
#define LLAMAY_KV_VIEW_METHOD "__llamay_kv_view__"

#ifdef __cplusplus
extern "C" {
#endif

/* VQ8 (since 1.1): values are int8, keys f16. Q8 (since 1.1): both int8. A reader refuses a dtype that it
 * does not know. */
enum llamay_kv_dtype { LLAMAY_KV_F32 = 0, LLAMAY_KV_F16 = 1, LLAMAY_KV_VQ8 = 2, LLAMAY_KV_Q8 = 3 };
/* LATENT and STATE since 1.2. */
enum llamay_kv_kind { LLAMAY_KV_FULL = 0, LLAMAY_KV_WINDOW = 1, LLAMAY_KV_LATENT = 2, LLAMAY_KV_STATE = 3 };

/* One layer's place inside each page of its group. Offsets in bytes, multiples of 64. */
typedef struct llamay_kv_layer {
  uint64_t k_offset;
  uint64_t v_offset;
  uint32_t layer; /* the model's layer index */
  uint32_t kv_heads;
  uint32_t k_dim; /* elements per head */
  uint32_t v_dim;
} llamay_kv_layer;

/* Since 1.1: the layers of groups of LLAMAY_KV_VQ8 and LLAMAY_KV_Q8, whose layer_stride is the size of this
 * struct. An int8 element is rint(x / scale), with one float scale for each head and slot: float h *
 * page_tokens + slot at the offset. A vector that is not finite has a NaN scale. A plane that is not int8 has
 * no scales, and their offset is 0. */
typedef struct llamay_kv_layer_int8 {
  llamay_kv_layer layer;
  uint64_t k_scale_offset;
  uint64_t v_scale_offset;
} llamay_kv_layer_int8;

typedef struct llamay_kv_group {
  void* arena; /* 64-byte aligned */
  uint64_t page_bytes;
  const int32_t* const* blocks; /* page numbers in position order, block_pages to a block */
  const llamay_kv_layer* layers;
  uint32_t layer_stride; /* sizeof(llamay_kv_layer) as the owner compiled it */
  uint32_t n_layers;
  uint32_t block_pages; /* a power of two */
  uint32_t page_tokens; /* a power of two, 16 or more; 1 in a STATE group */
  uint32_t kind;        /* enum llamay_kv_kind */
  uint32_t window;      /* positions a row may look back, itself included; 0 if there is no window */
  uint32_t dtype;       /* enum llamay_kv_dtype */
  /* Since 1.2, and there if group_stride reaches as far. For a STATE group, increasing; otherwise none. */
  const uint32_t* state_at;
  uint64_t n_states;
} llamay_kv_group;

typedef struct llamay_kv_view {
  size_t size;           /* sizeof(llamay_kv_view) as the owner compiled it */
  uint32_t group_stride; /* sizeof(llamay_kv_group) as the owner compiled it */
  uint32_t n_groups;
  const llamay_kv_group* groups;
  uint32_t n_tokens;   /* readable */
  uint32_t n_reserved; /* writable, after the readable ones */
} llamay_kv_view;

#ifdef __cplusplus
}
#endif

/* Whether the owner's struct reaches as far as this field. */
#define LLAMAY_HAS(view, field) ((view)->size >= offsetof(llamay_kv_view, field) + sizeof((view)->field))

#endif
