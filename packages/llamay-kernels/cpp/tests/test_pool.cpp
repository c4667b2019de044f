// Edge cases of the pool of threads: jobs of any size, sleeping threads, several callers, destruction. Meant
// for ThreadSanitizer, and useful without it. Jobs write plain memory, so that a missing order between a job
// and its caller shows as a race.
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>

#include "check.hpp"
#include "threads/threads.hpp"

using namespace llamay;

namespace {

using std::chrono::microseconds;

/// Longer than the pool spins, shorter, or not at all: the next job finds its threads in every state.
void rest(std::mt19937& random) {
  static constexpr int kMicroseconds[] = {0, 0, 0, 1, 2, 3, 20, 60, 200};
  if (const int us = kMicroseconds[random() % 9]) std::this_thread::sleep_for(microseconds(us));
}

/// Adds to a sum of each thread's own: no other thread may touch it, and no addition may be lost.
struct Counted {
  std::vector<uint64_t> of_thread;
  uint64_t value;  // set by the caller before each job

  static void body(void* self, unsigned thread) {
    auto& c = *static_cast<Counted*>(self);
    c.of_thread[thread] += c.value;
  }
};

void each_thread_runs_each_job_once(unsigned n) {
  Threads pool(n);
  std::mt19937 random(n);
  Counted counted{std::vector<uint64_t>(n), 0};
  std::vector<uint64_t> expected(n);
  for (uint64_t job = 0; job < 1500; ++job) {
    const unsigned count = 1 + random() % n;
    counted.value = job;
    pool.run(count, &Counted::body, &counted);
    for (unsigned t = 0; t < count; ++t) expected[t] += job;
    CHECK(counted.of_thread == expected);
    rest(random);
  }
}

/// Pieces that are taken by a free thread, as all kernels share their work.
struct Pieces {
  std::atomic<std::size_t> next{0};
  std::vector<uint64_t> done;
  uint64_t job, spins;

  static void body(void* self, unsigned) {
    auto& p = *static_cast<Pieces*>(self);
    for (std::size_t i; (i = p.next.fetch_add(1, std::memory_order_relaxed)) < p.done.size();) {
      for (uint64_t k = 0; k < p.spins; ++k) asm volatile("");
      p.done[i] += p.job + i;
    }
  }
};

/// The job is on the caller's stack and gone after the call, while threads that woke up late are still
/// looking.
void help_is_over_when_all_pieces_are_done(unsigned n) {
  Threads pool(n);
  std::mt19937 random(100 + n);
  for (uint64_t job = 0; job < 1500; ++job) {
    Pieces pieces{{}, std::vector<uint64_t>(random() % (job % 10 ? 8 : 500)), job, random() % 50};
    pool.help(1 + random() % n, &Pieces::body, &pieces);
    for (std::size_t i = 0; i < pieces.done.size(); ++i) CHECK(pieces.done[i] == job + i);
    rest(random);
  }
}

/// Between a post and its join the caller does something else; then it, or another thread for it, helps or
/// abandons the job.
void what_is_posted_goes_on_meanwhile(unsigned n) {
  Threads pool(n);
  std::mt19937 random(400 + n);
  for (uint64_t job = 0; job < 600; ++job) {
    Pieces pieces{{}, std::vector<uint64_t>(random() % (job % 10 ? 8 : 500)), job, random() % 50};
    const unsigned count = 1 + random() % n;
    if (job % 3)
      pool.post(count, &Pieces::body, &pieces);
    else
      CHECK(pool.try_post(count, &Pieces::body, &pieces));
    rest(random);
    CHECK(!pool.try_post(count, &Pieces::body, &pieces));
    const bool helps = random() % 4;
    const auto join = [&](unsigned) { pool.join(count, helps ? &Pieces::body : nullptr, &pieces); };
    job % 16 ? join(0) : in_threads(1, join);
    for (std::size_t i = 0; i < pieces.done.size(); ++i)
      CHECK(pieces.done[i] == job + i || (!helps && pieces.done[i] == 0));
  }
}

/// A caller that posts one job after another without a pause must not keep other callers waiting for ever.
void who_waits_is_not_passed_over() {
  Threads pool(2);
  for (int round = 0; round < 50; ++round) {
    Pieces mine{{}, std::vector<uint64_t>(8), 1, 10}, other{{}, std::vector<uint64_t>(8), 2, 10};
    pool.post(2, &Pieces::body, &mine);
    std::thread waits([&] { pool.help(2, &Pieces::body, &other); });
    while (pool.waiting() == 0) std::this_thread::yield();
    CHECK(!pool.try_post(2, &Pieces::body, &mine));
    pool.join(2, &Pieces::body, &mine);
    waits.join();
    CHECK(other.done[7] == 9);
    CHECK(pool.waiting() == 0 && pool.try_post(2, &Pieces::body, &mine));
    pool.join(2, &Pieces::body, &mine);
  }
}

void callers_of_one_pool_take_turns() {
  Threads pool(3, 1000);
  uint64_t inside = 0;  // plain: the turns are its lock
  in_threads(4, [&](unsigned caller) {
    std::mt19937 random(caller);
    for (uint64_t job = 0; job < 500; ++job) {
      struct Both {
        Counted counted;
        uint64_t* inside;
      } both{{std::vector<uint64_t>(3), job}, &inside};
      const auto body = [](void* self, unsigned thread) {
        auto& b = *static_cast<Both*>(self);
        if (thread == 0) ++*b.inside;
        Counted::body(&b.counted, thread);
      };
      const unsigned count = std::max(1u, pool.useful(random() % 4000));
      job % 2 ? pool.run(count, body, &both) : pool.help(count, body, &both);
      CHECK(both.counted.of_thread[0] == job);
      if (job % 2)
        for (unsigned t = 0; t < count; ++t) CHECK(both.counted.of_thread[t] == job);
      pool.learn(count, random() % 8000, 1000, random() % 1000);
      rest(random);
    }
  });
  CHECK(inside == 4 * 500);
}

/// Pools are made and destroyed over and over, several at once: before their threads ever ran, right after a
/// job, asleep.
void pools_come_and_go() {
  in_threads(4, [](unsigned maker) {
    std::mt19937 random(200 + maker);
    for (int round = 0; round < 40; ++round) {
      const auto n = static_cast<unsigned>(1 + random() % 8);
      auto pool = std::make_unique<Threads>(n);
      for (uint64_t job = random() % 4; job > 0; --job) {
        rest(random);
        Counted counted{std::vector<uint64_t>(n), job};
        pool->run(n, &Counted::body, &counted);
        CHECK(std::accumulate(counted.of_thread.begin(), counted.of_thread.end(), uint64_t{0}) == n * job);
      }
      rest(random);
    }
  });
}

/// One thread waits and another wakes it, at every point from spinning to sleep.
void nobody_sleeps_through_a_change() {
  for (const bool crowded : {false, true}) {
    const Waiter waiter(crowded);
    std::atomic<uint32_t> turn{0};
    uint64_t ball = 0;  // plain memory: only the thread whose turn it is may touch it
    constexpr uint32_t kTurns = 3000;
    const auto play = [&](uint32_t me) {
      std::mt19937 random(300 + me);
      for (uint32_t i = me; i < kTurns; i += 2) {
        for (uint32_t is; (is = turn.load(std::memory_order_acquire)) != i;) waiter.while_equal(turn, is);
        rest(random);
        ++ball;
        turn.store(i + 1);
        turn.notify_all();
      }
    };
    in_threads(2, play);
    CHECK(ball == kTurns);
  }
}

}  // namespace

int main() {
  for (const unsigned n : {1u, 2u, 3u, 4u, 16u}) {
    each_thread_runs_each_job_once(n);
    help_is_over_when_all_pieces_are_done(n);
    what_is_posted_goes_on_meanwhile(n);
  }
  callers_of_one_pool_take_turns();
  who_waits_is_not_passed_over();
  pools_come_and_go();
  nobody_sleeps_through_a_change();
  std::puts("ok");
}
