#include "sampling/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace llamay {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = SamplingTable::kBlock;

std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }

}  // namespace

void Candidates::begin(const SamplingTable& table, const float* logits, const uint32_t* mask, std::size_t n) {
  table_ = &table;
  n_ = n;
  cut_ = scanned_ = false;
  logits_.resize(n);
  table_->masked(logits, mask, n, logits_.data());
}

void Candidates::scan() {
  if (scanned_) return;
  scanned_ = true;
  if (cut_) {
    largest_ = few_.empty() ? kNothing : *std::max_element(few_.begin(), few_.end());
    return;
  }
  block_max_.resize(blocks(n_));
  if (!table_->maxima(logits_.data(), n_, block_max_.data()))
    for (std::size_t i = 0; i < n_; ++i)
      if (!(logits_[i] < -kNothing))
        throw std::invalid_argument("the logit of token " + std::to_string(i) + " is " +
                                    (std::isnan(logits_[i]) ? "NaN" : "infinity") +
                                    "; the model's output is not usable");
  largest_ = *std::max_element(block_max_.begin(), block_max_.end());
}

float Candidates::largest() {
  scan();
  return largest_;
}

void Candidates::take() {
  if (cut_) {
    // In place: what is kept comes no earlier than where it goes.
    for (std::size_t i = 0; i < found_.size(); ++i) {
      ids_[i] = ids_[found_[i]];
      few_[i] = few_[found_[i]];
    }
    ids_.resize(found_.size());
    few_.resize(found_.size());
    return;
  }
  ids_.swap(found_);
  few_.resize(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) few_[i] = logits_[ids_[i]];
  cut_ = true;
}

void Candidates::keep_likeliest(std::size_t k) {
  scan();
  const std::size_t n = size();
  if (k == 0 || k >= n) return;
  float bound = kNothing;
  if (!cut_ && k < block_max_.size()) {
    // k blocks reach this, so at least k tokens do: the others need not be looked at one by one.
    std::nth_element(block_max_.begin(), block_max_.begin() + static_cast<std::ptrdiff_t>(k - 1),
                     block_max_.end(), std::greater<>());
    bound = block_max_[k - 1];
  }
  find(bound);
  take_first(static_cast<double>(k), [](uint32_t) { return 1.0; });
}

void Candidates::keep_from(float threshold) {
  scan();
  find(threshold);
  take();
}

void Candidates::keep_mass(double mass) {
  scan();
  if (mass >= 1.0) return;
  const double wanted = mass * weigh(1.0f);
  // Look only as far below the largest as needed, in steps: nearly always the first is enough.
  for (float below = 8.0f;; below *= 4.0f) {
    const float threshold = below < 1000.0f ? largest_ - below : kNothing;
    find(threshold);
    double reached = 0;
    for (const uint32_t i : found_) reached += static_cast<double>(weights_[i]);
    if (reached >= wanted || threshold == kNothing) break;
  }
  take_first(wanted, [this](uint32_t i) { return static_cast<double>(weights_[i]); });
}

void Candidates::find(float threshold) {
  found_.resize(size());
  found_.resize(table_->at_least(values(), size(), threshold, found_.data()));
}

/// Of what was found, the likeliest until their weights reach `wanted`, at least one; among equals the lowest
/// ids.
template <class Weight>
void Candidates::take_first(double wanted, Weight weight) {
  constexpr std::size_t kBuckets = 1024;
  const float* v = values();
  float lowest = largest_;
  for (const uint32_t i : found_) lowest = v[i] < lowest && v[i] > kNothing ? v[i] : lowest;
  // Buckets of equal width below the largest: only the one where the sum is reached has to be sorted.
  const float scale = (kBuckets - 1) / (largest_ - lowest);
  const bool flat = !(scale < std::numeric_limits<float>::max());
  const auto bucket = [&](uint32_t i) {
    if (flat || v[i] == kNothing) return v[i] == kNothing ? kBuckets - 1 : std::size_t{0};
    return std::min(static_cast<std::size_t>((largest_ - v[i]) * scale), kBuckets - 1);
  };
  double sums[kBuckets] = {};
  for (const uint32_t i : found_) sums[bucket(i)] += weight(i);
  std::size_t last = 0;
  double before = 0;
  while (last + 1 < kBuckets && before + sums[last] < wanted) before += sums[last++];

  edge_.clear();
  for (const uint32_t i : found_)
    if (bucket(i) == last) edge_.push_back(i);
  const auto likelier = [v](uint32_t a, uint32_t b) { return v[a] != v[b] ? v[a] > v[b] : a < b; };
  std::sort(edge_.begin(), edge_.end(), likelier);
  std::size_t kept = 0;
  while (kept < edge_.size() && (before < wanted || (last == 0 && kept == 0)))
    before += weight(edge_[kept++]);

  // The last one kept separates, so that what stays is found in one pass and in order of id.
  const bool whole = kept == edge_.size();
  const uint32_t stop = kept ? edge_[kept - 1] : 0;
  std::size_t n = 0;
  for (const uint32_t i : found_) {
    const std::size_t b = bucket(i);
    if (b < last || (b == last && (whole || (kept && !likelier(stop, i))))) found_[n++] = i;
  }
  found_.resize(n);
  take();
}

uint32_t Candidates::likeliest() {
  scan();
  const float* v = values();
  if (!cut_) {
    // The first block that has it, then the first place in that block.
    const std::size_t block = static_cast<std::size_t>(
        std::find(block_max_.begin(), block_max_.end(), largest_) - block_max_.begin());
    for (std::size_t i = block * kBlock;; ++i)
      if (v[i] == largest_) return static_cast<uint32_t>(i);
  }
  return ids_[static_cast<std::size_t>(std::find(few_.begin(), few_.end(), largest_) - few_.begin())];
}

double Candidates::weigh(float by) {
  const std::size_t n = size();
  weights_.resize(n);
  block_sums_.resize(blocks(n));
  table_->weights(values(), n, largest_, by, weights_.data());
  table_->sums(weights_.data(), n, block_sums_.data());
  double sum = 0;
  for (const float s : block_sums_) sum += static_cast<double>(s);
  return sum;
}

uint32_t Candidates::draw(float temperature, double u) {
  scan();
  const std::size_t n = size();
  // A temperature so small that its inverse is infinite would make 0 * infinity of the likeliest.
  const double target = u * weigh(std::min(1.0f / temperature, std::numeric_limits<float>::max()));
  double before = 0;
  std::size_t block = 0;
  while (block + 1 < block_sums_.size() && before + static_cast<double>(block_sums_[block]) <= target)
    before += static_cast<double>(block_sums_[block++]);
  for (std::size_t at = block * kBlock; at < n; ++at) {
    before += static_cast<double>(weights_[at]);
    if (before > target && weights_[at] > 0.0f) return token(at);
  }
  // Rounding left the target past the last weight: it belongs to the last token that has one.
  std::size_t at = n - 1;
  while (at > 0 && weights_[at] == 0.0f) --at;
  return token(at);
}

}  // namespace llamay
