#include "dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#if defined(LLAMAY_ARM64) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(LLAMAY_ARM64) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace llamay {
namespace {

#if defined(LLAMAY_ARM64)
struct ArmFeatures {
  bool dotprod, i8mm;
};
ArmFeatures arm_features() {
#if defined(__linux__)
  // HWCAP_ASIMDDP, HWCAP2_I8MM: the headers of older systems lack the second.
  return {(getauxval(AT_HWCAP) >> 20 & 1) != 0, (getauxval(AT_HWCAP2) >> 13 & 1) != 0};
#elif defined(__APPLE__)
  const auto has = [](const char* feature) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
  };
  return {has("hw.optional.arm.FEAT_DotProd"), has("hw.optional.arm.FEAT_I8MM")};
#else
  return {false, false};
#endif
}
#endif

std::vector<Isa> detect() {
  std::vector<Isa> found;
#if defined(LLAMAY_X86)
  // These ask the operating system too, whether it saves the registers.
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) found.push_back(Isa::avx512_vnni);
  if (avx512) found.push_back(Isa::avx512);
  if (avx2 && __builtin_cpu_supports("avxvnni")) found.push_back(Isa::avx_vnni);
  if (avx2) found.push_back(Isa::avx2);
#elif defined(LLAMAY_ARM64)
  const ArmFeatures features = arm_features();
  if (features.i8mm && features.dotprod) found.push_back(Isa::neon_i8mm);
  if (features.dotprod) found.push_back(Isa::neon_dotprod);
  found.push_back(Isa::neon);  // part of the architecture
#endif
  found.push_back(Isa::portable);
  return found;
}

Isa named(const std::string& wanted) {
  std::string choices;
  for (const Isa isa : runnable_isas()) {
    if (wanted == name(isa)) return isa;
    choices += (choices.empty() ? "" : ", ") + std::string(name(isa));
  }
  throw std::invalid_argument("no kernel set '" + wanted + "' on this CPU; it can run: " + choices);
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> isa{[] {
    const char* wanted = std::getenv("LLAMAY_ISA");
    return wanted && *wanted ? named(wanted) : runnable_isas().front();
  }()};
  return isa;
}

}  // namespace

const char* name(Isa isa) {
#if defined(LLAMAY_X86)
  static constexpr const char* names[] = {"portable", "avx2", "avx_vnni", "avx512", "avx512_vnni"};
#elif defined(LLAMAY_ARM64)
  static constexpr const char* names[] = {"portable", "neon", "neon_dotprod", "neon_i8mm"};
#else
  static constexpr const char* names[] = {"portable"};
#endif
  return names[static_cast<std::size_t>(isa)];
}

const std::vector<Isa>& runnable_isas() {
  static const std::vector<Isa> all = detect();
  return all;
}

Isa active_isa() { return current().load(std::memory_order_relaxed); }
void use_isa(const std::string& wanted) { current().store(named(wanted), std::memory_order_relaxed); }

}  // namespace llamay
