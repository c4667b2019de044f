// How schemas are to be read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace llamay::grammar {

enum class Draft : uint8_t {
  Any,
  D4,
  D6,
  D7,
  D2019,
  D2020
};  // Any: not stated; keywords of all drafts count

// Up to draft 7 a $ref makes its siblings, $id among them, be ignored.
inline bool ref_hides_siblings(Draft d) { return d == Draft::D4 || d == Draft::D6 || d == Draft::D7; }

enum class FormatMode : uint8_t { Assert, Annotate };

struct SchemaOptions {
  Draft draft = Draft::Any;  // the draft of schemas that do not state theirs
  FormatMode formats = FormatMode::Assert;
  std::set<std::string> dropped;  // pointers of keywords to be ignored
  // Returns the text of a document outside the schema, or nothing.
  std::function<std::optional<std::string>(const std::string& uri)> resolver;
};

}  // namespace llamay::grammar
