// The keywords of JSON Schema about values of any type, numbers and strings (2020-12, validation, sections
// 6.1 to 6.3 and 7).
#include "regex/formats.h"
#include "schema/keywords.h"

namespace llamay::grammar {
namespace {

StringSpec within_window(const Pattern& p) {
  StringSpec spec;
  spec.language = p.language, spec.min = p.min, spec.max = p.max;
  return spec;
}

}  // namespace

bool SchemaReader::Keywords::read_scalar(const std::string& key, const Json& v) {
  if (key == "type") {
    read_types(v);
  } else if (key == "enum") {
    need(v, JsonKind::Array, "enum", "an array");
    std::vector<const Json*> values;
    for (auto& x : v.items) values.push_back(&x);
    and_.push_back(f_.one_of_values(values));
  } else if (key == "const" && within(Draft::D6)) {
    and_.push_back(f_.equals(v));
  } else if (key == "minimum" || key == "maximum") {
    // In draft 4 the boolean exclusiveMinimum (exclusiveMaximum) beside the bound makes the bound exclusive.
    const Json* open = site_.schema.get(key == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
    read_bound(key, v, open && open->is(JsonKind::True));
  } else if ((key == "exclusiveMinimum" || key == "exclusiveMaximum") && !v.is_bool() && within(Draft::D6)) {
    read_bound(key, v, true);
  } else if (key == "multipleOf") {
    if (!v.is(JsonKind::Number) || v.number.negative || v.number.zero())
      refuse("multipleOf", "multipleOf must be a number greater than 0");
    number_.multiples.push_back(v.number), has_number_ = true;
  } else if (key == "minLength") {
    length_.min = length(v, "minLength");
  } else if (key == "maxLength") {
    length_.max = length(v, "maxLength");
  } else if (key == "pattern") {
    need(v, JsonKind::String, "pattern", "a string");
    and_.push_back(f_.string(within_window(compile_pattern(v.text, false, reader_.budget_))));
  } else if (key == "format") {
    if (v.is(JsonKind::String) && reader_.options_.formats == FormatMode::Assert)
      if (auto p = format_language(v.text, reader_.budget_)) and_.push_back(f_.string(within_window(*p)));
  } else {
    return false;
  }
  return true;
}

void SchemaReader::Keywords::read_types(const Json& v) {
  uint8_t mask = 0;
  bool integer = false, any_number = false;
  auto one = [&](const Json& t) {
    if (!t.is(JsonKind::String)) refuse("type", "a type must be a string");
    if (t.text == "null")
      mask |= kNull;
    else if (t.text == "boolean")
      mask |= kBoolean;
    else if (t.text == "number")
      mask |= kNumber, any_number = true;
    else if (t.text == "integer")
      mask |= kNumber, integer = true;
    else if (t.text == "string")
      mask |= kString;
    else if (t.text == "array")
      mask |= kArray;
    else if (t.text == "object")
      mask |= kObject;
    else
      refuse("type", "unknown type '" + t.text + "'");
  };
  if (v.is(JsonKind::Array))
    for (auto& t : v.items) one(t);
  else
    one(v);
  and_.push_back(f_.type(mask));
  if (integer && !any_number)
    number_.integer = has_number_ = true, number_.plain_integer = site_.draft == Draft::D4;
}

void SchemaReader::Keywords::read_bound(const std::string& key, const Json& v, bool open) {
  need(v, JsonKind::Number, key.c_str(), "a number");
  const bool lower = key == "minimum" || key == "exclusiveMinimum";
  NumberSpec n;
  (lower ? n.lo : n.hi) = v.number;
  (lower ? n.lo_open : n.hi_open) = open;
  number_.merge(n), has_number_ = true;
}

void SchemaReader::Keywords::put_string() {
  if (length_.min > length_.max)
    and_.push_back(f_.type(kAnyType & ~kString));
  else
    and_.push_back(f_.string(std::move(length_)));
}

}  // namespace llamay::grammar
