#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

enum class RouteKind : uint8_t { softmax, sigmoid, softmax_chosen, sqrt_softplus };
/// The values of a record's `kind`, in the enumeration's order.
inline constexpr const char* kRouteNames[] = {"softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"};

/// The most experts that a row may be routed among; a kernel keeps their scores on its stack.
constexpr size_t kMaxExperts = 4096;

/// The rule by which a row chooses k of n experts and weighs them. 1 <= k <= n <= kMaxExperts; groups divides
/// n, 1 <= groups_used <= groups and k <= groups_used * (n / groups): the creator of a Route checks this.
struct Route {
  RouteKind kind;
  size_t experts, k;
  size_t groups, groups_used;  // equal parts of the experts, of which only some are considered; 1, 1: all
  bool norm;                   // whether weights are divided by their sum, or by 2^-14 where this is larger
  float scale;                 // weights are multiplied by it; 1 changes nothing
  const float* bias;           // (experts), added for the choice only; null: none
};

struct RouteTable {
  /// Routes one row of logits: writes k different ids, each below n, in decreasing order of their scores, the
  /// lower id first among equals, and their weights. A NaN score is less than every other.
  void (*row)(const Route& route, const float* logits, float* ids, float* weights);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(RouteTable, route);
