// The types that the metaschemas of the drafts demand of the values of keywords. A value of another type is
// an error even where the keyword would make no difference, because it says something else than was meant.
#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "schema/reader.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

enum class Shape : uint8_t {
  String,
  Number,
  Size,
  Boolean,
  Bound,  // exclusiveMinimum and exclusiveMaximum: boolean in draft 4, a number since draft 6
  Array,
  Strings,
  Types,
  Schema,   // this and those that follow have subschemas
  Schemas,  // an array of schemas
  Items,    // a schema or, up to draft 2019-09, an array of schemas
  SchemaMap,
  StringsMap,
  Dependencies,  // an object of schemas and arrays of strings
};

struct Keyword {
  std::string_view name;
  Shape shape;
  Draft first = Draft::D4, last = Draft::D2020;
};

// Annotations are not listed: their values make no difference to any document.
constexpr Keyword kKeywords[] = {
    {"$schema", Shape::String},
    {"$id", Shape::String, Draft::D6},
    {"$ref", Shape::String},
    {"$anchor", Shape::String, Draft::D2019},
    {"$dynamicRef", Shape::String, Draft::D2020},
    {"$dynamicAnchor", Shape::String, Draft::D2020},
    {"$recursiveRef", Shape::String, Draft::D2019, Draft::D2019},
    {"$recursiveAnchor", Shape::Boolean, Draft::D2019, Draft::D2019},
    {"$defs", Shape::SchemaMap, Draft::D2019},
    {"definitions", Shape::SchemaMap},
    {"type", Shape::Types},
    {"enum", Shape::Array},
    {"multipleOf", Shape::Number},
    {"minimum", Shape::Number},
    {"maximum", Shape::Number},
    {"exclusiveMinimum", Shape::Bound},
    {"exclusiveMaximum", Shape::Bound},
    {"minLength", Shape::Size},
    {"maxLength", Shape::Size},
    {"pattern", Shape::String},
    {"format", Shape::String},
    {"minItems", Shape::Size},
    {"maxItems", Shape::Size},
    {"uniqueItems", Shape::Boolean},
    {"prefixItems", Shape::Schemas, Draft::D2020},
    {"items", Shape::Items},
    {"additionalItems", Shape::Schema, Draft::D4, Draft::D2019},
    {"contains", Shape::Schema, Draft::D6},
    {"minContains", Shape::Size, Draft::D2019},
    {"maxContains", Shape::Size, Draft::D2019},
    {"unevaluatedItems", Shape::Schema, Draft::D2019},
    {"minProperties", Shape::Size},
    {"maxProperties", Shape::Size},
    {"required", Shape::Strings},
    {"properties", Shape::SchemaMap},
    {"patternProperties", Shape::SchemaMap},
    {"additionalProperties", Shape::Schema},
    {"propertyNames", Shape::Schema, Draft::D6},
    {"unevaluatedProperties", Shape::Schema, Draft::D2019},
    {"dependencies", Shape::Dependencies, Draft::D4, Draft::D7},
    {"dependentRequired", Shape::StringsMap, Draft::D2019},
    {"dependentSchemas", Shape::SchemaMap, Draft::D2019},
    {"allOf", Shape::Schemas},
    {"anyOf", Shape::Schemas},
    {"oneOf", Shape::Schemas},
    {"not", Shape::Schema},
    {"if", Shape::Schema, Draft::D7},
    {"then", Shape::Schema, Draft::D7},
    {"else", Shape::Schema, Draft::D7},
};

bool is_schema(const Json& v) { return v.is(JsonKind::Object) || v.is_bool(); }
bool are_strings(const Json& v) {
  return v.is(JsonKind::Array) &&
         std::all_of(v.items.begin(), v.items.end(), [](const Json& x) { return x.is(JsonKind::String); });
}
// What is expected of a value that does not have the shape; empty for one that has it.
std::string_view missed(Shape shape, const Json& v, Draft draft) {
  const bool any = draft == Draft::Any;
  switch (shape) {
    case Shape::String:
      return v.is(JsonKind::String) ? "" : "a string";
    case Shape::Number:
      return v.is(JsonKind::Number) ? "" : "a number";
    case Shape::Size:
      return v.is(JsonKind::Number) && !v.number.negative && v.number.integral() ? ""
                                                                                 : "a non-negative integer";
    case Shape::Boolean:
      return v.is_bool() ? "" : "a boolean";
    case Shape::Bound:
      if (any) return v.is(JsonKind::Number) || v.is_bool() ? "" : "a number (in draft 4 a boolean)";
      if (draft == Draft::D4) return v.is_bool() ? "" : "a boolean in draft 4";
      return v.is(JsonKind::Number) ? "" : "a number since draft 6";
    case Shape::Array:
      return v.is(JsonKind::Array) ? "" : "an array";
    case Shape::Strings:
      return are_strings(v) ? "" : "an array of strings";
    case Shape::Types:
      return v.is(JsonKind::String) || are_strings(v) ? "" : "a string or an array of strings";
    case Shape::Schema:
      return is_schema(v) ? "" : "a schema (an object or a boolean)";
    case Shape::Schemas:
      return v.is(JsonKind::Array) ? "" : "an array of schemas";
    case Shape::Items:
      if (draft == Draft::D2020) return is_schema(v) ? "" : "a schema (an object or a boolean)";
      return is_schema(v) || v.is(JsonKind::Array)
                 ? ""
                 : "a schema (an object or a boolean) or an array of schemas";
    case Shape::SchemaMap:
      return v.is(JsonKind::Object) ? "" : "an object of schemas";
    case Shape::StringsMap:
      return v.is(JsonKind::Object) ? "" : "an object of arrays of strings";
    case Shape::Dependencies:
      return v.is(JsonKind::Object) ? "" : "an object of schemas and arrays of strings";
  }
  return "";
}

const char* described(const Json& v) {
  switch (v.kind) {
    case JsonKind::Null:
      return "null";
    case JsonKind::False:
      return "false";
    case JsonKind::True:
      return "true";
    case JsonKind::Number:
      return "a number";
    case JsonKind::String:
      return "a string";
    case JsonKind::Array:
      return "an array";
    case JsonKind::Object:
      return "an object";
  }
  return "";
}

// What was given instead, with the first wrong element of an array of strings.
std::string given(Shape shape, const Json& v) {
  if (v.is(JsonKind::Array) && (shape == Shape::Strings || shape == Shape::Types))
    for (size_t i = 0; i < v.items.size(); ++i)
      if (!v.items[i].is(JsonKind::String))
        return "one with " + std::string(described(v.items[i])) + " at index " + std::to_string(i);
  if (shape == Shape::Size && v.is(JsonKind::Number)) return v.text;
  if (shape == Shape::Strings && v.is_bool())
    return std::string(described(v)) + ", the form of draft 3: list required names beside \"properties\"";
  return described(v);
}

[[noreturn]] void refuse(const std::string& key, const Path& at, std::string_view expected,
                         const std::string& instead) {
  throw CompileError(key, at.text(), key + " must be " + std::string(expected) + ", not " + instead);
}

const std::unordered_map<std::string_view, const Keyword*>& keywords() {
  static const auto map = [] {
    std::unordered_map<std::string_view, const Keyword*> out;
    for (const Keyword& k : kKeywords) out.emplace(k.name, &k);
    return out;
  }();
  return map;
}

// Whether a keyword holds subschemas that may not be read: definitions, which only references lead to, and
// keywords that do nothing without another one.
bool unread(const Json& s, std::string_view key) {
  if (key == "$defs" || key == "definitions") return true;
  if (key == "if") return !s.get("then") && !s.get("else");
  if (key == "then" || key == "else") return !s.get("if");
  const Json* items = s.get("items");
  return key == "additionalItems" && !(items && items->is(JsonKind::Array));
}

}  // namespace

void SchemaReader::check_shapes(const Json& s, const Path& at, uint32_t depth, bool inside) {
  if (!s.is(JsonKind::Object) || depth > budget_.depth) return;
  budget_.tick();
  const Draft draft = index_.draft_of(s);
  if (inside && ref_hides_siblings(draft) && s.get("$ref")) return;
  for (const auto& [key, v] : s.members) {
    const auto it = keywords().find(key);
    if (it == keywords().end() || dropped(at, key)) continue;
    const Keyword& k = *it->second;
    if (draft != Draft::Any && (draft < k.first || draft > k.last)) continue;
    Path here{&at, key};
    if (const std::string_view expected = missed(k.shape, v, draft); !expected.empty())
      refuse(key, here, expected, given(k.shape, v));
    const bool deeper = inside || unread(s, key);
    auto check = [&](const Json& x, const Path& place) {
      const bool strings = k.shape == Shape::StringsMap || k.shape == Shape::Dependencies;
      if (strings && are_strings(x)) return;
      if (k.shape == Shape::StringsMap)
        throw CompileError(key, place.text(),
                           "an array of strings is expected here, not " + given(Shape::Strings, x));
      if (!is_schema(x))
        throw CompileError(key, place.text(),
                           std::string("a schema must be an object or a boolean, not ") + described(x));
      if (deeper) check_shapes(x, place, depth + 1, true);
    };
    if (k.shape >= Shape::SchemaMap) {
      for (const auto& [name, x] : v.members) check(x, Path{&here, name});
    } else if (k.shape >= Shape::Schema && v.is(JsonKind::Array)) {
      for (size_t i = 0; i < v.items.size(); ++i) check(v.items[i], Path{&at, key, i});
    } else if (k.shape >= Shape::Schema) {
      check(v, here);
    }
  }
}

}  // namespace llamay::grammar
