// Native tests: what must hold under the sanitizers, without Python in the way.
//
//   cmake -B build/native -DLLAMAY_NATIVE_TESTS=ON -DLLAMAY_SANITIZE=address,undefined && cmake --build
//   build/native ctest --test-dir build/native

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "error.hpp"
#include "gguf/mapping.hpp"
#include "gguf/reader.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/ugm.hpp"
#include "tokenizer/wpm.hpp"
#include "unicode/properties.hpp"
#include "unicode/utf8.hpp"

using namespace llamay;
using namespace llamay::tokenizer;

namespace {

int failures = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "failed: %s\n", what);
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

std::string small_file() {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, 1);
  put<uint64_t>(out, 2);
  put_text(out, "some.key");
  put<uint32_t>(out, 4);
  put<uint32_t>(out, 7);
  put_text(out, "tokens");
  put<uint32_t>(out, 9);
  put<uint32_t>(out, 8);
  put<uint64_t>(out, 2);
  put_text(out, "a");
  put_text(out, "bc");
  put_text(out, "weight");
  put<uint32_t>(out, 1);
  put<uint64_t>(out, 8);
  put<uint32_t>(out, 0);
  put<uint64_t>(out, 0);
  out.resize((out.size() + 31) / 32 * 32);
  out.resize(out.size() + 32, 'x');
  return out;
}

gguf::File parse(const std::string& bytes) {
  return gguf::File::parse(
      gguf::Mapping::of_bytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
}

bool refused(const std::string& bytes) {
  try {
    parse(bytes);
    return false;
  } catch (const FormatError&) {
    return true;
  }
}

void test_reader() {
  const std::string good = small_file();
  const gguf::File file = parse(good);
  check(file.find("some.key") != nullptr, "a key is found");
  check(file.find("other") == nullptr, "another is not");
  check(gguf::string_at(*file.find("tokens"), 1) == "bc", "a string of an array is read");
  check(file.tensors().at(0).nbytes == 32, "a tensor has its bytes");
  for (size_t size = 0; size < good.size(); ++size)
    check(refused(good.substr(0, size)), "every truncation is refused");
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = good;
    for (int n = 0; n < 4; ++n) bytes[random() % bytes.size()] = static_cast<char>(random());
    refused(bytes);
  }
}

std::unique_ptr<Tokenizer> byte_level(std::string_view pre) {
  std::vector<std::string> texts;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    std::string text;
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    unicode::append(text, printable ? b : next++);
    texts.push_back(text);
  }
  const std::vector<std::string_view> merges{"a a", "aa aa", "h e", "Ġ a"};
  for (const char* t : {"aa", "aaaa", "he", "Ġa"}) texts.emplace_back(t);
  std::vector<uint8_t> attributes(texts.size(), kNormal);
  texts.emplace_back("<|x|>");
  attributes.push_back(kControl);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  auto vocabulary = std::make_unique<Vocabulary>(views, attributes, Spelling::kByteLevel);
  auto algorithm = make_bpe(*vocabulary, merges, *find_pretokenizer(pre));
  return std::make_unique<Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::string out;
  for (const uint32_t id : ids) out += tokenizer.vocabulary().bytes(id);
  return out;
}

std::string random_text(std::mt19937& random) {
  static constexpr std::string_view kParts[] = {"a",  "aaaa", " ",  "\n",    "he",   "é",
                                                "日", "1",    "'s", "<|x|>", "\xff", "\xe2\x82"};
  std::string text;
  for (uint32_t n = random() % 60; n > 0; --n) text += kParts[random() % std::size(kParts)];
  return text;
}

void test_byte_level() {
  std::mt19937 random(11);
  for (const auto name : pretokenizer_names()) {
    if (!find_pretokenizer(name)->byte_level) continue;
    const auto tokenizer = byte_level(name);
    for (int i = 0; i < 200; ++i) {
      const std::string text = random_text(random);
      const Span all{0, UINT32_MAX};
      std::vector<uint32_t> ids;
      tokenizer->encode(text, {&all, i % 2u}, ids);
      check(decoded(*tokenizer, ids) == text, "any bytes survive the round trip");
    }
    std::vector<uint32_t> ids;
    tokenizer->encode(std::string(20000, 'a'), {}, ids);
    check(ids.size() <= 20000, "a long run is encoded");
  }
}

void test_sentencepiece_kinds() {
  const std::vector<std::string_view> texts{"<unk>", "▁", "a", "▁a", "b", "ab", "<0xC3>", "<0xA9>"};
  const std::vector<uint8_t> attributes{kUnknown, kNormal, kNormal, kNormal, kNormal, kNormal, kByte, kByte};
  const std::vector<float> scores{0, -1, -2, -1, -2, -3, 0, 0};
  const std::vector<std::function<std::unique_ptr<Algorithm>(const Vocabulary&)>> makers{
      [&](const Vocabulary& v) { return make_spm(v, scores, 0, true); },
      [&](const Vocabulary& v) { return make_ugm(v, scores, {0, true, false, {}}); },
      [&](const Vocabulary& v) { return make_wpm(v, 0, true, true); },
      [&](const Vocabulary& v) { return make_rwkv(v, 0); },
  };
  std::mt19937 random(13);
  for (const auto& make : makers) {
    auto vocabulary = std::make_unique<Vocabulary>(texts, attributes, Spelling::kSentencePiece);
    auto algorithm = make(*vocabulary);
    const Tokenizer tokenizer(std::move(vocabulary), std::move(algorithm));
    for (int i = 0; i < 500; ++i) {
      std::vector<uint32_t> ids;
      tokenizer.encode(random_text(random), {}, ids);
      for (const uint32_t id : ids) check(id < texts.size(), "every id is in the vocabulary");
    }
  }
}

void test_charsmap() {
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> blob(random() % 300);
    for (auto& byte : blob) byte = static_cast<uint8_t>(random());
    if (blob.size() > 4) {
      const auto size = static_cast<uint32_t>((blob.size() - 4) / 8 * 4);
      std::memcpy(blob.data(), &size, sizeof size);
    }
    try {
      const Charsmap map(blob);
      for (int n = 0; n < 20; ++n) {
        const std::string text = random_text(random);
        if (const auto found = map.find(text))
          check(found->length <= text.size(), "a rule replaces what is there");
      }
    } catch (const FormatError&) {
    }
  }
}

void test_unicode() {
  check(unicode::class_of('A') == unicode::kUpper && unicode::class_of(0x3000) == unicode::kSpace, "classes");
  check(unicode::class_of(0xFFFFFFFF) == unicode::kOther, "beyond Unicode");
  check(unicode::nfd({0xAC01, 0xE9}) == std::vector<uint32_t>({0x1100, 0x1161, 0x11A8, 0x65, 0x301}), "NFD");
  check(!unicode::is_valid("\xC0\x80") && !unicode::is_valid("\xED\xA0\x80") && unicode::is_valid("é日😀"),
        "UTF-8");
}

}  // namespace

/// A mapped file that is cut short reads as zeros from there on, in every thread, and says so.
void test_lost_pages() {
  const long page = ::sysconf(_SC_PAGESIZE);
  char name[] = "/tmp/llamay-lost-pages-XXXXXX";
  const int fd = ::mkstemp(name);
  check(fd >= 0, "a file to map");
  const std::string content(size_t(64 * page), 'x');
  check(::write(fd, content.data(), content.size()) == ssize_t(content.size()), "its content");
  {
    const auto first = gguf::Mapping::of_file(fd), second = gguf::Mapping::of_file(fd);
    check(!first->lost() && first->bytes()[0] == 'x', "a whole file");
    check(::ftruncate(fd, 8 * page) == 0, "cutting it short");
    std::atomic<size_t> zeros = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (const uint8_t byte : first->bytes()) zeros += byte == 0;
      });
    for (auto& thread : threads) thread.join();
    check(zeros == size_t(4 * 56 * page), "what is gone reads as zeros");
    check(first->lost() && !second->lost(), "a loss is noted where it was met");
  }
  check(!gguf::Mapping::of_file(fd)->lost(), "a slot that is used again knows of no loss");
  ::close(fd);
  ::unlink(name);
}

int main() {
  test_reader();
  test_lost_pages();
  test_byte_level();
  test_sentencepiece_kinds();
  test_charsmap();
  test_unicode();
  if (failures == 0) std::puts("all native tests passed");
  return failures != 0;
}
