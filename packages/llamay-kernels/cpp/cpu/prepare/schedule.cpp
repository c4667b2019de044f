#include "cpu/prepare/schedule.hpp"

#include <algorithm>

namespace llamay {
namespace {

/// Allocates ranges of one space: best fit, and free neighbours are joined.
class SpaceAllocator {
 public:
  std::size_t allocate(std::size_t size) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->size >= size && (best == free_.end() || it->size < best->size)) best = it;
    if (best == free_.end()) {
      if (!free_.empty() &&
          free_.back().offset + free_.back().size == end_) {  // the last free range can grow
        const std::size_t offset = free_.back().offset;
        free_.pop_back();
        end_ = offset + size;
        return offset;
      }
      end_ += size;
      return end_ - size;
    }
    const std::size_t offset = best->offset;
    best->offset += size;
    best->size -= size;
    if (!best->size) free_.erase(best);
    return offset;
  }

  void release(std::size_t offset, std::size_t size) {
    auto after =
        std::find_if(free_.begin(), free_.end(), [=](const FreeRange& s) { return s.offset > offset; });
    if (after != free_.begin() && std::prev(after)->offset + std::prev(after)->size == offset) {
      auto before = std::prev(after);
      before->size += size;
      if (after != free_.end() && before->offset + before->size == after->offset) {
        before->size += after->size;
        free_.erase(after);
      }
    } else if (after != free_.end() && offset + size == after->offset) {
      after->offset = offset;
      after->size += size;
    } else {
      free_.insert(after, {offset, size});
    }
  }

  std::size_t end() const { return end_; }

 private:
  struct FreeRange {
    std::size_t offset, size;
  };
  std::vector<FreeRange> free_;  // in order of offset
  std::size_t end_ = 0;
};

class Scheduler {
 public:
  Scheduler(Program& p, std::vector<Prepared>& nodes) : p_(p), nodes_(nodes) {}

  Schedule run() {
    output();
    s_.places.resize(p_.widths.size());
    cut();
    place();
    return std::move(s_);
  }

 private:
  std::vector<int> readers() const {
    std::vector<int> count(p_.widths.size());
    for (const Prepared& n : nodes_)
      for (const int v : n.ins) ++count[static_cast<std::size_t>(v)];
    return count;
  }

  bool selected(int v) const { return p_.selected[static_cast<std::size_t>(v)]; }

  const Prepared* maker(int v) const {
    for (const Prepared& n : nodes_)
      if (std::find(n.outs.begin(), n.outs.end(), v) != n.outs.end()) return &n;
    return nullptr;
  }

  /// Whether the node that makes a value can write it straight into the caller's buffer: its work supports
  /// that, and its only output has the selected rows.
  bool writes_output(int v) const {
    const Prepared* n = maker(v);
    return n->work->writes_output && selected(v) && n->outs.size() == 1;
  }

  void output() {
    const int out = p_.output;
    const std::vector<int> read = readers();
    if (read[static_cast<std::size_t>(out)] == 0) {
      if (writes_output(out)) {
        direct_ = out;
        return;
      }
      // The last elementwise operation (a soft cap on the logits) is split like a product, and works in place
      // where its input can be written to the caller's buffer.
      const Prepared* last = maker(out);
      if (last->work->columns && selected(out)) {
        final_ = static_cast<int>(last - nodes_.data());
        direct_ = out;
        if (last->ins.size() == 1 && read[static_cast<std::size_t>(last->ins[0])] == 1 &&
            writes_output(last->ins[0]))
          direct_input_ = last->ins[0];
        return;
      }
    }
    p_.widths.push_back(p_.widths[static_cast<std::size_t>(out)]);
    p_.selected.push_back(true);
    direct_ = static_cast<int>(p_.widths.size() - 1);
    nodes_.push_back(copy_node(out, direct_, maker(out)->record));
    final_ = static_cast<int>(nodes_.size() - 1);
  }

  /// The index of an activation; adds a row step that makes it unless an earlier stage does.
  int activation(const Read& read, Stage& stage) {
    for (std::size_t i = 0; i < s_.activations.size(); ++i) {
      const Activation& a = s_.activations[i];
      if (a.value == read.value && a.kind == read.kind && a.cols == read.cols) return static_cast<int>(i);
    }
    const std::size_t bytes = activation_bytes(read.kind, read.cols);
    s_.activations.push_back({read.value,
                              read.kind,
                              read.cols,
                              read.parts,
                              bytes * read.parts,
                              read.kind == ActivationKind::f32 && bytes == read.cols * sizeof(float),
                              {}});
    const int index = static_cast<int>(s_.activations.size() - 1);
    if (s_.activations.back().alias) return index;
    const bool is_selected = selected(read.value);
    if (!stage.rows.empty() && stage.selected != is_selected) flush(stage);
    stage.selected = is_selected;
    stage.rows.push_back({-1, index});
    return index;
  }

  void flush(Stage& stage) {
    s_.stages.push_back(std::move(stage));
    stage = Stage{};
  }

  void cut() {
    Stage stage;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Prepared& n = nodes_[i];
      const bool is_selected = selected(n.outs[0]);
      if (!n.shared() && static_cast<int>(i) != final_) {
        // The steps before are on other rows, and the input of a select has to be complete.
        if (!stage.rows.empty() && stage.selected != is_selected) flush(stage);
        stage.selected = is_selected;
        stage.rows.push_back({static_cast<int>(i), -1});
        continue;
      }
      std::vector<int> activations;  // making an activation may begin another stage
      for (const Read& read : n.reads) activations.push_back(activation(read, stage));
      stage.activations = std::move(activations);
      stage.shared = static_cast<int>(i);
      stage.shared_selected = is_selected;
      flush(stage);
      if (n.work->keeps) s_.last_keeping = s_.stages.size();
    }
    if (!stage.rows.empty()) flush(stage);
  }

  void reads(std::vector<std::size_t>& last, int value, std::size_t stage) const {
    last[static_cast<std::size_t>(value)] = std::max(last[static_cast<std::size_t>(value)], stage);
  }

  /// Every value and activation gets a range from the stage that makes it to the last stage that reads it.
  /// The range is freed after that stage, when all threads have met: before that, another thread may still
  /// read it.
  void place() {
    std::vector<std::size_t> last(p_.widths.size()), last_activation(s_.activations.size());
    for (std::size_t i = 0; i < s_.stages.size(); ++i) {
      const Stage& stage = s_.stages[i];
      for (const RowStep& step : stage.rows) {
        if (step.node >= 0) {
          const Prepared& n = nodes_[static_cast<std::size_t>(step.node)];
          for (const int v : n.ins) reads(last, v, i);
          for (const int v : n.outs) reads(last, v, i);
        } else {
          reads(last, s_.activations[static_cast<std::size_t>(step.activation)].value, i);
        }
      }
      if (stage.shared >= 0) {
        const Prepared& n = nodes_[static_cast<std::size_t>(stage.shared)];
        for (const int v : n.ins) reads(last, v, i);
        for (const int v : n.outs) reads(last, v, i);
      }
      for (const int a : stage.activations) last_activation[static_cast<std::size_t>(a)] = i;
    }

    SpaceAllocator allocators[kSpaces];
    struct Allocation {
      std::size_t until;
      Place place;
      std::size_t size;
    };
    std::vector<Allocation> live;
    const auto allocate = [&](Space space, std::size_t size, std::size_t until) {
      const Place at{space, allocators[static_cast<std::size_t>(space)].allocate(size)};
      live.push_back({until, at, size});
      return at;
    };
    const auto place_value = [&](int v, bool product) {
      const auto index = static_cast<std::size_t>(v);
      if (v == direct_ || v == direct_input_) {
        s_.places[index].space = Space::output;
        return;
      }
      const Space space = product ? (selected(v) ? Space::products_selected : Space::products)
                                  : (selected(v) ? Space::rows_selected : Space::rows);
      s_.places[index] = allocate(space, whole_lines(p_.widths[index] * sizeof(float)), last[index]);
    };
    const auto carry = [&](std::size_t from, std::size_t to, Place at, std::size_t bytes) {
      for (std::size_t i = from + 1; i <= to; ++i) s_.stages[i].carried.push_back({at, bytes});
    };
    for (std::size_t i = 0; i < s_.stages.size(); ++i) {
      const Stage& stage = s_.stages[i];
      for (const RowStep& step : stage.rows) {
        if (step.node >= 0) {
          for (const int v : nodes_[static_cast<std::size_t>(step.node)].outs) {
            const auto out = static_cast<std::size_t>(v);
            place_value(v, false);
            carry(i, last[out], s_.places[out], p_.widths[out] * sizeof(float));
          }
        } else {
          Activation& a = s_.activations[static_cast<std::size_t>(step.activation)];
          a.place = allocate(selected(a.value) ? Space::rows_selected : Space::rows, a.row_bytes,
                             last_activation[static_cast<std::size_t>(step.activation)]);
          carry(i, last_activation[static_cast<std::size_t>(step.activation)], a.place, a.row_bytes);
        }
      }
      if (stage.shared >= 0)
        for (const int v : nodes_[static_cast<std::size_t>(stage.shared)].outs) place_value(v, true);
      for (std::size_t l = 0; l < live.size();)
        if (live[l].until == i) {
          allocators[static_cast<std::size_t>(live[l].place.space)].release(live[l].place.offset,
                                                                            live[l].size);
          live[l] = live.back();
          live.pop_back();
        } else {
          ++l;
        }
    }
    for (std::size_t i = 0; i < kSpaces; ++i) s_.row_bytes[i] = allocators[i].end();
  }

  Program& p_;
  std::vector<Prepared>& nodes_;
  Schedule s_;
  int direct_ = -1, direct_input_ = -1, final_ = -1;
};

}  // namespace

Schedule schedule(Program& program, std::vector<Prepared>& nodes) { return Scheduler(program, nodes).run(); }

}  // namespace llamay
