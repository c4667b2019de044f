#include "vocabulary/vocabulary.h"

#include <algorithm>

#include "automata/dfa.h"
#include "tokens/character_classes.h"

namespace llamay::grammar {

size_t Entry::memory() const {
  size_t n = sizeof(Entry) + dense.size() * 4 + sparse.size() * 4;
  for (auto& e : exits) n += sizeof(Exit) + (e.rest.use_count() == 1 ? e.rest->memory() : 0);
  return n;
}

void Entry::add_exits(std::vector<End> ends) {
  std::stable_sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.label < b.label; });
  for (size_t i = 0; i < ends.size();) {
    std::vector<std::pair<std::string_view, uint32_t>> rest;
    const uint32_t label = ends[i].label;
    for (; i < ends.size() && ends[i].label == label; ++i) rest.emplace_back(ends[i].rest, ends[i].token);
    auto made = std::make_shared<Trie>();
    made->build(std::move(rest));
    exits.push_back({label, std::move(made)});
  }
}

namespace {

// The most characters of one number, or of a part of one, that a text has side by side.
uint32_t longest_in(std::string_view text) {
  uint32_t most = 0, run = 0;
  bool point = false, exponent = false;
  char before = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';
    const bool sign = c == '-' || c == '+';
    const bool goes_on = digit || (c == '.' && !point && !exponent) || (e && !exponent) ||
                         (sign && (before == 'e' || before == 'E'));
    if (!goes_on) run = 0, point = exponent = false;
    if (goes_on || digit || sign || c == '.' || e) ++run;
    point = point || c == '.', exponent = exponent || e;
    before = c;
    most = std::max(most, run);
  }
  return most;
}

}  // namespace

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
    longest_number_ = std::max(longest_number_, longest_in(b));
  }
  trie_.build(std::move(tokens));
  split_whitespace();
  groups_.build(trie_, words());
  sort_by_length();
  // Nearly every grammar has unconstrained strings. Their entries are computed in advance, so that no
  // document waits for them.
  const Language& any = *every_text();
  entry(Lexeme::JsonString, any, 0, 0, 0, kInf, 0, TrieId::All);
  entry(Lexeme::JsonString, any, 0, 0, 1, kInf, 0, TrieId::All);
  for (uint32_t left = 0; left < kShortest; ++left)
    entry(Lexeme::JsonString, any, 0, 0, 0, left, 0, TrieId::All);
  for (TrieId which : {TrieId::All, TrieId::Symbols}) {
    const Trie& t = trie(which);
    for (uint32_t n = 1; n < t.size(); ++n)
      if (t.byte(n) == '"' && t.end(n) - n >= kSmallSubtree)
        entry(Lexeme::JsonString, any, 0, 0, 0, kInf, n, which);
  }
}

void Vocabulary::sort_by_length() {
  by_length_.assign(trie_.tokens_at(0), trie_.tokens_at(0) + trie_.n_tokens());
  std::vector<uint32_t> of(size(), 0);
  for (const uint32_t t : by_length_) of[t] = count_code_points(bytes(t));
  std::stable_sort(by_length_.begin(), by_length_.end(),
                   [&](uint32_t x, uint32_t y) { return of[x] > of[y]; });
  for (const uint32_t t : by_length_) {
    lengths_.push_back(of[t]);
    marked_.push_back(bytes(t).find_first_of("\"\\") != std::string_view::npos);
  }
}

namespace {

constexpr std::string_view kBlank = " \n\t\r";

// Whether a symbol of JSON can begin with this text.
bool begins_symbol(std::string_view t) {
  switch (t[0]) {
    case 't':
      return t.substr(0, 4) == std::string_view("true").substr(0, t.size());
    case 'f':
      return t.substr(0, 5) == std::string_view("false").substr(0, t.size());
    case 'n':
      return t.substr(0, 4) == std::string_view("null").substr(0, t.size());
    default:
      return std::string_view("\"{}[]:,-0123456789").find(t[0]) != std::string_view::npos;
  }
}

}  // namespace

void Vocabulary::split_whitespace() {
  std::vector<std::pair<std::string_view, uint32_t>> symbols, indented;
  for (uint32_t i = 0; i < trie_.n_tokens(); ++i) {
    const uint32_t t = trie_.tokens_at(0)[i];
    std::string_view b = bytes(t);
    const size_t lead = std::min(b.find_first_not_of(kBlank), b.size());
    if (lead == b.size()) {
      blanks_.push_back(t);
    } else if (!begins_symbol(b.substr(lead))) {
      continue;
    } else if (lead > kMaxLead) {
      indented.emplace_back(b, t);
    } else {
      symbols.emplace_back(b.substr(lead), t);
      longest_lead_ = std::max(longest_lead_, static_cast<uint32_t>(lead));
    }
  }
  std::stable_sort(blanks_.begin(), blanks_.end(),
                   [&](uint32_t x, uint32_t y) { return bytes(x).size() < bytes(y).size(); });
  for (uint32_t t : blanks_) {
    n_blanks_.resize(bytes(t).size() + 1, n_blanks_.empty() ? 0 : n_blanks_.back());
    ++n_blanks_.back();
  }
  constexpr size_t kFew = 32, kMasks = 33;  // the default of whitespace in one place is 32
  if (n_blanks(kMasks - 1) > kFew)
    for (size_t length = 0; length < kMasks; ++length) {
      blank_masks_.resize((length + 1) * words());
      for (size_t i = 0; i < n_blanks(length); ++i)
        blank_masks_[length * words() + blanks_[i] / 32] |= 1u << (blanks_[i] % 32);
    }
  symbols_.build(std::move(symbols));
  indented_.build(std::move(indented));
}

std::string_view Vocabulary::text(TrieId which, uint32_t token) const {
  std::string_view b = bytes(token);
  if (which == TrieId::Symbols) b.remove_prefix(std::min(b.find_first_not_of(kBlank), b.size()));
  return b;
}

EntryPtr Vocabulary::entry(Lexeme kind, const Language& language, uint32_t state, uint32_t scan, uint32_t min,
                           uint32_t max, uint32_t node, TrieId trie) const {
  const EntryKey key{language.uid, state, scan, min, max, node, kind, trie};
  // If words of all lengths follow every state, a minimum length only forbids the end of the lexeme.
  if (min > 0 && is_json(kind) && language.all_infinite && is_whole(key, language))
    return kept(key, [&] {
      return make_longer(key, language, *entry(kind, language, state, scan, 0, max, node, trie));
    });
  // Most limits are too large to exclude a token.
  if (max != kInf && max >= kShortest) {
    const EntryPtr unlimited = entry(kind, language, state, scan, min, kInf, node, trie);
    if (max >= unlimited->needs) return unlimited;
    if (is_whole(key, language)) return kept(key, [&] { return make_limited(key, language, *unlimited); });
  }
  return kept(key, [&] { return make(key, language); });
}

template <class Make>
EntryPtr Vocabulary::kept(const EntryKey& key, Make make_it) const {
  {
    std::shared_lock<std::shared_mutex> hold(lock_);
    if (auto it = cache_.find(key); it != cache_.end()) return it->second;
  }
  EntryPtr made = make_it();
  std::unique_lock<std::shared_mutex> hold(lock_);
  make_room();
  auto [it, fresh] = cache_.emplace(key, made);
  if (fresh) cache_bytes_ += made->memory() + sizeof(EntryKey) + 64;
  return it->second;
}

std::shared_ptr<const GroupKinds> Vocabulary::kinds(const Language& language, bool json) const {
  const uint64_t key = language.uid * 2 + json;
  {
    std::shared_lock<std::shared_mutex> hold(lock_);
    if (auto it = kinds_.find(key); it != kinds_.end()) return it->second;
  }
  auto made = std::make_shared<const GroupKinds>(groups_, language, json);
  std::unique_lock<std::shared_mutex> hold(lock_);
  make_room();
  auto [it, fresh] = kinds_.emplace(key, made);
  if (fresh) cache_bytes_ += made->memory() + 64;
  return it->second;
}

void Vocabulary::make_room() const {
  if (cache_bytes_ <= cache_limit) return;
  cache_.clear(), kinds_.clear();
  cache_bytes_ = 0;
}

}  // namespace llamay::grammar
