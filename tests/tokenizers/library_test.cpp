// Ids, offsets and decoded texts against the tokenizers library, on random texts for small tokenizers of every family
// (make_tokenizers.py). RUNNER_FUZZED_TEXTS sets the number of texts per tokenizer.
#include <sentencepiece_trainer.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// Python with the library; empty if it is not installed.
std::string python_with_tokenizers() {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen
                              : "TOKENIZERS_PARALLELISM=false PYTHONPATH=" RUNNER_SOURCE_DIR
                                "/.deps/transformers /usr/bin/python3";
  return std::system((python + " -c 'import tokenizers' 2>/dev/null").c_str()) == 0 ? python : "";
}

std::string base64(std::string_view bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

/// The content of the first field `number` (of type bytes) of a protocol buffer message.
std::string field(std::string_view message, uint64_t number) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t tag = varint();
    if ((tag & 7) == 0) {
      varint();
    } else if ((tag & 7) == 5) {
      at += 4;
    } else {
      const uint64_t size = varint();
      if (tag >> 3 == number) return std::string(message.substr(at, size));
      at += size;
    }
  }
  return "";
}

/// The map of a SentencePiece model with the rules of `name`, in Base64.
std::string character_map(const fs::path& folder, const std::string& name) {
  std::ofstream(folder / "text.txt") << "a few words for a very small model\n";
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", (folder / "text.txt").string()},
                                                                  {"model_prefix", (folder / "map").string()},
                                                                  {"vocab_size", "20"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"normalization_rule_name", name},
                                                                  {"minloglevel", "2"}});
  INFO(status.ToString());
  REQUIRE(status.ok());
  const auto normalizer = field(read_file(folder / "map.model"), 3);  // ModelProto.normalizer_spec
  return base64(field(normalizer, 2));                                // NormalizerSpec.precompiled_charsmap
}

/// The first difference of a case, or nothing.
std::string difference(const Tokenizer& tokenizer, const json& expected) {
  const auto text = expected.at("text").get<std::string>();
  const auto show = [](const auto& a, const auto& b) {
    return fmt::format("\n  {}\n  {}", json(a).dump(), json(b).dump());
  };
  const auto ids = expected.at("ids").get<std::vector<int32_t>>();
  if (const auto own = tokenizer.encode(text); own != ids) return "ids:" + show(own, ids);
  const auto framed = expected.at("framed").get<std::vector<int32_t>>();
  if (const auto own = tokenizer.encode(text, true); own != framed) return "framed ids:" + show(own, framed);
  std::vector<size_t> places;
  std::vector<int32_t> with_places;
  for (const auto& token : tokenizer.encode_with_offsets(text, true)) {
    places.insert(places.end(), {token.begin, token.end});
    with_places.push_back(token.id);
  }
  if (with_places != framed) return "ids with places:" + show(with_places, framed);
  if (const auto wanted = expected.at("places").get<std::vector<size_t>>(); places != wanted)
    return "places:" + show(places, wanted);
  for (bool skip : {false, true}) {
    const auto& wanted = expected.at(skip ? "skipped" : "decoded");
    if (wanted.is_null()) continue;
    if (const auto own = tokenizer.decode(framed, skip); own != wanted.get<std::string>())
      return "decoded:" + show(own, wanted.get<std::string>());
  }
  return "";
}

/// The ids of a document that is encoded in parts of at most `at_most` bytes, and the number of parts.
std::pair<std::vector<int32_t>, size_t> in_parts(const Tokenizer& tokenizer, std::string_view document,
                                                 size_t at_most) {
  std::vector<int32_t> ids;
  size_t parts = 0;
  while (!document.empty()) {
    size_t wanted = at_most;
    auto size = tokenizer.safe_split(document, wanted);
    while (!size) size = tokenizer.safe_split(document, wanted *= 2);
    const auto part = document.substr(0, *size);
    const auto own = parts++ == 0 ? tokenizer.encode(part) : tokenizer.encode_continuation(part);
    ids.insert(ids.end(), own.begin(), own.end());
    document.remove_prefix(*size);
  }
  return {ids, parts};
}

}  // namespace

TEST_CASE("tokenizers of every family encode and decode random texts as the tokenizers library does") {
  const auto python = python_with_tokenizers();
  if (python.empty()) SKIP("scripts/setup has not installed the tokenizers library");
  TemporaryFolder folder;
  std::ofstream(folder.path / "charsmap") << character_map(folder.path, "nmt_nfkc");
  const char* texts = std::getenv("RUNNER_FUZZED_TEXTS");
  const auto command = fmt::format("{} {}/tests/tokenizers/make_tokenizers.py {} {} {}", python, RUNNER_SOURCE_DIR,
                                   folder.path.string(), texts ? texts : "100", (folder.path / "charsmap").string());
  REQUIRE(std::system(command.c_str()) == 0);
  size_t tokenizers = 0;
  std::set<std::string> cut;  // tokenizers with documents in several parts
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    if (!fs::exists(entry.path() / "tokenizer.json")) continue;
    ++tokenizers;
    const auto name = entry.path().filename().string();
    const HfTokenizer tokenizer(entry.path() / "tokenizer.json");
    std::ifstream cases(entry.path() / "cases.jsonl");
    size_t count = 0, different = 0;
    std::vector<std::string> documents;
    for (std::string line; std::getline(cases, line); ++count) {
      const auto expected = json::parse(line);
      if (count % 10 == 0) documents.emplace_back();
      documents.back() += expected.at("text").get<std::string>() + (count % 3 == 0 ? "\nnext line of" : " and so on");
      const auto what = difference(tokenizer, expected);
      if (!what.empty() && ++different <= 3) UNSCOPED_INFO(name << ": " << expected.at("text") << "\n " << what);
    }
    UNSCOPED_INFO(name << ": " << different << " of " << count << " differ");
    CHECK(different == 0);
    for (const auto& document : documents) {
      const auto [ids, parts] = in_parts(tokenizer, document, 64);
      if (parts > 1) cut.insert(name);
      INFO(name << " in " << parts << " parts: " << document);
      REQUIRE(ids == tokenizer.encode(document));
    }
    CHECK(count > 0);
  }
  CHECK(tokenizers >= 36);
  for (const char* name : {"gpt2", "roberta", "llama3", "qwen2", "smollm2", "deepseek", "tekken", "o200k", "llama2",
                           "gemma", "bert", "bert-cased", "t5", "xlmr", "albert"}) {
    INFO(name);
    CHECK(cut.contains(name));
  }
  for (const char* name : {"byte-normalizer", "unsplit-unigram", "words", "split-isolated"}) {
    INFO(name);
    CHECK_FALSE(cut.contains(name));
  }
}
