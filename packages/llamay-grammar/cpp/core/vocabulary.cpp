#include "vocabulary.h"

#include <algorithm>

#include "machine.h"

namespace llamay::grammar {

size_t Entry::memory() const {
  size_t n = sizeof(Entry) + dense.size() * 4 + sparse.size() * 4 + inside.size() * 8 + ends.size() * 12;
  for (auto& e : exits) n += sizeof(Exit) + e.rest.memory();
  return n;
}

Vocabulary::Vocabulary(std::string bytes, std::vector<uint64_t> offsets, const std::vector<uint32_t>& special,
                       std::vector<uint32_t> end_tokens)
    : bytes_(std::move(bytes)), offsets_(std::move(offsets)), end_tokens_(std::move(end_tokens)) {
  special_.assign(size(), false);
  for (uint32_t t : special) special_[t] = true;
  for (uint32_t t : end_tokens_) special_[t] = true;
  std::vector<std::pair<std::string_view, uint32_t>> tokens;
  tokens.reserve(size());
  for (uint32_t t = 0; t < size(); ++t) {
    auto b = this->bytes(t);
    if (special_[t] || b.empty()) continue;
    tokens.emplace_back(b, t);
    longest_ = std::max(longest_, static_cast<uint32_t>(b.size()));
  }
  trie_.build(std::move(tokens));
  // Every grammar has free strings: what they need is made now, so that no document waits for it.
  const Lang& any = *lang_any();
  entry(Lexeme::JsonString, any, 0, 0, 0, kInf, 0);
  for (uint32_t n = 1; n < trie_.size(); ++n)
    if (trie_.byte(n) == '"' && trie_.end(n) - n >= 24) entry(Lexeme::JsonString, any, 0, 0, 0, kInf, n);
}

namespace {

// Which classes of bytes leave the state as it is. Tokens made of them alone need not be walked.
uint64_t loop_classes(const Lang& l, uint32_t s, bool json) {
  if (l.trie) return 0;
  uint64_t out = 0, bad = 0;
  for (uint32_t c = 0; c < 128; ++c) {
    bool stays = l.next(s, c) == s && !(json && (c < 32 || c == '"' || c == '\\'));
    (stays ? out : bad) |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  }
  out &= ~bad;
  for (uint32_t k = 0; k < std::size(kLeadClasses); ++k) {
    bool stays = true;
    for (size_t i = 0; i < l.range_start.size() && stays; ++i) {
      uint32_t lo = l.range_start[i],
               hi = i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint;
      if (hi < kLeadClasses[k].lo || lo > kLeadClasses[k].hi) continue;
      stays = l.table[size_t{s} * l.n_classes + l.range_class[i]] == s;
    }
    if (stays) out |= uint64_t{1} << (kFirstLeadClass + k);
  }
  return out;
}

class Maker {
 public:
  Maker(const Vocabulary& v, const Lang& l, const EntryKey& k, bool measured)
      : v_(v), l_(l), k_(k), trie_(v.trie()), measured_(measured) {
    free_ = k.max == kInf;
    loops_.assign(l.n_states(), kUnknown);
  }

  void run(Entry& out) {
    Spot s{k_.state, k_.scan, 0};
    descend(k_.node, s, depth_of(k_.node));
    std::sort(exits_.begin(), exits_.end(), [](auto& a, auto& b) { return a.label < b.label; });
    for (size_t i = 0; i < exits_.size();) {
      size_t j = i;
      std::vector<std::pair<std::string_view, uint32_t>> rest;
      for (; j < exits_.size() && exits_[j].label == exits_[i].label; ++j)
        rest.emplace_back(v_.bytes(exits_[j].token).substr(exits_[j].offset), exits_[j].token);
      Entry::Exit e;
      e.label = exits_[i].label;
      e.rest.build(std::move(rest));
      out.exits.push_back(std::move(e));
      i = j;
    }
    if (measured_) {
      for (auto& e : exits_) out.ends.push_back({e.token, e.length, e.offset});
      std::sort(inside_.begin(), inside_.end(), [](auto& a, auto& b) { return a.length < b.length; });
      out.inside = inside_;
    }
    if (inside_.size() > v_.size() / 48) {
      out.dense.assign(v_.words(), 0);
      for (auto& m : inside_) out.dense[m.token / 32] |= 1u << (m.token % 32);
    } else {
      for (auto& m : inside_) out.sparse.push_back(m.token);
    }
  }

 private:
  static constexpr uint64_t kUnknown = uint64_t{1} << 61;  // no class has this number
  struct Spot {
    uint32_t state, scan, count;
  };
  struct Exit {
    uint32_t label, token, length, offset;
  };
  const Vocabulary& v_;
  const Lang& l_;
  const EntryKey& k_;
  const Trie& trie_;
  bool measured_, free_ = false;
  std::vector<uint64_t> loops_;
  std::vector<Entry::Measured> inside_;
  std::vector<Exit> exits_;

  uint32_t depth_of(uint32_t node) const {
    uint32_t n = 0, depth = 0;
    while (n != node) {
      for (uint32_t c = n + 1; c < trie_.end(n); c = trie_.end(c))
        if (node < trie_.end(c)) {
          n = c;
          break;
        }
      ++depth;
    }
    return depth;
  }

  uint64_t loop(uint32_t s) {
    if (loops_[s] == kUnknown) loops_[s] = loop_classes(l_, s, k_.kind == Lexeme::JsonString);
    return loops_[s];
  }

  void leave(uint32_t node, uint32_t label, uint32_t count, uint32_t depth, bool strictly) {
    const uint32_t* t = trie_.tokens_at(node) + (strictly ? trie_.n_at(node) : 0);
    uint32_t n = trie_.n_below(node) - (strictly ? trie_.n_at(node) : 0);
    for (uint32_t i = 0; i < n; ++i) exits_.push_back({label, t[i], count, depth});
  }

  void descend(uint32_t node, Spot at, uint32_t depth) {
    const uint32_t end = trie_.end(node);
    const uint64_t loops = at.scan == 0 && free_ ? loop(at.state) : 0;
    for (uint32_t c = node + 1; c < end; c = trie_.end(c)) {
      if (((trie_.here(c) | trie_.below(c)) & ~loops) == 0) {
        const uint32_t* t = trie_.tokens_at(c);
        for (uint32_t i = 0, n = trie_.n_below(c); i < n; ++i)
          inside_.push_back({t[i], measured_ ? length(t[i], depth) + at.count : 0});
        continue;
      }
      Spot to = at;
      Scan r = k_.kind == Lexeme::JsonString ? step<true>(to, trie_.byte(c)) : step<false>(to, trie_.byte(c));
      if (r == Scan::Dead) continue;
      if (r == Scan::Close) {
        uint32_t label = l_.label(at.state);
        if (label != kDead && at.count >= k_.min) leave(c, label, at.count, depth + 1, false);
        continue;
      }
      const uint32_t* t = trie_.tokens_at(c);
      for (uint32_t i = 0, n = trie_.n_at(c); i < n; ++i)
        inside_.push_back({t[i], to.count + (to.scan != 0)});
      // A lexeme without a closing character may end after each of its bytes.
      if (k_.kind == Lexeme::Plain && to.scan == 0 && to.count >= k_.min)
        if (uint32_t label = l_.label(to.state); label != kDead) leave(c, label, to.count, depth + 1, true);
      descend(c, to, depth + 1);
    }
  }

  // Code points of the part of the token that is below the node, where there are no escapes. One that the
  // token cuts off counts: it needs the room.
  uint32_t length(uint32_t token, uint32_t depth) const {
    uint32_t n = 0;
    for (char ch : v_.bytes(token).substr(depth)) n += (static_cast<uint8_t>(ch) & 0xC0) != 0x80;
    return n;
  }

  template <bool kJson>
  Scan step(Spot& p, uint8_t b) const {
    return scan_byte<kJson>(
        p.scan, b,
        [&](uint32_t cp) {
          p.state = l_.next(p.state, cp);
          return p.state != kDead && length_open(l_, p.state, ++p.count, k_.min, k_.max);
        },
        [&](uint32_t lo, uint32_t hi) {
          return l_.any_next(p.state, lo, hi,
                             [&](uint32_t n) { return length_open(l_, n, p.count + 1, k_.min, k_.max); });
        });
  }
};

}  // namespace

EntryPtr Vocabulary::derive(const Entry& base, uint32_t min, uint32_t max) const {
  auto out = std::make_shared<Entry>();
  auto fits = std::upper_bound(base.inside.begin(), base.inside.end(), max,
                               [](uint32_t m, const Entry::Measured& x) { return m < x.length; });
  size_t n = static_cast<size_t>(fits - base.inside.begin());
  if (n > size() / 48) {
    if (!base.dense.empty() && n > base.inside.size() / 2) {
      out->dense = base.dense;
      for (auto it = fits; it != base.inside.end(); ++it)
        out->dense[it->token / 32] &= ~(1u << (it->token % 32));
    } else {
      out->dense.assign(words(), 0);
      for (size_t i = 0; i < n; ++i)
        out->dense[base.inside[i].token / 32] |= 1u << (base.inside[i].token % 32);
    }
  } else {
    for (size_t i = 0; i < n; ++i) out->sparse.push_back(base.inside[i].token);
  }
  std::vector<std::pair<std::string_view, uint32_t>> rest;
  for (auto& e : base.ends)
    if (e.length >= min && e.length <= max) rest.emplace_back(bytes(e.token).substr(e.offset), e.token);
  if (!rest.empty()) {
    out->exits.emplace_back();
    out->exits[0].rest.build(std::move(rest));
  }
  return out;
}

EntryPtr Vocabulary::make(const EntryKey& key, const Lang& lang) const {
  // One looping state: everything but the length is the same for every window.
  const bool uniform =
      lang.n_states() == 1 && !lang.trie && lang.infinite(0) && key.scan == 0 && key.kind != Lexeme::Plain;
  if (uniform && (key.min > 0 || key.max != kInf))
    return derive(*entry(key.kind, lang, key.state, 0, 0, kInf, key.node), key.min, key.max);
  auto out = std::make_shared<Entry>();
  Maker(*this, lang, key, uniform).run(*out);
  return out;
}

EntryPtr Vocabulary::entry(Lexeme kind, const Lang& lang, uint32_t state, uint32_t scan, uint32_t min,
                           uint32_t max, uint32_t node) const {
  EntryKey key{lang.uid, state, scan, min, max, node, kind};
  {
    std::shared_lock<std::shared_mutex> hold(lock_);
    if (auto it = cache_.find(key); it != cache_.end()) return it->second;
  }
  EntryPtr made = make(key, lang);
  std::unique_lock<std::shared_mutex> hold(lock_);
  if (cache_bytes_ > cache_limit) cache_.clear(), cache_bytes_ = 0;
  auto [it, fresh] = cache_.emplace(key, made);
  if (fresh) cache_bytes_ += made->memory() + sizeof(EntryKey) + 64;
  return it->second;
}

}  // namespace llamay::grammar
