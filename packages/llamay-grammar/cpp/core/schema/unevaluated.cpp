// unevaluatedProperties and unevaluatedItems (JSON Schema 2020-12, core, section 11).
//
// The members and items that the other keywords of a schema evaluate can depend on the value: an `anyOf`
// evaluates the members that its satisfied subschemas evaluate. So the evaluated members are collected case
// by case, each case under a condition, and the rule for the unevaluated members becomes a disjunction over
// the cases.
#include <algorithm>

#include "schema/reader.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

// The members or items that a schema evaluates under a condition.
struct Seen {
  FormulaId condition = 0;
  bool all_members = false, all_items = false;
  std::vector<std::string> names;
  std::vector<LanguagePtr> patterns;
  size_t items = 0;                   // the number of evaluated items from the first one on
  std::vector<FormulaId> item_rules;  // an item that satisfies one of these formulas is evaluated

  bool nothing() const {
    return !all_members && !all_items && names.empty() && patterns.empty() && !items && item_rules.empty();
  }
};
using Cases = std::vector<Seen>;

bool nothing(const Cases& cases) {
  return std::all_of(cases.begin(), cases.end(), [](const Seen& x) { return x.nothing(); });
}

Seen merged(const Seen& a, const Seen& b) {
  Seen r = a;
  r.all_members |= b.all_members, r.all_items |= b.all_items;
  r.names.insert(r.names.end(), b.names.begin(), b.names.end());
  r.patterns.insert(r.patterns.end(), b.patterns.begin(), b.patterns.end());
  r.items = std::max(r.items, b.items);
  r.item_rules.insert(r.item_rules.end(), b.item_rules.begin(), b.item_rules.end());
  return r;
}

}  // namespace

// Collects the cases of members, or the cases of items.
class SchemaReader::Evaluated {
 public:
  Evaluated(SchemaReader& reader, bool members) : reader_(reader), f_(reader.f_), members_(members) {}

  // Returns the cases of a schema. With `own`, unevaluatedProperties (unevaluatedItems) of the schema itself
  // evaluates members (items), too. Throws CompileError for too many cases and for an endless chain of
  // references.
  Cases cases(const Site& site, bool own) {
    if (!site.schema.is(JsonKind::Object)) return {seen_nothing()};
    if (site.depth > 32)
      throw CompileError("unevaluatedProperties", site.at.text(),
                         "what is evaluated cannot be told statically");
    reader_.budget_.tick();
    Cases out{members_ ? members_of(site, own) : items_of(site, own)};
    references(site, out);
    applicators(site, out);
    conditional(site, out);
    dependents(site, out);
    return out;
  }

 private:
  SchemaReader& reader_;
  Formulas& f_;
  bool members_;

  Seen seen_nothing() const {
    Seen s;
    s.condition = f_.yes();
    return s;
  }

  Seen members_of(const Site& site, bool own) {
    Seen seen = seen_nothing();
    const Json& s = site.schema;
    if (const Json* v = s.get("properties"); v && v->is(JsonKind::Object))
      for (auto& m : v->members) seen.names.push_back(m.first);
    if (const Json* v = s.get("patternProperties"); v && v->is(JsonKind::Object))
      for (auto& m : v->members) seen.patterns.push_back(reader_.pattern_names(m.first, site.at));
    seen.all_members = s.get("additionalProperties") || (own && s.get("unevaluatedProperties"));
    return seen;
  }

  Seen items_of(const Site& site, bool own) {
    Seen seen = seen_nothing();
    const Json& s = site.schema;
    const Json *items = s.get("items"), *prefix = s.get("prefixItems");
    if (items && items->is(JsonKind::Array)) {
      seen.items = items->items.size();
      seen.all_items = s.get("additionalItems") != nullptr;
    } else {
      if (prefix && prefix->is(JsonKind::Array)) seen.items = prefix->items.size();
      seen.all_items = items != nullptr;
    }
    if (const Json* c = s.get("contains"); c && site.draft != Draft::D2019)
      seen.item_rules.push_back(formula(site, *c, "contains"));
    seen.all_items |= own && s.get("unevaluatedItems");
    return seen;
  }

  void references(const Site& site, Cases& out) {
    auto follow = [&](const SchemaIndex::Place& p) {
      Path at{nullptr, p.pointer};
      const uint32_t scope = reader_.enter(site.scope, p.base);
      cross(out, cases({*p.schema, at, scope, site.depth + 1, reader_.index_.draft_of(*p.schema)}, true),
            site);
    };
    if (const Json* r = site.schema.get("$ref"); r && r->is(JsonKind::String))
      follow(reader_.index_.locate(site.schema, r->text, site.at, "$ref"));
    for (const bool recursive : {false, true})
      if (const Json* r = site.schema.get(recursive ? "$recursiveRef" : "$dynamicRef");
          r && r->is(JsonKind::String))
        follow(reader_.dynamic_place(site.schema, r->text, recursive, site.at, site.scope));
  }

  void applicators(const Site& site, Cases& out) {
    if (const Json* v = site.schema.get("allOf"); v && v->is(JsonKind::Array))
      for (size_t i = 0; i < v->items.size(); ++i) cross(out, child(site, v->items[i], "allOf", i), site);
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* v = site.schema.get(key); v && v->is(JsonKind::Array))
        for (size_t i = 0; i < v->items.size(); ++i) {
          const FormulaId holds = formula(site, v->items[i], key, i);
          either(out, holds, child(site, v->items[i], key, i), {seen_nothing()}, site);
        }
  }

  void conditional(const Site& site, Cases& out) {
    const Json* condition = site.schema.get("if");
    if (!condition) return;
    const FormulaId holds = formula(site, *condition, "if");
    Cases yes = child(site, *condition, "if"), no{seen_nothing()};
    if (const Json* v = site.schema.get("then")) yes = product(yes, child(site, *v, "then"));
    if (const Json* v = site.schema.get("else")) no = child(site, *v, "else");
    either(out, holds, std::move(yes), std::move(no), site);
  }

  void dependents(const Site& site, Cases& out) {
    const Json* v = site.schema.get("dependentSchemas");
    if (!v || !v->is(JsonKind::Object) || !members_) return;
    Path here{&site.at, "dependentSchemas"};
    for (auto& [name, x] : v->members) {
      Path at{&here, name};
      const FormulaId holds = f_.all({f_.type(kObject), f_.require(name)});
      Cases then = cases({x, at, site.scope, site.depth + 1, reader_.index_.draft_of(x)}, true);
      either(out, holds, std::move(then), {seen_nothing()}, site);
    }
  }

  Cases product(const Cases& a, const Cases& b) {
    Cases out;
    for (auto& x : a)
      for (auto& y : b) {
        Seen m = merged(x, y);
        m.condition = f_.all({x.condition, y.condition});
        if (m.condition != f_.no()) out.push_back(std::move(m));
      }
    return out;
  }

  void cross(Cases& out, const Cases& with, const Site& site) {
    out = product(out, with);
    if (out.size() > 256)
      throw CompileError(members_ ? "unevaluatedProperties" : "unevaluatedItems", site.at.text(),
                         "too many combinations decide what is evaluated");
  }

  // Combines `out` with the cases `yes` under the condition that a formula holds and with the cases `no`
  // under the condition that the formula does not hold.
  void either(Cases& out, FormulaId holds, Cases yes, Cases no, const Site& site) {
    if (nothing(yes) && nothing(no)) return;
    for (auto& x : yes) x.condition = f_.all({x.condition, holds});
    for (auto& x : no) x.condition = f_.all({x.condition, f_.negate(holds)});
    yes.insert(yes.end(), no.begin(), no.end());
    cross(out, yes, site);
  }

  Cases child(const Site& site, const Json& v, std::string_view key, size_t index = SIZE_MAX) {
    Path at{&site.at, key, index};
    return cases({v, at, site.scope, site.depth + 1, reader_.index_.draft_of(v)}, true);
  }

  FormulaId formula(const Site& site, const Json& v, std::string_view key, size_t index = SIZE_MAX) {
    Path at{&site.at, key, index};
    return reader_.compile(v, at, site.scope, site.depth + 1);
  }
};

FormulaId SchemaReader::unevaluated(const Site& site, const char* keyword, FormulaId rule) {
  const bool members = keyword == std::string_view("unevaluatedProperties");
  const Site top{site.schema, site.at, site.scope, 0, site.draft};
  std::vector<FormulaId> cases;
  for (Seen& seen : Evaluated(*this, members).cases(top, false)) {
    FormulaId here = f_.yes();
    if (members && !seen.all_members) {
      PropsSpec p;
      std::sort(seen.names.begin(), seen.names.end());
      seen.names.erase(std::unique(seen.names.begin(), seen.names.end()), seen.names.end());
      p.declares = false;
      for (auto& n : seen.names) p.names.emplace_back(n, f_.yes());
      for (auto& l : seen.patterns) p.patterns.emplace_back(l, f_.yes());
      p.additional = rule;
      here = f_.props(std::move(p));
    } else if (!members && !seen.all_items) {
      ItemsSpec i;
      i.prefix.assign(seen.items, f_.yes());
      seen.item_rules.push_back(rule);
      i.rest = f_.any(std::move(seen.item_rules));
      here = f_.items(std::move(i));
    }
    cases.push_back(f_.all({seen.condition, here}));
  }
  return f_.any(std::move(cases));
}

}  // namespace llamay::grammar
