#include "runner/commands/run_progress.hpp"

#include <cmath>

#include "runner/base/metric_names.hpp"
#include "runner/base/metric_text.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/run_row.hpp"
#include "runner/launch/event_kinds.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

RunProgress::RunProgress(const Recipe& recipe, const Plan& plan, std::function<std::vector<std::string>()> places)
    : kept_(recipe.run.fast_dev_run == 0),
      world_size_(plan.job.world_size()),
      unit_(unit_of(plan)),
      confirms_bytes_(recipe.train.micro_batch_size == Recipe::automatic ? plan.memory.total() : 0),
      places_(std::move(places)) {
  options_.total_steps = recipe.run.fast_dev_run > 0 ? recipe.run.fast_dev_run : recipe.train.max_steps.value_or(0);
  options_.print_every_n_steps = recipe.train.print_every_n_steps;
}

void RunProgress::replan(const Plan& plan) {
  world_size_ = plan.job.world_size();
  if (confirms_bytes_ > 0) confirms_bytes_ = plan.memory.total();
}

void RunProgress::begin(const AttemptStart& attempt) {
  ready_ = 0;
  if (attempt.restart > 0) return;
  progress_.reset();
  progress_ = std::make_unique<Progress>(options_);
  if (kept_)
    progress_->line(fmt::format("run {}, {}, in {}", attempt.run, one_line(attempt.row.name), attempt.folder.string()));
  for (const auto& place : places_()) progress_->line("metrics also in " + place);
  progress_->phase("starting " + counted(world_size_, "worker"));
}

void RunProgress::points(const PointGroup& group) {
  if (group.from == PointGroup::From::step) show_step(group);
  if (group.from == PointGroup::From::validation) show_validation(group);
}

void RunProgress::show_step(const PointGroup& group) {
  const double bytes = group.value(metric::memory_bytes).value_or(0);
  if (confirms_bytes_ > 0 && group.step >= 2) {  // the optimizer state exists from the second step on
    progress_->line(fmt::format("the micro-batch was chosen by prediction: {} a rank predicted, {} measured",
                                format_bytes(static_cast<double>(confirms_bytes_)), format_bytes(bytes)));
    confirms_bytes_ = 0;
  }
  StepReport report;
  report.step = group.step;
  report.epoch = group.event.value("epoch", int64_t{0});
  report.loss = group.value(metric::loss).value_or(std::nan(""));
  report.lr = group.value(metric::lr).value_or(0);
  report.grad_norm = group.value(metric::grad_norm);
  report.tokens_per_s = group.value(rate_metric(unit_)).value_or(0);
  report.unit = unit_;
  report.memory_bytes = static_cast<int64_t>(bytes);
  report.data_wait_share = group.value(metric::data_wait_share).value_or(0);
  progress_->step(report);
}

void RunProgress::show_validation(const PointGroup& group) {
  std::vector<std::string> values;
  for (const auto& point : group.points) values.push_back(point.name + " " + metric_text(point.value));
  progress_->validation(group.step, join(values, "  "));
}

void RunProgress::ready(const nlohmann::json& fields) {
  if (auto steps = fields.find("steps"); steps != fields.end() && steps->is_number_integer())
    progress_->set_total(*steps);
  if (++ready_ == world_size_) progress_->phase("first step");
}

void RunProgress::event(const std::string& kind, const nlohmann::json& fields) {
  if (!progress_) return;
  if (kind == "printed") progress_->line(fields.value("text", ""));
  if (kind == "ready") ready(fields);
  if (kind == "note" || (kind == "skipped" && !std::exchange(skipped_, true)))
    progress_->line("note: " + fields.value("message", ""));
  if (const auto* trouble = find_trouble(kind); trouble && trouble->is_warning)
    progress_->line("warning: " + fields.value("message", ""));
  if (kind == "restart")
    progress_->line(fmt::format("restart {}: {}", fields.value("attempt", 0), fields.value("why", "")));
  if (kind == "sample" && fields.contains("text")) {
    progress_->line(fmt::format("sample at step {}:", fields.value("step", int64_t{0})));
    for (const auto& line : split(trim(fields.value("text", "")), '\n')) progress_->line("  " + line);
  }
}

}  // namespace runner
