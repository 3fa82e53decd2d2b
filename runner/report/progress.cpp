#include "runner/report/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

/// The wait for data is shown if it takes at least this share of the step.
constexpr double data_wait_share_shown = 0.1;
constexpr int bar_width_min = 8, bar_width_max = 40;

std::string steps(const ProgressState& state) {
  if (state.total_steps == 0) return fmt::format("step {}", state.report.step);
  const std::string total = std::to_string(state.total_steps);
  return fmt::format("step {:>{}}/{}", state.report.step, total.size(), total);
}

struct Field {
  std::string text;
  int rank;  ///< the field with the highest rank is dropped first
};

/// The fields after the step, in the order in which they are shown.
std::vector<Field> fields(const ProgressState& state) {
  const StepReport& report = state.report;
  std::vector<Field> list = {{"loss " + metric_text(report.loss), 0}};
  if (report.tokens_per_s > 0) list.push_back({format_count(report.tokens_per_s) + " " + report.unit + "/s", 2});
  if (report.memory_bytes > 0) list.push_back({"mem " + format_bytes(report.memory_bytes), 4});
  if (state.eta_seconds) list.push_back({"eta " + format_duration(*state.eta_seconds), 1});
  if (report.data_wait_share >= data_wait_share_shown)
    list.push_back({fmt::format("{:.0f} % of the step waiting for data", report.data_wait_share * 100), 3});
  return list;
}

std::string draw_bar(double share, int width, const BarStyle& style) {
  const int filled = static_cast<int>(share * width);
  std::string bar = style.color ? "\x1b[32m" : "";
  for (int i = 0; i < width; ++i) {
    if (i == filled && style.color) bar += "\x1b[0m";
    bar += i < filled ? (style.unicode ? "━" : "=") : (style.unicode ? "─" : "-");
  }
  return style.color && filled == width ? bar + "\x1b[0m" : bar;
}

constexpr double redraw_interval = 0.1, plain_interval = 0.5;
constexpr double rate_window = 60;  // seconds; the ETA is computed from the steps in this window
constexpr const char* erase_line = "\r\x1b[K";
thread_local bool in_log_line = false;  // false for a log line that began before the display was created

/// Writes `text` to stderr with one system call, so that lines of several processes do not mix.
void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;  // a closed stderr must not stop a run
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string plain_line(const ProgressState& state) {
  std::string line = steps(state);
  auto list = fields(state);
  list.insert(list.begin() + 1, {fmt::format("lr {:.2e}", state.report.lr), 0});
  if (state.report.grad_norm) list.insert(list.begin() + 2, {"grad norm " + metric_text(*state.report.grad_norm), 0});
  for (const auto& field : list) line += "  " + field.text;
  return line;
}

std::string bar_line(const ProgressState& state, const BarStyle& style) {
  const std::string head = steps(state);
  auto list = fields(state);
  const int room = style.width - 1;  // a line as wide as the terminal would wrap
  const auto used = [&] {
    int columns = display_width(head);
    for (const auto& field : list) columns += 2 + display_width(field.text);
    return columns;
  };
  const auto drop = [&](int rank) { std::erase_if(list, [&](const Field& field) { return field.rank == rank; }); };
  const int wanted = state.total_steps > 0 ? 2 + bar_width_min : 0;
  for (int rank = 4; rank > 1 && used() + wanted > room; --rank) drop(rank);
  std::string line = head;
  if (wanted > 0 && used() + wanted <= room) {
    const double share =
        std::clamp(static_cast<double>(state.report.step) / static_cast<double>(state.total_steps), 0.0, 1.0);
    line += "  " + draw_bar(share, std::min(room - used() - 2, bar_width_max), style);
  }
  if (used() > room) drop(1);
  for (const auto& field : list) line += "  " + field.text;
  // The line may still be too wide. It then has no bar, so cutting it cannot break a color sequence.
  return used() > room ? cut_to_width(line, room) : line;
}

struct Progress::Impl {
  explicit Impl(Options given)
      : options(std::move(given)), terminal(options.terminal.value_or(can_redraw(STDERR_FILENO))) {}

  std::optional<double> eta(double now) const {
    if (options.total_steps == 0 || history.size() < 2) return std::nullopt;
    const auto [first_time, first_step] = history.front();
    const auto [last_time, last_step] = history.back();
    if (last_step <= first_step) return std::nullopt;
    const double step_seconds = (last_time - first_time) / static_cast<double>(last_step - first_step);
    return std::max(0.0, step_seconds * static_cast<double>(options.total_steps - last_step) - (now - last_time));
  }

  std::string current_line(double now) const {
    const int width = options.width > 0 ? options.width : std::max(20, terminal_width(STDERR_FILENO));
    if (!phase.empty()) return cut_to_width(fmt::format("{}  {:.0f} s", phase, now - phase_since), width - 1);
    if (!report) return "";
    return bar_line({*report, options.total_steps, eta(now)}, {width, utf8_locale(), log::color()});
  }

  void draw() {
    const double now = options.clock();
    const std::string text = current_line(now);
    if (text.empty()) return;
    put(erase_line + text);
    drawn_at = now;
    on_screen = true;
  }

  void erase() {
    if (on_screen) put(erase_line);
    on_screen = false;
  }
  void redraw_if_due(double now) {
    if (terminal && now - drawn_at >= redraw_interval) draw();
  }

  void line(const std::string& text) {
    erase();
    put(one_line(text) + '\n');
    log::copy(one_line(text));
    if (terminal) draw();
  }

  /// A step as a plain line: on the screen without a bar, and in the copy.
  void plain(const std::string& text) {
    if (!terminal) put(text + '\n');
    log::copy(text);
    printed_step = report->step;
  }

  /// Called by the log around each line. They lock the mutex from before the line until after it, which prevents a
  /// redraw in between.
  static void before_log_line() {
    mutex.lock();
    in_log_line = true;
    if (shown) shown->erase();
  }
  static void after_log_line() {
    if (!in_log_line) return;
    if (shown && shown->terminal) shown->draw();
    in_log_line = false;
    mutex.unlock();
  }

  Options options;
  const bool terminal;
  std::optional<StepReport> report;
  std::string phase;
  double phase_since = 0;
  std::deque<std::pair<double, int64_t>> history;  ///< (time, step) within rate_window
  double drawn_at = -1e9, printed_at = -1e9;
  int64_t printed_step = -1;
  bool on_screen = false;  ///< the bar is in the terminal's last line

  /// The current display, or null. The mutex guards this pointer and all members above. Both are static, because
  /// another thread may log while the display is destroyed.
  static inline Impl* shown = nullptr;
  static inline std::mutex mutex;
};

Progress::Progress(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {
  std::lock_guard lock(Impl::mutex);
  RUNNER_CHECK(!Impl::shown, "a progress display is already shown");
  Impl::shown = impl_.get();
  // These callbacks are never removed: a log line that has locked the mutex must be able to unlock it.
  log::set_interleave(Impl::before_log_line, Impl::after_log_line);
}

Progress::~Progress() {
  std::lock_guard lock(Impl::mutex);
  Impl::shown = nullptr;
  impl_->phase.clear();
  if (!impl_->report) {
    impl_->erase();
    return;
  }
  if (impl_->printed_step != impl_->report->step)
    impl_->plain(plain_line({*impl_->report, impl_->options.total_steps, std::nullopt}));
  if (!impl_->terminal) return;
  impl_->draw();
  put("\n");
}

void Progress::set_total(int64_t steps) {
  std::lock_guard lock(Impl::mutex);
  impl_->options.total_steps = steps;
}

void Progress::step(const StepReport& report) {
  std::lock_guard lock(Impl::mutex);
  const double now = impl_->options.clock();
  auto& history = impl_->history;
  if (!history.empty() && report.step <= history.back().second) history.clear();  // a restart repeats steps
  history.emplace_back(now, report.step);
  while (history.size() > 2 && now - history.front().first > rate_window) history.pop_front();
  impl_->report = report;
  impl_->phase.clear();
  impl_->redraw_if_due(now);
  const bool first = impl_->printed_step < 0 || report.step < impl_->printed_step;
  const bool due = report.step - impl_->printed_step >= impl_->options.print_every_n_steps &&
                   now - impl_->printed_at >= plain_interval;
  if (!first && !due) return;
  impl_->plain(plain_line({report, impl_->options.total_steps, impl_->eta(now)}));
  impl_->printed_at = now;
}

void Progress::validation(int64_t step, const std::string& metrics) { line(fmt::format("step {}  {}", step, metrics)); }

void Progress::line(const std::string& text) {
  std::lock_guard lock(Impl::mutex);
  impl_->line(text);
}

void Progress::phase(const std::string& text) {
  std::lock_guard lock(Impl::mutex);
  if (text == impl_->phase) return;
  impl_->phase = one_line(text);
  impl_->phase_since = impl_->options.clock();
  log::copy(impl_->phase);
  if (impl_->terminal)
    impl_->draw();
  else
    put(impl_->phase + '\n');
}

void Progress::tick() {
  std::lock_guard lock(Impl::mutex);
  impl_->redraw_if_due(impl_->options.clock());
}

}  // namespace runner
