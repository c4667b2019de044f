#include "cpu/run/run.hpp"

#include <algorithm>

#include "cpu/run/sharing.hpp"

namespace llamay {

Run::Run(const Plan& plan, const Step& step, Scratch& scratch, Threads& threads, Profile* profile)
    : plan_(plan),
      program_(plan.program_),
      schedule_(plan.schedule_),
      step_(step),
      scratch_(scratch),
      threads_(threads),
      profile_(profile),
      isa_(active_isa()),
      ops_(ops_tables[isa_]),
      matmul_(matmul_tables[isa_]),
      attention_(attention_tables[isa_]) {
  if (profile_) last_mark_ = std::chrono::steady_clock::now();
  bind_leases();
  choose_threads();
  // In a step without outputs, the stages after the last one that writes keys, values or states change
  // nothing.
  n_stages_ = step_.wanted ? schedule_.stages.size() : schedule_.last_keeping;
  plan_attention();
  lay_out();
}

void Run::bind_leases() {
  const LeaseNeeds& needs = lease_needs();
  const std::size_t attentions = needs.attentions.size(), states = needs.states.size();
  if (!step_.n_leases) {
    scratch_.leases.assign(1, {0, static_cast<uint32_t>(step_.rows), 0, nullptr});
    return;
  }
  scratch_.pages.resize(step_.n_leases * attentions);
  scratch_.states.resize(step_.n_leases * states);
  scratch_.leases.resize(step_.n_leases);
  std::size_t row = 0;
  for (std::size_t i = 0; i < step_.n_leases; ++i) {
    const llamay_kv_view* view = step_.leases[i];
    KvPages* pages = scratch_.pages.data() + i * attentions;
    if (view) bind_lease(needs, *view, step_.counts[i], i, pages, scratch_.states.data() + i * states);
    scratch_.leases[i] = {view ? view->n_tokens : 0, step_.counts[i], static_cast<uint32_t>(row), pages};
    row += step_.counts[i];
  }
  if (!needs.none()) check_apart();
}

void Run::check_apart() const {
  // Two leases that write the same page would race; the usual mistake is one context given twice.
  const std::size_t attentions = lease_needs().attentions.size(), states = lease_needs().states.size();
  scratch_.targets.clear();
  for (std::size_t i = 0; i < step_.n_leases; ++i) {
    const auto lease = static_cast<uint32_t>(i);
    if (attentions)
      scratch_.targets.push_back({scratch_.pages[i * attentions].page(scratch_.leases[i].start), lease});
    // Layers of one group have one list of pages.
    const uint8_t* arena = nullptr;
    const int32_t* numbers = nullptr;
    for (std::size_t k = 0; k < states; ++k) {
      const StatePages& s = scratch_.states[i * states + k];
      if (s.arena == arena && s.numbers == numbers) continue;
      arena = s.arena, numbers = s.numbers;
      for (uint32_t at = s.first; at < s.end; ++at) scratch_.targets.push_back({s.page(at), lease});
    }
  }
  std::sort(scratch_.targets.begin(), scratch_.targets.end());
  for (std::size_t i = 1; i < scratch_.targets.size(); ++i)
    if (scratch_.targets[i].first == scratch_.targets[i - 1].first &&
        scratch_.targets[i].second != scratch_.targets[i - 1].second)
      throw std::invalid_argument("leases " + std::to_string(scratch_.targets[i - 1].second) + " and " +
                                  std::to_string(scratch_.targets[i].second) +
                                  " write the same page; give each context once");
}

const AttentionWork::Lease& Run::text_of(std::size_t row) const {
  const auto after =
      std::upper_bound(scratch_.leases.begin(), scratch_.leases.end(), row,
                       [](std::size_t r, const AttentionWork::Lease& lease) { return r < lease.row; });
  return *(after - 1);
}

void Run::choose_threads() {
  work_ = uint64_t{program_.multiplications} * step_.rows;
  for (const Prepared* n : plan_.with_cost_) work_ += n->work->cost(*this, *n);
  n_threads_ = threads_.useful(work_);
  even_shares_ = plan_.split_choice_.even_shares(learns_split());
  copies_ = step_.rows == 1 && step_.wanted <= 1 && n_threads_ > 1 && n_threads_ <= Phase::kMaxThreads;
  if (copies_) ends_ = plan_.speed_shares_.ends(n_threads_);
  scratch_.work.fill({});
}

void Run::plan_attention() {
  const LeaseNeeds& needs = lease_needs();
  scratch_.attention.resize(needs.shapes.size());
  for (std::size_t i = 0; i < needs.shapes.size(); ++i)
    scratch_.attention[i].plan(needs.shapes[i], scratch_.leases, needs.of_shape[i], n_threads_, even_shares_);
  if (needs.whole_shapes.empty()) return;
  scratch_.whole_attention.resize(needs.whole_shapes.size());
  scratch_.plan_whole(needs.whole_shapes);
  for (std::size_t i = 0; i < needs.whole_shapes.size(); ++i)
    scratch_.whole_attention[i].plan_whole(needs.whole_shapes[i], scratch_.leases, n_threads_);
}

void Run::lay_out() {
  std::size_t total = 0, extra_bytes = 0;
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
            take(schedule_.row_bytes[static_cast<std::size_t>(s)] * rows(llamay::selected(s)));
    if (whole_rows) ropes = take(plan_.rope_floats_.back() * sizeof(float) * step_.rows);
  };
  take_spaces(false);
  if (!copies_) take_spaces(true);
  for (const std::vector<AttentionWork>* works : {&scratch_.attention, &scratch_.whole_attention})
    for (const AttentionWork& work : *works) partial_floats = std::max(partial_floats, work.partial_floats);
  for (const Prepared* n : plan_.with_scratch_)
    extra_bytes = std::max(extra_bytes, n->work->scratch(*n, std::max(step_.rows, step_.wanted)));
  const std::size_t partials = take(partial_floats * sizeof(float));
  const std::size_t first_thread = total;
  if (copies_) take_spaces(true);
  const std::size_t attention = take(plan_.attention_scratch_ * sizeof(float));
  const std::size_t product = take(kProductFloats * sizeof(float));
  const std::size_t extra = take(extra_bytes);
  // A cache line lies between two threads' memory, so that a prefetcher does not fetch data that another
  // thread writes.
  thread_floats_ = (total - first_thread + 64) / sizeof(float);

  auto* memory = static_cast<std::byte*>(
      scratch_.memory.at_least(first_thread + thread_floats_ * sizeof(float) * n_threads_));
  const auto floats = [memory](std::size_t at) { return reinterpret_cast<float*>(memory + at); };
  for (std::size_t i = 0; i < kSpaces; ++i) spaces_[i] = memory + spaces[i];
  ropes_ = floats(ropes);
  partials_ = floats(partials);
  first_ = {0, floats(attention), floats(product), memory + extra, 0};

  if (n_threads_ == 1) return;
  const std::size_t phases = kPhasesPerStage * schedule_.stages.size();
  if (scratch_.n_phases < phases) {
    scratch_.phases = std::make_unique<Phase[]>(phases);
    scratch_.n_phases = phases;
  }
  for (std::size_t i = 0; i < phases; ++i) scratch_.phases[i].reset();
}

void Run::run_thread(unsigned t) {
  const std::size_t apart = thread_floats_ * t;
  const ThreadContext thread{t, first_.attention + apart, first_.product + apart,
                             first_.extra + apart * sizeof(float), copies_ ? apart * sizeof(float) : 0};
  if (copies_) return one_row(thread);
  Phase alone[kPhasesPerStage];
  for (std::size_t i = 0; i < n_stages_ && !left_.load(std::memory_order_relaxed); ++i) {
    const Stage& stage = schedule_.stages[i];
    Phase* phases = n_threads_ == 1 ? alone : scratch_.phases.get() + kPhasesPerStage * i;
    if (const std::size_t n = rows(stage.selected); !stage.rows.empty() && n) {
      // A few rows go through all steps of the stage while they are in the cache.
      const std::size_t chunk = std::clamp<std::size_t>(n / (4 * n_threads_), 1, 16);
      share_rows(phases[0], ceil_divide(n, chunk), 1, thread, [&](std::size_t c) {
        const std::size_t from = c * chunk, to = std::min(from + chunk, n);
        if (i == 0) fill_ropes(from, to, thread);
        whole_rows(stage, from, to, thread);
      });
      mark_wait(t);
    }
    if (stage.shared < 0 || !rows(stage.shared_selected)) continue;
    const Prepared& n = plan_.cpu_.nodes[static_cast<std::size_t>(stage.shared)];
    Sharing sharing(*this, phases, thread, n.record);
    if (n.shared())
      n.work->share(*this, stage, n, thread, sharing);
    else
      last_columns(n, thread, sharing);
    mark_wait(t);
  }
}

void Run::body(void* self, unsigned t) { static_cast<Run*>(self)->run_thread(t); }

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
  if (copies_) plan_.speed_shares_.record(n_threads_, scratch_.work.data());
  if (learns_split()) plan_.split_choice_.record(even_shares_, took);
}

void Run::leave() {
  left_.store(true, std::memory_order_relaxed);
  threads_.join(n_threads_, nullptr, this);
}

}  // namespace llamay
