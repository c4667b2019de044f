#include "tokenizer/pretokenizer.hpp"

#include <algorithm>
#include <map>

#include "tokenizer/passes.hpp"

namespace llamay::tokenizer {
namespace {

using namespace passes;
using unicode::kLetter;
using unicode::kMark;

constexpr Options kOneNumber{.max_numbers = 1};
constexpr Options kTrailingSlashes{.slashes_after_signs = true};

const std::vector<Pass> kGpt2{isolate<gpt2>};
const std::vector<Pass> kNumberThenGpt2{isolate<number>, isolate<gpt2>};
const std::vector<Pass> kGpt4{isolate<gpt4<Options{}>>};
const std::vector<Pass> kQwen2{isolate<gpt4<kOneNumber>>};
const std::vector<Pass> kGpt4o{isolate<gpt4o<kTrailingSlashes>>};
const std::vector<Pass> kDeepseek3{isolate<up_to_three_numbers>, isolate<cjk_and_kana>, isolate<deepseek3>};
const std::vector<Pass> kLines{isolate<lines>};

using Table = std::map<std::string_view, PreTokenizer>;

/// Return the patterns by their names, which are those that llama.cpp's converter writes.
Table make_table() {
  Table table;
  const auto add = [&](std::initializer_list<std::string_view> names, const PreTokenizer& p) {
    for (const auto name : names) {
      PreTokenizer named = p;
      named.name = name;
      table.emplace(name, named);
    }
  };
  add({"default"},
      {.passes = {isolate<default_punctuation>, isolate<gpt2>, isolate<numbers>, isolate<three_digits>}});
  add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
       "jina-v5-nano"},
      {.passes = kGpt4, .ignore_merges = true, .add_bos = true});
  add({"dbrx", "smaug-bpe", "chatglm-bpe"}, {.passes = kGpt4});
  add({"glm4", "glm5"}, {.passes = kGpt4, .ignore_merges = true});
  add({"deepseek-llm"},
      {.passes = {isolate<newline>, isolate<deepseek_letters>, isolate<deepseek_punctuation>, trailing_space,
                  isolate<deepseek_cjk>, isolate<numbers>}});
  add({"deepseek-coder"}, {.passes = {isolate<newline>, isolate<spaced_letters>, isolate<spaced_punctuation>,
                                      isolate<deepseek_cjk>, isolate<number>}});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {.passes = kDeepseek3});
  add({"spark2_5"},
      {.passes = {isolate<up_to_three_numbers>, isolate<cjk_and_kana>, isolate<spark>, isolate<number>}});
  add({"falcon"}, {.passes = {isolate<falcon_punctuation>, isolate<gpt2>, isolate<three_digits>}});
  add({"mpt", "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
       "mellum", "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "olmo", "jais", "trillion",
       "granite-docling", "exaone4"},
      {.passes = kGpt2});
  add({"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {.passes = kNumberThenGpt2});
  add({"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open",
       "grok-2", "bailingmoe", "bailingmoe2", "llada-moe"},
      {.passes = kQwen2});
  add({"qwen35"}, {.passes = {isolate<gpt4<Options{.max_numbers = 1, .letters = kLetter | kMark}>>}});
  add({"ufakzeka"}, {.passes = {isolate<gpt4<Options{.contractions = false, .max_numbers = 1}>>}});
  add({"laguna"}, {.passes = {isolate<lines>, isolate<gpt4<kOneNumber>>}});
  add({"minicpm5"},
      {.passes = {isolate<up_to_three_numbers>, isolate<gpt4<Options{.max_numbers = UINT32_MAX}>>},
       .ignore_merges = true});
  add({"seed-coder"}, {.passes = {isolate<gpt4<Options{.max_numbers = 1, .newlines_after_signs = false}>>}});
  add({"exaone-moe"},
      {.passes = {
           isolate<gpt4<Options{.max_numbers = 1, .one_after_signs = true, .words_with_spaces = true}>>}});
  add({"jais-2"}, {.passes = {isolate<gpt4<Options{.powers_of_two_spaces = true}>>}});
  add({"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {.passes = kGpt4o});
  add({"granite-embed-multi-97m"}, {.passes = kGpt4o, .ignore_merges = true});
  add({"tekken"},
      {.passes =
           {isolate<gpt4o<Options{.contractions = false, .max_numbers = 1, .slashes_after_signs = true}>>},
       .ignore_merges = true,
       .add_bos = true});
  add({"tiny_aya", "cohere2moe"}, {.passes = {digit_groups, isolate<gpt4o<kTrailingSlashes>>}});
  add({"youtu"}, {.passes = {isolate<youtu_scripts>,
                             isolate<gpt4o<Options{.max_numbers = 1, .slashes_after_signs = true}>>},
                  .ignore_merges = true});
  add({"afmoe"}, {.passes = {number_groups, isolate<asian_scripts>, isolate<deepseek3>}});
  add({"superbpe"}, {.passes = {isolate<numbers>, digits_from_right}});
  add({"kimi-k2"}, {.passes = {isolate<kimi_k2>}});
  add({"bloom", "poro-chat", "gpt3-finnish"}, {.passes = {isolate<bloom>}});
  add({"viking"}, {.passes = {isolate<bloom>, isolate<number>}});
  add({"chameleon"},
      {.passes = {isolate<chameleon_sentinel>, isolate<chameleon_image>, isolate<chameleon_layout>,
                  isolate<number>, isolate<chameleon_punctuation>, isolate<gpt2>},
       .add_bos = true});
  add({"gemma4", "granite-embed-multi-311m"},
      {.passes = kLines, .byte_level = false, .whole_newlines = true, .add_bos = true});
  add({"sarvam-moe"}, {.passes = kLines, .byte_level = false});
  return table;
}

const Table& table() {
  static const Table t = make_table();
  return t;
}

}  // namespace

void PreTokenizer::split(const Characters& text, Ends& out) const {
  Ends pieces{text.size()};
  Ends next;
  for (const Pass pass : passes) {
    next.clear();
    uint32_t begin = 0;
    for (const uint32_t end : pieces) {
      pass(text, begin, end, next);
      begin = end;
    }
    std::swap(pieces, next);
  }
  out = std::move(pieces);
}

const PreTokenizer* find_pretokenizer(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string_view> pretokenizer_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : table()) names.push_back(entry.first);
  return names;
}

}  // namespace llamay::tokenizer
