// Optimizers, groups and averages in complete runs: kills and resumes, logged rates, validation and export of averaged weights.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

#include "strategies/optimizer/optimizer_spec.hpp"
#include "tests/commands/resume_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string optimizer_section(const std::string& name) {
  return "[optimizer]\nname = \"" + name + "\"\nlr = " + (name == "lion" ? "3e-4" : "3e-3") + "\n" +
         (name == "sgd" ? "momentum = 0.9\n" : "");
}

/// The values of a metric by step.
std::map<int64_t, double> metric(const Workplace& place, const std::string& name) {
  std::map<int64_t, double> values;
  const auto result = place.run({"metrics", "last", "--name", name, "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto json = result.json();
  for (const auto& point : json.at("points")) values[point.at(0)] = point.at(1);
  return values;
}

}  // namespace

TEST_CASE("a killed run of every optimizer ends bit-equal after a resume", "[e2e][optimizers]") {
  std::vector<std::string> sections_of = {
      optimizer_section("adamw") +
      "[[optimizer.groups]]\npattern = \"*.mlp*.weight\"\nname = \"muon\"\n"
      "[[optimizer.groups]]\npattern = \"*norm*\"\nname = \"sgd\"\nmomentum = 0.9\n"};
  for (const auto& spec : runner::optimizers())
    if (spec.name != "adam")
      sections_of.push_back(optimizer_section(spec.name));  // adam differs from adamw in the decay only
  EveryNth chosen(2);
  for (const auto& section : sections_of) {
    if (!chosen()) continue;
    INFO(section);
    const std::string sections = fsdp + section;
    const End expected = undisturbed(sections, 10);
    Workplace place;
    write_tiny_recipe(place, sections + checkpoints);
    const pid_t pid =
        place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=10", "train.val_check_interval=3"});
    REQUIRE(wait_until([&] { return has_checkpoint(place, 2); }, 60));
    ::kill(pid, SIGKILL);
    place.finish(pid);
    check_end(place, place.run({"resume", "last", "--json"}), expected);
  }
}

TEST_CASE("validation and export of schedule_free_adamw use the average of the weights", "[e2e][optimizers]") {
  Workplace place;
  const std::string sections = fsdp + optimizer_section("schedule_free_adamw");
  write_tiny_recipe(place, sections);
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=30", "model.dropout=0"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const double average_loss = metric(place, "val_loss").at(30);
  REQUIRE(place.run({"export", "last", "--output", "exported"}).code == 0);
  const auto loss_of = [&](const std::string& folder) {
    auto again = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=1", "model.dropout=0",
                            "optimizer.lr=0", "optimizer.name=adamw", "model.init_from=\"" + folder + "\""});
    INFO(again.err);
    REQUIRE(again.code == 0);
    return metric(place, "val_loss").at(1);
  };
  CHECK_THAT(loss_of("exported"), Catch::Matchers::WithinRel(average_loss, 1e-5));
}

TEST_CASE("rates of groups are recorded, and patterns without a parameter are refused", "[e2e][optimizers]") {
  Workplace place;
  write_tiny_recipe(place,
                    "[strategy]\nname = \"ddp\"\n[optimizer]\nlr = 1e-3\n"
                    "[[optimizer.groups]]\nparams = [\"*.bias\", \"*norm*\"]\nlr_factor = 2.0\nweight_decay = 0.0\n"
                    "[[optimizer.groups]]\npattern = \"head.*\"\nlr = 5e-4\n"
                    "[lr_scheduler]\nname = \"linear\"\nwarmup_steps = 2\n");
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=4"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto whole = metric(place, "lr"), twice = metric(place, "lr/*.bias *norm*");
  REQUIRE(whole.size() == 4);
  for (const auto& [step, rate] : whole) CHECK_THAT(twice.at(step), Catch::Matchers::WithinAbs(2 * rate, 1e-12));
  const auto wrong = place.run({"check", "tiny.toml", "--set", "optimizer.groups=[{params=[\"*.biass\"], lr=1.0}]"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err + wrong.out,
             ContainsSubstring("no parameter matches the pattern `*.biass` of optimizer.groups"));
}

TEST_CASE("lora_plus_ratio multiplies the rate of B", "[e2e][optimizers][fine_tune]") {
  Workplace place;
  write_tiny_recipe(
      place,
      "[strategy]\nname = \"ddp\"\n[optimizer]\nlr = 1e-3\n[fine_tune]\nmethod = \"lora\"\nlora_plus_ratio = 16\n");
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=2"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(metric(place, "lr/lora_b").at(2), Catch::Matchers::WithinRel(1.6e-2, 1e-9));
}
