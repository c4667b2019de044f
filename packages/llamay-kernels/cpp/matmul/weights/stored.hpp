#pragma once

#include <cstddef>
#include <cstdint>

#include "matmul/matmul.hpp"

namespace llamay {

/// The version of the layout of packed bytes (packed.hpp, codebook.hpp), which all kernel sets share. A store
/// of packed bytes must keep this number with them, and a change of a layout or code must raise it.
constexpr int kPackedLayout = 2;

/// Bytes of a matrix when it is packed.
size_t packed_bytes(Format format, size_t rows, size_t cols);

/// A checksum of packed bytes: a difference in one word always changes it, any other difference except with
/// probability 2^-64. It is no protection against deliberate changes.
uint64_t packed_checksum(const PackedMatrix& matrix, ParallelFor parallel = serial_for);

enum class ReadError { none, io, ended, checksum };

/// Fills a matrix with packed_bytes() bytes of a file from an offset on, in parallel. A file that changes
/// meanwhile gives a wrong checksum, like any other difference. Throws std::bad_alloc.
ReadError read_packed(PackedMatrix& out, Format format, size_t rows, size_t cols, int file, uint64_t offset,
                      uint64_t checksum, ParallelFor parallel = serial_for);

}  // namespace llamay
