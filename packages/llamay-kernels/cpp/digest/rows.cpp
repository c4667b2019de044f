#include "digest/rows.hpp"

#include <algorithm>
#include <vector>

#include "digest/random.hpp"
#include "ops/attention/paged_trial.hpp"
#include "ops/experts/combine.hpp"
#include "ops/experts/route.hpp"
#include "ops/recurrent/conv.hpp"
#include "ops/recurrent/scan.hpp"
#include "ops/rows/affine.hpp"
#include "ops/rows/table.hpp"
#include "ops/rows/unary.hpp"

LLAMAY_DECLARE_TABLES(llamay::AttentionTable, attention);
LLAMAY_DECLARE_TABLES(llamay::OpsTable, ops);

namespace llamay {
namespace {

constexpr Tables<AttentionTable> attention_tables = LLAMAY_TABLES(attention);
constexpr Tables<OpsTable> ops_tables = LLAMAY_TABLES(ops);
constexpr int kRounds = 40;

std::vector<float> values(Random& random, std::size_t n, std::size_t odd = 0) {
  std::vector<float> out(n);
  for (float& v : out) v = random.value(odd);
  return out;
}

unsigned long long functions(Isa isa) {
  Random random(1);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t n = 1 + random.below(100), parts = 1 + random.below(4);
    const auto a = values(random, n * parts, 10), b = values(random, n * parts, 10),
               few = values(random, parts);
    std::vector<float> out(n * parts);
    for (int kind = 0; kind <= static_cast<int>(UnaryKind::exp); ++kind) {
      unary_tables[isa].apply_mul(static_cast<UnaryKind>(kind), a.data(), b.data(), out.data(), out.size());
      digest.add(out.data(), out.size());
    }
    affine_tables[isa].affine(a.data(), {few.data(), parts}, {b.data(), b.size()}, out.size(), out.data());
    digest.add(out.data(), out.size());
  }
  return digest.value();
}

unsigned long long norms(Isa isa) {
  Random random(2);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t n = 1 + random.below(100);
    const auto x = values(random, 3 * n, round % 2 ? 100 : 0), w = values(random, n), b = values(random, n);
    std::vector<float> out(3 * n);
    ops_tables[isa].rms_norm(x.data(), round % 3 ? w.data() : nullptr, 3, n, 1e-5f, out.data());
    digest.add(out.data(), out.size());
    ops_tables[isa].layer_norm(x.data(), w.data(), round % 3 ? b.data() : nullptr, 3, n, 1e-5f, out.data());
    digest.add(out.data(), out.size());
  }
  return digest.value();
}

unsigned long long convolutions(Isa isa) {
  Random random(3);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t n = 1 + random.below(6), taps = 1 + random.below(10), channels = 1 + random.below(700);
    const auto x = values(random, n * channels, 50), weight = values(random, taps * channels),
               bias = values(random, channels), carried = values(random, (taps - 1) * channels);
    std::vector<float> out(n * channels);
    const Conv conv{taps, channels, weight.data(), round % 2 ? bias.data() : nullptr};
    const ConvRows rows{x.data(), channels, round % 3 ? carried.data() : nullptr, out.data(), channels};
    conv_tables[isa].rows(conv, rows, n, 0, channels);
    digest.add(out.data(), out.size());
  }
  return digest.value();
}

unsigned long long scans(Isa isa) {
  Random random(4);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t n = 1 + random.below(5), k_dim = 1 + random.below(140), v_dim = 1 + random.below(80);
    const bool by_column = round % 2, corrected = round % 3;
    const auto r = values(random, n * k_dim), w = values(random, n * k_dim), k = values(random, n * k_dim),
               v = values(random, n * v_dim, 60), a = values(random, n * k_dim),
               b = values(random, n * k_dim);
    auto state = values(random, k_dim * v_dim, 200);
    std::vector<float> out(n * v_dim);
    const auto rows = [&](const std::vector<float>& x) { return ScanRows{x.data(), x.size() / n}; };
    const ScanRows none{nullptr, 0};
    const Scan scan{k_dim,
                    v_dim,
                    rows(r),
                    rows(k),
                    rows(v),
                    by_column ? rows(w) : ScanRows{w.data(), 1},
                    by_column,
                    corrected ? rows(a) : none,
                    corrected ? rows(b) : none,
                    round % 4 ? state.data() : nullptr,
                    state.data(),
                    out.data(),
                    v_dim};
    scan_tables[isa].rows(scan, n, 0, v_dim);
    digest.add(out.data(), out.size());
    digest.add(state.data(), state.size());
  }
  return digest.value();
}

unsigned long long routes(Isa isa) {
  Random random(5);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t groups = 1 + random.below(5), size = 1 + random.below(60),
                      used = 1 + random.below(groups);
    const std::size_t k = 1 + random.below(std::min<std::size_t>(used * size, 20));
    const auto logits = values(random, groups * size, round % 2 ? 20 : 0),
               bias = values(random, groups * size);
    std::vector<float> ids(k), weights(k);
    const Route route{static_cast<RouteKind>(round % 4), groups * size, k, groups, used, round % 3 != 0, 1.5f,
                      round % 5 ? bias.data() : nullptr};
    route_tables[isa].row(route, logits.data(), ids.data(), weights.data());
    digest.add(ids.data(), k);
    digest.add(weights.data(), k);
  }
  return digest.value();
}

unsigned long long sums(Isa isa) {
  Random random(6);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t n = 1 + random.below(9), width = 1 + random.below(200);
    const auto weights = values(random, n, 10), y = values(random, n * width, 20);
    std::vector<const float*> rows;
    for (std::size_t j = 0; j < n; ++j) rows.push_back(y.data() + j * width);
    std::vector<float> out(width);
    combine_tables[isa].combine(weights.data(), rows.data(), n, 0, width, out.data());
    digest.add(out.data(), width);
  }
  return digest.value();
}

unsigned long long attention(Isa isa) {
  Random random(7);
  Digest digest;
  for (int round = 0; round < kRounds; ++round) {
    const auto below = [&](std::size_t n) { return static_cast<uint32_t>(random.below(n)); };
    const uint32_t kv_heads = 1 + below(2), group = 1 + below(20), v_dim = 1 + below(40),
                   k_dim = v_dim + below(20);
    const uint32_t positions = 1 + below(200), window = round % 3 ? 0 : 1 + below(100);
    const bool latent = round % 2;
    std::vector<uint32_t> rows;
    for (uint32_t at = below(positions); at < positions; at += 1 + below(9)) rows.push_back(at);
    const auto q = values(random, rows.size() * kv_heads * group * k_dim),
               k = values(random, std::size_t{positions} * kv_heads * k_dim),
               v = values(random, std::size_t{positions} * kv_heads * v_dim);
    std::vector<float> out(rows.size() * kv_heads * group * v_dim);
    const PagedTrial trial{
        {kv_heads * group, kv_heads, k_dim, v_dim, window, 0.1f, round % 5 ? 0.0f : 4.0f, latent ? v_dim : 0},
        latent ? PagedTrial::Values::latent : PagedTrial::Values::given,
        static_cast<uint32_t>(round / 2 % 4),
        4 + below(4),
        1 + below(3),
        q.data(),
        k.data(),
        v.data(),
        positions,
        rows};
    trial.run(attention_tables[isa], out.data());
    digest.add(out.data(), out.size());
  }
  return digest.value();
}

}  // namespace

const RowsDigest kRowsDigests[7] = {
    {"functions", functions}, {"norms", norms}, {"convolutions", convolutions}, {"scans", scans},
    {"routes", routes},       {"sums", sums},   {"attention", attention}};

}  // namespace llamay
