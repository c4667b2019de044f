#include "network.h"

#include <algorithm>

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

// r ::= r a | b becomes r ::= b a*.
void NetworkBuilder::left_recursion(RuleInfo& r, uint32_t number) {
  auto begins = [&](const Expr& e) {
    if (e.kind == Expr::Rule) return e.arg == number;
    return e.kind == Expr::Sequence && !e.kids.empty() && e.kids[0].kind == Expr::Rule &&
           e.kids[0].arg == number;
  };
  std::vector<Expr> alternatives;
  if (r.body.kind == Expr::Choice)
    alternatives = r.body.kids;
  else
    alternatives = {r.body};
  if (std::none_of(alternatives.begin(), alternatives.end(), begins)) return;
  Expr base, tails;
  base.kind = tails.kind = Expr::Choice;
  for (Expr& a : alternatives) {
    if (!begins(a)) {
      base.kids.push_back(std::move(a));
    } else if (a.kind == Expr::Sequence && a.kids.size() > 1) {
      a.kids.erase(a.kids.begin());
      tails.kids.push_back(std::move(a));
    }
  }
  if (tails.kids.empty()) {
    r.body = std::move(base);
    return;
  }
  Expr star, seq;
  star.kind = Expr::Repeat, star.min = 0, star.max = kInf;
  star.kids.push_back(std::move(tails));
  seq.kids.push_back(std::move(base));
  seq.kids.push_back(std::move(star));
  r.body = std::move(seq);
}

void NetworkBuilder::mark_recursive() {
  // Depth-first search over "uses"; a rule is recursive when it can reach itself.
  const size_t n = rules_.size();
  std::vector<std::vector<uint32_t>> uses(n);
  for (size_t i = 0; i < n; ++i) {
    std::vector<const Expr*> todo{&rules_[i].body};
    while (!todo.empty()) {
      const Expr* e = todo.back();
      todo.pop_back();
      if (e->kind == Expr::Rule) uses[i].push_back(e->arg);
      for (auto& k : e->kids) todo.push_back(&k);
    }
  }
  // Tarjan's components, iteratively.
  std::vector<uint32_t> index(n, kNone), low(n, 0), stack;
  std::vector<bool> on(n, false);
  uint32_t next = 0;
  for (uint32_t root = 0; root < n; ++root) {
    if (index[root] != kNone) continue;
    std::vector<std::pair<uint32_t, size_t>> work{{root, 0}};
    while (!work.empty()) {
      auto [v, i] = work.back();
      if (i == 0) index[v] = low[v] = next++, stack.push_back(v), on[v] = true;
      if (i < uses[v].size()) {
        ++work.back().second;
        uint32_t w = uses[v][i];
        if (index[w] == kNone)
          work.emplace_back(w, 0);
        else if (on[w])
          low[v] = std::min(low[v], index[w]);
        if (w == v) rules_[v].recursive = true;
        continue;
      }
      work.pop_back();
      if (!work.empty()) low[work.back().first] = std::min(low[work.back().first], low[v]);
      if (low[v] == index[v]) {
        bool many = stack.back() != v;
        uint32_t w;
        do {
          w = stack.back();
          stack.pop_back(), on[w] = false;
          if (many) rules_[w].recursive = true;
        } while (w != v);
      }
    }
  }
}

bool NetworkBuilder::regular(const Expr& e) {
  switch (e.kind) {
    case Expr::Value:
    case Expr::Token:
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
  if (!p_.lexemes[it->second].lang->empty()) p_.net[from].edges.push_back({Edge::Lexeme, it->second, to});
}

void NetworkBuilder::build(const Expr& e, uint32_t from, uint32_t to) {
  budget_.tick();
  if (regular(e)) return lexeme(term(e), from, to);
  switch (e.kind) {
    case Expr::Rule:
      if (rules_[e.arg].start == kNone) {  // not recursive, but made of values: built where it is used
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
  for (uint32_t i = 0; i < rules_.size(); ++i) left_recursion(rules_[i], i);
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
  // What cannot be finished must not be begun.
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
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    std::vector<bool> seen(rules_.size(), false);
    std::vector<uint32_t> todo;
    first_rules(rules_[i].body, todo);
    while (!todo.empty()) {
      uint32_t r = todo.back();
      todo.pop_back();
      if (r == i)
        throw CompileError("rule", "",
                           "the rule '" + rules_[i].name + "' is left-recursive through other rules");
      if (seen[r]) continue;
      seen[r] = true;
      first_rules(rules_[r].body, todo);
    }
  }
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
