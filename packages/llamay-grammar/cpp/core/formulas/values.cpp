// Formulas for equality with given values: `const` and `enum`.
#include "formulas/formula.h"

namespace llamay::grammar {

FormulaId Formulas::equals(const Json& v) { return one_of_values({&v}); }

FormulaId Formulas::one_of_values(const std::vector<const Json*>& values) {
  uint8_t types = 0;
  std::vector<std::string> strings;
  std::vector<Decimal> numbers;
  std::vector<FormulaId> parts;
  for (const Json* v : values) {
    switch (v->kind) {
      case JsonKind::Null:
        types |= kNull;
        break;
      case JsonKind::False:
        types |= kFalse;
        break;
      case JsonKind::True:
        types |= kTrue;
        break;
      case JsonKind::Number:
        numbers.push_back(v->number);
        break;
      case JsonKind::String:
        strings.push_back(v->text);
        break;
      case JsonKind::Array: {
        ItemsSpec s;
        s.rest = no();
        for (auto& x : v->items) s.prefix.push_back(equals(x));
        parts.push_back(all({type(kArray), length({v->items.size(), v->items.size()}), items(std::move(s))}));
        break;
      }
      case JsonKind::Object: {
        PropsSpec s;
        s.additional = no();
        std::vector<FormulaId> and_{type(kObject)};
        for (auto& [name, x] : v->members) {
          s.names.emplace_back(name, equals(x));
          and_.push_back(require(name));
        }
        and_.push_back(props(std::move(s)));
        parts.push_back(all(std::move(and_)));
      }
    }
  }
  if (types) parts.push_back(type(types));
  if (!strings.empty()) parts.push_back(guarded(kString, words(std::move(strings))));
  if (!numbers.empty()) parts.push_back(guarded(kNumber, number_set(std::move(numbers))));
  return any(std::move(parts));
}

}  // namespace llamay::grammar
