#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/table.hpp"

namespace llamay {

/// The tokens that can still be chosen. At first all of them, whose logits are searched where they lie, the
/// few that stages edit being kept beside; after the first stage that cuts, a list in order of id, with the
/// few that are left. Only stages that weigh a whole vocabulary with a mask or with edits make a copy of it.
/// A temperature is a factor that is kept beside the logits: what only compares them need not know it.
class Candidates {
 public:
  /// Takes the logits, without those that the mask excludes; both must stay as long as the candidates are
  /// used. mask: bit i % 32 of word i / 32, or null.
  void begin(const SamplingTable& table, const float* logits, const uint32_t* mask, std::size_t n);

  std::size_t size() const { return cut_ ? ids_.size() : n_; }
  std::size_t vocabulary() const { return n_; }
  uint32_t token(std::size_t i) const { return cut_ ? ids_[i] : static_cast<uint32_t>(i); }
  float value(std::size_t i) const { return cut_ ? few_[i] : whole(static_cast<uint32_t>(i)); }
  /// The largest logit; -infinity when nothing can be chosen. Throws std::invalid_argument for a NaN or
  /// +infinity.
  float largest();

  /// To be called before logits are edited: works the temperature into them.
  void edit();
  /// The logit of a token, to be edited before the next call; null if a stage has cut it.
  float* logit(uint32_t token);
  /// The logit of a token that is among them.
  float logit_of(uint32_t token) const;
  /// Multiplies the logits, by a positive number.
  void multiply(double by);
  double factor() const { return static_cast<double>(scale_); }

  /// The k likeliest; among equals those with the lowest id.
  void keep_likeliest(std::size_t k);
  /// Those with at least this logit, the temperature left aside.
  void keep_from(float threshold);
  /// The likeliest that together have at least this probability, fewest possible, at least one.
  void keep_mass(double mass);
  /// Those whose surprise is nearest to the expected one, until they have more than this probability.
  void keep_typical(double mass);
  /// If several have at least this probability, drops all of these but the least likely.
  void drop_likely(double probability);

  /// The sum of exp(factor * (logit - largest)).
  double total() { return largest(), weigh(); }
  /// Of the logits that are not -infinity: how many, their standard deviation, and of the probabilities that
  /// they mean the entropy in nats.
  std::size_t alive();
  double deviation();
  double entropy();

  /// The indices of the k likeliest, likeliest first, without any at -infinity. Valid until the next call.
  const std::vector<uint32_t>& rank(std::size_t k);
  /// The lowest id among those with the largest logit.
  uint32_t likeliest();
  /// Which one u in [0, 1) draws, and its probability.
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
  /// Brings the maxima of blocks with edits up to date; whether all edits are numbers below infinity.
  bool scan_edits();
  /// A number that at least k blocks reach, so at least k tokens do, and not many more: those below it need
  /// not be looked at one by one. -infinity where there are no k blocks.
  float reached_by(std::size_t k);
  /// Puts the indices of those from a threshold on into found_.
  void find(float threshold);
  void find_edits(float threshold);
  /// Of what was found, those with the highest keys until `enough` says so of their weights, at least one;
  /// among equals the lowest ids.
  template <class Weight, class Enough>
  void take_first(const float* keys, float best, Weight weight, Enough enough);
  /// Keeps what was found.
  void take();
  /// The logit of one of the whole vocabulary.
  float whole(uint32_t token) const;
  /// All logits in one array: a copy, where a mask or edits make it differ from what was given.
  const float* values();
  /// The same, to be written.
  float* copy();
  /// weights_ = exp((logit - largest) * factor), block_sums_ their sums; returns the whole sum.
  double weigh();

  const SamplingTable* table_ = nullptr;
  std::size_t n_ = 0;
  bool cut_ = false, scanned_ = false;
  float largest_ = 0, scale_ = 1;
  const float* base_ = nullptr;  // logits_, once it is a copy
  const uint32_t* mask_ = nullptr;
  std::vector<Edit> edits_;  // in order of id
  std::vector<float> logits_, block_max_, maxima_, weights_, block_sums_, few_, keys_;
  std::vector<uint32_t> ids_, found_, merged_, edge_;
};

}  // namespace llamay
