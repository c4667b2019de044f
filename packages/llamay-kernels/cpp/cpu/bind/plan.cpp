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

#include "cpu/bind/bindings.hpp"
#include "cpu/bind/rows.hpp"
#include "cpu/bind/view.hpp"
#include "matmul/bind/weight.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Integers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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
      "A plan that cannot be made; the message names the record and its error.";

  nb::class_<Threads>(m, "Threads",
                      "A pool of threads; the calling thread is one of them. An idle pool costs nothing.\n\n"
                      "n: 1 to 1024, more than there are cores is allowed. grain: how many multiplications "
                      "are worth one more\n"
                      "thread; small steps use fewer than n, 0 always uses all. Results never depend on "
                      "either. Does not survive a fork:\n"
                      "a child process that uses it gets a RuntimeError and has to make its own.")
      .def(nb::init<unsigned, uint64_t>(), "n"_a, "grain"_a = 500'000)
      .def_prop_ro("n", &Threads::size, "How many threads, the caller's included.")
      .def_prop_ro("grain", &Threads::grain, "Multiplications that are worth one more thread.")
      .def("__repr__", [](const Threads& t) { return "Threads(" + std::to_string(t.size()) + ")"; });

  nb::class_<OwnedPlan> plan(
      m, "Plan",
      "A list of records, prepared once and replayed for every step (docs/plan.md).\n\n"
      "records: objects with op, outs, args, weights, attrs, or tuples of these. widths: float32 numbers a "
      "row\n"
      "of each value. weights: Weight objects, kept alive. max_rows: the most rows of one run.\n\n"
      "Immutable; runs of one plan may overlap, each takes memory of its own and returns it for the next.\n"
      "Raises PlanError naming the record.");
  plan.def("__init__", &make_plan, "records"_a, "widths"_a, "weights"_a, nb::kw_only(), "max_rows"_a)
      .def_prop_ro(
          "output_width", [](const OwnedPlan& p) { return p.plan->output_width(); },
          "Columns of a run's out.")
      .def_prop_ro(
          "max_rows", [](const OwnedPlan& p) { return p.plan->max_rows(); }, "The most rows of one run.")
      .def_prop_ro(
          "vector_width", [](const OwnedPlan& p) { return p.plan->vector_width(); },
          "Width of the vector that a row may have in place of a token; 0 where the plan takes tokens only.")
      .def_prop_ro(
          "whole_texts", [](const OwnedPlan& p) { return p.plan->whole_texts(); },
          "Whether rows read later rows of their text, so that a text has to be one run.")
      .def(
          "describe", [](const OwnedPlan& p) { return p.plan->describe(); },
          "The stages of the plan, one line each; threads wait for each other between stages.")
      .def("run", &run, "tokens"_a.noconvert(), "positions"_a.noconvert(), "leases"_a, "counts"_a,
           "logits"_a.noconvert(), "out"_a.noconvert(), "threads"_a,
           "Compute one step, with the GIL released.\n\n"
           "tokens: int32 (n,), n <= max_rows. positions: int32 (n,), for the rotations. leases: one for "
           "each context in the step,\n"
           "objects with __llamay_kv_view__; counts: how many of the rows are the next positions of each, in "
           "order.\n"
           "logits: int32 (m,), the rows whose output is wanted; may be empty. out: float32 (m, "
           "output_width), written.\n\n"
           "Writes keys and values into the leases' reserved positions; the caller commits them. "
           "Raises ValueError for\n"
           "arguments that do not fit each other or the plan, BufferError for a view of another version, "
           "TypeError for an object\n"
           "without one. After an error nothing was written.")
      .def(
          "measure", [](OwnedPlan& p, bool on) { p.plan->measure(on); }, "on"_a = true,
          "Start or stop measuring where runs spend their time; discards earlier measurements.")
      .def("profile", &profile,
           "Seconds since measure(): runs, total, prepare, wait (at barriers), by operation and by record,\n"
           "as the calling thread saw them.");
  bind_rows(m, plan);
}
