// Byte-level BPE: the merges of the tokenizers library on the same text.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/tokenizers/bpe_trainer.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using nlohmann::json;

namespace {

const std::string training_text =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,\n"
    "aaaa aaa aaaaaaa abababab ababa 1234 12 123456 Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.\n"
    "いろはにほへと ちりぬるを 😀👩‍👩‍👧‍👦 int main() {  return 0x2A;  }\n";

TextSource lines_of(const std::string& text) {
  return [rest = std::string_view(text)](std::string& line) mutable {
    if (rest.empty()) return false;
    line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    return true;
  };
}

}  // namespace

TEST_CASE("a trained BPE has the vocabulary and the merges of the tokenizers library") {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  const std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  if (std::system((python + " -c 'import tokenizers' 2>/dev/null").c_str()) != 0)
    SKIP("scripts/setup has not installed the tokenizers library");
  TemporaryFolder folder;
  std::ofstream(folder.path / "text") << training_text;
  std::ofstream(folder.path / "train.py") << R"(
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
folder, size, least, prefix = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1"
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
lines = open(folder + "/text", encoding="utf-8", newline="").read().splitlines(keepends=True)
tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, min_frequency=least, show_progress=False,
    special_tokens=["<pad>", "<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save(folder + "/tokenizer.json")
)";
  for (const auto& [size, least, prefix] : {std::tuple{300, 0, false}, {400, 2, true}, {2000, 0, false}}) {
    const auto command = fmt::format("{} {}/train.py {} {} {} {}", python, folder.path.string(), folder.path.string(),
                                     size, least, prefix ? 1 : 0);
    REQUIRE(std::system(command.c_str()) == 0);
    const auto expected = json::parse(read_file(folder.path / "tokenizer.json"));
    const auto own = json::parse(train_bpe({.vocab_size = size,
                                            .min_frequency = least,
                                            .special_tokens = {"<pad>", "<eos>"},
                                            .add_prefix_space = prefix,
                                            .expression = ""},
                                           lines_of(training_text)));
    INFO(size);
    CHECK(own.at("model").at("vocab") == expected.at("model").at("vocab"));
    CHECK(own.at("model").at("merges") == expected.at("model").at("merges"));
  }
}

TEST_CASE("a trained tokenizer can be opened, and decodes every text to itself") {
  TemporaryFolder folder;
  for (const char* expression : {"", R"(\p{N}{1,3}| ?\p{L}+|\s+|[^\s\p{L}\p{N}]+)"}) {
    const auto content = train_bpe({.vocab_size = 320, .special_tokens = {"<|end|>"}, .expression = expression},
                                   lines_of(training_text));
    std::ofstream(folder.path / "tokenizer.json") << content;
    const HfTokenizer tokenizer(folder.path / "tokenizer.json");
    CHECK(tokenizer.vocab_size() == 320);
    CHECK(tokenizer.token_to_id("<|end|>") == 0);
    CHECK(tokenizer.decode(tokenizer.encode(training_text)) == training_text);
    CHECK(tokenizer.encode(training_text).size() < training_text.size() * 3 / 4);
  }
}

TEST_CASE("a vocabulary without room for the bytes is refused") {
  try {
    train_bpe({.vocab_size = 256, .special_tokens = {"<s>"}, .expression = ""}, lines_of("a"));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "a vocabulary of 256 tokens has no room for 256 bytes and 1 special token");
  }
}
