// kernel_digest --sets: the kernel sets that this CPU runs.
// kernel_digest [--all]: a line for each kernel set that this CPU runs (or that was compiled) and each
// computation, with a checksum of its results over the same random and hostile inputs. NaN counts as one
// value.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "dispatch.hpp"
#include "formats/codec.hpp"
#include "matmul/matmul.hpp"
#include "matmul/weights/huge_alloc.hpp"
#include "random.hpp"
#include "rows.hpp"
#include "table.hpp"

LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul);
LLAMAY_DECLARE_TABLES(llamay::SimdTable, simd);

namespace {

using namespace llamay;

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
    for (const RowsDigest& d : kRowsDigests)
      std::printf("%s %s %016llx\n", name(isa), d.name, d.compute(isa));
  }
}
