#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/record.hpp"

namespace llamay {

class Checker;

enum class AttrType { integer, number, text, numbers };

struct AttrSpec {
  const char* name;
  AttrType type;
  bool optional = false;
};

/// The allowed range of a number of outs, args or weights.
struct Count {
  static constexpr std::size_t any = static_cast<std::size_t>(-1);
  std::size_t least, most;
  constexpr Count(std::size_t n) : least(n), most(n) {}
  constexpr Count(std::size_t least_, std::size_t most_) : least(least_), most(most_) {}
};

/// The computation of a node. A backend's own struct begins with it; the plan knows no more than its name.
struct Primitive {
  const char* name;
};

/// An operation as records name it: the form of its records, and the nodes that compute it. Counts,
/// attributes and their types are checked by this table before `check` runs.
struct Operation {
  const char* name;
  Count outs, args, weights;
  std::vector<AttrSpec> attrs;
  /// Checks the requirements of this operation alone, and adds the nodes that compute it. Throws PlanError.
  void (*check)(Checker& checker, const Record& record);
};

/// Enters operations into the table, once, at namespace scope of the file that defines them.
class Operations {
 public:
  Operations(std::initializer_list<Operation> operations);

  /// All operations, in the order of their names.
  static const std::vector<const Operation*>& all();
  /// The operation of this name, or nullptr.
  static const Operation* find(const std::string& name);

 private:
  std::vector<Operation> operations_;
};

}  // namespace llamay
