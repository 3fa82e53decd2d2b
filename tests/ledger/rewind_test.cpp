// What an attempt that starts from a snapshot deletes from the record, because it produces it again.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "support.hpp"

using namespace runner;
using nlohmann::json;

TEST_CASE("an attempt drops everything after the snapshot that it starts from") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start", 0);
  auto record = [&](int64_t step, int64_t saved) {
    const std::string name = fmt::format("{} after {}", step, saved);
    ledger.event(id, "sample", {{"step", step}, {"saved", saved}, {"text", name}});
    ledger.artifact(id, "artifact", name, {{"step", step}, {"saved", saved}});
    ledger.metrics(id, {{"loss", step, static_cast<double>(step)}});
  };
  ledger.event(id, "ready", {{"pid", 1}});
  for (auto [step, saved] : {std::pair(0, 0), {1, 0}, {4, 0}, {4, 4}, {5, 4}, {8, 4}, {8, 8}}) record(step, saved);
  for (int64_t step : {4, 8})
    ledger.artifact(id, "checkpoint", "checkpoints/" + std::to_string(step), {{"step", step}, {"saved", step}});
  ledger.event(id, "stopping", {{"step", 8}});
  auto left = [&] {
    json all = ledger.show(id), names = json::array();
    for (const auto& event : all["events"]) {
      CHECK_FALSE(event.contains("saved"));
      names.push_back(event["event"] == "sample" ? event["text"] : event["event"]);
    }
    for (const auto& artifact : all["artifacts"]) names.push_back(artifact["path"]);
    for (const auto& checkpoint : all["checkpoints"]) names.push_back(checkpoint["path"]);
    names.push_back(all["metrics"]["loss"]["last"]);
    return names;
  };
  ledger.begin_attempt(id, "resume", 8);
  CHECK(left() == json{"ready", "0 after 0", "1 after 0", "4 after 0", "4 after 4", "5 after 4", "8 after 4",
                       "stopping", "0 after 0", "1 after 0", "4 after 0", "4 after 4", "5 after 4", "8 after 4",
                       "checkpoints/4", "checkpoints/8", 8.0});
  ledger.begin_attempt(id, "resume", 4);
  CHECK(left() == json{"ready", "0 after 0", "1 after 0", "4 after 0", "stopping", "0 after 0", "1 after 0",
                       "4 after 0", "checkpoints/4", 4.0});
  ledger.begin_attempt(id, "start", 0);
  CHECK(left() == json{"ready", "stopping", 0.0});
}

TEST_CASE("records of a step's completion stay if the attempt starts from the snapshot that contains it") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start", 0);
  auto texts = [&] {
    const json run = ledger.show(id);
    json all = json::array();
    for (const auto& event : run["events"]) all.push_back(event["text"]);
    return all;
  };
  ledger.event(id, "sample", {{"saved", 4}, {"text", "before"}});
  ledger.event(id, "sample", {{"saved", 9.5}, {"text", "completion"}});
  ledger.event(id, "sample", {{"saved", 10}, {"text", "after"}});
  ledger.begin_attempt(id, "resume", 10, /*completed=*/true);
  CHECK(texts() == json{"before", "completion"});
  ledger.begin_attempt(id, "resume", 10);
  CHECK(texts() == json{"before"});
}

TEST_CASE("a run that continues has no points of its earlier end, but those that they replaced") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start", 0);
  ledger.metrics(id, {{"x", 5, 1.0}, {"x", 6, 2.0}, {"y", 6, std::nan("")}});
  for (double value : {7.0, 8.0})
    ledger.metrics(id, {{"x", 6, value, true}, {"y", 6, value, true}, {"end", 6, value, true}});
  ledger.flush();
  CHECK(ledger.points(id, "x").back() == std::pair<int64_t, double>(6, 8.0));
  CHECK(ledger.points(id, "end").size() == 1);
  ledger.begin_attempt(id, "resume", 6);
  CHECK(ledger.points(id, "x") == std::vector<std::pair<int64_t, double>>{{5, 1.0}, {6, 2.0}});
  REQUIRE(ledger.points(id, "y").size() == 1);
  CHECK(std::isnan(ledger.points(id, "y")[0].second));
  CHECK(ledger.metric_names(id) == std::vector<std::string>{"x", "y"});
  CHECK(ledger.show(id)["metrics"]["x"]["last"] == 2.0);
  ledger.metrics(id, {{"end", 6, 3.0}});
  ledger.begin_attempt(id, "resume", 6);
  CHECK(ledger.points(id, "end").size() == 1);
}
