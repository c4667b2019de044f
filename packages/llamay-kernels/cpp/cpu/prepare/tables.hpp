#pragma once

#include "dispatch.hpp"
#include "matmul/matmul.hpp"
#include "ops/attention/attention.hpp"
#include "ops/rows/table.hpp"

LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul);
LLAMAY_DECLARE_TABLES(llamay::OpsTable, ops);
LLAMAY_DECLARE_TABLES(llamay::AttentionTable, attention);

namespace llamay {

inline constexpr Tables<MatmulTable> matmul_tables = LLAMAY_TABLES(matmul);
inline constexpr Tables<OpsTable> ops_tables = LLAMAY_TABLES(ops);
inline constexpr Tables<AttentionTable> attention_tables = LLAMAY_TABLES(attention);

}  // namespace llamay
