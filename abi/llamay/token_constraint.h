/* The contract between a constraint, which decides which tokens may come next, and the code that samples
 * them.
 *
 * Plain C on purpose: the two sides are separate wheels, built at different times, perhaps by different
 * compilers. Nothing here depends on the C++ library, on nanobind or on Python.
 *
 * A constraint is a position in one document. An object that offers one has a method
 * LLAMAY_TOKEN_CONSTRAINT_METHOD that takes no argument and returns a capsule named
 * LLAMAY_TOKEN_CONSTRAINT_CAPSULE around a pointer to the struct below. The struct lives as long as the
 * capsule; code that needs it longer, or when the capsule may be gone, calls fork() and owns the result until
 * release().
 *
 * Functions may be called from any thread and without the GIL, but two calls on one constraint must not
 * overlap: a constraint has one owner at a time. Different constraints are independent, forks of one another
 * included. No function throws, calls Python, or keeps a pointer that it was given.
 *
 * A mask has one bit per token, set where the token may come next: token t is bit t % 32 of word t / 32.
 *
 * Compatibility. A change of meaning bumps MAJOR, and with it the capsule's name. A new field goes at the end
 * of the struct and bumps MINOR: a reader asks whether it is there with LLAMAY_TC_HAS.
 */
#ifndef LLAMAY_TOKEN_CONSTRAINT_H
#define LLAMAY_TOKEN_CONSTRAINT_H

#include <stddef.h>
#include <stdint.h>

#define LLAMAY_TOKEN_CONSTRAINT_MAJOR 1
#define LLAMAY_TOKEN_CONSTRAINT_MINOR 0
#define LLAMAY_TOKEN_CONSTRAINT_CAPSULE "llamay.token_constraint.v1"
#define LLAMAY_TOKEN_CONSTRAINT_METHOD "__llamay_token_constraint__"

#ifdef __cplusplus
extern "C" {
#endif

enum llamay_tc_status {
  LLAMAY_TC_OK = 0,
  LLAMAY_TC_REFUSED = 1,  /* the token may not come next; nothing changed */
  LLAMAY_TC_RANGE = 2,    /* an argument is out of range; nothing changed */
  LLAMAY_TC_RESOURCES = 3 /* out of memory or over a budget; nothing changed */
};

typedef struct llamay_token_constraint llamay_token_constraint;

struct llamay_token_constraint {
  size_t size;         /* sizeof(llamay_token_constraint) as the owner compiled it */
  void* self;          /* the owner's, passed to every function */
  uint32_t vocab_size; /* tokens */
  uint32_t mask_words; /* (vocab_size + 31) / 32 */

  /* Writes mask_words words. RANGE when `words` is less; words beyond mask_words are set to zero. */
  int (*fill_mask)(void* self, uint32_t* mask, uint32_t words);
  /* Moves past a token. */
  int (*accept)(void* self, uint32_t token);
  /* Takes back the last n tokens. RANGE when fewer were accepted. */
  int (*rollback)(void* self, uint64_t n);
  /* A new constraint at the same position, in constant time; NULL when out of memory. */
  llamay_token_constraint* (*fork)(void* self);
  /* Writes at most `capacity` tokens, each of which is the only one allowed after those before it; returns
   * how many. Accepts none of them. */
  uint32_t (*forced)(void* self, uint32_t* tokens, uint32_t capacity);
  /* 0: the document must go on. 1: it may end here. 2: an end-of-sequence token was accepted. */
  int (*complete)(void* self);
  /* Ends a constraint that fork() made. Must not be called on a constraint from a capsule. */
  void (*release)(llamay_token_constraint* constraint);
};

#ifdef __cplusplus
}
#endif

/* Whether the owner's struct reaches as far as this field. */
#define LLAMAY_TC_HAS(constraint, field) \
  ((constraint)->size >= offsetof(llamay_token_constraint, field) + sizeof((constraint)->field))

#endif
