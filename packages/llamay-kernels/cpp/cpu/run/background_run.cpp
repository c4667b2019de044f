#include "cpu/run/background_run.hpp"

#include <stdexcept>
#include <utility>

namespace llamay {

BackgroundRun::BackgroundRun(const Plan& plan, const Step& step, Threads& threads)
    : plan_(plan), threads_(threads), step_(step) {
  plan.check(step);
  if (plan.measuring_.load(std::memory_order_relaxed))
    profile_ = std::make_unique<Profile>(plan.program_.ops.size());
  scratch_ = plan.borrow();
  try {
    run_.emplace(plan, step_, *scratch_, threads, profile_.get());
  } catch (...) {
    end();
    throw;
  }
}

void BackgroundRun::begin() {
  run_->post();
  begun_ = true;
}

bool BackgroundRun::try_begin() { return begun_ = run_->try_post(); }

void BackgroundRun::finish() {
  if (threads_.forked()) {
    end();
    throw std::runtime_error("this run began before a fork and did not survive it");
  }
  run_->join();
  if (profile_) {
    profile_->total_ns =
        static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began_).count());
    plan_.count(*profile_);
  }
  end();
}

void BackgroundRun::leave() noexcept {
  // In a forked child no thread works on the run, or would ever end it.
  if (run_ && begun_ && !threads_.forked()) run_->leave();
  end();
}

void BackgroundRun::end() noexcept {
  run_.reset();
  if (scratch_) plan_.give_back(std::move(scratch_));
}

}  // namespace llamay
