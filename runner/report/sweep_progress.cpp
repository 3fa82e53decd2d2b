#include "runner/report/sweep_progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

/// "12 of 40 trials, 2 running, 3 pruned, 1 failed, best 2.3112 (trial 7), 3m 20s".
std::string sweep_line(const SweepCounts& counts, double seconds) {
  int64_t ended = counts.finished + counts.pruned + counts.failed;
  std::string text =
      counts.total ? fmt::format("{} of {} trials", ended, *counts.total) : fmt::format("{} trials", ended);
  if (counts.running > 0) text += fmt::format(", {} running", counts.running);
  if (counts.pruned > 0) text += fmt::format(", {} pruned", counts.pruned);
  if (counts.failed > 0) text += fmt::format(", {} failed", counts.failed);
  if (counts.best) text += fmt::format(", best {:.6g} (trial {})", *counts.best, counts.best_trial);
  return text + ", " + format_duration(seconds);
}

}  // namespace

SweepProgress* SweepProgress::shown = nullptr;

void SweepProgress::erase() const {
  if (terminal_ && !last_.empty()) std::fputs("\r\x1b[K", stderr);
}

void SweepProgress::draw() const {
  if (terminal_ && !last_.empty()) std::fputs(cut_to_width(last_, terminal_width(STDERR_FILENO)).c_str(), stderr);
}

SweepProgress::SweepProgress() : terminal_(can_redraw(STDERR_FILENO)), begun_(steady_seconds()) {
  shown = this;
  log::set_interleave([] { shown->erase(); }, [] { shown->draw(); });
}

SweepProgress::~SweepProgress() {
  erase();
  log::set_interleave(nullptr, nullptr);
  shown = nullptr;
}

void SweepProgress::update(const SweepCounts& counts) {
  constexpr double redraw_interval = 0.2;
  double now = steady_seconds();
  if (!terminal_ || now - drawn_at_ < redraw_interval) return;
  drawn_at_ = now;
  erase();
  last_ = sweep_line(counts, now - begun_);
  draw();
}

void SweepProgress::line(const std::string& text) {
  erase();
  std::fputs((text + "\n").c_str(), stderr);
  draw();
}

}  // namespace runner
