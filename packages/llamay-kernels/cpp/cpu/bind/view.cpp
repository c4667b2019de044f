#include "cpu/bind/view.hpp"

#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace llamay {

HeldView::HeldView(nb::handle owner, std::size_t index) {
  // Created once: a step asks every lease, and a step's overhead beside its products consists mostly of such
  // small costs.
  static PyObject* const method = PyUnicode_InternFromString(LLAMAY_KV_VIEW_METHOD);
  static PyObject* const major = PyLong_FromLong(LLAMAY_KV_VIEW_MAJOR);
  const std::string who = "leases[" + std::to_string(index) + "]: ";
  const nb::object bound = nb::steal(PyObject_GetAttr(owner.ptr(), method));
  if (!bound.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
    PyErr_Clear();
    const std::string type =
        nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(owner.ptr()))).attr("__name__"));
    throw nb::type_error(
        (who + "expected an object with " LLAMAY_KV_VIEW_METHOD "(), such as a lease of llamay_kv, not a " +
         type)
            .c_str());
  }
  // The owner refuses a major version that it does not support, with its own message.
  capsule_ = bound(nb::handle(major));
  if (!PyCapsule_IsValid(capsule_.ptr(), LLAMAY_KV_VIEW_CAPSULE)) {
    const char* name = PyCapsule_CheckExact(capsule_.ptr()) ? PyCapsule_GetName(capsule_.ptr()) : nullptr;
    PyErr_Clear();
    throw nb::buffer_error((who + "expected a capsule named " LLAMAY_KV_VIEW_CAPSULE ", got " +
                            (name ? "one named " + std::string(name) : std::string("something else")) +
                            "; install versions of llamay-kv and llamay-kernels that go together")
                               .c_str());
  }
  view_ = static_cast<const llamay_kv_view*>(PyCapsule_GetPointer(capsule_.ptr(), LLAMAY_KV_VIEW_CAPSULE));
  if (!LLAMAY_HAS(view_, n_reserved))
    throw nb::buffer_error((who + "its view has " + std::to_string(view_->size) +
                            " bytes, fewer than kv_view " + std::to_string(LLAMAY_KV_VIEW_MAJOR) +
                            ".0 begins with")
                               .c_str());
}

}  // namespace llamay
