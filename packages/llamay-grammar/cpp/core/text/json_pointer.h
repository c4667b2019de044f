// JSON pointers (RFC 6901).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llamay::grammar {

std::string escape_pointer(std::string_view key);

// The reference tokens of a pointer that is not empty, unescaped.
std::vector<std::string> pointer_tokens(std::string_view pointer);

// A pointer whose text is built only on demand, because most pointers are for errors that do not happen. The
// parents and the keys must outlive the pointer.
struct Path {
  const Path* parent;
  std::string_view key;  // without a parent: a whole pointer
  size_t index = SIZE_MAX;

  std::string text() const;
};

}  // namespace llamay::grammar
