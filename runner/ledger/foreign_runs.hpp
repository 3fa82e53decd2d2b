// Runs that another program has recorded, added to the ledger.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ledger/merge.hpp"

namespace runner {

/// A run as another program has recorded it.
struct ForeignRun {
  std::string origin;  ///< what identifies it there; importing the same origin again adds no second run
  std::string name;
  std::string status = "finished";  ///< as finish_run(), or lost
  std::string group = "", notes = "", host = "";
  std::vector<std::string> tags = {};
  nlohmann::json config = nlohmann::json::object();  ///< parameters, nested by the dots in their names
  double started = 0;                                ///< Unix seconds
  std::optional<double> ended = {};
  std::vector<MetricPoint> points = {};
};

/// Adds the runs in one transaction: a kill leaves all of them or none. `kind`: mlflow, wandb, tensorboard or csv. A run that was
/// imported before and has not changed there is `unchanged`; otherwise its points and parameters are replaced, and what users have
/// edited here (name, tags, notes, group) stays.
std::vector<MergedRun> add_foreign_runs(const std::string& home, const std::string& kind, const std::string& source,
                                        const std::vector<ForeignRun>& runs);

/// Where a run came from that was imported, also in a bundle: "mlflow (/path/mlflow.db)". Empty if this ledger has recorded it.
std::string imported_from(const std::string& home, const std::string& run);

/// Sets `value` in `config` at a name with dots: "optimizer.lr" in {"optimizer": {"lr": ...}}. A text that is a number, true or
/// false becomes that.
void set_parameter(nlohmann::json& config, const std::string& name, const std::string& value);
void set_parameter(nlohmann::json& config, const std::string& name, const nlohmann::json& value);

}  // namespace runner
