// Precision plug-ins, end to end: a library that is built outside of the tree rounds the matrices that blocks compute with. It trains the
// same under every strategy, is planned for, resumes, and its mistakes are reported.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/plugin/torch_parts_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::string example_parts() { return slurp(RUNNER_SOURCE_DIR "/tests/plugin/parts/fake_quant.cpp"); }

const fs::path& built_example() {
  static const TemporaryFolder folder;
  static const fs::path library = [] {
    build_torch_parts(folder.path, example_parts());
    return folder.path / "libparts.so";
  }();
  return library;
}

void write_parts_recipe(const Workplace& place, const std::string& extra = "") {
  write_tiny_recipe(place, "[plugins]\nprecision = \"libparts.so\"\n" + extra);
  fs::copy_file(built_example(), place.path() / "libparts.so");
}

}  // namespace

TEST_CASE("a precision plug-in has the same losses under every strategy") {
  Workplace place;
  write_parts_recipe(place);
  const std::string limit = "plugins.options={ bits = 6, largest_gradient = 0.01 }";
  trained_with(place, {"strategy=single", "devices.cpu_processes=1", limit});
  const auto single = losses(place);
  REQUIRE(single.size() >= 2);
  CHECK(single.back() < single.front());
  for (const std::string strategy : {"ddp", "fsdp", "deepspeed_stage_3"}) {
    CAPTURE(strategy);
    trained_with(place, {"strategy=" + strategy, limit});
    const auto other = losses(place);
    REQUIRE(other.size() == single.size());
    for (size_t i = 0; i < other.size(); ++i) CHECK(std::abs(other[i] - single[i]) < 2e-5);
  }
  const auto kept = losses(place);
  trained_with(place, {"strategy=deepspeed_stage_3", "activation_checkpointing=all", limit});
  CHECK(losses(place) == kept);
  trained_with(place, {"strategy=ddp", "plugins.options={ bits = 2 }"});
  CHECK(std::abs(losses(place).front() - single.front()) > 1e-5);
}

TEST_CASE("the memory of a precision plug-in is predicted, and it decides the precision of the run") {
  Workplace place;
  write_parts_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  const std::string larger = "model.dim=128";
  for (const std::string mode : {"32-true", "bf16-mixed"}) {
    CAPTURE(mode);
    const auto trained = trained_with(place, {larger, "plugins.options={ mode = \"" + mode + "\" }"});
    CHECK_THAT(slurp(fs::path(trained.at("run_dir").get<std::string>()) / "resolved.toml"),
               ContainsSubstring("mode = \"" + mode + "\""));
    const auto shown = place.run({"show", "--json"}).json();
    const double predicted = shown.at("predicted").at("memory_bytes_per_rank"),
                 measured = shown.at("measured").at("memory_bytes_per_rank");
    CAPTURE(predicted, measured);
    CHECK(predicted >= 0.98 * measured);
    CHECK(predicted <= 1.2 * measured);
  }
}

TEST_CASE("a resumed run of a precision plug-in ends as an undisturbed one, and its checkpoints have the parameters") {
  Workplace calm, stopped;
  const std::string more = "[strategy]\nname = \"fsdp\"\n" + checkpoints;
  write_parts_recipe(calm, more);
  write_parts_recipe(stopped, more);
  const auto expected = trained_with(calm, {});
  trained_with(stopped, {"train.max_steps=6"});
  check_end(stopped, stopped.run({"resume", "--json", "--set", "train.max_steps=12"}),
            {expected.at("final_loss"), final_state(expected.at("run_dir"))});
  // Trained models do not need the library.
  fs::remove(calm.path() / "libparts.so");
  const auto generated = calm.run({"generate", "last", "line", "--max-new-tokens", "4"});
  INFO(generated.err);
  CHECK(generated.code == 0);
}

TEST_CASE("mistakes around precision plug-ins are reported with the place in the recipe") {
  Workplace place;
  write_parts_recipe(place);
  CHECK_THAT(refused_with(place, {"plugins.precision=libpart.so"}),
             ContainsSubstring("there is no file") && ContainsSubstring("libpart.so"));
  CHECK_THAT(refused_with(place, {"plugins.options={ bit = 4 }"}),
             ContainsSubstring("no plug-in of this recipe has an option `bit`; did you mean `bits`?"));
  CHECK_THAT(refused_with(place, {"plugins.options={ bits = 1 }"}),
             ContainsSubstring("libparts.so failed: bits must be 2 to 8"));
  CHECK_THAT(refused_with(place, {"plugins.options={ mode = \"fp8\" }"}),
             ContainsSubstring("asks for the precision mode \"fp8\"") && ContainsSubstring("bf16-true"));
  CHECK_THAT(refused_with(place, {"plugins.options={ parameters = \"block.*\" }"}),
             ContainsSubstring("no matrix of the model matches the patterns of the plug-in: block.*"));
  CHECK_THAT(refused_with(place, {"strategy.name=ddp", "devices.mesh={ tensor = 2 }"}),
             ContainsSubstring("cannot be combined with a tensor axis"));
  const auto text = slurp(place.path() / "tiny.toml");
  place.write("tiny.toml", "precision = \"bf16-mixed\"\n" + text);
  CHECK_THAT(refused_with(place, {}), ContainsSubstring("tiny.toml:1:") &&
                                          ContainsSubstring("a plug-in decides the precision") &&
                                          ContainsSubstring("precision = \"libparts.so\""));
  place.write("tiny.toml", text + "[fine_tune]\nmethod = \"lora\"\nquantization = \"nf4\"\n");
  CHECK_THAT(refused_with(place, {}), ContainsSubstring("a plug-in cannot convert parameters that are stored in 4"));
  place.write("tiny.toml", text);
  place.write("libparts.so", "no library");
  CHECK_THAT(refused_with(place, {}),
             ContainsSubstring("tiny.toml:") && ContainsSubstring("plugins.precision: cannot load"));

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string source = example_parts();
    const auto at = source.find(from);
    REQUIRE(at != std::string::npos);
    build_torch_parts(place.path(), source.replace(at, from.size(), to));
    return refused_with(place, {});
  };
  CHECK_THAT(with("RUNNER_TORCH_PARTS(.precision", "RUNNER_TORCH_PARTS(.version = 99, .precision"),
             ContainsSubstring("was built for version 99 of the interface of parts, and this program has version 2"));
  CHECK_THAT(with("RUNNER_TORCH_PARTS(.precision", "RUNNER_TORCH_PARTS(.torch_version = \"1.0\", .precision"),
             ContainsSubstring("was built with LibTorch 1.0"));
}
