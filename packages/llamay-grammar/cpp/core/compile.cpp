#include "compile.h"

#include "expand.h"
#include "regex.h"

namespace llamay::grammar {
namespace {

void one_value(Program& p, uint32_t node) {
  p.net.resize(2);
  p.net[0].edges.push_back({Edge::Value, node, 1});
  p.net[1].final = true;
}

void settings(Program& p, const CompileOptions& o) {
  p.whitespace = o.whitespace, p.max_whitespace = o.max_whitespace, p.schema_order = o.schema_order;
}

GrammarPtr schema_once(const Json& document, const VocabularyPtr& v, const CompileOptions& options,
                       const std::set<std::string>& dropped, bool tracking) {
  auto g = std::make_shared<Grammar>();
  g->vocabulary = v;
  settings(g->program, options);
  Budget budget = options.budget;
  Formulas formulas(budget);
  formulas.tracking = tracking;
  SchemaOptions so;
  so.draft = options.draft, so.resolver = options.resolver, so.dropped = dropped;
  if (options.mode == CompileMode::Annotate) so.formats = FormatMode::Annotate;
  SchemaReader reader(formulas, so, budget);
  FormulaId root = reader.read(document, "");
  Expander expander(formulas, g->program, budget);
  uint32_t node = expander.node(root);
  expander.finish();
  if (!g->program.nodes[node].possible)
    throw CompileError("", "/", "no document satisfies this schema");
  one_value(g->program, node);
  return g;
}

}  // namespace

GrammarPtr compile_json_schema(const std::string& schema, const VocabularyPtr& v, const CompileOptions& given) {
  CompileOptions options = given;
  options.budget.start = std::chrono::steady_clock::now();
  Json document = parse_json(schema, options.budget.depth);
  std::set<std::string> dropped;
  std::vector<std::string> warnings;
  for (bool tracking = false;;) {
    try {
      GrammarPtr g = schema_once(document, v, options, dropped, tracking);
      g->program.warnings = warnings;
      return g;
    } catch (const CompileError& e) {
      // Positions are not kept while compiling; when one is needed, the work is done again with them.
      if (e.pointer.empty() && !tracking && e.keyword != "json") {
        tracking = true;
        continue;
      }
      if (options.mode == CompileMode::Exact || e.pointer.size() < 2 || dropped.size() >= 64 ||
          !dropped.insert(e.pointer).second)
        throw;
      warnings.push_back(e.pointer + ": " + e.what() + "; the keyword is not enforced");
    }
  }
}

GrammarPtr compile_regex(const std::string& source, bool whole, const VocabularyPtr& v,
                         const CompileOptions& options) {
  auto g = std::make_shared<Grammar>();
  g->vocabulary = v;
  Budget budget = options.budget;
  budget.start = std::chrono::steady_clock::now();
  Pattern p = compile_pattern(source, whole, budget);
  StringAtom lexeme{p.lang, p.min, p.max};
  if (lexeme.min > 0 && !p.lang->gap_free) lexeme = {with_length(p.lang, p.min, p.max, budget), 0, kInf};
  const Lang& l = *lexeme.lang;
  if (l.empty() || l.min_length(0) > lexeme.max || l.max_length(0) < lexeme.min)
    throw CompileError("pattern", "", "no text matches this regular expression");
  Program& program = g->program;
  program.lexemes.push_back(lexeme);
  program.net.resize(2);
  program.net[0].edges.push_back({Edge::Lexeme, 0, 1});
  program.net[1].final = true;
  return g;
}

}  // namespace llamay::grammar
