// Runs of the ledger as TensorBoard's event files.
#pragma once
#include <string>
#include <vector>

#include "runner/exchange/export_metrics.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// One folder for each run below `output`, named NAME-ID, with one event file. The time of a value is the start of the run and the
/// training time up to its step (the metric `seconds`).
ExportedMetrics export_tensorboard(const Ledger& ledger, const std::vector<std::string>& runs,
                                   const std::string& output);

}  // namespace runner
