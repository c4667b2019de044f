#include "machine/configuration.h"

namespace llamay::grammar {

bool same_configuration(const Configuration& a, const Configuration& b) {
  if (a.mode != b.mode || a.gap != b.gap || a.spaces != b.spaces || a.a != b.a || a.b != b.b ||
      a.state != b.state || a.scan != b.scan || a.count != b.count || a.doubt != b.doubt ||
      !same_links(a.partial, b.partial))
    return false;
  const Frame *f = a.top, *g = b.top;
  if (f == g) return same_links(a.text, b.text);
  if (!f || !g || f->place != g->place || f->atom != g->atom || f->parent != g->parent ||
      f->count != g->count || f->gained != g->gained || f->n_words != g->n_words ||
      !same_links(f->names, g->names))
    return false;
  return std::memcmp(f->have, g->have, sizeof f->have) == 0 &&
         std::memcmp(f->bits, g->bits, size_t{f->n_words} * 16) == 0 && same_links(a.text, b.text);
}

}  // namespace llamay::grammar
