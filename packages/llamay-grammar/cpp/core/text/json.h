// A JSON document with exact numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/decimal.h"

namespace llamay::grammar {

enum class JsonKind : uint8_t { Null, False, True, Number, String, Array, Object };

struct Json {
  JsonKind kind = JsonKind::Null;
  std::string text;                                   // String: decoded UTF-8. Number: as spelled
  Decimal number;                                     // Number
  std::vector<Json> items;                            // Array
  std::vector<std::pair<std::string, Json>> members;  // Object, in source order, the last of duplicates kept

  // The member of an object, null without one. Linear in the number of members: schemas have few keywords.
  const Json* get(std::string_view key) const;
  bool is(JsonKind k) const { return kind == k; }
  bool is_bool() const { return kind == JsonKind::True || kind == JsonKind::False; }
};

// Parses RFC 8259 text in UTF-8; escapes of lone surrogates become U+FFFD. Throws CompileError("json", ...),
// with the offset of the byte, on bad text and on nesting beyond `depth`.
Json parse_json(std::string_view text, uint32_t depth);

// Equality as JSON Schema means it: 1 == 1.0, members in any order. Takes the time to write both out.
bool json_equal(const Json& a, const Json& b);

// A text that is the same for equal values.
std::string json_canonical(const Json& value);

}  // namespace llamay::grammar
