// Helpers of the tests of sweeps from the command line: trials without training, and the state of a sweep.
#pragma once
#include <catch2/catch_test_macros.hpp>

#include "tests/support/command.hpp"

namespace runner::testing {

/// A worker that computes its losses from the recipe's lr. It emits max_steps steps with a pause of $PAUSE seconds
/// before each. If VALIDATE is set, it also emits them as validation losses.
inline const std::string made_up_worker = R"sh(
while [ $# -gt 0 ]; do [ "$1" = --run-dir ] && dir=$2; shift; done
lr=$(sed -n 's/^lr = //p' $dir/resolved.toml | head -n 1)
steps=$(sed -n 's/^max_steps = //p' $dir/resolved.toml)
emit '{"event":"ready","steps":'$steps'}'
awk -v lr=$lr -v steps=$steps 'BEGIN { off = log(lr) / log(10) + 3
  for (s = 1; s <= steps; ++s) printf "{\"event\":\"step\",\"step\":%d,\"epoch\":0,\"loss\":%.12f,\"lr\":%s,\"grad_norm\":1,\"tokens\":9,\"seconds\":1,\"data_wait_s\":0,\"memory_bytes\":1,\"skipped\":false}\n", s, 1 + off * off + 2 / s, lr }' |
while read -r line; do sleep ${PAUSE:-0}; emit "$line"
  if [ -n "$VALIDATE" ]; then
    emit "$(echo "$line" | sed 's/^{"event":"step",/{"event":"validation",/; s/"epoch".*"loss"/"loss"/; s/,"lr".*/}/')"
  fi
done
)sh";

inline const std::string lr_space = "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-5, 1e-1] }\n";

/// Writes sweep.toml, a sweep of the tiny recipe.
inline void write_sweep(const Workplace& place, const std::string& method, const std::string& rest, int steps = 3) {
  write_tiny_recipe(place);
  place.write("sweep.toml", "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = " + method +
                                "\nset = { devices = 1, \"train.max_steps\" = " + std::to_string(steps) +
                                ", \"checkpoint.save_at_end\" = true }\n" + rest);
}

/// Runs a command that must succeed.
inline CommandResult succeed(const Workplace& place, const std::vector<std::string>& words,
                             const std::map<std::string, std::string>& environment = {}) {
  auto result = place.run(words, environment);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result;
}

inline nlohmann::json status_of(const Workplace& place) { return succeed(place, {"sweep", "status", "--json"}).json(); }

/// The data that must not depend on kills: number, status, parameters and value of each trial.
inline nlohmann::json final_table(const Workplace& place) {
  auto table = nlohmann::json::array();
  auto status = status_of(place);
  for (const auto& trial : status.at("trials"))
    table.push_back({trial.at("trial"), trial.at("status"), trial.at("parameters"), trial.at("value")});
  return table;
}

/// The number of processes whose command line contains `folder`.
inline int processes_of(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    count += slurp(entry.path() / "cmdline").find(folder.string()) != std::string::npos;
  }
  return count;
}

inline bool first_trial_began(const Workplace& place) {
  if (!fs::exists(place.home() / "sweeps")) return false;
  for (const auto& entry : fs::directory_iterator(place.home() / "sweeps"))
    if (fs::exists(entry.path() / "logs/trial-0000.log")) return true;
  return false;
}

}  // namespace runner::testing
