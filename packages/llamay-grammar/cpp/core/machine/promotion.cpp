#include "machine/promotion.h"

#include <new>
#include <string>
#include <utility>

namespace llamay::grammar {

namespace {

// Returns the part of a chain that is in scratch memory only, head first, and the rest of the chain on the
// heap.
template <class T>
std::pair<std::vector<const T*>, const T*> fresh_part(const T* head, const T* T::* next) {
  std::vector<const T*> fresh;
  while (head && !head->heap && !head->promoted) fresh.push_back(head), head = head->*next;
  return {std::move(fresh), head && !head->heap ? head->promoted : head};
}

template <class T>
const T* retained(const T* x) {
  if (x) x->refs.fetch_add(1, std::memory_order_relaxed);
  return x;
}

Link* heap_link(std::string_view text, const Link& like, const Link* previous) {
  Link* to = new (::operator new(link_bytes(text.size()))) Link;
  to->heap = true, to->begins = like.begins, to->hash = like.hash;
  to->length = static_cast<uint32_t>(text.size());
  std::memcpy(to->text, text.data(), text.size());
  to->previous = retained(previous);
  return to;
}

}  // namespace

void retain(const Frame* f) { retained(f); }

void release(const Link* l) {
  while (l && l->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const Link* next = l->previous;
    l->~Link();
    ::operator delete(const_cast<Link*>(l));
    l = next;
  }
}

void release(const Frame* f) {
  while (f && f->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const Frame* next = f->parent;
    release(f->names);
    f->~Frame();
    ::operator delete(const_cast<Frame*>(f));
    f = next;
  }
}

const Link* promote(const Link* l) {
  auto [fresh, tail] = fresh_part(l, &Link::previous);
  for (size_t i = fresh.size(); i-- > 0;) {
    const Link& from = *fresh[i];
    from.promoted = heap_link({from.text, from.length}, from, tail);
    tail = from.promoted;
  }
  return retained(tail);
}

const Link* promote_text(const Link* l) {
  auto [fresh, tail] = fresh_part(l, &Link::previous);
  std::string run;
  for (size_t i = fresh.size(); i-- > 0;) {
    const Link& from = *fresh[i];
    run.append(from.text, from.length);
    if (i > 0 && !from.begins && !fresh[i - 1]->begins) continue;
    from.promoted = heap_link(run, from, tail);
    tail = from.promoted;
    run.clear();
  }
  return retained(tail);
}

const Frame* promote(const Frame* f) {
  auto [fresh, tail] = fresh_part(f, &Frame::parent);
  for (size_t i = fresh.size(); i-- > 0;) {
    const Frame& from = *fresh[i];
    Frame* to = new (::operator new(frame_bytes(from.n_words))) Frame;
    copy_frame(*to, from);
    to->heap = true, to->parent = retained(tail), to->names = promote(from.names);
    from.promoted = tail = to;
  }
  return retained(tail);
}

}  // namespace llamay::grammar
