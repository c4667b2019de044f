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
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30,
};

/// How the activations that meet a format are stored: as they are, or as bytes with one scale for each block.
enum class ActivationKind : uint32_t { f32, q8_32, q8_256 };

struct FormatTraits {
  Format format;
  const char* name;
  uint32_t block;         // elements of a block; a row holds a whole number of them
  uint32_t block_bytes;   // of a block in a file
  uint32_t packed_bytes;  // of the same block of 16 rows as the kernels read it
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
    {Format::Q4_K, "Q4_K", 256, 144, 2368, ActivationKind::q8_256},
    {Format::Q5_K, "Q5_K", 256, 176, 2880, ActivationKind::q8_256},
    {Format::Q6_K, "Q6_K", 256, 210, 3360, ActivationKind::q8_256},
    {Format::BF16, "BF16", 1, 2, 32, ActivationKind::f32},
};
inline constexpr size_t kFormatCount = sizeof kFormats / sizeof kFormats[0];

constexpr const FormatTraits& traits(Format format) {
  size_t i = 0;
  while (kFormats[i].format != format) ++i;
  return kFormats[i];
}

}  // namespace llamay
