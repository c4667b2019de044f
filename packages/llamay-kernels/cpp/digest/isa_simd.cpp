// Every operation of simd/, one number each, for the digests.
#include "digest/table.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"
#include "simd/product.hpp"
#include "simd/transpose.hpp"

namespace llamay {
namespace {

f32x16 apply(int f, f32x16 a, f32x16 b, f32x16 c) {
  switch (f) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return fma(a, b, c);
    case 5:
      return max(a, b);
    case 6:
      return min(a, b);
    case 7:
      return rint(a);
    case 8:
      return negate(a);
    case 9:
      return abs(a);
    case 10:
      return copysign(a, b);
    case 11:
      return select(less(a, b), a, c);
    case 12:
      return select(is_nan(a), b, c);
    case 13:
      return swap_pairs(a);
    case 14:
      return exp(a);
    case 15:
      return tanh(a);
    case 16:
      return silu(a);
    case 17:
      return gelu_tanh(a);
    case 18:
      return softcap(a, splat(30.0f));
    case 19:
      return splat(tree16(a));
    case 20:
      return splat(max16(a));
    case 24:
      return exp_not_positive(negate(abs(a)));
    case 25:
      return sqrt(a);
    case 26:  // for values for which it is defined
      return exponent(min(max(abs(a), splat(0x1p-126f)), splat(0x1.fffffep127f)));
    case 27:
      return log1p(abs(a));
    case 28:
      return erf(a);
    case 29:
      return sigmoid(a);
    case 30:
      return relu2(a);
    case 31:
      return softplus(a);
    case 32:
      return gelu_erf(a);
    case 33:
      return gelu_quick(a);
    default:
      return select(both(first_lanes(11), less(a, b)), a, b);
  }
}

void run(int f, const float* a, const float* b, const float* c, size_t n, float* out) {
  if (f == 22) {  // to binary16 and back, whole and in part
    for (size_t i = 0; i < n; ++i) {
      uint16_t h[16] = {};
      const int some = 1 + static_cast<int>(i % 16);
      store_f16(h, load(a + 16 * i), some);
      store(out + 16 * i, load_f16(h, some));
    }
    return;
  }
  if (f == 23) {  // rows of a product, in every number
    for (size_t i = 0; i + 8 <= n; i += 8) {
      const int rows = 1 + static_cast<int>(i / 8 % 6);
      const size_t columns = 1 + i % 16;
      for (size_t j = 16 * i; j < 16 * i + 128; ++j) out[j] = c[j];
      for (int at = 0; at < rows; at += kTileRows) {
        const int some = rows - at < kTileRows ? rows - at : kTileRows;
        const float* from[kTileRows];
        float* to[kTileRows];
        for (int r = 0; r < some; ++r) {
          from[r] = a + 16 * (i + static_cast<size_t>(at + r));
          to[r] = out + 16 * (i + static_cast<size_t>(at + r));
        }
        product(some, from, b + 16 * i, 16, 7, to, columns, true);
      }
      for (size_t j = 0; j < 128; ++j)  // room for whole vectors, no more
        if (j % 16 >= columns) out[16 * i + j] = 0;
    }
    return;
  }
  if (f == 34) {  // blocks of eight by eight, some of them columns of longer rows
    for (size_t i = 0; i + 8 <= n; i += 8)
      for (size_t half = 0; half < 2; ++half)
        transpose8(a + 16 * i + 8 * half, 16, out + 16 * i + 8 * half, 16);
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    const int some = f % 2 ? 16 : 1 + static_cast<int>(i % 16);
    store(out + 16 * i, apply(f, load(a + 16 * i, some), load(b + 16 * i, some), load(c + 16 * i)), some);
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::SimdTable LLAMAY_TABLE(simd);
const llamay::SimdTable LLAMAY_TABLE(simd) = {llamay::run};
