#pragma once

#include <stddef.h>
#include <stdint.h>

namespace llamay {

/// A tensor format, numbered as in GGUF files (ggml's type ids).
enum class Format : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
};

/// The form of activations that are stored for products with a format: as float32, or as bytes with one scale
/// for each block.
enum class ActivationKind : uint32_t { f32, q8_32, q8_256 };

struct FormatTraits {
  Format format;
  const char* name;
  uint32_t block;         // elements of a block; a row holds a whole number of them
  uint32_t block_bytes;   // bytes of a block in a file
  uint32_t packed_bytes;  // bytes of the same block of 16 rows in the kernels' layout
  ActivationKind activation;
};

/// Every format, in the order of its number.
inline constexpr FormatTraits kFormats[] = {
    {Format::F32, "F32", 1, 4, 64, ActivationKind::f32},
    {Format::F16, "F16", 1, 2, 32, ActivationKind::f32},
    {Format::Q4_0, "Q4_0", 32, 18, 288, ActivationKind::q8_32},
    {Format::Q4_1, "Q4_1", 32, 20, 320, ActivationKind::q8_32},
    {Format::Q5_0, "Q5_0", 32, 22, 352, ActivationKind::q8_32},
    {Format::Q5_1, "Q5_1", 32, 24, 384, ActivationKind::q8_32},
    {Format::Q8_0, "Q8_0", 32, 34, 544, ActivationKind::q8_32},
    {Format::Q2_K, "Q2_K", 256, 84, 1344, ActivationKind::q8_256},
    {Format::Q3_K, "Q3_K", 256, 110, 1824, ActivationKind::q8_256},
    {Format::Q4_K, "Q4_K", 256, 144, 2368, ActivationKind::q8_256},
    {Format::Q5_K, "Q5_K", 256, 176, 2880, ActivationKind::q8_256},
    {Format::Q6_K, "Q6_K", 256, 210, 3360, ActivationKind::q8_256},
    {Format::IQ2_XXS, "IQ2_XXS", 256, 66, 1824, ActivationKind::q8_256},
    {Format::IQ2_XS, "IQ2_XS", 256, 74, 1824, ActivationKind::q8_256},
    {Format::IQ3_XXS, "IQ3_XXS", 256, 98, 2208, ActivationKind::q8_256},
    {Format::IQ1_S, "IQ1_S", 256, 50, 1824, ActivationKind::q8_256},
    {Format::IQ4_NL, "IQ4_NL", 32, 18, 288, ActivationKind::q8_32},
    {Format::IQ3_S, "IQ3_S", 256, 110, 2208, ActivationKind::q8_256},
    {Format::IQ2_S, "IQ2_S", 256, 82, 1824, ActivationKind::q8_256},
    {Format::IQ4_XS, "IQ4_XS", 256, 136, 2208, ActivationKind::q8_256},
    {Format::IQ1_M, "IQ1_M", 256, 56, 1824, ActivationKind::q8_256},
    {Format::BF16, "BF16", 1, 2, 32, ActivationKind::f32},
    {Format::TQ1_0, "TQ1_0", 256, 54, 1056, ActivationKind::q8_256},
    {Format::TQ2_0, "TQ2_0", 256, 66, 1056, ActivationKind::q8_256},
    {Format::MXFP4, "MXFP4", 32, 17, 288, ActivationKind::q8_32},
};
inline constexpr size_t kFormatCount = sizeof kFormats / sizeof kFormats[0];

constexpr const FormatTraits& traits(Format format) {
  size_t i = 0;
  while (kFormats[i].format != format) ++i;
  return kFormats[i];
}

}  // namespace llamay
