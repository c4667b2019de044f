// Documents are indexed by $id, $anchor and the corresponding keywords of other drafts; references are
// resolved by URI, anchor or JSON pointer.
#include "schema/index.h"

#include <algorithm>
#include <optional>

#include "support/compile_error.h"
#include "text/unicode.h"
#include "text/uri.h"

namespace llamay::grammar {
namespace {

// The keywords with subschemas: the value is an object of subschemas, an array of subschemas, or a subschema.
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

[[noreturn]] void refuse(const Path& at, const char* keyword, const std::string& why) {
  throw CompileError(keyword, at.text() + "/" + keyword, why);
}

// Returns the member or the item to which a token of a JSON pointer refers, or null.
const Json* step(const Json& from, const std::string& token) {
  if (from.is(JsonKind::Object)) return from.get(token);
  if (!from.is(JsonKind::Array) || token.empty() || token.size() >= 9 ||
      token.find_first_not_of("0123456789") != token.npos)
    return nullptr;
  const size_t n = std::stoul(token);
  return n < from.items.size() ? &from.items[n] : nullptr;
}

}  // namespace

void SchemaIndex::index(const Json& s, const std::string& base_in, uint32_t depth, Draft draft) {
  if (!s.is(JsonKind::Object) || depth > budget_.depth) return;
  budget_.tick();
  std::string base = base_in;
  if (const Json* d = s.get("$schema"); d && d->is(JsonKind::String))
    if (auto known = draft_of_uri(d->text)) draft = *known;
  draft_[&s] = draft;
  const bool old = ref_hides_siblings(draft);
  if (!(old && s.get("$ref"))) {
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

SchemaIndex::Place SchemaIndex::add(const Json& document, const std::string& base) {
  documents_.push_back(document);
  const Json& root = documents_.back();
  resources_[base] = &root;
  index(root, base, 0, options_.draft);
  const std::string* own = base_of(root);
  return {&root, own ? *own : base, ""};
}

const std::string* SchemaIndex::base_of(const Json& schema) const {
  auto it = base_of_.find(&schema);
  return it == base_of_.end() ? nullptr : &it->second;
}

Draft SchemaIndex::draft_of(const Json& schema) const {
  auto it = draft_.find(&schema);
  return it == draft_.end() ? options_.draft : it->second;
}

const Json* SchemaIndex::dynamic_anchor(const std::string& base, const std::string& name) const {
  auto it = dynamic_anchors_.find(base + "#" + name);
  return it == dynamic_anchors_.end() ? nullptr : it->second;
}

const Json* SchemaIndex::resource(const std::string& uri, const std::string& reference, const Path& at,
                                  const char* keyword) {
  if (auto it = resources_.find(uri); it != resources_.end()) return it->second;
  std::optional<std::string> text;
  if (options_.resolver && !uri.empty()) text = options_.resolver(uri);
  if (!text)
    refuse(at, keyword,
           "the reference '" + reference + "' leads outside the schema, and no resolver knows '" + uri + "'");
  if (documents_.size() > 1000) refuse(at, keyword, "references lead to more than 1000 documents");
  require_utf8(*text);
  documents_.push_back(parse_json(*text, budget_.depth));
  resources_.emplace(uri, &documents_.back());
  index(documents_.back(), uri, 0, options_.draft);
  return resources_.find(uri)->second;
}

SchemaIndex::Place SchemaIndex::locate(const Json& from, const std::string& reference, const Path& at,
                                       const char* keyword) {
  const std::string* own = base_of(from);
  const std::string absolute = resolve_uri(own ? *own : "", reference);
  std::string document, fragment;
  split_fragment(absolute, document, fragment);
  Place p{resource(document, absolute, at, keyword), document, ""};
  if (auto b = base_of(*p.schema)) p.base = *b;
  if (fragment.empty()) return p;
  if (fragment[0] != '/') {
    for (const std::string& base : {document, p.base})
      if (auto a = anchors_.find(base + "#" + fragment); a != anchors_.end()) {
        p.schema = a->second;
        if (auto b = base_of(*p.schema)) p.base = *b;
        p.pointer = "#" + fragment;
        return p;
      }
    refuse(at, keyword, "the reference '" + absolute + "' names an anchor that does not exist");
  }
  Draft draft = draft_of(*p.schema);
  for (const std::string& token : pointer_tokens(fragment)) {
    p.schema = step(*p.schema, token);
    if (!p.schema) refuse(at, keyword, "the reference '" + absolute + "' points at nothing");
    if (auto b = base_of(*p.schema)) p.base = *b, draft = draft_of(*p.schema);
  }
  // No keyword makes this value a schema, but a reference to a value makes the value a schema.
  if (!base_of(*p.schema)) index(*p.schema, p.base, 0, draft);
  p.pointer = fragment;
  return p;
}

}  // namespace llamay::grammar
