#include "bind/arguments.hpp"

namespace {

constexpr size_t kShown = 80;

std::string text(nb::handle given, PyObject* (*words)(PyObject*)) {
  const nb::object said = nb::steal(words(given.ptr()));
  if (!said.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(said);
}

/// A value as messages show it: arrays by their type and shape, anything else by its repr, cut if it is long.
std::string shown(nb::handle given) {
  try {
    if (nb::hasattr(given, "shape") && nb::hasattr(given, "dtype") &&
        PyObject_IsTrue(nb::object(given.attr("shape")).ptr()) == 1)
      return "an array of " + text(nb::object(given.attr("dtype")), PyObject_Str) + " with the shape " +
             text(nb::tuple(given.attr("shape")), PyObject_Str);
    const std::string whole = text(given, PyObject_Repr);
    if (whole.size() <= kShown) return whole;
    size_t end = kShown - 3;
    while (end && (whole[end] & 0xc0) == 0x80) --end;  // not in the middle of a character
    return whole.substr(0, end) + "...";
  } catch (const std::exception&) {
    return std::string("a ") + nb::type_name(given.type()).c_str();
  }
}

}  // namespace

void refuse(PyObject* error, const std::string& name, const std::string& wanted, nb::handle given) {
  PyErr_SetString(error, (name + " must be " + wanted + ", not " + shown(given)).c_str());
  throw nb::python_error();
}

bool read(nb::handle given, bool& out) {
  out = given.ptr() == Py_True;
  if (out || given.ptr() == Py_False) return true;
  const nb::handle type = given.type();
  if (text(nb::object(type.attr("__module__")), PyObject_Str) != "numpy" ||
      !text(nb::object(type.attr("__name__")), PyObject_Str).starts_with("bool"))
    return false;
  out = PyObject_IsTrue(given.ptr()) == 1;  // numpy's
  return true;
}

bool read(nb::handle given, double& out) {
  return !PyUnicode_Check(given.ptr()) && !PyBool_Check(given.ptr()) && nb::try_cast(given, out) && out >= 0;
}
