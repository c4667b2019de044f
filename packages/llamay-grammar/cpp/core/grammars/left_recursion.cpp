// Left recursion, direct or through other rules, rewritten as repetition (Paull's algorithm: Aho, Sethi and
// Ullman, "Compilers", algorithm 4.1): a machine that reads from the left would go round without reading.
#include <algorithm>

#include "grammars/network.h"
#include "support/compile_error.h"

namespace llamay::grammar {

std::vector<std::vector<uint32_t>> NetworkBuilder::components(
    const std::vector<std::vector<uint32_t>>& uses) {  // Tarjan's, without the call stack
  const size_t n = uses.size();
  std::vector<uint32_t> index(n, kNone), low(n, 0), stack;
  std::vector<bool> on(n, false);
  std::vector<std::vector<uint32_t>> out;
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
        continue;
      }
      work.pop_back();
      if (!work.empty()) low[work.back().first] = std::min(low[work.back().first], low[v]);
      if (low[v] != index[v]) continue;
      out.emplace_back();
      uint32_t w;
      do {
        w = stack.back();
        stack.pop_back(), on[w] = false;
        out.back().push_back(w);
      } while (w != v);
    }
  }
  return out;
}

namespace {

Expr made(Expr::Kind kind, std::vector<Expr> kids) {
  Expr e;
  e.kind = kind, e.kids = std::move(kids);
  return e;
}

}  // namespace

void NetworkBuilder::too_many() const {
  const std::string cycle = left_cycle();
  const bool hidden = std::any_of(rules_.begin(), rules_.end(), [](auto& r) { return r.nullable; });
  throw CompileError(hidden ? "rule" : "budget", "",
                     (hidden ? "left recursion that hides behind a rule that may be empty: "
                             : "left recursion with too many alternatives to be rewritten: ") +
                         cycle + "; write it with a repetition");
}

// Expands a sequence into alternatives. Every alternative is empty or begins with a terminal, with a rule
// that cannot be empty, or with a rule of the group.
void NetworkBuilder::heads(Parts parts, const std::vector<bool>& group, std::vector<Parts>& out,
                           uint32_t depth) {
  budget_.tick();
  // Rules that may be empty are replaced by their bodies. The expansion of such a rule that begins with
  // itself would be endless.
  if (depth > budget_.depth) too_many();
  if (out.size() > budget_.alternatives) too_many();
  if (parts.empty()) {
    out.emplace_back();
    return;
  }
  Expr first = std::move(parts.front());
  parts.erase(parts.begin());
  auto with = [&](Parts front) {
    front.insert(front.end(), parts.begin(), parts.end());
    heads(std::move(front), group, out, depth + 1);
  };
  switch (first.kind) {
    case Expr::Sequence:
      return with(std::move(first.kids));
    case Expr::Choice:
      for (Expr& k : first.kids) with({std::move(k)});
      return;
    case Expr::Repeat: {
      if (first.min == 0) with({});
      if (first.max == 0) return;
      Expr one = first.kids[0];
      if (first.min > 0) --first.min;
      if (first.max != kInf) --first.max;
      // An empty first repetition would lead to the same expansion again.
      std::vector<Parts> ones;
      heads({std::move(one)}, group, ones, depth + 1);
      for (Parts& p : ones) {
        if (p.empty()) {
          if (first.min > 0) with({});
          continue;
        }
        p.push_back(first);
        p.insert(p.end(), parts.begin(), parts.end());
        out.push_back(std::move(p));
      }
      return;
    }
    case Expr::Text:
      if (first.text.empty()) return with({});
      break;
    case Expr::Rule:
      if (!group[first.arg] && rules_[first.arg].nullable) return with({rules_[first.arg].body});
      break;
    default:
      break;
  }
  parts.insert(parts.begin(), std::move(first));
  out.push_back(std::move(parts));
}

void NetworkBuilder::rewrite(const std::vector<uint32_t>& group) {
  std::vector<bool> in(rules_.size(), false);
  std::vector<uint32_t> rank(rules_.size(), kNone);
  for (uint32_t i = 0; i < group.size(); ++i) in[group[i]] = true, rank[group[i]] = i;
  std::vector<std::vector<Parts>> done(group.size());
  for (uint32_t i = 0; i < group.size(); ++i) {
    std::vector<Parts> todo, base;
    std::vector<Expr> tails;
    heads({rules_[group[i]].body}, in, todo);
    std::reverse(todo.begin(), todo.end());
    for (size_t steps = 0; !todo.empty(); ++steps) {
      if (steps > budget_.alternatives || base.size() + tails.size() > budget_.alternatives) too_many();
      Parts p = std::move(todo.back());
      todo.pop_back();
      const bool inside = !p.empty() && p[0].kind == Expr::Rule && in[p[0].arg];
      const uint32_t first = inside ? rank[p[0].arg] : kNone;
      if (!inside || first > i) {
        base.push_back(std::move(p));
        continue;
      }
      Parts rest(std::make_move_iterator(p.begin() + 1), std::make_move_iterator(p.end()));
      if (first == i) {
        if (!rest.empty()) tails.push_back(made(Expr::Sequence, std::move(rest)));
        continue;
      }
      for (size_t k = done[first].size(); k-- > 0;) {
        Parts q = done[first][k];
        q.insert(q.end(), rest.begin(), rest.end());
        std::vector<Parts> again;
        heads(std::move(q), in, again);
        for (size_t x = again.size(); x-- > 0;) todo.push_back(std::move(again[x]));
      }
    }
    std::vector<Expr> kids;
    for (const Parts& p : base) kids.push_back(made(Expr::Sequence, p));
    Expr body = made(Expr::Choice, std::move(kids));
    if (!tails.empty()) {
      // r ::= r a r | b is b (a r)*, and b (a b)* says the same in one way only.
      std::vector<Expr> before, others;
      for (Expr& t : tails) {
        const Expr& last = t.kids.back();
        if (t.kids.size() > 1 && last.kind == Expr::Rule && last.arg == group[i]) {
          t.kids.pop_back();
          before.push_back(std::move(t));
        } else {
          others.push_back(std::move(t));
        }
      }
      tails = std::move(others);
      if (!before.empty())
        tails.push_back(made(Expr::Sequence, {made(Expr::Choice, std::move(before)), body}));
      Expr star = made(Expr::Repeat, {made(Expr::Choice, std::move(tails))});
      star.min = 0, star.max = kInf;
      for (Parts& p : base) p.push_back(star);
      body = made(Expr::Sequence, {std::move(body), std::move(star)});
    }
    done[i] = std::move(base);
    rules_[group[i]].body = std::move(body);
  }
}

// Returns the names of the rules of a cycle of left recursion, or "" if there is no cycle.
std::string NetworkBuilder::left_cycle() const {
  std::vector<std::vector<uint32_t>> begins(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i) first_rules(rules_[i].body, begins[i]);
  for (auto& group : components(begins)) {
    // The shortest cycle through one rule of the component.
    const uint32_t from = group.back();
    std::vector<uint32_t> before(rules_.size(), kNone), queue{from};
    for (size_t k = 0; k < queue.size(); ++k)
      for (uint32_t r : begins[queue[k]]) {
        if (r == from) {
          std::string out = rules_[from].name;
          for (uint32_t x = queue[k]; x != from; x = before[x]) out = rules_[x].name + " -> " + out;
          return rules_[from].name + " -> " + out;
        }
        if (before[r] == kNone) before[r] = queue[k], queue.push_back(r);
      }
  }
  return "";
}

void NetworkBuilder::left_recursion(uint32_t root) {
  std::vector<std::vector<uint32_t>> begins(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i) first_rules(rules_[i].body, begins[i]);
  for (auto group : components(begins)) {
    const bool loop =
        std::find(begins[group[0]].begin(), begins[group[0]].end(), group[0]) != begins[group[0]].end();
    if (group.size() == 1 && !loop) continue;
    // The rules that other rules use are rewritten last. In this order, an unambiguous group of rules stays
    // unambiguous.
    std::vector<bool> in(rules_.size(), false), used(rules_.size(), false);
    for (uint32_t r : group) in[r] = true;
    for (size_t r = 0; r < rules_.size(); ++r) {
      if (in[r]) continue;
      for (uint32_t x : uses(rules_[r].body)) used[x] = true;
    }
    used[root] = true;
    // Rules that may be empty come first, so that they are replaced at the beginning of the other rules.
    std::sort(group.begin(), group.end(), [&](uint32_t a, uint32_t b) {
      if (used[a] != used[b]) return bool{used[b]};
      if (rules_[a].nullable != rules_[b].nullable) return rules_[a].nullable;
      return a < b;
    });
    rewrite(group);
  }
  if (const std::string cycle = left_cycle(); !cycle.empty())
    throw CompileError("rule", "",
                       "left recursion that hides behind a rule that may be empty: " + cycle +
                           "; write it with a repetition");
}

}  // namespace llamay::grammar
