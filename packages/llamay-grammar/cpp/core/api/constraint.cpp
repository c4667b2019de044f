#include "api/constraint.h"

#include <cstring>
#include <new>

namespace llamay::grammar {
namespace {

struct Owned {
  llamay_token_constraint face{};
  std::shared_ptr<Matcher> matcher;
};

Matcher& matcher(void* self) { return *static_cast<Owned*>(self)->matcher; }

int fill_mask(void* self, uint32_t* mask, uint32_t words) {
  try {
    uint32_t need = matcher(self).grammar()->vocabulary->words();
    if (words < need) return LLAMAY_TC_RANGE;
    matcher(self).fill_mask(mask);
    std::memset(mask + need, 0, size_t{words - need} * 4);
    return LLAMAY_TC_OK;
  } catch (...) {
    return LLAMAY_TC_RESOURCES;
  }
}

int accept(void* self, uint32_t token) {
  try {
    return matcher(self).try_accept(token) ? LLAMAY_TC_OK : LLAMAY_TC_REFUSED;
  } catch (...) {
    return LLAMAY_TC_RESOURCES;
  }
}

int rollback(void* self, uint64_t n) {
  if (n > matcher(self).length()) return LLAMAY_TC_RANGE;
  matcher(self).rollback(n);
  return LLAMAY_TC_OK;
}

llamay_token_constraint* fork(void* self) {
  try {
    return make_constraint(std::make_shared<Matcher>(matcher(self)));
  } catch (...) {
    return nullptr;
  }
}

uint32_t forced(void* self, uint32_t* tokens, uint32_t capacity) {
  try {
    auto run = matcher(self).forced(capacity);
    std::memcpy(tokens, run.data(), run.size() * 4);
    return static_cast<uint32_t>(run.size());
  } catch (...) {
    return 0;
  }
}

int complete(void* self) { return matcher(self).ended() ? 2 : matcher(self).complete() ? 1 : 0; }

}  // namespace

llamay_token_constraint* make_constraint(std::shared_ptr<Matcher> m) {
  auto* o = new Owned;
  const Vocabulary& v = *m->grammar()->vocabulary;
  o->face = {sizeof(llamay_token_constraint),
             o,
             v.size(),
             v.words(),
             fill_mask,
             accept,
             rollback,
             fork,
             forced,
             complete,
             free_constraint};
  o->matcher = std::move(m);
  return &o->face;
}

void free_constraint(llamay_token_constraint* c) { delete static_cast<Owned*>(c->self); }

}  // namespace llamay::grammar
