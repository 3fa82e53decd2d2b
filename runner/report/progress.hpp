// What a person sees while a run goes on: a bar on a terminal (step, loss, tokens/s, memory, ETA), plain lines
// otherwise. On stderr.
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
  int64_t memory_bytes = 0;
  double data_wait_share = 0;  ///< of the step's time
};

/// At most one at a time: log lines step aside for it. Any thread may call it.
class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;          ///< 0 = unknown
    int64_t print_every_n_steps = 1;  ///< plain lines: at most one each n steps and at most two a second
    std::optional<bool>
        terminal;   ///< draw a bar; default: stderr is a terminal that is not dumb. Colour follows log::color()
    int width = 0;  ///< 0 = ask the terminal at each redraw
    std::function<double()> clock = steady_seconds;
  };
  explicit Progress(Options options);
  ~Progress();  ///< leaves the last state on the screen and a newline
  /// Options::total_steps, once it is known.
  void set_total(int64_t steps);
  void step(const StepReport& report);
  void validation(int64_t step, double loss);
  /// A line above the bar.
  void line(const std::string& text);
  /// Before the first step: what is being waited for ("starting 2 workers", "loading weights"), with elapsed seconds.
  void phase(const std::string& text);
  void tick();  ///< redraw at most 10 times a second

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
