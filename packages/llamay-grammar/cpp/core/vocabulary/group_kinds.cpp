#include "vocabulary/group_kinds.h"

#include <algorithm>

#include "tokens/character_classes.h"

namespace llamay::grammar {

GroupKinds::GroupKinds(const TokenGroups& groups, const Language& l, bool json) {
  uint64_t live = 0;
  for (uint32_t s = 0, n = l.n_states(); s < n; ++s)
    for (uint32_t c = 0; c < l.n_classes; ++c)
      if (l.table[size_t{s} * l.n_classes + c] != kDead) live |= uint64_t{1} << c;
  auto touch = [&](uint64_t classes, uint32_t by) {
    for (; classes != 0; classes &= classes - 1) touched[__builtin_ctzll(classes)] |= uint64_t{1} << by;
  };
  for (uint32_t c = 0; c < 128; ++c) touch(character_classes(c, c), l.ascii_class[c]);
  for (size_t i = 0; i < l.range_start.size(); ++i)
    touch(character_classes(l.range_start[i],
                            i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint),
          l.range_class[i]);
  uint64_t fatal = 0;  // classes of characters that no state reads
  for (uint32_t b = 0; b < kClassBroken; ++b)
    if (touched[b] != 0 && (touched[b] & live) == 0) fatal |= uint64_t{1} << b;
  auto touched_by = [&](uint64_t classes) {
    uint64_t out = 0;
    for (; classes != 0; classes &= classes - 1) out |= touched[__builtin_ctzll(classes)];
    return out;
  };

  const std::vector<TokenGroups::Group>& all = groups.groups();
  uint32_t slot_bits = 1;
  while (size_t{1} << slot_bits < all.size() * 2) ++slot_bits;
  std::vector<uint32_t> slots(size_t{1} << slot_bits, kDead);
  members.reserve(all.size());
  for (uint32_t g = 0; g < all.size(); ++g) {
    const TokenGroups::Group& x = all[g];
    if (json && !x.plain) continue;
    const uint32_t tokens = x.last - x.first, cost = groups.cost(g);
    if ((x.classes & fatal) != 0) {
      dead_cost += cost;
      continue;
    }
    const uint64_t rest = touched_by(x.rest), lead = x.lead == x.rest ? rest : touched_by(x.lead);
    size_t at = (lead * 0xD6E8FEB86659FD93ull ^ rest) * 0x9E3779B97F4A7C15ull >> (64 - slot_bits);
    while (slots[at] != kDead && (kinds[slots[at]].lead != lead || kinds[slots[at]].rest != rest))
      at = (at + 1) % slots.size();
    if (slots[at] == kDead) {
      slots[at] = static_cast<uint32_t>(kinds.size());
      kinds.push_back({lead, rest, 0, 0});
    }
    kinds[slots[at]].tokens += tokens, kinds[slots[at]].cost += cost;
    members.push_back({g, slots[at]});
  }
  std::vector<uint32_t> order(kinds.size()), place(kinds.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return kinds[a].tokens > kinds[b].tokens; });
  std::vector<Kind> sorted;
  for (uint32_t i : order) place[i] = static_cast<uint32_t>(sorted.size()), sorted.push_back(kinds[i]);
  kinds = std::move(sorted);
  for (Member& m : members) m.kind = place[m.kind];
}

}  // namespace llamay::grammar
