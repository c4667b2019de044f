// Dynamic scopes: the schema resources through which evaluation came to a schema, which decide where
// $dynamicRef and $recursiveRef lead (JSON Schema 2020-12, core, sections 7.1 and 8.2.3.2).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace llamay::grammar {

// Scopes are numbered; 0 is the empty one.
class DynamicScopes {
 public:
  // The scope with a resource entered. Entering one again changes nothing: the outermost counts, so there are
  // finitely many. Throws CompileError where they are too many all the same.
  uint32_t enter(uint32_t scope, const std::string& resource);
  // By URI, outermost first.
  const std::vector<std::string>& resources(uint32_t scope) const { return scopes_[scope]; }

 private:
  std::vector<std::vector<std::string>> scopes_{{}};
  std::map<std::vector<std::string>, uint32_t> ids_{{{}, 0}};
};

}  // namespace llamay::grammar
