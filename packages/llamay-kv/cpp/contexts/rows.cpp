#include "contexts/rows.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

namespace llamay::kv {
namespace {

constexpr uint32_t kFirst = 2, kEnd = uint32_t(1) << 31;  // of the ids without their sign

uint32_t magnitude(int32_t id) { return uint32_t(-int64_t(id)); }

void put(std::string& out, uint32_t n) {
  char bytes[sizeof n];
  std::memcpy(bytes, &n, sizeof n);
  out.append(bytes, sizeof n);
}

uint32_t number(const char* bytes) {
  uint32_t n;
  std::memcpy(&n, bytes, sizeof n);
  return n;
}

}  // namespace

RowTable& RowTable::process() {
  static auto* const table = new RowTable;  // never destroyed: holders of rows may outlive all else
  return *table;
}

std::shared_ptr<const RowSource> RowTable::intern(const Digest& digest, uint32_t begin, uint32_t end) {
  std::shared_ptr<RowSource> source;  // goes after the lock: its end takes it again
  std::lock_guard lock(mutex_);
  const auto known = sources_.find(digest);
  // A source whose last holder has just gone is about to be removed: it gets a successor.
  if (known != sources_.end()) source = known->second->weak_from_this().lock();
  if (!source) {
    source = {new RowSource(digest), [this](RowSource* gone) {
                remove(gone);
                delete gone;
              }};
    sources_[digest] = source.get();
  }
  auto& runs = source->runs_;
  for (uint32_t at = begin; at < end;) {
    auto after = runs.upper_bound(at);
    if (after != runs.begin()) {
      const auto& [index, run] = *std::prev(after);
      if (at - index < run.count) {
        at = index + run.count;
        continue;
      }
    }
    const uint32_t stop = after == runs.end() ? end : std::min(end, after->first);
    const uint32_t first = allocate(stop - at);
    const auto place = runs.emplace_hint(after, at, RowSource::Run{stop - at, first});
    try {
      spans_.emplace(first, Span{stop - at, at, source.get()});
    } catch (...) {
      runs.erase(place);
      throw;
    }
    next_ = first + (stop - at);
    at = stop;
  }
  return source;
}

/// The first of so many free ids, from the last ones given out on.
uint32_t RowTable::allocate(uint32_t count) {
  for (const uint32_t from : {next_, kFirst}) {
    uint32_t at = from;
    auto span = spans_.lower_bound(from);
    if (span != spans_.begin()) {
      const auto before = std::prev(span);
      at = std::max(at, before->first + before->second.count);
    }
    for (; span != spans_.end() && span->first - at < count; ++span) at = span->first + span->second.count;
    if (kEnd - at >= count) return at;
  }
  throw std::length_error("there are no ids left for " + std::to_string(count) + " rows");
}

void RowTable::remove(RowSource* source) {
  std::lock_guard lock(mutex_);
  for (const auto& [index, run] : source->runs_) spans_.erase(run.first);
  const auto known = sources_.find(source->digest);
  if (known != sources_.end() && known->second == source) sources_.erase(known);
}

std::vector<int32_t> RowTable::ids(const RowSource& source, uint32_t begin, uint32_t end) const {
  std::vector<int32_t> ids;
  ids.reserve(end - begin);
  std::lock_guard lock(mutex_);
  for (uint32_t at = begin; at < end; ++at) {
    const auto& [index, run] = *std::prev(source.runs_.upper_bound(at));
    ids.push_back(int32_t(-int64_t(run.first + (at - index))));
  }
  return ids;
}

std::map<uint32_t, RowTable::Span>::const_iterator RowTable::span_of(uint32_t id) const {
  const auto after = spans_.upper_bound(id);
  if (after == spans_.begin()) return spans_.end();
  const auto span = std::prev(after);
  return id - span->first < span->second.count ? span : spans_.end();
}

std::pair<std::shared_ptr<const RowSource>, uint32_t> RowTable::find(int32_t id) const {
  if (!is_row(id)) return {};
  std::shared_ptr<const RowSource> source;
  std::lock_guard lock(mutex_);
  const auto span = span_of(magnitude(id));
  if (span == spans_.end()) return {};
  source = span->second.source->weak_from_this().lock();
  const uint32_t index = source ? span->second.index + (magnitude(id) - span->first) : 0;
  return {std::move(source), index};
}

HeldRows RowTable::hold(std::span<const int32_t> ids) const {
  HeldRows held;
  if (!any_row(ids)) return held;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ids.size();) {
    if (!is_row(ids[i])) {
      ++i;
      continue;
    }
    const auto span = span_of(magnitude(ids[i]));
    auto source = span == spans_.end() ? nullptr : span->second.source->weak_from_this().lock();
    if (!source)
      throw std::invalid_argument(
          "id " + std::to_string(ids[i]) +
          " is neither a token nor a row that is held; keep the result of Pool.rows() "
          "for as long as its ids are in use");
    // Most often the rows of a source follow one another.
    while (i < ids.size() && is_row(ids[i]) && magnitude(ids[i]) - span->first < span->second.count) ++i;
    hold_once(held, std::move(source));
  }
  return held;
}

size_t RowTable::size() const {
  std::lock_guard lock(mutex_);
  return sources_.size();
}

void hold_once(HeldRows& to, std::shared_ptr<const RowSource> source) {
  if (std::find(to.begin(), to.end(), source) == to.end()) to.push_back(std::move(source));
}

bool any_row(std::span<const int32_t> ids) {
  int32_t least = 0;  // without a branch: this looks at all tokens of a prompt
  for (const int32_t id : ids) least = std::min(least, id);
  return is_row(least);
}

DescribedIds describe(std::span<const int32_t> ids) {
  DescribedIds out{{ids.begin(), ids.end()}, {}};
  if (!any_row(ids)) return out;
  std::unordered_map<int32_t, int32_t> numbers;
  std::shared_ptr<const RowSource> source;  // of the run that is being written
  uint32_t first = 0, count = 0;
  const auto end_run = [&] {
    if (!source) return;
    out.table.append(reinterpret_cast<const char*>(source->digest.data()), source->digest.size());
    put(out.table, first);
    put(out.table, count);
  };
  for (int32_t& id : out.ids) {
    if (!is_row(id)) continue;
    const auto [number, fresh] = numbers.try_emplace(id, int32_t(-2 - int64_t(numbers.size())));
    if (fresh) {
      auto [of, index] = RowTable::process().find(id);
      if (!of) throw std::invalid_argument("id " + std::to_string(id) + " is no row that is held");
      if (!source || source->digest != of->digest || index != first + count) {
        end_run();
        source = std::move(of);
        first = index;
        count = 0;
      }
      ++count;
    }
    id = number->second;
  }
  end_run();
  return out;
}

std::pair<std::vector<int32_t>, HeldRows> resolve(std::span<const int32_t> ids, std::string_view table) {
  const auto refuse = [](const char* what) -> std::invalid_argument {
    return std::invalid_argument(std::string("the table of rows ") + what);
  };
  std::pair<std::vector<int32_t>, HeldRows> out;
  auto& [resolved, held] = out;
  if (table.empty() && !any_row(ids)) {
    resolved.assign(ids.begin(), ids.end());
    return out;
  }
  const std::string_view whole = table;
  if (table.size() % kDescribedRun) throw refuse("is not made of whole entries");
  std::vector<int32_t> rows;  // by their number
  for (; !table.empty(); table.remove_prefix(kDescribedRun)) {
    Digest digest;
    std::memcpy(digest.data(), table.data(), digest.size());
    const uint32_t first = number(table.data() + 32), count = number(table.data() + 36);
    // Before any id is taken: each row is there at least once, so the number of ids bounds the rows of a
    // table.
    if (count == 0 || count > ids.size() - rows.size() || first >= kEnd || count >= kEnd - first)
      throw refuse("has an entry that no list of ids has");
    auto source = RowTable::process().intern(digest, first, first + count);
    const auto more = RowTable::process().ids(*source, first, first + count);
    rows.insert(rows.end(), more.begin(), more.end());
    hold_once(held, std::move(source));
  }
  resolved.assign(ids.begin(), ids.end());
  for (int32_t& id : resolved) {
    if (!is_row(id)) continue;
    if (magnitude(id) - kFirst >= rows.size()) throw refuse("lacks a row that is listed");
    id = rows[magnitude(id) - kFirst];
  }
  const DescribedIds again = describe(resolved);
  if (again.table != whole || !std::equal(ids.begin(), ids.end(), again.ids.begin()))
    throw refuse("is not in the form that its ids have");
  return out;
}

}  // namespace llamay::kv
