// The numbering of dynamic scopes.
#include "schema/dynamic_scopes.h"

#include <algorithm>

#include "support/compile_error.h"

namespace llamay::grammar {

uint32_t DynamicScopes::enter(uint32_t scope, const std::string& resource) {
  auto list = scopes_[scope];
  if (std::find(list.begin(), list.end(), resource) != list.end()) return scope;
  list.push_back(resource);
  auto [it, fresh] = ids_.emplace(list, static_cast<uint32_t>(scopes_.size()));
  if (fresh) {
    if (scopes_.size() > 1000)
      throw CompileError("$dynamicRef", "", "too many combinations of dynamic scopes");
    scopes_.push_back(std::move(list));
  }
  return it->second;
}

}  // namespace llamay::grammar
