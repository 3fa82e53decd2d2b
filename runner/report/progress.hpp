// The progress display of a run, on stderr: a bar on a terminal (step, loss, tokens/s, memory, ETA), otherwise plain lines;
// and the lines themselves.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runner/base/clock.hpp"

namespace runner {

struct StepReport {
  int64_t step = 0;
  int64_t epoch = 0;
  double loss = 0, lr = 0;
  std::optional<double> grad_norm;
  double tokens_per_s = 0;
  std::string unit = "tokens";  ///< what tokens_per_s counts
  int64_t memory_bytes = 0;
  double data_wait_share = 0;  ///< share of the step's time spent waiting for data, 0 to 1
};

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

/// Prints the progress. Log messages appear above the bar. There may be only one object at a time. Thread-safe.
class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;          ///< 0 = unknown
    int64_t print_every_n_steps = 1;  ///< plain lines: at most one in n steps and at most two in a second
    std::optional<bool>
        terminal;  ///< draw a bar; default: whether stderr is a terminal and TERM is not dumb. log::color() decides on color
    int width = 0;  ///< 0 = query the terminal's width at each redraw
    std::function<double()> clock = steady_seconds;
  };
  explicit Progress(Options options);
  ~Progress();  ///< prints the last state and a newline
  /// Sets Options::total_steps, once it is known.
  void set_total(int64_t steps);
  void step(const StepReport& report);
  /// `metrics`: "val_loss 2.2500".
  void validation(int64_t step, const std::string& metrics);
  /// Prints a line above the bar.
  void line(const std::string& text);
  /// Shows what happens before the first step ("starting 2 workers", "loading weights"), with elapsed seconds.
  void phase(const std::string& text);
  void tick();  ///< redraws the bar, at most 10 times a second

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
