#pragma once

#include <cstdint>
#include <span>

namespace llamay::gguf {

/// Reads of a mapped file survive the loss of its pages: when another program cuts the file short, or the
/// disk fails, the system sends SIGBUS to whoever reads such a page, which would end the process.
///
/// While a range is guarded, a handler of SIGBUS puts a page of zeros in the place of the lost one and notes
/// the loss. Whoever used the bytes has to ask `lost()` before the result counts. Signals for other
/// addresses go on to the handler that was there before.
///
/// The handler is the process's. Whoever installs another one takes its place until `ensure()` is called,
/// which is why that is called before each use of a mapped file.
class LostPages {
 public:
  struct Slot;

  /// Guard the pages of a mapping, which begins at a page. Throws std::bad_alloc.
  explicit LostPages(std::span<const uint8_t> range);
  ~LostPages();
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;

  /// Whether a page of the range was lost.
  bool lost() const;

  /// Install the handler where it is not the one in place. One system call where it is.
  static void ensure();

 private:
  Slot* slot_;
};

}  // namespace llamay::gguf
