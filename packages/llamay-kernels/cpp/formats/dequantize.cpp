#include "formats/codebook.hpp"
#include "formats/codec.hpp"
#include "formats/half.hpp"
#include "formats/visit.hpp"

namespace llamay {
namespace {

float half_at(const uint8_t* at) { return f16_to_f32(load_u16(at)); }

void widen(const BlockQ4_0& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i] - 8) * d;
}
void widen(const BlockQ5_0& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i] - 16) * d;
}
template <class Block>
void widen_with_min(const Block& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d), m = half_at(b.m);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i]) * d + m;
}
void widen(const BlockQ4_1& b, const uint8_t* q, float* y) { widen_with_min(b, q, y); }
void widen(const BlockQ5_1& b, const uint8_t* q, float* y) { widen_with_min(b, q, y); }
void widen(const BlockQ8_0& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<int8_t>(q[i])) * d;
}
template <class Block>
void widen_two_levels(const Block& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d), dmin = half_at(b.dmin);
  uint8_t scale[8], min[8];
  spread_scales(b.scales, scale, min);
  for (int s = 0; s < 8; ++s) {
    const float ds = d * static_cast<float>(scale[s]), ms = dmin * static_cast<float>(min[s]);
    for (int i = 32 * s; i < 32 * s + 32; ++i) y[i] = ds * static_cast<float>(q[i]) - ms;
  }
}
void widen(const BlockQ4_K& b, const uint8_t* q, float* y) { widen_two_levels(b, q, y); }
void widen(const BlockQ5_K& b, const uint8_t* q, float* y) { widen_two_levels(b, q, y); }
void widen(const BlockQ2_K& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d), dmin = half_at(b.dmin);
  for (int s = 0; s < 16; ++s) {
    const float ds = d * static_cast<float>(b.scales[s] & 15),
                ms = dmin * static_cast<float>(b.scales[s] >> 4);
    for (int i = 16 * s; i < 16 * s + 16; ++i) y[i] = ds * static_cast<float>(q[i]) - ms;
  }
}
void widen(const BlockQ6_K& b, const uint8_t* q, float* y) {
  const float d = half_at(b.d);
  for (int s = 0; s < 16; ++s) {
    const float ds = d * static_cast<float>(b.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) y[i] = ds * static_cast<float>(q[i] - 32);
  }
}

template <Format format, class Block>
void widen_codes(const Block& b, const uint8_t* q, float* y) {
  constexpr Codebook book = codebook(format);
  const uint16_t bits = scale_bits(b);
  const float d = (format == Format::MXFP4 ? bf16_to_f32(bits) : f16_to_f32(bits)) * unit(format);
  if constexpr (requires(int8_t* scale) { spread_signed_scales(b, scale); }) {
    int8_t scale[16];
    spread_signed_scales(b, scale);
    for (int s = 0; s < 16; ++s) {
      const float ds = d * static_cast<float>(scale[s]);
      for (int i = 16 * s; i < 16 * s + 16; ++i) y[i] = ds * static_cast<float>(book.value[q[i]]);
    }
  } else {
    for (uint32_t i = 0; i < traits(format).block; ++i) y[i] = d * static_cast<float>(book.value[q[i]]);
  }
}

}  // namespace

void dequantize(Format format, const void* data, size_t count, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  switch (format) {
    case Format::F32:
      memcpy(out, data, count * sizeof(float));
      return;
    case Format::F16:
      for (size_t i = 0; i < count; ++i) out[i] = half_at(bytes + 2 * i);
      return;
    case Format::BF16:
      for (size_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load_u16(bytes + 2 * i));
      return;
    default:
      visit_blocks(format, [&]<Format f, class Block>(Tag<f, Block>) {
        constexpr size_t n = traits(f).block;
        uint8_t q[n];
        for (size_t i = 0; i < count / n; ++i) {
          Block block;
          memcpy(&block, bytes + i * sizeof block, sizeof block);
          spread(block, q);
          if constexpr (has_codebook(f))
            widen_codes<f>(block, q, out + i * n);
          else
            widen(block, q, out + i * n);
        }
      });
  }
}

}  // namespace llamay
