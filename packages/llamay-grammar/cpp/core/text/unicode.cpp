// Checking, writing and reading UTF-8.
#include "text/unicode.h"

#include "support/compile_error.h"

namespace llamay::grammar {

void require_utf8(std::string_view t) {
  for (size_t i = 0; i < t.size();) {
    const uint8_t b = static_cast<uint8_t>(t[i]);
    size_t n = b < 0x80 ? 1 : b < 0xC2 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 0;
    uint32_t cp = n < 2 ? b : b & (0x7Fu >> n);
    bool ok = n > 0 && i + n <= t.size();
    for (size_t k = 1; ok && k < n; ++k) {
      const uint8_t c = static_cast<uint8_t>(t[i + k]);
      ok = (c & 0xC0) == 0x80;
      cp = (cp << 6) | (c & 63u);
    }
    if (ok && n == 3) ok = cp >= 0x800 && !is_surrogate(cp);
    if (ok && n == 4) ok = cp >= 0x10000 && cp <= kMaxCodePoint;
    if (!ok) throw CompileError("encoding", "", "the source is not UTF-8 at byte " + std::to_string(i));
    i += n;
  }
}

void append_utf8(std::string& out, uint32_t cp) {
  if (cp < 0x80) {
    out.push_back(static_cast<char>(cp));
  } else if (cp < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (cp >> 6)));
    out.push_back(static_cast<char>(0x80 | (cp & 63)));
  } else if (cp < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (cp >> 12)));
    out.push_back(static_cast<char>(0x80 | ((cp >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (cp & 63)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (cp >> 18)));
    out.push_back(static_cast<char>(0x80 | ((cp >> 12) & 63)));
    out.push_back(static_cast<char>(0x80 | ((cp >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (cp & 63)));
  }
}

std::vector<uint32_t> code_points(std::string_view utf8) {
  std::vector<uint32_t> out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) out.push_back(next_code_point(utf8, i));
  return out;
}

}  // namespace llamay::grammar
