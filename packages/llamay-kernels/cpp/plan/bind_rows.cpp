#include "plan/bind_rows.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "plan/bind_view.hpp"
#include "plan/running.hpp"
#include "sampling/batch.hpp"
#include "sampling/bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

/// Appends whole numbers of Python as int32.
void append(std::vector<int32_t>& to, nb::handle numbers) {
  for (nb::handle item : numbers) {
    const long token = PyLong_AsLong(item.ptr());
    if (token == -1 && PyErr_Occurred()) throw nb::python_error();
    if (token < 0 || token > 0x7fffffff)
      throw nb::value_error(("tokens must be 0 to 2^31 - 1, not " + std::to_string(token)).c_str());
    to.push_back(static_cast<int32_t>(token));
  }
}

/// The rows of a step as those of each context.
struct Rows {
  std::vector<int32_t> tokens, positions, wanted;
  std::vector<uint32_t> counts;
  std::vector<HeldView> held;
  std::vector<const llamay_kv_view*> views;
  std::vector<llamay_kv_view> later;  // as they are once rows have been computed

  void add(nb::handle lease, nb::handle of, int64_t position, int64_t last) {
    held.emplace_back(lease, held.size());
    const std::size_t begin = tokens.size();
    append(tokens, of);
    const auto n = static_cast<int64_t>(tokens.size() - begin);
    if (last < 0 || last > n)
      throw nb::value_error(("rows[" + std::to_string(counts.size()) + "] wants the last " +
                             std::to_string(last) + " of " + std::to_string(n) + " tokens")
                                .c_str());
    if (position < 0 || position + n > 0x7fffffff)
      throw nb::value_error(
          ("rows[" + std::to_string(counts.size()) + "] begins at position " + std::to_string(position))
              .c_str());
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(position + i));
    for (int64_t i = n - last; i < n; ++i)
      wanted.push_back(static_cast<int32_t>(begin + static_cast<std::size_t>(i)));
    counts.push_back(static_cast<uint32_t>(n));
  }

  /// Makes them those of the step after, with the tokens that were chosen. False, and they stay, unless each
  /// context has one row, one token that is no end, and a position reserved for it.
  bool follow(const std::vector<BatchRow>& work, const std::vector<int64_t>& ends, const float* out,
              std::size_t width) {
    const std::size_t n = views.size();
    if (tokens.size() != n || wanted.size() != n || work.size() != n) return false;
    for (std::size_t i = 0; i < n; ++i)
      if (work[i].token < 0 || work[i].choice.logits != out + i * width || views[i]->n_reserved < 2 ||
          std::find(ends.begin(), ends.end(), work[i].token) != ends.end())
        return false;
    if (later.empty())
      for (const llamay_kv_view* v : views)
        later.push_back(
            {sizeof(llamay_kv_view), v->group_stride, v->n_groups, v->groups, v->n_tokens, v->n_reserved});
    for (std::size_t i = 0; i < n; ++i) {
      ++later[i].n_tokens;
      --later[i].n_reserved;
      views[i] = &later[i];
      tokens[i] = static_cast<int32_t>(work[i].token);
      ++positions[i];
    }
    return true;
  }
};

/// Says from any thread that no further step is to begin by itself.
class Brake {
 public:
  void set(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool on() const { return on_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> on_{false};
};

using ContextRows = std::tuple<nb::object, nb::object, int64_t, int64_t>;

using Chosen = std::tuple<double, std::vector<int64_t>, std::map<std::size_t, std::string>>;
using Followed = std::tuple<double, std::vector<int64_t>, std::map<std::size_t, std::string>, bool>;

/// A step that has begun, and all that it needs until it ends.
class BegunRows {
 public:
  BegunRows(nb::pointer_and_handle<OwnedPlan> plan, const std::vector<ContextRows>& contexts, Matrix out,
            nb::pointer_and_handle<Threads> threads)
      : plan_(nb::borrow(plan.h)),
        owner_(nb::borrow(threads.h)),
        plan_of_(&*plan.p->plan),
        threads_(threads.p),
        out_(out) {
    const Plan& p = *plan_of_;
    for (const auto& [lease, tokens, position, last] : contexts) rows_.add(lease, tokens, position, last);
    for (const HeldView& view : rows_.held) rows_.views.push_back(view.view());
    if (out.shape(0) < rows_.wanted.size() || out.shape(1) != p.output_width())
      throw nb::value_error(("out is " + std::to_string(out.shape(0)) + " x " + std::to_string(out.shape(1)) +
                             "; it must be at least " + std::to_string(rows_.wanted.size()) + " x " +
                             std::to_string(p.output_width()))
                                .c_str());
  }

  void begin() {
    began_ = std::chrono::steady_clock::now();
    running_.emplace(*plan_of_, step(), *threads_);
    if (running_->try_begin()) return;
    const nb::gil_scoped_release nogil;  // who has the threads may want it to go on
    running_->begin();
  }

  std::vector<BatchRow> work(const std::vector<Draw>& draws) const {
    std::vector<BatchRow> work;
    work.reserve(draws.size());
    for (const Draw& draw : draws)
      work.push_back(batch_row(draw, out_.data(), rows_.wanted.size(), out_.shape(1)));
    return work;
  }

  Followed complete(std::vector<BatchRow> work, const Brake* brake, const std::vector<int64_t>& ends) {
    std::chrono::duration<double> took{};
    bool followed = false;
    {
      const nb::gil_scoped_release nogil;
      running_->finish();
      took = std::chrono::steady_clock::now() - began_;
      sample_rows(work, threads_);
      followed = brake && !brake->on() && rows_.follow(work, ends, out_.data(), out_.shape(1)) && follow();
    }
    if (!followed) end();
    auto [tokens, errors] = results(work);
    return {took.count(), std::move(tokens), std::move(errors), followed};
  }

  Followed finish(const std::vector<Draw>& draws, std::optional<const Brake*> brake,
                  const std::vector<int64_t>& ends) {
    if (!running_) throw std::runtime_error("this step has ended");
    return complete(work(draws), brake.value_or(nullptr), ends);
  }

  void leave() {
    if (running_) {
      const nb::gil_scoped_release nogil;
      running_->leave();
    }
    end();
  }

 private:
  /// Begins the step whose rows there now are; without the GIL.
  bool follow() {
    try {
      running_.reset();
      began_ = std::chrono::steady_clock::now();
      running_.emplace(*plan_of_, step(), *threads_);
      if (running_->try_begin()) return true;
    } catch (const std::exception&) {  // what is wrong will be told when the step is begun by itself
    }
    running_.reset();
    return false;
  }

  Step step() {
    return {rows_.tokens.data(), rows_.positions.data(), rows_.tokens.size(),
            rows_.views.data(),  rows_.counts.data(),    rows_.views.size(),
            rows_.wanted.data(), rows_.wanted.size(),    out_.data()};
  }

  /// Gives the views back: only then do leases know that nobody writes any more.
  void end() {
    running_.reset();
    rows_ = {};
  }

  nb::object plan_, owner_;
  const Plan* plan_of_;
  Threads* threads_;
  Matrix out_;
  Rows rows_;
  std::chrono::steady_clock::time_point began_;
  std::optional<Running> running_;  // last: it goes first
};

Chosen run_rows(nb::pointer_and_handle<OwnedPlan> plan, const std::vector<ContextRows>& contexts, Matrix out,
                nb::pointer_and_handle<Threads> threads, const std::vector<Draw>& draws) {
  BegunRows step(plan, contexts, out, threads);
  std::vector<BatchRow> work = step.work(draws);
  step.begin();
  auto [seconds, tokens, errors, followed] = step.complete(std::move(work), nullptr, {});
  return {seconds, std::move(tokens), std::move(errors)};
}

}  // namespace

void bind_rows(nb::module_& m, nb::class_<OwnedPlan>& plan) {
  nb::class_<Brake>(m, "Brake",
                    "Says, from any thread, that no step is to begin after another by itself: "
                    "BegunRows.finish looks at it.")
      .def(nb::init<>())
      .def("set", &Brake::set, "on"_a = true)
      .def_prop_ro("on", &Brake::on);
  nb::class_<BegunRows>(
      m, "BegunRows",
      "A step that has begun: the other threads are at it. Their jobs for others wait until it ends, by "
      "`finish`, `leave` or with\n"
      "this object.")
      .def(
          "finish", &BegunRows::finish, "draws"_a = nb::make_tuple(), "brake"_a = nb::none(),
          "ends"_a = nb::make_tuple(),
          nb::sig("def finish(self, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], "
                  "dict(shape=(None,), order='C', device='cpu', writable=False)] | None, "
                  "Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', "
                  "writable=False)] | None]] = (), brake: Brake | None = None, ends: Sequence[int] = ()) "
                  "-> tuple[float, list[int], dict[int, str], bool]"),
          "Help, wait for the end, and choose tokens; returns what run_rows returns, its seconds counted "
          "from when the step\n"
          "began, and whether this is now the step after. It is if there is a brake and that is not set, if "
          "each context had one row,\n"
          "from which one token was drawn, in the same order, that is none of `ends`, and if its lease has "
          "another position for that:\n"
          "then the other threads have begun it when this returns. Raises RuntimeError if it has ended.")
      .def("leave", &BegunRows::leave,
           "End it early: its outputs, and what it wrote to reserved positions, mean nothing. Returns when "
           "nobody writes any more.");
  plan.def("run_rows", &run_rows, "rows"_a, "out"_a.noconvert(), "threads"_a, "draws"_a = nb::make_tuple(),
           nb::sig(
               "def run_rows(self, rows: Sequence[tuple[object, Sequence[int], int, int]], out: "
               "Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], "
               "threads: Threads, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], "
               "dict(shape=(None,), order='C', device='cpu', writable=False)] | None, "
               "Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', "
               "writable=False)] | None]] = ()) -> tuple[float, list[int], dict[int, str]]"),
           "Compute one step, and choose tokens from what it made, in one call with the GIL released.\n\n"
           "rows: for each context (lease, the next tokens, position of the first, how many of the last want "
           "an output).\n"
           "out: float32 (at least so many, output_width); outputs are written in order. draws: (sampler, "
           "number of the output,\n"
           "position, history, mask) for each token that is to be chosen, as in sample_batch.\n\n"
           "Returns the seconds of the run, and what sample_batch returns. Raises what run raises, before "
           "anything is written.")
      .def(
          "begin_rows",
          [](nb::pointer_and_handle<OwnedPlan> self, const std::vector<ContextRows>& rows, Matrix out,
             nb::pointer_and_handle<Threads> threads) {
            auto step = std::make_unique<BegunRows>(self, rows, out, threads);
            step->begin();
            return step;
          },
          "rows"_a, "out"_a.noconvert(), "threads"_a,
          nb::sig("def begin_rows(self, rows: Sequence[tuple[object, Sequence[int], int, int]], out: "
                  "Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], "
                  "threads: Threads) -> BegunRows"),
          "Have the other threads begin a step, and return at once, so that the caller can do something "
          "else before it helps:\n"
          "begin_rows and finish are run_rows. Raises what run_rows raises, before anything is written.");
}

}  // namespace llamay
