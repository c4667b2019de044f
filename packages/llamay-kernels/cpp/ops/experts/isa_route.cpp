#include "ops/experts/route.hpp"
#include "ops/rows/rows.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"

namespace llamay {
namespace {

/// exp(x - maximum) / sum. out may be x.
void softmax(const float* x, size_t n, float* out) {
  f32x16 largest = splat(-__builtin_inff());
  for (size_t i = 0; i < n; i += 16) {
    const int some = n - i < 16 ? static_cast<int>(n - i) : 16;
    largest = select(first_lanes(some), max(largest, load(x + i, some)), largest);
  }
  const f32x16 m = splat(max16(largest));
  // Not exp_not_positive: with NaN among the logits the maximum may be any of them.
  map(x, out, n, [m](f32x16 v) { return exp(v - m); });
  const f32x16 total = splat(sum_of(out, n));
  map(out, out, n, [total](f32x16 v) { return v / total; });
}

/// The probabilities of all experts, before the choice.
void probabilities(RouteKind kind, const float* logits, size_t n, float* out) {
  switch (kind) {
    case RouteKind::softmax:
      return softmax(logits, n, out);
    case RouteKind::sigmoid:
      return map(logits, out, n, [](f32x16 x) { return sigmoid(x); });
    case RouteKind::softmax_chosen:
      return map(logits, out, n, [](f32x16 x) { return x; });
    case RouteKind::sqrt_softplus:
      return map(logits, out, n, [](f32x16 x) { return sqrt(softplus(x)); });
  }
}

/// Integers in the order of floats; both zeros are equal and a NaN is less than everything.
int32_t order_of(float x) {
  if (x != x) return INT32_MIN;
  x = x + 0.0f;  // of -0: +0
  int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits < 0 ? static_cast<int32_t>(0x80000000u - static_cast<uint32_t>(bits)) : bits;
}

/// The largest of the offered scores, in decreasing order; of equal scores the one that was offered first.
class Best {
 public:
  /// order, ids: arrays of `room` elements.
  Best(size_t room, int32_t* order, uint32_t* ids) : room_(room), order_(order), ids_(ids) {}

  void offer(int32_t order, size_t id) {
    if (count_ == room_ && order <= order_[count_ - 1]) return;
    size_t at = count_ < room_ ? count_++ : count_ - 1;
    for (; at > 0 && order_[at - 1] < order; --at) {
      order_[at] = order_[at - 1];
      ids_[at] = ids_[at - 1];
    }
    order_[at] = order;
    ids_[at] = static_cast<uint32_t>(id);
  }

 private:
  size_t room_, count_ = 0;
  int32_t* order_;
  uint32_t* ids_;
};

/// The score of a group: the sum of its two largest scores.
int32_t worth(const float* scores, size_t n) {
  if (n == 1) return order_of(scores[0]);
  int32_t order[2];
  uint32_t ids[2];
  Best best(2, order, ids);
  for (size_t i = 0; i < n; ++i) best.offer(order_of(scores[i]), i);
  return order_of(scores[ids[0]] + scores[ids[1]]);
}

/// The ids of the k largest scores, in groups that are considered.
void choose(const Route& route, const float* scores, uint32_t* ids) {
  int32_t order[kMaxExperts];
  const size_t size = route.experts / route.groups;
  bool considered[kMaxExperts];
  for (size_t g = 0; g < route.groups; ++g) considered[g] = route.groups_used == route.groups;
  if (route.groups_used < route.groups) {
    uint32_t chosen[kMaxExperts];
    Best groups(route.groups_used, order, chosen);
    for (size_t g = 0; g < route.groups; ++g) groups.offer(worth(scores + g * size, size), g);
    for (size_t i = 0; i < route.groups_used; ++i) considered[chosen[i]] = true;
  }
  Best best(route.k, order, ids);
  for (size_t g = 0; g < route.groups; ++g)
    if (considered[g])
      for (size_t i = g * size; i < (g + 1) * size; ++i) best.offer(order_of(scores[i]), i);
}

void row(const Route& route, const float* logits, float* ids, float* weights) {
  const size_t n = route.experts, k = route.k;
  float meant[kMaxExperts], sums[kMaxExperts];
  uint32_t chosen[kMaxExperts];
  probabilities(route.kind, logits, n, meant);
  const float* scores = meant;
  if (route.bias) {
    map(meant, route.bias, sums, n, [](f32x16 p, f32x16 bias) { return p + bias; });
    scores = sums;
  }
  choose(route, scores, chosen);
  for (size_t j = 0; j < k; ++j) {
    ids[j] = static_cast<float>(chosen[j]);
    weights[j] = meant[chosen[j]];
  }
  if (route.kind == RouteKind::softmax_chosen) softmax(weights, k, weights);
  if (route.norm) {
    const float sum = sum_of(weights, k);
    const f32x16 total = splat(sum > 0x1p-14f ? sum : 0x1p-14f);
    map(weights, weights, k, [total](f32x16 w) { return w / total; });
  }
  const f32x16 scale = splat(route.scale);
  map(weights, weights, k, [scale](f32x16 w) { return w * scale; });
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::RouteTable LLAMAY_TABLE(route);
const llamay::RouteTable LLAMAY_TABLE(route) = {llamay::row};
