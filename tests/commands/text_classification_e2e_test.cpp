// Classifiers of texts, end to end: fine-tuning of MiniLM, all strategies, resume, adapters, and what transformers reads.
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "fine_tune_support.hpp"
#include "tests/support/piped_command.hpp"
#include "word_tokenizer.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

const std::string minilm = RUNNER_SOURCE_DIR "/.deps/minilm";

std::string recipe_text(const std::string& more = "", const std::string& model = "", const std::string& data = "") {
  return "[model]\nname = \"bert\"\nn_layers = 2\ndim = 32\nn_heads = 4\nmax_seq_len = 40\n" + model +
         "[data]\nformat = \"jsonl\"\ntrain = [\"train.jsonl\"]\nvalidation = [\"val.jsonl\"]\ntarget = \"label\"\n"
         "seq_len = 24\n" +
         data +
         "[devices]\naccelerator = \"cpu\"\n[optimizer]\nname = \"adamw\"\nlr = 2e-3\n[train]\nmax_steps = 12\n"
         "global_batch_size = 8\nval_check_interval = 6\n" +
         more;
}

/// Records whose label depends on a word of theirs.
std::string records(int first, int count, int labels = 3) {
  static const std::vector<std::string> words = {"red", "green", "blue"};
  std::string text;
  for (int i = first; i < first + count; ++i) {
    const auto& word = words[static_cast<size_t>(i % labels)];
    text += fmt::format("{{\"text\": \"{} {} and {}\", \"label\": \"{}\"}}\n", std::string(i % 5, 'x'), word,
                        i * 7 % 10, word);
  }
  return text;
}

struct ClassifierPlace : Workplace {
  ClassifierPlace() {
    write("train.jsonl", records(0, 60));
    write("val.jsonl", records(100, 21));
  }
  nlohmann::json train(const std::string& recipe, std::vector<std::string> set = {}) const {
    std::vector<std::string> words = {"run", recipe, "--json"};
    if (!set.empty()) words.emplace_back("--set");
    words.insert(words.end(), set.begin(), set.end());
    last = run(words);
    INFO(last.err);
    REQUIRE(last.code == 0);
    return last.json();
  }
  double metric(const std::string& name) const {
    const auto points = run({"metrics", "last", "--name", name, "--json"}).json().at("points");
    REQUIRE_FALSE(points.empty());
    return points.back().at(1);
  }
  void export_last(const std::string& folder, bool adapter = false) const {
    std::vector<std::string> words = {"export", "last", "--output", folder};
    if (adapter) words.emplace_back("--adapter");
    const auto result = run(words);
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  /// Loss and accuracy of each model in turn, as transformers computes them.
  std::vector<double> losses(const std::string& python, const std::string& arguments) const {
    const auto command = fmt::format("cd {} && {} {}/tests/commands/classifier_losses.py {} >numbers 2>mistakes",
                                     path().string(), python, RUNNER_SOURCE_DIR, arguments);
    const int status = std::system(command.c_str());
    INFO(read_file(path() / "mistakes"));
    REQUIRE(status == 0);
    std::istringstream text(read_file(path() / "numbers"));
    std::vector<double> numbers;
    for (double number = 0; text >> number;) numbers.push_back(number);
    return numbers;
  }
  mutable CommandResult last;
};

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
    const auto evaluated = place.run(words);
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
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
    const auto evaluated = place.run({"evaluate", model, "--data", data, "--json"});
    INFO(data << evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK_THAT(evaluated.json().at("metrics").at("loss").get<double>(), WithinAbs(val_loss, 1e-5));
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
  const auto mixed = place.run({"predict", "exported", "new.jsonl", "long.csv"});
  INFO(mixed.err);
  REQUIRE(mixed.code == 0);
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
    const auto evaluated = place.run({"evaluate", "exported", "--data", "named.csv", "--json"});
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK_THAT(evaluated.json().at("metrics").at("loss").get<double>(), WithinAbs(place.metric("val_loss"), 1e-5));
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

TEST_CASE("rank 15: a run continues without the folder it began from, whose order of labels it keeps",
          "[rank15][e2e]") {
  const ClassifierPlace place;
  write_word_tokenizer(place, {"red", "green", "blue", "and"});
  const std::string tokenizer = "tokenizer = \"words\"\n";
  place.write("first.toml", recipe_text("", "labels = [\"red\", \"green\", \"blue\"]\n", tokenizer));
  place.train("first.toml");
  place.export_last("base");
  place.write("second.toml", recipe_text("[checkpoint]\nevery_n_steps = 4\n", "init_from = \"base\"\n", tokenizer));
  const auto run = place.train("second.toml").at("run").get<std::string>();
  fs::rename(place.path() / "base", place.path() / "gone");
  const auto resumed = place.run({"resume", run, "--set", "train.max_steps=16"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
}

TEST_CASE("rank 15: a classifier of pairs embeds single texts", "[rank15][e2e]") {
  const ClassifierPlace place;
  std::string pairs;
  for (int i = 0; i < 24; ++i)
    pairs += fmt::format("{{\"text\": \"a{}\", \"text_pair\": \"b\", \"label\": \"{}\"}}\n", i, i % 2 ? "red" : "blue");
  for (const char* name : {"train.jsonl", "val.jsonl"}) place.write(name, pairs);
  place.write("pairs.toml", recipe_text());
  place.train("pairs.toml");
  place.write("one.txt", "a text\n");
  const auto embedded = place.run({"embed", "last", "one.txt"});
  INFO(embedded.err);
  CHECK(embedded.code == 0);
}

TEST_CASE("rank 15: a classifier of texts trains alike under each strategy, and continues after a kill",
          "[rank15][e2e]") {
  const ClassifierPlace place;
  place.write("tiny.toml", recipe_text("label_smoothing = 0.1\n[checkpoint]\nevery_n_steps = 4\nkeep_last = 0\n",
                                       "dropout = 0.1\n"));
  const auto single = place.train("tiny.toml");
  const double val_loss = place.metric("val_loss");
  for (const char* strategy : {"ddp", "fsdp", "zero"}) {
    const auto other = place.train("tiny.toml", {"strategy.name=" + std::string(strategy), "devices.cpu_processes=2"});
    CHECK_THAT(other.at("final_loss").get<double>(), WithinRel(single.at("final_loss").get<double>(), 1e-5));
    CHECK_THAT(place.metric("val_loss"), WithinRel(val_loss, 1e-5));
  }
  const fs::path run_dir = single.at("run_dir").get<std::string>();
  CHECK_THAT(read_file(run_dir / "resolved.toml"), ContainsSubstring("labels = [\"blue\", \"green\", \"red\"]"));
  const auto again =
      place.run({"run", "tiny.toml", "--json", "--checkpoint", (run_dir / "checkpoints/step-000004").string()});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(again.json().at("final_loss") == single.at("final_loss"));
  CHECK(final_state(again.json().at("run_dir")) == final_state(run_dir));
  // Other labels are another model.
  place.write("train.jsonl", records(0, 60, 2));
  place.write("val.jsonl", records(100, 20, 2));
  const auto other = place.run({"run", "tiny.toml", "--checkpoint", (run_dir / "checkpoints/step-000004").string()});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("model.num_labels = 2, the checkpoint's is 3"));
}

TEST_CASE("rank 15: labelled texts of weighted sources train alike on any number of ranks, and continue after a kill",
          "[rank15][e2e][sources]") {
  const ClassifierPlace place;
  std::string cells = "body,label\n";
  for (int i = 0; i < 40; ++i)
    cells += fmt::format("cell {} is {},{}\n", i, i % 2 ? "violet" : "red", i % 2 ? "violet" : "red");
  place.write("cells.csv", cells);
  auto text = recipe_text("[checkpoint]\nevery_n_steps = 4\nkeep_last = 0\n", "dropout = 0.1\n");
  const auto cut = text.find("train = ["), end = text.find("target = ");
  text.replace(cut, end - cut, "");
  text.replace(
      text.find("[devices]"), 0,
      "[[data.sources]]\nname = \"lines\"\ntrain = [\"train.jsonl\"]\nvalidation = [\"val.jsonl\"]\nweight = 0.7\n"
      "[[data.sources]]\nname = \"cells\"\nformat = \"csv\"\ntrain = [\"cells.csv\"]\ncolumns = { text = \"body\" }\n"
      "weight = 0.3\n");
  place.write("mixed.toml", text);
  const auto single = place.train("mixed.toml");
  CHECK_THAT(place.last.err, ContainsSubstring("lines: 69.8 % of the samples") && ContainsSubstring("cells: 30.2 %"));
  const fs::path run_dir = single.at("run_dir").get<std::string>();
  CHECK_THAT(read_file(run_dir / "resolved.toml"),
             ContainsSubstring("labels = [\"blue\", \"green\", \"red\", \"violet\"]"));
  const double val_loss = place.metric("val_loss");
  const auto checkpoint = (run_dir / "checkpoints/step-000004").string();
  for (const char* ranks : {"1", "2"}) {
    const auto again =
        place.train("mixed.toml", {"devices.cpu_processes=" + std::string(ranks), "--checkpoint", checkpoint});
    if (ranks[0] == '1') CHECK(final_state(again.at("run_dir")) == final_state(run_dir));
    CHECK_THAT(again.at("final_loss").get<double>(), WithinRel(single.at("final_loss").get<double>(), 1e-5));
    CHECK_THAT(place.metric("val_loss"), WithinRel(val_loss, 1e-5));
  }
  // A killed run continues exactly.
  place.run({"run", "mixed.toml"}, {{"RUNNER_FAULT", "step:9"}});
  const auto resumed = place.run({"resume", "--json"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("/checkpoints/step-0000"));
  CHECK(final_state(resumed.json().at("run_dir")) == final_state(run_dir));
  const auto evaluated = place.run({"evaluate", "last", "--json"});
  INFO(evaluated.err);
  CHECK_THAT(evaluated.json().at("metrics").at("loss").get<double>(), WithinAbs(place.metric("val_loss"), 1e-5));
  place.write("new.jsonl", "{\"text\": \"xx violet and 3\"}\n");
  CHECK(place.run({"predict", "last", "new.jsonl"}).code == 0);
  CHECK(place.run({"evaluate", "last", "--data", "val.jsonl"}).code == 0);
  // A file has the columns of one of the sources, and no pairs, as all of them.
  const auto both = place.run({"predict", "last", "new.jsonl", "cells.csv"});
  INFO(both.err);
  CHECK(std::ranges::count(both.out, '\n') == 41);
  CHECK(place.run({"evaluate", "last", "--data", "cells.csv"}).code == 0);
  place.write("pair.jsonl", "{\"text\": \"red\", \"text_pair\": \"blue\", \"label\": \"red\"}\n");
  for (const auto& words :
       {std::vector<std::string>{"predict", "last", "pair.jsonl"}, {"evaluate", "last", "--data", "pair.jsonl"}}) {
    const auto refused = place.run(words);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("pair.jsonl has pairs of texts (text_pair), and the model was trained on "
                                              "single texts"));
  }
  // Another weight gives the position in the data another meaning.
  const auto other = place.run({"resume", "last", "--set", "train.max_steps=14", "data.mixture_end=all_exhausted"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("data.mixture_end"));
}

TEST_CASE("rank 15: transformers computes the losses of an exported classifier", "[rank15][e2e]") {
  const auto python = python_with_peft();
  const ClassifierPlace place;
  const auto family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
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
  for (const auto& words : {std::vector<std::string>{"evaluate", run, "--json"},
                            {"evaluate", "exported", "--data", "val.jsonl", "--json"}}) {
    const auto evaluated = place.run(words);
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK_THAT(evaluated.json().at("metrics").at("loss").get<double>(), WithinAbs(loss, 1e-5));
  }
  place.write("new.jsonl", "{\"text\": \"xx red and 3\"}\n{\"text\": \"\"}\n{\"text\": \"green and 1\"}\n");
  const auto answers = place.run({"predict", run, "new.jsonl"}),
             same = place.run({"predict", "exported", "new.jsonl", "--batch-size", "1"});
  INFO(answers.err << same.err);
  REQUIRE(answers.code == 0);
  CHECK(std::ranges::count(answers.out, '\n') == 3);
  check_same_predictions(answers.out, same.out);
  place.write("pair.jsonl", "{\"text\": \"red\", \"text_pair\": \"blue\", \"label\": \"red\"}\n");
  for (const auto& words : {std::vector<std::string>{"predict", run, "pair.jsonl"},
                            {"evaluate", run, "--data", "pair.jsonl"},
                            {"predict", "exported", "pair.jsonl"},
                            {"evaluate", "exported", "--data", "pair.jsonl"}}) {
    const auto refused = place.run(words);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("pair.jsonl has pairs of texts (text_pair), and the model was trained on "
                                              "single texts"));
  }
  const auto generated = place.run({"generate", run, "red"});
  CHECK(generated.code == 2);
  CHECK_THAT(generated.err,
             ContainsSubstring("which predicts labels or numbers: `runner predict` and `runner evaluate`"));
  // A recipe from the folder continues with the same head.
  CHECK(place.run({"init", "next.toml", "--from-hf", "exported"}).code == 0);
  const auto next = read_file(place.path() / "next.toml");
  CHECK_THAT(next, ContainsSubstring("num_labels = 3") && ContainsSubstring("target = \"label\""));
}

TEST_CASE("rank 15: a decoder predicts numbers and several labels of pairs of texts", "[rank15][e2e]") {
  const ClassifierPlace place;
  std::string text;
  for (int i = 0; i < 48; ++i)
    text += fmt::format("{{\"text\": \"{}\", \"text_pair\": \"{}\", \"size\": {}, \"red\": {}, \"odd\": {}}}\n",
                        i % 3 == 0 ? "red" : "blue", i % 7, 0.25 * (i % 5), i % 3 == 0 ? 1 : 0, i % 2);
  place.write("train.jsonl", text);
  place.write("val.jsonl", text);
  place.write("pairs.toml", recipe_text());
  const std::vector<std::string> llama = {"model.name=llama", "data.seq_len=8"};
  for (const std::string target : {"data.target=size", "data.target=[\"red\", \"odd\"]"}) {
    auto set = llama;
    set.push_back(target);
    if (target.ends_with("]")) set.emplace_back("train.loss=bce");
    const auto single = place.train("pairs.toml", set);
    set.insert(set.end(), {"strategy.name=ddp", "devices.cpu_processes=2"});
    CHECK_THAT(place.train("pairs.toml", set).at("final_loss").get<double>(),
               WithinRel(single.at("final_loss").get<double>(), 1e-5));
    place.export_last(target.ends_with("]") ? "labels" : "number");
  }
  const auto type = [&](const char* folder) {
    return nlohmann::json::parse(read_file(place.path() / folder / "config.json")).at("problem_type");
  };
  CHECK(type("number") == "regression");
  CHECK(type("labels") == "multi_label_classification");
}

TEST_CASE("rank 15: PEFT reads the adapter of a classifier", "[rank15][e2e]") {
  const auto python = python_with_peft();
  const ClassifierPlace place;
  const auto family = GENERATE(as<std::string>(), "bert", "roberta", "gpt", "llama");
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

TEST_CASE("rank 15: mistakes in recipes of classifiers are reported at their keys", "[rank15][e2e]") {
  const ClassifierPlace place;
  const auto check = [&](const std::string& text) {
    place.write("bad.toml", text);
    const auto result = place.run({"check", "bad.toml"});
    CHECK(result.code == 2);
    return result.out + result.err;
  };
  CHECK_THAT(check(recipe_text("", "", "packing = \"best_fit\"\n")),
             ContainsSubstring("texts with labels are not packed: each is a row of a batch"));
  CHECK_THAT(check(recipe_text("", "", "objective = \"masked_lm\"\nmlm_probability = 0.2\n")),
             ContainsSubstring(
                 "objective = \"masked_lm\" predicts tokens, and not data.target; \"classification\" predicts it"));
  CHECK_THAT(check(recipe_text("", "num_labels = 4\n")),
             ContainsSubstring("model.num_labels = 4, but the labels of data.train are 3"));
  CHECK_THAT(check(recipe_text("", "labels = [\"red\", \"green\"]\n")),
             ContainsSubstring("train.jsonl:3: the class `blue` of `label` is not one of red, green"));
  CHECK_THAT(check(recipe_text("", "labels = [\"red\", \"red\", \"blue\"]\n")),
             ContainsSubstring("the label \"red\" is named twice"));
  CHECK_THAT(check(recipe_text("", "labels = [\"a\", \"b\"]\n", "target_type = \"number\"\n")),
             ContainsSubstring("column `label` has texts"));
  place.write("numbers.jsonl", "{\"text\": \"a\", \"x\": 1}\n{\"text\": \"b\", \"x\": 2}\n");
  place.write("bad.toml", recipe_text("loss = \"mse\"\n", "labels = [\"a\", \"b\"]\n"));
  const auto counted = place.run({"check", "bad.toml", "--set", "data.target=x", "data.train=[\"numbers.jsonl\"]",
                                  "data.validation=[\"numbers.jsonl\"]"});
  CHECK_THAT(counted.out + counted.err,
             ContainsSubstring("model.labels names 2 labels, and data.target names 1 column"));
  place.write("pairs.jsonl",
              "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": \"red\"}\n"
              "{\"text\": \"c\", \"text_pair\": \"d\", \"label\": \"blue\"}\n");
  place.write("bad.toml", recipe_text("[[data.sources]]\nname = \"p\"\ntrain = [\"pairs.jsonl\"]\ncolumns = { text = "
                                      "\"text\", text_pair = \"text_pair\" }\nweight = 1\n",
                                      "", "columns = { text = \"text\" }\n"));
  const auto pairs = place.run({"check", "bad.toml", "--unset", "data.train"});
  CHECK_THAT(pairs.out + pairs.err,
             ContainsSubstring("data.columns names one text, and \"p\" has pairs of texts (text_pair)"));
  CHECK_THAT(check(recipe_text("early_stopping = { monitor = \"val_r2\" }\n")),
             ContainsSubstring("`val_r2`, which this training never reports"));
  place.write("good.toml", recipe_text());
  const auto shown = place.run({"data", "good.toml", "--samples", "2", "--json"}).json();
  CHECK(shown.at("labels") == nlohmann::json({"blue", "green", "red"}));
  CHECK(shown.at("samples")[0].at("text").get<std::string>().find(
            shown.at("samples")[0].at("target").get<std::string>()) != std::string::npos);
  CHECK(place.run({"recommend", "good.toml"}).code == 0);
}
