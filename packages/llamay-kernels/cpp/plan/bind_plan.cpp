#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "matmul/weight.hpp"
#include "plan/bind.hpp"
#include "plan/bind_view.hpp"
#include "plan/plan.hpp"
#include "sampling/batch.hpp"
#include "sampling/bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Integers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// A plan and what keeps its weights alive.
struct OwnedPlan {
  std::vector<nb::object> weights;
  std::optional<Plan> plan;
};

[[noreturn]] void fail(std::size_t record, const std::string& op, const std::string& what) {
  throw PlanError("record " + std::to_string(record) + " (" + op + "): " + what);
}

Attr to_attr(nb::handle value, std::size_t record, const std::string& op, const std::string& name) {
  PyObject* p = value.ptr();
  try {
    if (PyUnicode_Check(p)) return nb::cast<std::string>(value);
    if (PyFloat_Check(p)) return nb::cast<double>(value);
    if (PyLong_Check(p) || (PyIndex_Check(p) && !PySequence_Check(p)))
      return nb::cast<int64_t>(nb::module_::import_("operator").attr("index")(value));
    if (PySequence_Check(p)) {
      std::vector<double> numbers;
      for (nb::handle item : value) numbers.push_back(nb::cast<double>(nb::float_(item)));
      return numbers;
    }
    return nb::cast<double>(nb::float_(value));  // a numpy scalar
  } catch (const nb::cast_error&) {
  } catch (const nb::python_error&) {
  }
  fail(record, op, "attribute '" + name + "' is neither a number, a string nor a list of numbers");
}

Record to_record(nb::handle from, std::size_t index) {
  Record r;
  const auto part = [&](std::size_t i, const char* name) -> nb::object {
    if (PyTuple_CheckExact(from.ptr())) {
      if (nb::len(from) != 5)
        throw PlanError("record " + std::to_string(index) + " has " + std::to_string(nb::len(from)) +
                        " parts; it needs op, outs, args, weights, attrs");
      return from[i];
    }
    if (!nb::hasattr(from, name)) throw PlanError("record " + std::to_string(index) + " lacks " + name);
    return from.attr(name);
  };
  const nb::object op = part(0, "op");
  if (!PyUnicode_Check(op.ptr()))
    throw PlanError("record " + std::to_string(index) + ": op must be a string");
  r.op = nb::cast<std::string>(op);
  const auto integers = [&](std::size_t i, const char* name) {
    std::vector<int64_t> out;
    try {
      out = nb::cast<std::vector<int64_t>>(part(i, name));
    } catch (const nb::cast_error&) {
      fail(index, r.op, std::string(name) + " must be a sequence of whole numbers");
    }
    return out;
  };
  r.outs = integers(1, "outs");
  r.args = integers(2, "args");
  r.weights = integers(3, "weights");
  const nb::object attrs = part(4, "attrs");
  if (!PyMapping_Check(attrs.ptr())) fail(index, r.op, "attrs must be a mapping");
  for (nb::handle item : attrs.attr("items")()) {
    const std::string name = nb::cast<std::string>(nb::str(item[0]));
    r.attrs[name] = to_attr(item[1], index, r.op, name);
  }
  return r;
}

void make_plan(OwnedPlan* self, nb::typed<nb::iterable, nb::object> records, std::vector<int64_t> widths,
               nb::typed<nb::iterable, Weight> weights, int64_t max_rows) {
  std::vector<Record> list;
  for (nb::handle r : records) list.push_back(to_record(r, list.size()));
  std::vector<const PackedMatrix*> matrices;
  std::vector<nb::object> owners;
  for (nb::handle w : weights) {
    const Weight* weight = nullptr;
    if (!nb::try_cast(w, weight) || !weight)
      throw nb::type_error(("weights[" + std::to_string(owners.size()) + "] is not a Weight").c_str());
    matrices.push_back(&weight->matrix);
    owners.push_back(nb::borrow(w));
  }
  new (self) OwnedPlan;
  try {
    self->weights = std::move(owners);
    self->plan.emplace(list, widths, matrices, max_rows);
  } catch (...) {
    self->~OwnedPlan();
    throw;
  }
}

void run(OwnedPlan& self, Integers tokens, Integers positions, nb::typed<nb::sequence, nb::object> leases,
         const std::vector<uint32_t>& counts, Integers logits, Matrix out, Threads& threads) {
  const Plan& plan = *self.plan;
  if (positions.shape(0) != tokens.shape(0))
    throw nb::value_error(("there are " + std::to_string(tokens.shape(0)) + " tokens but " +
                           std::to_string(positions.shape(0)) + " positions")
                              .c_str());
  if (out.shape(0) != logits.shape(0) || out.shape(1) != plan.output_width())
    throw nb::value_error(("out is " + std::to_string(out.shape(0)) + " x " + std::to_string(out.shape(1)) +
                           "; it must be len(logits) x output_width, " + std::to_string(logits.shape(0)) +
                           " x " + std::to_string(plan.output_width()))
                              .c_str());
  std::vector<HeldView> held;
  std::vector<const llamay_kv_view*> views;
  for (nb::handle lease : leases) {
    held.emplace_back(lease, held.size());
    views.push_back(held.back().view());
  }
  if (views.size() != counts.size())
    throw nb::value_error(("there are " + std::to_string(views.size()) + " leases but " +
                           std::to_string(counts.size()) + " counts")
                              .c_str());
  const Step step{tokens.data(), positions.data(), tokens.shape(0), views.data(), counts.data(),
                  views.size(),  logits.data(),    logits.shape(0), out.data()};
  nb::gil_scoped_release nogil;
  plan.run(step, threads);
}

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
};

using ContextRows = std::tuple<nb::object, nb::object, int64_t, int64_t>;

std::tuple<double, std::vector<int64_t>, std::map<std::size_t, std::string>> run_rows(
    OwnedPlan& self, const std::vector<ContextRows>& contexts, Matrix out, Threads& threads,
    const std::vector<Draw>& draws) {
  const Plan& plan = *self.plan;
  Rows rows;
  for (const auto& [lease, tokens, position, last] : contexts) rows.add(lease, tokens, position, last);
  for (const HeldView& view : rows.held) rows.views.push_back(view.view());
  if (out.shape(0) < rows.wanted.size() || out.shape(1) != plan.output_width())
    throw nb::value_error(("out is " + std::to_string(out.shape(0)) + " x " + std::to_string(out.shape(1)) +
                           "; it must be at least " + std::to_string(rows.wanted.size()) + " x " +
                           std::to_string(plan.output_width()))
                              .c_str());
  std::vector<BatchRow> work;
  work.reserve(draws.size());
  for (const Draw& draw : draws)
    work.push_back(batch_row(draw, out.data(), rows.wanted.size(), out.shape(1)));
  const Step step{rows.tokens.data(), rows.positions.data(), rows.tokens.size(),
                  rows.views.data(),  rows.counts.data(),    rows.views.size(),
                  rows.wanted.data(), rows.wanted.size(),    out.data()};
  const nb::gil_scoped_release nogil;
  const auto began = std::chrono::steady_clock::now();
  plan.run(step, threads);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  sample_rows(work, &threads);
  auto [tokens, errors] = results(work);
  return {took.count(), std::move(tokens), std::move(errors)};
}

nb::typed<nb::dict, nb::str, nb::any> profile(const OwnedPlan& self) {
  const Profile p = self.plan->measured();
  nb::dict by_operation;
  nb::list by_record;
  const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const std::vector<std::string>& operations = self.plan->operations();
  for (std::size_t i = 0; i < p.record_ns.size(); ++i) {
    by_record.append(seconds(p.record_ns[i]));
    const nb::str name(operations[i].c_str());
    by_operation[name] =
        (by_operation.contains(name) ? nb::cast<double>(by_operation[name]) : 0.0) + seconds(p.record_ns[i]);
  }
  nb::dict out;
  out["runs"] = p.runs;
  out["total"] = seconds(p.total_ns);
  out["prepare"] = seconds(p.prepare_ns);
  out["wait"] = seconds(p.wait_ns);
  out["operations"] = by_operation;
  out["records"] = by_record;
  return out;
}

}  // namespace
}  // namespace llamay

void bind_plan(nb::module_& m) {
  using namespace llamay;
  nb::exception<PlanError>(m, "PlanError", PyExc_ValueError).attr("__doc__") =
      "A plan that cannot be made: the message names the record and says what is wrong with it.";

  nb::class_<Threads>(m, "Threads",
                      "A pool of threads; whoever calls is one of them. Asleep, it costs nothing.\n\n"
                      "n: 1 to 1024, more than there are cores is allowed. grain: how many multiplications "
                      "are worth one more\n"
                      "thread; small steps use fewer than n, 0 always uses all. Results never depend on "
                      "either. Does not survive a fork:\n"
                      "a child that uses it gets a RuntimeError and makes its own.")
      .def(nb::init<unsigned, uint64_t>(), "n"_a, "grain"_a = 500'000)
      .def_prop_ro("n", &Threads::size, "How many threads, the caller's included.")
      .def_prop_ro("grain", &Threads::grain, "Multiplications that are worth one more thread.")
      .def("__repr__", [](const Threads& t) { return "Threads(" + std::to_string(t.size()) + ")"; });

  nb::class_<OwnedPlan>(
      m, "Plan",
      "A list of records, prepared once and replayed for every step (docs/plan.md).\n\n"
      "records: objects with op, outs, args, weights, attrs, or tuples of these. widths: float32 numbers a "
      "row\n"
      "of each value. weights: Weight objects, kept alive. max_rows: the most rows of one run.\n\n"
      "Immutable; runs of one plan may overlap, each takes memory of its own and returns it for the next.\n"
      "Raises PlanError naming the record.")
      .def("__init__", &make_plan, "records"_a, "widths"_a, "weights"_a, nb::kw_only(), "max_rows"_a)
      .def_prop_ro(
          "output_width", [](const OwnedPlan& p) { return p.plan->output_width(); },
          "Columns of a run's out.")
      .def_prop_ro(
          "max_rows", [](const OwnedPlan& p) { return p.plan->max_rows(); }, "The most rows of one run.")
      .def(
          "describe", [](const OwnedPlan& p) { return p.plan->describe(); },
          "How the records became work: a line for each stage between which threads wait for each other.")
      .def("run", &run, "tokens"_a.noconvert(), "positions"_a.noconvert(), "leases"_a, "counts"_a,
           "logits"_a.noconvert(), "out"_a.noconvert(), "threads"_a,
           "Compute one step, with the GIL released.\n\n"
           "tokens: int32 (n,), n <= max_rows. positions: int32 (n,), for the rotations. leases: one for "
           "each context in the step,\n"
           "objects with __llamay_kv_view__; counts: how many of the rows are the next positions of each, in "
           "order.\n"
           "logits: int32 (m,), the rows whose output is wanted; may be empty. out: float32 (m, "
           "output_width), written.\n\n"
           "Writes keys and values into the leases' reserved positions; committing them is the caller's. "
           "Raises ValueError for\n"
           "arguments that do not fit each other or the plan, BufferError for a view of another version, "
           "TypeError for an object\n"
           "without one. After an error nothing was written.")
      .def("run_rows", &run_rows, "rows"_a, "out"_a.noconvert(), "threads"_a, "draws"_a = nb::make_tuple(),
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
          "measure", [](OwnedPlan& p, bool on) { p.plan->measure(on); }, "on"_a = true,
          "Start or stop measuring where runs spend their time; forgets what was measured.")
      .def("profile", &profile,
           "Seconds since measure(): runs, total, prepare, wait (at barriers), by operation and by record,\n"
           "as the calling thread saw them.");
}
