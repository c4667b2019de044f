// Random schemas, regular expressions and grammars, and random documents under their masks, for builds with
// sanitizers. It checks what must hold whatever the input: no crash, refusals as CompileError only, no dead
// end, and a mask that agrees with reading each token.
//
//     cmake -S . -B build/fuzz -DLLAMAY_FUZZ=ON -DLLAMAY_SANITIZE=address,undefined && cmake --build
//     build/fuzz build/fuzz/grammar_fuzz SECONDS [SEED]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "api/compile.h"
#include "support/compile_error.h"

using namespace llamay::grammar;

namespace {

std::mt19937_64 rng;

uint64_t below(uint64_t n) { return rng() % n; }
bool chance(uint64_t percent) { return below(100) < percent; }

std::string name() {
  static const char* names[] = {"a", "b", "ab", "name", "", "\\u20ac", "x-1"};
  return names[below(7)];
}

std::string number() {
  static const char* numbers[] = {"0",    "1",   "-1",   "2.5", "10",
                                  "0.01", "1e2", "-0.5", "3",   "100000000000000000000"};
  return numbers[below(10)];
}

std::string pattern() {
  static const char* pieces[] = {"a", "b", ".",     "\\\\d", "[a-c]",   "[^x]",    "(?:a|bc)",
                                 "^", "$", "(?=a)", "(?!b)", "\\\\w",   "\\u00e9", "(",
                                 ")", "[", "\\\\1", "|",     "\\\\p{L}"};
  static const char* counts[] = {"", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,40}"};
  std::string p;
  for (uint64_t i = 0, n = below(6); i < n; ++i) p += std::string(pieces[below(19)]) + counts[below(9)];
  return p;
}

std::string value(int depth) {
  switch (below(depth > 0 ? 7 : 5)) {
    case 0:
      return "null";
    case 1:
      return chance(50) ? "true" : "false";
    case 2:
      return number();
    case 3:
    case 4:
      return "\"" + name() + "\"";
    case 5:
      return "[" + value(depth - 1) + "," + value(depth - 1) + "]";
    default:
      return "{\"" + name() + "\":" + value(depth - 1) + "}";
  }
}

std::string schema(int depth) {
  if (depth <= 0 || chance(10)) return chance(30) ? (chance(80) ? "true" : "false") : "{}";
  std::string out = "{";
  auto add = [&](const std::string& key, const std::string& v) {
    out += (out.size() > 1 ? ",\"" : "\"") + key + "\":" + v;
  };
  auto sub = [&] { return schema(depth - 1); };
  auto list = [&] {
    std::string l = "[" + sub();
    for (uint64_t i = below(3); i > 0; --i) l += "," + sub();
    return l + "]";
  };
  static const char* types[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
  static const char* formats[] = {"date", "ipv4", "uuid", "time", "email", "json-pointer"};
  for (uint64_t i = 0, n = 1 + below(5); i < n; ++i) {
    switch (below(36)) {
      case 0:
      case 1:
      case 2:
        add("type", "\"" + std::string(types[below(7)]) + "\"");
        break;
      case 3:
        add("type", "[\"" + std::string(types[below(7)]) + "\",\"" + types[below(7)] + "\"]");
        break;
      case 4:
        add("enum", "[" + value(2) + "," + value(2) + "]");
        break;
      case 5:
        add("const", value(2));
        break;
      case 6:
        add("minimum", number());
        break;
      case 7:
        add("exclusiveMaximum", number());
        break;
      case 8:
        add("multipleOf", number());
        break;
      case 9:
        add("minLength", std::to_string(below(4)));
        break;
      case 10:
        add("maxLength", std::to_string(below(6)));
        break;
      case 11:
        add("pattern", "\"" + pattern() + "\"");
        break;
      case 12:
        add("format", "\"" + std::string(formats[below(6)]) + "\"");
        break;
      case 13:
        add("items", sub());
        break;
      case 14:
        add("prefixItems", list());
        break;
      case 15:
        add("minItems", std::to_string(below(3)));
        break;
      case 16:
        add("maxItems", std::to_string(below(4)));
        break;
      case 17:
        add("uniqueItems", "true");
        if (chance(60)) {  // over objects and arrays, where items are compared as documents
          add("type", "\"array\"");
          add("items", chance(50) ? "{\"type\":\"object\",\"properties\":{\"a\":" + sub() +
                                        "},\"additionalProperties\":" + (chance(50) ? "false" : "true") + "}"
                                  : "{\"type\":\"array\",\"items\":" + sub() + ",\"maxItems\":2}");
        }
        break;
      case 18:
        add("contains", sub());
        break;
      case 19:
        add("maxContains", std::to_string(below(3)));
        break;
      case 20:
      case 21:
      case 22:
        add("properties", "{\"" + name() + "\":" + sub() + ",\"" + name() + "\":" + sub() + "}");
        break;
      case 23:
        add("patternProperties", "{\"" + pattern() + "\":" + sub() + "}");
        break;
      case 24:
        add("additionalProperties", sub());
        break;
      case 25:
        add("required", "[\"" + name() + "\"]");
        break;
      case 26:
        add("minProperties", std::to_string(below(3)));
        break;
      case 27:
        add("maxProperties", std::to_string(below(4)));
        break;
      case 28:
        add("propertyNames", sub());
        break;
      case 29:
        add("dependentRequired", "{\"" + name() + "\":[\"" + name() + "\"]}");
        break;
      case 30:
        add("allOf", list());
        break;
      case 31:
        add("anyOf", list());
        break;
      case 32:
        add("oneOf", list());
        break;
      case 33:
        add("not", sub());
        break;
      case 34:
        add("if", sub()), add("then", sub()), add("else", sub());
        break;
      default:
        add("$ref", chance(50) ? "\"#\"" : "\"#/properties/a\"");
    }
  }
  return out + "}";
}

std::string gbnf() {
  static const char* pieces[] = {"\"a\"", "[a-c]", "x", "y", "(x | \"b\")", "\"\\x41\"", ".", "[^a]", "|"};
  static const char* counts[] = {"", "", "*", "+", "?", "{1,2}"};
  std::string out;
  for (const char* rule : {"root", "x", "y"}) {
    out += std::string(rule) + " ::=";
    for (uint64_t i = 0, n = 1 + below(4); i < n; ++i)
      out += std::string(" ") + pieces[below(9)] + counts[below(6)];
    out += "\n";
  }
  return out;
}

// An object between tags.
std::string members() {
  static const char* opens[] = {"<p=", "(", ""};
  static const char* afters[] = {R"({"text": ">"})", R"({"text": "=\n"})",
                                 R"({"text": " s="}, {"typed": ["true", "false"]}, {"text": ">"})"};
  static const char* closes[] = {"</p>", "\\n</p>\\n", "xyx", "aba"};
  static const char* types[] = {"", "n", "d", "nbdao", "bd"};
  std::string out =
      R"({"schemas": [{"at": "", "schema": {"type": "object", "allOf": [)" + schema(3) + "]}}], ";
  out += R"("part": {"seq": [{"members": {"schema": 0, "open": [{"text": ")" + std::string(opens[below(3)]);
  out +=
      R"("}], "after": [)" + std::string(afters[below(3)]) + R"(], "close": [{"text": ")" + closes[below(4)];
  out += R"("}], "mixed": {"a": ")" + std::string(types[below(5)]) + R"("}, "other": ")" + types[below(5)];
  return out + R"("}}, {"text": "!"}]}})";
}

[[noreturn]] void fail(const char* what, const std::string& source) {
  std::fprintf(stderr, "%s\n%s\n", what, source.c_str());
  std::abort();
}

void follow(const GrammarPtr& g, const std::string& source) {
  const Vocabulary& v = *g->vocabulary;
  std::vector<uint32_t> mask(v.words());
  Matcher m(g);
  for (int step = 0; step < 40 && !m.ended(); ++step) {
    m.fill_mask(mask.data());
    std::vector<uint32_t> allowed;
    for (uint32_t t = 0; t < v.size(); ++t)
      if (mask[t / 32] >> (t % 32) & 1) allowed.push_back(t);
    if (allowed.empty()) fail("a dead end", source);
    for (int probe = 0; probe < 8; ++probe) {
      uint32_t t = static_cast<uint32_t>(below(v.size()));
      if (m.allows(t) != static_cast<bool>(mask[t / 32] >> (t % 32) & 1))
        fail("the mask and the matcher disagree", source);
    }
    uint32_t t = allowed[below(allowed.size())];
    if (!m.try_accept(t)) fail("an allowed token was refused", source);
    if (chance(10)) {
      Matcher fork(m);
      fork.rollback(below(fork.length() + 1));
      fork.fill_mask(mask.data());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  rng.seed(seed);
  std::string bytes;
  std::vector<uint64_t> offsets{0};
  auto token = [&](const std::string& t) { bytes += t, offsets.push_back(bytes.size()); };
  for (int b = 0; b < 256; ++b) token(std::string(1, static_cast<char>(b)));
  for (const char* t : {"\",\"",
                        "\":",
                        "\": ",
                        "{\"",
                        "\"a\"",
                        "\"name\"",
                        "[1",
                        "},",
                        "]}",
                        "null",
                        "true",
                        "ab",
                        "\\u0",
                        "0.",
                        "12",
                        "\xc3\xa9",
                        "\xe2\x82",
                        "\"a\":1,\"a\":2",
                        "\",\"a",
                        "  ",
                        "abcabcabc",
                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                        " \"",
                        "\n\n}",
                        "   1,",
                        "               {\"a",
                        "\xe0\xb8\x81x",
                        "\xe0\x80\x80",
                        "a\xf0\x9f\x98",
                        "</p>",
                        "</p>\n<p=",
                        "<p=a>",
                        "a>1</",
                        " s=\"",
                        "true>",
                        "\n</p",
                        "xyx",
                        "xyxy",
                        "aba(",
                        "\xed\xa0\x80"})
    token(t);
  // So many alike that they are judged in groups.
  for (int i = 0; i < 1500; ++i) {
    static const char* pieces[] = {"a", "b", "c", "x", "na", "me", "1", "20", "-", ".", " ", "B", "\xc3\xa9"};
    std::string t;
    for (uint64_t n = 2 + below(4); n > 0; --n) t += pieces[below(chance(70) ? 6 : 13)];
    token(t);
  }
  token("<end>");
  uint32_t end = static_cast<uint32_t>(offsets.size() - 2);
  auto v = std::make_shared<Vocabulary>(bytes, offsets, std::vector<uint32_t>{}, std::vector<uint32_t>{end});
  CompileOptions options;
  options.budget.seconds = 2, options.budget.automaton_states = 3000, options.budget.alternatives = 512;
  uint64_t tried = 0, compiled = 0;
  auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    ++tried;
    uint64_t kind = below(13);
    std::string source = kind < 7 ? schema(4) : kind < 8 ? pattern() : kind < 10 ? gbnf() : members();
    if (chance(5) && !source.empty()) source[below(source.size())] = static_cast<char>(below(256));
    options.whitespace = static_cast<Whitespace>(below(3)), options.max_whitespace = chance(50) ? 2 : 20,
    options.schema_order = chance(30), options.canonical_escapes = chance(30);
    options.mode = chance(80) ? CompileMode::Exact : CompileMode::Approximate;
    try {
      GrammarPtr g = kind < 7    ? compile_json_schema(source, v, options)
                     : kind < 8  ? compile_regex(source, chance(50), v, options)
                     : kind < 10 ? compile_gbnf(source, "", v, options)
                                 : compile_layout(source, v, options);
      ++compiled;
      follow(g, source);
    } catch (const CompileError&) {
    } catch (const std::length_error&) {
    }
  }
  std::printf("%llu sources, %llu compiled\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(compiled));
}
