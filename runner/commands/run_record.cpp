#include "runner/commands/run_record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/events.hpp"
#include "runner/logging/loggers.hpp"
#include "runner/logging/system_watch.hpp"
#include "runner/report/progress.hpp"

namespace runner {

/// Shows a run on the screen while it goes on.
class RunProgress final : public RunListener {
 public:
  /// `places`: where people find the metrics in addition to the ledger. Called when an attempt begins.
  RunProgress(const Recipe& recipe, const Plan& plan, std::function<std::vector<std::string>()> places)
      : kept_(recipe.run.fast_dev_run == 0),
        world_size_(plan.job.world_size()),
        unit_(unit_of(plan)),
        confirms_bytes_(recipe.train.micro_batch_size == Recipe::automatic ? plan.memory.total() : 0),
        places_(std::move(places)) {
    options_.total_steps = recipe.run.fast_dev_run > 0 ? recipe.run.fast_dev_run : recipe.train.max_steps.value_or(0);
    options_.print_every_n_steps = recipe.train.print_every_n_steps;
  }
  /// A new plan, before its attempt begins.
  void replan(const Plan& plan) {
    world_size_ = plan.job.world_size();
    if (confirms_bytes_ > 0) confirms_bytes_ = plan.memory.total();
  }

  std::string title() const override { return "the progress display"; }
  void begin(const AttemptStart& attempt) override {
    ready_ = 0;
    if (attempt.restart > 0) return;
    progress_.reset();
    progress_ = std::make_unique<Progress>(options_);
    if (kept_)
      progress_->line(
          fmt::format("run {}, {}, in {}", attempt.run, one_line(attempt.row.name), attempt.folder.string()));
    for (const auto& place : places_()) progress_->line("metrics also in " + place);
    progress_->phase("starting " + counted(world_size_, "worker"));
  }
  void points(const PointGroup& group) override {
    if (group.from == PointGroup::From::step) show_step(group);
    if (group.from == PointGroup::From::validation) show_validation(group);
  }
  void event(const std::string& kind, const nlohmann::json& fields) override {
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
  void tick() override {
    if (progress_) progress_->tick();
  }
  /// Closes the display.
  void end(const RunEnd&) override { progress_.reset(); }

 private:
  void show_step(const PointGroup& group) {
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
  void show_validation(const PointGroup& group) {
    std::vector<std::string> values;
    for (const auto& point : group.points) values.push_back(point.name + " " + metric_text(point.value));
    progress_->validation(group.step, join(values, "  "));
  }
  void ready(const nlohmann::json& fields) {
    if (auto steps = fields.find("steps"); steps != fields.end() && steps->is_number_integer())
      progress_->set_total(*steps);
    if (++ready_ == world_size_) progress_->phase("first step");
  }

  Progress::Options options_;
  bool kept_;  ///< the run's folder is kept
  int64_t world_size_;
  std::string unit_;        ///< of what the model is trained on
  int64_t confirms_bytes_;  ///< predicted memory, to be printed with the measured memory of a step; 0 = print nothing
  std::function<std::vector<std::string>()> places_;
  std::unique_ptr<Progress> progress_;
  int ready_ = 0;
  bool skipped_ = false;  ///< a step was skipped, and the screen says so
};

namespace {

/// Prints the points of one metric to stdout as lines {"step", "value"}, for the sweep whose trial the run is (--report-metric).
class ReportedMetric final : public RunListener {
 public:
  explicit ReportedMetric(std::string name) : name_(std::move(name)) {}
  std::string title() const override { return "the report to the sweep"; }
  void points(const PointGroup& group) override {
    for (const auto& point : group.points)
      if (point.name == name_) {
        std::printf("%s\n", nlohmann::json{{"step", point.step}, {"value", json_number(point.value)}}.dump().c_str());
        std::fflush(stdout);
      }
  }

 private:
  std::string name_;
};

using nlohmann::json;

/// A number of an event; NaN if it is not one.
double number(const json& value) { return value.is_number() ? value.get<double>() : std::nan(""); }

/// The watched parts of this machine: the ranks on this node and their GPUs.
SystemWatch::Options watched(const Recipe& recipe, const Plan& plan) {
  constexpr double milliseconds = 1000;
  SystemWatch::Options options{
      .every = std::chrono::milliseconds(std::llround(milliseconds * recipe.logging.system_interval_s)),
      .gpus = {},
      .local_ranks = plan.job.local_size};
  if (!plan.job.accelerator.is_cuda()) return options;  // NVML reads them
  const Facts facts = read_facts();
  for (const int index : choose_devices(recipe.devices, facts).device_indices)
    options.gpus.push_back({.index = index, .uuid = facts.devices.at(static_cast<size_t>(index)).uuid});
  return options;
}

bool asks_to_stop(const std::vector<int>& signals) {
  return std::ranges::any_of(signals, [](int signal) { return signal != SIGTSTP; });
}

}  // namespace

RunRecord::RunRecord(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
                     const StartPoint& start, CodeReader& code, StopSignals& signals, std::shared_ptr<RunLog> shown,
                     double started)
    : home_(home),
      signals_(signals),
      options_(options),
      unit_(unit_of(plan)),
      row_(run_row(home, recipe, plan, options)),
      ledger_(home, recipe.train.grace_time),
      provenance_(std::make_shared<Provenance>(ledger_.ledger(), code)) {
  check_loggers(recipe);
  describe(recipe, plan);
  if (options.resume_run.empty()) {
    NewRun row = row_;
    set_parent(options, start, recipe, home, row);
    if (!options.rerun.is_null()) take_over(options.rerun, row);
    // In the transaction that begins the run, so that a resume starts there even if no attempt has begun.
    if (!start.checkpoint.empty()) {
      row.annotations["start"] = fs::absolute(start.checkpoint).string();
      row.annotations["start_digest"] = manifest_digest(start.checkpoint);
    }
    ledger_.begin_run(row);
    row_.name = ledger_.ledger().row(ledger_.run()).name;
  } else {
    NewRun row = row_;
    row.last_attempt = start.seen;
    row_.name = ledger_.reopen(options.resume_run, row);
  }
  listeners_.add(std::move(shown));
  listeners_.add(provenance_);
  run_dir_ = ledger_.ledger().run_dir(ledger_.run());
  if (recipe.run.fast_dev_run == 0)
    for (auto& logger : make_loggers(recipe, run_dir_, ledger_.ledger(), ledger_.run(), !options.sweep.empty()))
      listeners_.add(std::move(logger));
  if (recipe.logging.system_interval_s > 0)
    listeners_.add(std::make_shared<SystemWatch>(ledger_.ledger(), watched(recipe, plan)));
  if (!options.report_metric.empty()) listeners_.add(std::make_shared<ReportedMetric>(options.report_metric));
  result_ = std::make_shared<RunResult>(ledger_.run(), run_dir_, recipe, plan, options, started);
  progress_ = std::make_shared<RunProgress>(recipe, plan, [this] { return listeners_.places(); });
  listeners_.add(result_);
  listeners_.add(progress_);  // last, so that it is closed before others print at the end
}

void RunRecord::describe(const Recipe& recipe, const Plan& plan) {
  provenance_->describe(recipe, row_);
  row_.annotations["predicted"] = predicted(plan);
}

void RunRecord::replan(const Recipe& recipe, const Plan& plan, const Outcome& ended) {
  auto& ledger = ledger_.ledger();
  ledger.finish_run(ledger_.run(), ended.status, static_cast<int>(ended.code), ended.first_cause);
  row_ = run_row(home_, recipe, plan, options_);
  describe(recipe, plan);
  row_.name = ledger_.reopen(std::string(ledger_.run()), row_);
  progress_->replan(plan);
  result_->replan(plan);
}

void RunRecord::on_data(const std::string& summary, double seconds) {
  log::info("data: {}", summary);
  result_->set_data_seconds(seconds);
  ledger_.ledger().annotate(ledger_.run(), "data_summary", summary);
}

int64_t RunRecord::begin_attempt(const std::string& reason, int restart, const StartPoint& start) {
  const fs::path checkpoint = start.checkpoint.empty() ? fs::path() : fs::absolute(start.checkpoint);
  const NewRun row = ledger_.ledger().without_secrets(row_);
  listeners_.begin({.home = home_,
                    .run = ledger_.run(),
                    .folder = run_dir_,
                    .row = row,
                    .reason = reason,
                    .restart = restart,
                    .from_step = start.step,
                    .completed = start.completed,
                    .checkpoint = checkpoint,
                    .checkpoint_here = in_run_folder(checkpoint, run_dir_),
                    .ledger = ledger_.ledger()});
  fault_point("attempt begun");
  return ledger_.attempt();
}

int64_t RunRecord::begin(const StartPoint& start, const std::string& why) {
  const std::string from = start.checkpoint.empty() ? "start" : "resume from " + start.checkpoint;
  const int64_t attempt = begin_attempt(why.empty() ? from : why + "; " + from, 0, start);
  // These change when an attempt has begun, as the settings do.
  for (const char* key : {"scripts", "predicted"})
    ledger_.ledger().annotate(ledger_.run(), key, row_.annotations.at(key));
  return attempt;
}

int64_t RunRecord::on_restart(int restart, const std::string& why, const StartPoint& start) {
  listeners_.event("restart", {{"attempt", restart}, {"why", why}});
  return begin_attempt(why, restart, start);
}

void RunRecord::on_step(const json& event) {
  made_step_ = true;
  const int64_t step = event.at("step");
  const double seconds = event.at("seconds");
  const auto per_second = [&](const char* what) { return seconds > 0 ? event.at(what).get<double>() / seconds : 0; };
  PointGroup group{.from = PointGroup::From::step, .step = step, .points = {}, .event = event};
  const auto add = [&](const std::string& name, double value) { group.points.push_back({name, step, value}); };
  add(metric::loss, number(event.at("loss")));
  add(metric::lr, event.at("lr"));
  add(rate_metric(unit_), per_second("tokens"));
  add(metric::step_seconds, seconds);
  add(metric::data_wait_share, per_second("data_wait_s"));
  add(metric::memory_bytes, event.at("memory_bytes"));
  if (const auto epochs = event.find("epochs"); epochs != event.end() && epochs->is_number())
    add(metric::epoch, *epochs);
  if (event.at("grad_norm").is_number()) add(metric::grad_norm, event.at("grad_norm"));
  if (const auto trained = event.find("trained"); trained != event.end()) add(total_metric(unit_), *trained);
  if (const auto trained = event.find("train_seconds"); trained != event.end()) add(metric::seconds, *trained);
  if (const auto rates = event.find("group_lr"); rates != event.end())
    for (const auto& [name, rate] : rates->items()) add(metric::group_lr_prefix + name, rate);
  listeners_.points(group);
}

void RunRecord::on_validation(const json& event) {
  const int64_t step = event.at("step");
  PointGroup group{.from = PointGroup::From::validation,
                   .step = step,
                   .points = {{metric::val_loss, step, number(event.at("loss"))}},
                   .event = event};
  if (const auto metrics = event.find("metrics"); metrics != event.end())
    for (const auto& [name, value] : metrics->items()) group.points.push_back({name, step, number(value)});
  listeners_.points(group);
}

void RunRecord::on_hook_metrics(const json& event) {
  const int64_t step = event.at("step");
  PointGroup group{.from = PointGroup::From::hook, .step = step, .points = {}, .event = event};
  for (const auto& [name, value] : event.at("values").items())
    if (value.is_number() || value.is_null())
      group.points.push_back({name, step, number(value), event.value("at_end", false)});
  listeners_.points(group);
}

void RunRecord::on_event(const json& event) {
  const auto brief = brief_reads();  // the caller also handles signals
  const std::string kind = event.value("event", "");
  if (kind == "step") return on_step(event);
  if (kind == "validation") return on_validation(event);
  if (kind == "metrics") return on_hook_metrics(event);
  if (kind == "artifact" || kind == "checkpoint") return listeners_.artifact(kind, event.at("path"), event);
  if (kind == "first_step") made_step_ = true;
  if (kind == "inputs") return provenance_->event(kind, event);  // the record has it as an annotation
  listeners_.event(kind, event);
}

void RunRecord::put_back() noexcept {
  try {
    ledger_.ledger().put_back(ledger_.run());
  } catch (const std::exception& error) {
    log::warning("the ledger still has the settings of this attempt: {}", error.what());
  }
}

void RunRecord::end(const Outcome& outcome, bool caller_tells_why) {
  // A launcher kills what does not end soon after its signal.
  const bool stopped = outcome.status == "preempted" || outcome.status == "interrupted";
  listeners_.end({.outcome = outcome,
                  .message = result_->why(outcome),
                  .measured = result_->measured(outcome),
                  .caller_tells_why = caller_tells_why,
                  .patience = {.deadline = Patience::Clock::now() + std::chrono::seconds(stopped ? 5 : 20),
                               .stop = [this] { return stop_seen_ = stop_seen_ || asks_to_stop(signals_.take()); }}});
}

void RunRecord::fail(const Outcome& outcome) noexcept {
  try {
    end(outcome, /*caller_tells_why=*/true);
  } catch (const std::exception& error) {
    log::warning("run {} could not be closed: {}", ledger_.run(), error.what());
  }
}

}  // namespace runner
