// JSON Schema, drafts 4 to 2020-12, to formulas.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "formulas/formula.h"
#include "schema/dynamic_scopes.h"
#include "schema/index.h"
#include "schema/options.h"
#include "support/budget.h"

namespace llamay::grammar {

class SchemaReader {
 public:
  SchemaReader(Formulas& formulas, const SchemaOptions& options, Budget& budget);

  // Several schemas may be read into one set of formulas (tools). `base` is the URI of the document, `where`
  // leads the pointers of its messages. Throws CompileError, with the pointer of the keyword, for what is no
  // schema and for what cannot be enforced.
  FormulaId read(const Json& document, const std::string& base, const std::string& where = "");

 private:
  // A schema in its place. The objects that it refers to must outlive it.
  struct Site {
    const Json& schema;
    const Path& at;
    uint32_t scope;
    uint32_t depth;
    Draft draft;
  };
  struct Pending {
    const Json* schema;
    uint32_t scope;
    uint32_t ref;
    std::string pointer;
  };
  class Keywords;   // of one schema: keywords.h
  class Evaluated;  // the members and items that a schema evaluates: unevaluated.cpp

  FormulaId compile(const Json& schema, const Path& at, uint32_t scope, uint32_t depth);
  // Schemas that are referred to are read later, once for each dynamic scope.
  FormulaId place(const SchemaIndex::Place& target, uint32_t scope);
  SchemaIndex::Place dynamic_place(const Json& from, const std::string& reference, bool recursive,
                                   const Path& at, uint32_t scope);
  uint32_t enter(uint32_t scope, const std::string& base);
  FormulaId unevaluated(const Site& site, const char* keyword, FormulaId rule);
  LanguagePtr pattern_names(const std::string& source, const Path& at);
  bool dropped(const Path& at, const std::string& key) const;

  Formulas& f_;
  const SchemaOptions& options_;
  Budget& budget_;
  SchemaIndex index_;
  DynamicScopes scopes_;
  std::map<std::pair<const Json*, uint32_t>, uint32_t> refs_;
  std::deque<Pending> pending_;
};

}  // namespace llamay::grammar
