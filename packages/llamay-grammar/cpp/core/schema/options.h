// Options for reading schemas.
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
};  // Any: the draft is not stated, and the keywords of all drafts are enforced

// In the drafts 4, 6 and 7 the other keywords beside $ref, including $id, are ignored.
inline bool ref_hides_siblings(Draft d) { return d == Draft::D4 || d == Draft::D6 || d == Draft::D7; }

enum class FormatMode : uint8_t { Assert, Annotate };

struct SchemaOptions {
  Draft draft = Draft::Any;  // the draft of schemas without a known $schema
  FormatMode formats = FormatMode::Assert;
  std::set<std::string> dropped;  // JSON pointers of the keywords to ignore
  // Returns the text of the document with a URI, or nothing for a URI without a document.
  std::function<std::optional<std::string>(const std::string& uri)> resolver;
};

}  // namespace llamay::grammar
