#include "runner/report/sweep_progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

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

struct SweepProgress::Impl {
  const bool terminal = can_redraw(STDERR_FILENO);
  double begun = steady_seconds(), drawn_at = -1e9;
  std::string last;  ///< text of the status line, redrawn after other lines

  static Impl* shown;

  void erase() const {
    if (terminal && !last.empty()) std::fputs("\r\x1b[K", stderr);
  }
  void draw() const {
    if (terminal && !last.empty()) std::fputs(cut_to_width(last, terminal_width(STDERR_FILENO)).c_str(), stderr);
  }
};

SweepProgress::Impl* SweepProgress::Impl::shown = nullptr;

SweepProgress::SweepProgress() : impl_(std::make_unique<Impl>()) {
  Impl::shown = impl_.get();
  log::set_interleave([] { Impl::shown->erase(); }, [] { Impl::shown->draw(); });
}

SweepProgress::~SweepProgress() {
  impl_->erase();
  log::set_interleave(nullptr, nullptr);
  Impl::shown = nullptr;
}

void SweepProgress::update(const SweepCounts& counts) {
  constexpr double redraw_interval = 0.2;
  double now = steady_seconds();
  if (!impl_->terminal || now - impl_->drawn_at < redraw_interval) return;
  impl_->drawn_at = now;
  impl_->erase();
  impl_->last = sweep_line(counts, now - impl_->begun);
  impl_->draw();
}

void SweepProgress::line(const std::string& text) {
  impl_->erase();
  std::fputs((text + "\n").c_str(), stderr);
  impl_->draw();
}

}  // namespace runner
