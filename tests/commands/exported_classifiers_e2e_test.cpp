// Exported classifiers of texts, end to end: fine-tuning of MiniLM, decoders, adapters, and what transformers and PEFT read.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "classifier_support.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/piped_command.hpp"
#include "word_tokenizer.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

const std::string minilm = RUNNER_SOURCE_DIR "/.deps/minilm";

/// Checks lines of `predict`. Products of batches of other sizes round differently on some CPUs.
void check_same_predictions(const std::string& actual, const std::string& expected) {
  std::istringstream lines(actual), others(expected);
  for (std::string text; std::getline(others, text);) {
    const auto other = nlohmann::json::parse(text);
    REQUIRE(std::getline(lines, text));
    const auto line = nlohmann::json::parse(text);
    CHECK(line.at("id") == other.at("id"));
    CHECK(line.at("label") == other.at("label"));
    for (const auto& [label, probability] : other.at("probabilities").items())
      CHECK_THAT(line.at("probabilities").at(label).get<double>(), WithinAbs(probability.get<double>(), 1e-6));
  }
}

}  // namespace

TEST_CASE("rank 15: fine-tuning 200 labelled lines beats the majority class", "[rank15][e2e]") {
  if (!fs::exists(minilm + "/config.json")) SKIP("scripts/setup --minilm has not downloaded the model");
  const ClassifierPlace place;
  const std::string recipes = RUNNER_SOURCE_DIR "/recipes/";
  const auto result =
      place.train(recipes + "text_classification.toml", {"train.max_epochs=2", "devices.accelerator=cpu"});
  CHECK_THAT(place.last.err,
             ContainsSubstring("has no head, and the model has 4 outputs: the head is replaced by a new "
                               "one, which begins with random weights"));
  // 28 of the 70 messages for validation have the most frequent label.
  CHECK(place.metric("val_accuracy") > 0.7);
  CHECK(result.at("status") == "finished");

  const auto python = python_with_peft();
  place.export_last("exported");
  const auto config = nlohmann::json::parse(read_file(place.path() / "exported/config.json"));
  CHECK(config.at("id2label") == nlohmann::json({{"0", "arrival"}, {"1", "lost"}, {"2", "repair"}, {"3", "weather"}}));
  const auto theirs = place.losses(python, recipes + "data/harbour_messages_validation.jsonl 64 exported exported");
  CHECK_THAT(theirs.at(0), WithinAbs(place.metric("val_loss"), 1e-5));
  CHECK_THAT(theirs.at(1), WithinAbs(place.metric("val_accuracy"), 1e-6));

  // The verbs know the labels, from the run and from the folder; a file for predictions needs no labels.
  const std::string run = result.at("run"), file = recipes + "data/harbour_messages_validation.jsonl";
  const double val_loss = place.metric("val_loss"), val_accuracy = place.metric("val_accuracy");
  for (const auto& words :
       {std::vector<std::string>{"evaluate", run, "--json"}, {"evaluate", "exported", "--data", file, "--json"}}) {
    const auto evaluated = place.succeed(words);
    CHECK_THAT(evaluated.json().at("metrics").at("loss").get<double>(), WithinAbs(val_loss, 1e-5));
    CHECK_THAT(evaluated.json().at("metrics").at("accuracy").get<double>(), WithinAbs(val_accuracy, 1e-6));
  }
  // In other formats, and with numbers of labels, as data sets for such folders have them.
  const std::map<std::string, int> numbers = {{"arrival", 0}, {"lost", 1}, {"repair", 2}, {"weather", 3}};
  std::istringstream records(read_file(file));
  std::string numbered = "text\tlabel\n", named = "text,label\n", record;
  while (std::getline(records, record)) {
    const auto fields = nlohmann::json::parse(record);
    const auto text = fields.at("text").get<std::string>(), label = fields.at("label").get<std::string>();
    numbered += fmt::format("\"{}\"\t{}\n", text, numbers.at(label));
    named += fmt::format("\"{}\",{}\n", text, label);
  }
  place.write("numbered.tsv", numbered);
  place.write("named.csv", named);
  for (const auto& [model, data] : {std::pair<std::string, std::string>{"exported", "numbered.tsv"},
                                    {"exported", "named.csv"},
                                    {run, "named.csv"}}) {
    INFO(data);
    CHECK_THAT(place.evaluated_loss({model, "--data", data}), WithinAbs(val_loss, 1e-5));
  }
  place.write("new.jsonl",
              "{\"id\": \"a\", \"text\": \"Strong winds and fog are expected in the morning.\"}\n{\"text\": \"My red "
              "bag is lost.\"}\n");
  const auto answers = place.run({"predict", run, "new.jsonl"}), same = place.run({"predict", "exported", "new.jsonl"});
  INFO(answers.err << same.err);
  REQUIRE(answers.code == 0);
  CHECK(answers.out == same.out);
  CHECK(piped(place, {"predict", run, "-"}, slurp(place.path() / "new.jsonl")).out == answers.out);
  std::istringstream lines(answers.out);
  std::string line;
  std::vector<nlohmann::json> list;
  while (std::getline(lines, line)) list.push_back(nlohmann::json::parse(line));
  REQUIRE(list.size() == 2);
  CHECK(list[0].at("id") == "a");
  CHECK(list[0].at("label") == "weather");
  CHECK(list[1].at("id") == 1);
  CHECK(list[1].at("probabilities").size() == 4);

  // Files of several formats, one with a text that is too long.
  std::string words = "storm";
  for (int i = 0; i < 600; ++i) words += " storm";
  place.write("long.csv", "text,label\n" + words + ",weather\n");
  const auto mixed = place.succeed({"predict", "exported", "new.jsonl", "long.csv"});
  CHECK(mixed.out.starts_with("{\"id\":\"a\",\"label\":\"weather\""));  // longer rows round differently
  CHECK(std::ranges::count(mixed.out, '\n') == 3);
  CHECK_THAT(mixed.err, ContainsSubstring("1 text is longer than "));
  CHECK_THAT(place.run({"evaluate", run, "--data", "long.csv"}).err, ContainsSubstring("1 text is longer than "));
  CHECK_THAT(place.run({"evaluate", "exported", "--data", "new.jsonl"}).err,
             ContainsSubstring("--data: ") && ContainsSubstring("new.jsonl has no column `label`"));
}

TEST_CASE("rank 15: an exported classifier knows the names of its columns", "[rank15][e2e]") {
  const ClassifierPlace place;
  write_word_tokenizer(place, {"a", "red", "green", "thing"});
  std::string rows = "sentence,colour\n";
  for (int i = 0; i < 30; ++i) rows += fmt::format("a {} thing,{}\n", i % 2 ? "red" : "green", i % 2 ? "red" : "green");
  place.write("named.csv", rows);
  place.write("named.toml", recipe_text("", "", "columns = { text = \"sentence\" }\ntokenizer = \"words\"\n"));
  for (const char* model : {"bert", "gpt"}) {
    INFO(model);
    const auto run =
        place.train("named.toml", {fmt::format("model.name={}", model), "data.format=csv", "data.train=[\"named.csv\"]",
                                   "data.validation=[\"named.csv\"]", "data.target=colour"});
    place.export_last("exported");
    CHECK_THAT(place.evaluated_loss({"exported", "--data", "named.csv"}), WithinAbs(place.metric("val_loss"), 1e-5));
    CHECK(place.run({"predict", "exported", "named.csv"}).code == 0);
    auto config = nlohmann::json::parse(read_file(place.path() / "exported/config.json"));
    config["runner"]["columns"]["text"] = 5;
    place.write("exported/config.json", config.dump());
    const auto damaged = place.run({"predict", "exported", "named.csv"});
    CHECK(damaged.code == 2);
    CHECK_THAT(damaged.err, ContainsSubstring("exported: the labels, columns or image settings are damaged"));
    fs::remove_all(place.path() / "exported");
  }
}

TEST_CASE("rank 15: transformers computes the losses of an exported classifier", "[rank15][e2e]") {
  const auto python = python_with_peft();
  const ClassifierPlace place;
  const auto family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
  static EveryNth chosen(3);
  if (!chosen()) return;
  place.write("tiny.toml", recipe_text());
  place.train("tiny.toml", {"model.name=" + family});
  place.export_last("exported");
  const auto theirs = place.losses(python, "val.jsonl 24 bytes exported");
  CHECK_THAT(theirs.at(0), WithinAbs(place.metric("val_loss"), 1e-5));
  CHECK_THAT(theirs.at(1), WithinAbs(place.metric("val_accuracy"), 1e-6));

  // The same number of labels: the head is kept. Another one: it is replaced, and the run says so.
  place.write("next.toml", recipe_text("", "init_from = \"exported\"\n"));
  place.train("next.toml", {"model.name=" + family, "train.max_steps=1", "optimizer.lr=0.0"});
  CHECK_THAT(place.metric("val_loss"), WithinAbs(theirs.at(0), 1e-5));
  CHECK_THAT(place.last.err, !ContainsSubstring("the head is replaced"));
  place.write("train.jsonl", records(0, 60, 2));
  place.write("val.jsonl", records(100, 20, 2));
  place.train("next.toml", {"model.name=" + family, "train.max_steps=1"});
  CHECK_THAT(place.last.err,
             ContainsSubstring("exported has a head of 3 outputs, and the model has 2 outputs: the head is "
                               "replaced by a new one, which begins with random weights"));
}

TEST_CASE("rank 15: a decoder classifies texts, and transformers finds the last token by the pad token",
          "[rank15][e2e]") {
  const auto python = python_with_peft();
  const ClassifierPlace place;
  write_word_tokenizer(place, {"x", "xx", "xxx", "xxxx", "red", "green", "blue", "and", "0", "1", "2", "3", "4", "5",
                               "6", "7", "8", "9"});
  const auto family = GENERATE(as<std::string>(), "gpt", "llama", "mistral", "qwen2");
  static EveryNth chosen(3);
  if (!chosen()) return;
  CAPTURE(family);
  place.write("tiny.toml", recipe_text("", "dropout = 0.0\n", "tokenizer = \"words\"\n"));
  const auto result = place.train("tiny.toml", {"model.name=" + family, "strategy.name=fsdp", "devices.cpu_processes=2",
                                                "train.max_steps=40", "train.val_check_interval=40"});
  const double loss = place.metric("val_loss"), accuracy = place.metric("val_accuracy");
  CHECK(accuracy > 0.6);  // a third of the records have each label
  place.export_last("exported");
  const auto config = nlohmann::json::parse(read_file(place.path() / "exported/config.json"));
  CHECK(config.at("pad_token_id") == 1);
  CHECK(config.at("architectures")[0].get<std::string>().ends_with("ForSequenceClassification"));
  const auto theirs = place.losses(python, "val.jsonl 24 words exported");
  CHECK_THAT(theirs.at(0), WithinAbs(loss, 1e-5));
  CHECK_THAT(theirs.at(1), WithinAbs(accuracy, 1e-6));
  // The verbs read the run and the folder alike.
  const std::string run = result.at("run");
  for (const auto& words : {std::vector<std::string>{run}, {"exported", "--data", "val.jsonl"}})
    CHECK_THAT(place.evaluated_loss(words), WithinAbs(loss, 1e-5));
  place.write("new.jsonl", "{\"text\": \"xx red and 3\"}\n{\"text\": \"\"}\n{\"text\": \"green and 1\"}\n");
  const auto answers = place.run({"predict", run, "new.jsonl"}),
             same = place.run({"predict", "exported", "new.jsonl", "--batch-size", "1"});
  INFO(answers.err << same.err);
  REQUIRE(answers.code == 0);
  CHECK(std::ranges::count(answers.out, '\n') == 3);
  check_same_predictions(answers.out, same.out);
  place.check_pairs_are_refused({{"predict", run, "pair.jsonl"},
                                 {"evaluate", run, "--data", "pair.jsonl"},
                                 {"predict", "exported", "pair.jsonl"},
                                 {"evaluate", "exported", "--data", "pair.jsonl"}});
  const auto generated = place.run({"generate", run, "red"});
  CHECK(generated.code == 2);
  CHECK_THAT(generated.err,
             ContainsSubstring("which predicts labels or numbers: `runner predict` and `runner evaluate`"));
  // A recipe from the folder continues with the same head.
  CHECK(place.run({"init", "next.toml", "--from-hf", "exported"}).code == 0);
  const auto next = read_file(place.path() / "next.toml");
  CHECK_THAT(next, ContainsSubstring("num_labels = 3") && ContainsSubstring("target = \"label\""));
}

TEST_CASE("rank 15: PEFT reads the adapter of a classifier", "[rank15][e2e]") {
  const auto python = python_with_peft();
  const ClassifierPlace place;
  const auto family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
  static EveryNth chosen(3);
  if (!chosen()) return;
  place.write("base.toml", recipe_text());
  place.train("base.toml", {"model.name=" + family});
  place.export_last("base");
  place.write("tune.toml", recipe_text("[fine_tune]\nmethod = \"lora\"\nrank = 4\n", "init_from = \"base\"\n"));
  place.train("tune.toml", {"model.name=" + family, "strategy.name=fsdp", "devices.cpu_processes=2"});
  const double loss = place.metric("val_loss");
  place.export_last("adapter", /*adapter=*/true);
  place.export_last("merged");
  const auto config = nlohmann::json::parse(read_file(place.path() / "adapter/adapter_config.json"));
  CHECK(config.at("task_type") == "SEQ_CLS");
  const bool encoder = family == "bert" || family == "roberta";
  CHECK(config.at("modules_to_save") == nlohmann::json({encoder ? "classifier" : "score"}));
  const auto theirs = place.losses(python, "val.jsonl 24 bytes merged base adapter blue,green,red");
  CHECK_THAT(theirs.at(0), WithinAbs(loss, 1e-5));
  CHECK_THAT(theirs.at(2), WithinAbs(loss, 1e-5));
}
