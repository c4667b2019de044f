// The refusal of a source, with its place.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace llamay::grammar {

// A grammar that cannot be compiled. `pointer` is the JSON pointer of the keyword (or the position in a regex
// or grammar text), `keyword` the keyword itself.
class CompileError : public std::runtime_error {
 public:
  CompileError(std::string keyword_, std::string pointer_, const std::string& message)
      : std::runtime_error(message), keyword(std::move(keyword_)), pointer(std::move(pointer_)) {}
  std::string keyword;
  std::string pointer;
};

}  // namespace llamay::grammar
