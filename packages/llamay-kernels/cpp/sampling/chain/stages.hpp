#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sampling/chain/candidates.hpp"

namespace llamay {

/// The inputs of a choice besides the logits.
struct StageInput {
  const int32_t* tokens;  // the `n` tokens before
  std::size_t n;
  double chance;  // a random number in [0, 1), for stages that take a chance
};

/// One stage of a sampler, a sampler in llama.cpp's sense: it edits logits or cuts candidates. A new stage is
/// a subclass and a line in make_stage.
class SamplerStage {
 public:
  virtual ~SamplerStage() = default;
  virtual void apply(Candidates& candidates, const StageInput& input) const = 0;
};

struct SamplerOptions;
/// The stage that llama.cpp calls `name`, with the options' settings; null where the options switch it off.
/// Throws std::invalid_argument for an unknown name.
std::unique_ptr<SamplerStage> make_stage(const std::string& name, const SamplerOptions& options);

/// Adds biases to the logits of some tokens. Throws std::invalid_argument for a token that is not in the
/// vocabulary.
class LogitBias : public SamplerStage {
 public:
  explicit LogitBias(std::vector<std::pair<int64_t, float>> bias) : bias_(std::move(bias)) {}
  void apply(Candidates& candidates, const StageInput&) const override;

 private:
  std::vector<std::pair<int64_t, float>> bias_;
};

/// Makes tokens of the last `last` positions (-1: of all) less likely: a positive logit is divided by
/// `repeat` and a negative one multiplied, then `frequency` is subtracted for each occurrence and `presence`
/// once. The cost grows with the length of the window, not with the vocabulary.
class Penalties : public SamplerStage {
 public:
  Penalties(int64_t last, float repeat, float frequency, float presence)
      : last_(last), repeat_(repeat), frequency_(frequency), presence_(presence) {}
  void apply(Candidates& candidates, const StageInput& input) const override;

 private:
  int64_t last_;
  float repeat_, frequency_, presence_;
};

/// "Don't repeat yourself": penalises tokens that would prolong a repetition of the text's end, the more the
/// longer it is: `multiplier * base^(length - allowed)`. A repetition does not reach over a sequence breaker.
/// Like llama.cpp's, after p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5677.
class Dry : public SamplerStage {
 public:
  using Breakers = std::vector<std::vector<int32_t>>;
  /// last: number of past tokens that are looked at, -1 for all. A breaker is a sequence of tokens.
  Dry(double multiplier, double base, int64_t allowed, int64_t last, const Breakers& breakers);
  void apply(Candidates& candidates, const StageInput& input) const override;

 private:
  /// The number of last tokens that come after the last breaker. back(i): the token i places before the last.
  template <class Back>
  std::size_t unbroken(std::size_t n, Back back) const;

  double multiplier_, base_;
  std::size_t allowed_;
  int64_t last_;
  Breakers breakers_;        // in order of their first token
  std::vector<bool> first_;  // whether a token begins a breaker
};

/// Cuts tokens whose logits are more than n standard deviations below the largest. Tang et al. 2024,
/// https://arxiv.org/abs/2411.07641.
class TopNSigma : public SamplerStage {
 public:
  explicit TopNSigma(double n) : n_(n) {}
  void apply(Candidates& candidates, const StageInput&) const override;

 private:
  double n_;
};

/// Keeps the k likeliest tokens.
class TopK : public SamplerStage {
 public:
  explicit TopK(std::size_t k) : k_(k) {}
  void apply(Candidates& candidates, const StageInput&) const override { candidates.keep_likeliest(k_); }

 private:
  std::size_t k_;
};

/// Keeps locally typical tokens. Meister et al. 2022, https://arxiv.org/abs/2202.00666.
class Typical : public SamplerStage {
 public:
  explicit Typical(double p) : p_(p) {}
  void apply(Candidates& candidates, const StageInput&) const override { candidates.keep_typical(p_); }

 private:
  double p_;
};

/// Keeps the likeliest tokens that together reach a probability. Holtzman et al. 2019,
/// https://arxiv.org/abs/1904.09751.
class TopP : public SamplerStage {
 public:
  explicit TopP(double p) : p_(p) {}
  void apply(Candidates& candidates, const StageInput&) const override { candidates.keep_mass(p_); }

 private:
  double p_;
};

/// Keeps tokens at least p times as likely as the likeliest. Nguyen et al. 2024,
/// https://arxiv.org/abs/2407.01082.
class MinP : public SamplerStage {
 public:
  explicit MinP(double p);
  void apply(Candidates& candidates, const StageInput&) const override;

 private:
  double log_p_;
};

/// "Exclude top choices": with some probability drops all tokens above a threshold but the least likely.
/// p-e-w, https://github.com/oobabooga/text-generation-webui/pull/6335.
class Xtc : public SamplerStage {
 public:
  Xtc(double probability, double threshold) : probability_(probability), threshold_(threshold) {}
  void apply(Candidates& candidates, const StageInput& input) const override;

 private:
  double probability_, threshold_;
};

/// Divides the logits by a temperature. With a range, the temperature lies between `temperature - range` and
/// `temperature + range`, in proportion to the entropy, relative to the largest possible with this number of
/// candidates, to the power of an exponent. At 0 only the likeliest token stays. Zhu et al. 2024,
/// https://arxiv.org/abs/2309.02772.
class Temperature : public SamplerStage {
 public:
  Temperature(double temperature, double range, double exponent)
      : temperature_(temperature), range_(range), exponent_(exponent) {}
  void apply(Candidates& candidates, const StageInput&) const override;

 private:
  double temperature_, range_, exponent_;
};

}  // namespace llamay
