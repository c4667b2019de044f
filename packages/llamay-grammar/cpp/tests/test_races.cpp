// What a server does with one vocabulary from many threads at once: compile, share, fill masks, fork, roll
// back. Meant for ThreadSanitizer, and true without it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "api/compile.h"
#include "api/constraint.h"

using namespace llamay::grammar;

/// Ends the program at once, from any thread: destructors would wait for the others.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                       \
    }                                                                      \
  } while (0)

namespace {

constexpr unsigned kThreads = 4;

using Mask = std::vector<uint32_t>;

void in_threads(const std::function<void(unsigned)>& f) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back(f, t);
  for (std::thread& t : threads) t.join();
}

/// The bytes, and pieces of JSON and of words as tokenizers have them. Nothing is remembered about it yet.
std::shared_ptr<Vocabulary> vocabulary() {
  std::string bytes;
  std::vector<uint64_t> offsets{0};
  const auto token = [&](const std::string& t) { bytes += t, offsets.push_back(bytes.size()); };
  for (int b = 0; b < 256; ++b) token(std::string(1, static_cast<char>(b)));
  for (const char* t :
       {"\",\"", "\":",  "\": ", "{\"", "\"a\"",    "\"name\"", "[1",     "},", "]}",  "null",  "true",
        "ab",    "\\u0", "0.",   "12",  "\xc3\xa9", "\xe2\x82", "\",\"a", "  ", " \"", "\n\n}", "   1,"})
    token(t);
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b) token(std::string{a, b}), token(std::string{' ', a, b, a});
  token("<end>");
  const auto end = static_cast<uint32_t>(offsets.size() - 2);
  return std::make_shared<Vocabulary>(bytes, offsets, std::vector<uint32_t>{}, std::vector<uint32_t>{end});
}

struct Source {
  const char* text;
  GrammarPtr (*compile)(const std::string&, const VocabularyPtr&);
};

GrammarPtr from_schema(const std::string& text, const VocabularyPtr& v) {
  return compile_json_schema(text, v, CompileOptions());
}
GrammarPtr from_regex(const std::string& text, const VocabularyPtr& v) {
  return compile_regex(text, true, v, CompileOptions());
}
GrammarPtr from_gbnf(const std::string& text, const VocabularyPtr& v) {
  return compile_gbnf(text, "", v, CompileOptions());
}

const Source kSources[] = {
    {R"({"type":"object","properties":{"name":{"type":"string","maxLength":12,"pattern":"^[a-z ]+$"},
         "age":{"type":"integer","minimum":3,"maximum":1200},"tags":{"type":"array","uniqueItems":true,
         "items":{"enum":["ab","cd","é",7,null]}}},"required":["name","age"],"additionalProperties":false})",
     from_schema},
    {R"({"anyOf":[{"type":"object","additionalProperties":{"type":"number","multipleOf":0.5}},
         {"type":"array","items":{"$ref":"#"},"maxItems":3},{"type":"string","format":"date"},
         {"type":"string","minLength":2}]})",
     from_schema},
    {"[a-z]{2,9}( [a-z]+){1,4}|\\d{1,3}\\.\\d+", from_regex},
    {"root ::= x (\" \" x)*\nx ::= \"a\" x \"b\" | [c-f]+ | \"(\" x \")\" | \"a\" | y\ny ::= \"a\" y | "
     "\"a\"\n",
     from_gbnf},
};

/// A document, chosen by its masks, and all that was seen on the way.
struct Walk {
  std::vector<Mask> masks;
  std::vector<uint32_t> tokens;
  bool operator==(const Walk&) const = default;
};

/// Every step on a fork of its own; sometimes back to where a document was before, and on again.
Walk walk(Matcher& m, uint64_t seed) {
  std::mt19937_64 random(seed);
  Walk seen{{}, m.tokens()};
  Mask mask(m.grammar()->vocabulary->words());
  for (int step = 0; step < 16 && !m.ended(); ++step) {
    m.fill_mask(mask.data());
    seen.masks.push_back(mask);
    std::vector<uint32_t> allowed;
    for (uint32_t t = 0; t < m.grammar()->vocabulary->size(); ++t)
      if (mask[t / 32] >> (t % 32) & 1) allowed.push_back(t);
    CHECK(!allowed.empty());
    const uint32_t token = allowed[random() % allowed.size()];
    CHECK(m.allows(token));
    Matcher fork(m);
    fork.accept(token);
    m.accept(token);
    Mask one(mask.size()), other(mask.size());
    m.fill_mask(one.data());
    fork.fill_mask(other.data());
    CHECK(one == other && fork.forced(4) == m.forced(4));
    seen.tokens.push_back(token);
    if (random() % 6 == 0) {
      const uint64_t back = random() % (m.length() + 1);
      m.rollback(back);
      seen.tokens.resize(seen.tokens.size() - back);
      CHECK(m.tokens() == seen.tokens);
    }
  }
  return seen;
}

/// What a walk sees where nobody else is: of its own vocabulary and grammar.
std::vector<Walk> alone(const Source& source) {
  const auto v = vocabulary();
  const GrammarPtr g = source.compile(source.text, v);
  std::vector<Walk> walks;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    Matcher m(g);
    walks.push_back(walk(m, seed));
  }
  return walks;
}

/// All begin at once with nothing remembered, so that they make the same entries at the same time; with a
/// cache that is always full, others throw away what one still reads.
void threads_share_a_grammar(const Source& source, const std::vector<Walk>& expected, size_t cache_limit) {
  const auto v = vocabulary();
  v->cache_limit = cache_limit;
  const GrammarPtr g = source.compile(source.text, v);
  const Matcher start(g);
  in_threads([&](unsigned t) {
    for (uint64_t i = 0; i < expected.size(); ++i) {
      const uint64_t seed = (i + t / 2) % expected.size();  // two and two do the same
      Matcher m(start);
      CHECK(walk(m, seed) == expected[seed]);
    }
  });
}

/// Sources are compiled while others are already read, each by several threads at once.
void threads_compile_over_one_vocabulary(const std::vector<std::vector<Walk>>& expected) {
  const auto v = vocabulary();
  in_threads([&](unsigned t) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t which = (i + t) % expected.size();
      const GrammarPtr g = kSources[which].compile(kSources[which].text, v);
      Matcher m(g);
      CHECK(walk(m, t % 2) == expected[which][t % 2]);
    }
  });
}

/// One document's branches, through the C face as a scheduler has them: each thread extends, takes back and
/// ends its own, while the common past is given up by whoever is last.
void branches_of_one_document_end_in_any_order(const Source& source) {
  const auto v = vocabulary();
  const GrammarPtr g = source.compile(source.text, v);
  std::mt19937_64 random(5);
  for (int round = 0; round < 10; ++round) {
    auto trunk = std::make_shared<Matcher>(g);
    walk(*trunk, static_cast<uint64_t>(round));
    llamay_token_constraint* root = make_constraint(std::move(trunk));
    std::vector<llamay_token_constraint*> branches;
    for (unsigned t = 0; t < kThreads; ++t) branches.push_back(root->fork(root->self));
    Mask expected(v->words());
    CHECK(root->fill_mask(root->self, expected.data(), v->words()) == LLAMAY_TC_OK);
    free_constraint(root);
    in_threads([&](unsigned t) {
      llamay_token_constraint* c = branches[t];
      Mask mask(v->words());
      for (int i = 0; i < 6; ++i) {
        CHECK(c->fill_mask(c->self, mask.data(), v->words()) == LLAMAY_TC_OK && mask == expected);
        uint64_t accepted = 0;
        for (uint32_t token = t; token < v->size() && accepted < 2; token += 5)
          accepted += c->accept(c->self, token) == LLAMAY_TC_OK;
        llamay_token_constraint* fork = c->fork(c->self);
        uint32_t forced[4];
        CHECK(fork->forced(fork->self, forced, 4) <= 4);
        CHECK(c->rollback(c->self, accepted) == LLAMAY_TC_OK);
        fork->release(fork);
      }
      c->release(c);
    });
  }
}

/// One thread goes on while another still reads a fork that it was handed.
void a_fork_is_read_while_its_parent_goes_on(const Source& source) {
  const GrammarPtr g = source.compile(source.text, vocabulary());
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Matcher m(g);
    walk(m, seed);
    auto fork = std::make_unique<Matcher>(m);
    Mask before(g->vocabulary->words()), seen(before);
    m.fill_mask(before.data());
    std::thread reader([&] {
      fork->fill_mask(seen.data());
      const auto tokens = fork->tokens();
      fork->rollback(tokens.size());
      for (uint32_t t : tokens) fork->accept(t);
      fork.reset();
    });
    walk(m, seed + 1);
    m.rollback(m.length() / 2);
    reader.join();
    CHECK(seen == before);
  }
}

}  // namespace

int main() {
  // First, while what the process remembers of all vocabularies (patterns, numbers) is not made yet.
  std::vector<GrammarPtr> made(kThreads);
  in_threads([&](unsigned t) {
    for (const Source& s : kSources) made[t] = s.compile(s.text, vocabulary());
  });
  std::vector<std::vector<Walk>> expected;
  for (const Source& s : kSources) expected.push_back(alone(s));
  for (size_t i = 0; i < expected.size(); ++i)
    for (const size_t cache_limit : {size_t{256} << 20, size_t{0}})
      threads_share_a_grammar(kSources[i], expected[i], cache_limit);
  threads_compile_over_one_vocabulary(expected);
  for (const Source& s : kSources) {
    branches_of_one_document_end_in_any_order(s);
    a_fork_is_read_while_its_parent_goes_on(s);
  }
  std::puts("ok");
}
