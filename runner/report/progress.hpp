// What a person sees while a run goes on: a bar on a terminal (step, loss, tokens/s, memory, ETA), plain lines otherwise. On stderr.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

class Progress {
 public:
  /// total_steps 0 = unknown. `width` 0 = ask the terminal. Colour and bar only when `terminal` (default: log::color()).
  struct Options {
    int64_t total_steps = 0;
    int64_t log_every_n_steps = 1;  ///< plain lines: at most one each n steps and at most two a second
    int64_t first_step = 0;         ///< > 0 after resume, for the ETA
    std::optional<bool> terminal;
  };
  explicit Progress(Options options);
  ~Progress();  ///< leaves the last state on the screen and a newline
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
