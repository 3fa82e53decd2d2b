#include "runner/commands/run_result.hpp"

#include <algorithm>
#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quantile.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/provenance.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/report/profile_table.hpp"

namespace runner {

namespace {

/// The rows of a step of the plan if accumulate_grad_batches changes between epochs; 0 if all steps are like those of
/// the plan. The plan predicts the time of a step in epoch 0.
int64_t rows_if_steps_differ(const Plan& plan) {
  const auto& train = plan.recipe.train;
  const bool differ =
      !train.global_batch_size && train.accumulate_grad_batches && train.accumulate_grad_batches->size() > 1;
  return differ ? global_batch_size(plan.recipe, plan.job.data_ranks(), 0) : 0;
}

nlohmann::json or_null(const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

}  // namespace

RunResult::RunResult(std::string run, std::string run_dir, const Recipe& recipe, const Plan& plan,
                     const LaunchOptions& options, double started)
    : run_(std::move(run)),
      run_dir_(std::move(run_dir)),
      json_(options.json),
      kept_(recipe.run.fast_dev_run == 0),
      started_(started),
      monitor_(recipe.checkpoint.monitor),
      unit_(unit_of(plan)),
      timed_step_rows_(rows_if_steps_differ(plan)) {}

void RunResult::replan(const Plan& plan) {
  timed_step_rows_ = rows_if_steps_differ(plan);
  const auto gone = [&](const auto& entry) { return entry.first >= plan.job.world_size(); };
  std::erase_if(peak_bytes_, gone);
  std::erase_if(peak_resident_, gone);
  std::erase_if(wait_shares_, gone);
}

void RunResult::begin(const AttemptStart& attempt) {
  steps_ = attempt.from_step;
  final_loss_ = attempt.ledger.last_value(run_, metric::loss);
  if (monitor_ != metric::loss) monitor_value_ = attempt.ledger.last_value(run_, monitor_);
}

void RunResult::points(const PointGroup& group) {
  if (group.from == PointGroup::From::step) take_step(group);
  if (monitor_ != metric::loss)
    if (const auto value = group.value(monitor_)) monitor_value_ = value;
}

void RunResult::take_step(const PointGroup& group) {
  const double seconds = group.value(metric::step_seconds).value_or(0);
  steps_ = group.step;
  final_loss_ = group.value(metric::loss);
  if (!first_step_s_) {
    first_step_s_ = steady_seconds() - started_;
    return;
  }
  timed_tokens_ += group.event.at("tokens").get<double>();
  timed_seconds_ += seconds;
  const bool as_predicted = timed_step_rows_ == 0 || group.event.at("rows") == timed_step_rows_;
  if (as_predicted) step_seconds_.push_back(seconds);
}

void RunResult::event(const std::string& kind, const nlohmann::json& fields) {
  if (kind == "memory") {
    peak_bytes_[fields.at("rank")] = fields.at("peak_bytes");
    peak_resident_[fields.at("rank")] = fields.at("rss_peak_bytes");
    lost_share_ = std::max(lost_share_, fields.value("lost_share", 0.0));
  }
  if (kind == "stopping" && fields.value("reason", "") != "asked to stop")
    stopped_by_ = fmt::format("stopped at step {} by {}", fields.value("step", int64_t{0}), fields.value("reason", ""));
  if (kind == "finished") {
    steps_ = fields.at("step");
    skipped_steps_ = fields.value("skipped_steps", int64_t{0});
    if (fields.at("final_loss").is_number()) final_loss_ = fields.at("final_loss").get<double>();
  }
  if (kind == "skipped") skipped_steps_ = fields.value("total", int64_t{0});
  if (kind == "profile") profile_ = fields;
  if (kind == "pipeline") wait_shares_[fields.at("rank")] = fields.at("wait_share");
  if (kind == "trace") traced_ = true;
}

nlohmann::json RunResult::line(const Outcome& outcome) const {
  auto per_rank = nlohmann::json::array(), resident = nlohmann::json::array();
  for (const auto& [rank, bytes] : peak_bytes_) per_rank.push_back(bytes);
  for (const auto& [rank, bytes] : peak_resident_) resident.push_back(bytes);
  nlohmann::json failure;
  if (outcome.status == "failed") failure = {{"kind", outcome.kind}, {"message", outcome.first_cause}};
  return {{"schema", 1},
          {"run", run_},
          {"status", outcome.status},
          {"steps", steps_},
          {"restarts", outcome.restarts},
          {"failure", failure},
          {"final_loss", or_null(final_loss_)},
          {"metric", monitor_value_ ? monitor_ : metric::loss},  // as in `runner ls`
          {"metric_value", or_null(monitor_value_ ? monitor_value_ : final_loss_)},
          {rate_metric(unit_), timed_seconds_ > 0 ? nlohmann::json(timed_tokens_ / timed_seconds_) : nlohmann::json()},
          {"peak_memory_bytes_per_rank", per_rank},
          {"peak_resident_bytes_per_rank", resident},
          {"time_to_first_step_s", or_null(first_step_s_)},
          {"prepare_data_s", or_null(data_seconds_)},
          {"run_dir", kept_ ? nlohmann::json(run_dir_) : nlohmann::json()}};
}

nlohmann::json RunResult::measured(const Outcome& outcome) const {
  auto measured = line(outcome);
  for (const auto& [rank, bytes] : peak_bytes_)
    measured["memory_bytes_per_rank"] = std::max<int64_t>(bytes, measured.value("memory_bytes_per_rank", int64_t{0}));
  if (!step_seconds_.empty()) {
    const double median = quantile(step_seconds_, 0.5);
    measured["step_seconds"] = median;
    constexpr size_t enough = 5;  // steps needed for the spread; later predictions use only runs with a spread
    if (step_seconds_.size() >= enough)
      measured["step_seconds_spread"] =
          (quantile(step_seconds_, 0.75) - quantile(step_seconds_, 0.25)) / (2 * std::max(median, 1e-9));
    measured["lost_share"] = lost_share_;
  }
  if (!wait_shares_.empty()) {
    double sum = 0;
    for (const auto& [rank, share] : wait_shares_) sum += share;
    measured["pipeline_wait_percent"] = 100 * sum / static_cast<double>(wait_shares_.size());
  }
  if (skipped_steps_ > 0) measured["skipped_steps"] = skipped_steps_;
  return measured;
}

std::string RunResult::why(const Outcome& outcome) const {
  const bool ended_early = outcome.status == "finished" && outcome.first_cause.empty();
  return ended_early ? stopped_by_ : outcome.first_cause;
}

void RunResult::end(const RunEnd& end) {
  if (json_) print_json(line(end.outcome));
  if (!end.caller_tells_why) summarize(end.outcome);
}

std::string RunResult::final_metrics() const {
  std::string text;
  if (monitor_value_) text += fmt::format(", {} {}", monitor_, metric_text(*monitor_value_));
  if (final_loss_) text += ", loss " + metric_text(*final_loss_);
  if (timed_seconds_ > 0) text += fmt::format(", {} {}/s", format_count(timed_tokens_ / timed_seconds_), unit_);
  return text.empty() ? text : ":" + text.substr(1);
}

void RunResult::print_profile() const {
  if (profile_.is_object()) std::fputs(profile_text(profile_).c_str(), stderr);
  if (!traced_ || !kept_) return;
  if (const auto trace = join_traces(run_dir_); !trace.empty())
    log::info("trace of all ranks: {} (open it in Perfetto or chrome://tracing)", trace.string());
}

void RunResult::say_how_to_continue(const Outcome& outcome) const {
  log::info("logs of all ranks: {}/logs", run_dir_);
  const bool resumable =
      outcome.code != ExitCode::usage && !list_checkpoints(fs::path(run_dir_) / "checkpoints").empty();
  if (resumable && outcome.kind == "nonfinite")
    log::info(
        "continue with other settings, because a resume repeats the same steps: runner resume {} --set "
        "optimizer.lr=...",
        run_);
  else if (resumable)
    log::info("continue with: runner resume {}", run_);
}

void RunResult::summarize(const Outcome& outcome) const {
  print_profile();
  if (outcome.code == ExitCode::run_failed || outcome.code == ExitCode::environment ||
      outcome.code == ExitCode::usage) {
    log::error("{}", outcome.first_cause);
    if (kept_) say_how_to_continue(outcome);
    return;
  }
  std::string restarts = outcome.restarts > 0 ? " and " + counted(outcome.restarts, "restart") : "";
  std::string why = outcome.code == ExitCode::done && !stopped_by_.empty() ? fmt::format(" ({})", stopped_by_) : "";
  log::info("{} after {}{}{}{}", outcome.status, counted(steps_, "step"), restarts, why, final_metrics());
  if (skipped_steps_ > 0)
    log::warning(
        "{} of {} steps were skipped, because their loss or a gradient was not finite (train.on_nonfinite = "
        "\"skip\")",
        skipped_steps_, steps_);
  if (!kept_) return;
  if (outcome.code == ExitCode::done)
    log::info("more: runner show {}", run_);
  else
    log::info("continue with: runner resume {}", run_);
}

}  // namespace runner
