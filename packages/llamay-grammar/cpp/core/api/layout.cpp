// Layouts: documents made of texts, JSON values, tagged objects and special tokens.
#include <deque>

#include "api/compile.h"
#include "api/options.h"
#include "expansion/expander.h"
#include "grammars/network.h"
#include "grammars/tagged.h"
#include "text/unicode.h"

namespace llamay::grammar {

namespace {

class LayoutReader {
 public:
  LayoutReader(const VocabularyPtr& v, const CompileOptions& options, const std::set<std::string>& dropped,
               bool tracking)
      : v_(v),
        budget_(options.budget),
        formulas_(budget_, options.schema_order),
        so_(schema_options(options, dropped)),
        reader_(formulas_, so_, budget_),
        grammar_(std::make_shared<Grammar>()),
        expander_(formulas_, grammar_->program, budget_),
        builder_(grammar_->program, budget_),
        lenient_(options.mode != CompileMode::Exact) {
    grammar_->vocabulary = v;
    formulas_.tracking = tracking;
    settings(grammar_->program, options);
  }

  GrammarPtr read(const Json& layout) {
    const Json *schemas = layout.get("schemas"), *part = layout.get("part");
    if (!schemas || !part) throw CompileError("layout", "", "a layout has schemas and a part");
    for (const Json& each : schemas->items) {
      const Json *schema = each.get("schema"), *text = each.get("text"), *at = each.get("at");
      if (text) schema = &texts_.emplace_back(parse_json(text->text, budget_.depth));
      if (!schema || !at) throw CompileError("layout", "", "a schema of a layout has schema or text, and at");
      const uint32_t node = expander_.node(reader_.read(*schema, "", at->text));
      values_.emplace_back(node, at->text);
    }
    if (const Json* rules = layout.get("rules"))
      for (const auto& [name, body] : rules->members) builder_.define(name, expression(body, 0));
    Expr root = expression(*part, 0);
    expander_.finish();
    for (auto& [node, at] : values_)
      if (!grammar_->program.nodes[node].possible)
        throw CompileError("", at.empty() ? "/" : at, "no value satisfies this schema");
    builder_.define("layout", std::move(root));
    builder_.finish("layout");
    TaggedObjects tags(grammar_->program, budget_, lenient_);
    for (const TagSpec& spec : tagged_) grammar_->program.tagged.push_back(tags.build(spec));
    return grammar_;
  }

 private:
  const VocabularyPtr& v_;
  Budget budget_;
  Formulas formulas_;
  SchemaOptions so_;
  SchemaReader reader_;
  GrammarPtr grammar_;
  Expander expander_;
  NetworkBuilder builder_;
  // The node of each schema, and the schema's JSON pointer for error messages. A part refers to a schema by
  // its index in this list, because several parts may need the same schema and reading it is most of the
  // work.
  std::vector<std::pair<uint32_t, std::string>> values_;
  std::deque<Json> texts_;  // the schemas that the layout has as texts, which may be malformed
  std::vector<TagSpec> tagged_;
  bool lenient_;

  std::vector<TagPart> tag(const Json* parts) const {
    std::vector<TagPart> out;
    if (!parts) return out;
    for (const Json& each : parts->items) {
      if (const Json* x = each.get("text")) {
        if (!out.empty() && out.back().kind == TagPart::Text)
          out.back().text += x->text;
        else
          out.push_back({TagPart::Text, x->text, {}, 0});
      } else if (const Json* t = each.get("token")) {
        const Json* as = each.get("as");
        out.push_back({TagPart::Token, as ? as->text : "", {}, special(*t)});
      } else if (const Json* types = each.get("typed"); types && types->items.size() == 2) {
        out.push_back({TagPart::Typed, types->items[0].text, types->items[1].text, 0});
      } else {
        throw CompileError("layout", "", "a part of a tag that is none of text, token, typed");
      }
    }
    return out;
  }

  uint32_t special(const Json& token) const {
    const uint32_t id = static_cast<uint32_t>(std::stoul(token.text));
    if (id >= v_->size() || !v_->is_special(id))
      throw CompileError("token", "", "token " + token.text + " is not a special token");
    return id;
  }

  const std::pair<uint32_t, std::string>& schema(const Json& number) const {
    const size_t i = std::stoul(number.text);
    if (i >= values_.size()) throw CompileError("layout", "", "the layout has no schema " + number.text);
    return values_[i];
  }

  // The types that are read as JSON beside strings, by the letters n(ull), b(oolean), d(igits), a(rray),
  // o(bject).
  static uint8_t types(const Json& letters) {
    uint8_t out = 0;
    for (char c : letters.text)
      for (auto [letter, type] : std::initializer_list<std::pair<char, uint8_t>>{
               {'n', kNull}, {'b', kBoolean}, {'d', kNumber}, {'a', kArray}, {'o', kObject}})
        if (c == letter) out |= type;
    return out;
  }

  uint32_t members(const Json& j) {
    TagSpec spec;
    const Json* number = j.get("schema");
    if (!number) throw CompileError("layout", "", "members of a layout have a schema");
    std::tie(spec.node, spec.at) = schema(*number);
    spec.open = tag(j.get("open")), spec.after = tag(j.get("after")), spec.close = tag(j.get("close"));
    if (const Json* mixed = j.get("mixed"))
      for (const auto& [name, letters] : mixed->members) spec.mixed.of[name] = types(letters);
    if (const Json* other = j.get("other")) spec.mixed.other = types(*other);
    tagged_.push_back(std::move(spec));
    return static_cast<uint32_t>(tagged_.size() - 1);
  }

  Expr expression(const Json& j, uint32_t depth) {
    if (depth > budget_.depth) throw CompileError("layout", "", "the layout is nested too deep");
    Expr e;
    auto list = [&](const Json& l) {
      for (const Json& x : l.items) e.kids.push_back(expression(x, depth + 1));
    };
    if (const Json* x = j.get("text")) {
      e.kind = Expr::Text, e.text = x->text;
    } else if (const Json* x = j.get("letters")) {
      e.kind = Expr::Set;
      for (const unsigned char c : x->text) e.set.add(c, c);
      e.set.normalise();
    } else if (const Json* x = j.get("token")) {
      e.kind = Expr::Token, e.arg = special(*x);
    } else if (const Json* x = j.get("schema")) {
      e.kind = Expr::Value, e.arg = schema(*x).first;
    } else if (const Json* x = j.get("members")) {
      e.kind = Expr::Tagged, e.arg = members(*x);
    } else if (const Json* x = j.get("rule")) {
      e.kind = Expr::Rule, e.text = x->text;
    } else if (const Json* x = j.get("free")) {
      Terms& t = builder_.terms();
      std::vector<Terms::Id> avoid;
      for (const Json& stop : x->items)
        avoid.push_back(t.negate(t.concat(t.anything(), t.concat(t.text(stop.text), t.anything()))));
      e.kind = Expr::Term, e.arg = t.both(std::move(avoid));
    } else if (const Json* x = j.get("seq")) {
      e.kind = Expr::Sequence;
      list(*x);
    } else if (const Json* x = j.get("any")) {
      e.kind = Expr::Choice;
      list(*x);
    } else if (const Json* x = j.get("many")) {
      e.kind = Expr::Repeat, e.min = 0, e.max = kInf;
      if (const Json* n = j.get("min"); n && n->is(JsonKind::Number))
        e.min = static_cast<uint32_t>(std::stoul(n->text));
      if (const Json* n = j.get("max"); n && n->is(JsonKind::Number))
        e.max = static_cast<uint32_t>(std::stoul(n->text));
      e.kids.push_back(expression(*x, depth + 1));
    } else {
      throw CompileError("layout", "",
                         "a part of the layout that is none of text, letters, token, schema, members, rule, "
                         "free, seq, any, many");
    }
    return e;
  }
};

}  // namespace

GrammarPtr compile_layout(const std::string& layout, const VocabularyPtr& v, const CompileOptions& given) {
  CompileOptions options = given;
  options.budget.start = Budget::now();
  require_utf8(layout);
  Json document = parse_json(layout, options.budget.depth * 2);
  return with_retries(options, [&](const std::set<std::string>& dropped, bool tracking) {
    return LayoutReader(v, options, dropped, tracking).read(document);
  });
}

}  // namespace llamay::grammar
