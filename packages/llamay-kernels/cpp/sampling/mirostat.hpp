#pragma once

#include <cstddef>

#include "sampling/candidates.hpp"

namespace llamay {

/// Steers the surprise of what is chosen towards `tau` bits. Basu et al. 2020,
/// https://arxiv.org/abs/2007.14966. `mu`, what it has learned so far, is the one thing that a sampler
/// carries from token to token; it begins at 2 tau.
struct Mirostat {
  int version;  // 1 or 2; 0 is none
  double tau, eta;

  /// Cuts by mu, draws with u, and returns the token and the next mu.
  struct Step {
    Candidates::Drawn drawn;
    double mu;
  };
  Step step(Candidates& candidates, double mu, double u) const;
};

}  // namespace llamay
