#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampling/chain/mirostat.hpp"
#include "sampling/chain/stages.hpp"

namespace llamay {

/// Options in llama.cpp's meaning. Neutral values switch a stage off.
struct SamplerOptions {
  uint64_t seed = 0;
  uint64_t sequence = 0;
  double temperature = 0.8;     // 0: the likeliest token
  double dynatemp_range = 0.0;  // 0: none
  double dynatemp_exponent = 1.0;
  int64_t top_k = 40;         // 0 or less: all
  double top_p = 0.95;        // 1: all
  double min_p = 0.05;        // 0: all
  double typical_p = 1.0;     // 1: all
  double top_n_sigma = -1.0;  // 0 or less: all
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double repeat_penalty = 1.0;
  int64_t repeat_last_n = 64;  // -1: the whole history
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double dry_multiplier = 0.0;  // 0: none
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = -1;  // -1: the whole history
  Dry::Breakers dry_sequence_breakers;
  int64_t mirostat = 0;  // 1 or 2: replaces all samplers but the temperature
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  std::vector<std::string> samplers = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                       "top_p",     "min_p", "xtc",         "temperature"};
  std::vector<std::pair<int64_t, float>> logit_bias;
};

/// Natural logarithms of probabilities: of `token`, and of the `top` likeliest tokens, likeliest first.
struct LogProbs {
  double token;
  std::vector<std::pair<uint32_t, double>> top;
};

/// The inputs of the choice of one token.
struct Choice {
  const float* logits;
  std::size_t n;
  uint64_t position;
  const int32_t* past;
  std::size_t past_n;
  const uint32_t* mask;  // bit i % 32 of word i / 32 allows token i; null allows all
};

/// Chooses tokens. A choice is a function of the options, the logits, the position, the history and the mask,
/// with mirostat also of mu, and of nothing else.
class Sampler {
 public:
  /// Throws std::invalid_argument naming the option.
  explicit Sampler(SamplerOptions options);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// With `scores`, writes the log-probabilities after all stages: of the chosen token and of the `top`
  /// likeliest. Throws std::invalid_argument when nothing can be chosen or a logit is NaN.
  uint32_t sample(const Choice& choice, LogProbs* scores = nullptr, std::size_t top = 0);
  const SamplerOptions& options() const { return options_; }

  /// Mirostat's state; changes with each choice.
  double mu;

 private:
  uint32_t choose(Candidates& candidates, const Choice& choice, double u);

  SamplerOptions options_;
  std::vector<std::unique_ptr<SamplerStage>> stages_;
  bool greedy_ = false;
};

/// The log-probabilities of the logits, before any stage. Throws std::invalid_argument for a NaN.
LogProbs log_probs(const float* logits, std::size_t n, uint32_t token, std::size_t top);

}  // namespace llamay
