#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <initializer_list>

/// Arrays that the kernels' test functions take and return.

namespace llamay {

template <class T, std::size_t dimensions>
using Array =
    nanobind::ndarray<const T, nanobind::ndim<dimensions>, nanobind::c_contig, nanobind::device::cpu>;
using Floats = Array<float, 1>;
using FloatRows = Array<float, 2>;

template <class T>
nanobind::ndarray<nanobind::numpy, T> make_array(std::initializer_list<std::size_t> shape) {
  std::size_t count = 1;
  for (const std::size_t n : shape) count *= n;
  T* data = new T[count];
  return nanobind::ndarray<nanobind::numpy, T>(
      data, shape, nanobind::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

/// Throws ValueError unless the condition holds.
inline void expect(bool holds, const char* what) {
  if (!holds) throw nanobind::value_error(what);
}

}  // namespace llamay
