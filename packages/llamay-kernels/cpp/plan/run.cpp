#include "plan/run.hpp"

#include <algorithm>

namespace llamay {
namespace {

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

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
    scratch_.attention[i].plan(program_.shapes[i], scratch_.leases, plan_.needs_.of_shape[i], n_threads_,
                               shares_);
  lay_out();
}

void Run::bind_leases() {
  const std::size_t layers = plan_.needs_.layers.size();
  scratch_.pages.resize(step_.n_leases * layers);
  scratch_.leases.resize(step_.n_leases);
  std::size_t row = 0;
  for (std::size_t i = 0; i < step_.n_leases; ++i) {
    KvPages* pages = scratch_.pages.data() + i * layers;
    bind_lease(plan_.needs_, *step_.leases[i], step_.counts[i], i, pages);
    scratch_.leases[i] = {step_.leases[i]->n_tokens, step_.counts[i], static_cast<uint32_t>(row), pages};
    row += step_.counts[i];
  }
  if (layers) check_apart();
}

void Run::check_apart() const {
  // Two leases that write the same place would race; the usual mistake is one context given twice.
  const std::size_t layers = plan_.needs_.layers.size();
  scratch_.targets.clear();
  for (std::size_t i = 0; i < step_.n_leases; ++i)
    scratch_.targets.push_back(
        {scratch_.pages[i * layers].page(scratch_.leases[i].start), static_cast<uint32_t>(i)});
  std::sort(scratch_.targets.begin(), scratch_.targets.end());
  for (std::size_t i = 1; i < scratch_.targets.size(); ++i)
    if (scratch_.targets[i].first == scratch_.targets[i - 1].first)
      throw std::invalid_argument("leases " + std::to_string(scratch_.targets[i - 1].second) + " and " +
                                  std::to_string(scratch_.targets[i].second) +
                                  " write the same page; give each context once");
}

void Run::choose_threads() {
  work_ = uint64_t{program_.multiplications} * step_.rows;
  for (const Node& n : program_.nodes)
    if (n.kind == Node::Kind::attention)
      for (std::size_t i = 0; i < step_.n_leases; ++i) {
        const AttentionShape& s = program_.shapes[n.shape];
        const uint32_t end = scratch_.leases[i].start + step_.counts[i];
        const uint64_t seen = s.window ? std::min(s.window, end) : end;
        work_ += seen * step_.counts[i] * s.heads * (s.k_dim + s.v_dim);
      }
  n_threads_ = threads_.useful(work_);
  shares_ = plan_.cutting_.shares(learns_cutting());
  copies_ = step_.rows == 1 && n_threads_ > 1 && n_threads_ <= Phase::kHomes;
  if (copies_) ends_ = plan_.portions_.ends(n_threads_);
  scratch_.work.fill({});
}

void Run::lay_out() {
  std::size_t total = 0;
  const auto take = [&total](std::size_t bytes) {
    const std::size_t at = total;
    total += whole_lines(bytes);
    return at;
  };
  std::size_t spaces[kSpaces], partial_floats = 0, ropes = 0;
  const auto take_spaces = [&](bool whole_rows) {
    for (const Space s : {Space::rows, Space::rows_selected, Space::products, Space::products_selected})
      if (of_whole_rows(s) == whole_rows)
        spaces[static_cast<std::size_t>(s)] =
            take(schedule_.row_bytes[static_cast<std::size_t>(s)] * rows(selected(s)));
    if (whole_rows) ropes = take(plan_.rope_floats_.back() * sizeof(float) * step_.rows);
  };
  take_spaces(false);
  if (!copies_) take_spaces(true);
  for (const AttentionWork& work : scratch_.attention)
    partial_floats = std::max(partial_floats, work.partial_floats);
  const std::size_t partials = take(partial_floats * sizeof(float));
  const std::size_t own = total;
  if (copies_) take_spaces(true);
  const std::size_t attention = take(plan_.attention_scratch_ * sizeof(float));
  const std::size_t product = take(kProductFloats * sizeof(float));
  // A line between them, so that a prefetcher does not fetch what another thread writes.
  own_floats_ = (total - own + 64) / sizeof(float);

  auto* memory =
      static_cast<std::byte*>(scratch_.memory.at_least(own + own_floats_ * sizeof(float) * n_threads_));
  const auto floats = [memory](std::size_t at) { return reinterpret_cast<float*>(memory + at); };
  for (std::size_t i = 0; i < kSpaces; ++i) spaces_[i] = memory + spaces[i];
  ropes_ = floats(ropes);
  partials_ = floats(partials);
  first_ = {0, floats(attention), floats(product), 0};

  if (n_threads_ == 1) return;
  const std::size_t phases = kPhasesPerStage * schedule_.stages.size();
  if (scratch_.n_phases < phases) {
    scratch_.phases = std::make_unique<Phase[]>(phases);
    scratch_.n_phases = phases;
  }
  for (std::size_t i = 0; i < phases; ++i) scratch_.phases[i].reset();
}

std::byte* Run::at(const Place& p, const Own& own) const {
  return spaces_[static_cast<std::size_t>(p.space)] + p.offset * rows(selected(p.space)) +
         (of_whole_rows(p.space) ? own.copy : 0);
}

float* Run::value(int v, const Own& own) const {
  const Place& p = schedule_.places[static_cast<std::size_t>(v)];
  return p.space == Space::output ? step_.out : reinterpret_cast<float*>(at(p, own));
}

std::byte* Run::activation(int a, const Own& own) const {
  const Activation& act = schedule_.activations[static_cast<std::size_t>(a)];
  return act.alias ? reinterpret_cast<std::byte*>(value(act.value, own)) : at(act.place, own);
}

void Run::thread(unsigned t) {
  const std::size_t apart = own_floats_ * t;
  const Own own{t, first_.attention + apart, first_.product + apart, copies_ ? apart * sizeof(float) : 0};
  if (copies_) return one_row(own);
  Phase none;
  for (std::size_t i = 0; i < n_stages_ && !left_.load(std::memory_order_relaxed); ++i) {
    const Stage& stage = schedule_.stages[i];
    Phase* phases = n_threads_ == 1 ? nullptr : scratch_.phases.get() + kPhasesPerStage * i;
    const auto phase = [&](std::size_t k) -> Phase& { return phases ? phases[k] : none; };
    if (const std::size_t n = rows(stage.selected); !stage.rows.empty() && n) {
      // A few rows go through all steps of the stage while they are near.
      const std::size_t chunk = std::clamp<std::size_t>(n / (4 * n_threads_), 1, 16);
      share_rows(phase(0), (n + chunk - 1) / chunk, 1, own, [&](std::size_t c) {
        const std::size_t from = c * chunk, to = std::min(from + chunk, n);
        if (i == 0) fill_ropes(from, to, own);
        whole_rows(stage, from, to, own);
      });
      mark_wait(t);
    }
    if (stage.heavy < 0 || !rows(stage.heavy_selected)) continue;
    const Node& n = program_.nodes[static_cast<std::size_t>(stage.heavy)];
    switch (n.kind) {
      case Node::Kind::attention: {
        const AttentionWork& work = scratch_.attention[n.shape];
        const bool only_write = step_.wanted == 0 && i + 1 == n_stages_;
        if (!work.writes.empty())
          share(phase(1), work.writes.size(), own, [&](std::size_t k) { write(n, work.writes[k], own); });
        const std::size_t units = work.units.size(), items = work.items.size();
        if (scratch_.leases.size() == 1 && units > 1 && work.splits.empty()) {
          // The units of a prompt stand in the order of falling positions.
          share_rows(phase(2), units, items / units, own, [&](std::size_t k) {
            const std::size_t unit = units - 1 - k % units;
            attention(n, unit * (items / units) + k / units, items, own, only_write);
            mark_record(t, n.record);
          });
          break;
        }
        share(phase(2), items, own, [&](std::size_t k) {
          attention(n, k, k + n_threads_, own, only_write);  // threads take turns
          mark_record(t, n.record);
        });
        break;
      }
      case Node::Kind::elementwise:
        share(phase(2), column_items(n), own, [&](std::size_t k) {
          columns(n, k, own);
          mark_record(t, n.record);
        });
        break;
      default: {
        const Cut c = cut(stage, n);
        share_rows(phase(2), c.row_tiles, c.items / c.row_tiles, own, [&](std::size_t k) {
          n.kind == Node::Kind::glu ? glu(stage, n, c, k, own) : linear(stage, n, c, k, own);
          mark_record(t, n.record);
        });
      }
    }
    mark_wait(t);
  }
}

void Run::body(void* self, unsigned t) { static_cast<Run*>(self)->thread(t); }

void Run::post() {
  if (profile_) mark(0, profile_->prepare_ns);
  posted_ = std::chrono::steady_clock::now();
  threads_.post(n_threads_, body, this);
}

bool Run::try_post() {
  if (profile_) mark(0, profile_->prepare_ns);
  posted_ = std::chrono::steady_clock::now();
  return threads_.try_post(n_threads_, body, this);
}

void Run::join() {
  if (profile_) last_mark_ = std::chrono::steady_clock::now();
  threads_.join(n_threads_, body, this);
  if (threads_.size() == 1) return;
  const auto took =
      static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - posted_).count());
  threads_.learn(n_threads_, work_, took, waited_ns_);
  if (copies_) plan_.portions_.did(n_threads_, scratch_.work.data());
  if (learns_cutting()) plan_.cutting_.took(shares_, took);
}

void Run::leave() {
  left_.store(true, std::memory_order_relaxed);
  threads_.join(n_threads_, nullptr, this);
}

}  // namespace llamay
