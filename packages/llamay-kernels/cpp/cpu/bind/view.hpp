#pragma once

#include <nanobind/nanobind.h>

#include "llamay/kv_view.h"

namespace llamay {

/// Holds the kv_view of a Python object. The lease lasts as long as this object; needs the GIL.
class HeldView {
 public:
  /// Raises TypeError for an object without the method, BufferError for another version; `index` names the
  /// argument.
  HeldView(nanobind::handle owner, std::size_t index);
  const llamay_kv_view* view() const { return view_; }

 private:
  nanobind::object capsule_;
  const llamay_kv_view* view_;
};

}  // namespace llamay
