#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/table.hpp"

namespace llamay {

/// The tokens that can still be chosen. At first all of them, as an array of logits that stages edit or
/// search in whole passes; after the first stage that cuts, a list in order of id, with the few that are
/// left.
class Candidates {
 public:
  /// Takes the logits, without those that the mask excludes. mask: bit i % 32 of word i / 32, or null.
  void begin(const SamplingTable& table, const float* logits, const uint32_t* mask, std::size_t n);

  /// All tokens' logits, for stages that come before any cut.
  float* all() { return logits_.data(); }
  std::size_t size() const { return cut_ ? ids_.size() : logits_.size(); }
  std::size_t vocabulary() const { return n_; }
  uint32_t token(std::size_t i) const { return cut_ ? ids_[i] : static_cast<uint32_t>(i); }
  /// The largest logit; -infinity when nothing can be chosen. Throws std::invalid_argument for a NaN or
  /// +infinity.
  float largest();

  /// The k likeliest; among equals those with the lowest id.
  void keep_likeliest(std::size_t k);
  /// Those with at least this logit.
  void keep_from(float threshold);
  /// The likeliest that together have at least this probability, fewest possible, at least one.
  void keep_mass(double mass);

  /// The sum of exp(logit - largest).
  double total() { return largest(), weigh(1.0f); }
  /// The lowest id among those with the largest logit.
  uint32_t likeliest();
  /// Draws by exp(logit / temperature), u in [0, 1).
  uint32_t draw(float temperature, double u);

 private:
  void scan();
  /// Puts the indices of those from a threshold on into found_.
  void find(float threshold);
  template <class Weight>
  void take_first(double wanted, Weight weight);
  /// Keeps what was found, and the likeliest is always among it.
  void take();
  const float* values() const { return cut_ ? few_.data() : logits_.data(); }
  /// weights_ = exp((logit - largest) * by), block_sums_ their sums; returns the whole sum.
  double weigh(float by);

  const SamplingTable* table_ = nullptr;
  std::size_t n_ = 0;
  bool cut_ = false, scanned_ = false;
  float largest_ = 0;
  std::vector<float> logits_, block_max_, weights_, block_sums_, few_;
  std::vector<uint32_t> ids_, found_, edge_;
};

}  // namespace llamay
