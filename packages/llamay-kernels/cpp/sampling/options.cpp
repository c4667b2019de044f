#include "sampling/options.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace llamay {
namespace {

void require(bool holds, const char* option, double value, const char* range) {
  if (holds) return;
  std::ostringstream out;
  out << option << " must be " << range << ", not " << value;
  throw std::invalid_argument(out.str());
}

}  // namespace

void check(const SamplerOptions& o) {
  const auto between = [](const char* option, double value, double low, double high, const char* range) {
    require(value >= low && value <= high, option, value, range);
  };
  const auto whole = [](const char* option, int64_t value, int64_t low, int64_t high, const char* range) {
    require(value >= low && value <= high, option, static_cast<double>(value), range);
  };
  constexpr int64_t kMany = int64_t{1} << 40;
  between("temperature", o.temperature, 0, 1e6, "0 to 1e6");
  between("dynatemp_range", o.dynatemp_range, 0, 1e6, "0 to 1e6");
  between("dynatemp_exponent", o.dynatemp_exponent, 0, 1e3, "0 to 1e3");
  between("top_p", o.top_p, 0, 1, "0 to 1");
  between("min_p", o.min_p, 0, 1, "0 to 1");
  between("typical_p", o.typical_p, 0, 1, "0 to 1");
  between("top_n_sigma", o.top_n_sigma, -1e6, 1e6, "-1e6 to 1e6 (0 or less: off)");
  between("xtc_probability", o.xtc_probability, 0, 1, "0 to 1");
  between("xtc_threshold", o.xtc_threshold, 0, 1, "0 to 1 (more than 0.5: off)");
  require(o.repeat_penalty > 0 && o.repeat_penalty <= 1e6, "repeat_penalty", o.repeat_penalty,
          "more than 0, up to 1e6");
  between("presence_penalty", o.presence_penalty, -1e6, 1e6, "-1e6 to 1e6");
  between("frequency_penalty", o.frequency_penalty, -1e6, 1e6, "-1e6 to 1e6");
  whole("repeat_last_n", o.repeat_last_n, -1, kMany, "-1 (all), 0 (none) or more");
  between("dry_multiplier", o.dry_multiplier, 0, 1e6, "0 to 1e6");
  between("dry_base", o.dry_base, 1, 1e6, "1 to 1e6");
  whole("dry_allowed_length", o.dry_allowed_length, 0, kMany, "0 or more");
  whole("dry_penalty_last_n", o.dry_penalty_last_n, -1, kMany, "-1 (all), 0 (none) or more");
  whole("mirostat", o.mirostat, 0, 2, "0 (none), 1 or 2");
  between("mirostat_tau", o.mirostat_tau, 0, 1e3, "0 to 1e3");
  between("mirostat_eta", o.mirostat_eta, 0, 1e3, "0 to 1e3");
  for (const auto& [token, bias] : o.logit_bias) {
    require(token >= 0, "a token in logit_bias", static_cast<double>(token), "0 or more");
    require(bias <= 1e6f, "a bias in logit_bias", static_cast<double>(bias),
            "a number up to 1e6 (-inf excludes)");
  }
  for (const std::string& name : o.samplers) make_stage(name, o);
}

std::unique_ptr<SamplerStage> make_stage(const std::string& name, const SamplerOptions& o) {
  if (name == "penalties") {
    if (o.repeat_last_n == 0 ||
        (o.repeat_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0))
      return nullptr;
    return std::make_unique<Penalties>(o.repeat_last_n, static_cast<float>(o.repeat_penalty),
                                       static_cast<float>(o.frequency_penalty),
                                       static_cast<float>(o.presence_penalty));
  }
  if (name == "dry") {
    if (o.dry_multiplier == 0 || o.dry_penalty_last_n == 0) return nullptr;
    return std::make_unique<Dry>(o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_penalty_last_n,
                                 o.dry_sequence_breakers);
  }
  if (name == "top_n_sigma") return o.top_n_sigma > 0 ? std::make_unique<TopNSigma>(o.top_n_sigma) : nullptr;
  if (name == "top_k")
    return o.top_k > 0 ? std::make_unique<TopK>(static_cast<std::size_t>(o.top_k)) : nullptr;
  if (name == "typ_p") return o.typical_p < 1 ? std::make_unique<Typical>(o.typical_p) : nullptr;
  if (name == "top_p") return o.top_p < 1 ? std::make_unique<TopP>(o.top_p) : nullptr;
  if (name == "min_p") return o.min_p > 0 ? std::make_unique<MinP>(o.min_p) : nullptr;
  if (name == "xtc")
    return o.xtc_probability > 0 && o.xtc_threshold <= 0.5
               ? std::make_unique<Xtc>(o.xtc_probability, o.xtc_threshold)
               : nullptr;
  if (name == "temperature")
    return o.temperature != 1 || o.dynatemp_range > 0
               ? std::make_unique<Temperature>(o.temperature, o.dynatemp_range, o.dynatemp_exponent)
               : nullptr;
  throw std::invalid_argument(
      "samplers names '" + name +
      "', which is none of penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature");
}

}  // namespace llamay
