// How `runner evaluate` reads the file of --data: its format, and of several sources the columns of the one that fits.
#include "runner/inference/sample_batch.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

StoredModel of_run(const std::string& format) {
  StoredModel model;
  model.recipe.data.format = format;
  model.recipe.data.train = {"train"};
  model.recipe.data.validation_fraction = 0.1;
  return model;
}

StoredModel classifier_of_sources(const std::vector<std::string>& columns) {
  auto model = of_run("jsonl");
  auto& data = model.recipe.data;
  data.objective = "classification";
  data.target = {"label"};
  data.train.clear();
  for (const auto& column : columns) {
    auto& source = data.sources.emplace_back();
    source = {.name = column, .train = {column + ".jsonl"}};
    if (column != "text") source.columns = {{"text", column}};
  }
  return model;
}

Recipe::Data evaluated(const StoredModel& model, const std::string& file) {
  return evaluated_data({.verb = "evaluate", .load = {.checkpoint = "step-1"}, .data = file}, model);
}

}  // namespace

TEST_CASE("the name of the file says its format, otherwise the training does", "[rank13]") {
  DataFolder folder;
  const auto format = [&](const char* training, const std::string& name) {
    const auto data = evaluated(of_run(training), folder.write(name, "x"));
    CHECK(data.validation == std::vector{folder / name});
    CHECK_FALSE(data.validation_fraction);
    return data.format;
  };
  CHECK(format("text", "a.csv") == "csv");
  CHECK(format("text", "a.json") == "jsonl");
  CHECK(format("text", "a.txt") == "text");
  CHECK(format("jsonl", "a.tsv") == "csv");
  CHECK(format("jsonl", "a.parquet") == "parquet");
  CHECK(format("jsonl", "a.txt") == "jsonl");
  CHECK(format("bin", "a.csv") == "bin");  // tokens have no other form
  CHECK(error_of([&] { evaluated(of_run("text"), folder / "none.txt"); }).starts_with("usage: data.validation: "));
}

TEST_CASE("a file has the columns of one of the sources", "[rank15]") {
  DataFolder folder;
  const auto columns = [&](const std::vector<std::string>& sources, const std::string& record) {
    return evaluated(classifier_of_sources(sources), folder.write("a.jsonl", record)).columns;
  };
  using Columns = Recipe::Data::Columns;
  const auto sentence = R"({"sentence": "a", "label": "x"})";
  CHECK(columns({"sentence"}, sentence) == Columns{{"text", "sentence"}});
  CHECK(columns({"text", "sentence"}, sentence) == Columns{{"text", "sentence"}});
  CHECK_FALSE(columns({"text", "sentence"}, R"({"text": "a", "label": "x"})"));
  CHECK(columns({"sentence", "body"}, R"({"other": "a"})") == Columns{{"text", "sentence"}});
  CHECK(error_of([&] { columns({"text"}, R"({"text": "a", "text_pair": "b", "label": "x"})"); }) ==
        "usage: " + (folder / "a.jsonl") +
            " has pairs of texts (text_pair), and the model was trained on single texts");
}

TEST_CASE("without --data there must be validation data", "[rank13]") {
  auto model = of_run("text");
  CHECK(evaluated_data({.verb = "evaluate", .load = {.checkpoint = "step-1"}}, model).validation_fraction == 0.1);
  model.recipe.data.validation_fraction.reset();
  CHECK(error_of([&] { evaluated_data({.verb = "evaluate", .load = {.checkpoint = "step-1"}}, model); }) ==
        "usage: the run's recipe has no validation data: --data FILE names the data to evaluate on");
  CHECK(error_of([&] { evaluated_data({.verb = "evaluate", .load = {.folder = "model"}}, model); }) ==
        "usage: a Hugging Face folder has no validation data: --data FILE names the data to evaluate on");
}
