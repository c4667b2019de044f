#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

enum class RouteKind : uint8_t { softmax, sigmoid, softmax_chosen, sqrt_softplus };
/// As a record's `kind` has them, in the enumeration's order.
inline constexpr const char* kRouteNames[] = {"softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"};

/// Experts that a row may be routed to; a kernel keeps what it computes of them on its stack.
constexpr size_t kMaxExperts = 4096;

/// Which k of n experts a row takes, and with which weights. 1 <= k <= n <= kMaxExperts; groups divides n,
/// 1 <= groups_used <= groups and k <= groups_used * (n / groups): whoever makes one checks it.
struct Route {
  RouteKind kind;
  size_t experts, k;
  size_t groups, groups_used;  // equal parts of the experts, of which only some are considered; 1, 1: all
  bool norm;                   // weights are divided by their sum, or by 2^-14 where this is larger
  float scale;                 // weights are multiplied by it; 1 changes nothing
  const float* bias;           // (experts), added for the choice only; null: none
};

struct RouteTable {
  /// One row of logits: k different ids, each below n, in decreasing order of what they were chosen by, the
  /// lower first among equals, and their weights. A NaN counts as less than everything else, in the choice.
  void (*row)(const Route& route, const float* logits, float* ids, float* weights);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(RouteTable, route);
