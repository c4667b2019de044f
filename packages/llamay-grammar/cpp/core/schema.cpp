#include "schema.h"

#include <algorithm>

#include "formats.h"
#include "lang_algebra.h"
#include "uri.h"

namespace llamay::grammar {
namespace {

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

const char* const kSchemaMaps[] = {"properties", "patternProperties", "definitions",
                                   "$defs",      "dependentSchemas",  "dependencies"};
const char* const kSchemaLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
const char* const kSchemas[] = {"not",
                                "if",
                                "then",
                                "else",
                                "items",
                                "additionalItems",
                                "additionalProperties",
                                "contains",
                                "propertyNames",
                                "unevaluatedItems",
                                "unevaluatedProperties",
                                "contentSchema"};

std::optional<Draft> draft_of_uri(std::string_view uri) {
  while (!uri.empty() && uri.back() == '#') uri.remove_suffix(1);
  for (std::string_view scheme : {"http://", "https://"})
    if (uri.substr(0, scheme.size()) == scheme) uri.remove_prefix(scheme.size());
  if (uri == "json-schema.org/draft-04/schema") return Draft::D4;
  if (uri == "json-schema.org/draft-06/schema") return Draft::D6;
  if (uri == "json-schema.org/draft-07/schema") return Draft::D7;
  if (uri == "json-schema.org/draft/2019-09/schema") return Draft::D2019;
  if (uri == "json-schema.org/draft/2020-12/schema") return Draft::D2020;
  return std::nullopt;
}

}  // namespace

std::string SchemaReader::Path::text() const {
  if (!parent) return std::string(key);
  std::string out = parent->text() + "/" + escape_pointer(key);
  if (index != SIZE_MAX) out += "/" + std::to_string(index);
  return out;
}

SchemaReader::SchemaReader(Formulas& formulas, const SchemaOptions& options, Budget& budget)
    : f_(formulas), options_(options), budget_(budget) {
  scopes_.emplace_back();
  scope_ids_[{}] = 0;
}

void SchemaReader::refuse(const Path& at, const char* keyword, const std::string& why) const {
  throw CompileError(keyword, at.text() + "/" + keyword, why);
}

// ---- Where schemas are ----

void SchemaReader::index(const Json& s, const std::string& base_in, uint32_t depth, Draft draft) {
  if (!s.is(JsonKind::Object) || depth > budget_.depth) return;
  budget_.tick();
  std::string base = base_in;
  if (const Json* d = s.get("$schema"); d && d->is(JsonKind::String))
    if (auto known = draft_of_uri(d->text)) draft = *known;
  draft_[&s] = draft;
  bool old = draft == Draft::D4 || draft == Draft::D6 || draft == Draft::D7;
  bool ref_only = old && s.get("$ref");
  if (!ref_only) {
    for (const char* key : {"$id", "id"}) {
      if ((key[0] == '$') == (draft == Draft::D4) && draft != Draft::Any) continue;
      const Json* id = s.get(key);
      if (!id || !id->is(JsonKind::String) || id->text.empty()) continue;
      std::string absolute = resolve_uri(base, id->text), document, fragment;
      split_fragment(absolute, document, fragment);
      if (id->text[0] == '#') {
        if (old || draft == Draft::Any) anchors_.emplace(base + "#" + fragment, &s);
      } else {
        base = document;
        resources_.emplace(base, &s);
        if (!fragment.empty()) anchors_.emplace(base + "#" + fragment, &s);
      }
      break;
    }
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (const Json* a = s.get(key); a && a->is(JsonKind::String) && !old) {
        anchors_.emplace(base + "#" + a->text, &s);
        if (key[1] == 'd') dynamic_anchors_.emplace(base + "#" + a->text, &s), dynamic_ = true;
      }
    if (const Json* a = s.get("$recursiveAnchor"); a && a->is(JsonKind::True))
      dynamic_anchors_.emplace(base + "#", &s), dynamic_ = true;
  }
  if (s.get("$dynamicRef") || s.get("$recursiveRef")) dynamic_ = true;
  base_of_[&s] = base;
  for (const char* key : kSchemaMaps)
    if (const Json* m = s.get(key); m && m->is(JsonKind::Object))
      for (auto& [name, sub] : m->members) index(sub, base, depth + 1, draft);
  for (const char* key : kSchemaLists)
    if (const Json* l = s.get(key); l && l->is(JsonKind::Array))
      for (auto& sub : l->items) index(sub, base, depth + 1, draft);
  for (const char* key : kSchemas)
    if (const Json* sub = s.get(key)) index(*sub, base, depth + 1, draft);
}

Draft SchemaReader::draft_of(const Json& schema) const {
  auto it = draft_.find(&schema);
  return it == draft_.end() ? options_.draft : it->second;
}

SchemaReader::Target SchemaReader::locate(const std::string& absolute, const Path& at, const char* keyword) {
  std::string document, fragment;
  split_fragment(absolute, document, fragment);
  auto it = resources_.find(document);
  if (it == resources_.end()) {
    std::optional<std::string> text;
    if (options_.resolver && !document.empty()) text = options_.resolver(document);
    if (!text)
      refuse(at, keyword,
             "the reference '" + absolute + "' leads outside the schema, and no resolver knows '" + document +
                 "'");
    if (documents_.size() > 1000) refuse(at, keyword, "references lead to more than 1000 documents");
    require_utf8(*text);
    documents_.push_back(parse_json(*text, budget_.depth));
    resources_.emplace(document, &documents_.back());
    index(documents_.back(), document, 0, options_.draft);
    it = resources_.find(document);
  }
  Target t{it->second, document, ""};
  if (auto b = base_of_.find(t.schema); b != base_of_.end()) t.base = b->second;
  if (fragment.empty()) return t;
  if (fragment[0] != '/') {
    for (const std::string& base : {document, t.base})
      if (auto a = anchors_.find(base + "#" + fragment); a != anchors_.end()) {
        t.schema = a->second;
        if (auto b = base_of_.find(t.schema); b != base_of_.end()) t.base = b->second;
        t.pointer = "#" + fragment;
        return t;
      }
    refuse(at, keyword, "the reference '" + absolute + "' names an anchor that does not exist");
  }
  Draft draft = draft_of(*t.schema);
  for (size_t i = 1; i <= fragment.size();) {
    size_t e = std::min(fragment.find('/', i), fragment.size());
    std::string token;
    for (size_t k = i; k < e; ++k) {
      if (fragment[k] == '~' && k + 1 < e && (fragment[k + 1] == '0' || fragment[k + 1] == '1'))
        token += fragment[++k] == '0' ? '~' : '/';
      else
        token += fragment[k];
    }
    const Json* next = nullptr;
    if (t.schema->is(JsonKind::Object)) {
      next = t.schema->get(token);
    } else if (t.schema->is(JsonKind::Array) && !token.empty() && token.size() < 9 &&
               token.find_first_not_of("0123456789") == token.npos) {
      size_t n = std::stoul(token);
      if (n < t.schema->items.size()) next = &t.schema->items[n];
    }
    if (!next) refuse(at, keyword, "the reference '" + absolute + "' points at nothing");
    t.schema = next;
    if (auto b = base_of_.find(next); b != base_of_.end()) t.base = b->second, draft = draft_of(*next);
    i = e + 1;
  }
  if (!base_of_.count(t.schema)) index(*t.schema, t.base, 0, draft);
  t.pointer = fragment;
  return t;
}

uint32_t SchemaReader::enter(uint32_t scope, const std::string& base) {
  if (!dynamic_) return 0;
  auto list = scopes_[scope];
  if (std::find(list.begin(), list.end(), base) != list.end()) return scope;
  list.push_back(base);
  auto [it, fresh] = scope_ids_.emplace(list, static_cast<uint32_t>(scopes_.size()));
  if (fresh) {
    if (scopes_.size() > 1000)
      throw CompileError("$dynamicRef", "", "too many combinations of dynamic scopes");
    scopes_.push_back(list);
  }
  return it->second;
}

FormulaId SchemaReader::place(const Target& t, uint32_t scope) {
  scope = enter(scope, t.base);
  auto [it, fresh] = refs_.emplace(std::make_pair(t.schema, scope), 0);
  if (fresh) {
    it->second = f_.new_ref(t.pointer);
    pending_.push_back({t.schema, scope, it->second, t.pointer});
  }
  return f_.ref(it->second);
}

FormulaId SchemaReader::reference(const std::string& uri, const Path& at, uint32_t scope, const Json& from) {
  auto b = base_of_.find(&from);
  return place(locate(resolve_uri(b == base_of_.end() ? "" : b->second, uri), at, "$ref"), scope);
}

FormulaId SchemaReader::dynamic_reference(const Json& from, const std::string& value, bool recursive,
                                          const Path& at, uint32_t scope) {
  const char* keyword = recursive ? "$recursiveRef" : "$dynamicRef";
  auto b = base_of_.find(&from);
  Target t = locate(resolve_uri(b == base_of_.end() ? "" : b->second, value), at, keyword);
  std::string document, fragment;
  split_fragment(value, document, fragment);
  auto declared = [&](const std::string& base) -> const Json* {
    auto it = dynamic_anchors_.find(base + "#" + (recursive ? "" : fragment));
    return it == dynamic_anchors_.end() ? nullptr : it->second;
  };
  // Dynamic only when the place it leads to statically is a dynamic anchor too.
  if ((recursive || (!fragment.empty() && fragment[0] != '/')) && declared(t.base) == t.schema)
    for (const std::string& base : scopes_[scope])
      if (const Json* s = declared(base)) {
        t.schema = s, t.base = base;
        break;
      }
  return place(t, scope);
}

FormulaId SchemaReader::read(const Json& document, const std::string& base, const std::string& where) {
  documents_.push_back(document);
  const Json& root = documents_.back();
  resources_[base] = &root;
  index(root, base, 0, options_.draft);
  Target t{&root, base, where};
  if (auto b = base_of_.find(&root); b != base_of_.end()) t.base = b->second;
  if (dynamic_ && scope_ids_.size() == 1) scope_ids_[{}] = 0;
  FormulaId out = place(t, 0);
  while (!pending_.empty()) {
    Pending p = pending_.front();
    pending_.pop_front();
    Path at{nullptr, p.pointer};
    f_.bind(p.ref, compile(*p.schema, at, p.scope, 0));
  }
  return out;
}

// ---- Keywords ----

FormulaId SchemaReader::compile(const Json& s, const Path& at, uint32_t scope, uint32_t depth) {
  budget_.tick();
  if (depth > budget_.depth) throw CompileError("", at.text(), "the schema is nested too deep");
  if (s.is(JsonKind::True)) return f_.yes();
  if (s.is(JsonKind::False)) return f_.no();
  if (!s.is(JsonKind::Object)) throw CompileError("", at.text(), "a schema must be an object or a boolean");
  if (s.members.empty()) return f_.yes();
  if (dynamic_)
    if (auto b = base_of_.find(&s); b != base_of_.end()) scope = enter(scope, b->second);
  FormulaId out = keywords(s, at, scope, depth, draft_of(s));
  if (f_.tracking) f_.origin.emplace(out, at.text());
  return out;
}

uint64_t SchemaReader::size_of(const Json& v, const Path& at, const char* keyword) {
  if (!v.is(JsonKind::Number) || v.number.negative || !v.number.integral())
    refuse(at, keyword, std::string(keyword) + " must be a non-negative integer");
  if (v.number.width() > 18) return UINT64_MAX - 1;
  return std::stoull(v.number.plain());
}

LangPtr SchemaReader::pattern_names(const std::string& source, const Path& at) {
  try {
    Pattern p = compile_pattern(source, false, budget_);
    return with_length(p.lang, p.min, p.max, budget_);
  } catch (const CompileError& e) {
    if (e.keyword == "budget") throw;
    refuse(at, "patternProperties", e.what());
  }
}

bool SchemaReader::dropped(const Path& at, const std::string& key) const {
  return !options_.dropped.empty() && options_.dropped.count(at.text() + "/" + escape_pointer(key));
}

FormulaId SchemaReader::keywords(const Json& s, const Path& at, uint32_t scope, uint32_t depth, Draft draft) {
  const bool any = draft == Draft::Any;
  auto within = [&](Draft lo, Draft hi = Draft::D2020) { return any || (draft >= lo && draft <= hi); };
  std::vector<FormulaId> and_;
  auto sub = [&](const Json& v, std::string_view key, size_t i = SIZE_MAX) {
    Path p{&at, key, i};
    return compile(v, p, scope, depth + 1);
  };

  if (const Json* r = s.get("$ref"); r && r->is(JsonKind::String) && !dropped(at, "$ref")) {
    and_.push_back(reference(r->text, at, scope, s));
    if (draft == Draft::D4 || draft == Draft::D6 || draft == Draft::D7) return and_[0];
  }
  if (const Json* r = s.get("$dynamicRef"); r && r->is(JsonKind::String) && within(Draft::D2020))
    and_.push_back(dynamic_reference(s, r->text, false, at, scope));
  if (const Json* r = s.get("$recursiveRef");
      r && r->is(JsonKind::String) && within(Draft::D2019, Draft::D2019))
    and_.push_back(dynamic_reference(s, r->text, true, at, scope));

  NumberSpec number;
  bool has_number = false;
  StringSpec length;
  length.lang = lang_any();
  Range array_length, member_count;
  PropsSpec props;
  props.additional = f_.yes();
  bool has_props = false, has_additional = false;
  const Json *prefix = nullptr, *items = nullptr, *additional_items = nullptr, *contains = nullptr;
  uint64_t min_contains = 1, max_contains = UINT64_MAX;
  const Json *if_ = nullptr, *then_ = nullptr, *else_ = nullptr;
  bool unevaluated = false;

  auto small = [&](const Json& v, const char* k) {
    return static_cast<uint32_t>(std::min<uint64_t>(size_of(v, at, k), kInf - 1));
  };
  auto need = [&](const Json& v, JsonKind kind, const char* k, const char* what) {
    if (!v.is(kind)) refuse(at, k, std::string(k) + " must be " + what);
  };
  auto list = [&](const Json& v, const char* k) {
    need(v, JsonKind::Array, k, "an array of schemas");
    std::vector<FormulaId> out;
    for (size_t i = 0; i < v.items.size(); ++i) out.push_back(sub(v.items[i], k, i));
    return out;
  };
  auto strings = [&](const Json& v, const char* k) {
    need(v, JsonKind::Array, k, "an array of strings");
    std::vector<std::string> out;
    for (auto& x : v.items) {
      if (!x.is(JsonKind::String)) refuse(at, k, std::string(k) + " must be an array of strings");
      out.push_back(x.text);
    }
    return out;
  };

  for (auto& [key, v] : s.members) {
    if (dropped(at, key)) continue;
    try {
      if (key == "type") {
        uint8_t mask = 0;
        bool integer = false, num = false;
        auto one = [&](const Json& t) {
          if (!t.is(JsonKind::String)) refuse(at, "type", "a type must be a string");
          if (t.text == "null")
            mask |= kNull;
          else if (t.text == "boolean")
            mask |= kBoolean;
          else if (t.text == "number")
            mask |= kNumber, num = true;
          else if (t.text == "integer")
            mask |= kNumber, integer = true;
          else if (t.text == "string")
            mask |= kString;
          else if (t.text == "array")
            mask |= kArray;
          else if (t.text == "object")
            mask |= kObject;
          else
            refuse(at, "type", "unknown type '" + t.text + "'");
        };
        if (v.is(JsonKind::Array))
          for (auto& t : v.items) one(t);
        else
          one(v);
        and_.push_back(f_.type(mask));
        if (integer && !num) number.integer = has_number = true, number.plain_integer = draft == Draft::D4;
      } else if (key == "enum") {
        need(v, JsonKind::Array, "enum", "an array");
        std::vector<const Json*> values;
        for (auto& x : v.items) values.push_back(&x);
        and_.push_back(f_.one_of_values(values));
      } else if (key == "const" && within(Draft::D6)) {
        and_.push_back(f_.equals(v));
      } else if (key == "minimum" || key == "maximum") {
        need(v, JsonKind::Number, key.c_str(), "a number");
        NumberSpec n;
        bool lower = key == "minimum";
        const Json* open = s.get(lower ? "exclusiveMinimum" : "exclusiveMaximum");
        bool strict = open && open->is(JsonKind::True);
        (lower ? n.lo : n.hi) = v.number;
        (lower ? n.lo_open : n.hi_open) = strict;
        number.merge(n), has_number = true;
      } else if ((key == "exclusiveMinimum" || key == "exclusiveMaximum") && !v.is_bool() &&
                 within(Draft::D6)) {
        need(v, JsonKind::Number, key.c_str(), "a number");
        NumberSpec n;
        bool lower = key == "exclusiveMinimum";
        (lower ? n.lo : n.hi) = v.number;
        (lower ? n.lo_open : n.hi_open) = true;
        number.merge(n), has_number = true;
      } else if (key == "multipleOf") {
        if (!v.is(JsonKind::Number) || v.number.negative || v.number.zero())
          refuse(at, "multipleOf", "multipleOf must be a number greater than 0");
        number.multiples.push_back(v.number), has_number = true;
      } else if (key == "minLength") {
        length.min = small(v, "minLength");
      } else if (key == "maxLength") {
        length.max = small(v, "maxLength");
      } else if (key == "pattern") {
        need(v, JsonKind::String, "pattern", "a string");
        Pattern p = compile_pattern(v.text, false, budget_);
        StringSpec spec;
        spec.lang = p.lang, spec.min = p.min, spec.max = p.max;
        and_.push_back(f_.string(std::move(spec)));
      } else if (key == "format") {
        if (v.is(JsonKind::String) && options_.formats == FormatMode::Assert)
          if (auto p = format_language(v.text, budget_)) {
            StringSpec spec;
            spec.lang = p->lang, spec.min = p->min, spec.max = p->max;
            and_.push_back(f_.string(std::move(spec)));
          }
      } else if (key == "minItems") {
        array_length.min = size_of(v, at, "minItems");
      } else if (key == "maxItems") {
        array_length.max = size_of(v, at, "maxItems");
      } else if (key == "uniqueItems") {
        if (!v.is_bool()) refuse(at, "uniqueItems", "uniqueItems must be a boolean");
        if (v.is(JsonKind::True)) and_.push_back(f_.unique());
      } else if (key == "prefixItems" && within(Draft::D2020)) {
        need(v, JsonKind::Array, "prefixItems", "an array of schemas");
        prefix = &v;
      } else if (key == "items") {
        if (v.is(JsonKind::Array) && !within(Draft::D4, Draft::D2019))
          refuse(at, "items", "items must be a schema");
        (v.is(JsonKind::Array) ? prefix : items) = &v;
      } else if (key == "additionalItems" && within(Draft::D4, Draft::D2019)) {
        additional_items = &v;
      } else if (key == "contains" && within(Draft::D6)) {
        contains = &v;
      } else if (key == "minContains" && within(Draft::D2019)) {
        min_contains = size_of(v, at, "minContains");
      } else if (key == "maxContains" && within(Draft::D2019)) {
        max_contains = size_of(v, at, "maxContains");
      } else if (key == "properties") {
        need(v, JsonKind::Object, "properties", "an object");
        Path here{&at, "properties"};
        for (auto& [name, schema] : v.members) {
          Path p{&here, name};
          props.names.emplace_back(name, compile(schema, p, scope, depth + 1));
        }
        has_props = true;
      } else if (key == "patternProperties") {
        need(v, JsonKind::Object, "patternProperties", "an object");
        Path here{&at, "patternProperties"};
        for (auto& [name, schema] : v.members) {
          Path p{&here, name};
          props.patterns.emplace_back(pattern_names(name, at), compile(schema, p, scope, depth + 1));
        }
        has_props = true;
      } else if (key == "additionalProperties") {
        props.additional = sub(v, "additionalProperties");
        has_props = has_additional = true;
      } else if (key == "required") {
        if (v.is_bool() && any) continue;  // draft 3's form, an annotation to every later draft
        for (auto& name : strings(v, "required")) and_.push_back(f_.require(name));
      } else if (key == "minProperties") {
        member_count.min = size_of(v, at, "minProperties");
      } else if (key == "maxProperties") {
        member_count.max = size_of(v, at, "maxProperties");
      } else if (key == "propertyNames" && within(Draft::D6)) {
        and_.push_back(f_.names(sub(v, "propertyNames")));
      } else if ((key == "dependencies" && within(Draft::D4, Draft::D7)) ||
                 ((key == "dependentRequired" || key == "dependentSchemas") && within(Draft::D2019))) {
        need(v, JsonKind::Object, key.c_str(), "an object");
        Path here{&at, key};
        for (auto& [name, x] : v.members) {
          if (x.is(JsonKind::Array) && key != "dependentSchemas") {
            and_.push_back(f_.depend({name, strings(x, key.c_str())}));
          } else if (x.is(JsonKind::String) && key == "dependencies" && any) {
            and_.push_back(f_.depend({name, {x.text}}));
          } else {
            Path p{&here, name};
            FormulaId then = compile(x, p, scope, depth + 1);
            FormulaId present = f_.require(name);
            and_.push_back(
                f_.any({f_.negate(present), f_.all({present, then}), f_.type(kAnyType & ~kObject)}));
          }
        }
      } else if (key == "allOf") {
        and_.push_back(f_.all(list(v, "allOf")));
      } else if (key == "anyOf") {
        and_.push_back(f_.any(list(v, "anyOf")));
      } else if (key == "oneOf") {
        and_.push_back(f_.one(list(v, "oneOf")));
      } else if (key == "not") {
        and_.push_back(f_.negate(sub(v, "not")));
      } else if (key == "if" && within(Draft::D7)) {
        if_ = &v;
      } else if (key == "then" && within(Draft::D7)) {
        then_ = &v;
      } else if (key == "else" && within(Draft::D7)) {
        else_ = &v;
      } else if ((key == "unevaluatedProperties" || key == "unevaluatedItems") && within(Draft::D2019)) {
        unevaluated = true;
      } else if (key == "$ref" && !v.is(JsonKind::String)) {
        refuse(at, "$ref", "$ref must be a string");
      }
    } catch (CompileError& e) {
      if (!e.pointer.empty() || e.keyword == "json") throw;
      if (e.keyword == "budget") throw CompileError("budget", at.text() + "/" + key, e.what());
      throw CompileError(key, at.text() + "/" + escape_pointer(key), e.what());
    }
  }
  (void)has_additional;
  if (has_number) and_.push_back(f_.number(std::move(number)));
  if (length.min > length.max)
    and_.push_back(f_.type(kAnyType & ~kString));
  else
    and_.push_back(f_.string(std::move(length)));
  and_.push_back(f_.length(array_length));
  and_.push_back(f_.count(member_count));
  if (has_props) and_.push_back(f_.props(std::move(props)));
  if (prefix || items) {
    ItemsSpec spec;
    spec.rest = f_.yes();
    if (prefix) {
      const char* k = s.get("prefixItems") == prefix ? "prefixItems" : "items";
      for (size_t i = 0; i < prefix->items.size(); ++i) spec.prefix.push_back(sub(prefix->items[i], k, i));
      if (items && k[0] == 'p') spec.rest = sub(*items, "items");
      if (additional_items && k[0] == 'i') spec.rest = sub(*additional_items, "additionalItems");
    } else {
      spec.rest = sub(*items, "items");
    }
    and_.push_back(f_.items(std::move(spec)));
  }
  if (contains) {
    ContainsSpec c;
    c.item = sub(*contains, "contains"), c.min = min_contains, c.max = max_contains;
    and_.push_back(f_.contains(c));
  }
  if (if_ && (then_ || else_) && !dropped(at, "if")) {
    FormulaId cond = sub(*if_, "if");
    FormulaId yes = then_ ? sub(*then_, "then") : f_.yes(), no = else_ ? sub(*else_, "else") : f_.yes();
    and_.push_back(f_.any({f_.all({cond, yes}), f_.all({f_.negate(cond), no})}));
  }
  if (unevaluated) {
    for (const char* key : {"unevaluatedProperties", "unevaluatedItems"}) {
      const Json* v = s.get(key);
      if (!v || dropped(at, key)) continue;
      bool members = key[11] == 'P';
      FormulaId rule = sub(*v, key);
      if (rule == f_.yes()) continue;
      std::vector<FormulaId> cases;
      for (auto& c : seen(s, at, scope, 0, draft, members, false)) {
        FormulaId here = f_.yes();
        if (members && !c.all_members) {
          PropsSpec p;
          std::sort(c.names.begin(), c.names.end());
          c.names.erase(std::unique(c.names.begin(), c.names.end()), c.names.end());
          for (auto& n : c.names) p.names.emplace_back(n, f_.yes());
          for (auto& l : c.patterns) p.patterns.emplace_back(l, f_.yes());
          p.additional = rule;
          here = f_.props(std::move(p));
        } else if (!members && !c.all_items) {
          ItemsSpec i;
          i.prefix.assign(c.items, f_.yes());
          auto or_ = c.item_rules;
          or_.push_back(rule);
          i.rest = f_.any(std::move(or_));
          here = f_.items(std::move(i));
        }
        cases.push_back(f_.all({c.condition, here}));
      }
      and_.push_back(f_.any(std::move(cases)));
    }
  }
  return f_.all(std::move(and_));
}

// ---- unevaluatedProperties and unevaluatedItems ----

std::vector<SchemaReader::Seen> SchemaReader::seen(const Json& s, const Path& at, uint32_t scope,
                                                   uint32_t depth, Draft draft, bool members, bool own) {
  Seen base;
  base.condition = f_.yes();
  if (!s.is(JsonKind::Object)) return {base};
  if (depth > 32)
    throw CompileError("unevaluatedProperties", at.text(), "what is evaluated cannot be told statically");
  budget_.tick();
  const char* key = members ? "unevaluatedProperties" : "unevaluatedItems";
  auto merge = [](const Seen& a, const Seen& b) {
    Seen r = a;
    r.all_members |= b.all_members, r.all_items |= b.all_items;
    r.names.insert(r.names.end(), b.names.begin(), b.names.end());
    r.patterns.insert(r.patterns.end(), b.patterns.begin(), b.patterns.end());
    r.items = std::max(r.items, b.items);
    r.item_rules.insert(r.item_rules.end(), b.item_rules.begin(), b.item_rules.end());
    return r;
  };
  std::vector<Seen> out{base};
  auto cross = [&](const std::vector<Seen>& with) {
    std::vector<Seen> r;
    for (auto& a : out)
      for (auto& b : with) {
        Seen m = merge(a, b);
        m.condition = f_.all({a.condition, b.condition});
        if (m.condition != f_.no()) r.push_back(std::move(m));
      }
    if (r.size() > 256) throw CompileError(key, at.text(), "too many combinations decide what is evaluated");
    out = std::move(r);
  };
  auto child = [&](const Json& v, std::string_view k, size_t i = SIZE_MAX) {
    Path p{&at, k, i};
    return seen(v, p, scope, depth + 1, draft_of(v), members, true);
  };
  auto formula = [&](const Json& v, std::string_view k, size_t i = SIZE_MAX) {
    Path p{&at, k, i};
    return compile(v, p, scope, depth + 1);
  };
  auto empty = [](const std::vector<Seen>& c) {
    return std::all_of(c.begin(), c.end(), [](const Seen& x) {
      return !x.all_members && !x.all_items && x.names.empty() && x.patterns.empty() && !x.items &&
             x.item_rules.empty();
    });
  };
  // Cases in which the schema holds, with what it saw, and one in which it does not.
  auto maybe = [&](const Json& v, FormulaId cond, std::vector<Seen> c) {
    (void)v;
    if (empty(c)) return;
    for (auto& x : c) x.condition = f_.all({x.condition, cond});
    Seen no = base;
    no.condition = f_.negate(cond);
    c.push_back(no);
    cross(c);
  };
  if (members) {
    if (const Json* v = s.get("properties"); v && v->is(JsonKind::Object))
      for (auto& m : v->members) out[0].names.push_back(m.first);
    if (const Json* v = s.get("patternProperties"); v && v->is(JsonKind::Object))
      for (auto& m : v->members) out[0].patterns.push_back(pattern_names(m.first, at));
    if (s.get("additionalProperties") || (own && s.get("unevaluatedProperties"))) out[0].all_members = true;
  } else {
    const Json *items = s.get("items"), *prefix = s.get("prefixItems");
    if (items && items->is(JsonKind::Array)) {
      out[0].items = items->items.size();
      if (s.get("additionalItems")) out[0].all_items = true;
    } else {
      if (prefix && prefix->is(JsonKind::Array)) out[0].items = prefix->items.size();
      if (items) out[0].all_items = true;
    }
    if (const Json* c = s.get("contains"); c && draft != Draft::D2019)
      out[0].item_rules.push_back(formula(*c, "contains"));
    if (own && s.get("unevaluatedItems")) out[0].all_items = true;
  }
  auto follow = [&](const Json& r, const char* keyword) {
    auto b = base_of_.find(&s);
    Target t = locate(resolve_uri(b == base_of_.end() ? "" : b->second, r.text), at, keyword);
    Path p{nullptr, t.pointer};
    cross(seen(*t.schema, p, enter(scope, t.base), depth + 1, draft_of(*t.schema), members, true));
  };
  if (const Json* r = s.get("$ref"); r && r->is(JsonKind::String)) follow(*r, "$ref");
  for (const char* k : {"$dynamicRef", "$recursiveRef"})
    if (const Json* r = s.get(k); r && r->is(JsonKind::String)) {
      // Where it leads depends on the scope; the same rule as for the reference itself.
      auto b = base_of_.find(&s);
      Target t = locate(resolve_uri(b == base_of_.end() ? "" : b->second, r->text), at, k);
      std::string document, fragment;
      split_fragment(r->text, document, fragment);
      bool recursive = k[1] == 'r';
      auto name = [&](const std::string& base) { return base + "#" + (recursive ? "" : fragment); };
      auto it = dynamic_anchors_.find(name(t.base));
      if (it != dynamic_anchors_.end() && it->second == t.schema)
        for (auto& base2 : scopes_[scope])
          if (auto d = dynamic_anchors_.find(name(base2)); d != dynamic_anchors_.end()) {
            t.schema = d->second, t.base = base2;
            break;
          }
      Path p{nullptr, t.pointer};
      cross(seen(*t.schema, p, enter(scope, t.base), depth + 1, draft_of(*t.schema), members, true));
    }
  if (const Json* v = s.get("allOf"); v && v->is(JsonKind::Array))
    for (size_t i = 0; i < v->items.size(); ++i) cross(child(v->items[i], "allOf", i));
  for (const char* k : {"anyOf", "oneOf"})
    if (const Json* v = s.get(k); v && v->is(JsonKind::Array))
      for (size_t i = 0; i < v->items.size(); ++i)
        maybe(v->items[i], formula(v->items[i], k, i), child(v->items[i], k, i));
  if (const Json* v = s.get("if")) {
    FormulaId cond = formula(*v, "if");
    std::vector<Seen> yes = child(*v, "if"), no{base};
    if (const Json* t = s.get("then")) {
      std::vector<Seen> both;
      for (auto& a : yes)
        for (auto& b : child(*t, "then")) {
          Seen m = merge(a, b);
          m.condition = f_.all({a.condition, b.condition});
          both.push_back(std::move(m));
        }
      yes = std::move(both);
    }
    if (const Json* e = s.get("else")) no = child(*e, "else");
    if (!empty(yes) || !empty(no)) {
      for (auto& x : yes) x.condition = f_.all({x.condition, cond});
      for (auto& x : no) x.condition = f_.all({x.condition, f_.negate(cond)});
      yes.insert(yes.end(), no.begin(), no.end());
      cross(yes);
    }
  }
  if (const Json* v = s.get("dependentSchemas"); v && v->is(JsonKind::Object) && members) {
    Path here{&at, "dependentSchemas"};
    for (auto& [name, x] : v->members) {
      Path p{&here, name};
      maybe(x, f_.all({f_.type(kObject), f_.require(name)}),
            seen(x, p, scope, depth + 1, draft_of(x), members, true));
    }
  }
  return out;
}

}  // namespace llamay::grammar
