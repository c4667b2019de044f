#include "ops/rows/rows.hpp"
#include "ops/rows/unary.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"

namespace llamay {
namespace {

/// Calls g with the lane function of a kind, so that the choice is made once for a row.
template <class G>
void with_function(UnaryKind kind, G g) {
  switch (kind) {
    case UnaryKind::silu:
      return g([](f32x16 x) { return silu(x); });
    case UnaryKind::gelu_tanh:
      return g([](f32x16 x) { return gelu_tanh(x); });
    case UnaryKind::sigmoid:
      return g([](f32x16 x) { return sigmoid(x); });
    case UnaryKind::tanh:
      return g([](f32x16 x) { return tanh(x); });
    case UnaryKind::relu:
      return g([](f32x16 x) { return relu(x); });
    case UnaryKind::relu2:
      return g([](f32x16 x) { return relu2(x); });
    case UnaryKind::gelu_erf:
      return g([](f32x16 x) { return gelu_erf(x); });
    case UnaryKind::gelu_quick:
      return g([](f32x16 x) { return gelu_quick(x); });
    case UnaryKind::softplus:
      return g([](f32x16 x) { return softplus(x); });
    case UnaryKind::exp:
      return g([](f32x16 x) { return exp(x); });
  }
}

void apply(UnaryKind kind, const float* x, float* out, size_t n) {
  with_function(kind, [=](auto f) { map(x, out, n, f); });
}

void apply_mul(UnaryKind kind, const float* a, const float* b, float* out, size_t n) {
  with_function(kind, [=](auto f) { map(a, b, out, n, [f](f32x16 x, f32x16 y) { return f(x) * y; }); });
}

void only_erf(const float* x, float* out, size_t n) {
  map(x, out, n, [](f32x16 v) { return erf(v); });
}
void only_log1p(const float* x, float* out, size_t n) {
  map(x, out, n, [](f32x16 v) { return log1p(v); });
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::UnaryTable LLAMAY_TABLE(unary);
const llamay::UnaryTable LLAMAY_TABLE(unary) = {llamay::apply, llamay::apply_mul, llamay::only_erf,
                                                llamay::only_log1p};
