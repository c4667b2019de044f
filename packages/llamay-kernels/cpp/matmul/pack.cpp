#include <utility>

#include "../formats/blocks.hpp"
#include "huge_alloc.hpp"
#include "matmul.hpp"
#include "packed.hpp"

namespace llamay {
namespace {

/// Four bytes of each of sixteen rows: vector[4 * row + i] = q[row][k + i].
void interleave(const uint8_t (*q)[256], int k, uint8_t* vector) {
  for (int row = 0; row < 16; ++row) memcpy(vector + 4 * row, q[row] + k, 4);
}

void pack_nibbles(const uint8_t (*q)[256], int n, uint8_t* out) {
  uint8_t high[64];
  for (int j = 0; j < n / 8; ++j, out += 64) {
    interleave(q, 8 * j, out);
    interleave(q, 8 * j + 4, high);
    for (int i = 0; i < 64; ++i) out[i] = static_cast<uint8_t>((out[i] & 15) | high[i] << 4);
  }
}

/// The bits above the nibble, `width` a value, 8 / width values of four k a
/// byte.
void pack_high_bits(const uint8_t (*q)[256], int n, int width, uint8_t* out) {
  uint8_t part[64];
  const int per_vector = 32 / width;
  for (int v = 0; v < n / per_vector; ++v, out += 64) {
    memset(out, 0, 64);
    for (int f = 0; f < 8 / width; ++f) {
      interleave(q, v * per_vector + 4 * f, part);
      for (int i = 0; i < 64; ++i) out[i] = static_cast<uint8_t>(out[i] | (part[i] >> 4) << (f * width));
    }
  }
}

void pack_vectors(const BlockQ4_0*, const uint8_t (*q)[256], uint8_t* out) { pack_nibbles(q, 32, out); }
void pack_vectors(const BlockQ4_1*, const uint8_t (*q)[256], uint8_t* out) { pack_nibbles(q, 32, out); }
void pack_vectors(const BlockQ5_0*, const uint8_t (*q)[256], uint8_t* out) {
  pack_nibbles(q, 32, out);
  pack_high_bits(q, 32, 1, out + 256);
}
void pack_vectors(const BlockQ5_1*, const uint8_t (*q)[256], uint8_t* out) {
  pack_nibbles(q, 32, out);
  pack_high_bits(q, 32, 1, out + 256);
}
void pack_vectors(const BlockQ8_0*, const uint8_t (*q)[256], uint8_t* out) {
  for (int j = 0; j < 8; ++j) interleave(q, 4 * j, out + 64 * j);
  for (int i = 0; i < 512; ++i) out[i] ^= 0x80;
}
void pack_vectors(const BlockQ4_K*, const uint8_t (*q)[256], uint8_t* out) { pack_nibbles(q, 256, out); }
void pack_vectors(const BlockQ5_K*, const uint8_t (*q)[256], uint8_t* out) {
  pack_nibbles(q, 256, out);
  pack_high_bits(q, 256, 1, out + 2048);
}
void pack_vectors(const BlockQ6_K*, const uint8_t (*q)[256], uint8_t* out) {
  pack_nibbles(q, 256, out);
  pack_high_bits(q, 256, 2, out + 2048);
}

void pack_scales(const BlockQ4_0& b, int row, ScaleOnly& out) { out.d[row] = load_u16(b.d); }
void pack_scales(const BlockQ5_0& b, int row, ScaleOnly& out) { out.d[row] = load_u16(b.d); }
void pack_scales(const BlockQ8_0& b, int row, ScaleOnly& out) { out.d[row] = load_u16(b.d); }
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

struct Job {
  const PackedMatrix* matrix;
  const uint8_t* source;
};

template <class Block, class Scales, Format format>
void pack_group(const Job& job, size_t group) {
  constexpr size_t n = traits(format).block, vectors = vector_bytes(format);
  const PackedMatrix& m = *job.matrix;
  const size_t blocks = m.cols / n;
  uint8_t* out = m.data + group * m.group_bytes;
  uint8_t* scales_out = out + blocks * vectors;
  const size_t rows = m.rows - 16 * group < 16 ? m.rows - 16 * group : 16;
  alignas(64) uint8_t q[16][256] = {};  // rows that do not exist stay zero
  for (size_t b = 0; b < blocks; ++b) {
    Scales scales = {};
    for (size_t row = 0; row < rows; ++row) {
      Block block;
      memcpy(&block, job.source + ((16 * group + row) * blocks + b) * sizeof block, sizeof block);
      spread(block, q[row]);
      pack_scales(block, static_cast<int>(row), scales);
    }
    pack_vectors(static_cast<const Block*>(nullptr), q, out + b * vectors);
    memcpy(scales_out + b * sizeof scales, &scales, sizeof scales);
  }
}

template <class Value>
void pack_values(const Job& job, size_t group) {
  const PackedMatrix& m = *job.matrix;
  uint8_t* out = m.data + group * m.group_bytes;
  const size_t rows = m.rows - 16 * group < 16 ? m.rows - 16 * group : 16;
  for (size_t row = 0; row < rows; ++row) {
    const uint8_t* from = job.source + (16 * group + row) * m.cols * sizeof(Value);
    for (size_t k = 0; k < m.cols; ++k)
      memcpy(out + (16 * k + row) * sizeof(Value), from + k * sizeof(Value), sizeof(Value));
  }
}

template <void (*pack_one)(const Job&, size_t)>
void run(const Job& job, ParallelFor parallel) {
  // A call a group is too fine for matrices of short rows.
  constexpr size_t chunk = 8;
  struct Chunks {
    const Job* job;
  } chunks{&job};
  parallel.run(
      parallel.self, (job.matrix->groups + chunk - 1) / chunk,
      [](void* context, size_t index) {
        const Job& all = *static_cast<Chunks*>(context)->job;
        for (size_t g = index * chunk; g < (index + 1) * chunk && g < all.matrix->groups; ++g)
          pack_one(all, g);
      },
      &chunks);
}

void run_serial(void*, size_t count, void (*body)(void*, size_t), void* context) {
  for (size_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace

const ParallelFor serial_for{nullptr, run_serial};

PackedMatrix::PackedMatrix() = default;
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

PackedMatrix pack(Format format, size_t rows, size_t cols, const void* source, ParallelFor parallel) {
  PackedMatrix m;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  m.groups = (rows + 15) / 16;
  m.group_bytes = group_bytes(format, cols);
  m.data = static_cast<uint8_t*>(huge_alloc(m.groups * m.group_bytes));
  const Job job{&m, static_cast<const uint8_t*>(source)};
  switch (format) {
    case Format::F32:
      run<pack_values<uint32_t>>(job, parallel);
      break;
    case Format::F16:
    case Format::BF16:
      run<pack_values<uint16_t>>(job, parallel);
      break;
    case Format::Q4_0:
      run<pack_group<BlockQ4_0, ScaleOnly, Format::Q4_0>>(job, parallel);
      break;
    case Format::Q4_1:
      run<pack_group<BlockQ4_1, ScaleAndMin, Format::Q4_1>>(job, parallel);
      break;
    case Format::Q5_0:
      run<pack_group<BlockQ5_0, ScaleOnly, Format::Q5_0>>(job, parallel);
      break;
    case Format::Q5_1:
      run<pack_group<BlockQ5_1, ScaleAndMin, Format::Q5_1>>(job, parallel);
      break;
    case Format::Q8_0:
      run<pack_group<BlockQ8_0, ScaleOnly, Format::Q8_0>>(job, parallel);
      break;
    case Format::Q4_K:
      run<pack_group<BlockQ4_K, TwoLevels, Format::Q4_K>>(job, parallel);
      break;
    case Format::Q5_K:
      run<pack_group<BlockQ5_K, TwoLevels, Format::Q5_K>>(job, parallel);
      break;
    case Format::Q6_K:
      run<pack_group<BlockQ6_K, SignedScales, Format::Q6_K>>(job, parallel);
      break;
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
