#pragma once
#include <cstddef>
#include <cstdint>

#include "pages/table.hpp"

namespace llamay::kv {

// Positions [begin, end) of a group in packed form: for each layer K as [head][dimension][position], then V
// as [head][position][dimension], each followed by its scales as [head][position] where it is int8; without
// padding, in the group's precision. For 64 whole positions these are the bytes of a page of 64; they are the
// payload of a snapshot's chunk. The caller makes sure that the pages are present and writable.

/// Returns a pointer to the page's own bytes if they are the packed form already, or null.
const std::byte* packed_in_place(const Table& table, size_t g, uint32_t begin, uint32_t end);
void pack(const Table& table, size_t g, uint32_t begin, uint32_t end, std::byte* out);
void unpack(const Table& table, size_t g, uint32_t begin, uint32_t end, const std::byte* in);

// The same for a page of a recurrent group, which is one state.
void pack_page(const GroupLayout& layout, const std::byte* page, std::byte* out);
void unpack_page(const GroupLayout& layout, const std::byte* in, std::byte* page);

/// The elements of a caller's array.
enum class Element { f32, f16 };

/// n numbers from an array to f32 or f16 elements, rounded to nearest even.
void convert(const void* in, Element element, std::byte* out, Stored stored, size_t n);

/// The same back, from f32 or f16 to float.
void widen(const std::byte* in, Stored stored, float* out, size_t n);

/// Positions [begin, end) of a layer as arrays of [position][head][dimension], converted to `element`.
void gather(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element, void* k,
            void* v);
/// The same back. f16 is rounded to nearest even. int8 is a vector over the dimensions of one head at one
/// position: scale = max |x| / 127, element = x / scale rounded to nearest even, both in float; it reads back
/// as element * scale. A vector that holds a NaN or an infinity reads back as NaN.
void scatter(const Table& table, Pool::Place place, uint32_t begin, uint32_t end, Element element,
             const void* k, const void* v);

}  // namespace llamay::kv
