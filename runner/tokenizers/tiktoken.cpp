// tiktoken files: one token a line. The merges and the expression for words are not in them.
#include <algorithm>
#include <unordered_map>

#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/tokenizers/base64.hpp"
#include "runner/tokenizers/byte_characters.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "runner/tokenizers/models.hpp"
#include "runner/tokenizers/pre_tokenizers.hpp"

namespace runner {

namespace {

using Special = std::vector<std::pair<std::string, int32_t>>;

struct Known {
  size_t tokens;
  const char* expression;
  bool nfc;  ///< the text is brought to this normal form first
  Special (*special)();
  const char *bos, *eos;  ///< nullptr: none
};

Special numbered(std::vector<std::string> names, int32_t first) {
  Special list;
  for (auto& name : names) list.emplace_back(std::move(name), first + static_cast<int32_t>(list.size()));
  return list;
}

/// llama-models' tokenizer.py: 256 tokens.
Special llama3_special() {
  std::vector<std::string> names{"<|begin_of_text|>",
                                 "<|end_of_text|>",
                                 "<|reserved_special_token_0|>",
                                 "<|reserved_special_token_1|>",
                                 "<|finetune_right_pad_id|>",
                                 "<|step_id|>",
                                 "<|start_header_id|>",
                                 "<|end_header_id|>",
                                 "<|eom_id|>",
                                 "<|eot_id|>",
                                 "<|python_tag|>"};
  for (int i = 2; names.size() < 256; ++i) names.push_back(fmt::format("<|reserved_special_token_{}|>", i));
  return numbered(std::move(names), 128000);
}

/// Qwen's tokenization_qwen.py.
Special qwen_special() {
  std::vector<std::string> names{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) names.push_back(fmt::format("<|extra_{}|>", i));
  return numbered(std::move(names), 151643);
}

constexpr const char* cl100k_words =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* llama3_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* o200k_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<Known>& known_files() {
  static const std::vector<Known> list{
      {50256, gpt2_words, false,
       [] {
         return Special{{"<|endoftext|>", 50256}};
       },
       "<|endoftext|>", "<|endoftext|>"},
      {100256, cl100k_words, false,
       [] {
         auto list = numbered({"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, 100257);
         list.emplace_back("<|endofprompt|>", 100276);
         return list;
       },
       nullptr, "<|endoftext|>"},
      {128000, llama3_words, false, llama3_special, "<|begin_of_text|>", "<|end_of_text|>"},
      {151643, qwen_words, true, qwen_special, nullptr, "<|endoftext|>"},
      {199998, o200k_words, false,
       [] {
         return Special{{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
       },
       nullptr, "<|endoftext|>"}};
  return list;
}

/// Tokens as bytes, by rank.
using Ranks = std::vector<std::pair<std::string, int32_t>>;

Ranks read_ranks(const fs::path& file, std::string_view content) {
  Ranks ranks;
  size_t number = 0;
  while (!content.empty()) {
    ++number;
    const auto line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    if (trim(line).empty()) continue;
    const size_t space = line.find(' ');
    const auto refuse = [&](const std::string& reason) {
      throw usage_error("{}:{}: {}; a line of a tiktoken file is Base64, a space and a rank", file.string(), number,
                        reason);
    };
    const auto bytes = from_base64(line.substr(0, space));
    if (!bytes || bytes->empty()) refuse("this is not Base64");
    if (bytes->size() > token_bytes_max) refuse(too_long_token(*bytes));
    const auto text = space == std::string_view::npos ? std::string_view() : trim(line.substr(space));
    const auto rank = parse_number<int32_t>(text);
    if (!rank || *rank < 0) refuse("this has no rank");
    ranks.emplace_back(*bytes, *rank);
  }
  std::ranges::sort(ranks, {}, &std::pair<std::string, int32_t>::second);
  return ranks;
}

BpeParts parts_of(const Ranks& ranks) {
  BpeParts parts;
  parts.ignore_merges = true;
  std::unordered_map<std::string_view, int32_t> known;
  for (const auto& [bytes, rank] : ranks) known.emplace(bytes, rank);
  for (const auto& [bytes, rank] : ranks) {
    parts.vocabulary.emplace_back(characters_of(bytes), rank);
    struct Cut {
      int32_t left, right;
      size_t at;
    };
    std::vector<Cut> cuts;
    for (size_t at = 1; at < bytes.size(); ++at) {
      const auto left = known.find(std::string_view(bytes).substr(0, at));
      const auto right = left == known.end() ? known.end() : known.find(std::string_view(bytes).substr(at));
      if (right != known.end()) cuts.push_back({left->second, right->second, at});
    }
    std::ranges::sort(
        cuts, [](const Cut& a, const Cut& b) { return a.left != b.left ? a.left < b.left : a.right < b.right; });
    for (const auto& cut : cuts)
      parts.merges.emplace_back(characters_of(bytes.substr(0, cut.at)), characters_of(bytes.substr(cut.at)));
  }
  return parts;
}

}  // namespace

bool looks_like_tiktoken(std::string_view content) {
  const auto line = trim(content.substr(0, std::min<size_t>(content.find('\n'), 4096)));
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return false;
  return from_base64(line.substr(0, space)) &&
         line.substr(space + 1).find_first_not_of("0123456789") == std::string_view::npos;
}

std::unique_ptr<Tokenizer> open_tiktoken(const fs::path& file, const std::string& expression) {
  check_tokenizer_size(file, fs::file_size(file));
  const std::string content = read_file(file);
  const Ranks ranks = read_ranks(file, content);
  const auto found = std::ranges::find(known_files(), ranks.size(), &Known::tokens);
  const Known* known = expression.empty() && found != known_files().end() ? &*found : nullptr;
  if (expression.empty() && !known)
    throw usage_error(
        "{}: a tiktoken file of {} tokens: the expression that cuts words is only known for GPT-2 (50256 tokens), "
        "cl100k (100256), "
        "Llama 3 (128000), Qwen (151643) and o200k (199998); use the tokenizer.json of the model",
        file.string(), ranks.size());
  HfTokenizer::Parts parts;
  parts.model = make_bpe(parts_of(ranks));
  parts.expression = known ? known->expression : expression;
  if (known) {
    parts.nfc = known->nfc;
    parts.special = known->special();
    const auto id = [&](const char* name) -> std::optional<int32_t> {
      for (const auto& [content, id] : parts.special)
        if (name && content == name) return id;
      return {};
    };
    parts.roles = {.bos = id(known->bos), .eos = id(known->eos), .pad = {}, .unk = {}};
    if (known->tokens == 128000) parts.before = {*parts.roles.bos};
  }
  parts.hash = xxh3_hex(content);
  parts.files = {{file, file.filename().string()}};
  return std::make_unique<HfTokenizer>(std::move(parts));
}

}  // namespace runner
