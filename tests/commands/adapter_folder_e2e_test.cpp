// Verbs that use a model, with a folder of PEFT that has an adapter only: its base is loaded, and the adapter is added.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/fine_tune_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

/// A tokenizer of 256 words, t0 to t255.
std::string words_tokenizer() {
  json vocabulary = json::object();
  for (int i = 0; i < 256; ++i) vocabulary[fmt::format("t{}", i)] = i;
  return json{{"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
              {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "t0"}}}}
      .dump();
}

}  // namespace

TEST_CASE("a folder with an adapter is used with its base, as the merged model is", "[e2e][adapter]") {
  const auto [family, method] =
      GENERATE(std::pair("llama", "lora"), std::pair("phi3", "lora"), std::pair("gpt", "dora"));
  CAPTURE(family, method);
  const TunedPlace place(family);
  const auto run = place.tune({std::string("fine_tune.method=") + method, "fine_tune.targets=[\"*.mlp.*\"]"});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  for (const char* folder : {"base", "merged"}) place.write(std::string(folder) + "/tokenizer.json", words_tokenizer());
  place.write("words.txt",
              "t1 t7 t30 t4 t60 t101 t2 t9 t12 t200 t255 t17 t1 t1 t5 t6 t7 t8 t9 t10 t11 t12 t13 t14 t15 t16 "
              "t17 t18 t19 t20 t21 t22 t23 t24 t25 t26 t27 t28 t29 t30 t31 t32 t33 t34 t35 t36 t37 t38 t39 t40");
  const auto loss = [&](const std::string& folder) {
    const auto result = place.run({"evaluate", folder, "--data", "words.txt", "--json"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    return result.json().at("metrics").at("loss").get<double>();
  };
  const double merged = loss("merged");
  CHECK_THAT(loss("adapter"), WithinRel(merged, 1e-5));
  CHECK(std::abs(loss("base") - merged) > 1e-4);
  const std::vector<std::string> tail = {"t3 t8", "--max-new-tokens", "8", "--threads", "1"};
  std::vector<std::string> with_adapter = {"generate", "adapter"}, with_merged = {"generate", "merged"};
  with_adapter.insert(with_adapter.end(), tail.begin(), tail.end());
  with_merged.insert(with_merged.end(), tail.begin(), tail.end());
  CHECK(place.run(with_adapter).out == place.run(with_merged).out);
}

TEST_CASE("of a tied model whose embedding was trained, an adapter has the output layer, too", "[e2e][adapter]") {
  const auto [family, embedding] = GENERATE(std::pair("llama", "embed_tokens"), std::pair("gpt", "wte"));
  CAPTURE(family);
  const TunedPlace place(family);
  const auto modules = fmt::format("fine_tune.modules_to_save=[\"{}\"]", embedding);
  const auto run = place.tune({modules});
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.result({"export", run, "--output", "merged"}, false);
  CHECK(json::parse(slurp(place.path() / "adapter/adapter_config.json")).at("modules_to_save") ==
        json({embedding, "lm_head"}));
  const double merged = place.loss_of_folder("merged");
  const auto again = place.tune({modules, "fine_tune.adapter=adapter", "optimizer.lr=0"});
  CHECK_THAT(place.first_loss(again), WithinRel(merged, peft_tolerance));
  const auto python = python_with_peft();
  CHECK_THAT(place.peft_losses(python, {"adapter"})[1], WithinRel(merged, peft_tolerance));
}

TEST_CASE("an adapter of PEFT may have another output layer than embedding, although the base ties them",
          "[e2e][adapter]") {
  const auto python = python_with_peft();
  const auto [family, target, module] =
      GENERATE(std::tuple("llama", "q_proj", "embed_tokens"), std::tuple("llama", "q_proj", "lm_head"),
               std::tuple("gpt", "c_attn", "wte"));
  CAPTURE(family, module);
  const TunedPlace place(family);
  const auto settings = fmt::format(
      R"({{"r": 4, "lora_alpha": 8, "target_modules": ["{}"], "modules_to_save": ["{}"], "fan_in_fan_out": {}}})",
      target, module, std::string(family) == "gpt");
  const auto command = fmt::format("cd {} && {} {}/tests/commands/peft_losses.py --make base theirs '{}'",
                                   place.path().string(), python, RUNNER_SOURCE_DIR, settings);
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  const auto losses = place.peft_losses(python, {"theirs"});
  REQUIRE(std::abs(losses[1] - losses[0]) > 1e-4);
  place.write("base/tokenizer.json", words_tokenizer());
  std::string words;
  for (const unsigned char byte : slurp(place.path() / "first_batch.txt")) words += fmt::format("t{} ", int{byte});
  place.write("words.txt", words);
  const auto result = place.run({"evaluate", "theirs", "--base", "base", "--data", "words.txt", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.json().at("metrics").at("loss").get<double>(), WithinRel(losses[1], peft_tolerance));
  // A training has one weight for both.
  if (std::string(module) == "lm_head") return;
  const auto refused =
      place.run({"check", "tune.toml", "--set", fmt::format("fine_tune.targets=[\"{}\"]", target),
                 fmt::format("fine_tune.modules_to_save=[\"{}\"]", module), "fine_tune.adapter=theirs"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring(fmt::format(
                              "{}.weight` and the output layer share one weight here (model.tie_embeddings), "
                              "and with this folder PEFT leaves the output layer as it is in the base",
                              module)));
}

TEST_CASE("an adapter whose base is not here says which one it needs", "[e2e][adapter]") {
  const TunedPlace place("llama");
  const auto run = place.tune();
  place.result({"export", run, "--adapter", "--output", "adapter"}, false);
  place.write("base/tokenizer.json", words_tokenizer());
  const auto path = place.path() / "adapter/adapter_config.json";
  auto config = json::parse(slurp(path));
  const auto refusal = [&](const json& base, std::vector<std::string> more = {}) {
    config["base_model_name_or_path"] = base;
    place.write("adapter/adapter_config.json", config.dump());
    std::vector<std::string> words = {"generate", "adapter", "t3", "--max-new-tokens", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = place.run(words);
    CHECK(result.code == (result.err.find("error") == std::string::npos ? 0 : 2));
    return result.err;
  };
  CHECK_THAT(
      refusal("someone/Model-1B"),
      ContainsSubstring("adapter is an adapter of the base model \"someone/Model-1B\", and there is no such model "
                        "here: download it, and name its folder or GGUF file with --base"));
  CHECK_THAT(refusal(nullptr),
             ContainsSubstring("adapter is an adapter, and its adapter_config.json does not name a base "
                               "model: --base FOLDER does"));
  CHECK_THAT(
      refusal("someone/Model-1B", {"--base", "nothing"}),
      ContainsSubstring("nothing\", and there is no such model here (a folder with config.json, or a GGUF file)"));
  CHECK_THAT(refusal("someone/Model-1B", {"--base", "base"}), !ContainsSubstring("error"));
  CHECK_THAT(refusal("base"), !ContainsSubstring("error"));  // relative to the folder that contains the adapter
  const auto other = place.run({"generate", run, "t3", "--base", "base"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("--base is for a folder with an adapter (adapter_config.json)"));
  // A file of a stranger can have other types, and matrices without dimensions.
  const std::string weights = slurp(place.path() / "adapter/adapter_model.safetensors");
  auto integers = weights;
  for (size_t at = 0; (at = integers.find("\"F32\"", at)) != std::string::npos;) integers.replace(at, 5, "\"I32\"");
  place.write("adapter/adapter_model.safetensors", integers);
  CHECK_THAT(refusal("base"), ContainsSubstring("has the type I32, which is not that of an adapter"));
  const std::string layer = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const auto scalar = [](int64_t first) {
    return json{{"dtype", "F32"}, {"shape", json::array()}, {"data_offsets", {first, first + 4}}};
  };
  std::string header = json{{layer + "A.weight", scalar(0)}, {layer + "B.weight", scalar(4)}}.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  place.write(
      "adapter/adapter_model.safetensors",
      std::string{static_cast<char>(header.size() % 256), static_cast<char>(header.size() / 256), 0, 0, 0, 0, 0, 0} +
          header + std::string(8, '\1'));
  CHECK_THAT(refusal("base"), ContainsSubstring("q_proj` has A [] and B [] instead of"));
  place.write("adapter/adapter_model.safetensors", weights);
  config["new_key"] = 2;
  CHECK_THAT(refusal("base"),
             ContainsSubstring("adapter_config.json: keys that are not known have no effect: `new_key`"));
  config["alora_invocation_tokens"] = {3, 4};
  CHECK_THAT(refusal("base"), ContainsSubstring("alora_invocation_tokens = [3,4] is not supported"));
  config.erase("alora_invocation_tokens");
  config["modules_to_save"] = json::array({"norm"});
  config["target_modules"] = json::array({"q_proj"});
  CHECK_THAT(refusal("base"),
             ContainsSubstring("adapter/adapter_model.safetensors does not fit fine_tune.targets and the model "
                               "(adapter_config.json has modules_to_save = [\"norm\"])"));
  config["peft_type"] = "IA3";
  CHECK_THAT(refusal("base"), ContainsSubstring("peft_type is \"IA3\"; only LORA is read"));
}
