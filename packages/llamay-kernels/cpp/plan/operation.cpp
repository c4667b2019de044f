#include "plan/operation.hpp"

#include <algorithm>
#include <cstring>

namespace llamay {
namespace {

/// Constructed when it is first used: source files enter their operations in no particular order, before
/// main.
std::vector<const Operation*>& table() {
  static std::vector<const Operation*> all;
  return all;
}

bool by_name(const Operation* a, const char* name) { return std::strcmp(a->name, name) < 0; }

}  // namespace

Operations::Operations(std::initializer_list<Operation> operations) : operations_(operations) {
  for (const Operation& o : operations_)
    table().insert(std::lower_bound(table().begin(), table().end(), o.name, by_name), &o);
}

const std::vector<const Operation*>& Operations::all() { return table(); }

const Operation* Operations::find(const std::string& name) {
  const auto at = std::lower_bound(table().begin(), table().end(), name.c_str(), by_name);
  return at != table().end() && (*at)->name == name ? *at : nullptr;
}

}  // namespace llamay
