#pragma once

#include "simd/f32x16.hpp"

namespace llamay {
namespace {

/// e^x within 2 ulp. Below -104 it is +0, above 88.73 infinity; NaN stays NaN.
LLAMAY_LANES f32x16 exp(f32x16 x) {
  const f32x16 inside =
      min(max(x, splat(-104.0f)), splat(88.73f));         // a NaN becomes -104 and is put back below
  const f32x16 n = rint(inside * splat(0x1.715476p+0f));  // log2 e
  const f32x16 minus_n = negate(n);
  // ln 2 in two parts; the first has few enough bits for n times it to be exact.
  const f32x16 r = fma(minus_n, splat(0x1.7f7d1cp-20f), fma(minus_n, splat(0x1.62e4p-1f), inside));
  // Minimax for (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, relative to e^r: 3.1e-9.
  f32x16 p = splat(0.001381454f);
  p = fma(p, r, splat(0.008368745f));
  p = fma(p, r, splat(0.04166839f));
  p = fma(p, r, splat(0.16666521f));
  p = fma(p, r, splat(0.49999994f));
  const f32x16 y = fma(p, r * r, r) + splat(1.0f);
  f32x16 out = scale2(y, n);
  out = select(less(x, splat(-104.0f)), zero(), out);
  out = select(less(splat(88.73f), x), splat(__builtin_inff()), out);
  return select(is_nan(x), x, out);
}

/// The same bits as exp for what is not positive, or NaN, in two thirds of the operations.
LLAMAY_LANES f32x16 exp_not_positive(f32x16 x) {
  const f32x16 inside = max(splat(-104.0f), x);  // where e^x has become +0; a NaN passes
  const f32x16 n = rint(inside * splat(0x1.715476p+0f));
  const f32x16 minus_n = negate(n);
  const f32x16 r = fma(minus_n, splat(0x1.7f7d1cp-20f), fma(minus_n, splat(0x1.62e4p-1f), inside));
  f32x16 p = splat(0.001381454f);
  p = fma(p, r, splat(0.008368745f));
  p = fma(p, r, splat(0.04166839f));
  p = fma(p, r, splat(0.16666521f));
  p = fma(p, r, splat(0.49999994f));
  return scale2(fma(p, r * r, r) + splat(1.0f), n);
}

/// tanh x within 2 ulp; NaN stays NaN.
LLAMAY_LANES f32x16 tanh(f32x16 x) {
  const f32x16 a = abs(x);
  // Small: odd minimax polynomial on |x| <= 0.55, where 1 - 2 / (e^2x + 1) would cancel.
  const f32x16 z = x * x;
  f32x16 p = splat(-0.0062388456f);
  p = fma(p, z, splat(0.021055805f));
  p = fma(p, z, splat(-0.05385165f));
  p = fma(p, z, splat(0.13332625f));
  p = fma(p, z, splat(-0.3333332f));
  const f32x16 small = fma(p * z, x, x);
  const f32x16 large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  return copysign(select(less(splat(0.55f), a), large, small), x);
}

LLAMAY_LANES f32x16 silu(f32x16 x) { return x / (splat(1.0f) + exp(negate(x))); }

LLAMAY_LANES f32x16 gelu_tanh(f32x16 x) {
  const f32x16 cubed = x * x * x;
  const f32x16 inner = splat(0.79788456f) * fma(splat(0.044715f), cubed, x);
  return splat(0.5f) * x * (splat(1.0f) + tanh(inner));
}

LLAMAY_LANES f32x16 softcap(f32x16 x, f32x16 cap) { return cap * tanh(x / cap); }

}  // namespace
}  // namespace llamay
