// Formats one step of a run as one line: with a bar for terminals, plain for logs. progress.cpp decides when to show it.
#pragma once
#include <optional>
#include <string>

#include "runner/report/progress.hpp"

namespace runner {

struct ProgressState {
  StepReport report;
  int64_t total_steps = 0;  ///< 0 = unknown
  std::optional<double> eta_seconds;
};

/// "step 120/200  loss 1.2345  lr 1.00e-03  12.3 k tokens/s  mem 1.20 GiB  eta 3m 20s", and a large wait for data.
std::string plain_line(const ProgressState& state);

struct BarStyle {
  int width = 80;  ///< columns of the terminal
  bool unicode = true;
  bool color = false;
};
/// The line of plain_line() with a bar, without the learning rate. Leaves out the least important fields if the terminal is too narrow.
std::string bar_line(const ProgressState& state, const BarStyle& style);

}  // namespace runner
