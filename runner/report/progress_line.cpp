#include "runner/report/progress_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/report/quantity.hpp"
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

}  // namespace runner
