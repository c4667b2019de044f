#include "grammars/network.h"

#include <algorithm>

#include "support/compile_error.h"

namespace llamay::grammar {

void NetworkBuilder::define(const std::string& name, Expr body) {
  if (names_.count(name)) throw CompileError("rule", "", "the rule '" + name + "' is defined twice");
  if (rules_.size() >= budget_.nodes) throw CompileError("budget", "", "too many rules");
  names_[name] = static_cast<uint32_t>(rules_.size());
  RuleInfo r;
  r.name = name, r.body = std::move(body);
  rules_.push_back(std::move(r));
}

void NetworkBuilder::resolve(Expr& e, const RuleInfo& in, uint32_t depth) {
  if (depth > budget_.depth) throw CompileError("rule", "", "the rule '" + in.name + "' is nested too deep");
  budget_.tick();
  if (e.kind == Expr::Rule) {
    auto it = names_.find(e.text);
    if (it == names_.end())
      throw CompileError("rule", "", "the rule '" + e.text + "', used in '" + in.name + "', is not defined");
    e.arg = it->second;
  }
  for (Expr& k : e.kids) resolve(k, in, depth + 1);
}

bool NetworkBuilder::nullable(const Expr& e) const {
  switch (e.kind) {
    case Expr::Text:
      return e.text.empty();
    case Expr::Term:
      return terms_.nullable(e.arg);
    case Expr::Rule:
      return rules_[e.arg].nullable;
    case Expr::Sequence:
      return std::all_of(e.kids.begin(), e.kids.end(), [&](auto& k) { return nullable(k); });
    case Expr::Choice:
      return std::any_of(e.kids.begin(), e.kids.end(), [&](auto& k) { return nullable(k); });
    case Expr::Repeat:
      return e.min == 0 || nullable(e.kids[0]);
    default:
      return false;
  }
}

bool NetworkBuilder::productive(const Expr& e) const {
  switch (e.kind) {
    case Expr::Set:
      return !e.set.ranges.empty();
    case Expr::Term:
      return e.arg != terms_.none();
    case Expr::Rule:
      return rules_[e.arg].productive;
    case Expr::Sequence:
      return std::all_of(e.kids.begin(), e.kids.end(), [&](auto& k) { return productive(k); });
    case Expr::Choice:
      return std::any_of(e.kids.begin(), e.kids.end(), [&](auto& k) { return productive(k); });
    case Expr::Repeat:
      return e.min == 0 || productive(e.kids[0]);
    default:
      return true;
  }
}

// The rules with which e can begin.
void NetworkBuilder::first_rules(const Expr& e, std::vector<uint32_t>& out) const {
  switch (e.kind) {
    case Expr::Rule:
      out.push_back(e.arg);
      break;
    case Expr::Sequence:
      for (auto& k : e.kids) {
        first_rules(k, out);
        if (!nullable(k)) break;
      }
      break;
    case Expr::Choice:
    case Expr::Repeat:
      for (auto& k : e.kids) first_rules(k, out);
      break;
    default:
      break;
  }
}

std::vector<uint32_t> NetworkBuilder::uses(const Expr& body) {
  std::vector<uint32_t> out;
  std::vector<const Expr*> todo{&body};
  while (!todo.empty()) {
    const Expr* e = todo.back();
    todo.pop_back();
    if (e->kind == Expr::Rule) out.push_back(e->arg);
    for (auto& k : e->kids) todo.push_back(&k);
  }
  return out;
}

// A rule is recursive when it can reach itself.
void NetworkBuilder::mark_recursive() {
  std::vector<std::vector<uint32_t>> used;
  for (auto& r : rules_) used.push_back(uses(r.body));
  for (auto& group : components(used))
    for (uint32_t v : group)
      if (group.size() > 1 || std::find(used[v].begin(), used[v].end(), v) != used[v].end())
        rules_[v].recursive = true;
}

bool NetworkBuilder::regular(const Expr& e) {
  switch (e.kind) {
    case Expr::Value:
    case Expr::Token:
    case Expr::Tagged:
      return false;
    case Expr::Rule: {
      RuleInfo& r = rules_[e.arg];
      if (r.regular < 0) r.regular = !r.recursive && regular(r.body);
      return r.regular;
    }
    default:
      return std::all_of(e.kids.begin(), e.kids.end(), [&](auto& k) { return regular(k); });
  }
}

Terms::Id NetworkBuilder::term(const Expr& e) {
  budget_.tick();
  switch (e.kind) {
    case Expr::Text:
      return terms_.text(e.text);
    case Expr::Set:
      return terms_.set(e.set.without_surrogates());
    case Expr::Term:
      return e.arg;
    case Expr::Rule: {
      if (!rules_[e.arg].has_term) {
        Terms::Id t = term(rules_[e.arg].body);
        rules_[e.arg].term = t, rules_[e.arg].has_term = true;
      }
      return rules_[e.arg].term;
    }
    case Expr::Sequence: {
      Terms::Id t = terms_.epsilon();
      for (size_t i = e.kids.size(); i-- > 0;) t = terms_.concat(term(e.kids[i]), t);
      return t;
    }
    case Expr::Choice: {
      std::vector<Terms::Id> parts;
      for (auto& k : e.kids) parts.push_back(term(k));
      return terms_.alt(std::move(parts));
    }
    default:
      return terms_.repeat(term(e.kids[0]), e.min, e.max);
  }
}

uint32_t NetworkBuilder::state() {
  if (p_.net.size() >= budget_.nodes) throw CompileError("budget", "", "the grammar has too many states");
  p_.net.emplace_back();
  return static_cast<uint32_t>(p_.net.size() - 1);
}

void NetworkBuilder::lexeme(Terms::Id t, uint32_t from, uint32_t to) {
  if (t == terms_.none()) return;
  if (t == terms_.epsilon()) {
    p_.net[from].edges.push_back({Edge::Skip, 0, to});
    return;
  }
  auto [it, fresh] = lexemes_.emplace(t, static_cast<uint32_t>(p_.lexemes.size()));
  if (fresh) p_.lexemes.push_back({terms_.compile(t), 0, kInf});
  if (!p_.lexemes[it->second].language->empty()) p_.net[from].edges.push_back({Edge::Lexeme, it->second, to});
}

void NetworkBuilder::build(const Expr& e, uint32_t from, uint32_t to) {
  budget_.tick();
  if (regular(e)) return lexeme(term(e), from, to);
  switch (e.kind) {
    case Expr::Rule:
      if (rules_[e.arg].start == kNone) {  // not recursive, but has values: built at every use
        build(rules_[e.arg].body, from, to);
      } else {
        p_.net[from].edges.push_back({Edge::Call, rules_[e.arg].start, to});
      }
      break;
    case Expr::Value:
      p_.net[from].edges.push_back({Edge::Value, e.arg, to});
      break;
    case Expr::Token:
      p_.net[from].edges.push_back({Edge::Token, e.arg, to});
      break;
    case Expr::Tagged:
      p_.net[from].edges.push_back({Edge::Tagged, e.arg, to});
      break;
    case Expr::Sequence: {
      uint32_t at = from;
      for (size_t i = 0; i < e.kids.size();) {
        size_t j = i;
        std::vector<Terms::Id> run;
        while (j < e.kids.size() && regular(e.kids[j])) run.push_back(term(e.kids[j++]));
        if (j == i) ++j;
        uint32_t next = j == e.kids.size() ? to : state();
        if (!run.empty()) {
          Terms::Id t = terms_.epsilon();
          for (size_t k = run.size(); k-- > 0;) t = terms_.concat(run[k], t);
          lexeme(t, at, next);
        } else {
          build(e.kids[i], at, next);
        }
        at = next;
        i = j;
      }
      break;
    }
    case Expr::Choice: {
      std::vector<Terms::Id> parts;
      for (auto& k : e.kids) {
        if (regular(k))
          parts.push_back(term(k));
        else
          build(k, from, to);
      }
      if (!parts.empty()) lexeme(terms_.alt(std::move(parts)), from, to);
      break;
    }
    case Expr::Repeat: {
      uint32_t at = from;
      uint64_t copies = e.max == kInf ? e.min : e.max;
      if (copies > 10000)
        throw CompileError("budget", "", "a repetition of more than 10000 parts that are not regular");
      for (uint32_t i = 0; i < copies; ++i) {
        if (i >= e.min) p_.net[at].edges.push_back({Edge::Skip, 0, to});
        uint32_t next = e.max != kInf && i + 1 == copies ? to : state();
        build(e.kids[0], at, next);
        at = next;
      }
      if (e.max == kInf) {
        uint32_t loop = state();
        p_.net[at].edges.push_back({Edge::Skip, 0, loop});
        build(e.kids[0], loop, loop);
        p_.net[loop].edges.push_back({Edge::Skip, 0, to});
      } else if (copies == 0) {
        p_.net[from].edges.push_back({Edge::Skip, 0, to});
      }
      break;
    }
    default:
      break;
  }
}

void NetworkBuilder::finish(const std::string& root) {
  auto it = names_.find(root);
  if (it == names_.end()) throw CompileError("rule", "", "the grammar has no rule '" + root + "'");
  for (auto& r : rules_) resolve(r.body, r, 0);
  for (bool more = true; more;) {
    more = false;
    budget_.check_time();
    for (auto& r : rules_) {
      if (!r.nullable && nullable(r.body)) r.nullable = more = true;
      if (!r.productive && productive(r.body)) r.productive = more = true;
    }
  }
  if (!rules_[it->second].productive)
    throw CompileError("rule", "", "the rule '" + root + "' describes no finite text");
  // Alternatives without a finite text are removed, so that no document gets into one of them.
  for (auto& r : rules_) {
    std::vector<Expr*> todo{&r.body};
    while (!todo.empty()) {
      Expr* e = todo.back();
      todo.pop_back();
      if (e->kind == Expr::Choice) std::erase_if(e->kids, [&](auto& k) { return !productive(k); });
      if (e->kind == Expr::Repeat && !productive(e->kids[0])) e->max = 0;
      for (auto& k : e->kids) todo.push_back(&k);
    }
  }
  left_recursion(it->second);
  mark_recursive();
  uint32_t start = state(), end = state();
  p_.net[end].final = true;
  p_.start = start;
  for (auto& r : rules_)
    if (r.recursive && r.productive) r.start = state();
  for (auto& r : rules_) {
    if (r.start == kNone) continue;
    uint32_t last = state();
    p_.net[last].final = true;
    build(r.body, r.start, last);
  }
  Expr e;
  e.kind = Expr::Rule, e.arg = it->second;
  build(e, start, end);
}

}  // namespace llamay::grammar
