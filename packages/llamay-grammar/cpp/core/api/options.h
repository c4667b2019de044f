// The options of a compilation for its stages, and its repetitions for positions and dropped keywords.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/compile.h"
#include "masks/precompute.h"
#include "support/compile_error.h"

namespace llamay::grammar {

inline void settings(Program& p, const CompileOptions& o) {
  p.whitespace = o.whitespace, p.max_whitespace = o.max_whitespace, p.schema_order = o.schema_order;
  p.canonical_escapes = o.canonical_escapes;
}

inline SchemaOptions schema_options(const CompileOptions& options, const std::set<std::string>& dropped) {
  SchemaOptions so;
  so.draft = options.draft, so.resolver = options.resolver, so.dropped = dropped;
  if (options.mode == CompileMode::Annotate) so.formats = FormatMode::Annotate;
  return so;
}

// Compiles without the positions of keywords, and a second time with positions if an error needs one. If the
// mode allows dropping a keyword, compiles again without the refused keyword.
template <class Once>
GrammarPtr with_retries(const CompileOptions& options, Once once) {
  std::set<std::string> dropped;
  std::vector<std::string> warnings;
  for (bool tracking = false;;) {
    try {
      GrammarPtr g = once(dropped, tracking);
      g->program.warnings.insert(g->program.warnings.begin(), warnings.begin(), warnings.end());
      precompute_entries(g->program, *g->vocabulary);
      return g;
    } catch (const CompileError& e) {
      if (e.pointer.empty() && !tracking && e.keyword != "json") {
        tracking = true;
        continue;
      }
      if (options.mode == CompileMode::Exact || e.pointer.size() < 2 || dropped.size() >= 64 ||
          !dropped.insert(e.pointer).second)
        throw;
      warnings.push_back(e.pointer + ": " + e.what() + "; the keyword is not enforced");
    }
  }
}

}  // namespace llamay::grammar
