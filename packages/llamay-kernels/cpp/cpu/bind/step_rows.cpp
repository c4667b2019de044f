#include "cpu/bind/step_rows.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

namespace nb = nanobind;

namespace llamay {
namespace {

using Integers = nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(std::size_t text, const std::string& what) {
  throw nb::value_error(("rows[" + std::to_string(text) + "]: " + what).c_str());
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

int64_t whole(nb::handle number) {
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

}  // namespace

void StepRows::take(nb::handle texts, const Plan& plan) {
  for (nb::handle text : texts) add(text, plan);
  // Texts after the last one with types or vectors have type 0 and no vectors.
  if (!types_.empty()) types_.resize(tokens_.size());
  if (!vectors_.empty()) vectors_.resize(tokens_.size());
}

void StepRows::add(nb::handle text, const Plan& plan) {
  const std::size_t number = counts_.size();
  PyObject* const parts = text.ptr();
  const Py_ssize_t size = PyTuple_Check(parts) ? PyTuple_Size(parts) : 0;
  if (size != 4 && size != 5)
    throw nb::type_error(("rows[" + std::to_string(number) +
                          "] must be a tuple (lease, tokens, position, wanted) or one with inputs after them")
                             .c_str());
  const auto part = [parts](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(parts, i)); };
  if (!part(0).is_none()) {
    held_.emplace_back(part(0), number);
    views_.push_back(held_.back().view());
  } else if (plan.keeps_nothing()) {
    views_.push_back(nullptr);
  } else {
    refuse(number, "it has no lease, but this plan keeps something of each context");
  }
  const std::size_t begin = tokens_.size();
  append(tokens_, part(1));
  const auto n = static_cast<int64_t>(tokens_.size() - begin);
  const int64_t position = whole(part(2)), last = whole(part(3));
  if (last < 0 || last > n)
    throw nb::value_error(("rows[" + std::to_string(number) + "] wants the last " + std::to_string(last) +
                           " of " + std::to_string(n) + " tokens")
                              .c_str());
  if (position < 0 || position + n > 0x7fffffff)
    throw nb::value_error(
        ("rows[" + std::to_string(number) + "] begins at position " + std::to_string(position)).c_str());
  for (int64_t i = 0; i < n; ++i)
    positions_.insert(positions_.end(), axes_, static_cast<int32_t>(position + i));
  for (int64_t i = n - last; i < n; ++i)
    wanted_.push_back(static_cast<int32_t>(begin + static_cast<std::size_t>(i)));
  counts_.push_back(static_cast<uint32_t>(n));
  if (size == 5 && !part(4).is_none()) add_inputs(part(4), begin, plan);
}

void StepRows::add_inputs(nb::handle inputs, std::size_t begin, const Plan& plan) {
  if (!PyMapping_Check(inputs.ptr()) || !nb::hasattr(inputs, "items"))
    throw nb::type_error(
        ("rows[" + std::to_string(counts_.size() - 1) + "]: inputs must be a mapping").c_str());
  for (nb::handle item : nb::borrow(inputs).attr("items")()) {
    const std::string name = nb::cast<std::string>(nb::str(item[0]));
    if (name == "vectors")
      add_vectors(nb::object(item[1]), begin, plan);
    else if (name == "positions")
      add_positions(nb::object(item[1]), begin);
    else if (name == "types")
      add_types(nb::object(item[1]), begin);
    else
      refuse(counts_.size() - 1, "there is no input '" + name + "'; there are vectors, positions and types");
  }
}

void StepRows::add_vectors(nb::handle vectors, std::size_t begin, const Plan& plan) {
  const std::size_t text = counts_.size() - 1, n = tokens_.size() - begin;
  Integers rows;
  Floats values;
  if (!PyTuple_Check(vectors.ptr()) || PyTuple_Size(vectors.ptr()) != 2 ||
      !nb::try_cast(nb::handle(PyTuple_GetItem(vectors.ptr(), 0)), rows, false) || rows.ndim() != 1 ||
      !nb::try_cast(nb::handle(PyTuple_GetItem(vectors.ptr(), 1)), values, false))
    refuse(text, "vectors must be a pair of int32 (m,) and float32 (m, width), both contiguous");
  if (!plan.vector_width()) refuse(text, "it has vectors, but this plan takes tokens only");
  if (rows.shape(0) != values.shape(0) || values.shape(1) != plan.vector_width())
    refuse(text, "there are " + std::to_string(rows.shape(0)) + " rows for vectors of shape (" +
                     std::to_string(values.shape(0)) + ", " + std::to_string(values.shape(1)) +
                     "); this plan takes vectors of " + std::to_string(plan.vector_width()));
  vectors_.resize(tokens_.size());
  for (std::size_t i = 0; i < rows.shape(0); ++i) {
    const int32_t row = rows.data()[i];
    if (row < 0 || static_cast<std::size_t>(row) >= n || (i && row <= rows.data()[i - 1]))
      refuse(text, "vectors: rows must increase and be below " + std::to_string(n) + ", and one is " +
                       std::to_string(row) + (i ? " after " + std::to_string(rows.data()[i - 1]) : ""));
    vectors_[begin + static_cast<std::size_t>(row)] = values.data() + i * values.shape(1);
  }
  input_arrays_.push_back(values);
}

void StepRows::add_positions(nb::handle positions, std::size_t begin) {
  const std::size_t text = counts_.size() - 1, n = tokens_.size() - begin;
  Integers values;
  if (!nb::try_cast(positions, values, false) || values.ndim() != 2 || values.shape(0) != n ||
      !values.shape(1) || values.shape(1) > 8)
    refuse(text, "positions must be int32 (" + std::to_string(n) + ", axes), contiguous, of 1 to 8 axes");
  const std::size_t axes = values.shape(1);
  if (axes_ != axes) {
    if (axes_ != 1)
      refuse(text,
             "its positions have " + std::to_string(axes) + " axes, and others " + std::to_string(axes_));
    widen(axes);
  }
  std::copy_n(values.data(), n * axes, positions_.begin() + static_cast<std::ptrdiff_t>(begin * axes));
}

void StepRows::widen(std::size_t axes) {
  std::vector<int32_t> wide;
  wide.reserve(positions_.size() * axes);
  for (const int32_t position : positions_) wide.insert(wide.end(), axes, position);
  positions_ = std::move(wide);
  axes_ = axes;
}

void StepRows::add_types(nb::handle types, std::size_t begin) {
  const std::size_t n = tokens_.size() - begin;
  Integers values;
  if (!nb::try_cast(types, values, false) || values.ndim() != 1 || values.shape(0) != n)
    refuse(counts_.size() - 1, "types must be int32 (" + std::to_string(n) + ",), contiguous");
  types_.resize(begin);
  types_.insert(types_.end(), values.data(), values.data() + n);
}

Step StepRows::step(float* out) const {
  Step step{tokens_.data(), positions_.data(), tokens_.size(),
            views_.data(),  counts_.data(),    views_.size(),
            wanted_.data(), wanted_.size(),    out};
  step.axes = axes_;
  if (!types_.empty()) step.types = types_.data();
  if (!vectors_.empty()) step.vectors = vectors_.data();
  return step;
}

bool StepRows::follow(const std::vector<BatchRow>& work, const std::vector<int64_t>& ends, const float* out,
                      std::size_t width) {
  const std::size_t n = views_.size();
  if (tokens_.size() != n || wanted_.size() != n || work.size() != n || !types_.empty()) return false;
  for (std::size_t i = 0; i < n; ++i)
    if (work[i].token < 0 || work[i].choice.logits != out + i * width || !views_[i] ||
        views_[i]->n_reserved < 2 || !leaves_state(*views_[i], views_[i]->n_tokens + 2) ||
        std::find(ends.begin(), ends.end(), work[i].token) != ends.end())
      return false;
  if (next_views_.empty())
    for (const llamay_kv_view* v : views_)
      next_views_.push_back(
          {sizeof(llamay_kv_view), v->group_stride, v->n_groups, v->groups, v->n_tokens, v->n_reserved});
  for (std::size_t i = 0; i < n; ++i) {
    ++next_views_[i].n_tokens;
    --next_views_[i].n_reserved;
    views_[i] = &next_views_[i];
    tokens_[i] = static_cast<int32_t>(work[i].token);
  }
  for (int32_t& position : positions_) ++position;
  vectors_.clear();
  return true;
}

}  // namespace llamay
