// data.tokenizer = a tokenizer.json, its folder or a tiktoken file: token streams, checks, and the meaning of the data.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/data/data_check.hpp"
#include "runner/data/data_meaning.hpp"
#include "tests/data/support.hpp"
#include "tests/support/trained_bpe.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Lines of words, long enough for several parts of a document.
std::string numbered_lines(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i)
    text +=
        "line " + std::to_string(i * 37) + " of the age, the season and the epoch: Zwölf Boxkämpfer\n\n いろは  x\n";
  return text;
}

/// A folder with a tokenizer.json of byte-level BPE that was trained on `text`.
struct JsonTokenizer {
  DataFolder folder;
  std::string cache = folder / "cache";
  Recipe::Data data;

  explicit JsonTokenizer(const std::string& text = numbered_lines(300'000), int64_t vocab_size = 300)
      : data(text_data({folder.write("corpus.txt", text)})) {
    fs::create_directories(folder.path / "tokenizer");
    write("tokenizer/tokenizer.json", vocab_size);
    data.tokenizer = folder / "tokenizer";
  }
  void write(const std::string& name, int64_t vocab_size) const {
    folder.write(name, trained_bpe(numbered_lines(2000), static_cast<size_t>(vocab_size), {"<|end|>"}));
  }
};

}  // namespace

TEST_CASE("text is tokenised with a tokenizer.json: the stream has the tokens of the complete file") {
  JsonTokenizer place;
  auto tokenizer = make_tokenizer(place.data, place.cache);
  CHECK(tokenizer_vocab_size(place.data, place.cache) == 300);
  const auto text = read_file(place.data.train[0]);
  auto whole = tokenizer->encode(text);
  CHECK(tokenizer->decode(whole) == text);
  const auto dataset = open_dataset(place.data, Split::train, 16, 300, place.cache);
  CHECK(dataset->size() == (std::ssize(whole) - 1) / 16);
  whole.resize(static_cast<size_t>(dataset->size() * 16 + 1));
  CHECK(stream_of(*dataset) == std::vector<int64_t>(whole.begin(), whole.end()));
  place.data.tokenizer = place.folder / "tokenizer/tokenizer.json";
  CHECK(make_tokenizer(place.data, place.cache)->encode("the season") == tokenizer->encode("the season"));
  const auto files = tokenizer_files(place.data, place.cache);
  REQUIRE(files.size() == 1);
  CHECK(files[0].name == "tokenizer.json");
}

TEST_CASE("a changed tokenizer.json changes the tokens and the meaning of the data") {
  JsonTokenizer place;
  Recipe recipe;
  recipe.data = place.data;
  recipe.data.seq_len = 16;
  const auto before = data_meaning(recipe, 8, place.cache);
  CHECK(changed_meaning(before, data_meaning(recipe, 8, place.cache)).empty());
  const auto dataset = open_dataset(place.data, Split::train, 16, 300, place.cache);
  place.write("tokenizer/tokenizer.json", 320);
  CHECK(changed_meaning(before, data_meaning(recipe, 8, place.cache)) ==
        std::vector<std::string>{"data.tokenizer: the tokenizer " + place.data.tokenizer + " has changed"});
  CHECK(open_dataset(place.data, Split::train, 16, 320, place.cache)->size() < dataset->size());
}

TEST_CASE("mistakes about a tokenizer.json are found before a run starts") {
  JsonTokenizer place(numbered_lines(5000));
  const auto problem = [&] {
    auto problems = find_data_problems(place.data, 16, 300, place.cache);
    return problems.empty() ? "" : problems[0].key + ": " + problems[0].message;
  };
  CHECK(problem().empty());
  CHECK(error_of([&] { open_dataset(place.data, Split::train, 16, 299, place.cache); }) ==
        "usage: data.tokenizer = \"" + place.data.tokenizer +
            "\" has 300 tokens, but the model's vocabulary has only 299; set model.vocab_size to 300 or more");
  place.folder.write("tokenizer/tokenizer.json", R"({"model": {"type": "BPF", "vocab": {}, "merges": []}})");
  CHECK(problem() == "data.tokenizer: data.tokenizer: " + place.folder / "tokenizer/tokenizer.json" +
                         ": /model/type: \"BPF\" instead of BPE, WordPiece, Unigram or WordLevel; did you mean BPE?");
  place.folder.write("tokenizer/tokenizer.json", "{\"model\": ");
  CHECK_THAT(problem(), ContainsSubstring("tokenizer.json:1:11: this is not JSON: "));
  place.data.tokenizer = place.folder / "tokenizer/tokeniser.json";
  CHECK_THAT(problem(), ContainsSubstring("there is no file " + place.data.tokenizer +
                                          ", and it is neither \"bytes\" nor "
                                          "\"sentencepiece\"; did you mean tokenizer.json?"));
}
