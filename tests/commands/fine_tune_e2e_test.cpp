// Low-rank adapters, end to end: PEFT reads ours and we read PEFT's, merged weights, resumed runs, and what is refused.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

constexpr int seq_len = 32, sequences = 4;
constexpr double tolerance = 1e-5;

/// A Python with PEFT; skips the test without one.
std::string python_with_peft() {
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
    write("first_batch.txt", text.substr(0, sequences * seq_len + 1));
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
    const auto command = fmt::format("cd {} && {} {}/tests/commands/peft_losses.py first_batch.txt {} base {} >losses",
                                     path().string(), python, RUNNER_SOURCE_DIR, seq_len, fmt::join(adapters, " "));
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
                       family, seq_len, model, sequences);
  }
};

}  // namespace

TEST_CASE("rank 4: PEFT reads our adapters, and the merged model has their loss", "[e2e][rank4]") {
  const auto python = python_with_peft();
  const auto family = GENERATE(as<std::string>(), "llama", "gpt", "phi3", "gpt_neox");
  CAPTURE(family);
  TunedPlace place(family);
  const auto run = place.tune({"fine_tune.rslora=true"});
  const auto whole = place.tune({"fine_tune.targets=[\"*.mlp.*\"]", "fine_tune.dropout=0.1", "strategy=fsdp"});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", whole, "--adapter", "--output", "mlp"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  const auto theirs = place.peft_losses(python, {"adapter", "mlp"});
  CHECK_THAT(place.first_loss(run), WithinRel(theirs[0], tolerance));  // adapters begin with the loss of the base
  CHECK(theirs[1] < theirs[0]);
  CHECK(theirs[2] < theirs[0]);
  CHECK_THAT(place.loss_of_folder("merged"), WithinRel(theirs[1], tolerance));
  for (const auto& [folder, rslora, targets] :
       {std::tuple{"adapter", "true", "[\"all-linear\"]"}, std::tuple{"mlp", "false", "[\"*.mlp.*\"]"}}) {
    const auto again =
        place.tune({std::string("fine_tune.adapter=") + folder, std::string("fine_tune.rslora=") + rslora,
                    std::string("fine_tune.targets=") + targets, "optimizer.lr=0"});
    CHECK_THAT(place.first_loss(again), WithinRel(theirs[folder == std::string("adapter") ? 1 : 2], tolerance));
    const auto exported = std::string(folder) + "-again";
    place.result({"export", again, "--adapter", "--output", exported}, false);
    CHECK(slurp(place.path() / folder / "adapter_model.safetensors") ==
          slurp(place.path() / exported / "adapter_model.safetensors"));
  }
}

TEST_CASE("rank 4: training starts from adapters that PEFT wrote", "[e2e][rank4]") {
  const auto python = python_with_peft();
  struct Row {
    std::string family, settings;
    std::vector<std::string> keys;
  };
  const auto row = GENERATE(
      Row{"llama",
          R"({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]})",
          {"fine_tune.targets=[\"q_proj\", \"v_proj\"]", "fine_tune.modules_to_save=[\"lm_head\"]"}},
      Row{"gpt",
          R"({"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": true})",
          {"fine_tune.targets=[\"c_attn\", \"c_fc\"]"}},
      Row{"phi3",
          R"({"r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj"]})",
          {"fine_tune.targets=[\"qkv_proj\", \"o_proj\", \"gate_up_proj\"]"}},
      Row{"gpt_neox",
          R"({"r": 4, "lora_alpha": 8, "use_rslora": true, "target_modules": ["query_key_value"]})",
          {"fine_tune.targets=[\"query_key_value\"]", "fine_tune.rslora=true"}});
  CAPTURE(row.family);
  TunedPlace place(row.family, /*tied=*/row.family != "llama");
  const auto command = fmt::format("cd {} && {} {}/tests/commands/peft_losses.py --make base theirs '{}'",
                                   place.path().string(), python, RUNNER_SOURCE_DIR, row.settings);
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  auto keys = row.keys;
  keys.emplace_back("fine_tune.adapter=theirs");
  const auto losses = place.peft_losses(python, {"theirs"});
  CHECK(losses[1] != losses[0]);
  CHECK_THAT(place.first_loss(place.tune(keys)), WithinRel(losses[1], tolerance));
}

TEST_CASE("rank 4: a killed run of adapters ends as an unbroken one, and its checkpoints have no base weights",
          "[e2e][rank4]") {
  TunedPlace place("llama");
  const std::vector<std::string> settings = {"checkpoint.every_n_steps=2", "checkpoint.keep_last=0",
                                             "train.max_steps=12", "fine_tune.dropout=0.1", "strategy=fsdp"};
  const auto unbroken = place.tune(settings);
  const auto dir_of = [&](const std::string& run) {
    return place.result({"show", run}).json().at("run_dir").get<std::string>();
  };
  auto arguments = settings;
  arguments.insert(arguments.begin(), {"run", "tune.toml", "--set", "data.shuffle=false"});
  const auto killed = place.run(arguments, {{"RUNNER_FAULT", "step:7"}});
  const auto resumed = place.result({"resume"});
  const auto state = final_state(dir_of(resumed.json().at("run")));
  CHECK(state == final_state(dir_of(unbroken)));
  for (const auto& [name, bytes] : state) {
    INFO(name);
    CHECK((name.ends_with(".lora_a") || name.ends_with(".lora_b")));
  }
}

TEST_CASE("rank 4: a run of adapters is resumed only with the weights that it started from", "[e2e][rank4]") {
  TunedPlace place("llama");
  const std::vector<std::string> settings = {"checkpoint.every_n_steps=2"};
  const auto run = place.tune(settings);
  const auto refused = [&](const std::string& words, std::vector<std::string> arguments) {
    const auto result = place.run(arguments);
    INFO(result.err);
    CHECK(result.code != 0);
    CHECK_THAT(result.err, ContainsSubstring(words));
  };
  const std::vector<std::string> longer = {"resume", run, "--set", "train.max_steps=10"};
  auto other_rank = longer;
  other_rank.emplace_back("fine_tune.rank=8");
  refused("fine_tune.rank", other_rank);
  const auto kept = place.path() / "kept";
  fs::rename(place.path() / "base", kept);
  refused("base", longer);
  refused("--adapter exports the adapter alone", {"export", run, "--output", "merged"});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  // Weights of another training.
  place.result({"run", "base.toml", "--set", "run.seed=4"});
  place.result({"export", "last", "--output", "base"}, false);
  refused("the weights of model.init_from", longer);
  refused("has other weights than those that the run started from", {"export", run, "--output", "merged"});
  fs::remove_all(place.path() / "base");
  fs::rename(kept, place.path() / "base");
  place.result(longer);
}
