#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sampling/candidates.hpp"

namespace llamay {

/// What came before the token that is being chosen.
struct Past {
  const int32_t* tokens;
  std::size_t n;
};

/// One step of a sampler, in llama.cpp's sense: it edits logits or cuts candidates. A further sampler is a
/// further stage and a line in Sampler's constructor.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void apply(Candidates& candidates, const Past& past) const = 0;
};

/// Adds to the logits of some tokens. Throws std::invalid_argument for one that is not in the vocabulary.
class LogitBias : public Stage {
 public:
  explicit LogitBias(std::vector<std::pair<int64_t, float>> bias) : bias_(std::move(bias)) {}
  void apply(Candidates& candidates, const Past& past) const override;

 private:
  std::vector<std::pair<int64_t, float>> bias_;
};

/// Makes tokens of the last `last` positions (-1: of all) less likely: a positive logit is divided by
/// `repeat` and a negative multiplied, then `frequency` is taken off as often as it occurs and `presence`
/// once.
class Penalties : public Stage {
 public:
  Penalties(int64_t last, float repeat, float frequency, float presence)
      : last_(last), repeat_(repeat), frequency_(frequency), presence_(presence) {}
  void apply(Candidates& candidates, const Past& past) const override;

 private:
  int64_t last_;
  float repeat_, frequency_, presence_;
};

/// The k likeliest.
class TopK : public Stage {
 public:
  explicit TopK(std::size_t k) : k_(k) {}
  void apply(Candidates& candidates, const Past&) const override { candidates.keep_likeliest(k_); }

 private:
  std::size_t k_;
};

/// The likeliest that together reach a probability. Holtzman et al. 2019, https://arxiv.org/abs/1904.09751.
class TopP : public Stage {
 public:
  explicit TopP(double p) : p_(p) {}
  void apply(Candidates& candidates, const Past&) const override { candidates.keep_mass(p_); }

 private:
  double p_;
};

/// Those at least p times as likely as the likeliest. Nguyen et al. 2024, https://arxiv.org/abs/2407.01082.
class MinP : public Stage {
 public:
  explicit MinP(double p);
  void apply(Candidates& candidates, const Past&) const override {
    candidates.keep_from(candidates.largest() + log_p_);
  }

 private:
  float log_p_;
};

}  // namespace llamay
