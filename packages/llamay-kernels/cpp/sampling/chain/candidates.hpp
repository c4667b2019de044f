#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/chain/table.hpp"

namespace llamay {

/// The tokens that can still be chosen. At first these are all tokens, whose logits are searched in the
/// caller's array, with a list of the few edited ones; after the first stage that cuts, they are a list of
/// the remaining tokens in order of id. Only stages that weigh a whole vocabulary with a mask or with edits
/// copy the logits. A temperature is a factor beside the logits: stages that only compare logits need not
/// apply it.
class Candidates {
 public:
  /// Starts with the logits of all tokens that the mask allows; both arrays must stay valid as long as the
  /// candidates are used. mask: bit i % 32 of word i / 32, or null.
  void begin(const SamplingTable& table, const float* logits, const uint32_t* mask, std::size_t n);

  std::size_t size() const { return cut_ ? ids_.size() : n_; }
  std::size_t vocabulary() const { return n_; }
  uint32_t token(std::size_t i) const { return cut_ ? ids_[i] : static_cast<uint32_t>(i); }
  float value(std::size_t i) const { return cut_ ? cut_logits_[i] : whole(static_cast<uint32_t>(i)); }
  /// The largest logit; -infinity when nothing can be chosen. Throws std::invalid_argument for a NaN or
  /// +infinity.
  float largest();

  /// Has to be called before logits are edited: multiplies the temperature into them.
  void edit();
  /// The logit of a token, which may be edited before the next call; null if a stage has cut the token.
  float* logit(uint32_t token);
  /// The logit of a token that is a candidate.
  float logit_of(uint32_t token) const;
  /// Multiplies the logits, by a positive number.
  void multiply(double by);
  double factor() const { return static_cast<double>(scale_); }

  /// Keeps the k likeliest candidates; among equals those with the lowest ids.
  void keep_likeliest(std::size_t k);
  /// Keeps the candidates with at least this logit, before the temperature.
  void keep_from(float threshold);
  /// Keeps the fewest likeliest candidates that together have at least this probability, at least one.
  void keep_mass(double mass);
  /// Keeps the candidates whose surprise is nearest to the entropy, until together they have more than this
  /// probability.
  void keep_typical(double mass);
  /// If several candidates have at least this probability, drops all of these but the least likely one.
  void drop_likely(double probability);

  /// The sum of exp(factor * (logit - largest)).
  double total() { return largest(), weigh(); }
  /// The number of logits that are not -infinity, their standard deviation, and the entropy in nats of their
  /// probabilities.
  std::size_t alive();
  double deviation();
  double entropy();

  /// The indices of the k likeliest candidates, likeliest first, without logits of -infinity. Valid until the
  /// next call.
  const std::vector<uint32_t>& rank(std::size_t k);
  /// The lowest id among the candidates with the largest logit.
  uint32_t likeliest();
  /// The candidate that u in [0, 1) draws, and its probability.
  struct Drawn {
    uint32_t token;
    double probability;
  };
  Drawn draw(double u);

 private:
  struct Edit {
    uint32_t token;
    float value;
  };
  std::vector<Edit>::const_iterator edit_of(uint32_t token) const;

  void scan();
  /// Updates the maxima of blocks with edits; returns whether all edits are numbers below infinity.
  bool scan_edits();
  /// A threshold that at least k blocks reach, and so at least k tokens, but not many more: tokens below it
  /// need not be examined one by one. -infinity where there are fewer than k blocks.
  float reached_by(std::size_t k);
  /// Writes the indices of the candidates with at least a threshold to found_.
  void find(float threshold);
  void find_edits(float threshold);
  /// Keeps those of found_ with the highest keys until `enough` is true of the sum of their weights, at least
  /// one; among equals the lowest ids.
  template <class Weight, class Enough>
  void take_first(const float* keys, float best, Weight weight, Enough enough);
  /// Keeps the candidates of found_ only.
  void take();
  /// The logit of a token of the whole vocabulary.
  float whole(uint32_t token) const;
  /// All logits in one array: a copy, where a mask or edits change them.
  const float* values();
  /// A copy of all logits, which may be written.
  float* copy();
  /// weights_ = exp((logit - largest) * factor), block_sums_ their sums; returns the whole sum.
  double weigh();

  const SamplingTable* table_ = nullptr;
  std::size_t n_ = 0;
  bool cut_ = false, scanned_ = false;
  float largest_ = 0, scale_ = 1;
  const float* base_ = nullptr;  // the caller's logits, or logits_ after copy()
  const uint32_t* mask_ = nullptr;
  std::vector<Edit> edits_;  // in order of id
  std::vector<float> logits_, block_max_, maxima_, weights_, block_sums_, cut_logits_, keys_;
  std::vector<uint32_t> ids_, found_, merged_, boundary_;
};

}  // namespace llamay
