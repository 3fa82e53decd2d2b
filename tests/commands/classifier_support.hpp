// Classifiers of texts for tests, end to end: their records and recipes, and what transformers computes of exported ones.
#pragma once
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <sstream>

#include "tests/commands/fine_tune_support.hpp"

namespace runner::testing {

inline std::string recipe_text(const std::string& more = "", const std::string& model = "",
                               const std::string& data = "") {
  return "[model]\nname = \"bert\"\nn_layers = 2\ndim = 32\nn_heads = 4\nmax_seq_len = 40\n" + model +
         "[data]\nformat = \"jsonl\"\ntrain = [\"train.jsonl\"]\nvalidation = [\"val.jsonl\"]\ntarget = \"label\"\n"
         "seq_len = 24\n" +
         data +
         "[devices]\naccelerator = \"cpu\"\n[optimizer]\nname = \"adamw\"\nlr = 2e-3\n[train]\nmax_steps = 12\n"
         "global_batch_size = 8\nval_check_interval = 6\n" +
         more;
}

/// Records whose label depends on a word of theirs.
inline std::string records(int first, int count, int labels = 3) {
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
  /// Runs a command that must succeed.
  CommandResult succeed(const std::vector<std::string>& words) const {
    auto result = run(words);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result;
  }
  nlohmann::json train(const std::string& recipe, std::vector<std::string> set = {}) const {
    std::vector<std::string> words = {"run", recipe, "--json"};
    if (!set.empty()) words.emplace_back("--set");
    words.insert(words.end(), set.begin(), set.end());
    last = succeed(words);
    return last.json();
  }
  double metric(const std::string& name) const {
    const auto points = run({"metrics", "last", "--name", name, "--json"}).json().at("points");
    REQUIRE_FALSE(points.empty());
    return points.back().at(1);
  }
  double evaluated_loss(std::vector<std::string> words) const {
    words.insert(words.begin(), "evaluate");
    words.emplace_back("--json");
    return succeed(words).json().at("metrics").at("loss");
  }
  /// Checks that these commands, with models of single texts, refuse the pairs of pair.jsonl.
  void check_pairs_are_refused(const std::vector<std::vector<std::string>>& commands) const {
    write("pair.jsonl", "{\"text\": \"red\", \"text_pair\": \"blue\", \"label\": \"red\"}\n");
    for (const auto& words : commands) {
      const auto refused = run(words);
      CHECK(refused.code == 2);
      CHECK(refused.err.find("pair.jsonl has pairs of texts (text_pair), and the model was trained on single texts") !=
            std::string::npos);
    }
  }
  void export_last(const std::string& folder, bool adapter = false) const {
    std::vector<std::string> words = {"export", "last", "--output", folder};
    if (adapter) words.emplace_back("--adapter");
    succeed(words);
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

}  // namespace runner::testing
