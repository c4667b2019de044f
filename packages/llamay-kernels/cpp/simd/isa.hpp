#pragma once

/// Names in a source that is compiled once per kernel set (cpp/<area>/isa_*.cpp, built with
/// LLAMAY_ISA=<set>).
///
///   extern "C" const llamay::OpsTable LLAMAY_TABLE(ops) = {...};      // defines llamay_ops_avx2 and its
///   sisters
///
/// Everything else in such a source lies in an anonymous namespace, and it includes no C++ library header.
#define LLAMAY_JOIN_(area, set) llamay_##area##_##set
#define LLAMAY_JOIN(area, set) LLAMAY_JOIN_(area, set)
#define LLAMAY_TABLE(area) LLAMAY_JOIN(area, LLAMAY_ISA)
