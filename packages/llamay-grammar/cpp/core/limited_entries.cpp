// What a limit of lengths changes: it concerns long tokens alone, so all others are taken from the entry
// without it.
#include <algorithm>

#include "lexeme_step.h"

namespace llamay::grammar {

namespace {

// What a text does to a lexeme, up to its end if that is within.
Scan fate(const EntryKey& key, const Lang& lang, std::string_view text) {
  Spot at{key.state, key.scan, 0};
  for (const char c : text) {
    const uint8_t b = static_cast<uint8_t>(c);
    const Scan r =
        is_json(key.kind) ? step_lexeme<true>(lang, key, at, b) : step_lexeme<false>(lang, key, at, b);
    if (r != Scan::Live) return r;
  }
  return Scan::Live;
}

}  // namespace

EntryPtr Vocabulary::make_limited(const EntryKey& key, const Lang& lang, const Entry& unlimited) const {
  // A token of at most so many characters keeps the limit wherever the automaton is behind it.
  const uint32_t free = key.max > lang.longest_min + 1 ? key.max - lang.longest_min - 1 : 0;
  const auto longer = [&](uint32_t than) {
    return static_cast<uint32_t>(
        std::partition_point(lengths_.begin(), lengths_.end(), [&](uint32_t n) { return n > than; }) -
        lengths_.begin());
  };
  // Reading very many of them takes longer than judging all tokens by groups.
  constexpr uint32_t kMaxRead = 512;
  const uint32_t concerned = longer(free), too_long = longer(key.max);
  if (concerned - too_long > kMaxRead) return make(key, lang);

  auto out = std::make_shared<Entry>(unlimited);
  std::vector<uint32_t> gone;
  for (uint32_t i = 0; i < concerned; ++i) {
    const uint32_t t = by_length_[i];
    const bool inside = out->dense.empty() || (out->dense[t / 32] >> (t % 32) & 1);
    // What is behind a quote does not count, and several characters of an escape are one.
    const bool marked = is_json(key.kind) && marked_[i];
    if (!inside && !marked) continue;
    if ((i < too_long && !marked) || fate(key, lang, bytes(t)) == Scan::Dead) gone.push_back(t);
  }
  std::sort(gone.begin(), gone.end());
  auto left = [&](uint32_t t) { return !std::binary_search(gone.begin(), gone.end(), t); };
  if (out->dense.empty())
    std::erase_if(out->sparse, [&](uint32_t t) { return !left(t); });
  else
    for (const uint32_t t : gone) out->dense[t / 32] &= ~(1u << (t % 32));
  for (Entry::Exit& e : out->exits) {
    const uint32_t* t = e.rest->tokens_at(0);
    if (std::all_of(t, t + e.rest->n_tokens(), left)) continue;
    e.rest = std::make_shared<const Trie>(e.rest->only([&](uint32_t place) { return left(t[place]); }));
  }
  return out;
}

}  // namespace llamay::grammar
