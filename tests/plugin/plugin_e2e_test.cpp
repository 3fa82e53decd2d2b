// Plug-ins, end to end: a model in a library that is built outside of the tree trains under every strategy, is planned for, is killed
// and resumed, and its mistakes are reported.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/commands/resume_support.hpp"
#include "tests/support/torch_library.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

void build(const fs::path& folder, const std::string& source) {
  build_torch_library(folder / "libmine.so", source,
                      {{"runner/models/plugin/plugin.hpp", "runner/plugin.hpp"},
                       {"runner/plugins/options.hpp", "runner/plugins/options.hpp"}});
}

std::string source() { return slurp(RUNNER_SOURCE_DIR "/tests/plugin/model/mine.cpp"); }

const fs::path& example() {
  static const TemporaryFolder folder;
  static const fs::path library = [] {
    build(folder.path, source());
    return folder.path / "libmine.so";
  }();
  return library;
}

void write_plugin_recipe(const Workplace& place, const std::string& extra = "") {
  write_tiny_recipe(place, extra);
  std::string recipe = slurp(place.path() / "tiny.toml");
  const auto begin = recipe.find("[model]"), end = recipe.find("[data]");
  place.write("tiny.toml", recipe.replace(begin, end - begin, R"([model]
name = "plugin"
plugin = "libmine.so"
max_seq_len = 32
options = { width = 16, layers = 2, dropout = 0.1 }
)"));
  if (!fs::exists(place.path() / "libmine.so")) fs::copy_file(example(), place.path() / "libmine.so");
}

json trained(const Workplace& place, const std::vector<std::string>& settings) {
  std::vector<std::string> arguments = {"run", "tiny.toml", "--json", "--set"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  const auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json();
}

std::string refused(const Workplace& place, const std::vector<std::string>& settings = {}) {
  std::vector<std::string> arguments = {"check", "tiny.toml"};
  if (!settings.empty()) arguments.emplace_back("--set");
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  const auto result = place.run(arguments);
  CHECK(result.code == 2);
  return result.out + result.err;
}

}  // namespace

TEST_CASE("rank 14: a model of a plug-in has the same losses under every strategy", "[rank14]") {
  Workplace place;
  write_plugin_recipe(place);
  trained(place, {"strategy=single", "devices.cpu_processes=1"});
  const auto single = losses(place);
  REQUIRE(single.size() >= 2);
  CHECK(single.back() < single.front());
  for (const std::vector<std::string>& form : {std::vector<std::string>{"strategy=ddp"},
                                               {"strategy=fsdp"},
                                               {"strategy=deepspeed_stage_2"},
                                               {"strategy=deepspeed_stage_3"},
                                               {"strategy=fsdp", "activation_checkpointing=all"},
                                               {"strategy=ddp", "train.micro_batch_size=2"}}) {
    CAPTURE(form);
    trained(place, form);
    const auto other = losses(place);
    REQUIRE(other.size() == single.size());
    for (size_t i = 0; i < other.size(); ++i) CHECK(std::abs(other[i] - single[i]) < 2e-5);
  }
}

TEST_CASE("rank 14: the memory of a plug-in is predicted, and a plan is made without starting a run", "[rank14]") {
  Workplace place;
  write_plugin_recipe(place, "[strategy]\nname = \"ddp\"\n");
  const std::vector<std::string> larger = {"model.options={ width = 64, layers = 3 }", "train.global_batch_size=32",
                                           "data.seq_len=32"};
  trained(place, larger);
  const auto shown = place.run({"show", "--json"}).json();
  const double predicted = shown.at("predicted").at("memory_bytes_per_rank"),
               measured = shown.at("measured").at("memory_bytes_per_rank");
  CAPTURE(predicted, measured);
  CHECK(predicted >= 0.98 * measured);
  CHECK(predicted <= 1.3 * measured);
  CHECK_THAT(place.run({"recommend", "tiny.toml"}).out, ContainsSubstring("ddp"));
}

TEST_CASE("rank 14: the memory of a plug-in is predicted again if its library changes", "[rank14]") {
  Workplace place;
  write_plugin_recipe(place, "[strategy]\nname = \"ddp\"\n");
  const auto predicted = [&] {
    const auto checked = place.run({"check", "tiny.toml", "--json"});
    INFO(checked.err);
    REQUIRE(checked.code == 0);
    return checked.json().at("plan").get<std::string>();
  };
  const auto before = predicted();
  auto changed = source();
  const std::string count = "i < layers;";
  changed.replace(changed.find(count), count.size(), "i < 4 * layers;");
  build(place.path(), changed);
  const auto after = predicted();
  CHECK(after != before);
  fs::remove_all(place.home() / "cache");
  CHECK(predicted() == after);
}

TEST_CASE("rank 14: evaluate measures the loss that the training of a plug-in validated", "[rank14]") {
  Workplace place;
  write_plugin_recipe(place, checkpoints);
  const auto run = trained(place, {"data.validation_fraction=0.2", "train.limit_val_batches=1000"});
  REQUIRE(run.at("metric") == "val_loss");
  const auto evaluated = place.run({"evaluate", "last", "--json"});
  INFO(evaluated.err);
  REQUIRE(evaluated.code == 0);
  const double loss = evaluated.json().at("metrics").at("loss");
  CHECK(std::abs(loss - run.at("metric_value").get<double>()) < 1e-5);
  CHECK_FALSE(evaluated.json().at("metrics").contains("token_accuracy"));
}

TEST_CASE("rank 14: a killed run of a plug-in resumes to the same state", "[rank14]") {
  for (const std::string strategy : {"ddp", "fsdp"}) {
    CAPTURE(strategy);
    const std::string more = "[strategy]\nname = \"" + strategy + "\"\n" + checkpoints;
    const std::vector<std::string> run = {"run", "tiny.toml", "--json", "--set", "train.max_steps=60"};
    Workplace calm, killed;
    write_plugin_recipe(calm, more);
    write_plugin_recipe(killed, more);
    const auto expected = calm.run(run);
    INFO(expected.err);
    REQUIRE(expected.code == 0);
    const pid_t supervisor = killed.start(run);
    REQUIRE(wait_until([&] { return has_checkpoint(killed, 1); }, 60));
    const auto workers = children_of(supervisor);
    ::kill(supervisor, SIGKILL);
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
    killed.finish(supervisor);
    check_end(killed, killed.run({"resume", "--json"}),
              {expected.json().at("final_loss"), final_state(expected.json().at("run_dir"))});
  }
}

TEST_CASE("rank 14: mistakes of plug-ins are reported with the place in the recipe", "[rank14]") {
  Workplace place;
  write_plugin_recipe(place);
  CHECK_THAT(refused(place, {"model.plugin=libmin.so"}),
             ContainsSubstring("there is no file") && ContainsSubstring("libmin.so"));
  CHECK_THAT(refused(place, {"model.options={ widht = 3 }"}),
             ContainsSubstring("the plug-in has no option `widht`; did you mean `width`?"));
  CHECK_THAT(refused(place, {"model.options={ width = \"wide\" }"}),
             ContainsSubstring("the option `width` must be an integer"));
  CHECK_THAT(refused(place, {"model.options={ width = 0 }"}),
             ContainsSubstring("libmine.so failed: width must be at least 1"));
  place.write("records.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  CHECK_THAT(refused(place, {"data.packing=best_fit", "data.format=jsonl", "data.train=records.jsonl",
                             "data.validation_fraction=0.5"}),
             ContainsSubstring("data.packing = \"best_fit\": a plug-in does not know"));
  place.write("libmine.so", "no library");
  CHECK_THAT(refused(place), ContainsSubstring("tiny.toml:") && ContainsSubstring("model.plugin: cannot load"));

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = source();
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    build(place.path(), text.replace(at, from.size(), to));
    return refused(place);
  };
  CHECK_THAT(
      with("RUNNER_PLUGIN(make)", "plugin::Model (*unused)(const plugin::Options&, const plugin::Sizes&) = make;"),
      ContainsSubstring("exports no plug-in"));
  CHECK_THAT(with("RUNNER_PLUGIN(make)",
                  "extern \"C\" const plugin::Library* runner_plugin() { static const plugin::Library old{99, "
                  "TORCH_VERSION, make}; return &old; }"),
             ContainsSubstring("was built for version 99 of the plug-in interface, and this program has version 1"));
  CHECK_THAT(with("call.parameter(\"embedding.weight\");", "call.parameter(\"embeding.weight\");"),
             ContainsSubstring("block `head` of the plug-in failed: the block has no parameter `embeding.weight`"));
}
