#include <utility>

#include "formats/visit.hpp"
#include "matmul/matmul.hpp"
#include "matmul/weights/huge_alloc.hpp"
#include "matmul/weights/packed.hpp"

namespace llamay {
namespace {

using Words = uint32_t __attribute__((vector_size(16)));

/// Sixteen bytes of each of sixteen rows, as four vectors: vectors[v][4 * row + i] = from[row * row_bytes + 4
/// * v + i].
void interleave(const uint8_t* from, size_t row_bytes, uint8_t (*vectors)[64]) {
  for (int row = 0; row < 16; row += 4) {
    Words a, b, c, d;
    memcpy(&a, from + row * row_bytes, 16);
    memcpy(&b, from + (row + 1) * row_bytes, 16);
    memcpy(&c, from + (row + 2) * row_bytes, 16);
    memcpy(&d, from + (row + 3) * row_bytes, 16);
    const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Words out[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int v = 0; v < 4; ++v) memcpy(vectors[v] + 4 * row, &out[v], 16);
  }
}

// Sixteen bytes at once, explicitly: the compiler does not see that source and destination do not overlap.
using Sixteen = uint64_t __attribute__((vector_size(16)));

constexpr uint64_t bytes_of(uint64_t byte) { return byte * 0x0101010101010101; }

Sixteen load(const uint8_t* at) {
  Sixteen bytes;
  memcpy(&bytes, at, 16);
  return bytes;
}

void store(uint8_t* at, Sixteen bytes) { memcpy(at, &bytes, 16); }

/// Packs bits `from` to `from + count - 1` of four vectors of integers side by side, those of the first
/// vector lowest.
template <int from, int count>
Sixteen beside(const uint8_t (*four)[64], int i) {
  constexpr uint64_t mask = bytes_of((1 << count) - 1);
  return (load(four[0] + i) >> from & mask) | (load(four[1] + i) >> from & mask) << count |
         (load(four[2] + i) >> from & mask) << 2 * count | (load(four[3] + i) >> from & mask) << 3 * count;
}

/// Packs one bit of each of 16 k into `high`: into the upper halves of its bytes for the second sixteen k
/// of 32.
template <int from>
void pack_single_bits(const uint8_t (*four)[64], bool second, uint8_t* high) {
  for (int i = 0; i < 64; i += 16)
    store(high + i, second ? load(high + i) | beside<from, 1>(four, i) << 4 : beside<from, 1>(four, i));
}

/// Packs 16 integers of each row: the first or the second half of 32, whose vectors start at `out`.
template <int bits>
void pack_half(const uint8_t (*four)[64], bool second, uint8_t* out) {
  if constexpr (bits == 8) {
    for (int i = 0; i < 256; i += 16) store(out + 256 * second + i, load(four[0] + i) ^ bytes_of(0x80));
    return;
  }
  if constexpr (bits == 3) pack_single_bits<2>(four, second, out);
  if constexpr (bits == 5) pack_single_bits<4>(four, second, out);
  if constexpr (bits == 6)
    for (int i = 0; i < 64; i += 16) store(out + 192 * second + i, beside<4, 2>(four, i));
  out += low_bits(bits, second);
  if constexpr (bits < 4) {
    for (int i = 0; i < 64; i += 16) store(out + i, beside<0, 2>(four, i));
  } else {
    const auto nibbles = [&](int v, int i) { return load(four[v] + i) & bytes_of(15); };
    for (int v = 0; v < 2; ++v)
      for (int i = 0; i < 64; i += 16)
        store(out + 64 * v + i, nibbles(2 * v, i) | nibbles(2 * v + 1, i) << 4);
  }
}

template <Format format>
void pack_vectors(const uint8_t (*q)[256], uint8_t* out) {
  constexpr int n = static_cast<int>(traits(format).block), bits = static_cast<int>(code_bits(format));
  uint8_t four[4][64];
  for (int k = 0; k < n; k += 16) {
    interleave(q[0] + k, sizeof q[0], four);
    pack_half<bits>(four, k % 32, out + k / 32 * vector_bytes(bits));
  }
}

template <class Block>
void pack_scales(const Block& b, int row, ScaleOnly& out) {
  out.d[row] = scale_bits(b);
}
template <class Block>
void pack_scales(const Block& b, int row, ScaleAndMin& out) {
  out.d[row] = load_u16(b.d);
  out.m[row] = load_u16(b.m);
}
template <class Block>
void pack_scales(const Block& b, int row, TwoLevels& out) {
  uint8_t scale[8], min[8];
  spread_scales(b.scales, scale, min);
  for (int s = 0; s < 8; ++s) {
    out.scale[s][row] = scale[s];
    out.min[s / 2][row][s % 2] = min[s];
  }
  out.d[row] = load_u16(b.d);
  out.dmin[row] = load_u16(b.dmin);
}
void pack_scales(const BlockQ6_K& b, int row, SignedScales& out) {
  for (int s = 0; s < 16; ++s) out.scale[s][row] = b.scales[s];
  out.d[row] = load_u16(b.d);
}
void pack_scales(const BlockQ2_K& b, int row, NibbleLevels& out) {
  for (int s = 0; s < 16; ++s) out.scale_min[s / 2][row][s % 2] = b.scales[s];
  out.d[row] = load_u16(b.d);
  out.dmin[row] = load_u16(b.dmin);
}
template <class Block>
void pack_scales(const Block& b, int row, SixteenthScales& out) {
  int8_t scale[16];
  spread_signed_scales(b, scale);
  for (int s = 0; s < 16; ++s) out.scale[s / 2][row][s % 2] = scale[s];
  out.d[row] = scale_bits(b);
}
template <class Block>
void pack_scales(const Block& b, int row, EighthScales& out) {
  int8_t scale[16];
  spread_signed_scales(b, scale);
  for (int s = 0; s < 8; ++s) out.scale[s / 2][row][s % 2] = scale[2 * s];
  out.d[row] = scale_bits(b);
}

struct Job {
  const PackedMatrix* matrix;
  const uint8_t* source;
  void (*done)(const void* rows, size_t bytes);  // or null
};

template <Format format, class Block>
void pack_group(const Job& job, size_t group) {
  using Place = Layout<format>;
  constexpr size_t n = traits(format).block;
  static_assert(alignof(Block) == 1);
  const PackedMatrix& m = *job.matrix;
  const size_t blocks = m.cols / n;
  uint8_t* out = m.data + group * m.group_bytes;
  const size_t rows = m.rows - 16 * group < 16 ? m.rows - 16 * group : 16;
  alignas(64) uint8_t q[16][256] = {};  // rows that do not exist stay zero
  for (size_t b = 0; b < blocks; ++b) {
    typename Place::Scales scales = {};
    for (size_t row = 0; row < rows; ++row) {
      // Read in place: a load from a copy that spans two of the copy's stores would have to wait for them.
      const Block& block =
          *reinterpret_cast<const Block*>(job.source + ((16 * group + row) * blocks + b) * sizeof(Block));
      spread(block, q[row]);
      pack_scales(block, static_cast<int>(row), scales);
    }
    pack_vectors<format>(q, out + Place::vectors(b, blocks));
    memcpy(out + Place::scales(b), &scales, sizeof scales);
  }
}

/// F32: four bytes are one k. Two-byte formats: four bytes are two k, which are separated.
template <class Value>
void pack_values(const Job& job, size_t group) {
  const PackedMatrix& m = *job.matrix;
  constexpr size_t at_once = 16 / sizeof(Value);
  Value* out = reinterpret_cast<Value*>(m.data + group * m.group_bytes);
  const size_t rows = m.rows - 16 * group < 16 ? m.rows - 16 * group : 16, row_bytes = m.cols * sizeof(Value);
  const uint8_t* from = job.source + 16 * group * row_bytes;
  size_t k = 0;
  if (rows == 16)
    for (; k + at_once <= m.cols; k += at_once) {
      uint8_t four[4][64];
      interleave(from + k * sizeof(Value), row_bytes, four);
      if constexpr (sizeof(Value) == 4) {
        memcpy(out + 16 * k, four, sizeof four);
      } else {
        for (int v = 0; v < 4; ++v) {
          uint32_t words[16];
          memcpy(words, four[v], 64);
          Value* two = out + 16 * (k + 2 * v);
          for (int row = 0; row < 16; ++row) two[row] = static_cast<Value>(words[row]);
          for (int row = 0; row < 16; ++row) two[16 + row] = static_cast<Value>(words[row] >> 16);
        }
      }
    }
  for (; k < m.cols; ++k)
    for (size_t row = 0; row < rows; ++row)
      memcpy(out + 16 * k + row, from + row * row_bytes + k * sizeof(Value), sizeof(Value));
}

constexpr size_t kForgotten = size_t{8} << 20;

template <void (*pack_one)(const Job&, size_t)>
void run(const Job& job, ParallelFor parallel) {
  // One call for each group would be too fine for matrices of short rows.
  constexpr size_t chunk = 8;
  struct Chunks {
    const Job* job;
  } chunks{&job};
  parallel.run(
      parallel.self, (job.matrix->groups + chunk - 1) / chunk,
      [](void* context, size_t index) {
        const Job& all = *static_cast<Chunks*>(context)->job;
        const PackedMatrix& m = *all.matrix;
        for (size_t g = index * chunk; g < (index + 1) * chunk && g < m.groups; ++g) pack_one(all, g);
        if (!all.done) return;
        // Not after every chunk, since giving up pages interrupts all threads. Pages of the range that
        // another thread still reads are fetched once more.
        const FormatTraits& t = traits(m.format);
        const size_t chunk_bytes = 16 * chunk * (m.cols / t.block * t.block_bytes),
                     stretch = chunk_bytes < kForgotten ? kForgotten / chunk_bytes : 1;
        const size_t end = (index + 1) * chunk * 16;
        if ((index + 1) % stretch == 0 && end <= m.rows)
          all.done(all.source + (index + 1 - stretch) * chunk_bytes, stretch * chunk_bytes);
      },
      &chunks);
}

void run_serial(void*, size_t count, void (*body)(void*, size_t), void* context) {
  for (size_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace

const ParallelFor serial_for{nullptr, run_serial};

PackedMatrix::PackedMatrix() = default;
PackedMatrix::PackedMatrix(Format format_, size_t rows_, size_t cols_)
    : format(format_),
      rows(rows_),
      cols(cols_),
      groups((rows + 15) / 16),
      group_bytes(llamay::group_bytes(format, cols)),
      data(static_cast<uint8_t*>(huge_alloc(groups * group_bytes))) {}
PackedMatrix::PackedMatrix(PackedMatrix&& other) noexcept { *this = std::move(other); }
PackedMatrix& PackedMatrix::operator=(PackedMatrix&& other) noexcept {
  format = other.format;
  rows = other.rows;
  cols = other.cols;
  groups = other.groups;
  group_bytes = other.group_bytes;
  std::swap(data, other.data);
  return *this;
}
PackedMatrix::~PackedMatrix() { huge_free(data); }

PackedMatrix pack(Format format, size_t rows, size_t cols, const void* source, ParallelFor parallel,
                  void (*done)(const void* rows, size_t bytes)) {
  PackedMatrix m(format, rows, cols);
  const Job job{&m, static_cast<const uint8_t*>(source), done};
  switch (format) {
    case Format::F32:
      run<pack_values<uint32_t>>(job, parallel);
      break;
    case Format::F16:
    case Format::BF16:
      run<pack_values<uint16_t>>(job, parallel);
      break;
    default:
      visit_blocks(format,
                   [&]<Format f, class Block>(Tag<f, Block>) { run<pack_group<f, Block>>(job, parallel); });
  }
  return m;
}

size_t activation_bytes(ActivationKind kind, size_t cols) {
  switch (kind) {
    case ActivationKind::q8_32:
      return round_up(cols / 32 * sizeof(Activation32), 64);
    case ActivationKind::q8_256:
      return round_up(cols / 256 * sizeof(Activation256), 64);
    default:
      return round_up(cols * sizeof(float), 64);
  }
}

}  // namespace llamay
