#include "tokenizer/special.hpp"

#include <algorithm>
#include <map>

namespace llamay::tokenizer {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct Occurrence {
  uint32_t at;
  uint32_t length;
  uint32_t id;
};

/// Whether `a` is to be tried after `b`: because it is shorter, has the higher id, or stands further right.
bool later(const Occurrence& a, const Occurrence& b) {
  return a.length != b.length ? a.length < b.length : a.id != b.id ? a.id > b.id : a.at > b.at;
}

bool inside(std::span<const Span> spans, uint32_t begin, uint32_t end) {
  const auto after = std::upper_bound(spans.begin(), spans.end(), begin,
                                      [](uint32_t v, const Span& s) { return v < s.begin; });
  return after != spans.begin() && end <= std::prev(after)->end;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  std::vector<Trie::Key> keys;
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (!(vocabulary.attributes(id) & (kControl | kUnknown | kUserDefined)) || text.empty()) continue;
    keys.push_back({text, id});
    starts_[static_cast<uint8_t>(text[0])] = true;
  }
  trie_ = Trie(std::move(keys));
}

uint32_t SpecialTokens::longest_match(std::string_view text, uint32_t at, uint32_t end,
                                      std::span<const Span> trusted) const {
  uint32_t best = kNoToken, node = 0;
  if (!starts_[static_cast<uint8_t>(text[at])]) return best;
  for (uint32_t i = at; i < end; ++i) {
    node = trie_.step(node, static_cast<uint8_t>(text[i]));
    if (node == Trie::kNone) break;
    const uint32_t id = trie_.value(node);
    if (id == Trie::kNone) continue;
    const bool needs_trust = vocabulary_.attributes(id) & (kControl | kUnknown);
    if (!needs_trust || inside(trusted, at, i + 1)) best = id;
  }
  return best;
}

std::vector<Fragment> SpecialTokens::partition(std::string_view text, std::span<const Span> trusted) const {
  const auto size = static_cast<uint32_t>(text.size());
  // The longest token at each place is tried first, and a shorter one at that place only when something else
  // has taken the end of it: so a run of newlines costs no more than its length, however many tokens are runs
  // of them.
  std::vector<Occurrence> queue;
  const auto find = [&](uint32_t at, uint32_t end) {
    const uint32_t id = longest_match(text, at, end, trusted);
    if (id == kNoToken) return false;
    queue.push_back({at, static_cast<uint32_t>(vocabulary_.text(id).size()), id});
    return true;
  };
  for (uint32_t at = 0; at < size; ++at) find(at, size);
  if (queue.empty()) return {{{0, size}, kNoToken}};
  std::make_heap(queue.begin(), queue.end(), later);

  std::map<uint32_t, uint32_t> open{{0, size}};  // text that no token has taken yet: begin -> end
  std::vector<Fragment> fragments;
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Occurrence o = queue.back();
    queue.pop_back();
    auto stretch = open.upper_bound(o.at);
    if (stretch == open.begin()) continue;
    --stretch;
    const auto [begin, end] = *stretch;
    if (o.at >= end) continue;
    if (o.at + o.length > end) {
      if (find(o.at, end)) std::push_heap(queue.begin(), queue.end(), later);
      continue;
    }
    uint32_t left_end = o.at, right_begin = o.at + o.length;
    const uint8_t attributes = vocabulary_.attributes(o.id);
    if (attributes & kStripLeft)
      while (left_end > begin && is_space(text[left_end - 1])) --left_end;
    if (attributes & kStripRight)
      while (right_begin < end && is_space(text[right_begin])) ++right_begin;
    open.erase(stretch);
    if (begin < left_end) open.emplace(begin, left_end);
    if (right_begin < end) open.emplace(right_begin, end);
    fragments.push_back({{o.at, o.at + o.length}, o.id});
  }
  for (const auto& [begin, end] : open) fragments.push_back({{begin, end}, kNoToken});
  std::sort(fragments.begin(), fragments.end(),
            [](const Fragment& a, const Fragment& b) { return a.span.begin < b.span.begin; });
  return fragments;
}

}  // namespace llamay::tokenizer
