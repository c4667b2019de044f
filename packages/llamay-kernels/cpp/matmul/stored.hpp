#pragma once

#include <cstddef>
#include <cstdint>

#include "matmul.hpp"

namespace llamay {

/// The version of what a packed matrix's bytes mean (packed.hpp, codebook.hpp). All kernel sets read the
/// same; whoever keeps packed bytes keeps this beside them, and whoever changes a layout or a code raises it.
constexpr int kPackedLayout = 2;

/// Bytes of a matrix when it is packed.
size_t packed_bytes(Format format, size_t rows, size_t cols);

/// Tells packed bytes from any that differ in one place, and from others but for a chance of 2^-64. No
/// protection from somebody who means it.
uint64_t packed_checksum(const PackedMatrix& matrix, ParallelFor parallel = serial_for);

enum class ReadError { none, io, ended, checksum };

/// Fills a matrix with what packed_bytes() of a file hold from an offset on, in parallel. A file that changes
/// meanwhile is a wrong checksum, like any other difference. Throws std::bad_alloc.
ReadError read_packed(PackedMatrix& out, Format format, size_t rows, size_t cols, int file, uint64_t offset,
                      uint64_t checksum, ParallelFor parallel = serial_for);

}  // namespace llamay
