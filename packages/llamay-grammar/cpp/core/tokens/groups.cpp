#include "tokens/groups.h"

#include <algorithm>
#include <unordered_map>

#include "tokens/character_classes.h"

namespace llamay::grammar {

namespace {

uint8_t capped(size_t n) { return static_cast<uint8_t>(std::min<size_t>(n, TokenGroups::kCapped)); }

// Tokens in groups below this size are not distinguished by their first character.
constexpr uint32_t kSplit = 64;

size_t shared(std::string_view a, std::string_view b) {
  size_t n = 0, most = std::min(a.size(), b.size());
  while (n < most && a[n] == b[n]) ++n;
  return n;
}

}  // namespace

uint64_t not_in_string() {
  static const uint64_t classes = [] {
    uint64_t out = uint64_t{1} << kClassBroken;
    for (uint32_t c = 0; c < 128; ++c)
      if (c < 32 || c == '"' || c == '\\') out |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
    return out;
  }();
  return classes;
}

void TokenTexts::add(uint32_t token, std::string_view text, bool begins_group) {
  common.push_back(begins_group ? 0 : capped(shared(this->text(size() - 1), text)));
  tokens.push_back(token);
  length.push_back(capped(std::max(count_code_points(text), 1u)));  // pieces of a character are not nothing
  bytes.append(text);
  at.push_back(static_cast<uint32_t>(bytes.size()));
}

void TokenGroups::build(const Trie& trie, uint32_t words) {
  words_ = words;
  // The group of each token, in the order of the trie, which is the order of the texts.
  const uint32_t n = trie.n_tokens() - trie.n_at(0);
  struct Token {
    uint64_t lead, rest;
    uint32_t group, at, size;
  };
  std::vector<Token> tokens;
  tokens.reserve(n);
  std::string all_texts, path;
  std::unordered_map<uint64_t, uint32_t> count;
  constexpr uint64_t kBroken = uint64_t{1} << kClassBroken;
  struct Step {
    uint32_t end;
    uint32_t n, length;   // bytes of the last character so far, and all of them
    bool first;           // it is the first character
    uint64_t lead, rest;  // of the characters before it
  };
  std::vector<Step> steps{{trie.size(), 0, 0, true, 0, 0}};
  for (uint32_t node = 1; node < trie.size(); ++node) {
    while (node >= steps.back().end) steps.pop_back(), path.pop_back();
    Step s = steps.back();
    s.end = trie.end(node);
    const uint8_t byte = trie.byte(node);
    auto last = [&]() -> uint64_t {
      return s.n == 0 ? 0 : character_classes(path.data() + path.size() - s.n, s.n, s.length);
    };
    if (s.n > 0 && s.n < s.length && (byte & 0xC0) == 0x80) {
      ++s.n;
    } else {
      if (s.n > 0) (s.first ? s.lead : s.rest) |= last(), s.first = false;
      s.n = 1, s.length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    }
    path.push_back(static_cast<char>(byte));
    // A broken character makes the whole text broken, whatever the class of the character.
    if (trie.at(node) & kBroken) s.rest |= kBroken;
    steps.push_back(s);
    const uint32_t here = trie.n_at(node);
    if (here == 0) continue;
    uint64_t lead = s.lead, rest = s.rest;
    if (!(rest & kBroken)) {
      // A character that is cut off may be of one of several classes; then the text must be read.
      const uint64_t classes = last();
      if (classes & (classes - 1))
        rest |= kBroken;
      else
        (s.first ? lead : rest) |= classes;
    }
    count[lead | rest] += here;
    for (uint32_t k = 0; k < here; ++k)
      tokens.push_back(
          {lead, rest, 0, static_cast<uint32_t>(all_texts.size()), static_cast<uint32_t>(path.size())});
    all_texts.append(path);
  }
  struct Hash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& x) const {
      return (x.first * 0x9E3779B97F4A7C15ull ^ x.second) * 0xD6E8FEB86659FD93ull >> 20;
    }
  };
  std::unordered_map<std::pair<uint64_t, uint64_t>, uint32_t, Hash> known;
  for (Token& t : tokens) {
    const uint64_t classes = t.lead | t.rest;
    if (count[classes] < kSplit) t.lead = t.rest = classes;
    auto [it, fresh] = known.try_emplace({t.lead, t.rest}, static_cast<uint32_t>(groups_.size()));
    if (fresh) {
      groups_.emplace_back();
      groups_.back().classes = classes, groups_.back().lead = t.lead, groups_.back().rest = t.rest;
      groups_.back().plain = (classes & not_in_string()) == 0;
    }
    t.group = it->second;
    ++groups_[t.group].last;
  }
  uint32_t next = 0;
  for (Group& g : groups_) {
    const uint32_t count = g.last;
    g.first = g.last = next, next += count;
  }
  std::vector<uint32_t> order(n);
  for (uint32_t k = 0; k < n; ++k) order[groups_[tokens[k].group].last++] = k;
  texts_.bytes.reserve(all_texts.size() + all_texts.size() / 8);
  const uint32_t* ids = trie.tokens_at(0) + trie.n_at(0);
  for (uint32_t k : order)
    texts_.add(ids[k], std::string_view(all_texts).substr(tokens[k].at, tokens[k].size),
               texts_.size() == groups_[tokens[k].group].first);

  shortest_first_.resize(n), lengths_.resize(n);
  bits_at_.assign(groups_.size(), kNone);
  all_.assign(words, 0), plain_.assign(words, 0), short_.assign(size_t{kShort + 1} * words, 0);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    Group& x = groups_[g];
    uint32_t start[TokenGroups::kCapped + 2] = {};
    for (uint32_t k = x.first; k < x.last; ++k) ++start[texts_.length[k] + 1];
    x.shortest = kCapped;
    for (uint32_t length = 0; length <= kCapped; ++length) {
      if (start[length + 1] > 0)
        x.shortest = std::min(x.shortest, capped(length)), x.longest = capped(length);
      start[length + 1] += start[length];
    }
    for (uint32_t k = x.first; k < x.last; ++k) {
      const uint32_t to = x.first + start[texts_.length[k]]++;
      shortest_first_[to] = texts_.tokens[k], lengths_[to] = texts_.length[k];
    }
    // Above this, a pass over the words of a mask takes less time than one over the tokens.
    uint32_t* bits = nullptr;
    if (x.last - x.first > words / 4) {
      bits_at_[g] = static_cast<uint32_t>(bits_.size() / words);
      bits_.resize(bits_.size() + words, 0);
      bits = bits_.data() + size_t{bits_at_[g]} * words;
    }
    for (uint32_t k = x.first; k < x.last; ++k) {
      const uint32_t t = texts_.tokens[k], bit = 1u << (t % 32);
      if (bits) bits[t / 32] |= bit;
      if (x.plain) plain_[t / 32] |= bit;
      if (x.plain && texts_.length[k] <= kShort) short_[size_t{texts_.length[k]} * words + t / 32] |= bit;
      all_[t / 32] |= bit;
    }
  }
  for (size_t i = words; i < short_.size(); ++i) short_[i] |= short_[i - words];
  split_json();
}

void TokenGroups::split_json() {
  // In the order of their texts over all groups.
  std::vector<uint32_t> irregular;
  for (const Group& g : groups_)
    if (!g.plain)
      for (uint32_t k = g.first; k < g.last; ++k) irregular.push_back(k);
  std::sort(irregular.begin(), irregular.end(), [&](uint32_t a, uint32_t b) {
    const int way = texts_.text(a).compare(texts_.text(b));
    return way != 0 ? way < 0 : texts_.tokens[a] < texts_.tokens[b];
  });
  for (uint32_t k : irregular) {
    const std::string_view text = texts_.text(k);
    size_t first = 0;
    while (first < text.size() && text[first] != '"' && text[first] != '\\' &&
           static_cast<uint8_t>(text[first]) >= 32)
      ++first;
    if (const uint8_t b = static_cast<uint8_t>(text[0]); b >= 0x80 && (b < 0xC2 || b > 0xF4)) continue;
    if (first == text.size() || text[first] == '\\') {
      odd_.add(texts_.tokens[k], text, odd_.size() == 0);
    } else if (text[first] == '"') {
      closing_.add(texts_.tokens[k], text, closing_.size() == 0);
      quotes_.push_back(static_cast<uint32_t>(first));
    }
  }
  std::vector<std::pair<std::string_view, uint32_t>> all;
  for (uint32_t k = 0; k < closing_.size(); ++k) all.emplace_back(closing_.text(k).substr(quotes_[k] + 1), k);
  auto made = std::make_shared<Trie>();
  made->build(std::move(all));
  closing_by_rest_.assign(made->tokens_at(0), made->tokens_at(0) + made->n_tokens());
  made->rename([&](uint32_t k) { return closing_.tokens[k]; });
  rests_ = std::move(made);
}

}  // namespace llamay::grammar
