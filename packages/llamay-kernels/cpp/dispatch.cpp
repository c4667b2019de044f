#include "dispatch.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace llamay {
namespace {

std::vector<Isa> detect() {
  std::vector<Isa> found;
#ifdef LLAMAY_X86
  // These ask the operating system too, whether it saves the registers.
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) found.push_back(Isa::avx512_vnni);
  if (avx512) found.push_back(Isa::avx512);
  if (avx2) found.push_back(Isa::avx2);
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
  static constexpr const char* names[] = {"portable", "avx2", "avx512", "avx512_vnni"};
  return names[static_cast<std::size_t>(isa)];
}

const std::vector<Isa>& runnable_isas() {
  static const std::vector<Isa> all = detect();
  return all;
}

Isa active_isa() { return current().load(std::memory_order_relaxed); }
void use_isa(const std::string& wanted) { current().store(named(wanted), std::memory_order_relaxed); }

}  // namespace llamay
