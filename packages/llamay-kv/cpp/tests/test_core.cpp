// The core against a full-copy reference, under whatever sanitizer the build asks for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "check.hpp"
#include "contexts/context.hpp"
#include "numbers/crc64.hpp"
#include "numbers/half.hpp"
#include "pages/copy.hpp"

using namespace llamay::kv;

namespace {

std::vector<GroupSpec> two_groups(Precision precision) {
  return {{Kind::full, 0, precision, {{0, 2, 8, 4}, {2, 1, 3, 5}}},
          {Kind::window, 40, precision, {{1, 1, 4, 4}}}};
}

void crc_agrees_with_its_definition() {
  CHECK(crc64("123456789", 9) == 0xae8b14860a799888);
  std::mt19937_64 rng(1);
  std::vector<unsigned char> data(5000);
  for (auto& b : data) b = static_cast<unsigned char>(rng());
  for (size_t n = 0; n < data.size(); n += 1 + n / 7) {
    uint64_t slow = ~uint64_t(0);
    for (size_t i = 0; i < n; ++i) {
      slow ^= data[i];
      for (int bit = 0; bit < 8; ++bit) slow = slow >> 1 ^ (slow & 1 ? 0x9a6c9329ac4bc9b5 : 0);
    }
    CHECK(crc64(data.data(), n) == ~slow);
    CHECK(crc64_portable(data.data(), n) == ~slow);
    CHECK(crc64(data.data() + n / 3, n - n / 3, crc64(data.data(), n / 3)) == ~slow);
  }
}

void halves_convert_exactly() {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(uint16_t(h));
    if (std::isnan(f)) {
      CHECK(float_to_half(f) == (h | 0x200));
      continue;
    }
    CHECK(float_to_half(f) == h);
    const int exponent = int(h >> 10 & 31), mantissa = int(h & 1023);
    if (exponent < 31)
      CHECK(std::fabs(f) ==
            (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24)));
    // Between neighbours: up, down and the tie that goes to the even one.
    if ((h & 0x7fff) >= 0x7bff) continue;
    const float next = half_to_float(uint16_t(h + 1)), middle = f + (next - f) / 2;
    CHECK(float_to_half(std::nextafter(middle, f)) == h);
    CHECK(float_to_half(std::nextafter(middle, next)) == h + 1);
    CHECK(float_to_half(middle) == h + (h & 1));
  }
  // The conversion of rows gives the same on every processor.
  std::vector<uint16_t> halves(65536 + 3);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = uint16_t(i);
  std::vector<float> floats(halves.size());
  halves_to_floats(halves.data(), halves.size(), floats.data());
  for (size_t i = 0; i < halves.size(); ++i)
    CHECK(std::bit_cast<uint32_t>(floats[i]) == std::bit_cast<uint32_t>(half_to_float(halves[i])));
  std::mt19937 rng(5);
  for (float& f : floats) f = std::bit_cast<float>(uint32_t(rng()));
  floats_to_halves(floats.data(), floats.size(), halves.data());
  for (size_t i = 0; i < halves.size(); ++i) CHECK(halves[i] == float_to_half(floats[i]));
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-1e30f) == 0xfc00);
}

void an_export_is_the_header_s_struct() {
  auto pool = std::make_shared<Pool>(two_groups(Precision::f16), 16, 1 << 20);
  auto context = std::make_shared<Context>(pool);
  Lease lease = reserve(context, 20);
  const auto exported = lease.view();
  const llamay_kv_view& v = *exported->view();
  CHECK(v.n_groups == 2 && v.n_tokens == 0 && v.n_reserved == 20 && LLAMAY_HAS(&v, n_reserved));
  for (uint32_t g = 0; g < v.n_groups; ++g) {
    const auto& group = *reinterpret_cast<const llamay_kv_group*>(reinterpret_cast<const char*>(v.groups) +
                                                                  g * v.group_stride);
    CHECK(uintptr_t(group.arena) % 64 == 0 && group.page_bytes % 64 == 0);
    CHECK(group.blocks[0][0] >= 0 && group.blocks[0][1] >= 0 && group.page_tokens == 16);
    for (uint32_t i = 0; i < group.n_layers; ++i) {
      const auto& layer = *reinterpret_cast<const llamay_kv_layer*>(
          reinterpret_cast<const char*>(group.layers) + i * group.layer_stride);
      CHECK(layer.k_offset % 64 == 0 && layer.v_offset % 64 == 0 && layer.kv_heads > 0);
    }
  }
}

/// Random histories, every value checked after every step against contexts that own a full copy.
void histories_keep_their_values(Precision precision, uint32_t page_tokens, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto pick = [&](uint32_t n) { return uint32_t(rng() % n); };
  uint64_t one = 0;
  for (const GroupSpec& s : two_groups(precision)) one += GroupLayout(s, page_tokens).page_bytes;
  auto pool = std::make_shared<Pool>(two_groups(precision), page_tokens, one * 14);
  struct Pair {
    std::shared_ptr<Context> context;
    std::vector<int32_t> tokens;
  };
  std::vector<Pair> pairs{{std::make_shared<Context>(pool), {}}};
  std::vector<std::unique_ptr<Export>> views;
  // The values of a position are a function of its token: the reference needs no arrays.
  const auto fill = [&](const Table& table, uint32_t at, int32_t token) {
    for (uint32_t layer : {0u, 1u, 2u}) {
      std::vector<float> k(16), v(16);
      for (size_t i = 0; i < 16; ++i) k[i] = float(token % 500) + float(layer) + float(i), v[i] = -k[i];
      scatter(table, pool->find(layer), at, at + 1, Element::f32, k.data(), v.data());
    }
  };
  const auto check = [&](const Pair& pair) {
    CHECK(pair.context->tokens(0, pair.context->size()) == pair.tokens);
    const auto view = pair.context->view();
    const auto n = uint32_t(pair.tokens.size());
    CHECK(view->table().n_pages() == (n + page_tokens - 1) / page_tokens);
    for (uint32_t layer : {0u, 1u, 2u}) {
      const Pool::Place place = pool->find(layer);
      const uint32_t begin = view->table().group(place.group).first;
      CHECK(begin <= (layer == 1 && n > 39 ? n - 39 : 0));
      for (uint32_t at = begin; at < n; ++at) {
        float k[16], v[16];
        gather(view->table(), place, at, at + 1, Element::f32, k, v);
        CHECK(k[0] == float(pair.tokens[at] % 500) + float(layer) && v[1] == -k[0] - 1);
      }
    }
  };
  for (int step = 0; step < 300; ++step) {
    Pair& pair = pairs[pick(uint32_t(pairs.size()))];
    switch (pick(6)) {
      case 0:
        if (pairs.size() < 6) pairs.push_back({pair.context->fork(), pair.tokens});
        break;
      case 1: {
        const auto n = pick(4) ? pick(uint32_t(pair.tokens.size()) + 1) : 0;
        try {
          pair.context->truncate(n);
          pair.tokens.resize(n);
        } catch (const std::invalid_argument& e) {
          CHECK(std::string(e.what()).find("window") != std::string::npos);
        }
        break;
      }
      case 2:
        if (pairs.size() > 1) pairs.erase(pairs.begin() + (&pair - pairs.data()));
        break;
      case 3:
        if (!pair.tokens.empty()) {
          const auto at =
              uint32_t(pair.tokens.size()) - 1 - pick(std::min<uint32_t>(3, uint32_t(pair.tokens.size())));
          try {  // the same value again: the test is that no other context's page is touched
            pair.context->overwrite(at, at + 1, [&](const Table& t) { fill(t, at, pair.tokens[at]); });
          } catch (const OutOfPagesError&) {
          }
        }
        break;
      default: {
        const uint32_t n = pick(30), keep = pick(n + 1);
        try {
          Lease lease = reserve(pair.context, n);
          std::vector<int32_t> ids(n);
          for (auto& id : ids) id = int32_t(pick(1000));
          auto view = lease.view();
          const bool fork = pick(2) && pairs.size() < 6;
          std::shared_ptr<Context> branch;
          if (fork) branch = pair.context->fork();
          for (uint32_t i = 0; i < n; ++i) fill(view->table(), lease.begin() + i, ids[i]);
          if (pick(3) == 0) views.push_back(std::move(view));
          view.reset();
          lease.commit({ids.data(), keep});
          if (fork) pairs.push_back({branch, pair.tokens});
          Pair& again = *std::find_if(pairs.begin(), pairs.end(),
                                      [&](const Pair& p) { return p.context == lease.context(); });
          again.tokens.insert(again.tokens.end(), ids.begin(), ids.begin() + keep);
        } catch (const OutOfPagesError&) {
        }
        if (pick(4) == 0) views.clear();
      }
    }
    for (const Pair& p : pairs) check(p);
    pool->audit();
  }
  pairs.clear();
  views.clear();
  pool->audit();
  CHECK(pool->used_bytes() == 0 && pool->live_tables() == 0);
}

void misuse_is_refused() {
  auto pool = std::make_shared<Pool>(two_groups(Precision::f32), 16, 1 << 20);
  auto context = std::make_shared<Context>(pool);
  Lease lease = reserve(context, 4);
  CHECK_THROWS(ContextBusyError, "open lease", reserve(context, 1));
  CHECK_THROWS(ContextBusyError, "open lease", context->truncate(0));
  std::thread([&] { CHECK_THROWS(ContextBusyError, "another thread", context->fork()); }).join();
  const std::vector<int32_t> five(5);
  CHECK_THROWS(std::invalid_argument, "4 are reserved", lease.commit(five));
  const auto view = lease.view();
  context->close();
  CHECK_THROWS(ClosedError, "closed", lease.commit({}));
  CHECK(pool->used_bytes() > 0 && view->view()->groups[0].blocks[0][0] >= 0);
  CHECK_THROWS(std::invalid_argument, "power of two", Pool(two_groups(Precision::f32), 24, 1 << 20));
  CHECK_THROWS(std::invalid_argument, "too small", Pool(two_groups(Precision::f32), 16, 100));
  CHECK_THROWS(std::invalid_argument, "listed twice",
               Pool({{Kind::full, 0, Precision::f32, {{3, 1, 1, 1}, {3, 1, 1, 1}}}}, 16, 1 << 20));
}

void rows_have_ids_of_their_own() {
  RowTable& table = RowTable::process();
  Digest cat{}, dog{};
  dog[31] = 1;
  auto a = table.intern(cat, 5, 9), b = table.intern(dog, 0, 3);
  CHECK(table.intern(cat, 0, 12) == a && table.size() == 2);
  const auto cats = table.ids(*a, 0, 12), dogs = table.ids(*b, 0, 3);
  std::vector<int32_t> all(cats);
  all.insert(all.end(), dogs.begin(), dogs.end());
  for (const int32_t id : all) CHECK(is_row(id));
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  for (uint32_t i = 0; i < 12; ++i) CHECK(table.find(cats[i]) == std::pair(a, i));
  const std::vector<int32_t> ids{7, cats[3], cats[4], dogs[0], kUnknownToken, cats[3], cats[6]};
  const DescribedIds d = describe(ids);
  CHECK((d.ids == std::vector<int32_t>{7, -2, -3, -4, -1, -2, -5}) && d.table.size() == 3 * kDescribedRun);
  CHECK(resolve(d.ids, d.table).first == ids);
  CHECK_THROWS(std::invalid_argument, "whole entries", resolve(d.ids, d.table.substr(1)));
  CHECK_THROWS(std::invalid_argument, "lacks a row", resolve(ids, ""));
  CHECK_THROWS(std::invalid_argument, "no list of ids has", resolve(d.ids, d.table + d.table));
  const HeldRows held = table.hold(ids);
  CHECK(held.size() == 2);
  CHECK_THROWS(std::length_error, "no ids left", table.intern(dog, 3, uint32_t(1) << 31));
}

}  // namespace

int main() {
  crc_agrees_with_its_definition();
  halves_convert_exactly();
  an_export_is_the_header_s_struct();
  misuse_is_refused();
  rows_have_ids_of_their_own();
  for (uint64_t seed = 0; seed < 6; ++seed)
    histories_keep_their_values(seed % 2 ? Precision::f16 : Precision::f32, 16u << seed % 3, seed);
  std::puts("ok");
}
