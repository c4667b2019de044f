#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sampling/stages.hpp"

namespace llamay {

/// Options in llama.cpp's meaning. Neutral values switch a stage off.
struct SamplerOptions {
  uint64_t seed = 0;
  uint64_t sequence = 0;
  double temperature = 0.8;  // 0: the likeliest token
  int64_t top_k = 40;        // 0 or less: all
  double top_p = 0.95;       // 1: all
  double min_p = 0.05;       // 0: all
  double repeat_penalty = 1.0;
  int64_t repeat_last_n = 64;  // -1: the whole history
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int64_t, float>> logit_bias;
};

/// Chooses tokens. A choice is a function of the options, the logits, the position, the history and the mask,
/// and of nothing else.
class Sampler {
 public:
  /// Throws std::invalid_argument naming the option.
  explicit Sampler(SamplerOptions options);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// mask: bit i % 32 of word i / 32 allows token i; null allows all. Throws std::invalid_argument when
  /// nothing can be chosen or a logit is NaN.
  uint32_t sample(const float* logits, std::size_t n, uint64_t position, const Past& past,
                  const uint32_t* mask) const;
  const SamplerOptions& options() const { return options_; }

 private:
  SamplerOptions options_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

/// Natural logarithms of the probabilities that the logits mean: of `token`, and of the `top` likeliest,
/// likeliest first.
struct LogProbs {
  double token;
  std::vector<std::pair<uint32_t, double>> top;
};
/// Throws std::invalid_argument for a NaN.
LogProbs log_probs(const float* logits, std::size_t n, uint32_t token, std::size_t top);

}  // namespace llamay
