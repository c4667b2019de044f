#include "api/matcher.h"

#include <algorithm>

#include "machine/merge.h"
#include "machine/promotion.h"

namespace llamay::grammar {
namespace {

Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

void release(Position* p) {
  while (p && p->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    Position* next = p->previous;
    for (const Configuration& t : p->configurations) release(t.top), release(t.partial), release(t.text);
    delete p;
    p = next;
  }
}

constexpr size_t kManyConfigurations = 48;  // from this number on equal stacks are merged
constexpr size_t kMaxConfigurations = 1024;

void add_configuration(Configurations& list, const Configuration& t) {
  // Equal configurations are one.
  size_t n = list.size(), from = n > 64 ? n - 64 : 0;
  for (size_t i = from; i < n; ++i)
    if (same_configuration(list[i], t)) return;
  list.push_back(t);
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  Scratch& s = scratch();
  s.reset();
  Configurations now;
  grammar_->machine.start(now, s);
  auto* p = new Position;
  p->refs = 1;
  for (Configuration t : now) {
    t.top = promote(t.top), t.partial = promote(t.partial), t.text = promote_text(t.text);
    p->configurations.push_back(t);
  }
  for (const Configuration& t : p->configurations) p->accepting |= grammar_->machine.accepts(t);
  at_ = p;
}

Matcher::Matcher(const Matcher& other) : grammar_(other.grammar_), at_(other.at_) { at_->refs.fetch_add(1); }

Matcher::~Matcher() { release(at_); }

void Matcher::move_to(Position* p) {
  Position* old = at_;
  at_ = p;
  release(old);
}

Position* Matcher::advance(const Position* from, uint32_t token) const {
  const Vocabulary& v = *grammar_->vocabulary;
  const Machine& m = grammar_->machine;
  if (from->ended || token >= v.size()) return nullptr;
  const auto& ends = v.end_tokens();
  auto fresh = [&] {
    auto* p = new Position;
    p->refs = 1;
    p->previous = const_cast<Position*>(from);
    p->previous->refs.fetch_add(1, std::memory_order_relaxed);
    p->token = token, p->index = from->index + 1;
    return p;
  };
  Scratch& s = scratch();
  s.reset();
  Configurations now, next;
  if (v.is_special(token)) {
    for (const Configuration& t : from->configurations) m.step_token(t, token, next, s);
    if (next.empty()) {
      if (!from->accepting || std::find(ends.begin(), ends.end(), token) == ends.end()) return nullptr;
      Position* p = fresh();
      p->ended = true;
      return p;
    }
    std::swap(now, next);
  } else {
    std::string_view text = v.bytes(token);
    if (text.empty()) return nullptr;
    now = from->configurations;
    Configurations got;
    for (char c : text) {
      next.clear();
      for (const Configuration& t : now) {
        got.clear();
        m.step(t, static_cast<uint8_t>(c), got, s);
        for (const Configuration& x : got) add_configuration(next, x);
      }
      if (next.empty()) return nullptr;
      if (next.size() > kManyConfigurations) merge_configurations(next, s);
      if (next.size() > kMaxConfigurations)
        throw std::length_error(
            "the grammar is too ambiguous here: more than 1024 ways to read the document");
      std::swap(now, next);
    }
  }
  Position* p = fresh();
  p->configurations.reserve(now.size());
  for (Configuration t : now) {
    t.top = promote(t.top), t.partial = promote(t.partial), t.text = promote_text(t.text);
    p->configurations.push_back(t);
  }
  for (const Configuration& t : p->configurations) p->accepting = p->accepting || m.accepts(t);
  return p;
}

void Matcher::fill_mask(uint32_t* mask) const {
  const Vocabulary& v = *grammar_->vocabulary;
  if (at_->ended) {
    std::memset(mask, 0, size_t{v.words()} * 4);
  } else {
    Scratch& s = scratch();
    s.reset();
    Masker(grammar_->machine, v, &crossings_, &grammar_->values).add(at_->configurations, mask, s);
  }
  if (at_->accepting || at_->ended)
    for (uint32_t t : v.end_tokens()) mask[t / 32] |= 1u << (t % 32);
}

bool Matcher::allows(uint32_t token) const {
  Position* p = advance(at_, token);
  if (!p) return false;
  release(p);
  return true;
}

bool Matcher::try_accept(uint32_t token) {
  Position* p = advance(at_, token);
  if (p) move_to(p);
  return p != nullptr;
}

void Matcher::accept(uint32_t token) {
  Position* p = advance(at_, token);
  if (!p) {
    const Vocabulary& v = *grammar_->vocabulary;
    std::string shown;
    if (token >= v.size())
      shown = "is outside the vocabulary of " + std::to_string(v.size());
    else if (at_->ended)
      shown = "comes after the end of the document";
    else
      shown = "does not continue the document";
    std::string bytes;
    if (token < v.size()) {
      static const char* hex = "0123456789abcdef";
      for (char c : v.bytes(token)) {
        uint8_t b = static_cast<uint8_t>(c);
        if (b < 32 || b >= 127) {
          bytes += "\\x";
          bytes += hex[b >> 4], bytes += hex[b & 15];
        } else {
          bytes += c;
        }
      }
      bytes = " (" + bytes + ")";
    }
    throw RefusedTokenError("token " + std::to_string(token) + bytes + " " + shown + " after " +
                            std::to_string(at_->index) + " tokens; expected " + expected());
  }
  move_to(p);
}

void Matcher::rollback(uint64_t n) {
  if (n > at_->index)
    throw std::out_of_range("cannot roll back " + std::to_string(n) + " tokens: only " +
                            std::to_string(at_->index) + " were accepted");
  Position* p = at_;
  for (; n > 0; --n) p = p->previous;
  p->refs.fetch_add(1);
  move_to(p);
}

std::vector<uint32_t> Matcher::tokens() const {
  std::vector<uint32_t> out;
  for (const Position* p = at_; p->previous; p = p->previous) out.push_back(p->token);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<uint32_t> Matcher::forced(uint32_t limit) const {
  const Vocabulary& v = *grammar_->vocabulary;
  Matcher probe(*this);
  std::vector<uint32_t> out, mask(v.words());
  while (out.size() < limit && !probe.ended()) {
    probe.fill_mask(mask.data());
    uint32_t only = kNone;
    bool more = false;
    for (uint32_t i = 0; i < mask.size() && !more; ++i) {
      if (!mask[i]) continue;
      more = only != kNone || (mask[i] & (mask[i] - 1));
      only = i * 32 + static_cast<uint32_t>(__builtin_ctz(mask[i]));
    }
    if (more || only == kNone) break;
    out.push_back(only);
    probe.accept(only);
  }
  return out;
}

std::string Matcher::forced_bytes(uint32_t limit) const {
  Scratch& s = scratch();
  s.reset();
  std::string out;
  Configurations now = at_->configurations, next, got;
  while (out.size() < limit && !now.empty()) {
    for (const Configuration& t : now)
      if (t.mode == Mode::Token || grammar_->machine.accepts(t)) return out;
    int only = -1;
    Configurations after;
    for (int b = 0; b < 256; ++b) {
      next.clear();
      for (const Configuration& t : now) {
        got.clear();
        grammar_->machine.step(t, static_cast<uint8_t>(b), got, s);
        for (const Configuration& x : got) add_configuration(next, x);
      }
      if (next.empty()) continue;
      if (only >= 0) return out;
      only = b;
      after = next;
    }
    if (only < 0) return out;
    out.push_back(static_cast<char>(only));
    now = after;
  }
  return out;
}

std::string Matcher::expected() const {
  Scratch& s = scratch();
  s.reset();
  std::string out;
  Configurations got;
  int run_from = -1;
  auto show = [](int b) {
    if (b == ' ') return std::string("space");
    if (b > 32 && b < 127) return std::string(1, static_cast<char>(b));
    static const char* hex = "0123456789abcdef";
    return std::string("\\x") + hex[b >> 4] + hex[b & 15];
  };
  for (int b = 0; b <= 256; ++b) {
    bool ok = false;
    if (b < 256 && !at_->ended)
      for (const Configuration& t : at_->configurations) {
        got.clear();
        grammar_->machine.step(t, static_cast<uint8_t>(b), got, s);
        ok |= !got.empty();
      }
    if (ok && run_from < 0) run_from = b;
    if (!ok && run_from >= 0) {
      out += (out.empty() ? "" : ", ") + show(run_from);
      if (b - 1 > run_from) out += " to " + show(b - 1);
      run_from = -1;
    }
  }
  for (const Configuration& t : at_->configurations)
    if (t.mode == Mode::Token) out += (out.empty() ? "" : ", ") + ("token " + std::to_string(t.a));
  if (at_->accepting || at_->ended)
    out += out.empty() ? "the end of the document" : ", or the end of the document";
  return out.empty() ? "nothing" : out;
}

}  // namespace llamay::grammar
