// The places of schemas: documents, the URIs of the resources in them, and anchors (JSON Schema 2020-12,
// core, sections 8 and 9, and the corresponding keywords of earlier drafts).
#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "schema/options.h"
#include "support/budget.h"
#include "text/json.h"
#include "text/json_pointer.h"

namespace llamay::grammar {

class SchemaIndex {
 public:
  struct Place {
    const Json* schema;
    std::string base;     // the URI against which references in it are resolved
    std::string pointer;  // for messages
  };

  SchemaIndex(const SchemaOptions& options, Budget& budget) : options_(options), budget_(budget) {}

  // Indexes a document and every schema in it; `base` is its URI. Linear in its size.
  Place add(const Json& document, const std::string& base);

  // The static target of a reference in `from`. The resolver is asked for documents that are not known.
  // Throws CompileError, for the keyword at `at`, where there is no target.
  Place locate(const Json& from, const std::string& reference, const Path& at, const char* keyword);

  // The schema with that dynamic anchor in a resource, null without one. $recursiveAnchor has the empty name.
  const Json* dynamic_anchor(const std::string& base, const std::string& name) const;
  // Whether any reference or anchor is dynamic, of the documents so far.
  bool dynamic() const { return dynamic_; }

  // Null for a value that is not known to be a schema.
  const std::string* base_of(const Json& schema) const;
  Draft draft_of(const Json& schema) const;

 private:
  void index(const Json& schema, const std::string& base, uint32_t depth, Draft draft);
  const Json* resource(const std::string& uri, const std::string& reference, const Path& at,
                       const char* keyword);

  const SchemaOptions& options_;
  Budget& budget_;
  std::deque<Json> documents_;
  std::unordered_map<std::string, const Json*> resources_;  // by absolute URI without fragment
  std::unordered_map<std::string, const Json*> anchors_;    // "uri#name"
  std::unordered_map<std::string, const Json*> dynamic_anchors_;
  std::unordered_map<const Json*, std::string> base_of_;
  std::unordered_map<const Json*, Draft> draft_;
  bool dynamic_ = false;
};

}  // namespace llamay::grammar
