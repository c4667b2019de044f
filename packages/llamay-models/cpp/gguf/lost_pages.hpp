#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace llamay::gguf {

/// Reads of a mapped file survive the loss of its pages: when another program cuts the file short, or the
/// disk fails, the system sends SIGBUS to whoever reads such a page, which would end the process.
///
/// While a range is guarded, a handler of SIGBUS puts a page of zeros in the place of the lost one and notes
/// the loss. Whoever used the bytes has to ask `lost()` before the result counts. Signals for other
/// addresses go on to the handler that was there before.
class LostPages {
 public:
  /// Guard the pages of a mapping, which begins at a page. Beyond 4,096 ranges at a time no more are guarded.
  explicit LostPages(std::span<const uint8_t> range);
  ~LostPages();
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;

  /// Whether a page of the range was lost.
  bool lost() const;

 private:
  size_t slot_;
};

}  // namespace llamay::gguf
