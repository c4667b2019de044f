// kernel_digest --sets: the kernel sets that this CPU runs.
// kernel_digest [--all]: a line for each kernel set this CPU runs (or all that were compiled) and each thing
// they compute, with a checksum of the results over the same random and hostile inputs. NaN counts as one
// value.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../dispatch.hpp"
#include "../formats/codec.hpp"
#include "../matmul/huge_alloc.hpp"
#include "../matmul/matmul.hpp"
#include "table.hpp"

LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul);
LLAMAY_DECLARE_TABLES(llamay::SimdTable, simd);

namespace {

using namespace llamay;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((z ^ z >> 31) >> 32);
  }
  size_t below(size_t n) { return next() % n; }
  /// Of many magnitudes; one in `odd` is hostile.
  float value(size_t odd) {
    static constexpr uint32_t hostile[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,
                                           0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                           0x7fc00000, 0x3f800000, 0x42b20000, 0xc2d00000, 0x3f0ccccd};
    uint32_t bits = hostile[below(sizeof hostile / sizeof *hostile)];
    if (odd == 0 || below(odd) != 0)
      bits = (next() & 0x807fffffu) | static_cast<uint32_t>(115 + below(20)) << 23;
    float v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }

 private:
  uint64_t state_;
};

class Digest {
 public:
  void add(const float* values, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, sizeof bits);
      if (values[i] != values[i]) bits = 0x7fc00000;
      hash_ = (hash_ ^ bits) * 0x100000001b3u;
    }
  }
  unsigned long long value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

/// Bytes of a weight: any integers; every f16 scale that random bytes could make is finite or not as it
/// comes, unless values are quantized.
std::vector<uint8_t> weight_bytes(Format format, size_t count, bool any_bytes, Random& random) {
  const FormatTraits& t = traits(format);
  std::vector<uint8_t> bytes(count / t.block * t.block_bytes);
  if (any_bytes) {
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.next());
  } else {
    std::vector<float> values(count);
    for (float& v : values) v = random.value(0);
    quantize(format, values.data(), count, bytes.data());
  }
  return bytes;
}

unsigned long long products(const MatmulTable& kernels, Format format) {
  Random random(static_cast<uint32_t>(format) + 1);
  Digest digest;
  const FormatTraits& t = traits(format);
  for (int round = 0; round < 10; ++round) {
    const size_t cols = t.block == 1 ? 1 + random.below(300) : t.block * (1 + random.below(1024 / t.block));
    const size_t rows = 1 + random.below(70), n = 1 + random.below(20);
    const auto bytes = weight_bytes(format, rows * cols, round % 2 == 0, random);
    const PackedMatrix m = pack(format, rows, cols, bytes.data());
    std::vector<float> x(n * cols), bias(rows), residual(n * rows), out(n * rows), wide(rows * cols);
    for (float& v : x) v = random.value(round % 3 == 0 ? 200 : 0);
    for (float& v : bias) v = random.value(20);
    for (float& v : residual) v = random.value(20);
    auto* activations = static_cast<uint8_t*>(huge_alloc(n * activation_bytes(t.activation, cols) + 64));
    kernels.quantize_rows(t.activation, x.data(), cols, n, cols, activations);
    kernels.matmul(m, activations, n, 0, m.groups, out.data(), rows, round % 4 ? bias.data() : nullptr,
                   round % 3 ? residual.data() : nullptr, rows);
    digest.add(out.data(), out.size());
    std::vector<int32_t> numbers(rows);
    for (size_t r = 0; r < rows; ++r) numbers[r] = static_cast<int32_t>(r);
    kernels.dequantize_rows(m, numbers.data(), rows, wide.data());
    digest.add(wide.data(), wide.size());
    huge_free(activations);
  }
  return digest.value();
}

unsigned long long lanes(const SimdTable& simd, int function) {
  Random random(1000 + static_cast<uint32_t>(function));
  Digest digest;
  constexpr size_t n = 4096;
  std::vector<float> a(16 * n), b(16 * n), c(16 * n), out(16 * n);
  for (float& v : a) v = random.value(10);
  for (float& v : b) v = random.value(10);
  for (float& v : c) v = random.value(10);
  simd.run(function, a.data(), b.data(), c.data(), n, out.data());
  digest.add(out.data(), out.size());
  return digest.value();
}

}  // namespace

int main(int argc, char** argv) {
  static constexpr Tables<MatmulTable> matmul = LLAMAY_TABLES(matmul);
  static constexpr Tables<SimdTable> simd = LLAMAY_TABLES(simd);
  const bool all = argc > 1 && std::strcmp(argv[1], "--all") == 0;
  std::vector<Isa> sets = runnable_isas();
  if (all) {
    sets.clear();
    for (size_t i = 0; i < kIsaCount; ++i) sets.push_back(static_cast<Isa>(i));
  }
  if (argc > 1 && std::strcmp(argv[1], "--sets") == 0) {
    for (const Isa isa : sets) std::printf("%s\n", name(isa));
    return 0;
  }
  for (const Isa isa : sets) {
    for (const FormatTraits& t : kFormats)
      std::printf("%s %s %016llx\n", name(isa), t.name, products(matmul[isa], t.format));
    for (int f = 0; f < SimdTable::kFunctions; ++f)
      std::printf("%s simd%d %016llx\n", name(isa), f, lanes(simd[isa], f));
  }
}
