#include "api/compile.h"

#include "api/options.h"
#include "automata/algebra.h"
#include "expansion/expander.h"
#include "grammars/network.h"
#include "masks/precompute.h"
#include "regex/pattern.h"
#include "support/compile_error.h"
#include "text/unicode.h"

namespace llamay::grammar {
namespace {

void one_value(Program& p, uint32_t node) {
  p.net.resize(2);
  p.net[0].edges.push_back({Edge::Value, node, 1});
  p.net[1].final = true;
}

GrammarPtr schema_once(const Json& document, const VocabularyPtr& v, const CompileOptions& options,
                       const std::set<std::string>& dropped, bool tracking) {
  auto g = std::make_shared<Grammar>();
  g->vocabulary = v;
  settings(g->program, options);
  Budget budget = options.budget;
  Formulas formulas(budget, options.schema_order);
  formulas.tracking = tracking;
  const SchemaOptions so = schema_options(options, dropped);
  SchemaReader reader(formulas, so, budget);
  FormulaId root = reader.read(document, "");
  Expander expander(formulas, g->program, budget);
  uint32_t node = expander.node(root);
  expander.finish();
  if (!g->program.nodes[node].possible) throw CompileError("", "/", "no document satisfies this schema");
  one_value(g->program, node);
  return g;
}

}  // namespace

GrammarPtr compile_json_schema(const std::string& schema, const VocabularyPtr& v,
                               const CompileOptions& given) {
  CompileOptions options = given;
  options.budget.start = Budget::now();
  require_utf8(schema);
  Json document = parse_json(schema, options.budget.depth);
  return with_retries(options, [&](const std::set<std::string>& dropped, bool tracking) {
    return schema_once(document, v, options, dropped, tracking);
  });
}

GrammarPtr compile_regex(const std::string& source, bool whole, const VocabularyPtr& v,
                         const CompileOptions& options) {
  auto g = std::make_shared<Grammar>();
  g->vocabulary = v;
  Budget budget = options.budget;
  budget.start = Budget::now();
  require_utf8(source);
  Pattern p = compile_pattern(source, whole, budget);
  StringAtom lexeme{p.language, p.min, p.max};
  if (lexeme.min > 0 && !p.language->gap_free)
    lexeme = {with_length(p.language, p.min, p.max, budget), 0, kInf};
  const Language& l = *lexeme.language;
  if (l.empty() || l.min_length(0) > lexeme.max || l.max_length(0) < lexeme.min)
    throw CompileError("pattern", "", "no text matches this regular expression");
  Program& program = g->program;
  program.lexemes.push_back(lexeme);
  program.net.resize(2);
  program.net[0].edges.push_back({Edge::Lexeme, 0, 1});
  program.net[1].final = true;
  precompute_entries(g->program, *v);
  return g;
}

namespace {

// `read` adds the rules of the text and returns the name of the first one.
template <class Read>
GrammarPtr with_rules(const std::string& source, const std::string& root, const VocabularyPtr& v,
                      const CompileOptions& options, Read read) {
  auto g = std::make_shared<Grammar>();
  g->vocabulary = v;
  Budget budget = options.budget;
  budget.start = Budget::now();
  require_utf8(source);
  NetworkBuilder builder(g->program, budget);
  const std::string first = read(builder, budget);
  builder.finish(root.empty() ? first : root);
  precompute_entries(g->program, *v);
  return g;
}

}  // namespace

GrammarPtr compile_gbnf(const std::string& source, const std::string& root, const VocabularyPtr& v,
                        const CompileOptions& options) {
  return with_rules(source, root, v, options, [&](NetworkBuilder& builder, Budget& budget) {
    read_gbnf(source, builder, budget);
    return std::string("root");
  });
}

GrammarPtr compile_ebnf(const std::string& source, const std::string& root, const VocabularyPtr& v,
                        const CompileOptions& options) {
  return with_rules(source, root, v, options, [&](NetworkBuilder& builder, Budget& budget) {
    return read_ebnf(source, builder, budget);
  });
}

}  // namespace llamay::grammar
