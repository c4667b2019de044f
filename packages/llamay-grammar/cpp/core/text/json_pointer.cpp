// Writing and reading JSON pointers (RFC 6901, sections 3 and 4).
#include "text/json_pointer.h"

#include <algorithm>

namespace llamay::grammar {

std::string escape_pointer(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::vector<std::string> pointer_tokens(std::string_view pointer) {
  std::vector<std::string> out;
  for (size_t i = 1; i <= pointer.size();) {
    const size_t end = std::min(pointer.find('/', i), pointer.size());
    std::string& token = out.emplace_back();
    for (; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1'))
        token += pointer[++i] == '0' ? '~' : '/';
      else
        token += pointer[i];
    }
    i = end + 1;
  }
  return out;
}

std::string Path::text() const {
  if (!parent) return std::string(key);
  std::string out = parent->text() + "/" + escape_pointer(key);
  if (index != SIZE_MAX) out += "/" + std::to_string(index);
  return out;
}

}  // namespace llamay::grammar
