// The clock of budgets.
#include "support/budget.h"

#include <chrono>

#include "support/compile_error.h"

namespace llamay::grammar {

double Budget::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Budget::check_time() const {
  if (now() - start > seconds)
    throw CompileError("budget", "",
                       "compilation took longer than the time budget of " + std::to_string(seconds) + " s");
}

}  // namespace llamay::grammar
