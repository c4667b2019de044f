#include "tokenizer/characters.hpp"

#include "unicode/utf8.hpp"

namespace llamay::tokenizer {

Characters::Characters(std::string_view bytes) : bytes_(bytes) {
  code_.reserve(bytes.size());
  class_.reserve(bytes.size());
  start_.reserve(bytes.size() + 1);
  for (size_t at = 0; at < bytes.size();) {
    const auto d = unicode::decode(bytes, at);
    code_.push_back(d.code_point);
    class_.push_back(unicode::class_of(d.code_point));
    start_.push_back(static_cast<uint32_t>(at));
    at += d.length;
  }
  start_.push_back(static_cast<uint32_t>(bytes.size()));
}

}  // namespace llamay::tokenizer
