#pragma once
// Arguments that name themselves when they are wrong. A caster of nanobind can only say no, and the caller is
// then shown the signatures of C++.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <string>
#include <utility>

namespace nb = nanobind;

/// Words for what an argument of a type must be. Integers and lists of them have their own.
template <class T>
constexpr const char* kWanted = nullptr;
template <>
constexpr const char* kWanted<bool> = "True or False";
template <>
constexpr const char* kWanted<double> = "a number from 0 on";
template <>
constexpr const char* kWanted<std::string> = "a string";
template <>
constexpr const char* kWanted<nb::bytes> = "bytes";
template <>
constexpr const char* kWanted<nb::dict> = "a dict";

/// Raise "`name` must be `wanted`, not …".
[[noreturn]] void refuse(PyObject* error, const std::string& name, const std::string& wanted,
                         nb::handle given);

template <class T>
concept WholeNumber = std::integral<T> && !std::same_as<T, bool>;

template <WholeNumber T>
std::string whole_numbers(const char* noun) {
  using Limits = std::numeric_limits<T>;
  if constexpr (sizeof(T) == 8)
    return std::string(noun) +
           (std::unsigned_integral<T> ? " from 0 on, of at most 64 bits" : " of at most 64 bits");
  return std::string(noun) + " from " + std::to_string(Limits::min()) + " to " +
         std::to_string(Limits::max());
}

/// Read an int or anything with __index__, as numpy's integers have it; a bool is no number.
template <WholeNumber T>
bool read(nb::handle given, T& out) {
  return given.ptr() != Py_True && given.ptr() != Py_False && nb::try_cast(given, out);
}
bool read(nb::handle given, bool& out);
bool read(nb::handle given, double& out);
/// Whether an array may be copied to have the wanted order. Not one that is written to.
template <class T>
constexpr bool kConverts = true;
template <class T>
bool read(nb::handle given, T& out) {
  return !given.is_none() && nb::try_cast(given, out, kConverts<T>);
}

template <class T>
void take(const char* name, nb::handle given, T& out, const char* or_none = "") {
  if (read(given, out)) return;
  static_assert(kWanted<T> != nullptr);
  refuse(PyExc_TypeError, name, std::string(kWanted<T>) + or_none, given);
}

template <WholeNumber T>
void take(const std::string& name, nb::handle given, T& out, const char* or_none = "") {
  const bool range = PyIndex_Check(given.ptr()) && !PyBool_Check(given.ptr());
  if (!read(given, out))
    refuse(range ? PyExc_ValueError : PyExc_TypeError, name, whole_numbers<T>("a whole number") + or_none,
           given);
}

template <WholeNumber T>
void take(const char* name, nb::handle given, T& out, const char* or_none = "") {
  if (!read(given, out)) take(std::string(name), given, out, or_none);
}

/// Whole numbers from an array of any integer type. False if it is none.
template <WholeNumber T>
bool read_array(const char* name, nb::handle given, std::vector<T>& out) {
  nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu> array;
  if (!nb::try_cast(given, array, false)) return false;
  const size_t n = array.shape(0);
  const auto copy = [&]<class E>(E) {
    if (array.dtype() != nb::dtype<E>()) return false;
    const E* data = static_cast<const E*>(array.data());
    const int64_t stride = n ? array.stride(0) : 1;
    out.resize(n);
    if (std::same_as<E, T> && stride == 1) {
      std::copy_n(data, n, out.begin());
      return true;
    }
    for (size_t i = 0; i < n; ++i) {
      const E value = data[int64_t(i) * stride];
      if (!std::in_range<T>(value)) take(name + ("[" + std::to_string(i) + "]"), nb::int_(value), out[i]);
      out[i] = T(value);
    }
    return true;
  };
  return copy(int32_t()) || copy(int64_t()) || copy(uint32_t()) || copy(uint64_t()) || copy(int16_t()) ||
         copy(uint16_t()) || copy(int8_t()) || copy(uint8_t());
}

/// Whole numbers from a list, an integer array or another sequence.
template <WholeNumber T>
void take(const char* name, nb::handle given, std::vector<T>& out, const char* or_none = "") {
  nb::object list = nb::borrow(given);
  if (!PyList_CheckExact(given.ptr()) && !PyTuple_CheckExact(given.ptr())) {
    const bool text =
        PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()) || PyByteArray_Check(given.ptr());
    if (!text && read_array(name, given, out)) return;
    list = nb::steal(text || !PySequence_Check(given.ptr()) ? nullptr : PySequence_Fast(given.ptr(), ""));
    if (!list.is_valid()) {
      if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
      PyErr_Clear();
      refuse(PyExc_TypeError, name, "a sequence of " + whole_numbers<T>("whole numbers") + or_none, given);
    }
  }
  const bool tuple = PyTuple_Check(list.ptr());
  const Py_ssize_t n = PySequence_Size(list.ptr());
  out.resize(size_t(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    // Its size may have changed: the __index__ of an item may do anything.
    const nb::object item =
        nb::borrow(tuple ? PyTuple_GetItem(list.ptr(), i) : PyList_GetItem(list.ptr(), i));
    if (!item.is_valid()) throw nb::python_error();
    if (!read(item, out[size_t(i)])) take(name + ("[" + std::to_string(i) + "]"), item, out[size_t(i)]);
  }
}

template <class T>
void take(const char* name, nb::handle given, std::optional<T>& out) {
  out.reset();
  if (!given.is_none()) take(name, given, out.emplace(), " or None");
}

/// The name of an argument, as a template argument.
template <size_t N>
struct ArgName {
  char text[N];
  constexpr ArgName(const char (&name)[N]) { std::copy_n(name, N, text); }
};

/// An argument of a bound function: a T, or an error was raised that names it.
///
/// It takes None like anything else, so its function needs an nb::sig unless None is allowed.
template <ArgName name, class T = uint32_t>
struct Arg {
  T value;
  operator T&() { return value; }
  operator const T&() const { return value; }
};

namespace nanobind::detail {
template <ArgName name, class T>
struct has_arg_defaults<Arg<name, T>> : std::true_type {};

template <ArgName name, class T>
struct type_caster<Arg<name, T>> {
  using Named = Arg<name, T>;
  NB_TYPE_CASTER(Named, make_caster<T>::Name)
  bool from_python(handle given, uint32_t, cleanup_list*) {
    take(name.text, given, value.value);
    return true;
  }
};
}  // namespace nanobind::detail
