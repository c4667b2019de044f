// The compilation of sources to grammars.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/matcher.h"
#include "schema/reader.h"
#include "support/budget.h"

namespace llamay::grammar {

enum class CompileMode : uint8_t {
  Exact,        // every keyword is enforced, or the schema is refused
  Approximate,  // keywords that cannot be enforced are dropped, each with a warning
  Annotate,     // as Approximate, and `format` is not enforced
};

struct CompileOptions {
  CompileMode mode = CompileMode::Exact;
  Draft draft = Draft::Any;
  Whitespace whitespace = Whitespace::Flexible;
  uint32_t max_whitespace = 32;
  bool schema_order = false;
  bool canonical_escapes = false;  // strings have escapes only for characters that JSON forbids
  Budget budget;
  std::function<std::optional<std::string>(const std::string&)> resolver;
};

using VocabularyPtr = std::shared_ptr<const Vocabulary>;
using GrammarPtr = std::shared_ptr<Grammar>;

GrammarPtr compile_json_schema(const std::string& schema, const VocabularyPtr& v,
                               const CompileOptions& options);
GrammarPtr compile_regex(const std::string& source, bool whole, const VocabularyPtr& v,
                         const CompileOptions& options);

GrammarPtr compile_gbnf(const std::string& source, const std::string& root, const VocabularyPtr& v,
                        const CompileOptions& options);
// An empty `root` stands for the first rule.
GrammarPtr compile_ebnf(const std::string& source, const std::string& root, const VocabularyPtr& v,
                        const CompileOptions& options);

// A document made of texts, JSON values and special tokens. `layout` is JSON, one of
//   {"text": "..."}                     exactly this text
//   {"token": 7}                        a special token
//   {"schema": {...}, "at": "/pointer"} a JSON value (the pointer leads error messages)
//   {"members": {"schema": 0, "open": [...], "after": [...], "close": [...], "mixed": {...}, "other": "..."}}
//                                       an object between tags: see grammars/tagged.h. The lists have
//                                       {"text": "..."},
//                                       {"token": 7, "as": "..."} and {"typed": ["of a string", "of others"]}
//   {"free": ["stop", ...]}             any text in which none of the stops occurs
//   {"seq": [...]}, {"any": [...]}, {"many": {...}, "min": 0, "max": null}
GrammarPtr compile_layout(const std::string& layout, const VocabularyPtr& v, const CompileOptions& options);

}  // namespace llamay::grammar
