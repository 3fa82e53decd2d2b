// Low-rank adapters, end to end: PEFT reads ours and we read PEFT's, merged weights, resumed runs, and what is refused.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/fine_tune_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::WithinRel;
using nlohmann::json;

TEST_CASE("rank 4: PEFT reads our adapters, and the merged model has their loss", "[e2e][rank4]") {
  const auto python = python_with_peft();
  const auto family = GENERATE(as<std::string>(), "llama", "gpt", "phi3", "gpt_neox");
  static EveryNth chosen(3);
  if (!chosen()) return;
  CAPTURE(family);
  TunedPlace place(family);
  const auto run = place.tune({"fine_tune.rslora=true"});
  const auto whole = place.tune({"fine_tune.targets=[\"*.mlp.*\"]", "fine_tune.dropout=0.1", "strategy=fsdp"});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", whole, "--adapter", "--output", "mlp"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  const auto theirs = place.peft_losses(python, {"adapter", "mlp"});
  CHECK_THAT(place.first_loss(run), WithinRel(theirs[0], peft_tolerance));  // adapters begin with the loss of the base
  CHECK(theirs[1] < theirs[0]);
  CHECK(theirs[2] < theirs[0]);
  CHECK_THAT(place.loss_of_folder("merged"), WithinRel(theirs[1], peft_tolerance));
  for (const auto& [folder, rslora, targets] :
       {std::tuple{"adapter", "true", "[\"all-linear\"]"}, std::tuple{"mlp", "false", "[\"*.mlp.*\"]"}}) {
    const auto again =
        place.tune({std::string("fine_tune.adapter=") + folder, std::string("fine_tune.rslora=") + rslora,
                    std::string("fine_tune.targets=") + targets, "optimizer.lr=0"});
    CHECK_THAT(place.first_loss(again), WithinRel(theirs[folder == std::string("adapter") ? 1 : 2], peft_tolerance));
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
  static EveryNth chosen(3);
  if (!chosen()) return;
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
  CHECK_THAT(place.first_loss(place.tune(keys)), WithinRel(losses[1], peft_tolerance));
}

TEST_CASE("rank 4: check finds an adapter that is missing or does not fit", "[e2e][rank4]") {
  TunedPlace place("llama");
  place.tune({});
  place.result({"export", "last", "--adapter", "--output", "adapter"}, false);
  const auto message = [&](const std::string& setting) {
    return place.run({"check", "tune.toml", "--set", setting, "fine_tune.adapter=adapter"}).err;
  };
  CHECK_THAT(message("train.max_steps=2"), ContainsSubstring("tune.toml is fine"));
  CHECK_THAT(message("fine_tune.rank=5"), ContainsSubstring("r is 4, and fine_tune.rank is 5; set fine_tune.rank = 4"));
  CHECK_THAT(place.run({"check", "tune.toml", "--set", "fine_tune.adapter=none"}).err,
             ContainsSubstring("none has no adapter_config.json"));
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
