// Native tests: what must hold under the sanitizers, without Python in the way.
//
//   cmake -B build/native -DLLAMAY_NATIVE_TESTS=ON -DLLAMAY_SANITIZE=address,undefined && cmake --build
//   build/native ctest --test-dir build/native

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
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

/// A file with strings of several lengths, as a vocabulary has them, and merges of them.
std::string vocabulary_file() {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, 0);
  put<uint64_t>(out, 4);
  put_text(out, "general.name");
  put<uint32_t>(out, 8);
  put_text(out, "some name");
  put_text(out, "flag");
  put<uint32_t>(out, 7);
  put<uint8_t>(out, 1);
  put_text(out, "merges");
  put<uint32_t>(out, 9);
  put<uint32_t>(out, 8);
  put<uint64_t>(out, 2);
  put_text(out, "a a");
  put_text(out, "aa aa");
  put_text(out, "tokens");
  put<uint32_t>(out, 9);
  put<uint32_t>(out, 8);
  put<uint64_t>(out, 27);
  for (size_t i = 0; i < 26; ++i) put_text(out, std::string(i % 5 + 1, static_cast<char>('a' + i / 5)));
  put_text(out, "zz");
  return out;
}

/// Everything that may be read of a file whose bytes are others by now: the sanitizer watches that it is
/// inside.
uint64_t read_all(const gguf::File& file, const std::vector<std::string>& keys) {
  uint64_t sum = 0;
  for (const auto& key : keys) {
    const gguf::Entry* entry = file.find(key);
    check(entry != nullptr, "a key stays");
    for (const uint8_t byte : entry->raw) sum += byte;
    if (entry->type != gguf::ValueType::kString) continue;
    for (uint64_t i = 0; i < entry->count; ++i) {
      const auto text = gguf::string_at(*entry, i);
      const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
      check(text.empty() ||
                (begin >= entry->raw.data() && begin + text.size() <= entry->raw.data() + entry->raw.size()),
            "a string lies in its entry");
      for (const char c : text) sum += static_cast<uint8_t>(c);
    }
  }
  return sum;
}

void try_tokenizer(const gguf::File& file) {
  const auto strings = [&](const char* key) {
    std::vector<std::string_view> all;
    const gguf::Entry* entry = file.find(key);
    for (uint64_t i = 0; i < entry->count; ++i) all.push_back(gguf::string_at(*entry, i));
    return all;
  };
  const auto texts = strings("tokens");
  std::vector<uint8_t> attributes(texts.size(), kNormal);
  attributes.back() = kControl;
  for (const auto spelling : {Spelling::kByteLevel, Spelling::kSentencePiece, Spelling::kEscaped}) try {
      const Vocabulary vocabulary(texts, attributes, spelling);
      make_bpe(vocabulary, strings("merges"), *find_pretokenizer("gpt-2"));
    } catch (const FormatError&) {
    }
}

/// Another program writes to the file after it was opened: what was checked stays, and no read leaves the
/// file.
void test_changed_file() {
  const std::string good = vocabulary_file();
  const std::vector<std::string> keys{"general.name", "flag", "merges", "tokens"};
  const auto mapping = gguf::Mapping::of_bytes({reinterpret_cast<const uint8_t*>(good.data()), good.size()});
  auto* bytes = const_cast<uint8_t*>(mapping->bytes().data());
  const gguf::File file = gguf::File::parse(mapping);
  const uint64_t sum = read_all(file, keys);
  std::mt19937 random(19);
  for (const uint64_t length : {UINT64_MAX, UINT64_MAX - 7, uint64_t{INT64_MAX}, uint64_t{1} << 32,
                                uint64_t{100}, uint64_t{9}, uint64_t{0}})
    for (size_t at = 0; at + 8 <= good.size(); ++at) {
      std::memcpy(bytes + at, &length, sizeof length);
      read_all(file, keys);
      try_tokenizer(file);
      std::memcpy(bytes, good.data(), good.size());
    }
  for (int i = 0; i < 2000; ++i) {
    for (size_t at = 0; at < good.size(); ++at)
      if (i % 2 == 0 || random() % 8 == 0) bytes[at] = static_cast<uint8_t>(random());
    read_all(file, keys);
    try_tokenizer(file);
    check(gguf::string_at(*file.find("general.name"), 0) == "some name", "a scalar stays what it was");
    check(file.find("flag")->raw[0] == 1, "a bool stays one");
    std::memcpy(bytes, good.data(), good.size());
  }
  check(read_all(file, keys) == sum, "the file as it was reads as it did");
}

/// The file changes while it is parsed, and while a vocabulary is made of it.
void test_changing_file() {
  const std::string good = vocabulary_file(), tensors = small_file();
  for (const std::string& content : {good, tensors}) {
    const auto mapping =
        gguf::Mapping::of_bytes({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
    auto* bytes = const_cast<volatile uint8_t*>(mapping->bytes().data());
    std::atomic<bool> done = false;
    std::thread writer([&] {
      std::mt19937 random(23);
      while (!done) {
        const size_t at = 4 + random() % (content.size() - 4);
        bytes[at] = static_cast<uint8_t>(random());
        for (int i = 0; i < 50; ++i) bytes[at] = bytes[at];
        bytes[at] = static_cast<uint8_t>(content[at]);
      }
    });
    for (int i = 0; i < 5000; ++i) try {
        const gguf::File file = gguf::File::parse(mapping);
        if (file.find("tokens") && file.find("merges")) try_tokenizer(file);
      } catch (const FormatError&) {
      }
    done = true;
    writer.join();
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

void recover(int) {}

/// Every mapping is guarded, however many there are, also after other handlers took the place of this one.
void test_many_mappings() {
  const long page = ::sysconf(_SC_PAGESIZE);
  char name[] = "/tmp/llamay-lost-pages-XXXXXX";
  const int fd = ::mkstemp(name);
  const std::string content(size_t(2 * page), 'x');
  check(::write(fd, content.data(), content.size()) == ssize_t(content.size()), "its content");
  {
    std::vector<std::shared_ptr<const gguf::Mapping>> all(5000);
    for (auto& each : all) each = gguf::Mapping::of_file(fd);
    check(::ftruncate(fd, page) == 0, "cutting it short");
    const std::array<void (*)(int), 3> handlers{SIG_DFL, SIG_IGN, recover};
    for (size_t i = 0; i < all.size(); ++i) {
      std::signal(SIGBUS, handlers[i % handlers.size()]);
      all[i]->guard();
      check(all[i]->bytes()[size_t(page)] == 0 && all[i]->lost(), "the loss of its page is noted");
    }
    std::signal(SIGBUS, recover);
    all[0]->guard();
    check(::raise(SIGBUS) == 0, "a signal that was sent goes to the other handler");
  }
  std::signal(SIGBUS, SIG_DFL);
  ::close(fd);
  ::unlink(name);
}

int main() {
  test_reader();
  test_changed_file();
  test_changing_file();
  test_lost_pages();
  test_many_mappings();
  test_byte_level();
  test_sentencepiece_kinds();
  test_charsmap();
  test_unicode();
  if (failures == 0) std::puts("all native tests passed");
  return failures != 0;
}
