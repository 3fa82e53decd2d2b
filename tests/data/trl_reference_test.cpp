// Rank 1: token ids and labels of records are those that TRL makes (make_trl_reference.py wrote the files).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runner/data/record_reader.hpp"
#include "strategies/engine/token_batch.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

TEST_CASE("rank 1: ids and labels of 200 records are TRL's", "[rank1]") {
  const std::string reference = RUNNER_SOURCE_DIR "/tests/data/reference/trl/";
  const std::string kind = GENERATE(as<std::string>(), "messages", "prompt_completion", "conversations");
  const auto expected = nlohmann::json::parse(read_file(reference + "expected.json")).at(kind);
  DataFolder folder;
  Recipe::Data data;
  data.format = "jsonl";
  data.train = {reference + kind + ".jsonl"};
  data.tokenizer = reference + "tokenizer.json";
  const auto reader = make_record_reader(data, data.train, folder / "cache");
  std::istringstream lines(read_file(data.train.front()));
  size_t number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    INFO(kind << ", line " << number + 1 << ": " << line);
    const auto document = reader->read(JsonRecord::parse(line));
    std::vector<int64_t> ids(document.tokens.begin(), document.tokens.end()), labels;
    for (size_t t = 0; t < ids.size(); ++t) labels.push_back(document.supervised[t] ? ids[t] : ignored_target);
    const auto& theirs = expected.at(number);
    CHECK(ids == theirs.at("ids"));
    if (theirs.value("split", true))
      CHECK(labels == theirs.at("labels"));
    else  // TRL's completion begins inside the prompt, ours does not
      for (size_t t = 0; t < ids.size(); ++t)
        CHECK((labels[t] == ignored_target || labels[t] == theirs.at("labels")[t]));
  }
  CHECK(number == expected.size());
}
