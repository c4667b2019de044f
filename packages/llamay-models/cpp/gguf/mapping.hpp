#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace llamay::gguf {

/// Read-only bytes of one file. Views into it stay valid for as long as any shared_ptr to it lives.
class Mapping {
 public:
  virtual ~Mapping() = default;
  std::span<const uint8_t> bytes() const { return bytes_; }
  /// Whether bytes that were read were zeros in the place of a page that the file no longer has, or that the
  /// disk could not read.
  virtual bool lost() const { return false; }
  /// To be called before the bytes are read: sees to it that the loss of a page is survived, whatever
  /// handlers of signals were installed since.
  virtual void guard() const {}

  /// Map a whole regular file. The descriptor may be closed afterwards.
  /// Throws FormatError when the file is empty or not a regular file, std::system_error when the system
  /// refuses.
  static std::shared_ptr<const Mapping> of_file(int fd);

  /// Own a copy of these bytes (tests and fuzzing).
  static std::shared_ptr<const Mapping> of_bytes(std::span<const uint8_t> bytes);

 protected:
  std::span<const uint8_t> bytes_;
};

}  // namespace llamay::gguf
