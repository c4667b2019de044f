// The calls of a scheduler from many threads at once; meant for ThreadSanitizer, and useful without it.
#include <algorithm>
#include <atomic>
#include <functional>

#include "check.hpp"
#include "contexts/context.hpp"
#include "pages/copy.hpp"
#include "tree/prefix_tree.hpp"

using namespace llamay::kv;

namespace {

std::shared_ptr<Pool> make_pool(uint32_t pages) {
  std::vector<GroupSpec> spec{{Kind::full, 0, Precision::f16, {{0, 1, 16, 16}}}};
  return std::make_shared<Pool>(spec, 16, pages * GroupLayout(spec[0], 16).page_bytes);
}

void append(const std::shared_ptr<Context>& context, uint32_t n, float value) {
  Lease lease = reserve(context, n);
  const auto view = lease.view();
  std::vector<float> row(16, value);
  for (uint32_t i = 0; i < n; ++i)
    scatter(view->table(), {0, 0}, lease.begin() + i, lease.begin() + i + 1, Element::f32, row.data(),
            row.data());
  lease.commit(std::vector<int32_t>(n, int32_t(value)));
}

void expect(const std::shared_ptr<Context>& context, uint32_t begin, uint32_t end, float value) {
  const auto view = context->view();
  float k[16], v[16];
  for (uint32_t at = begin; at < end; ++at) {
    gather(view->table(), {0, 0}, at, at + 1, Element::f32, k, v);
    CHECK(k[3] == value && v[15] == value);
  }
}

void in_threads(int n, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int t = 0; t < n; ++t) threads.emplace_back(f, t);
  for (auto& t : threads) t.join();
}

void sixteen_threads_fork_one_parent() {
  auto pool = make_pool(4096);
  auto parent = std::make_shared<Context>(pool);
  append(parent, 100, 7);
  in_threads(16, [&](int t) {
    for (int i = 0; i < 40; ++i) {
      auto fork = parent->fork();
      append(fork, 5 + uint32_t(t), float(t + 1));
      expect(fork, 0, 100, 7);
      expect(fork, 100, 105, float(t + 1));
      if (i % 3 == 0) fork->truncate(50);
    }
  });
  expect(parent, 0, 100, 7);
  pool->audit();
  CHECK(pool->live_pages(0) == 7);
}

/// Readers hold views of a context that its owner keeps rewriting and extending.
void readers_race_a_decode_that_rewrites_the_prefix() {
  auto pool = make_pool(1 << 14);
  auto context = std::make_shared<Context>(pool);
  append(context, 90, 1);
  std::atomic<bool> stop = false;
  auto snapshot = context->fork();
  std::thread owner([&] {
    std::vector<float> row(16, 2);
    for (int i = 0; i < 300; ++i) {
      context->overwrite(uint32_t(i % 90), uint32_t(i % 90) + 1, [&](const Table& t) {
        scatter(t, {0, 0}, uint32_t(i % 90), uint32_t(i % 90) + 1, Element::f32, row.data(), row.data());
      });
      append(context, 1, 2);
    }
    stop = true;
  });
  in_threads(4, [&](int) {
    while (!stop) expect(snapshot, 0, 90, 1);
  });
  owner.join();
  expect(context, 90, 390, 2);
  context->close();
  snapshot->close();
  pool->audit();
  CHECK(pool->used_bytes() == 0);
}

/// Forks are taken from the leasing thread and handed to others while it writes beyond their end.
void forks_in_the_middle_of_a_lease_are_independent() {
  auto pool = make_pool(4096);
  auto parent = std::make_shared<Context>(pool);
  append(parent, 20, 1);
  for (int round = 0; round < 100; ++round) {
    Lease lease = reserve(parent, 10);
    const auto view = lease.view();
    auto fork = parent->fork();
    const uint32_t n = fork->size();
    std::thread branch([&, n] {
      append(fork, 3, 9);
      expect(fork, 0, n, 1);
      expect(fork, n, n + 3, 9);
      fork->close();
    });
    std::vector<float> row(16, 1);
    for (uint32_t i = 0; i < 10; ++i)
      scatter(view->table(), {0, 0}, lease.begin() + i, lease.begin() + i + 1, Element::f32, row.data(),
              row.data());
    lease.commit(std::vector<int32_t>(10, 1));
    branch.join();
  }
  expect(parent, 0, parent->size(), 1);
  pool->audit();
}

/// A pool that is always nearly empty: each page has one holder.
void threads_compete_for_the_last_pages() {
  auto pool = make_pool(24);
  std::atomic<int> refused = 0;
  in_threads(8, [&](int t) {
    for (int i = 0; i < 300; ++i) {
      auto context = std::make_shared<Context>(pool);
      try {
        append(context, 40, float(t));
        auto fork = context->fork();
        append(fork, 30, float(t));
        expect(fork, 0, 70, float(t));
        expect(context, 0, 40, float(t));
      } catch (const OutOfPagesError&) {
        ++refused;
      }
    }
  });
  pool->audit();
  CHECK(pool->used_bytes() == 0 && pool->peak_bytes() <= pool->budget_bytes());
}

void two_threads_cannot_both_lease() {
  auto pool = make_pool(64);
  auto context = std::make_shared<Context>(pool);
  std::atomic<int> committed = 0;
  in_threads(8, [&](int) {
    for (int i = 0; i < 20; ++i) try {
        append(context, 1, 1);
        ++committed;
      } catch (const ContextBusyError&) {
      }
  });
  CHECK(int(context->size()) == committed);
}

/// Threads allocate under a tree that must keep giving pages up, while others match, insert and pin.
void eviction_races_allocation() {
  auto pool = make_pool(40);
  auto tree = PrefixTree::make(pool, 30 * pool->layout(0).page_bytes, {});
  std::atomic<int> refused = 0, hits = 0;
  in_threads(8, [&](int t) {
    for (int i = 0; i < 150; ++i) {
      try {
        const int32_t value = (t + i) % 5;
        const std::vector<int32_t> prompt(48, value);
        // Namespaces and tenants go with their last node, and come back.
        const std::string space = std::to_string(value % 2), tenant = value % 3 ? std::to_string(value) : "";
        auto context = tree->match(prompt, space, tenant);
        expect(context, 0, context->size(), float(value));
        hits += context->size() > 0;
        append(context, 60 - context->size(), float(value));
        expect(context, 0, 60, float(value));
        tree->insert(*context, space, tenant, 0);
        const auto [pin, kept] = tree->pin(prompt, space, tenant);
        if (i % 7 == 0) tree->reclaim(2 * pool->layout(0).page_bytes, true);
        tree->unpin(pin);
      } catch (const OutOfPagesError&) {
        ++refused;
      }
    }
  });
  pool->audit();
  CHECK(hits > 0);
  tree->clear();
  pool->audit();
  CHECK(pool->used_bytes() == 0);
  CHECK(tree->stats().spaces == 0 && tree->stats().tenants == 0);
}

/// Keeps pages in memory, turned over so that a page that was not read back shows.
class FakeStore : public SpillStore {
 public:
  size_t overhead() const override { return 0; }
  bool write(size_t group, uint32_t slot, uint64_t serial, std::span<const std::byte> page) override {
    auto& kept = slots_[{group, slot}];
    kept.first = serial;
    kept.second.assign(page.begin(), page.end());
    for (std::byte& b : kept.second) b = ~b;
    return true;
  }
  void read(size_t group, uint32_t slot, uint64_t serial, std::span<std::byte> page) override {
    const auto& [written, bytes] = slots_.at({group, slot});
    if (written != serial) throw std::runtime_error("another version");
    std::transform(bytes.begin(), bytes.end(), page.begin(), [](std::byte b) { return ~b; });
  }

 private:
  std::map<std::pair<size_t, uint32_t>, std::pair<uint64_t, std::vector<std::byte>>> slots_;
};

/// Threads use contexts, forks and a tree whose pages other threads spill to the file all the while.
void spilling_races_use() {
  std::vector<GroupSpec> spec{{Kind::full, 0, Precision::f16, {{0, 1, 16, 16}}},
                              {Kind::state, 0, Precision::f32, {{1, 1, 0, 16}}, 32}};
  const uint64_t page = GroupLayout(spec[0], 16).page_bytes;
  auto pool = std::make_shared<Pool>(
      spec, 16, PoolOptions{60 * page, std::make_shared<FakeStore>(), 4000 * page, nullptr});
  auto tree = PrefixTree::make(pool, 400 * page, {});
  const auto grow = [](const std::shared_ptr<Context>& context, uint32_t n, float value) {
    Lease lease = reserve(context, n);
    const auto view = lease.view();
    std::vector<float> row(16, value);
    for (uint32_t i = 0; i < n; ++i)
      scatter(view->table(), {0, 0}, lease.begin() + i, lease.begin() + i + 1, Element::f32, row.data(),
              row.data());
    const llamay_kv_group& states = view->view()->groups[1];
    for (uint64_t i = 0; i < states.n_states; ++i)
      if (states.state_at[i] > view->view()->n_tokens)
        *reinterpret_cast<float*>(static_cast<std::byte*>(states.arena) +
                                  size_t(states.blocks[0][i]) * states.page_bytes) = value;
    lease.states_written();
    lease.commit(std::vector<int32_t>(n, int32_t(value)));
  };
  const auto state_is = [](const std::shared_ptr<Context>& context, float value) {
    const auto view = context->view();
    const llamay_kv_group& g = view->view()->groups[1];
    CHECK(g.n_states == 1 && g.state_at[0] == view->view()->n_tokens);
    CHECK(*reinterpret_cast<float*>(static_cast<std::byte*>(g.arena) +
                                    size_t(g.blocks[0][0]) * g.page_bytes) == value);
  };
  auto parent = std::make_shared<Context>(pool);
  grow(parent, 40, 9);
  std::atomic<bool> stop = false;
  std::thread spiller([&] {
    while (!stop) {
      pool->spill()->spill(10 * page);
      std::this_thread::yield();
    }
  });
  std::atomic<int> refused = 0, done = 0;
  in_threads(8, [&](int t) {
    for (int i = 0; i < 60; ++i) {
      try {
        const auto value = float((t + i) % 5);
        auto fork = parent->fork();
        grow(fork, 3, value);
        expect(fork, 0, 40, 9);
        expect(fork, 40, 43, value);
        state_is(fork, value);
        auto context = tree->match(std::vector<int32_t>(48, int32_t(value)), "", "");
        expect(context, 0, context->size(), value);
        if (context->size() < 48) grow(context, 48 - context->size(), value);
        expect(context, 0, 48, value);
        tree->insert(*context, "", "", 0);
        if (i % 3 == 0) context->truncate(32);
        state_is(context, value);
        context->overwrite(3, 4, [&](const Table& table) {
          std::vector<float> row(16, value);
          scatter(table, {0, 0}, 3, 4, Element::f32, row.data(), row.data());
        });
        expect(context, 0, 32, value);
        ++done;
      } catch (const OutOfPagesError&) {
        ++refused;
      }
    }
  });
  stop = true;
  spiller.join();
  expect(parent, 0, 40, 9);
  state_is(parent, 9);
  pool->audit();
  CHECK(done > 0 && pool->spill()->stats().read_pages > 0 && pool->spill()->stats().failed_reads == 0);
  tree->clear();
  parent->close();
  pool->audit();
  CHECK(pool->used_bytes() == 0 && pool->spill()->stats().spilled_pages == 0);
}

/// The last holder of a digest's rows goes while others ask for the same digest.
void rows_come_and_go() {
  auto pool = make_pool(1 << 12);
  auto tree = PrefixTree::make(pool, pool->budget_bytes() / 4, {});
  RowTable& table = RowTable::process();
  in_threads(8, [&](int t) {
    for (int i = 0; i < 120; ++i) {
      Digest digest{};
      digest[0] = uint8_t((t + i) % 3);
      const auto first = uint32_t(i % 5), end = first + 1 + uint32_t((t * 7 + i) % 40);
      auto source = table.intern(digest, first, end);
      const std::vector<int32_t> ids = table.ids(*source, first, end);
      for (uint32_t r = first; r < end; ++r) {
        const auto [found, index] = table.find(ids[r - first]);
        CHECK(found == source && index == r);
      }
      auto context = std::make_shared<Context>(pool);
      {
        Lease lease = reserve(context, uint32_t(ids.size()));
        lease.commit(ids);
      }
      source.reset();
      CHECK(table.find(ids.back()).first->digest == digest);
      tree->insert(*context, "", "", 0);
      auto found = tree->match(ids, "", "");
      const DescribedIds described = describe(found->tokens(0, found->size()));
      for (size_t at = 0; at < described.table.size(); at += kDescribedRun)
        CHECK(uint8_t(described.table[at]) == digest[0]);
      auto [resolved, held] = resolve(described.ids, described.table);
      CHECK(std::equal(resolved.begin(), resolved.end(), ids.begin()));
      if (i % 3 == 0) context->truncate(uint32_t(ids.size()) / 2);
    }
  });
  CHECK(table.size() > 0);
  tree->clear();
  CHECK(table.size() == 0);
  pool->audit();
}

}  // namespace

int main() {
  sixteen_threads_fork_one_parent();
  readers_race_a_decode_that_rewrites_the_prefix();
  forks_in_the_middle_of_a_lease_are_independent();
  threads_compete_for_the_last_pages();
  two_threads_cannot_both_lease();
  eviction_races_allocation();
  spilling_races_use();
  rows_come_and_go();
  std::puts("ok");
}
