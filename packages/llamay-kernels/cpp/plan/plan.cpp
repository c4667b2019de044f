#include "plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "plan/running.hpp"

namespace llamay {
namespace {

std::string text(std::size_t n) { return std::to_string(n); }

}  // namespace

Plan::Plan(const std::vector<Record>& records, const std::vector<int64_t>& widths,
           const std::vector<const PackedMatrix*>& weights, int64_t max_rows)
    : program_(llamay::check(records, widths, weights)),
      schedule_(schedule(program_)),
      needs_(program_),
      profile_(records.size()) {
  if (max_rows < 1 || max_rows > 1 << 20)
    throw PlanError("max_rows must be 1 to 1048576, not " + std::to_string(max_rows));
  max_rows_ = static_cast<std::size_t>(max_rows);
  rope_floats_.push_back(0);
  for (const Rope& rope : program_.ropes) {
    rope_floats_.push_back(rope_floats_.back() + rope.floats());
    for (const double f : rope.freqs) max_frequency_ = std::max(max_frequency_, std::abs(f));
  }
  for (const AttentionShape& s : program_.shapes)
    attention_scratch_ = std::max(attention_scratch_, attention_scratch(s));
}

Plan::~Plan() = default;

void Plan::check(const Step& step) const {
  const auto fail = [](const std::string& what) { throw std::invalid_argument(what); };
  if (step.rows < 1 || step.rows > max_rows_)
    fail("a run takes 1 to " + text(max_rows_) + " rows, not " + text(step.rows));
  if (step.n_leases || !needs_.layers.empty()) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < step.n_leases; ++i) {
      if (!step.counts[i]) fail("counts[" + text(i) + "] is 0; leave a lease without rows out");
      sum += step.counts[i];
    }
    if (sum != step.rows)
      fail("counts add up to " + text(sum) + " but there are " + text(step.rows) + " tokens");
  }
  for (std::size_t i = 0; i < step.rows; ++i) {
    if (program_.vocabulary &&
        (step.tokens[i] < 0 || static_cast<std::size_t>(step.tokens[i]) >= program_.vocabulary))
      fail("tokens[" + text(i) + "] is " + std::to_string(step.tokens[i]) + "; the vocabulary has " +
           text(program_.vocabulary));
    if (program_.positions && step.positions[i] >= 0 &&
        static_cast<std::size_t>(step.positions[i]) >= program_.positions)
      fail("positions[" + text(i) + "] is " + std::to_string(step.positions[i]) + "; the model has " +
           text(program_.positions));
    if (step.positions[i] < 0 || step.positions[i] * max_frequency_ > 0x1p30)
      fail("positions[" + text(i) + "] is " + std::to_string(step.positions[i]) + ", which is out of range");
  }
  for (std::size_t i = 0; i < step.wanted; ++i)
    if (step.logits[i] < 0 || static_cast<std::size_t>(step.logits[i]) >= step.rows)
      fail("logits[" + text(i) + "] is " + std::to_string(step.logits[i]) + " but there are " +
           text(step.rows) + " rows");
}

std::unique_ptr<Scratch> Plan::borrow() const {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  if (idle_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(idle_.back());
  idle_.pop_back();
  return scratch;
}

void Plan::give_back(std::unique_ptr<Scratch> scratch) const noexcept {
  const std::lock_guard<std::mutex> lock(idle_mutex_);
  try {
    idle_.push_back(std::move(scratch));
  } catch (const std::bad_alloc&) {
    scratch.reset();
  }
}

void Plan::run(const Step& step, Threads& threads) const {
  Running running(*this, step, threads);
  running.begin();
  running.finish();
}

void Plan::count(const Profile& of_run) const {
  const std::lock_guard<std::mutex> lock(profile_mutex_);
  for (std::size_t i = 0; i < of_run.record_ns.size(); ++i) profile_.record_ns[i] += of_run.record_ns[i];
  profile_.prepare_ns += of_run.prepare_ns;
  profile_.wait_ns += of_run.wait_ns;
  profile_.total_ns += of_run.total_ns;
  ++profile_.runs;
}

void Plan::measure(bool on) {
  const std::lock_guard<std::mutex> lock(profile_mutex_);
  profile_ = Profile(program_.ops.size());
  measuring_.store(on, std::memory_order_relaxed);
}

Profile Plan::measured() const {
  const std::lock_guard<std::mutex> lock(profile_mutex_);
  return profile_;
}

std::string Plan::describe() const {
  std::string out;
  const auto node = [this](int i) {
    const Node& n = program_.nodes[static_cast<std::size_t>(i)];
    return program_.ops[static_cast<std::size_t>(n.record)] + "[" + std::to_string(n.record) + "]";
  };
  for (std::size_t i = 0; i < schedule_.stages.size(); ++i) {
    const Stage& stage = schedule_.stages[i];
    out += text(i) + ":";
    for (const RowStep& step : stage.rows) {
      if (step.node >= 0) {
        out += " " + node(step.node);
      } else {
        static constexpr const char* kinds[] = {"f32", "q8_32", "q8_256"};
        const Activation& a = schedule_.activations[static_cast<std::size_t>(step.activation)];
        out +=
            std::string(" ") + kinds[static_cast<std::size_t>(a.kind)] + "(" + std::to_string(a.value) + ")";
      }
      out += ";";
    }
    if (stage.heavy >= 0) {
      const Node& n = program_.nodes[static_cast<std::size_t>(stage.heavy)];
      out += " shared " + node(stage.heavy);
      for (const Product& p : n.products)
        out += std::string(" ") + traits(p.matrix->format).name + " " + text(p.matrix->rows) + "x" +
               text(p.matrix->cols);
    }
    out += "\n";
  }
  out += "bytes a row: " + text(schedule_.row_bytes[0] + schedule_.row_bytes[2]) +
         ", a row with output: " + text(schedule_.row_bytes[1] + schedule_.row_bytes[3]) + "; weights " +
         text(program_.weight_bytes) + " bytes\n";
  return out;
}

}  // namespace llamay
