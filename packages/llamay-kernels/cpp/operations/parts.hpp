#pragma once

#include "ops/rows/unary.hpp"
#include "plan/checker.hpp"

// Nodes that records of several families consist of.

namespace llamay {

/// out = a + b.
void add_node(Checker& c, int a, int b, int out);
/// out = rms_norm(x), with the weights and attributes of a record that has those of `rms_norm`.
void rms_norm_node(Checker& c, const Record& r, int x, int out);

/// The function that an attribute names.
UnaryKind unary_kind(const Checker& c, const Record& r, const char* name);

}  // namespace llamay
