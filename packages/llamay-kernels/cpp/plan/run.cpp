#include "plan/run.hpp"

#include <algorithm>

namespace llamay {
namespace {

/// Up to so many rows each thread does the whole-row work for itself: cheaper than waiting for each other.
constexpr std::size_t kAloneRows = 4;
constexpr std::size_t kCountersPerStage = 3;

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

bool is_product(Space space) { return space == Space::products || space == Space::products_selected; }

}  // namespace

Run::Run(const Plan& plan, const Step& step, Scratch& scratch, Threads& threads, Profile* profile)
    : plan_(plan),
      program_(plan.program_),
      schedule_(plan.schedule_),
      step_(step),
      scratch_(scratch),
      threads_(threads),
      profile_(profile),
      ops_(ops_tables[active_isa()]),
      matmul_(matmul_tables[active_isa()]),
      attention_(attention_tables[active_isa()]) {
  if (profile_) last_mark_ = std::chrono::steady_clock::now();
  bind_leases();
  choose_threads();
  // Where nobody wants an output, what comes after the last keys and values changes nothing.
  n_stages_ = step_.wanted ? schedule_.stages.size() : schedule_.last_attention;
  scratch_.attention.resize(program_.shapes.size());
  for (std::size_t i = 0; i < program_.shapes.size(); ++i)
    scratch_.attention[i].plan(program_.shapes[i], scratch_.starts.data(), step_.counts, step_.n_leases, n_threads_);
  lay_out();
}

void Run::bind_leases() {
  const std::size_t layers = plan_.needs_.layers.size();
  scratch_.pages.resize(step_.n_leases * layers);
  scratch_.starts.resize(step_.n_leases);
  scratch_.first_rows.resize(step_.n_leases);
  std::size_t row = 0;
  for (std::size_t i = 0; i < step_.n_leases; ++i) {
    bind_lease(plan_.needs_, *step_.leases[i], step_.counts[i], i, scratch_.pages.data() + i * layers);
    scratch_.starts[i] = step_.leases[i]->n_tokens;
    scratch_.first_rows[i] = static_cast<uint32_t>(row);
    row += step_.counts[i];
  }
  if (layers) check_apart();
}

void Run::check_apart() const {
  // Two leases that write the same place would race; the usual mistake is one context given twice.
  const std::size_t layers = plan_.needs_.layers.size();
  scratch_.targets.clear();
  for (std::size_t i = 0; i < step_.n_leases; ++i)
    scratch_.targets.push_back({scratch_.pages[i * layers].page(scratch_.starts[i]), static_cast<uint32_t>(i)});
  std::sort(scratch_.targets.begin(), scratch_.targets.end());
  for (std::size_t i = 1; i < scratch_.targets.size(); ++i)
    if (scratch_.targets[i].first == scratch_.targets[i - 1].first)
      throw std::invalid_argument("leases " + std::to_string(scratch_.targets[i - 1].second) + " and " +
                                  std::to_string(scratch_.targets[i].second) + " write the same page; give each context once");
}

void Run::choose_threads() {
  uint64_t work = uint64_t{program_.multiplications} * step_.rows;
  for (const Node& n : program_.nodes)
    if (n.kind == Node::Kind::attention)
      for (std::size_t i = 0; i < step_.n_leases; ++i) {
        const AttentionShape& s = program_.shapes[n.shape];
        const uint64_t seen = s.window ? std::min(s.window, scratch_.starts[i] + step_.counts[i]) : scratch_.starts[i] + step_.counts[i];
        work += seen * step_.counts[i] * s.heads * (s.k_dim + s.v_dim);
      }
  n_threads_ = threads_.size();
  if (threads_.grain()) n_threads_ = static_cast<unsigned>(std::min<uint64_t>(n_threads_, 1 + work / threads_.grain()));
  alone_ = n_threads_ > 1 && step_.rows <= kAloneRows;
}

void Run::lay_out() {
  std::size_t total = 0;
  const auto take = [&total](std::size_t bytes) {
    const std::size_t at = total;
    total += whole_lines(bytes);
    return at;
  };
  std::size_t space[kSpaces], ropes = 0;
  const auto take_space = [&](std::size_t i) {
    const auto s = static_cast<Space>(i);
    const bool selected = s == Space::rows_selected || s == Space::products_selected;
    space[i] = take(schedule_.row_bytes[i] * rows(selected));
  };
  const auto take_rows = [&] {
    for (std::size_t i = 0; i < kSpaces; ++i)
      if (!is_product(static_cast<Space>(i))) take_space(i);
    ropes = take(plan_.rope_floats_.back() * sizeof(float) * step_.rows);
  };
  for (std::size_t i = 0; i < kSpaces; ++i)
    if (is_product(static_cast<Space>(i))) take_space(i);
  if (!alone_) take_rows();
  std::size_t partial_floats = 0;
  for (const AttentionWork& work : scratch_.attention) partial_floats = std::max(partial_floats, work.partial_floats);
  const std::size_t partials = take(partial_floats * sizeof(float));
  const std::size_t own = total;
  if (alone_) take_rows();
  const std::size_t attention = take(plan_.attention_scratch_ * sizeof(float));
  const std::size_t product = take(kProductFloats * sizeof(float));
  // A line between them, so that a prefetcher does not fetch what another thread writes.
  thread_stride_ = total - own + 64;

  auto* memory = static_cast<std::byte*>(scratch_.memory.at_least(own + thread_stride_ * n_threads_));
  for (std::size_t i = 0; i < kSpaces; ++i) first_.space[i] = memory + space[i];
  first_.ropes = reinterpret_cast<float*>(memory + ropes);
  first_.attention = reinterpret_cast<float*>(memory + attention);
  first_.product = reinterpret_cast<float*>(memory + product);
  partials_ = reinterpret_cast<float*>(memory + partials);

  const std::size_t counters = kCountersPerStage * schedule_.stages.size();
  if (scratch_.n_counters < counters) {
    scratch_.counters = std::make_unique<Counter[]>(counters);
    scratch_.n_counters = counters;
  }
  for (std::size_t i = 0; i < counters; ++i) scratch_.counters[i].next.store(0, std::memory_order_relaxed);
}

Run::Bases Run::bases(unsigned t) const {
  Bases at = first_;
  const std::size_t skip = thread_stride_ * t;
  const auto move = [skip](float*& p) { p += skip / sizeof(float); };
  move(at.attention);
  move(at.product);
  if (alone_) {
    move(at.ropes);
    for (std::size_t i = 0; i < kSpaces; ++i)
      if (!is_product(static_cast<Space>(i))) at.space[i] += skip;
  }
  return at;
}

float* Run::value(int v, const Bases& at) const {
  const Place& p = schedule_.places[static_cast<std::size_t>(v)];
  if (p.space == Space::output) return step_.out;
  const bool selected = p.space == Space::rows_selected || p.space == Space::products_selected;
  return reinterpret_cast<float*>(at.space[static_cast<std::size_t>(p.space)] + p.offset * rows(selected));
}

std::byte* Run::activation(int a, const Bases& at) const {
  const Activation& act = schedule_.activations[static_cast<std::size_t>(a)];
  if (act.alias) return reinterpret_cast<std::byte*>(value(act.value, at));
  return at.space[static_cast<std::size_t>(act.place.space)] + act.place.offset * rows(act.place.space == Space::rows_selected);
}

void Run::meet(unsigned t) {
  if (n_threads_ == 1) return;
  threads_.barrier().wait();
  if (profile_) mark(t, profile_->wait_ns);
}

void Run::thread(unsigned t) {
  const Bases at = bases(t);
  fill_ropes(t, at);
  if (!alone_) meet(t);
  if (profile_) mark(t, profile_->prepare_ns);
  for (std::size_t i = 0; i < n_stages_; ++i) {
    const Stage& stage = schedule_.stages[i];
    Counter* counters = scratch_.counters.get() + kCountersPerStage * i;
    if (!stage.rows.empty() && rows(stage.selected)) {
      whole_rows(stage, counters[0], t, at);
      if (!alone_ && stage.heavy >= 0) meet(t);
    }
    if (stage.heavy >= 0 && rows(stage.heavy_selected)) {
      const Node& n = program_.nodes[static_cast<std::size_t>(stage.heavy)];
      switch (n.kind) {
        case Node::Kind::linear: linear(stage, n, counters[1], at); break;
        case Node::Kind::glu: glu(stage, n, counters[1], at); break;
        case Node::Kind::attention: attention(n, counters + 1, at, step_.wanted == 0 && i + 1 == n_stages_); break;
        default: columns(n, counters[1], at);
      }
      mark_record(t, n.record);
    }
    if (i + 1 < n_stages_) meet(t);
  }
}

void Run::execute() {
  if (profile_) mark(0, profile_->prepare_ns);
  threads_.run(n_threads_, [](void* self, unsigned t) { static_cast<Run*>(self)->thread(t); }, this);
}

}  // namespace llamay
