#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "contexts/tokens.hpp"
#include "pages/spill.hpp"
#include "pages/table.hpp"

namespace llamay::kv {

/// The context is in use: a lease is open, or another thread holds one.
struct ContextBusyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A context or a lease that was used after its end.
struct ClosedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Opaque state that belongs to the length a context has: last logits, sampler, matcher.
struct SideState {
  uint32_t version;
  std::string data;
};
using SideStates = std::map<std::string, SideState>;

/// The owner of the context and its confidentiality. Forks inherit them, and no operation on tokens loses
/// them.
struct Labels {
  std::string owner, marking;  // empty if there is none
};

/// Run f; when it is out of pages, ask the pool's other holders for some and run it again. f must leave
/// things as they were when it throws, and hold no lock by then.
template <class F>
auto with_reclaim(Pool& pool, F&& f) {
  for (;;) {
    uint64_t missing = 0;
    try {
      return f();
    } catch (const OutOfPagesError& e) {
      missing = e.missing_bytes;
      if (!pool.reclaim(missing)) throw;
    }
  }
}

/// The access of a kernel: a kv_view, with the table that keeps its pages alive and in memory.
class Export {
 public:
  /// The table must not be cold, and the gate held.
  Export(Ref<Table> table, uint32_t n_tokens, uint32_t n_reserved);
  ~Export() {
    if (pinned_) table_->unpin();
  }
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;
  const llamay_kv_view* view() const { return &view_; }
  const Table& table() const { return *table_; }

 private:
  llamay_kv_view view_;
  Ref<Table> table_;
  static constexpr size_t kInline = 4;  // models have one to three groups: no second allocation for them
  llamay_kv_group inline_[kInline];
  std::unique_ptr<llamay_kv_group[]> more_;
  std::vector<const int32_t*> states_;  // for each group the page numbers of its states
  bool pinned_;
};

class Lease;

/// A value: token ids and the pages that hold their K/V. A copy costs two counts, at any length.
///
/// Between reserve and commit the table lists the reserved pages too; at any other time exactly the pages
/// that hold tokens. Every operation takes the context's mutex for as long as it touches the table, so
/// threads may fork one parent at will. The holder of a lease owns the context: other threads are refused,
/// and so is a second lease.
class Context {
  struct Private {};

 public:
  static constexpr size_t kAllGroups = SIZE_MAX;
  explicit Context(std::shared_ptr<Pool> pool);
  Context(Private, std::shared_ptr<Pool> pool, Ref<Table> table, Ref<Tokens> tokens, uint32_t n_tokens,
          std::shared_ptr<const SideStates> side);

  /// A context over a table and tokens without another holder.
  static std::shared_ptr<Context> adopt(std::shared_ptr<Pool> pool, Ref<Table> table, Ref<Tokens> tokens,
                                        uint32_t n_tokens);

  const std::shared_ptr<Pool>& pool() const { return pool_; }
  uint32_t size() const;
  bool closed() const;
  bool leased() const;

  /// A context with the same tokens. Allocates no page. While a lease is open the fork has the committed
  /// tokens only.
  std::shared_ptr<Context> fork() const;

  /// Keep the first n tokens. Throws std::invalid_argument if n is more than there are, if a window group has
  /// dropped a page that a context of n tokens still needs, or if a recurrent group has no state there.
  void truncate(uint32_t n);

  /// Lengths whose recurrent states are kept, so that they can be truncated to.
  std::vector<uint32_t> checkpoints() const;
  /// Keep the present state as a checkpoint.
  void checkpoint();
  /// Give up the checkpoints before n tokens.
  void forget_checkpoints(uint32_t n);
  /// Give up the checkpoint at n tokens. Throws std::invalid_argument if there is none.
  void forget_checkpoint(uint32_t n);
  /// The largest length up to n that truncate can go to.
  uint32_t nearest(uint32_t n) const;

  /// Make [begin, end) of the committed positions writable in place, cloning shared pages, run `write` on the
  /// table, and forget side state.
  template <class Write>
  void overwrite(uint32_t begin, uint32_t end, Write&& write, size_t group = kAllGroups) {
    const Pin pin = pin_resident();
    with_reclaim(*pool_, [&] {
      std::lock_guard lock(mutex_);
      const Gate gate(*pool_);
      enter_exclusive();
      if (begin > end || end > n_tokens_) throw_range(begin, end, n_tokens_);
      require_present(begin, end, group);
      make_writable(begin, end, group);
      write(*table_);
      side_.reset();
    });
  }

  /// Count one more owner, each of whom closes the context.
  void retain();
  /// Give up pages and tokens, once every owner has closed the context. Views stay valid until they are
  /// released. An open lease ends. Closing twice does nothing.
  void close();

  std::vector<int32_t> tokens(uint32_t begin, uint32_t end) const;
  /// A view for reading: later operations of the context do not change it.
  std::unique_ptr<Export> view() const;
  /// The page table, without touching the pages: they need not be in memory.
  struct Peek {
    Ref<Table> table;
    uint32_t n_tokens;
  };
  Peek peek() const;

  std::shared_ptr<const Labels> labels() const;  // null if there are none
  /// Throws std::invalid_argument if it has a marking and the labels have another or none.
  void set_labels(std::shared_ptr<const Labels> labels);

  std::shared_ptr<const SideStates> side() const;
  void set_side(std::shared_ptr<const SideStates> side);

 private:
  friend class Lease;
  friend Lease reserve(const std::shared_ptr<Context>&, uint32_t, std::span<const uint32_t>,
                       std::optional<std::span<const uint32_t>>);
  Lease open_lease(const std::shared_ptr<Context>& self, uint32_t n, std::span<const uint32_t> first,
                   std::optional<std::span<const uint32_t>> states);

  /// Keeps the context's pages in memory. Nothing where the pool does not spill.
  class Pin {
   public:
    Pin() = default;
    Pin(const Context& context, const Table& table) : context_(&context), table_(table.id()) {}
    ~Pin();
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    const Context* context_ = nullptr;
    uint64_t table_ = 0;
  };
  /// Bring pages back that are in the spill file, and keep them. Throws PagesLostError, and the context is
  /// closed.
  Pin pin_resident() const;
  /// Take another table. The pins of `pin_resident` are on the old one, so they are released.
  void replace_table(Ref<Table> next) {
    for (; resident_pins_; --resident_pins_) table_->unpin();
    table_ = std::move(next);
  }
  void release_everything();

  void enter() const;            // refuses a closed context, and other threads during a lease
  void enter_exclusive() const;  // refuses an open lease as well
  void make_writable(uint32_t begin, uint32_t end, size_t group = kAllGroups,
                     std::span<const uint32_t> states = {});
  std::vector<uint32_t> states_to_write(uint32_t n, std::optional<std::span<const uint32_t>> wanted) const;
  void require_present(uint32_t begin, uint32_t end, size_t group) const;
  void require_state(uint32_t n) const;
  bool windows_reach(uint32_t n) const;
  bool on_stride(uint32_t n) const;
  /// The lease is over: back to exactly the pages and states that the tokens have, and checkpoints.
  template <class Keep>
  void end_lease(Keep&& keep) {
    if (pool_->spill()) table_->unpin();
    lease_ = 0;
    if (pool_->has_states()) {
      if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
      table_->states().settle(n_tokens_, keep);
      table_->states().thin(pool_->most_checkpoints());
    }
    trim();
  }
  void trim();
  void start_at(std::span<const uint32_t> first, uint32_t n);
  void drop_behind_windows();
  [[noreturn]] static void throw_range(uint32_t begin, uint32_t end, uint32_t n);
  uint32_t pages_for(uint32_t n) const {
    return pool_->n_groups() ? (n + pool_->page_tokens() - 1) / pool_->page_tokens() : 0;
  }

  std::shared_ptr<Pool> pool_;
  mutable std::mutex mutex_;
  Ref<Table> table_;  // empty once closed
  Ref<Tokens> tokens_;
  std::shared_ptr<const SideStates> side_;
  std::shared_ptr<const Labels> labels_;
  uint32_t n_tokens_ = 0;
  mutable uint32_t resident_pins_ = 0;  // pins of `pin_resident` on the table
  uint32_t owners_ = 1;
  uint64_t lease_ = 0;  // number of the open lease, or 0
  uint64_t leases_ = 0;
  std::thread::id lease_thread_;
};

/// The right to write the next n positions of a context, until commit or release.
class Lease {
 public:
  Lease(std::shared_ptr<Context> context, uint64_t number, uint32_t begin, uint32_t n)
      : context_(std::move(context)), number_(number), begin_(begin), n_(n) {}
  Lease(Lease&& o) noexcept = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() { release(); }

  uint32_t begin() const { return begin_; }
  uint32_t size() const { return n_; }
  bool open() const;
  const std::shared_ptr<Context>& context() const { return context_; }

  /// The view of a step: [0, begin) readable, [begin, begin + n) writable. Costs the same at any length.
  std::unique_ptr<Export> view() const;

  /// Note that the recurrent state at a position, or all of them, were written; others cannot be committed.
  void state_written(uint32_t at) { written_.push_back(at); }
  void states_written() { all_written_ = true; }
  bool written(uint32_t at) const;
  /// Numbers of reserved tokens after which a recurrent state is to be written.
  std::vector<uint32_t> states() const;

  /// The ids become tokens of the context; reserved positions beyond them are given up. Ends the
  /// lease. In a context with recurrent groups there must be a state at their end; with `checkpoints` all
  /// reserved states before it are kept, otherwise only the states on the groups' stride. Throws
  /// std::invalid_argument, and the lease stays open, if an id is neither a token, unknown nor a row that is
  /// held.
  void commit(std::span<const int32_t> ids, bool checkpoints = false);

  /// End the lease and keep nothing. Nothing happens if it has ended.
  void release() noexcept;

 private:
  void enter() const;
  void require_states(uint32_t end, bool checkpoints) const;

  std::shared_ptr<Context> context_;
  uint64_t number_;
  uint32_t begin_, n_;
  bool all_written_ = false;
  std::vector<uint32_t> written_;
};

/// Make the next n positions writable: take pages, clone a shared last page. All of it, or OutOfPagesError
/// and no change. For an empty context `first` may say from which position on each group is going to be
/// filled. Recurrent groups get room for the state after all n, after each of `states` (numbers of new
/// tokens), and at each multiple of a group's stride between.
Lease reserve(const std::shared_ptr<Context>& context, uint32_t n, std::span<const uint32_t> first = {},
              std::optional<std::span<const uint32_t>> states = {});

}  // namespace llamay::kv
