#pragma once

#include "formats/blocks_iq.hpp"

namespace llamay {
namespace {

/// A format at compile time: its number and the struct of its blocks.
template <Format f, class BlockType>
struct Tag {
  static constexpr Format format = f;
  using Block = BlockType;
};

/// Calls body(Tag<format, Block>) for a format with blocks. The caller handles the formats without blocks
/// before.
template <class Body>
void visit_blocks(Format format, const Body& body) {
  switch (format) {
#define LLAMAY_FORMAT(name)                 \
  case Format::name:                        \
    body(Tag<Format::name, Block##name>{}); \
    return;
    LLAMAY_FORMAT(Q4_0)
    LLAMAY_FORMAT(Q4_1)
    LLAMAY_FORMAT(Q5_0)
    LLAMAY_FORMAT(Q5_1)
    LLAMAY_FORMAT(Q8_0)
    LLAMAY_FORMAT(Q2_K)
    LLAMAY_FORMAT(Q3_K)
    LLAMAY_FORMAT(Q4_K)
    LLAMAY_FORMAT(Q5_K)
    LLAMAY_FORMAT(Q6_K)
    LLAMAY_FORMAT(IQ2_XXS)
    LLAMAY_FORMAT(IQ2_XS)
    LLAMAY_FORMAT(IQ2_S)
    LLAMAY_FORMAT(IQ3_XXS)
    LLAMAY_FORMAT(IQ3_S)
    LLAMAY_FORMAT(IQ1_S)
    LLAMAY_FORMAT(IQ1_M)
    LLAMAY_FORMAT(IQ4_NL)
    LLAMAY_FORMAT(IQ4_XS)
    LLAMAY_FORMAT(TQ1_0)
    LLAMAY_FORMAT(TQ2_0)
    LLAMAY_FORMAT(MXFP4)
#undef LLAMAY_FORMAT
    case Format::F32:
    case Format::F16:
    case Format::BF16:
      return;
  }
}

}  // namespace
}  // namespace llamay
