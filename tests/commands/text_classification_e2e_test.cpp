// Classifiers of texts, end to end: all strategies, resume, sources, forms of labels, and mistakes in recipes.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "classifier_support.hpp"
#include "word_tokenizer.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

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
  place.succeed({"resume", run, "--set", "train.max_steps=16"});
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
  place.succeed({"embed", "last", "one.txt"});
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
      place.succeed({"run", "tiny.toml", "--json", "--checkpoint", (run_dir / "checkpoints/step-000004").string()});
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
  const auto resumed = place.succeed({"resume", "--json"});
  CHECK_THAT(resumed.err, ContainsSubstring("/checkpoints/step-0000"));
  CHECK(final_state(resumed.json().at("run_dir")) == final_state(run_dir));
  CHECK_THAT(place.evaluated_loss({"last"}), WithinAbs(place.metric("val_loss"), 1e-5));
  place.write("new.jsonl", "{\"text\": \"xx violet and 3\"}\n");
  CHECK(place.run({"predict", "last", "new.jsonl"}).code == 0);
  CHECK(place.run({"evaluate", "last", "--data", "val.jsonl"}).code == 0);
  // A file has the columns of one of the sources, and no pairs, as all of them.
  const auto both = place.run({"predict", "last", "new.jsonl", "cells.csv"});
  INFO(both.err);
  CHECK(std::ranges::count(both.out, '\n') == 41);
  CHECK(place.run({"evaluate", "last", "--data", "cells.csv"}).code == 0);
  place.check_pairs_are_refused({{"predict", "last", "pair.jsonl"}, {"evaluate", "last", "--data", "pair.jsonl"}});
  // Another weight gives the position in the data another meaning.
  const auto other = place.run({"resume", "last", "--set", "train.max_steps=14", "data.mixture_end=all_exhausted"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("data.mixture_end"));
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

TEST_CASE("rank 15: mistakes in recipes of classifiers are reported at their keys", "[rank15][e2e]") {
  const ClassifierPlace place;
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {recipe_text("", "", "packing = \"best_fit\"\n"), "texts with labels are not packed: each is a row of a batch"},
      {recipe_text("", "", "objective = \"masked_lm\"\nmlm_probability = 0.2\n"),
       "objective = \"masked_lm\" predicts tokens, and not data.target; \"classification\" predicts it"},
      {recipe_text("", "num_labels = 4\n"), "model.num_labels = 4, but the labels of data.train are 3"},
      {recipe_text("", "labels = [\"red\", \"green\"]\n"),
       "train.jsonl:3: the class `blue` of `label` is not one of red, green"},
      {recipe_text("", "labels = [\"red\", \"red\", \"blue\"]\n"), "the label \"red\" is named twice"},
      {recipe_text("", "labels = [\"a\", \"b\"]\n", "target_type = \"number\"\n"), "column `label` has texts"},
      {recipe_text("early_stopping = { monitor = \"val_r2\" }\n"), "`val_r2`, which this training never reports"}};
  for (const auto& [text, message] : mistakes) {
    place.write("bad.toml", text);
    const auto result = place.run({"check", "bad.toml"});
    CHECK(result.code == 2);
    CHECK_THAT(result.out + result.err, ContainsSubstring(message));
  }
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
  place.write("good.toml", recipe_text());
  const auto shown = place.run({"data", "good.toml", "--samples", "2", "--json"}).json();
  CHECK(shown.at("labels") == nlohmann::json({"blue", "green", "red"}));
  CHECK(shown.at("samples")[0].at("text").get<std::string>().find(
            shown.at("samples")[0].at("target").get<std::string>()) != std::string::npos);
  CHECK(place.run({"recommend", "good.toml"}).code == 0);
}
