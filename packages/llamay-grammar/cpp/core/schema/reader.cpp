// Every schema is read once for each dynamic scope. The target of a reference is read after the schema that
// contains the reference.
#include "schema/reader.h"

#include "automata/algebra.h"
#include "regex/pattern.h"
#include "schema/keywords.h"
#include "support/compile_error.h"
#include "text/uri.h"

namespace llamay::grammar {

SchemaReader::SchemaReader(Formulas& formulas, const SchemaOptions& options, Budget& budget)
    : f_(formulas), options_(options), budget_(budget), index_(options, budget) {}

FormulaId SchemaReader::read(const Json& document, const std::string& base, const std::string& where) {
  SchemaIndex::Place root = index_.add(document, base);
  root.pointer = where;
  FormulaId out = place(root, 0);
  while (!pending_.empty()) {
    Pending p = pending_.front();
    pending_.pop_front();
    Path at{nullptr, p.pointer};
    f_.bind(p.ref, compile(*p.schema, at, p.scope, 0));
  }
  return out;
}

FormulaId SchemaReader::compile(const Json& s, const Path& at, uint32_t scope, uint32_t depth) {
  budget_.tick();
  if (depth > budget_.depth) throw CompileError("", at.text(), "the schema is nested too deep");
  if (s.is(JsonKind::True)) return f_.yes();
  if (s.is(JsonKind::False)) return f_.no();
  if (!s.is(JsonKind::Object)) throw CompileError("", at.text(), "a schema must be an object or a boolean");
  if (s.members.empty()) return f_.yes();
  if (index_.dynamic())
    if (auto base = index_.base_of(s)) scope = enter(scope, *base);
  const Site site{s, at, scope, depth, index_.draft_of(s)};
  FormulaId out = Keywords(*this, site).read();
  if (f_.tracking) f_.origin.emplace(out, at.text());
  return out;
}

FormulaId SchemaReader::place(const SchemaIndex::Place& target, uint32_t scope) {
  scope = enter(scope, target.base);
  auto [it, fresh] = refs_.emplace(std::make_pair(target.schema, scope), 0);
  if (fresh) {
    it->second = f_.new_ref(target.pointer);
    pending_.push_back({target.schema, scope, it->second, target.pointer});
  }
  return f_.ref(it->second);
}

SchemaIndex::Place SchemaReader::dynamic_place(const Json& from, const std::string& reference, bool recursive,
                                               const Path& at, uint32_t scope) {
  SchemaIndex::Place p = index_.locate(from, reference, at, recursive ? "$recursiveRef" : "$dynamicRef");
  std::string document, name;
  split_fragment(reference, document, name);
  if (recursive) name.clear();
  // The reference is dynamic only if its static target is a dynamic anchor.
  if ((recursive || (!name.empty() && name[0] != '/')) && index_.dynamic_anchor(p.base, name) == p.schema)
    for (const std::string& base : scopes_.resources(scope))
      if (const Json* s = index_.dynamic_anchor(base, name)) {
        p.schema = s, p.base = base;
        break;
      }
  return p;
}

// In documents without dynamic references and anchors, every scope has number 0, so that every schema is read
// once.
uint32_t SchemaReader::enter(uint32_t scope, const std::string& base) {
  return index_.dynamic() ? scopes_.enter(scope, base) : 0;
}

LanguagePtr SchemaReader::pattern_names(const std::string& source, const Path& at) {
  try {
    Pattern p = compile_pattern(source, false, budget_);
    return with_length(p.language, p.min, p.max, budget_);
  } catch (const CompileError& e) {
    if (e.keyword == "budget") throw;
    throw CompileError("patternProperties", at.text() + "/patternProperties", e.what());
  }
}

bool SchemaReader::dropped(const Path& at, const std::string& key) const {
  return !options_.dropped.empty() && options_.dropped.count(at.text() + "/" + escape_pointer(key));
}

}  // namespace llamay::grammar
