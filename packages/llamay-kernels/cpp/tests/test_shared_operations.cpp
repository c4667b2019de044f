// Several threads together compute the same as one thread alone: experts, convolutions and scans with their
// states, attention over whole texts and pooling. Meant for ThreadSanitizer, and useful without it.
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "check.hpp"
#include "cpu/run/plan.hpp"
#include "llamay/kv_view.h"
#include "matmul/matmul.hpp"
#include "weights.hpp"

using namespace llamay;

namespace {

constexpr std::size_t kWidth = 64, kVocabulary = 90, kHeads = 4, kDim = 16, kTaps = 4, kExperts = 8,
                      kChosen = 3, kHidden = 256;

/// A plan and the records, widths and weights that it is made of.
class Model {
 public:
  Plan& plan() const { return *plan_; }

 protected:
  int64_t weight(Format format, std::size_t rows, std::size_t cols) {
    weights_.push_back(pack(format, rows, cols, weight_bytes(format, rows, cols, random_).data()));
    return static_cast<int64_t>(weights_.size() - 1);
  }
  /// Adds a record whose outs are new values of these widths; returns the first of them.
  int64_t add(const char* op, std::vector<std::size_t> widths, std::vector<int64_t> args,
              std::vector<int64_t> weights, std::map<std::string, Attr> attrs = {}) {
    const auto first = static_cast<int64_t>(widths_.size());
    std::vector<int64_t> outs;
    for (const std::size_t width : widths) {
      outs.push_back(static_cast<int64_t>(widths_.size()));
      widths_.push_back(static_cast<int64_t>(width));
    }
    records_.push_back({op, std::move(outs), std::move(args), std::move(weights), std::move(attrs)});
    return first;
  }
  void make() {
    std::vector<const PackedMatrix*> matrices;
    for (const PackedMatrix& m : weights_) matrices.push_back(&m);
    plan_ = std::make_unique<Plan>(records_, widths_, matrices, 200);
  }

 private:
  std::mt19937 random_{7};
  std::vector<PackedMatrix> weights_;
  std::vector<int64_t> widths_;
  std::vector<Record> records_;
  std::unique_ptr<Plan> plan_;
};

/// A recurrent layer and a mixture of experts.
class Recurrent : public Model {
 public:
  Recurrent() {
    const std::map<std::string, Attr> layer{{"layer", int64_t{0}}}, eps{{"eps", 1e-5}};
    const auto kind = [](const char* name) {
      return std::map<std::string, Attr>{{"kind", std::string(name)}};
    };
    const int64_t table = weight(Format::Q8_0, kVocabulary, kWidth),
                  taps = weight(Format::F32, kWidth, kTaps), wr = weight(Format::Q8_0, kHeads * kDim, kWidth),
                  router = weight(Format::F32, kExperts, kWidth);
    const int64_t x = add("embed", {kWidth}, {}, {table});
    const int64_t mixed = add("conv", {kWidth}, {x}, {taps}, layer);
    const int64_t r = add("linear", {kHeads * kDim}, {mixed}, {wr}),
                  w = add("unary", {kWidth}, {r}, {}, kind("sigmoid"));
    const int64_t normed = add("rms_norm", {kWidth}, {mixed}, {}, {{"eps", 1e-5}, {"groups", int64_t{4}}});
    const int64_t a = add("scale", {kWidth}, {normed}, {}, {{"by", -0.05}}),
                  b = add("scale", {kWidth}, {normed}, {}, {{"by", 0.1}});
    const int64_t y = add("scan", {kWidth}, {r, w, normed, mixed, a, b}, {},
                          {{"layer", int64_t{0}},
                           {"heads", int64_t{kHeads}},
                           {"groups", int64_t{kHeads}},
                           {"k_dim", int64_t{kDim}},
                           {"v_dim", int64_t{kDim}},
                           {"map", std::string("grouped")}});
    const int64_t after = add("add", {kWidth}, {x, y}, {}),
                  inner = add("rms_norm", {kWidth}, {after}, {}, eps);
    const int64_t logits = add("linear", {kExperts}, {inner}, {router});
    const int64_t ids = add(
        "route", {kChosen, kChosen}, {logits}, {},
        {{"kind", std::string("softmax")}, {"k", int64_t{kChosen}}, {"norm", int64_t{1}}, {"scale", 1.0}});
    const int64_t gate = weight(Format::Q8_0, kExperts * kHidden, kWidth),
                  up = weight(Format::F32, kExperts * kHidden, kWidth),
                  down = weight(Format::Q4_K, kExperts * kWidth, kHidden);
    const int64_t out = add("experts", {kWidth}, {inner, ids, ids + 1}, {gate, up, down},
                            {{"act", std::string("silu")}, {"experts", int64_t{kExperts}}});
    const int64_t sum = add("add", {kWidth}, {after, out}, {}), last = add("select", {kWidth}, {sum}, {});
    add("linear", {kVocabulary}, {last}, {table});
    make();
  }
};

/// An encoder: two attentions over whole texts, of different shapes, and the mean of their outputs.
class Encoder : public Model {
 public:
  Encoder() {
    const int64_t table = weight(Format::F32, kVocabulary, kWidth), wk = weight(Format::F32, kDim, kWidth);
    const auto attention = [](int64_t layer, int64_t kv_heads) {
      return std::map<std::string, Attr>{
          {"layer", layer},         {"heads", int64_t{kHeads}}, {"kv_heads", kv_heads},
          {"k_dim", int64_t{kDim}}, {"v_dim", int64_t{kDim}},   {"scale", 0.25},
          {"window", int64_t{0}},   {"softcap", 0.0},           {"mask", std::string("full")}};
    };
    const int64_t x = add("embed", {kWidth}, {}, {table}), k = add("linear", {kDim}, {x}, {wk});
    const int64_t first = add("attention", {kWidth}, {x, k, k}, {}, attention(0, 1));
    const int64_t second = add("attention", {kWidth}, {first, first, x}, {}, attention(1, kHeads));
    const int64_t text = add("pool", {kWidth}, {second}, {}, {{"kind", std::string("mean")}});
    add("linear", {kVocabulary}, {text}, {table});
    make();
  }
};

/// The recurrent state of one document: one page to read and several to write.
class States {
 public:
  States() : arena_(new (std::align_val_t{64}) float[kPageFloats * kPages]()) {
    layer_ = {0, kCarried * sizeof(float), 0, 1, kCarried, kState};
    group_ = {arena_.get(),
              kPageFloats * sizeof(float),
              &block_,
              &layer_,
              sizeof layer_,
              1,
              kPages,
              1,
              LLAMAY_KV_STATE,
              0,
              LLAMAY_KV_F32,
              at_,
              0};
    view_ = {sizeof view_, sizeof group_, 1, &group_, 0, 0};
  }
  /// Lists a state after the first row, too, where there are several rows.
  const llamay_kv_view* reserve(uint32_t n) {
    group_.n_states = 0;
    int32_t page = now_;
    const auto list = [&](uint32_t at) {
      at_[group_.n_states] = at;
      numbers_[group_.n_states++] = page;
      page = (page + 1) % static_cast<int32_t>(kPages);
    };
    if (view_.n_tokens) list(view_.n_tokens);
    if (n > 1) list(view_.n_tokens + 1);
    list(view_.n_tokens + n);
    view_.n_reserved = n;
    return &view_;
  }
  void commit() {
    now_ = numbers_[group_.n_states - 1];
    view_.n_tokens += view_.n_reserved;
    view_.n_reserved = 0;
  }
  bool same(const States& other) const {
    return std::memcmp(arena_.get(), other.arena_.get(), kPageFloats * kPages * sizeof(float)) == 0;
  }

 private:
  static constexpr uint32_t kCarried = (kTaps - 1) * kWidth, kState = kHeads * kDim * kDim, kPages = 4;
  static constexpr std::size_t kPageFloats = kCarried + kState;
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> arena_;
  int32_t numbers_[kPages] = {}, now_ = 0;
  const int32_t* block_ = numbers_;
  uint32_t at_[kPages] = {};
  llamay_kv_layer layer_;
  llamay_kv_group group_;
  llamay_kv_view view_;
};

/// The output of each text's last row.
std::vector<float> step(const Plan& plan, const std::vector<const llamay_kv_view*>& views,
                        const std::vector<uint32_t>& counts, uint32_t seed, Threads& threads) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens, last;
  for (const uint32_t n : counts) {
    for (uint32_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
    last.push_back(static_cast<int32_t>(tokens.size()) - 1);
  }
  const std::vector<int32_t> positions(tokens.size());
  std::vector<float> out(counts.size() * kVocabulary, -1);
  plan.run({tokens.data(), positions.data(), tokens.size(), views.data(), counts.data(), views.size(),
            last.data(), last.size(), out.data()},
           threads);
  return out;
}

std::vector<float> recurrent_step(const Recurrent& model, std::vector<States>& documents,
                                  const std::vector<uint32_t>& counts, uint32_t seed, Threads& threads) {
  std::vector<const llamay_kv_view*> views;
  for (std::size_t d = 0; d < counts.size(); ++d) views.push_back(documents[d].reserve(counts[d]));
  std::vector<float> out = step(model.plan(), views, counts, seed, threads);
  for (std::size_t d = 0; d < counts.size(); ++d) documents[d].commit();
  return out;
}

/// Three callers with pools of their own, two that share one.
template <class F>
void on_any_threads(F compute) {
  Threads shared(3);
  in_threads(5, [&](unsigned caller) {
    for (int round = 0; round < 4; ++round) {
      Threads own(caller < 3 ? 2 + 3 * caller : 1, round % 2 ? 0 : 20'000);
      compute(caller < 3 ? own : shared);
    }
  });
}

const std::vector<std::vector<uint32_t>> kSteps = {{70, 3}, {1, 17}, {1, 1}, {1}, {1}, {9, 1}, {1}, {1}, {1}};

void recurrent_layers_and_experts_are_the_same_on_any_threads() {
  const Recurrent model;
  Threads one(1);
  std::vector<States> kept(2);
  std::vector<std::vector<float>> expected;
  for (uint32_t i = 0; i < kSteps.size(); ++i)
    expected.push_back(recurrent_step(model, kept, kSteps[i], i, one));
  on_any_threads([&](Threads& threads) {
    std::vector<States> documents(2);
    for (uint32_t i = 0; i < kSteps.size(); ++i)
      CHECK(recurrent_step(model, documents, kSteps[i], i, threads) == expected[i]);
    CHECK(documents[0].same(kept[0]) && documents[1].same(kept[1]));
  });
}

void whole_texts_are_the_same_on_any_threads() {
  const Encoder model;
  const std::vector<std::vector<uint32_t>> batches = {{1},         {5},      {150}, {1, 64, 65, 2},
                                                      {70, 1, 70}, {1, 1, 1}};
  Threads one(1);
  std::vector<std::vector<float>> expected;
  const auto compute = [&](uint32_t i, Threads& threads) {
    const std::vector<const llamay_kv_view*> none(batches[i].size());
    return step(model.plan(), none, batches[i], i, threads);
  };
  for (uint32_t i = 0; i < batches.size(); ++i) expected.push_back(compute(i, one));
  on_any_threads([&](Threads& threads) {
    for (uint32_t i = 0; i < batches.size(); ++i) CHECK(compute(i, threads) == expected[i]);
  });
}

}  // namespace

int main() {
  recurrent_layers_and_experts_are_the_same_on_any_threads();
  whole_texts_are_the_same_on_any_threads();
  std::puts("ok");
}
