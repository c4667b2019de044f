#pragma once
#include <cstddef>
#include <cstdint>

namespace llamay::kv {

/// CRC-64/NVME of a buffer, continuing from the CRC of the bytes before it (0 at the start).
///
/// Parameters (NVM Express NVM Command Set Specification, "64b CRC"): polynomial 0xAD93D23594C93659,
/// reflected, initial value and final XOR all ones; the CRC of "123456789" is 0xAE8B14860A799888. It detects
/// every error that is confined to 64 consecutive bits with certainty, and any other with probability 1 -
/// 2^-64. It is no protection against deliberate forgery; encryption is.
uint64_t crc64(const void* data, size_t size, uint64_t previous = 0);

/// The same without special instructions, for tests and for CPUs that lack them.
uint64_t crc64_portable(const void* data, size_t size, uint64_t previous = 0);

}  // namespace llamay::kv
