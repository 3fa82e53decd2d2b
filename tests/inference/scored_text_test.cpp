// The rules of lm-evaluation-harness for contexts, windows, words and choices.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>

#include "runner/base/error.hpp"
#include "runner/base/utf8.hpp"
#include "runner/inference/scored_text.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

using Ids = std::vector<int32_t>;

ScoredTokens pair_of(const std::string& context, const std::string& continuation) {
  return encode_pair(*make_bytes_tokenizer(), context, continuation);
}

Ids bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

TEST_CASE("spaces at the end of a context belong to the continuation", "[rank13]") {
  CHECK(pair_of("one", " two").context == bytes("one"));
  CHECK(pair_of("one", " two").continuation == bytes(" two"));
  CHECK(pair_of("one \n", " two").context == bytes("one"));
  CHECK(pair_of("one \n", " two").continuation == bytes(" \n two"));
  CHECK(pair_of("", "two").context == Ids{0});  // bytes have no BOS and no EOS
  TemporaryFolder folder;
  std::ofstream(folder.path / "config.json") << R"({"bos_token_id": 1})";
  CHECK(encode_pair(*make_bytes_tokenizer(), "", "two", folder.path).context == Ids{1});
  std::ofstream(folder.path / "config.json") << R"({"bos_token_id": 4294967296})";
  CHECK_THROWS_WITH(encode_pair(*make_bytes_tokenizer(), "", "two", folder.path),
                    (folder.path / "config.json").string() +
                        ": bos_token_id = 4294967296 is not one of the tokenizer's 256 tokens");
}

TEST_CASE("each token of a document is predicted once, in windows of the model's length", "[rank13]") {
  const Ids tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto windows = rolling_windows(tokens, 0, 4);
  REQUIRE(windows.size() == 3);
  CHECK(windows[0].context == Ids{0});
  CHECK(windows[0].continuation == Ids{1, 2, 3, 4});
  CHECK(windows[1].context == Ids{4});
  CHECK(windows[1].continuation == Ids{5, 6, 7, 8});
  CHECK(windows[2].context == Ids{6, 7, 8});  // as many as fit
  CHECK(windows[2].continuation == Ids{9, 10});
  const auto shared = rolling_windows(tokens, 0, 4, 3);
  CHECK(shared[1].context == Ids{2, 3, 4});
  CHECK(shared[1].continuation == Ids{5, 6});
  CHECK(rolling_windows({}, 0, 4).empty());
  CHECK(rolling_windows({7}, 0, 4).front().continuation == Ids{7});
}

TEST_CASE("a row that is too long is cut off at its beginning", "[rank13]") {
  const auto row = row_of({.context = {1, 2, 3, 4}, .continuation = {5, 6}}, 3);
  CHECK(row.inputs == std::vector<int64_t>{3, 4, 5});
  CHECK(row.targets == std::vector<int64_t>{-100, 5, 6});
}

TEST_CASE("words are counted as Python's re.split counts them, characters as code points", "[rank13]") {
  CHECK(count_words("") == 1);
  CHECK(count_words("one two\n\n three") == 3);
  CHECK(count_words(" one ") == 3);
  CHECK(count_words("a\xC2\xA0"
                    "b\xE2\x80\x83"
                    "c") == 3);  // no-break space, em space
  CHECK(unicode::count("na\xC3\xAFve") == 5);
}

TEST_CASE("records of multiple choice: labels are indices, letters or texts", "[rank13]") {
  const auto label = [](const std::string& json) {
    return choice_record(R"({"question": "q", "choices": ["x", "y"], )" + json + "}", "f:1", 0).label;
  };
  CHECK(label(R"("label": 1)") == 1);
  CHECK(label(R"("answer": "B")") == 1);
  CHECK(label(R"("gold": "x")") == 0);
  CHECK(label(R"("label": "1")") == 1);
  CHECK_THROWS_WITH(label(R"("label": "C")"), ContainsSubstring("f:1: `label` is \"C\""));
  CHECK_THROWS_WITH(label(R"("lable": 1)"), ContainsSubstring("f:1: there is no `label` or `answer`"));
  CHECK_THROWS_WITH(choice_record(R"({"context": "c", "choices": ["x"], "label": 0})", "f:2", 0),
                    ContainsSubstring("f:2: `choices` must be a list of at least two texts"));
  const auto arc = choice_record(
      R"({"id": "a1", "question": "q", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "answerKey": "C"})",
      "f:1", 0);
  CHECK(arc.choices.size() == 3);
  CHECK(arc.label == 2);
  CHECK(arc.id == "a1");
}

TEST_CASE("labels that the choices have of their own are not indices", "[rank13]") {
  const auto label = [](const std::string& answer) {
    return choice_record(
               R"({"question": "q", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": )" +
                   answer + "}",
               "f:1", 0)
        .label;
  };
  CHECK(label(R"("1")") == 0);
  CHECK(label(R"("3")") == 2);
  CHECK(label(R"("z")") == 2);
  CHECK(label("1") == 1);
  CHECK_THROWS_WITH(label(R"("A")"),
                    "f:1: `label` is \"A\": must be the index of one of 3 choices (from 0), one of their "
                    "labels: 1, 2, 3, or the text of a choice");
}

TEST_CASE("the rules of acc, acc_norm, acc_bytes and acc_tokens choose differently", "[rank13]") {
  const ChoiceRecord record{
      .id = 0, .context = "c", .choices = {"ab", "\xE6\x9D\xB1\xE4\xBA\xAC\xE6\x9D\xB1", "abcdef"}, .label = 0};
  const auto predicted = predict_choice(record, {-4.0, -4.5, -9.6}, {2, 9, 3});
  CHECK(predicted.sum == 0);
  CHECK(predicted.characters == 1);  // -2, -1.5, -1.6
  CHECK(predicted.bytes == 1);       // -2, -0.5, -1.6
  CHECK(predicted.tokens == 1);      // -2, -0.5, -3.2
  CHECK(share_of(3, 4).mean == 0.75);
  CHECK_THAT(share_of(3, 4).standard_error.value(), WithinRel(0.25, 1e-12));  // sqrt(0.1875 / 3)
  CHECK_FALSE(share_of(1, 1).standard_error.has_value());
}
