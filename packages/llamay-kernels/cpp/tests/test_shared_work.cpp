// Several threads together compute the same as one thread alone: packing, plans, choices of tokens. Meant for
// ThreadSanitizer, and useful without it.
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "check.hpp"
#include "cpu/run/plan.hpp"
#include "llamay/kv_view.h"
#include "matmul/matmul.hpp"
#include "sampling/batch.hpp"
#include "weights.hpp"

using namespace llamay;

namespace {

/// A loop over the pool, as a weight is packed.
struct PoolLoop {
  Threads& threads;
  ParallelFor parallel() { return {this, &run}; }

  static void run(void* self, std::size_t count, void (*body)(void*, std::size_t), void* context) {
    struct Shared {
      std::atomic<std::size_t> next{0};
      std::size_t count;
      void (*body)(void*, std::size_t);
      void* context;
    } shared{{}, count, body, context};
    Threads& pool = static_cast<PoolLoop*>(self)->threads;
    pool.run(
        pool.size(),
        [](void* p, unsigned) {
          auto& s = *static_cast<Shared*>(p);
          for (std::size_t i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.count;)
            s.body(s.context, i);
        },
        &shared);
  }
};

/// Several weights at once, each packed by a pool, with memory from the slabs that all of them share.
void packed_together_is_packed_alone() {
  in_threads(3, [](unsigned t) {
    Threads pool(3);
    PoolLoop loop{pool};
    std::mt19937 random(t);
    for (int round = 0; round < 6; ++round)
      for (const Format format : {Format::F32, Format::Q8_0, Format::Q4_K}) {
        const std::size_t rows = 1 + random() % 700, cols = 256 * (1 + random() % 2);
        const auto bytes = weight_bytes(format, rows, cols, random);
        const PackedMatrix alone = pack(format, rows, cols, bytes.data());
        const PackedMatrix together = pack(format, rows, cols, bytes.data(), loop.parallel());
        CHECK(std::memcmp(alone.data, together.data, alone.groups * alone.group_bytes) == 0);
      }
  });
}

constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 16, kPage = 16, kPages = 8;
constexpr std::size_t kWidth = 256, kVocabulary = 300;

/// Pages for one document of up to kPages * kPage tokens, in one precision.
class Pages {
 public:
  Pages() : arena_(new (std::align_val_t{64}) float[kFloats]()) {
    for (int32_t i = 0; i < static_cast<int32_t>(kPages); ++i) numbers_.push_back((i * 3 + 1) % 8);
    block_ = numbers_.data();
    layer_ = {0, kKvHeads * kDim * kPage * sizeof(float), 0, kKvHeads, kDim, kDim};
    group_ = {arena_.get(),
              kPageFloats * sizeof(float),
              &block_,
              &layer_,
              sizeof layer_,
              1,
              kPages,
              kPage,
              LLAMAY_KV_FULL,
              0,
              LLAMAY_KV_F32,
              nullptr,
              0};
    view_ = {sizeof view_, sizeof group_, 1, &group_, 0, 0};
  }
  const llamay_kv_view* reserve(uint32_t n) {
    view_.n_reserved = n;
    return &view_;
  }
  void commit() {
    view_.n_tokens += view_.n_reserved;
    view_.n_reserved = 0;
  }
  uint32_t size() const { return view_.n_tokens; }
  bool same(const Pages& other) const {
    return std::memcmp(arena_.get(), other.arena_.get(), kFloats * sizeof(float)) == 0;
  }

 private:
  static constexpr std::size_t kPageFloats = 2 * kKvHeads * kDim * kPage, kFloats = kPageFloats * kPages;
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> arena_;
  std::vector<int32_t> numbers_;
  const int32_t* block_;
  llamay_kv_layer layer_;
  llamay_kv_group group_;
  llamay_kv_view view_;
};

/// A layer of a transformer and its logits: every kind of work that a plan shares.
class Model {
 public:
  Model() {
    std::mt19937 random(7);
    const auto weight = [&](Format format, std::size_t rows, std::size_t cols) {
      weights_.push_back(pack(format, rows, cols, weight_bytes(format, rows, cols, random).data()));
      return static_cast<int64_t>(weights_.size() - 1);
    };
    const auto value = [this](std::size_t width) {
      widths_.push_back(static_cast<int64_t>(width));
      return static_cast<int64_t>(widths_.size() - 1);
    };
    const int64_t x = value(kWidth), normed = value(kWidth), q = value(kHeads * kDim),
                  k = value(kKvHeads * kDim), v = value(kKvHeads * kDim), turned_q = value(kHeads * kDim),
                  turned_k = value(kKvHeads * kDim), seen = value(kHeads * kDim), brought = value(kWidth),
                  after = value(kWidth), normed2 = value(kWidth), inner = value(512), out = value(kWidth),
                  picked = value(kWidth), logits = value(kVocabulary), soft = value(kVocabulary);
    const int64_t table = weight(Format::Q8_0, kVocabulary, kWidth), norm = weight(Format::F32, 1, kWidth),
                  wq = weight(Format::Q4_K, kHeads * kDim, kWidth),
                  wk = weight(Format::Q8_0, kKvHeads * kDim, kWidth),
                  wv = weight(Format::Q8_0, kKvHeads * kDim, kWidth),
                  wo = weight(Format::F32, kWidth, kHeads * kDim), gate = weight(Format::Q4_K, 512, kWidth),
                  up = weight(Format::Q8_0, 512, kWidth), down = weight(Format::Q4_K, kWidth, 512);
    const std::map<std::string, Attr> eps{{"eps", 1e-5}};
    const std::map<std::string, Attr> rope{{"head_dim", int64_t{kDim}},
                                           {"style", std::string("half")},
                                           {"freqs", std::vector<double>{1, 0.5, 0.1, 0.01, 0, 0, 0, 0}},
                                           {"factor", 1.0}};
    records_ = {{"embed", {x}, {}, {table}, {}},
                {"rms_norm", {normed}, {x}, {norm}, eps},
                {"linear_group", {q, k, v}, {normed}, {wq, wk, wv}, {{"bias", std::vector<double>{0, 0, 0}}}},
                {"rope", {turned_q}, {q}, {}, rope},
                {"rope", {turned_k}, {k}, {}, rope},
                {"attention",
                 {seen},
                 {turned_q, turned_k, v},
                 {},
                 {{"layer", int64_t{0}},
                  {"heads", int64_t{kHeads}},
                  {"kv_heads", int64_t{kKvHeads}},
                  {"k_dim", int64_t{kDim}},
                  {"v_dim", int64_t{kDim}},
                  {"scale", 0.25},
                  {"window", int64_t{0}},
                  {"softcap", 0.0}}},
                {"linear", {brought}, {seen}, {wo}, {}},
                {"rms_norm_add", {after}, {x, brought}, {norm}, eps},
                {"rms_norm", {normed2}, {after}, {norm}, eps},
                {"glu", {inner}, {normed2}, {gate, up}, {{"act", std::string("silu")}}},
                {"linear_add", {out}, {after, inner}, {down}, {}},
                {"select", {picked}, {out}, {}, {}},
                {"linear", {logits}, {picked}, {table}, {}},
                {"softcap", {soft}, {logits}, {}, {{"cap", 30.0}}}};
    std::vector<const PackedMatrix*> matrices;
    for (const PackedMatrix& m : weights_) matrices.push_back(&m);
    plan_ = std::make_unique<Plan>(records_, widths_, matrices, 64);
  }
  Plan& plan() const { return *plan_; }

  /// The next rows of each document; the logits of each one's last row.
  std::vector<float> step(std::vector<Pages>& documents, const std::vector<uint32_t>& counts, uint32_t seed,
                          Threads& threads) const {
    std::mt19937 random(seed);
    std::vector<int32_t> tokens, positions, last;
    std::vector<const llamay_kv_view*> views;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      for (uint32_t i = 0; i < counts[d]; ++i) {
        tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
        positions.push_back(static_cast<int32_t>(documents[d].size() + i));
      }
      last.push_back(static_cast<int32_t>(tokens.size()) - 1);
      views.push_back(documents[d].reserve(counts[d]));
    }
    std::vector<float> logits(counts.size() * kVocabulary, -1);
    plan_->run({tokens.data(), positions.data(), tokens.size(), views.data(), counts.data(), views.size(),
                last.data(), last.size(), logits.data()},
               threads);
    for (std::size_t d = 0; d < counts.size(); ++d) documents[d].commit();
    return logits;
  }

 private:
  std::vector<PackedMatrix> weights_;
  std::vector<int64_t> widths_;
  std::vector<Record> records_;
  std::unique_ptr<Plan> plan_;
};

/// Prompts, then single tokens, of several documents at once.
const std::vector<std::vector<uint32_t>> kSteps = {{20, 3}, {1, 17}, {1, 1}, {1, 1}, {9, 1}, {1, 1}, {1},
                                                   {1},     {1},     {1},    {1},    {1},    {1},    {1}};

/// Callers with pools of their own and callers that share one run the same plan at once, while it is
/// measured.
void a_plan_is_the_same_on_any_threads() {
  const Model model;
  Threads one(1), shared(3);
  std::vector<Pages> expected_pages(2);
  std::vector<std::vector<float>> expected;
  for (uint32_t i = 0; i < kSteps.size(); ++i)
    expected.push_back(model.step(expected_pages, kSteps[i], i, one));
  std::atomic<unsigned> running{5};
  in_threads(6, [&](unsigned caller) {
    if (caller == 5) {
      for (bool on = true; running; on = !on) {
        model.plan().measure(on);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(model.plan().measured().record_ns.size() == model.plan().operations().size());
      }
      return;
    }
    for (int round = 0; round < 4; ++round) {
      Threads own(caller < 3 ? 2 + 3 * caller : 1, round % 2 ? 0 : 20'000);
      std::vector<Pages> pages(2);
      for (uint32_t i = 0; i < kSteps.size(); ++i)
        CHECK(model.step(pages, kSteps[i], i, caller < 3 ? own : shared) == expected[i]);
      CHECK(pages[0].same(expected_pages[0]) && pages[1].same(expected_pages[1]));
    }
    --running;
  });
}

/// Two threads that share samplers, history and mask, and have one mirostat sampler each.
void a_batch_is_chosen_as_one_by_one() {
  constexpr std::size_t kTokens = 20'000, kRows = 9;
  std::mt19937 random(11);
  std::vector<std::vector<float>> logits(kRows, std::vector<float>(kTokens));
  for (auto& row : logits)
    for (float& v : row) v = static_cast<float>(random() % 4096) / 256;
  std::vector<int32_t> past(200);
  for (int32_t& t : past) t = static_cast<int32_t>(random() % 50);
  std::vector<uint32_t> mask(kTokens / 32, 0x5a5a5a5a);
  SamplerOptions options;
  options.repeat_penalty = 1.1, options.dry_multiplier = 0.8, options.xtc_probability = 0.3;
  options.typical_p = 0.95, options.logit_bias = {{5, 1.0f}};
  SamplerOptions learning;
  learning.mirostat = 2;
  SamplerOptions greedy;
  greedy.temperature = 0;
  in_threads(3, [&](unsigned caller) {
    Threads pool(2 + caller);
    Sampler all(options), likeliest(greedy), mirostat(learning), alone(learning);
    for (uint64_t at = 0; at < 12; ++at) {
      std::vector<BatchRow> rows;
      for (std::size_t i = 0; i < kRows; ++i)
        rows.push_back(
            {i == 4  ? &mirostat
             : i % 3 ? &all
                     : &likeliest,
             {logits[i].data(), kTokens, at, past.data(), past.size(), i % 2 ? mask.data() : nullptr},
             -1,
             {}});
      rows[8].choice.past_n = at;
      std::vector<BatchRow> expected = rows;
      expected[4].sampler = &alone;
      sample_rows(expected, nullptr);
      sample_rows(rows, &pool);
      for (std::size_t i = 0; i < kRows; ++i)
        CHECK(rows[i].token == expected[i].token && rows[i].token >= 0 && rows[i].error.empty());
      CHECK(mirostat.mu == alone.mu);
    }
  });
}

}  // namespace

int main() {
  packed_together_is_packed_alone();
  a_plan_is_the_same_on_any_threads();
  a_batch_is_chosen_as_one_by_one();
  std::puts("ok");
}
