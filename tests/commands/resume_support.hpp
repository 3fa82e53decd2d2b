// What the tests of interrupted and continued runs share: recipes, the state at the end, events.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/support/command.hpp"

namespace runner::testing {

inline const std::string fsdp = "[strategy]\nname = \"fsdp\"\n";
inline const std::string checkpoints = "[checkpoint]\nevery_n_steps = 2\nkeep_last = 0\n";

/// Every tensor of a run's last checkpoint, byte for byte.
inline std::map<std::string, std::string> final_state(const std::string& run_dir) {
  auto list = runner::list_checkpoints(fs::path(run_dir) / "checkpoints");
  REQUIRE_FALSE(list.empty());
  runner::Checkpoint checkpoint(list.back());
  std::map<std::string, std::string> state;
  for (const auto& name : checkpoint.tensors()) {
    int64_t count = 1;
    for (int64_t size : checkpoint.shape(name)) count *= size;
    std::string bytes(static_cast<size_t>(count * runner::dtype_bytes(checkpoint.dtype(name))), '\0');
    checkpoint.read(name, 0, count, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    state[name] = std::move(bytes);
  }
  return state;
}

inline std::string only_run_dir(const Workplace& place) {
  for (const auto& entry : fs::directory_iterator(place.home() / "runs")) return entry.path().string();
  return "";
}

inline bool has_checkpoint(const Workplace& place, int count) {
  if (!fs::exists(place.home() / "runs")) return false;
  auto dir = only_run_dir(place);
  return !dir.empty() && fs::exists(fs::path(dir) / "checkpoints") &&
         static_cast<int>(runner::list_checkpoints(fs::path(dir) / "checkpoints").size()) >= count;
}

struct End {
  double loss;
  std::map<std::string, std::string> state;
};

inline End undisturbed(const std::string& strategy = fsdp, int64_t steps = 40) {
  Workplace place;
  write_tiny_recipe(place, strategy + checkpoints);
  auto result = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=" + std::to_string(steps)});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return {result.json().at("final_loss"), final_state(result.json().at("run_dir"))};
}

inline void check_end(const Workplace& place, const CommandResult& result, const End& expected) {
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("final_loss").get<double>() == expected.loss);
  CHECK(final_state(only_run_dir(place)) == expected.state);
}

inline nlohmann::json events_of(const Workplace& place, const std::string& kind) {
  nlohmann::json run = place.run({"show", "last", "--json"}).json(), events = nlohmann::json::array();
  for (const auto& event : run.at("events"))
    if (event.at("event") == kind) events.push_back(event);
  return events;
}

}  // namespace runner::testing
