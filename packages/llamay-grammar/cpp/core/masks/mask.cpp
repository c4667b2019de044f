#include "masks/mask.h"

#include <algorithm>

#include "masks/walk.h"

namespace llamay::grammar {

void Masker::add(const Configurations& configurations, uint32_t* mask, Scratch& scratch) const {
  MaskWalk w(m_, v_, mask, scratch, crossings_, values_);
  w.alone = configurations.size() == 1;
  try {
    for (const Configuration& t : configurations) {
      if (t.mode == Mode::Token) {
        w.put(&t.a, 1);
        continue;
      }
      if ((t.mode == Mode::Number || t.mode == Mode::Raw) && m_.may_end_here(t)) {
        Configurations after;
        m_.finish_lexeme(t, after, scratch);
        for (const Configuration& x : after)
          if (x.mode == Mode::Token) w.put(&x.a, 1);
      }
      w.walk(v_.trie(), 0, t);
    }
  } catch (const MaskWalk::Ambiguous&) {
    std::memset(mask, 0, size_t{v_.words()} * 4);
    MaskWalk again(m_, v_, mask, scratch, nullptr, nullptr);
    again.blank = false;
    again.walk_together(0, configurations);
    for (const Configuration& t : configurations) {
      Configurations after;
      if (t.mode == Mode::Token) after.push_back(t);
      if ((t.mode == Mode::Number || t.mode == Mode::Raw) && m_.may_end_here(t))
        m_.finish_lexeme(t, after, scratch);
      for (const Configuration& x : after)
        if (x.mode == Mode::Token) set_bit(mask, x.a);
    }
    return;
  }
  w.clear();
  if (!w.doubtful.empty()) {
    std::sort(w.doubtful.begin(), w.doubtful.end());
    w.doubtful.erase(std::unique(w.doubtful.begin(), w.doubtful.end()), w.doubtful.end());
    for (uint32_t t : w.doubtful) {
      if (w.reads(configurations, v_.bytes(t)))
        set_bit(mask, t);
      else
        clear_bit(mask, t);
    }
  }
}

}  // namespace llamay::grammar
