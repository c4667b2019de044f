#include "cpu/run/plan.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cpu/run/background_run.hpp"

namespace llamay {
namespace {

std::string text(std::size_t n) { return std::to_string(n); }

std::vector<WeightShape> shapes(const std::vector<const PackedMatrix*>& weights) {
  std::vector<WeightShape> shapes;
  for (const PackedMatrix* w : weights) shapes.push_back({w->format, w->rows, w->cols});
  return shapes;
}

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

}  // namespace

Plan::Plan(const std::vector<Record>& records, const std::vector<int64_t>& widths,
           const std::vector<const PackedMatrix*>& weights, int64_t max_rows)
    : program_(llamay::check(records, widths, shapes(weights))),
      cpu_(Preparation(program_, weights).run()),
      schedule_(schedule(program_, cpu_.nodes)),
      profile_(records.size()) {
  if (max_rows < 1 || max_rows > 1 << 20)
    throw PlanError("max_rows must be 1 to 1048576, not " + std::to_string(max_rows));
  max_rows_ = static_cast<std::size_t>(max_rows);
  rope_floats_.push_back(0);
  for (const Rope& rope : cpu_.ropes) rope_floats_.push_back(rope_floats_.back() + rope.floats());
  for (const std::vector<AttentionShape>* shapes : {&cpu_.lease_needs.shapes, &cpu_.lease_needs.whole_shapes})
    for (const AttentionShape& s : *shapes)
      attention_scratch_ = std::max(attention_scratch_, attention_scratch(s));
  for (const Prepared& n : cpu_.nodes) {
    if (n.work->cost) with_cost_.push_back(&n);
    if (n.work->scratch) with_scratch_.push_back(&n);
  }
  // Widths are bounded one by one, but a run allocates their sum times its rows.
  constexpr std::size_t most = std::size_t{1} << 44;
  std::size_t row = rope_floats_.back() * sizeof(float);
  for (const std::size_t bytes : schedule_.row_bytes)
    if (__builtin_add_overflow(row, bytes, &row)) row = most + 1;
  if (row > most / max_rows_)
    throw PlanError("a row takes " + text(row) + " bytes between records; with max_rows of " +
                    text(max_rows_) + " that is more than a run can lay out");
}

Plan::~Plan() = default;

void Plan::check(const Step& step) const {
  if (step.rows < 1 || step.rows > max_rows_)
    fail("a run takes 1 to " + text(max_rows_) + " rows, not " + text(step.rows));
  if (step.n_leases || !cpu_.lease_needs.none()) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < step.n_leases; ++i) {
      if (!step.counts[i]) fail("counts[" + text(i) + "] is 0; leave a lease without rows out");
      if (!step.leases[i] && !cpu_.lease_needs.none())
        fail("leases[" + text(i) + "] is none, but this plan keeps something of each context");
      sum += step.counts[i];
    }
    if (sum != step.rows)
      fail("counts add up to " + text(sum) + " but there are " + text(step.rows) + " tokens");
  }
  for (std::size_t i = 0; i < step.n_leases && program_.whole_texts; ++i)
    if (step.leases[i] && step.leases[i]->n_tokens)
      fail("leases[" + text(i) + "] has " + text(step.leases[i]->n_tokens) +
           " tokens already, but rows of this plan read later rows of their text, which has to be one run");
  if (step.types && !program_.types) fail("rows have types, but this plan has no table of types");
  if (step.axes != 1 && step.axes < program_.axes)
    fail("positions have " + text(step.axes) + " axes but the plan turns by " + text(program_.axes));
  for (std::size_t i = 0; i < step.rows; ++i) check_row(step, i);
  for (std::size_t i = 0; i < step.wanted; ++i)
    if (step.logits[i] < 0 || static_cast<std::size_t>(step.logits[i]) >= step.rows)
      fail("logits[" + text(i) + "] is " + std::to_string(step.logits[i]) + " but there are " +
           text(step.rows) + " rows");
}

void Plan::check_row(const Step& step, std::size_t i) const {
  if (step.vectors && step.vectors[i] && !program_.vector_width)
    fail("row " + text(i) + " is a vector, but this plan takes tokens only");
  // A row that is a vector has a token, too, whose embedding is looked up and not used.
  if (program_.vocabulary &&
      (step.tokens[i] < 0 || static_cast<std::size_t>(step.tokens[i]) >= program_.vocabulary))
    fail("tokens[" + text(i) + "] is " + std::to_string(step.tokens[i]) + "; the vocabulary has " +
         text(program_.vocabulary));
  for (std::size_t axis = 0; axis < step.axes; ++axis) {
    const int32_t position = step.positions[i * step.axes + axis];
    const auto name = [&] {
      return "positions[" + text(i) + (step.axes == 1 ? "" : ", " + text(axis)) + "] is ";
    };
    if (axis == 0 && program_.positions && position >= 0 &&
        static_cast<std::size_t>(position) >= program_.positions)
      fail(name() + std::to_string(position) + "; the model has " + text(program_.positions));
    if (position < 0 || position * program_.max_frequency > 0x1p30)
      fail(name() + std::to_string(position) + ", which is out of range");
  }
  if (step.types && program_.types &&
      (step.types[i] < 0 || static_cast<std::size_t>(step.types[i]) >= program_.types))
    fail("types[" + text(i) + "] is " + std::to_string(step.types[i]) + "; the model has " +
         text(program_.types));
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
  BackgroundRun run(*this, step, threads);
  run.begin();
  run.finish();
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
    const Prepared& n = cpu_.nodes[static_cast<std::size_t>(i)];
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
    if (stage.shared >= 0) {
      const Prepared& n = cpu_.nodes[static_cast<std::size_t>(stage.shared)];
      out += " shared " + node(stage.shared);
      for (const Product& p : n.products)
        out += std::string(" ") + traits(p.matrix->format).name + " " + text(p.matrix->rows) + "x" +
               text(p.matrix->cols);
    }
    out += "\n";
  }
  out += "bytes a row: " + text(schedule_.row_bytes[0] + schedule_.row_bytes[2]) +
         ", a row with output: " + text(schedule_.row_bytes[1] + schedule_.row_bytes[3]) + "; weights " +
         text(cpu_.weight_bytes) + " bytes\n";
  return out;
}

}  // namespace llamay
