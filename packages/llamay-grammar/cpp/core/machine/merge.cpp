#include "machine/merge.h"

#include <unordered_map>

#include "support/hash.h"

namespace llamay::grammar {

void merge_configurations(Configurations& list, Scratch& s) {
  std::unordered_map<const Frame*, const Frame*> known;
  std::unordered_multimap<uint64_t, const Frame*> frames;
  auto hash = [](const Frame* f, const Frame* parent) {
    uint64_t h = static_cast<uint64_t>(f->place) * 1099511628211ull + f->atom;
    for (uint64_t x : {reinterpret_cast<uint64_t>(parent), reinterpret_cast<uint64_t>(f->names), f->count,
                       uint64_t{f->gained}})
      h = hash_mix(h, x);
    for (uint32_t i = 0; i < 2u * f->n_words; ++i) h = hash_mix(h, f->bits[i]);
    return h;
  };
  auto canonical = [&](const Frame* top) {
    std::vector<const Frame*> chain;
    const Frame* f = top;
    while (f && !known.count(f)) chain.push_back(f), f = f->parent;
    const Frame* below = f ? known[f] : nullptr;
    for (size_t i = chain.size(); i-- > 0;) {
      const Frame* g = chain[i];
      uint64_t h = hash(g, below);
      const Frame* found = nullptr;
      auto [lo, hi] = frames.equal_range(h);
      for (auto it = lo; it != hi && !found; ++it) {
        const Frame* o = it->second;
        if (o->place == g->place && o->atom == g->atom && o->parent == below && o->names == g->names &&
            o->count == g->count && o->gained == g->gained && o->n_words == g->n_words &&
            std::memcmp(o->have, g->have, sizeof g->have) == 0 &&
            std::memcmp(o->bits, g->bits, size_t{g->n_words} * 16) == 0)
          found = o;
      }
      if (!found) {
        found = g;
        if (g->parent != below) {
          Frame* c = new (s.allocate(frame_bytes(g->n_words))) Frame;
          copy_frame(*c, *g);
          c->parent = below;
          found = c;
        }
        frames.emplace(h, found);
      }
      known[g] = found;
      below = found;
    }
    return below;
  };
  std::unordered_multimap<uint64_t, size_t> seen;
  Configurations out;
  for (Configuration t : list) {
    t.top = canonical(t.top);
    uint64_t h = reinterpret_cast<uint64_t>(t.top);
    for (uint64_t x : {uint64_t{t.a} << 32 | t.b, uint64_t{t.state} << 32 | t.scan,
                       uint64_t{t.count} << 8 | static_cast<uint64_t>(t.mode)})
      h = hash_mix(h, x);
    auto [lo, hi] = seen.equal_range(h);
    bool twice = false;
    for (auto it = lo; it != hi && !twice; ++it) twice = same_configuration(out[it->second], t);
    if (twice) continue;
    seen.emplace(h, out.size());
    out.push_back(t);
  }
  list = std::move(out);
}

}  // namespace llamay::grammar
