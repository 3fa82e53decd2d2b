// Runs the server of `runner ui` until it is interrupted, with the functions of higher layers that the command gives it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/ui/guard.hpp"

namespace runner::ui {

/// Devices that the user imagines. 0: as in the recipe.
struct ImaginedDevices {
  std::string kind;  ///< a device kind, e.g. "h100-80g"; empty: this machine's devices
  int devices = 0, num_nodes = 0;
  std::string host_memory = {};  ///< of a node, e.g. "256GiB"; empty: unlimited
};

struct Hooks {
  /// The answer of `runner recommend --json` for the recipe of a run, the object of Ledger::show(). Throws Error.
  std::function<nlohmann::json(const nlohmann::json& run, const ImaginedDevices& devices)> recommend;
  /// The names of the device kinds that the planner knows.
  std::function<std::vector<std::string>()> device_kinds;
  /// {best: {trial ..., command}, importance: {parameter: share} or null, scales: {parameter: "log", "value" or "category"}} of a sweep.
  std::function<nlohmann::json(const SweepRow& sweep, const std::vector<TrialRow>& trials)> sweep_summary;
  /// The best checkpoint of a run, from the object of Ledger::show(); null if there is none.
  std::function<nlohmann::json(const Ledger& ledger, const nlohmann::json& run)> best_checkpoint;
  /// An event of a run as a line of text, as `runner show` prints it.
  std::function<std::string(const nlohmann::json& event)> event_text;
  std::string version;
};

struct UiOptions {
  std::string home;  ///< folder of the ledger, which need not exist yet
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: the first free one from default_port on
  Access access = {};
};

constexpr int default_port = 8787;

/// Prints the page's address on stdout and serves until SIGINT or SIGTERM. Throws Error(environment) if it cannot listen.
void serve(const UiOptions& options, const Hooks& hooks);

}  // namespace runner::ui
