#include "matmul/weights/stored.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "matmul/weights/packed.hpp"

namespace llamay {
namespace {

/// Bytes that are read and summed at a time, so that a piece is summed while it is still in the cache.
constexpr size_t kPiece = size_t{1} << 19;
constexpr size_t kLanes = 8;
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
  return x ^ x >> 32;
}

/// Eight sums side by side: each step is a bijection of a lane, so that a difference in one word never gets
/// lost, and eight multiplications run in parallel.
uint64_t sum_piece(const uint8_t* data, size_t bytes, uint64_t seed) {
  uint64_t lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(seed + i * kOdd);
  for (; bytes >= 8 * kLanes; data += 8 * kLanes, bytes -= 8 * kLanes)
    for (size_t i = 0; i < kLanes; ++i) {
      uint64_t word;
      memcpy(&word, data + 8 * i, 8);
      lanes[i] = (lanes[i] ^ word) * kOdd;
      lanes[i] ^= lanes[i] >> 29;
    }
  uint64_t rest[kLanes] = {};  // zero for groups, which are padded to 64 bytes
  memcpy(rest, data, bytes);
  uint64_t sum = mix(seed ^ bytes);
  for (size_t i = 0; i < kLanes; ++i) sum = mix(sum ^ mix(lanes[i] ^ rest[i] * kOdd)) + kOdd;
  return sum;
}

bool read_all(int file, uint8_t* out, size_t bytes, uint64_t offset, ReadError& error) {
  while (bytes) {
    const ssize_t got = pread(file, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      error = got < 0 ? ReadError::io : ReadError::ended;
      return false;
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

struct Job {
  uint8_t* data;
  size_t bytes;
  std::vector<uint64_t> sums;
  bool reads = false;
  int file = -1;
  uint64_t offset = 0;
  std::atomic<ReadError> error{ReadError::none};

  void piece(size_t index) {
    const size_t begin = index * kPiece, count = std::min(kPiece, bytes - begin);
    ReadError what = ReadError::none;
    if (reads && (error != ReadError::none || !read_all(file, data + begin, count, offset + begin, what))) {
      if (what != ReadError::none) error = what;
      return;
    }
    sums[index] = sum_piece(data + begin, count, index);
  }

  uint64_t run(ParallelFor parallel) {
    sums.resize((bytes + kPiece - 1) / kPiece);
    parallel.run(
        parallel.self, sums.size(), [](void* self, size_t index) { static_cast<Job*>(self)->piece(index); },
        this);
    uint64_t sum = mix(bytes);
    for (const uint64_t one : sums) sum = mix(sum ^ one) + kOdd;
    return sum;
  }
};

}  // namespace

size_t packed_bytes(Format format, size_t rows, size_t cols) {
  return (rows + 15) / 16 * group_bytes(format, cols);
}

uint64_t packed_checksum(const PackedMatrix& matrix, ParallelFor parallel) {
  Job job{matrix.data, matrix.groups * matrix.group_bytes, {}};
  return job.run(parallel);
}

ReadError read_packed(PackedMatrix& out, Format format, size_t rows, size_t cols, int file, uint64_t offset,
                      uint64_t checksum, ParallelFor parallel) {
  out = PackedMatrix(format, rows, cols);
  Job job{out.data, out.groups * out.group_bytes, {}, true, file, offset};
  const uint64_t sum = job.run(parallel);
  if (job.error != ReadError::none) return job.error;
  return sum == checksum ? ReadError::none : ReadError::checksum;
}

}  // namespace llamay
