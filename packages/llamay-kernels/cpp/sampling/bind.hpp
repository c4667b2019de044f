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

/// A token that is to be chosen from one row of logits: the row's number, its position, the tokens before it.
using Draw = std::tuple<Sampler*, uint64_t, uint64_t, std::optional<History>, std::optional<Mask>>;

/// What sample_rows gets of it: logits is `rows` x `width`. Throws nanobind::value_error.
BatchRow batch_row(const Draw& draw, const float* logits, std::size_t rows, std::size_t width);
/// The tokens, -1 where there is none, and for those rows what was wrong.
std::pair<std::vector<int64_t>, std::map<std::size_t, std::string>> results(
    const std::vector<BatchRow>& work);

}  // namespace llamay

/// Sampler, sample_batch, logprobs, philox4x32.
void bind_sampling(nanobind::module_& m);
/// fill_masks.
void bind_masks(nanobind::module_& m);
