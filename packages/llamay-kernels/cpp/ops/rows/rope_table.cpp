#include "ops/rows/rope_table.hpp"

namespace llamay {
namespace {

// Taylor's coefficients; on |r| <= pi / 4 the remainder is below 1e-16.
constexpr double kSine[] = {-0x1.5555555555555p-3, 0x1.1111111111111p-7,   -0x1.a01a01a01a01ap-13,
                            0x1.71de3a556c734p-19, -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33,
                            -0x1.ae7f3e733b81fp-41};
constexpr double kCosine[] = {-0x1.0000000000000p-1,  0x1.5555555555555p-5,   -0x1.6c16c16c16c17p-10,
                              0x1.a01a01a01a01ap-16,  -0x1.27e4fb7789f5cp-22, 0x1.1eed8eff8d898p-29,
                              -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45};

template <std::size_t n>
double horner(const double (&c)[n], double z) {
  double sum = c[n - 1];
  for (std::size_t i = n - 1; i-- > 0;) sum = sum * z + c[i];
  return sum;
}

}  // namespace

SinCos sincos(double x) {
  // pi / 2 in parts of 22 bits, so that n times each of the first three is exact for n below 2^31.
  constexpr double part1 = 0x1.921fbp+0, part2 = 0x1.5110bp-22, part3 = 0x1.1846980000000p-44;
  constexpr double part4 = 0x1.3198a2e037073p-69;
  // Adding and taking away 1.5 * 2^52 rounds to nearest even without a call.
  constexpr double round = 0x1.8p52;
  const double n = (x * 0x1.45f306dc9c883p-1 + round) - round;
  const double r = (((x - n * part1) - n * part2) - n * part3) - n * part4;
  const double z = r * r;
  const double sine = r + r * (z * horner(kSine, z)), cosine = 1 + z * horner(kCosine, z);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

void Rope::fill(const int32_t* positions, std::size_t n, float* table) const {
  const std::size_t half = freqs.size();
  for (std::size_t i = 0; i < half; ++i) {
    const int32_t position = positions[n == 1 || axes.empty() ? 0 : axes[i]];
    const SinCos at = sincos(static_cast<double>(position) * freqs[i]);
    const float c = static_cast<float>(at.cos) * factor, s = static_cast<float>(at.sin) * factor;
    if (style == RopeStyle::half) {
      table[i] = c;
      table[half + i] = s;
    } else {
      table[2 * i] = table[2 * i + 1] = c;
      table[2 * half + 2 * i] = -s;
      table[2 * half + 2 * i + 1] = s;
    }
  }
}

}  // namespace llamay
