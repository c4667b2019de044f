#include "ops/recurrent/conv.hpp"
#include "simd/f32x16.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

/// Channels that are computed at a time: their taps, and the inputs of the last rows, stay in the cache while
/// the rows pass.
constexpr size_t kChannels = 512;
/// Taps that are added at a time.
constexpr size_t kTaps = 8;
constexpr float kZeros[kChannels] = {};

/// Adds `count` taps of one row, over n channels: the weights of two taps lie `stride` floats apart, and each
/// tap has an input row. from: the sums before; null: zeros.
template <size_t fixed>
void taps(size_t count, const float* weight, size_t stride, const float* const* inputs, const float* from,
          size_t n, float* out) {
  if constexpr (fixed != 0) count = fixed;
  const auto lanes = [&](size_t c, auto read) {
    f32x16 sum = from ? read(from + c) : zero();
    for (size_t j = 0; j < count; ++j) sum = fma(read(weight + j * stride + c), read(inputs[j] + c), sum);
    return sum;
  };
  size_t c = 0;
  for (; c + 16 <= n; c += 16) store(out + c, lanes(c, [](const float* p) { return load(p); }));
  if (c < n) {
    const int rest = static_cast<int>(n - c);
    store(out + c, lanes(c, [rest](const float* p) { return load(p, rest); }), rest);
  }
}

void any_taps(size_t count, const float* weight, size_t stride, const float* const* inputs, const float* from,
              size_t n, float* out) {
  switch (count) {
    case 2:
      return taps<2>(count, weight, stride, inputs, from, n, out);
    case 3:
      return taps<3>(count, weight, stride, inputs, from, n, out);
    case 4:
      return taps<4>(count, weight, stride, inputs, from, n, out);
    default:
      return taps<0>(count, weight, stride, inputs, from, n, out);
  }
}

void rows(const Conv& conv, const ConvRows& r, size_t n, size_t from, size_t to) {
  const size_t before = conv.taps - 1;
  for (size_t c = from, end; c < to; c = end) {
    end = c + kChannels < to ? c + kChannels : to;
    for (size_t t = 0; t < n; ++t) {
      float* out = r.out + t * r.out_stride + c;
      const float* sum = conv.bias ? conv.bias + c : nullptr;
      for (size_t first = 0; first < conv.taps; first += kTaps) {
        const size_t count = conv.taps - first < kTaps ? conv.taps - first : kTaps;
        const float* inputs[kTaps];
        for (size_t j = 0; j < count; ++j) {
          const size_t at = t + first + j;  // counted from the first carried row
          inputs[j] = at >= before ? r.x + (at - before) * r.x_stride + c
                      : r.carried  ? r.carried + at * conv.channels + c
                                   : kZeros;
        }
        any_taps(count, conv.weight + first * conv.channels + c, conv.channels, inputs, sum, end - c, out);
        sum = out;
      }
    }
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::ConvTable LLAMAY_TABLE(conv);
const llamay::ConvTable LLAMAY_TABLE(conv) = {llamay::rows};
