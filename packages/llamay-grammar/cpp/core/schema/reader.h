// The translation of JSON Schema (drafts 4 to 2020-12) to formulas.
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

  // Reads a document. Several documents may be read into one set of formulas, as for tools. `base` is the URI
  // of the document; `where` is a prefix of the JSON pointers in error messages. Throws CompileError, with
  // the pointer of the keyword, for a value that is not a schema and for a keyword that cannot be enforced.
  FormulaId read(const Json& document, const std::string& base, const std::string& where = "");

 private:
  // A schema, its JSON pointer and its scope. A Site must not outlive the objects that its members refer to.
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
  class Keywords;   // reads the keywords of one schema: keywords.h
  class Evaluated;  // finds the members and items that a schema evaluates: unevaluated.cpp

  FormulaId compile(const Json& schema, const Path& at, uint32_t scope, uint32_t depth);
  // Returns a reference to the target schema, which is read later, once for each dynamic scope.
  FormulaId place(const SchemaIndex::Place& target, uint32_t scope);
  SchemaIndex::Place dynamic_place(const Json& from, const std::string& reference, bool recursive,
                                   const Path& at, uint32_t scope);
  uint32_t enter(uint32_t scope, const std::string& base);
  FormulaId unevaluated(const Site& site, const char* keyword, FormulaId rule);
  LanguagePtr pattern_names(const std::string& source, const Path& at);
  bool dropped(const Path& at, const std::string& key) const;
  // Throws CompileError for a keyword whose value has a type that the metaschema of the draft does not allow:
  // in this schema, and in the subschemas that are not read for themselves; with `inside`, in all subschemas.
  void check_shapes(const Json& schema, const Path& at, uint32_t depth, bool inside);  // shapes.cpp

  Formulas& f_;
  const SchemaOptions& options_;
  Budget& budget_;
  SchemaIndex index_;
  DynamicScopes scopes_;
  std::map<std::pair<const Json*, uint32_t>, uint32_t> refs_;
  std::deque<Pending> pending_;
};

}  // namespace llamay::grammar
