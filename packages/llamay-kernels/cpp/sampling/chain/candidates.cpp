#include "sampling/chain/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace llamay {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr std::size_t kBlock = SamplingTable::kBlock;
constexpr std::size_t kMostEdits = 256;  // with more edits a copy of the logits is faster

std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }

/// A sum whose order depends on n alone: element i goes to lane i % 8.
template <class Term>
double sum(std::size_t n, Term term) {
  double lanes[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t k = 0; k < 8; ++k) lanes[k] += term(i + k);
  for (; i < n; ++i) lanes[i % 8] += term(i);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

void Candidates::begin(const SamplingTable& table, const float* logits, const uint32_t* mask, std::size_t n) {
  table_ = &table;
  n_ = n;
  cut_ = scanned_ = false;
  scale_ = 1;
  base_ = logits;
  mask_ = mask;
  edits_.clear();
}

std::vector<Candidates::Edit>::const_iterator Candidates::edit_of(uint32_t token) const {
  return std::lower_bound(edits_.begin(), edits_.end(), token,
                          [](const Edit& e, uint32_t id) { return e.token < id; });
}

float Candidates::whole(uint32_t token) const {
  if (!edits_.empty())
    if (const auto at = edit_of(token); at != edits_.end() && at->token == token) return at->value;
  return !mask_ || mask_[token / 32] >> token % 32 & 1 ? base_[token] : kNothing;
}

float* Candidates::copy() {
  if (base_ != logits_.data()) {
    logits_.resize(n_);
    table_->masked(base_, mask_, n_, logits_.data());
    base_ = logits_.data();
    mask_ = nullptr;
  }
  for (const Edit& e : edits_) logits_[e.token] = e.value;
  edits_.clear();
  return logits_.data();
}

const float* Candidates::values() {
  if (cut_) return cut_logits_.data();
  return mask_ || !edits_.empty() ? copy() : base_;
}

bool Candidates::scan_edits() {
  bool below = true;
  for (std::size_t i = 0; i < edits_.size();) {
    const std::size_t block = edits_[i].token / kBlock, begin = block * kBlock;
    const std::size_t end = std::min(begin + kBlock, n_);
    float values[kBlock];
    for (std::size_t k = begin; k < end; ++k)
      values[k - begin] = !mask_ || mask_[k / 32] >> k % 32 & 1 ? base_[k] : kNothing;
    for (; i < edits_.size() && edits_[i].token < end; ++i) {
      values[edits_[i].token - begin] = edits_[i].value;
      below = below && edits_[i].value < -kNothing;
    }
    block_max_[block] = *std::max_element(values, values + (end - begin));
  }
  return below;
}

void Candidates::scan() {
  if (scanned_) return;
  scanned_ = true;
  const std::size_t n = size();
  block_max_.resize(blocks(n));
  bool usable = cut_ ? table_->maxima(cut_logits_.data(), nullptr, n, block_max_.data())
                     : table_->maxima(base_, mask_, n, block_max_.data());
  if (!cut_ && !edits_.empty()) usable = scan_edits() && usable;
  if (!usable)
    for (std::size_t i = 0; i < n; ++i)
      if (const float v = value(i); !(v < -kNothing))
        throw std::invalid_argument("the logit of token " + std::to_string(token(i)) + " is " +
                                    (std::isnan(v) ? "NaN" : "infinity") +
                                    "; the model's output is not usable");
  largest_ = block_max_.empty() ? kNothing : *std::max_element(block_max_.begin(), block_max_.end());
}

float Candidates::largest() {
  scan();
  return largest_;
}

void Candidates::edit() {
  scanned_ = false;
  if (scale_ == 1.0f) return;
  float* v = cut_ ? cut_logits_.data() : copy();
  for (std::size_t i = 0; i < size(); ++i)
    if (v[i] != kNothing) v[i] = std::clamp(v[i] * scale_, -kMost, kMost);
  scale_ = 1;
}

float* Candidates::logit(uint32_t token) {
  if (cut_) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), token);
    return at == ids_.end() || *at != token ? nullptr
                                            : &cut_logits_[static_cast<std::size_t>(at - ids_.begin())];
  }
  if (token >= n_) return nullptr;
  if (base_ == logits_.data()) return &logits_[token];
  const auto at = edits_.begin() + (edit_of(token) - edits_.cbegin());
  if (at != edits_.end() && at->token == token) return &at->value;
  if (edits_.size() == kMostEdits) return copy() + token;
  return &edits_.insert(at, {token, whole(token)})->value;
}

float Candidates::logit_of(uint32_t token) const {
  if (!cut_) return whole(token);
  return cut_logits_[static_cast<std::size_t>(std::lower_bound(ids_.begin(), ids_.end(), token) -
                                              ids_.begin())];
}

void Candidates::multiply(double by) {
  // The inverse of a very small temperature would be infinite, and make 0 * infinity of the likeliest token.
  scale_ = static_cast<float>(std::clamp(static_cast<double>(scale_) * by,
                                         static_cast<double>(std::numeric_limits<float>::min()),
                                         static_cast<double>(kMost)));
}

void Candidates::take() {
  scanned_ = false;
  if (cut_) {
    // In place: an element never moves to a later index.
    for (std::size_t i = 0; i < found_.size(); ++i) {
      ids_[i] = ids_[found_[i]];
      cut_logits_[i] = cut_logits_[found_[i]];
    }
    ids_.resize(found_.size());
    cut_logits_.resize(found_.size());
    return;
  }
  ids_.swap(found_);
  cut_logits_.resize(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) cut_logits_[i] = whole(ids_[i]);
  cut_ = true;
}

float Candidates::reached_by(std::size_t k) {
  if (k >= block_max_.size()) return kNothing;
  // A second level of maxima, over blocks of blocks, leaves few maxima to sort.
  maxima_.resize(blocks(block_max_.size()));
  table_->maxima(block_max_.data(), nullptr, block_max_.size(), maxima_.data());
  const auto kth = [](std::vector<float>& v, std::size_t k) {
    const auto at = v.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(v.begin(), at, v.end(), std::greater<>());
    return *at;
  };
  const float least = k <= maxima_.size() ? kth(maxima_, k) : kNothing;
  maxima_.clear();
  for (const float m : block_max_)
    if (m >= least) maxima_.push_back(m);
  return kth(maxima_, k);
}

void Candidates::keep_likeliest(std::size_t k) {
  scan();
  if (k == 0 || k >= size()) return;
  find(reached_by(k));
  if (!cut_) {
    take();
    found_.resize(size());
    std::iota(found_.begin(), found_.end(), 0u);
  }
  const auto wanted = static_cast<double>(k);
  take_first(
      values(), largest_, [](uint32_t) { return 1.0; }, [wanted](double sum) { return sum >= wanted; });
}

void Candidates::keep_from(float threshold) {
  scan();
  find(threshold);
  take();
}

void Candidates::keep_mass(double mass) {
  scan();
  if (mass >= 1.0) return;
  const double wanted = mass * weigh();
  // Look only as far below the largest logit as needed, in steps: the first step is nearly always enough.
  for (float below = 8.0f;; below *= 4.0f) {
    const float threshold = below < 1000.0f ? largest_ - below / scale_ : kNothing;
    find(threshold);
    double reached = 0;
    for (const uint32_t i : found_) reached += static_cast<double>(weights_[i]);
    if (reached >= wanted || threshold == kNothing) break;
  }
  take_first(
      values(), largest_, [this](uint32_t i) { return static_cast<double>(weights_[i]); },
      [wanted](double sum) { return sum >= wanted; });
}

void Candidates::keep_typical(double mass) {
  scan();
  const double expected = entropy(), all = weigh(), log_all = std::log(all);
  const float* v = values();
  keys_.resize(size());
  found_.clear();
  float best = kNothing;
  for (std::size_t i = 0; i < size(); ++i) {
    if (v[i] == kNothing) continue;
    const double log_p = static_cast<double>(scale_) * static_cast<double>(v[i] - largest_) - log_all;
    keys_[i] = static_cast<float>(-std::min(std::abs(log_p + expected), static_cast<double>(kMost)));
    best = std::max(best, keys_[i]);
    found_.push_back(static_cast<uint32_t>(i));
  }
  const double wanted = mass * all;
  take_first(
      keys_.data(), best, [this](uint32_t i) { return static_cast<double>(weights_[i]); },
      [wanted](double sum) { return sum > wanted; });
}

void Candidates::drop_likely(double probability) {
  scan();
  const double bound = probability * weigh();
  const float* v = values();
  const auto likely = [&](std::size_t i) {
    return v[i] != kNothing && static_cast<double>(weights_[i]) >= bound;
  };
  std::size_t count = 0, least = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (!likely(i)) continue;
    if (count++ == 0 || v[i] <= v[least]) least = i;
  }
  if (count < 2) return;
  found_.clear();
  for (std::size_t i = 0; i < size(); ++i)
    if (i == least || (v[i] != kNothing && !likely(i))) found_.push_back(static_cast<uint32_t>(i));
  take();
}

std::size_t Candidates::alive() {
  const float* v = values();
  std::size_t count = 0;
  for (std::size_t i = 0; i < size(); ++i) count += v[i] != kNothing;
  return count;
}

double Candidates::deviation() {
  scan();
  const float* v = values();
  const std::size_t n = size(), count = alive();
  if (count == 0) return 0;
  // Relative to the largest logit, so that a common offset neither costs precision nor overflows.
  const auto below = [&](std::size_t i) {
    return v[i] == kNothing ? 0.0 : static_cast<double>(v[i]) - static_cast<double>(largest_);
  };
  const double mean = sum(n, below) / static_cast<double>(count);
  const double squares = sum(n, [&](std::size_t i) {
    const double d = v[i] == kNothing ? 0.0 : below(i) - mean;
    return d * d;
  });
  return std::sqrt(squares / static_cast<double>(count));
}

double Candidates::entropy() {
  const double all = total();
  const float* v = values();
  const double mean = sum(size(), [&](std::size_t i) {
    return weights_[i] > 0.0f
               ? static_cast<double>(weights_[i]) * static_cast<double>((v[i] - largest_) * scale_)
               : 0.0;
  });
  return std::log(all) - mean / all;
}

const std::vector<uint32_t>& Candidates::rank(std::size_t k) {
  scan();
  const float* v = values();
  find(k ? std::max(std::numeric_limits<float>::lowest(), reached_by(k))
         : std::numeric_limits<float>::lowest());
  const std::size_t kept = std::min(k, found_.size());
  std::partial_sort(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(kept), found_.end(),
                    [v](uint32_t a, uint32_t b) { return v[a] != v[b] ? v[a] > v[b] : a < b; });
  found_.resize(kept);
  return found_;
}

void Candidates::find(float threshold) {
  // Only a copy holds excluded tokens as -infinity.
  const float* v = cut_ || threshold == kNothing ? values() : base_;
  const uint32_t* mask = cut_ ? nullptr : mask_;
  std::size_t most = 0;
  for (const float m : block_max_) most += m >= threshold;
  found_.resize(std::min(most * kBlock, size()));
  found_.resize(table_->at_least(v, mask, block_max_.data(), size(), threshold, found_.data()));
  if (!cut_ && !edits_.empty()) find_edits(threshold);
}

void Candidates::find_edits(float threshold) {
  merged_.clear();
  auto edit = edits_.begin();
  const auto take_until = [&](uint32_t token) {
    for (; edit != edits_.end() && edit->token < token; ++edit)
      if (edit->value >= threshold) merged_.push_back(edit->token);
  };
  for (const uint32_t token : found_) {
    take_until(token);
    if (edit == edits_.end() || edit->token != token) merged_.push_back(token);
  }
  take_until(static_cast<uint32_t>(n_));
  found_.swap(merged_);
}

template <class Weight, class Enough>
void Candidates::take_first(const float* keys, float best, Weight weight, Enough enough) {
  constexpr std::size_t kBuckets = 1024;
  const float* v = keys;
  float lowest = best;
  for (const uint32_t i : found_) lowest = v[i] < lowest && v[i] > kNothing ? v[i] : lowest;
  // Buckets of equal width below the best key: only the bucket in which `enough` becomes true has to be
  // sorted.
  const float scale = (kBuckets - 1) / (best - lowest);
  const bool flat = !(scale < kMost);
  const auto bucket = [&](uint32_t i) {
    if (flat || v[i] == kNothing) return v[i] == kNothing ? kBuckets - 1 : std::size_t{0};
    return std::min(static_cast<std::size_t>((best - v[i]) * scale), kBuckets - 1);
  };
  double sums[kBuckets] = {};
  for (const uint32_t i : found_) sums[bucket(i)] += weight(i);
  std::size_t last = 0;
  double before = 0;
  while (last + 1 < kBuckets && !enough(before + sums[last])) before += sums[last++];

  boundary_.clear();
  for (const uint32_t i : found_)
    if (bucket(i) == last) boundary_.push_back(i);
  const auto likelier = [v](uint32_t a, uint32_t b) { return v[a] != v[b] ? v[a] > v[b] : a < b; };
  std::sort(boundary_.begin(), boundary_.end(), likelier);
  std::size_t kept = 0;
  while (kept < boundary_.size() && (!enough(before) || (last == 0 && kept == 0)))
    before += weight(boundary_[kept++]);

  // The last kept candidate is the bound, so that one pass in order of id finds all that stay.
  const bool whole = kept == boundary_.size();
  const uint32_t stop = kept ? boundary_[kept - 1] : 0;
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
  // The first block with the largest logit, then the first place in that block.
  const auto block = static_cast<std::size_t>(std::find(block_max_.begin(), block_max_.end(), largest_) -
                                              block_max_.begin());
  for (std::size_t i = block * kBlock;; ++i)
    if (value(i) == largest_) return token(i);
}

double Candidates::weigh() {
  const std::size_t n = size();
  weights_.resize(n);
  block_sums_.resize(blocks(n));
  table_->weights(values(), n, largest_, scale_, weights_.data());
  table_->sums(weights_.data(), n, block_sums_.data());
  double sum = 0;
  for (const float s : block_sums_) sum += static_cast<double>(s);
  return sum;
}

Candidates::Drawn Candidates::draw(double u) {
  scan();
  const std::size_t n = size();
  const double all = weigh(), target = u * all;
  const auto drawn = [&](std::size_t at) {
    return Drawn{token(at), static_cast<double>(weights_[at]) / all};
  };
  double before = 0;
  std::size_t block = 0;
  while (block + 1 < block_sums_.size() && before + static_cast<double>(block_sums_[block]) <= target)
    before += static_cast<double>(block_sums_[block++]);
  for (std::size_t at = block * kBlock; at < n; ++at) {
    before += static_cast<double>(weights_[at]);
    if (before > target && weights_[at] > 0.0f) return drawn(at);
  }
  // Rounding left the target past the last weight: the draw is the last token with a weight.
  std::size_t at = n - 1;
  while (at > 0 && weights_[at] == 0.0f) --at;
  return drawn(at);
}

}  // namespace llamay
