// Fine-tuned models for tests, end to end: a trained base, recipes of adapters, and PEFT in Python.
#pragma once
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/commands/resume_support.hpp"

namespace runner::testing {

constexpr int tuned_seq_len = 32, tuned_sequences = 4;
constexpr double peft_tolerance = 1e-5;

/// A Python with PEFT; skips the test without one.
inline std::string python_with_peft() {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  if (std::system((python + " -c 'import torch, peft' 2>/dev/null").c_str()) != 0)
    SKIP(python << " has no torch and peft");
  return python;
}

/// A folder with "base", the weights of a model after some steps, and the recipe tune.toml, which trains adapters of it.
class TunedPlace : public Workplace {
 public:
  explicit TunedPlace(const std::string& family, bool tied = true) {
    std::string text;
    for (int i = 0; i < 1000; ++i)
      text += "line " + std::to_string(i * i % 97) + " of " + std::to_string(i % 13) + "\n";
    write("text.txt", text);
    write("first_batch.txt", text.substr(0, tuned_sequences * tuned_seq_len + 1));
    const std::string ties = fmt::format("tie_embeddings = {}\n", tied);
    write("base.toml", recipe(family, ties));
    write("tune.toml",
          recipe(family, ties + "init_from = \"base\"\n") + "[fine_tune]\nmethod = \"lora\"\nrank = 4\nalpha = 8\n");
    const auto run_id = result({"run", "base.toml"}).json().at("run").get<std::string>();
    result({"export", run_id, "--output", "base"}, false);
  }

  /// Runs a command that must succeed.
  CommandResult result(std::vector<std::string> arguments, bool as_json = true) const {
    if (as_json) arguments.emplace_back("--json");
    auto result = run(arguments);
    INFO(fmt::format("{}: {}", fmt::join(arguments, " "), result.err));
    REQUIRE(result.code == 0);
    return result;
  }
  /// Trains the recipe and returns the run's id.
  std::string tune(std::vector<std::string> settings = {}, const std::string& recipe = "tune.toml") const {
    std::vector<std::string> arguments = {"run", recipe, "--set", "data.shuffle=false"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return result(arguments).json().at("run");
  }
  double first_loss(const std::string& run_id) const {
    return result({"metrics", run_id, "--name", "loss"}).json().at("points").at(0).at(1);
  }
  /// The loss of the first batch of weights in a folder, which are not trained.
  double loss_of_folder(const std::string& folder) const {
    return first_loss(tune({"model.init_from=" + folder}, "base.toml"));
  }
  /// PEFT's losses of the first batch: of the base, and with each adapter.
  std::vector<double> peft_losses(const std::string& python, const std::vector<std::string>& adapters) const {
    const auto command =
        fmt::format("cd {} && {} {}/tests/commands/peft_losses.py first_batch.txt {} base {} >losses", path().string(),
                    python, RUNNER_SOURCE_DIR, tuned_seq_len, fmt::join(adapters, " "));
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
    std::istringstream lines(slurp(path() / "losses"));
    std::vector<double> losses;
    for (double loss; lines >> loss;) losses.push_back(loss);
    REQUIRE(losses.size() == adapters.size() + 1);
    return losses;
  }

 private:
  static std::string recipe(const std::string& family, const std::string& model) {
    return fmt::format(R"([run]
seed = 3
[model]
name = "{}"
n_layers = 2
dim = 32
n_heads = 4
max_seq_len = {}
{}[data]
format = "text"
train = ["text.txt"]
[optimizer]
lr = 1e-2
[devices]
accelerator = "cpu"
cpu_processes = 2
threads_per_rank = 1
[train]
max_steps = 8
global_batch_size = {}
)",
                       family, tuned_seq_len, model, tuned_sequences);
  }
};

}  // namespace runner::testing
