// A parser of JSON by recursive descent, and a canonical form to compare by.
#include "text/json.h"

#include <algorithm>
#include <unordered_map>

#include "support/compile_error.h"
#include "text/unicode.h"

namespace llamay::grammar {

const Json* Json::get(std::string_view key) const {
  for (const auto& m : members)
    if (m.first == key) return &m.second;
  return nullptr;
}

namespace {

class Parser {
 public:
  Parser(std::string_view text, uint32_t depth) : p_(text), depth_(depth) {}

  Json document() {
    Json v = value(0);
    space();
    if (i_ != p_.size()) fail("unexpected text after the document");
    return v;
  }

 private:
  std::string_view p_;
  size_t i_ = 0;
  uint32_t depth_;

  [[noreturn]] void fail(const std::string& what) const {
    throw CompileError("json", "",
                       "the schema is not valid JSON: " + what + " at byte " + std::to_string(i_));
  }
  void space() {
    while (i_ < p_.size() && (p_[i_] == ' ' || p_[i_] == '\n' || p_[i_] == '\t' || p_[i_] == '\r')) ++i_;
  }
  char peek() {
    space();
    if (i_ >= p_.size()) fail("unexpected end");
    return p_[i_];
  }
  void word(std::string_view w) {
    if (p_.substr(i_, w.size()) != w) fail("unexpected character");
    i_ += w.size();
  }

  Json value(uint32_t depth) {
    if (depth > depth_)
      throw CompileError("json", "", "the document is nested deeper than " + std::to_string(depth_));
    Json v;
    switch (peek()) {
      case 'n':
        word("null");
        return v;
      case 't':
        word("true"), v.kind = JsonKind::True;
        return v;
      case 'f':
        word("false"), v.kind = JsonKind::False;
        return v;
      case '"':
        v.kind = JsonKind::String, v.text = string();
        return v;
      case '[':
        ++i_, v.kind = JsonKind::Array;
        if (peek() == ']') {
          ++i_;
          return v;
        }
        while (true) {
          v.items.push_back(value(depth + 1));
          char c = peek();
          ++i_;
          if (c == ']') return v;
          if (c != ',') --i_, fail("expected ',' or ']'");
        }
      case '{':
        return object(depth);
      default:
        return number();
    }
  }

  Json object(uint32_t depth) {
    Json v;
    v.kind = JsonKind::Object;
    ++i_;
    if (peek() == '}') {
      ++i_;
      return v;
    }
    std::unordered_map<std::string, size_t> where;
    while (true) {
      if (peek() != '"') fail("expected a member name");
      std::string name = string();
      if (peek() != ':') fail("expected ':'");
      ++i_;
      Json member = value(depth + 1);
      size_t old = SIZE_MAX;
      if (v.members.size() < 16) {
        for (size_t k = 0; k < v.members.size(); ++k)
          if (v.members[k].first == name) old = k;
      } else {
        if (where.empty())
          for (size_t k = 0; k < v.members.size(); ++k) where.emplace(v.members[k].first, k);
        auto [it, fresh] = where.emplace(name, v.members.size());
        if (!fresh) old = it->second;
      }
      if (old == SIZE_MAX)
        v.members.emplace_back(std::move(name), std::move(member));
      else
        v.members[old].second = std::move(member);
      char c = peek();
      ++i_;
      if (c == '}') return v;
      if (c != ',') --i_, fail("expected ',' or '}'");
    }
  }

  Json number() {
    size_t b = i_;
    auto digits = [&] {
      size_t n = i_;
      while (i_ < p_.size() && p_[i_] >= '0' && p_[i_] <= '9') ++i_;
      if (i_ == n) fail("expected a value");
    };
    if (p_[i_] == '-') ++i_;
    const size_t first = i_;
    digits();
    if (p_[first] == '0' && i_ > first + 1) i_ = first, fail("a number must not begin with 0");
    if (i_ < p_.size() && p_[i_] == '.') ++i_, digits();
    if (i_ < p_.size() && (p_[i_] == 'e' || p_[i_] == 'E')) {
      ++i_;
      if (i_ < p_.size() && (p_[i_] == '+' || p_[i_] == '-')) ++i_;
      digits();
    }
    Json v;
    v.kind = JsonKind::Number;
    v.text = std::string(p_.substr(b, i_ - b));
    v.number = Decimal::parse(v.text);
    return v;
  }

  uint32_t hex4() {
    if (i_ + 4 > p_.size()) fail("short \\u escape");
    uint32_t v = 0;
    for (int k = 0; k < 4; ++k) {
      const int d = hex_value(static_cast<uint8_t>(p_[i_++]));
      if (d < 0) fail("bad \\u escape");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    return v;
  }

  std::string string() {
    std::string out;
    ++i_;
    while (true) {
      size_t b = i_;
      while (i_ < p_.size() && p_[i_] != '"' && p_[i_] != '\\') ++i_;
      out.append(p_.substr(b, i_ - b));
      if (i_ >= p_.size()) fail("unterminated string");
      if (p_[i_++] == '"') return out;
      if (i_ >= p_.size()) fail("unterminated string");
      char c = p_[i_++];
      switch (c) {
        case 'b':
          out.push_back('\b');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case 'n':
          out.push_back('\n');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 't':
          out.push_back('\t');
          break;
        case '"':
        case '\\':
        case '/':
          out.push_back(c);
          break;
        case 'u': {
          uint32_t u = hex4();
          if (is_high_surrogate(u) && p_.substr(i_, 2) == "\\u") {
            size_t back = i_;
            i_ += 2;
            uint32_t lo = hex4();
            if (is_low_surrogate(lo))
              u = from_surrogates(u, lo);
            else
              i_ = back;
          }
          append_utf8(out, is_surrogate(u) ? 0xFFFD : u);
          break;
        }
        default:
          --i_, fail("bad escape");
      }
    }
  }
};

void canonical(const Json& v, std::string& out) {
  switch (v.kind) {
    case JsonKind::Null:
      out += 'n';
      break;
    case JsonKind::False:
      out += 'f';
      break;
    case JsonKind::True:
      out += 't';
      break;
    case JsonKind::Number:
      out += v.number.negative ? "#-" : "#";
      out += v.number.digits + "e" + std::to_string(v.number.exponent) + ";";
      break;
    case JsonKind::String:
      out += "s" + std::to_string(v.text.size()) + ":" + v.text;
      break;
    case JsonKind::Array:
      out += '[';
      for (const auto& x : v.items) canonical(x, out);
      out += ']';
      break;
    case JsonKind::Object: {
      std::vector<const std::pair<std::string, Json>*> m;
      for (const auto& x : v.members) m.push_back(&x);
      std::sort(m.begin(), m.end(), [](auto a, auto b) { return a->first < b->first; });
      out += '{';
      for (auto x : m) {
        out += std::to_string(x->first.size()) + ":" + x->first;
        canonical(x->second, out);
      }
      out += '}';
    }
  }
}

}  // namespace

Json parse_json(std::string_view text, uint32_t depth) { return Parser(text, depth).document(); }

std::string json_canonical(const Json& value) {
  std::string out;
  canonical(value, out);
  return out;
}

bool json_equal(const Json& a, const Json& b) { return json_canonical(a) == json_canonical(b); }

}  // namespace llamay::grammar
