#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace llamay {

/// A plan that cannot be made; the message names the record.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Attr = std::variant<int64_t, double, std::string, std::vector<double>>;

/// One operation as an architecture recorded it (docs/plan.md).
struct Record {
  std::string op;
  std::vector<int64_t> outs, args, weights;
  std::map<std::string, Attr> attrs;
};

}  // namespace llamay
