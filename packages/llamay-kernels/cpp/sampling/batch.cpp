#include "sampling/batch.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>

namespace llamay {
namespace {

// Choosing from fewer tokens than this takes less time than waking up a thread.
constexpr std::size_t kWorthAThread = 16384;

struct Job {
  std::vector<BatchRow>* rows;
  std::atomic<std::size_t> next{0};
};

void choose(BatchRow& row) {
  try {
    row.token = row.sampler->sample(row.choice);
  } catch (const std::exception& error) {
    row.token = -1;
    row.error = error.what();
  }
}

void work(void* context, unsigned) {
  Job& job = *static_cast<Job*>(context);
  for (std::size_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.rows->size();)
    choose((*job.rows)[i]);
}

}  // namespace

void sample_rows(std::vector<BatchRow>& rows, Threads* threads) {
  std::vector<const Sampler*> learning;
  std::size_t tokens = 0;
  for (const BatchRow& row : rows) {
    tokens += row.choice.n;
    if (row.sampler->options().mirostat) learning.push_back(row.sampler);
  }
  std::sort(learning.begin(), learning.end());
  if (std::adjacent_find(learning.begin(), learning.end()) != learning.end())
    throw std::invalid_argument("two rows share a mirostat sampler; give each its own");
  Job job{&rows};
  const auto count = static_cast<unsigned>(
      std::min<std::size_t>({threads ? threads->size() : 1, rows.size(), 1 + tokens / kWorthAThread}));
  if (count > 1)
    threads->help(count, &work, &job);  // a thread that wakes up late is not waited for
  else
    work(&job, 0);
}

}  // namespace llamay
