// `runner export --bundle` and `--metrics`: the record of runs, for another ledger or another program.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

struct RecordExport {
  bool bundle = false;
  std::string files;    ///< what a bundle has of the runs' folders
  std::string metrics;  ///< the format of the points; empty: not asked for
  bool asked() const { return bundle || !metrics.empty(); }
};

void add_record_options(CLI::App& app, RecordExport& record);

/// `words`: runs, or a filter. `output`: the file or folder; may be empty for formats that are text. With `json`, prints what was written.
ExitCode export_records(const RecordExport& record, const std::vector<std::string>& words, std::string output,
                        bool json);

}  // namespace runner
