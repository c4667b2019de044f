#include "ops/rows/affine.hpp"
#include "simd/f32x16.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

/// One value for all lanes, or a value for each channel.
struct Same {
  f32x16 value;
  f32x16 at(size_t) const { return value; }
  f32x16 at(size_t, int) const { return value; }
};
struct Each {
  const float* values;
  f32x16 at(size_t i) const { return load(values + i); }
  f32x16 at(size_t i, int n) const { return load(values + i, n); }
};

class Operand {
 public:
  Operand(PartValues p, size_t width)
      : values_(p.values), part_(p.values && p.count != width ? width / p.count : 0) {}
  explicit operator bool() const { return values_; }
  /// One past the last channel of the part of channel i, or `end` where each channel has its own value.
  size_t until(size_t i, size_t end) const {
    const size_t next = part_ ? (i / part_ + 1) * part_ : end;
    return next < end ? next : end;
  }
  /// Calls f with the values from channel i to the end of its part.
  template <class F>
  void from(size_t i, F f) const {
    if (part_)
      f(Same{splat(values_[i / part_])});
    else
      f(Each{values_});
  }

 private:
  const float* values_;
  size_t part_;  // channels of a part; 0: by channel
};

template <class F, class... Operands>
void stretch(const float* x, size_t from, size_t to, float* out, F f, Operands... operands) {
  size_t i = from;
  for (; i + 16 <= to; i += 16) store(out + i, f(load(x + i), operands.at(i)...));
  if (i < to) {
    const int rest = static_cast<int>(to - i);
    store(out + i, f(load(x + i, rest), operands.at(i, rest)...), rest);
  }
}

void affine(const float* x, PartValues w_values, PartValues b_values, size_t width, float* out) {
  const Operand w(w_values, width), b(b_values, width);
  for (size_t i = 0, next; i < width; i = next) {
    next = w.until(i, b.until(i, width));
    if (w && b)
      w.from(i, [&](auto by) {
        b.from(i, [&](auto plus) {
          stretch(x, i, next, out, [](f32x16 v, f32x16 m, f32x16 a) { return fma(v, m, a); }, by, plus);
        });
      });
    else if (w)
      w.from(i, [&](auto by) { stretch(x, i, next, out, [](f32x16 v, f32x16 m) { return v * m; }, by); });
    else if (b)
      b.from(i, [&](auto plus) { stretch(x, i, next, out, [](f32x16 v, f32x16 a) { return v + a; }, plus); });
    else if (out != x)
      __builtin_memcpy(out + i, x + i, (next - i) * sizeof *x);
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::AffineTable LLAMAY_TABLE(affine);
const llamay::AffineTable LLAMAY_TABLE(affine) = {llamay::affine};
