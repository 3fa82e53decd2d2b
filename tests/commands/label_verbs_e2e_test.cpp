// `runner predict` and `runner evaluate` with models that predict labels or numbers: tables and images.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <map>

#include "tests/support/piped_command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

const std::string data_folder = RUNNER_SOURCE_DIR "/recipes/data/";

std::vector<json> lines_in(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::string> rows_in(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream stream(text);
  for (std::string row; std::getline(stream, row);) rows.push_back(row);
  return rows;
}

std::vector<std::string> split_cells(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

/// Trains on a copy of a table, and removes the copy: the model must answer without it.
json train_on(const Workplace& place, const std::string& table, const std::string& target,
              const std::vector<std::string>& more = {}) {
  place.write("train.csv", slurp(data_folder + table));
  place.write("table.toml",
              "[model]\nname = \"mlp\"\nhidden_sizes = [16]\n[data]\nformat = \"csv\"\ntrain = "
              "[\"train.csv\"]\nvalidation = [\"train.csv\"]\ntarget = \"" +
                  target +
                  "\"\n[devices]\naccelerator = \"cpu\"\n[optimizer]\nname = \"adamw\"\nlr = "
                  "0.03\n[train]\nmax_steps = 60\nglobal_batch_size = 30\nval_check_interval = 60\n");
  std::vector<std::string> words = {"run", "table.toml", "--json"};
  if (!more.empty()) words.push_back("--set");
  words.insert(words.end(), more.begin(), more.end());
  const auto result = place.run(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  fs::rename(place.path() / "train.csv", place.path() / "moved.csv");
  return result.json();
}

double last_metric(const Workplace& place, const std::string& name) { return place.points(name).back()[1]; }

}  // namespace

TEST_CASE("rank 17: predict writes the class of each row in order, without the training data", "[e2e][rank5][rank17]") {
  Workplace place;
  const auto strategy = GENERATE(as<std::string>(), "single", "fsdp");
  std::vector<std::string> set = {"strategy=" + strategy};
  if (strategy != "single") set.emplace_back("devices.cpu_processes=2");
  train_on(place, "iris.csv", "species", set);
  // The columns in another order, with one more; no line break at the end.
  const auto table = rows_in(slurp(data_folder + "iris.csv"));
  std::string rows = "id,petal_width,petal_length,sepal_width,sepal_length";
  std::vector<std::string> species;
  for (size_t i = 1; i < table.size(); ++i) {
    const auto cells = split_cells(table[i]);
    rows += fmt::format("\nrow {},{},{},{},{}", i, cells[3], cells[2], cells[1], cells[0]);
    species.push_back(cells[4]);
  }
  place.write("rows.csv", rows);
  const auto result = place.run({"predict", "last", "rows.csv", "--batch-size", "64"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto lines = lines_in(result.out);
  REQUIRE(lines.size() == species.size());
  double right = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].at("id") == fmt::format("row {}", i + 1));
    const auto probabilities = lines[i].at("probabilities").get<std::map<std::string, double>>();
    REQUIRE(probabilities.size() == 3);
    CHECK_THAT(probabilities.at("setosa") + probabilities.at("versicolor") + probabilities.at("virginica"),
               WithinAbs(1, 1e-9));
    for (const auto& [name, probability] : probabilities) CHECK(probability <= probabilities.at(lines[i].at("label")));
    right += lines[i].at("label") == species[i];
  }
  CHECK_THAT(right / static_cast<double>(lines.size()), WithinAbs(last_metric(place, "val_accuracy"), 1e-12));

  // The same from the exported folder, to a file, one row after another.
  REQUIRE(place.run({"export", "last", "--output", "weights"}).code == 0);
  const auto folder =
      place.run({"predict", "weights", "rows.csv", "--output", "out.jsonl", "--json", "--batch-size", "1"});
  INFO(folder.err);
  REQUIRE(folder.code == 0);
  CHECK(folder.json().at("metrics").at("records") == lines.size());
  const auto again = lines_in(slurp(place.path() / "out.jsonl"));
  REQUIRE(again.size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(again[i].at("label") == lines[i].at("label"));
    CHECK_THAT(again[i].at("probabilities").at("setosa").get<double>(),
               WithinAbs(lines[i].at("probabilities").at("setosa").get<double>(), 1e-5));
  }
  const auto most = lines_in(place.run({"predict", "last", "rows.csv", "--top-k", "1"}).out);
  CHECK(most.front().at("probabilities").size() == 1);
  CHECK(most.front().at("probabilities").contains(most.front().at("label").get<std::string>()));

  // Rows from standard input: a table, or JSON lines.
  CHECK(piped(place, {"predict", "last", "-", "--batch-size", "64"}, rows).out == result.out);
  json first = {{"id", "row 1"}};
  const auto names = split_cells(table[0]), cells = split_cells(table[1]);
  for (size_t c = 0; c + 1 < names.size(); ++c) first[names[c]] = std::stod(cells[c]);
  const auto one = lines_in(piped(place, {"predict", "last", "-"}, first.dump() + "\n").out);
  REQUIRE(one.size() == 1);
  CHECK(one[0].at("id") == "row 1");
  CHECK(one[0].at("label") == lines[0].at("label"));
  CHECK_THAT(piped(place, {"predict", "last", "-"}, rows + ",1").err, ContainsSubstring("error: standard input:151: "));
  CHECK_THAT(piped(place, {"predict", "last", "-"}, "\n").err, ContainsSubstring("standard input is empty"));
  CHECK_THAT(piped(place, {"predict", "last", "-", "-"}, rows).err,
             ContainsSubstring("`-` (standard input) is there twice"));

  // A signal leaves no copy of them.
  std::string many = rows;
  for (int i = 0; i < 200; ++i) many += rows.substr(rows.find('\n'));
  const auto scratch = place.path() / "scratch";
  fs::create_directories(scratch);
  const auto copied = [&] {
    return std::ranges::any_of(fs::recursive_directory_iterator(scratch),
                               [](const auto& entry) { return entry.path().filename() == "rows.csv"; });
  };
  const auto pid =
      start_piped(place, {"predict", "last", "-", "--batch-size", "1"}, many, {{"TMPDIR", scratch.string()}});
  CHECK(wait_until(copied, 60));
  ::kill(pid, SIGTERM);
  place.finish(pid);
  CHECK(fs::is_empty(scratch));

  // A newer run of this name has no checkpoint.
  const std::string name = place.run({"show", "last", "--json"}).json().at("name");
  place.write(name + ".csv", "step,loss,wall_time\n1,2.0,4102444800\n");
  REQUIRE(place.run({"import", "csv", name + ".csv"}).code == 0);
  for (const auto& words : {std::vector<std::string>{"predict", name, "rows.csv"},
                            {"predict", name, "rows.csv", "--best"},
                            {"export", name, "--output", "exported"}}) {
    const auto older = place.run(words);
    CHECK(older.code == 0);
    CHECK_THAT(older.err, ContainsSubstring("has no checkpoint; the model is that of "));
  }
}

TEST_CASE("rank 17: evaluate measures what the last validation measured, of a run and of its folder", "[e2e][rank17]") {
  Workplace place;
  const auto [file, target, names] = GENERATE(table<std::string, std::string, std::vector<std::string>>(
      {{"iris.csv", "species", {"accuracy", "f1"}}, {"diabetes.csv", "progression", {"mae", "r2"}}}));
  const auto trained = train_on(place, file, target);
  fs::rename(place.path() / "moved.csv", place.path() / "train.csv");
  const auto result = place.run({"evaluate", "last", "--json", "--batch-size", "7"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  auto compare = [&](const json& metrics) {
    CHECK_THAT(metrics.at("loss").get<double>(), WithinRel(last_metric(place, "val_loss"), 1e-5));
    for (const auto& name : names)
      CHECK_THAT(metrics.at(name).get<double>(), WithinRel(last_metric(place, "val_" + name), 1e-5));
  };
  compare(result.json().at("metrics"));
  const auto child = place.run({"show", result.json().at("run"), "--json"}).json();
  CHECK(child.at("parents")[0].at("kind") == "evaluated");
  CHECK(child.at("parents")[0].at("id") == trained.at("run"));
  CHECK(child.at("metrics").contains(names.front()));

  fs::rename(place.path() / "train.csv", place.path() / "other.csv");
  REQUIRE(place.run({"export", "last", "--output", "weights"}).code == 0);
  for (const std::string model : {"last", "weights"}) {
    const auto other = place.run({"evaluate", model, "--data", "other.csv", "--json"});
    INFO(other.err);
    REQUIRE(other.code == 0);
    compare(other.json().at("metrics"));
  }
  CHECK_THAT(place.run({"evaluate", "weights"}).err, ContainsSubstring("a Hugging Face folder has no validation data"));
}

TEST_CASE("rank 17: numbers are predicted in their own units", "[e2e][rank17]") {
  Workplace place;
  train_on(place, "diabetes.csv", "progression");
  const auto lines = lines_in(place.run({"predict", "last", "moved.csv"}).out);
  const auto table = rows_in(slurp(data_folder + "diabetes.csv"));
  REQUIRE(lines.size() == table.size() - 1);
  double errors = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    errors +=
        std::abs(lines[i].at("value").get<double>() - std::stod(table[i + 1].substr(table[i + 1].rfind(',') + 1)));
  CHECK_THAT(errors / static_cast<double>(lines.size()), WithinRel(last_metric(place, "val_mae"), 1e-4));
}

TEST_CASE("rank 17: categories, missing cells and labels of two values mean what they meant in training",
          "[e2e][rank17]") {
  Workplace place;
  std::string rows = "kind,size,code,bought\n";
  for (int i = 0; i < 60; ++i)
    rows += fmt::format("{},{},{},{}\n", i % 2 ? "a" : "7", i % 5 == 0 ? "" : std::to_string(i % 10), i % 3,
                        i % 2 ? "yes" : "no");
  place.write("t.csv", rows);
  place.write("t.toml",
              "[model]\nname = \"mlp\"\n[data]\nformat = \"csv\"\ntrain = [\"t.csv\"]\nvalidation = "
              "[\"t.csv\"]\ntarget = \"bought\"\ncategorical = [\"code\"]\n[devices]\naccelerator = "
              "\"cpu\"\n[optimizer]\nname = \"adamw\"\nlr = 0.1\n[train]\nloss = \"bce\"\nmax_steps = "
              "60\nglobal_batch_size = 20\n");
  const auto trained = place.run({"run", "t.toml"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  // All cells of `kind` look like numbers here, and one category is new.
  place.write("new.csv", "size,kind,code\n3,7,1\n,7,2\n4,8,0\n");
  const auto result = place.run({"predict", "last", "new.csv"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto lines = lines_in(result.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].at("label") == "no");
  CHECK(lines[1].at("label") == "no");
  CHECK(lines[0].at("probabilities").at("no").get<double>() > 0.9);
  CHECK(lines[0].at("id") == 0);
  CHECK_THAT(result.err, ContainsSubstring("1 cell with a category that the training data do not have"));
  place.write("valid.csv", "size,kind,code,bought\n3,7,1,no\n1,7,2,no\n");
  const auto evaluated = place.run({"evaluate", "last", "--data", "valid.csv", "--json"});
  INFO(evaluated.err);
  REQUIRE(evaluated.code == 0);
  CHECK(evaluated.json().at("metrics").at("accuracy") == 1.0);
  CHECK_THAT(evaluated.err, !ContainsSubstring("with a category"));
  place.write("valid.csv", "size,kind,code,bought\n3,8,1,no\n1,,2,no\n");
  CHECK_THAT(place.run({"evaluate", "last", "--data", "valid.csv"}).err,
             ContainsSubstring("data.validation: 2 cells with a category that the training data do not have"));
}

TEST_CASE("predict and evaluate of tables say what does not fit", "[e2e][rank17]") {
  Workplace place;
  train_on(place, "iris.csv", "species");
  const auto refused = [&](const std::vector<std::string>& words) {
    const auto result = place.run(words);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  place.write("names.csv", "sepal_length,sepal_widht,petal_length,petal_width\n1,2,3,4\n");
  CHECK_THAT(refused({"predict", "last", "names.csv"}),
             ContainsSubstring("names.csv has no column `sepal_width`, which the training data have (did you mean "
                               "`sepal_widht`?)"));
  place.write("texts.csv", "sepal_length,sepal_width,petal_length,petal_width\n1,2,3,4\n1,2,x,4\n");
  CHECK_THAT(
      refused({"predict", "last", "texts.csv"}),
      ContainsSubstring("texts.csv:3: `petal_length` is `x`, and the training data have numbers in this column"));
  place.write("empty.csv", "sepal_length,sepal_width,petal_length,petal_width\n");
  CHECK_THAT(refused({"predict", "last", "empty.csv"}), ContainsSubstring("empty.csv has no row"));
  CHECK_THAT(refused({"predict", "last", "nothing.csv"}), ContainsSubstring("nothing.csv"));
  CHECK_THAT(refused({"predict", "last", "names.csv", "--max-new-tokens", "3"}),
             ContainsSubstring("--max-new-tokens is for language models, and"));
  CHECK_THAT(refused({"generate", "last", "x"}), ContainsSubstring("predicts labels or numbers"));
  CHECK_THAT(refused({"embed", "last", "names.csv"}),
             ContainsSubstring("embeddings are made by models that read tokens"));
  place.write("classes.csv", "sepal_length,sepal_width,petal_length,petal_width,species\n1,2,3,4,rose\n");
  CHECK_THAT(refused({"evaluate", "last", "--data", "classes.csv"}),
             ContainsSubstring("classes.csv:2: the class `rose` of `species` is not in the training rows"));
  CHECK_THAT(refused({"evaluate", "last"}), ContainsSubstring("train.csv"));
  CHECK_THAT(refused({"evaluate", "last", "--task", "rolling", "--data", "moved.csv"}),
             ContainsSubstring("--task is for language models"));
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 1);  // mistakes leave no row
}

TEST_CASE("rank 11: predict and evaluate read images as the training's validation did", "[e2e][rank5][rank11]") {
  Workplace place;
  const auto digits = (place.path() / "digits").string();
  REQUIRE(std::system(("python3 " RUNNER_SOURCE_DIR "/scripts/lib/make_digits.py " + digits).c_str()) == 0);
  const auto trained =
      place.run({"run", RUNNER_SOURCE_DIR "/recipes/vision.toml", "--json", "--set", "data.train=[\"" + digits + "\"]",
                 "train.max_epochs=1", "train.max_steps=12", "train.val_check_interval=12", "model.num_labels=12"});
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  REQUIRE(place.run({"export", "last", "--output", "weights"}).code == 0);
  const auto config = nlohmann::json::parse(read_file(place.path() / "weights/config.json"));
  CHECK(config.at("id2label").at("11") == "LABEL_11");  // an output without a class in the data
  const auto moved = (place.path() / "moved").string();
  fs::rename(digits, moved);
  const fs::path validation = fs::exists(moved + "/validation") ? moved + "/validation" : moved + "/val";
  for (const std::string model : {"last", "weights"}) {
    const auto result = place.run({"evaluate", model, "--data", validation.string(), "--json"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    const auto metrics = result.json().at("metrics");
    CHECK_THAT(metrics.at("loss").get<double>(), WithinRel(last_metric(place, "val_loss"), 1e-4));
    CHECK_THAT(metrics.at("accuracy").get<double>(), WithinAbs(last_metric(place, "val_accuracy"), 1e-9));
  }
  const auto result = place.run({"predict", "last", validation.string(), "--top-k", "3"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto lines = lines_in(result.out);
  double right = 0;
  std::string before;
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].at("id") == i);
    const std::string file = lines[i].at("file");
    CHECK(before < file);
    before = file;
    right += fs::path(file).parent_path().filename() == lines[i].at("label").get<std::string>();
    CHECK(lines[i].at("probabilities").size() == 3);
  }
  CHECK_THAT(right / static_cast<double>(lines.size()), WithinAbs(last_metric(place, "val_accuracy"), 1e-9));

  // Single files in the order of the command line; and mistakes.
  const std::string second = lines[1].at("file"), first = lines[0].at("file");
  const auto two = lines_in(place.run({"predict", "weights", second, first}).out);
  REQUIRE(two.size() == 2);
  CHECK(two[0].at("file") == second);
  CHECK(two[1].at("label") == lines[0].at("label"));
  CHECK(two[0].at("probabilities").size() == 5);
  place.write("note.txt", "x");
  CHECK_THAT(piped(place, {"predict", "last", "-"}, "x").err,
             ContainsSubstring("`-` (standard input) is for texts and tables, and "));
  CHECK_THAT(place.run({"predict", "last", "note.txt"}).err,
             ContainsSubstring("an image is a file .jpg, .jpeg or .png"));
  place.write("bad.png", "x");
  const auto bad = place.run({"predict", "last", "bad.png", "--output", "out.jsonl"});
  CHECK(bad.code == 2);
  CHECK_THAT(bad.err, ContainsSubstring("bad.png"));
  place.write("cut.png", slurp(first).substr(0, slurp(first).size() / 2));
  const auto cut = place.run({"predict", "last", "cut.png"});
  CHECK(cut.code == 2);
  CHECK_THAT(cut.err, ContainsSubstring("cut.png: the image is damaged: "));
  CHECK_FALSE(fs::exists(place.path() / "out.jsonl"));
  place.write("wrong/ten/a.png", slurp(first));
  CHECK_THAT(place.run({"evaluate", "last", "--data", "wrong"}).err,
             ContainsSubstring("the class `ten` is not in the model"));
}
