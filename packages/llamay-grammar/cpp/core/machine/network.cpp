// The network of rules: configurations that are reached by empty transitions.
#include "machine/machine.h"

namespace llamay::grammar {

void Machine::complete(const Frame* top, Configurations& out, Scratch& s, Visited* visited) const {
  if (top->place == Place::Net) {
    network(top->atom, top->parent, out, s, visited);
    return;
  }
  if (top->place == Place::Tagged) return between_members(top, out, s, visited);
  if (top->place == Place::Lead) return begin_name({.top = top->parent}, out);
  Configuration t;
  t.mode = Mode::After, t.top = top;
  out.push_back(t);
}

// Adds the configurations that are reached by empty transitions. `visited` breaks the loops of rules that may
// be empty.
void Machine::network(uint32_t q, const Frame* parent, Configurations& out, Scratch& s,
                      Visited* visited) const {
  Visited own;
  if (!visited) visited = &own;
  for (auto& v : *visited)
    if (v.first == q && v.second == parent) return;
  visited->emplace_back(q, parent);
  const NetState& state = p_.net[q];
  if (state.final) complete(parent, out, s, visited);
  for (const Edge& e : state.edges) {
    if (e.kind == Edge::Skip) {
      network(e.to, parent, out, s, visited);
      continue;
    }
    // A call at the end of a rule needs no frame, so that right recursion does not grow the stack.
    const NetState& next = p_.net[e.to];
    const Frame* top = next.final && next.edges.empty() ? parent : frame(Place::Net, e.to, parent, 0, s);
    Configuration t;
    t.top = top, t.a = e.arg;
    switch (e.kind) {
      case Edge::Lexeme: {
        const StringAtom& a = p_.lexemes[e.arg];
        t.mode = Mode::Raw;
        if (a.language->max_length(0) > 0) out.push_back(t);
        if (a.min == 0 && a.language->accepts(0)) complete(top, out, s, visited);
        break;
      }
      case Edge::Value:
        t.mode = Mode::Value;
        if (p_.nodes[e.arg].possible) out.push_back(t);
        break;
      case Edge::Token:
        t.mode = Mode::Token;
        out.push_back(t);
        break;
      case Edge::Call:
        network(e.arg, top, out, s, visited);
        break;
      case Edge::Tagged:
        for (uint32_t o : p_.tagged[e.arg].objects) {
          Frame* f = frame(Place::Tagged, o, top, p_.objects[o].words(), s);
          f->lead = p_.tagged[e.arg].lead;
          refresh(f);
          between_members(f, out, s, visited);
        }
        break;
      case Edge::Skip:
        break;
    }
  }
}

}  // namespace llamay::grammar
