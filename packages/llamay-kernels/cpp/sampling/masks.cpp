#include "sampling/masks.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>

namespace llamay {
namespace {

struct Job {
  std::vector<MaskRow>* rows;
  const uint32_t* ends;
  std::size_t ends_n;
  std::atomic<std::size_t> next{0};
};

void fill(MaskRow& row, const Job& job) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  row.status = row.constraint->fill_mask(row.constraint->self, row.mask, row.words);
  if (row.status == LLAMAY_TC_OK)
    for (uint32_t i = 0; i < row.words; ++i) {
      const uint32_t ends = i < job.ends_n ? job.ends[i] : 0;
      row.allowed += static_cast<uint32_t>(std::popcount(row.mask[i]));
      row.going += static_cast<uint32_t>(std::popcount(row.mask[i] & ~ends));
    }
  row.seconds = std::chrono::duration<double>(Clock::now() - began).count();
}

void work(void* context, unsigned) {
  Job& job = *static_cast<Job*>(context);
  for (std::size_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.rows->size();)
    fill((*job.rows)[i], job);
}

}  // namespace

void fill_masks(std::vector<MaskRow>& rows, const uint32_t* ends, std::size_t ends_n, Threads* threads) {
  Job job{&rows, ends, ends_n};
  const auto count = static_cast<unsigned>(std::min<std::size_t>(threads ? threads->size() : 1, rows.size()));
  if (count > 1)
    threads->help(count, &work, &job);
  else
    work(&job, 0);
}

}  // namespace llamay
