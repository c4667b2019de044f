#include <bit>

#include "contexts/context.hpp"

namespace llamay::kv {

Export::Export(Ref<Table> table, uint32_t n_tokens, uint32_t n_reserved)
    : table_(std::move(table)), pinned_(table_->pool()->spill() != nullptr) {
  if (pinned_) table_->pin();
  const Pool& pool = *table_->pool();
  const size_t n = pool.n_groups();
  const States& states = table_->states().live();
  if (pool.has_states()) states_.resize(n);
  llamay_kv_group* groups = inline_;
  if (n > kInline) {
    more_ = std::make_unique<llamay_kv_group[]>(n);
    groups = more_.get();
  }
  for (size_t g = 0; g < n; ++g) {
    const GroupLayout& layout = pool.layout(g);
    groups[g] = {.arena = pool.arena(g),
                 .page_bytes = layout.page_bytes,
                 .blocks = table_->group(g).blocks.data(),
                 .layers = &layout.layers.data()->layer,
                 .layer_stride = sizeof(PlacedLayer),
                 .n_layers = uint32_t(layout.layers.size()),
                 .block_pages = kBlockPages,
                 .page_tokens = layout.page_tokens,
                 .kind = uint32_t(layout.spec.kind),
                 .window = layout.spec.window,
                 .dtype = uint32_t(layout.spec.precision),
                 .state_at = nullptr,
                 .n_states = 0};
    if (!layout.recurrent()) continue;
    states_[g] = states.pages[g].data();
    groups[g].blocks = &states_[g];
    groups[g].block_pages = uint32_t(std::bit_ceil(std::max<size_t>(1, states.size())));
    groups[g].state_at = states.at.data();
    groups[g].n_states = states.size();
  }
  view_ = {.size = sizeof view_,
           .group_stride = sizeof(llamay_kv_group),
           .n_groups = uint32_t(n),
           .groups = groups,
           .n_tokens = n_tokens,
           .n_reserved = n_reserved};
}

}  // namespace llamay::kv
