#pragma once

/// LLAMAY_KERNEL_TABLES(ConvTable, conv); at the end of a header that both sides include: ordinary code gets
/// llamay::conv_tables, indexed by the kernel set, and a source of a kernel set, which may include no C++
/// library header, nothing. So an operation's kernels are declared in one place, its own.
#ifdef LLAMAY_ISA
#define LLAMAY_KERNEL_TABLES(type, area) static_assert(sizeof(llamay::type) > 0)
#else
#include "dispatch.hpp"
#define LLAMAY_KERNEL_TABLES(type, area)                             \
  LLAMAY_DECLARE_TABLES(llamay::type, area);                         \
  namespace llamay {                                                 \
  inline constexpr Tables<type> area##_tables = LLAMAY_TABLES(area); \
  }                                                                  \
  static_assert(sizeof(llamay::type) > 0)
#endif
