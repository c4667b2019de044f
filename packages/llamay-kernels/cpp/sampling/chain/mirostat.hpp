#pragma once

#include <cstddef>

#include "sampling/chain/candidates.hpp"

namespace llamay {

/// Steers the surprise of the chosen tokens towards `tau` bits. Basu et al. 2020,
/// https://arxiv.org/abs/2007.14966. `mu`, the surprise limit learned so far, is the only state that a
/// sampler carries from token to token; it begins at 2 tau.
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
