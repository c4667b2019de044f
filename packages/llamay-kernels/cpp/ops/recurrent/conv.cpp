#include "ops/recurrent/conv.hpp"

#include <cstring>

namespace llamay {

void pack_conv(const float* weight, std::size_t channels, std::size_t taps, float* packed) {
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t j = 0; j < taps; ++j) packed[j * channels + c] = weight[c * taps + j];
}

void conv_state(const Conv& conv, const ConvRows& rows, std::size_t n, std::size_t from, std::size_t to,
                float* state) {
  // Row i of the state after n rows was the input of row n + i - (taps - 1), or row n + i of the state
  // before. In increasing order, since both states may lie in the same place.
  for (std::size_t i = 0; i + 1 < conv.taps; ++i) {
    float* to_row = state + i * conv.channels + from;
    const std::size_t at = n + i, before = conv.taps - 1;
    const float* input = at >= before   ? rows.x + (at - before) * rows.x_stride
                         : rows.carried ? rows.carried + at * conv.channels
                                        : nullptr;
    if (input)
      std::memmove(to_row, input + from, (to - from) * sizeof(float));
    else
      std::memset(to_row, 0, (to - from) * sizeof(float));
  }
}

}  // namespace llamay
