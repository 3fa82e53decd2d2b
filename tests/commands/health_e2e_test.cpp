// Signs of trouble in real trainings: losses that are not finite, loss spikes, stalls; each with the samples of the step.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// first, first + 1, ...
json counted_from(int64_t first, int64_t rows) {
  auto list = json::array();
  for (int64_t i = 0; i < rows; ++i) list.push_back(first + i);
  return list;
}

}  // namespace

TEST_CASE("expectation 27: a loss that is not finite is an event with the samples of the step", "[e2e][health]") {
  Workplace place;
  write_tiny_recipe(place, fsdp);
  CHECK(place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30", "data.shuffle=false"}).code == 1);
  const json events = events_of(place, "nonfinite");
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("step") == 2);
  CHECK(events[0].at("samples") == counted_from(12, 12));
  CHECK_THAT(place.run({"show", "last"}).out, ContainsSubstring("nonfinite"));

  const auto skipped =
      place.run({"run", "tiny.toml", "--set", "optimizer.lr=1e30", "data.shuffle=false", "train.on_nonfinite=skip"});
  CHECK(skipped.code == 0);
  auto steps = json::array();
  for (const auto& event : events_of(place, "nonfinite")) steps.push_back(event.at("step"));
  CHECK(steps == json::parse("[2, 3, 5, 9, 12]"));  // the 1st, 2nd, 4th and 8th of 11, and the validation at the end
  const std::string at_the_end =
      "the last validation loss, of step 12, is nan, so the trained model is probably unusable";
  CHECK_THAT(skipped.err, ContainsSubstring("note: " + at_the_end));
  CHECK_THAT(events_of(place, "note").back().at("message").get<std::string>(), ContainsSubstring(at_the_end));

  CHECK(place
            .run({"run", "tiny.toml", "--set", "optimizer.lr=1e30", "data.shuffle=false", "train.on_nonfinite=skip",
                  "train.val_check_interval=2"})
            .code == 0);
  auto validations = json::array();
  for (const auto& event : events_of(place, "nonfinite"))
    if (event.at("message").get<std::string>().starts_with("the validation loss"))
      validations.push_back(event.at("step"));
  CHECK(validations == json::parse("[2, 4, 8]"));  // the 1st, 2nd and 4th of 6
}

TEST_CASE("expectation 27: a loss spike is an event with the samples of the step, and the command of alerts gets it",
          "[e2e][health]") {
  Workplace place;
  write_tiny_recipe(place, "[logging]\nnotify = { on = \"alert\", command = \"cat >>alerts\" }\n");
  // Two letters for 40 steps of 12 samples of 32 tokens, and then other bytes.
  std::string text;
  for (int i = 0; i < 40 * 12 * 32 / 2; ++i) text += "ab";
  for (int i = 0; i < 40 * 12 * 32; ++i) text += static_cast<char>('!' + i * 7919 % 61);
  place.write("text.txt", text);
  const auto result = place.run({"run", "tiny.toml", "--set", "data.shuffle=false", "train.max_steps=50",
                                 "model.dropout=0", "optimizer.lr=0.01"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json events = events_of(place, "loss_spike");
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("step") == 41);
  CHECK(events[0].at("samples") == counted_from(40 * 12, 12));
  CHECK(events[0].at("value").get<double>() > 2 * events[0].at("expected").get<double>());
  CHECK_THAT(result.err, ContainsSubstring("warning: the loss "));
  const json alert = json::parse(slurp(place.path() / "alerts"));
  CHECK(alert.at("kind") == "alert");
  CHECK(alert.at("event").at("samples") == events[0].at("samples"));

  CHECK(place
            .run({"run", "tiny.toml", "--set", "data.shuffle=false", "train.max_steps=50", "model.dropout=0",
                  "optimizer.lr=0.01", "health.loss_spike=0"})
            .code == 0);
  CHECK(events_of(place, "loss_spike").empty());
}

TEST_CASE("expectation 27: a step that does not end is an event while it hangs", "[e2e][health]") {
  Workplace place;
  write_tiny_recipe(place, fsdp + "[health]\nstall = 5\nstall_after = \"1s\"\n");
  const pid_t run = place.start({"run", "tiny.toml", "--set", "train.max_steps=100000"});
  const auto said = [&](const char* text) {
    return slurp(place.path() / "command.err").find(text) != std::string::npos;
  };
  REQUIRE(wait_until([&] { return fs::exists(place.home() / "ledger.db") && said("step "); }, 60));
  REQUIRE(wait_until([&] { return place.run({"metrics", "last"}).code == 0; }, 60));
  pid_t stopped = 0;  // rank 1, for which rank 0 waits
  for (const auto& event : events_of(place, "ready"))
    if (event.at("rank") == 1) stopped = event.at("pid");
  REQUIRE(stopped > 0);
  ::kill(stopped, SIGSTOP);
  const bool told = wait_until([&] { return said("warning: step "); }, 60);
  json events;  // the ledger commits within half a second
  wait_until([&] { return !(events = events_of(place, "stall")).empty(); }, 30);
  ::kill(stopped, SIGCONT);
  ::kill(run, SIGTERM);
  place.finish(run);
  CHECK(told);
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("value").get<double>() >= 1);
  CHECK(events[0].at("samples").size() == 12);
}
