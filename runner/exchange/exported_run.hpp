// A run with its points and the times of its steps, for formats that store a time with each value.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/ledger.hpp"

namespace runner {

struct ExportedRun {
  std::string id, folder;  ///< `folder`: a name that is unique among runs, NAME-END of the id
  nlohmann::json shown;    ///< as Ledger::show()
  std::map<std::string, std::vector<std::pair<int64_t, double>>> metrics;  ///< (step, value), sorted by step

  /// Unix seconds: the start and the training time up to the step, which the metric `seconds` has; the start if there is none.
  double time_of(int64_t step) const;
};

ExportedRun exported_run(const Ledger& ledger, const std::string& run);

/// Calls `fill` with the name of a new folder beside `output`. Then renames that folder to `output`. Throws Error(environment).
void publish_folder(const std::string& output, const std::function<void(const std::string& temporary)>& fill);

}  // namespace runner
