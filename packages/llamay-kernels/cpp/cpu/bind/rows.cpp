#include "cpu/bind/rows.hpp"

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

#include "cpu/bind/step_rows.hpp"
#include "cpu/run/background_run.hpp"
#include "sampling/batch.hpp"
#include "sampling/bind/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

/// A flag that any thread may set: no further step is to begin by itself.
class Brake {
 public:
  void set(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool on() const { return on_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> on_{false};
};

using Chosen = std::tuple<double, std::vector<int64_t>, std::map<std::size_t, std::string>>;
using Followed = std::tuple<double, std::vector<int64_t>, std::map<std::size_t, std::string>, bool>;

/// A step that has begun, and all objects that it needs until it ends.
class BegunRows {
 public:
  BegunRows(nb::pointer_and_handle<OwnedPlan> plan, nb::handle texts, Matrix out,
            nb::pointer_and_handle<Threads> threads)
      : plan_(nb::borrow(plan.h)),
        owner_(nb::borrow(threads.h)),
        plan_of_(&*plan.p->plan),
        threads_(threads.p),
        out_(out) {
    const Plan& p = *plan_of_;
    rows_.take(texts, p);
    if (out.shape(0) < rows_.wanted() || out.shape(1) != p.output_width())
      throw nb::value_error(("out is " + std::to_string(out.shape(0)) + " x " + std::to_string(out.shape(1)) +
                             "; it must be at least " + std::to_string(rows_.wanted()) + " x " +
                             std::to_string(p.output_width()))
                                .c_str());
  }

  void begin() {
    began_ = std::chrono::steady_clock::now();
    run_.emplace(*plan_of_, step(), *threads_);
    if (run_->try_begin()) return;
    const nb::gil_scoped_release nogil;  // the caller that has the threads may need the GIL to go on
    run_->begin();
  }

  std::vector<BatchRow> work(const std::vector<Draw>& draws) const {
    std::vector<BatchRow> work;
    work.reserve(draws.size());
    for (const Draw& draw : draws)
      work.push_back(batch_row(draw, out_.data(), rows_.wanted(), out_.shape(1)));
    return work;
  }

  Followed complete(std::vector<BatchRow> work, const Brake* brake, const std::vector<int64_t>& ends) {
    std::chrono::duration<double> took{};
    bool followed = false;
    {
      const nb::gil_scoped_release nogil;
      run_->finish();
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
    if (!run_) throw std::runtime_error("this step has ended");
    std::vector<BatchRow> rows = work(draws);
    const Ending ending(*this);
    return complete(std::move(rows), brake.value_or(nullptr), ends);
  }

  void leave() {
    const Ending ending(*this);
    if (run_) {
      const nb::gil_scoped_release nogil;
      run_->leave();
    }
    end();
  }

 private:
  /// Guards that one thread at a time ends a step. Constructed and destroyed with the GIL held, which is
  /// released in between.
  class Ending {
   public:
    explicit Ending(BegunRows& step) : step_(step) {
      if (step.ending_) throw std::runtime_error("another thread is ending this step");
      step.ending_ = true;
    }
    ~Ending() { step_.ending_ = false; }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    BegunRows& step_;
  };

  /// Begins the next step, whose rows are in rows_. Called without the GIL.
  bool follow() {
    try {
      run_.reset();
      began_ = std::chrono::steady_clock::now();
      run_.emplace(*plan_of_, step(), *threads_);
      if (run_->try_begin()) return true;
    } catch (const std::exception&) {  // the error will be raised when the caller begins the step itself
    }
    run_.reset();
    return false;
  }

  Step step() { return rows_.step(out_.data()); }

  /// Releases the views: only then do leases know that no thread writes any more.
  void end() {
    run_.reset();
    rows_ = {};
  }

  nb::object plan_, owner_;
  const Plan* plan_of_;
  Threads* threads_;
  Matrix out_;
  StepRows rows_;
  std::chrono::steady_clock::time_point began_;
  bool ending_ = false;
  std::optional<BackgroundRun> run_;  // the last member: destroyed first
};

Chosen run_rows(nb::pointer_and_handle<OwnedPlan> plan, nb::typed<nb::sequence, nb::object> texts, Matrix out,
                nb::pointer_and_handle<Threads> threads, const std::vector<Draw>& draws) {
  BegunRows step(plan, texts, out, threads);
  std::vector<BatchRow> work = step.work(draws);
  step.begin();
  auto [seconds, tokens, errors, followed] = step.complete(std::move(work), nullptr, {});
  return {seconds, std::move(tokens), std::move(errors)};
}

}  // namespace

void bind_rows(nb::module_& m, nb::class_<OwnedPlan>& plan) {
  nb::class_<Brake>(
      m, "Brake",
      "A flag that any thread may set, so that BegunRows.finish begins no further step by itself.")
      .def(nb::init<>())
      .def("set", &Brake::set, "on"_a = true)
      .def_prop_ro("on", &Brake::on);
  nb::class_<BegunRows>(m, "BegunRows",
                        "A step that has begun: the other threads work on it. Jobs of other callers wait "
                        "until it ends, by `finish`,\nby `leave` or with this object.")
      .def(
          "finish", &BegunRows::finish, "draws"_a = nb::make_tuple(), "brake"_a = nb::none(),
          "ends"_a = nb::make_tuple(),
          nb::sig("def finish(self, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], "
                  "dict(shape=(None,), order='C', device='cpu', writable=False)] | None, "
                  "Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', "
                  "writable=False)] | None]] = (), brake: Brake | None = None, ends: Sequence[int] = ()) "
                  "-> tuple[float, list[int], dict[int, str], bool]"),
          "Help, wait for the end, and choose tokens. Returns the results of run_rows, with the seconds "
          "counted from when\nthe step began, and whether this object is now the next step. It is if a brake "
          "is given and not set, each context\nhad one row, one token was drawn from each row, in the same "
          "order and none of `ends`, and each lease has another\nposition for it: then the other threads "
          "have begun the next step when this returns. Raises RuntimeError if it has ended.")
      .def("leave", &BegunRows::leave,
           "Abandon the step: its outputs, and the contents of reserved positions, are undefined. Returns "
           "when no thread\nwrites any more.");
  plan.def("run_rows", &run_rows, "rows"_a, "out"_a.noconvert(), "threads"_a, "draws"_a = nb::make_tuple(),
           nb::sig(
               "def run_rows(self, rows: Sequence[tuple[object | None, Sequence[int], int, int] | "
               "tuple[object | None, Sequence[int], int, int, Mapping[str, Any] | None]], out: "
               "Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], "
               "threads: Threads, draws: Sequence[tuple[Sampler, int, int, Annotated[NDArray[numpy.int32], "
               "dict(shape=(None,), order='C', device='cpu', writable=False)] | None, "
               "Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', "
               "writable=False)] | None]] = ()) -> tuple[float, list[int], dict[int, str]]"),
           "Compute one step, and choose tokens from its outputs, in one call with the GIL released.\n\n"
           "rows: for each context (lease, the next tokens, position of the first, how many of the last want "
           "an output), and\n"
           "perhaps a mapping with `vectors`: (int32 (m,), rows counted from the text's first, increasing; "
           "float32 (m, vector_width))\n"
           "of rows that are no tokens, `types`: int32 (n,), and `positions`: int32 (n, axes), which "
           "rotations "
           "turn by. The lease\n"
           "is None where the plan keeps nothing.\n"
           "out: float32 (at least so many, output_width); outputs are written in order. draws: (sampler, "
           "number of the output,\n"
           "position, history, mask) for each token that is to be chosen, as in sample_batch.\n\n"
           "Returns the seconds of the run, and the results of sample_batch. Raises the errors of run, "
           "before anything is written.")
      .def(
          "begin_rows",
          [](nb::pointer_and_handle<OwnedPlan> self, nb::typed<nb::sequence, nb::object> rows, Matrix out,
             nb::pointer_and_handle<Threads> threads) {
            auto step = std::make_unique<BegunRows>(self, rows, out, threads);
            step->begin();
            return step;
          },
          "rows"_a, "out"_a.noconvert(), "threads"_a,
          nb::sig("def begin_rows(self, rows: Sequence[tuple[object | None, Sequence[int], int, int] | "
                  "tuple[object | None, Sequence[int], int, int, Mapping[str, Any] | None]], out: "
                  "Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], "
                  "threads: Threads) -> BegunRows"),
          "Have the other threads begin a step, and return at once, so that the caller can do something "
          "else before it helps:\n"
          "begin_rows and then finish do the same as run_rows. Raises the errors of run_rows, before "
          "anything is written.");
}

}  // namespace llamay
