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
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.attributes(id) & (kControl | kUnknown | kUserDefined) && !vocabulary.text(id).empty())
      ids.push_back(id);
  std::sort(ids.begin(), ids.end(),
            [&](uint32_t a, uint32_t b) { return vocabulary.text(a) < vocabulary.text(b); });
  for (const uint32_t id : ids) starts_[static_cast<uint8_t>(vocabulary.text(id)[0])] = true;
  build(ids);
}

// With a list of tasks, not by recursion: a token may be 64 KiB long, and so the trie that deep.
void SpecialTokens::build(std::span<const uint32_t> sorted) {
  struct Task {
    size_t begin, end, depth;
    uint32_t node;
  };
  nodes_.push_back({});
  std::vector<Task> tasks{{0, sorted.size(), 0, 0}};
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    size_t begin = task.begin;
    const auto text = [&](size_t i) { return vocabulary_.text(sorted[i]); };
    if (begin < task.end && text(begin).size() == task.depth) nodes_[task.node].id = sorted[begin++];
    nodes_[task.node].first_edge = static_cast<uint32_t>(edges_.size());
    for (size_t i = begin; i < task.end;) {
      const char byte = text(i)[task.depth];
      size_t end = i;
      while (end < task.end && text(end)[task.depth] == byte) ++end;
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({});
      edges_.push_back({static_cast<uint8_t>(byte), node});
      tasks.push_back({i, end, task.depth + 1, node});
      i = end;
    }
    nodes_[task.node].n_edges = static_cast<uint32_t>(edges_.size()) - nodes_[task.node].first_edge;
  }
}

const SpecialTokens::Edge* SpecialTokens::follow(const Node& node, uint8_t byte) const {
  const Edge* begin = edges_.data() + node.first_edge;
  const Edge* end = begin + node.n_edges;
  const Edge* at = std::lower_bound(begin, end, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return at != end && at->byte == byte ? at : nullptr;
}

uint32_t SpecialTokens::longest_match(std::string_view text, uint32_t at, uint32_t end,
                                      std::span<const Span> trusted) const {
  uint32_t best = kNoToken, node = 0;
  if (!starts_[static_cast<uint8_t>(text[at])]) return best;
  for (uint32_t i = at; i < end; ++i) {
    const Edge* edge = follow(nodes_[node], static_cast<uint8_t>(text[i]));
    if (!edge) break;
    node = edge->node;
    const uint32_t id = nodes_[node].id;
    if (id == kNoToken) continue;
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
