#include "copy.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "half.hpp"

namespace llamay::kv {
namespace {

/// Call f(page, slot, n, done) for each stretch of [begin, end) that lies in one page.
template <class F>
void for_each_stretch(const Table& table, size_t g, uint32_t begin, uint32_t end, F&& f) {
  const Pool& pool = *table.pool();
  const uint32_t P = pool.page_tokens();
  for (uint32_t at = begin; at < end;) {
    const uint32_t slot = at % P, n = std::min(P - slot, end - at);
    f(pool.page(g, table.page(g, at / P)), slot, n, at - begin);
    at += n;
  }
}

/// Move a stretch of one layer between a page and packed memory of `total` positions.
template <bool to_page, class Page, class Packed>
void move_packed(const GroupLayout& layout, const llamay_kv_layer& l, Page* page, uint32_t slot, uint32_t n,
                 Packed* packed, uint32_t done, uint32_t total) {
  const size_t e = layout.element_size, P = layout.page_tokens;
  const auto move = [](Page* in_page, Packed* outside, size_t bytes) {
    if constexpr (to_page)
      std::memcpy(in_page, outside, bytes);
    else
      std::memcpy(outside, in_page, bytes);
  };
  Page* k = page + l.k_offset;
  Page* v = page + l.v_offset;
  const size_t rows = size_t(l.kv_heads) * l.k_dim;
  Packed* packed_v = packed + rows * total * e;
  if (n == P && n == total) {
    move(k, packed, rows * P * e);
    move(v, packed_v, size_t(l.kv_heads) * P * l.v_dim * e);
    return;
  }
  for (size_t row = 0; row < rows; ++row)
    move(k + (row * P + slot) * e, packed + (row * total + done) * e, n * e);
  for (size_t h = 0; h < l.kv_heads; ++h)
    move(v + (h * P + slot) * l.v_dim * e, packed_v + (h * total + done) * l.v_dim * e,
         size_t(n) * l.v_dim * e);
}

size_t layer_bytes(const GroupLayout& layout, const llamay_kv_layer& l, uint32_t positions) {
  return size_t(l.kv_heads) * (size_t(l.k_dim) + l.v_dim) * layout.element_size * positions;
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<To, float>)
    return half_to_float(x);
  else
    return float_to_half(x);
}

/// Stored type S, the caller's type T.
template <bool to_page, class S, class T>
void transpose(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, T* k_array, T* v_array) {
  const GroupLayout& layout = table.pool()->layout(place.group);
  const llamay_kv_layer& l = layout.layers[place.index];
  const size_t P = layout.page_tokens, H = l.kv_heads, K = l.k_dim, V = l.v_dim;
  for_each_stretch(table, place.group, begin, end,
                   [&](std::byte* page, uint32_t slot, uint32_t n, uint32_t done) {
                     S* k = reinterpret_cast<S*>(page + l.k_offset);
                     S* v = reinterpret_cast<S*>(page + l.v_offset);
                     for (size_t h = 0; h < H; ++h) {
                       for (size_t p = 0; p < n; ++p) {
                         S* stored_k = k + h * K * P + slot + p;
                         S* stored_v = v + (h * P + slot + p) * V;
                         T* outside_k = k_array + ((done + p) * H + h) * K;
                         T* outside_v = v_array + ((done + p) * H + h) * V;
                         if constexpr (to_page) {
                           for (size_t d = 0; d < K; ++d)
                             stored_k[d * P] = convert<S>(std::remove_const_t<T>(outside_k[d]));
                           for (size_t d = 0; d < V; ++d)
                             stored_v[d] = convert<S>(std::remove_const_t<T>(outside_v[d]));
                         } else {
                           for (size_t d = 0; d < K; ++d) outside_k[d] = convert<T>(stored_k[d * P]);
                           for (size_t d = 0; d < V; ++d) outside_v[d] = convert<T>(stored_v[d]);
                         }
                       }
                     }
                   });
}

}  // namespace

void copy_slots(const GroupLayout& layout, const std::byte* from, std::byte* to, uint32_t n) {
  if (n == layout.page_tokens) {
    std::memcpy(to, from, layout.page_bytes);
    return;
  }
  const size_t e = layout.element_size, P = layout.page_tokens;
  for (const llamay_kv_layer& l : layout.layers) {
    for (size_t row = 0; row < size_t(l.kv_heads) * l.k_dim; ++row) {
      const size_t at = l.k_offset + row * P * e;
      std::memcpy(to + at, from + at, n * e);
    }
    for (size_t h = 0; h < l.kv_heads; ++h) {
      const size_t at = l.v_offset + h * P * l.v_dim * e;
      std::memcpy(to + at, from + at, size_t(n) * l.v_dim * e);
    }
  }
}

const std::byte* packed_in_place(const Table& table, size_t g, uint32_t begin, uint32_t end) {
  const GroupLayout& layout = table.pool()->layout(g);
  const uint32_t P = layout.page_tokens;
  // Padding between layers would break it, and is there only where 64-byte alignment asks for it.
  if (end - begin != P || begin % P || layout.packed_bytes(P) != layout.page_bytes) return nullptr;
  return table.pool()->page(g, table.page(g, begin / P));
}

void pack(const Table& table, size_t g, uint32_t begin, uint32_t end, std::byte* out) {
  const GroupLayout& layout = table.pool()->layout(g);
  for_each_stretch(table, g, begin, end,
                   [&](const std::byte* page, uint32_t slot, uint32_t n, uint32_t done) {
                     std::byte* to = out;
                     for (const llamay_kv_layer& l : layout.layers) {
                       move_packed<false>(layout, l, page, slot, n, to, done, end - begin);
                       to += layer_bytes(layout, l, end - begin);
                     }
                   });
}

void unpack(const Table& table, size_t g, uint32_t begin, uint32_t end, const std::byte* in) {
  const GroupLayout& layout = table.pool()->layout(g);
  for_each_stretch(table, g, begin, end, [&](std::byte* page, uint32_t slot, uint32_t n, uint32_t done) {
    const std::byte* from = in;
    for (const llamay_kv_layer& l : layout.layers) {
      move_packed<true>(layout, l, page, slot, n, from, done, end - begin);
      from += layer_bytes(layout, l, end - begin);
    }
  });
}

void gather(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element, void* k,
            void* v) {
  const bool stored_f32 = table.pool()->layout(place.group).spec.precision == Precision::f32;
  const auto go = [&]<class S, class T>(S, T) {
    transpose<false, S, T>(table, place, begin, end, static_cast<T*>(k), static_cast<T*>(v));
  };
  if (element == Element::f32)
    stored_f32 ? go(float(), float()) : go(uint16_t(), float());
  else
    stored_f32 ? go(float(), uint16_t()) : go(uint16_t(), uint16_t());
}

void scatter(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element,
             const void* k, const void* v) {
  const bool stored_f32 = table.pool()->layout(place.group).spec.precision == Precision::f32;
  const auto go = [&]<class S, class T>(S, T) {
    transpose<true, S, const T>(table, place, begin, end, static_cast<const T*>(k), static_cast<const T*>(v));
  };
  if (element == Element::f32)
    stored_f32 ? go(float(), float()) : go(uint16_t(), float());
  else
    stored_f32 ? go(float(), uint16_t()) : go(uint16_t(), uint16_t());
}

}  // namespace llamay::kv
