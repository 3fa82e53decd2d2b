// `runner evaluate` measures what lm-evaluation-harness measures (tests/inference/make_lm_eval_reference.py).
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/checkpoint/hf.hpp"
#include "tests/support/command.hpp"
#include "tests/support/formula_weights.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

const fs::path reference = RUNNER_SOURCE_DIR "/tests/inference/reference/lm_eval";

/// The reference's model as a folder "model".
void write_model(const Workplace& place) {
  const auto config = json::parse(slurp(reference / "config.json"));
  const auto model = model_from_hf_config(config);
  const auto spec = make_spec(model, *model.vocab_size, model.max_seq_len);
  const auto parameters = spec.parameters();
  const auto names = hf_names(model, spec);
  export_weights(place.path() / "model", model, spec, [&](size_t slot, int64_t offset, std::span<float> out) {
    const auto values = formula_values(*parameters[slot], names[slot], /*gemma=*/false);
    std::copy_n(values.begin() + offset, out.size(), out.begin());
  });
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(reference / name, place.path() / "model" / name, fs::copy_options::overwrite_existing);
}

/// The texts of documents.jsonl as documents.csv and documents.json.
void write_documents(const Workplace& place) {
  std::istringstream lines(slurp(reference / "documents.jsonl"));
  std::string line, cells = "text\n";
  auto array = json::array();
  while (std::getline(lines, line)) {
    array.push_back(json::parse(line));
    cells += '"' + array.back().at("text").get<std::string>() + "\"\n";
  }
  place.write("documents.csv", cells);
  place.write("documents.json", array.dump());
}

json evaluated(const Workplace& place, const std::string& task, const std::string& data, const std::string& batch) {
  const auto result = place.run({"evaluate", "model", "--task", task, "--data", (reference / data).string(), "--json",
                                 "--output", "lines.jsonl", "--batch-size", batch, "--threads", "1"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json().at("metrics");
}

}  // namespace

TEST_CASE("rank 13: multiple choice has lm-eval's sums, acc, acc_norm and acc_bytes", "[e2e][rank13]") {
  const Workplace place;
  write_model(place);
  const auto expected = json::parse(slurp(reference / "expected.json"));
  for (const char* batch : {"1", "7"}) {
    const auto metrics = evaluated(place, "multiple_choice", "choices.jsonl", batch);
    CHECK(metrics.at("acc_bytes") == expected.at("acc_bytes"));
    for (const char* name : {"acc", "acc_norm"}) {
      CAPTURE(name);
      const auto& of_lm_eval = expected.at("choices");
      CHECK(metrics.at(name).get<double>() == of_lm_eval.at(std::string(name) + ",none").get<double>());
      CHECK_THAT(metrics.at(std::string(name) + "_stderr").get<double>(),
                 WithinRel(of_lm_eval.at(std::string(name) + "_stderr,none").get<double>(), 1e-9));
    }
    std::istringstream lines(slurp(place.path() / "lines.jsonl"));
    std::string line;
    for (const auto& sums : expected.at("choice_sums")) {
      REQUIRE(std::getline(lines, line));
      const auto ours = json::parse(line).at("log_probabilities");
      REQUIRE(ours.size() == sums.size());
      for (size_t i = 0; i < sums.size(); ++i)
        CHECK_THAT(ours[i].get<double>(), WithinAbs(sums[i].get<double>(), 1e-4));
    }
    CHECK_FALSE(std::getline(lines, line));
  }
}

TEST_CASE("rank 13: the loss of a folder's model on records and on text does not depend on the batch",
          "[e2e][rank13]") {
  const Workplace place;
  write_model(place);
  const auto loss = [&](const std::string& data, const std::string& batch) {
    const auto result =
        place.run({"evaluate", "model", "--data", data, "--json", "--batch-size", batch, "--threads", "1"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result.json().at("metrics");
  };
  const auto records = (reference / "documents.jsonl").string();
  const auto one = loss(records, "1"), three = loss(records, "3");
  CHECK_THAT(one.at("loss").get<double>(), WithinAbs(three.at("loss").get<double>(), 1e-6));
  CHECK(one.at("tokens") == three.at("tokens"));
  write_documents(place);
  for (const char* same : {"documents.csv", "documents.json"}) CHECK(loss(same, "1") == one);
  place.write("text.txt", slurp(reference / "documents.jsonl"));
  CHECK_THAT(loss("text.txt", "1").at("loss").get<double>(),
             WithinAbs(loss("text.txt", "5").at("loss").get<double>(), 1e-6));
  const auto none = place.run({"evaluate", "model"});
  CHECK(none.code == 2);
  CHECK(none.err.find("a Hugging Face folder has no validation data: --data FILE names the data") != std::string::npos);
}

TEST_CASE("rank 13: rolling perplexity has lm-eval's sums, words, bytes and bits_per_byte", "[e2e][rank13]") {
  const Workplace place;
  write_model(place);
  const auto expected = json::parse(slurp(reference / "expected.json"));
  const auto metrics = evaluated(place, "rolling", "documents.jsonl", "3");
  double sum = 0;
  for (const auto& of_document : expected.at("document_sums")) sum += of_document.get<double>();
  CHECK_THAT(metrics.at("log_probability").get<double>(), WithinAbs(sum, 1e-3));
  for (const char* name : {"word_perplexity", "byte_perplexity", "bits_per_byte"}) {
    CAPTURE(name);
    CHECK_THAT(metrics.at(name).get<double>(),
               WithinRel(expected.at("documents").at(std::string(name) + ",none").get<double>(), 1e-6));
  }
  write_documents(place);
  for (const char* same : {"documents.csv", "documents.json"})
    CHECK(evaluated(place, "rolling", (place.path() / same).string(), "3") == metrics);
}
