// Times of the core without Python: fork, lease, and moving K/V beside a plain copy of memory.
#include <chrono>
#include <cstring>

#include "check.hpp"
#include "contexts/context.hpp"
#include "pages/copy.hpp"

using namespace llamay::kv;

namespace {

/// Seconds of one call, the best of some repeats.
template <class F>
double best(int repeats, int calls, F&& f) {
  double least = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int j = 0; j < calls; ++j) f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / calls);
  }
  return least;
}

std::shared_ptr<Context> filled(const std::shared_ptr<Pool>& pool, uint32_t n) {
  auto context = std::make_shared<Context>(pool);
  Lease lease = reserve(context, n);
  lease.commit(std::vector<int32_t>(n, 1));
  return context;
}

void forks() {
  for (const uint32_t pages : {1u, 32u, 512u, 16384u}) {
    const std::vector<GroupSpec> spec{{Kind::full, 0, Precision::f16, {{0, 1, 1, 1}}}};
    auto pool = std::make_shared<Pool>(spec, 64, (pages + 8) * GroupLayout(spec[0], 64).page_bytes);
    const auto context = filled(pool, 64 * pages - 1);
    const double fork = best(20, 20000, [&] { (void)context->fork(); });
    const double first = best(20, 2000, [&] {
      auto branch = context->fork();
      reserve(branch, 1).commit(std::vector<int32_t>(1, 1));
    });
    std::printf("%8u tokens: fork %6.1f ns, fork and first token %8.1f ns\n", context->size(), fork * 1e9,
                first * 1e9);
  }
}

void moves() {
  std::vector<GroupSpec> spec{{Kind::full, 0, Precision::f16, {}}};
  for (uint32_t i = 0; i < 24; ++i) spec[0].layers.push_back({i, 2, 64, 64});
  const std::pair<Precision, Element> cases[] = {{Precision::f16, Element::f16},
                                                 {Precision::f32, Element::f32},
                                                 {Precision::f16, Element::f32},
                                                 {Precision::vq8, Element::f32},
                                                 {Precision::q8, Element::f32}};
  for (const auto& [precision, element] : cases) {
    spec[0].precision = precision;
    const GroupLayout layout(spec[0], 64);
    auto pool = std::make_shared<Pool>(spec, 64, 200 * layout.page_bytes);
    const uint32_t n = 2048;
    const auto context = filled(pool, n);
    const auto view = context->view();
    const size_t width = element == Element::f16 ? 2 : 4, bytes = size_t(n) * 24 * 2 * 128 * width;
    std::vector<std::byte> k(size_t(n) * 128 * width), v(k.size()), a(bytes), b(bytes);
    const double copy = best(9, 1, [&] { std::memcpy(b.data(), a.data(), bytes); });
    const double in = best(9, 1, [&] {
      for (uint32_t l = 0; l < 24; ++l) scatter(view->table(), {0, l}, 0, n, element, k.data(), v.data());
    });
    const double out = best(9, 1, [&] {
      for (uint32_t l = 0; l < 24; ++l) gather(view->table(), {0, l}, 0, n, element, k.data(), v.data());
    });
    std::printf("precision %u from %s: write %5.1f GB/s, read %5.1f GB/s, copy of memory %5.1f GB/s\n",
                unsigned(precision), element == Element::f16 ? "f16" : "f32", double(bytes) / in / 1e9,
                double(bytes) / out / 1e9, double(bytes) / copy / 1e9);
  }
}

}  // namespace

int main() {
  forks();
  moves();
}
