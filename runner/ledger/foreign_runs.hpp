// Runs that another program has recorded, added to the ledger.
#pragma once
#include <map>
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
  double started = 0;                                ///< Unix seconds; 0: the source does not say it
  std::optional<double> ended = {};
  std::vector<MetricPoint> points = {};
  bool partial = false;  ///< other files may have more of it: points and parameters that the ledger has stay
};

/// Adds the runs, each in a transaction of its own: a kill leaves whole runs, and the same import later adds the others. The rows are
/// prepared in a temporary file, so that the ledger is locked only while they are copied. `kind`: mlflow, wandb, tensorboard or csv.
/// A run that was imported before and has not changed there is `unchanged`; otherwise its points and parameters are replaced, and
/// what users have edited here (name, tags, notes, group) stays. A run in the trash is a `conflict`. Throws Error(usage) if two runs
/// have one origin, and Error(environment).
std::vector<MergedRun> add_foreign_runs(const std::string& home, const std::string& kind, const std::string& source,
                                        std::vector<ForeignRun> runs);

/// Where a run came from that was imported, also in a bundle: "mlflow (/path/mlflow.db)". Empty if this ledger has recorded it.
std::string imported_from(const std::string& home, const std::string& run);
/// The program or bundle that each imported run came from: id -> "mlflow".
std::map<std::string, std::string> imported_kinds(const std::string& home);

/// Sets `value` in `config` at a name with dots: "optimizer.lr" in {"optimizer": {"lr": ...}}. Where a part of the name has a value
/// itself, as in "a" and "a.b", the longer name keeps its dots: {"a": ..., "a.b": ...}. A text that is true, false or a number as
/// programs write it becomes that; other texts of digits, such as "007" and ids, stay texts.
void set_parameter(nlohmann::json& config, const std::string& name, const std::string& value);
void set_parameter(nlohmann::json& config, const std::string& name, const nlohmann::json& value);
/// Sets the settings of `later` in `config`, also those that are null.
void add_settings(nlohmann::json& config, const nlohmann::json& later);

}  // namespace runner
