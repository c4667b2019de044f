#include "tokens/trie.h"

#include <algorithm>
#include <array>

namespace llamay::grammar {

uint32_t byte_class(uint8_t b) {
  static const std::array<uint8_t, 128> table = [] {
    std::array<uint8_t, 128> t{};
    uint8_t next = 8;
    for (int c = 0; c < 128; ++c) {
      if (c >= '0' && c <= '9')
        t[c] = 0;
      else if (c >= 'a' && c <= 'f')
        t[c] = 1;
      else if (c >= 'g' && c <= 'z')
        t[c] = 2;
      else if (c >= 'A' && c <= 'F')
        t[c] = 3;
      else if (c >= 'G' && c <= 'Z')
        t[c] = 4;
      else if (c == '\n')
        t[c] = 5;
      else if (c == '\t' || c == '\r')
        t[c] = 6;
      else if (c < 32 || c == 127)
        t[c] = 7;
      else
        t[c] = next++;  // space and 32 punctuation characters
    }
    return t;
  }();
  return table[b & 127];
}

namespace {

// Whether `b` may follow `lead` where that is the first byte of a character; true after any other byte.
bool fits(uint8_t lead, uint8_t b) {
  switch (lead) {
    case 0xE0:
      return b >= 0xA0;
    case 0xED:
      return b < 0xA0;
    case 0xF0:
      return b >= 0x90;
    case 0xF4:
      return b < 0x90;
    default:
      return true;
  }
}

}  // namespace

void Trie::build(std::vector<std::pair<std::string_view, uint32_t>> tokens) {
  if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());
  auto shared = [](std::string_view a, std::string_view b) {
    size_t n = 0, most = std::min(a.size(), b.size());
    while (n < most && a[n] == b[n]) ++n;
    return n;
  };
  size_t n_nodes = 1;
  for (size_t i = 0; i < tokens.size(); ++i)
    n_nodes += tokens[i].first.size() - (i > 0 ? shared(tokens[i].first, tokens[i - 1].first) : 0);
  auto shape = std::make_shared<Shape>();
  std::vector<Node>& nodes = shape->nodes;
  nodes.reserve(n_nodes);
  nodes.emplace_back();
  auto size = [&] { return static_cast<uint32_t>(nodes.size()); };
  first_.assign(1, 0);
  first_.reserve(n_nodes + 1);
  tokens_.clear();
  tokens_.reserve(tokens.size());
  thinned_ = false;
  std::vector<uint32_t> path{0};             // nodes on the path to the previous token
  std::vector<int> need{0};                  // continuation bytes still missing after each of them
  std::vector<uint32_t> lead{kClassBroken};  // the class of the character that they are inside of
  std::string_view last;
  for (auto& [text, id] : tokens) {
    const size_t common = shared(text, last);
    while (path.size() > common + 1) {
      nodes[path.back()].end = size();
      path.pop_back(), need.pop_back(), lead.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      uint8_t b = static_cast<uint8_t>(text[i]);
      int before = need.back(), after;
      uint32_t cls = kClassBroken;
      if (b < 0x80) {
        after = 0;
        if (before == 0) cls = byte_class(b);
      } else if (b < 0xC0) {
        after = before > 0 ? before - 1 : 0;
        if (before > 0 && (i == 0 || fits(static_cast<uint8_t>(text[i - 1]), b))) cls = lead.back();
      } else {
        after = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
        if (before == 0)
          for (uint32_t k = 0; k < std::size(kLeadClasses); ++k)
            if (b >= kLeadClasses[k].first && b <= kLeadClasses[k].last) cls = kFirstLeadClass + k;
      }
      lead.push_back(cls);
      path.push_back(size());
      need.push_back(after);
      Node x;
      x.byte = b, x.here = uint64_t{1} << cls;
      nodes.push_back(x);
      first_.push_back(n_tokens());
    }
    tokens_.push_back(id);
    last = text;
  }
  for (uint32_t n : path) nodes[n].end = size();
  first_.push_back(n_tokens());
  shape->kid_bytes.assign(size() - 1, 0), shape->kid_nodes.assign(size() - 1, 0);
  uint32_t at = 0;
  for (uint32_t n = 0; n < size(); ++n) {
    nodes[n].kids = at;
    for (uint32_t c = n + 1; c < nodes[n].end; c = nodes[c].end)
      shape->kid_bytes[at] = nodes[c].byte, shape->kid_nodes[at++] = c;
    nodes[n].n_kids = static_cast<uint16_t>(at - nodes[n].kids);
  }
  for (uint32_t n = size(); n-- > 0;)
    for (uint32_t c = n + 1; c < nodes[n].end; c = nodes[c].end) {
      nodes[n].below |= nodes[c].below | nodes[c].here;
      nodes[n].height = std::max(nodes[n].height, nodes[c].height + 1);
    }
  shape->kid_from.resize(shape->kid_nodes.size()), shape->kid_heights.resize(shape->kid_nodes.size());
  for (size_t k = 0; k < shape->kid_nodes.size(); ++k) {
    const Node& kid = nodes[shape->kid_nodes[k]];
    shape->kid_from[k] = kid.below | kid.here;
    shape->kid_heights[k] = static_cast<uint16_t>(std::min<uint32_t>(kid.height, 0xFFFF));
  }
  shape_ = std::move(shape);
}

}  // namespace llamay::grammar
