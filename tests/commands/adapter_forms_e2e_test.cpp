// DoRA and QLoRA, end to end: PEFT's results, merged weights, resumed runs, and what is refused.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/fine_tune_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

TEST_CASE("rank 20: PEFT reads our DoRA, and the merged model has its loss", "[e2e][rank20]") {
  const auto python = python_with_peft();
  const auto family = GENERATE(as<std::string>(), "llama", "gpt", "phi3", "gpt_neox");
  static EveryNth chosen(3);
  if (!chosen()) return;
  CAPTURE(family);
  TunedPlace place(family);
  const std::string dora = "fine_tune.method=dora", mlp = "fine_tune.targets=[\"*.mlp.*\"]";
  const auto run = place.tune({dora, "fine_tune.rslora=true"});
  const auto part = place.tune({dora, mlp, "fine_tune.dropout=0.1", "strategy=fsdp"});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", part, "--adapter", "--output", "mlp"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  place.result({"export", part, "--output", "merged-mlp"}, false);
  const auto theirs = place.peft_losses(python, {"adapter", "mlp"});
  CHECK_THAT(place.first_loss(run), WithinRel(theirs[0], peft_tolerance));  // it begins with the loss of the base
  CHECK(theirs[1] < theirs[0]);
  CHECK(theirs[2] < theirs[0]);
  CHECK_THAT(place.loss_of_folder("merged"), WithinRel(theirs[1], peft_tolerance));
  CHECK_THAT(place.loss_of_folder("merged-mlp"), WithinRel(theirs[2], peft_tolerance));
  const auto again = place.tune({dora, mlp, "fine_tune.adapter=mlp", "optimizer.lr=0"});
  CHECK_THAT(place.first_loss(again), WithinRel(theirs[2], peft_tolerance));
  place.result({"export", again, "--adapter", "--output", "again"}, false);
  CHECK(slurp(place.path() / "mlp/adapter_model.safetensors") ==
        slurp(place.path() / "again/adapter_model.safetensors"));
}

TEST_CASE("rank 20: training starts from a DoRA that PEFT wrote", "[e2e][rank20]") {
  const auto python = python_with_peft();
  struct Row {
    std::string family, settings, targets;
  };
  const auto row = GENERATE(
      Row{"llama", R"({"r": 4, "lora_alpha": 8, "use_dora": true, "target_modules": ["q_proj", "down_proj"]})",
          "[\"q_proj\", \"down_proj\"]"},
      Row{"gpt", R"({"r": 4, "lora_alpha": 8, "use_dora": true, "target_modules": ["c_attn"], "fan_in_fan_out": true})",
          "[\"c_attn\"]"},
      Row{"phi3", R"({"r": 4, "lora_alpha": 8, "use_dora": true, "target_modules": ["qkv_proj"]})", "[\"qkv_proj\"]"});
  static EveryNth chosen(2);
  if (!chosen()) return;
  CAPTURE(row.family);
  TunedPlace place(row.family);
  const auto command = fmt::format("cd {} && {} {}/tests/commands/peft_losses.py --make base theirs '{}'",
                                   place.path().string(), python, RUNNER_SOURCE_DIR, row.settings);
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  const auto losses = place.peft_losses(python, {"theirs"});
  CHECK(losses[1] != losses[0]);
  const auto run =
      place.tune({"fine_tune.method=dora", "fine_tune.targets=" + row.targets, "fine_tune.adapter=theirs"});
  CHECK_THAT(place.first_loss(run), WithinRel(losses[1], peft_tolerance));
  const auto refused =
      place.run({"run", "tune.toml", "--set", "fine_tune.targets=" + row.targets, "fine_tune.adapter=theirs"});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err,
             ContainsSubstring("use_dora is true, and fine_tune.method is \"lora\"; set fine_tune.method = \"dora\""));
}

TEST_CASE("rank 20: a merged export of QLoRA computes as its run did", "[e2e][rank20]") {
  const auto family = GENERATE(as<std::string>(), "llama", "gpt", "phi3");
  const std::string method = GENERATE(as<std::string>(), "lora", "dora"),
                    twice = GENERATE(as<std::string>(), "false", "true");
  static EveryNth chosen(5);
  if (!chosen()) return;
  TunedPlace place(family);
  std::vector<std::string> settings = {"fine_tune.method=" + method, "fine_tune.quantization=nf4"};
  if (twice == "true") settings.push_back("fine_tune.double_quantization=true");
  const auto run = place.tune(settings);
  const double base = place.loss_of_folder("base");
  CHECK(place.first_loss(run) != base);
  CHECK_THAT(place.first_loss(run), WithinRel(base, 0.02));
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  auto again = settings;
  again.insert(again.end(), {"fine_tune.adapter=adapter", "optimizer.lr=0", "strategy=fsdp"});
  const double loss = place.first_loss(place.tune(again));
  CHECK(loss < place.first_loss(run));
  CHECK_THAT(place.loss_of_folder("merged"), WithinRel(loss, peft_tolerance));
}

TEST_CASE("rank 20: a killed run of QLoRA ends as an unbroken one", "[e2e][rank20]") {
  TunedPlace place("llama");
  const std::vector<std::string> settings = {"checkpoint.every_n_steps=2", "checkpoint.keep_last=0",
                                             "train.max_steps=12",         "fine_tune.dropout=0.1",
                                             "fine_tune.quantization=nf4", "fine_tune.double_quantization=true",
                                             "fine_tune.method=dora",      "strategy=fsdp"};
  const auto unbroken = place.tune(settings);
  const auto dir_of = [&](const std::string& run) {
    return place.result({"show", run}).json().at("run_dir").get<std::string>();
  };
  auto arguments = settings;
  arguments.insert(arguments.begin(), {"run", "tune.toml", "--set", "data.shuffle=false"});
  const auto killed = place.run(arguments, {{"RUNNER_FAULT", "step:7"}});
  CHECK(killed.code != 0);
  const auto resumed = place.result({"resume"});
  const auto state = final_state(dir_of(resumed.json().at("run")));
  CHECK(state == final_state(dir_of(unbroken)));
  for (const auto& [name, bytes] : state) {
    INFO(name);
    CHECK(name.find(".lora_") != std::string::npos);
  }
  const auto other = place.run({"resume", unbroken, "--set", "train.max_steps=14", "fine_tune.quantization=none",
                                "--unset", "fine_tune.double_quantization"});
  CHECK(other.code != 0);
  CHECK_THAT(other.err, ContainsSubstring("fine_tune.quantization = \"none\", the checkpoint's is \"nf4\""));
}

TEST_CASE("rank 20: the keys of other tools for DoRA and QLoRA are answered with ours", "[e2e][rank20]") {
  TunedPlace place("llama");
  const auto refused = [&](const std::string& setting, const std::string& words) {
    const auto result = place.run({"check", "tune.toml", "--set", setting});
    INFO(setting << ": " << result.err << result.out);
    CHECK(result.code == 2);
    CHECK_THAT(result.err + result.out, ContainsSubstring(words));
  };
  refused("fine_tune.use_dora=true", "fine_tune.method");
  refused("fine_tune.load_in_4bit=true", "fine_tune.quantization");
  refused("fine_tune.bnb_4bit_quant_type=nf4", "fine_tune.quantization");
  refused("fine_tune.quantization=nf3", "nf4");
  refused("fine_tune.double_quantization=true", "fine_tune.quantization");
}
