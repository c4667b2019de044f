#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sampling/batch.hpp"

namespace llamay {

using History =
    nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Mask = nanobind::ndarray<const uint32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

/// A token to choose from one row of logits: sampler, index of the row, position, tokens before it, mask.
using Draw = std::tuple<Sampler*, uint64_t, uint64_t, std::optional<History>, std::optional<Mask>>;

/// The row of sample_rows for a draw; logits is `rows` x `width`. Throws nanobind::value_error.
BatchRow batch_row(const Draw& draw, const float* logits, std::size_t rows, std::size_t width);
/// The tokens, -1 where a row failed, and the error messages of these rows.
std::pair<std::vector<int64_t>, std::map<std::size_t, std::string>> results(
    const std::vector<BatchRow>& work);

}  // namespace llamay

/// Binds Sampler, sample_batch, logprobs and philox4x32.
void bind_sampling(nanobind::module_& m);
/// Binds fill_masks.
void bind_masks(nanobind::module_& m);
