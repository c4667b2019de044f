// The keywords of JSON Schema about arrays and objects (2020-12, core, section 10.3, and validation,
// sections 6.4 and 6.5).
#include "schema/keywords.h"

namespace llamay::grammar {

bool SchemaReader::Keywords::read_array(const std::string& key, const Json& v) {
  if (key == "minItems") {
    array_length_.min = size(v, "minItems");
  } else if (key == "maxItems") {
    array_length_.max = size(v, "maxItems");
  } else if (key == "uniqueItems") {
    if (!v.is_bool()) refuse("uniqueItems", "uniqueItems must be a boolean");
    if (v.is(JsonKind::True)) and_.push_back(f_.unique());
  } else if (key == "prefixItems" && within(Draft::D2020)) {
    need(v, JsonKind::Array, "prefixItems", "an array of schemas");
    prefix_ = &v;
  } else if (key == "items") {
    if (v.is(JsonKind::Array) && !within(Draft::D4, Draft::D2019)) refuse("items", "items must be a schema");
    (v.is(JsonKind::Array) ? prefix_ : items_) = &v;
  } else if (key == "additionalItems" && within(Draft::D4, Draft::D2019)) {
    additional_items_ = &v;
  } else if (key == "contains" && within(Draft::D6)) {
    contains_ = &v;
  } else if (key == "minContains" && within(Draft::D2019)) {
    min_contains_ = size(v, "minContains");
  } else if (key == "maxContains" && within(Draft::D2019)) {
    max_contains_ = size(v, "maxContains");
  } else {
    return false;
  }
  return true;
}

void SchemaReader::Keywords::put_items() {
  if (!prefix_ && !items_) return;
  ItemsSpec spec;
  spec.rest = f_.yes();
  if (prefix_) {
    // Up to draft 2019-09, `items` has the schemas of the first items and `additionalItems` the schema of the
    // other items.
    const bool own_keyword = site_.schema.get("prefixItems") == prefix_;
    const char* key = own_keyword ? "prefixItems" : "items";
    for (size_t i = 0; i < prefix_->items.size(); ++i) spec.prefix.push_back(sub(prefix_->items[i], key, i));
    if (items_ && own_keyword) spec.rest = sub(*items_, "items");
    if (additional_items_ && !own_keyword) spec.rest = sub(*additional_items_, "additionalItems");
  } else {
    spec.rest = sub(*items_, "items");
  }
  and_.push_back(f_.items(std::move(spec)));
}

void SchemaReader::Keywords::put_contains() {
  if (!contains_) return;
  ContainsSpec c;
  c.item = sub(*contains_, "contains"), c.min = min_contains_, c.max = max_contains_;
  and_.push_back(f_.contains(c));
}

bool SchemaReader::Keywords::read_object(const std::string& key, const Json& v) {
  if (key == "properties") {
    need(v, JsonKind::Object, "properties", "an object");
    for (auto& [name, schema] : v.members) props_.names.emplace_back(name, member(schema, key, name));
    has_props_ = true;
  } else if (key == "patternProperties") {
    need(v, JsonKind::Object, "patternProperties", "an object");
    for (auto& [name, schema] : v.members)
      props_.patterns.emplace_back(reader_.pattern_names(name, site_.at), member(schema, key, name));
    has_props_ = true;
  } else if (key == "additionalProperties") {
    props_.additional = sub(v, "additionalProperties");
    has_props_ = true;
  } else if (key == "required") {
    for (auto& name : strings(v, "required")) and_.push_back(f_.require(name));
  } else if (key == "minProperties") {
    member_count_.min = size(v, "minProperties");
  } else if (key == "maxProperties") {
    member_count_.max = size(v, "maxProperties");
  } else if (key == "propertyNames" && within(Draft::D6)) {
    and_.push_back(f_.names(sub(v, "propertyNames")));
  } else if ((key == "dependencies" && within(Draft::D4, Draft::D7)) ||
             ((key == "dependentRequired" || key == "dependentSchemas") && within(Draft::D2019))) {
    read_dependencies(key, v);
  } else {
    return false;
  }
  return true;
}

void SchemaReader::Keywords::read_dependencies(const std::string& key, const Json& v) {
  need(v, JsonKind::Object, key.c_str(), "an object");
  for (auto& [name, x] : v.members) {
    if (x.is(JsonKind::Array) && key != "dependentSchemas") {
      and_.push_back(f_.depend({name, strings(x, key.c_str())}));
    } else {
      const FormulaId then = member(x, key, name);
      const FormulaId present = f_.require(name);
      and_.push_back(f_.any({f_.negate(present), f_.all({present, then}), f_.type(kAnyType & ~kObject)}));
    }
  }
}

}  // namespace llamay::grammar
