// The best checkpoint of a run: `runner show` names it, and --best uses it.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

/// The model learns to write one letter, and is validated on another one: val_loss rises from the first step on.
constexpr const char* rising = R"([model]
name = "gpt"
n_layers = 1
dim = 16
n_heads = 2
max_seq_len = 16
[data]
format = "text"
train = ["train.txt"]
validation = ["validation.txt"]
[devices]
accelerator = "cpu"
cpu_processes = 1
[optimizer]
lr = 1e-2
[train]
max_steps = 6
global_batch_size = 4
val_check_interval = 2
[checkpoint]
)";

struct RisingPlace : Workplace {
  explicit RisingPlace(const std::string& more = "") {
    write("train.txt", std::string(400, 'a'));
    write("validation.txt", std::string(100, 'b'));
    write("rising.toml", rising + more);
    const auto result = run({"run", "rising.toml", "--json"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    folder = result.json().at("run_dir").get<std::string>();
  }
  fs::path checkpoint(int step) const { return folder / fmt::format("checkpoints/step-{:06d}", step); }
  double val_loss(int step) const {
    const auto values = points("val_loss");
    for (const auto& point : values)
      if (point.at(0) == step) return point.at(1);
    return NAN;
  }
  json best() const { return run({"show", "last", "--json"}).json().at("best_checkpoint"); }
  fs::path folder;
};

void damage(const fs::path& checkpoint) {
  auto bytes = slurp(checkpoint / "rank-00000.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(checkpoint / "rank-00000.safetensors", std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("show names the best checkpoint, and --best uses it in all verbs", "[e2e][best]") {
  const RisingPlace place;
  CHECK(place.best() ==
        json({{"metric", "val_loss"}, {"value", place.val_loss(2)}, {"step", 2}, {"path", "checkpoints/step-000002"}}));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("checkpoints/step-000002, val_loss "));
  CHECK_THAT(slurp(place.folder / "resolved.toml"), ContainsSubstring("save_top_k = 1"));
  CHECK_THAT(place.run({"show", "--json"}).json().at("origins").at("checkpoint.save_top_k").get<std::string>(),
             ContainsSubstring("a checkpoint takes ") && ContainsSubstring(", not more than 1.00 GiB"));

  const auto newest = place.run({"evaluate", "last", "--json"}),
             best = place.run({"evaluate", "last", "--best", "--json"});
  INFO(best.err);
  REQUIRE(best.code == 0);
  CHECK(newest.json().at("step") == 6);
  CHECK(best.json().at("step") == 2);
  CHECK_THAT(best.json().at("metrics").at("loss").get<double>(), WithinRel(place.val_loss(2), 1e-5));
  CHECK_THAT(best.err, ContainsSubstring("is step-000002: val_loss "));
  const auto of_folder = place.run({"evaluate", place.folder.string(), "--best", "--json"});
  CHECK(of_folder.json().at("step") == 2);

  place.write("prompts.jsonl", "{\"prompt\": \"b\"}\n");
  for (const auto& words : {std::vector<std::string>{"generate", "last", "b", "--max-new-tokens", "4"},
                            {"predict", "last", "prompts.jsonl", "--max-new-tokens", "4"}}) {
    auto by_step = words, by_metric = words;
    by_step.insert(by_step.end(), {"--step", "2"});
    by_metric.emplace_back("--best");
    const auto result = place.run(by_metric);
    CHECK(result.code == 0);
    CHECK(result.out == place.run(by_step).out);
  }
  REQUIRE(place.run({"export", "last", "--output", "best", "--best"}).code == 0);
  REQUIRE(place.run({"export", "last", "--output", "second", "--step", "2"}).code == 0);
  CHECK(slurp(place.path() / "best/model.safetensors") == slurp(place.path() / "second/model.safetensors"));

  CHECK_FALSE(newest.json().contains("changed_data"));
  place.write("validation.txt", std::string(100, 'c'));
  const std::string change = "the content of " + (place.path() / "validation.txt").string() + " has changed";
  const auto changed = place.run({"evaluate", "last", "--json"});
  CHECK(changed.json().at("changed_data") == std::vector{change});
  CHECK_THAT(changed.err, ContainsSubstring("warning: the validation data have changed since the run used them: " +
                                            change + ". The loss cannot be compared with those of the run\n"));
  const auto resumed = place.run({"resume", "--set", "train.max_steps=8"});
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, ContainsSubstring("note: the validation data have changed, so later losses of validation "
                                            "are of other data: " +
                                            change));
  CHECK_FALSE(place.run({"evaluate", "last", "--json"}).json().contains("changed_data"));
}

TEST_CASE("a best checkpoint that was deleted or is damaged is named, and the next one is used", "[e2e][best]") {
  const RisingPlace place("save_top_k = 0\nevery_n_steps = 2\nkeep_last = 0\n");
  damage(place.checkpoint(2));
  CHECK(place.best().at("step") == 2);  // hashes are compared when a checkpoint is used
  auto result = place.run({"evaluate", "last", "--best", "--json"});
  REQUIRE(result.code == 0);
  CHECK(result.json().at("step") == 4);
  CHECK_THAT(result.err, ContainsSubstring("skipping checkpoint step-000002: ") && ContainsSubstring("is corrupted") &&
                             ContainsSubstring(fmt::format("val_loss was better at step 2 ({:.6g}), but there is no "
                                                           "good checkpoint of this step; checkpoint.save_top_k = 1 ",
                                                           place.val_loss(2))));
  fs::remove_all(place.checkpoint(2));
  const auto best = place.best();
  CHECK(best.at("step") == 4);
  CHECK(best.at("recorded_step") == 2);
  CHECK(best.at("recorded_value") == place.val_loss(2));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("at step 2, which has no good checkpoint"));
  result = place.run({"evaluate", "last", "--best"});
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("is step-000004: val_loss ") && ContainsSubstring("was better at step 2 ("));
  for (int step : {4, 6}) fs::remove_all(place.checkpoint(step));
  CHECK(place.best().is_null());
  result = place.run({"evaluate", "last", "--best"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("has no checkpoint in "));
}

TEST_CASE("the option --best says when there is nothing to choose", "[e2e][best]") {
  const RisingPlace place("monitor = \"loss\"\n");
  CHECK(place.best().at("step") == 6);  // the training loss falls
  CHECK(place.best().at("metric") == "loss");
  REQUIRE(place
              .run({"run", "rising.toml", "--set", "train.val_check_interval=3", "checkpoint.monitor=val_loss",
                    "train.max_steps=5", "checkpoint.every_n_steps=2", "checkpoint.save_at_end=false",
                    "checkpoint.save_top_k=0"})
              .code == 0);
  CHECK(place.best().is_null());
  auto result = place.run({"evaluate", "last", "--best", "--json"});
  CHECK(result.json().at("step") == 4);
  CHECK_THAT(result.err, ContainsSubstring("is of a step with a value of val_loss, so --best takes the newest one, "
                                           "step-000004; the best value was ") &&
                             ContainsSubstring(" at step 3; checkpoint.save_top_k = 1 keeps"));
  REQUIRE(place
              .run({"run", "rising.toml", "--unset", "data.validation", "--unset", "train.val_check_interval", "--set",
                    "checkpoint.monitor=val_loss"})
              .code == 0);
  result = place.run({"generate", "last", "b", "--best"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("--best: no good checkpoint of run ") &&
                             ContainsSubstring(" has a value of val_loss (checkpoint.monitor). A checkpoint has it if "
                                               "the run validated at its step"));

  result = place.run({"generate", place.checkpoint(6).string(), "b", "--best"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("--best chooses one of the checkpoints of a run, and " +
                                           place.checkpoint(6).string() + " is one checkpoint already"));
  REQUIRE(place.run({"export", place.folder.filename().string(), "--output", "exported"}).code == 0);
  result = place.run({"evaluate", "exported", "--data", "validation.txt", "--best"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("and exported is a model, which has one set of weights: name a run, or "
                                           "leave out --best"));
  result = place.run({"evaluate", "exported", "--step", "2"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("--step chooses one of the checkpoints of a run"));
  result = place.run({"evaluate", "last", "--best", "--step", "2"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("--step excludes --best"));
}
