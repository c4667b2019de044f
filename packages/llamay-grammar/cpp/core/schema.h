// JSON Schema, drafts 4 to 2020-12, to formulas.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "formula.h"

namespace llamay::grammar {

enum class Draft : uint8_t {
  Any,
  D4,
  D6,
  D7,
  D2019,
  D2020
};  // Any: not stated; keywords of all drafts count
enum class FormatMode : uint8_t { Assert, Annotate };

struct SchemaOptions {
  Draft draft = Draft::Any;  // where the schema does not say
  FormatMode formats = FormatMode::Assert;
  std::set<std::string> dropped;  // pointers of keywords to be ignored
  std::function<std::optional<std::string>(const std::string& uri)>
      resolver;  // for documents outside the schema
};

class SchemaReader {
 public:
  SchemaReader(Formulas& formulas, const SchemaOptions& options, Budget& budget);

  // Several schemas may be read into one set of formulas (tools). `base` is the URI of the document.
  FormulaId read(const Json& document, const std::string& base, const std::string& where = "");

 private:
  struct Path {  // a JSON pointer, written out only when needed
    const Path* parent;
    std::string_view key;
    size_t index = SIZE_MAX;
    std::string text() const;
  };
  struct Target {
    const Json* schema;
    std::string base;
    std::string pointer;
  };
  struct Pending {
    const Json* schema;
    uint32_t scope;
    uint32_t ref;
    std::string pointer;
  };
  // What a schema has looked at, under a condition (for unevaluatedProperties and unevaluatedItems).
  struct Seen {
    FormulaId condition = 0;
    bool all_members = false, all_items = false;
    std::vector<std::string> names;
    std::vector<LangPtr> patterns;
    size_t items = 0;
    std::vector<FormulaId> item_rules;
  };

  void index(const Json& schema, const std::string& base, uint32_t depth, Draft draft);
  FormulaId compile(const Json& schema, const Path& at, uint32_t scope, uint32_t depth);
  FormulaId keywords(const Json& schema, const Path& at, uint32_t scope, uint32_t depth, Draft draft);
  FormulaId reference(const std::string& uri, const Path& at, uint32_t scope, const Json& from);
  FormulaId dynamic_reference(const Json& schema, const std::string& value, bool recursive, const Path& at,
                              uint32_t scope);
  FormulaId place(const Target& target, uint32_t scope);
  Target locate(const std::string& absolute, const Path& at, const char* keyword);
  std::vector<Seen> seen(const Json& schema, const Path& at, uint32_t scope, uint32_t depth, Draft draft,
                         bool members, bool own_unevaluated);
  uint32_t enter(uint32_t scope, const std::string& base);
  Draft draft_of(const Json& schema) const;
  FormulaId pattern_formula(const Json& v, const Path& at);
  LangPtr pattern_names(const std::string& source, const Path& at);
  uint64_t size_of(const Json& v, const Path& at, const char* keyword);
  bool dropped(const Path& at, const std::string& key) const;
  [[noreturn]] void refuse(const Path& at, const char* keyword, const std::string& why) const;

  Formulas& f_;
  const SchemaOptions& options_;
  Budget& budget_;
  std::deque<Json> documents_;
  std::unordered_map<std::string, const Json*> resources_;  // by absolute URI without fragment
  std::unordered_map<std::string, const Json*> anchors_;    // "uri#name"
  std::unordered_map<std::string, const Json*> dynamic_anchors_;
  std::unordered_map<const Json*, std::string> base_of_;
  std::unordered_map<const Json*, Draft> draft_;
  std::map<std::pair<const Json*, uint32_t>, uint32_t> refs_;
  std::deque<Pending> pending_;
  bool dynamic_ = false;
  std::vector<std::vector<std::string>> scopes_;  // resources entered, outermost first
  std::map<std::vector<std::string>, uint32_t> scope_ids_;
};

}  // namespace llamay::grammar
