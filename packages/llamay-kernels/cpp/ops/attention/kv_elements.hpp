#pragma once

/// Keys and values as pages hold them: their elements, their addresses, and writing them
/// (abi/llamay/kv_view.h). Only for sources that are compiled once per kernel set.

#include "llamay/kv_view.h"
#include "ops/attention/attention.hpp"
#include "simd/f32x16.hpp"

namespace llamay {
namespace {

inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

/// An int8 element; its value is q times the scale of its vector.
struct scaled {
  int8_t q;
};
template <class T>
constexpr bool has_scale = false;
template <>
constexpr bool has_scale<scaled> = true;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
LLAMAY_LANES f32x16 widen_bytes(__m128i q) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q))}; }
#elif defined(__AVX2__)
LLAMAY_LANES f32x16 widen_bytes(__m128i q) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(q, q)))};
}
#endif

LLAMAY_LANES f32x16 load_lanes(const scaled* p, int n) {
  float out[16] = {};
  for (int i = 0; i < n; ++i) out[i] = p[i].q;
  return load(out);
}
LLAMAY_LANES f32x16 load_lanes(const scaled* p) {
#if defined(__AVX2__)
  return widen_bytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return load_lanes(p, 16);
#endif
}

/// Elements from one dimension of a key to the next.
inline size_t key_stride(const KvPages& p) { return size_t{1} << p.page_shift; }

/// Keys and values of a head at a position. K is dimension-major, V position-major.
template <class T>
T* keys_at(const KvPages& p, const AttentionShape& s, uint32_t head, uint32_t position) {
  const uint32_t slot = position & ((1u << p.page_shift) - 1);
  return reinterpret_cast<T*>(p.page(position) + p.k_offset) +
         ((static_cast<size_t>(head) * s.k_dim) << p.page_shift) + slot;
}
template <class T>
T* values_at(const KvPages& p, const AttentionShape& s, uint32_t head, uint32_t position) {
  const uint32_t slot = position & ((1u << p.page_shift) - 1);
  return reinterpret_cast<T*>(p.page(position) + p.v_offset) +
         ((static_cast<size_t>(head) << p.page_shift) + slot) * s.v_dim;
}
/// The scale of a head's vector at a position; the scales of later positions follow, to the page's end.
inline float* scales_at(const KvPages& p, uint64_t offset, uint32_t head, uint32_t position) {
  const uint32_t slot = position & ((1u << p.page_shift) - 1);
  return reinterpret_cast<float*>(p.page(position) + offset) + (static_cast<size_t>(head) << p.page_shift) +
         slot;
}

/// n elements of one vector, to every stride-th place.
template <class T>
void write_vector(const float* x, uint32_t n, T* to, size_t stride, float*) {
  T some[16];
  for (uint32_t d = 0; d < n; d += 16) {
    const int count = static_cast<int>(least(16, n - d));
    store_lanes(some, load(x + d, count), count);
    for (int i = 0; i < count; ++i) to[(d + static_cast<uint32_t>(i)) * stride] = some[i];
  }
}

/// q = rint(x / scale) with scale = largest magnitude / 127; a vector that is not finite has a NaN scale.
inline void write_vector(const float* x, uint32_t n, scaled* to, size_t stride, float* scale) {
  f32x16 largest = zero(), unordered = zero();
  for (uint32_t d = 0; d < n; d += 16) {
    const f32x16 v = load(x + d, static_cast<int>(least(16, n - d)));
    largest = max(largest, abs(v));
    unordered = unordered + (v - v);  // NaN once there is an infinity or a NaN
  }
  const float finite = tree16(unordered);
  *scale = finite == 0.0f ? max16(largest) / 127.0f : __builtin_nanf("");
  const bool some = *scale > 0.0f;  // false where the vector is zeros, or so small that the scale underflows
  const f32x16 by = splat(*scale), most_q = splat(127.0f), least_q = splat(-127.0f);
  float q[16];
  for (uint32_t d = 0; d < n; d += 16) {
    const int count = static_cast<int>(least(16, n - d));
    if (some) store(q, min(max(rint(load(x + d, count) / by), least_q), most_q));
    for (int i = 0; i < count; ++i)
      to[(d + static_cast<uint32_t>(i)) * stride].q = some ? static_cast<int8_t>(q[i]) : int8_t{0};
  }
}

template <class K>
void write_keys(const KvPages& pages, const AttentionShape& shape, uint32_t head, uint32_t first,
                uint32_t tokens, const float* k, size_t k_stride) {
  for (uint32_t at = first; at < first + tokens; ++at, k += k_stride)
    write_vector(k, shape.k_dim, keys_at<K>(pages, shape, head, at), key_stride(pages),
                 has_scale<K> ? scales_at(pages, pages.k_scale_offset, head, at) : nullptr);
}
template <class V>
void write_values(const KvPages& pages, const AttentionShape& shape, uint32_t head, uint32_t first,
                  uint32_t tokens, const float* v, size_t v_stride) {
  for (uint32_t at = first; at < first + tokens; ++at, v += v_stride)
    write_vector(v, shape.v_dim, values_at<V>(pages, shape, head, at), 1,
                 has_scale<V> ? scales_at(pages, pages.v_scale_offset, head, at) : nullptr);
}

/// A stored precision as types.
template <class Key, class Value>
struct Stored {
  using K = Key;
  using V = Value;
};

/// Calls f with the types of a precision, enum llamay_kv_dtype.
template <class F>
void with_stored(uint32_t dtype, F f) {
  switch (dtype) {
    case LLAMAY_KV_F16:
      return f(Stored<half, half>{});
    case LLAMAY_KV_VQ8:
      return f(Stored<half, scaled>{});
    case LLAMAY_KV_Q8:
      return f(Stored<scaled, scaled>{});
    default:
      return f(Stored<float, float>{});
  }
}

}  // namespace
}  // namespace llamay
