// Context-free grammars as networks of rules, to which GBNF, EBNF and tool envelopes are compiled.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "program/program.h"
#include "regex/terms.h"
#include "support/budget.h"

namespace llamay::grammar {

struct Expr {
  enum Kind : uint8_t {
    Text,
    Set,
    Term,
    Rule,
    Value,
    Token,
    Tagged,
    Sequence,
    Choice,
    Repeat
  } kind = Sequence;
  std::string text;  // Text: literal UTF-8. Rule: its name
  CharSet set;       // Set
  uint32_t arg = 0;  // Term: a term. Value: node. Token: id. Tagged: index. Rule: number, once resolved
  uint32_t min = 1, max = 1;  // Repeat
  std::vector<Expr> kids;
};

class NetworkBuilder {
 public:
  NetworkBuilder(Program& program, Budget& budget) : p_(program), budget_(budget), terms_(budget) {}

  Terms& terms() { return terms_; }
  // Rules may be used before they are defined. Throws for a second definition.
  void define(const std::string& name, Expr body);
  bool defined(const std::string& name) const { return names_.count(name) > 0; }
  // Builds the network with the start rule `root`. Rules without recursion become automata, and left
  // recursion is rewritten as repetition. Throws CompileError("rule", ...) for left recursion behind a
  // recursive rule that may be empty, for an undefined rule, and for a grammar that describes no finite text.
  void finish(const std::string& root);

 private:
  struct RuleInfo {
    std::string name;
    Expr body;
    int8_t regular = -1;  // not known yet
    bool recursive = false, nullable = false, productive = false;
    uint32_t start = kNone;
    Terms::Id term = 0;
    bool has_term = false;
  };

  void resolve(Expr& e, const RuleInfo& in, uint32_t depth);
  // Left recursion: left_recursion.cpp.
  using Parts = std::vector<Expr>;
  void left_recursion(uint32_t root);
  void rewrite(const std::vector<uint32_t>& group);
  void heads(Parts parts, const std::vector<bool>& group, std::vector<Parts>& out, uint32_t depth = 0);
  [[noreturn]] void too_many() const;
  std::string left_cycle() const;
  // Returns the strongly connected components of a graph in reverse topological order.
  static std::vector<std::vector<uint32_t>> components(const std::vector<std::vector<uint32_t>>& uses);
  static std::vector<uint32_t> uses(const Expr& e);  // the rules in e
  void mark_recursive();
  bool nullable(const Expr& e) const;
  bool productive(const Expr& e) const;
  void first_rules(const Expr& e, std::vector<uint32_t>& out) const;
  bool regular(const Expr& e);
  Terms::Id term(const Expr& e);
  uint32_t state();
  void build(const Expr& e, uint32_t from, uint32_t to);
  void lexeme(Terms::Id t, uint32_t from, uint32_t to);

  Program& p_;
  Budget& budget_;
  Terms terms_;
  std::vector<RuleInfo> rules_;
  std::unordered_map<std::string, uint32_t> names_;
  std::unordered_map<Terms::Id, uint32_t> lexemes_;
};

// Rules in llama.cpp's GBNF, respectively in the EBNF of the W3C's specifications, into a builder.
void read_gbnf(const std::string& source, NetworkBuilder& builder, Budget& budget);
// Returns the name of the first rule, which is the root.
std::string read_ebnf(const std::string& source, NetworkBuilder& builder, Budget& budget);

}  // namespace llamay::grammar
