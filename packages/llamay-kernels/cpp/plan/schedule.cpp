#include "plan/schedule.hpp"

#include <algorithm>

namespace llamay {
namespace {

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// One space: hands out stretches and takes them back, best fit, neighbours joined.
class Shelf {
 public:
  std::size_t take(std::size_t size) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->size >= size && (best == free_.end() || it->size < best->size)) best = it;
    if (best == free_.end()) {
      if (!free_.empty() && free_.back().offset + free_.back().size == end_) {  // the last one can grow
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

  void give(std::size_t offset, std::size_t size) {
    auto after =
        std::find_if(free_.begin(), free_.end(), [=](const Stretch& s) { return s.offset > offset; });
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
  struct Stretch {
    std::size_t offset, size;
  };
  std::vector<Stretch> free_;  // in order of offset
  std::size_t end_ = 0;
};

class Scheduler {
 public:
  explicit Scheduler(Program& p) : p_(p) {}

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
    for (const Node& n : p_.nodes)
      for (const int v : {n.a, n.b, n.c})
        if (v >= 0) ++count[static_cast<std::size_t>(v)];
    return count;
  }

  bool selected(int v) const { return p_.selected[static_cast<std::size_t>(v)]; }

  const Node* maker(int v) const {
    for (const Node& n : p_.nodes) {
      if (n.out == v) return &n;
      if (n.kind == Node::Kind::linear)
        for (const Product& product : n.products)
          if (product.out == v) return &n;
    }
    return nullptr;
  }

  /// A single product whose rows are those that want their output can write it where the caller wants it.
  bool writes_output(int v) const {
    const Node* n = maker(v);
    return n->heavy() && n->kind != Node::Kind::attention && selected(v) &&
           (n->kind == Node::Kind::glu || n->products.size() == 1);
  }

  void output() {
    const int out = p_.output;
    const std::vector<int> read = readers();
    if (read[static_cast<std::size_t>(out)] == 0) {
      if (writes_output(out)) {
        direct_ = out;
        return;
      }
      // The last elementwise operation (a soft cap on the logits) is split like a product, in place if it can
      // be.
      const Node* last = maker(out);
      if (last->kind == Node::Kind::elementwise && selected(out)) {
        final_ = static_cast<int>(last - p_.nodes.data());
        direct_ = out;
        if (last->b < 0 && read[static_cast<std::size_t>(last->a)] == 1 && writes_output(last->a))
          direct_input_ = last->a;
        return;
      }
    }
    p_.nodes.push_back(
        {.kind = Node::Kind::elementwise, .record = maker(out)->record, .a = out, .op = Elementwise::copy});
    p_.widths.push_back(p_.widths[static_cast<std::size_t>(out)]);
    p_.selected.push_back(true);
    direct_ = p_.nodes.back().out = static_cast<int>(p_.widths.size() - 1);
    final_ = static_cast<int>(p_.nodes.size() - 1);
  }

  /// The index of the activation, which is made now if it was not yet.
  int activation(int value, ActivationKind kind, std::size_t cols, Stage& stage) {
    for (std::size_t i = 0; i < s_.activations.size(); ++i)
      if (s_.activations[i].value == value && s_.activations[i].kind == kind) return static_cast<int>(i);
    Activation a{value, kind, cols, activation_bytes(kind, cols), false, {}};
    a.alias = kind == ActivationKind::f32 && a.row_bytes == cols * sizeof(float);
    s_.activations.push_back(a);
    const int index = static_cast<int>(s_.activations.size() - 1);
    if (a.alias) return index;
    if (!stage.rows.empty() && stage.selected != selected(value)) flush(stage);
    stage.selected = selected(value);
    stage.rows.push_back({-1, index});
    return index;
  }

  void flush(Stage& stage) {
    s_.stages.push_back(std::move(stage));
    stage = Stage{};
  }

  void cut() {
    Stage stage;
    for (std::size_t i = 0; i < p_.nodes.size(); ++i) {
      const Node& n = p_.nodes[i];
      const bool is_selected = selected(n.out);
      if (!n.heavy() && static_cast<int>(i) != final_) {
        // Rows of another kind: what a select reads has to be complete.
        if (!stage.rows.empty() && stage.selected != is_selected) flush(stage);
        stage.selected = is_selected;
        stage.rows.push_back({static_cast<int>(i), -1});
        continue;
      }
      for (const Product& product : n.products)
        stage.activations.push_back(
            activation(n.a, traits(product.matrix->format).activation, product.matrix->cols, stage));
      stage.heavy = static_cast<int>(i);
      stage.heavy_selected = is_selected;
      flush(stage);
      if (n.kind == Node::Kind::attention) s_.last_attention = s_.stages.size();
    }
    if (!stage.rows.empty()) flush(stage);
  }

  void reads(std::vector<std::size_t>& last, int value, std::size_t stage) const {
    if (value >= 0)
      last[static_cast<std::size_t>(value)] = std::max(last[static_cast<std::size_t>(value)], stage);
  }

  /// Every value and activation gets a stretch from the stage that makes it to the last stage that reads it.
  /// A stretch is free again when that stage is over, when all threads have met: not earlier, since others
  /// may still read.
  void place() {
    std::vector<std::size_t> last(p_.widths.size()), last_activation(s_.activations.size());
    for (std::size_t i = 0; i < s_.stages.size(); ++i) {
      const Stage& stage = s_.stages[i];
      for (const RowStep& step : stage.rows) {
        if (step.node >= 0) {
          const Node& n = p_.nodes[static_cast<std::size_t>(step.node)];
          for (const int v : {n.a, n.b, n.c, n.out}) reads(last, v, i);
        } else {
          reads(last, s_.activations[static_cast<std::size_t>(step.activation)].value, i);
        }
      }
      if (stage.heavy >= 0) {
        const Node& n = p_.nodes[static_cast<std::size_t>(stage.heavy)];
        for (const int v : {n.a, n.b, n.c, n.out}) reads(last, v, i);
        for (const Product& product : n.products) reads(last, product.out, i);
      }
      for (const int a : stage.activations) last_activation[static_cast<std::size_t>(a)] = i;
    }

    Shelf shelves[kSpaces];
    struct Lent {
      std::size_t until;
      Place place;
      std::size_t size;
    };
    std::vector<Lent> lent;
    const auto lend = [&](Space space, std::size_t size, std::size_t until) {
      const Place at{space, shelves[static_cast<std::size_t>(space)].take(size)};
      lent.push_back({until, at, size});
      return at;
    };
    const auto lend_value = [&](int v, bool product) {
      const auto index = static_cast<std::size_t>(v);
      if (v == direct_ || v == direct_input_) {
        s_.places[index].space = Space::output;
        return;
      }
      const Space space = product ? (selected(v) ? Space::products_selected : Space::products)
                                  : (selected(v) ? Space::rows_selected : Space::rows);
      s_.places[index] = lend(space, whole_lines(p_.widths[index] * sizeof(float)), last[index]);
    };
    const auto carry = [&](std::size_t from, std::size_t to, Place at, std::size_t bytes) {
      for (std::size_t i = from + 1; i <= to; ++i) s_.stages[i].carried.push_back({at, bytes});
    };
    for (std::size_t i = 0; i < s_.stages.size(); ++i) {
      const Stage& stage = s_.stages[i];
      for (const RowStep& step : stage.rows) {
        if (step.node >= 0) {
          const auto out = static_cast<std::size_t>(p_.nodes[static_cast<std::size_t>(step.node)].out);
          lend_value(static_cast<int>(out), false);
          carry(i, last[out], s_.places[out], p_.widths[out] * sizeof(float));
        } else {
          Activation& a = s_.activations[static_cast<std::size_t>(step.activation)];
          a.place = lend(selected(a.value) ? Space::rows_selected : Space::rows, a.row_bytes,
                         last_activation[static_cast<std::size_t>(step.activation)]);
          carry(i, last_activation[static_cast<std::size_t>(step.activation)], a.place, a.row_bytes);
        }
      }
      if (stage.heavy >= 0) {
        const Node& n = p_.nodes[static_cast<std::size_t>(stage.heavy)];
        if (n.kind == Node::Kind::linear)
          for (const Product& product : n.products) lend_value(product.out, true);
        else
          lend_value(n.out, true);
      }
      for (std::size_t l = 0; l < lent.size();)
        if (lent[l].until == i) {
          shelves[static_cast<std::size_t>(lent[l].place.space)].give(lent[l].place.offset, lent[l].size);
          lent[l] = lent.back();
          lent.pop_back();
        } else {
          ++l;
        }
    }
    for (std::size_t i = 0; i < kSpaces; ++i) s_.row_bytes[i] = shelves[i].end();
  }

  Program& p_;
  Schedule s_;
  int direct_ = -1, direct_input_ = -1, final_ = -1;
};

}  // namespace

Schedule schedule(Program& program) { return Scheduler(program).run(); }

}  // namespace llamay
