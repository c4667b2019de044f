#include "expansion/expander.h"

#include "expansion/expansion.h"

namespace llamay::grammar {

Expander::Expander(Formulas& formulas, Program& program, Budget& budget)
    : impl_(std::make_unique<Expansion>(formulas, program, budget)) {}
Expander::~Expander() = default;
uint32_t Expander::node(FormulaId f) { return impl_->node(f); }
void Expander::finish() { impl_->finish(); }
LanguagePtr Expander::string_language(FormulaId f) { return impl_->string_language(f); }

}  // namespace llamay::grammar
