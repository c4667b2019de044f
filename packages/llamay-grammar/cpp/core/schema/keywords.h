// The keywords of one schema, read in the order of the document. Keywords that depend on each other, such as
// `if` and `then`, are collected first and read after all other keywords.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/reader.h"

namespace llamay::grammar {

class SchemaReader::Keywords {
 public:
  Keywords(SchemaReader& reader, const Site& site);
  FormulaId read();

 private:
  // Whether the draft of the schema lies between `lo` and `hi`. A schema without a stated draft has the
  // keywords of all drafts.
  bool within(Draft lo, Draft hi = Draft::D2020) const {
    return site_.draft == Draft::Any || (site_.draft >= lo && site_.draft <= hi);
  }

  // Each function reads a keyword of its group. Returns false for a keyword of another group.
  bool read_scalar(const std::string& key, const Json& v);  // scalars.cpp
  bool read_array(const std::string& key, const Json& v);   // containers.cpp
  bool read_object(const std::string& key, const Json& v);
  bool read_logic(const std::string& key, const Json& v);

  void read_types(const Json& v);
  void read_bound(const std::string& key, const Json& v, bool open);
  void read_dependencies(const std::string& key, const Json& v);
  bool read_references();  // returns whether the references hide all other keywords
  void put_string();
  void put_items();
  void put_contains();
  void put_conditional();
  void put_unevaluated();

  // Subschemas, and the values of keywords in the form that the keyword requires (otherwise CompileError).
  FormulaId sub(const Json& v, std::string_view key, size_t index = SIZE_MAX);
  FormulaId member(const Json& v, std::string_view key, std::string_view name);  // a subschema in an object
  std::vector<FormulaId> schemas(const Json& v, const char* key);
  std::vector<std::string> strings(const Json& v, const char* key) const;
  uint64_t size(const Json& v, const char* key) const;
  // The length of a string; lengths beyond 32 bits become the greatest length of 32 bits.
  uint32_t length(const Json& v, const char* key) const;
  void need(const Json& v, JsonKind kind, const char* key, const char* what) const;
  [[noreturn]] void refuse(const char* key, const std::string& why) const;

  SchemaReader& reader_;
  Formulas& f_;
  const Site& site_;

  std::vector<FormulaId> and_;
  NumberSpec number_;
  bool has_number_ = false;
  StringSpec length_;
  Range array_length_, member_count_;
  PropsSpec props_;
  bool has_props_ = false;
  const Json *prefix_ = nullptr, *items_ = nullptr, *additional_items_ = nullptr, *contains_ = nullptr;
  uint64_t min_contains_ = 1, max_contains_ = UINT64_MAX;
  const Json *if_ = nullptr, *then_ = nullptr, *else_ = nullptr;
  bool unevaluated_ = false;
};

}  // namespace llamay::grammar
