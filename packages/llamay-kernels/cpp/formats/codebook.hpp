#pragma once

#include "formats/format.hpp"

// Formats whose codes stand for integers other than themselves less an offset, or whose scale has a fixed
// factor beside it. A weight is unit * d * (scale of its sub-block) * value[code], every product exact in
// binary32.

namespace llamay {

struct Codebook {
  int8_t value[16];
};

/// Codes of the IQ2 formats: a magnitude of three in two bits, then the sign. IQ1: a digit -1, 0, 1 in two
/// bits, then the sign of the 1/8 added to it, all in eighths. IQ3: a magnitude of eight, then the sign.
constexpr Codebook codebook(Format format) {
  switch (format) {
    case Format::Q3_K:
      return {{-4, -3, -2, -1, 0, 1, 2, 3}};
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
      return {{8, 25, 43, 0, -8, -25, -43, 0}};
    case Format::IQ1_S:
    case Format::IQ1_M:
      return {{-7, 1, 9, 0, -9, -1, 7, 0}};
    case Format::IQ3_XXS:
      return {{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}};
    case Format::IQ3_S:
      return {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
    case Format::IQ4_NL:
    case Format::IQ4_XS:
      return {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
    case Format::MXFP4:  // halves of 0, 0.5, 1, 1.5, 2, 3, 4, 6 are avoided by doubling; so is the scale
                         // halved
      return {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
    default:  // TQ1_0, TQ2_0
      return {{-1, 0, 1, 2}};
  }
}

constexpr float unit(Format format) {
  switch (format) {
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
    case Format::IQ1_S:
    case Format::IQ1_M:
      return 0.125f;
    case Format::IQ3_XXS:
      return 0.25f;
    default:
      return 1;
  }
}

constexpr bool has_codebook(Format format) {
  switch (format) {
    case Format::Q3_K:
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
    case Format::IQ1_S:
    case Format::IQ1_M:
    case Format::IQ3_XXS:
    case Format::IQ3_S:
    case Format::IQ4_NL:
    case Format::IQ4_XS:
    case Format::MXFP4:
    case Format::TQ1_0:
    case Format::TQ2_0:
      return true;
    default:
      return false;
  }
}

}  // namespace llamay
