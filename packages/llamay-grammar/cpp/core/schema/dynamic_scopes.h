// Dynamic scopes. A dynamic scope is the list of schema resources through which evaluation came to a schema;
// the targets of $dynamicRef and $recursiveRef depend on it (JSON Schema 2020-12, core, sections 7.1 and
// 8.2.3.2).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace llamay::grammar {

// Scopes are numbered; number 0 is the empty scope.
class DynamicScopes {
 public:
  // Returns the scope in which a resource has been entered. Entering a resource again changes nothing,
  // because only its outermost entry counts; so the number of scopes is finite. Throws CompileError for more
  // than 1000 scopes.
  uint32_t enter(uint32_t scope, const std::string& resource);
  // The URIs of the resources in a scope, the outermost resource first.
  const std::vector<std::string>& resources(uint32_t scope) const { return scopes_[scope]; }

 private:
  std::vector<std::vector<std::string>> scopes_{{}};
  std::map<std::vector<std::string>, uint32_t> ids_{{{}, 0}};
};

}  // namespace llamay::grammar
