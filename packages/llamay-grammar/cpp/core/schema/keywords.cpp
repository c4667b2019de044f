// The order in which the keywords of a schema are read, and the keywords that refer to schemas or combine
// schemas (2020-12, core, sections 8.2.3 and 10.2).
#include "schema/keywords.h"

#include "automata/dfa.h"
#include "support/compile_error.h"

namespace llamay::grammar {

SchemaReader::Keywords::Keywords(SchemaReader& reader, const Site& site)
    : reader_(reader), f_(reader.f_), site_(site) {
  length_.language = every_text();
  props_.additional = f_.yes();
}

FormulaId SchemaReader::Keywords::read() {
  if (read_references()) return and_[0];
  reader_.check_shapes(site_.schema, site_.at, site_.depth, false);
  for (auto& [key, v] : site_.schema.members) {
    if (reader_.dropped(site_.at, key)) continue;
    try {
      read_scalar(key, v) || read_array(key, v) || read_object(key, v) || read_logic(key, v);
    } catch (CompileError& e) {
      if (!e.pointer.empty() || e.keyword == "json") throw;
      throw CompileError(e.keyword == "budget" ? "budget" : key, site_.at.text() + "/" + escape_pointer(key),
                         e.what());
    }
  }
  if (has_number_) and_.push_back(f_.number(std::move(number_)));
  put_string();
  and_.push_back(f_.length(array_length_));
  and_.push_back(f_.count(member_count_));
  if (has_props_) and_.push_back(f_.props(std::move(props_)));
  put_items();
  put_contains();
  put_conditional();
  put_unevaluated();
  return f_.all(std::move(and_));
}

bool SchemaReader::Keywords::read_references() {
  const auto& [s, at, scope, depth, draft] = site_;
  auto reference = [&](const char* key) {
    const Json* r = s.get(key);
    return r && r->is(JsonKind::String) ? r : nullptr;
  };
  if (const Json* r = reference("$ref"); r && !reader_.dropped(at, "$ref")) {
    and_.push_back(reader_.place(reader_.index_.locate(s, r->text, at, "$ref"), scope));
    if (ref_hides_siblings(draft)) return true;
  }
  if (const Json* r = reference("$dynamicRef"); r && within(Draft::D2020))
    and_.push_back(reader_.place(reader_.dynamic_place(s, r->text, false, at, scope), scope));
  if (const Json* r = reference("$recursiveRef"); r && within(Draft::D2019, Draft::D2019))
    and_.push_back(reader_.place(reader_.dynamic_place(s, r->text, true, at, scope), scope));
  return false;
}

bool SchemaReader::Keywords::read_logic(const std::string& key, const Json& v) {
  if (key == "allOf") {
    and_.push_back(f_.all(schemas(v, "allOf")));
  } else if (key == "anyOf") {
    and_.push_back(f_.any(schemas(v, "anyOf")));
  } else if (key == "oneOf") {
    and_.push_back(f_.one(schemas(v, "oneOf")));
  } else if (key == "not") {
    and_.push_back(f_.negate(sub(v, "not")));
  } else if (key == "if" && within(Draft::D7)) {
    if_ = &v;
  } else if (key == "then" && within(Draft::D7)) {
    then_ = &v;
  } else if (key == "else" && within(Draft::D7)) {
    else_ = &v;
  } else if ((key == "unevaluatedProperties" || key == "unevaluatedItems") && within(Draft::D2019)) {
    unevaluated_ = true;
  } else {
    return false;
  }
  return true;
}

void SchemaReader::Keywords::put_conditional() {
  if (!if_ || (!then_ && !else_) || reader_.dropped(site_.at, "if")) return;
  const FormulaId cond = sub(*if_, "if");
  const FormulaId yes = then_ ? sub(*then_, "then") : f_.yes(), no = else_ ? sub(*else_, "else") : f_.yes();
  and_.push_back(f_.any({f_.all({cond, yes}), f_.all({f_.negate(cond), no})}));
}

void SchemaReader::Keywords::put_unevaluated() {
  if (!unevaluated_) return;
  for (const char* key : {"unevaluatedProperties", "unevaluatedItems"}) {
    const Json* v = site_.schema.get(key);
    if (!v || reader_.dropped(site_.at, key)) continue;
    const FormulaId rule = sub(*v, key);
    if (rule != f_.yes()) and_.push_back(reader_.unevaluated(site_, key, rule));
  }
}

FormulaId SchemaReader::Keywords::sub(const Json& v, std::string_view key, size_t index) {
  Path p{&site_.at, key, index};
  return reader_.compile(v, p, site_.scope, site_.depth + 1);
}

FormulaId SchemaReader::Keywords::member(const Json& v, std::string_view key, std::string_view name) {
  Path here{&site_.at, key}, p{&here, name};
  return reader_.compile(v, p, site_.scope, site_.depth + 1);
}

std::vector<FormulaId> SchemaReader::Keywords::schemas(const Json& v, const char* key) {
  need(v, JsonKind::Array, key, "an array of schemas");
  std::vector<FormulaId> out;
  for (size_t i = 0; i < v.items.size(); ++i) out.push_back(sub(v.items[i], key, i));
  return out;
}

std::vector<std::string> SchemaReader::Keywords::strings(const Json& v, const char* key) const {
  need(v, JsonKind::Array, key, "an array of strings");
  std::vector<std::string> out;
  for (auto& x : v.items) {
    need(x, JsonKind::String, key, "an array of strings");
    out.push_back(x.text);
  }
  return out;
}

uint64_t SchemaReader::Keywords::size(const Json& v, const char* key) const {
  if (!v.is(JsonKind::Number) || v.number.negative || !v.number.integral())
    refuse(key, std::string(key) + " must be a non-negative integer");
  if (v.number.width() > 18) return UINT64_MAX - 1;
  return std::stoull(v.number.plain());
}

uint32_t SchemaReader::Keywords::length(const Json& v, const char* key) const {
  return static_cast<uint32_t>(std::min<uint64_t>(size(v, key), kInf - 1));
}

void SchemaReader::Keywords::need(const Json& v, JsonKind kind, const char* key, const char* what) const {
  if (!v.is(kind)) refuse(key, std::string(key) + " must be " + what);
}

void SchemaReader::Keywords::refuse(const char* key, const std::string& why) const {
  throw CompileError(key, site_.at.text() + "/" + key, why);
}

}  // namespace llamay::grammar
