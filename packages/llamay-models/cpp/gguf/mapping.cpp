#include "gguf/mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "error.hpp"
#include "gguf/lost_pages.hpp"

namespace llamay::gguf {
namespace {

class FileMapping final : public Mapping {
 public:
  explicit FileMapping(int fd) {
    struct stat status{};
    if (::fstat(fd, &status) != 0) throw std::system_error(errno, std::generic_category(), "fstat");
    if (!S_ISREG(status.st_mode))
      throw FormatError("this is not a regular file", "give the path of a .gguf file");
    if (status.st_size == 0) throw FormatError("the file is empty", "fetch the model again", 0);
    const auto size = static_cast<size_t>(status.st_size);
    // MAP_SHARED: the pages are the page cache's own, so that every process on the model shares one copy.
    void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    bytes_ = {static_cast<const uint8_t*>(base), size};
    guard_.emplace(bytes_);
  }
  ~FileMapping() override {
    guard_.reset();
    ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  }
  bool lost() const override { return guard_->lost(); }
  void guard() const override { LostPages::ensure(); }
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

 private:
  std::optional<LostPages> guard_;
};

class OwnedBytes final : public Mapping {
 public:
  explicit OwnedBytes(std::span<const uint8_t> bytes) : storage_(bytes.begin(), bytes.end()) {
    bytes_ = storage_;
  }

 private:
  std::vector<uint8_t> storage_;
};

}  // namespace

std::shared_ptr<const Mapping> Mapping::of_file(int fd) { return std::make_shared<FileMapping>(fd); }

std::shared_ptr<const Mapping> Mapping::of_bytes(std::span<const uint8_t> bytes) {
  return std::make_shared<OwnedBytes>(bytes);
}

}  // namespace llamay::gguf
