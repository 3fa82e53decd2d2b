// Tokenizers in GGUF files: "llama" compared with ids of the sentencepiece package, and how names of tokenizer.ggml.pre cut words.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/checkpoint/support.hpp"
#include "tests/support/gguf_builder.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Strings = std::vector<std::string>;
using Ids = std::vector<int32_t>;

namespace {

nlohmann::json reference() {
  return nlohmann::json::parse(
      read_file(fs::path(RUNNER_SOURCE_DIR) / "tests/pretrained/reference/sentencepiece.json"));
}

GgufBuilder llama_file(const nlohmann::json& model) {
  GgufBuilder file;
  file.add("tokenizer.ggml.model", "llama");
  file.add("tokenizer.ggml.tokens", model["tokens"].get<Strings>());
  file.add("tokenizer.ggml.scores", model["scores"].get<std::vector<float>>());
  file.add("tokenizer.ggml.token_type", model["types"].get<std::vector<int32_t>>());
  file.add("tokenizer.ggml.bos_token_id", 1u);
  file.add("tokenizer.ggml.eos_token_id", 2u);
  file.add("tokenizer.ggml.add_space_prefix", model["add_space_prefix"].get<bool>());
  return file;
}

std::unique_ptr<Tokenizer> opened(const fs::path& path, const GgufBuilder& file) {
  write_text(path, file.bytes());
  return open_tokenizer_file(path);
}

/// Byte-level tokens of single letters and digits, and one merge.
Ids ids_of(const fs::path& path, const char* pre, const std::pair<const char*, const char*>& merge, const char* text) {
  Strings tokens;
  for (char c = '!'; c <= '~'; ++c) tokens.emplace_back(1, c);
  tokens.push_back(std::string(merge.first) + merge.second);
  GgufBuilder file;
  file.add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.pre", pre);
  file.add("tokenizer.ggml.tokens", tokens);
  file.add("tokenizer.ggml.merges", Strings{std::string(merge.first) + " " + merge.second});
  return opened(path, file)->encode(text);
}

}  // namespace

TEST_CASE("a tokenizer of pieces with scores in a GGUF file has the ids of sentencepiece", "[gguf][rank2]") {
  Folder folder;
  const auto all = reference();
  for (const auto& model : all["models"]) {
    const auto tokenizer = opened(folder / "model.gguf", llama_file(model));
    CHECK(tokenizer->vocab_size() == 600);
    CHECK(tokenizer->special_tokens().bos == 1);
    CHECK(tokenizer->special_tokens().eos == 2);
    const bool prefix = model["add_space_prefix"];
    for (size_t i = 0; i < all["texts"].size(); ++i) {
      const auto text = all["texts"][i].get<std::string>();
      CAPTURE(text, prefix);
      // Behind a token of a user, sentencepiece adds no space. Hugging Face's converted tokenizers and llama.cpp do.
      if (prefix && text.find("<|user|>") != std::string::npos) continue;
      auto expected = model["ids"][i].get<Ids>();
      CHECK(tokenizer->encode(text) == expected);
      // sentencepiece writes an unknown token as a sign.
      if (std::ranges::find(expected, 0) == expected.end())
        CHECK(tokenizer->decode(expected) == model["decoded"][i].get<std::string>());
      expected.insert(expected.begin(), 1);
      CHECK(tokenizer->encode(text, /*add_special_tokens=*/true) == expected);
    }
    const auto a = prefix ? "\u2581a" : "a", b = prefix ? "\u2581b" : "b";
    CHECK(tokenizer->encode("a<|user|>b") == Ids{*tokenizer->token_to_id(a), 3, *tokenizer->token_to_id(b)});
    CHECK(tokenizer->is_special(1));
    CHECK_FALSE(tokenizer->is_special(3));
  }
}

TEST_CASE("the metadata of a GGUF file say which special tokens surround a text", "[gguf]") {
  Folder folder;
  const auto model = reference()["models"][0];
  auto file = llama_file(model);
  file.add("tokenizer.ggml.add_bos_token", false);
  file.add("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = opened(folder / "model.gguf", file);
  auto expected = tokenizer->encode("hello");
  expected.push_back(2);
  CHECK(tokenizer->encode("hello", /*add_special_tokens=*/true) == expected);
}

TEST_CASE("a damaged tokenizer of pieces is refused", "[gguf]") {
  Folder folder;
  const auto refusal = [&](auto&& change) {
    auto model = reference()["models"][0];
    change(model);
    return message_of([&] { opened(folder / "model.gguf", llama_file(model)); });
  };
  using nlohmann::json;
  CHECK_THAT(refusal([](json& model) { model["scores"].erase(5); }),
             ContainsSubstring("`tokenizer.ggml.scores` has 599 elements, and there are 600 tokens"));
  CHECK_THAT(refusal([](json& model) { model["types"].erase(5); }),
             ContainsSubstring("`tokenizer.ggml.token_type` has 599 elements, and there are 600 tokens"));
  CHECK_THAT(refusal([](json& model) { model["tokens"][5] = "<0xZZ>"; }),
             ContainsSubstring("has 255 of the 256 tokens <0x00> to <0xFF>"));
  CHECK_THAT(refusal([](json& model) { model["tokens"][5] = "<s>"; }),
             ContainsSubstring("tokens 1 and 5 of `tokenizer.ggml.tokens` are the same: \"<s>\""));
}

TEST_CASE("tokenizer.ggml.pre decides where words end", "[gguf]") {
  Folder folder;
  const auto path = folder / "model.gguf";
  const auto joins = [&](const char* pre, const char* left, const char* right) {
    const auto text = std::string(left) + right;
    const auto ids = ids_of(path, pre, {left, right}, text.c_str());
    CAPTURE(pre, text);
    CHECK((ids.size() == 1 || ids.size() == 2));
    return ids.size() == 1;
  };
  for (const char* pre : {"gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "deepseek-coder"})
    CHECK(joins(pre, "o", "W"));
  for (const char* pre : {"tekken", "gpt-4o"}) {
    CHECK_FALSE(joins(pre, "o", "W"));
    CHECK(joins(pre, "O", "w"));
  }
  for (const char* pre : {"gpt-2", "llama-bpe", "dbrx", "gpt-4o", "deepseek-v3"}) CHECK(joins(pre, "1", "2"));
  for (const char* pre : {"smollm", "qwen2", "tekken", "deepseek-coder"}) CHECK_FALSE(joins(pre, "1", "2"));
  CHECK_FALSE(joins("deepseek-coder", "a", "!"));
  CHECK(joins("deepseek-v3", "!", "a"));
  for (const auto size : {3, 4}) {  // 123 4
    const auto ids = ids_of(path, "deepseek-v3", {"3", "4"}, size == 3 ? "234" : "1234");
    CHECK(ids.size() == (size == 3 ? 2u : 4u));
  }
  CHECK_THAT(message_of([&] { joins("deepseek-llm", "a", "b"); }),
             ContainsSubstring("tokenizer.ggml.pre = \"deepseek-llm\" is not supported; allowed: gpt-2,"));
}
