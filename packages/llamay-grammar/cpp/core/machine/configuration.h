// Configurations and the stacks that they share. Frames and links are immutable once made.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "machine/links.h"
#include "program/program.h"

namespace llamay::grammar {

enum class Place : uint8_t {
  Root,
  Array,
  Object,
  Net,
  Tagged,  // an object between tags
  Lead,    // in front of a name of the object below it
};

struct Frame {
  mutable std::atomic<uint32_t> refs{0};
  bool heap = false;
  Place place = Place::Root;
  uint16_t n_words = 0;   // of each of the two bit sets
  uint32_t atom = 0;      // of the array or object; the state to go on with (Net)
  uint32_t lead = kNone;  // TaggedObject::lead
  mutable const Frame* promoted = nullptr;
  const Frame* parent = nullptr;
  uint64_t count = 0;           // items or members begun
  uint32_t gained = 0;          // conditions met (objects)
  uint32_t have[6] = {};        // items that count for each contains
  const Link* names = nullptr;  // members that are not declared; items of an array where they must differ
  uint64_t bits[1];             // members seen, then members that may come next

  uint64_t* seen() { return bits; }
  const uint64_t* seen() const { return bits; }
  uint64_t* open() { return bits + n_words; }
  const uint64_t* open() const { return bits + n_words; }
};

inline size_t frame_bytes(uint32_t words) { return sizeof(Frame) + size_t{words} * 16; }

// Copies all fields but the count of references and the place of the frame.
inline void copy_frame(Frame& to, const Frame& from) {
  to.place = from.place, to.n_words = from.n_words, to.atom = from.atom, to.lead = from.lead;
  to.parent = from.parent, to.count = from.count, to.gained = from.gained, to.names = from.names;
  std::memcpy(to.have, from.have, sizeof to.have);
  std::memcpy(to.bits, from.bits, size_t{from.n_words} * 16);
}

inline bool bit(const uint64_t* bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

enum class Mode : uint8_t {
  Value,       // a value begins; a: node
  String,      // inside a string; a: atom
  Number,      // inside a number; a: atom
  Raw,         // inside a lexeme of the net; a: index of the lexeme
  Literal,     // inside null, true or false; a: which, count: position
  ArrayHead,   // after '['
  ObjectHead,  // after '{'
  NextName,    // after ',' in an object
  Name,        // inside a name (or the tag around it); b: node of the declared names, state: of the rest
  Colon,       // after a name; a: node of its value
  After,       // after a value
  Token,       // a special token; a: which
};

struct Configuration {
  Mode mode = Mode::Value;
  bool gap = false;     // after ',' or ':', where the spaced style has its space
  bool doubt = false;   // text that is not spelled out decides whether an item differs from others
  uint16_t spaces = 0;  // whitespace read here
  uint32_t a = 0, b = 0;
  uint32_t state = 0;  // of the automaton
  uint32_t scan = 0;   // of the scanner
  uint32_t count = 0;  // code points read
  const Frame* top = nullptr;
  const Link* partial = nullptr;  // the undeclared name that is being read
  const Link* text = nullptr;     // the text since the beginning of an item that is compared as a document
};

inline const char* literal_text(uint32_t which) {
  return which == 1 ? "null" : which == 2 ? "false" : "true";
}

bool same_configuration(const Configuration& a, const Configuration& b);

using Configurations = std::vector<Configuration>;

}  // namespace llamay::grammar
