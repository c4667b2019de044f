// General categories by name, from the tables.
#include "text/unicode_properties.h"

#include <utility>

namespace llamay::grammar {
namespace {

struct Category {
  const char* name;
  const uint32_t* ranges;
  size_t n;
};
#include "text/unicode_tables.inc"

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {{"Letter", "L"},
                                                                        {"Cased_Letter", "LC"},
                                                                        {"Lowercase_Letter", "Ll"},
                                                                        {"Uppercase_Letter", "Lu"},
                                                                        {"Titlecase_Letter", "Lt"},
                                                                        {"Modifier_Letter", "Lm"},
                                                                        {"Other_Letter", "Lo"},
                                                                        {"Mark", "M"},
                                                                        {"Combining_Mark", "M"},
                                                                        {"Nonspacing_Mark", "Mn"},
                                                                        {"Spacing_Mark", "Mc"},
                                                                        {"Enclosing_Mark", "Me"},
                                                                        {"Number", "N"},
                                                                        {"Decimal_Number", "Nd"},
                                                                        {"digit", "Nd"},
                                                                        {"Letter_Number", "Nl"},
                                                                        {"Other_Number", "No"},
                                                                        {"Punctuation", "P"},
                                                                        {"punct", "P"},
                                                                        {"Connector_Punctuation", "Pc"},
                                                                        {"Dash_Punctuation", "Pd"},
                                                                        {"Open_Punctuation", "Ps"},
                                                                        {"Close_Punctuation", "Pe"},
                                                                        {"Initial_Punctuation", "Pi"},
                                                                        {"Final_Punctuation", "Pf"},
                                                                        {"Other_Punctuation", "Po"},
                                                                        {"Symbol", "S"},
                                                                        {"Math_Symbol", "Sm"},
                                                                        {"Currency_Symbol", "Sc"},
                                                                        {"Modifier_Symbol", "Sk"},
                                                                        {"Other_Symbol", "So"},
                                                                        {"Separator", "Z"},
                                                                        {"Space_Separator", "Zs"},
                                                                        {"Line_Separator", "Zl"},
                                                                        {"Paragraph_Separator", "Zp"},
                                                                        {"Other", "C"},
                                                                        {"Control", "Cc"},
                                                                        {"cntrl", "Cc"},
                                                                        {"Format", "Cf"},
                                                                        {"Private_Use", "Co"},
                                                                        {"Surrogate", "Cs"},
                                                                        {"Unassigned", "Cn"}};

// Whether a category is the named one or belongs to it: L has Lu, and LC those letters that have a case.
bool belongs(std::string_view category, std::string_view name) {
  if (name == "LC") return category == "Lu" || category == "Ll" || category == "Lt";
  return category == name || (name.size() == 1 && name[0] == category[0]);
}

}  // namespace

std::optional<CharSet> unicode_property(std::string_view name) {
  if (name == "Any") return CharSet::all();
  if (name == "ASCII") return CharSet::of({{0, 127}});
  for (auto& [from, to] : kLongNames)
    if (name == from) name = to;
  if (name == "Cs") return CharSet();  // no text has one alone
  CharSet s;
  for (auto& c : kCategories)
    if (belongs(c.name, name))
      for (size_t i = 0; i < c.n; ++i) s.add(c.ranges[2 * i], c.ranges[2 * i + 1]);
  if (s.ranges.empty()) return std::nullopt;
  s.normalise();
  return s;
}

}  // namespace llamay::grammar
