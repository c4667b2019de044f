// Entries with limits of lengths, made from the entry without: a maximum concerns long tokens alone, a
// minimum only the ends of a lexeme.
#include <algorithm>

#include "tokens/character_classes.h"
#include "vocabulary/lexeme_step.h"

namespace llamay::grammar {

namespace {

// Reads a text as a part of a lexeme, up to the end of the lexeme if the text contains the end. `at` becomes
// the last position.
Scan fate(const EntryKey& key, const Language& language, std::string_view text, Spot& at) {
  at = {key.state, key.scan, 0};
  for (const char c : text) {
    const uint8_t b = static_cast<uint8_t>(c);
    const Scan r = is_json(key.kind) ? step_lexeme<true>(language, key, at, b)
                                     : step_lexeme<false>(language, key, at, b);
    if (r != Scan::Live) return r;
  }
  return Scan::Live;
}

// Removes the tokens for which `keep` is false from the exits.
template <class Keep>
void keep_exits(Entry& entry, Keep keep) {
  for (Entry::Exit& e : entry.exits) {
    const uint32_t* t = e.rest->tokens_at(0);
    if (!std::all_of(t, t + e.rest->n_tokens(), keep))
      e.rest = std::make_shared<const Trie>(e.rest->only([&](uint32_t place) { return keep(t[place]); }));
  }
  std::erase_if(entry.exits, [](const Entry::Exit& e) { return e.rest->n_tokens() == 0; });
}

}  // namespace

EntryPtr Vocabulary::make_limited(const EntryKey& key, const Language& language,
                                  const Entry& unlimited) const {
  // A token of at most this number of characters respects the limit in whichever state it ends.
  const uint32_t free = key.max > language.longest_min ? key.max - language.longest_min : 0;
  const auto longer = [&](uint32_t than) {
    return static_cast<uint32_t>(
        std::partition_point(lengths_.begin(), lengths_.end(), [&](uint32_t n) { return n > than; }) -
        lengths_.begin());
  };
  // If very many tokens had to be read, judging all tokens by groups takes less time.
  constexpr uint32_t kMaxRead = 512;
  const uint32_t concerned = longer(free), too_long = longer(key.max);
  if (concerned - too_long > kMaxRead) return make(key, language);

  auto out = std::make_shared<Entry>(unlimited);
  Spot at;
  auto leaves = [&](uint32_t t) { return fate(key, language, bytes(t), at) == Scan::Dead; };
  std::erase_if(out->sparse, [&](uint32_t t) { return count_code_points(bytes(t)) > free && leaves(t); });
  std::vector<uint32_t> gone;  // the removed tokens among those that may end the lexeme
  for (uint32_t i = 0; i < concerned; ++i) {
    const uint32_t t = by_length_[i];
    // Characters behind a quote do not count, and an escape of several characters counts as one.
    const bool marked = is_json(key.kind) && marked_[i];
    const bool inside = !out->dense.empty() && (out->dense[t / 32] >> (t % 32) & 1);
    if ((!inside && !marked) || ((i >= too_long || marked) && !leaves(t))) continue;
    if (inside) out->dense[t / 32] &= ~(1u << (t % 32));
    if (marked) gone.push_back(t);
  }
  std::sort(gone.begin(), gone.end());
  keep_exits(*out, [&](uint32_t t) { return !std::binary_search(gone.begin(), gone.end(), t); });
  return out;
}

EntryPtr Vocabulary::make_longer(const EntryKey& key, const Language& language,
                                 const Entry& any_length) const {
  auto out = std::make_shared<Entry>(any_length);
  if (lengths_.empty() || key.min > lengths_[0]) {
    out->exits.clear();
    return out;
  }
  keep_exits(*out, [&](uint32_t t) {
    const std::string_view text = bytes(t), before = text.substr(0, text.find('"'));
    if (before.find('\\') == std::string_view::npos) return count_code_points(before) >= key.min;
    Spot at;
    return fate(key, language, text, at) == Scan::Close && at.count >= key.min;
  });
  return out;
}

}  // namespace llamay::grammar
