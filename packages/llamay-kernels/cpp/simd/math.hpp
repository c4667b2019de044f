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

/// The same bits as exp for x <= 0 and for NaN, in two thirds of the operations.
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

/// ln(1 + x) for x >= 0, within 2 ulp; NaN stays NaN.
LLAMAY_LANES f32x16 log1p(f32x16 x) {
  // 1 + x = 2^n (1 + f), f from -1/3 to 1/3 and, but for large x, exact.
  const f32x16 n = exponent((splat(1.0f) + x) * splat(0.75f)) + splat(1.0f);
  const f32x16 down = scale2(splat(1.0f), negate(n));
  const f32x16 f = fma(x, down, down - splat(1.0f));
  // Minimax for (ln(1 + f) - f) / f^2, relative to ln(1 + f): 4.7e-9.
  f32x16 p = splat(-0.12873264f);
  p = fma(p, f, splat(0.13986255f));
  p = fma(p, f, splat(-0.12188917f));
  p = fma(p, f, splat(0.14005388f));
  p = fma(p, f, splat(-0.1668012f));
  p = fma(p, f, splat(0.20010445f));
  p = fma(p, f, splat(-0.24999806f));
  p = fma(p, f, splat(0.33333215f));
  p = fma(p, f, splat(-0.5f));
  const f32x16 out = fma(n, splat(0x1.62e43p-1f), fma(p, f * f, f));  // ln 2
  return select(less(x, splat(__builtin_inff())), out, x);
}

/// erf x within 2 ulp; NaN stays NaN.
LLAMAY_LANES f32x16 erf(f32x16 x) {
  const f32x16 a = abs(x);
  // Small: odd minimax polynomial on |x| <= 1, relative 1.5e-9.
  const f32x16 z = x * x;
  f32x16 p = splat(7.808447e-05f);
  p = fma(p, z, splat(-0.00079982117f));
  p = fma(p, z, splat(0.00518719f));
  p = fma(p, z, splat(-0.026853355f));
  p = fma(p, z, splat(0.11283579f));
  p = fma(p, z, splat(-0.37612626f));
  p = fma(p, z, splat(0.12837917f));
  const f32x16 small = fma(p, x, x);
  // Large: 1 - e^-q, q minimax for -ln(1 - erf t) on 1 <= t <= 4, where erf has become 1; relative to erf
  // 1.1e-9.
  const f32x16 t = min(a, splat(4.0f));
  f32x16 q = splat(-0.00018667572f);
  q = fma(q, t, splat(0.0029506967f));
  q = fma(q, t, splat(-0.021850692f));
  q = fma(q, t, splat(0.103134036f));
  q = fma(q, t, splat(0.6381125f));
  q = fma(q, t, splat(1.1271092f));
  q = fma(q, t, splat(0.00033649453f));
  const f32x16 large = splat(1.0f) - exp_not_positive(negate(q));
  return copysign(select(less(splat(1.0f), a), large, small), x);
}

LLAMAY_LANES f32x16 sigmoid(f32x16 x) {
  const f32x16 e = exp_not_positive(negate(abs(x)));
  return select(less(x, zero()), e, splat(1.0f)) / (splat(1.0f) + e);
}

/// 0 > x ? 0 : x, so that NaN stays NaN.
LLAMAY_LANES f32x16 relu(f32x16 x) { return max(zero(), x); }
LLAMAY_LANES f32x16 relu2(f32x16 x) { return relu(x) * relu(x); }

LLAMAY_LANES f32x16 softplus(f32x16 x) { return select(less(splat(20.0f), x), x, log1p(exp(x))); }

LLAMAY_LANES f32x16 gelu_erf(f32x16 x) {
  return splat(0.5f) * x * (splat(1.0f) + erf(splat(0.70710678f) * x));
}
LLAMAY_LANES f32x16 gelu_quick(f32x16 x) { return x * sigmoid(splat(1.702f) * x); }

LLAMAY_LANES f32x16 silu(f32x16 x) { return x / (splat(1.0f) + exp(negate(x))); }

LLAMAY_LANES f32x16 gelu_tanh(f32x16 x) {
  const f32x16 cubed = x * x * x;
  const f32x16 inner = splat(0.79788456f) * fma(splat(0.044715f), cubed, x);
  return splat(0.5f) * x * (splat(1.0f) + tanh(inner));
}

LLAMAY_LANES f32x16 softcap(f32x16 x, f32x16 cap) { return cap * tanh(x / cap); }

}  // namespace
}  // namespace llamay
