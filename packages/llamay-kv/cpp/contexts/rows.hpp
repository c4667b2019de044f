#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llamay::kv {

/// A position of a context that is no token holds row `index` of the vectors that a digest names. Contexts
/// list such a row as a negative id, so that ids stay 32-bit integers that are only compared: a token id is 0
/// or more, -1 is a position whose token was not given, and rows are -2 and below.
using Digest = std::array<uint8_t, 32>;

constexpr int32_t kUnknownToken = -1;

class RowTable;

/// One digest and the ids of its rows. While it has a holder, these ids mean nothing else.
class RowSource : public std::enable_shared_from_this<RowSource> {
 public:
  explicit RowSource(const Digest& digest) : digest(digest) {}
  const Digest digest;

 private:
  friend class RowTable;
  struct Run {
    uint32_t count, first;  // rows, and the id of the first one without its sign
  };
  std::map<uint32_t, Run> runs_;  // by the index of their first row; under the table's lock
};

/// The sources of the rows among some ids, each once.
using HeldRows = std::vector<std::shared_ptr<const RowSource>>;

/// The ids of rows, exact in both directions: a row has one id and an id one row, for as long as the row's
/// source has a holder. One table serves the whole process, so that ids mean the same in all pools. Thread
/// safe; its lock is the innermost.
class RowTable {
 public:
  static RowTable& process();

  /// Hold rows [begin, end) of a digest. Throws std::length_error if there are no ids left for them.
  std::shared_ptr<const RowSource> intern(const Digest& digest, uint32_t begin, uint32_t end);
  /// The ids of rows that were interned.
  std::vector<int32_t> ids(const RowSource& source, uint32_t begin, uint32_t end) const;
  /// The source and the index of a row; null if the id is no row's.
  std::pair<std::shared_ptr<const RowSource>, uint32_t> find(int32_t id) const;
  /// Hold the rows among the ids. Throws std::invalid_argument at an id that is neither a token, unknown nor
  /// a row.
  HeldRows hold(std::span<const int32_t> ids) const;
  /// How many digests have rows.
  size_t size() const;

 private:
  struct Span {
    uint32_t count, index;  // ids, and the index of the first one's row
    RowSource* source;      // alive for as long as it is listed, perhaps without a holder
  };
  RowTable() = default;
  uint32_t allocate(uint32_t count);
  void remove(RowSource* source);
  std::map<uint32_t, Span>::const_iterator span_of(uint32_t magnitude) const;

  mutable std::mutex mutex_;
  std::map<Digest, RowSource*> sources_;
  std::map<uint32_t, Span> spans_;  // by their first id without its sign
  uint32_t next_ = 2;               // where the search for free ids begins: released ids are reused last
};

/// Add a source unless it is there.
void hold_once(HeldRows& to, std::shared_ptr<const RowSource> source);

inline bool is_row(int32_t id) { return id < kUnknownToken; }

/// Whether there are rows among the ids.
bool any_row(std::span<const int32_t> ids);

/// Ids that mean the same in every process: rows are numbered -2, -3, … as they first appear, and `table`
/// lists their meanings. A list of ids has exactly one such form.
struct DescribedIds {
  std::vector<int32_t> ids;
  std::string table;  // for each run of numbers: the digest, the index of the first row, the number of rows
};
constexpr size_t kDescribedRun = 40;

DescribedIds describe(std::span<const int32_t> ids);

/// The ids of this process, and the sources that hold them. Throws std::invalid_argument unless the arguments
/// have the form that describe() gives.
std::pair<std::vector<int32_t>, HeldRows> resolve(std::span<const int32_t> ids, std::string_view table);

}  // namespace llamay::kv
