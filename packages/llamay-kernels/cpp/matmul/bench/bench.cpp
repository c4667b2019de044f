// Rates of the matrix products, each beside the limit it meets: read bandwidth and the peak of the byte dot
// product, probed in the same second.
//
//   bench [--format Q4_K] [--shape 2048x8192] [--rows 1] [--threads 2] [--isa
//   avx2] [--passes 5] [--clock cpu] [--mib 192]
//
// This is no part of the package. Build it with the objects of the kernel sets: docs/kernels.md.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dispatch.hpp"
#include "formats/codec.hpp"
#include "matmul/matmul.hpp"
#include "matmul/weights/huge_alloc.hpp"

LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul);

namespace {

using namespace llamay;
using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

/// Whether to count a thread's processor time instead of wall time, for machines that other processes use
/// too.
bool processor_time = false;

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Wall time from the common start to the last finisher, or the processor time of the slowest thread.
double on_threads(unsigned n, const std::function<void(unsigned)>& body) {
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  std::vector<double> own(n);
  const auto timed = [&](unsigned t) {
    const double start = thread_seconds();
    body(t);
    own[t] = thread_seconds() - start;
  };
  for (unsigned t = 1; t < n; ++t)
    threads.emplace_back([&, t] {
      ++ready;
      while (!go) {
      }
      timed(t);
    });
  while (ready != n - 1) {
  }
  const auto start = Clock::now();
  go = true;
  timed(0);
  for (auto& t : threads) t.join();
  return processor_time ? *std::max_element(own.begin(), own.end()) : seconds(start);
}

volatile uint64_t sink;

#ifdef LLAMAY_X86
#include <immintrin.h>
__attribute__((target("avx2"))) void read_all(const uint8_t* p, size_t bytes) {
  __m256i a[8] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2112), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2176), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 2240), _MM_HINT_T0);
    for (int k = 0; k < 8; ++k)
      a[k] = _mm256_add_epi64(a[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i) + k));
  }
  for (int k = 1; k < 8; ++k) a[0] = _mm256_add_epi64(a[0], a[k]);
  sink = sink + static_cast<uint64_t>(_mm256_extract_epi64(a[0], 0));
}

#define TEN(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9)
#define DOT512(k) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #k "\n"
#define MADD256(k) "vpmaddubsw %%ymm14, %%ymm15, %%ymm" #k "\n"
/// Multiply-adds of bytes a second on one thread: vpdpbusd, or vpmaddubsw where there is no VNNI.
double macs_of(bool vnni, long n) {
  const long count = n;
  if (vnni)
    __asm__ volatile("1:\n" TEN(DOT512) "dec %0\njnz 1b\n"
                     : "+r"(n)
                     :
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "cc");
  else
    __asm__ volatile("1:\n" TEN(MADD256) "dec %0\njnz 1b\n"
                     : "+r"(n)
                     :
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "cc");
  return static_cast<double>(count) * 10 * (vnni ? 64 : 32);
}
#else
void read_all(const uint8_t* p, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) sum += *reinterpret_cast<const uint64_t*>(p + i);
  sink = sum;
}
double macs_of(bool, long) { return 0; }
#endif

struct Options {
  std::string format, isa;
  size_t rows = 0, cols = 0, n = 0;
  unsigned threads = 2;
  int passes = 5;
  size_t weight_bytes = size_t{192} << 20;  // copies up to this: beyond the cache, unless told
};

struct Limits {
  double bytes, macs;
};

constexpr size_t kProbeBytes = size_t{256} << 20;

Limits probe(const uint8_t* memory, unsigned threads, bool vnni) {
  const double read = on_threads(threads, [&](unsigned t) {
    const size_t part = kProbeBytes / threads / 4096 * 4096;
    read_all(memory + t * part, part - 4096);
  });
  std::vector<double> work(threads);
  const double dot = on_threads(threads, [&](unsigned t) { work[t] = macs_of(vnni, 4'000'000); });
  double macs = 0;
  for (const double w : work) macs += w;
  return {static_cast<double>(kProbeBytes) / read, macs / dot};
}

void measure(const MatmulTable& kernels, bool vnni, Format format, size_t rows, size_t cols,
             const std::vector<size_t>& batches, const Options& options, const uint8_t* memory) {
  const FormatTraits& t = traits(format);
  if (cols % t.block) return;
  // As many copies as a model has layers, so that the weights do not stay in the cache.
  std::vector<float> values(rows * cols);
  uint32_t state = 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  std::vector<uint8_t> source(rows * cols / t.block * t.block_bytes);
  quantize(format, values.data(), values.size(), source.data());
  std::vector<PackedMatrix> copies;
  size_t total = 0;
  const double pack_start = thread_seconds();
  while (total < options.weight_bytes) {
    copies.push_back(pack(format, rows, cols, source.data()));
    total += copies.back().groups * copies.back().group_bytes;
  }
  const double pack_seconds = thread_seconds() - pack_start;
  std::printf("%-5s %6zux%-5zu packs at %.2f GB/s\n", t.name, rows, cols,
              static_cast<double>(source.size() * copies.size()) / pack_seconds / 1e9);
  for (const size_t n : batches) {
    const size_t stride = activation_bytes(t.activation, cols);
    auto* activations = static_cast<uint8_t*>(huge_alloc(n * stride + 64));
    auto* out = static_cast<float*>(huge_alloc(n * rows * sizeof(float)));
    const double quantize_start = thread_seconds();
    for (size_t i = 0; i < n; ++i)
      kernels.quantize_rows(t.activation, values.data() + i % rows * cols, cols, 1, cols,
                            activations + i * stride);
    const double quantize_seconds = thread_seconds() - quantize_start;
    // Enough work to measure, not more.
    const double work = static_cast<double>(rows * cols) * static_cast<double>(n);
    const size_t rounds =
        std::max<size_t>(1, static_cast<size_t>(std::min(4e10, 1e9 * static_cast<double>(n)) / work));
    double best_bytes = 0, best_macs = 0, bytes_share = 0, macs_share = 0;
    for (int pass = 0; pass < options.passes; ++pass) {
      const Limits limits = probe(memory, options.threads, vnni);
      const double time = on_threads(options.threads, [&](unsigned thread) {
        for (size_t i = 0; i < rounds; ++i) {
          const PackedMatrix& m = copies[i % copies.size()];
          const size_t begin = m.groups * thread / options.threads,
                       end = m.groups * (thread + 1) / options.threads;
          kernels.matmul(m, activations, n, begin, end, out, rows, nullptr, nullptr, 0);
        }
      });
      const double bytes = static_cast<double>(rounds * copies[0].groups * copies[0].group_bytes) / time;
      const double macs = work * static_cast<double>(rounds) / time;
      best_bytes = std::max(best_bytes, bytes);
      best_macs = std::max(best_macs, macs);
      bytes_share = std::max(bytes_share, bytes / limits.bytes);
      macs_share = std::max(macs_share, macs / limits.macs);
    }
    std::printf(
        "%-5s %6zux%-5zu n=%-4zu %7.1f GB/s (%3.0f %% of the reading "
        "probe)  %7.1f GMAC/s (%3.0f %% of the "
        "dot product peak)"
        "  quantize %.2f us a row\n",
        t.name, rows, cols, n, best_bytes / 1e9, 100 * bytes_share, best_macs / 1e9, 100 * macs_share,
        quantize_seconds / static_cast<double>(n) * 1e6);
    std::fflush(stdout);
    huge_free(activations);
    huge_free(out);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--format")
      options.format = value;
    else if (key == "--isa")
      options.isa = value;
    else if (key == "--shape")
      std::sscanf(value.c_str(), "%zux%zu", &options.rows, &options.cols);
    else if (key == "--rows")
      options.n = std::strtoul(value.c_str(), nullptr, 10);
    else if (key == "--threads")
      options.threads = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    else if (key == "--mib")
      options.weight_bytes = std::max<size_t>(1, std::strtoul(value.c_str(), nullptr, 10) << 20);
    else if (key == "--clock")
      processor_time = value == "cpu";
    else if (key == "--passes")
      options.passes = std::atoi(value.c_str());
    else
      return std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2;
  }
  static constexpr Tables<MatmulTable> tables = LLAMAY_TABLES(matmul);
  if (!options.isa.empty()) use_isa(options.isa);
  const MatmulTable& kernels = tables[active_isa()];
  auto* memory = static_cast<uint8_t*>(huge_alloc(kProbeBytes));
  std::memset(memory, 1, kProbeBytes);
  const bool vnni = std::strcmp(kernels.isa, "avx512_vnni") == 0;
  std::printf("%s, %u threads\n", kernels.isa, options.threads);
  std::vector<std::pair<size_t, size_t>> shapes{
      {576, 1536}, {896, 4864}, {2048, 8192}, {640, 2048}, {49152, 576}};
  if (options.rows) shapes = {{options.rows, options.cols}};
  std::vector<size_t> batches{1, 4, 16, 128, 512};
  if (options.n) batches = {options.n};
  for (const FormatTraits& t : kFormats)
    if (options.format.empty() || options.format == t.name)
      for (const auto& [rows, cols] : shapes)
        measure(kernels, vnni, t.format, rows, cols, batches, options, memory);
  huge_free(memory);
}
