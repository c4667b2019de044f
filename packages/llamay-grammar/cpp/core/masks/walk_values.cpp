// Values after names: a value entry is valid in every object.
#include <string>
#include <utility>

#include "masks/walk.h"

namespace llamay::grammar {

// Collects the tokens below n that continue after the value.
void MaskWalk::Values::end(const Trie& trie, uint32_t n, bool of_number) {
  std::string text;
  auto below = [&](auto& self, uint32_t at) -> void {
    const Trie::Kids kids = trie.kids(at);
    for (uint32_t k = 0; k < kids.n; ++k) {
      if (of_number && text.empty() && !follows_member(kids.bytes[k])) continue;
      const uint32_t c = kids.nodes[k];
      text.push_back(static_cast<char>(kids.bytes[k]));
      for (uint32_t i = 0; i < trie.n_at(c); ++i) behind.emplace_back(text, trie.tokens_at(c)[i]);
      self(self, c);
      text.pop_back();
    }
  };
  below(below, n);
}

ValueEntryPtr MaskWalk::value_entry(const std::shared_ptr<const Trie>& trie, uint32_t node) {
  if (ValueEntryPtr known = values->find(trie.get(), node)) return known;
  auto made = std::make_shared<ValueEntry>();
  made->trie = trie;
  Values of{nowhere(), made->inside, {}};
  collecting = &of;
  Configuration t;
  t.mode = Mode::Colon, t.a = node, t.top = of.bottom;
  walk(*trie, 0, t);
  collecting = nullptr;
  std::vector<std::pair<std::string_view, uint32_t>> behind(of.behind.begin(), of.behind.end());
  made->rest.build(std::move(behind));
  return values->add(node, std::move(made));
}

void MaskWalk::value(const std::shared_ptr<const Trie>& trie, Configurations& after) {
  // If items are compared as documents, the allowed values depend on the position of the value.
  if (!values || collecting || m.program().deep) return follow(*trie, 0, after, true);
  for (const Configuration& t : after) {
    tokens(*trie, 0);
    const ValueEntryPtr e = value_entry(trie, t.a);
    put(e->inside.data(), e->inside.size());
    if (e->rest.n_tokens() == 0) continue;
    Configuration behind;
    behind.mode = Mode::After, behind.top = t.top;
    walk(e->rest, 0, behind);
  }
}

}  // namespace llamay::grammar
