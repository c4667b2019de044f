#include "pages/copy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "numbers/half.hpp"
#include "numbers/transpose.hpp"

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

/// Move a stretch of every plane between a page and packed memory of `total` positions.
template <bool to_page, class Page, class Packed>
void move_packed(const GroupLayout& layout, Page* page, uint32_t slot, uint32_t n, Packed* packed,
                 uint32_t done, uint32_t total) {
  const size_t P = layout.page_tokens;
  for (const Plane& plane : layout.planes) {
    const bool whole = n == P && n == total;  // then the rows follow one another on both sides
    const size_t rows = whole ? 1 : plane.rows, bytes = n * plane.unit * (whole ? plane.rows : 1);
    for (size_t row = 0; row < rows; ++row) {
      Page* inside = page + plane.offset + (row * P + slot) * plane.unit;
      Packed* outside = packed + (row * total + done) * plane.unit;
      if constexpr (to_page)
        std::memcpy(inside, outside, bytes);
      else
        std::memcpy(outside, inside, bytes);
    }
    packed += plane.rows * total * plane.unit;
  }
}

float to_float(float x) { return x; }
float to_float(uint16_t x) { return half_to_float(x); }

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return float_to_half(x);
}

/// n numbers of one type as another.
template <class S, class T>
void convert_row(const S* in, size_t n, T* out) {
  if (n == 0) return;  // there may be no memory either
  if constexpr (std::is_same_v<S, T>)
    std::memcpy(out, in, n * sizeof(T));
  else if constexpr (std::is_same_v<T, float>)
    halves_to_floats(in, n, out);
  else
    floats_to_halves(in, n, out);
}

/// The elements of one head at one position, `stride` elements apart in the page, and one after another
/// outside.
template <class T>
void load_int8(const int8_t* stored, size_t stride, float scale, size_t n, T* out) {
  for (size_t d = 0; d < n; ++d) out[d] = from_float<T>(float(stored[d * stride]) * scale);
}

template <class T>
void store_int8(int8_t* stored, size_t stride, float* scale_out, size_t n, const T* in) {
  // As integers NaN is the largest, then infinity: a vector with one reads back as NaN and not as a number.
  uint32_t largest = 0;
  for (size_t d = 0; d < n; ++d)
    largest = std::max(largest, std::bit_cast<uint32_t>(to_float(in[d])) & 0x7fffffff);
  const bool finite = largest < 0x7f800000;
  const float scale = finite ? std::bit_cast<float>(largest) / 127 : std::numeric_limits<float>::quiet_NaN();
  *scale_out = scale;
  constexpr size_t kPiece = 64;
  int8_t piece[kPiece];
  for (size_t begin = 0; begin < n; begin += kPiece) {
    const size_t count = std::min(kPiece, n - begin);
    if (scale > 0) {
      for (size_t i = 0; i < count; ++i) {
        // To nearest, ties to even: the added number leaves no room for a fraction. |x / scale| exceeds 127
        // only where the scale is subnormal.
        const float q = std::clamp(to_float(in[begin + i]) / scale, -127.0f, 127.0f);
        piece[i] = int8_t((q + 0x1.8p23f) - 0x1.8p23f);
      }
    } else {  // nothing but zeros, or values so small that the scale underflows
      std::memset(piece, 0, count);
    }
    if (stride == 1)
      std::memcpy(stored + begin, piece, count);
    else
      for (size_t i = 0; i < count; ++i) stored[(begin + i) * stride] = piece[i];
  }
}

/// K of one head: n rows of K elements outside, `outside` elements apart; inside, dimension-major, the slots
/// of one dimension one after another. f16 and f32 go in tiles, int8 one vector at a time for its scale.
template <bool to_page, class S, class T>
void move_k(S* page, float* scale, size_t P, size_t n, size_t K, T* array, size_t outside) {
  if constexpr (std::is_same_v<S, int8_t>) {
    for (size_t p = 0; p < n; ++p)
      if constexpr (to_page)
        store_int8(page + p, P, scale + p, K, array + p * outside);
      else
        load_int8(page + p, P, scale[p], K, array + p * outside);
  } else {
    using Bits = std::conditional_t<sizeof(S) == 2, uint16_t, uint32_t>;
    if constexpr (std::is_same_v<S, std::remove_const_t<T>>) {
      if constexpr (to_page)
        transpose(reinterpret_cast<const Bits*>(array), outside, reinterpret_cast<Bits*>(page), P, n, K);
      else
        transpose(reinterpret_cast<const Bits*>(page), P, reinterpret_cast<Bits*>(array), outside, K, n);
    } else {
      constexpr size_t kRows = 32, kColumns = 64;
      S rows[kRows * kColumns];
      for (size_t p = 0; p < n; p += kRows)
        for (size_t d = 0; d < K; d += kColumns) {
          const size_t r = std::min(kRows, n - p), c = std::min(kColumns, K - d);
          auto* bits = reinterpret_cast<Bits*>(rows);
          if constexpr (to_page) {
            for (size_t i = 0; i < r; ++i) convert_row(array + (p + i) * outside + d, c, rows + i * kColumns);
            transpose(bits, kColumns, reinterpret_cast<Bits*>(page + d * P + p), P, r, c);
          } else {
            transpose(reinterpret_cast<const Bits*>(page + d * P + p), P, bits, kColumns, c, r);
            for (size_t i = 0; i < r; ++i) convert_row(rows + i * kColumns, c, array + (p + i) * outside + d);
          }
        }
    }
  }
}

/// V of one head: rows of V elements on both sides.
template <bool to_page, class S, class T>
void move_v(S* page, float* scale, size_t n, size_t V, T* array, size_t outside) {
  for (size_t p = 0; p < n; ++p) {
    if constexpr (std::is_same_v<S, std::remove_const_t<T>>) {
      if constexpr (to_page)
        std::memcpy(page + p * V, array + p * outside, V * sizeof(S));
      else
        std::memcpy(array + p * outside, page + p * V, V * sizeof(S));
    } else if constexpr (std::is_same_v<S, int8_t>) {
      if constexpr (to_page)
        store_int8(page + p * V, 1, scale + p, V, array + p * outside);
      else
        load_int8(page + p * V, 1, scale[p], V, array + p * outside);
    } else if constexpr (to_page) {
      convert_row(array + p * outside, V, page + p * V);
    } else {
      convert_row(page + p * V, V, array + p * outside);
    }
  }
}

/// Move positions of a layer between pages and arrays of [position][head][dimension]. KS and VS are the
/// stored types, T is the caller's.
template <bool to_page, class KS, class VS, class T>
void move_positions(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, T* k_array,
                    T* v_array) {
  const GroupLayout& layout = table.pool()->layout(place.group);
  const PlacedLayer& placed = layout.layers[place.index];
  const llamay_kv_layer& l = placed.layer;
  const size_t P = layout.page_tokens, H = l.kv_heads, K = l.k_dim, V = l.v_dim;
  for_each_stretch(table, place.group, begin, end,
                   [&](std::byte* page, uint32_t slot, uint32_t n, uint32_t done) {
                     auto* k = reinterpret_cast<KS*>(page + l.k_offset);
                     auto* v = reinterpret_cast<VS*>(page + l.v_offset);
                     auto* k_scale = reinterpret_cast<float*>(page + placed.k_scale_offset);
                     auto* v_scale = reinterpret_cast<float*>(page + placed.v_scale_offset);
                     for (size_t h = 0; h < H; ++h) {
                       const size_t at = h * P + slot, row = size_t(done) * H + h;
                       move_k<to_page>(k + h * K * P + slot, k_scale + at, P, n, K, k_array + row * K, H * K);
                       if (V) move_v<to_page>(v + at * V, v_scale + at, n, V, v_array + row * V, H * V);
                     }
                   });
}

/// Call f with a value of the type that K, and one of the type that V, is stored as.
template <class F>
void with_stored(Precision precision, F&& f) {
  switch (precision) {
    case Precision::f32:
      return f(float(), float());
    case Precision::f16:
      return f(uint16_t(), uint16_t());
    case Precision::vq8:
      return f(uint16_t(), int8_t());
    case Precision::q8:
      return f(int8_t(), int8_t());
  }
}

}  // namespace

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
                     move_packed<false>(layout, page, slot, n, out, done, end - begin);
                   });
}

void unpack(const Table& table, size_t g, uint32_t begin, uint32_t end, const std::byte* in) {
  const GroupLayout& layout = table.pool()->layout(g);
  for_each_stretch(table, g, begin, end, [&](std::byte* page, uint32_t slot, uint32_t n, uint32_t done) {
    move_packed<true>(layout, page, slot, n, in, done, end - begin);
  });
}

void pack_page(const GroupLayout& layout, const std::byte* page, std::byte* out) {
  move_packed<false>(layout, page, 0, 1, out, 0, 1);
}

void unpack_page(const GroupLayout& layout, const std::byte* in, std::byte* page) {
  move_packed<true>(layout, page, 0, 1, in, 0, 1);
}

void convert(const void* in, Element element, std::byte* out, Stored stored, size_t n) {
  const auto to = [&]<class T>(const T* from) {
    if (stored == Stored::f32)
      convert_row(from, n, reinterpret_cast<float*>(out));
    else
      convert_row(from, n, reinterpret_cast<uint16_t*>(out));
  };
  element == Element::f32 ? to(static_cast<const float*>(in)) : to(static_cast<const uint16_t*>(in));
}

void widen(const std::byte* in, Stored stored, float* out, size_t n) {
  if (stored == Stored::f32)
    convert_row(reinterpret_cast<const float*>(in), n, out);
  else
    convert_row(reinterpret_cast<const uint16_t*>(in), n, out);
}

void gather(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element, void* k,
            void* v) {
  with_stored(table.pool()->layout(place.group).spec.precision, [&]<class KS, class VS>(KS, VS) {
    if (element == Element::f32)
      move_positions<false, KS, VS>(table, place, begin, end, static_cast<float*>(k), static_cast<float*>(v));
    else
      move_positions<false, KS, VS>(table, place, begin, end, static_cast<uint16_t*>(k),
                                    static_cast<uint16_t*>(v));
  });
}

void scatter(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element,
             const void* k, const void* v) {
  with_stored(table.pool()->layout(place.group).spec.precision, [&]<class KS, class VS>(KS, VS) {
    if (element == Element::f32)
      move_positions<true, KS, VS>(table, place, begin, end, static_cast<const float*>(k),
                                   static_cast<const float*>(v));
    else
      move_positions<true, KS, VS>(table, place, begin, end, static_cast<const uint16_t*>(k),
                                   static_cast<const uint16_t*>(v));
  });
}

}  // namespace llamay::kv
