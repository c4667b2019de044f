// The index of schemas: documents, the URIs of the schema resources in the documents, and anchors (JSON
// Schema 2020-12, core, sections 8 and 9, and the corresponding keywords of earlier drafts).
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
    std::string base;     // the base URI of the references in the schema
    std::string pointer;  // the JSON pointer of the schema, for messages
  };

  SchemaIndex(const SchemaOptions& options, Budget& budget) : options_(options), budget_(budget) {}

  // Indexes a document and every subschema of the document; `base` is the document's URI. The time is linear
  // in the size of the document.
  Place add(const Json& document, const std::string& base);

  // Returns the static target of a reference in the schema `from`. The resolver supplies documents that the
  // index does not have. Throws CompileError, for the keyword at `at`, when the reference has no target.
  Place locate(const Json& from, const std::string& reference, const Path& at, const char* keyword);

  // Returns the schema with the dynamic anchor `name` in a resource, or null when the resource has no such
  // anchor. $recursiveAnchor is the dynamic anchor with the empty name.
  const Json* dynamic_anchor(const std::string& base, const std::string& name) const;
  // Whether the documents indexed so far have a dynamic reference or a dynamic anchor.
  bool dynamic() const { return dynamic_; }

  // Returns the base URI of a schema, or null for a value that is not indexed as a schema.
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
