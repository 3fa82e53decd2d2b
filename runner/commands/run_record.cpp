#include "runner/commands/run_record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quantile.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/config/config.hpp"
#include "runner/devices/devices.hpp"
#include "runner/report/joined_traces.hpp"
#include "runner/report/profile_table.hpp"
#include "runner/selection/script_strategy.hpp"

namespace runner {

namespace {

std::vector<std::string> command_line() {
  auto text = read_file("/proc/self/cmdline");
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return split(text, '\0');
}

NewRun new_run(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options) {
  NewRun run;
  run.name = recipe.run.name;
  run.tags = recipe.run.tags;
  run.notes = recipe.run.notes;
  run.run_dir_root = (fs::absolute(home) / "runs").string();
  run.recipe_source = read_file(options.recipe_file);
  run.resolved = print_recipe(plan.recipe);
  run.config = recipe_to_json(plan.recipe);
  run.origins = origins_to_json(plan.recipe);
  run.plan = plan.to_json();
  run.strategy = plan.entry->name;
  run.world_size = plan.job.world_size();
  run.argv = command_line();
  run.build_id = build_id();
  run.host = to_json(read_facts());
  run.sweep = options.sweep;
  run.trial = options.trial;
  return run;
}

nlohmann::json predicted(const Plan& plan) {
  nlohmann::json values = nlohmann::json::object();
  if (memory_known(*plan.entry)) values["memory_bytes_per_rank"] = plan.memory_bytes();
  if (memory_known(*plan.entry) && plan.job.accelerator.own_memory) values["host_bytes_per_rank"] = plan.host_bytes();
  if (plan.step_seconds) {
    values["step_seconds"] = *plan.step_seconds;
    values["step_seconds_error"] = plan.step_error;
  }
  if (plan.load && plan.where) values["step"] = {{"load", plan.load->to_json()}, {"where", plan.where->to_json()}};
  return values;
}

/// The rows of a step of the plan if accumulate_grad_batches changes between epochs; 0 if all steps are like those of
/// the plan. The plan predicts the time of a step in epoch 0.
int64_t rows_if_steps_differ(const Plan& plan) {
  const auto& train = plan.recipe.train;
  const bool differ =
      !train.global_batch_size && train.accumulate_grad_batches && train.accumulate_grad_batches->size() > 1;
  return differ ? global_batch_size(plan.recipe, plan.job.data_ranks(), 0) : 0;
}

}  // namespace

RunRecord::RunRecord(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
                     const StartPoint& start, CodeReader& code, double started)
    : ledger_(home, Ledger::Mode::write),
      home_(home),
      options_(options),
      provenance_(ledger_, code),
      world_size_(plan.job.world_size()),
      max_steps_(recipe.run.fast_dev_run > 0 ? recipe.run.fast_dev_run : recipe.train.max_steps.value_or(0)),
      print_every_(recipe.train.print_every_n_steps),
      kept_(recipe.run.fast_dev_run == 0),
      started_(started),
      confirms_bytes_(recipe.train.micro_batch_size == Recipe::automatic ? plan.memory.total() : 0),
      patience_(recipe.train.grace_time),
      monitor_(recipe.checkpoint.monitor),
      unit_(plan.model->task ? "samples" : "tokens"),
      timed_step_rows_(rows_if_steps_differ(plan)) {
  run_ = options.resume_run;
  NewRun run = new_run(home, recipe, plan, options);
  provenance_.describe(recipe, run);
  if (run_.empty()) {
    set_parent(options, start, recipe, home, run);
    if (!options.rerun.is_null()) Provenance::take_over(options.rerun, run);
    // In the transaction that begins the run, so that a resume starts there even if no attempt has begun.
    if (!start.checkpoint.empty()) run.annotations["start"] = fs::absolute(start.checkpoint).string();
    run_ = ledger_.begin_run(run);
  } else {
    run.last_attempt = start.seen;
    ledger_.reopen_run(run_, run);
    ledger_.annotate(run_, "scripts", run.annotations.at("scripts"));
  }
  ledger_.annotate(run_, "predicted", predicted(plan));
  run_dir_ = ledger_.run_dir(run_);
  provenance_.record(run_, kept_ ? run_dir_ : "");
  if (kept_) logs_ = MetricLogs(recipe.run.loggers, run_dir_, run.resolved);
}

void RunRecord::replan(const Recipe& recipe, const Plan& plan, const Outcome& ended) {
  progress_.reset();
  ready_ = 0;
  ledger_.finish_run(run_, ended.status, static_cast<int>(ended.code), ended.first_cause);
  NewRun run = new_run(home_, recipe, plan, options_);
  provenance_.describe(recipe, run);
  ledger_.reopen_run(run_, run);
  ledger_.annotate(run_, "predicted", predicted(plan));
  confirms_bytes_ = plan.memory.total();
  timed_step_rows_ = rows_if_steps_differ(plan);
}

void RunRecord::on_data(const std::string& summary, double seconds) {
  log::info("data: {}", summary);
  data_seconds_ = seconds;
  ledger_.annotate(run_, "data_summary", summary);
}

int64_t RunRecord::begin_attempt(const std::string& reason, const StartPoint& start) {
  fault_point("begin attempt");
  const fs::path checkpoint = start.checkpoint.empty() ? fs::path() : fs::absolute(start.checkpoint);
  const bool in_folder = in_run_folder(checkpoint, run_dir_);
  // If it is elsewhere, a resume starts from it again until this attempt writes a checkpoint.
  const bool elsewhere = !checkpoint.empty() && !in_folder;
  ledger_.annotate(run_, "start", elsewhere ? nlohmann::json(checkpoint.string()) : nlohmann::json());
  int64_t number = ledger_.begin_attempt(run_, reason, start.step, start.completed);
  steps_ = start.step;
  final_loss_ = ledger_.last_value(run_, "loss");
  if (monitor_ != "loss") monitor_value_ = ledger_.last_value(run_, monitor_);
  // The checkpoint is not recorded yet if the run was killed after the rename and before the event.
  if (in_folder)
    ledger_.artifact(run_, "checkpoint", start.checkpoint, {{"step", start.step}, {"path", start.checkpoint}},
                     /*unless_known=*/true);
  logs_.begin_attempt(start.step, ledger_, run_);
  fault_point("attempt begun");
  return number;
}

int64_t RunRecord::begin(const StartPoint& start) {
  int64_t number = begin_attempt(start.checkpoint.empty() ? "start" : "resume from " + start.checkpoint, start);
  Progress::Options options;
  options.total_steps = max_steps_;
  options.print_every_n_steps = print_every_;
  progress_ = std::make_unique<Progress>(options);
  if (kept_) progress_->line(fmt::format("run {} in {}", run_, run_dir_));
  for (const auto& path : logs_.paths()) progress_->line(fmt::format("metrics also in {}", path.string()));
  progress_->phase("starting " + counted(world_size_, "worker"));
  return number;
}

void RunRecord::on_step(const nlohmann::json& event) {
  made_step_ = true;
  double seconds = event.at("seconds"), tokens = event.at("tokens"), wait = event.at("data_wait_s");
  steps_ = event.at("step");
  final_loss_ = event.at("loss").is_number() ? event.at("loss").get<double>() : std::nan("");
  if (first_step_s_) {
    timed_tokens_ += tokens;
    timed_seconds_ += seconds;
    const bool as_predicted = timed_step_rows_ == 0 || event.at("rows") == timed_step_rows_;
    if (as_predicted) step_seconds_.push_back(seconds);
  } else {
    first_step_s_ = steady_seconds() - started_;
  }
  if (confirms_bytes_ > 0 && steps_ >= 2) {  // the optimizer state exists from the second step on
    progress_->line(fmt::format("the micro-batch was chosen by prediction: {} a rank predicted, {} measured",
                                format_bytes(static_cast<double>(confirms_bytes_)),
                                format_bytes(event.at("memory_bytes").get<double>())));
    confirms_bytes_ = 0;
  }
  StepReport report;
  report.step = steps_;
  report.epoch = event.at("epoch");
  report.loss = *final_loss_;
  report.lr = event.at("lr");
  if (event.at("grad_norm").is_number()) report.grad_norm = event.at("grad_norm").get<double>();
  report.tokens_per_s = seconds > 0 ? tokens / seconds : 0;
  report.unit = unit_;
  report.memory_bytes = event.at("memory_bytes");
  report.data_wait_share = seconds > 0 ? wait / seconds : 0;
  progress_->step(report);
  std::vector<MetricPoint> points = {{"loss", steps_, report.loss},
                                     {"lr", steps_, report.lr},
                                     {unit_ + "_per_s", steps_, report.tokens_per_s},
                                     {"step_seconds", steps_, seconds},
                                     {"data_wait_share", steps_, report.data_wait_share},
                                     {"memory_bytes", steps_, static_cast<double>(report.memory_bytes)},
                                     {"epoch", steps_, static_cast<double>(report.epoch)}};
  if (report.grad_norm) points.push_back({"grad_norm", steps_, *report.grad_norm});
  const auto group_rates = event.value("group_lr", nlohmann::json::object());  // items() must not refer to a temporary
  for (const auto& [group, rate] : group_rates.items()) points.push_back({"lr/" + group, steps_, rate.get<double>()});
  add_points(std::move(points));
}

void RunRecord::add_points(std::vector<MetricPoint> points) {
  for (const auto& point : points)
    if (point.name == monitor_ && monitor_ != "loss") monitor_value_ = point.value;
  for (const auto& point : points)
    if (point.name == options_.report_metric) {
      std::printf("%s\n", nlohmann::json{{"step", point.step}, {"value", json_number(point.value)}}.dump().c_str());
      std::fflush(stdout);
    }
  logs_.add(points);
  ledger_.metrics(run_, std::move(points));
}

void RunRecord::on_ready(const nlohmann::json& event) {
  if (auto steps = event.find("steps"); steps != event.end() && steps->is_number_integer())
    progress_->set_total(*steps);
  if (++ready_ == world_size_) progress_->phase("first step");
}

void RunRecord::on_event(const nlohmann::json& event) {
  std::string kind = event.value("event", "");
  if (kind == "step") return on_step(event);
  if (kind == "first_step") {
    made_step_ = true;
    return;
  }
  if (kind == "inputs")
    return ledger_.annotate(run_, kind, {{"data", event.at("data")}, {"init_from", event.at("init_from")}});
  if (kind == "printed") return progress_->line(event.value("text", ""));
  if (kind == "ready") on_ready(event);
  if (kind == "validation") {
    std::vector<MetricPoint> points = {{"val_loss", event.at("step"), event.at("loss")}};
    std::string text = fmt::format("val_loss {:.4f}", points.front().value);
    if (const auto metrics = event.find("metrics"); metrics != event.end())
      for (const auto& [name, value] : metrics->items()) {
        points.push_back({name, event.at("step"), value.is_null() ? std::nan("") : value.get<double>()});
        text += fmt::format("  {} {:.4f}", name, points.back().value);
      }
    progress_->validation(event.at("step"), text);
    return add_points(std::move(points));
  }
  if (kind == "memory") {
    peak_bytes_[event.at("rank")] = event.at("peak_bytes");
    peak_resident_[event.at("rank")] = event.at("rss_peak_bytes");
    lost_share_ = std::max(lost_share_, event.value("lost_share", 0.0));
  }
  if (kind == "metrics") {
    std::vector<MetricPoint> points;
    for (const auto& [name, value] : event.at("values").items())
      if (value.is_number()) points.push_back({name, event.at("step"), value, event.value("at_end", false)});
    return add_points(std::move(points));
  }
  if (kind == "artifact") {
    ledger_.artifact(run_, "artifact", event.at("path"), event);
    return;
  }
  if (kind == "checkpoint") {
    ledger_.artifact(run_, "checkpoint", event.at("path"), event);
    return;
  }
  if (kind == "stopping" && event.value("reason", "") != "asked to stop")
    stopped_by_ = fmt::format("stopped at step {} by {}", event.value("step", int64_t{0}), event.value("reason", ""));
  if (kind == "finished") {
    steps_ = event.at("step");
    skipped_steps_ = event.value("skipped_steps", int64_t{0});
    if (event.at("final_loss").is_number()) final_loss_ = event.at("final_loss").get<double>();
  }
  if (kind == "sample" && event.contains("text")) {
    progress_->line(fmt::format("sample at step {}:", event.value("step", int64_t{0})));
    for (const auto& line : split(trim(event.value("text", "")), '\n')) progress_->line("  " + line);
  }
  if (kind == "profile") profile_ = event;
  if (kind == "trace") traced_ = true;
  if (kind == "note") progress_->line("note: " + event.value("message", ""));
  if (kind == "skipped") on_skipped(event);
  ledger_.event(run_, kind, event);
}

void RunRecord::on_skipped(const nlohmann::json& event) {
  if (skipped_steps_ == 0) progress_->line("note: " + event.value("message", ""));
  skipped_steps_ = event.value("total", int64_t{0});
}

void RunRecord::on_tick() {
  if (progress_) progress_->tick();
  provenance_.record(run_, kept_ ? run_dir_ : "");
  double now = steady_seconds();
  if (now - last_heartbeat_ < 5) return;
  last_heartbeat_ = now;
  ledger_.heartbeat(run_);
}

int64_t RunRecord::on_restart(int restart, const std::string& why, const StartPoint& start) {
  progress_->line(fmt::format("restart {}: {}", restart, why));
  ready_ = 0;
  ledger_.event(run_, "restart", {{"attempt", restart}, {"why", why}});
  return begin_attempt(why, start);
}

nlohmann::json RunRecord::result(const Outcome& outcome) const {
  auto per_rank = nlohmann::json::array(), resident = nlohmann::json::array();
  for (const auto& [rank, bytes] : peak_bytes_) per_rank.push_back(bytes);
  for (const auto& [rank, bytes] : peak_resident_) resident.push_back(bytes);
  auto optional = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  nlohmann::json failure;
  if (outcome.status == "failed") failure = {{"kind", outcome.kind}, {"message", outcome.first_cause}};
  return {{"schema", 1},
          {"run", run_},
          {"status", outcome.status},
          {"steps", steps_},
          {"restarts", outcome.restarts},
          {"failure", failure},
          {"final_loss", optional(final_loss_)},
          {"metric", monitor_value_ ? monitor_ : "loss"},  // as in `runner ls`
          {"metric_value", optional(monitor_value_ ? monitor_value_ : final_loss_)},
          {unit_ + "_per_s", timed_seconds_ > 0 ? nlohmann::json(timed_tokens_ / timed_seconds_) : nlohmann::json()},
          {"peak_memory_bytes_per_rank", per_rank},
          {"peak_resident_bytes_per_rank", resident},
          {"time_to_first_step_s", optional(first_step_s_)},
          {"prepare_data_s", optional(data_seconds_)},
          {"run_dir", kept_ ? nlohmann::json(run_dir_) : nlohmann::json()}};
}

void RunRecord::close(const Outcome& outcome) {
  progress_.reset();
  provenance_.record(run_, kept_ ? run_dir_ : "", std::chrono::milliseconds(1000));  // of a very short run
  auto measured = result(outcome);
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
  if (skipped_steps_ > 0) measured["skipped_steps"] = skipped_steps_;
  ledger_.annotate(run_, "measured", measured);
  const bool ended_early = outcome.status == "finished" && outcome.first_cause.empty();
  ledger_.finish_run(run_, outcome.status, static_cast<int>(outcome.code),
                     ended_early ? stopped_by_ : outcome.first_cause, std::exchange(patience_, {}));
  ledger_.flush();
}

void RunRecord::print_result(const Outcome& outcome) const {
  constexpr auto invalid_utf8 = nlohmann::json::error_handler_t::replace;  // paths and messages may have any bytes
  if (options_.json) std::printf("%s\n", result(outcome).dump(-1, ' ', false, invalid_utf8).c_str());
}

void RunRecord::put_back() noexcept {
  try {
    ledger_.put_back(run_);
  } catch (const std::exception& error) {
    log::warning("the ledger still has the settings of this attempt: {}", error.what());
  }
}

void RunRecord::finish(const Outcome& outcome) {
  std::exception_ptr failure;  // of the ledger; it must not hide why the run ended
  try {
    close(outcome);
  } catch (...) {
    failure = std::current_exception();
  }
  print_result(outcome);
  summarize(outcome);
  if (failure) std::rethrow_exception(failure);
}

void RunRecord::fail(const Outcome& outcome) noexcept {
  try {
    close(outcome);
  } catch (const std::exception& error) {
    log::warning("run {} could not be closed: {}", run_, error.what());
  }
  print_result(outcome);
}

std::string RunRecord::final_metrics() const {
  std::string text;
  if (monitor_value_) text += fmt::format(", {} {:.4f}", monitor_, *monitor_value_);
  if (final_loss_) text += fmt::format(", loss {:.4f}", *final_loss_);
  if (timed_seconds_ > 0) text += fmt::format(", {} {}/s", format_count(timed_tokens_ / timed_seconds_), unit_);
  return text.empty() ? text : ":" + text.substr(1);
}

void RunRecord::print_profile() const {
  if (profile_.is_object()) std::fputs(profile_text(profile_).c_str(), stderr);
  if (!traced_ || !kept_) return;
  if (const auto trace = join_traces(run_dir_); !trace.empty())
    log::info("trace of all ranks: {} (open it in Perfetto or chrome://tracing)", trace.string());
}

void RunRecord::summarize(const Outcome& outcome) const {
  print_profile();
  if (outcome.code == ExitCode::run_failed || outcome.code == ExitCode::environment ||
      outcome.code == ExitCode::usage) {
    log::error("{}", outcome.first_cause);
    if (!kept_) return;
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
