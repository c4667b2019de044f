#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace llamay {

/// The kernel sets of this architecture, slowest first: an index into every array of tables.
#if defined(LLAMAY_X86)
enum class Isa : unsigned char { portable, avx2, avx_vnni, avx512, avx512_vnni };
inline constexpr std::size_t kIsaCount = 5;
#elif defined(LLAMAY_ARM64)
enum class Isa : unsigned char { portable, neon, neon_dotprod, neon_i8mm };
inline constexpr std::size_t kIsaCount = 4;
#else
enum class Isa : unsigned char { portable };
inline constexpr std::size_t kIsaCount = 1;
#endif

const char* name(Isa isa);
/// The sets this CPU runs, fastest first. Never empty: portable comes last.
const std::vector<Isa>& runnable_isas();
/// The set in use: the fastest, or the one named by $LLAMAY_ISA when it is first asked for.
/// Throws std::invalid_argument, naming the choices, if that one cannot run here.
Isa active_isa();
/// Throws std::invalid_argument, naming the choices, for a set that cannot run here.
void use_isa(const std::string& name);

/// The tables of one area, one a kernel set. `static constexpr Tables<MatmulTable> tables =
/// LLAMAY_TABLES(matmul);`
template <class Table>
struct Tables {
  const Table* of[kIsaCount];
  const Table& operator[](Isa isa) const { return *of[static_cast<std::size_t>(isa)]; }
};

}  // namespace llamay

/// Declares the tables that cpp/<area>/isa_*.cpp defines, one a set; use at namespace scope, before
/// LLAMAY_TABLES.
#if defined(LLAMAY_X86)
#define LLAMAY_DECLARE_TABLES(type, area)                                                         \
  extern "C" const type llamay_##area##_portable, llamay_##area##_avx2, llamay_##area##_avx_vnni, \
      llamay_##area##_avx512, llamay_##area##_avx512_vnni
#define LLAMAY_TABLES(area)                                                                                 \
  {                                                                                                         \
    {                                                                                                       \
      &llamay_##area##_portable, &llamay_##area##_avx2, &llamay_##area##_avx_vnni, &llamay_##area##_avx512, \
          &llamay_##area##_avx512_vnni                                                                      \
    }                                                                                                       \
  }
#elif defined(LLAMAY_ARM64)
#define LLAMAY_DECLARE_TABLES(type, area)                                                             \
  extern "C" const type llamay_##area##_portable, llamay_##area##_neon, llamay_##area##_neon_dotprod, \
      llamay_##area##_neon_i8mm
#define LLAMAY_TABLES(area)                                                            \
  {                                                                                    \
    {                                                                                  \
      &llamay_##area##_portable, &llamay_##area##_neon, &llamay_##area##_neon_dotprod, \
          &llamay_##area##_neon_i8mm                                                   \
    }                                                                                  \
  }
#else
#define LLAMAY_DECLARE_TABLES(type, area) extern "C" const type llamay_##area##_portable
#define LLAMAY_TABLES(area)     \
  {                             \
    {                           \
      &llamay_##area##_portable \
    }                           \
  }
#endif
